//! Flash, as a state machine: requests out, completions in.
//!
//! Holds the trait [`Flash`] (a medium, shared by all workers), the trait [`Queue`] (one worker's
//! submission and completion queue on it) and the media:
//!
//! | medium | what it is for |
//! |---|---|
//! | [`FileFlash`] | a regular file or block device: io_uring, or threads where that is missing |
//! | [`EmulatedFlash`] | a device that a thread on another core plays, with latencies and planes |
//! | [`MemoryFlash`] | plain memory, deterministic: tests |
//! | [`DrivenFlash`] | no data: its driver says when requests end, as a simulator does |
//! | [`NandFlash`] | the model's times, order and failures of NAND, over a medium with the data |
//! | [`TimedFlash`] | such a device with fixed latencies and planes |
//! | [`StripedFlash`] | several media as one, extent by extent |
//! | [`PartOfFlash`] | a part of a medium, as one of its own |
//! | [`ExtentsOfFlash`] | some extents of a medium, side by side as one that keeps nothing |
//! | [`ForkedFlash`] | a medium of a process and its children after `fork`, each with its own contents |
//! | [`Layered`] | a medium over a medium: a [`Layer`] says where subpages are |
//! | [`FaultyFlash`] | any of the others, with faults by plan, reordering and a record |
//!
//! Invariants: a request handed over is completed exactly once, in any order. A frame belongs to
//! the medium from [`Queue::submit`] until its completion was polled. Dropping a queue returns only
//! when the medium no longer touches its frames. Only completions order anything: a write is
//! durable when a flush, submitted after the write's completion, has completed.
//!
//! References of a queue's owner rely on the first of these, so a medium says it with `unsafe`: see
//! [`FrameContract`].
//!
//! What this crate does not do: it keeps no time-outs, it places nothing (a subpage's index is its
//! place), and it checks no checksums.
#![deny(unsafe_code)]

mod backing;
mod busy;
mod cells;
#[expect(unsafe_code, reason = "media promise what no type can check")]
mod contract;
mod counters;
mod driven;
mod emulated;
mod error;
mod extents;
mod fault;
mod file;
mod forked;
mod latency;
mod layered;
mod memory;
mod moved;
mod mover;
mod part;
mod primitive;
mod ring;
mod slots;
mod striped;
mod traits;
mod versions;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fulgurite_format::{FrameIndex, SubpageIndex};
use fulgurite_sys::{Arena, Notifier};

pub use backing::{Backing, Objects, ReadOnly};
pub use busy::{Asks, keep_busy};
pub use contract::FrameContract;
pub use counters::{DeviceCounters, LATE_NS};
pub use driven::DrivenFlash;
pub use emulated::EmulatedFlash;
pub use error::{FlashError, OpenError, QueueFull};
pub use extents::ExtentsOfFlash;
pub use fault::{Fault, FaultPlan, FaultyFlash, Rule, When};
pub use file::{FileBackend, FileConfig, FileFlash, FileMode, claim};
pub use forked::ForkedFlash;
pub use latency::{EmulatedConfig, Latency, NandFlash, NandReport, TimedFlash, Times};
pub use layered::{FlashAddress, Layer, Layered, Location, Part, Written};
pub use memory::MemoryFlash;
pub use mover::{Moved, Mover, Read, Slot};
pub use part::PartOfFlash;
pub use striped::{Column, StripeLayout, StripedFlash};
pub use traits::{QueueUser, Switches, Traits, Tuning};
pub use versions::{Shortage, VersionError, Versions};

/// The most requests that one queue may have in flight.
pub const DEPTH_MAX: usize = 16_384;

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Op {
    /// Flash to frame.
    Read,
    /// Frame to flash. The frame must not change until the completion.
    Write,
    /// Makes every write that completed before durable. Subpage and frame are ignored.
    Flush,
}

/// One subpage to move, or a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Returned in the completion; the medium does not use it.
    pub tag: u64,
    /// What to do.
    pub op: Op,
    /// Place on flash.
    pub subpage: SubpageIndex,
    /// Slot of the arena that the queue was opened with.
    pub frame: FrameIndex,
}

/// The end of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: u64,
    /// How it went. After an error the frame (read) or the subpage (write) is undefined.
    pub result: Result<(), FlashError>,
    /// CRC32C of the subpage that was moved, where asked for ([`Switches::checksums`]), else 0.
    pub checksum: u32,
}
const _: () = assert!(size_of::<Completion>() == 24);

/// A queue that was opened.
pub type OpenedQueue = Result<Box<dyn Queue>, OpenError>;

/// A medium: subpages that can be read, written and flushed through queues.
pub trait Flash: FrameContract + Send + Sync {
    /// Capacity, in subpages of 4 KiB.
    fn subpages(&self) -> u32;
    /// One line for people: what it is and how it is driven.
    fn describe(&self) -> String;
    /// What it is like.
    fn traits(&self) -> Traits;
    /// DRAM of one queue in this process in addition to its rings, when most of its requests name
    /// `frames` frames ([`Queue::use_frames`]). It counts against the budget.
    fn staging_bytes(&self, frames: u32) -> usize;
    /// Opens a queue of at most `depth` requests in flight (see [`DEPTH_MAX`]).
    ///
    /// Frame i is the 4096 bytes of `frames` at i x 4096. `wake.notify()` ends [`Queue::wait`].
    ///
    /// # Errors
    /// [`OpenError`] when the depth is 0 or too large, or the medium has no room for another queue.
    fn open_queue_for(&self, user: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue;
    /// Drops the content of subpages: a read is undefined until the next write, but never shows
    /// another owner's data. Advice that a medium may ignore ([`Traits::trims`]); it waits until it
    /// is done. Requests under way for the same subpages are undefined.
    ///
    /// # Errors
    /// What the medium says; [`FlashError::OutOfRange`] when there are no such subpages.
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError>;
    /// What a cache is to ask in addition to reading and writing; none of a flat medium.
    fn backing(&self) -> Option<&dyn Backing>;
    /// What it has done so far, over all queues.
    fn counters(&self) -> DeviceCounters;

    /// Opens a queue for one thread; see [`Flash::open_queue_for`]. No medium has another one.
    ///
    /// # Errors
    /// As [`Flash::open_queue_for`].
    fn open_queue(&self, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        self.open_queue_for(QueueUser::OneThread, frames, depth, wake)
    }
}

/// One worker's submission and completion queue on a medium.
///
/// Dropping it waits for the requests that were handed over, loses their completions, and forgets
/// the others.
pub trait Queue: Send {
    /// Puts a request in the batch. The medium does not see it before [`Queue::flush`].
    ///
    /// A request out of range is accepted and completes with [`FlashError::OutOfRange`].
    ///
    /// # Errors
    /// [`QueueFull`] when as many requests are in flight as the queue is deep: poll, then try
    /// again.
    fn submit(&mut self, request: Request) -> Result<(), QueueFull>;
    /// Hands the batch over. Costs next to nothing when the batch is empty.
    ///
    /// # Errors
    /// When the medium takes no more requests. What is in flight completes as soon as the medium
    /// has certainly let go of it, and else stays in flight, as with a device that hangs.
    fn flush(&mut self) -> Result<(), FlashError>;
    /// Appends the completions that are there, and returns how many. Never blocks.
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize;
    /// The caller will poll in a moment: a queue to another core may begin to fetch the line that
    /// it polls.
    fn will_poll(&self);
    /// Sets the switches from the next request on, and returns those that the queue heeds. Costs
    /// more than a request.
    fn switch(&mut self, to: Switches) -> Switches;
    /// Most requests will name frames of this range: a medium that prepares frames prepares these,
    /// and forgets all others, whose memory may be given back. Costs far more than a request.
    /// Called by the queue's thread.
    fn use_frames(&mut self, frames: std::ops::Range<u32>);
    /// Hands the batch over, then sleeps until a completion, `wake.notify()` or the `timeout`. May
    /// return early.
    fn wait(&mut self, timeout: Option<Duration>);
    /// Requests submitted whose completion was not polled yet.
    fn in_flight(&self) -> usize;
    /// The most requests that may be in flight.
    fn depth(&self) -> usize;
    /// DRAM that the queue's rings and buffers take in this process, in addition to the frames.
    fn bytes(&self) -> usize;
}

/// Refuses to trim what a medium of `subpages` subpages does not have.
///
/// # Errors
/// [`FlashError::OutOfRange`].
pub fn check_range(first: SubpageIndex, count: u32, subpages: u32) -> Result<(), FlashError> {
    let inside = first.0.checked_add(count).is_some_and(|end| end <= subpages);
    if inside { Ok(()) } else { Err(FlashError::OutOfRange) }
}

/// Locks what holds whole values at any time, so that a panic elsewhere spoils nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frames in an arena.
pub(crate) fn frame_count(frames: &Arena) -> u32 {
    u32::try_from(frames.len() / fulgurite_format::SUBPAGE_BYTES).unwrap_or(FrameIndex::LIMIT).min(FrameIndex::LIMIT)
}

/// Refuses depths that no queue can have.
pub(crate) fn check_depth(depth: usize) -> Result<(), OpenError> {
    if depth == 0 || depth > DEPTH_MAX { Err(OpenError::Depth { depth }) } else { Ok(()) }
}
