//! Administration of pools: opened with all that they span, checked, repaired, surveyed, resized.
//!
//! Results are typed, and nothing here prints. Long steps report their progress to a [`Watch`],
//! which can stop them.
//!
//! The caller decides which files may be used up, and knows the room of their file systems.

mod check;
mod error;
mod files;
mod finding;
mod metadata;
mod repair;
mod resize;
mod survey;

use std::ops::ControlFlow;

pub use check::{Check, Seen, check, damaged_subpage};
pub use error::AdminError;
pub use files::{OpenedPool, PoolFiles};
pub use finding::{Damage, Finding};
pub use repair::{RepairEvent, repair};
pub use resize::{Resizing, Target};
pub use survey::{ExtentUse, Survey, SurveyedExtent, TokenKept};

/// What is being done that takes long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Reading the pages of metadata.
    Metadata,
    /// Reading what programs read.
    Data,
    /// Reading what only tokens keep.
    OlderData,
    /// Writing zeros behind the end of a file.
    Extending,
    /// Moving live data from where the pool will end.
    Moving,
}

/// Gets the share of a step that is done, and may stop the whole operation, with
/// [`AdminError::Stopped`].
pub type Watch<'w> = &'w mut dyn FnMut(Step, f64) -> ControlFlow<()>;

fn report(watch: Watch<'_>, step: Step, done: u64, all: u64) -> Result<(), AdminError> {
    match watch(step, done as f64 / all.max(1) as f64) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(AdminError::Stopped),
    }
}
