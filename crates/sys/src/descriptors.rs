//! File descriptors of the library are 3 and up. A program that was started without standard
//! output or error writes its log to 1 or 2 nevertheless, and what the library had opened there, a
//! pool say, would be overwritten.
//!
//! Everything that opens a descriptor goes through here: what is opened for writing, or stays
//! open. A file that is read and closed at once needs not, as a write to it fails.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, fcntl_dupfd_cloexec, fcntl_getfd};

/// The lowest descriptor of the library.
pub const LOWEST: i32 = 3;

/// Opens a descriptor of the library.
///
/// # Errors
/// What `open` returns, and the kernel's when the process has no file descriptor left.
pub fn above_standard<T, E>(open: impl FnOnce() -> Result<T, E>) -> Result<T, E>
where
    T: Into<OwnedFd> + From<OwnedFd>,
    E: From<Errno>,
{
    // Another thread may have closed a low one just then.
    Ok(moved(while_taken(open)?.into())?.into())
}

/// Calls `open` while 0, 1 and 2 are taken, so that what it opens gets a higher number, unless
/// another thread closes one of them meanwhile. What takes them can be neither read nor written.
pub fn while_taken<T>(open: impl FnOnce() -> T) -> T {
    let mut taken: Vec<OwnedFd> = Vec::new();
    while taken.len() < LOWEST as usize && is_free() {
        match rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(fd) if fd.as_raw_fd() < LOWEST => taken.push(fd),
            // Another thread was faster; or nothing can be opened, which `open` finds out.
            _ => break,
        }
    }
    open()
}

/// Whether 0, 1 or 2 is free.
fn is_free() -> bool {
    (0..LOWEST).any(|fd| {
        // SAFETY: it is only asked whether there is such a descriptor.
        fcntl_getfd(unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) }).is_err()
    })
}

/// Moves an open file to a number of the library, for what the kernel has opened by itself: a
/// connection that was accepted, what another process sent.
///
/// # Errors
/// When the process has no file descriptor left.
pub fn moved(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    if fd.as_raw_fd() >= LOWEST { Ok(fd) } else { fcntl_dupfd_cloexec(&fd, LOWEST) }
}
