//! An index larger than its DRAM, read by many jobs at once.

use fulgurite::{AccessError, Error, Fulgurite, Medium};

const KEYS: u64 = 1_000_000;

pub fn main() -> Result<(), Error> {
    // 16 MB of keys and values, and 6 MiB of DRAM for tables, stacks and the cache together.
    let medium = Medium::pool_or_new("index.pool", "64M");
    let memory = Fulgurite::builder(medium).dram("6M").with(|runtime| runtime.fibers(32)).start()?;
    let index = memory.named("index").b_plus_tree::<u64>("40M")?;
    if memory.run(|m| index.get(m, 0))?.is_none() {
        // In the order of the keys, so each page of the pool is written once.
        memory.run(|m| index.bulk_load(m, (0..KEYS).map(|key| (key, key * key)), 0.9))?;
        memory.sync()?;
    }

    // While a job waits for flash, its worker runs the others: so submit many small jobs.
    let jobs = (0..32).map(|job| {
        let index = index.clone();
        memory.submit(move |m| {
            for step in 0..100 {
                let key = (job * 7919 + step * 104_729) % KEYS;
                assert_eq!(index.get(m, key)?, Some(key * key));
            }
            Ok::<u64, AccessError>(100)
        })
    });
    let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
    let mut found = 0;
    for job in jobs {
        found += job.wait()??;
    }
    let total = memory.statistics().total().counts;
    println!("{found} keys found; {} of {} accesses read flash", total.misses, total.accesses);
    Ok(())
}
