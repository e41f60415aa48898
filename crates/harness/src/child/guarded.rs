//! A workload on the guarded path. Its configurations differ in scheduling, fibers and DRAM only.
//!
//! The workers generate requests ([`Requests`] is a [`Service`]): closed loop, or a Poisson process
//! whose latencies count from arrival.

use std::cell::{Cell, RefCell};
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use fulgurite_backing::{Base, OpenBase};
use fulgurite_flash::{EmulatedConfig, FileConfig, FileFlash, FileMode, Flash, NandFlash};
use fulgurite_memory::{AccessError, Address, PlainMemory, SUBPAGE_BYTES};
use fulgurite_policy::SchedulingPolicy;
use fulgurite_runtime::{Context, JobError, JobOptions, Next, Runtime, Service};
use fulgurite_sys::{Arena, Backed, Clock};
use fulgurite_workloads::{Workload, WorkloadError};

use super::arrivals::Arrivals;
use super::handle::open_shared;
use super::measure::{Taken, execute, outcome};
use super::nand;
use super::pool;
use super::protocol::{Batch, DataSource, Load, Opened, Outcome, PoolSpec, Spec};
use super::runner::Runner;
use super::taken::Waits;
use crate::Usage;
use crate::kernel;
use crate::values::Config;
use fulgurite_term::media::NandCounts;

struct Guarded<W> {
    spec: Spec,
    runtime: Runtime,
    flash: Arc<dyn Flash>,
    /// What is below a pool; else the flash itself.
    medium: Arc<dyn Flash>,
    file: Option<Arc<FileFlash>>,
    nand: Option<Arc<NandFlash>>,
    workload: Arc<W>,
}

/// A job that walks all data may take this long before it is reported as stuck.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// Starts a runtime over the flash and opens the workload in it.
pub fn open<W: Workload>(spec: Spec) -> Result<Box<dyn Runner>> {
    let Under { medium, flash, file, nand } = under(&spec)?;
    let (fibers, scheduling) = match spec.config {
        // One fiber: nobody else runs while it waits.
        Config::FlashSync => (1, SchedulingPolicy::ArrivedFirst),
        Config::PriorityAging => (spec.guarded.fibers, SchedulingPolicy::PriorityAging),
        Config::Fifo => (spec.guarded.fibers, SchedulingPolicy::Fifo),
        _ => (spec.guarded.fibers, SchedulingPolicy::ArrivedFirst),
    };
    let builder = Runtime::builder(flash.clone())
        .dram(spec.guarded.dram_bytes)
        .pool(spec.region_bytes)
        .existing(spec.region_bytes)
        .workers(spec.cores.len())
        .cores(&spec.cores)
        .fibers(fibers)
        .scheduling(scheduling)
        .run_limit(RUN_LIMIT);
    let runtime = builder.build()?;
    if spec.config == Config::Resident {
        bring_in(&runtime, spec.region_bytes)?;
    }
    let workload = opened::<W>(&runtime, &spec)?;
    Ok(Box::new(Guarded { spec, runtime, flash, medium, file, nand, workload }))
}

fn opened<W: Workload>(runtime: &Runtime, spec: &Spec) -> Result<Arc<W>> {
    let (region, params) = (spec.region(), spec.params());
    Ok(Arc::new(job(runtime, "open", move |context| W::open(context, region, &params))?))
}

/// Runs code on a worker, and waits for it.
pub fn job<T: Send + 'static>(
    runtime: &Runtime,
    name: &'static str,
    code: impl FnOnce(&mut Context) -> Result<T, WorkloadError> + Send + 'static,
) -> Result<T> {
    let handle = runtime.submit_with(&JobOptions::new().name(name), code)?;
    match handle.wait() {
        Ok(result) => Ok(result?),
        Err(JobError::Panicked { message, .. }) => bail!("{name} panicked: {message}"),
        Err(error) => Err(error.into()),
    }
}

/// Touches all data once, so that nothing is missed afterwards.
fn bring_in(runtime: &Runtime, bytes: u64) -> Result<()> {
    // As many jobs as keep a device busy, each with a piece.
    let piece = (bytes / 256).next_multiple_of(SUBPAGE_BYTES as u64).max(SUBPAGE_BYTES as u64);
    let touch = |start: u64| {
        runtime.submit(move |context| {
            let range = start..(start + piece).min(bytes);
            range.step_by(SUBPAGE_BYTES).try_for_each(|at| context.access(Address::from_linear(at)).map(|_| ()))
        })
    };
    let jobs: Vec<_> = (0..bytes).step_by(piece as usize).map(touch).collect::<Result<_, _>>()?;
    for job in jobs {
        job.wait()??;
    }
    Ok(())
}

struct Under {
    medium: Arc<dyn Flash>,
    flash: Arc<dyn Flash>,
    file: Option<Arc<FileFlash>>,
    nand: Option<Arc<NandFlash>>,
}

impl Under {
    fn of(medium: Arc<dyn Flash>, flash: Arc<dyn Flash>) -> Under {
        Under { medium, flash, file: None, nand: None }
    }
}

/// Makes it, with the data in it.
fn under(spec: &Spec) -> Result<Under> {
    let subpages =
        u32::try_from(spec.region_bytes / SUBPAGE_BYTES as u64).context("more data than a flash can hold")?;
    match (&spec.data, &spec.pool) {
        (DataSource::Nand(nand), Some(pool)) if spec.config.pooled() => {
            let nand = nand::flash(nand, pool.flash_pages)?;
            let medium: Arc<dyn Flash> = nand.clone();
            let flash = pool_over(&medium, pool, spec, nand.extent_pages())?;
            Ok(Under { nand: Some(nand), ..Under::of(medium, flash) })
        }
        (DataSource::Nand(nand), Some(pool)) => {
            let made = nand::made(nand, pool, spec.region_bytes, spec.device_core)?;
            Ok(Under { nand: Some(made.nand), ..Under::of(made.device.clone(), made.device) })
        }
        (DataSource::Device { socket, frames, part, .. }, Some(pool)) if spec.config.pooled() => {
            let medium = nand::attached(socket, *frames, *part, pool.flash_pages)?;
            let flash = pool_over(&medium, pool, spec, pool::EXTENT_PAGES)?;
            Ok(Under::of(medium, flash))
        }
        (DataSource::Device { socket, frames, part, image }, _) => {
            let device = nand::attached(socket, *frames, *part, subpages)?;
            pool::fill(&*device, image, subpages)?;
            Ok(Under::of(device.clone(), device))
        }
        (_, pool) => {
            let OpenBase { flash: medium, file, .. } = base(spec)?.open()?;
            let flash: Arc<dyn Flash> = match pool {
                Some(pool) => pool_over(&medium, pool, spec, pool::EXTENT_PAGES)?,
                None if spec.config.on_device() => fulgurite_backing::flat_on_device(medium.clone(), spec.device_core)?,
                None => medium.clone(),
            };
            Ok(Under { file, ..Under::of(medium, flash) })
        }
    }
}

/// A pool over a medium, with the data in it: its store is the worker's affair, or a device's.
fn pool_over(medium: &Arc<dyn Flash>, pool: &PoolSpec, spec: &Spec, extent_pages: u32) -> Result<Arc<dyn Flash>> {
    let store = pool::filled(medium, pool, spec.region_bytes, extent_pages)?;
    Ok(if spec.config.on_device() { fulgurite_backing::on_device(store, spec.device_core)? } else { Arc::new(store) })
}

/// What holds the data.
fn base(spec: &Spec) -> Result<Base> {
    let subpages = match &spec.pool {
        Some(pool) => pool.flash_pages,
        None => u32::try_from(spec.region_bytes / SUBPAGE_BYTES as u64).context("more data than a flash can hold")?,
    };
    Ok(match &spec.data {
        DataSource::Emulated { storage, read_ns, write_ns, planes } => {
            let config = EmulatedConfig {
                read_latency: Duration::from_nanos(*read_ns),
                write_latency: Duration::from_nanos(*write_ns),
                planes: *planes,
                core: spec.device_core,
                storage: Some(Arc::new(Arena::shared(open_shared(storage)?)?)),
                ..EmulatedConfig::new(subpages)
            };
            // The firmware's thread plays it, too: there is one core for both.
            if spec.config.on_device() { Base::Timed(config) } else { Base::Emulated(config) }
        }
        DataSource::Memory { storage } => {
            // Of its own, as each configuration has one.
            let own = Arena::anonymous(subpages as usize * SUBPAGE_BYTES, Backed::BasePages)?;
            if spec.pool.is_none() {
                let image = Arena::shared(open_shared(storage)?)?;
                Arena::copy(&image, 0, &own, 0, usize::try_from(spec.region_bytes)?);
            }
            Base::Memory { subpages, storage: Some(Arc::new(own)) }
        }
        DataSource::File { path } => {
            let bytes = u64::from(subpages) * SUBPAGE_BYTES as u64;
            Base::File(match &spec.pool {
                Some(pool) if pool.create => FileConfig::create(path, bytes),
                _ => FileConfig { mode: FileMode::Existing { bytes: Some(bytes) }, ..FileConfig::existing(path) },
            })
        }
        other => bail!("the guarded path cannot be in {other:?}"),
    })
}

/// How long a runtime without jobs may take until nothing is in flight.
const QUIET_PATIENCE: Duration = Duration::from_secs(10);

impl<W> Guarded<W> {
    /// Runs code while nothing writes to the flash. Dirty frames stay dirty, as writing them back
    /// would favour the next round. An idle worker writes cold frames back, so each worker gets a
    /// job that holds its thread.
    fn while_workers_stand<T>(&self, code: impl FnOnce() -> Result<T>) -> Result<T> {
        let (tell, told) = mpsc::channel();
        let mut jobs = Vec::new();
        for worker in 0..self.spec.cores.len() {
            let (tell, (stand, asked)) = (tell.clone(), mpsc::channel::<()>());
            let options = JobOptions::new().name("stands").worker(worker);
            let job = self.runtime.submit_with(&options, move |context| -> Result<(), AccessError> {
                let _ = tell.send(());
                // Requests in flight end, and a worker with something to run begins none by itself.
                loop {
                    match asked.try_recv() {
                        Ok(()) => break,
                        Err(TryRecvError::Empty) => context.yield_now()?,
                        Err(TryRecvError::Disconnected) => return Ok(()),
                    }
                }
                let _ = tell.send(());
                // The other end is dropped when this process may go on.
                let _ = asked.recv();
                Ok(())
            })?;
            jobs.push((job, stand));
        }
        let all_tell =
            || jobs.iter().try_for_each(|_| told.recv_timeout(QUIET_PATIENCE)).context("a worker does not answer");
        let done = all_tell().and_then(|()| self.quiet()).and_then(|()| {
            jobs.iter().try_for_each(|(_, stand)| stand.send(())).context("a worker has died")?;
            all_tell()?;
            code()
        });
        for (job, stand) in jobs {
            drop(stand);
            // A worker that does not answer is not waited for.
            if done.is_ok() {
                job.wait()??;
            }
        }
        done
    }
    /// Waits until the runtime has nothing in flight.
    fn quiet(&self) -> Result<()> {
        let clock = Clock::get();
        let end = clock.now_ns() + QUIET_PATIENCE.as_nanos() as u64;
        let mut last = None;
        loop {
            let now = self.runtime.statistics();
            // Twice: a worker may begin to write frames back right after its answer.
            let begun = (now.device.reads, now.device.writes);
            if now.total().counts.in_flight > 0 {
                last = None;
            } else if last.replace(begun) == Some(begun) {
                return Ok(());
            }
            if clock.now_ns() > end {
                bail!("requests to the device are still in flight {QUIET_PATIENCE:?} after the last job");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl<W: Workload> Runner for Guarded<W> {
    fn opened(&self) -> Opened {
        Opened {
            flash: self.flash.describe(),
            workload_bytes: self.workload.dram_bytes(),
            frames: self.runtime.statistics().total().counts.frames,
            warnings: self.file.as_ref().map(|file| file.warnings()).unwrap_or_default(),
        }
    }
    fn zipf(&mut self, exponent: f64) -> Result<()> {
        self.spec.zipf = exponent;
        let workload = self.workload.clone();
        job(&self.runtime, "save", move |context| workload.save(context))?;
        self.workload = opened(&self.runtime, &self.spec)?;
        Ok(())
    }
    fn run(&mut self, batch: &Batch) -> Result<Outcome> {
        let nand_counts = || self.nand.as_ref().map(|nand| NandCounts::of(&nand.report()));
        let before = (Usage::now(), self.runtime.statistics(), nand_counts());
        let waited = Waits::of_spinning_threads();
        let share = Arc::new(Shares {
            next: AtomicU64::new(0),
            chunk: if self.spec.cores.len() == 1 { batch.count } else { 64 },
            taken: Mutex::default(),
        });
        let start_ns = Clock::get().now_ns();
        let workers = self.spec.cores.len();
        let (workload, for_workers, batch_of) = (self.workload.clone(), share.clone(), batch.clone());
        self.runtime.serve(move |worker| {
            Requests::new(workload.clone(), batch_of.clone(), for_workers.clone(), worker, workers, start_ns)
        })?;
        let after = (self.runtime.statistics(), Usage::now());
        let taken_ns = Waits::of_spinning_threads().longest_since(&waited);
        let mut taken = std::mem::take(&mut *share.taken.lock().map_err(|_| anyhow!("a worker died"))?);
        if let Some(error) = taken.iter().find_map(|t| t.failed) {
            return Err(error).context("a request failed");
        }
        let requests: u64 = taken.iter().map(|t| t.requests).sum();
        if requests != batch.count {
            bail!("{requests} requests were executed and not {}", batch.count);
        }
        let (counts_before, counts) = (before.1.total().counts, after.0.total().counts);
        let (device_before, device) = (before.1.device, after.0.device);
        let completed = |d: &fulgurite_flash::DeviceCounters| d.reads + d.writes + d.flushes + d.errors;
        let completions = completed(&device).saturating_sub(completed(&device_before)).max(1);
        Ok(Outcome {
            cpu_ns: after.1.since(before.0).cpu_ns,
            device_cpu_ns: device.device_cpu_ns.saturating_sub(device_before.device_cpu_ns),
            misses: counts.misses - counts_before.misses,
            accesses: counts.accesses - counts_before.accesses,
            device_reads: device.reads - device_before.reads,
            device_writes: device.writes - device_before.writes,
            device_write_requests: device.write_requests - device_before.write_requests,
            device_read_requests: device.read_requests - device_before.read_requests,
            device_late: device.late - device_before.late,
            nand: nand_counts().zip(before.2).map(|(now, before)| now.since(before)),
            wait_ns: counts.wait_ns - counts_before.wait_ns,
            device_lateness_ns: (device.lateness_ns_total - device_before.lateness_ns_total) / completions,
            device_lateness_ns_max: device.lateness_ns_max,
            taken_ns,
            // What only others can see is added by the process that started this one.
            ..outcome(&*self.workload, batch, start_ns, &mut taken)
        })
    }
    fn check(&mut self) -> Result<u64> {
        let bytes = usize::try_from(self.spec.region_bytes)?;
        let workload = self.workload.clone();
        job(&self.runtime, "save", move |context| workload.save(context))?;
        // A walk over all data would miss at every step. After a write back the device has it.
        let read_back = |what: &str| {
            let memory = PlainMemory::new(Backed::HugePages)?;
            let read = pool::read_whole(&*self.flash, bytes, memory.arena());
            read.with_context(|| format!("the {what} cannot be read back"))?;
            anyhow::Ok(memory)
        };
        if !matches!(self.spec.data, DataSource::Memory { .. }) || self.spec.pool.is_some() {
            self.runtime.write_back()?;
        }
        let mut memory = match &self.spec.data {
            DataSource::Device { .. } | DataSource::Nand(_) => read_back("device")?,
            _ if self.spec.pool.is_some() => read_back("pool")?,
            DataSource::Emulated { storage, .. } => {
                let memory = PlainMemory::new(Backed::BasePages)?;
                kernel::map_over(memory.arena(), &open_shared(storage)?, bytes)
                    .context("the device's data cannot be mapped")?;
                memory
            }
            DataSource::File { path } => {
                // The limit was lifted.
                let memory = PlainMemory::new(Backed::HugePages)?;
                read_whole(path, bytes, memory.arena()).context("the file cannot be read back")?;
                memory
            }
            _ => {
                let workload = self.workload.clone();
                return job(&self.runtime, "check", move |context| workload.check(context));
            }
        };
        // The copy is another memory, so the workload is opened in it. This is a job because the
        // latches of one worker's fibers are for its thread only.
        let (region, params) = (self.spec.region(), self.spec.params());
        job(&self.runtime, "check", move |_| W::open(&mut memory, region, &params)?.check(&mut memory))
    }
    fn device(&mut self, read_share: f64, depth: usize, time: Duration) -> Result<f64> {
        self.while_workers_stand(|| super::device::per_second(&*self.medium, read_share, depth, time))
    }
}

/// Reads the first `bytes` of a file into an arena.
fn read_whole(path: &Path, bytes: usize, into: &Arena) -> std::io::Result<()> {
    let mut file = std::fs::File::open(path)?;
    let mut piece = vec![0; 1 << 20];
    for offset in (0..bytes).step_by(piece.len()) {
        let len = piece.len().min(bytes - offset);
        file.read_exact(&mut piece[..len])?;
        into.write(offset, &piece[..len]);
    }
    Ok(())
}

/// The requests of a batch, shared by the workers.
struct Shares {
    next: AtomicU64,
    chunk: u64,
    taken: Mutex<Vec<Taken>>,
}

struct Requests<W> {
    workload: Arc<W>,
    batch: Batch,
    share: Arc<Shares>,
    clock: Clock,
    /// Requests of this worker that were not begun yet.
    chunk: RefCell<Range<u64>>,
    arrivals: Option<RefCell<Arrivals>>,
    /// Closed loop: the end of the last request, which is the next one's arrival, as in plain
    /// memory. A fiber that waited in between makes this too early, never too late.
    free_since_ns: Cell<Option<u64>>,
    taken: RefCell<Taken>,
}

impl<W: Workload> Requests<W> {
    fn new(workload: Arc<W>, batch: Batch, share: Arc<Shares>, worker: usize, workers: usize, start_ns: u64) -> Self {
        let arrivals = match batch.load {
            Load::Closed => None,
            Load::Poisson { per_second } => {
                let rate = per_second / workers as f64;
                Some(RefCell::new(Arrivals::new(batch.seed ^ batch.first, worker as u64, rate, start_ns)))
            }
        };
        Requests {
            workload,
            batch,
            share,
            clock: Clock::get(),
            chunk: RefCell::new(0..0),
            arrivals,
            free_since_ns: Cell::new(None),
            taken: RefCell::new(Taken::from(start_ns)),
        }
    }
}

impl<W: Workload> Service for Requests<W> {
    #[inline]
    fn next(&self) -> Next {
        let mut chunk = self.chunk.borrow_mut();
        if chunk.is_empty() {
            let start = self.share.next.fetch_add(self.share.chunk, Ordering::Relaxed).min(self.batch.count);
            *chunk = start..(start + self.share.chunk).min(self.batch.count);
            if chunk.is_empty() {
                return Next::Finished;
            }
        }
        match &self.arrivals {
            None => Next::Ready,
            Some(arrivals) => {
                let at = arrivals.borrow().next_ns();
                if at <= self.clock.now_ns() { Next::Ready } else { Next::At(at) }
            }
        }
    }

    fn run(&self, context: &mut Context) {
        let Some(offset) = self.chunk.borrow_mut().next() else { return };
        let begun = self.free_since_ns.take();
        let (arrival, start) = match &self.arrivals {
            None => {
                let start = begun.unwrap_or_else(|| self.clock.now_ns());
                (start, start)
            }
            Some(arrivals) => {
                let start = self.clock.now_ns();
                let mut arrivals = arrivals.borrow_mut();
                let at = arrivals.next_ns();
                arrivals.advance();
                (at, start)
            }
        };
        context.set_arrival(arrival);
        let answers = execute(&*self.workload, context, &self.batch, offset);
        let end = self.clock.now_ns();
        self.free_since_ns.set(Some(end));
        let mut taken = self.taken.borrow_mut();
        taken.latency.record(end.saturating_sub(arrival));
        if self.arrivals.is_some() {
            taken.service.record(end.saturating_sub(start));
        }
        taken.requests += 1;
        taken.end_ns = end;
        match answers {
            Ok(answers) => taken.answers = taken.answers.wrapping_add(answers),
            Err(error) => taken.failed = Some(error),
        }
    }

    fn pins(&self) -> u32 {
        W::PINS
    }
}

impl<W> Drop for Requests<W> {
    fn drop(&mut self) {
        let taken = self.taken.replace(Taken::from(0));
        if let Ok(mut all) = self.share.taken.lock() {
            all.push(taken);
        }
    }
}
