//! `fulgurite sim`: systems under a simulated clock.

mod explain;
mod given;
pub mod run;
mod sweep;
mod trace;

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
    /// Run several systems and show them beside each other.
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(run::CompareArgs),
    /// Run a system and split the mean and the 99th percentile of its requests by stage.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(explain::ExplainArgs),
    /// Summarise a trace, or write it in another format.
    #[command(after_help = TRACE_EXAMPLES)]
    Trace(trace::TraceArgs),
}

pub const EXAMPLES: &str = "\
Examples:
  fulgurite sim run systems/nand-only.toml --speed
  fulgurite sim sweep systems/nand-only.toml --over requests.depth=1,4,16,64 \\
    --out depths.jsonl
  fulgurite sim compare systems/nand-only.toml systems/compat-mqsim.toml
  fulgurite sim explain systems/compat-mqsim.toml
  fulgurite sim trace disk.csv

docs/simulator.md describes the systems and their keys.";
const RUN_EXAMPLES: &str = "\
Examples:
  fulgurite sim run systems/nand-only.toml --speed
  fulgurite sim run systems/nand-only.toml --set requests.depth=16 --seed 2
  fulgurite sim run systems/nand-only.toml --set requests.pattern=trace \\
    --set requests.arrivals=trace --trace disk.csv --json result.json
  fulgurite sim run systems/nand-only.toml --print-config";
const SWEEP_EXAMPLES: &str = "\
Examples:
  fulgurite sim sweep systems/nand-only.toml --over requests.depth=1,4,16,64 \\
    --out depths.jsonl
  fulgurite sim sweep systems/nand-only.toml --over requests.depth=1,16 \\
    --over nand.timing.read=25us,75us --out both.jsonl

A point that FILE has already, of the same system and seed, is not run again.";
const COMPARE_EXAMPLES: &str = "\
Examples:
  fulgurite sim compare systems/nand-only.toml systems/compat-mqsim.toml";
const EXPLAIN_EXAMPLES: &str = "\
Examples:
  fulgurite sim explain systems/compat-mqsim.toml
  fulgurite sim explain systems/compat-mqsim.toml --set requests.depth=16";
const TRACE_EXAMPLES: &str = "\
Examples:
  fulgurite sim trace disk.csv
  fulgurite sim trace memory.trace --clock 1.2GHz
  fulgurite sim trace disk.csv --write mqsim --out disk.mqsim";

/// Runs the command.
pub fn run(command: &SimCommand) -> Result<()> {
    match command {
        SimCommand::Run(args) => run::run(args),
        SimCommand::Sweep(args) => sweep::run(args),
        SimCommand::Compare(args) => run::compare(args),
        SimCommand::Explain(args) => explain::run(args),
        SimCommand::Trace(args) => trace::run(args),
    }
}
