//! Prints the price of hits and misses: `cargo run --release -p fulgurite-memory --example miss_price`.
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

fn main() {
    let data: u64 = 2 << 30;
    let cores = fulgurite_sys::affinity::cores();
    let config = EmulatedConfig { core: cores.last().copied(), ..EmulatedConfig::new((data >> 12) as u32) };
    let flash = Arc::new(EmulatedFlash::new(config).unwrap());
    let runtime = Runtime::builder(flash)
        .dram(64 << 20)
        .existing(data)
        .cores(&cores[..1])
        .prefetch("off".parse().unwrap())
        .build()
        .unwrap();
    println!("{} frames, {} fixed bytes", runtime.frames(), runtime.fixed_bytes());
    let run = |subpages: u64, jobs: u64, per_job: u64, write: bool, work: u64| {
        let cpu = Arc::new(AtomicU64::new(0));
        let told = cpu.clone();
        let _ = runtime.take_statistics();
        let before = Arc::new(AtomicU64::new(0));
        let b2 = before.clone();
        runtime
            .serve(move |_| {
                b2.store(fulgurite_sys::clock::thread_cpu().as_nanos() as u64, Ordering::Relaxed);
                Touch {
                    left: Cell::new(jobs),
                    state: Cell::new(88172645463325252),
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
    for _ in 0..5 {
        let (hot, _) = run(1000, 20_000, 1000, false, 0);
        let (hit, _) = run(1000, 5_000_000, 1, false, 0);
        let (work, _) = run(1000, 200_000, 1, false, 2000);
        let (miss, s) = run(data >> 12, 200_000, 1, false, 2000);
        let (dirty, d) = run(data >> 12, 200_000, 1, true, 2000);
        println!(
            "load in a loop {hot:.1} ns, job of one hit {hit:.1} ns; work {work:.0}, missing +{:.0} ns (of which waiting {:.0}; {:.1}% missed, p50 {} us), written +{:.0} ns (waiting {:.0})",
            miss - work,
            s.counts.wait_ns as f64 / 2e5,
            s.counts.misses as f64 / 2e3,
            s.miss_ns.value_at_quantile(0.5) / 1000,
            dirty - work,
            d.counts.wait_ns as f64 / 2e5,
        );
    }
}
