//! One worker's queue on a file, through a pool of threads: where io_uring is missing or forbidden.
//! Without threads, the one that hands a batch over does all of it ([`crate::QueueUser::Caller`]).
//!
//! Writes of a batch to neighbouring places are one system call. Where that does not do all of
//! them, each is tried by itself.
//!
//! Invariant: a job handed over is in exactly one of `jobs`, a thread's hands, or `ended`. A run of
//! writes is in `jobs` as a whole, in order, and one thread takes all of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_sys::{Arena, Notifier, planted, threads};

use super::medium::{OpenFile, Tries};
use super::runs;
use crate::slots::Slots;
use crate::{Completion, FlashError, Op, OpenError, Queue, QueueFull, Request, Switches, frame_count, lock};

/// These threads call the kernel and little else.
const STACK_BYTES: usize = 64 << 10;

pub(super) struct ThreadQueue {
    pool: Arc<Pool>,
    threads: Vec<JoinHandle<()>>,
    slots: Slots,
    batch: Vec<(u32, Request)>,
    /// Writes of the batch.
    writes: Vec<(u32, Request)>,
    refused: Vec<Completion>,
    frame_count: u32,
    /// For jobs that are done here.
    hands: Hands,
}

/// What is being done, and what became of it.
struct Hands {
    run: Vec<Job>,
    results: Vec<(u32, Result<(), FlashError>)>,
}

impl Hands {
    fn new(jobs: usize) -> Hands {
        Hands { run: Vec::with_capacity(jobs), results: Vec::with_capacity(jobs) }
    }
}

struct Pool {
    medium: Arc<OpenFile>,
    frames: Arc<Arena>,
    wake: Arc<Notifier>,
    jobs: Mutex<Jobs>,
    more: Condvar,
    ended: Mutex<Vec<(u32, Result<(), FlashError>)>>,
    /// Entries in `ended`, so that a poll that finds nothing takes no lock.
    ended_count: AtomicUsize,
    /// The worker is notified of each end, asleep or not.
    notifies: AtomicBool,
    /// The worker sleeps, or is about to and will check `ended_count` once more.
    waiting: AtomicBool,
}

#[derive(Clone, Copy)]
struct Job {
    slot: u32,
    request: Request,
    /// The next job is the next write of the same run.
    goes_on: bool,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Job>,
    stop: bool,
}

impl ThreadQueue {
    pub(super) fn open(
        medium: Arc<OpenFile>,
        frames: Arc<Arena>,
        depth: usize,
        wake: Arc<Notifier>,
        threads: usize,
    ) -> Result<ThreadQueue, OpenError> {
        let frame_count = frame_count(&frames);
        let pool = Arc::new(Pool {
            medium,
            frames,
            wake,
            jobs: Mutex::default(),
            more: Condvar::new(),
            ended: Mutex::new(Vec::with_capacity(depth)),
            ended_count: AtomicUsize::new(0),
            notifies: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
        });
        let slots = Slots::new(depth);
        let (batch, writes, refused) = (Vec::with_capacity(depth), Vec::with_capacity(depth), Vec::new());
        let (hands, no_threads) = (Hands::new(if threads == 0 { depth.min(runs::RUN_MAX) } else { 0 }), Vec::new());
        let mut queue = ThreadQueue { pool, threads: no_threads, slots, batch, writes, refused, frame_count, hands };
        for _ in 0..threads.min(depth) {
            let pool = queue.pool.clone();
            let builder = std::thread::Builder::new().name("flash-file".into()).stack_size(STACK_BYTES);
            match planted::start_thread().and_then(|()| builder.spawn(move || pool.serve())) {
                Ok(thread) => queue.threads.push(thread),
                // Fewer threads than asked for are slower, none at all is an error.
                Err(_) if !queue.threads.is_empty() => break,
                Err(source) => return Err(OpenError::System { what: "start a thread for the file", source }),
            }
        }
        Ok(queue)
    }
}

impl Pool {
    /// Serves jobs until asked to stop and nothing is left.
    fn serve(&self) {
        threads::mark();
        let mut hands = Hands::new(runs::RUN_MAX);
        while self.take(&mut hands.run, true) {
            self.serve_run(&mut hands);
        }
    }
    /// Takes the jobs of a run. False when there are none, and none are waited for.
    fn take(&self, run: &mut Vec<Job>, waits: bool) -> bool {
        run.clear();
        let mut jobs = lock(&self.jobs);
        while run.last().is_none_or(|job| job.goes_on) {
            match jobs.queue.pop_front() {
                Some(job) => run.push(job),
                None if jobs.stop || !waits => return false,
                None => jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner),
            }
        }
        true
    }
    fn serve_run(&self, hands: &mut Hands) {
        let Hands { run, results } = hands;
        let whole = run.len() > 1 && self.write_run(run);
        for Job { slot, request, .. } in &*run {
            let result = if whole { Ok(()) } else { self.serve_one(request) };
            self.medium.account(request.op, result);
            results.push((*slot, result));
        }
        let count = results.len();
        lock(&self.ended).append(results);
        self.ended_count.fetch_add(count, Ordering::Release);
        // Pairs with the worker's fence between announcing its wait and its last check of the
        // count.
        fence(Ordering::SeqCst);
        if self.waiting.swap(false, Ordering::Relaxed) || self.notifies.load(Ordering::Relaxed) {
            self.wake.notify();
        }
    }

    /// Writes neighbours by one system call. False: each is to be tried by itself.
    fn write_run(&self, run: &[Job]) -> bool {
        if run.iter().any(|job| self.medium.refusal(&job.request, frame_count(&self.frames)).is_some()) {
            return false;
        }
        self.medium.counters.write_requests.add(1);
        let offsets = run.iter().map(|job| job.request.frame.index() * SUBPAGE_BYTES);
        let place = run[0].request.subpage.linear();
        let result = self.medium.file.write_gathered_at(place, &self.frames, offsets, SUBPAGE_BYTES);
        let result = result.map_or_else(|e| -e.raw_os_error().unwrap_or(5), |n| n as i32);
        self.medium.all_moved(run.len(), result)
    }

    fn serve_one(&self, request: &Request) -> Result<(), FlashError> {
        // Again, because the medium may have been poisoned since the submission.
        if let Some(error) = self.medium.refusal(request, frame_count(&self.frames)) {
            return Err(error);
        }
        let (file, place, offset) =
            (&self.medium.file, request.subpage.linear(), request.frame.index() * SUBPAGE_BYTES);
        let mut tries = Tries::default();
        loop {
            if request.op == Op::Write {
                self.medium.counters.write_requests.add(1);
            }
            let result = match request.op {
                Op::Read => file.read_at(place, &self.frames, offset, SUBPAGE_BYTES),
                Op::Write => file.write_at(place, &self.frames, offset, SUBPAGE_BYTES),
                Op::Flush => file.sync_data().map(|()| 0),
            };
            let result = result.map_or_else(|e| -e.raw_os_error().unwrap_or(5), |n| n as i32);
            if let Some(result) = self.medium.judge(request.op, result, &mut tries) {
                return result;
            }
            self.medium.clock.sleep(tries.pause());
        }
    }
}

impl Queue for ThreadQueue {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        if self.in_flight() >= self.slots.depth() {
            return Err(QueueFull);
        }
        if let Some(error) = self.pool.medium.refusal(&request, self.frame_count) {
            self.pool.medium.account(request.op, Err(error));
            self.refused.push(Completion { tag: request.tag, result: Err(error), checksum: 0 });
            return Ok(());
        }
        let slot = self.slots.take(request.tag).ok_or(QueueFull)?;
        let batch = if request.op == Op::Write { &mut self.writes } else { &mut self.batch };
        batch.push((slot, request));
        Ok(())
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        if self.batch.is_empty() && self.writes.is_empty() {
            return Ok(());
        }
        let mut count = self.batch.len();
        let mut jobs = lock(&self.pool.jobs);
        jobs.queue.extend(self.batch.drain(..).map(|(slot, request)| Job { slot, request, goes_on: false }));
        for run in runs::runs(&mut self.writes, |(_, request)| request.subpage.0) {
            let last = run.len() - 1;
            let run = run.iter().enumerate();
            jobs.queue.extend(run.map(|(i, &(slot, request))| Job { slot, request, goes_on: i < last }));
            count += 1;
        }
        drop(jobs);
        self.writes.clear();
        for _ in 0..count.min(self.threads.len()) {
            self.pool.more.notify_one();
        }
        while self.threads.is_empty() && self.pool.take(&mut self.hands.run, false) {
            self.pool.serve_run(&mut self.hands);
        }
        Ok(())
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        if self.pool.ended_count.load(Ordering::Acquire) > 0 {
            let mut ended = lock(&self.pool.ended);
            // Under the lock the list may have one more than the count for a moment, never fewer.
            let count = self.pool.ended_count.swap(0, Ordering::Acquire);
            for (slot, result) in ended.drain(..count) {
                completions.push(Completion { tag: self.slots.release(slot), result, checksum: 0 });
            }
        }
        completions.append(&mut self.refused);
        completions.len() - before
    }
    fn will_poll(&self) {}
    fn switch(&mut self, to: Switches) -> Switches {
        self.pool.notifies.store(to.notifies, Ordering::Relaxed);
        Switches { notifies: to.notifies, ..Switches::default() }
    }
    fn use_frames(&mut self, _: std::ops::Range<u32>) {}
    fn wait(&mut self, timeout: Option<Duration>) {
        let _ = self.flush();
        let ready = |q: &Self| !q.refused.is_empty() || q.pool.ended_count.load(Ordering::Acquire) > 0;
        if ready(self) {
            return;
        }
        self.pool.waiting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !ready(self) {
            self.pool.wake.wait(timeout);
        }
        self.pool.waiting.store(false, Ordering::Relaxed);
    }
    fn in_flight(&self) -> usize {
        self.slots.in_use() + self.refused.len()
    }
    fn depth(&self) -> usize {
        self.slots.depth()
    }
    fn bytes(&self) -> usize {
        self.threads.len() * STACK_BYTES
            + self.slots.bytes()
            + self.slots.depth() * (2 * size_of::<(u32, Request)>() + size_of::<Job>() + 16)
            + self.threads.len() * runs::RUN_MAX * (size_of::<Job>() + 16)
            + self.hands.run.capacity() * (size_of::<Job>() + 16)
            + self.refused.capacity() * size_of::<Completion>()
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        lock(&self.pool.jobs).stop = true;
        self.pool.more.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
