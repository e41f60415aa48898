//! `store --sync` of a program: a runtime over the pool whose jobs dirty subpages, and its
//! sync. Also under load: jobs that write in write sections, read what is in DRAM, and miss.
//!
//! Dirty data stays in frames, so that a sync writes all of it. Writers under load write only to
//! dirty data, so a round's dirty bytes stay as asked.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use fulgurite_flash::Flash;
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_memory::{Address, RawMemory};
use fulgurite_runtime::{AccessError, Context, JobOptions, Runtime};
use fulgurite_store::SUBPAGES_PER_PAGE;
use fulgurite_workloads::Random;

use super::content::Shuffled;
use super::sync::{SyncMethod, Took};

/// Jobs of each kind on a worker under load.
const JOBS: u64 = 2;
/// Between two writes, or reads, of a job; between two misses.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_micros(200));
/// How long the load goes on before the sync begins.
const RUN_UP: Duration = Duration::from_millis(2);
/// Tables, stacks and rings of a runtime, and frames for what misses.
const EXTRA_BYTES: u64 = 64 << 20;

/// What a sync did to the program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cut {
    /// How long no write section could begin.
    pub gate_ns: u64,
    /// Of that, until the open ones had ended.
    pub drain_ns: u64,
    pub halt_ns: u64,
    /// Frames that were copied, during the halt or for a writer.
    pub copied: u64,
    pub gate_waits: u64,
    /// Of reads of flash meanwhile, what 99 of 100 do not exceed; none when nothing missed.
    pub miss_p99_ns: Option<u64>,
    pub longest: Option<Longest>,
}

/// The longest that jobs met with while a sync ran.
#[derive(Clone, Copy, Debug, Default)]
pub struct Longest {
    /// Of a writer, until it was in its write section.
    pub gate_ns: u64,
    /// Of a reader, from the moment it wanted to run until it had read what is in DRAM.
    pub read_ns: u64,
}

pub struct Program {
    runtime: Runtime,
    /// What jobs write to, in this order. What misses comes behind it.
    order: Arc<Shuffled>,
    /// Subpages that stay in frames, and all there are.
    resident: u32,
    live: u32,
    next: Cell<u32>,
}

/// A sync of a program: by itself, or under load.
pub struct Syncs {
    name: String,
    program: Rc<Program>,
    under_load: bool,
}

#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    gate_ns: AtomicU64,
    read_ns: AtomicU64,
}

/// DRAM of a runtime for `dirty_bytes` of dirty data: an eighth more, so that none of it is
/// evicted.
pub fn dram_bytes(live: u32, dirty_bytes: u64) -> u64 {
    dirty_bytes + dirty_bytes / 8 + u64::from(live) * 8 + EXTRA_BYTES
}

impl Program {
    /// With `workers` workers, and DRAM for `dirty_bytes` of dirty data.
    pub fn new(pool: &Arc<dyn Flash>, (live, dirty_bytes): (u32, u64), workers: usize) -> Result<Program> {
        // Whole pages of NVMM's.
        let live = live - live % SUBPAGES_PER_PAGE;
        let bytes = u64::from(live) * SUBPAGE_BYTES as u64;
        let runtime = Runtime::builder(pool.clone())
            .dram(dram_bytes(live, dirty_bytes))
            .pool(bytes)
            .existing(bytes)
            .workers(workers)
            .build()?;
        let resident = (dirty_bytes / SUBPAGE_BYTES as u64) as u32;
        Ok(Program { runtime, order: Arc::new(Shuffled::new(live)?), resident, live, next: Cell::new(0) })
    }
    pub fn methods(self) -> [Syncs; 2] {
        let workers = self.runtime.workers();
        let program = Rc::new(self);
        [false, true].map(|under_load| {
            let name = format!(
                "sync, {workers} worker{}{}",
                if workers == 1 { "" } else { "s" },
                if under_load { ", load" } else { "" }
            );
            Syncs { name, program: program.clone(), under_load }
        })
    }
    /// Writes a word of each of these subpages, by a job on each worker.
    fn dirty(&self, first: u32, count: u32) -> Result<()> {
        let workers = self.runtime.workers();
        let jobs = (0..workers).map(|worker| {
            let (order, resident) = (self.order.clone(), self.resident);
            let options = JobOptions::new().name("dirties").worker(worker);
            self.runtime.submit_with(&options, move |context| -> Result<(), AccessError> {
                for i in (worker as u32..count).step_by(workers) {
                    write_word(context, &order, (first + i) % resident)?;
                }
                Ok(())
            })
        });
        jobs.collect::<Vec<_>>().into_iter().try_for_each(|job| Ok(job?.wait()??))
    }
    /// Syncs, and tells what that did.
    fn sync(&self) -> Result<Took> {
        let _ = self.runtime.take_statistics();
        let synced = self.runtime.sync()?;
        let counted = self.runtime.statistics().total();
        let miss_ns = &counted.miss_ns;
        let ns = |time: Duration| time.as_nanos() as u64;
        let cut = Cut {
            gate_ns: ns(synced.gate),
            drain_ns: ns(synced.drain),
            halt_ns: ns(synced.halt),
            copied: counted.counts.copied,
            gate_waits: counted.counts.gate_waits,
            miss_p99_ns: (!miss_ns.is_empty()).then(|| miss_ns.value_at_quantile(0.99)),
            longest: None,
        };
        Ok(Took { total_ns: ns(synced.took), sync_ns: ns(synced.took), cut: Some(cut) })
    }
    /// Syncs while jobs of each worker write to what was dirtied, read it, and miss elsewhere.
    fn sync_under_load(&self, first: u32, count: u32) -> Result<Took> {
        let seen = Arc::new(Seen::default());
        let mut jobs = Vec::new();
        for worker in 0..self.runtime.workers() {
            for number in 0..2 * JOBS + 1 {
                let (seen, order, resident) = (seen.clone(), self.order.clone(), self.resident);
                let live = self.live;
                let mut random = Random::new(u64::from(first) << 8 | number, worker as u64);
                let options = JobOptions::new().name("load").worker(worker);
                jobs.push(self.runtime.submit_with(&options, move |context| -> Result<(), AccessError> {
                    while !seen.stop.load(Ordering::Relaxed) {
                        let dirty = (first + random.below(count.into()) as u32) % resident;
                        if number == 2 * JOBS {
                            context.sleep(PAUSES.1)?;
                            let cold = resident + random.below(u64::from(live - resident)) as u32;
                            let _ = context.view(address(&order, cold), 8)?.load::<u64>(0);
                            continue;
                        }
                        let due = Instant::now() + PAUSES.0;
                        context.sleep(PAUSES.0)?;
                        if number < JOBS {
                            let came = Instant::now();
                            let section = context.write_section()?;
                            seen.gate_ns.fetch_max(came.elapsed().as_nanos() as u64, Ordering::Relaxed);
                            write_word(context, &order, dirty)?;
                            drop(section);
                        } else {
                            let _ = context.view(address(&order, dirty), 8)?.load::<u64>(0);
                            let late = Instant::now().saturating_duration_since(due);
                            seen.read_ns.fetch_max(late.as_nanos() as u64, Ordering::Relaxed);
                        }
                    }
                    Ok(())
                }));
            }
        }
        std::thread::sleep(RUN_UP);
        seen.gate_ns.store(0, Ordering::Relaxed);
        seen.read_ns.store(0, Ordering::Relaxed);
        let took = self.sync();
        let longest = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let (gate_ns, read_ns) = (longest(&seen.gate_ns), longest(&seen.read_ns));
        seen.stop.store(true, Ordering::Relaxed);
        // Each ends at once, however the sync went.
        jobs.into_iter().try_for_each(|job| -> Result<()> { Ok(job?.wait()??) })?;
        let mut took = took?;
        if let Some(cut) = &mut took.cut {
            cut.longest = Some(Longest { gate_ns, read_ns });
        }
        Ok(took)
    }
}

fn address(order: &Shuffled, i: u32) -> Address {
    Address::from_linear(u64::from(order.at(i)) * SUBPAGE_BYTES as u64)
}

fn write_word(context: &mut Context, order: &Shuffled, i: u32) -> Result<(), AccessError> {
    let word = context.view_mut(address(order, i), 8)?;
    let value = word.load::<u64>(0);
    word.store(0, value + 1);
    Ok(())
}

impl SyncMethod for Syncs {
    fn name(&self) -> &str {
        &self.name
    }
    fn time(&mut self, bytes: u64) -> Result<Took> {
        let count = (bytes / SUBPAGE_BYTES as u64) as u32;
        let program = &self.program;
        let first = program.next.get();
        program.next.set((first + count) % program.resident);
        program.dirty(first, count)?;
        if self.under_load { program.sync_under_load(first, count) } else { program.sync() }
    }
}
