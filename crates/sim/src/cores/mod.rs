//! Cores that run threads over caches, DRAM and flash, by intervals.
//!
//! A core retires `per_cycle` instructions in a cycle until a load that it needs is late. A load
//! that does not depend on another may be under way together with others, as long as no more than
//! the reorder buffer's instructions are behind the oldest one. So the core runs ahead to its next
//! access that its L1 does not answer, and there the kernel puts the cores in order.
//!
//! What happens at a page that is not in DRAM is the system's ([`Paging`]):
//!
//! | system | at a miss |
//! |---|---|
//! | DRAM-only | there is none |
//! | AstriFlash | miss signal; older instructions retire, the rest is flushed, threads switch |
//! | OS-Swap | a fault and a context switch on the core |
//! | Flash-Sync | the load is late, as any other |
//!
//! A store whose page is missing is rolled back to: all behind it is done again. A thread that is
//! resumed repeats its access with the forward-progress bit set: where the page has gone again, the
//! core waits for it. L1 and TLB are simulated, so a switch pollutes them by what the other threads
//! touch.
//!
//! What threads do is modelled, executed, recorded or traced ([`Front`]). A [`Recording`] holds the
//! jobs of a run before its caches, so that all systems can do the same ones. A trace of another
//! program is divided over the threads ([`Traced`]).
//!
//! Threads of all cores share the records and the index of a workload, and its page tables. A
//! directory keeps the L1s coherent ([`Chip`]).
//!
//! Page tables are in a flat part of DRAM. With [`CoresSystem::cached_tables`] they are flash pages
//! as any other, and a walk may miss (AstriFlash-noDP). The walk then ends before its data is asked
//! for, so that both may switch.

mod access;
mod chip;
mod directory;
mod executed;
mod mesh;
mod recorded;
mod recording;
mod report;
mod run;
mod sram;
mod system;
mod threads;
mod tlb;
mod traced;
mod work;

pub use chip::{Asked, Chip, Coherence, L1LookUp};
pub use recording::{Origin, Recording, RecordingError, RecordingSummary};
pub use report::{CoresReport, MissCost};
pub use run::RECORDED_THREADS;
pub(crate) use sram::Sram;
pub use system::{CoreParts, CoresSystem, Front, Paging};
pub use traced::Traced;
pub use work::{Shape, Workload, Zipf, miss_ratio};
