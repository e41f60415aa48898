//! System calls by the C library's `syscall`. Those that have a function here take it, so that
//! memory of flash is what they find. Those whose words the kernel reaches when nobody can bring a
//! page are refused, and so are requests that end later (`requests`).
//!
//! A program that has the instruction itself is not seen.

use std::ffi::{c_int, c_long, c_uint, c_void};

use libc::{off_t, timespec};

use crate::allocator::next;
use crate::calls::{REGISTER, Span, ioctl, with};
use crate::errno::{fail, kernel};
use crate::run::run;
use crate::{functions, limits, objects, requests, sandbox};

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    // SAFETY: the caller's contract.
    let call = || unsafe { kernel(number, [a, b, c, d, e, f]) };
    let at = a as *mut c_void;
    // SAFETY: the caller's contract. The arguments are the arguments of the functions.
    unsafe {
        match number {
            libc::SYS_futex => with(&spans_of_futex(a, b as c_int, d, e), || call() as isize) as c_long,
            libc::SYS_mmap => functions::mmap(at, b, c as c_int, d as c_int, e as c_int, f as off_t) as c_long,
            libc::SYS_munmap => functions::munmap(at, b).into(),
            libc::SYS_mremap => functions::mremap(at, b, c, d as c_int, e as *mut c_void) as c_long,
            libc::SYS_mprotect => functions::mprotect(at, b, c as c_int).into(),
            libc::SYS_madvise => functions::madvise(at, b, c as c_int).into(),
            libc::SYS_msync => functions::msync(at, b, c as c_int).into(),
            libc::SYS_mincore => functions::mincore(at, b, c as *mut u8).into(),
            libc::SYS_mlock => functions::mlock(at, b).into(),
            libc::SYS_mlock2 => functions::mlock2(at, b, c as c_uint).into(),
            libc::SYS_mlockall => functions::mlockall(a as c_int).into(),
            libc::SYS_ioctl if b as libc::c_ulong == REGISTER => ioctl(a as c_int, REGISTER, c as *mut c_void).into(),
            libc::SYS_setrlimit if limits::is_refused(0, a as c_uint, b as *const libc::rlimit) => {
                fail(libc::EPERM).into()
            }
            libc::SYS_prlimit64 if limits::is_refused(a as c_int, b as c_uint, c as *const libc::rlimit) => {
                fail(libc::EPERM).into()
            }
            libc::SYS_prctl => sandbox::prctl(a as c_int, b, c, d, e).into(),
            libc::SYS_seccomp => sandbox::by_seccomp(a, b, c).map_or_else(call, Into::into),
            libc::SYS_io_setup | libc::SYS_io_uring_setup if requests::are_refused() => fail(libc::ENOSYS).into(),
            libc::SYS_clone if is_word_of(a, [c, d]) => fail(libc::ENOTSUP).into(),
            libc::SYS_clone3
                if b >= size_of::<CloneArguments>() && {
                    let arguments = (a as *const CloneArguments).read_unaligned();
                    is_word_of(arguments.flags, [arguments.parent, arguments.child])
                } =>
            {
                fail(libc::ENOTSUP).into()
            }
            libc::SYS_set_tid_address | libc::SYS_set_robust_list | libc::SYS_rseq if is_refused(a) => {
                fail(libc::ENOTSUP).into()
            }
            _ => call(),
        }
    }
}

/// What the kernel reads: the word, and only with some operations a time and a second word.
///
/// With all others these arguments are not given, and what is there may look like an address of the
/// region. To hold its page would be more than time lost: locks of the page buffer wake threads by
/// here, too, and so a thread would wait for the lock that it has.
fn spans_of_futex(word: usize, operation: c_int, time: usize, second: usize) -> [Span; 3] {
    let (timed, two) = match operation & libc::FUTEX_CMD_MASK {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_LOCK_PI | libc::FUTEX_LOCK_PI2 => (true, false),
        libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE | libc::FUTEX_WAKE_OP | libc::FUTEX_CMP_REQUEUE_PI => {
            (false, true)
        }
        libc::FUTEX_WAIT_REQUEUE_PI => (true, true),
        _ => (false, false),
    };
    let time = if timed { (time, size_of::<timespec>()) } else { (0, 0) };
    [(word, 4), time, if two { (second, 4) } else { (0, 0) }]
}

// ---- words of threads ----

/// The beginning of the kernel's `struct clone_args`.
#[repr(C)]
struct CloneArguments {
    flags: usize,
    pidfd: usize,
    child: usize,
    parent: usize,
}

/// Whether the kernel would write a thread's number to one of these words, and cannot. It writes
/// when a thread begins or has ended, and cannot wait for a page then. A failure is not reported.
fn is_word_of(flags: usize, [parent, child]: [usize; 2]) -> bool {
    let has = |flag: c_int| flags & flag as usize != 0;
    let child_is_written = has(libc::CLONE_CHILD_SETTID) || has(libc::CLONE_CHILD_CLEARTID);
    (has(libc::CLONE_PARENT_SETTID) && is_refused(parent)) || (child_is_written && is_refused(child))
}

/// Whether a word of a thread is memory of flash, which is reported.
fn is_refused(word: usize) -> bool {
    let refused = run().filter(|run| run.buffer.contains(word) || objects::is_one(word as *mut c_void));
    refused.inspect(|run| run.no_word()).is_some()
}

next!(next_clone, c"clone", (body: usize, stack: usize, flags: c_int, argument: usize, parent: usize, tls: usize, child: usize) -> c_int);

/// The last three are there only with flags that say so.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    body: usize,
    stack: usize,
    flags: c_int,
    argument: usize,
    parent: usize,
    tls: usize,
    child: usize,
) -> c_int {
    if is_word_of(flags as usize, [parent, child]) {
        return fail(libc::ENOTSUP);
    }
    // SAFETY: the caller's contract.
    unsafe { next_clone(body, stack, flags, argument, parent, tls, child) }
}
