//! An index larger than DRAM: a B+-tree of four million keys behind 16 MiB.
//!
//! ```text
//! cargo run --release -p fulgurite --example large_index
//! ```

use std::sync::Arc;
use std::time::Instant;

use fulgurite::{BPlusTree, Fulgurite, Medium, latches::VersionLatch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let keys: u64 = if cfg!(debug_assertions) { 1_000_000 } else { 4_000_000 };
    let memory = Fulgurite::builder(Medium::emulated(512 << 20)).dram("16M").start()?;
    let heap = memory.heap(400 << 20)?;

    let start = Instant::now();
    let tree: Arc<BPlusTree<u64, VersionLatch>> = memory.run(move |m| {
        let tree = BPlusTree::create(m, heap, 1 << 10)?;
        tree.bulk_load(m, (0..keys).map(|k| (k * 10, k)), 0.9)?;
        Ok(Arc::new(tree))
    })?;
    println!("{keys} keys loaded in {:.1} s", start.elapsed().as_secs_f64());

    // Many jobs at once: while one waits for flash, the others run.
    let start = Instant::now();
    let jobs: Vec<_> = (0..64u64)
        .map(|job| {
            let tree = tree.clone();
            memory.submit(move |m| {
                let mut sum = 0;
                for i in 0..1000u64 {
                    let key = (job * 7919 + i * 104_729) % keys * 10;
                    sum += tree.get(m, key)?.map_or(0, |v| u64::from(v * 10 == key));
                }
                Ok::<u64, fulgurite::AccessError>(sum)
            })
        })
        .collect::<Result<_, _>>()?;
    let mut found = 0;
    for job in jobs {
        found += job.wait()??;
    }
    let seconds = start.elapsed().as_secs_f64();
    let total = memory.statistics().total().counts;
    println!(
        "{found} of 64000 keys found in {seconds:.2} s; {} misses of {} accesses, with {} frames of DRAM",
        total.misses,
        total.accesses,
        memory.runtime().frames()
    );
    Ok(())
}
