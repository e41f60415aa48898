//! `demo`.
use crate::args::DemoArgs;
use anyhow::Result;

/// Runs it.
pub fn run(args: &DemoArgs) -> Result<()> {
    crate::checks::outputs(&args.output)?;
    anyhow::bail!("not available in this build")
}
