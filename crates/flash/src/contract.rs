//! What a medium promises about frames, and which media promise it: all the unsafe code of this crate.
//!
//! The frames that a queue is opened with are memory that others hold references into. Nothing in the types keeps a medium from
//! writing to a frame whenever it likes (its device would do so behind the compiler's back), so a medium is believed, and
//! whoever makes one says with `unsafe` that it can be.

use crate::{
    EmulatedFlash, FaultyFlash, FileFlash, Flash, Layer, Layered, MemoryFlash, NandFlash, PartOfFlash, StripedFlash,
    TimedFlash,
};

/// A medium whose queues touch a frame only while it is theirs.
///
/// # Safety
/// For every queue that the medium opens:
/// * It writes to a frame only for a read of that frame, and reads a frame only for a write of it, from the call of
///   [`crate::Queue::submit`] until that request's completion is returned by [`crate::Queue::poll`]. It touches nothing else of
///   the arena.
/// * It returns a completion only when nothing behind it (thread, kernel, device) will touch the frame for that request any
///   more: also when the request failed, also when the whole medium has. A request of which this is not known stays in
///   flight.
/// * When it was dropped, nothing behind it touches the frames any more; where it cannot know, it keeps the arena mapped for good.
pub unsafe trait FrameContract {}

// SAFETY: the queue moves data on its owner's thread, in `poll` before it returns the completion, and in `drop`.
unsafe impl FrameContract for MemoryFlash {}

// SAFETY: the queue moves data on its owner's thread, in `poll` before it returns the completion, and in `drop`.
unsafe impl FrameContract for TimedFlash {}

// SAFETY: the device thread posts a completion after it has moved the data. Requests are given up as `Closed` only after that
// thread has said that it ended, which it does when it moves nothing any more. A queue that is dropped waits for one or the other.
unsafe impl FrameContract for EmulatedFlash {}

// SAFETY: a thread of the pool notes a request as ended after the system call has returned; the pool is joined when its queue is
// dropped. On io_uring, a request that was handed over ends by the kernel's completion and in no other way, also after the ring
// has failed; dropping the ring waits for what the kernel holds, or leaks the arena. Writes that the kernel was given as one end
// when that one has ended, and those that are then tried again by themselves when they have.
unsafe impl FrameContract for FileFlash {}

// SAFETY: requests and completions are passed on one to one; what is completed here was never passed on, and what hangs here is
// never touched. The medium within keeps the contract itself.
unsafe impl<F: Flash> FrameContract for FaultyFlash<F> {}

// SAFETY: requests are passed on one to one, and completed later than the medium within completes them, never earlier. That
// medium keeps the contract itself.
unsafe impl FrameContract for NandFlash {}

// SAFETY: a request that is passed on names the frame of the request here that it is part of, for the same operation; that one is
// completed only when none that was passed on is in flight. What is completed without being passed on (a read of what was never
// written) is filled before its completion is returned. The medium within keeps the contract itself.
unsafe impl<L: Layer> FrameContract for Layered<L> {}

// SAFETY: requests and completions are passed on one to one, naming the same frame for the same operation. The medium within keeps the
// contract itself.
unsafe impl FrameContract for PartOfFlash {}

// SAFETY: a request is passed on to one member, naming the same frame for the same operation, and completed when that one has; a
// flush touches no frame. The members keep the contract themselves, and each holds the arena for as long as it must.
unsafe impl FrameContract for StripedFlash {}
