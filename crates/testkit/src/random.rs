//! The one random generator of all tests: small, seeded, and the same everywhere.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(pub u64);
impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// One below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
    /// True once in so many times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}
