//! Goal: a sync ends where a worker that is halted waits for the medium, and the medium for the
//! queue of another halted worker. Method: a pool behind a wrapping that keeps the completion of
//! one write back until another queue was polled. A job pins a dirty frame and uses all others, so
//! that its worker has no frame for a copy and writes from the frame itself.

use crate::guarded;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fulgurite::{Context, Memory, media::MemoryFlash, runtime::Runtime};
use fulgurite_flash::{
    Backing, Completion, DeviceCounters, Flash, FlashError, FrameContract, Op, OpenError, Queue, QueueFull, QueueUser,
    Request, Switches, Traits,
};
use fulgurite_format::{PoolId, SubpageIndex};
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::{Arena, Notifier};
use guarded::{with_frames, within, word};

/// Of each of two workers.
const FRAMES: u64 = 4;

/// How often any queue was polled, and whether the next write waits for another queue's poll.
#[derive(Default)]
struct Polls {
    all: AtomicU64,
    armed: AtomicBool,
    kept_back: AtomicBool,
}

/// A medium of which one write ends only after another queue was polled.
struct NeedsOthers {
    inner: Arc<dyn Flash>,
    polls: Arc<Polls>,
}

struct NeedsOthersQueue {
    inner: Box<dyn Queue>,
    polls: Arc<Polls>,
    /// Polls of this queue.
    own: u64,
    /// The write, and the polls of others when it was asked for.
    waits: Option<(u64, u64)>,
    kept: Vec<Completion>,
}

// SAFETY: the queues are the inner medium's, which keeps the contract itself.
unsafe impl FrameContract for NeedsOthers {}

impl Flash for NeedsOthers {
    fn subpages(&self) -> u32 {
        self.inner.subpages()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn traits(&self) -> Traits {
        self.inner.traits()
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        self.inner.staging_bytes(frames)
    }
    fn open_queue_for(
        &self,
        user: QueueUser,
        frames: Arc<Arena>,
        depth: usize,
        wake: Arc<Notifier>,
    ) -> Result<Box<dyn Queue>, OpenError> {
        let inner = self.inner.open_queue_for(user, frames, depth, wake)?;
        Ok(Box::new(NeedsOthersQueue { inner, polls: self.polls.clone(), own: 0, waits: None, kept: Vec::new() }))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        self.inner.trim(first, count)
    }
    fn backing(&self) -> Option<&dyn Backing> {
        self.inner.backing()
    }
    fn counters(&self) -> DeviceCounters {
        self.inner.counters()
    }
}

impl NeedsOthersQueue {
    fn polls_of_others(&self) -> u64 {
        self.polls.all.load(Ordering::SeqCst) - self.own
    }
}

impl Queue for NeedsOthersQueue {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        self.inner.submit(request)?;
        if request.op == Op::Write && self.polls.armed.swap(false, Ordering::SeqCst) {
            self.waits = Some((request.tag, self.polls_of_others()));
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        self.inner.flush()
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.own += 1;
        self.polls.all.fetch_add(1, Ordering::SeqCst);
        let before = completions.len();
        self.inner.poll(completions);
        if let Some((tag, polls)) = self.waits {
            let written = completions.iter().skip(before).position(|done| done.tag == tag);
            if let Some(at) = written {
                self.kept.push(completions.remove(before + at));
                self.polls.kept_back.store(true, Ordering::SeqCst);
            }
            if !self.kept.is_empty() && self.polls_of_others() > polls {
                completions.append(&mut self.kept);
                self.waits = None;
            }
        }
        completions.len() - before
    }
    fn will_poll(&self) {
        self.inner.will_poll();
    }
    fn switch(&mut self, to: Switches) -> Switches {
        self.inner.switch(to)
    }
    fn use_frames(&mut self, frames: std::ops::Range<u32>) {
        self.inner.use_frames(frames);
    }
    fn wait(&mut self, timeout: Option<Duration>) {
        // What is kept back wakes nobody.
        let short = Duration::from_millis(1);
        self.inner.wait(Some(timeout.map_or(short, |timeout| timeout.min(short))));
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.kept.len()
    }
    fn depth(&self) -> usize {
        self.inner.depth()
    }
    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}

#[test]
fn regression_a_write_in_place_that_needs_the_queue_of_a_halted_worker() {
    within(60, "a sync", || {
        let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096).unwrap());
        let geometry = Geometry::new(4096, 16, Some(1024)).unwrap();
        Pool::format(&medium, geometry, PoolId([9; 16]), 0).unwrap();
        let pool = Pool::open(medium, StoreConfig::default()).unwrap().0.into_flash();
        let polls = Arc::new(Polls::default());
        let flash: Arc<dyn Flash> = Arc::new(NeedsOthers { inner: Arc::new(pool), polls: polls.clone() });
        let builder = Runtime::builder(flash).fibers(8).device_timeout(Duration::from_secs(5));
        let runtime = Arc::new(with_frames(builder, 2, FRAMES));
        let (ready, synced) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_ready, is_synced) = (ready.clone(), synced.clone());
        let job = runtime.submit(move |c: &mut Context| {
            c.store(word(0, 0), 7u64)?;
            let pin = Context::pin(c, word(0, 0).address())?;
            pin.mark_dirty();
            for page in 1..FRAMES {
                c.load(word(page, 0))?;
            }
            is_ready.store(true, Ordering::SeqCst);
            while !is_synced.load(Ordering::SeqCst) {
                c.sleep(Duration::from_millis(1))?;
            }
            drop(pin);
            c.load(word(0, 0))
        });
        while !ready.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        polls.armed.store(true, Ordering::SeqCst);
        runtime.sync().unwrap();
        synced.store(true, Ordering::SeqCst);
        assert_eq!(job.unwrap().wait().unwrap().unwrap(), 7);
        assert!(polls.kept_back.load(Ordering::SeqCst), "no write waited for the other queue");
    });
}
