//! A workload on the guarded path.

use anyhow::{Result, bail};
use fulgurite_workloads::Workload;

use super::Runner;
use super::protocol::Spec;

/// Starts a runtime over the flash and opens the workload in it.
pub fn open<W: Workload>(spec: Spec) -> Result<Box<dyn Runner>> {
    bail!("{} is not available in this build", spec.config)
}
