//! Functions of programs that were built to check lengths (`_FORTIFY_SOURCE`): the checked forms of
//! `calls`, `buffers` and `signals`.

use std::ffi::{c_char, c_int, c_void};

use libc::{off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};

use crate::buffers::{fread, fread_unlocked, pread, read, recv, recvfrom};
use crate::calls::{In, Out, Text, getcwd, poll, readlink, readlinkat};
use crate::signals::ppoll;

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
            // SAFETY: the caller's contract, and the contract of the plain function.
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
    __ppoll_chk(list: Out<libc::pollfd>, count: libc::nfds_t, time: In<timespec>, set: In<libc::sigset_t>, room: size_t) -> c_int: count as usize, room / size_of::<libc::pollfd>() => ppoll(list, count, time, set);
    __readlink_chk(path: Text, to: Out<c_char>, len: size_t, room: size_t) -> ssize_t: len, room => readlink(path, to, len);
    __readlinkat_chk(at: c_int, path: Text, to: Out<c_char>, len: size_t, room: size_t) -> ssize_t: len, room => readlinkat(at, path, to, len);
    __getcwd_chk(to: Out<c_char>, len: size_t, room: size_t) -> Out<c_char>: len, room => getcwd(to, len);
}
