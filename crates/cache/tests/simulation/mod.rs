//! A machine that is simulated whole: the second driver of the cache. A few workers, each with a
//! cache, a scheduler and fibers, over a real pool on a simulated device, all on one thread and by
//! a simulated clock. Beside it, a model that knows what must be there.

#![allow(dead_code, reason = "some tests use a part")]

mod cut;
pub mod disk;
mod fibers;
mod machine;
mod operator;
mod users;
mod world;

pub use world::{Bug, Harness, Report, simulate};

/// A generator of random numbers (xorshift64*), so that a seed replays a run.
#[derive(Clone, Debug)]
pub struct Random(u64);
impl Random {
    pub fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    pub fn below(&mut self, n: u32) -> u32 {
        (((self.next() >> 32) * u64::from(n)) >> 32) as u32
    }
    pub fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }
}

/// A hash of all that has happened, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trace(pub u64);
impl Default for Trace {
    fn default() -> Trace {
        Trace(0xCBF2_9CE4_8422_2325)
    }
}
impl Trace {
    pub fn note(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
}
