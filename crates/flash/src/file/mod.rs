//! A regular file or block device as flash: subpage i is its bytes from i x 4096 on.
//!
//! Holds what both ways to drive it share: what is open, what a result means, when the medium is poisoned. `open` judges
//! paths, `uring` and `threads` are the queues. Invariants: the file is locked for this medium alone; after a flush has
//! failed no write and no flush reaches the file any more (the kernel reports such a failure once, so nothing written since
//! the last good flush can be trusted); a block device that is mounted is never opened.

mod open;
mod threads;
mod uring;

pub use open::claim;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_sys::{Arena, DirectFile, Notifier, Uring};

use crate::{DeviceCounters, Flash, FlashError, Op, OpenError, Queue, check_depth};

/// Which file, and what to do about it.
#[derive(Clone, Debug)]
pub struct FileConfig {
    /// The path, as the user gave it.
    pub path: PathBuf,
    /// Whether it exists.
    pub mode: FileMode,
    /// How it is driven.
    pub backend: FileBackend,
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
        FileConfig { path: path.into(), mode, backend: FileBackend::Auto }
    }
    /// A file to be created.
    #[must_use]
    pub fn create(path: impl Into<PathBuf>, bytes: u64) -> FileConfig {
        FileConfig { path: path.into(), mode: FileMode::Create { bytes }, backend: FileBackend::Auto }
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
    subpages: u32,
    poisoned: AtomicBool,
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    errors: AtomicU64,
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
        let [reads, writes, flushes, errors] = [0; 4].map(AtomicU64::new);
        let poisoned = AtomicBool::new(false);
        let medium = Medium { file: Arc::new(file), subpages, poisoned, reads, writes, flushes, errors };
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
        self.warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn warn(&self, text: String) {
        let mut warnings = self.warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
    fn open_queue(&self, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> Result<Box<dyn Queue>, OpenError> {
        check_depth(depth)?;
        let threads = |n| threads::ThreadQueue::open(self.medium.clone(), frames.clone(), depth, wake.clone(), n);
        if let FileBackend::Threads(n) = self.backend {
            return Ok(Box::new(threads(n)?));
        }
        let register = self.backend != FileBackend::UringUnregistered;
        match Uring::new(depth, self.medium.file.clone(), frames.clone(), wake.clone(), register) {
            Ok(ring) => {
                if register && !ring.registered() {
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
    fn counters(&self) -> DeviceCounters {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        DeviceCounters {
            reads: get(&self.medium.reads),
            writes: get(&self.medium.writes),
            flushes: get(&self.medium.flushes),
            errors: get(&self.medium.errors),
            ..DeviceCounters::default()
        }
    }
}

impl Medium {
    /// Why a request is refused before it is tried, if it is.
    fn refusal(&self, request: &crate::Request, frame_count: u32) -> Option<FlashError> {
        if request.op != Op::Read && self.poisoned.load(Ordering::Relaxed) {
            return Some(FlashError::Poisoned);
        }
        let inside = request.subpage.0 < self.subpages && request.frame.0 < frame_count;
        (!inside && request.op != Op::Flush).then_some(FlashError::OutOfRange)
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

/// How often a request may be put off (`EAGAIN`, `EINTR`) before that is an error.
const PUT_OFF_MAX: u8 = 64;

/// How often a request was tried again.
#[derive(Clone, Copy, Default, Debug)]
struct Tries {
    put_off: u8,
    short: bool,
}

/// What the kernel's result (bytes, or a negative errno) means for a request; none: try the whole request again.
///
/// Short transfers, `EAGAIN` and `EINTR` are normal. A short one is tried again whole (a remainder would not be aligned for
/// `O_DIRECT`), once. A flush is never tried again.
fn judge(op: Op, result: i32, tries: &mut Tries) -> Option<Result<(), FlashError>> {
    const EINTR: i32 = 4;
    const EAGAIN: i32 = 11;
    match (op, result) {
        (Op::Flush, 0..) => Some(Ok(())),
        (Op::Read | Op::Write, n) if n == SUBPAGE_BYTES as i32 => Some(Ok(())),
        (Op::Read | Op::Write, 0..) if tries.short => Some(Err(FlashError::Short)),
        (Op::Read | Op::Write, 0..) => {
            tries.short = true;
            None
        }
        (Op::Read | Op::Write, n) if (n == -EAGAIN || n == -EINTR) && tries.put_off < PUT_OFF_MAX => {
            tries.put_off += 1;
            None
        }
        (_, n) => Some(Err(FlashError::Io(-n))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_results_mean() {
        let mut tries = Tries::default();
        assert_eq!(judge(Op::Read, 4096, &mut tries), Some(Ok(())));
        assert_eq!(judge(Op::Write, -28, &mut tries), Some(Err(FlashError::Io(28))));
        assert_eq!(judge(Op::Flush, 0, &mut tries), Some(Ok(())));
        // A flush is not tried again, whatever the kernel says.
        for errno in [4, 5, 11] {
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
    fn a_failed_flush_poisons_the_file_for_good() {
        use fulgurite_format::{FrameIndex, SubpageIndex};
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
