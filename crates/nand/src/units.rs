//! The units of a profile that the other files of the project do not use: rates, energies, counts.
//! Rates and energies are decimal, as data sheets have them. Sizes are powers of 1024, as
//! everywhere else.

use fulgurite_format::{parse_bytes, parse_duration};

/// Splits "1.5MB/s" into its number and its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim()))
}

/// Reads a time in nanoseconds. It needs a unit, also where it is 0.
///
/// # Errors
/// A sentence that says what to write.
pub fn time_ns(text: &str) -> Result<u64, String> {
    if split(text).is_some_and(|(_, unit)| unit.is_empty()) {
        return Err(format!("\"{text}\" has no unit; write for example \"75us\" (ns, us, ms, s)"));
    }
    let duration = parse_duration(text).map_err(|e| e.to_string())?;
    Ok(duration.as_nanos() as u64)
}

/// Reads a size in bytes. It needs a unit.
///
/// # Errors
/// A sentence that says what to write.
pub fn size_bytes(text: &str) -> Result<u64, String> {
    if split(text).is_some_and(|(_, unit)| unit.is_empty()) {
        return Err(format!("\"{text}\" has no unit; write for example \"16K\" (B, K, M, G, T: powers of 1024)"));
    }
    parse_bytes(text).map_err(|e| e.to_string())
}

/// Reads a number with one of these units, in a range of the base unit. Errors say what it is and
/// how one is written.
fn quantity(
    text: &str,
    (what, written): (&str, &str),
    units: &[(&str, f64)],
    range: std::ops::RangeInclusive<f64>,
) -> Result<f64, String> {
    let wrong = |told: &str| Err(format!("\"{text}\" {told}; write for example {written}"));
    let Some((number, unit)) = split(text) else { return wrong(&format!("is not {what}")) };
    if unit.is_empty() {
        return wrong("has no unit");
    }
    let Some((_, scale)) = units.iter().find(|(name, _)| *name == unit) else { return wrong("has an unknown unit") };
    let value = number * scale;
    if range.contains(&value) { Ok(value) } else { wrong("is out of range") }
}

/// Reads a rate in bytes per second: `800MB/s` is 800,000,000.
///
/// # Errors
/// A sentence that says what to write.
pub fn bytes_per_second(text: &str) -> Result<u64, String> {
    let written = "\"800MB/s\" (KB/s, MB/s, GB/s: powers of 1000)";
    // At most faster than any memory, and so that bytes times nanoseconds stay in 64 bits.
    let rate = quantity(text, ("a rate", written), &[("KB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9)], 1e3..=1e15)?;
    Ok(rate as u64)
}

/// Reads an energy in picojoules: `30uJ` is 30,000,000.
///
/// # Errors
/// A sentence that says what to write.
pub fn picojoules(text: &str) -> Result<u64, String> {
    let written = "\"30uJ\" (pJ, nJ, uJ, mJ, J)";
    let units = [("pJ", 1.0), ("nJ", 1e3), ("uJ", 1e6), ("µJ", 1e6), ("μJ", 1e6), ("mJ", 1e9), ("J", 1e12)];
    Ok(quantity(text, ("an energy", written), &units, 0.0..=1e13)?.round() as u64)
}

/// Reads a count of something that is named: `3000 cycles`, `40 bits`.
///
/// # Errors
/// A sentence that says what to write.
pub fn count(text: &str, of: &str) -> Result<u64, String> {
    let written = format!("\"40 {of}\"");
    let count = quantity(text, ("a count", &written), &[(of, 1.0)], 0.0..=f64::from(u32::MAX))?;
    if count.fract() != 0.0 {
        return Err(format!("\"{text}\" is out of range; write for example {written}"));
    }
    Ok(count as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_data_sheets_say() {
        assert_eq!(time_ns("75us"), Ok(75_000));
        assert_eq!(time_ns("1.2ms"), Ok(1_200_000));
        assert_eq!(size_bytes("16K"), Ok(16_384));
        assert_eq!(bytes_per_second("330MB/s"), Ok(330_000_000));
        assert_eq!(bytes_per_second("1.6GB/s"), Ok(1_600_000_000));
        assert_eq!(picojoules("0.75uJ"), Ok(750_000));
        assert_eq!(picojoules("75pJ"), Ok(75));
        assert_eq!(count("3000 cycles", "cycles"), Ok(3000));
    }
    #[test]
    fn what_is_refused_says_what_to_write() {
        for (got, example) in [
            (time_ns("75"), "75us"),
            (time_ns("0"), "75us"),
            (time_ns("x"), "10us"),
            (size_bytes("16384"), "16K"),
            (bytes_per_second("800"), "800MB/s"),
            (bytes_per_second("800Mb/s"), "800MB/s"),
            (bytes_per_second("0MB/s"), "800MB/s"),
            (bytes_per_second("-1MB/s"), "800MB/s"),
            (picojoules("30"), "30uJ"),
            (picojoules("30W"), "30uJ"),
            (picojoules("99999999J"), "30uJ"),
            (count("3000", "cycles"), "40 cycles"),
            (count("3000 bits", "cycles"), "40 cycles"),
            (count("1.5 bits", "bits"), "40 bits"),
        ] {
            let message = got.expect_err("it makes no sense");
            assert!(message.contains(example), "{message}");
        }
    }
}
