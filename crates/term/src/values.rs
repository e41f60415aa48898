//! The values of options, and how each is read from text: sizes, shares, times, names. Slips get
//! the nearest name suggested, and completion gets all names ([`Names`]).

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use fulgurite_format::{ParseUnitError, format_bytes, parse_bytes, parse_duration};

/// Where JSON is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Standard output; tables go to standard error then.
    Stdout,
    /// A file.
    File(PathBuf),
}

/// Reads [`Output`]: `-` is standard output.
pub fn output(text: &str) -> Result<Output, String> {
    match text {
        "" => Err("an empty name; write - for standard output".to_owned()),
        "-" => Ok(Output::Stdout),
        path => Ok(Output::File(path.into())),
    }
}

/// A size, or a share of the data.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Size {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage.
    Percent(f64),
}

impl Size {
    /// In bytes, rounded down to whole subpages.
    pub fn of(self, data_bytes: u64) -> u64 {
        let bytes = match self {
            Size::Bytes(bytes) => bytes,
            Size::Percent(percent) => (data_bytes as f64 * percent / 100.0) as u64,
        };
        bytes & !4095
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Bytes(bytes) => f.write_str(&format_bytes(*bytes)),
            Size::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Reads a size that must not be zero.
pub fn bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text).map_err(|e| e.to_string())? {
        0 => Err("a size of zero; write for example 64M or 2G".to_owned()),
        bytes if bytes < 4096 => Err("less than one subpage of 4 KiB; write for example 64M or 2G".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Reads [`Size`].
pub fn size(text: &str) -> Result<Size, String> {
    if text.trim().ends_with('%') { percent(text).map(Size::Percent) } else { bytes(text).map(Size::Bytes) }
}

/// The least share that is taken for one: of 16 TiB, the most there can be, it is 16 MiB.
const PERCENT_MIN: f64 = 0.0001;

/// The number of a share, before its sign if it has one.
pub fn without_sign(text: &str) -> &str {
    let text = text.trim();
    text.strip_suffix('%').unwrap_or(text).trim_end()
}

/// Reads a percentage above 0, at most 100; the sign may follow.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = without_sign(text);
    match number.parse::<f64>() {
        Ok(percent) if (PERCENT_MIN..=100.0).contains(&percent) => Ok(percent),
        Ok(_) => Err(format!("a share must be above 0% ({PERCENT_MIN}% at least) and at most 100%")),
        Err(_) => Err(format!("\"{number}\" is not a number; write for example 3%")),
    }
}

/// Reads a time, at most an hour.
pub fn duration(text: &str) -> Result<Duration, String> {
    let read = parse_duration(text).map_err(|error| match error {
        ParseUnitError::UnknownUnit(text, unit, units) if unit.is_empty() => {
            let text = text.trim();
            format!("\"{text}\" has no unit; write {text}us for microseconds (known are {units})")
        }
        other => other.to_string(),
    });
    match read? {
        long if long > Duration::from_secs(3600) => Err("more than an hour".to_owned()),
        time => Ok(time),
    }
}

/// Reads a time that must not be zero.
pub fn non_zero_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("a time of zero; write for example 10us".to_owned()),
        time => Ok(time),
    }
}

/// The name most like `text`, if at least half of it agrees. Any other would mislead.
pub fn nearest<'a>(text: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |name: &str| strsim::damerau_levenshtein(&text.to_lowercase(), name);
    let best = known.min_by_key(|name| distance(name))?;
    (distance(best) * 2 <= best.len().max(text.len())).then_some(best)
}

/// What is said of a name that there is none of.
pub fn unknown<'a>(kind: &str, text: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let all = known.clone().collect::<Vec<_>>().join(", ");
    let guess = nearest(text, known).map_or(String::new(), |name| format!("did you mean \"{name}\"? "));
    format!("there is no {kind} \"{text}\"; {guess}All of them: {all}")
}

/// Reads one of several names, and lists them for completion. `read` suggests the nearest.
#[derive(Clone, Copy, Debug)]
pub struct Names<T> {
    read: fn(&str) -> Result<T, String>,
    names: fn() -> Vec<&'static str>,
}

impl<T> Names<T> {
    /// What `read` reads, of which these are all the names.
    pub const fn new(read: fn(&str) -> Result<T, String>, names: fn() -> Vec<&'static str>) -> Names<T> {
        Names { read, names }
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Names<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<T, clap::error::Error> {
        TypedValueParser::parse_ref(&self.read, command, arg, value)
    }
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.names)().into_iter().map(PossibleValue::new)))
    }
}

/// Values with names, by which results and command lines know them.
#[macro_export]
macro_rules! names {
    ($(#[$doc:meta])* $kind:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
        pub enum $kind { $($(#[$variant_doc])* #[serde(rename = $name)] $variant,)* }

        impl $kind {
            /// All of them.
            #[allow(dead_code, reason = "not all lists of names are walked")]
            pub const ALL: &[$kind] = &[$($kind::$variant),*];
            /// Its name on the command line and in results.
            pub const fn name(self) -> &'static str {
                match self { $($kind::$variant => $name,)* }
            }
        }
        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
/// Values with names, which an option takes.
#[macro_export]
macro_rules! named {
    ($(#[$doc:meta])* $kind:ident, $what:literal, $read:ident { $($variants:tt)* }) => {
        $crate::names! { $(#[$doc])* $kind { $($variants)* } }

        impl $kind {
            /// Reads it, for the command line.
            pub const fn parser() -> $crate::values::Names<$kind> {
                $crate::values::Names::new($read, || $kind::ALL.iter().map(|k| k.name()).collect())
            }
        }
        #[doc = concat!("Reads the name of a ", $what, ".")]
        pub fn $read(text: &str) -> Result<$kind, String> {
            $kind::ALL.iter().copied().find(|k| k.name() == text)
                .ok_or_else(|| $crate::values::unknown($what, text, $kind::ALL.iter().map(|k| k.name())))
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_shares() {
        assert_eq!(size("64M"), Ok(Size::Bytes(64 << 20)));
        assert_eq!(size("3%").unwrap().of(1 << 30), ((1u64 << 30) * 3 / 100) & !4095);
        for bad in ["0", "-1M", "0%", "-3%", "101%", "x%", "", "1e30T", "12", "1e-300%", "3%%"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert_eq!(percent("3%"), Ok(3.0));
        assert!(percent("3%%").is_err());
    }
    #[test]
    fn a_time_wants_its_unit() {
        let message = duration("10").unwrap_err();
        assert!(message.contains("no unit") && message.contains("10us"), "{message}");
        assert!(duration("10x").unwrap_err().contains("unknown unit \"x\""));
        assert_eq!((duration("0"), duration("10us")), (Ok(Duration::ZERO), Ok(Duration::from_micros(10))));
    }
}
