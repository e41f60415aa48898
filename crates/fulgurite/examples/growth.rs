//! The longest pause of an insert while a map made for 1,000 entries grows to millions, under load.
//!
//! ```text
//! cargo run --release -p fulgurite --example growth            # to 10,000,000 entries, 4 GiB
//! cargo run --release -p fulgurite --example growth -- --quick # to 200,000
//! cargo run --release -p fulgurite --example growth -- --json
//! ```
//!
//! One worker inserts while it also serves readers of random keys, and a sync is made each second.
//! Each insert is timed. Stretches in which the kernel gave the core to others are recognised: for
//! each batch of 64 inserts /proc/thread-self/schedstat says how long the worker was runnable and
//! did not run (its second number). A batch with more than half a millisecond of that is left out
//! of "longest alone". The directory of the pool is `TMPDIR` or /tmp.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fulgurite::{Context, Fulgurite, Medium};

/// Inserts between two readings of what the kernel did.
const BATCH: u64 = 64;
/// A batch whose core was taken for longer says nothing of the map.
const TAKEN: Duration = Duration::from_micros(500);

/// How long this thread was runnable and did not run.
fn taken() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0))
}

/// What was measured, in nanoseconds.
#[derive(Default)]
struct Seen {
    longest: u64,
    /// In batches whose core was not taken.
    longest_alone: u64,
    taken_batches: u64,
    batches: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = asked.iter().find(|asked| !["--quick", "--json"].contains(&asked.as_str())) {
        return Err(format!("{unknown}: there are --quick and --json").into());
    }
    let has = |name: &str| asked.iter().any(|asked| asked == name);
    let (entries, dram, pool) = if has("--quick") { (200_000, "16M", "256M") } else { (10_000_000, "256M", "4G") };
    let directory = tempfile::tempdir()?;
    let medium = Medium::new_pool(directory.path().join("growth.pool"), pool);
    let memory = Fulgurite::builder(medium).dram(dram).start()?;
    let map = memory.named("map").hash_map::<u64, [u64; 7]>(1000)?;
    let (inserted, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let begun = Instant::now();
    let seen = std::thread::scope(|scope| -> Result<Seen, fulgurite::Error> {
        let load = |step: u64| {
            let mut key = step;
            while !stop.load(Ordering::Relaxed) {
                let most = inserted.load(Ordering::Relaxed).max(1);
                key = key.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(step);
                let read = memory.run(|m| (0..64).try_for_each(|n| map.get(m, &((key + n) % most)).map(drop)));
                if read.is_err() {
                    return;
                }
            }
        };
        let readers: Vec<_> = (1..3).map(|step| scope.spawn(move || load(step))).collect();
        let syncer = scope.spawn(|| -> Result<(), fulgurite::Error> {
            while !stop.load(Ordering::Relaxed) {
                memory.sync()?;
                std::thread::park_timeout(Duration::from_secs(1));
            }
            Ok(())
        });
        let measured = memory.run(|m: &mut Context| {
            let mut seen = Seen::default();
            for first in (0..entries).step_by(BATCH as usize) {
                let (before, mut longest) = (taken(), 0);
                for key in first..entries.min(first + BATCH) {
                    let begun = Instant::now();
                    map.insert(m, &key, [key; 7])?;
                    longest = longest.max(begun.elapsed().as_nanos() as u64);
                }
                seen.batches += 1;
                seen.longest = seen.longest.max(longest);
                if taken() - before > TAKEN {
                    seen.taken_batches += 1;
                } else {
                    seen.longest_alone = seen.longest_alone.max(longest);
                }
                inserted.store(first, Ordering::Relaxed);
                m.yield_now()?;
            }
            Ok(seen)
        });
        stop.store(true, Ordering::Relaxed);
        syncer.thread().unpark();
        drop(readers);
        syncer.join().expect("the thread that syncs does not panic")?;
        Ok(measured?)
    })?;
    let rate = entries as f64 / begun.elapsed().as_secs_f64();
    if has("--json") {
        let answer = serde_json::json!({
            "entries": entries, "inserts_per_second": rate, "longest_ns": seen.longest,
            "longest_alone_ns": seen.longest_alone, "batches": seen.batches, "taken_batches": seen.taken_batches,
        });
        println!("{answer}");
    } else {
        println!("entries        {entries}, {rate:.0} inserts a second");
        println!("longest pause  {:.3} ms", seen.longest as f64 / 1e6);
        println!("longest alone  {:.3} ms", seen.longest_alone as f64 / 1e6);
        println!("core taken     in {} of {} batches of {BATCH}", seen.taken_batches, seen.batches);
    }
    Ok(())
}
