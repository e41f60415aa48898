//! A regular file or block device as flash: subpage i is its bytes from i x 4096 on.
//!
//! `medium` is what both backends share, `open` judges paths, `holders` finds processes that have
//! them open, `name` sees when a file loses its own. `uring` and `threads` are the queues, and
//! `runs` gathers a batch.
//!
//! Invariants: the file is locked for this medium alone. After a failed flush no write and no flush
//! reaches the file (the kernel reports such a failure once). A flush of a file that was deleted or
//! replaced fails. A mounted block device is never opened.

#[cfg(test)]
mod faults;
mod holders;
mod medium;
mod name;
#[cfg(test)]
mod nth;
mod open;
mod runs;
mod threads;
mod uring;

pub use open::claim;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fulgurite_format::{SUBPAGE_BYTES, SubpageIndex, format_bytes};
use fulgurite_sys::{Arena, Clock, Notifier, RingUser, Uring};

use crate::{
    Backing, DeviceCounters, Flash, FlashError, OpenError, OpenedQueue, QueueUser, Traits, Tuning, check_depth,
    check_range, lock,
};
use medium::OpenFile;
use name::Name;

/// Which file, and what to do about it.
#[derive(Clone, Debug)]
pub struct FileConfig {
    /// The path, as the user gave it.
    pub path: PathBuf,
    /// Whether it exists.
    pub mode: FileMode,
    /// How it is driven.
    pub backend: FileBackend,
    /// What pauses before further tries are measured by. What the kernel does takes real time.
    pub clock: Clock,
}

/// Whether the file exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileMode {
    /// Opens what is there: all of it, or its first bytes.
    Existing {
        /// Bytes to use; none for all.
        bytes: Option<u64>,
    },
    /// Open what is there for reading, without taking it: another process may be changing it.
    /// Writes fail.
    Look {
        /// Bytes to use; none for all whole subpages.
        bytes: Option<u64>,
    },
    /// Creates a file of a given number of bytes, and writes all of it, so that later writes find
    /// space. It must not exist.
    Create {
        /// A multiple of 4096.
        bytes: u64,
    },
    /// Creates such a file, and removes its name before anything is written. The file is gone when
    /// it is closed, even when the process is killed while the file is written.
    CreateNameless {
        /// A multiple of 4096.
        bytes: u64,
    },
    /// Creates a file as `Create` does, and until [`FileFlash::finish`] the file
    /// has another name: the path with `.unfinished` behind it. What a killed process left there is
    /// removed first. Dropped before it is finished, the file is removed.
    CreateAside {
        /// A multiple of 4096.
        bytes: u64,
    },
}

/// How a file is driven.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileBackend {
    /// io_uring with registered frames, else without registration, else threads.
    #[default]
    Auto,
    /// io_uring with registered frames where that is allowed, or an error.
    Uring,
    /// io_uring without registered frames, or an error.
    UringUnregistered,
    /// This number of threads per queue (at least one), which read and write.
    Threads(usize),
}

impl FileConfig {
    /// An existing file, all of it, driven as well as the machine allows.
    #[must_use]
    pub fn existing(path: impl Into<PathBuf>) -> FileConfig {
        let mode = FileMode::Existing { bytes: None };
        FileConfig { path: path.into(), mode, backend: FileBackend::Auto, clock: Clock::get() }
    }
    /// A file to be created under another name, until it is finished ([`FileMode::CreateAside`]).
    #[must_use]
    pub fn create_aside(path: impl Into<PathBuf>, bytes: u64) -> FileConfig {
        FileConfig { mode: FileMode::CreateAside { bytes }, ..FileConfig::existing(path) }
    }
    /// A file to be created.
    #[must_use]
    pub fn create(path: impl Into<PathBuf>, bytes: u64) -> FileConfig {
        FileConfig { mode: FileMode::Create { bytes }, ..FileConfig::existing(path) }
    }
    /// A file to be created that loses its name at once.
    #[must_use]
    pub fn create_nameless(path: impl Into<PathBuf>, bytes: u64) -> FileConfig {
        FileConfig { mode: FileMode::CreateNameless { bytes }, ..FileConfig::existing(path) }
    }
}

/// Threads per queue where io_uring is missing: enough to keep a solid-state disk busy.
const FALLBACK_THREADS: usize = 32;

/// A file or block device as flash.
#[derive(Debug)]
pub struct FileFlash {
    medium: Arc<OpenFile>,
    path: PathBuf,
    backend: FileBackend,
    warnings: Mutex<Vec<String>>,
    /// io_uring was not to be had.
    has_fallen_back: AtomicBool,
    /// The name that it has until it is finished.
    unfinished: Mutex<Option<PathBuf>>,
}

impl Drop for FileFlash {
    fn drop(&mut self) {
        // While it is locked: nobody else can have begun to use it.
        if let Some(unfinished) = lock(&self.unfinished).take() {
            let _ = std::fs::remove_file(unfinished);
        }
    }
}

impl FileFlash {
    /// Opens or creates a file.
    ///
    /// # Errors
    /// [`OpenError`], before anything is created or changed.
    pub fn open(config: &FileConfig) -> Result<FileFlash, OpenError> {
        Self::open_with_progress(config, &mut |_, _| ControlFlow::Continue(()))
    }

    /// As [`FileFlash::open`]. While a file is created, `progress` learns the bytes written and in
    /// all, about every 8 MiB, and may stop it.
    ///
    /// # Errors
    /// As [`FileFlash::open`], and [`OpenError::Stopped`].
    pub fn open_with_progress(
        config: &FileConfig,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<FileFlash, OpenError> {
        let (file, subpages) = match config.mode {
            FileMode::Existing { bytes } => open::existing(&config.path, bytes)?,
            FileMode::Look { bytes } => open::check(&config.path, bytes)?,
            FileMode::Create { bytes } => open::create(&config.path, bytes, true, progress)?,
            FileMode::CreateNameless { bytes } => open::create(&config.path, bytes, false, progress)?,
            FileMode::CreateAside { bytes } => open::create_aside(&config.path, bytes, progress)?,
        };
        let is_aside = matches!(config.mode, FileMode::CreateAside { .. });
        let unfinished = is_aside.then(|| open::unfinished(&config.path));
        let mut warnings = Vec::new();
        if !file.direct() {
            warnings.push(format!(
                "the file system of {} has no O_DIRECT: reads and writes go through the page cache, which uses DRAM that is \
                 not counted and makes the flash look faster than it is",
                config.path.display()
            ));
        }
        let medium = OpenFile::new(Name::of(&file, &config.path), file, subpages, config.clock.clone());
        Ok(FileFlash {
            medium: Arc::new(medium),
            path: config.path.clone(),
            backend: config.backend,
            warnings: Mutex::new(warnings),
            has_fallen_back: AtomicBool::new(false),
            unfinished: Mutex::new(unfinished),
        })
    }

    /// Gives a file that was created aside its name, durably. Nothing happens to others.
    ///
    /// # Errors
    /// [`OpenError::Exists`] when another file has the name by now; the file is removed with this.
    /// What the kernel says.
    pub fn finish(&self) -> Result<(), OpenError> {
        let mut unfinished = lock(&self.unfinished);
        if let Some(from) = &*unfinished {
            open::finish(from, &self.path)?;
            *unfinished = None;
        }
        Ok(())
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sentences for the user about what works less well here than it could. Opened queues add to
    /// them.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        lock(&self.warnings).clone()
    }

    /// Whether [`FileFlash::grow`] can reach `bytes` bytes, as far as is known beforehand.
    ///
    /// # Errors
    /// [`OpenError::FixedSize`] for a block device that has less.
    pub fn may_grow(&self, bytes: u64) -> Result<(), OpenError> {
        open::may_grow(&self.path, &self.medium, bytes)
    }
    /// The largest number of bytes that it can have: the size of a block device. None for a file.
    ///
    /// # Errors
    /// [`OpenError::Path`] when the kernel does not say.
    pub fn most_bytes(&self) -> Result<Option<u64>, OpenError> {
        open::most_bytes(&self.path, &self.medium)
    }
    /// Makes the file larger while it is in use, with space set aside where the file system can do
    /// that. What is added reads as zeros. Of a block device that has become larger meanwhile, more
    /// is used, whatever is there.
    ///
    /// # Errors
    /// [`OpenError::FixedSize`] for a block device that has less. [`OpenError::NoSpace`] when the
    /// file system is full. [`OpenError::Size`] and [`OpenError::NotAMultiple`]. The file has its
    /// old size then.
    pub fn grow(&self, bytes: u64) -> Result<(), OpenError> {
        self.may_grow(bytes)?;
        open::grow(&self.path, &self.medium, bytes)
    }

    fn warn(&self, text: String) {
        let mut warnings = lock(&self.warnings);
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }
}

impl Flash for FileFlash {
    fn subpages(&self) -> u32 {
        self.medium.subpages()
    }
    fn describe(&self) -> String {
        let cached = if self.medium.file.direct() { "" } else { ", through the page cache" };
        let backend = match self.backend {
            FileBackend::Auto if self.has_fallen_back.load(Ordering::Relaxed) => {
                format!("{FALLBACK_THREADS} threads a queue, without io_uring")
            }
            FileBackend::Auto | FileBackend::Uring => "io_uring".to_owned(),
            FileBackend::UringUnregistered => "io_uring, unregistered frames".to_owned(),
            FileBackend::Threads(n) => format!("{} threads a queue", n.max(1)),
        };
        let bytes = u64::from(self.medium.subpages()) * SUBPAGE_BYTES as u64;
        format!("{}, {}, {backend}{cached}", self.path.display(), format_bytes(bytes))
    }
    fn traits(&self) -> Traits {
        Traits { gathers: runs::RUN_MAX, serves_callers: true, tuning: Tuning::FILE, ..Traits::PLAIN }
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        let threads = matches!(self.backend, FileBackend::Threads(_));
        if threads || frames < uring::STAGING_FROM { 0 } else { uring::STAGING_BYTES }
    }
    fn open_queue_for(&self, user: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        let user = match user {
            QueueUser::OneThread => RingUser::OneThread,
            QueueUser::AnyThread => RingUser::AnyThread,
            QueueUser::Caller => {
                check_depth(depth)?;
                return Ok(Box::new(threads::ThreadQueue::open(self.medium.clone(), frames, depth, wake, 0)?));
            }
        };
        self.open_for(user, frames, depth, wake)
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages())
    }
    fn backing(&self) -> Option<&dyn Backing> {
        None
    }
    fn counters(&self) -> DeviceCounters {
        self.medium.counters.read()
    }
}

impl FileFlash {
    fn open_for(&self, user: RingUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        check_depth(depth)?;
        let threads = |n| threads::ThreadQueue::open(self.medium.clone(), frames.clone(), depth, wake.clone(), n);
        if let FileBackend::Threads(n) = self.backend {
            return Ok(Box::new(threads(n.max(1))?));
        }
        let register = self.backend != FileBackend::UringUnregistered;
        match Uring::new(depth, self.medium.file.clone(), frames.clone(), wake.clone(), register, user) {
            Ok(ring) => {
                if register && !ring.may_register() {
                    self.warn(
                        "the frames cannot be registered with io_uring (ulimit -l, or CAP_IPC_LOCK): reads cost a little \
                         more CPU"
                            .into(),
                    );
                }
                Ok(Box::new(uring::UringQueue::new(self.medium.clone(), ring, &frames, depth, wake)))
            }
            Err(source) if self.backend == FileBackend::Auto => {
                self.has_fallen_back.store(true, Ordering::Relaxed);
                self.warn(format!(
                    "io_uring is not available ({source}): {FALLBACK_THREADS} threads a queue read and write instead, at \
                     several times the CPU"
                ));
                Ok(Box::new(threads(FALLBACK_THREADS)?))
            }
            Err(source) => Err(OpenError::System { what: "set up io_uring", source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::medium::{EAGAIN, EINTR, ENOMEM, PAUSE_FIRST, PUT_OFF_MAX, pause};
    use super::*;
    use crate::Op;
    use crate::Queue;
    use fulgurite_format::{FrameIndex, SubpageIndex};

    fn request(op: Op, subpage: u32) -> crate::Request {
        crate::Request { tag: 7, op, subpage: SubpageIndex(subpage), frame: FrameIndex(0) }
    }
    /// One request, to its end.
    fn one(queue: &mut dyn Queue, op: Op, subpage: u32) -> Result<(), FlashError> {
        queue.submit(request(op, subpage)).unwrap();
        queue.flush().unwrap();
        let mut ended = Vec::new();
        for _ in 0..1000 {
            if queue.poll(&mut ended) > 0 {
                break;
            }
            queue.wait(Some(std::time::Duration::from_secs(5)));
        }
        assert_eq!((ended.len(), queue.in_flight(), ended[0].tag), (1, 0, 7));
        ended[0].result
    }
    #[test]
    fn what_a_caller_hands_over_has_ended_when_it_returns() {
        let directory = tempfile::tempdir().unwrap();
        let flash = FileFlash::open(&FileConfig::create(directory.path().join("flash"), 80 << 12)).unwrap();
        let frames = Arc::new(Arena::anonymous(70 * SUBPAGE_BYTES, fulgurite_sys::Backed::BasePages).unwrap());
        let wake = Arc::new(Notifier::new().unwrap());
        let open = |depth| flash.open_queue_for(QueueUser::Caller, frames.clone(), depth, wake.clone());
        assert!(flash.traits().serves_callers && matches!(open(0), Err(OpenError::Depth { depth: 0 })));
        let mut queue = open(70).unwrap();
        let ask = |queue: &mut dyn crate::Queue, op, number: u32| {
            let (subpage, frame) = (SubpageIndex(number), FrameIndex(number));
            queue.submit(crate::Request { tag: number.into(), op, subpage, frame }).unwrap();
        };
        // Longer than a run may be.
        for number in 0..70 {
            frames.write(number as usize * SUBPAGE_BYTES, &[number as u8 + 1]);
            ask(&mut *queue, Op::Write, number);
        }
        let mut ended = Vec::new();
        assert_eq!((queue.poll(&mut ended), queue.flush(), queue.poll(&mut ended)), (0, Ok(()), 70));
        assert!(ended.iter().all(|ended| ended.result == Ok(())) && queue.in_flight() == 0);
        lock(&flash.medium.script).extend([-EINTR, -EAGAIN, 512, 4096, -5]);
        frames.write(3 * SUBPAGE_BYTES, &[0]);
        ask(&mut *queue, Op::Read, 3);
        ask(&mut *queue, Op::Read, 4);
        ended.clear();
        assert_eq!((queue.flush(), queue.poll(&mut ended)), (Ok(()), 2));
        assert_eq!((ended[0].result, ended[1].result), (Ok(()), Err(FlashError::Io(5))));
        let mut byte = [0];
        frames.read(3 * SUBPAGE_BYTES, &mut byte);
        assert!(byte == [4] && !wake.take(), "and nobody was notified");
    }
    #[test]
    fn what_the_kernel_puts_off_is_asked_again_by_every_queue() {
        let directory = tempfile::tempdir().unwrap();
        for (i, backend) in
            [FileBackend::Uring, FileBackend::UringUnregistered, FileBackend::Threads(2)].into_iter().enumerate()
        {
            let path = directory.path().join(i.to_string());
            let flash = FileFlash::open(&FileConfig { backend, ..FileConfig::create(path, 8 << 12) }).unwrap();
            let frames = Arc::new(Arena::anonymous(SUBPAGE_BYTES, fulgurite_sys::Backed::BasePages).unwrap());
            let mut queue = match flash.open_queue(frames.clone(), 4, Arc::new(Notifier::new().unwrap())) {
                Ok(queue) => queue,
                Err(error) => {
                    println!("{backend:?} is not tested here: {error}");
                    continue;
                }
            };
            let say = |results: &[i32]| lock(&flash.medium.script).extend(results);
            let mut byte = [0; 1];
            for op in [Op::Write, Op::Read] {
                say(&[-EINTR, -EAGAIN, 512, -EINTR]);
                frames.write(0, &[if op == Op::Write { 42 } else { 0 }]);
                assert_eq!(one(&mut *queue, op, 3), Ok(()), "{backend:?}");
                assert!(lock(&flash.medium.script).is_empty());
            }
            frames.read(0, &mut byte);
            assert_eq!(byte, [42]);
            // The kernel is left alone between: twelve pauses, each twice as long as the one before
            // it.
            let begun = std::time::Instant::now();
            say(&[-EAGAIN, -ENOMEM].repeat(6));
            assert_eq!(one(&mut *queue, Op::Read, 3), Ok(()), "{backend:?}");
            let pauses: Duration = (1..=12).map(pause).sum();
            assert!(begun.elapsed() >= pauses && pauses >= 4096 * PAUSE_FIRST / 2, "{backend:?} asked without a pause");
            // Not for ever, and a transfer that stays short is none.
            say(&[-EAGAIN; PUT_OFF_MAX as usize + 1]);
            assert_eq!(one(&mut *queue, Op::Read, 3), Err(FlashError::Io(EAGAIN)));
            say(&[512, 512]);
            assert_eq!(one(&mut *queue, Op::Read, 3), Err(FlashError::Short));
            assert_eq!(one(&mut *queue, Op::Read, 3), Ok(()));
            // A flush is never asked again: the kernel reports a failure once.
            say(&[-EINTR]);
            assert_eq!(one(&mut *queue, Op::Flush, 0), Err(FlashError::Io(EINTR)));
            assert_eq!(one(&mut *queue, Op::Flush, 0), Err(FlashError::Poisoned));
            let counters = flash.counters();
            assert_eq!((counters.reads, counters.writes, counters.flushes, counters.errors), (3, 1, 0, 4));
        }
    }
    #[test]
    fn a_ring_that_may_not_be_entered_for_a_moment_is_entered_later() {
        let directory = tempfile::tempdir().unwrap();
        for (i, backend) in [FileBackend::Uring, FileBackend::UringUnregistered].into_iter().enumerate() {
            let path = directory.path().join(i.to_string());
            let flash = FileFlash::open(&FileConfig { backend, ..FileConfig::create(path, 8 << 12) }).unwrap();
            let frames = Arc::new(Arena::anonymous(SUBPAGE_BYTES, fulgurite_sys::Backed::BasePages).unwrap());
            let mut queue = match flash.open_queue(frames.clone(), 4, Arc::new(Notifier::new().unwrap())) {
                Ok(queue) => queue,
                Err(error) => {
                    println!("{backend:?} is not tested here: {error}");
                    continue;
                }
            };
            let refuse = |errors: &[i32]| lock(&flash.medium.refusals).extend(errors);
            for op in [Op::Write, Op::Read, Op::Flush] {
                // 16: there is no room for completions (`EBUSY`).
                refuse(&[EAGAIN, ENOMEM, EINTR, 16, ENOMEM]);
                assert_eq!(one(&mut *queue, op, 3), Ok(()), "{backend:?}, {op:?}");
                assert!(lock(&flash.medium.refusals).is_empty(), "{backend:?}, {op:?}");
            }
            // A busy caller that never waits hands the batch over as well.
            refuse(&[ENOMEM; 5]);
            queue.submit(request(Op::Read, 3)).unwrap();
            queue.flush().unwrap();
            let (mut ended, begun) = (Vec::new(), std::time::Instant::now());
            while queue.poll(&mut ended) == 0 {
                assert!(begun.elapsed() < Duration::from_secs(60), "{backend:?}: the batch was never handed over");
            }
            assert_eq!(ended[0].result, Ok(()));
            // Not for ever.
            refuse(&[ENOMEM; uring::REFUSED_MAX as usize + 1]);
            queue.submit(request(Op::Read, 3)).unwrap();
            let (mut ended, mut waits) = (Vec::new(), 0);
            while queue.flush() != Err(FlashError::Io(ENOMEM)) {
                queue.wait(Some(Duration::from_secs(5)));
                waits += 1;
                assert!(waits < 10_000, "{backend:?} tries for ever");
            }
            // The kernel has it after all; what comes later is refused.
            while queue.poll(&mut ended) == 0 {
                queue.wait(Some(Duration::from_secs(5)));
            }
            assert_eq!(ended[0].result, Ok(()));
            queue.submit(request(Op::Read, 3)).unwrap();
            assert_eq!(queue.poll(&mut ended), 1);
            assert_eq!(ended[1].result, Err(FlashError::Io(ENOMEM)));
        }
    }
    #[test]
    fn fault_what_a_denied_ring_never_took_ends_by_its_error() {
        let directory = tempfile::tempdir().unwrap();
        for (i, backend) in [FileBackend::Uring, FileBackend::UringUnregistered].into_iter().enumerate() {
            let path = directory.path().join(i.to_string());
            let flash = FileFlash::open(&FileConfig { backend, ..FileConfig::create(path, 8 << 12) }).unwrap();
            let frames = Arc::new(Arena::anonymous(4 * SUBPAGE_BYTES, fulgurite_sys::Backed::BasePages).unwrap());
            let mut queue = match flash.open_queue(frames.clone(), 4, Arc::new(Notifier::new().unwrap())) {
                Ok(queue) => queue,
                Err(error) => {
                    println!("{backend:?} is not tested here: {error}");
                    continue;
                }
            };
            // A sleep puts the poll of the notifier into the ring, which stays there.
            queue.wait(Some(Duration::from_millis(1)));
            assert_eq!(one(&mut *queue, Op::Write, 3), Ok(()));
            // A filter of system calls denies each entry from now on (`EPERM`).
            lock(&flash.medium.refusals).extend([1; 2]);
            let ops = [Op::Write, Op::Write, Op::Read, Op::Flush];
            for (at, op) in ops.into_iter().enumerate() {
                let (tag, frame) = (at as u64, FrameIndex(at as u32));
                queue.submit(crate::Request { tag, frame, ..request(op, at as u32) }).unwrap();
            }
            let denied = Err(FlashError::Io(1));
            assert_eq!(queue.flush(), denied);
            let mut ended = Vec::new();
            assert_eq!(queue.poll(&mut ended), ops.len(), "{backend:?}");
            assert!(ended.iter().all(|completion| completion.result == denied), "{ended:?}");
            assert_eq!(queue.in_flight(), 0);
            // The kernel would take them by now, and is not asked. What comes later is refused.
            queue.submit(request(Op::Read, 3)).unwrap();
            queue.wait(Some(Duration::from_millis(1)));
            ended.clear();
            assert_eq!((queue.poll(&mut ended), ended[0].result), (1, denied));
            assert_eq!((queue.poll(&mut ended), queue.in_flight()), (0, 0));
            drop(queue);
            assert_eq!(Arc::strong_count(&frames), 1, "{backend:?}: the kernel has nothing of the ring");
        }
    }
    #[test]
    fn fault_a_run_that_is_not_done_whole_is_taken_apart() {
        let directory = tempfile::tempdir().unwrap();
        let backends = [
            (FileBackend::Uring, 8),
            // Runs are copied side by side.
            (FileBackend::Uring, uring::STAGING_FROM),
            (FileBackend::UringUnregistered, 8),
            (FileBackend::Threads(2), 8),
        ];
        for (i, (backend, frame_count)) in backends.into_iter().enumerate() {
            let path = directory.path().join(i.to_string());
            let flash = FileFlash::open(&FileConfig { backend, ..FileConfig::create(path, 8 << 12) }).unwrap();
            let frames = Arc::new(
                Arena::anonymous(frame_count as usize * SUBPAGE_BYTES, fulgurite_sys::Backed::BasePages).unwrap(),
            );
            let mut queue = match flash.open_queue(frames.clone(), 8, Arc::new(Notifier::new().unwrap())) {
                Ok(queue) => queue,
                Err(error) => {
                    println!("{backend:?} is not tested here: {error}");
                    continue;
                }
            };
            queue.use_frames(0..frame_count);
            let bytes = queue.bytes();
            assert!(bytes >= flash.staging_bytes(frame_count), "{backend:?}");
            // Writes four neighbours, and says how many of them ended well and what the errors
            // were.
            let mut four = |script: &[i32]| {
                lock(&flash.medium.script).extend(script);
                for frame in 0..4 {
                    frames.write(frame as usize * SUBPAGE_BYTES, &[frame as u8 + 1]);
                    let (subpage, frame) = (SubpageIndex(2 + frame), FrameIndex(7 - frame));
                    queue
                        .submit(crate::Request { tag: 20 + u64::from(subpage.0), op: Op::Write, subpage, frame })
                        .unwrap();
                }
                queue.flush().unwrap();
                let mut ended = Vec::new();
                for _ in 0..1000 {
                    queue.poll(&mut ended);
                    if queue.in_flight() == 0 {
                        break;
                    }
                    queue.wait(Some(std::time::Duration::from_millis(100)));
                }
                let mut tags: Vec<u64> = ended.iter().map(|c| c.tag).collect();
                tags.sort_unstable();
                assert_eq!(tags, [22, 23, 24, 25], "{backend:?}: each ends once");
                assert!(lock(&flash.medium.script).is_empty(), "{backend:?}");
                let errors: Vec<_> = ended.iter().filter_map(|c| c.result.err()).collect();
                (4 - errors.len(), errors)
            };
            let whole = 4 * SUBPAGE_BYTES as i32;
            assert_eq!(four(&[]), (4, vec![]));
            let io = FlashError::Io;
            // Short, in the middle of one and between two; put off; refused for a reason that none
            // of them has.
            for first in [SUBPAGE_BYTES as i32 + 512, 2 * SUBPAGE_BYTES as i32, 0, -EINTR, -EAGAIN, -5, -22] {
                assert_eq!(four(&[first]), (4, vec![]), "{backend:?}, {first}");
            }
            // One has an error of its own, one stays short. A run's troubles are not held against
            // them.
            assert_eq!(four(&[-5, -5]), (3, vec![io(5)]));
            assert_eq!(four(&[512, -EAGAIN, -EINTR, 512]), (4, vec![]));
            assert_eq!(four(&[-28, -28, -28, -28, -28]), (0, vec![io(28); 4]));
            assert_eq!(four(&[whole]), (4, vec![]));
            let counters = flash.counters();
            assert_eq!((counters.writes, counters.errors), (4 * 12 - 5, 5));
            assert_eq!(counters.write_requests, 2 + 10 * 5 + 3, "{backend:?}");
            assert_eq!(queue.bytes(), bytes, "nothing grows");
            // After a failed flush nothing of a batch reaches the file.
            lock(&flash.medium.script).push_back(-5);
            assert_eq!(one(&mut *queue, Op::Flush, 0), Err(io(5)));
            let before = flash.counters().write_requests;
            for tag in 0..3 {
                let (subpage, frame) = (SubpageIndex(tag), FrameIndex(tag));
                queue.submit(crate::Request { tag: tag.into(), op: Op::Write, subpage, frame }).unwrap();
            }
            queue.flush().unwrap();
            let mut ended = Vec::new();
            assert_eq!(queue.poll(&mut ended), 3);
            assert!(ended.iter().all(|c| c.result == Err(FlashError::Poisoned)));
            assert_eq!(flash.counters().write_requests, before);
        }
    }
    #[test]
    fn what_was_submitted_before_a_flush_failed_and_not_handed_over_is_not_written() {
        for backend in [FileBackend::Uring, FileBackend::UringUnregistered, FileBackend::Threads(1)] {
            let directory = tempfile::tempdir().unwrap();
            let config = FileConfig::create(directory.path().join("flash"), 8 << 12);
            let flash = FileFlash::open(&FileConfig { backend, ..config }).unwrap();
            let frames = Arc::new(Arena::anonymous(4 << 12, fulgurite_sys::Backed::BasePages).unwrap());
            let wake = Arc::new(Notifier::new().unwrap());
            let Ok(mut queue) = flash.open_queue(frames, 8, wake) else { continue };
            let of = |tag: u32, op| crate::Request {
                tag: tag.into(),
                op,
                subpage: SubpageIndex(tag),
                frame: FrameIndex(tag % 4),
            };
            lock(&flash.medium.script).push_back(-5);
            queue.submit(of(9, Op::Flush)).unwrap();
            queue.flush().unwrap();
            // Neighbours, which go out as one request, and one by itself.
            for tag in [0, 1, 5] {
                queue.submit(of(tag, Op::Write)).unwrap();
            }
            let mut ended = Vec::new();
            for _ in 0..10_000 {
                queue.poll(&mut ended);
                if !ended.is_empty() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            assert_eq!(ended.iter().map(|c| (c.tag, c.result)).collect::<Vec<_>>(), [(9, Err(FlashError::Io(5)))]);
            queue.flush().unwrap();
            ended.clear();
            while queue.in_flight() > 0 {
                queue.wait(Some(std::time::Duration::from_secs(5)));
                queue.poll(&mut ended);
            }
            assert_eq!(ended.len(), 3);
            assert!(ended.iter().all(|c| c.result == Err(FlashError::Poisoned)), "{backend:?}: {ended:?}");
            assert_eq!(flash.counters().write_requests, 0, "{backend:?}");
        }
    }
    #[test]
    fn a_failed_flush_poisons_the_file_for_good() {
        let directory = tempfile::tempdir().unwrap();
        let flash = FileFlash::open(&FileConfig::create(directory.path().join("flash"), 4096)).unwrap();
        let of = |op| crate::Request { tag: 0, op, subpage: SubpageIndex(0), frame: FrameIndex(0) };
        for op in [Op::Read, Op::Write, Op::Flush] {
            flash.medium.account(op, Ok(()));
            assert_eq!(flash.medium.refusal(&of(op), 1), None);
        }
        flash.medium.account(Op::Write, Err(FlashError::Io(5)));
        assert_eq!(flash.medium.refusal(&of(Op::Flush), 1), None, "a failed write may be written again");
        flash.medium.account(Op::Flush, Err(FlashError::Io(5)));
        flash.medium.account(Op::Flush, Ok(()));
        assert_eq!(flash.medium.refusal(&of(Op::Write), 1), Some(FlashError::Poisoned));
        assert_eq!(flash.medium.refusal(&of(Op::Flush), 1), Some(FlashError::Poisoned));
        assert_eq!(flash.medium.refusal(&of(Op::Read), 1), None);
    }
}
