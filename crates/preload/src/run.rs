//! The run of this process: its page buffer, and what it tells.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use fulgurite_fault::{Access, Error, Notices, PageBuffer};
use fulgurite_format::format_bytes;

use crate::{objects, sandbox};

/// What a run has.
pub struct Run {
    pub buffer: PageBuffer,
    /// The smallest mapping that goes to flash.
    pub threshold: usize,
    /// Large blocks of `malloc` go to flash: the program has no other allocator.
    pub has_malloc: bool,
    /// Small blocks of `malloc` go to flash as well.
    pub has_small: bool,
    /// Tell figures as JSON.
    pub json: bool,
    /// This is the process that was started, not a child of it.
    pub is_first: bool,
    /// The standard error output that the program was started with: it may close its own.
    pub notices: Arc<Notices>,
}

/// Where the run is, which is never dropped.
static RUN: AtomicPtr<Run> = AtomicPtr::new(null_mut());
/// This process is a child of the run's, and has none.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// The run of this process.
#[inline]
pub fn run() -> Option<&'static Run> {
    run_of_any().filter(|_| !IS_CHILD.load(Ordering::Relaxed))
}

/// The run of this process or of its parent.
#[inline]
pub fn run_of_any() -> Option<&'static Run> {
    // SAFETY: a run is set once it is whole, and then lives as long as the process.
    unsafe { RUN.load(Ordering::Acquire).as_ref() }
}

/// Notes that this process is a child, which may get a run of its own later.
pub fn mark_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Sets the run of this process.
pub fn set(run: Run) {
    RUN.store(Box::into_raw(Box::new(run)), Ordering::Release);
    IS_CHILD.store(false, Ordering::Relaxed);
}

/// Goes on in a child, which has been given a buffer or not.
pub fn go_on(before: &'static Run, buffer: Result<PageBuffer, Error>) {
    match buffer {
        Ok(buffer) => set(Run { buffer, is_first: false, notices: before.notices.clone(), ..*before }),
        Err(error) => before.notices.report(&format!("process {}: {error}", std::process::id())),
    }
}

impl Run {
    fn report_once(&self, has_reported: &AtomicBool, text: &str) {
        if !has_reported.swap(true, Ordering::Relaxed) && !sandbox::is_silent() {
            self.notices.report(text);
        }
    }
    /// Logs the figures of this process.
    pub fn report_figures(&self) {
        self.notices.report_figures(&self.buffer.summary(), self.json, "");
        objects::report(&self.notices, self.json);
    }
    /// Says that a filter of system calls is refused, once.
    pub fn no_filter(&self, what: &str) {
        static HAS_REPORTED: AtomicBool = AtomicBool::new(false);
        self.report_once(
            &HAS_REPORTED,
            &format!(
                "in in-line mode, threads resolve their own faults by system calls: {what} fails with EINVAL; \
                 compatible mode (--mode compatible) takes it, and needs the right to userfaultfd"
            ),
        );
    }
    /// Says that a filter of system calls for all threads is refused, once.
    pub fn no_filter_for_all(&self) {
        static HAS_REPORTED: AtomicBool = AtomicBool::new(false);
        self.report_once(
            &HAS_REPORTED,
            "a filter of system calls (seccomp) denies what handles faults, and is refused for all threads (TSYNC); \
             set it before the program starts other threads, or for each thread without TSYNC",
        );
    }
    /// Says that a limit on the size of files is refused, once.
    pub fn no_limit(&self, needed: u64) {
        static HAS_REPORTED: AtomicBool = AtomicBool::new(false);
        self.report_once(
            &HAS_REPORTED,
            &format!(
                "a limit on the size of files (RLIMIT_FSIZE) would hold for the flash, too: less than {} is refused with \
                 EPERM",
                format_bytes(needed)
            ),
        );
    }
    /// Says that a userfaultfd of the program's is refused, once.
    pub fn no_userfaultfd(&self) {
        static HAS_REPORTED: AtomicBool = AtomicBool::new(false);
        self.report_once(
            &HAS_REPORTED,
            "a userfaultfd of the program cannot watch memory of flash, whose faults are handled already: \
             UFFDIO_REGISTER fails with EBUSY; raise the size from which mappings go there (--threshold)",
        );
    }
    /// Says that a filter of system calls ends what maps memory, once.
    pub fn no_more_memory(&self) {
        static HAS_REPORTED: AtomicBool = AtomicBool::new(false);
        self.report_once(
            &HAS_REPORTED,
            "a filter of system calls (seccomp) denies what maps and frees memory of flash: a thread under it that does \
             so ends as the filter says; allow futex, write, rt_sigprocmask, mmap, mprotect and madvise",
        );
    }
    /// Tells that a fork fails, once.
    pub fn cannot_fork(&self) {
        static HAS_REPORTED: AtomicBool = AtomicBool::new(false);
        self.report_once(
            &HAS_REPORTED,
            "a child could change all that is mapped, and the flash has no room for that: fork fails with ENOMEM; \
                 choose more (--flash-size)",
        );
    }
    /// Tells that a fork fails because of objects, once.
    pub fn no_child_of_objects(&self) {
        static HAS_REPORTED: AtomicBool = AtomicBool::new(false);
        self.report_once(
            &HAS_REPORTED,
            "a child would not have the blocks that are objects: fork fails with ENOMEM; run it without --objects",
        );
    }
    /// Tells that there is no room for an object, once.
    pub fn no_objects(&self) {
        static HAS_REPORTED: AtomicBool = AtomicBool::new(false);
        self.report_once(
            &HAS_REPORTED,
            "there is no room for another object, and malloc fails with ENOMEM; choose more (--flash-size, --dram)",
        );
    }
    /// Tells that a robust mutex is refused, once.
    pub fn no_robust(&self) {
        static HAS_REPORTED: AtomicBool = AtomicBool::new(false);
        self.report_once(
            &HAS_REPORTED,
            "a robust mutex cannot be in memory of flash, and pthread_mutex_init fails with ENOTSUP; raise the \
                 size from which mappings go there (--threshold)",
        );
    }
    /// Tells that requests of AIO and io_uring are refused, once.
    pub fn no_requests(&self) {
        static HAS_REPORTED: AtomicBool = AtomicBool::new(false);
        self.report_once(
            &HAS_REPORTED,
            "in in-line mode, a page could leave during a request of AIO or io_uring: what sets these up fails with \
                 ENOSYS; compatible mode (--mode compatible) has them, and needs the right to userfaultfd",
        );
    }
    /// Tells that a word of a thread is refused, once.
    pub fn no_word(&self) {
        static HAS_REPORTED: AtomicBool = AtomicBool::new(false);
        self.report_once(
            &HAS_REPORTED,
            "a word that the kernel writes when a thread begins or ends cannot be in memory of flash, and the call \
                 fails with ENOTSUP; raise the size from which mappings go there (--threshold)",
        );
    }
    /// Maps `len` bytes anywhere. Why that fails is reported, once.
    ///
    /// # Errors
    /// A number of the system.
    pub fn map(&self, len: usize) -> Result<usize, i32> {
        if !self.ensure_own_memory() {
            return Err(libc::ENOMEM);
        }
        let mapped = self.buffer.map(len, None, Access::ReadWrite);
        if mapped == Err(libc::ENOMEM) {
            self.warn_of_full();
        }
        mapped
    }
    /// Whether this library can keep what it has to know of another mapping or block. Where it
    /// cannot, that is reported, once.
    pub fn ensure_own_memory(&self) -> bool {
        static HAS_REPORTED: AtomicBool = AtomicBool::new(false);
        let has = crate::MEMORY.ensure_room();
        if !has {
            self.report_once(
                &HAS_REPORTED,
                "the kernel maps no memory for what is to be known of another mapping or block, which fails with \
                 ENOMEM; raise the limit (ulimit -v, sysctl vm.max_map_count)",
            );
        }
        has
    }
    /// Tells that flash is full, once.
    pub fn warn_of_full(&self) {
        static HAS_REPORTED: AtomicBool = AtomicBool::new(false);
        self.report_once(
            &HAS_REPORTED,
            "the flash has no room for another mapping, which fails with ENOMEM; choose more (--flash-size)",
        );
    }
}
