//! Limits that the program sets itself. One on the size of files would hold for the flash as well:
//! no changed page could leave DRAM any more. So less than the largest file of this library is
//! refused.

use std::ffi::{c_int, c_uint};

use libc::{rlimit, rlimit64};

use crate::allocator::next;
use crate::calls::{one, with};
use crate::descriptors;
use crate::errno::fail;
use crate::run::run;

next!(next_setrlimit, c"setrlimit", (what: c_uint, new: *const rlimit) -> c_int);
next!(next_setrlimit64, c"setrlimit64", (what: c_uint, new: *const rlimit64) -> c_int);
next!(next_prlimit, c"prlimit", (pid: libc::pid_t, what: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int);
next!(next_prlimit64, c"prlimit64", (pid: libc::pid_t, what: c_uint, new: *const rlimit64, old: *mut rlimit64) -> c_int);

/// Whether a limit of this process is refused, which is said.
///
/// # Safety
/// `new` is null or a limit. Both types are the same on this machine.
pub unsafe fn is_refused(pid: libc::pid_t, what: c_uint, new: *const rlimit) -> bool {
    const _: () = assert!(size_of::<rlimit>() == size_of::<rlimit64>());
    let is_here = pid == 0 || pid as u32 == std::process::id();
    if !is_here || what != libc::RLIMIT_FSIZE || new.is_null() {
        return false;
    }
    let needed = descriptors::largest_file();
    // SAFETY: the caller's contract.
    let is_less = unsafe { new.read_unaligned() }.rlim_cur < needed;
    run().filter(|_| is_less).inspect(|run| run.no_limit(needed)).is_some()
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(what: c_uint, new: *const rlimit) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if is_refused(0, what, new) {
            return fail(libc::EPERM);
        }
        with(&[one(new)], || next_setrlimit(what, new))
    }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(what: c_uint, new: *const rlimit64) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if is_refused(0, what, new.cast()) {
            return fail(libc::EPERM);
        }
        with(&[one(new)], || next_setrlimit64(what, new))
    }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(pid: libc::pid_t, what: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if is_refused(pid, what, new) {
            return fail(libc::EPERM);
        }
        with(&[one(new), one(old)], || next_prlimit(pid, what, new, old))
    }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(pid: libc::pid_t, what: c_uint, new: *const rlimit64, old: *mut rlimit64) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if is_refused(pid, what, new.cast()) {
            return fail(libc::EPERM);
        }
        with(&[one(new), one(old)], || next_prlimit64(pid, what, new, old))
    }
}
