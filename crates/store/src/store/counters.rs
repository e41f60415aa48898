//! What a store has done.

/// What a store has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct StoreCounters {
    /// Subpages written for programs.
    pub written: u64,
    /// Subpages copied by reclaim.
    pub copied: u64,
    /// Pages of journal, checkpoint, anchor and summary written.
    pub metadata: u64,
    /// Commits.
    pub commits: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Extents reclaimed.
    pub reclaimed: u64,
    /// Flash pages that did not hold what was expected when they were copied.
    pub damaged: u64,
    /// Writes and copies that failed and were tried again at another place.
    pub repeated: u64,
    /// Of [`StoreCounters::copied`], what was copied to level wear.
    pub levelled: u64,
    /// Objects written for programs, those that were freed included, and their bytes.
    pub objects: u64,
    /// Bytes of these.
    pub object_bytes: u64,
    /// Flash pages that were written for them.
    pub object_pages: u64,
    /// Flash pages of objects that reclaim wrote.
    pub object_pages_copied: u64,
}
