//! A file or block device that is read and written past the page cache, from and into an [`Arena`].
//!
//! Invariants: the descriptor is close-on-exec and was opened without following a symbolic link.
//! Offsets, lengths and memory are multiples of 4096 wherever `direct` is in force (the caller's
//! frames are). It does not judge what it opened (kind, size, owner): that is `flash`'s affair, and
//! it retries nothing.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use crate::Arena;
use crate::descriptors::above_standard;

/// fcntl(2): which signal announces a conflict with a lease. Not in `libc`.
const F_SETSIG: libc::c_int = 10;

/// Pieces of a gathered write: their list is on the stack.
pub const GATHERED_MAX: usize = 64;

/// An open file or block device.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    direct: bool,
}

impl DirectFile {
    /// Opens what exists, for reading and writing. Does not block on FIFOs and devices.
    ///
    /// # Errors
    /// The kernel's: `ENOENT`, `EACCES`, `ELOOP` for a symbolic link, `EISDIR`, ...
    pub fn open(path: &Path) -> io::Result<DirectFile> {
        Self::open_with(path, true, false, 0)
    }

    /// Opens what exists, for reading only.
    ///
    /// # Errors
    /// As [`DirectFile::open`].
    pub fn open_to_check(path: &Path) -> io::Result<DirectFile> {
        Self::open_with(path, false, false, 0)
    }

    /// Opens a block device, provided that it is not in use: no mount, no swap, no other exclusive
    /// opener.
    ///
    /// # Errors
    /// `EBUSY` when it is in use. Otherwise as [`DirectFile::open`].
    pub fn open_device(path: &Path) -> io::Result<DirectFile> {
        // Without O_CREAT, O_EXCL is for block devices only (open(2)).
        Self::open_with(path, true, false, libc::O_EXCL)
    }

    /// Creates a file, readable and writable by its owner only.
    ///
    /// # Errors
    /// The kernel's: `EEXIST` when there is anything of that name, a dangling symbolic link
    /// included.
    pub fn create(path: &Path) -> io::Result<DirectFile> {
        Self::open_with(path, true, true, 0)
    }

    fn open_with(path: &Path, write: bool, create: bool, flags: i32) -> io::Result<DirectFile> {
        let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let mut options = OpenOptions::new();
        options.read(true).write(write).create_new(create).mode(0o600);
        let mut open = |flags| above_standard(|| options.custom_flags(flags).open(path));
        match open(flags | libc::O_DIRECT) {
            Ok(file) => Ok(DirectFile { file, direct: true }),
            // Some kernels create the file before they find that its file system has no O_DIRECT.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                if create {
                    let _ = std::fs::remove_file(path);
                }
                Ok(DirectFile { file: open(flags)?, direct: false })
            }
            Err(e) => Err(e),
        }
    }

    /// The most bytes that this process may write to a file (`ulimit -f`), if there is a limit.
    /// What writes more is ended by the kernel.
    #[must_use]
    pub fn limit_bytes() -> Option<u64> {
        rustix::process::getrlimit(rustix::process::Resource::Fsize).current
    }
    /// Whether the page cache is bypassed. Not where the file system refuses (tmpfs before Linux
    /// 6.6, say).
    #[must_use]
    pub fn direct(&self) -> bool {
        self.direct
    }
    /// What the kernel says of the open file.
    ///
    /// # Errors
    /// The kernel's.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }
    /// Its length in bytes. Works for block devices as well.
    ///
    /// # Errors
    /// The kernel's.
    pub fn bytes(&self) -> io::Result<u64> {
        Ok(rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))?)
    }
    /// Takes the file for this open description alone, until it is closed. Returns false when
    /// another has it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn lock(&self) -> io::Result<bool> {
        match rustix::fs::flock(&self.file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
    /// Whether another process has the file open, as far as the kernel says: it grants a write
    /// lease (fcntl(2)) only to a sole writer. Kernels that count readers (with IMA) refuse it for
    /// those too, others do not see them. The lease is given back at once. False where leases
    /// cannot be had: on block devices, on some file systems, for files of other users.
    #[must_use]
    pub fn open_elsewhere(&self) -> bool {
        let fd = self.file.as_raw_fd();
        // A signal announces an open of the file while the lease is held. An asynchronous socket's
        // signal is ignored without a handler. The usual one would end the process.
        // SAFETY: these operations take numbers only, and the descriptor is open.
        let asked = unsafe {
            libc::fcntl(fd, F_SETSIG, libc::SIGURG);
            libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK)
        };
        if asked == -1 {
            return matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EBUSY));
        }
        // SAFETY: as above.
        unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) };
        false
    }
    /// One read into the arena. May be short.
    ///
    /// # Errors
    /// The kernel's, `EINTR` included.
    ///
    /// # Panics
    /// When the range is not inside the arena.
    pub fn read_at(&self, file_offset: u64, arena: &Arena, offset: usize, len: usize) -> io::Result<usize> {
        let memory = arena.range(offset, len);
        let (fd, to) = (self.file.as_raw_fd(), memory.as_ptr());
        // Not by the C library's `pread`, in which a thread ends that was cancelled.
        // SAFETY: `range` checked that the bytes are mapped and writable while `arena` is borrowed.
        // Nobody holds a reference to them: an arena's bytes are reached as opaque copies and
        // atomics only.
        let n = unsafe { libc::syscall(libc::SYS_pread64, fd, to, len, file_offset.cast_signed()) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }
    /// One write from the arena. May be short.
    ///
    /// # Errors
    /// The kernel's, `EINTR` included.
    ///
    /// # Panics
    /// When the range is not inside the arena.
    pub fn write_at(&self, file_offset: u64, arena: &Arena, offset: usize, len: usize) -> io::Result<usize> {
        let memory = arena.range(offset, len);
        // SAFETY: as in `read_at`. The kernel only reads them.
        let n = unsafe { libc::pwrite(self.file.as_raw_fd(), memory.as_ptr().cast(), len, file_offset.cast_signed()) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }
    /// One write of `len` bytes at each of these offsets of the arena, one after the other. No more
    /// than [`GATHERED_MAX`]. May be short.
    ///
    /// # Errors
    /// The kernel's, `EINTR` included.
    ///
    /// # Panics
    /// When a range is not inside the arena, or there are too many.
    pub fn write_gathered_at(
        &self,
        file_offset: u64,
        arena: &Arena,
        offsets: impl IntoIterator<Item = usize>,
        len: usize,
    ) -> io::Result<usize> {
        let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; GATHERED_MAX];
        let mut count = 0;
        for offset in offsets {
            pieces[count] = libc::iovec { iov_base: arena.range(offset, len).as_ptr().cast(), iov_len: len };
            count += 1;
        }
        let fd = self.file.as_raw_fd();
        // SAFETY: as in `write_at`, for each of the first `count` pieces.
        let n = unsafe { libc::pwritev(fd, pieces.as_ptr(), count as i32, file_offset.cast_signed()) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }
    /// Makes what was written durable (`fdatasync`). A failure must not be retried: the kernel
    /// reports it once.
    ///
    /// # Errors
    /// The kernel's.
    pub fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    /// Makes what was written and the file's length durable (`fsync`).
    ///
    /// # Errors
    /// The kernel's.
    pub fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }
    /// Makes the file longer, with its space set aside where the file system can do that: later
    /// writes there find room. On an error it has its old length.
    ///
    /// # Errors
    /// The kernel's, `ENOSPC` included.
    pub fn extend(&self, bytes: u64) -> io::Result<()> {
        let had = self.bytes()?;
        if bytes <= had {
            return Ok(());
        }
        let extended = crate::planted::set_up(libc::ENOSPC).and_then(|()| {
            match rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), had, bytes - had) {
                // It gives the length only. Holes are filled by later writes.
                Err(rustix::io::Errno::OPNOTSUPP) => self.file.set_len(bytes),
                done => Ok(done?),
            }
        });
        if let Err(error) = extended.and_then(|()| self.sync_all()) {
            self.file.set_len(had)?;
            return Err(error);
        }
        Ok(())
    }
    /// Whether the file belongs to the user that this process acts as.
    ///
    /// # Errors
    /// The kernel's.
    pub fn is_ours(&self) -> io::Result<bool> {
        Ok(rustix::fs::fstat(&self.file)?.st_uid == rustix::process::geteuid().as_raw())
    }
    /// Bytes that this user may still write to the file system at `path`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn free_bytes(path: &Path) -> io::Result<u64> {
        let s = rustix::fs::statvfs(path)?;
        // A file system that tells of no blocks at all does not say (many in user space).
        Ok(if s.f_blocks == 0 { u64::MAX } else { s.f_bavail.saturating_mul(s.f_frsize) })
    }
}

/// Renames, and replaces nothing. False when something has the new name.
///
/// # Errors
/// The kernel's.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<bool> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        // Not every file system can do it at once.
        Err(Errno::INVAL | Errno::NOSYS) => match std::fs::symlink_metadata(to) {
            Ok(_) => Ok(false),
            Err(_) => std::fs::rename(from, to).map(|()| true),
        },
        Err(error) => Err(error.into()),
    }
}

impl Drop for DirectFile {
    /// Gives up the lock at once. Closing does that only when the kernel drops its last reference,
    /// and a ring that was closed a moment ago still has one.
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.file, rustix::fs::FlockOperation::NonBlockingUnlock);
    }
}

impl AsFd for DirectFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backed;

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("fulgurite-direct-file-{name}-{}", std::process::id()))
    }

    #[test]
    fn bytes_come_back_and_the_lock_holds() {
        let path = path("bytes");
        let file = DirectFile::create(&path).unwrap();
        assert!(DirectFile::create(&path).is_err());
        let arena = Arena::anonymous(8192, Backed::BasePages).unwrap();
        arena.write(0, &[7; 4096]);
        assert_eq!(file.write_at(4096, &arena, 0, 4096).unwrap(), 4096);
        assert_eq!(file.read_at(4096, &arena, 4096, 4096).unwrap(), 4096);
        assert_eq!(file.read_at(8192, &arena, 4096, 4096).unwrap(), 0);
        let mut got = [0; 4096];
        arena.read(4096, &mut got);
        assert_eq!((got, file.bytes().unwrap()), ([7; 4096], 8192));
        arena.write(0, &[9; 4096]);
        assert_eq!(file.write_gathered_at(0, &arena, [4096, 0], 4096).unwrap(), 8192);
        for (offset, byte) in [(0, 7), (4096, 9)] {
            assert_eq!(file.read_at(offset, &arena, 0, 4096).unwrap(), 4096);
            arena.read(0, &mut got);
            assert_eq!(got, [byte; 4096]);
        }
        file.sync_data().unwrap();
        assert!(file.lock().unwrap());
        assert!(!file.open_elsewhere());
        let second = DirectFile::open(&path).unwrap();
        assert!(!second.lock().unwrap());
        let reported = (file.open_elsewhere(), second.open_elsewhere());
        assert!(reported.0 == reported.1, "both or, where there are no leases, none: {reported:?}");
        drop(second);
        assert!(!file.open_elsewhere());
        drop(file);
        assert!(DirectFile::open(&path).unwrap().lock().unwrap());
        std::fs::remove_file(&path).unwrap();
    }
    #[test]
    fn links_are_not_followed() {
        let path = path("link");
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert_eq!(DirectFile::open(&path).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert!(DirectFile::create(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }
    #[test]
    fn a_file_system_without_blocks_is_not_full() {
        let free = |path: &str| DirectFile::free_bytes(Path::new(path)).unwrap();
        // As those in user space: none of its blocks is free, because it has none.
        assert_eq!(free("/proc"), u64::MAX);
        assert!((1..u64::MAX).contains(&free("/")));
    }
}
