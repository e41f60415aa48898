//! What a check is, and what it finds.

use std::ops::Deref;

use fulgurite_sim::{Estimate, RunError};
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
    /// A value that must be within a band.
    pub fn within(
        name: &'static str,
        paper: &'static str,
        ours: f64,
        unit: &'static str,
        (low, high): (f64, f64),
        mechanism: &'static str,
    ) -> Finding {
        let ours = Estimate::exact(ours);
        Finding { name, paper, ours, unit, expected: Expected::Within(low, high), mechanism, also: Vec::new() }
    }
    /// A value that the paper states and arithmetic gives, within 1%.
    pub fn exact(
        name: &'static str,
        paper: &'static str,
        stated: f64,
        ours: f64,
        unit: &'static str,
        mechanism: &'static str,
    ) -> Finding {
        let ends = (stated * 0.99, stated * 1.01);
        let band = (ends.0.min(ends.1), ends.0.max(ends.1));
        Finding::within(name, paper, ours, unit, band, mechanism)
    }
    /// A statement about an order or a shape, with a number that shows it.
    pub fn trend(
        name: &'static str,
        paper: &'static str,
        holds: bool,
        (ours, unit): (f64, &'static str),
        mechanism: &'static str,
    ) -> Finding {
        let ours = Estimate::exact(ours);
        Finding { name, paper, ours, unit, expected: Expected::Trend(holds), mechanism, also: Vec::new() }
    }
    /// With another number.
    #[must_use]
    pub fn also(mut self, name: &'static str, value: f64) -> Finding {
        self.also.push((name, value));
        self
    }
}
