//! Quantities of a system file: a number and its unit, as data sheets have them.
//!
//! Sizes are powers of 1024, rates and frequencies are decimal. A quantity without its unit is
//! refused, also where it is zero.

/// What a quantity measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// In picoseconds.
    Time,
    /// In bytes.
    Size,
    /// In bytes a second.
    Rate,
    /// In hertz.
    Frequency,
    /// As a part of one.
    Share,
    /// In watts.
    Power,
    /// In joules.
    Energy,
}

impl Quantity {
    /// The units, each with its factor.
    const fn units(self) -> &'static [(&'static str, f64)] {
        const KI: f64 = 1024.0;
        match self {
            Quantity::Time => {
                &[("ps", 1.0), ("ns", 1e3), ("us", 1e6), ("µs", 1e6), ("μs", 1e6), ("ms", 1e9), ("s", 1e12)]
            }
            Quantity::Size => &[
                ("B", 1.0),
                ("K", KI),
                ("M", KI * KI),
                ("G", KI * KI * KI),
                ("T", KI * KI * KI * KI),
                ("KiB", KI),
                ("MiB", KI * KI),
                ("GiB", KI * KI * KI),
                ("TiB", KI * KI * KI * KI),
            ],
            Quantity::Rate => &[("B/s", 1.0), ("KB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9)],
            Quantity::Frequency => &[("Hz", 1.0), ("kHz", 1e3), ("MHz", 1e6), ("GHz", 1e9)],
            Quantity::Power => &[("uW", 1e-6), ("mW", 1e-3), ("W", 1.0)],
            Quantity::Energy => &[("pJ", 1e-12), ("nJ", 1e-9), ("uJ", 1e-6), ("mJ", 1e-3), ("J", 1.0)],
            // Divided below, so that 70% is 0.7 to the last digit.
            Quantity::Share => &[("%", 100.0)],
        }
    }
    /// How one is written.
    pub const fn example(self) -> &'static str {
        match self {
            Quantity::Time => "\"75us\" (ps, ns, us, ms, s)",
            Quantity::Size => "\"16K\" (B, K, M, G, T: powers of 1024)",
            Quantity::Rate => "\"800MB/s\" (B/s, KB/s, MB/s, GB/s: powers of 1000)",
            Quantity::Frequency => "\"2GHz\" (Hz, kHz, MHz, GHz)",
            Quantity::Share => "\"70%\"",
            Quantity::Power => "\"57mW\" (uW, mW, W)",
            Quantity::Energy => "\"500pJ\" (pJ, nJ, uJ, mJ, J)",
        }
    }
    /// Reads one in its base unit.
    ///
    /// # Errors
    /// What is wrong with it: no number, no unit, or one that is not known.
    pub fn read(self, text: &str) -> Result<f64, &'static str> {
        let text = text.trim();
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let number: f64 = text[..end].parse().map_err(|_| "is not a number with its unit")?;
        let unit = text[end..].trim();
        if unit.is_empty() {
            return Err("has no unit");
        }
        let factor = self.units().iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
        let factor = factor.ok_or("has an unknown unit")?;
        let value = if self == Quantity::Share { number / factor } else { number * factor };
        if value < 1e18 { Ok(value) } else { Err("is out of range") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_data_sheets_say() {
        assert_eq!(Quantity::Time.read("1.25ns"), Ok(1250.0));
        assert_eq!(Quantity::Time.read("50 µs"), Ok(5e7));
        assert_eq!(Quantity::Size.read("16K"), Ok(16_384.0));
        assert_eq!(Quantity::Rate.read("333MB/s"), Ok(3.33e8));
        assert_eq!(Quantity::Frequency.read("2GHz"), Ok(2e9));
        assert_eq!(Quantity::Share.read("70%"), Ok(0.7));
        assert_eq!(Quantity::Power.read("57mW"), Ok(57.0 * 1e-3));
        assert_eq!(Quantity::Energy.read("2uJ"), Ok(2.0 * 1e-6));
    }
    #[test]
    fn what_is_refused() {
        for (quantity, text, told) in [
            (Quantity::Time, "0", "has no unit"),
            (Quantity::Time, "5 parsecs", "has an unknown unit"),
            (Quantity::Time, "-5us", "is not a number with its unit"),
            (Quantity::Time, "99999999999999999999s", "is out of range"),
            (Quantity::Rate, "800Mb/s", "has an unknown unit"),
            (Quantity::Size, "", "is not a number with its unit"),
            (Quantity::Share, "0.7", "has no unit"),
        ] {
            assert_eq!(quantity.read(text), Err(told), "{text}");
        }
    }
}
