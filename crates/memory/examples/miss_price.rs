//! Prints the price of hits and misses: `cargo run --release -p fulgurite-memory --example
//! miss_price`.
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fulgurite_flash::{EmulatedConfig, EmulatedFlash};
use fulgurite_memory::{Address, Memory, Ptr};
use fulgurite_runtime::{Context, Next, Runtime, Service};

struct Touch {
    left: Cell<u64>,
    state: Cell<u64>,
    subpages: u64,
    per_job: u64,
    write: bool,
    work: u64,
    sum: Cell<u64>,
    cpu: Arc<AtomicU64>,
}
impl Service for Touch {
    fn next(&self) -> Next {
        if self.left.get() > 0 {
            Next::Ready
        } else {
            self.cpu.store(fulgurite_sys::clock::thread_cpu().as_nanos() as u64, Ordering::Relaxed);
            Next::Finished
        }
    }
    fn run(&self, context: &mut Context) {
        self.left.set(self.left.get() - 1);
        for _ in 0..self.per_job {
            let mut s = self.state.get();
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            self.state.set(s);
            let page = (s.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % self.subpages;
            let at = Ptr::<u64>::new(Address::from_linear(page * 4096 + 64));
            let mut x = s;
            for _ in 0..self.work {
                x = x.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (x >> 29);
            }
            self.sum.set(self.sum.get() ^ x);
            if self.write {
                context.store(at, s).unwrap();
            } else {
                self.sum.set(self.sum.get().wrapping_add(context.load(at).unwrap()));
            }
        }
    }
}

/// Iterations of computing before each access: long enough that the fibers suffice to hide the
/// flash.
const WORK: u64 = 800;

fn main() {
    let data: u64 = 2 << 30;
    let cores = fulgurite_sys::affinity::cores();
    let config =
        EmulatedConfig { core: cores.last().copied(), planes: 512, ..EmulatedConfig::new((data >> 12) as u32) };
    let flash = Arc::new(EmulatedFlash::new(config).unwrap());
    let runtime = Runtime::builder(flash)
        .dram(64 << 20)
        .existing(data)
        .cores(&cores[..1])
        .fibers(128)
        .prefetch("off".parse().unwrap())
        .build()
        .unwrap();
    println!("{} frames, {} fixed bytes", runtime.frames(), runtime.fixed_bytes());
    let seeds = Cell::new(88_172_645_463_325_253u64);
    let run = |subpages: u64, jobs: u64, per_job: u64, write: bool, work: u64| {
        let cpu = Arc::new(AtomicU64::new(0));
        let told = cpu.clone();
        let seed = seeds.get();
        seeds.set(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let _ = runtime.take_statistics();
        let before = Arc::new(AtomicU64::new(0));
        let b2 = before.clone();
        runtime
            .serve(move |_| {
                b2.store(fulgurite_sys::clock::thread_cpu().as_nanos() as u64, Ordering::Relaxed);
                Touch {
                    left: Cell::new(jobs),
                    state: Cell::new(seed),
                    subpages,
                    per_job,
                    write,
                    work,
                    sum: Cell::new(0),
                    cpu: told.clone(),
                }
            })
            .unwrap();
        let ns = (cpu.load(Ordering::Relaxed) - before.load(Ordering::Relaxed)) as f64 / (jobs * per_job) as f64;
        (ns, runtime.statistics().total())
    };
    run(1000, 10_000, 1, false, 0);
    let (hot, _) = run(1000, 20_000, 1000, false, 0);
    let (hit, _) = run(1000, 5_000_000, 1, false, 0);
    println!("load in a loop {hot:.1} ns, job of one hit {hit:.1} ns");
    // Short phases in turns, so that what else the machine does falls on all of them; medians of
    // the differences.
    let rounds: usize = std::env::args().nth(1).and_then(|r| r.parse().ok()).unwrap_or(60);
    if rounds == 0 {
        // For a profiler: nothing but misses.
        let (ns, s) = run(data >> 12, 6_000_000, 1, false, WORK);
        println!("{ns:.0} ns each, {:.1} of them waiting", s.counts.wait_ns as f64 / 6e6);
        return;
    }
    let (mut clean, mut dirty) = (Vec::new(), Vec::new());
    let (mut missed, mut waited) = (0.0, [0.0; 2]);
    for round in 0..rounds + 3 {
        let (work, _) = run(1000, 20_000, 1, false, WORK);
        let (miss, s) = run(data >> 12, 20_000, 1, false, WORK);
        let (write, d) = run(data >> 12, 20_000, 1, true, WORK);
        // The first rounds fill the frames.
        if round >= 3 {
            clean.push(miss - work - s.counts.wait_ns as f64 / 2e4);
            dirty.push(write - work - d.counts.wait_ns as f64 / 2e4);
            missed += s.counts.misses as f64 / 2e4 / rounds as f64;
            waited = [waited[0] + s.counts.wait_ns as f64 / 2e4, waited[1] + d.counts.wait_ns as f64 / 2e4];
        }
    }
    clean.sort_by(f64::total_cmp);
    dirty.sort_by(f64::total_cmp);
    let at = |v: &[f64], q: usize| v[(v.len() - 1) * q / 4];
    println!(
        "missing +{:.0} ns (quarters {:.0}-{:.0}, waiting {:.0}), written +{:.0} ns ({:.0}-{:.0}, waiting {:.0}); {:.0}% missed",
        at(&clean, 2),
        at(&clean, 1),
        at(&clean, 3),
        waited[0] / rounds as f64,
        at(&dirty, 2),
        at(&dirty, 1),
        at(&dirty, 3),
        waited[1] / rounds as f64,
        missed * 100.0
    );
}
