//! Functions of the C library that move bytes, where faults are signals (`calls`): buffers, lists
//! of buffers, messages, and streams.
//!
//! A buffer of many pages is passed in pieces. A read continues only while its pieces are full and
//! the next one is there at once, so it blocks where the whole one would. Messages, and data that
//! is only peeked at (`MSG_PEEK`), are moved by a copy in DRAM instead.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};

use crate::allocator::next;
use crate::calls::{PAGE, Returned, SPANS, Span, errno, getsockopt, in_line, many, needs_pages, one, with};
use crate::objects;
use crate::run::run;

/// Whether a span is too much to be held at once.
fn is_long(address: usize, len: usize) -> bool {
    in_line().is_some_and(|run| len / PAGE + 2 > run.buffer.hold_most()) && needs_pages((address, len))
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
    let result = unsafe { getsockopt(fd, libc::SOL_SOCKET, option, to, &raw mut len) };
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

/// Moves buffers by a copy in DRAM of at most `most` bytes.
fn at_once(buffers: &[iovec], moves: Moves, most: usize, mut call: impl FnMut(usize, usize) -> ssize_t) -> ssize_t {
    let all = buffers.iter().fold(0usize, |all, buffer| all.saturating_add(buffer.iov_len));
    if moves == Moves::Out && most == MESSAGE_MOST && all > most {
        return crate::errno::fail(libc::EMSGSIZE) as ssize_t;
    }
    let mut copy = Vec::new();
    if copy.try_reserve_exact(all.min(most)).is_err() {
        return crate::errno::fail(libc::ENOMEM) as ssize_t;
    }
    copy.resize(all.min(most), 0u8);
    if moves == Moves::Out {
        for (from, at, len) in parts(buffers, copy.len()) {
            // SAFETY: the caller gives buffers of these bytes, and the copy is as long.
            unsafe { std::ptr::copy_nonoverlapping(from, copy.as_mut_ptr().add(at), len) };
        }
    }
    let moved = call(copy.as_mut_ptr() as usize, copy.len());
    if moves != Moves::Out && moved > 0 {
        // The returned length may be more than what was moved (`MSG_TRUNC`).
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
/// the message or the connection nevertheless, and loses it.
fn with_address<T: Returned>(
    to: *mut sockaddr,
    len: *mut socklen_t,
    call: impl FnOnce(*mut sockaddr, *mut socklen_t) -> T,
) -> T {
    // SAFETY: the caller gives null or a length.
    let room = unsafe { len.as_ref() }.map_or(0, |len| *len as usize);
    if to.is_null() || !needs_pages(one(len)) && !needs_pages((to as usize, room)) {
        return call(to, len);
    }
    // SAFETY: all zeros is an address.
    let mut own: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let most = size_of_val(&own).min(room);
    let mut own_len = most as socklen_t;
    let result = call((&raw mut own).cast(), &raw mut own_len);
    if !result.is_failure() {
        // The kernel tells the whole length, also where the address is cut.
        let reported = most.min(own_len as usize);
        // SAFETY: the caller gives room for `reported` bytes, and for a length.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const own).cast::<u8>(), to.cast::<u8>(), reported);
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
/// The list has `count` buffers.
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
    let needs_pages = |(at, len): Span| run.buffer.part_of(at, len).is_some();
    let spans = buffers.iter().map(|buffer| (buffer.iov_base as usize, buffer.iov_len));
    if !spans.chain([many(list, count)]).chain(others.iter().copied()).any(needs_pages) {
        return call(list, count);
    }
    let (mut copied, mut held, mut used, mut left) = ([NO_BUFFER; SPANS], [(0, 0); SPANS], 0, run.buffer.hold_most());
    for (span, other) in held.iter_mut().zip(others) {
        *span = *other;
        left = left.saturating_sub(if needs_pages(*other) { other.1 / PAGE + 2 } else { 0 });
    }
    let mut is_cut = count > SPANS - others.len();
    for buffer in buffers.iter().take(SPANS - others.len()) {
        let (at, mut len) = (buffer.iov_base as usize, buffer.iov_len);
        if needs_pages((at, len)) {
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
        all.into_iter().any(|one| {
            let (at, len) = (one.iov_base as usize, one.iov_len);
            run.buffer.part_of(at, len).is_some() || objects::are_in(at, len)
        })
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

/// Moves messages one by one, until one fails: what was moved before is reported.
fn each_message(list: *mut libc::mmsghdr, count: c_uint, mut call: impl FnMut(*mut msghdr, usize) -> ssize_t) -> c_int {
    for index in 0..count as usize {
        // SAFETY: the caller gives `count` messages.
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
    let buffer = if needs_pages((buffer as usize, len)) { std::ptr::null_mut() } else { buffer };
    // SAFETY: the caller's contract. Without a buffer, the C library takes its own.
    unsafe { next_setvbuf(file, buffer, mode, len) }
}
