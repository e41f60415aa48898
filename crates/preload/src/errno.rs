//! How a function of the C library says that it failed, and system calls that say it so.

use std::ffi::{c_int, c_long};

use fulgurite_sys::arch::system_call;

/// Sets this thread's error, and returns what a function that failed returns.
pub fn fail(errno: c_int) -> c_int {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Makes a system call. The C library's `syscall` would be this library's own.
///
/// # Safety
/// As the system call.
pub unsafe fn kernel(number: c_long, arguments: [usize; 6]) -> c_long {
    // SAFETY: the caller's contract.
    match unsafe { system_call(number as usize, arguments) } {
        error @ -4095..=-1 => fail(-error as c_int).into(),
        result => result as c_long,
    }
}
