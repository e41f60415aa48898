//! What every run reports, and why one has no result.

use serde::Serialize;
use thiserror::Error;

use crate::statistics::{Distribution, Estimate, Law};
use crate::time::Time;

/// How much a run has done, warm-up included: what its speed is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Counted {
    /// Requests, accesses or jobs that ended.
    pub requests: u64,
    /// Events of the kernel.
    pub events: u64,
}

/// Rows that show a distribution, each with its interval where there is one. None without any time.
pub(crate) fn times(rows: &mut Vec<(&'static str, String)>, names: [&'static str; 5], of: &Distribution) {
    let shown = |estimate: Estimate| {
        let of = |ns: f64| format!("{:.3}", ns / 1e3);
        estimate.half_width.map_or_else(|| of(estimate.value), |half| format!("{} ± {}", of(estimate.value), of(half)))
    };
    if of.count == 0 {
        return;
    }
    rows.push((names[0], of.count.to_string()));
    for (name, value) in names[1..].iter().zip([of.mean_ns, of.p50_ns, of.p99_ns, of.p9999_ns]) {
        rows.extend(value.map(|value| (*name, shown(value))));
    }
}

/// A share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// Why a run has no result.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The statistics contradict each other.
    #[error(
        "Little's law does not hold: {} were inside on average, and their times differ from that by {:e} of it: the \
         model counts wrongly, please report it",
        .0.mean_present, .0.deviation
    )]
    Law(Law),
    /// More comes than leaves, or less, or the run is too short to tell.
    #[error(
        "it is not steady: what is inside at its ends makes {} of all time inside; let less come, or run longer",
        percent(.0.unended)
    )]
    Unsteady(Law),
    /// The workload could not be executed.
    #[error("the workload: {0}")]
    Workload(String),
    /// The system has no memory for the tables of frames, or no descriptor.
    #[error("the frames: {0}")]
    Memory(String),
    /// There are no jobs to record.
    #[error("it has no jobs of its own; model = \"cores\" has, with front = \"modelled\" or \"executed\"")]
    NoJobs,
    /// Things happened, and no job ended.
    #[error("no job has ended in {events} events: threads evict each other's pages; give DRAM more sets or ways")]
    Livelock {
        /// How many since the last one ended.
        events: u64,
    },
    /// No event was pending, and jobs were under way.
    #[error("an event was lost: none is pending, and jobs are under way")]
    Stalled,
    /// It goes on for longer than times are counted.
    #[error("it takes more than 100 days of simulated time: give shorter times, higher rates or fewer requests")]
    TooLong,
    /// Nothing was left to measure.
    #[error("nothing ended within the measurement: ask for more than the warm-up")]
    Nothing,
}

/// A run that ended at `now` must not have taken longer than times are counted.
pub(crate) fn in_time(now: Time) -> Result<(), RunError> {
    if now <= Time::LONGEST_RUN { Ok(()) } else { Err(RunError::TooLong) }
}

/// The law of a run whose population nothing bounds, which must have been steady.
pub(crate) fn steady(law: Law) -> Result<Law, RunError> {
    if law.is_steady() { Ok(law) } else { Err(RunError::Unsteady(law)) }
}

/// The law of a run that ended at `now`, which must hold, within the time that is counted.
pub(crate) fn held(law: Option<Law>, now: Time) -> Result<Law, RunError> {
    in_time(now)?;
    match law {
        None => Err(RunError::Nothing),
        Some(law) if !law.holds() => Err(RunError::Law(law)),
        Some(law) => Ok(law),
    }
}
