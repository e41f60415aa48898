//! Arenas: long-lived ranges of mapped memory that several threads, and devices, reach at once.
//!
//! An arena is where frames live and where emulated flash keeps its data. Its bytes are never
//! borrowed as `&[u8]`: they are copied in and out whole (opaque to the compiler, see
//! [`crate::arch::copy_opaque`]), or reached as atomics by the layers that know the owner of each
//! frame. Invariant: the mapping lives, at one address, as long as the `Arena`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::SealFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::descriptors::above_standard;
use crate::{arch, planted};

/// What is behind an arena's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backed {
    /// Anonymous memory in transparent huge pages where the kernel gives them.
    HugePages,
    /// Anonymous memory in base pages.
    BasePages,
}

/// Why an arena could not be made or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The kernel refused.
    #[error("cannot map {bytes} bytes of memory: {source}; ask for less, or raise the limits (ulimit -v, cgroup)")]
    Map {
        /// How much was asked for.
        bytes: usize,
        /// The kernel's word.
        source: io::Error,
    },
    /// What another process handed over can change its size, and so disappear under its mappings.
    #[error(
        "the memory handed over is not sealed against changes of its size; seal it (F_SEAL_SHRINK and F_SEAL_GROW)"
    )]
    NotSealed,
}

/// A mapped range of memory. Anonymous ones are huge-page aligned where they are at least one huge
/// page long.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    len: usize,
    mapped_base: NonNull<u8>,
    mapped_len: usize,
    file: Option<File>,
}

// SAFETY: an arena hands out raw pointers and opaque copies only. It has no thread-bound state.
unsafe impl Send for Arena {}
// SAFETY: as above. Concurrent copies may tear but never break memory safety (`copy_opaque`).
unsafe impl Sync for Arena {}

const HUGE: usize = 2 << 20;

impl Arena {
    /// Maps `bytes` (rounded up to base pages) of zeroed anonymous memory. Untouched pages cost
    /// nothing.
    ///
    /// # Errors
    /// [`ArenaError::Map`] when the kernel refuses.
    pub fn anonymous(bytes: usize, backed: Backed) -> Result<Arena, ArenaError> {
        let fail = |source: io::Error| ArenaError::Map { bytes, source };
        let len = bytes.max(1).checked_next_multiple_of(4096).ok_or_else(|| fail(io::ErrorKind::OutOfMemory.into()))?;
        let mapped_len = len.checked_add(HUGE).ok_or_else(|| fail(io::ErrorKind::OutOfMemory.into()))?;
        planted::set_up(libc::ENOMEM).map_err(fail)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no
        // existing memory.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), mapped_len, ProtFlags::READ | ProtFlags::WRITE, flags) }
                .map_err(|e| fail(e.into()))?;
        let aligned = (start as usize).next_multiple_of(HUGE) as *mut u8;
        let advice = match backed {
            Backed::HugePages => Advice::LinuxHugepage,
            Backed::BasePages => Advice::LinuxNoHugepage,
        };
        // Whole huge pages only: a table of a few base pages must not take 2 MiB.
        let whole = if backed == Backed::HugePages { len / HUGE * HUGE } else { len };
        // SAFETY: both ranges are inside the mapping just made. Refusal (no THP in this kernel)
        // costs speed only.
        unsafe {
            let _ = madvise(aligned.cast(), whole, advice);
            let _ = madvise(aligned.add(whole).cast(), len - whole, Advice::LinuxNoHugepage);
        }
        Ok(Arena {
            base: NonNull::new(aligned).expect("mmap never returns null"),
            len,
            mapped_base: NonNull::new(start.cast()).expect("mmap never returns null"),
            mapped_len,
            file: None,
        })
    }

    /// Maps the whole of `file` (a memfd, say), shared and writable.
    ///
    /// # Errors
    /// [`ArenaError::Map`] when the file has no size or the kernel refuses.
    pub fn shared(file: File) -> Result<Arena, ArenaError> {
        let len = file.metadata().map_err(|source| ArenaError::Map { bytes: 0, source })?.len() as usize;
        let fail = |source: io::Error| ArenaError::Map { bytes: len, source };
        if len == 0 {
            return Err(fail(io::ErrorKind::InvalidInput.into()));
        }
        planted::set_up(libc::ENOMEM).map_err(fail)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice. That the file may be
        // truncated by another process (SIGBUS) is the owner's affair: ours are sealed memfds.
        let start =
            unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0) }
                .map_err(|e| fail(e.into()))?;
        let base = NonNull::new(start.cast()).expect("mmap never returns null");
        Ok(Arena { base, len, mapped_base: base, mapped_len: len, file: Some(file) })
    }

    /// Creates a memfd of `bytes`, and maps it: memory that can be handed to another process.
    ///
    /// # Errors
    /// [`ArenaError::Map`] when the kernel refuses.
    pub fn memfd(name: &str, bytes: usize) -> Result<Arena, ArenaError> {
        let fail = |e: rustix::io::Errno| ArenaError::Map { bytes, source: e.into() };
        planted::set_up(libc::EMFILE).map_err(|source| ArenaError::Map { bytes, source })?;
        let fd = above_standard(|| rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)).map_err(fail)?;
        rustix::fs::ftruncate(&fd, bytes.next_multiple_of(4096) as u64).map_err(fail)?;
        Arena::shared(File::from(fd))
    }

    /// Creates a memfd of `bytes` whose size can never change again, and maps it: memory that can
    /// be shared with a process that is not trusted.
    ///
    /// # Errors
    /// [`ArenaError::Map`] when the kernel refuses.
    pub fn sealed_memfd(name: &str, bytes: usize) -> Result<Arena, ArenaError> {
        let fail = |e: rustix::io::Errno| ArenaError::Map { bytes, source: e.into() };
        planted::set_up(libc::EMFILE).map_err(|source| ArenaError::Map { bytes, source })?;
        let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        let fd = above_standard(|| rustix::fs::memfd_create(name, flags)).map_err(fail)?;
        rustix::fs::ftruncate(&fd, bytes.next_multiple_of(4096) as u64).map_err(fail)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(fail)?;
        Arena::shared(File::from(fd))
    }

    /// Maps what another process handed over, if its size can never change again: otherwise
    /// shrinking it would kill the processes that touch it.
    ///
    /// # Errors
    /// [`ArenaError::NotSealed`] when it is not sealed, or no memfd. [`ArenaError::Map`] when the
    /// kernel refuses.
    pub fn shared_sealed(file: File) -> Result<Arena, ArenaError> {
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| ArenaError::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(ArenaError::NotSealed);
        }
        Arena::shared(file)
    }

    /// Words of the arena that several threads, or processes, load and store as atomics.
    ///
    /// # Panics
    /// When the range is not inside the arena, or does not begin at a multiple of 8.
    #[inline(always)]
    #[must_use]
    pub fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        assert!(
            offset.is_multiple_of(8) && count <= self.len / 8,
            "{count} words at {offset} are no words of an arena"
        );
        self.check(offset, count * 8);
        // SAFETY: the range is mapped, writable, initialised (a mapping begins as zeros or as a
        // file's bytes, and any bits are a word) and aligned (the mapping begins on a page) for the
        // life of `self`. Every other access is as atomics, by copies that are opaque to the
        // compiler, or from another process or device, which is the same to this one.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset).cast::<AtomicU64>(), count) }
    }

    /// The memfd behind the arena, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Locks a byte of the memfd behind the arena for this process, until that ends or becomes
    /// another program. A child after `fork` does not have the lock.
    ///
    /// # Errors
    /// The kernel's. `EAGAIN` when another process has locked it, and `EBADF` without a memfd.
    pub fn lock_byte(&self, at: u64) -> io::Result<()> {
        self.lock(at, libc::F_SETLK).map(drop)
    }
    /// Whether another process has locked a byte.
    #[must_use]
    pub fn is_byte_locked(&self, at: u64) -> bool {
        self.lock(at, libc::F_GETLK).is_ok_and(|lock| i32::from(lock.l_type) != libc::F_UNLCK)
    }
    fn lock(&self, at: u64, command: libc::c_int) -> io::Result<libc::flock> {
        let file = self.file.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        // SAFETY: all zeros is a value of this structure.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_whence) = (libc::F_WRLCK as libc::c_short, libc::SEEK_SET as libc::c_short);
        (lock.l_start, lock.l_len) = (at as libc::off_t, 1);
        // SAFETY: the call reads and writes the structure that it is given.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
        if result == 0 { Ok(lock) } else { Err(io::Error::last_os_error()) }
    }

    /// Bytes in the arena.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether the arena has no bytes (it always has some).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Its first byte.
    #[inline(always)]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// When the range is not inside the arena.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        // SAFETY: the range is mapped for the life of `self` (checked above); `into` is an
        // exclusive borrow elsewhere.
        unsafe { arch::copy_opaque(self.base.as_ptr().add(offset), into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// When the range is not inside the arena.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: the range is mapped and writable for the life of `self`. `from` is a borrow, so
        // it does not overlap.
        unsafe { arch::copy_opaque(from.as_ptr(), self.base.as_ptr().add(offset), from.len()) }
    }

    /// Fills a range with zeros.
    ///
    /// # Panics
    /// When the range is not inside the arena.
    pub fn zero(&self, offset: usize, len: usize) {
        self.check(offset, len);
        // SAFETY: the range is mapped and writable for the life of `self` (checked above).
        unsafe { arch::zero_opaque(self.base.as_ptr().add(offset), len) }
    }

    /// Copies from one arena to another without a buffer in between.
    ///
    /// # Panics
    /// When a range is not inside its arena, or both arenas are the same.
    pub fn copy(from: &Arena, from_offset: usize, to: &Arena, to_offset: usize, len: usize) {
        from.check(from_offset, len);
        to.check(to_offset, len);
        assert!(!std::ptr::eq(from, to), "an arena is not copied onto itself");
        // SAFETY: both ranges are mapped (checked above) and belong to different mappings, so they
        // do not overlap.
        unsafe {
            arch::copy_opaque(from.base.as_ptr().add(from_offset), to.base.as_ptr().add(to_offset), len);
        }
    }

    /// Copies bytes from one place of the arena to another.
    ///
    /// # Panics
    /// When a range is not inside the arena, or they overlap.
    pub fn copy_within(&self, from_offset: usize, to_offset: usize, len: usize) {
        self.check(from_offset, len);
        self.check(to_offset, len);
        assert!(
            from_offset.abs_diff(to_offset) >= len,
            "ranges of {len} bytes at {from_offset} and {to_offset} overlap"
        );
        // SAFETY: both ranges are mapped and do not overlap (checked above).
        unsafe {
            arch::copy_opaque(self.base.as_ptr().add(from_offset), self.base.as_ptr().add(to_offset), len);
        }
    }

    /// Allows huge pages in a range, or forbids them: where memory was given back in part, the
    /// kernel would fill the holes sooner or later. Whole huge pages inside the range only.
    ///
    /// # Panics
    /// When the range is not inside the arena.
    pub fn allow_huge_pages(&self, offset: usize, len: usize, allow: bool) {
        self.check(offset, len);
        let (start, end) = (offset.next_multiple_of(HUGE), (offset + len) / HUGE * HUGE);
        if start < end {
            let advice = if allow { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
            // SAFETY: the range is inside the mapping. Its contents do not change.
            let _ = unsafe { madvise(self.base.as_ptr().add(start).cast(), end - start, advice) };
        }
    }

    /// Leaves the arena out of children of this process, or not. In them, each page of it is shared
    /// until it is written to, and cannot be moved.
    pub fn inherit(&self, inherited: bool) {
        let advice = if inherited { Advice::LinuxDoFork } else { Advice::LinuxDontFork };
        // SAFETY: the mapping is ours. Its contents do not change.
        let _ = unsafe { madvise(self.mapped_base.as_ptr().cast(), self.mapped_len, advice) };
    }

    /// Gives the memory of a range back to the kernel. It reads as zero afterwards, in every
    /// process that has mapped it. Whole base pages inside it only.
    ///
    /// # Panics
    /// When the range is not inside the arena.
    pub fn discard(&self, offset: usize, len: usize) {
        self.check(offset, len);
        let start = offset.next_multiple_of(4096);
        let end = (offset + len) & !4095;
        if start < end {
            // Of a file only a hole gives memory back.
            let advice = if self.file.is_some() { Advice::LinuxRemove } else { Advice::LinuxDontNeed };
            // SAFETY: the range is inside the mapping. Its bytes are only ever reached as opaque
            // copies or atomics, to which a change to zero is one more concurrent store.
            let _ = unsafe { madvise(self.base.as_ptr().add(start).cast(), end - start, advice) };
        }
    }

    /// Gives the memory of single base pages of an anonymous arena back to the kernel, and
    /// interrupts the processors that the program runs on once for all of them (Linux 6.16; before,
    /// once for each). They read as zero afterwards.
    ///
    /// # Panics
    /// When a page is not inside the arena, or does not begin one.
    pub fn discard_pages(&self, offsets: impl Iterator<Item = usize>) {
        let address = |offset: usize| {
            self.check(offset, 4096);
            assert!(offset.is_multiple_of(4096), "no page begins at {offset}");
            self.base.as_ptr() as usize + offset
        };
        // What stays, stays until its frame is used again.
        crate::dropping::drop_pages(offsets.map(address), drop);
    }

    /// The first byte of a range, for callers that pass it to the kernel or a device. Valid as long
    /// as the arena.
    ///
    /// # Panics
    /// When the range is not inside the arena.
    #[inline(always)]
    #[must_use]
    pub fn range(&self, offset: usize, len: usize) -> NonNull<u8> {
        self.check(offset, len);
        // SAFETY: `offset` is inside the mapping (checked above).
        unsafe { self.base.add(offset) }
    }

    #[inline(always)]
    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "bytes {offset}..+{len} are outside an arena of {} bytes",
            self.len
        );
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by us and is unmapped once, here. Pointers handed out do not
        // outlive the arena by the contract of their callers (they hold the `Arena` in an `Arc`).
        let _ = unsafe { munmap(self.mapped_base.as_ptr().cast(), self.mapped_len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let a = Arena::anonymous(3 * 4096 + 1, Backed::BasePages).unwrap();
        assert_eq!(a.len(), 4 * 4096);
        let b = Arena::memfd("test", 4096).unwrap();
        a.write(4090, b"across a page");
        Arena::copy(&a, 4090, &b, 7, 13);
        let mut got = [0; 13];
        b.read(7, &mut got);
        assert_eq!(&got, b"across a page");
        b.zero(7, 6);
        b.read(7, &mut got);
        assert_eq!(&got, b"\0\0\0\0\0\0 a page");
    }
    #[test]
    fn discarded_memory_of_a_file_is_given_back() {
        use std::os::unix::fs::MetadataExt;
        let a = Arena::sealed_memfd("test", 1 << 20).unwrap();
        a.write(0, &vec![7; 1 << 20]);
        let blocks = || File::from(a.file().unwrap().try_clone_to_owned().unwrap()).metadata().unwrap().blocks();
        let before = blocks();
        a.discard(4096, 512 << 10);
        assert_eq!(before - blocks(), (512 << 10) / 512);
        let mut byte = [1];
        a.read(4096, &mut byte);
        assert_eq!(byte, [0]);
        a.read(0, &mut byte);
        assert_eq!(byte, [7]);
    }
    #[test]
    fn discarded_memory_reads_as_zero() {
        let a = Arena::anonymous(4 << 20, Backed::HugePages).unwrap();
        a.write(0, &[7; 8192]);
        a.discard(0, 4096);
        let mut got = [1; 8192];
        a.read(0, &mut got);
        assert!(got[..4096].iter().all(|&b| b == 0) && got[4096..].iter().all(|&b| b == 7));
    }
    #[test]
    #[should_panic(expected = "outside an arena")]
    fn a_range_outside_is_refused() {
        Arena::anonymous(4096, Backed::BasePages).unwrap().read(4095, &mut [0; 2]);
    }
    #[test]
    fn words_and_bytes_are_the_same_memory() {
        let a = Arena::anonymous(4096, Backed::BasePages).unwrap();
        a.words(4088, 1)[0].store(7, std::sync::atomic::Ordering::Relaxed);
        let mut got = [0; 8];
        a.read(4088, &mut got);
        assert_eq!(u64::from_ne_bytes(got), 7);
        for (offset, count) in [(4, 1), (4096, 1), (0, 513), (8, usize::MAX / 4)] {
            assert!(std::panic::catch_unwind(|| a.words(offset, count).len()).is_err(), "{count} words at {offset}");
        }
    }
    #[test]
    fn what_can_shrink_is_not_mapped() {
        let file = |arena: &Arena| File::from(arena.file().unwrap().try_clone_to_owned().unwrap());
        let sealed = Arena::sealed_memfd("test", 4096).unwrap();
        assert!(Arena::shared_sealed(file(&sealed)).is_ok());
        assert!(file(&sealed).set_len(0).is_err() && file(&sealed).set_len(8192).is_err());
        assert!(matches!(Arena::shared_sealed(file(&Arena::memfd("test", 4096).unwrap())), Err(ArenaError::NotSealed)));
        assert!(matches!(Arena::shared_sealed(File::open("/dev/null").unwrap()), Err(ArenaError::NotSealed)));
    }
    #[test]
    fn too_much_is_an_error() {
        assert!(Arena::anonymous(usize::MAX - 5000, Backed::BasePages).is_err());
        assert!(Arena::anonymous(1 << 62, Backed::BasePages).is_err());
    }
}
