//! `policies`.
use crate::args::PoliciesArgs;
use anyhow::Result;

/// Runs it.
pub fn run(args: &PoliciesArgs) -> Result<()> {
    crate::checks::outputs(&args.output)?;
    anyhow::bail!("not available in this build")
}
