//! What can go wrong with an access to flash memory, and with a job.

use std::time::Duration;

use fulgurite_flash::{Flash, FlashError, Shortage, VersionError};
use fulgurite_format::Address;

/// Why an access to flash memory failed. Nothing was changed by the access that returned it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum AccessError {
    /// The medium failed to read or write the subpage.
    #[error("flash failed at {at}: {source}; the data behind other addresses is unaffected")]
    Flash { at: Address, source: FlashError },
    /// The address is outside the region, or belongs to another kind of region.
    #[error("address {at} is outside what this access may touch; check the pointer and its region")]
    OutOfRange { at: Address },
    /// The bytes asked for are not inside one subpage, or not at their type's alignment.
    #[error("{len} bytes at {at} are not inside one subpage at their alignment; allocate them with the heap")]
    Straddles { at: Address, len: usize },
    /// The page may not be read, or not be written.
    #[error("the page of {at} may not be {}; change its permissions first", if *.write { "written" } else { "read" })]
    NotPermitted { at: Address, write: bool },
    /// The region is owned by another worker, of this runtime or of another.
    #[error("address {at} is owned by worker {owner} of the runtime that reserved it; submit the job there")]
    NotOwner { at: Address, owner: u32 },
    /// The handle is of another memory than the job, or of one that was closed.
    #[error(
        "this handle is of another memory than the job or transaction that uses it; open it there by its name, or \
         submit the job to the memory of the handle"
    )]
    OtherMemory,
    /// The job was cancelled.
    #[error("the job was cancelled")]
    Cancelled,
    /// The job's deadline has passed.
    #[error("the job's deadline has passed")]
    DeadlineExceeded,
    /// The job holds as many pins as it declared.
    #[error(
        "the job already holds the {limit} pins that it declared; declare more (JobOptions::pins), or drop one first"
    )]
    TooManyPins { limit: u32 },
    /// All jobs together hold as many pins on the subpage as can be counted.
    #[error("{pins} pins hold the subpage of {at} already; drop one first")]
    PinnedTooOften { at: Address, pins: u32 },
    /// A fiber died while it held the latch; what the latch protects may be half changed.
    #[error("this container is unusable: a job failed mid-update, or it was rolled back or removed; reopen it")]
    Poisoned,
    /// A roll back failed half way ([`SyncError::Poisoned`](SyncError::Poisoned) has the cause),
    /// and the memory is of no one state.
    #[error("a roll back failed midway, and this memory is unusable; close it and open it again")]
    MemoryPoisoned,
    /// A transaction was run again and again, and others changed what it read each time.
    #[error("the transaction met conflicts in all of its {runs} runs; let it read less, or write it less often")]
    Conflict { runs: u32 },
    /// The region or heap is full.
    #[error(
        "no space: {} asked for, {free} free; free something, or make the region larger (of a named container: the pool)",
        asked_for(*.requested)
    )]
    NoSpace { requested: u64, free: u64 },
    /// The pool has no place for the change, or for a write-back that would free a frame.
    #[error(
        "{} for {at}{}; {}{}", shortage_of(.shortage), unsynced(.uncommitted), sync_first(.shortage),
        remedy_of(.shortage)
    )]
    PoolFull {
        at: Address,
        /// Subpages changed and not yet synced, in DRAM or written. None where a device's store
        /// does not say.
        uncommitted: Option<u64>,
        /// What there is no more of; none where the store does not say.
        shortage: Option<Shortage>,
    },
    /// A key or a value is longer than any can be.
    #[error("a {what} of {bytes} bytes is too long: {most} are the most; divide it")]
    TooLong { what: &'static str, bytes: u64, most: u64 },
    /// The memory has no DRAM for maps of records.
    #[error("this memory has no DRAM for maps of records; give it some when it is opened (Builder::record_cache)")]
    NoRecords,
    /// The index of the maps of records takes all DRAM that it may have.
    #[error(
        "the index of this memory's maps would take {bytes} bytes of DRAM in a shard, and {most} are the most; raise the DRAM cap, or remove keys"
    )]
    IndexFull { bytes: u64, most: u64 },
    /// The value that was read or written in parts has another state now.
    #[error("the value at {at} was changed, removed or rolled back while it was read or written in parts; begin again")]
    ValueGone { at: Address },
    /// A value that is written in parts was put before its end.
    #[error("{written} of {bytes} bytes of the value were written; write the others first")]
    Unfinished { written: u64, bytes: u64 },
    /// What was read cannot be what was written: a damaged structure or a stale pointer.
    #[error("corrupt {what} at {at}: expected {expected}, got {got}")]
    Corrupt { what: &'static str, at: Address, expected: u64, got: u64 },
    /// Every frame is pinned, or was taken by a smaller budget.
    #[error(
        "no frame can be freed: all are pinned; raise the DRAM budget (Builder::dram), or hold fewer pins at a time \
         (JobOptions::pins)"
    )]
    OutOfFrames,
    /// What is left of the job's stack is too little for a miss or a wait.
    #[error(
        "the job has used nearly all of its stack of {stack_bytes} bytes; recurse less, or give jobs larger stacks (runtime::Builder::stack)"
    )]
    StackExhausted { stack_bytes: usize },
    /// A job asked for what only other threads may do.
    #[error("a job must not wait for its own worker: use the job's context, or do it from another thread")]
    OnWorker,
    /// An operation was begun inside the closure of another one, which may hold what it waits for.
    #[error(
        "an operation of this store is under way on this thread: do this after it, or use what its closure is given"
    )]
    Nested,
    /// Too many threads use the store at one time.
    #[error("{most} threads use this store already; end some, or use jobs")]
    TooManyThreads { most: u32 },
    /// The kernel lacks what threads outside of jobs need.
    #[error("the kernel refuses membarrier, without which only jobs can use the store; allow it, or use jobs")]
    NoBarrier,
    /// This process is a child of the one that opened the memory.
    #[error("{FORKED}")]
    Forked,
    /// The runtime is shutting down.
    #[error("the runtime is shutting down")]
    ShuttingDown,
    /// The job was turned away at once: the runtime has more work than it can do in time.
    #[error("overloaded: the oldest job has waited {} µs; submit less, or retry later", .wait_ns / 1000)]
    Overloaded {
        /// How long, in nanoseconds.
        wait_ns: u64,
    },
}

/// The message for a child after `fork`.
pub(crate) const FORKED: &str = "this process is a child, by fork, of the one that opened the memory, and has none of \
                                its workers; use it there, or open another pool here";

/// A number of bytes in words. A capacity that no number of bytes can express asks for the most.
fn asked_for(bytes: u64) -> String {
    if bytes == u64::MAX { "more bytes than any memory has".to_owned() } else { format!("{bytes} bytes") }
}

/// How much a sync would let go of, in words.
pub(crate) fn unsynced(uncommitted: &Option<u64>) -> String {
    uncommitted.map_or_else(String::new, |count| format!(" ({count} subpages are changed and not yet synced)"))
}

/// What a store has no more of, in words.
pub(crate) fn shortage_of(shortage: &Option<Shortage>) -> String {
    match shortage {
        Some(Shortage::History { bytes }) => format!(
            "the {} of DRAM that may remember older contents are full, and there is no room left",
            fulgurite_format::format_bytes(*bytes)
        ),
        Some(Shortage::Leaves { bytes }) => format!(
            "the {} of DRAM for the places of changed objects are full, and there is no room left",
            fulgurite_format::format_bytes(*bytes)
        ),
        Some(Shortage::Unsynced) => {
            "what was overwritten since the last sync fills the pool, and there is no space left".to_owned()
        }
        Some(Shortage::Tokens) => "what older tokens keep fills the pool, and there is no space left".to_owned(),
        Some(Shortage::Space) => "the pool is full of current data, and has no space left".to_owned(),
        _ => "the pool has no space left".to_owned(),
    }
}
/// What a writer does before that; a sync that gets this error cannot do it.
pub(crate) fn sync_first(shortage: &Option<Shortage>) -> &'static str {
    match shortage {
        Some(Shortage::History { .. } | Shortage::Leaves { .. }) | None => "sync, ",
        _ => "",
    }
}
/// What to do about that.
pub(crate) fn remedy_of(shortage: &Option<Shortage>) -> &'static str {
    match shortage {
        Some(Shortage::History { .. } | Shortage::Leaves { .. }) => {
            "change less between two syncs, drop tokens, or raise the DRAM budget (Builder::dram), of which that \
             is a share"
        }
        Some(Shortage::Unsynced) => {
            "sync more often, or leave that to the pool (Durability::Lazy); a larger pool takes more between two syncs"
        }
        Some(Shortage::Tokens) => {
            "keep fewer tokens (Builder::keep_tokens, keep_space), unpin some, or make the pool larger"
        }
        Some(Shortage::Space) => "remove something and sync, or make the pool larger",
        _ => "drop tokens, or make it larger",
    }
}

impl AccessError {
    /// Whether the data at an address is damaged, so that the error comes each time and concerns
    /// nothing else. Other errors may be gone on retry.
    pub fn is_damage(&self) -> bool {
        // EIO, ENODATA, EBADMSG, EILSEQ and EREMOTEIO: cannot be read (`blk_errors` in
        // block/blk-core.c).
        let unreadable = |source| matches!(source, FlashError::Corrupt | FlashError::Io(5 | 61 | 74 | 84 | 121));
        match *self {
            AccessError::Corrupt { .. } => true,
            AccessError::Flash { source, .. } => unreadable(source),
            _ => false,
        }
    }

    /// The medium failed at an address.
    #[cold]
    pub(crate) fn of_flash(at: Address, source: FlashError, flash: &dyn Flash) -> AccessError {
        match (source, flash.versions()) {
            (FlashError::NoSpace, Some(versions)) => {
                AccessError::PoolFull { at, uncommitted: versions.uncommitted(), shortage: versions.shortage() }
            }
            _ => AccessError::Flash { at, source },
        }
    }
}

/// Why there is no token, or why none was returned to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum SyncError {
    /// The medium keeps no versions.
    #[error("{medium} keeps no versions; use a pool")]
    NoVersions { medium: String },
    /// The medium failed, has no space, or has no such token.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// The pool has no place for what differs in DRAM, or the page table none for its versions.
    /// Nothing is lost: it is still in DRAM.
    #[error("{} for a sync{}; {}", shortage_of(.shortage), unsynced(.uncommitted), remedy_of(.shortage))]
    NoSpace {
        /// Subpages changed and not yet synced, in DRAM or written. None where a device's store
        /// does not say.
        uncommitted: Option<u64>,
        /// What there is no more of; none where the store does not say.
        shortage: Option<Shortage>,
    },
    /// A write section did not end.
    #[error("a write section has been open for {} ms on worker {worker}; end it, or build the runtime with a longer gate time-out", .waited.as_millis())]
    SectionOpen { worker: usize, waited: Duration },
    /// A write section of a thread did not end.
    #[error("a thread has had a write section open for {} ms; end it, or build the runtime with a longer gate time-out", .waited.as_millis())]
    SectionOpenInThread { waited: Duration },
    /// Jobs hold pins, and with them what would be forgotten.
    #[error("jobs hold {pins} pins on memory that this would discard; end them first")]
    Busy { pins: u64 },
    /// State in DRAM could not be saved, or taken up again.
    #[error("state in DRAM could not be {what}: {source}")]
    Part { what: &'static str, source: AccessError },
    /// A part panicked, or the runtime is shutting down.
    #[error("state in DRAM could not be {what}: {message}")]
    PartDied { what: &'static str, message: String },
    /// A roll back failed after the medium had begun it, so memory and medium are of no one state.
    /// Every access, sync and roll back fails from then on. The medium has the state before or the
    /// one of the token, whole.
    #[error("a roll back failed midway ({cause}), and this memory is unusable; close it and open it again")]
    Poisoned { cause: Box<SyncError> },
    /// This process is a child of the one that opened the memory.
    #[error("{FORKED}")]
    Forked,
}

impl From<FlashError> for SyncError {
    fn from(error: FlashError) -> SyncError {
        SyncError::Version(error.into())
    }
}
