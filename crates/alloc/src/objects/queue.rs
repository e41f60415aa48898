//! Blocking queues to flash: each has frames of its own, and the one thread that uses it waits.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fulgurite_flash::{Completion, Flash, FlashError, Op, Queue, QueueUser, Request, Switches};
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Notifier};

use crate::StartError;
use crate::objects::lock;

/// After how long a request that the medium does not answer is an error.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a queue sleeps at a time.
const SLEEP: Duration = Duration::from_millis(100);

/// See the module.
pub struct BlockingQueue {
    queue: Box<dyn Queue>,
    frames: Arc<Arena>,
    completions: Vec<Completion>,
    ended: Vec<Result<(), FlashError>>,
}

impl BlockingQueue {
    /// With `frames` frames, which is also the most requests at a time.
    pub fn new(flash: &dyn Flash, frames: usize) -> Result<BlockingQueue, StartError> {
        let arena = Arc::new(Arena::anonymous(frames * SUBPAGE_BYTES, Backed::BasePages)?);
        let notifier =
            Arc::new(Notifier::new().map_err(|source| StartError::System { what: "make an eventfd", source })?);
        let mut queue = flash.open_queue_for(QueueUser::AnyThread, arena.clone(), frames, notifier)?;
        if frames > 1 && flash.traits().gathers > 1 {
            let _ = queue.switch(Switches { gather_reads: true, ..Switches::default() });
        }
        Ok(BlockingQueue {
            queue,
            frames: arena,
            completions: Vec::with_capacity(frames),
            ended: Vec::with_capacity(frames),
        })
    }
    /// DRAM of frames and rings.
    pub fn bytes(&self) -> usize {
        self.frames.len() + self.queue.bytes()
    }
    /// The contents of a frame.
    pub fn page(&self, frame: usize) -> [u8; SUBPAGE_BYTES] {
        let mut page = [0; SUBPAGE_BYTES];
        self.frames.read(frame * SUBPAGE_BYTES, &mut page);
        page
    }
    /// Sets them.
    pub fn set_page(&mut self, frame: usize, page: &[u8; SUBPAGE_BYTES]) {
        self.frames.write(frame * SUBPAGE_BYTES, page);
    }
    /// Moves pages to or from frame 0 and those behind it, and waits. Returns how each one ended.
    ///
    /// # Errors
    /// [`FlashError::TimedOut`] when the medium does not answer. Its requests stay under way then,
    /// and the queue must not be used again.
    pub fn transfer(&mut self, op: Op, pages: &[u32]) -> Result<&[Result<(), FlashError>], FlashError> {
        self.ended.clear();
        self.ended.resize(pages.len(), Err(FlashError::Closed));
        let begun = Instant::now();
        for (frame, page) in pages.iter().enumerate() {
            let (subpage, frame) = (SubpageIndex(*page), FrameIndex(frame as u32));
            let submitted = self.queue.submit(Request { tag: frame.0.into(), op, subpage, frame });
            submitted.expect("a queue has as many requests as frames");
        }
        // What could not be handed over completes with an error.
        let _ = self.queue.flush();
        loop {
            self.queue.poll(&mut self.completions);
            for completion in self.completions.drain(..) {
                self.ended[completion.tag as usize] = completion.result;
            }
            if self.queue.in_flight() == 0 {
                return Ok(&self.ended);
            }
            if begun.elapsed() > TIMEOUT {
                return Err(FlashError::TimedOut);
            }
            self.queue.wait(Some(SLEEP));
        }
    }
    /// Reads a page into frame 0.
    ///
    /// # Errors
    /// The medium's.
    pub fn read(&mut self, page: u32) -> Result<(), FlashError> {
        self.transfer(Op::Read, &[page])?[0]
    }
}

/// Blocking queues, which threads take in turns.
pub struct QueuePool {
    free: Mutex<Free>,
    freed: Condvar,
}

struct Free {
    queues: Vec<BlockingQueue>,
    /// All of them, including those in use.
    all: usize,
}

impl QueuePool {
    pub fn new(queues: Vec<BlockingQueue>) -> QueuePool {
        let all = queues.len();
        QueuePool { free: Mutex::new(Free { queues, all }), freed: Condvar::new() }
    }
    /// Calls `f` with a queue that no other thread has, for which it waits.
    pub fn with<R>(&self, f: impl FnOnce(&mut BlockingQueue) -> Result<R, FlashError>) -> Result<R, FlashError> {
        let mut free = lock(&self.free);
        let mut queue = loop {
            match free.queues.pop() {
                Some(queue) => break queue,
                None if free.all == 0 => return Err(FlashError::TimedOut),
                None => free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(free);
        let result = f(&mut queue);
        if matches!(result, Err(FlashError::TimedOut)) {
            // Its drop would wait for the medium. What it has under way may never end.
            std::mem::forget(queue);
            lock(&self.free).all -= 1;
            self.freed.notify_all();
            return result;
        }
        lock(&self.free).queues.push(queue);
        self.freed.notify_one();
        result
    }
}
