//! What the device promises about frames: all the unsafe code of this crate.

use fulgurite_flash::FrameContract;

use crate::cached::CachedFlash;
use crate::host::{DeviceFlash, OldState};

// SAFETY: a command names the frame of a request that is in flight, for the same operation. It is in flight until the firmware has
// posted its end, which it does when the medium within has returned that, and the medium keeps the contract itself; or until the device
// has let go of all memory of the queue pair (`Hold::has_let_go`), which is waited for before anything is sent once more. A
// completion entry that a broken device invents could end a request early: the device has the frames only where it is in this process, or
// in one that whoever connected to it trusts with them (`SocketLink::connect`), and so as trusted as any other part of the program; else
// frames are copied from and to the data buffer by the queue's owner, in `flush` and in `poll`. A request whose time is over is
// completed only where it was a copy. A queue that is dropped waits until all of its requests have ended, or the device has let go.
unsafe impl FrameContract for DeviceFlash {}

// SAFETY: what the buffer does at once it does by copies on the queue's owner's thread, in `flush` and in `poll`, between the submission of
// the request and the return of its completion; what is passed on names the same frame for the same operation, and the medium within
// keeps the contract itself. The buffer's own queue has an arena of its own.
unsafe impl FrameContract for CachedFlash {}

// SAFETY: its queues are those of `DeviceFlash` that always copy: frames are written in `poll` alone, by the queue's owner, and no device has them.
unsafe impl FrameContract for OldState {}
