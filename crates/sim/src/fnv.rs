//! FNV-1a of 64 bits (Fowler, Noll and Vo): a number that tells inputs apart.

/// A hash of the bytes that were added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fnv(pub u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl std::fmt::Display for Fnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_its_authors() {
        let of = |text: &str| {
            let mut hash = Fnv::default();
            hash.add(text.as_bytes());
            hash.to_string()
        };
        assert_eq!([of(""), of("a"), of("foobar")], ["cbf29ce484222325", "af63dc4c8601ec8c", "85944171f73967e8"]);
    }
}
