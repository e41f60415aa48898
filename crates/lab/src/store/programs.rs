//! `store --sync` of a program: a runtime over the pool whose jobs dirty subpages, and its
//! sync. Also under load: jobs that write in write sections, read what is in DRAM, and miss.
//!
//! Dirty data stays in frames, so that a sync writes all of it. Writers under load write only to
//! dirty data, so a round's dirty bytes stay as asked.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
        let synced = self.runtime.sync()?;
        let ns = |time: Duration| time.as_nanos() as u64;
        Ok(Took { total_ns: ns(synced.took), gate_ns: Some(ns(synced.gate)) })
    }
    /// Syncs while jobs of each worker write to what was dirtied, read it, and miss elsewhere.
    fn sync_under_load(&self, first: u32, count: u32) -> Result<Took> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut jobs = Vec::new();
        for worker in 0..self.runtime.workers() {
            for number in 0..2 * JOBS + 1 {
                let (stop, order, resident) = (stop.clone(), self.order.clone(), self.resident);
                let live = self.live;
                let mut random = Random::new(u64::from(first) << 8 | number, worker as u64);
                let options = JobOptions::new().name("load").worker(worker);
                jobs.push(self.runtime.submit_with(&options, move |context| -> Result<(), AccessError> {
                    while !stop.load(Ordering::Relaxed) {
                        let dirty = (first + random.below(count.into()) as u32) % resident;
                        if number == 2 * JOBS {
                            context.sleep(PAUSES.1)?;
                            let cold = resident + random.below(u64::from(live - resident)) as u32;
                            let _ = context.view(address(&order, cold), 8)?.load::<u64>(0);
                            continue;
                        }
                        context.sleep(PAUSES.0)?;
                        if number < JOBS {
                            let section = context.write_section()?;
                            write_word(context, &order, dirty)?;
                            drop(section);
                        } else {
                            let _ = context.view(address(&order, dirty), 8)?.load::<u64>(0);
                        }
                    }
                    Ok(())
                }));
            }
        }
        std::thread::sleep(RUN_UP);
        let took = self.sync();
        stop.store(true, Ordering::Relaxed);
        // Each ends at once, however the sync went.
        jobs.into_iter().try_for_each(|job| -> Result<()> { Ok(job?.wait()??) })?;
        took
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
