//! A latch is let go by the thread that took it.
use fulgurite_memory::{FiberLatch, Latch, PlainMemory};

fn job(memory: &mut PlainMemory, latch: &'static FiberLatch) {
    let guard = latch.lock(memory).unwrap();
    std::thread::spawn(move || drop(guard));
}

fn main() {}
