//! Functions of the C library that this one stands in for. Each decides whether it is about memory
//! of the page buffer, and else makes the system call of its name.

use std::ffi::{c_int, c_void};

use fulgurite_fault::Access;
use libc::{off_t, size_t};

use crate::run::{Run, run};

const PAGE: usize = 4096;

pub fn fail(errno: c_int) -> c_int {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn answer(result: Result<(), i32>) -> c_int {
    result.map_or_else(fail, |()| 0)
}

/// What a program may do with a protection, if a page buffer can keep to it.
fn access(protection: c_int) -> Option<Access> {
    match protection {
        libc::PROT_NONE => Some(Access::None),
        libc::PROT_READ => Some(Access::Read),
        p if p == libc::PROT_READ | libc::PROT_WRITE || p == libc::PROT_WRITE => Some(Access::ReadWrite),
        _ => None,
    }
}

/// Makes the system call `mmap`.
///
/// # Safety
/// As `mmap`.
unsafe fn kernel_mmap(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { libc::syscall(libc::SYS_mmap, address, len, protection, flags, fd, offset) as *mut c_void }
}

/// What a mapping is for the page buffer: private memory, large enough, that can be read and
/// written to from the start.
fn is_ours(run: &Run, len: usize, protection: c_int, flags: c_int) -> bool {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let refused = libc::MAP_SHARED
        | libc::MAP_GROWSDOWN
        | libc::MAP_STACK
        | libc::MAP_HUGETLB
        | libc::MAP_32BIT
        | libc::MAP_LOCKED;
    len >= run.threshold && protection == libc::PROT_READ | libc::PROT_WRITE && flags & (kind | refused) == kind
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
    // SAFETY: the caller's contract.
    let by_kernel = || unsafe { kernel_mmap(address, len, protection, flags, fd, offset) };
    let Some(run) = run() else { return by_kernel() };
    let buffer = &run.buffer;
    if fixed == 0 {
        if !is_ours(run, len, protection, flags) {
            return by_kernel();
        }
        return match buffer.map(len, None, Access::ReadWrite) {
            Ok(address) => address as *mut c_void,
            Err(errno) => {
                if errno == libc::ENOMEM {
                    run.is_full();
                }
                fail(errno);
                libc::MAP_FAILED
            }
        };
    }
    let at = address as usize;
    if !buffer.touches(at, len) {
        return by_kernel();
    }
    // Over memory of ours: only what can be ours again. Anything else would leave a hole in the
    // region that is not watched.
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let Some(access) = access(protection).filter(|_| flags & (kind | libc::MAP_SHARED) == kind) else {
        fail(libc::ENOTSUP);
        return libc::MAP_FAILED;
    };
    let mapped = if fixed == libc::MAP_FIXED { buffer.unmap(at, len) } else { Ok(()) };
    match mapped.and_then(|()| buffer.map(len, Some(at), access)) {
        Ok(address) => address as *mut c_void,
        Err(errno) => {
            fail(if fixed == libc::MAP_FIXED { errno } else { libc::EEXIST });
            libc::MAP_FAILED
        }
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's contract. Both are the same on this machine.
    unsafe { mmap(address, len, protection, flags, fd, offset) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, len: size_t) -> c_int {
    match run() {
        Some(run) if run.buffer.contains(address as usize) => answer(run.buffer.unmap(address as usize, len)),
        // SAFETY: the caller's contract.
        _ => unsafe { libc::syscall(libc::SYS_munmap, address, len) as c_int },
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(address: *mut c_void, len: size_t, protection: c_int) -> c_int {
    match run() {
        Some(run) if len > 0 && run.buffer.contains(address as usize) => match access(protection) {
            Some(access) => answer(run.buffer.protect(address as usize, len, access)),
            None => fail(libc::EACCES),
        },
        // SAFETY: the caller's contract.
        _ => unsafe { libc::syscall(libc::SYS_mprotect, address, len, protection) as c_int },
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(address: *mut c_void, len: size_t, advice: c_int) -> c_int {
    match run() {
        Some(run) if len > 0 && run.buffer.contains(address as usize) => {
            answer(advise(run, address as usize, len, advice))
        }
        // SAFETY: the caller's contract.
        _ => unsafe { libc::syscall(libc::SYS_madvise, address, len, advice) as c_int },
    }
}

fn advise(run: &Run, address: usize, len: usize, advice: c_int) -> Result<(), i32> {
    if !run.buffer.is_mapped(address, len) {
        return Err(libc::ENOMEM);
    }
    match advice {
        // What may be dropped is dropped: it is not written to flash then.
        libc::MADV_DONTNEED | libc::MADV_FREE => run.buffer.drop_contents(address, len),
        libc::MADV_NORMAL
        | libc::MADV_RANDOM
        | libc::MADV_SEQUENTIAL
        | libc::MADV_WILLNEED
        | libc::MADV_HUGEPAGE
        | libc::MADV_NOHUGEPAGE
        | libc::MADV_MERGEABLE
        | libc::MADV_UNMERGEABLE
        | libc::MADV_DODUMP
        | libc::MADV_DONTDUMP
        | libc::MADV_DONTFORK
        | libc::MADV_COLD
        | libc::MADV_PAGEOUT => Ok(()),
        _ => Err(libc::EINVAL),
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(address: *mut c_void, len: size_t, advice: c_int) -> c_int {
    if run().is_some_and(|run| run.buffer.contains(address as usize)) || advice == libc::POSIX_MADV_DONTNEED {
        // POSIX's advice never drops anything.
        return 0;
    }
    // SAFETY: the caller's contract.
    let result = unsafe { libc::syscall(libc::SYS_madvise, address, len, advice) };
    if result == 0 {
        return 0;
    }
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// # Safety
/// As the C library's. The fifth argument is there only with `MREMAP_FIXED`, which is passed on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    address: *mut c_void,
    old_len: size_t,
    new_len: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let Some(run) = run().filter(|run| run.buffer.contains(address as usize)) else {
        // SAFETY: the caller's contract.
        return unsafe { libc::syscall(libc::SYS_mremap, address, old_len, new_len, flags, to) as *mut c_void };
    };
    match remap(run, address as usize, old_len, new_len, flags) {
        Ok(address) => address as *mut c_void,
        Err(errno) => {
            fail(errno);
            libc::MAP_FAILED
        }
    }
}

pub fn remap(run: &Run, at: usize, old_len: usize, new_len: usize, flags: c_int) -> Result<usize, i32> {
    let pages = |len: usize| len.checked_next_multiple_of(PAGE).filter(|len| *len > 0).ok_or(libc::EINVAL);
    let (old, new, buffer) = (pages(old_len)?, pages(new_len)?, &run.buffer);
    if !at.is_multiple_of(PAGE) || flags & !libc::MREMAP_MAYMOVE != 0 {
        return Err(libc::EINVAL);
    }
    if !buffer.is_mapped(at, old) {
        return Err(libc::EFAULT);
    }
    if new < old {
        buffer.unmap(at + new, old - new)?;
        return Ok(at);
    }
    if new == old || buffer.map(new - old, Some(at + old), Access::ReadWrite).is_ok() {
        return Ok(at);
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return Err(libc::ENOMEM);
    }
    let to = buffer.map(new, None, Access::ReadWrite)?;
    // SAFETY: both ranges are mapped, of that length, and the new one is nobody else's yet. The old
    // one may be read: the caller gives it up.
    unsafe { std::ptr::copy_nonoverlapping(at as *const u8, to as *mut u8, old) };
    buffer.unmap(at, old)?;
    Ok(to)
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msync(address: *mut c_void, len: size_t, flags: c_int) -> c_int {
    match run() {
        // Private memory has nothing to be in step with.
        Some(run) if len > 0 && run.buffer.contains(address as usize) => {
            if run.buffer.is_mapped(address as usize, len) { 0 } else { fail(libc::ENOMEM) }
        }
        // SAFETY: the caller's contract.
        _ => unsafe { libc::syscall(libc::SYS_msync, address, len, flags) as c_int },
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(address: *const c_void, len: size_t) -> c_int {
    match run() {
        // A lock would keep pages from moving. What it promises, no wait for a page, is not kept.
        Some(run) if len > 0 && run.buffer.contains(address as usize) => fail(libc::ENOMEM),
        // SAFETY: the caller's contract.
        _ => unsafe { libc::syscall(libc::SYS_mlock, address, len) as c_int },
    }
}
