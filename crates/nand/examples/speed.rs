//! What a request costs the thread that drives the model: nanoseconds of CPU for each read and each
//! write.
//!
//! A loop that keeps a given number of requests under way in simulated time, at full speed: it
//! measures the code, not the device.
//!
//! `cargo run --release -p fulgurite-nand --example speed -- [REQUESTS]`

use std::time::Instant;

use fulgurite_nand::{Fil, FilConfig, FlashDone, FlashOp, FlashRequest, Profile};

struct Loop {
    fil: Fil,
    now: u64,
    tag: u64,
    done: Vec<FlashDone>,
    random: u64,
}

impl Loop {
    fn below(&mut self, end: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (((self.random >> 32) * u64::from(end)) >> 32) as u32
    }
    /// Keeps `depth` requests under way until `count` have ended. Returns nanoseconds of each, and
    /// requests in a simulated second.
    fn run(&mut self, depth: usize, count: usize, mut next: impl FnMut(&mut Loop) -> (FlashOp, u32)) -> (f64, f64) {
        let (begin, from) = (Instant::now(), self.now);
        let (mut ended, mut under_way) = (0, 0);
        while ended < count {
            while under_way < depth {
                let (op, flash_page) = next(self);
                self.tag += 1;
                let request = FlashRequest { tag: self.tag, op, flash_page, reclaim: false };
                self.fil.submit(self.now, request).expect("fewer than it takes");
                under_way += 1;
            }
            self.now = self.fil.next_event_ns().expect("something is under way").max(self.now);
            self.done.clear();
            self.fil.advance(self.now, &mut self.done);
            (ended, under_way) = (ended + self.done.len(), under_way - self.done.len());
        }
        let rate = ended as f64 / (self.now - from) as f64 * 1e9;
        let cost = begin.elapsed().as_nanos() as f64 / ended as f64;
        while let Some(next) = self.fil.next_event_ns() {
            self.now = next.max(self.now);
            self.fil.advance(self.now, &mut self.done);
        }
        (cost, rate)
    }
}

fn main() {
    let count = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    println!("{:<8} {:>6} {:<22} {:>12} {:>24}", "profile", "depth", "work", "ns/request", "requests/simulated s");
    for (name, planes, bytes) in [("slc", 64, 16 << 30), ("mlc", 64, 16 << 30), ("nvmm", 256, 64 << 30)] {
        let profile = Profile::built_in(name).unwrap().scaled(bytes, planes).unwrap();
        let fil = Fil::new(profile, FilConfig { planes_per_extent: 16, ..FilConfig::default() }).unwrap();
        let mut driver = Loop { fil, now: 0, tag: 0, done: Vec::new(), random: 0x1234_5678_9abc_def1 };
        let (pages, first) = (driver.fil.flash_pages(), driver.fil.extent_pages());
        // What is read was written before.
        let filled = (pages - first).min(1 << 20);
        let mut at = first;
        driver.run(256, filled as usize, |_| {
            at += 1;
            (FlashOp::Write, (at - 1 - first) % filled + first)
        });
        for depth in [16, 256] {
            let (cost, rate) = driver.run(depth, count, |l| (FlashOp::Read, first + l.below(filled)));
            println!("{name:<8} {depth:>6} {:<22} {cost:>12.0} {rate:>24.0}", "random reads");
        }
        let mut at = 0;
        let (cost, rate) = driver.run(256, count, |_| {
            at += 1;
            (FlashOp::Write, first + (at - 1) % filled)
        });
        println!("{name:<8} {:>6} {:<22} {cost:>12.0} {rate:>24.0}", 256, "writes, extents in turn");
        let mut at = 0;
        let (cost, rate) = driver.run(64, count, |l| {
            at += 1;
            match at % 10 {
                0 => (FlashOp::Write, first + (at / 10 - 1) % filled),
                5 if at % 640 == 5 => (FlashOp::Flush, 0),
                _ => (FlashOp::Read, first + l.below(filled)),
            }
        });
        println!("{name:<8} {:>6} {:<22} {cost:>12.0} {rate:>24.0}", 64, "90% reads, flushes");
        driver.fil.check();
        println!("         {}", format!("{:?}", driver.fil.counters()).replace("FilCounters ", ""));
        println!("         DRAM of the model: {} KiB", driver.fil.bytes() >> 10);
    }
}
