//! A backup of one state while the service continues to write.

use std::fs::File;
use std::io::{BufWriter, Write};

use fulgurite::latches::NoLatch;
use fulgurite::{Fulgurite, HashMap, Medium};

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let medium = Medium::pool_or_new("accounts.pool", "64M");
    let memory = Fulgurite::builder(medium).dram("16M").keep_tokens(2).start()?;
    let accounts = memory.named("accounts").hash_map::<u64, u64>(10_000)?;
    memory.run(|m| (0..1000).try_for_each(|key| accounts.insert(m, &key, 100).map(drop)))?;

    let token = memory.sync()?; // the state that the backup has
    let state = memory.open_token(token, "8M")?;
    memory.run(|m| accounts.insert(m, &7, 0))?; // continues, and is not in the backup

    let old = state.container::<HashMap<u64, u64, NoLatch>>("accounts")?;
    let mut file = BufWriter::new(File::create("accounts.csv")?);
    for key in 0..1000 {
        if let Some(cents) = state.run(|m| old.get(m, &key))? {
            writeln!(file, "{key},{cents}")?;
        }
    }
    file.into_inner()?.sync_all()?;
    drop(state); // from here on the pool may drop the token
    println!("token {token} is in accounts.csv");
    Ok(())
}
