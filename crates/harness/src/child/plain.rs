//! A workload in plain memory: `dram-only`, `os-swap` and `mmap` differ only in the memory's
//! backing.
//!
//! One thread makes a request, executes it, and notes the time. Several threads take chunks of the
//! batch from a counter.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fulgurite_memory::PlainMemory;
use fulgurite_sys::{Arena, Backed, Clock, affinity};
use fulgurite_workloads::Workload;

use super::arrivals::Arrivals;
use super::measure::{Taken, execute, outcome};
use super::protocol::{Batch, DataSource, Load, Opened, Outcome, Spec};
use super::runner::Runner;
use super::taken::Waits;
use crate::kernel;
use crate::{Share, Usage};

struct Plain<W> {
    spec: Spec,
    base: usize,
    memory: PlainMemory,
    workload: Arc<W>,
}

/// Takes hold of the data and opens the workload.
pub fn open<W: Workload>(spec: Spec) -> Result<Box<dyn Runner>> {
    affinity::pin_to(&spec.cores).context("cannot pin to the worker's core")?;
    let bytes = usize::try_from(spec.region_bytes)?;
    let memory = match &spec.data {
        DataSource::Anonymous { image, huge } => {
            let memory = PlainMemory::new(if *huge { Backed::HugePages } else { Backed::BasePages })?;
            let image = Arena::shared(super::handle::open_shared(image)?)?;
            if image.len() < bytes {
                bail!("the image has {} bytes and not {bytes}", image.len());
            }
            Arena::copy(&image, 0, memory.arena(), 0, bytes);
            memory
        }
        DataSource::Mapped { file } => {
            let memory = PlainMemory::new(Backed::BasePages)?;
            let file: File = super::handle::open_shared(file)?;
            kernel::map_over(memory.arena(), &file, bytes).context("the file cannot be mapped")?;
            memory
        }
        other => bail!("plain memory cannot be in {other:?}"),
    };
    let base = memory.arena().base().as_ptr().addr();
    // Held until this process ends: pins cost what a program's own references would.
    let mut memory = memory.forever();
    let workload = Arc::new(W::open(&mut memory, spec.region(), &spec.params())?);
    Ok(Box::new(Plain { spec, base, memory, workload }))
}

impl<W: Workload> Runner for Plain<W> {
    fn opened(&self) -> Opened {
        Opened { flash: "none".to_owned(), workload_bytes: self.workload.dram_bytes(), ..Opened::default() }
    }
    fn zipf(&mut self, exponent: f64) -> Result<()> {
        self.spec.zipf = exponent;
        self.workload.save(&mut self.memory)?;
        self.workload = Arc::new(W::open(&mut self.memory, self.spec.region(), &self.spec.params())?);
        Ok(())
    }
    fn run(&mut self, batch: &Batch) -> Result<Outcome> {
        let before = Usage::now();
        let start = Clock::get().now_ns();
        let mut taken = if self.spec.threads == 1 {
            affinity::pin_to(&self.spec.cores)?;
            let all = Share::of(batch.count, batch.count);
            vec![one_thread(&mut self.memory.clone(), &*self.workload, batch, &all, start, 0, 1)?]
        } else {
            self.threads(batch, start)?
        };
        let used = Usage::now().since(before);
        Ok(Outcome {
            cpu_ns: used.cpu_ns,
            misses: used.major_faults,
            device_reads: used.blocks_read,
            device_writes: used.blocks_written,
            ..outcome(&*self.workload, batch, start, &mut taken)
        })
    }
    fn check(&mut self) -> Result<u64> {
        if self.spec.config.paged_by_kernel() {
            // The limit was lifted: read in one go, not a page at each step of the walk.
            let bytes = usize::try_from(self.spec.region_bytes)?;
            kernel::bring_in(self.base, bytes).context("the data cannot be brought into memory")?;
        }
        Ok(self.workload.check(&mut self.memory)?)
    }
    fn device(&mut self, _: f64, _: usize, _: Duration) -> Result<f64> {
        bail!("plain memory has no device of its own")
    }
}

impl<W: Workload> Plain<W> {
    fn threads(&self, batch: &Batch, start_ns: u64) -> Result<Vec<Taken>> {
        let threads = self.spec.threads as u64;
        // Large enough for a quiet counter, small enough for a common end.
        let share = Share::of(batch.count, (batch.count / threads / 64).clamp(1, 64));
        let (cores, workload) = (&self.spec.cores, &*self.workload);
        std::thread::scope(|scope| {
            let one = |thread: u64| {
                let (share, mut memory) = (&share, self.memory.clone());
                move || -> Result<Taken> {
                    // As many threads as cores: each its own. More: all cores for all of them.
                    let own = cores.get(thread as usize).copied().filter(|_| threads == cores.len() as u64);
                    affinity::pin_to(own.as_ref().map_or(cores.as_slice(), std::slice::from_ref))?;
                    one_thread(&mut memory, workload, batch, share, start_ns, thread, threads)
                }
            };
            let running: Vec<_> = (0..threads).map(|thread| scope.spawn(one(thread))).collect();
            running
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread of the workload panicked")))
                .collect()
        })
    }
}

fn one_thread<W: Workload>(
    memory: &mut PlainMemory,
    workload: &W,
    batch: &Batch,
    share: &Share,
    start_ns: u64,
    thread: u64,
    threads: u64,
) -> Result<Taken> {
    let clock = Clock::get();
    let mut arrivals = match batch.load {
        Load::Closed => None,
        Load::Poisson { per_second } => {
            Some(Arrivals::new(batch.seed ^ batch.first, thread, per_second / threads as f64, start_ns))
        }
    };
    let mut taken = Taken::from(start_ns);
    let waited = Waits::of_this_thread();
    let mut now = clock.now_ns();
    loop {
        let chunk = share.take();
        if chunk.is_empty() {
            taken.taken_ns = Waits::of_this_thread().longest_since(&waited);
            return Ok(taken);
        }
        for offset in chunk {
            let arrival = match &mut arrivals {
                None => now,
                Some(arrivals) => {
                    let arrival = arrivals.next_ns();
                    arrivals.advance();
                    while now < arrival {
                        fulgurite_sys::arch::relax();
                        now = clock.now_ns();
                    }
                    arrival
                }
            };
            taken.answers = taken.answers.wrapping_add(execute(workload, memory, batch, offset)?);
            let end = clock.now_ns();
            taken.latency.record(end - arrival);
            if arrivals.is_some() {
                taken.service.record(end - now);
            }
            taken.requests += 1;
            taken.end_ns = end;
            now = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_format::Address;
    use fulgurite_memory::{Memory as _, NoLatch, Ptr, Region};
    use fulgurite_workloads::{Gups, Params, Site};

    #[test]
    fn a_wrong_answer_changes_the_hash() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let region = Region::new(Address::from_linear(0), 1 << 16);
        let params = Params { bytes: 1 << 16, zipf: 0.0, seed: 1, gets: Some(100), ..Params::default() };
        Gups::<NoLatch>::build(&mut memory, Site::new(region, &params, &mut |_| ())).unwrap();
        let workload = Gups::<NoLatch>::open(&mut memory, region, &params).unwrap();
        let batch = Batch { seed: 5, first: 0, count: 1000, transactions: 1, work_iterations: 0, load: Load::Closed };
        let answers = |memory: &mut PlainMemory| {
            let all = Share::of(batch.count, batch.count);
            one_thread(memory, &workload, &batch, &all, 0, 0, 1).unwrap().answers
        };
        let right = answers(&mut memory);
        assert_eq!(answers(&mut memory), right);
        // Any page of it, as a read of another's frame would bring.
        for word in (0..512u64).map(|i| Ptr::<u64>::new(Address::from_linear((1 << 15) + 8 * i))) {
            let was = memory.load(word).unwrap();
            memory.store(word, was ^ 1).unwrap();
        }
        assert_ne!(answers(&mut memory), right);
    }
}
