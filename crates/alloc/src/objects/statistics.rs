//! What an object allocator has done so far.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fulgurite_format::SUBPAGE_BYTES;

/// Counters, for any thread.
#[derive(Debug, Default)]
pub struct Statistics {
    pub faults: AtomicU64,
    pub faults_of_workers: AtomicU64,
    pub faults_switched: AtomicU64,
    pub reads: AtomicU64,
    pub fresh: AtomicU64,
    pub left_clean: AtomicU64,
    pub left_dirty: AtomicU64,
    pub log_pages: AtomicU64,
    pub moved: AtomicU64,
    pub errors: AtomicU64,
    pub overruns: AtomicU64,
    pub waited_ns: AtomicU64,
}

pub fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// What they said at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ObjectSummary {
    /// Objects that are handed out.
    pub objects: u32,
    /// Accesses that found their object without a page.
    pub faults: u64,
    /// Of these, how many a worker of a runtime waited for: its other jobs waited as well.
    pub faults_of_workers: u64,
    /// Of these, how many a job waited for while other jobs of its worker ran.
    pub faults_switched: u64,
    /// Of these, how many read flash.
    pub reads: u64,
    /// Of these, how many found an object that was never changed.
    pub fresh: u64,
    /// Pages that left the page buffer with their object unchanged.
    pub left_clean: u64,
    /// Pages that left the page buffer with their object changed.
    pub left_dirty: u64,
    /// Bytes written to flash. Over a pool only the bytes of objects are counted: its store writes
    /// more in addition.
    pub bytes_written: u64,
    /// Objects that cleaning the log has moved.
    pub moved: u64,
    /// Reads and writes of flash that failed.
    pub errors: u64,
    /// Writes past the end of an object that were found.
    pub overruns: u64,
    /// How long threads waited for objects, all together.
    pub waited: Duration,
    /// States that were named because room was short
    /// ([`syncs_itself`](super::ObjectSettings::syncs_itself)).
    pub own_syncs: u64,
    /// Pages of the page buffer.
    pub pages: u32,
    /// Bytes of the object cache, its index included.
    pub cache_bytes: u64,
}

impl Statistics {
    pub fn summary(&self) -> ObjectSummary {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ObjectSummary {
            faults: read(&self.faults),
            faults_of_workers: read(&self.faults_of_workers),
            faults_switched: read(&self.faults_switched),
            reads: read(&self.reads),
            fresh: read(&self.fresh),
            left_clean: read(&self.left_clean),
            left_dirty: read(&self.left_dirty),
            bytes_written: read(&self.log_pages) * SUBPAGE_BYTES as u64,
            moved: read(&self.moved),
            errors: read(&self.errors),
            overruns: read(&self.overruns),
            waited: Duration::from_nanos(read(&self.waited_ns)),
            ..ObjectSummary::default()
        }
    }
}

impl ObjectSummary {
    /// The part of faults that read nothing from flash.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        1.0 - self.reads as f64 / self.faults.max(1) as f64
    }
}
