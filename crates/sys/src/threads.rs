//! The threads of this process by the kernel's numbers: sets of them, and whether the program's own
//! have all ended.
//!
//! A library that is loaded into a program has threads there, for which the kernel keeps the
//! process alive. [`mark`] tells them apart from the program's, and [`ProgramThreads`] notices when
//! nothing but them is left.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};

/// Threads that a set holds. It does not take further ones.
pub const MARKS: usize = 256;

/// A set of threads that a signal handler may ask: it has no lock, and takes no memory.
#[derive(Debug)]
pub struct ThreadSet {
    /// Their numbers, and 0 where there is none.
    threads: [AtomicU32; MARKS],
    /// No thread was ever at this place, or behind it.
    end: AtomicUsize,
}

impl ThreadSet {
    /// An empty set.
    pub(crate) const fn new() -> ThreadSet {
        ThreadSet { threads: [const { AtomicU32::new(0) }; MARKS], end: AtomicUsize::new(0) }
    }
    /// Adds a thread, and returns its place. None when the set is full.
    pub(crate) fn add(&self, thread: u32) -> Option<usize> {
        let take = |place: &AtomicU32| place.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let place = self.threads.iter().position(take)?;
        self.end.fetch_max(place + 1, Ordering::Relaxed);
        Some(place)
    }
    /// Removes the thread at a place.
    pub(crate) fn remove(&self, place: usize) {
        self.threads[place].store(0, Ordering::Relaxed);
    }
    /// Removes all.
    fn clear(&self) {
        self.threads.iter().for_each(|place| place.store(0, Ordering::Relaxed));
    }
    /// Whether a thread is in it.
    pub(crate) fn has(&self, thread: u32) -> bool {
        let used = &self.threads[..self.end.load(Ordering::Relaxed)];
        thread != 0 && used.iter().any(|place| place.load(Ordering::Relaxed) == thread)
    }
    /// Whether any thread was ever in it. It is one load.
    pub(crate) fn was_used(&self) -> bool {
        self.end.load(Ordering::Relaxed) > 0
    }
}

/// The kernel's number of the calling thread.
pub(crate) fn thread() -> u32 {
    // SAFETY: it has no arguments, and always succeeds.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Threads of this library.
static OWN: ThreadSet = ThreadSet::new();

/// Marks the calling thread, for as long as it lives, as one of this library: by itself it does not
/// keep the process alive ([`ProgramThreads`]).
pub fn mark() {
    // One that is not marked counts as the program's: the process then lives for longer.
    let _ = OWN.add(thread());
}

/// Forgets all marks: a child after `fork` has none of the threads that its parent had marked.
pub fn forget_marks() {
    OWN.clear();
}

/// One of the marked threads; 0 where there is none.
#[must_use]
pub fn any_marked() -> u32 {
    OWN.threads.iter().map(|place| place.load(Ordering::Relaxed)).find(|thread| *thread != 0).unwrap_or(0)
}
/// Whether the calling thread is the only one of the program's, as far as the kernel says.
#[must_use]
pub fn is_program_alone() -> bool {
    ProgramThreads::new().is_ok_and(|threads| threads.count().is_ok_and(|count| count == 1))
}

/// Flags of a thread in the kernel: it is about to end, or the kernel made it for itself (workers
/// of io_uring). From `include/linux/sched.h`.
const EXITING: u64 = 0x4;
const OF_THE_KERNEL: u64 = 0x10 | 0x4000;

/// Watches whether threads of the program are left. See the module.
///
/// The descriptors are opened at once, because the program may confine itself later.
#[derive(Debug)]
pub struct ProgramThreads {
    all: OwnedFd,
    first: File,
    has_first_ended: bool,
    were_gone: bool,
}

impl ProgramThreads {
    /// Of this process.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn new() -> io::Result<ProgramThreads> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let all = rustix::fs::open("/proc/self/task", flags, Mode::empty())?;
        let first = File::open(format!("/proc/self/task/{}/stat", std::process::id()))?;
        Ok(ProgramThreads { all, first, has_first_ended: false, were_gone: false })
    }

    /// Whether the thread that `main` ran on has ended, as far as [`ProgramThreads::end`] has seen.
    #[must_use]
    pub fn has_first_ended(&self) -> bool {
        self.has_first_ended
    }

    /// How the first thread ended (a word as of `waitpid`), if this call and the one before found
    /// none but marked threads. It is one read while the first thread lives.
    pub fn end(&mut self) -> Option<i32> {
        let first = Stat::read(&self.first)?;
        if !first.has_ended() {
            return None;
        }
        self.has_first_ended = true;
        // Twice, because threads may begin others while they are listed.
        let are_gone = self.count().is_ok_and(|count| count == 0);
        (std::mem::replace(&mut self.were_gone, are_gone) && are_gone).then_some(first.exit_word)
    }

    /// How many threads of the program there are.
    fn count(&self) -> io::Result<usize> {
        rustix::fs::seek(&self.all, SeekFrom::Start(0))?;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(&self.all, &mut buffer);
        let mut count = 0;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let Some(thread) = entry.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            if OWN.has(thread) {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let stat = match rustix::fs::openat(&self.all, format!("{thread}/stat"), flags, Mode::empty()) {
                Ok(file) => Stat::read(&file.into()),
                // It has ended meanwhile.
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::SRCH) => continue,
                Err(error) => return Err(error.into()),
            };
            count += usize::from(stat.is_some_and(|stat| !stat.has_ended() && stat.flags & OF_THE_KERNEL == 0));
        }
        Ok(count)
    }
}

/// What `/proc/self/task/*/stat` says of a thread (`man 5 proc`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stat {
    state: u8,
    flags: u64,
    exit_word: i32,
}

impl Stat {
    /// None when the thread is gone.
    fn read(file: &File) -> Option<Stat> {
        let mut text = [0; 1024];
        let length = file.read_at(&mut text, 0).ok()?;
        Stat::of(std::str::from_utf8(&text[..length]).ok()?)
    }
    fn of(text: &str) -> Option<Stat> {
        // The name before may have any character.
        let mut fields = text.rsplit_once(") ")?.1.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let flags = fields.nth(5)?.parse().ok()?;
        Some(Stat { state, flags, exit_word: fields.last()?.parse().ok()? })
    }
    fn has_ended(self) -> bool {
        matches!(self.state, b'Z' | b'X') || self.flags & EXITING != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_understood() {
        let line = "7 (a) b (c)) Z 1 7 7 0 -1 4228108 0 0 0 0 0 0 0 0 20 0 3 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 \
                    0 0 0 0 0 0 0 0 0 0 0 768\n";
        let stat = Stat::of(line).unwrap();
        assert_eq!(stat, Stat { state: b'Z', flags: 4_228_108, exit_word: 3 << 8 });
        assert!(stat.has_ended());
        assert_eq!((Stat::of(""), Stat::of("7 (a"), Stat::of("7 (a) R 1")), (None, None, None));
    }
    #[test]
    fn the_first_thread_of_this_process_lives() {
        let mut threads = ProgramThreads::new().unwrap();
        assert_eq!((threads.end(), threads.has_first_ended()), (None, false));
        // This thread runs a test, and is none of the library's.
        let before = threads.count().unwrap();
        mark();
        assert!(OWN.has(thread()) && any_marked() == thread());
        assert_eq!(threads.count().unwrap(), before - 1);
        forget_marks();
        assert!(!OWN.has(thread()) && any_marked() == 0 && !is_program_alone());
    }
}
