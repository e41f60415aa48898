//! What a medium promises about frames, and which media promise it: all the unsafe code of this
//! crate.
//!
//! Other code holds references into a queue's frames, and no type keeps a medium, or its device,
//! from writing to a frame at any time. So each medium promises with `unsafe` that it does not.

use std::sync::Arc;

use crate::{
    DrivenFlash, EmulatedFlash, ExtentsOfFlash, FaultyFlash, FileFlash, Flash, ForkedFlash, Latency, Layer, Layered,
    MemoryFlash, PartOfFlash, StripedFlash, Times,
};

/// A medium whose queues touch a frame only while it is theirs.
///
/// # Safety
/// For every queue that the medium opens:
/// * It writes to a frame only for a read of that frame, and reads a frame only for a write of it.
///   It does so between [`crate::Queue::submit`] and the return of that request's completion by
///   [`crate::Queue::poll`]. It touches nothing else of the arena.
/// * It returns a completion, also of a failure, only when nothing behind it (thread, kernel,
///   device) will touch the frame for that request. Where this is not known the request stays in
///   flight.
/// * After its drop, nothing behind it touches the frames. Where it cannot know, it keeps the arena
///   mapped for good.
pub unsafe trait FrameContract {}

// SAFETY: the queue's owner moves data in `poll`, before the completion, and in `drop`.
unsafe impl FrameContract for MemoryFlash {}

// SAFETY: it never touches a frame.
unsafe impl FrameContract for DrivenFlash {}

// SAFETY: the device thread posts a completion after it has moved the data. Requests are given up
// as `Closed` only after that thread's end, when it moves nothing. A dropped queue waits for
// either.
unsafe impl FrameContract for EmulatedFlash {}

// SAFETY: a thread of the pool notes a request's end after the system call has returned, and the
// pool is joined when its queue is dropped. On io_uring, only the kernel's completion ends a
// request that was handed over, also after the ring has failed. Dropping the ring waits for what
// the kernel holds, or leaks the arena. The writes of a run end with it, and those tried again by
// themselves with their own completion.
unsafe impl FrameContract for FileFlash {}

// SAFETY: requests and completions are passed on one to one. What is completed here was never
// passed on, and what hangs here is never touched. The medium within keeps the contract.
unsafe impl<F: Flash> FrameContract for FaultyFlash<F> {}

// SAFETY: requests are passed on one to one, and never completed earlier than by the medium within,
// which keeps the contract.
unsafe impl<T: Times> FrameContract for Latency<T> {}

// SAFETY: a request that is passed on names the frame of its request here, for the same operation.
// That one is completed only when none passed on is in flight. A read of what was never written is
// filled before its completion. The medium within keeps the contract.
unsafe impl<L: Layer> FrameContract for Layered<L> {}

// SAFETY: requests and completions are passed on one to one, naming the same frame for the same
// operation. The medium within keeps the contract.
unsafe impl FrameContract for PartOfFlash {}

// SAFETY: a request is passed on to one member, naming the same frame for the same operation, and
// completed when that one has. A flush touches no frame. The members keep the contract, and each
// holds the arena for as long as it must.
unsafe impl FrameContract for StripedFlash {}

// SAFETY: requests and completions are passed on one to one, naming the same frame for the same
// operation. The medium within keeps the contract.
unsafe impl FrameContract for Arc<ExtentsOfFlash> {}

// SAFETY: a request that is passed on names the frame of its request here, for the same operation.
// That one is completed only when none passed on is in flight: a read may be passed on twice, one
// after the other. The medium within keeps the contract.
unsafe impl FrameContract for Arc<ForkedFlash> {}
