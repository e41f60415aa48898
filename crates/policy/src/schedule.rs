//! Which fiber a worker runs next (AstriFlash section IV-D and figure 8, `fifo` is the noPS of its
//! Table II).
//!
//! A fiber is *running* (or not in use), *pending* (it waits for flash, a latch or a time), or
//! *runnable* (what it waited for is here). The scheduler holds the pending and the runnable ones.
//! New jobs are the driver's, which says with every [`Scheduler::pick`] whether there is one.
//!
//! | policy | order | what can starve |
//! |---|---|---|
//! | [`ArrivedFirst`](SchedulingPolicy::ArrivedFirst) | runnable fibers, oldest request first; new jobs while under the bound | new jobs, only while fibers already started never run out of misses; no started fiber, as long as the request times of others go forward |
//! | [`PriorityAging`](SchedulingPolicy::PriorityAging) | new jobs, until the first runnable fiber of the queue has waited longer than flash takes on average | nothing: what has aged goes first, and the queue is in order of entry; new jobs wait for as many aged fibers as there are |
//! | [`Fifo`](SchedulingPolicy::Fifo) | new jobs; the queue when a job missed or there is no new one | runnable fibers, as long as new jobs keep coming and do not miss: the reason for the paper's aging |
//!
//! Where the paper checks only the head of its queue, a head whose data is not here is passed over
//! for the first whose data is (the paper's own remedy for slow reads: read the completion queue).
//! At the bound any arrived fiber runs, because the head may wait for a latch that a fiber behind
//! it holds. So no step searches for the fiber that waits the longest.
//!
//! A request's time is its age, and the driver may make it smaller for an urgent job. Under
//! `ArrivedFirst` that is strict: a flood of urgent jobs starves the others. The other two policies
//! do not use it.
//!
//! Invariants ([`Scheduler::check`]): the runnable fibers are in the heap, each once, and the
//! pending ones are not. If the driver starts jobs only as `pick` or [`Scheduler::may_start`]
//! allow, pending and runnable together never exceed the bound. Nothing runnable is left while
//! `pick` says to wait. All operations take at most logarithmic time and allocate nothing.
//!
//! Not here: the clock, the switch, and the job queue.

use core::cmp::Reverse;
use core::fmt;
use core::str::FromStr;
use std::collections::BinaryHeap;

use crate::name::UnknownName;

/// How a worker chooses among fibers and new jobs. See the table in the module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SchedulingPolicy {
    /// Runnable fibers first, the oldest request first.
    #[default]
    ArrivedFirst,
    /// The paper's: new jobs first, with aging by the mean flash response time.
    PriorityAging,
    /// The paper's noPS: new jobs first, the queue only after a miss.
    Fifo,
}

impl SchedulingPolicy {
    /// All of them, the default first.
    pub const ALL: [SchedulingPolicy; 3] =
        [SchedulingPolicy::ArrivedFirst, SchedulingPolicy::PriorityAging, SchedulingPolicy::Fifo];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            SchedulingPolicy::ArrivedFirst => "arrived-first",
            SchedulingPolicy::PriorityAging => "priority-aging",
            SchedulingPolicy::Fifo => "fifo",
        }
    }
}

impl fmt::Display for SchedulingPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SchedulingPolicy {
    type Err = UnknownName;
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        SchedulingPolicy::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| UnknownName {
            what: "scheduling policy",
            got: text.to_owned(),
            expected: "arrived-first, priority-aging, fifo",
        })
    }
}

/// A fiber of this worker, dense from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct FiberIndex(pub u32);

/// Why the worker asks for its next fiber.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Point {
    /// A job finished.
    Finished,
    /// The running fiber missed (or waits for a latch or a time, or yielded).
    Missed,
    /// Nothing ran: the worker waited.
    Idle,
}

/// What the worker is to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Choice {
    /// Run this fiber. It has left the scheduler.
    Resume(FiberIndex),
    /// Start the new job.
    StartNew,
    /// Nothing to do: an arrival helps, or a new job where [`Scheduler::may_start`].
    Wait,
}

/// Bits of a heap entry's lower half that hold the fiber. The rest is the order of entry, which
/// breaks ties.
const FIBER_BITS: u32 = 24;
const FIBER_MASK: u64 = (1 << FIBER_BITS) - 1;
/// The mean flash time moves by one part in 2^4 with each arrival: quick enough to follow garbage
/// collection, slow enough that one slow read is not taken for the mean.
const MEAN_SHIFT: u32 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Running, or not in use.
    Out,
    Pending,
    Runnable,
}

#[derive(Clone, Copy)]
struct Fiber {
    request_ns: u64,
    /// When it became pending or yielded.
    entered_ns: u64,
    /// Its place in the order of entry.
    entered: u64,
    state: State,
    /// Waits for flash: its wait counts into the mean.
    on_flash: bool,
    /// Runnable because it yielded, not because something arrived.
    yielded: bool,
}

/// The pending and runnable fibers of one worker. See the module.
pub struct Scheduler {
    policy: SchedulingPolicy,
    pending_bound: usize,
    fibers: Box<[Fiber]>,
    /// Runnable fibers, smallest first: key (request time or order of entry), order of entry,
    /// fiber.
    runnable: BinaryHeap<Reverse<u128>>,
    /// The largest key pushed since the heap was last empty: yielded fibers go behind it.
    largest_key: u64,
    pending: usize,
    entries: u64,
    /// Mean time from miss to arrival, times 2^MEAN_SHIFT. 0 before the first.
    flash_mean_scaled: u64,
    /// A yielded fiber ran last while a new job waited: it is the job's turn.
    job_turn: bool,
}

impl Scheduler {
    /// For fibers `0..max_fibers`, with at most `pending_bound` started and not running.
    ///
    /// # Panics
    /// If `pending_bound` or `max_fibers` is 0, or `max_fibers` is above 2^24.
    pub fn new(policy: SchedulingPolicy, pending_bound: usize, max_fibers: usize) -> Self {
        assert!(pending_bound > 0 && max_fibers > 0, "at least one fiber must be allowed to wait");
        assert!(max_fibers <= 1 << FIBER_BITS, "at most 2^24 fibers to a worker");
        let fiber =
            Fiber { request_ns: 0, entered_ns: 0, entered: 0, state: State::Out, on_flash: false, yielded: false };
        Scheduler {
            policy,
            pending_bound,
            fibers: vec![fiber; max_fibers].into_boxed_slice(),
            runnable: BinaryHeap::with_capacity(max_fibers),
            largest_key: 0,
            pending: 0,
            entries: 0,
            flash_mean_scaled: 0,
            job_turn: false,
        }
    }

    /// The running fiber missed: it is pending until [`Scheduler::arrived`]. `request_ns` is when
    /// its request arrived (may be made smaller for urgent jobs).
    ///
    /// # Panics
    /// If the fiber is pending or runnable already, or out of range.
    #[inline]
    pub fn missed(&mut self, fiber: FiberIndex, request_ns: u64, now_ns: u64) {
        self.wait(fiber, request_ns, now_ns, true);
    }

    /// Like [`Scheduler::missed`], for a latch, a sleep or anything that is not flash: the wait
    /// does not count into the mean flash time.
    ///
    /// # Panics
    /// As [`Scheduler::missed`].
    #[inline]
    pub fn blocked(&mut self, fiber: FiberIndex, request_ns: u64, now_ns: u64) {
        self.wait(fiber, request_ns, now_ns, false);
    }

    #[inline]
    fn wait(&mut self, fiber: FiberIndex, request_ns: u64, now_ns: u64, on_flash: bool) {
        let slot = &mut self.fibers[fiber.0 as usize];
        assert!(slot.state == State::Out, "fiber {} waits already", fiber.0);
        self.entries += 1;
        *slot = Fiber {
            request_ns,
            entered_ns: now_ns,
            entered: self.entries,
            state: State::Pending,
            on_flash,
            yielded: false,
        };
        self.pending += 1;
    }

    /// What the fiber waited for is here: it is runnable.
    ///
    /// # Panics
    /// If it is not pending.
    #[inline]
    pub fn arrived(&mut self, fiber: FiberIndex, now_ns: u64) {
        let slot = &mut self.fibers[fiber.0 as usize];
        assert!(slot.state == State::Pending, "fiber {} is not pending", fiber.0);
        slot.state = State::Runnable;
        let Fiber { request_ns, entered_ns, entered, on_flash, .. } = *slot;
        self.pending -= 1;
        if on_flash {
            let sample = now_ns.saturating_sub(entered_ns);
            self.flash_mean_scaled = if self.flash_mean_scaled == 0 {
                sample << MEAN_SHIFT
            } else {
                self.flash_mean_scaled - (self.flash_mean_scaled >> MEAN_SHIFT) + sample
            };
        }
        let key = if self.policy == SchedulingPolicy::ArrivedFirst { request_ns } else { entered };
        self.push(fiber, key, entered);
    }

    /// The running fiber gave way: it is runnable again at once, behind all that are runnable now.
    /// Under `ArrivedFirst` a new job and a yielded fiber take turns, so that a fiber that yields
    /// in a loop does not keep new jobs out.
    ///
    /// # Panics
    /// As [`Scheduler::missed`].
    #[inline]
    pub fn yielded(&mut self, fiber: FiberIndex, request_ns: u64, now_ns: u64) {
        let slot = &mut self.fibers[fiber.0 as usize];
        assert!(slot.state == State::Out, "fiber {} waits already", fiber.0);
        self.entries += 1;
        let entered = self.entries;
        *slot =
            Fiber { request_ns, entered_ns: now_ns, entered, state: State::Runnable, on_flash: false, yielded: true };
        let key = if self.policy == SchedulingPolicy::ArrivedFirst {
            if self.runnable.is_empty() { request_ns } else { request_ns.max(self.largest_key) }
        } else {
            entered
        };
        self.push(fiber, key, entered);
    }

    #[inline]
    fn push(&mut self, fiber: FiberIndex, key: u64, entered: u64) {
        self.largest_key = if self.runnable.is_empty() { key } else { self.largest_key.max(key) };
        let low = (entered << FIBER_BITS) | u64::from(fiber.0);
        self.runnable.push(Reverse((u128::from(key) << 64) | u128::from(low)));
    }

    #[inline]
    fn first(&self) -> Option<&Fiber> {
        let Reverse(entry) = self.runnable.peek()?;
        Some(&self.fibers[(*entry as u64 & FIBER_MASK) as usize])
    }

    #[inline]
    fn resume(&mut self) -> Option<Choice> {
        let Reverse(entry) = self.runnable.pop()?;
        let fiber = (entry as u64 & FIBER_MASK) as u32;
        self.fibers[fiber as usize].state = State::Out;
        Some(Choice::Resume(FiberIndex(fiber)))
    }

    /// What to run next. `new_job`: there is a job that may start. A fiber in [`Choice::Resume`]
    /// leaves the scheduler.
    #[inline]
    pub fn pick(&mut self, why: Point, now_ns: u64, new_job: bool) -> Choice {
        let start = new_job && self.may_start();
        let job_first = start
            && match self.policy {
                SchedulingPolicy::ArrivedFirst => match self.first() {
                    None => true,
                    Some(first) => first.yielded && self.job_turn,
                },
                SchedulingPolicy::PriorityAging => match self.first() {
                    None => true,
                    Some(first) => now_ns.saturating_sub(first.entered_ns) <= self.flash_mean_ns(),
                },
                SchedulingPolicy::Fifo => self.runnable.is_empty() || why != Point::Missed,
            };
        if job_first {
            self.job_turn = false;
            return Choice::StartNew;
        }
        self.job_turn = self.first().is_some_and(|f| f.yielded);
        self.resume().unwrap_or(Choice::Wait)
    }

    /// Whether a fiber is runnable.
    #[inline(always)]
    pub fn has_runnable(&self) -> bool {
        !self.runnable.is_empty()
    }

    /// Fibers that wait and are not runnable.
    #[inline]
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Fibers that are runnable.
    #[inline]
    pub fn runnable(&self) -> usize {
        self.runnable.len()
    }

    /// Whether this fiber is pending, so that [`Scheduler::arrived`] may be called for it.
    #[inline]
    pub fn is_pending(&self, fiber: FiberIndex) -> bool {
        self.fibers[fiber.0 as usize].state == State::Pending
    }

    /// Whether one more job may start: pending and runnable fibers together are under the bound.
    #[inline]
    pub fn may_start(&self) -> bool {
        self.pending + self.runnable.len() < self.pending_bound
    }

    /// The mean time from miss to arrival, in nanoseconds (an exponential mean over about 16
    /// arrivals); 0 before the first.
    #[inline]
    pub fn flash_mean_ns(&self) -> u64 {
        self.flash_mean_scaled >> MEAN_SHIFT
    }

    /// Which policy it follows.
    pub fn policy(&self) -> SchedulingPolicy {
        self.policy
    }

    /// The bound of pending fibers.
    pub fn pending_bound(&self) -> usize {
        self.pending_bound
    }

    /// Bytes of DRAM it uses.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.fibers) + self.runnable.capacity() * size_of::<u128>()
    }

    /// Asserts the invariants. Takes time in proportion to the fibers.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        let count = |state| self.fibers.iter().filter(|f| f.state == state).count();
        assert_eq!(count(State::Pending), self.pending, "pending fibers counted");
        assert_eq!(count(State::Runnable), self.runnable.len(), "runnable fibers counted");
        for Reverse(entry) in &self.runnable {
            let fiber = &self.fibers[(*entry as u64 & FIBER_MASK) as usize];
            assert_eq!(fiber.state, State::Runnable);
            assert!((entry >> 64) as u64 <= self.largest_key);
        }
    }
}
