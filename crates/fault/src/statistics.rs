//! What a page buffer has done so far, for any thread to read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fulgurite_format::{SUBPAGE_BYTES, format_bytes, format_duration};

/// Counters that the handler thread keeps.
#[derive(Debug, Default)]
pub struct Statistics {
    pub(crate) faults: AtomicU64,
    pub(crate) faults_of_workers: AtomicU64,
    pub(crate) faults_switched: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) fresh: AtomicU64,
    pub(crate) evicted_clean: AtomicU64,
    pub(crate) evicted_dirty: AtomicU64,
    pub(crate) prefetched: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) waited_ns: AtomicU64,
    pub(crate) frames: AtomicU64,
    pub(crate) peak_bytes: AtomicU64,
    pub(crate) cap_bytes: AtomicU64,
}

/// What waits for a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitOf {
    /// A thread.
    Thread,
    /// A worker with all its jobs.
    Worker,
    /// A fiber, whose worker runs others.
    Fiber,
}

/// What they said at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Accesses that found their page missing.
    pub faults: u64,
    /// Of these, how many a worker of a runtime waited for: its other jobs waited as well.
    pub faults_of_workers: u64,
    /// Of these, how many a job waited for while other jobs of its worker ran.
    pub faults_switched: u64,
    /// Of these, how many read flash.
    pub reads: u64,
    /// Of these, how many touched a page for the first time.
    pub fresh: u64,
    /// Pages that left DRAM unchanged.
    pub evicted_clean: u64,
    /// Pages that left DRAM and were written.
    pub evicted_dirty: u64,
    /// Pages read ahead.
    pub prefetched: u64,
    /// Reads and writes of flash that failed.
    pub errors: u64,
    /// How long threads waited for pages, all together.
    pub waited: Duration,
    /// Pages that DRAM has room for now.
    pub frames: u64,
    /// The most memory of the process, page tables included, at any check.
    pub peak_bytes: u64,
    /// The cap on it.
    pub cap_bytes: u64,
}

impl Statistics {
    /// Counts a fault.
    pub(crate) fn count_fault(&self, of: WaitOf) {
        self.faults.fetch_add(1, Ordering::Relaxed);
        match of {
            WaitOf::Thread => {}
            WaitOf::Worker => _ = self.faults_of_workers.fetch_add(1, Ordering::Relaxed),
            WaitOf::Fiber => _ = self.faults_switched.fetch_add(1, Ordering::Relaxed),
        }
    }

    pub(crate) fn new(cap_bytes: u64) -> Statistics {
        Statistics { cap_bytes: cap_bytes.into(), ..Statistics::default() }
    }

    /// What they say now.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Summary {
            faults: read(&self.faults),
            faults_of_workers: read(&self.faults_of_workers),
            faults_switched: read(&self.faults_switched),
            reads: read(&self.reads),
            fresh: read(&self.fresh),
            evicted_clean: read(&self.evicted_clean),
            evicted_dirty: read(&self.evicted_dirty),
            prefetched: read(&self.prefetched),
            errors: read(&self.errors),
            waited: Duration::from_nanos(read(&self.waited_ns)),
            frames: read(&self.frames),
            peak_bytes: read(&self.peak_bytes),
            cap_bytes: read(&self.cap_bytes),
        }
    }
}

impl Summary {
    /// The part of faults that read nothing from flash.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        1.0 - self.reads as f64 / self.faults.max(1) as f64
    }

    /// As one line of JSON, of the process with this number. The figures are the ones in the words
    /// ([`std::fmt::Display`]).
    #[must_use]
    pub fn to_json(&self, pid: u32) -> String {
        let bytes = |pages: u64| pages * SUBPAGE_BYTES as u64;
        format!(
            "{{\"pid\": {pid}, \"peak_bytes\": {}, \"cap_bytes\": {}, \"faults\": {}, \"faults_of_workers\": {}, \"faults_switched\": {}, \"reads\": {}, \"hit_ratio\": {:.4}, \
             \"bytes_read\": {}, \"bytes_written\": {}, \"pages_dropped_clean\": {}, \"waited_s\": {:.6}, \"frames\": {}, \"errors\": {}}}",
            self.peak_bytes,
            self.cap_bytes,
            self.faults,
            self.faults_of_workers,
            self.faults_switched,
            self.reads,
            self.hit_ratio(),
            bytes(self.reads + self.prefetched),
            bytes(self.evicted_dirty),
            self.evicted_clean,
            self.waited.as_secs_f64(),
            self.frames,
            self.errors
        )
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hits = 100.0 * self.hit_ratio();
        let pages = |count: u64| format_bytes(count * SUBPAGE_BYTES as u64);
        write!(
            f,
            "peak memory {}{}, {} faults, {hits:.1}% of them without a read of flash, {} read, {} written, \
             threads waited {}",
            format_bytes(self.peak_bytes),
            if self.peak_bytes > self.cap_bytes { " (OVER THE CAP)" } else { "" },
            self.faults,
            pages(self.reads + self.prefetched),
            pages(self.evicted_dirty),
            format_duration(self.waited),
        )?;
        if self.faults_of_workers > 0 {
            write!(f, ", workers with all their jobs waited for {} faults", self.faults_of_workers)?;
        }
        if self.faults_switched > 0 {
            write!(f, ", jobs alone for {}", self.faults_switched)?;
        }
        if self.errors > 0 { write!(f, ", {} errors of flash", self.errors) } else { Ok(()) }
    }
}
