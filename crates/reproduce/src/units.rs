//! Units: what a number in a calibration counts, and how many of the base unit it is.

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dimension {
    /// Base unit: picoseconds.
    Time,
    /// Base unit: bytes.
    Bytes,
    /// Base unit: bytes a second.
    Rate,
    /// Base unit: hertz.
    Frequency,
    /// Base unit: cycles of the clock that the part has.
    Cycles,
    /// Base unit: one.
    Share,
    /// Base unit: one.
    Count,
    /// Base unit: bits.
    Bits,
    /// Base unit: watts.
    Power,
    /// Base unit: joules.
    Energy,
    /// Base unit: amperes.
    Current,
    /// Base unit: volts.
    Voltage,
    /// Base unit: square millimetres.
    Area,
    /// Base unit: bytes on a square millimetre.
    Density,
    /// Base unit: US dollars.
    Money,
    /// Base unit: US dollars a gigabyte.
    Price,
    /// Words.
    Text,
}

impl Dimension {
    /// As an error names it.
    pub fn name(self) -> &'static str {
        match self {
            Dimension::Time => "a time",
            Dimension::Bytes => "a size",
            Dimension::Rate => "a rate",
            Dimension::Frequency => "a frequency",
            Dimension::Cycles => "cycles",
            Dimension::Share => "a share",
            Dimension::Count => "a count",
            Dimension::Bits => "bits",
            Dimension::Power => "a power",
            Dimension::Energy => "an energy",
            Dimension::Current => "a current",
            Dimension::Voltage => "a voltage",
            Dimension::Area => "an area",
            Dimension::Density => "a density",
            Dimension::Money => "an amount of money",
            Dimension::Price => "a price",
            Dimension::Text => "text",
        }
    }
}

const KI: f64 = 1024.0;

/// Every unit that is known. Sizes follow the IEC; rates are decimal, as data sheets have them.
const UNITS: [(&str, Dimension, f64); 32] = [
    ("ps", Dimension::Time, 1.0),
    ("ns", Dimension::Time, 1e3),
    ("us", Dimension::Time, 1e6),
    ("ms", Dimension::Time, 1e9),
    ("s", Dimension::Time, 1e12),
    ("days", Dimension::Time, 86_400e12),
    ("B", Dimension::Bytes, 1.0),
    ("KiB", Dimension::Bytes, KI),
    ("MiB", Dimension::Bytes, KI * KI),
    ("GiB", Dimension::Bytes, KI * KI * KI),
    ("TiB", Dimension::Bytes, KI * KI * KI * KI),
    ("MB/s", Dimension::Rate, 1e6),
    ("GB/s", Dimension::Rate, 1e9),
    ("Hz", Dimension::Frequency, 1.0),
    ("MHz", Dimension::Frequency, 1e6),
    ("GHz", Dimension::Frequency, 1e9),
    ("MT/s", Dimension::Frequency, 1e6),
    ("cycles", Dimension::Cycles, 1.0),
    ("of one", Dimension::Share, 1.0),
    ("%", Dimension::Share, 0.01),
    ("times", Dimension::Share, 1.0),
    ("bits", Dimension::Bits, 1.0),
    ("mW", Dimension::Power, 1e-3),
    ("pJ", Dimension::Energy, 1e-12),
    ("uJ", Dimension::Energy, 1e-6),
    ("mA", Dimension::Current, 1e-3),
    ("V", Dimension::Voltage, 1.0),
    ("mm2", Dimension::Area, 1.0),
    ("MiB/mm2", Dimension::Density, KI * KI),
    ("USD", Dimension::Money, 1.0),
    ("USD/GB", Dimension::Price, 1.0),
    ("text", Dimension::Text, 1.0),
];

/// What is counted, each a unit of [`Dimension::Count`].
const COUNTED: &str = "accesses banks blocks chips controllers cores entries instructions levels operations parts records \
                       commands pages pins ports registers lines requests sets threads tiles vCPU ways";

/// A unit by its name.
pub fn unit(name: &str) -> Option<(Dimension, f64)> {
    if COUNTED.split(' ').any(|counted| counted == name) {
        return Some((Dimension::Count, 1.0));
    }
    UNITS.iter().find(|(known, ..)| *known == name).map(|(_, dimension, factor)| (*dimension, *factor))
}

/// All names, for an error.
pub fn names() -> impl Iterator<Item = &'static str> {
    UNITS.iter().map(|(name, ..)| *name).chain(COUNTED.split(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_of_one_unit() {
        for (at, name) in names().enumerate() {
            assert_eq!(names().position(|other| other == name), Some(at), "{name}");
        }
        assert_eq!(unit("us"), Some((Dimension::Time, 1e6)));
        assert_eq!(unit("parsec"), None);
    }
}
