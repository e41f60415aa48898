//! A regular file or block device as flash: subpage i is its bytes from i x 4096 on.
//!
//! Holds what both ways to drive it share: what is open, what a result means, when the medium is poisoned. `open` judges
//! paths, `holders` finds who has them open, `name` sees when a file loses its own, `uring` and `threads` are the queues; `runs` says which writes of a batch they make one request of. Invariants: the file is locked for this medium alone; after a flush has
//! failed no write and no flush reaches the file any more (the kernel reports such a failure once, so nothing written since
//! the last good flush can be trusted); a flush of a file that was deleted or replaced fails; a block device that is mounted is never opened.

#[cfg(test)]
mod faults;
mod holders;
mod name;
mod open;
mod runs;
mod threads;
mod uring;

pub use open::claim;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite_format::{SUBPAGE_BYTES, SubpageIndex, format_bytes};
use fulgurite_sys::{Arena, Clock, DirectFile, Notifier, RingUser, Uring};

use crate::{
    Backing, DeviceCounters, Flash, FlashError, Op, OpenError, Queue, QueueUser, Traits, Tuning, check_depth,
    check_range, lock,
};

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
    /// Open what is there; all of it, or its first so many bytes.
    Existing {
        /// Bytes to use; none for all.
        bytes: Option<u64>,
    },
    /// Create a file of so many bytes, and write all of it once, so that later writes never have to find space. It must
    /// not exist.
    Create {
        /// A multiple of 4096.
        bytes: u64,
    },
}

/// How a file is driven.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileBackend {
    /// io_uring with registered frames; without registration where that is refused; threads where io_uring is missing.
    #[default]
    Auto,
    /// io_uring with registered frames where that is allowed, or an error.
    Uring,
    /// io_uring without registered frames, or an error.
    UringUnregistered,
    /// So many threads per queue (at least one) that read and write.
    Threads(usize),
}

impl FileConfig {
    /// An existing file, all of it, driven as well as the machine allows.
    #[must_use]
    pub fn existing(path: impl Into<PathBuf>) -> FileConfig {
        let mode = FileMode::Existing { bytes: None };
        FileConfig { path: path.into(), mode, backend: FileBackend::Auto, clock: Clock::get() }
    }
    /// A file to be created.
    #[must_use]
    pub fn create(path: impl Into<PathBuf>, bytes: u64) -> FileConfig {
        FileConfig { mode: FileMode::Create { bytes }, ..FileConfig::existing(path) }
    }
}

/// Threads per queue where io_uring is missing: enough to keep a solid-state disk busy.
const FALLBACK_THREADS: usize = 32;

/// A file or block device as flash.
#[derive(Debug)]
pub struct FileFlash {
    medium: Arc<Medium>,
    path: PathBuf,
    backend: FileBackend,
    warnings: Mutex<Vec<String>>,
}

/// What all queues of a file share.
#[derive(Debug)]
struct Medium {
    file: Arc<DirectFile>,
    name: name::Name,
    subpages: u32,
    clock: Clock,
    poisoned: AtomicBool,
    reads: AtomicU64,
    writes: AtomicU64,
    write_requests: AtomicU64,
    read_requests: AtomicU64,
    flushes: AtomicU64,
    errors: AtomicU64,
    /// What the kernel is made to have said, for so many results.
    #[cfg(test)]
    script: Mutex<std::collections::VecDeque<i32>>,
    /// The same for results by their number.
    #[cfg(test)]
    nth: Mutex<faults::Nth>,
    /// Errors with which it is made to refuse to be entered, for so many times.
    #[cfg(test)]
    refusals: Mutex<std::collections::VecDeque<i32>>,
}

impl FileFlash {
    /// Opens or creates a file.
    ///
    /// # Errors
    /// [`OpenError`], before anything is created or changed.
    pub fn open(config: &FileConfig) -> Result<FileFlash, OpenError> {
        Self::open_with_progress(config, &mut |_, _| ControlFlow::Continue(()))
    }

    /// As [`FileFlash::open`]; while a file is created, `progress` is told the bytes written and the bytes in all, about
    /// every 8 MiB, and may stop it.
    ///
    /// # Errors
    /// As [`FileFlash::open`], and [`OpenError::Stopped`].
    pub fn open_with_progress(
        config: &FileConfig,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<FileFlash, OpenError> {
        let (file, subpages) = match config.mode {
            FileMode::Existing { bytes } => open::existing(&config.path, bytes)?,
            FileMode::Create { bytes } => open::create(&config.path, bytes, progress)?,
        };
        let mut warnings = Vec::new();
        if !file.direct() {
            warnings.push(format!(
                "the file system of {} has no O_DIRECT: reads and writes go through the page cache, which uses DRAM that is \
                 not counted and makes the flash look faster than it is",
                config.path.display()
            ));
        }
        let [reads, writes, write_requests, read_requests, flushes, errors] = [0; 6].map(AtomicU64::new);
        let poisoned = AtomicBool::new(false);
        let medium = Medium {
            name: name::Name::of(&file, &config.path),
            file: Arc::new(file),
            subpages,
            clock: config.clock.clone(),
            poisoned,
            reads,
            writes,
            write_requests,
            read_requests,
            flushes,
            errors,
            #[cfg(test)]
            script: Mutex::default(),
            #[cfg(test)]
            nth: Mutex::default(),
            #[cfg(test)]
            refusals: Mutex::default(),
        };
        Ok(FileFlash {
            medium: Arc::new(medium),
            path: config.path.clone(),
            backend: config.backend,
            warnings: Mutex::new(warnings),
        })
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the user should know: sentences about things that work less well here than they could. Grows as queues are
    /// opened.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        lock(&self.warnings).clone()
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
        self.medium.subpages
    }
    fn describe(&self) -> String {
        let cached = if self.medium.file.direct() { "" } else { ", through the page cache" };
        let backend = match self.backend {
            FileBackend::Auto | FileBackend::Uring => "io_uring".to_owned(),
            FileBackend::UringUnregistered => "io_uring, unregistered frames".to_owned(),
            FileBackend::Threads(n) => format!("{} threads a queue", n.max(1)),
        };
        let bytes = u64::from(self.medium.subpages) * SUBPAGE_BYTES as u64;
        format!("{}, {}, {backend}{cached}", self.path.display(), format_bytes(bytes))
    }
    fn traits(&self) -> Traits {
        Traits { gathers: runs::RUN_MAX, tuning: Tuning::FILE, ..Traits::PLAIN }
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        let threads = matches!(self.backend, FileBackend::Threads(_));
        if threads || frames < uring::STAGING_FROM { 0 } else { uring::STAGING_BYTES }
    }
    fn open_queue_for(
        &self,
        user: QueueUser,
        frames: Arc<Arena>,
        depth: usize,
        wake: Arc<Notifier>,
    ) -> Result<Box<dyn Queue>, OpenError> {
        let user = match user {
            QueueUser::OneThread => RingUser::OneThread,
            QueueUser::AnyThread => RingUser::AnyThread,
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
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        DeviceCounters {
            reads: get(&self.medium.reads),
            writes: get(&self.medium.writes),
            write_requests: get(&self.medium.write_requests),
            read_requests: get(&self.medium.read_requests),
            flushes: get(&self.medium.flushes),
            errors: get(&self.medium.errors),
            ..DeviceCounters::default()
        }
    }
}

impl FileFlash {
    fn open_for(
        &self,
        user: RingUser,
        frames: Arc<Arena>,
        depth: usize,
        wake: Arc<Notifier>,
    ) -> Result<Box<dyn Queue>, OpenError> {
        check_depth(depth)?;
        let threads = |n| threads::ThreadQueue::open(self.medium.clone(), frames.clone(), depth, wake.clone(), n);
        if let FileBackend::Threads(n) = self.backend {
            return Ok(Box::new(threads(n)?));
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

impl Medium {
    /// Whether a flush has failed: nothing is written any more.
    fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }

    /// Why a request is refused before it is tried, if it is.
    fn refusal(&self, request: &crate::Request, frame_count: u32) -> Option<FlashError> {
        if request.op != Op::Read && self.is_poisoned() {
            return Some(FlashError::Poisoned);
        }
        let inside = request.subpage.0 < self.subpages && request.frame.0 < frame_count;
        (!inside && request.op != Op::Flush).then_some(FlashError::OutOfRange)
    }

    /// What the kernel's result means for a request, as [`judge`] has it.
    fn judge(&self, op: Op, result: i32, tries: &mut Tries) -> Option<Result<(), FlashError>> {
        let judged = judge(op, self.scripted(result, Some(op)), tries);
        #[cfg(test)]
        lock(&self.nth).hurry(tries);
        // A flush promises that the data is found again, which that of a file without its name is not.
        if op == Op::Flush && judged == Some(Ok(())) && self.name.is_lost(&self.file) {
            return Some(Err(FlashError::Unlinked));
        }
        judged
    }
    /// Whether a request of so many subpages moved all of them. If not, each is to be tried by itself: which of them the kernel would
    /// not do, and which it was only kept from by its neighbours, only that can tell.
    fn all_moved(&self, count: usize, result: i32) -> bool {
        self.scripted(result, None) == (count * SUBPAGE_BYTES) as i32
    }
    #[cfg(test)]
    fn scripted(&self, result: i32, op: Option<Op>) -> i32 {
        let result = lock(&self.nth).say(result, op);
        lock(&self.script).pop_front().unwrap_or(result)
    }
    #[cfg(not(test))]
    fn scripted(&self, result: i32, _: Option<Op>) -> i32 {
        result
    }

    /// An error that a test has the kernel refuse to be entered with.
    #[cfg(test)]
    fn scripted_refusal(&self) -> Option<std::io::Error> {
        lock(&self.refusals).pop_front().map(std::io::Error::from_raw_os_error)
    }
    #[cfg(not(test))]
    fn scripted_refusal(&self) -> Option<std::io::Error> {
        None
    }

    /// Counts requests of the kernel that write.
    fn count_write_requests(&self, count: u64) {
        self.write_requests.fetch_add(count, Ordering::Relaxed);
    }

    /// The same of those that read.
    fn count_read_requests(&self, count: u64) {
        if count > 0 {
            self.read_requests.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Counts a request that has ended, and poisons the medium if it was a flush that failed.
    fn account(&self, op: Op, result: Result<(), FlashError>) {
        if op == Op::Flush && result.is_err() {
            self.poisoned.store(true, Ordering::Relaxed);
        }
        let counter = match (result, op) {
            (Err(_), _) => &self.errors,
            (_, Op::Read) => &self.reads,
            (_, Op::Write) => &self.writes,
            (_, Op::Flush) => &self.flushes,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The kernel was interrupted, or asks to come again later.
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
/// It has no memory at the moment.
const ENOMEM: i32 = 12;

/// How often a request may be put off (`EAGAIN`, `ENOMEM`, `EINTR`) before that is an error. With the pauses between, that is after
/// half a second of a kernel that has no room.
const PUT_OFF_MAX: u8 = 64;
/// The first pause before what the kernel had no room for is tried again. Each further one is twice as long, up to the longest.
const PAUSE_FIRST: Duration = Duration::from_micros(4);
const PAUSE_LONGEST: Duration = Duration::from_millis(10);

/// How long to leave the kernel alone that had no room, as often as `put_off` says.
fn pause(put_off: u8) -> Duration {
    PAUSE_FIRST.saturating_mul(1 << put_off.saturating_sub(1).min(30)).min(PAUSE_LONGEST)
}

/// How often a request was tried again.
#[derive(Clone, Copy, Default, Debug)]
struct Tries {
    put_off: u8,
    short: bool,
    /// The kernel had no room for it, the last time.
    no_room: bool,
}

impl Tries {
    /// How long the request waits before it is tried again: only for room.
    fn pause(&self) -> Duration {
        if self.no_room { pause(self.put_off) } else { Duration::ZERO }
    }
}

/// What the kernel's result (bytes, or a negative errno) means for a request; none: try the whole request again.
///
/// Short transfers, `EAGAIN`, `ENOMEM` and `EINTR` are normal. A short one is tried again whole (a remainder would not be aligned for
/// `O_DIRECT`), once. What there was no room for is tried again after a pause ([`Tries::pause`]), which is the caller's to keep. A
/// flush is never tried again.
fn judge(op: Op, result: i32, tries: &mut Tries) -> Option<Result<(), FlashError>> {
    tries.no_room = result == -EAGAIN || result == -ENOMEM;
    match (op, result) {
        (Op::Flush, 0..) => Some(Ok(())),
        (Op::Read | Op::Write, n) if n == SUBPAGE_BYTES as i32 => Some(Ok(())),
        (Op::Read | Op::Write, 0..) if tries.short => Some(Err(FlashError::Short)),
        (Op::Read | Op::Write, 0..) => {
            tries.short = true;
            None
        }
        (Op::Read | Op::Write, n) if (tries.no_room || n == -EINTR) && tries.put_off < PUT_OFF_MAX => {
            tries.put_off += 1;
            None
        }
        (_, n) => Some(Err(FlashError::Io(-n))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_format::{FrameIndex, SubpageIndex};

    #[test]
    fn what_results_mean() {
        let mut tries = Tries::default();
        assert_eq!(judge(Op::Read, 4096, &mut tries), Some(Ok(())));
        assert_eq!(judge(Op::Write, -28, &mut tries), Some(Err(FlashError::Io(28))));
        assert_eq!(judge(Op::Flush, 0, &mut tries), Some(Ok(())));
        // A flush is not tried again, whatever the kernel says.
        for errno in [4, 5, 11, 12] {
            assert_eq!(judge(Op::Flush, -errno, &mut tries), Some(Err(FlashError::Io(errno))));
        }
        assert_eq!(judge(Op::Read, 512, &mut tries), None);
        assert_eq!(judge(Op::Read, 0, &mut tries), Some(Err(FlashError::Short)));
        for _ in 0..PUT_OFF_MAX {
            assert_eq!(judge(Op::Write, -11, &mut tries), None);
        }
        assert_eq!(judge(Op::Write, -11, &mut tries), Some(Err(FlashError::Io(11))));
    }
    #[test]
    fn pauses_are_for_room_and_bounded() {
        let mut tries = Tries::default();
        assert_eq!(judge(Op::Read, -EINTR, &mut tries), None);
        assert_eq!(tries.pause(), Duration::ZERO);
        let mut last = Duration::ZERO;
        for errno in [EAGAIN, ENOMEM].into_iter().cycle().take(usize::from(PUT_OFF_MAX) - 1) {
            assert_eq!(judge(Op::Read, -errno, &mut tries), None);
            let now = tries.pause();
            assert!(now > last || now == PAUSE_LONGEST, "{now:?} after {last:?}");
            last = now;
        }
        assert_eq!((pause(1), last, pause(u8::MAX)), (PAUSE_FIRST, PAUSE_LONGEST, PAUSE_LONGEST));
        assert_eq!(judge(Op::Read, 512, &mut tries), None);
        assert_eq!(tries.pause(), Duration::ZERO);
    }
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
            // The kernel is left alone between: twelve pauses, each twice as long as the one before it.
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
            // Who never waits, as it has other work, hands the batch over as well.
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
            // Writes four neighbours, and says how many of them ended well and what the errors were.
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
            // Short, in the middle of one and between two; put off; refused for a reason that none of them has.
            for first in [SUBPAGE_BYTES as i32 + 512, 2 * SUBPAGE_BYTES as i32, 0, -EINTR, -EAGAIN, -5, -22] {
                assert_eq!(four(&[first]), (4, vec![]), "{backend:?}, {first}");
            }
            // One has an error of its own, one stays short; a run's troubles are not held against them.
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
