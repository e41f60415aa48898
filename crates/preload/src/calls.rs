//! Functions of the C library that pass addresses to the kernel, where the kernel's own accesses to
//! missing pages fail: what they point to is made resident before, and stays so until they return.
//!
//! Nothing is to be done where a page buffer serves the kernel as well, nor for addresses that are
//! not of its region: that is one load and a comparison each.
//!
//! Long buffers and lists of them are in `buffers`, and what starts programs in `programs`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use fulgurite_fault::Held;
use libc::{mode_t, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};

use crate::allocator::next;
use crate::objects;
use crate::run::{Run, run};

/// An address, and bytes from there on.
pub type Span = (usize, usize);

/// Most spans that are held at a time.
pub const SPANS: usize = 40;
/// How often a call is made again whose pages were taken away nevertheless: by a fork.
const TRIES: usize = 4;

/// The run, if its pages have to be there for the kernel.
#[inline]
pub fn in_line() -> Option<&'static Run> {
    run().filter(|run| run.buffer.is_in_line())
}

/// Whether a span has pages that have to be there for the kernel.
pub fn needs_pages((at, len): Span) -> bool {
    in_line().is_some_and(|run| run.buffer.part_of(at, len).is_some())
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

pub fn errno() -> c_int {
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

pub const PAGE: usize = 4096;

/// A string with its end. It is read only where it is memory of flash, which makes it resident.
pub fn text(string: *const c_char) -> Span {
    match in_line().filter(|run| run.buffer.contains(string as usize)) {
        // SAFETY: the caller gives a string that ends in zero.
        Some(_) => (string as usize, unsafe { CStr::from_ptr(string) }.count_bytes() + 1),
        None => (string as usize, 0),
    }
}
/// One value.
pub fn one<T>(value: *const T) -> Span {
    (value as usize, size_of::<T>())
}
/// Several values.
pub fn many<T>(values: *const T, count: usize) -> Span {
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

pub type Text = *const c_char;
pub type Out<T> = *mut T;
pub type In<T> = *const T;

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
    statfs64, next_statfs64, c"statfs64", (path: Text, to: Out<libc::statfs64>) -> c_int, [text(path), one(to)];
    fstatfs64, next_fstatfs64, c"fstatfs64", (fd: c_int, to: Out<libc::statfs64>) -> c_int, [one(to)];
    statvfs, next_statvfs, c"statvfs", (path: Text, to: Out<libc::statvfs>) -> c_int, [text(path)];
    statvfs64, next_statvfs64, c"statvfs64", (path: Text, to: Out<libc::statvfs64>) -> c_int, [text(path)];
    fstatfs, next_fstatfs, c"fstatfs", (fd: c_int, to: Out<libc::statfs>) -> c_int, [one(to)];
    truncate, next_truncate, c"truncate", (path: Text, len: off_t) -> c_int, [text(path)];
    truncate64, next_truncate64, c"truncate64", (path: Text, len: off_t) -> c_int, [text(path)];
    mkstemp, next_mkstemp, c"mkstemp", (path: Out<c_char>) -> c_int, [text(path)];
    mkstemp64, next_mkstemp64, c"mkstemp64", (path: Out<c_char>) -> c_int, [text(path)];
    mkostemp, next_mkostemp, c"mkostemp", (path: Out<c_char>, flags: c_int) -> c_int, [text(path)];
    mkostemp64, next_mkostemp64, c"mkostemp64", (path: Out<c_char>, flags: c_int) -> c_int, [text(path)];
    mkstemps, next_mkstemps, c"mkstemps", (path: Out<c_char>, behind: c_int) -> c_int, [text(path)];
    mkstemps64, next_mkstemps64, c"mkstemps64", (path: Out<c_char>, behind: c_int) -> c_int, [text(path)];
    mkostemps, next_mkostemps, c"mkostemps", (path: Out<c_char>, behind: c_int, flags: c_int) -> c_int, [text(path)];
    mkostemps64, next_mkostemps64, c"mkostemps64", (path: Out<c_char>, behind: c_int, flags: c_int) -> c_int, [text(path)];
    mkdtemp, next_mkdtemp, c"mkdtemp", (path: Out<c_char>) -> Out<c_char>, [text(path)];
    unlink, next_unlink, c"unlink", (path: Text) -> c_int, [text(path)];
    unlinkat, next_unlinkat, c"unlinkat", (at: c_int, path: Text, flags: c_int) -> c_int, [text(path)];
    remove, next_remove, c"remove", (path: Text) -> c_int, [text(path)];
    rename, next_rename, c"rename", (from: Text, to: Text) -> c_int, [text(from), text(to)];
    renameat, next_renameat, c"renameat", (at: c_int, from: Text, there: c_int, to: Text) -> c_int, [text(from), text(to)];
    renameat2, next_renameat2, c"renameat2", (at: c_int, from: Text, there: c_int, to: Text, flags: c_uint) -> c_int, [text(from), text(to)];
    link, next_link, c"link", (from: Text, to: Text) -> c_int, [text(from), text(to)];
    symlink, next_symlink, c"symlink", (from: Text, to: Text) -> c_int, [text(from), text(to)];
    mkdir, next_mkdir, c"mkdir", (path: Text, mode: mode_t) -> c_int, [text(path)];
    mkdirat, next_mkdirat, c"mkdirat", (at: c_int, path: Text, mode: mode_t) -> c_int, [text(path)];
    rmdir, next_rmdir, c"rmdir", (path: Text) -> c_int, [text(path)];
    chdir, next_chdir, c"chdir", (path: Text) -> c_int, [text(path)];
    chmod, next_chmod, c"chmod", (path: Text, mode: mode_t) -> c_int, [text(path)];
    chown, next_chown, c"chown", (path: Text, user: libc::uid_t, group: libc::gid_t) -> c_int, [text(path)];
    lchown, next_lchown, c"lchown", (path: Text, user: libc::uid_t, group: libc::gid_t) -> c_int, [text(path)];
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
    lsetxattr, next_lsetxattr, c"lsetxattr", (path: Text, name: Text, from: In<c_void>, len: size_t, flags: c_int) -> c_int, [text(path), text(name), (from as usize, len)];
    lgetxattr, next_lgetxattr, c"lgetxattr", (path: Text, name: Text, to: Out<c_void>, len: size_t) -> ssize_t, [text(path), text(name), (to as usize, len)];
    llistxattr, next_llistxattr, c"llistxattr", (path: Text, to: Out<c_char>, len: size_t) -> ssize_t, [text(path), many(to, len)];
    flistxattr, next_flistxattr, c"flistxattr", (fd: c_int, to: Out<c_char>, len: size_t) -> ssize_t, [many(to, len)];
    removexattr, next_removexattr, c"removexattr", (path: Text, name: Text) -> c_int, [text(path), text(name)];
    lremovexattr, next_lremovexattr, c"lremovexattr", (path: Text, name: Text) -> c_int, [text(path), text(name)];
    fremovexattr, next_fremovexattr, c"fremovexattr", (fd: c_int, name: Text) -> c_int, [text(name)];
    inotify_add_watch, next_inotify_add_watch, c"inotify_add_watch", (fd: c_int, path: Text, mask: u32) -> c_int, [text(path)];
    // Of programs that were built before glibc 2.33, which give a version.
    __xstat, next_xstat, c"__xstat", (version: c_int, path: Text, to: Out<libc::stat>) -> c_int, [text(path), one(to)];
    __xstat64, next_xstat64, c"__xstat64", (version: c_int, path: Text, to: Out<libc::stat64>) -> c_int, [text(path), one(to)];
    __lxstat, next_lxstat, c"__lxstat", (version: c_int, path: Text, to: Out<libc::stat>) -> c_int, [text(path), one(to)];
    __lxstat64, next_lxstat64, c"__lxstat64", (version: c_int, path: Text, to: Out<libc::stat64>) -> c_int, [text(path), one(to)];
    __fxstat, next_fxstat, c"__fxstat", (version: c_int, fd: c_int, to: Out<libc::stat>) -> c_int, [one(to)];
    __fxstat64, next_fxstat64, c"__fxstat64", (version: c_int, fd: c_int, to: Out<libc::stat64>) -> c_int, [one(to)];
    __fxstatat, next_fxstatat, c"__fxstatat", (version: c_int, at: c_int, path: Text, to: Out<libc::stat>, flags: c_int) -> c_int, [text(path), one(to)];
    __fxstatat64, next_fxstatat64, c"__fxstatat64", (version: c_int, at: c_int, path: Text, to: Out<libc::stat64>, flags: c_int) -> c_int, [text(path), one(to)];
    // Descriptors.
    signalfd, next_signalfd, c"signalfd", (fd: c_int, mask: In<libc::sigset_t>, flags: c_int) -> c_int, [one(mask)];
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
    sched_setaffinity, next_sched_setaffinity, c"sched_setaffinity", (pid: libc::pid_t, len: size_t, mask: In<libc::cpu_set_t>) -> c_int, [(mask as usize, len)];
    wait4, next_wait4, c"wait4", (pid: libc::pid_t, status: Out<c_int>, options: c_int, usage: Out<libc::rusage>) -> libc::pid_t, [one(status), one(usage)];
    waitpid, next_waitpid, c"waitpid", (pid: libc::pid_t, status: Out<c_int>, options: c_int) -> libc::pid_t, [one(status)];
    wait, next_wait, c"wait", (status: Out<c_int>) -> libc::pid_t, [one(status)];
    getrusage, next_getrusage, c"getrusage", (whose: c_int, to: Out<libc::rusage>) -> c_int, [one(to)];
    getrlimit, next_getrlimit, c"getrlimit", (what: c_int, to: Out<libc::rlimit>) -> c_int, [one(to)];
    getrlimit64, next_getrlimit64, c"getrlimit64", (what: c_int, to: Out<libc::rlimit64>) -> c_int, [one(to)];
    uname, next_uname, c"uname", (to: Out<libc::utsname>) -> c_int, [one(to)];
    sysinfo, next_sysinfo, c"sysinfo", (to: Out<libc::sysinfo>) -> c_int, [one(to)];
    system, next_system, c"system", (words: Text) -> c_int, [text(words)];
    popen, next_popen, c"popen", (words: Text, mode: Text) -> Out<libc::FILE>, [text(words)];
    // Locks whose words the kernel reads before it lets a thread sleep.
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

next!(next_ioctl, c"ioctl", (fd: c_int, request: libc::c_ulong, argument: Out<c_void>) -> c_int);

/// `UFFDIO_REGISTER` of `linux/userfaultfd.h`.
pub const REGISTER: libc::c_ulong = 0xc020_aa00;

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int {
    // Two cannot serve the same faults.
    if request == REGISTER
        && !argument.is_null()
        && let Some(run) = run()
    {
        // SAFETY: the caller gives the range first, as an address and a length.
        let [start, len] = unsafe { argument.cast::<[usize; 2]>().read_unaligned() };
        if run.buffer.part_of(start, len).is_some() || objects::are_in(start, len) {
            run.no_userfaultfd();
            return crate::errno::fail(libc::EBUSY);
        }
    }
    // SAFETY: the caller's contract.
    with(&[(argument as usize, bytes_of_ioctl(request))], || unsafe { next_ioctl(fd, request, argument) })
}

/// Bytes that a request of `ioctl` points to: the number that it contains, or the most that older
/// requests have.
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
