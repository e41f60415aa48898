//! The runtime: workers and fibers, the frontside (is it resident?), and the first driver of the
//! cache.
//!
//! ```text
//!  job on a fiber --access--> residency word --resident--> frame
//!        |                        |
//!        |                        +--absent--> cache: miss table, frame, request --> flash
//!        +<-- resumed by the worker's scheduler, oldest first <-- completion --+
//! ```
//!
//! Invariants, in addition to the cache's invariants:
//! * A fiber that missed runs past that access when it is resumed, even with a single frame.
//! * A frame that a running fiber may hold an unpinned reference to is named in its worker's slot.
//! * Everything is in DRAM that was counted against the budget before it was allocated.
//!
//! It decides nothing itself: `policy` chooses victims, fibers and read-ahead.

mod config;
mod context;
mod control;
mod cut;
mod error;
mod faulted;
mod fibers;
mod guarded;
mod guest;
mod halt;
mod job;
mod jobs;
mod mailbox;
mod object_user;
mod objects;
#[doc(hidden)]
pub mod parking;
mod queue;
mod records;
mod runtime;
mod service;
mod shared;
mod split;
mod state;
mod stats;
mod sync;
mod thread;
mod worker;

pub use config::{BuildError, Builder, DEFAULT_FIBERS, DEFAULT_STACK_BYTES, Needs, machine_bytes};
pub use context::{Context, OwnedFrame, PinnedFrame, WriteSection};
pub use control::Priority;
pub use error::{AccessError, SyncError};
#[doc(hidden)]
pub use fulgurite_cache::Planted;
pub use guest::{Guest, GuestPin, GuestSection};
pub use job::{JobError, JobHandle, JobOptions, SubmitError};
#[doc(hidden)]
pub use objects::PlantedInObjects;
pub use records::Records;
pub use runtime::{Runtime, ServeError};
pub use service::{Next, Service};
pub use shared::WorkerId;
pub use stats::{Counts, RecordStatistics, Statistics, WorkerStatistics};
pub use sync::{Durable, StateHeld, Synced};
#[doc(hidden)]
pub use thread::Holding;
pub use thread::on_worker;
