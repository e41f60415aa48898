//! `micro`.
use crate::args::MicroArgs;
use anyhow::Result;

/// Runs it.
pub fn run(args: &MicroArgs) -> Result<()> {
    crate::checks::outputs(&args.output)?;
    anyhow::bail!("not available in this build")
}
