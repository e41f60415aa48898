//! The first program of README.md: it counts into a file, and continues after each kill.
//!
//! ```text
//! cargo run --release -p fulgurite --example first   # kill it at any moment, and run it again
//! ```

use fulgurite::{Fulgurite, Medium};

pub(crate) fn main() -> Result<(), fulgurite::Error> {
    let medium = Medium::pool_or_new("visits.pool", "64M"); // the first run creates this file
    let memory = Fulgurite::builder(medium).dram("16M").start()?;
    let visits = memory.named("visits").hash_map::<u64, u64>(100_000)?;
    let so_far = memory.run(|m| visits.get(m, &7))?.unwrap_or(0);
    println!("page 7 had {so_far} visits");
    for count in so_far + 1..=1_000_000 {
        memory.run(|m| visits.insert(m, &7, count))?;
        memory.sync()?; // this visit survives a kill or a power failure from here on
        println!("visit {count} is durable");
    }
    Ok(())
}
