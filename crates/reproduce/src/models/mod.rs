//! The models that a paper's checks need in addition to the simulator's queues.
//!
//! | part | of |
//! |---|---|
//! | [`protocol`] | of a device on the DRAM interface: conflicts in its banks, orders of stores |
//! | [`flash`] | NAND of which only the times count, and requests for it |
//! | [`paging`] | a base of systems for `sim::paging`, which runs them |
//! | [`written`] | what the store writes for each byte, of objects and of pages |
//! | [`shootdown`] | cores that invalidate each other's translations |
//! | [`wear`] | capacity that is left while flash pages wear out |
//!
//! They hold no result of a paper, and no parameter of one: checks read those from calibrations.
//! Decisions are made by the other crates: `sim`, `policy` and `store`.

pub mod flash;
pub mod paging;
pub mod protocol;
pub mod shootdown;
pub mod wear;
pub mod written;

use fulgurite_sim::Planted as Bug;

/// Bugs that are planted in the models on purpose, and that the checks must find. No program plants
/// one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Planted {
    /// A bug of the simulator.
    Simulated(Bug),
    /// Threads whose data is here do not age.
    NoAging,
    /// An interrupt to all cores takes as long as one.
    FreeBroadcast,
    /// The device finds a command before its data.
    NoBarrier,
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
        Planted::Simulated(Bug::FreeTags),
        Planted::Simulated(Bug::FreeFlush),
        Planted::Simulated(Bug::NoForwardProgress),
        Planted::NoAging,
        Planted::FreeBroadcast,
        Planted::Simulated(Bug::FreeSetup),
        Planted::Simulated(Bug::FreeInvalidation),
        Planted::Simulated(Bug::OneCrossing),
        Planted::NoBarrier,
        Planted::Simulated(Bug::SwappedOperations),
        Planted::Simulated(Bug::EndlessBuffer),
        Planted::NoReadAround,
        Planted::NoSoftware,
        Planted::PrefetchLost,
        Planted::DeadPagesWear,
        Planted::Unpacked,
        Planted::VersionLost,
    ];
}
