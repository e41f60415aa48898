//! The beginning of an [`Arena`] written to a new file, which takes the old one's place when it is
//! durable. It is written by the caller, or by a child process that sees the memory as it was when
//! it was forked (as Redis' BGSAVE does).
//!
//! Invariants: under its name there is a whole image at any time, or none yet. Between `fork` and
//! `_exit` the child makes system calls and copies memory, and nothing else: the process may have
//! other threads, whose locks (such as the allocator's) stay locked in the child. All else that it
//! needs was there before. Signals are blocked in it, so that no handler of the program runs twice.
//! It does not outlive its [`ImageChild`], but may outlive a process that is killed: it then ends
//! with its image.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::Arena;
use crate::descriptors::{LOWEST, above_standard, while_taken};

/// Bytes of one write: large enough that a device is busy, small enough that a short one is made up
/// for soon.
const WRITE_BYTES: usize = 8 << 20;
/// Bytes of one write from a child's buffer, which is filled before each write. It is smaller, so
/// that what it holds stays in the processor's caches until it is written.
const COPY_BYTES: usize = 2 << 20;

/// Where an image is written.
#[derive(Debug)]
pub struct ImageFile {
    directory: File,
    name: CString,
    /// What it is called until it is whole.
    new: CString,
}

impl ImageFile {
    /// An image called `name` in a directory. Nothing is written yet.
    ///
    /// # Errors
    /// The kernel's, when the directory cannot be opened. `InvalidInput` for a name with a zero
    /// byte or a slash.
    pub fn new(directory: &Path, name: &str) -> io::Result<ImageFile> {
        if name.contains('/') {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let directory = above_standard(|| File::open(directory))?;
        let c_string = |bytes: &[u8]| CString::new(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let new = [name.as_bytes(), b".new"].concat();
        Ok(ImageFile { directory, name: c_string(Path::new(name).as_os_str().as_bytes())?, new: c_string(&new)? })
    }

    /// Writes the first `len` bytes of the arena, past the page cache where the file system allows
    /// that, and returns when they are durable under the image's name.
    ///
    /// # Errors
    /// The kernel's. The image that was there before is still there.
    ///
    /// # Panics
    /// When the range is not inside the arena, or `len` is no multiple of 4096.
    pub fn write(&self, arena: &Arena, len: usize) -> io::Result<()> {
        assert!(len.is_multiple_of(4096), "{len} bytes are no whole pages");
        while_taken(|| self.write_range(arena.range(0, len).as_ptr(), len, std::ptr::null_mut()))
    }

    /// As [`Self::write`], in a child process: it writes the bytes as they are now. The caller
    /// continues as soon as its page tables are copied, and its first write to each page copies
    /// that page.
    ///
    /// # Errors
    /// The kernel's, when there is no child (`EAGAIN`, `ENOMEM`).
    ///
    /// # Panics
    /// As [`ImageFile::write`], and when the arena is shared: a child would see what is written
    /// later.
    pub fn write_in_child(&self, arena: &Arena, len: usize) -> io::Result<ImageChild> {
        assert!(len.is_multiple_of(4096), "{len} bytes are no whole pages");
        assert!(arena.file().is_none(), "memory that is shared is not copied when somebody writes to it");
        let base = arena.range(0, len).as_ptr();
        // SAFETY: the two sets are initialised by `sigfillset` and `pthread_sigmask` before they
        // are read, and both outlive the calls. What runs in the child is `buffer`, `write_range`
        // and `_exit`: system calls on descriptors, strings and memory that were there before, or
        // of its own. Nothing there panics, asks the allocator or takes a lock.
        let child = || unsafe {
            let (mut all, mut before) = (std::mem::zeroed::<libc::sigset_t>(), std::mem::zeroed::<libc::sigset_t>());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            let pid = libc::fork();
            if pid == 0 {
                // An error's number fits an exit status.
                let written = Self::buffer().and_then(|buffer| self.write_range(base, len, buffer));
                let status = written.map_or_else(|e| e.raw_os_error().unwrap_or(libc::EIO), |()| 0);
                libc::_exit(status);
            }
            let error = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            (pid, error)
        };
        // The child opens its file while what takes 0, 1 and 2 is open in it as well.
        let (pid, error) = while_taken(child);
        if pid < 0 { Err(error) } else { Ok(ImageChild { pid: Some(pid) }) }
    }

    /// A child's buffer: memory of its own. A device that reads from pages which are shared with
    /// the parent must not see what that writes, so the kernel copies each of them first, one base
    /// page after the other, at several times the price of this copy.
    fn buffer() -> io::Result<*mut u8> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no
        // existing memory. It ends with the child.
        let buffer = unsafe { libc::mmap(std::ptr::null_mut(), COPY_BYTES, access, flags, -1, 0) };
        if buffer == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(buffer.cast()) }
    }

    /// System calls only, and no allocation: this runs in a child of a process with threads.
    /// `base..base + len` is mapped. `buffer` is null, or a mapping of [`COPY_BYTES`] that no one
    /// else knows.
    fn write_range(&self, base: *const u8, len: usize, buffer: *mut u8) -> io::Result<()> {
        let directory = self.directory.as_raw_fd();
        let open = |flags: libc::c_int| {
            let flags = flags | libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC | libc::O_NOFOLLOW;
            // SAFETY: the name is a string that ends with a zero and lives as long as `self`, and
            // the descriptor is open.
            unsafe { libc::openat(directory, self.new.as_ptr(), flags, 0o600) }
        };
        let mut fd = open(libc::O_DIRECT);
        if fd < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
            fd = open(0);
        }
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        if fd < LOWEST {
            // Another thread has closed a low one just then.
            // SAFETY: takes numbers, and the descriptor that was opened above.
            let higher = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, LOWEST) };
            let error = io::Error::last_os_error();
            // SAFETY: it was opened above and is closed once, here.
            unsafe { libc::close(fd) };
            if higher < 0 {
                return Err(error);
            }
            fd = higher;
        }
        let written = Self::write_all(fd, base, len, buffer);
        // SAFETY: the descriptor was opened above and is closed once, here.
        unsafe { libc::close(fd) };
        written?;
        // SAFETY: both names end with a zero and live as long as `self`, and the descriptor is
        // open.
        let renamed = unsafe { libc::renameat(directory, self.new.as_ptr(), directory, self.name.as_ptr()) };
        // SAFETY: takes a descriptor, which is open.
        if renamed != 0 || unsafe { libc::fsync(directory) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// As [`ImageFile::write_range`]: system calls only.
    fn write_all(fd: libc::c_int, base: *const u8, len: usize, buffer: *mut u8) -> io::Result<()> {
        // Room in one piece where the file system can. Where not, the writes make it.
        // SAFETY: takes numbers only.
        unsafe { libc::fallocate(fd, 0, 0, len as libc::off_t) };
        let mut done = 0;
        while done < len {
            let piece = (if buffer.is_null() { WRITE_BYTES } else { COPY_BYTES }).min(len - done);
            // SAFETY: the piece is inside the range, which is mapped (the caller's contract).
            let mut from = unsafe { base.add(done) };
            if !buffer.is_null() {
                // SAFETY: the buffer is as long as that and nobody else's. The range is another
                // mapping, which has no other writers in a child.
                unsafe { std::ptr::copy_nonoverlapping(from, buffer, piece) };
                from = buffer;
            }
            // SAFETY: that many bytes are mapped there. The kernel only reads them.
            let n = unsafe { libc::pwrite(fd, from.cast(), piece, done as libc::off_t) };
            match usize::try_from(n) {
                Ok(0) => return Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                Ok(n) => done += n,
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.raw_os_error() != Some(libc::EINTR) {
                        return Err(error);
                    }
                }
            }
        }
        // SAFETY: takes a descriptor.
        if unsafe { libc::fsync(fd) } != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// A child that writes an image. Dropped before it has ended, it is killed. The image that was
/// there before stays.
#[derive(Debug)]
pub struct ImageChild {
    /// Until it was waited for.
    pid: Option<libc::pid_t>,
}

impl ImageChild {
    /// Waits until the image is durable. Returns the CPU time that the child has used, user and
    /// kernel.
    ///
    /// # Errors
    /// What kept the child from writing it. `Interrupted` when it was killed.
    pub fn wait(mut self) -> io::Result<Duration> {
        let (status, used) = self.reap()?;
        match libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)) {
            Some(0) => Ok(used),
            Some(number) => Err(io::Error::from_raw_os_error(number)),
            None => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    fn reap(&mut self) -> io::Result<(libc::c_int, Duration)> {
        let pid = self.pid.take().expect("a child is waited for once");
        loop {
            let mut status = 0;
            // SAFETY: a structure of numbers, for which zero is a value.
            let mut used = unsafe { std::mem::zeroed::<libc::rusage>() };
            // SAFETY: both structures live across the call. The child is ours and was not waited
            // for.
            if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut used) } == pid {
                let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
                return Ok((status, time(used.ru_utime) + time(used.ru_stime)));
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for ImageChild {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            // SAFETY: takes numbers. The child was not waited for, so the number is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            let _ = self.reap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backed;

    const LEN: usize = 4 << 20;

    fn directory(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("fulgurite-image-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn a_child_writes_what_there_was() {
        let path = directory("child");
        let arena = Arena::anonymous(2 * LEN, Backed::HugePages).unwrap();
        let image = ImageFile::new(&path, "image").unwrap();
        // Threads that allocate all the while: a child that did so, too, would sooner or later wait
        // for ever.
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::black_box(vec![0u8; 100_000]);
                    }
                });
            }
            for round in 0..10u8 {
                arena.write(0, &vec![round; LEN]);
                let child = image.write_in_child(&arena, LEN).unwrap();
                arena.write(0, &vec![0xFF; LEN]);
                assert!(child.wait().unwrap() > Duration::ZERO);
                assert_eq!(std::fs::read(path.join("image")).unwrap(), vec![round; LEN]);
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
        std::fs::remove_dir_all(&path).unwrap();
    }
    #[test]
    fn an_old_image_stays_until_there_is_a_new_one() {
        let path = directory("old");
        let arena = Arena::anonymous(LEN, Backed::BasePages).unwrap();
        arena.write(0, &vec![1; LEN]);
        let image = ImageFile::new(&path, "image").unwrap();
        image.write(&arena, LEN).unwrap();
        // A file cannot be created over a directory.
        std::fs::create_dir(path.join("image.new")).unwrap();
        arena.write(0, &vec![2; LEN]);
        assert_eq!(image.write(&arena, LEN).unwrap_err().raw_os_error(), Some(libc::EISDIR));
        let child = image.write_in_child(&arena, LEN).unwrap();
        assert_eq!(child.wait().unwrap_err().raw_os_error(), Some(libc::EISDIR));
        assert_eq!(std::fs::read(path.join("image")).unwrap(), vec![1; LEN]);
        std::fs::remove_dir(path.join("image.new")).unwrap();
        // One that is given up is gone before anything else happens.
        drop(image.write_in_child(&arena, LEN).unwrap());
        image.write(&arena, LEN).unwrap();
        assert_eq!(std::fs::read(path.join("image")).unwrap(), vec![2; LEN]);
        assert!(ImageFile::new(&path, "a/b").is_err() && ImageFile::new(&path.join("none"), "image").is_err());
        std::fs::remove_dir_all(&path).unwrap();
    }
    /// The descriptor through which a process has begun to write an image. For a moment a file may
    /// have a lower one, through which nothing is written.
    fn descriptor_of(process: &str) -> Option<i32> {
        let open = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?.flatten();
        let is_image =
            |fd: &Path| std::fs::read_link(fd).is_ok_and(|path| path.as_os_str().as_bytes().ends_with(b"/image.new"));
        // Checked before and after, because another file may have the number by then.
        let has_bytes = |fd: &Path| std::fs::metadata(fd).is_ok_and(|file| file.len() > 0);
        let mut images = open.filter(|fd| is_image(&fd.path()) && has_bytes(&fd.path()) && is_image(&fd.path()));
        images.next()?.file_name().to_str()?.parse().ok()
    }
    #[test]
    fn its_descriptors_are_3_and_up() {
        if !crate::faults::tests::is_alone("image_file::tests::its_descriptors_are_3_and_up") {
            return;
        }
        let path = directory("standard");
        // Large enough that its file is seen while it is written.
        let len = 16 * LEN;
        let arena = Arena::anonymous(len, Backed::HugePages).unwrap();
        arena.write(0, &vec![1; len]);
        let image = ImageFile::new(&path, "image").unwrap();
        let until_seen = |process: &str| (0..1_000_000).find_map(|_| descriptor_of(process));
        // Standard output and error stay for the test's report.
        // SAFETY: nothing here reads standard input.
        assert_eq!(unsafe { libc::close(0) }, 0);
        let mut child = None;
        let of_child = (0..20).find_map(|_| {
            let writes = child.insert(image.write_in_child(&arena, len).unwrap());
            (0..1000).find_map(|_| descriptor_of(&writes.pid.unwrap().to_string()))
        });
        child.unwrap().wait().unwrap();
        assert!(of_child.is_some_and(|fd| fd >= LOWEST), "{of_child:?}");
        let of_caller = std::thread::scope(|scope| {
            let done = scope.spawn(|| (0..20).for_each(|_| image.write(&arena, len).unwrap()));
            let seen = until_seen("self");
            done.join().unwrap();
            seen
        });
        assert!(of_caller.is_some_and(|fd| fd >= LOWEST), "{of_caller:?}");
        std::fs::remove_dir_all(&path).unwrap();
    }
}
