//! What the device promises about frames: all the unsafe code of this crate.

use fulgurite_flash::FrameContract;

use crate::cached::CachedFlash;
use crate::host::{DeviceFlash, OldState};

// SAFETY: a command names the frame of a request in flight, for the same operation, until its end.
// The firmware posts the end after the medium within returned it, and that medium keeps the
// contract. Else the request stays in flight until the device has let go of the pair's memory
// (`Hold::has_let_go`), which comes before any replay. A broken device could invent a completion
// and end a request early. It has the frames only in this process, or where the program trusts its
// process with them (`SocketLink::connect`). Else the queue's owner copies frames from and to the
// data buffer, in `flush` and in `poll`. An overdue request is completed only where it was a copy.
// A dropped queue waits until all of its requests have ended, or the device has let go.
unsafe impl FrameContract for DeviceFlash {}

// SAFETY: the queue's owner copies in `flush` and `poll`, between a request's submission and its
// completion. What is passed on names the same frame for the same operation, and the medium within
// keeps the contract. The buffer's own queue has an arena of its own.
unsafe impl FrameContract for CachedFlash {}

// SAFETY: its queues are queues of `DeviceFlash` that always copy, and the queue's owner copies in
// `poll`.
unsafe impl FrameContract for OldState {}
