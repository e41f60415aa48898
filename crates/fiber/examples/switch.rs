//! Prints the price of a switch: `cargo run --release -p fulgurite-fiber --example switch`.

use fulgurite_fiber::{Fiber, StackPool};
use std::time::Instant;

fn main() {
    const ROUNDS: u32 = 10_000_000;
    let pool = StackPool::new(1, 32 * 1024).expect("one stack");
    let mut fiber = Fiber::new(pool.take().expect("one stack"), |s| {
        loop {
            s.suspend();
        }
    });
    for _ in 0..3 {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            fiber.resume();
        }
        println!("{:.1} ns a switch (one way)", start.elapsed().as_nanos() as f64 / f64::from(ROUNDS) / 2.0);
    }
}
