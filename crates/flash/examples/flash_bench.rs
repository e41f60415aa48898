//! What a queue costs the worker, and what a medium gives.
//!
//! ```text
//! flash_bench      emulated device: nanoseconds of worker per request, and the device's own limit
//! flash_bench FILE [DEPTH [SECONDS [BATCH]]]
//!                  file or block device: random reads a second and CPU per read, by backend, in
//!                  batches of BATCH (8); a missing FILE (2 GiB) is created for the run
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite_flash::*;
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Clock, Notifier, affinity, clock};

type Failure = Box<dyn std::error::Error>;

const FRAMES: u64 = 4096;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => emulated(),
        [path, rest @ ..] => {
            let depth = rest.first().map_or(Ok(64), |d| d.parse())?;
            let seconds = rest.get(1).map_or(Ok(2.0), |s| s.parse())?;
            let created = !std::path::Path::new(path).exists();
            let batch = rest.get(2).map_or(Ok(8), |b| b.parse())?;
            let result = file(path, created, depth, seconds, batch);
            if created {
                std::fs::remove_file(path)?;
            }
            result
        }
    }
}

/// Random subpages, by a linear congruential generator (Knuth, MMIX).
struct Reads {
    random: u64,
    count: u64,
    subpages: u64,
}

impl Reads {
    fn next(&mut self) -> Request {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let subpage = SubpageIndex((((self.random >> 32) * self.subpages) >> 32) as u32);
        let frame = FrameIndex((self.count % FRAMES) as u32);
        self.count += 1;
        Request { tag: self.count, op: Op::Read, subpage, frame }
    }
}

fn frames() -> Result<Arc<Arena>, Failure> {
    let frames = Arena::anonymous(FRAMES as usize * SUBPAGE_BYTES, Backed::HugePages)?;
    frames.zero(0, frames.len());
    Ok(Arc::new(frames))
}

fn emulated() -> Result<(), Failure> {
    const SECONDS: f64 = 0.5;
    let cores = affinity::cores();
    affinity::pin(cores[0])?;
    let clock = Clock::get();
    let subpages = 1 << 18;
    let storage = Arc::new(Arena::anonymous(subpages as usize * SUBPAGE_BYTES, Backed::HugePages)?);
    storage.zero(0, storage.len());
    let reading = (0..1000).map(|_| (clock.now_ns(), clock.now_ns())).map(|(a, b)| b - a).min().unwrap_or(0);
    println!(
        "emulated device, 1 GiB, 256 planes; ns of the worker per request for submit + flush + poll, and per empty poll"
    );
    println!(
        "{:>8} {:>6} {:>9} {:>9} {:>9} {:>12} {:>8} {:>8} {:>14}",
        "work us", "depth", "flash us", "ns", "poll ns", "requests/s", "late us", "max us", "device ns/req"
    );
    for (work_us, depth, flash_us) in [(10, 64, 50), (5, 64, 50), (2, 64, 50), (1, 64, 50), (0, 64, 50), (0, 256, 1)] {
        let flash = EmulatedFlash::new(EmulatedConfig {
            core: cores.get(1).copied(),
            planes: 256,
            read_latency: Duration::from_micros(flash_us),
            storage: Some(storage.clone()),
            ..EmulatedConfig::new(subpages)
        })?;
        let mut queue = flash.open_queue(frames()?, depth, Arc::new(Notifier::new()?))?;
        let mut reads = Reads { random: 1, count: 0, subpages: u64::from(subpages) };
        let mut completions = Vec::with_capacity(depth);
        let (mut calls_ns, mut empty_ns, mut empty) = (0, 0, 0u64);
        let begin = clock.now_ns();
        while clock.now_ns() - begin < (SECONDS * 1e9) as u64 {
            let start = clock.now_ns();
            queue.poll(&mut completions);
            completions.clear();
            // With work in between, one request a turn, as a miss; without, as many as fit.
            let mut submitted = 0;
            while queue.in_flight() < depth && (submitted == 0 || work_us == 0) {
                queue.submit(reads.next())?;
                submitted += 1;
            }
            queue.flush()?;
            let took = (clock.now_ns() - start).saturating_sub(reading);
            if submitted > 0 {
                calls_ns += took;
            } else {
                (empty_ns, empty) = (empty_ns + took, empty + 1);
            }
            clock.spin(work_us * 1000);
        }
        let seconds = (clock.now_ns() - begin) as f64 / 1e9;
        drop(queue);
        let c = flash.counters();
        println!(
            "{work_us:>8} {depth:>6} {flash_us:>9} {:>9.1} {:>9.1} {:>12.0} {:>8.2} {:>8.1} {:>14.0}",
            calls_ns as f64 / reads.count as f64,
            empty_ns as f64 / empty.max(1) as f64,
            reads.count as f64 / seconds,
            c.lateness_ns_mean() as f64 / 1e3,
            c.lateness_ns_max as f64 / 1e3,
            c.device_cpu_ns as f64 / reads.count as f64,
        );
    }
    Ok(())
}

fn file(path: &str, create: bool, depth: usize, seconds: f64, batch: usize) -> Result<(), Failure> {
    if create {
        println!("creating {path} (2 GiB)");
        FileFlash::open_with_progress(&FileConfig::create(path, 2 << 30), &mut |_, _| ControlFlow::Continue(()))?;
    }
    println!("{:>30} {:>6} {:>10} {:>12} {:>14}", "backend", "depth", "reads/s", "CPU us/read", "worker us/read");
    for backend in [FileBackend::Auto, FileBackend::UringUnregistered, FileBackend::Threads(32)] {
        let flash = FileFlash::open(&FileConfig { backend, ..FileConfig::existing(path) })?;
        let mut queue = flash.open_queue(frames()?, depth, Arc::new(Notifier::new()?))?;
        let mut reads = Reads { random: 7, count: 0, subpages: u64::from(flash.subpages()) };
        let mut completions = Vec::with_capacity(depth);
        let (mut done, begin) = (0u64, Instant::now());
        let (cpu, thread) = (clock::process_cpu(), clock::thread_cpu());
        while begin.elapsed().as_secs_f64() < seconds {
            // The disk starts on the first requests of a burst while the others are still being
            // made.
            let mut submitted = 0;
            while queue.in_flight() < depth {
                queue.submit(reads.next())?;
                submitted += 1;
                if submitted % batch == 0 {
                    queue.flush()?;
                }
            }
            if queue.poll(&mut completions) == 0 {
                queue.wait(None);
                queue.poll(&mut completions);
            }
            done += completions.len() as u64;
            for completion in completions.drain(..) {
                completion.result?;
            }
        }
        let per = |t: Duration| t.as_secs_f64() * 1e6 / done as f64;
        println!(
            "{:>30} {depth:>6} {:>10.0} {:>12.2} {:>14.2}",
            format!("{backend:?}"),
            done as f64 / begin.elapsed().as_secs_f64(),
            per(clock::process_cpu() - cpu),
            per(clock::thread_cpu() - thread)
        );
        for warning in flash.warnings() {
            println!("warning: {warning}");
        }
    }
    Ok(())
}
