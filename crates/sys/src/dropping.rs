//! Pages that leave the memory of this process together.
//!
//! A page that leaves has to leave the translations that other processors keep, too. Where the
//! process runs on them, that interrupts them, and in a virtual machine each interruption is an
//! exit. `process_madvise` of this process drops many scattered pages with one interruption (Linux
//! 6.16).

use crate::arch::system_call;

const PAGE: usize = 4096;

/// Pages of one call.
const BATCH: usize = 64;
/// `PIDFD_SELF_THREAD` (Linux 6.14): no descriptor is needed, and all threads share the memory.
const THIS_PROCESS: libc::c_int = -10_000;
/// `MADV_DONTNEED_LOCKED` (Linux 5.18): as `MADV_DONTNEED`, also where memory is locked.
const DROP: libc::c_int = 24;

/// Drops the pages at these addresses. Calls `failed` with the index of each that is still there.
///
/// The caller vouches that the pages are of a mapping of this process, to which no reference of
/// Rust exists.
pub(crate) fn drop_pages(addresses: impl Iterator<Item = usize>, mut failed: impl FnMut(usize)) {
    let mut addresses = addresses.peekable();
    let mut first = 0;
    while addresses.peek().is_some() {
        let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: PAGE }; BATCH];
        let mut count = 0;
        for (part, address) in parts.iter_mut().zip(addresses.by_ref().take(BATCH)) {
            part.iov_base = address as *mut libc::c_void;
            count += 1;
        }
        let done = if count > 1 { together(&parts[..count]) } else { 0 };
        for (index, part) in parts[..count].iter().enumerate().skip(done) {
            let arguments = [part.iov_base as usize, PAGE, DROP as usize, 0, 0, 0];
            // SAFETY: the caller's promise. The kernel is called directly: a library that stands in
            // for `madvise` and `syscall` may call this.
            if unsafe { system_call(libc::SYS_madvise as usize, arguments) } != 0 {
                failed(first + index);
            }
        }
        first += count;
    }
}

/// Drops them in one call, and returns how many of the first ones are gone.
fn together(parts: &[libc::iovec]) -> usize {
    // SAFETY: as above. An older kernel does nothing.
    let done = unsafe { libc::syscall(libc::SYS_process_madvise, THIS_PROCESS, parts.as_ptr(), parts.len(), DROP, 0) };
    usize::try_from(done).unwrap_or(0) / PAGE
}
