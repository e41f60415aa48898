//! The runtime as its users hold it: start, submit, serve, resize, observe, stop.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use fulgurite_flash::{FlashError, VersionError};
use fulgurite_format::{Address, FrameIndex, SUBPAGE_BYTES};
use fulgurite_sys::endings::Ending;
use parking_lot::Mutex;

use crate::config::{BuildError, Builder};
use crate::context::Context;
use crate::error::{AccessError, SyncError};
use crate::job::{JobError, JobHandle, JobOptions, SubmitError, new_job};
use crate::jobs::Jobs;
use crate::mailbox::Message;
use crate::objects::Objects;
use crate::service::{Service, ServiceEnd, ServiceFactory};
use crate::shared::{Shared, WorkerId};
use crate::stats::{RecordStatistics, Statistics, WorkerStatistics};
use crate::sync::Durable;
use crate::thread::{assert_foreign, on_worker};
use crate::worker::Worker;
use fulgurite_cache::marks::has_changes;

/// Workers, their frames, and the flash behind them. Dropping it lets started jobs end, writes
/// dirty frames back and stops.
///
/// Where the medium keeps versions, dropping it makes a last token, as [`Runtime::sync`] does, and
/// then lets started jobs end. Their later writes are lost, so wait for them first.
///
/// Dropped on a worker, of this runtime or of another, it returns at once, and a thread of its own
/// does all that. An exit of the process waits for the token, and an open of the same pool in this
/// process waits until it is free.
pub struct Runtime {
    pub(crate) shared: Arc<Shared>,
    pub(crate) jobs: Arc<Jobs>,
    /// What is saved with every sync.
    pub(crate) parts: Mutex<Vec<Arc<dyn Durable>>>,
    threads: Vec<JoinHandle<()>>,
    watchdog: Option<Watchdog>,
    /// What each worker answered when it was asked last.
    last_answers: Mutex<Vec<WorkerStatistics>>,
    /// Its end is another thread's. The last field: the medium is closed before.
    ending: Mutex<Option<Ending>>,
}

/// The thread that reports jobs which do not give way, and that ends a runtime which was dropped
/// on a worker.
struct Watchdog {
    /// Dropped, it stops the thread.
    ends: mpsc::Sender<Runtime>,
    thread: JoinHandle<()>,
}

/// Why a service did not end well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum ServeError {
    /// One of its requests panicked or overflowed its stack.
    #[error("the service on worker {worker} failed: {message}")]
    Died { worker: usize, message: String },
    /// A request declares more pins than there are frames.
    #[error(transparent)]
    Refused(#[from] SubmitError),
    /// The runtime shut down before the service had finished.
    #[error("the runtime shut down before the service had finished")]
    ShutDown,
}

impl Builder {
    /// Starts the runtime.
    ///
    /// # Errors
    /// [`BuildError`], before any thread runs.
    pub fn build(self) -> Result<Runtime, BuildError> {
        Runtime::start(self)
    }
}

impl Runtime {
    /// A builder over `flash`.
    pub fn builder(flash: Arc<dyn fulgurite_flash::Flash>) -> Builder {
        Builder::new(flash)
    }

    fn start(config: Builder) -> Result<Runtime, BuildError> {
        let shared = Arc::new(Shared::new(&config)?);
        if config.workers > 1 && !fulgurite_sys::barrier::register() {
            return Err(BuildError::NoBarrier);
        }
        fulgurite_fiber::install_overflow_handler();
        let last_answers = Mutex::new(vec![WorkerStatistics::new(); config.workers]);
        let jobs = Arc::new(Jobs::new(shared.clone()));
        let mut runtime = Runtime {
            shared: shared.clone(),
            jobs: jobs.clone(),
            parts: Mutex::new(Vec::new()),
            threads: Vec::new(),
            watchdog: None,
            last_answers,
            ending: Mutex::new(None),
        };
        for id in 0..config.workers {
            let (ready, is_ready) = mpsc::channel();
            let (shared, jobs, core) = (shared.clone(), jobs.clone(), config.cores.get(id).copied());
            fulgurite_sys::planted::start_thread()?;
            let thread = std::thread::Builder::new().name(format!("fulgurite-{id}")).spawn(move || {
                let worker = core
                    .map_or(Ok(()), fulgurite_sys::affinity::pin)
                    .map_err(BuildError::from)
                    .and_then(|()| Worker::new(id as u32, shared, jobs));
                match worker {
                    Ok(worker) => {
                        worker.shared.active.fetch_add(1, Ordering::AcqRel);
                        let _ = ready.send(Ok(()));
                        worker.run();
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                }
            })?;
            runtime.threads.push(thread);
            is_ready.recv().unwrap_or_else(|_| Err(std::io::Error::other("a worker died").into()))?;
        }
        let (ends, ended) = mpsc::channel();
        let watched = shared.clone();
        fulgurite_sys::planted::start_thread()?;
        let thread = std::thread::Builder::new().name("fulgurite-watch".into()).spawn(move || {
            let dropped = watch(&watched, &ended);
            drop((watched, ended));
            drop(dropped);
        })?;
        runtime.watchdog = Some(Watchdog { ends, thread });
        Ok(runtime)
    }

    /// Says that another thread will drop this, and that the caller does not wait for it.
    pub fn ends_elsewhere(&self) {
        self.ending.lock().get_or_insert_with(Ending::begin);
    }

    /// Runs `code` as a job on any worker.
    ///
    /// # Errors
    /// [`SubmitError`]: overloaded, or shutting down.
    pub fn submit<T, F>(&self, code: F) -> Result<JobHandle<T>, SubmitError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Context) -> T + Send + 'static,
    {
        self.submit_with(&JobOptions::default(), code)
    }

    /// As [`Runtime::submit`], with a name, a priority, a deadline, a bound on pins, a worker.
    pub fn submit_with<T, F>(&self, options: &JobOptions, code: F) -> Result<JobHandle<T>, SubmitError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Context) -> T + Send + 'static,
    {
        let shared = &self.shared;
        if !shared.process.is_current() {
            return Err(SubmitError::Forked);
        }
        if shared.stopping.load(Ordering::Relaxed) {
            return Err(SubmitError::ShuttingDown);
        }
        self.check_pins(options.pins)?;
        let queue = match options.worker {
            None => &self.jobs.injector,
            Some(worker) => {
                let workers = self.jobs.routed.len();
                self.jobs.routed.get(worker).ok_or(SubmitError::NoSuchWorker { worker, workers })?
            }
        };
        let now = shared.clock.now_ns();
        queue.admit(options.priority, now).map_err(|o| SubmitError::Overloaded { wait_ns: o.wait_ns })?;
        let (job, handle) = new_job(shared, options, now, code);
        match options.worker {
            None => self.jobs.inject(job),
            Some(worker) => {
                queue.push(job);
                shared.mailboxes[worker].send(Message::Nudge);
            }
        }
        Ok(handle)
    }

    fn check_pins(&self, pins: u32) -> Result<(), SubmitError> {
        let frames = self.frames_per_worker();
        if pins > 4 && pins >= frames { Err(SubmitError::TooManyPins { pins, frames }) } else { Ok(()) }
    }

    /// As [`Runtime::run_job`], on the fiber that a worker keeps for the runtime's own jobs: all
    /// others may wait for what the caller holds. One such job runs at a time.
    ///
    /// # Panics
    /// Inside a job.
    pub(crate) fn run_own<'env, T, F>(&self, name: &'static str, code: F) -> Result<T, JobError>
    where
        T: Send + 'env,
        F: FnOnce(&mut Context) -> T + Send + 'env,
    {
        if !self.shared.process.is_current() {
            return Err(JobError::Forked);
        }
        let Ok(ended) = run_borrowing(code, |code| {
            let now = self.shared.clock.now_ns();
            let (job, handle) = new_job(&self.shared, &JobOptions::new().name(name), now, code);
            self.jobs.for_itself(0, job);
            Ok::<_, Infallible>(handle)
        });
        ended
    }

    fn frames_per_worker(&self) -> u32 {
        self.shared.frames_per_worker()
    }

    /// Runs `code` as a job and waits for it. It may borrow from its caller.
    ///
    /// # Errors
    /// [`SubmitError`] when the job was not accepted, and nothing ran. The inner error is why it
    /// gave no result.
    ///
    /// # Panics
    /// Inside a job.
    pub fn run_job<'env, T, F>(&self, options: &JobOptions, code: F) -> Result<Result<T, JobError>, SubmitError>
    where
        T: Send + 'env,
        F: FnOnce(&mut Context) -> T + Send + 'env,
    {
        run_borrowing(code, |code| self.submit_with(options, code))
    }

    /// Blocking access for a thread that is no worker: runs `code` as a job and waits for it. It
    /// may borrow from its caller.
    ///
    /// # Errors
    /// What `code` returned, or why it did not run (as [`AccessError::ShuttingDown`] and the like).
    ///
    /// # Panics
    /// With the panic of `code`, and inside a job.
    pub fn run<'env, T, F>(&self, code: F) -> Result<T, AccessError>
    where
        T: Send + 'env,
        F: FnOnce(&mut Context) -> Result<T, AccessError> + Send + 'env,
    {
        let ended = self.run_job(&JobOptions::default(), code).map_err(|error| match error {
            SubmitError::Overloaded { wait_ns } => AccessError::Overloaded { wait_ns },
            SubmitError::Forked => AccessError::Forked,
            _ => AccessError::ShuttingDown,
        })?;
        result_of(ended)
    }

    /// As [`Runtime::run`], with a name, a priority, a deadline, a bound on pins, a worker.
    ///
    /// # Errors
    /// [`SubmitError`] when the job was not accepted, and nothing ran. The inner result is the
    /// result of [`Runtime::run`].
    ///
    /// # Panics
    /// As [`Runtime::run`].
    pub fn run_with<'env, T, F>(&self, options: &JobOptions, code: F) -> Result<Result<T, AccessError>, SubmitError>
    where
        T: Send + 'env,
        F: FnOnce(&mut Context) -> Result<T, AccessError> + Send + 'env,
    {
        Ok(result_of(self.run_job(options, code)?))
    }

    /// Serves requests made inside the workers: `make(worker)` makes each worker's source, on its
    /// thread. Blocks until all have finished.
    ///
    /// A second call while one is served waits for its end.
    ///
    /// # Errors
    /// [`ServeError`] of the first worker that failed.
    ///
    /// # Panics
    /// Inside a job.
    pub fn serve<S, F>(&self, make: F) -> Result<(), ServeError>
    where
        S: Service + 'static,
        F: Fn(usize) -> S + Send + Sync + 'static,
    {
        assert_foreign("serve");
        self.check_process().map_err(|_| SubmitError::Forked)?;
        let make = Arc::new(make);
        let waits: Vec<_> = (0..self.shared.mailboxes.len())
            .map(|worker| {
                let (done, is_done) = mpsc::channel();
                let make = make.clone();
                let factory = ServiceFactory { make: Box::new(move || Rc::new(make(worker)) as Rc<dyn Service>), done };
                self.jobs.serve(worker, factory);
                is_done
            })
            .collect();
        let mut first = Ok(());
        for (worker, is_done) in waits.into_iter().enumerate() {
            let result = match is_done.recv() {
                Ok(Ok(())) => Ok(()),
                Ok(Err(ServiceEnd::Died(message))) => Err(ServeError::Died { worker, message }),
                Ok(Err(ServiceEnd::Refused(error))) => Err(error.into()),
                Err(_) => Err(ServeError::ShutDown),
            };
            first = first.and(result);
        }
        first
    }

    /// The DRAM budget, in bytes.
    pub fn dram_bytes(&self) -> u64 {
        self.shared.dram_bytes.load(Ordering::Relaxed)
    }

    /// Changes the DRAM budget while running. A larger one holds at once, a smaller one as frames
    /// empty.
    ///
    /// # Errors
    /// [`BuildError::TooSmall`] when nothing would be left for frames, [`BuildError::Unusable`]
    /// above the runtime's maximum.
    pub fn set_dram(&self, bytes: u64) -> Result<(), BuildError> {
        self.check_process().map_err(|_| BuildError::Forked)?;
        let layout = &self.shared.layout;
        let workers = self.shared.mailboxes.len() as u64;
        // Objects may give what they have beyond their least.
        let given = self.shared.objects.as_ref().map_or(0, |_| self.shared.config.objects_bytes - layout.objects_least);
        let least = layout.fixed_bytes - given + workers * layout.per_frame_bytes;
        if bytes < least {
            return Err(BuildError::TooSmall { budget: bytes, fixed: layout.fixed_bytes, least });
        }
        let max = self.shared.config.dram_max_bytes.max(self.shared.config.dram_bytes);
        if bytes > max {
            return Err(BuildError::Unusable {
                what: "DRAM budget",
                got: bytes,
                advice: "build the runtime with a larger `dram_max`",
            });
        }
        self.shared.dram_bytes.store(bytes, Ordering::Relaxed);
        if let (Some(split), Some(objects)) = (&self.shared.split, &self.shared.objects) {
            split.lock().budget_changed(&self.shared, objects, self.shared.clock.now_ns());
            return Ok(());
        }
        let frames = self.frames_per_worker();
        self.shared.mailboxes.iter().for_each(|m| m.send(Message::SetFrames(frames)));
        Ok(())
    }

    /// The counts. Each worker answers at its next scheduling point, or after two seconds with its
    /// last answer.
    ///
    /// # Panics
    /// Inside a job: its own worker would have to answer. (A job of another runtime, too.)
    pub fn statistics(&self) -> Statistics {
        self.ask_statistics(false)
    }

    /// As [`Runtime::statistics`], and starts counting anew. A worker that does not answer in time
    /// is empty here, and counts on for its next answer.
    ///
    /// # Panics
    /// Inside a job.
    #[must_use]
    pub fn take_statistics(&self) -> Statistics {
        self.ask_statistics(true)
    }

    fn ask_statistics(&self, reset: bool) -> Statistics {
        assert_foreign("ask for statistics");
        if self.check_process().is_err() {
            let workers = vec![WorkerStatistics::new(); self.workers()];
            return Statistics {
                workers,
                dram_bytes: self.dram_bytes(),
                device: fulgurite_flash::DeviceCounters::default(),
                records: RecordStatistics::default(),
            };
        }
        let replies = self.shared.ask(|reply| Message::Statistics { reset, reply });
        let clock = &self.shared.clock;
        let mut last_answers = self.last_answers.lock();
        let workers = replies
            .into_iter()
            .zip(&mut *last_answers)
            .map(|(answer, last)| match clock.receive_until(&answer, clock.after(Duration::from_secs(2))) {
                Ok(statistics) => {
                    *last = if reset { WorkerStatistics::new() } else { statistics.clone() };
                    statistics
                }
                Err(_) if reset => WorkerStatistics::new(),
                Err(_) => last.clone(),
            })
            .collect();
        let records =
            self.shared.records.as_ref().map_or_else(RecordStatistics::default, |it| RecordStatistics::of(it));
        Statistics { workers, dram_bytes: self.dram_bytes(), device: self.shared.flash.counters(), records }
    }

    /// Writes all dirty frames back and flushes the medium. Concurrent writes may stay dirty. Where
    /// the medium keeps versions this is a [`Runtime::sync`].
    ///
    /// # Errors
    /// The medium's.
    ///
    /// # Panics
    /// Inside a job.
    pub fn write_back(&self) -> Result<(), FlashError> {
        assert_foreign("write everything back");
        self.check_process().map_err(|_| FlashError::Poisoned)?;
        if self.shared.flash.versions().is_some() {
            return self.sync().map(drop).map_err(|error| match error {
                SyncError::Version(VersionError::Flash(error)) => error,
                SyncError::NoSpace { .. } => FlashError::NoSpace,
                SyncError::Poisoned { .. } => FlashError::Poisoned,
                _ => FlashError::TimedOut,
            });
        }
        let answers = self.shared.ask(Message::WriteBack);
        answers.into_iter().try_for_each(|a| a.recv().unwrap_or(Err(FlashError::Poisoned)))
    }

    /// Hands out `bytes` (rounded up to subpages) of the shared part of the pool: its first
    /// address.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`].
    pub fn reserve_shared(&self, bytes: u64) -> Result<Address, AccessError> {
        let end = u64::from(self.shared.layout.shared_subpages) * SUBPAGE_BYTES as u64;
        reserve(&self.shared.next_shared, bytes, end)
    }

    /// Hands out `bytes` (rounded up to subpages) of the owned part of the pool: its first address.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`].
    pub fn reserve_owned(&self, bytes: u64) -> Result<Address, AccessError> {
        let end = u64::from(self.shared.layout.subpages) * SUBPAGE_BYTES as u64;
        reserve(&self.shared.next_owned, bytes, end)
    }

    /// Refuses a child after `fork`, which has none of the workers.
    ///
    /// # Errors
    /// [`SyncError::Forked`].
    pub fn check_process(&self) -> Result<(), SyncError> {
        if self.shared.process.is_current() { Ok(()) } else { Err(SyncError::Forked) }
    }
    /// After how long a request that the medium does not answer is an error.
    pub fn device_timeout(&self) -> Duration {
        self.shared.config.device_timeout
    }
    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.shared.mailboxes.len()
    }
    /// The name of a worker; none when there is no such worker.
    pub fn worker_id(&self, worker: usize) -> Option<WorkerId> {
        (worker < self.workers()).then(|| WorkerId::new(self.shared.id, worker as u32))
    }
    /// Frames of all workers, as the budget allows now.
    pub fn frames(&self) -> u64 {
        u64::from(self.frames_per_worker()) * self.workers() as u64
    }
    /// The most frames of all workers at [`Runtime::set_dram`]'s maximum.
    pub fn frames_max(&self) -> u64 {
        u64::from(self.shared.layout.frames_per_worker_max) * self.workers() as u64
    }
    /// Whether objects are cached by themselves ([`Builder::objects`]).
    pub fn has_objects(&self) -> bool {
        self.shared.objects.is_some()
    }
    /// The most changes that a sync may have to find places for: frames and objects.
    pub fn changes_max(&self) -> u64 {
        self.frames_max() + self.shared.objects.as_ref().map_or(0, Objects::changes_max)
    }
    /// About how many frames differ from the medium, without pinned ones, which always may. Reads
    /// the marks of all frames, at a few nanoseconds each and without the workers. Objects count as
    /// frames. From any thread.
    pub fn changed_frames(&self) -> u64 {
        let differs = |frame: &u32| {
            let marks = self.shared.cache.frames.marks(FrameIndex(*frame));
            has_changes(marks.dirty.load(Ordering::Relaxed)) && marks.pins.load(Ordering::Relaxed) == 0
        };
        // No more than 2^30.
        let frames = (0..self.frames_max() as u32).filter(differs).count() as u64;
        frames + self.shared.objects.as_ref().map_or(0, |objects| objects.changes())
    }
    /// Bytes of the budget that objects have now ([`Builder::objects`]).
    pub fn objects_bytes(&self) -> u64 {
        self.shared.objects_bytes.load(Ordering::Relaxed)
    }
    /// Bytes of the budget that are not frames at the start: tables, stacks, rings, histograms, and
    /// objects.
    pub fn fixed_bytes(&self) -> u64 {
        self.shared.layout.fixed_bytes
    }
}

/// Code of a job that may borrow from a caller that waits for its end.
type Code<'env> = Box<dyn FnOnce(&mut Context) + Send + 'env>;

/// Waits for `code`, which `submit` makes a job.
///
/// # Panics
/// Inside a job.
fn run_borrowing<'env, T, E>(
    code: impl FnOnce(&mut Context) -> T + Send + 'env,
    submit: impl FnOnce(Code<'static>) -> Result<JobHandle<()>, E>,
) -> Result<Result<T, JobError>, E>
where
    T: Send + 'env,
{
    // Before anything is submitted: nothing below may unwind while the job exists.
    assert_foreign("wait for a job");
    let result = Mutex::new(None);
    let into = &result;
    let code: Code<'_> = Box::new(move |context| {
        let value = code(context);
        *into.lock() = Some(value);
    });
    // SAFETY: only the lifetime changes. What is borrowed outlives the call, because this function
    // returns only when `wait` has. Until then, the job was either not accepted and dropped, or run
    // to its end or its panic, which consumes it, or refused, which drops it before the end is
    // reported. On a stack that overflowed it is never touched again.
    let code = unsafe { std::mem::transmute::<Code<'_>, Code<'static>>(code) };
    let ended = submit(code)?.wait();
    Ok(ended.map(|()| result.into_inner().expect("a job that ended has left its result")))
}

/// What a job returned whose panic is the caller's.
pub(crate) fn result_of<T>(ended: Result<Result<T, AccessError>, JobError>) -> Result<T, AccessError> {
    match ended {
        Ok(result) => result,
        Err(JobError::Panicked { message, .. }) => std::panic::panic_any(message),
        Err(error @ JobError::StackOverflow { .. }) => panic!("{error}"),
        Err(JobError::Forked) => Err(AccessError::Forked),
        Err(_) => Err(AccessError::ShuttingDown),
    }
}

fn reserve(next: &std::sync::atomic::AtomicU64, bytes: u64, end: u64) -> Result<Address, AccessError> {
    let rounded = bytes.checked_next_multiple_of(SUBPAGE_BYTES as u64);
    next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| at.checked_add(rounded?).filter(|&after| after <= end))
        .map(Address::from_linear)
        .map_err(|at| AccessError::NoSpace { requested: bytes, free: end.saturating_sub(at) })
}

/// Reports, by name, a job that does not give its core back. Returns the runtime when it was
/// dropped on a worker.
fn watch(shared: &Shared, ended: &mpsc::Receiver<Runtime>) -> Option<Runtime> {
    let limit = shared.config.run_limit;
    let mut seen: Vec<(u64, u32)> = vec![(0, 0); shared.running.len()];
    loop {
        match shared.clock.receive_until(ended, shared.clock.after(limit)) {
            Ok(runtime) => return Some(runtime),
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        for (worker, (running, seen)) in shared.running.iter().zip(&mut seen).enumerate() {
            let turns = running.turns.load(Ordering::Relaxed);
            if !running.busy.load(Ordering::Relaxed) || turns != seen.0 {
                *seen = (turns, 0);
                continue;
            }
            seen.1 += 1;
            // This is reported once, and again at each doubling.
            if seen.1.is_power_of_two() {
                let name = running.name();
                let for_s = limit.as_secs_f64() * f64::from(seen.1);
                eprintln!(
                    "fulgurite: job \"{name}\" has kept worker {worker} for more than {for_s:.1} s without giving way; \
                     let it call yield_now now and then"
                );
            }
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // Nothing of a parent's threads, rings and locks may be touched. It ends with the
            // child.
            std::mem::forget((self.shared.clone(), self.jobs.clone()));
            std::mem::forget((std::mem::take(&mut self.threads), self.watchdog.take()));
            return;
        }
        let Some(Watchdog { ends, thread: watchdog }) = self.watchdog.take() else {
            // It has not started.
            return self.stop();
        };
        if on_worker() {
            self.ends_elsewhere();
            let runtime = Runtime {
                shared: self.shared.clone(),
                jobs: self.jobs.clone(),
                parts: Mutex::new(std::mem::take(self.parts.get_mut())),
                threads: std::mem::take(&mut self.threads),
                watchdog: Some(Watchdog { ends: ends.clone(), thread: watchdog }),
                last_answers: Mutex::default(),
                ending: Mutex::new(self.ending.get_mut().take()),
            };
            if let Err(mpsc::SendError(mut runtime)) = ends.send(runtime) {
                // Its thread has died. The workers end by themselves.
                (runtime.watchdog, runtime.threads) = (None, Vec::new());
            }
            return;
        }
        if self.shared.flash.versions().is_some()
            && let Err(error) = self.sync()
        {
            eprintln!("fulgurite: what was written since the last token is lost: {error}");
        }
        self.ending.get_mut().iter_mut().for_each(Ending::made_durable);
        self.stop();
        drop(ends);
        if watchdog.thread().id() != std::thread::current().id() {
            let _ = watchdog.join();
        }
    }
}

impl Runtime {
    /// Lets started jobs end, and then the workers.
    fn stop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.mailboxes.iter().for_each(|m| m.send(Message::Stop));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.jobs.fail_queued();
    }
}
