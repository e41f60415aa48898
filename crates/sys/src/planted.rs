//! Set-up calls that are made to fail: what the tests must live through. No program plants one.
//!
//! Each call by which something is set up (memory mapped, a memfd, an eventfd, a ring, what is
//! registered with one, a thread) asks here first. Where nothing is planted that is one load. None
//! of these calls is on the way of an access.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which of the calls to come fails, counted from 1. 0: none, and nothing is counted.
static FAILS: AtomicU64 = AtomicU64::new(0);
/// Calls since it was planted.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// The set-up call of this number fails from now on, counted from 1, over all threads. Until
/// [`clear`] is called.
///
/// # Panics
/// When the number is 0.
pub fn fail_set_up(number: u64) {
    assert!(number > 0, "calls are counted from 1");
    CALLS.store(0, Ordering::SeqCst);
    FAILS.store(number, Ordering::SeqCst);
}
/// None fails any more. Returns how many there were since [`fail_set_up`]: where that is less than
/// the number, none has failed.
pub fn clear() -> u64 {
    FAILS.store(0, Ordering::SeqCst);
    CALLS.load(Ordering::SeqCst)
}

/// Something is about to be set up.
///
/// # Errors
/// `errno`, where this call is planted to fail.
#[inline]
pub fn set_up(errno: i32) -> io::Result<()> {
    if FAILS.load(Ordering::Relaxed) == 0 { Ok(()) } else { counted(errno) }
}
#[cold]
fn counted(errno: i32) -> io::Result<()> {
    let number = CALLS.fetch_add(1, Ordering::SeqCst) + 1;
    if number == FAILS.load(Ordering::SeqCst) { Err(io::Error::from_raw_os_error(errno)) } else { Ok(()) }
}
/// A thread is about to be started.
///
/// # Errors
/// `EAGAIN`, as the kernel says where there are too many, where this call is planted to fail.
#[inline]
pub fn start_thread() -> io::Result<()> {
    set_up(libc::EAGAIN)
}
