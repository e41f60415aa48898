//! How a ring is made: where the kernel and the process allow one, above the standard descriptors.

use std::io;

use io_uring::IoUring;

use crate::RingUser;
use crate::descriptors::while_taken;

/// A ring of `entries` entries, and whether completions wait until its thread polls.
pub(crate) fn new(entries: u32, user: RingUser) -> io::Result<(IoUring, bool)> {
    // Valgrind runs one thread at a time, and does not know that a wait for a ring lets others
    // run.
    if crate::arch::is_under_valgrind() {
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    let plain = || while_taken(|| IoUring::builder().build(entries));
    let mut builder = IoUring::builder();
    builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_r_disabled();
    Ok(match user {
        // The kernel refuses a deferred ring to all threads but the first that uses it.
        RingUser::AnyThread => (plain()?, false),
        RingUser::OneThread => match while_taken(|| builder.build(entries)) {
            Ok(ring) => (ring, true),
            // Before Linux 6.1: completions interrupt the thread, nothing else changes.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => (plain()?, false),
            Err(e) => return Err(e),
        },
    })
}
