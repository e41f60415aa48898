//! Decisions without I/O, clock, threads or unsafe code.
//!
//! Decisions: what to evict, which fiber to wake or run, what to prefetch, which job to refuse.
//! Each part is a plain state machine: its driver (the runtime with real time and real flash, or
//! the simulator) reports what happened and asks what to do. Time comes in as nanoseconds from the
//! driver's clock. Equal calls always give equal answers.
//!
//! * [`replacement`]: which frame to evict ([`Clock`], [`S3Fifo`], [`Lru`], [`Sets`]).
//! * [`simulate`]: how many misses each of them has over a trace.
//! * [`miss`]: the miss status table.
//! * [`schedule`]: which fiber a worker runs next.
//! * [`prefetch`]: which subpages to read ahead.
//! * [`admission`]: whether to take one more job.
//! * [`share`]: how DRAM is divided between page frames and objects.
//!
//! Invariants: every structure is bounded when it is made and allocates nothing afterwards
//! ([`simulate`] is for study, and does); every structure with an invariant has `check(&self)`. One
//! instance belongs to one worker: nothing here is shared.
//!
//! Not here: reading, writing, waiting, and the table that says where a subpage is.

#![forbid(unsafe_code)]

pub mod admission;
pub mod clock;
pub mod lru;
pub mod miss;
pub mod prefetch;
pub mod replacement;
pub mod s3fifo;
pub mod schedule;
pub mod sets;
pub mod share;
pub mod simulate;

mod any;
mod fifo;
mod ghost;
mod heat;
mod list;
mod name;

pub use admission::{Admission, AdmissionPolicy, Overloaded};
pub use any::{AnyReplacement, bytes_per_frame};
pub use clock::Clock;
pub use heat::Heat;
pub use lru::Lru;
pub use miss::{BeginError, JoinError, MissEntry, MissKind, MissTable, Waiter};
pub use name::UnknownName;
pub use prefetch::{PrefetchPolicy, Prefetcher};
pub use replacement::{ColdCursor, FrameView, Remembered, Replacement, ReplacementPolicy, Ways};
pub use s3fifo::S3Fifo;
pub use schedule::{Choice, FiberIndex, Point, Scheduler, SchedulingPolicy};
pub use sets::Sets;
pub use share::{Marginal, Share};
pub use simulate::{Hits, MissCount, miss_ratio, miss_ratio_with};
