//! The units people write: `512M`, `2GiB`, `10us`, `1.5ms`. Sizes are powers of 1024, as in
//! `--dram 512M`.

use std::time::Duration;

/// Why a size or a time could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseUnitError {
    /// No digits at the front.
    #[error("\"{0}\" does not start with a number; write for example {1}")]
    NotANumber(String, &'static str),
    /// An unknown unit.
    #[error("\"{0}\" has an unknown unit \"{1}\"; known are {2}")]
    UnknownUnit(String, String, &'static str),
    /// More than 64 bits hold.
    #[error("\"{0}\" is too large")]
    TooLarge(String),
    /// Below zero.
    #[error("\"{0}\" is negative")]
    Negative(String),
}

/// A number of bytes, given as one or as text (`"64M"`). Text that is no size is an error when the
/// number is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size(Result<u64, ParseUnitError>);

impl Size {
    /// The number of bytes.
    ///
    /// # Errors
    /// As [`parse_bytes`].
    pub fn bytes(&self) -> Result<u64, ParseUnitError> {
        self.0.clone()
    }
}
impl From<u64> for Size {
    fn from(bytes: u64) -> Size {
        Size(Ok(bytes))
    }
}
impl From<&str> for Size {
    fn from(text: &str) -> Size {
        Size(parse_bytes(text))
    }
}
impl From<String> for Size {
    fn from(text: String) -> Size {
        Size(parse_bytes(&text))
    }
}

/// Splits "1.5ms" into its number and its unit.
fn split<'a>(text: &'a str, example: &'static str) -> Result<(f64, &'a str), ParseUnitError> {
    let text = text.trim();
    let not_a_number = || ParseUnitError::NotANumber(text.to_owned(), example);
    if text.starts_with('-') {
        return Err(ParseUnitError::Negative(text.to_owned()));
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().map_err(|_| not_a_number())?;
    Ok((number, text[end..].trim()))
}

/// Reads a size in bytes: a number with an optional K, M, G or T (powers of 1024), with or without
/// `B` or `iB`.
///
/// # Errors
/// When the text is not such a size or does not fit in 64 bits.
pub fn parse_bytes(text: &str) -> Result<u64, ParseUnitError> {
    const UNITS: &str = "B, K, M, G, T (powers of 1024; KiB and KB mean K)";
    let (number, unit) = split(text, "512M")?;
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(ParseUnitError::UnknownUnit(text.to_owned(), unit.to_owned(), UNITS)),
    };
    // Whole numbers are exact even where a double is not.
    if number.fract() == 0.0 {
        let whole: Option<u64> = text.trim().split(|c: char| !c.is_ascii_digit()).next().and_then(|d| d.parse().ok());
        if let Some(whole) = whole {
            return whole.checked_mul(1 << shift).ok_or_else(|| ParseUnitError::TooLarge(text.to_owned()));
        }
    }
    let bytes = number * (1u64 << shift) as f64;
    if bytes >= u64::MAX as f64 {
        return Err(ParseUnitError::TooLarge(text.to_owned()));
    }
    Ok(bytes as u64)
}

/// Reads a time: a number with `ns`, `us` (or `µs`), `ms` or `s`. A bare 0 needs no unit.
///
/// # Errors
/// When the text is not such a time or is longer than a year.
pub fn parse_duration(text: &str) -> Result<Duration, ParseUnitError> {
    const UNITS: &str = "ns, us, ms, s";
    let (number, unit) = split(text, "10us")?;
    let ns = match unit.to_lowercase().as_str() {
        "" if number == 0.0 => 0.0,
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(ParseUnitError::UnknownUnit(text.to_owned(), unit.to_owned(), UNITS)),
    } * number;
    if ns > 366.0 * 86_400e9 {
        return Err(ParseUnitError::TooLarge(text.to_owned()));
    }
    Ok(Duration::from_nanos(ns as u64))
}

/// `64.0 MiB` and the like.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `10 µs`, `1.5 ms` and the like.
pub fn format_duration(duration: Duration) -> String {
    let ns = duration.as_nanos() as f64;
    let (value, unit) = match ns {
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "µs"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    if value.fract() == 0.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_or_text() {
        let all = [Size::from(64 << 20), Size::from("64M"), Size::from("64 MiB".to_owned())];
        assert!(all.iter().all(|size| size.bytes() == Ok(64 << 20)), "{all:?}");
        assert!(matches!(Size::from("much").bytes(), Err(ParseUnitError::NotANumber(..))));
        assert!(matches!(Size::from("-4K").bytes(), Err(ParseUnitError::Negative(_))));
    }

    #[test]
    fn sizes_people_write() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("1k", 1024), ("512M", 512 << 20), ("1.5 GiB", 3 << 29), ("2tb", 2 << 40)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse_bytes("18014398509481983K"), Ok(18_014_398_509_481_983 * 1024));
    }
    #[test]
    fn sizes_that_are_refused() {
        assert!(matches!(parse_bytes("-1M"), Err(ParseUnitError::Negative(_))));
        assert!(matches!(parse_bytes(""), Err(ParseUnitError::NotANumber(..))));
        assert!(matches!(parse_bytes("many"), Err(ParseUnitError::NotANumber(..))));
        assert!(matches!(parse_bytes("1.2.3M"), Err(ParseUnitError::NotANumber(..))));
        assert!(matches!(parse_bytes("10 parsecs"), Err(ParseUnitError::UnknownUnit(..))));
        assert!(matches!(parse_bytes("99999999999T"), Err(ParseUnitError::TooLarge(_))));
    }
    #[test]
    fn sizes_people_read() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (64 << 20, "64.0 MiB"),
            (3 << 29, "1.5 GiB"),
            (1 << 40, "1.0 TiB"),
            (5 << 50, "5120.0 TiB"),
        ] {
            assert_eq!(format_bytes(bytes), text);
        }
    }
    #[test]
    fn times_up_to_a_year() {
        assert_eq!(parse_duration("31622400s"), Ok(Duration::from_secs(366 * 86_400)));
        assert!(matches!(parse_duration("31622401s"), Err(ParseUnitError::TooLarge(_))));
    }
    #[test]
    fn times_people_read() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1 µs"),
            (10_500, "10.5 µs"),
            (1_000_000, "1 ms"),
            (1_500_000, "1.5 ms"),
            (1_000_000_000, "1 s"),
            (90_000_000_000, "90 s"),
        ] {
            assert_eq!(format_duration(Duration::from_nanos(ns)), text);
        }
    }
    #[test]
    fn times_people_write() {
        assert_eq!(parse_duration("10us"), Ok(Duration::from_micros(10)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert!(parse_duration("10").is_err());
        assert!(parse_duration("-10us").is_err());
        assert!(parse_duration("1e9s").is_err());
    }
}
