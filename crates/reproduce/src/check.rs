//! What a check is, and what it finds.

use std::ops::Deref;

use fulgurite_sim::{Distribution, Estimate, RunError};
use thiserror::Error;

use crate::calibration::{CalibrationError, Values};
use crate::models::Planted;
use crate::paper::Paper;
use crate::shared::Shared;

/// One check of the papers' numbers.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its name: `A5`.
    pub id: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Whose numbers.
    pub paper: Paper,
    /// Whether it draws random numbers: then it runs with each of the fixed seeds.
    pub simulated: bool,
    /// Runs it once.
    pub run: fn(&Inputs<'_>) -> Result<Vec<Finding>, CheckError>,
}

impl Paper {
    /// One of its checks.
    pub const fn check(
        self,
        id: &'static str,
        about: &'static str,
        simulated: bool,
        run: fn(&Inputs<'_>) -> Found,
    ) -> Check {
        Check { id, about, paper: self, simulated, run }
    }
}

/// Why a check has no findings.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The calibration.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// A simulation.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The model has no answer.
    #[error("{0}")]
    NoAnswer(String),
}

impl CheckError {
    /// The model has no answer, and says why.
    pub fn no_answer(why: impl std::fmt::Display) -> CheckError {
        CheckError::NoAnswer(why.to_string())
    }
}

/// The 99th percentile of times in nanoseconds.
///
/// # Errors
/// When there are too few.
pub fn p99_ns(times: &Distribution) -> Result<f64, CheckError> {
    times.p99_ns.map(|p99| p99.value).ok_or_else(|| CheckError::no_answer("too few jobs for a p99"))
}

/// What a check gets. It reads values by their names.
pub struct Inputs<'c> {
    /// The paper's calibration.
    pub values: Values<'c>,
    /// The seed of this run.
    pub seed: u64,
    /// Runs are this many times shorter than those that are reported.
    pub shorter: u64,
    /// A bug in a model, for tests.
    pub planted: Option<Planted>,
    /// What other checks have found by the same runs.
    pub shared: &'c Shared,
}

impl Inputs<'_> {
    /// The bug in the simulator.
    pub fn simulated_bug(&self) -> fulgurite_sim::Planted {
        if let Some(Planted::Simulated(bug)) = self.planted { bug } else { fulgurite_sim::Planted::None }
    }
    /// How many jobs to run, where the reported run has `reported`.
    pub fn volume(&self, reported: u64) -> u64 {
        (reported / self.shorter).max(1)
    }
}

impl<'c> Deref for Inputs<'c> {
    type Target = Values<'c>;
    fn deref(&self) -> &Values<'c> {
        &self.values
    }
}

/// What the paper's number asks of the number found here.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Expected {
    /// It is within this band.
    Within(f64, f64),
    /// A statement about an order or a shape holds.
    Trend(bool),
}

/// What a check finds.
pub type Found = Result<Vec<Finding>, CheckError>;

/// One number or statement of a paper, and ours.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// Its name within the check.
    pub name: &'static str,
    /// As the paper has it.
    pub paper: &'static str,
    /// What came out.
    pub ours: Estimate,
    /// The unit of both.
    pub unit: &'static str,
    /// What is asked of it.
    pub expected: Expected,
    /// Which mechanism gives it, in a line.
    pub mechanism: &'static str,
    /// Other numbers of the same run, which nothing is asked of.
    pub also: Vec<(&'static str, f64)>,
}

impl Finding {
    /// Begins one by its name within the check, and as the paper has it.
    pub fn of(name: &'static str, paper: &'static str) -> Stated {
        Stated { name, paper }
    }
    /// With the mechanism that gives it.
    #[must_use]
    pub fn by(self, mechanism: &'static str) -> Finding {
        Finding { mechanism, ..self }
    }
    /// With another number.
    #[must_use]
    pub fn also(mut self, name: &'static str, value: f64) -> Finding {
        self.also.push((name, value));
        self
    }
}

/// What a paper states, before the number that was found here.
pub struct Stated {
    name: &'static str,
    paper: &'static str,
}

impl Stated {
    /// A value that must be within a band.
    pub fn within(self, ours: f64, unit: &'static str, (low, high): (f64, f64)) -> Finding {
        self.found(ours, unit, Expected::Within(low, high))
    }
    /// A value that the paper states and arithmetic gives, within 1%.
    pub fn exact(self, stated: f64, ours: f64, unit: &'static str) -> Finding {
        let ends = (stated * 0.99, stated * 1.01);
        self.within(ours, unit, (ends.0.min(ends.1), ends.0.max(ends.1)))
    }
    /// A statement about an order or a shape, with a number that shows it.
    pub fn trend(self, holds: bool, ours: f64, unit: &'static str) -> Finding {
        self.found(ours, unit, Expected::Trend(holds))
    }
    fn found(self, ours: f64, unit: &'static str, expected: Expected) -> Finding {
        let Stated { name, paper } = self;
        Finding { name, paper, ours: Estimate::exact(ours), unit, expected, mechanism: "", also: Vec::new() }
    }
}
