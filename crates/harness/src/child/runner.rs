//! What a configuration under measurement can be asked for.

use std::time::Duration;

use anyhow::Result;

use super::protocol::{Batch, Opened, Outcome};

/// A configuration that is open.
pub(crate) trait Runner {
    fn opened(&self) -> Opened;
    /// Opens the workload again with another Zipf exponent.
    fn zipf(&mut self, exponent: f64) -> Result<()>;
    fn run(&mut self, batch: &Batch) -> Result<Outcome>;
    fn check(&mut self) -> Result<u64>;
    /// Requests a second of the device itself, at this share of reads and this depth.
    fn device(&mut self, read_share: f64, depth: usize, time: Duration) -> Result<f64>;
}
