//! The expensive side of an asymmetric barrier: `membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)`.
//!
//! The cheap side, on the hit path, is a compiler fence. When [`expedited`] returns, every thread
//! of this process has executed a full barrier since the call began. Whatever such a thread stored
//! before that point is visible to the caller, and whatever it loads after that point sees what the
//! caller stored before the call.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Registers the process. Idempotent. Call before the threads that rely on it start, or the first
/// call takes longer.
///
/// Returns whether the kernel has it, without it, [`expedited`] is not available and callers must
/// put fences on the cheap side.
pub fn register() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| command(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0)
}

/// Makes every running thread of the process execute a full barrier. About 2.3 µs on two cores.
///
/// # Panics
/// When [`register`] did not return true first: the kernel would refuse, and memory safety rests on
/// the barrier.
#[inline]
pub fn expedited() {
    fence(Ordering::SeqCst);
    assert_eq!(command(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED), 0, "membarrier was refused after registration");
}

/// Waits until the kernel frees the tables of pages that were taken out of use before: all
/// processors have to pass a point where none reads them. About 10 ms, and longer under load.
pub fn tables_are_freed() {
    /// Where the kernel refuses to wait. Longer than most waits.
    const LONG: Duration = Duration::from_millis(100);
    if command(libc::MEMBARRIER_CMD_GLOBAL) != 0 {
        std::thread::sleep(LONG);
    }
}

fn command(which: libc::c_int) -> libc::c_long {
    // SAFETY: membarrier takes three integers and touches no memory of this process.
    unsafe { libc::syscall(libc::SYS_membarrier, which, 0, 0) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_has_it() {
        assert!(super::register());
        super::expedited();
        super::tables_are_freed();
    }
}
