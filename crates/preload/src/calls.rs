//! Functions of the C library that pass addresses to the kernel, where the kernel's own accesses to
//! missing pages fail: what they point to is made resident before, and stays so until they return.
//!
//! Nothing is to be done where a page buffer serves the kernel as well, nor for addresses that are
//! not of its region: that is one load and a comparison each.
//!
//! A buffer of many pages is passed in pieces. A read goes on only while its pieces are full and
//! the next one is there at once, so it blocks where the whole one would. Messages, and what is only
//! looked at (`MSG_PEEK`), are moved by a copy in DRAM instead.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};

use fulgurite_fault::Held;
use libc::{iovec, mode_t, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};

use crate::allocator::next;
use crate::run::{Run, run};

/// An address, and bytes from there on.
type Span = (usize, usize);

/// Spans that are held at a time, at the most.
const SPANS: usize = 40;
/// How often a call is made again whose pages were taken away all the same: by a fork.
const TRIES: usize = 4;

/// The run, if its pages have to be there for the kernel.
#[inline]
fn in_line() -> Option<&'static Run> {
    run().filter(|run| run.buffer.is_in_line())
}

/// What a call returns that failed.
pub trait Returned: Copy {
    fn is_failure(self) -> bool;
}
impl Returned for c_int {
    fn is_failure(self) -> bool {
        self == -1
    }
}
impl Returned for ssize_t {
    fn is_failure(self) -> bool {
        self == -1
    }
}
impl<T> Returned for *mut T {
    fn is_failure(self) -> bool {
        self.is_null()
    }
}

fn errno() -> c_int {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Calls with these spans resident.
#[inline]
pub fn with<T: Returned>(spans: &[Span], mut call: impl FnMut() -> T) -> T {
    match in_line().filter(|run| spans.iter().any(|(at, len)| run.buffer.part_of(*at, *len).is_some())) {
        Some(run) => hold(run, spans, call),
        None => call(),
    }
}

#[cold]
fn hold<T: Returned>(run: &Run, spans: &[Span], mut call: impl FnMut() -> T) -> T {
    let mut tries = 1;
    loop {
        let mut held: [Option<Held>; SPANS] = [const { None }; SPANS];
        let mut left = run.buffer.hold_most();
        for ((at, len), held) in spans.iter().zip(&mut held) {
            // Where there is too much, the call fails for the rest.
            let now = run.buffer.hold(*at, (*len).min(left * PAGE));
            left = left.saturating_sub(now.len());
            *held = Some(now);
        }
        let result = call();
        let kept = errno();
        held.into_iter().flatten().for_each(|held| run.buffer.let_go(held));
        crate::errno::fail(kept);
        if !result.is_failure() || kept != libc::EFAULT || tries == TRIES {
            return result;
        }
        tries += 1;
    }
}

const PAGE: usize = 4096;

/// Whether a span is too much to be held at once.
fn is_long(address: usize, len: usize) -> bool {
    in_line().is_some_and(|run| {
        let pages = len / PAGE + 2;
        pages > run.buffer.hold_most() && run.buffer.part_of(address, len).is_some()
    })
}

/// What a call does with a buffer that is passed in pieces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moves {
    /// It reads what there is: the next piece is asked for only if it is there.
    WhatIsThere,
    /// It fills the buffer, and waits for that.
    All,
    /// It empties the buffer.
    Out,
    /// It reads what the next call would read again, or what no next call would read.
    Whole,
}

/// How a call with these flags reads.
fn reads(flags: c_int) -> Moves {
    if flags & (libc::MSG_PEEK | libc::MSG_ERRQUEUE | libc::MSG_OOB) != 0 {
        Moves::Whole
    } else if flags & libc::MSG_WAITALL != 0 {
        Moves::All
    } else {
        Moves::WhatIsThere
    }
}

/// The longest message of a socket that is moved. Longer ones are refused.
const MESSAGE_MOST: usize = 16 << 20;
/// How much of a stream is copied for one call.
const COPY_MOST: usize = 1 << 20;

/// Whether a socket has messages: a call sends or takes one of them.
fn has_messages(fd: c_int) -> bool {
    let (mut kind, mut len, kept): (c_int, _, _) = (0, size_of::<c_int>() as socklen_t, errno());
    let (to, option) = ((&raw mut kind).cast::<c_void>(), libc::SO_TYPE);
    // SAFETY: both places are here, in DRAM.
    let result = unsafe { next_getsockopt(fd, libc::SOL_SOCKET, option, to, &raw mut len) };
    crate::errno::fail(kept);
    result == 0 && kind != libc::SOCK_STREAM
}

/// Moves a long buffer in pieces, or by a copy in DRAM where it is to be moved at once.
fn in_pieces(
    fd: c_int,
    address: usize,
    len: usize,
    moves: Moves,
    mut call: impl FnMut(usize, usize, usize) -> ssize_t,
) -> ssize_t {
    if !is_long(address, len) {
        return with(&[(address, len)], || call(address, len, 0));
    }
    if moves == Moves::Whole || has_messages(fd) {
        let buffer = iovec { iov_base: address as *mut c_void, iov_len: len };
        return at_once(&[buffer], moves, MESSAGE_MOST, |at, len| call(at, len, 0));
    }
    let most = in_line().map_or(1, |run| run.buffer.hold_most() - 1) * PAGE;
    let mut done = 0;
    while done < len {
        if done > 0 && moves == Moves::WhatIsThere && !is_readable(fd) {
            break;
        }
        let (from, piece) = (address + done, most.min(len - done));
        let moved = with(&[(from, piece)], || call(from, piece, done));
        if moved < 0 {
            return if done > 0 { done as ssize_t } else { moved };
        }
        done += moved as usize;
        if (moved as usize) < piece {
            break;
        }
    }
    done as ssize_t
}

/// Moves buffers by a copy in DRAM of so many bytes at the most.
fn at_once(buffers: &[iovec], moves: Moves, most: usize, mut call: impl FnMut(usize, usize) -> ssize_t) -> ssize_t {
    let all = buffers.iter().fold(0usize, |all, buffer| all.saturating_add(buffer.iov_len));
    if moves == Moves::Out && most == MESSAGE_MOST && all > most {
        return crate::errno::fail(libc::EMSGSIZE) as ssize_t;
    }
    let mut copy = vec![0u8; all.min(most)];
    if moves == Moves::Out {
        for (from, at, len) in parts(buffers, copy.len()) {
            // SAFETY: the caller gives buffers of these bytes, and the copy is as long as all parts.
            unsafe { std::ptr::copy_nonoverlapping(from, copy.as_mut_ptr().add(at), len) };
        }
    }
    let moved = call(copy.as_mut_ptr() as usize, copy.len());
    if moves != Moves::Out && moved > 0 {
        // What is told may be more than what was moved (`MSG_TRUNC`).
        for (to, at, len) in parts(buffers, copy.len().min(moved as usize)) {
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(copy.as_ptr().add(at), to, len) };
        }
    }
    moved
}

/// The first bytes of buffers as one: where each part is, where it begins among all, and how long
/// it is.
fn parts(buffers: &[iovec], bytes: usize) -> impl Iterator<Item = (*mut u8, usize, usize)> {
    buffers.iter().scan(0, move |at, buffer| {
        let (begin, len) = (*at, buffer.iov_len.min(bytes - *at));
        *at += len;
        Some((buffer.iov_base.cast::<u8>(), begin, len))
    })
}

/// Whether a read would return at once.
fn is_readable(fd: c_int) -> bool {
    let mut list = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: the list is one long, and in DRAM.
    unsafe { libc::syscall(libc::SYS_poll, &raw mut list, 1, 0) > 0 }
}

/// A string with its end. It is looked at only where it is memory of flash, which makes it there.
fn text(string: *const c_char) -> Span {
    match in_line().filter(|run| run.buffer.contains(string as usize)) {
        // SAFETY: the caller gives a string that ends in zero.
        Some(_) => (string as usize, unsafe { CStr::from_ptr(string) }.count_bytes() + 1),
        None => (string as usize, 0),
    }
}
/// One value.
fn one<T>(value: *const T) -> Span {
    (value as usize, size_of::<T>())
}
/// Several values.
fn many<T>(values: *const T, count: usize) -> Span {
    (values as usize, count.saturating_mul(size_of::<T>()))
}
/// A value whose length stands elsewhere.
fn long_as(value: *const c_void, len: *const socklen_t) -> Span {
    // SAFETY: the caller gives null or a length.
    (value as usize, unsafe { len.as_ref() }.map_or(0, |len| *len as usize))
}

/// Defines functions that are called with these spans resident.
macro_rules! held {
    ($($name:ident, $next:ident, $symbol:literal, ($($argument:ident: $type:ty),*) -> $result:ty, [$($span:expr),*];)*) => {$(
        next!($next, $symbol, ($($argument: $type),*) -> $result);
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            if in_line().is_none() {
                // SAFETY: the caller's contract.
                return unsafe { $next($($argument),*) };
            }
            // SAFETY: as above.
            with(&[$($span),*], || unsafe { $next($($argument),*) })
        }
    )*};
}

type Text = *const c_char;
type Out<T> = *mut T;
type In<T> = *const T;

held! {
    // Files and directories by name.
    open, next_open, c"open", (path: Text, flags: c_int, mode: mode_t) -> c_int, [text(path)];
    open64, next_open64, c"open64", (path: Text, flags: c_int, mode: mode_t) -> c_int, [text(path)];
    openat, next_openat, c"openat", (at: c_int, path: Text, flags: c_int, mode: mode_t) -> c_int, [text(path)];
    openat64, next_openat64, c"openat64", (at: c_int, path: Text, flags: c_int, mode: mode_t) -> c_int, [text(path)];
    creat, next_creat, c"creat", (path: Text, mode: mode_t) -> c_int, [text(path)];
    creat64, next_creat64, c"creat64", (path: Text, mode: mode_t) -> c_int, [text(path)];
    fopen, next_fopen, c"fopen", (path: Text, mode: Text) -> Out<libc::FILE>, [text(path)];
    fopen64, next_fopen64, c"fopen64", (path: Text, mode: Text) -> Out<libc::FILE>, [text(path)];
    opendir, next_opendir, c"opendir", (path: Text) -> Out<libc::DIR>, [text(path)];
    access, next_access, c"access", (path: Text, mode: c_int) -> c_int, [text(path)];
    faccessat, next_faccessat, c"faccessat", (at: c_int, path: Text, mode: c_int, flags: c_int) -> c_int, [text(path)];
    stat, next_stat, c"stat", (path: Text, to: Out<libc::stat>) -> c_int, [text(path), one(to)];
    stat64, next_stat64, c"stat64", (path: Text, to: Out<libc::stat64>) -> c_int, [text(path), one(to)];
    lstat, next_lstat, c"lstat", (path: Text, to: Out<libc::stat>) -> c_int, [text(path), one(to)];
    lstat64, next_lstat64, c"lstat64", (path: Text, to: Out<libc::stat64>) -> c_int, [text(path), one(to)];
    fstat, next_fstat, c"fstat", (fd: c_int, to: Out<libc::stat>) -> c_int, [one(to)];
    fstat64, next_fstat64, c"fstat64", (fd: c_int, to: Out<libc::stat64>) -> c_int, [one(to)];
    fstatat, next_fstatat, c"fstatat", (at: c_int, path: Text, to: Out<libc::stat>, flags: c_int) -> c_int, [text(path), one(to)];
    fstatat64, next_fstatat64, c"fstatat64", (at: c_int, path: Text, to: Out<libc::stat64>, flags: c_int) -> c_int, [text(path), one(to)];
    statx, next_statx, c"statx", (at: c_int, path: Text, flags: c_int, mask: c_uint, to: Out<libc::statx>) -> c_int, [text(path), one(to)];
    statfs, next_statfs, c"statfs", (path: Text, to: Out<libc::statfs>) -> c_int, [text(path), one(to)];
    fstatfs, next_fstatfs, c"fstatfs", (fd: c_int, to: Out<libc::statfs>) -> c_int, [one(to)];
    truncate, next_truncate, c"truncate", (path: Text, len: off_t) -> c_int, [text(path)];
    unlink, next_unlink, c"unlink", (path: Text) -> c_int, [text(path)];
    unlinkat, next_unlinkat, c"unlinkat", (at: c_int, path: Text, flags: c_int) -> c_int, [text(path)];
    remove, next_remove, c"remove", (path: Text) -> c_int, [text(path)];
    rename, next_rename, c"rename", (from: Text, to: Text) -> c_int, [text(from), text(to)];
    renameat, next_renameat, c"renameat", (at: c_int, from: Text, there: c_int, to: Text) -> c_int, [text(from), text(to)];
    link, next_link, c"link", (from: Text, to: Text) -> c_int, [text(from), text(to)];
    symlink, next_symlink, c"symlink", (from: Text, to: Text) -> c_int, [text(from), text(to)];
    mkdir, next_mkdir, c"mkdir", (path: Text, mode: mode_t) -> c_int, [text(path)];
    mkdirat, next_mkdirat, c"mkdirat", (at: c_int, path: Text, mode: mode_t) -> c_int, [text(path)];
    rmdir, next_rmdir, c"rmdir", (path: Text) -> c_int, [text(path)];
    chdir, next_chdir, c"chdir", (path: Text) -> c_int, [text(path)];
    chmod, next_chmod, c"chmod", (path: Text, mode: mode_t) -> c_int, [text(path)];
    chown, next_chown, c"chown", (path: Text, user: libc::uid_t, group: libc::gid_t) -> c_int, [text(path)];
    utimensat, next_utimensat, c"utimensat", (at: c_int, path: Text, times: In<timespec>, flags: c_int) -> c_int, [text(path), many(times, 2)];
    readlink, next_readlink, c"readlink", (path: Text, to: Out<c_char>, len: size_t) -> ssize_t, [text(path), many(to, len)];
    readlinkat, next_readlinkat, c"readlinkat", (at: c_int, path: Text, to: Out<c_char>, len: size_t) -> ssize_t, [text(path), many(to, len)];
    getcwd, next_getcwd, c"getcwd", (to: Out<c_char>, len: size_t) -> Out<c_char>, [many(to, len)];
    memfd_create, next_memfd_create, c"memfd_create", (name: Text, flags: c_uint) -> c_int, [text(name)];
    getdents64, next_getdents64, c"getdents64", (fd: c_int, to: Out<c_void>, len: size_t) -> ssize_t, [(to as usize, len)];
    linkat, next_linkat, c"linkat", (at: c_int, from: Text, there: c_int, to: Text, flags: c_int) -> c_int, [text(from), text(to)];
    symlinkat, next_symlinkat, c"symlinkat", (from: Text, at: c_int, to: Text) -> c_int, [text(from), text(to)];
    fchmodat, next_fchmodat, c"fchmodat", (at: c_int, path: Text, mode: mode_t, flags: c_int) -> c_int, [text(path)];
    fchownat, next_fchownat, c"fchownat", (at: c_int, path: Text, user: libc::uid_t, group: libc::gid_t, flags: c_int) -> c_int, [text(path)];
    setxattr, next_setxattr, c"setxattr", (path: Text, name: Text, from: In<c_void>, len: size_t, flags: c_int) -> c_int, [text(path), text(name), (from as usize, len)];
    fsetxattr, next_fsetxattr, c"fsetxattr", (fd: c_int, name: Text, from: In<c_void>, len: size_t, flags: c_int) -> c_int, [text(name), (from as usize, len)];
    getxattr, next_getxattr, c"getxattr", (path: Text, name: Text, to: Out<c_void>, len: size_t) -> ssize_t, [text(path), text(name), (to as usize, len)];
    fgetxattr, next_fgetxattr, c"fgetxattr", (fd: c_int, name: Text, to: Out<c_void>, len: size_t) -> ssize_t, [text(name), (to as usize, len)];
    listxattr, next_listxattr, c"listxattr", (path: Text, to: Out<c_char>, len: size_t) -> ssize_t, [text(path), many(to, len)];
    inotify_add_watch, next_inotify_add_watch, c"inotify_add_watch", (fd: c_int, path: Text, mask: u32) -> c_int, [text(path)];
    // Descriptors.
    signalfd, next_signalfd, c"signalfd", (fd: c_int, mask: In<libc::sigset_t>, flags: c_int) -> c_int, [one(mask)];
    ioctl, next_ioctl, c"ioctl", (fd: c_int, request: libc::c_ulong, argument: Out<c_void>) -> c_int, [(argument as usize, bytes_of_ioctl(request))];
    fcntl, next_fcntl, c"fcntl", (fd: c_int, command: c_int, argument: Out<c_void>) -> c_int, [(argument as usize, size_of::<libc::flock>())];
    fcntl64, next_fcntl64, c"fcntl64", (fd: c_int, command: c_int, argument: Out<c_void>) -> c_int, [(argument as usize, size_of::<libc::flock>())];
    pipe, next_pipe, c"pipe", (to: Out<c_int>) -> c_int, [many(to, 2)];
    pipe2, next_pipe2, c"pipe2", (to: Out<c_int>, flags: c_int) -> c_int, [many(to, 2)];
    poll, next_poll, c"poll", (list: Out<libc::pollfd>, count: libc::nfds_t, time: c_int) -> c_int, [many(list, count as usize)];
    select, next_select, c"select", (count: c_int, read: Out<libc::fd_set>, write: Out<libc::fd_set>, except: Out<libc::fd_set>, time: Out<libc::timeval>) -> c_int, [one(read), one(write), one(except), one(time)];
    epoll_ctl, next_epoll_ctl, c"epoll_ctl", (fd: c_int, what: c_int, of: c_int, event: Out<libc::epoll_event>) -> c_int, [one(event)];
    epoll_wait, next_epoll_wait, c"epoll_wait", (fd: c_int, events: Out<libc::epoll_event>, count: c_int, time: c_int) -> c_int, [many(events, count.max(0) as usize)];
    sendfile, next_sendfile, c"sendfile", (to: c_int, from: c_int, at: Out<off_t>, count: size_t) -> ssize_t, [one(at)];
    sendfile64, next_sendfile64, c"sendfile64", (to: c_int, from: c_int, at: Out<off_t>, count: size_t) -> ssize_t, [one(at)];
    copy_file_range, next_copy_file_range, c"copy_file_range", (from: c_int, at: Out<off_t>, to: c_int, there: Out<off_t>, len: size_t, flags: c_uint) -> ssize_t, [one(at), one(there)];
    getrandom, next_getrandom, c"getrandom", (to: Out<c_void>, len: size_t, flags: c_uint) -> ssize_t, [(to as usize, len)];
    // Sockets.
    bind, next_bind, c"bind", (fd: c_int, to: In<sockaddr>, len: socklen_t) -> c_int, [(to as usize, len as usize)];
    connect, next_connect, c"connect", (fd: c_int, to: In<sockaddr>, len: socklen_t) -> c_int, [(to as usize, len as usize)];
    getsockname, next_getsockname, c"getsockname", (fd: c_int, to: Out<sockaddr>, len: Out<socklen_t>) -> c_int, [long_as(to.cast(), len), one(len)];
    getpeername, next_getpeername, c"getpeername", (fd: c_int, to: Out<sockaddr>, len: Out<socklen_t>) -> c_int, [long_as(to.cast(), len), one(len)];
    getsockopt, next_getsockopt, c"getsockopt", (fd: c_int, level: c_int, name: c_int, to: Out<c_void>, len: Out<socklen_t>) -> c_int, [long_as(to, len), one(len)];
    socketpair, next_socketpair, c"socketpair", (family: c_int, kind: c_int, protocol: c_int, to: Out<c_int>) -> c_int, [many(to, 2)];
    // Time.
    nanosleep, next_nanosleep, c"nanosleep", (time: In<timespec>, left: Out<timespec>) -> c_int, [one(time), one(left)];
    clock_nanosleep, next_clock_nanosleep, c"clock_nanosleep", (clock: libc::clockid_t, flags: c_int, time: In<timespec>, left: Out<timespec>) -> c_int, [one(time), one(left)];
    timerfd_settime, next_timerfd_settime, c"timerfd_settime", (fd: c_int, flags: c_int, new: In<libc::itimerspec>, old: Out<libc::itimerspec>) -> c_int, [one(new), one(old)];
    setitimer, next_setitimer, c"setitimer", (which: c_int, new: In<libc::itimerval>, old: Out<libc::itimerval>) -> c_int, [one(new), one(old)];
    timer_settime, next_timer_settime, c"timer_settime", (timer: libc::timer_t, flags: c_int, new: In<libc::itimerspec>, old: Out<libc::itimerspec>) -> c_int, [one(new), one(old)];
    // Signals.
    sigwait, next_sigwait, c"sigwait", (set: In<libc::sigset_t>, to: Out<c_int>) -> c_int, [one(set), one(to)];
    sigwaitinfo, next_sigwaitinfo, c"sigwaitinfo", (set: In<libc::sigset_t>, to: Out<libc::siginfo_t>) -> c_int, [one(set), one(to)];
    sigtimedwait, next_sigtimedwait, c"sigtimedwait", (set: In<libc::sigset_t>, to: Out<libc::siginfo_t>, time: In<timespec>) -> c_int, [one(set), one(to), one(time)];
    // Processes.
    waitid, next_waitid, c"waitid", (kind: libc::idtype_t, id: libc::id_t, to: Out<libc::siginfo_t>, options: c_int) -> c_int, [one(to)];
    prctl, next_prctl, c"prctl", (option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int, [(a, PRCTL_BYTES)];
    sched_setaffinity, next_sched_setaffinity, c"sched_setaffinity", (pid: libc::pid_t, len: size_t, mask: In<libc::cpu_set_t>) -> c_int, [(mask as usize, len)];
    wait4, next_wait4, c"wait4", (pid: libc::pid_t, status: Out<c_int>, options: c_int, usage: Out<libc::rusage>) -> libc::pid_t, [one(status), one(usage)];
    waitpid, next_waitpid, c"waitpid", (pid: libc::pid_t, status: Out<c_int>, options: c_int) -> libc::pid_t, [one(status)];
    wait, next_wait, c"wait", (status: Out<c_int>) -> libc::pid_t, [one(status)];
    getrusage, next_getrusage, c"getrusage", (whose: c_int, to: Out<libc::rusage>) -> c_int, [one(to)];
    getrlimit, next_getrlimit, c"getrlimit", (what: c_int, to: Out<libc::rlimit>) -> c_int, [one(to)];
    setrlimit, next_setrlimit, c"setrlimit", (what: c_int, from: In<libc::rlimit>) -> c_int, [one(from)];
    uname, next_uname, c"uname", (to: Out<libc::utsname>) -> c_int, [one(to)];
    sysinfo, next_sysinfo, c"sysinfo", (to: Out<libc::sysinfo>) -> c_int, [one(to)];
    system, next_system, c"system", (words: Text) -> c_int, [text(words)];
    popen, next_popen, c"popen", (words: Text, mode: Text) -> Out<libc::FILE>, [text(words)];
    // Locks whose words the kernel looks at before it lets a thread sleep.
    pthread_cond_wait, next_cond_wait, c"pthread_cond_wait", (condition: Out<libc::pthread_cond_t>, mutex: Out<libc::pthread_mutex_t>) -> c_int, [one(condition), one(mutex)];
    pthread_cond_timedwait, next_cond_timedwait, c"pthread_cond_timedwait", (condition: Out<libc::pthread_cond_t>, mutex: Out<libc::pthread_mutex_t>, time: In<timespec>) -> c_int, [one(condition), one(mutex), one(time)];
    pthread_cond_clockwait, next_cond_clockwait, c"pthread_cond_clockwait", (condition: Out<libc::pthread_cond_t>, mutex: Out<libc::pthread_mutex_t>, clock: libc::clockid_t, time: In<timespec>) -> c_int, [one(condition), one(mutex), one(time)];
    pthread_cond_destroy, next_cond_destroy, c"pthread_cond_destroy", (condition: Out<libc::pthread_cond_t>) -> c_int, [one(condition)];
    pthread_mutex_timedlock, next_mutex_timedlock, c"pthread_mutex_timedlock", (mutex: Out<libc::pthread_mutex_t>, time: In<timespec>) -> c_int, [one(mutex), one(time)];
    pthread_rwlock_rdlock, next_rwlock_rdlock, c"pthread_rwlock_rdlock", (lock: Out<libc::pthread_rwlock_t>) -> c_int, [one(lock)];
    pthread_rwlock_wrlock, next_rwlock_wrlock, c"pthread_rwlock_wrlock", (lock: Out<libc::pthread_rwlock_t>) -> c_int, [one(lock)];
    pthread_barrier_wait, next_barrier_wait, c"pthread_barrier_wait", (barrier: Out<libc::pthread_barrier_t>) -> c_int, [one(barrier)];
    sem_wait, next_sem_wait, c"sem_wait", (semaphore: Out<libc::sem_t>) -> c_int, [one(semaphore)];
    sem_timedwait, next_sem_timedwait, c"sem_timedwait", (semaphore: Out<libc::sem_t>, time: In<timespec>) -> c_int, [one(semaphore), one(time)];
    sem_clockwait, next_sem_clockwait, c"sem_clockwait", (semaphore: Out<libc::sem_t>, clock: libc::clockid_t, time: In<timespec>) -> c_int, [one(semaphore), one(time)];
    pthread_mutex_clocklock, next_mutex_clocklock, c"pthread_mutex_clocklock", (mutex: Out<libc::pthread_mutex_t>, clock: libc::clockid_t, time: In<timespec>) -> c_int, [one(mutex), one(time)];
    pthread_rwlock_timedrdlock, next_rwlock_timedrdlock, c"pthread_rwlock_timedrdlock", (lock: Out<libc::pthread_rwlock_t>, time: In<timespec>) -> c_int, [one(lock), one(time)];
    pthread_rwlock_timedwrlock, next_rwlock_timedwrlock, c"pthread_rwlock_timedwrlock", (lock: Out<libc::pthread_rwlock_t>, time: In<timespec>) -> c_int, [one(lock), one(time)];
    pthread_rwlock_clockrdlock, next_rwlock_clockrdlock, c"pthread_rwlock_clockrdlock", (lock: Out<libc::pthread_rwlock_t>, clock: libc::clockid_t, time: In<timespec>) -> c_int, [one(lock), one(time)];
    pthread_rwlock_clockwrlock, next_rwlock_clockwrlock, c"pthread_rwlock_clockwrlock", (lock: Out<libc::pthread_rwlock_t>, clock: libc::clockid_t, time: In<timespec>) -> c_int, [one(lock), one(time)];
}

/// Bytes that the first argument of `prctl` may point to: a thread's name, or less.
const PRCTL_BYTES: usize = 16;

/// Bytes that a request of `ioctl` points to: what its number says, or those of the older ones.
fn bytes_of_ioctl(request: libc::c_ulong) -> usize {
    const OLD: usize = 256;
    match (request >> 16) as usize & 0x3fff {
        0 => OLD,
        bytes => bytes,
    }
}

next!(next_mutex_lock, c"pthread_mutex_lock", (mutex: Out<libc::pthread_mutex_t>) -> c_int);
next!(next_mutex_trylock, c"pthread_mutex_trylock", (mutex: Out<libc::pthread_mutex_t>) -> c_int);

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut libc::pthread_mutex_t) -> c_int {
    if in_line().is_none_or(|run| !run.buffer.contains(mutex as usize)) {
        // SAFETY: the caller's contract.
        return unsafe { next_mutex_lock(mutex) };
    }
    // A lock that is free needs no page for the kernel.
    // SAFETY: as above.
    match unsafe { next_mutex_trylock(mutex) } {
        // SAFETY: as above.
        libc::EBUSY => with(&[one(mutex)], || unsafe { next_mutex_lock(mutex) }),
        result => result,
    }
}

// ---- buffers ----

next!(next_read, c"read", (fd: c_int, to: *mut c_void, len: size_t) -> ssize_t);
next!(next_write, c"write", (fd: c_int, from: *const c_void, len: size_t) -> ssize_t);
next!(next_pread, c"pread64", (fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t);
next!(next_pwrite, c"pwrite64", (fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t);
next!(next_recv, c"recv", (fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t);
next!(next_send, c"send", (fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t);
next!(next_recvfrom, c"recvfrom", (fd: c_int, to: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> ssize_t);
next!(next_sendto, c"sendto", (fd: c_int, from: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t) -> ssize_t);

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's contract.
    in_pieces(fd, to as usize, len, Moves::WhatIsThere, |to, len, _| unsafe { next_read(fd, to as *mut c_void, len) })
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's contract.
    in_pieces(fd, from as usize, len, Moves::Out, |from, len, _| unsafe { next_write(fd, from as *const c_void, len) })
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t {
    in_pieces(fd, to as usize, len, Moves::WhatIsThere, |to, len, done| {
        // SAFETY: the caller's contract.
        unsafe { next_pread(fd, to as *mut c_void, len, at + done as off_t) }
    })
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread64(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's contract. Both are the same on this machine.
    unsafe { pread(fd, to, len, at) }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
    in_pieces(fd, from as usize, len, Moves::Out, |from, len, done| {
        // SAFETY: the caller's contract.
        unsafe { next_pwrite(fd, from as *const c_void, len, at + done as off_t) }
    })
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's contract. Both are the same on this machine.
    unsafe { pwrite(fd, from, len, at) }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's contract.
    in_pieces(fd, to as usize, len, reads(flags), |to, len, _| unsafe { next_recv(fd, to as *mut c_void, len, flags) })
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's contract.
    in_pieces(fd, from as usize, len, Moves::Out, |from, len, _| unsafe {
        next_send(fd, from as *const c_void, len, flags)
    })
}
next!(next_accept, c"accept", (fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int);
next!(next_accept4, c"accept4", (fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int);

/// Calls with a place for an address that is in DRAM: a call that cannot tell the address has taken
/// the message or the connection all the same, and loses it.
fn with_address<T: Returned>(
    to: *mut sockaddr,
    len: *mut socklen_t,
    call: impl FnOnce(*mut sockaddr, *mut socklen_t) -> T,
) -> T {
    // SAFETY: the caller gives null or a length.
    let room = unsafe { len.as_ref() }.map_or(0, |len| *len as usize);
    let is_ours = |(at, len): Span| in_line().is_some_and(|run| run.buffer.part_of(at, len).is_some());
    if to.is_null() || !is_ours(one(len)) && !is_ours((to as usize, room)) {
        return call(to, len);
    }
    // SAFETY: all zeros is an address.
    let mut own: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let most = size_of_val(&own).min(room);
    let mut own_len = most as socklen_t;
    let result = call((&raw mut own).cast(), &raw mut own_len);
    if !result.is_failure() {
        // The kernel tells the whole length, also where the address is cut.
        let told = most.min(own_len as usize);
        // SAFETY: the caller gives room for so many bytes, and for a length.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const own).cast::<u8>(), to.cast::<u8>(), told);
            len.write(own_len);
        }
    }
    result
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller's contract.
    with_address(from, len, |from, len| unsafe { next_accept(fd, from, len) })
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: the caller's contract.
    with_address(from, len, |from, len| unsafe { next_accept4(fd, from, len, flags) })
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    in_pieces(fd, to as usize, len, reads(flags), |to, len, _| {
        with_address(from, from_len, |from, from_len| {
            // SAFETY: the caller's contract.
            unsafe { next_recvfrom(fd, to as *mut c_void, len, flags, from, from_len) }
        })
    })
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    in_pieces(fd, from as usize, len, Moves::Out, |from, len, _| {
        with(&[(to as usize, to_len as usize)], || {
            // SAFETY: the caller's contract.
            unsafe { next_sendto(fd, from as *const c_void, len, flags, to, to_len) }
        })
    })
}

// ---- lists of buffers ----

next!(next_readv, c"readv", (fd: c_int, list: *const iovec, count: c_int) -> ssize_t);
next!(next_writev, c"writev", (fd: c_int, list: *const iovec, count: c_int) -> ssize_t);
next!(next_preadv, c"preadv64", (fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t);
next!(next_pwritev, c"pwritev64", (fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t);
next!(next_recvmsg, c"recvmsg", (fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t);
next!(next_sendmsg, c"sendmsg", (fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t);

/// Calls with a list of buffers. Where it is more than can be held, a read of a stream is passed as
/// much as can be, as it may move less than it is asked for. All else is moved by a copy.
///
/// # Safety
/// The list has so many buffers.
unsafe fn with_list(
    fd: c_int,
    moves: Moves,
    list: *const iovec,
    count: usize,
    others: &[Span],
    mut call: impl FnMut(*const iovec, usize) -> ssize_t,
) -> ssize_t {
    let Some(run) = in_line().filter(|_| count > 0 && count <= libc::UIO_MAXIOV as usize) else {
        return call(list, count);
    };
    // SAFETY: the caller's contract.
    let buffers = unsafe { std::slice::from_raw_parts(list, count) };
    let is_ours = |(at, len): Span| run.buffer.part_of(at, len).is_some();
    let spans = buffers.iter().map(|buffer| (buffer.iov_base as usize, buffer.iov_len));
    if !spans.chain([many(list, count)]).chain(others.iter().copied()).any(is_ours) {
        return call(list, count);
    }
    let (mut copied, mut held, mut used, mut left) = ([NO_BUFFER; SPANS], [(0, 0); SPANS], 0, run.buffer.hold_most());
    for (span, other) in held.iter_mut().zip(others) {
        *span = *other;
        left = left.saturating_sub(if is_ours(*other) { other.1 / PAGE + 2 } else { 0 });
    }
    let mut is_cut = count > SPANS - others.len();
    for buffer in buffers.iter().take(SPANS - others.len()) {
        let (at, mut len) = (buffer.iov_base as usize, buffer.iov_len);
        if is_ours((at, len)) {
            if left < 2 {
                is_cut = true;
                break;
            }
            len = len.min((left - 1) * PAGE);
            left -= len / PAGE + 1;
        }
        (copied[used], held[others.len() + used]) = (iovec { iov_base: at as *mut c_void, iov_len: len }, (at, len));
        used += 1;
        if len < buffer.iov_len {
            is_cut = true;
            break;
        }
    }
    if is_cut {
        let is_whole = moves == Moves::Whole || has_messages(fd);
        if is_whole || moves != Moves::WhatIsThere {
            let most = if is_whole { MESSAGE_MOST } else { COPY_MOST };
            return with(&held[..others.len()], || {
                at_once(buffers, moves, most, |at, len| {
                    let copy = iovec { iov_base: at as *mut c_void, iov_len: len };
                    call(&raw const copy, 1)
                })
            });
        }
    }
    with(&held[..others.len() + used], || call(copied.as_ptr(), used))
}

const NO_BUFFER: iovec = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's contract.
    unsafe {
        with_list(fd, Moves::WhatIsThere, list, count.max(0) as usize, &[], |list, used| {
            next_readv(fd, list, used as c_int)
        })
    }
}
next!(next_vmsplice, c"vmsplice", (fd: c_int, list: *const iovec, count: size_t, flags: c_uint) -> ssize_t);
next!(next_setsockopt, c"setsockopt", (fd: c_int, level: c_int, name: c_int, from: *const c_void, len: socklen_t) -> c_int);

/// Pages that are put into a pipe stay there as they are, and nothing says how long. A page of
/// flash leaves its frame meanwhile, which then holds another one. So they are copied.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmsplice(fd: c_int, list: *const iovec, count: size_t, flags: c_uint) -> ssize_t {
    let has_ours = run().is_some_and(|run| {
        // SAFETY: the caller gives as many.
        let all = (0..count.min(1024)).map(|index| unsafe { *list.add(index) });
        all.into_iter().any(|one| run.buffer.part_of(one.iov_base as usize, one.iov_len).is_some())
    });
    // SAFETY: the caller's contract. The call has a number as its argument.
    unsafe {
        if !has_ours {
            return next_vmsplice(fd, list, count, flags);
        }
        if libc::fcntl(fd, libc::F_GETFL) & libc::O_ACCMODE == libc::O_RDONLY {
            return readv(fd, list, count as c_int);
        }
        if flags & libc::SPLICE_F_NONBLOCK == 0 {
            return writev(fd, list, count as c_int);
        }
        with_list(fd, Moves::Out, list, count, &[], |list, used| {
            next_pwritev2(fd, list, used as c_int, -1, libc::RWF_NOWAIT)
        })
    }
}

/// Sends without a copy keep pages as pipes do, and are refused, as by a kernel without them.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    from: *const c_void,
    len: socklen_t,
) -> c_int {
    if run().is_some() && level == libc::SOL_SOCKET && name == libc::SO_ZEROCOPY {
        return crate::errno::fail(libc::EOPNOTSUPP);
    }
    // SAFETY: the caller's contract.
    with(&[(from as usize, len as usize)], || unsafe { next_setsockopt(fd, level, name, from, len) })
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's contract.
    unsafe {
        with_list(fd, Moves::Out, list, count.max(0) as usize, &[], |list, used| next_writev(fd, list, used as c_int))
    }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: the caller's contract.
    unsafe {
        with_list(fd, Moves::WhatIsThere, list, count.max(0) as usize, &[], |list, used| {
            next_preadv(fd, list, used as c_int, at)
        })
    }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv64(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: the caller's contract. Both are the same on this machine.
    unsafe { preadv(fd, list, count, at) }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: the caller's contract.
    unsafe {
        with_list(fd, Moves::Out, list, count.max(0) as usize, &[], |list, used| {
            next_pwritev(fd, list, used as c_int, at)
        })
    }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev64(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: the caller's contract. Both are the same on this machine.
    unsafe { pwritev(fd, list, count, at) }
}

next!(next_preadv2, c"preadv64v2", (fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t);
next!(next_pwritev2, c"pwritev64v2", (fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t);

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's contract.
    unsafe {
        with_list(fd, Moves::WhatIsThere, list, count.max(0) as usize, &[], |list, used| {
            next_preadv2(fd, list, used as c_int, at, flags)
        })
    }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's contract.
    unsafe {
        with_list(fd, Moves::Out, list, count.max(0) as usize, &[], |list, used| {
            next_pwritev2(fd, list, used as c_int, at, flags)
        })
    }
}

next!(next_recvmmsg, c"recvmmsg", (fd: c_int, list: *mut libc::mmsghdr, count: c_uint, flags: c_int, time: *mut timespec) -> c_int);
next!(next_sendmmsg, c"sendmmsg", (fd: c_int, list: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int);

/// Moves messages one by one, until one fails: what was moved before is told.
fn each_message(list: *mut libc::mmsghdr, count: c_uint, mut call: impl FnMut(*mut msghdr, usize) -> ssize_t) -> c_int {
    for index in 0..count as usize {
        // SAFETY: the caller gives so many messages.
        let message = unsafe { &mut *list.add(index) };
        let moved = call(&raw mut message.msg_hdr, index);
        if moved < 0 {
            return if index > 0 { index as c_int } else { -1 };
        }
        message.msg_len = moved as c_uint;
    }
    count as c_int
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    list: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
    time: *mut timespec,
) -> c_int {
    // With a time, what the messages point to has to be in DRAM.
    if in_line().is_none() || !time.is_null() {
        // SAFETY: the caller's contract.
        return with(&[many(list, count as usize), one(time)], || unsafe {
            next_recvmmsg(fd, list, count, flags, time)
        });
    }
    each_message(list, count, |message, index| {
        let after_one = if flags & libc::MSG_WAITFORONE != 0 && index > 0 { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: the caller's contract.
        unsafe { recvmsg(fd, message, flags & !libc::MSG_WAITFORONE | after_one) }
    })
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(fd: c_int, list: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int {
    if in_line().is_none() {
        // SAFETY: the caller's contract.
        return unsafe { next_sendmmsg(fd, list, count, flags) };
    }
    // SAFETY: the caller's contract.
    each_message(list, count, |message, _| unsafe { sendmsg(fd, message, flags) })
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if in_line().is_none() {
        // SAFETY: the caller's contract.
        return unsafe { next_recvmsg(fd, message, flags) };
    }
    // SAFETY: the caller gives a message. What the kernel changes of it is copied back.
    unsafe {
        let mut copied = *message;
        let others = [
            (copied.msg_name as usize, copied.msg_namelen as usize),
            (copied.msg_control as usize, copied.msg_controllen),
        ];
        let result = with_list(fd, reads(flags), copied.msg_iov, copied.msg_iovlen, &others, |list, used| {
            copied = msghdr { msg_iov: list.cast_mut(), msg_iovlen: used, ..*message };
            next_recvmsg(fd, &raw mut copied, flags)
        });
        (*message).msg_namelen = copied.msg_namelen;
        ((*message).msg_controllen, (*message).msg_flags) = (copied.msg_controllen, copied.msg_flags);
        result
    }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if in_line().is_none() {
        // SAFETY: the caller's contract.
        return unsafe { next_sendmsg(fd, message, flags) };
    }
    // SAFETY: the caller gives a message.
    unsafe {
        let message = *message;
        let others = [
            (message.msg_name as usize, message.msg_namelen as usize),
            (message.msg_control as usize, message.msg_controllen),
        ];
        with_list(fd, Moves::Out, message.msg_iov, message.msg_iovlen, &others, |list, used| {
            let copied = msghdr { msg_iov: list.cast_mut(), msg_iovlen: used, ..message };
            next_sendmsg(fd, &raw const copied, flags)
        })
    }
}

// ---- streams of the C library, which read and write past these functions ----

next!(next_fread, c"fread", (to: *mut c_void, size: size_t, count: size_t, file: *mut libc::FILE) -> size_t);
next!(next_fwrite, c"fwrite", (from: *const c_void, size: size_t, count: size_t, file: *mut libc::FILE) -> size_t);
next!(next_fread_unlocked, c"fread_unlocked", (to: *mut c_void, size: size_t, count: size_t, file: *mut libc::FILE) -> size_t);
next!(next_fwrite_unlocked, c"fwrite_unlocked", (from: *const c_void, size: size_t, count: size_t, file: *mut libc::FILE) -> size_t);
next!(next_setvbuf, c"setvbuf", (file: *mut libc::FILE, buffer: *mut c_char, mode: c_int, len: size_t) -> c_int);

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fread(to: *mut c_void, size: size_t, count: size_t, file: *mut libc::FILE) -> size_t {
    // SAFETY: the caller's contract.
    unsafe { items(to as usize, size, count, |to, len| next_fread(to as *mut c_void, 1, len, file)) }
        // SAFETY: as above.
        .unwrap_or_else(|| unsafe { next_fread(to, size, count, file) })
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fread_unlocked(to: *mut c_void, size: size_t, count: size_t, file: *mut libc::FILE) -> size_t {
    // SAFETY: the caller's contract.
    unsafe { items(to as usize, size, count, |to, len| next_fread_unlocked(to as *mut c_void, 1, len, file)) }
        // SAFETY: as above.
        .unwrap_or_else(|| unsafe { next_fread_unlocked(to, size, count, file) })
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwrite(from: *const c_void, size: size_t, count: size_t, file: *mut libc::FILE) -> size_t {
    // SAFETY: the caller's contract.
    unsafe { items(from as usize, size, count, |from, len| next_fwrite(from as *const c_void, 1, len, file)) }
        // SAFETY: as above.
        .unwrap_or_else(|| unsafe { next_fwrite(from, size, count, file) })
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwrite_unlocked(
    from: *const c_void,
    size: size_t,
    count: size_t,
    file: *mut libc::FILE,
) -> size_t {
    // SAFETY: the caller's contract.
    unsafe { items(from as usize, size, count, |from, len| next_fwrite_unlocked(from as *const c_void, 1, len, file)) }
        // SAFETY: as above.
        .unwrap_or_else(|| unsafe { next_fwrite_unlocked(from, size, count, file) })
}

/// Moves items of a stream in pieces. None where they are not memory of flash.
unsafe fn items(
    address: usize,
    size: usize,
    count: usize,
    mut call: impl FnMut(usize, usize) -> usize,
) -> Option<usize> {
    let bytes = size.checked_mul(count)?;
    let run = in_line().filter(|run| run.buffer.part_of(address, bytes).is_some())?;
    let (most, mut done) = ((run.buffer.hold_most() - 1) * PAGE, 0);
    while done < bytes {
        let (from, piece) = (address + done, most.min(bytes - done));
        let held = run.buffer.hold(from, piece);
        let moved = call(from, piece);
        run.buffer.let_go(held);
        done += moved;
        if moved < piece {
            break;
        }
    }
    Some(done / size.max(1))
}

/// A buffer in memory of flash is replaced by one of the C library: its calls do not come by here.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setvbuf(file: *mut libc::FILE, buffer: *mut c_char, mode: c_int, len: size_t) -> c_int {
    let is_ours = in_line().is_some_and(|run| run.buffer.part_of(buffer as usize, len).is_some());
    let buffer = if is_ours { std::ptr::null_mut() } else { buffer };
    // SAFETY: the caller's contract. Without a buffer, the C library takes its own.
    unsafe { next_setvbuf(file, buffer, mode, len) }
}

// ---- the same in programs that were built to check lengths (`_FORTIFY_SOURCE`) ----

unsafe extern "C" {
    fn __chk_fail() -> !;
}

/// Defines functions that end the program where a buffer is too short, and else are others.
macro_rules! checked {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty: $bytes:expr, $room:expr => $plain:expr;)*) => {$(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the caller's contract, and that of the plain function.
            unsafe {
                if $bytes > $room {
                    __chk_fail();
                }
                $plain
            }
        }
    )*};
}

checked! {
    __read_chk(fd: c_int, to: Out<c_void>, len: size_t, room: size_t) -> ssize_t: len, room => read(fd, to, len);
    __pread_chk(fd: c_int, to: Out<c_void>, len: size_t, at: off_t, room: size_t) -> ssize_t: len, room => pread(fd, to, len, at);
    __pread64_chk(fd: c_int, to: Out<c_void>, len: size_t, at: off_t, room: size_t) -> ssize_t: len, room => pread(fd, to, len, at);
    __recv_chk(fd: c_int, to: Out<c_void>, len: size_t, room: size_t, flags: c_int) -> ssize_t: len, room => recv(fd, to, len, flags);
    __recvfrom_chk(fd: c_int, to: Out<c_void>, len: size_t, room: size_t, flags: c_int, from: Out<sockaddr>, from_len: Out<socklen_t>) -> ssize_t: len, room => recvfrom(fd, to, len, flags, from, from_len);
    __fread_chk(to: Out<c_void>, room: size_t, size: size_t, count: size_t, file: Out<libc::FILE>) -> size_t: size.saturating_mul(count), room => fread(to, size, count, file);
    __fread_unlocked_chk(to: Out<c_void>, room: size_t, size: size_t, count: size_t, file: Out<libc::FILE>) -> size_t: size.saturating_mul(count), room => fread_unlocked(to, size, count, file);
    __poll_chk(list: Out<libc::pollfd>, count: libc::nfds_t, time: c_int, room: size_t) -> c_int: count as usize, room / size_of::<libc::pollfd>() => poll(list, count, time);
    __ppoll_chk(list: Out<libc::pollfd>, count: libc::nfds_t, time: In<timespec>, set: In<libc::sigset_t>, room: size_t) -> c_int: count as usize, room / size_of::<libc::pollfd>() => crate::signals::ppoll(list, count, time, set);
    __readlink_chk(path: Text, to: Out<c_char>, len: size_t, room: size_t) -> ssize_t: len, room => readlink(path, to, len);
    __readlinkat_chk(at: c_int, path: Text, to: Out<c_char>, len: size_t, room: size_t) -> ssize_t: len, room => readlinkat(at, path, to, len);
    __getcwd_chk(to: Out<c_char>, len: size_t, room: size_t) -> Out<c_char>: len, room => getcwd(to, len);
}

// ---- raw system calls by the C library's function ----

/// Waits for words (`futex`) are made with the word resident, and all others as they are.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    // Not by the C library: this library makes its own calls by here as well.
    // SAFETY: the caller's contract.
    let call = || match unsafe { fulgurite_sys::arch::system_call(number as usize, [a, b, c, d, e, f]) } {
        error @ -4095..=-1 => crate::errno::fail(-error as c_int) as isize,
        result => result,
    };
    let result = match number {
        // Some name two words. Where it is none, it is a number, which points to nothing here.
        libc::SYS_futex => with(&[(a, 4), (d, size_of::<timespec>()), (e, 4)], call),
        _ => (call)(),
    };
    result as c_long
}

// ---- programs ----

next!(next_execve, c"execve", (path: Text, words: *const Text, environment: *const Text) -> c_int);
next!(next_execvpe, c"execvpe", (name: Text, words: *const Text, environment: *const Text) -> c_int);
next!(next_spawn, c"posix_spawn", (pid: Out<libc::pid_t>, path: Text, actions: Actions, attributes: Attributes, words: *const Text, environment: *const Text) -> c_int);
next!(next_spawnp, c"posix_spawnp", (pid: Out<libc::pid_t>, path: Text, actions: Actions, attributes: Attributes, words: *const Text, environment: *const Text) -> c_int);

type Actions = *const libc::posix_spawn_file_actions_t;
type Attributes = *const libc::posix_spawnattr_t;

unsafe extern "C" {
    static environ: *const Text;
}

/// A list of strings that ends in null: copies in DRAM where any of it is in memory of flash.
struct Strings {
    given: *const Text,
    copies: Option<(Vec<Text>, Vec<Vec<u8>>)>,
}

impl Strings {
    /// # Safety
    /// The list is null, or one of strings that ends in null.
    unsafe fn of(list: *const Text) -> Strings {
        let mut count = 0;
        // SAFETY: the caller's contract.
        while !list.is_null() && !unsafe { *list.add(count) }.is_null() {
            count += 1;
        }
        // SAFETY: as above. So many have been looked at.
        let strings = if list.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(list, count) } };
        let is_ours = |at: usize, len| in_line().is_some_and(|run| run.buffer.part_of(at, len).is_some());
        let is_there = |string: &Text| {
            // SAFETY: as above.
            !is_ours(*string as usize, unsafe { CStr::from_ptr(*string) }.count_bytes() + 1)
        };
        if !is_ours(list as usize, (count + 1) * size_of::<Text>()) && strings.iter().all(is_there) {
            return Strings { given: list, copies: None };
        }
        // SAFETY: as above.
        let copy = |string: &Text| unsafe { CStr::from_ptr(*string) }.to_bytes_with_nul().to_vec();
        let copies: Vec<Vec<u8>> = strings.iter().map(copy).collect();
        let pointers = copies.iter().map(|string| string.as_ptr().cast()).chain([std::ptr::null()]).collect();
        Strings { given: list, copies: Some((pointers, copies)) }
    }
    fn list(&self) -> *const Text {
        self.copies.as_ref().map_or(self.given, |(list, _)| list.as_ptr())
    }
}

thread_local! {
    /// What this thread has passed to a program that took its place. After `vfork` the thread is
    /// its parent's, which goes on with the memory that the call leaves.
    static PASSED: Cell<Option<[Strings; 3]>> = const { Cell::new(None) };
}

type Exec = unsafe fn(Text, *const Text, *const Text) -> c_int;

/// Becomes another program. Nothing is held meanwhile: after `vfork`, nobody would let it go.
///
/// # Safety
/// As the C library's.
unsafe fn becomes(next: Exec, path: Text, words: *const Text, environment: *const Text) -> c_int {
    if in_line().is_none() {
        // SAFETY: the caller's contract.
        return unsafe { next(path, words, environment) };
    }
    let paths = [path, std::ptr::null()];
    // SAFETY: the caller's contract.
    let strings = [paths.as_ptr(), words, environment].map(|list| unsafe { Strings::of(list) });
    let [paths, words, environment] = strings.each_ref().map(Strings::list);
    // Of a thread that ends they are here until the call has failed.
    let mut strings = Some(strings);
    let _ = PASSED.try_with(|passed| passed.set(strings.take()));
    // SAFETY: the caller's contract. The path is the first of its list.
    let failed = unsafe { next(*paths, words, environment) };
    let kept = errno();
    let _ = PASSED.try_with(Cell::take);
    crate::errno::fail(kept);
    failed
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: Text, words: *const Text, environment: *const Text) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { becomes(next_execve, path, words, environment) }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: Text, words: *const Text) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { execve(path, words, environ) }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(name: Text, words: *const Text, environment: *const Text) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { becomes(next_execvpe, name, words, environment) }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(name: Text, words: *const Text) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { execvpe(name, words, environ) }
}

/// Defines the functions that start a program. Until that has begun, the child is in this memory
/// with all signals blocked: what it looks at is held.
macro_rules! spawners {
    ($($name:ident, $next:ident;)*) => {$(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: *mut libc::pid_t,
            path: Text,
            actions: Actions,
            attributes: Attributes,
            words: *const Text,
            environment: *const Text,
        ) -> c_int {
            if in_line().is_none() {
                // SAFETY: the caller's contract.
                return unsafe { $next(pid, path, actions, attributes, words, environment) };
            }
            // SAFETY: the caller's contract. The actions are two numbers and an address of a list
            // (glibc's `posix_spawn_file_actions_t`).
            unsafe {
                let (words, environment) = (Strings::of(words), Strings::of(environment));
                let list = if actions.is_null() { (0, 0) } else { (actions.cast::<usize>().add(1).read(), 2 * PAGE) };
                with(&[text(path), one(actions), one(attributes), list], || {
                    $next(pid, path, actions, attributes, words.list(), environment.list())
                })
            }
        }
    )*};
}

spawners! {
    posix_spawn, next_spawn;
    posix_spawnp, next_spawnp;
}
