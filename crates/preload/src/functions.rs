//! Functions of the C library that this one stands in for. Each decides whether it is about memory
//! of the page buffer, and else makes the system call of its name. A range that is only partly in
//! the page buffer's region is taken part by part, in the order of addresses.

use std::ffi::{c_int, c_uchar, c_uint, c_void};

use fulgurite_fault::Access;
use libc::{off_t, size_t};

use crate::allocator::next;
use crate::errno::{fail, kernel};
use crate::objects;
use crate::run::{Run, run};

const PAGE: usize = 4096;
/// glibc's `PTHREAD_MUTEX_ROBUST`.
const ROBUST: c_int = 1;

next!(next_mutex_init, c"pthread_mutex_init", (mutex: *mut libc::pthread_mutex_t, attributes: *const libc::pthread_mutexattr_t) -> c_int);
next!(get_robust, c"pthread_mutexattr_getrobust", (attributes: *const libc::pthread_mutexattr_t, to: *mut c_int) -> c_int);

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

/// A range that touches the page buffer's region.
#[derive(Clone, Copy)]
struct Range {
    start: usize,
    end: usize,
    /// The part in the region.
    ours: (usize, usize),
}

impl Range {
    /// A range of whole pages from a page on. None where it does not touch the region, and where
    /// the kernel refuses it.
    fn of(run: &Run, address: *const c_void, len: usize) -> Option<Range> {
        let (start, len) = (address as usize, len.checked_next_multiple_of(PAGE)?);
        let (at, length) = run.buffer.part_of(start, len).filter(|_| start.is_multiple_of(PAGE))?;
        Some(Range { start, end: start.checked_add(len)?, ours: (at, at + length) })
    }
    fn is_inside(&self) -> bool {
        self.ours == (self.start, self.end)
    }
    /// Calls `kernels` or `ours` for each part. Returns the first error, behind which nothing is
    /// called if that is so.
    fn each(
        &self,
        ends_at_error: bool,
        mut kernels: impl FnMut(usize, usize) -> Result<(), i32>,
        mut ours: impl FnMut(usize, usize) -> Result<(), i32>,
    ) -> Result<(), i32> {
        let parts =
            [(self.start, self.ours.0, false), (self.ours.0, self.ours.1, true), (self.ours.1, self.end, false)];
        let mut first = Ok(());
        for (from, to, is_ours) in parts.into_iter().filter(|(from, to, _)| from < to) {
            let result = if is_ours { ours(from, to - from) } else { kernels(from, to - from) };
            first = first.and(result);
            if first.is_err() && ends_at_error {
                break;
            }
        }
        first
    }
}

/// The run, and a range, if that touches the run's region.
fn ours(address: *const c_void, len: usize) -> Option<(&'static Run, Range)> {
    let run = run()?;
    Some((run, Range::of(run, address, len)?))
}

/// What a system call says.
fn said(result: libc::c_long) -> Result<(), i32> {
    // SAFETY: the location is this thread's own.
    if result == -1 { Err(unsafe { *libc::__errno_location() }) } else { Ok(()) }
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
    unsafe {
        kernel(
            libc::SYS_mmap,
            [address as usize, len, protection as usize, flags as usize, fd as usize, offset as usize],
        ) as *mut c_void
    }
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
        return match run.map(len) {
            Ok(address) => address as *mut c_void,
            Err(errno) => {
                fail(errno);
                libc::MAP_FAILED
            }
        };
    }
    let Some(range) = Range::of(run, address, len) else { return by_kernel() };
    // Over memory of the region: only what the region can hold again. Anything else would leave a
    // hole in the region that is not watched.
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let Some(access) = access(protection).filter(|_| flags & (kind | libc::MAP_SHARED) == kind) else {
        fail(libc::ENOTSUP);
        return libc::MAP_FAILED;
    };
    let mapped = if !run.ensure_own_memory() {
        Err(libc::ENOMEM)
    } else if fixed & libc::MAP_FIXED_NOREPLACE != 0 {
        // The whole region is mapped for the kernel.
        let inside = Some(range).filter(Range::is_inside).ok_or(libc::EEXIST);
        inside.and_then(|_| buffer.map(len, Some(range.start), access).map_err(|_| libc::EEXIST)).map(drop)
    } else {
        range.each(
            true,
            // SAFETY: the caller's contract.
            |from, len| said(unsafe { kernel_mmap(from as *mut c_void, len, protection, flags, fd, offset) } as i64),
            |from, len| buffer.replace(from, len, access),
        )
    };
    match mapped {
        Ok(()) => address,
        Err(errno) => {
            fail(errno);
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
    // SAFETY: the caller's contract.
    let by_kernel = |from: usize, len: usize| unsafe { kernel(libc::SYS_munmap, [from, len, 0, 0, 0, 0]) };
    match ours(address, len) {
        Some((run, range)) => {
            answer(range.each(true, |from, len| said(by_kernel(from, len)), |from, len| run.buffer.unmap(from, len)))
        }
        None => by_kernel(address as usize, len) as c_int,
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(address: *mut c_void, len: size_t, protection: c_int) -> c_int {
    // SAFETY: the caller's contract.
    let by_kernel = |from, len| unsafe { kernel(libc::SYS_mprotect, [from, len, protection as usize, 0, 0, 0]) };
    let Some((run, range)) = ours(address, len) else { return by_kernel(address as usize, len) as c_int };
    let Some(access) = access(protection) else { return fail(libc::EACCES) };
    answer(range.each(true, |from, len| said(by_kernel(from, len)), |from, len| run.buffer.protect(from, len, access)))
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(address: *mut c_void, len: size_t, advice: c_int) -> c_int {
    // SAFETY: the caller's contract.
    let by_kernel = |from, len| unsafe { kernel(libc::SYS_madvise, [from, len, advice as usize, 0, 0, 0]) };
    match ours(address, len) {
        // Memory that is not mapped is an error, which does not keep the rest from being advised.
        Some((run, range)) => answer(range.each(
            false,
            |from, len| said(by_kernel(from, len)),
            |from, len| advise(run, from, len, advice),
        )),
        None => by_kernel(address as usize, len) as c_int,
    }
}

fn advise(run: &Run, address: usize, len: usize, advice: c_int) -> Result<(), i32> {
    match advice {
        // What may be dropped is dropped: it is not written to flash then.
        libc::MADV_DONTNEED | libc::MADV_FREE => run.buffer.drop_contents(address, len)?,
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
        | libc::MADV_DOFORK
        | libc::MADV_COLD
        | libc::MADV_PAGEOUT => {}
        _ => return Err(libc::EINVAL),
    }
    if run.buffer.is_mapped(address, len) { Ok(()) } else { Err(libc::ENOMEM) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(address: *mut c_void, len: size_t, advice: c_int) -> c_int {
    if ours(address, len).is_some() || advice == libc::POSIX_MADV_DONTNEED {
        // POSIX's advice never drops anything.
        return 0;
    }
    // SAFETY: the caller's contract.
    said(unsafe { kernel(libc::SYS_madvise, [address as usize, len, advice as usize, 0, 0, 0]) }).err().unwrap_or(0)
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
    let to_ours = flags & libc::MREMAP_FIXED != 0 && ours(to, new_len).is_some();
    let result = match ours(address, old_len.max(1)) {
        Some((run, range)) if range.is_inside() => {
            let to = (flags & libc::MREMAP_FIXED != 0).then_some(to as usize);
            remap(run, address as usize, old_len, new_len, flags, to)
        }
        // A part of the kernel's and a part of the region are two mappings.
        Some(_) => Err(libc::EFAULT),
        // It would leave a hole in the region that is not watched.
        None if to_ours => Err(libc::EINVAL),
        None => {
            // SAFETY: the caller's contract.
            return unsafe {
                let arguments = [address as usize, old_len, new_len, flags as usize, to as usize, 0];
                kernel(libc::SYS_mremap, arguments) as *mut c_void
            };
        }
    };
    match result {
        Ok(address) => address as *mut c_void,
        Err(errno) => {
            fail(errno);
            libc::MAP_FAILED
        }
    }
}

/// Remaps memory of the region, also to an address of the caller's choice.
pub fn remap(
    run: &Run,
    at: usize,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    fixed: Option<usize>,
) -> Result<usize, i32> {
    let pages = |len: usize| len.checked_next_multiple_of(PAGE).filter(|len| *len > 0).ok_or(libc::EINVAL);
    let (old, new, buffer) = (pages(old_len)?, pages(new_len)?, &run.buffer);
    let may_move = flags & libc::MREMAP_MAYMOVE != 0;
    let keeps = flags & libc::MREMAP_DONTUNMAP != 0;
    let known = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    if !at.is_multiple_of(PAGE) || flags & !known != 0 || keeps && (!may_move || old != new) {
        return Err(libc::EINVAL);
    }
    if !buffer.is_mapped(at, old) {
        return Err(libc::EFAULT);
    }
    if (fixed.is_some() || keeps || new > old) && !run.ensure_own_memory() {
        return Err(libc::ENOMEM);
    }
    if let Some(to) = fixed {
        let apart = to.checked_add(new).is_some_and(|end| end <= at) || to >= at + old;
        if !may_move || !to.is_multiple_of(PAGE) || !apart {
            return Err(libc::EINVAL);
        }
        match ours(to as *const c_void, new) {
            Some((_, range)) if range.is_inside() => buffer.replace(to, new, Access::ReadWrite)?,
            Some(_) => return Err(libc::EINVAL),
            None => {
                let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                // SAFETY: the caller gives up what is mapped at this address.
                said(unsafe { kernel_mmap(to as *mut c_void, new, protection, flags | libc::MAP_FIXED, -1, 0) } as i64)?;
            }
        }
        // SAFETY: the new range was just mapped for this.
        return unsafe { move_to(run, at, old, to, new, keeps) };
    }
    if new < old {
        buffer.unmap(at + new, old - new)?;
        return Ok(at);
    }
    let access = buffer.limited_of(at + old - PAGE, PAGE).first().map_or(Access::ReadWrite, |(_, _, access)| *access);
    if !keeps && (new == old || buffer.map(new - old, Some(at + old), access).is_ok()) {
        return Ok(at);
    }
    if !may_move {
        return Err(libc::ENOMEM);
    }
    let to = buffer.map(new, None, Access::ReadWrite)?;
    // SAFETY: the new range was just mapped for this.
    unsafe { move_to(run, at, old, to, new, keeps) }
}

/// Moves what a mapping holds, and what the program may do there, to a new one. Unmaps the old one,
/// or keeps it as memory that reads as zeros.
///
/// # Safety
/// The new one is mapped for reading and writing, and nobody else's. The old one is the caller's.
unsafe fn move_to(run: &Run, at: usize, old: usize, to: usize, new: usize, keeps: bool) -> Result<usize, i32> {
    let (buffer, kept) = (&run.buffer, old.min(new));
    let limited = buffer.limited_of(at, kept);
    let closed: Vec<_> = limited.iter().filter(|(_, _, access)| *access == Access::None).copied().collect();
    for &(from, len, _) in &closed {
        buffer.protect(from, len, Access::Read)?;
    }
    // SAFETY: both ranges are mapped, of that length, and apart. The old one may be read.
    unsafe { std::ptr::copy_nonoverlapping(at as *const u8, to as *mut u8, kept) };
    for (from, len, access) in limited {
        let from = to + (from - at);
        if buffer.contains(to) {
            buffer.protect(from, len, access)?;
        } else {
            let protection = if access == Access::Read { libc::PROT_READ } else { libc::PROT_NONE };
            // SAFETY: the range is in the new mapping.
            said(unsafe { kernel(libc::SYS_mprotect, [from, len, protection as usize, 0, 0, 0]) })?;
        }
    }
    if !keeps {
        buffer.unmap(at, old)?;
        return Ok(to);
    }
    for (from, len, access) in closed {
        buffer.protect(from, len, access)?;
    }
    buffer.drop_contents(at, old)?;
    Ok(to)
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msync(address: *mut c_void, len: size_t, flags: c_int) -> c_int {
    // SAFETY: the caller's contract.
    let by_kernel = |from, len| unsafe { kernel(libc::SYS_msync, [from, len, flags as usize, 0, 0, 0]) };
    match ours(address, len) {
        // Private memory has nothing to be in step with.
        Some((run, range)) => answer(range.each(
            false,
            |from, len| said(by_kernel(from, len)),
            |from, len| if run.buffer.is_mapped(from, len) { Ok(()) } else { Err(libc::ENOMEM) },
        )),
        None => by_kernel(address as usize, len) as c_int,
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mincore(address: *mut c_void, len: size_t, there: *mut c_uchar) -> c_int {
    let begin = address as usize;
    let by_kernel = |from: usize, len: usize| {
        let there = there as usize + (from - begin) / PAGE;
        // SAFETY: the caller gives a byte for each page.
        unsafe { kernel(libc::SYS_mincore, [from, len, there, 0, 0, 0]) as c_int }
    };
    let spans = [(there as usize, len.div_ceil(PAGE))];
    match ours(address, len) {
        // The region is mapped for the kernel, whatever the program has of it.
        Some((run, range)) => answer(range.each(
            true,
            |from, len| said(crate::calls::with(&spans, || by_kernel(from, len)).into()),
            |from, len| match run.buffer.is_mapped(from, len) {
                true => said(crate::calls::with(&spans, || by_kernel(from, len)).into()),
                false => Err(libc::ENOMEM),
            },
        )),
        None => crate::calls::with(&spans, || by_kernel(begin, len)),
    }
}

/// A robust mutex is unlocked by the kernel when its owner ends. It reads the mutex only if that is
/// in DRAM, and nothing can bring it there for a thread that ends.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut libc::pthread_mutex_t,
    attributes: *const libc::pthread_mutexattr_t,
) -> c_int {
    if let Some(run) = run()
        .filter(|run| !attributes.is_null() && (run.buffer.contains(mutex as usize) || objects::is_one(mutex.cast())))
    {
        let mut robust = 0;
        // SAFETY: the caller gives attributes or null.
        let known = unsafe { get_robust(attributes, &raw mut robust) };
        if known == 0 && robust == ROBUST {
            run.no_robust();
            return libc::ENOTSUP;
        }
    }
    // SAFETY: the caller's contract.
    unsafe { next_mutex_init(mutex, attributes) }
}

/// Whether pages from `address` to `address + len`, which need not begin on a page, are the page
/// buffer's. A lock would keep them from moving. What it promises, no wait for a page, is not kept.
fn is_lock_refused(address: *const c_void, len: usize) -> bool {
    let is_ours = |run: &Run| run.buffer.part_of(address as usize, len).is_some();
    len > 0 && (run().is_some_and(is_ours) || objects::are_in(address as usize, len))
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(address: *const c_void, len: size_t) -> c_int {
    if is_lock_refused(address, len) {
        return fail(libc::ENOMEM);
    }
    // SAFETY: the caller's contract.
    unsafe { kernel(libc::SYS_mlock, [address as usize, len, 0, 0, 0, 0]) as c_int }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(address: *const c_void, len: size_t, flags: c_uint) -> c_int {
    if is_lock_refused(address, len) {
        return fail(libc::ENOMEM);
    }
    // SAFETY: the caller's contract.
    unsafe { kernel(libc::SYS_mlock2, [address as usize, len, flags as usize, 0, 0, 0]) as c_int }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    // All of the program's memory would have to be in DRAM.
    if run().is_some() {
        return fail(libc::ENOMEM);
    }
    // SAFETY: the caller's contract.
    unsafe { kernel(libc::SYS_mlockall, [flags as usize, 0, 0, 0, 0, 0]) as c_int }
}
