//! Queues of jobs: servers of one queue ([`servers`]), and a core that runs threads ([`core`]).

pub mod core;
pub mod jobs;
pub mod servers;

pub use self::core::{Core, CoreReport, Misses};
pub use jobs::{Jobs, Spans};
pub use servers::{Servers, ServersReport};

use thiserror::Error;

use crate::statistics::Law;

/// Why a run has no result.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The statistics contradict each other.
    #[error(
        "Little's law does not hold: {} were inside on average, and rate times time gives {}; run longer",
        .0.mean_present, .0.rate_per_s * .0.mean_ns / 1e9
    )]
    Law(Law),
    /// Nothing was left to measure.
    #[error("no job ended within the measurement; ask for more jobs")]
    Nothing,
}

/// The law of a run, which must hold.
fn held(law: Option<Law>) -> Result<Law, QueueError> {
    match law {
        None => Err(QueueError::Nothing),
        Some(law) if !law.holds() => Err(QueueError::Law(law)),
        Some(law) => Ok(law),
    }
}
