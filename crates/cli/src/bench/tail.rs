//! `tail`.
use crate::args::TailArgs;
use anyhow::Result;

/// Runs it.
pub fn run(args: &TailArgs) -> Result<()> {
    crate::checks::outputs(&args.output)?;
    anyhow::bail!("not available in this build")
}
