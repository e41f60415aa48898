//! The models that a paper's checks need in addition to the simulator's queues.
//!
//! | part | of |
//! |---|---|
//! | [`protocol`] | of a device on the DRAM interface: conflicts in its banks, orders of stores |
//! | [`paging`] | a base of systems for `sim::paging`, which runs them |
//! | [`written`] | what the store writes for each byte, of objects and of pages |
//! | [`shootdown`] | cores that invalidate each other's translations |
//! | [`wear`] | capacity that is left while flash pages wear out |
//!
//! They hold no result of a paper, and no parameter of one: checks read those from calibrations.
//! Decisions are made by the other crates: `sim`, `policy` and `store`.

pub mod paging;
pub mod protocol;
pub mod shootdown;
pub mod wear;
pub mod written;

/// Bugs that are planted in the models on purpose, and that the checks must find. No program plants
/// one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Planted {
    /// A miss's tags cost nothing.
    NoTags,
    /// A flush of the pipeline costs nothing.
    NoFlush,
    /// A resumed thread may be switched out before it has retired an instruction.
    NoForwardProgress,
    /// Threads whose data is here do not age.
    NoAging,
    /// An interrupt to all cores takes as long as one.
    FreeBroadcast,
    /// A transfer begins without being set up.
    NoSetUp,
    /// Caches are not invalidated.
    NoInvalidation,
    /// Data crosses the DRAM bus once.
    OneCrossing,
    /// The device finds a command before its data.
    NoBarrier,
    /// Reads and writes are confused.
    OpcodesSwapped,
    /// The buffer is larger than it is said to be.
    EndlessBuffer,
    /// A page fault brings one page.
    NoReadAround,
    /// The operating system costs nothing.
    NoSoftware,
    /// Prefetched pages do not stay.
    PrefetchLost,
    /// A page that is worn out takes its share of writes further on.
    DeadPagesWear,
    /// An object takes a page of its own in the log.
    Unpacked,
    /// An old version is not linked.
    VersionLost,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 17] = [
        Planted::NoTags,
        Planted::NoFlush,
        Planted::NoForwardProgress,
        Planted::NoAging,
        Planted::FreeBroadcast,
        Planted::NoSetUp,
        Planted::NoInvalidation,
        Planted::OneCrossing,
        Planted::NoBarrier,
        Planted::OpcodesSwapped,
        Planted::EndlessBuffer,
        Planted::NoReadAround,
        Planted::NoSoftware,
        Planted::PrefetchLost,
        Planted::DeadPagesWear,
        Planted::Unpacked,
        Planted::VersionLost,
    ];
}
