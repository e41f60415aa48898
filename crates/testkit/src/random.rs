//! The one random generator of all tests: small, seeded, and the same everywhere.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

/// What [`Random::below`] gives.
pub trait Number: Copy {
    /// As 64 bits.
    fn wide(self) -> u64;
    /// From 64 bits that hold no more than it can.
    fn narrow(wide: u64) -> Self;
}
macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl Number for $number {
            fn wide(self) -> u64 {
                self.try_into().expect("a limit is above zero")
            }
            fn narrow(wide: u64) -> Self {
                wide.try_into().expect("it is below a limit of this type")
            }
        }
    )* };
}
// `i32` is what a number is that nothing gives a type.
numbers!(u8, u16, u32, u64, usize, i32);

impl Random {
    /// From `FULGURITE_SEED` where it is set, else from `own`. Prints the seed.
    pub fn seeded(what: &str, own: u64) -> Random {
        let seed = crate::first_seed(own);
        println!("{what}: FULGURITE_SEED={seed}");
        Random(seed)
    }
    /// A stream of its own, for thread or round `number`.
    pub fn split(&self, number: u64) -> Random {
        let mut other = Random(self.0 ^ number.wrapping_mul(0xD134_2543_DE82_EF95));
        other.next();
        other
    }
    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "it never ends, so no caller would unwrap an option")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// A number below a limit.
    pub fn below<N: Number>(&mut self, limit: N) -> N {
        N::narrow(self.next() % limit.wide())
    }
    /// True once in `n` times.
    pub fn one_in<N: Number>(&mut self, n: N) -> bool {
        self.below(n).wide() == 0
    }
    /// Random bytes, `count` of them.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}
