//! The process under measurement: one configuration of one workload, driven over a pipe.
//!
//! It opens the workload in its own memory, executes the batches that it is sent, and sleeps in
//! between. As a process it fits a memory cgroup, and has its own CPU time, faults and huge pages.
//! Invariant: it ends when the program ends.

pub mod added_work;
mod arrivals;
mod device;
mod guarded;
mod handle;
pub(crate) mod measure;
pub mod nand;
mod plain;
pub mod pool;
pub mod protocol;
mod runner;
mod taken;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fulgurite_memory::{Address, Region};
use fulgurite_workloads::{Params, Visitor, Workload};

use crate::Workloads;
use crate::own_process::{self, Answer};
pub use added_work::{compute, time as time_work};
pub use handle::{ChildHandle, shared_path};
use protocol::{Command, Spec};
pub(crate) use runner::Runner;

/// Runs it, with these workloads.
pub fn run(workloads: Workloads) -> ExitCode {
    // Nothing of the program survives it, whichever way it ends.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let mut runner: Option<Box<dyn Runner>> = None;
    own_process::serve(|command: serde_json::Result<Command>| -> Answer {
        let served = command.context("not a command").and_then(|command| serve(workloads, &mut runner, command));
        served.map_err(|e| format!("{e:#}"))
    });
    ExitCode::SUCCESS
}

fn serve(workloads: Workloads, runner: &mut Option<Box<dyn Runner>>, command: Command) -> Result<serde_json::Value> {
    let value = match (command, runner) {
        (Command::TimeWork { iterations }, _) => serde_json::to_value(added_work::time(iterations)),
        (Command::Open(_), Some(_)) => bail!("a configuration is open already"),
        (Command::Open(spec), none) => serde_json::to_value(none.insert(workloads.open(*spec)?).opened()),
        (_, None) => bail!("no configuration is open yet"),
        (Command::Zipf(exponent), Some(runner)) => serde_json::to_value(runner.zipf(exponent)?),
        (Command::Run(batch), Some(runner)) => serde_json::to_value(runner.run(&batch)?),
        (Command::Device { read_share, depth, ms }, Some(runner)) => {
            serde_json::to_value(runner.device(read_share, depth, Duration::from_millis(ms))?)
        }
        (Command::Check, Some(runner)) => serde_json::to_value(runner.check()?),
    };
    Ok(value?)
}

/// Opens a configuration of a workload whose type is known.
pub(crate) struct Open(pub Spec);

impl Visitor for Open {
    type Output = Result<Box<dyn Runner>>;
    fn visit<W: Workload>(self) -> Self::Output {
        if self.0.config.guarded() { guarded::open::<W>(self.0) } else { plain::open::<W>(self.0) }
    }
}

impl Spec {
    fn region(&self) -> Region {
        Region::new(Address::from_linear(0), self.region_bytes)
    }
    fn params(&self) -> Params {
        let Spec { data_bytes: bytes, zipf, seed, value_bytes, gets, .. } = *self;
        Params { bytes, zipf, seed, input: self.input.clone(), value_bytes, gets }
    }
}
