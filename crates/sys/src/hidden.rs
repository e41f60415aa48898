//! Memory whose missing pages are hidden from the program, for machines that give no userfaultfd: a
//! file without a name, mapped over a region. An access to a hidden page is a `SIGSEGV`.
//!
//! ```text
//!            write                       show
//!   arena  ----------> page of the file -------> region         hidden: a guard marker in the page
//!   (ours) <---------- page of the file <------- (program)      table, or no access at all
//!            read, discard               hide
//! ```
//!
//! A page of the file is written while the program cannot see it, so nobody finds it half filled.
//! It is hidden before it is read, so nobody changes it any more.
//!
//! Guard markers (`MADV_GUARD_INSTALL`, Linux 6.15 for memory of files) split no mapping. Where the
//! kernel has none, hidden pages are inaccessible ones. Then each lone page takes a mapping, and
//! the kernel allows 65,530.
//!
//! The file is reached by `pread` and `pwrite` and never mapped a second time. A second mapping
//! would count each page twice in what the kernel says of the process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::fs::{FallocateFlags, MemfdFlags};

use crate::descriptors::above_standard;
use crate::userfault::Access;
use crate::{Arena, DirectFile, Region};

const PAGE: usize = 4096;

/// `MADV_GUARD_INSTALL` and `MADV_GUARD_REMOVE`. The headers of a distribution may be older than
/// its kernel.
const GUARD_INSTALL: libc::c_int = 102;
const GUARD_REMOVE: libc::c_int = 103;

/// How pages are hidden.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hiding {
    /// By guard markers in the page table.
    Guards,
    /// By taking all access away, which may take a mapping for each page.
    Protection,
}

/// The file behind a region. See the module.
#[derive(Debug)]
pub struct HiddenFile {
    file: OwnedFd,
    hiding: Hiding,
}

impl HiddenFile {
    /// Maps a new file over all of a region, which nothing may access yet. With `hiding`, only by
    /// that method, else by the best that the kernel has.
    ///
    /// # Errors
    /// The kernel's. The region is as it was then, or mapped and inaccessible.
    pub fn back(region: &Region, hiding: Option<Hiding>) -> io::Result<HiddenFile> {
        // Beyond the limit, the kernel would end the process.
        if DirectFile::limit_bytes().is_some_and(|limit| limit < region.len() as u64) {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let file = above_standard(|| rustix::fs::memfd_create("fulgurite pages", MemfdFlags::CLOEXEC))?;
        rustix::fs::ftruncate(&file, region.len() as u64)?;
        region.map_over(file.as_fd(), 0, region.len(), Access::None)?;
        let guards = HiddenFile { file, hiding: Hiding::Guards };
        let hiding = match hiding {
            Some(hiding) => hiding,
            // One page tells.
            None => guards.hide(region, 0, PAGE).map_or(Hiding::Protection, |()| Hiding::Guards),
        };
        Ok(HiddenFile { hiding, ..guards })
    }

    /// How pages are hidden.
    #[must_use]
    pub fn hiding(&self) -> Hiding {
        self.hiding
    }

    /// Hides pages of the region from the program. What they hold stays in the file.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When the range is not inside the region.
    pub fn hide(&self, region: &Region, offset: usize, len: usize) -> io::Result<()> {
        match self.hiding {
            Hiding::Guards => self.guard(region, offset, len, GUARD_INSTALL),
            Hiding::Protection => region.allow(offset, len, Access::None),
        }
    }

    /// Shows pages of the region to the program, for what it may do with them. With guard markers,
    /// what it may do is what the region says.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When the range is not inside the region.
    pub fn show(&self, region: &Region, offset: usize, len: usize, access: Access) -> io::Result<()> {
        match self.hiding {
            Hiding::Guards => self.guard(region, offset, len, GUARD_REMOVE),
            Hiding::Protection => region.allow(offset, len, access),
        }
    }

    fn guard(&self, region: &Region, offset: usize, len: usize, advice: libc::c_int) -> io::Result<()> {
        match region.advise_raw(offset, len, advice) {
            // Locked memory has no guards.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                region.unlock_around(offset);
                region.advise_raw(offset, len, advice)
            }
            result => result,
        }
    }

    /// Writes a page of an arena to the page at `to` in the file.
    ///
    /// # Errors
    /// The kernel's: no memory.
    ///
    /// # Panics
    /// When the place is not inside the arena.
    pub fn write(&self, arena: &Arena, from: usize, to: usize) -> io::Result<()> {
        let bytes = arena.range(from, PAGE);
        // SAFETY: the page is mapped for the life of the arena (checked above).
        let done = unsafe { libc::syscall(libc::SYS_pwrite64, self.file.as_raw_fd(), bytes.as_ptr(), PAGE, to) };
        whole(done)
    }

    /// Reads the page at `from` in the file into a page of an arena.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When the place is not inside the arena.
    pub fn read(&self, from: usize, arena: &Arena, to: usize) -> io::Result<()> {
        let bytes = arena.range(to, PAGE);
        // SAFETY: the page is mapped and writable for the life of the arena (checked above). It is
        // reached as opaque copies or atomics only.
        let done = unsafe { libc::syscall(libc::SYS_pread64, self.file.as_raw_fd(), bytes.as_ptr(), PAGE, from) };
        whole(done)
    }

    /// Gives the memory of pages of the file back. They read as zero.
    ///
    /// # Errors
    /// The kernel's.
    pub fn discard(&self, offset: usize, len: usize) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, offset as u64, len as u64)?)
    }
}

fn whole(done: libc::c_long) -> io::Result<()> {
    match done {
        -1 => Err(io::Error::last_os_error()),
        n if n == PAGE as libc::c_long => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Tells a child after `fork` from the process that made this.
#[derive(Debug)]
pub struct ForkMark(Arena);

impl ForkMark {
    /// Makes one in this process.
    ///
    /// # Errors
    /// When the kernel has no memory, or no such memory (before Linux 4.14).
    pub fn new() -> io::Result<ForkMark> {
        let arena = crate::process::wiped_by_forks()?;
        arena.words(0, 1)[0].store(1, Ordering::Relaxed);
        Ok(ForkMark(arena))
    }
    /// Whether this process is a child. A child of `vfork` is none: it has its parent's memory.
    #[must_use]
    pub fn is_child(&self) -> bool {
        self.0.words(0, 1)[0].load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backed;

    #[test]
    fn what_was_hidden_is_there_when_it_is_shown_again() {
        for hiding in [None, Some(Hiding::Protection)] {
            let region = Region::reserve(8 * PAGE).unwrap();
            let file = HiddenFile::back(&region, hiding).unwrap();
            println!("hidden by {:?}", file.hiding());
            let arena = Arena::anonymous(2 * PAGE, Backed::BasePages).unwrap();
            if file.hiding() == Hiding::Guards {
                file.hide(&region, 0, 8 * PAGE).unwrap();
                region.allow(0, 8 * PAGE, Access::ReadWrite).unwrap();
            }
            arena.write(0, b"shown");
            file.write(&arena, 0, 3 * PAGE).unwrap();
            file.show(&region, 3 * PAGE, PAGE, Access::ReadWrite).unwrap();
            let at = (region.base() + 3 * PAGE) as *mut u8;
            // SAFETY: the page is shown, and nobody else's.
            unsafe {
                assert_eq!(at.read_volatile(), b's');
                at.write_volatile(b'S');
            }
            file.hide(&region, 3 * PAGE, PAGE).unwrap();
            file.read(3 * PAGE, &arena, PAGE).unwrap();
            let mut bytes = [0; 5];
            arena.read(PAGE, &mut bytes);
            assert_eq!(&bytes, b"Shown");
            // The kernel does not see it, either.
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            // SAFETY: the kernel refuses what is hidden.
            let written = unsafe { libc::write(writer.as_raw_fd(), at.cast(), 5) };
            assert_eq!((written, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EFAULT)));
            drop(reader);
            file.discard(3 * PAGE, PAGE).unwrap();
            file.read(3 * PAGE, &arena, PAGE).unwrap();
            arena.read(PAGE, &mut bytes);
            assert_eq!(bytes, [0; 5]);
        }
    }
}
