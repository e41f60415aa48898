//! File descriptors of the run in a program that counts on its own ones.
//!
//! They have high numbers, because a program may expect the lowest free ones for what it opens, and
//! opens others in place of those that it knows (a shell's `exec 3>file`). The C library's
//! functions that close descriptors leave them alone: a program may close all that it does not
//! know.

use std::ffi::{c_int, c_uint};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::errno::fail;

/// The lowest number that is looked for, where the limit on numbers allows.
const LOWEST: u64 = 400;
/// How many numbers from there on are searched for this library's descriptors.
const COUNT: usize = 128;

/// The descriptors of the run. Unused places hold 0, which is the program's.
static OURS: [AtomicI32; COUNT] = [const { AtomicI32::new(0) }; COUNT];

/// Bytes of the largest file among them, as they were opened.
static LARGEST: AtomicU64 = AtomicU64::new(0);

/// Bytes of the largest file that this library writes to.
pub fn largest_file() -> u64 {
    LARGEST.load(Ordering::Relaxed)
}

/// This library opens and closes its own ones.
static IS_OPENING: AtomicBool = AtomicBool::new(false);

/// Whether a descriptor is the run's, and not to be closed.
fn is_ours(fd: c_int) -> bool {
    fd > 2 && !IS_OPENING.load(Ordering::Relaxed) && was_ours(fd)
}
fn was_ours(fd: c_int) -> bool {
    OURS.iter().any(|ours| ours.load(Ordering::Relaxed) == fd)
}

/// Calls `open` so that what it opens gets high numbers, and keeps that from being closed. No other
/// thread may open anything meanwhile.
pub fn with_high_numbers<T>(open: impl FnOnce() -> T) -> T {
    let soft = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let lowest = soft.saturating_sub(COUNT as u64).clamp(8, LOWEST) as c_int;
    let mut fillers: Vec<OwnedFd> = Vec::new();
    if let Ok(null) = std::fs::File::open("/dev/null") {
        fillers.push(null.into());
        while let Some(last) = fillers.last().filter(|last| last.as_raw_fd() + 1 < lowest) {
            let Ok(next) = rustix::io::fcntl_dupfd_cloexec(last, 0) else { break };
            fillers.push(next);
        }
        fillers.retain(|filler| filler.as_raw_fd() < lowest);
    }
    // SAFETY: the call only asks about a number.
    let is_open = |fd: c_int| unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1;
    let all = lowest..lowest + COUNT as c_int;
    let others: Vec<c_int> = all.clone().filter(|fd| is_open(*fd) && !was_ours(*fd)).collect();
    IS_OPENING.store(true, Ordering::Relaxed);
    let result = open();
    IS_OPENING.store(false, Ordering::Relaxed);
    let opened = all.filter(|fd| !others.contains(fd) && is_open(*fd));
    let bytes = |fd: c_int| {
        // SAFETY: the descriptor is open, and nobody closes it meanwhile.
        let found = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
        rustix::fs::FileType::from_raw_mode(found.st_mode).is_file().then_some(found.st_size as u64)
    };
    LARGEST.store(opened.clone().filter_map(bytes).max().unwrap_or(0), Ordering::Relaxed);
    for (place, fd) in OURS.iter().zip(opened.chain(std::iter::repeat(0))) {
        place.store(fd, Ordering::Relaxed);
    }
    result
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if is_ours(fd) {
        return fail(libc::EBADF);
    }
    // SAFETY: the caller's contract.
    unsafe { libc::syscall(libc::SYS_close, fd) as c_int }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if is_ours(to) {
        return fail(libc::EBADF);
    }
    // SAFETY: the caller's contract.
    unsafe { libc::syscall(libc::SYS_dup2, from, to) as c_int }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    if is_ours(to) {
        return fail(libc::EBADF);
    }
    // SAFETY: the caller's contract.
    unsafe { libc::syscall(libc::SYS_dup3, from, to, flags) as c_int }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // They are closed by `exec` anyway. A process with its own table of descriptors has them, too.
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0 {
        // SAFETY: the caller's contract.
        return unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) as c_int };
    }
    let mut from = first;
    // In ascending order.
    let ours = OURS.iter().map(|ours| ours.load(Ordering::Relaxed) as c_uint);
    for fd in ours.filter(|fd| *fd != 0 && (first..=last).contains(fd)) {
        // SAFETY: the caller's contract.
        if fd > from && unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, flags) } != 0 {
            return -1;
        }
        from = fd + 1;
    }
    // A range that is empty from the start is the kernel's to refuse.
    if from > last && from != first {
        return 0;
    }
    // SAFETY: the caller's contract.
    unsafe { libc::syscall(libc::SYS_close_range, from, last, flags) as c_int }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: the caller's contract.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}
