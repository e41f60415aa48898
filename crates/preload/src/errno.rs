//! How a function of the C library says that it failed.

use std::ffi::c_int;

/// Sets this thread's error, and returns what a function that failed returns.
pub fn fail(errno: c_int) -> c_int {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}
