//! A machine that is simulated whole: the second driver of the cache. A few workers, each with a
//! cache, a scheduler and fibers, over a real pool on a simulated device, all on one thread and by
//! a simulated clock. Next to it is a model that knows what must be there.

#![allow(dead_code, reason = "some tests use a part")]

mod cut;
pub mod disk;
mod fibers;
mod machine;
mod operator;
mod users;
mod world;

pub use fulgurite_testkit::Random;
pub use world::{Bug, Harness, Report, simulate};

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
