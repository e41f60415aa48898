//! Kernel calls that only measuring makes, safe to call: a file mapped over an arena's range, and a
//! range brought into memory.
//!
//! Invariant: no function of this module can break memory safety. It decides nothing.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use fulgurite_sys::Arena;

/// The usual read-ahead of a device (`read_ahead_kb`), which bounds one piece of advice.
const READ_AHEAD_BYTES: usize = 128 << 10;

/// Maps `bytes` of the file, shared and writable, over the beginning of the arena, for random
/// accesses (no read-ahead).
///
/// # Panics
/// When the arena is shorter than that, or `bytes` is not a multiple of 4096.
pub fn map_over(arena: &Arena, file: &File, bytes: usize) -> io::Result<()> {
    assert!(bytes <= arena.len() && bytes.is_multiple_of(4096), "{bytes} bytes over an arena of {}", arena.len());
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: the range is inside the arena's own mapping (asserted). Its bytes are reached as
    // atomics and opaque copies and never borrowed, so a new backing is one more concurrent store.
    // The arena unmaps the whole range on drop. The file is unlinked or ours, so nothing truncates
    // it.
    let at = unsafe { libc::mmap(arena.base().as_ptr().cast(), bytes, protection, flags, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range was mapped just now; the advice changes no bytes.
    match unsafe { libc::madvise(at, bytes, libc::MADV_RANDOM) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Brings `bytes` from the address `base` on into memory in large requests, from swap or a file.
/// What does not fit stays.
///
/// # Errors
/// The kernel's: `ENOMEM` when part of the range is not mapped.
pub fn bring_in(base: usize, bytes: usize) -> io::Result<()> {
    for offset in (0..bytes).step_by(READ_AHEAD_BYTES) {
        let (at, len) = (std::ptr::without_provenance_mut(base + offset), READ_AHEAD_BYTES.min(bytes - offset));
        // SAFETY: the advice changes no bytes and no mapping, whatever range it is given.
        if unsafe { libc::madvise(at, len, libc::MADV_WILLNEED) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fulgurite_sys::Backed;

    use super::*;

    #[test]
    fn a_file_is_mapped_over_an_arena() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let arena = Arena::anonymous(16_384, Backed::BasePages).unwrap();
        map_over(&arena, &file, 8192).unwrap();
        bring_in(arena.base().as_ptr().addr(), 8192).unwrap();
        assert!(bring_in(4096, 4096).is_err(), "nothing is mapped there");
        arena.write(4096, &[7; 8192]);
        let mut got = vec![0; 8192];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut got, 0).unwrap();
        assert!(got[..4096].iter().all(|b| *b == 0) && got[4096..].iter().all(|b| *b == 7));
    }
}
