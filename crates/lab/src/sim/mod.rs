//! `fulgurite-lab sim`: systems under a simulated clock.

mod explain;
mod given;
mod plot;
mod predict;
pub mod run;
mod sweep;
mod trace;

pub(crate) use given::outputs;

use anyhow::Result;
use clap::Subcommand;

/// What to do with systems.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run a system.
    #[command(after_help = RUN_EXAMPLES)]
    Run(run::RunArgs),
    /// Run a system with each of several values of its keys, on all cores. An interrupted sweep
    /// goes on where it was.
    #[command(after_help = SWEEP_EXAMPLES)]
    Sweep(sweep::SweepArgs),
    /// Run several systems and show them next to each other.
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(run::CompareArgs),
    /// Run a system and split the mean and the 99th percentile of its requests by stage.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(explain::ExplainArgs),
    /// Predict the throughput of workloads on a measured machine, to compare with what `live`
    /// measures.
    #[command(after_help = PREDICT_EXAMPLES)]
    Predict(predict::PredictArgs),
    /// Summarise a trace or a recording, or write a trace in another format.
    #[command(after_help = TRACE_EXAMPLES)]
    Trace(trace::TraceArgs),
}

pub const EXAMPLES: &str = "\
Examples:
  fulgurite-lab sim run systems/nand-only.toml --speed
  fulgurite-lab sim sweep systems/nand-only.toml \\
    --over requests.depth=1,4,16,64 --out depths.jsonl
  fulgurite-lab sim compare systems/nand-only.toml systems/compat-mqsim.toml
  fulgurite-lab sim explain systems/compat-mqsim.toml
  fulgurite-lab sim predict machine.toml --miss-every 10us
  fulgurite-lab sim trace disk.csv

docs/simulator.md describes the systems and their keys.";
const RUN_EXAMPLES: &str = "\
Examples:
  fulgurite-lab sim run systems/nand-only.toml --speed
  fulgurite-lab sim run systems/nand-only.toml --set requests.depth=16 \\
    --seed 2
  # a trace in the place of the file's requests
  fulgurite-lab sim run systems/nand-only.toml --set requests.pattern=trace \\
    --set requests.arrivals=trace --set requests.warm_up=0 --trace disk.csv
  fulgurite-lab sim run systems/astriflash.toml --record jobs.rec
  fulgurite-lab sim run systems/nand-only.toml --print-config";
const SWEEP_EXAMPLES: &str = "\
Examples:
  fulgurite-lab sim sweep systems/nand-only.toml \\
    --over requests.depth=1,4,16,64 --out depths.jsonl
  fulgurite-lab sim sweep systems/nand-only.toml --over requests.depth=1,16 \\
    --over nand.timing.read=25us,75us --out both.jsonl --plot both.html

A point that FILE has already, of the same system and seed, is not run again.";
const COMPARE_EXAMPLES: &str = "\
Examples:
  fulgurite-lab sim compare systems/nand-only.toml systems/compat-mqsim.toml
  fulgurite-lab sim compare systems/nand-only.toml systems/compat-mqsim.toml \\
    --plot both.svg --figure reads.p99_ns.value
  # the same jobs on each
  fulgurite-lab sim compare systems/dram-only.toml systems/astriflash.toml \\
    --set workload.front=recorded --trace jobs.rec";
const EXPLAIN_EXAMPLES: &str = "\
Examples:
  fulgurite-lab sim explain systems/compat-mqsim.toml
  fulgurite-lab sim explain systems/compat-mqsim.toml --set requests.depth=16";
const PREDICT_EXAMPLES: &str = "\
Examples:
  # what costs what here, on emulated flash, over a pool on a file, for swap
  fulgurite-lab micro --system emulated.toml
  fulgurite-lab micro --flash flash.img --create --of pool --fibers 256 \\
    --system pool.toml
  fulgurite-lab micro --of os-swap --system swap.toml
  # predictions first, then the measurement, then both
  fulgurite-lab sim predict emulated.toml --miss-every 10us \\
    --out predicted.json
  fulgurite-lab live --miss-every 10us --zipf 1.2 \\
    --config dram-only,fulgurite --json live.json
  fulgurite-lab sim predict --from predicted.json --compare-with live.json";
const TRACE_EXAMPLES: &str = "\
Examples:
  fulgurite-lab sim trace disk.csv
  fulgurite-lab sim trace memory.trace --clock 1.2GHz
  fulgurite-lab sim trace disk.csv --write mqsim --out disk.mqsim
  fulgurite-lab sim trace jobs.rec
  fulgurite-lab sim trace jobs.rec --write champsim --out jobs.champsim";

/// Runs the command.
pub fn run(command: &SimCommand) -> Result<()> {
    match command {
        SimCommand::Run(args) => run::run(args),
        SimCommand::Sweep(args) => sweep::run(args),
        SimCommand::Compare(args) => run::compare(args),
        SimCommand::Explain(args) => explain::run(args),
        SimCommand::Predict(args) => predict::run(args),
        SimCommand::Trace(args) => trace::run(args),
    }
}
