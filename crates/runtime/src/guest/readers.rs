//! Reads that a thread does itself: of contents that are cached by themselves and not in frames.
//! They cost one system call, and no other thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fulgurite_flash::{Completion, Flash, FlashError, Op, Queue, QueueUser, Request};
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Clock, Notifier};
use parking_lot::Mutex;

/// Threads that read at the same time. Others have a worker read for them.
const READERS_MAX: usize = 64;
/// How long to wait between two checks of a layer that must do something else first.
const CHECK: Duration = Duration::from_micros(50);

/// A queue of the calling thread's, and a frame for it.
struct Reader {
    queue: Box<dyn Queue>,
    arena: Arc<Arena>,
    completions: Vec<Completion>,
}

/// The queues with which threads read. None are opened where a medium's own thread would have to
/// serve them.
pub(crate) struct Readers {
    serves_callers: bool,
    /// A worker's: a layer that leaves work to a sleeper must not find one that never wakes.
    wake: Arc<Notifier>,
    free: Mutex<Vec<Reader>>,
    opened: AtomicUsize,
    clock: Clock,
}

impl Readers {
    pub fn new(flash: &dyn Flash, wake: Arc<Notifier>, clock: Clock) -> Readers {
        Readers {
            serves_callers: flash.traits().serves_callers,
            wake,
            free: Mutex::default(),
            opened: AtomicUsize::new(0),
            clock,
        }
    }

    /// Reads the first bytes of a subpage. None where this thread cannot do that.
    pub fn read(&self, flash: &dyn Flash, subpage: u32, into: &mut [u8]) -> Option<Result<(), FlashError>> {
        let mut reader = self.take(flash)?;
        let result = reader.read(&self.clock, subpage, into);
        if reader.queue.in_flight() == 0 {
            self.free.lock().push(reader);
        } else {
            // It may still write to its frame, so it is not used again.
            self.opened.fetch_sub(1, Ordering::Relaxed);
        }
        Some(result)
    }

    fn take(&self, flash: &dyn Flash) -> Option<Reader> {
        if !self.serves_callers {
            return None;
        }
        if let Some(reader) = self.free.lock().pop() {
            return Some(reader);
        }
        let has_room = self
            .opened
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |opened| (opened < READERS_MAX).then_some(opened + 1));
        has_room.ok()?;
        let reader = Reader::open(flash, &self.wake);
        if reader.is_none() {
            self.opened.fetch_sub(1, Ordering::Relaxed);
        }
        reader
    }
}

impl Reader {
    fn open(flash: &dyn Flash, wake: &Arc<Notifier>) -> Option<Reader> {
        let arena = Arc::new(Arena::anonymous(SUBPAGE_BYTES, Backed::BasePages).ok()?);
        let queue = flash.open_queue_for(QueueUser::Caller, arena.clone(), 1, wake.clone()).ok()?;
        Some(Reader { queue, arena, completions: Vec::with_capacity(1) })
    }
    fn read(&mut self, clock: &Clock, subpage: u32, into: &mut [u8]) -> Result<(), FlashError> {
        let request = Request { tag: 0, op: Op::Read, subpage: SubpageIndex(subpage), frame: FrameIndex(0) };
        self.queue.submit(request).expect("nothing else is in flight");
        loop {
            self.queue.flush()?;
            self.completions.clear();
            if self.queue.poll(&mut self.completions) > 0 {
                let result = self.completions[0].result;
                if result.is_ok() {
                    self.arena.read(0, into);
                }
                return result;
            }
            // Not in the queue: it would take a notification of the worker.
            clock.sleep(CHECK);
        }
    }
}
