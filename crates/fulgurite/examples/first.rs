//! The first program of README.md: it counts into a file, and continues after each kill.
//!
//! ```text
//! cargo run --release -p fulgurite --example first   # kill it at any moment, and run it again
//! ```

use fulgurite::Store;

pub(crate) fn main() -> Result<(), fulgurite::Error> {
    let store = Store::open("visits.pool")?; // the first run creates this file
    let visits = store.map::<u64, u64>("visits")?;
    let so_far = visits.get(&7)?.unwrap_or(0);
    println!("page 7 had {so_far} visits");
    for count in so_far + 1..=1_000_000 {
        visits.put(&7, &count)?;
        store.sync()?; // this visit survives a kill or a power failure from here on
        println!("visit {count} is durable");
    }
    Ok(())
}
