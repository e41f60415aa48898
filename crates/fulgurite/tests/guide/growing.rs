//! A pool that grows while it is open.

use fulgurite::{Error, Fulgurite, Medium};

pub fn main() -> Result<(), Error> {
    // The file begins with 16 MiB, and grows up to 128 MiB whenever three quarters are needed.
    let medium = Medium::pool_or_new("growing.pool", "16M");
    let memory = Fulgurite::builder(medium).dram("16M").growing("128M").start()?;
    let files = memory.named("files").blobs::<u64>(1000, "80M")?;
    for number in 0..64 {
        memory.run(|m| files.put(m, &number, &vec![number as u8; 512 << 10]))?;
    }
    println!("32 MiB of values in a pool of {} MiB", memory.size()? >> 20);
    Ok(())
}
