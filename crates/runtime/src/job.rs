//! Jobs: closures that run on fibers, submitted from any thread, with a handle to wait for or
//! await.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin as FuturePin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use fulgurite_sys::Process;
use parking_lot::{Condvar, Mutex};

use crate::config::nanos;
use crate::context::Context;
use crate::control::{Control, Priority};
use crate::error::FORKED;
use crate::mailbox::Message;
use crate::shared::Shared;
use crate::thread::assert_foreign;

/// What may be said about a job when it is submitted.
#[derive(Clone, Debug)]
#[must_use]
pub struct JobOptions {
    pub(crate) name: &'static str,
    pub(crate) priority: Priority,
    pub(crate) deadline: Option<Duration>,
    pub(crate) pins: u32,
    pub(crate) worker: Option<usize>,
}

impl Default for JobOptions {
    fn default() -> Self {
        JobOptions { name: "job", priority: Priority::Normal, deadline: None, pins: 4, worker: None }
    }
}

impl JobOptions {
    /// The defaults: no deadline, normal priority, four pins, any worker.
    pub fn new() -> Self {
        Self::default()
    }
    /// The name by which the job is reported.
    pub fn name(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }
    /// How urgent it is.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
    /// The time, from submission, after which its current or next miss or wait fails with
    /// [`AccessError::DeadlineExceeded`](crate::AccessError::DeadlineExceeded). Waits for flash end
    /// first, and hits continue. A job not yet started never starts.
    pub fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }
    /// How many pins it may hold at once.
    pub fn pins(mut self, count: u32) -> Self {
        self.pins = count;
        self
    }
    /// The worker that must run it (whose owned regions it uses).
    pub fn worker(mut self, worker: usize) -> Self {
        self.worker = Some(worker);
        self
    }
}

/// Why a job gave no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum JobError {
    /// Its code panicked.
    #[error("job \"{name}\" panicked: {message}")]
    Panicked { name: &'static str, message: String },
    /// It ran out of stack.
    #[error(
        "job \"{name}\" overflowed its stack of {stack_bytes} bytes; give jobs larger stacks (runtime::Builder::stack)"
    )]
    StackOverflow { name: &'static str, stack_bytes: usize },
    /// It was cancelled before it started.
    #[error("job \"{name}\" was cancelled before it started")]
    Cancelled { name: &'static str },
    /// Its deadline passed before it started.
    #[error("the deadline of job \"{name}\" passed before it started")]
    DeadlineExceeded { name: &'static str },
    /// The runtime was dropped before it started.
    #[error("the runtime shut down before job \"{name}\" started")]
    ShutDown { name: &'static str },
    /// This process is a child of the one that submitted it.
    #[error("{FORKED}")]
    Forked,
}

/// Why a job was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum SubmitError {
    /// The oldest job has waited too long: the runtime has more work than it can do in time.
    #[error("overloaded: the oldest job has waited {} µs; submit less, or retry later", .wait_ns / 1000)]
    Overloaded {
        /// How long, in nanoseconds.
        wait_ns: u64,
    },
    /// The job declares more pins than there are frames.
    #[error("a job of {pins} pins cannot run with {frames} frames a worker; declare fewer, or raise the DRAM budget")]
    TooManyPins { pins: u32, frames: u32 },
    #[error("there is no worker {worker}; there are {workers}")]
    NoSuchWorker { worker: usize, workers: usize },
    /// The runtime is shutting down.
    #[error("the runtime is shutting down")]
    ShuttingDown,
    /// This process is a child of the one that opened the memory.
    #[error("{FORKED}")]
    Forked,
}

/// Where the result is stored. The worker keeps it too, so that a fiber that dies without unwinding
/// still fails its job.
pub(crate) trait Finish: Send + Sync {
    fn fail(&self, error: JobError);
}

struct Slot<T> {
    state: Mutex<SlotState<T>>,
    ready: Condvar,
}
struct SlotState<T> {
    result: Option<Result<T, JobError>>,
    waker: Option<Waker>,
}

impl<T: Send> Slot<T> {
    fn set(&self, result: Result<T, JobError>) {
        let mut state = self.state.lock();
        if state.result.is_none() {
            state.result = Some(result);
            self.ready.notify_all();
            let waker = state.waker.take();
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}
impl<T: Send> Finish for Slot<T> {
    fn fail(&self, error: JobError) {
        self.set(Err(error));
    }
}

/// A submitted job. Wait for it, or await it; dropping the handle leaves the job running.
#[must_use = "a job's result is lost with its handle"]
pub struct JobHandle<T> {
    slot: Arc<Slot<T>>,
    control: Arc<Control>,
    runtime: Weak<Shared>,
    process: Process,
}

impl<T: Send> JobHandle<T> {
    /// Blocks the calling thread until the job has ended. Not for fibers: they await.
    ///
    /// # Errors
    /// Why it gave no result.
    ///
    /// # Panics
    /// Inside a job, whose worker could never run the other one.
    pub fn wait(self) -> Result<T, JobError> {
        assert_foreign("wait for a job");
        // A child has no worker that runs it, and its locks may be held for good.
        if !self.process.is_current() {
            return Err(JobError::Forked);
        }
        let mut state = self.slot.state.lock();
        loop {
            if let Some(result) = state.result.take() {
                return result;
            }
            self.slot.ready.wait(&mut state);
        }
    }
    /// Makes the job's current or next miss or wait fail with [`crate::AccessError::Cancelled`].
    /// Waits for flash end first. A job not yet started never starts.
    pub fn cancel(&self) {
        if !self.process.is_current() {
            return;
        }
        let before = self.control.cancelled.swap(true, Ordering::Relaxed);
        if let Some(runtime) = self.runtime.upgrade().filter(|_| !before) {
            runtime.mailboxes.iter().for_each(|mailbox| mailbox.send(Message::Cancelled));
        }
    }
    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        !self.process.is_current() || self.slot.state.lock().result.is_some()
    }
}

impl<T: Send> Future for JobHandle<T> {
    type Output = Result<T, JobError>;
    fn poll(self: FuturePin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        if !self.process.is_current() {
            return Poll::Ready(Err(JobError::Forked));
        }
        let mut state = self.slot.state.lock();
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A job that a worker can run without knowing its type.
pub(crate) trait ErasedJob: Send {
    fn control(&self) -> &Arc<Control>;
    fn finish(&self) -> Arc<dyn Finish>;
    /// Runs it; a panic of its code fails the job and nothing else. Returns whether it panicked.
    fn run(self: Box<Self>, context: &mut Context) -> bool;
}

struct TypedJob<T, F> {
    code: F,
    slot: Arc<Slot<T>>,
    control: Arc<Control>,
}

impl<T: Send + 'static, F: FnOnce(&mut Context) -> T + Send> ErasedJob for TypedJob<T, F> {
    fn control(&self) -> &Arc<Control> {
        &self.control
    }
    fn finish(&self) -> Arc<dyn Finish> {
        self.slot.clone()
    }
    fn run(self: Box<Self>, context: &mut Context) -> bool {
        let TypedJob { code, slot, control } = *self;
        let result = catch_unwind(AssertUnwindSafe(|| code(context)));
        let panicked = result.is_err();
        // Before the end is known: a caller that then asks for a write-back of everything means
        // this job's writes.
        context.let_go();
        let (result, payload) = match result {
            Ok(value) => (Ok(value), None),
            Err(payload) => (Err(JobError::Panicked { name: control.name, message: words(&*payload) }), Some(payload)),
        };
        // Before the payload is dropped, which is code of the user as well.
        slot.set(result);
        payload.into_iter().for_each(drop_payload);
        panicked
    }
}

/// Makes a job and its handle.
pub(crate) fn new_job<T, F>(
    shared: &Arc<Shared>,
    options: &JobOptions,
    now_ns: u64,
    code: F,
) -> (Box<dyn ErasedJob>, JobHandle<T>)
where
    T: Send + 'static,
    F: FnOnce(&mut Context) -> T + Send + 'static,
{
    let slot = Arc::new(Slot { state: Mutex::new(SlotState { result: None, waker: None }), ready: Condvar::new() });
    let deadline_ns = options.deadline.map_or(u64::MAX, |d| now_ns.saturating_add(nanos(d)));
    let control = Arc::new(Control {
        name: options.name,
        cancelled: AtomicBool::new(false),
        deadline_ns,
        submitted_ns: now_ns,
        priority: options.priority,
        pins: options.pins,
    });
    let job = Box::new(TypedJob { code, slot: slot.clone(), control: control.clone() });
    (job, JobHandle { slot, control, runtime: Arc::downgrade(shared), process: shared.process })
}

/// Fails a job that has not begun. Its closure is its owner's: a panic in dropping it stays here.
pub(crate) fn refuse(job: Box<dyn ErasedJob>, error: impl FnOnce(&'static str) -> JobError) {
    let (finish, name) = (job.finish(), job.control().name);
    // First, because it may borrow from a caller that waits for the end.
    catch_unwind(AssertUnwindSafe(move || drop(job))).unwrap_or_else(drop_payload);
    finish.fail(error(name));
}

/// The text of a panic, whose payload is dropped.
pub(crate) fn panic_text(payload: Box<dyn Any + Send>) -> String {
    let text = words(&*payload);
    drop_payload(payload);
    text
}

/// Drops what a panic carried. A panic in that drop is dropped in turn, but not forever.
pub(crate) fn drop_payload(payload: Box<dyn Any + Send>) {
    let mut payload = payload;
    for _ in 0..8 {
        match catch_unwind(AssertUnwindSafe(move || drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    std::mem::forget(payload);
}

fn words(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "(no text)".to_owned())
}
