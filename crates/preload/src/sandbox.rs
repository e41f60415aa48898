//! A program that confines itself after its start, by `seccomp`: the limits hold for the system
//! calls that this library makes in the program's threads, too.
//!
//! A filter is judged before the kernel gets it ([`filter`](crate::filter)):
//!
//! * In in-line mode, threads resolve their own faults. A filter that denies this is refused with
//!   `EINVAL`, as by a kernel without filters.
//! * A filter for all threads (`TSYNC`) that denies what this library's threads do is set for the
//!   calling thread, if the program has no other. Else it is refused as if one of this library's
//!   threads could not take it.
//! * Where a filter denies what maps and frees memory, a line says so.
//! * Where it denies what logs figures at the end, they are logged at once.
//!
//! The strict mode is refused in in-line mode, and works in compatible mode.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite_fault::Signal;
use fulgurite_sys::seccomp::{Call, Instruction, allows};
use fulgurite_sys::threads;

use crate::allocator::next;
use crate::errno::{fail, kernel};
use crate::run::{Run, run};

/// Of `linux/seccomp.h`: operations, flags, and the longest filter.
const SET_STRICT: usize = 0;
const SET_FILTER: usize = 1;
const TSYNC: usize = 1;
const TSYNC_ESRCH: usize = 1 << 4;
const INSTRUCTIONS_MAX: usize = 4096;

/// A call with any arguments.
const fn any(number: c_long) -> Call {
    Call { number, arguments: &[] }
}
const fn with(number: c_long, arguments: &'static [(usize, u64)]) -> Call {
    Call { number, arguments }
}

/// What mapping and freeing memory takes, in the program's threads.
const MAPS: &[Call] = &[
    any(libc::SYS_futex),
    with(libc::SYS_write, &[(2, 8)]),
    any(libc::SYS_rt_sigprocmask),
    with(libc::SYS_mprotect, &[(2, 3)]),
    with(libc::SYS_madvise, &[(2, 4)]),
    with(libc::SYS_mmap, &[(2, 3), (3, 0x22)]),
];
/// What a thread's own fault takes besides, by userfaultfd.
const FAULTS: &[Call] = &[
    any(libc::SYS_rt_sigreturn),
    any(libc::SYS_pread64),
    any(libc::SYS_preadv),
    any(libc::SYS_sched_yield),
    any(libc::SYS_nanosleep),
    any(libc::SYS_gettid),
    with(libc::SYS_process_madvise, &[(3, 24)]),
    with(libc::SYS_madvise, &[(2, 24)]),
    // UFFDIO_COPY, UFFDIO_MOVE, UFFDIO_WAKE, UFFDIO_WRITEPROTECT and UFFDIO_POISON.
    with(libc::SYS_ioctl, &[(1, 0xc028_aa03)]),
    with(libc::SYS_ioctl, &[(1, 0xc028_aa05)]),
    with(libc::SYS_ioctl, &[(1, 0x8010_aa02)]),
    with(libc::SYS_ioctl, &[(1, 0xc018_aa06)]),
    with(libc::SYS_ioctl, &[(1, 0xc020_aa08)]),
];
/// Calls that are needed for faults on memory of a file whose missing pages are hidden.
const HIDDEN_FAULTS: &[Call] = &[
    any(libc::SYS_rt_sigreturn),
    any(libc::SYS_pread64),
    any(libc::SYS_preadv),
    any(libc::SYS_pwrite64),
    any(libc::SYS_fallocate),
    any(libc::SYS_sched_yield),
    any(libc::SYS_nanosleep),
    any(libc::SYS_gettid),
    with(libc::SYS_process_madvise, &[(3, 24)]),
    with(libc::SYS_madvise, &[(2, 102)]),
    with(libc::SYS_madvise, &[(2, 103)]),
    with(libc::SYS_mprotect, &[(2, 0)]),
];
/// What threads of this library take besides these.
const SERVES: &[Call] = &[
    any(libc::SYS_read),
    any(libc::SYS_ppoll),
    any(libc::SYS_epoll_wait),
    any(libc::SYS_io_uring_enter),
    any(libc::SYS_pwrite64),
    any(libc::SYS_pwritev),
    any(libc::SYS_openat),
    any(libc::SYS_getdents64),
    any(libc::SYS_lseek),
    any(libc::SYS_close),
    any(libc::SYS_exit_group),
];
/// What it takes to log figures at the end.
const LOGS: &[Call] = &[
    any(libc::SYS_openat),
    any(libc::SYS_pread64),
    any(libc::SYS_close),
    any(libc::SYS_write),
    any(libc::SYS_rt_sigprocmask),
    any(libc::SYS_rt_sigpending),
    any(libc::SYS_rt_sigtimedwait),
];

/// Nothing can be logged by threads of the program any more.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// Whether threads of the program can log nothing, because that would end them.
pub fn is_silent() -> bool {
    IS_SILENT.load(Ordering::Relaxed)
}

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    len: u16,
    first: *const Instruction,
}

next!(next_prctl, c"prctl", (option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int);

/// Bytes that the first argument of `prctl` may point to: a thread's name, or less.
const PRCTL_BYTES: usize = 16;

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if option == libc::PR_SET_SECCOMP
            && let Some(result) = by_prctl(a, b)
        {
            return result;
        }
        crate::calls::with(&[(a, PRCTL_BYTES)], || next_prctl(option, a, b, c, d))
    }
}

/// `prctl(PR_SET_SECCOMP, mode, program)`. None where it is to be done as it is.
///
/// # Safety
/// As the system call.
unsafe fn by_prctl(mode: usize, program: usize) -> Option<c_int> {
    match mode as u32 {
        libc::SECCOMP_MODE_STRICT => strict(run()?),
        // SAFETY: the caller's contract.
        libc::SECCOMP_MODE_FILTER => unsafe { filtered(run()?, 0, program) },
        _ => None,
    }
}

/// `seccomp(operation, flags, program)`. None where it is to be done as it is.
///
/// # Safety
/// As the system call.
pub unsafe fn by_seccomp(operation: usize, flags: usize, program: usize) -> Option<c_int> {
    match operation {
        SET_STRICT => strict(run()?),
        // SAFETY: the caller's contract.
        SET_FILTER => unsafe { filtered(run()?, flags, program) },
        _ => None,
    }
}

fn strict(run: &Run) -> Option<c_int> {
    if run.buffer.is_in_line() {
        run.no_filter("the strict mode of seccomp");
        return Some(fail(libc::EINVAL));
    }
    be_silent(run);
    None
}

fn be_silent(run: &Run) {
    if !IS_SILENT.swap(true, Ordering::Relaxed) && run.is_first {
        run.notices.report("a filter of system calls lets no figures be logged at the end; so far:");
        run.report_figures();
    }
}

/// Judges a filter, and sets it.
///
/// # Safety
/// As the system call.
unsafe fn filtered(run: &Run, flags: usize, program: usize) -> Option<c_int> {
    // What the kernel refuses is the kernel's to refuse.
    let program = program as *const Program;
    if program.is_null() {
        return None;
    }
    // SAFETY: the caller gives such a structure.
    let Program { len, first } = unsafe { program.read_unaligned() };
    if first.is_null() || len == 0 || usize::from(len) > INSTRUCTIONS_MAX {
        return None;
    }
    // A copy, because the kernel may find the program's one missing.
    // SAFETY: the caller passes `len` instructions.
    let filter: Vec<Instruction> =
        (0..usize::from(len)).map(|index| unsafe { first.add(index).read_unaligned() }).collect();
    let denies = |calls: &[Call]| calls.iter().any(|call| !allows(&filter, call));
    let faults = if run.buffer.signal() == Signal::Bus { FAULTS } else { HIDDEN_FAULTS };
    if run.buffer.is_in_line() && (denies(MAPS) || denies(faults)) {
        run.no_filter("a filter of system calls (seccomp) that denies what resolves faults");
        return Some(fail(libc::EINVAL));
    }
    let mut flags = flags;
    if flags & TSYNC != 0 && (denies(MAPS) || denies(faults) || denies(SERVES)) {
        if !threads::is_program_alone() {
            run.no_filter_for_all();
            return Some(if flags & TSYNC_ESRCH != 0 { fail(libc::ESRCH) } else { threads::any_marked() as c_int });
        }
        flags &= !(TSYNC | TSYNC_ESRCH);
    }
    if denies(MAPS) {
        run.no_more_memory();
    }
    if denies(LOGS) {
        be_silent(run);
    }
    // For good: under the filter, this library may not even free its memory.
    let copy = Program { len, first: filter.leak().as_ptr() };
    // SAFETY: the caller's contract, with a copy of its filter.
    Some(unsafe { kernel(libc::SYS_seccomp, [SET_FILTER, flags, &raw const copy as usize, 0, 0, 0]) } as c_int)
}
