//! Reads that a thread does itself, whose fault they are for.
//!
//! ```text
//!  cache --submit--> Divided --+--> the cache's queue --> handler thread, which wakes the thread
//!                              |
//!                              +--> aside --> the thread, by a queue of its own --+
//!           <------ poll ------+--------------------------------------------------+
//! ```
//!
//! In in-line mode the thread waits for its page anyway. So it does the read itself, by one system
//! call, and no other thread is woken. It does not have the pager meanwhile. All other requests go
//! by the cache's queue, and so do reads of threads that find no queue free. Only the handler
//! thread hands these over, also those that the queue tries again. io_uring tells the thread that
//! did of each completion, and that interrupts system calls of the program as a signal would.
//!
//! Invariants: a request that was taken aside ends by [`Divided`] as any other, once. A queue has
//! no more than one request. A fork waits for such reads as for all that is under way.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fulgurite_flash::{Completion, FlashError, Op, Queue, QueueFull, Request, Switches};

use crate::command::lock;

/// Queues for threads. Further threads wait for the handler thread.
pub const OWN_QUEUES: usize = 32;
/// How long a thread sleeps between its polls, on a medium that puts a request off.
const CHECK: Duration = Duration::from_millis(1);

/// A queue for one thread at a time.
pub struct Own {
    queue: Box<dyn Queue>,
    ended: Vec<Completion>,
}

/// What threads and the cache's queue have in common.
#[derive(Default)]
pub struct OwnReads(Mutex<Aside>);

#[derive(Default)]
struct Aside {
    /// Queues that no thread uses.
    free: Vec<Own>,
    /// The subpage whose read is to be taken aside.
    wanted: Option<u32>,
    taken: Option<Request>,
    /// Taken aside, and not polled yet.
    under_way: usize,
    /// The cache's queue has requests that are to be handed over.
    is_left: bool,
    /// A program's thread polls: the cache's queue is the handler thread's.
    polls_aside: bool,
    ended: Vec<Completion>,
}

impl std::fmt::Debug for OwnReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnReads")
    }
}

impl OwnReads {
    /// With these queues.
    pub fn new(queues: Vec<Box<dyn Queue>>) -> OwnReads {
        let ended = Vec::with_capacity(queues.len());
        let free = queues.into_iter().map(|queue| Own { queue, ended: Vec::with_capacity(1) }).collect();
        OwnReads(Mutex::new(Aside { free, ended, ..Aside::default() }))
    }
    fn aside(&self) -> MutexGuard<'_, Aside> {
        lock(&self.0)
    }
    /// Takes the read of a subpage aside, if it is submitted before [`OwnReads::taken`], and if a
    /// queue is free. The caller has the pager.
    pub fn want(&self, subpage: u32) {
        let mut aside = self.aside();
        aside.wanted = (!aside.free.is_empty()).then_some(subpage);
    }
    /// What was taken aside, and a queue for it. The caller has had the pager since it wanted it.
    pub fn taken(&self) -> Option<(Own, Request)> {
        let mut aside = self.aside();
        aside.wanted = None;
        let request = aside.taken.take()?;
        Some((aside.free.pop().expect("queues are taken with the pager only"), request))
    }
    /// Whether the handler thread has requests to hand over.
    pub fn has_left(&self) -> bool {
        self.aside().is_left
    }
    /// What `poll` does meanwhile takes up reads of threads only. The caller has the pager.
    pub fn take_up<R>(&self, poll: impl FnOnce() -> R) -> R {
        self.aside().polls_aside = true;
        let result = poll();
        self.aside().polls_aside = false;
        result
    }
    /// Does a request, and gives its queue back. The caller does not have the pager.
    ///
    /// # Panics
    /// When the queue has another request.
    pub fn read(&self, mut own: Own, request: Request) {
        own.queue.submit(request).expect("the queue has no other request");
        // Where the medium refuses the batch, its requests end nevertheless.
        let _ = own.queue.flush();
        while own.queue.poll(&mut own.ended) == 0 {
            own.queue.wait(Some(CHECK));
        }
        let mut aside = self.aside();
        aside.ended.append(&mut own.ended);
        aside.free.push(own);
    }
}

/// The cache's queue. See the module.
pub struct Divided {
    pub inner: Box<dyn Queue>,
    pub own: Arc<OwnReads>,
}

impl Queue for Divided {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        let mut aside = self.own.aside();
        if request.op == Op::Read && aside.wanted == Some(request.subpage.0) {
            (aside.wanted, aside.taken) = (None, Some(request));
            aside.under_way += 1;
            return Ok(());
        }
        aside.is_left = true;
        drop(aside);
        self.inner.submit(request)
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        self.own.aside().is_left = false;
        self.inner.flush()
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let mut aside = self.own.aside();
        let count = aside.ended.len();
        aside.under_way -= count;
        completions.append(&mut aside.ended);
        let polls_aside = aside.polls_aside;
        drop(aside);
        if polls_aside { count } else { count + self.inner.poll(completions) }
    }
    fn will_poll(&self) {
        self.inner.will_poll();
    }
    fn switch(&mut self, to: Switches) -> Switches {
        self.inner.switch(to)
    }
    fn use_frames(&mut self, frames: Range<u32>) {
        self.inner.use_frames(frames);
    }
    fn wait(&mut self, timeout: Option<Duration>) {
        self.inner.wait(timeout);
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.own.aside().under_way
    }
    fn depth(&self) -> usize {
        self.inner.depth()
    }
    fn bytes(&self) -> usize {
        self.inner.bytes() + self.own.aside().free.iter().map(|own| own.queue.bytes()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_flash::{Flash, MemoryFlash};
    use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex};
    use fulgurite_sys::{Arena, Backed, Notifier};

    use super::*;

    #[test]
    fn the_wanted_read_goes_aside_and_ends_once_with_all_others() {
        let flash = MemoryFlash::new(8).unwrap();
        let frames = Arc::new(Arena::anonymous(8 * SUBPAGE_BYTES, Backed::BasePages).unwrap());
        let open = || flash.open_queue(frames.clone(), 4, Arc::new(Notifier::new().unwrap())).unwrap();
        let own = Arc::new(OwnReads::new(vec![open()]));
        let mut queue = Divided { inner: open(), own: own.clone() };
        let request = |op, at| Request { tag: u64::from(at), op, subpage: SubpageIndex(at), frame: FrameIndex(at) };
        let mut ended = Vec::new();
        for at in 0..4 {
            frames.write(at as usize * SUBPAGE_BYTES, &[at as u8 + 1]);
            queue.submit(request(Op::Write, at)).unwrap();
        }
        queue.flush().unwrap();
        assert_eq!(queue.poll(&mut ended), 4);
        frames.write(0, &[0; 4 * SUBPAGE_BYTES]);
        // No other read, and no second one.
        own.want(2);
        queue.submit(request(Op::Read, 2)).unwrap();
        assert!(!own.has_left(), "the thread has it");
        for (op, at) in [(Op::Read, 1), (Op::Read, 3)] {
            queue.submit(request(op, at)).unwrap();
        }
        let (mine, taken) = own.taken().expect("it was submitted");
        assert_eq!((taken, queue.in_flight()), (request(Op::Read, 2), 3));
        // There is no second queue.
        own.want(4);
        queue.submit(request(Op::Read, 4)).unwrap();
        assert!(own.taken().is_none() && own.has_left());
        queue.flush().unwrap();
        assert!(!own.has_left());
        ended.clear();
        own.read(mine, taken);
        // The thread takes up its own, and leaves the others.
        assert_eq!((own.take_up(|| queue.poll(&mut ended)), queue.in_flight()), (1, 3));
        assert_eq!((queue.poll(&mut ended), queue.in_flight(), queue.poll(&mut ended)), (3, 0, 0));
        assert!(ended[0].tag == 2 && ended.iter().all(|ended| ended.result == Ok(())));
        let byte = |at: usize| {
            let mut byte = [0];
            frames.read(at * SUBPAGE_BYTES, &mut byte);
            byte[0]
        };
        assert_eq!([byte(1), byte(2), byte(3)], [2, 3, 4]);
        // A want that comes to nothing takes nothing later.
        own.want(5);
        assert!(own.taken().is_none());
        queue.submit(request(Op::Read, 5)).unwrap();
        queue.flush().unwrap();
        assert_eq!(queue.poll(&mut ended), 1);
    }
}
