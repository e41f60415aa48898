//! Options that several commands have.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::values::{self, Output};

/// Where results go. Help lists the names of values in its own words.
#[derive(Clone, Debug, Args)]
#[command(hide_possible_values = true)]
pub struct OutputArgs {
    /// Write the results as one JSON object (to standard output without FILE or with `-`).
    #[arg(long, value_name = "FILE", num_args = 0..=1, value_parser = values::output)]
    #[arg(default_missing_value = "-", value_hint = ValueHint::FilePath)]
    pub json: Option<Output>,
    /// Draw the results to this file.
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
    /// Run the same code on less data, in under a minute.
    #[arg(long)]
    pub quick: bool,
    /// Seed of data and requests.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
