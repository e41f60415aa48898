//! Bugs that the suite has to find: each leaves something out of a model.

/// A bug. Only the suite's tests plant one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Planted {
    /// None.
    #[default]
    None,
    /// Data takes no time on a link.
    FreeLink,
    /// Times of reads begin when the device sees them.
    LateClock,
    /// Tags of the DRAM cache are read in no time.
    FreeTags,
    /// A miss of the DRAM cache opens the row of its set, and finds the miss status row open.
    OneRowMiss,
    /// Another row of a bank is closed in no time.
    FreeConflict,
    /// A set evicts the page that was used last.
    WrongVictim,
    /// A page that comes wakes no thread.
    LostArrival,
    /// Energy is reported in another unit.
    WrongUnit,
    /// A miss flushes the core in no time.
    FreeFlush,
    /// The DMA engine is set up in no time.
    FreeSetup,
    /// Caches are invalidated in no time.
    FreeInvalidation,
    /// A transfer crosses the DRAM bus once.
    OneCrossing,
    /// The device reads where it should write, and writes where it should read.
    SwappedOperations,
    /// The data buffer, or the evict buffer, is larger than it is said to be.
    EndlessBuffer,
    /// The host controller has a slot for each command.
    EndlessQueue,
    /// A resumed thread is switched out again without having retired an instruction.
    NoForwardProgress,
    /// A TLB has a translation before its walk has ended.
    EarlyTranslation,
    /// A core keeps its copy of a block that another one writes.
    ForgottenInvalidation,
    /// A core that writes waits for no acknowledgement.
    FreeAcknowledgement,
    /// Messages on the mesh do not wait for each other.
    FreeLinks,
    /// A page that was written to leaves DRAM, and is not written to its device.
    LostWriteBack,
    /// Faults of different cores do not wait for each other.
    NoLock,
    /// Reclaim interrupts no other core.
    NoShootdown,
    /// What is to be read ahead is not read.
    LostReadAhead,
    /// SSDAlloc's object table is read in no time.
    FreeTable,
    /// A page moves between DRAM and flash without crossing DRAM's bus.
    FreeMove,
    /// A miss takes no time of a worker.
    FreeMiss,
    /// What is known of each subpage is in the processor's caches.
    AllNear,
    /// Requests of one plane do not wait for each other.
    EndlessPlanes,
}
