//! Every number of the four publications as a check, next to what the parts and the simulator give.
//!
//! | part | holds |
//! |---|---|
//! | [`calibration`], [`units`] | one file of values a paper, each with unit, kind and source |
//! | [`checks`] | the checks, which read values and find numbers |
//! | [`models`] | what they compute with, in addition to the simulator |
//! | [`shared`] | runs that several checks have in common |
//! | [`runner`] | seeds, intervals, moved values, verdicts |
//! | [`report`] | rows, their counts, JSON |
//! | [`figures`] | the papers' figures, drawn |
//! | [`live`] | what the kept results of the runtime say of the same number |
//!
//! Honesty: a check sets nothing. A check that a fitted value names is calibrated, never passed. A
//! check that flips when a value that is not in the text moves by 20% is fragile.
//!
//! It measures nothing itself, and reads no file but the kept results that it is given.
#![forbid(unsafe_code)]

pub mod calibration;
pub mod check;
pub mod checks;
pub mod figures;
pub mod live;
pub mod models;
pub mod paper;
pub mod report;
pub mod runner;
pub mod shared;
pub mod units;

pub use calibration::{Calibration, CalibrationError};
pub use check::{Check, CheckError};
pub use fulgurite_sim::Time;
pub use paper::Paper;
pub use report::{Report, Row, Verdict};
pub use runner::{Effort, reproduce};
