//! `run`: programs that were never written for Fulgurite, under `fulgurite run` and compared with
//! swap and enough DRAM, in the same memory cgroup, on the same disk, in turns.
//!
//! ```text
//!  this process: clients, turns, rows | cgroup: dram | swap | fulgurite run, both modes
//!  -----------------------------------+------------------------------------------------
//!  touch     asks over a pipe         | `fulgurite-lab __touch` (touched)
//!  servers   ask over a socket        | redis-server, memcached
//! ```
//!
//! A program lives through all rounds, and is stopped while others have their turn. Its use is
//! counted from outside (figures). Answers are checked: a wrong one ends the program's turns.

pub mod args;
mod client;
mod contest;
mod figures;
mod protocol;
mod save;
mod series;
mod servers;
mod touch;
pub(crate) mod touched;

use anyhow::Result;

use crate::values::Part;
use args::RunBenchArgs;
use contest::Contest;
use fulgurite_harness::experiment::plot;
use fulgurite_term::interrupt::ended_early;
use fulgurite_term::report::{print, print_all};
use servers::Server;

/// Runs `run`.
///
/// # Errors
/// Bad input, before anything is made; what failed; interrupted.
pub fn run(args: &RunBenchArgs) -> Result<()> {
    let mut contest = Contest::start(args)?;
    let output = args.output.clone();
    print(&output, &contest.experiment.machine.line())?;
    let (mut rows, mut saves) = (Vec::new(), Vec::new());
    let mut interrupted = false;
    for part in &args.part {
        let first = rows.len();
        contest.part = *part;
        let ran = match part {
            Part::Touches => touch::run(&mut contest, &mut rows),
            Part::Redis => servers::run(&mut contest, Server::Redis, &mut rows),
            Part::Memcached => servers::run(&mut contest, Server::Memcached, &mut rows),
            Part::Save => save::run(&mut contest, &mut saves),
        };
        interrupted = ended_early(ran)?;
        if rows.len() > first {
            print(&output, &series::table(&rows[first..]))?;
        }
        if *part == Part::Save && !saves.is_empty() {
            print(&output, &save::table(&saves))?;
        }
        if interrupted {
            break;
        }
    }
    print_all(&output, &contest.experiment.notes)?;
    let setting = serde_json::json!({
        "dram_bytes": args.dram_bytes(),
        "data_bytes": args.data_bytes(),
        "value_bytes": servers::VALUE_BYTES,
        "zipf": servers::ZIPF,
        "round_ns": args.round_time().as_nanos() as u64,
        "seed": args.output.seed,
        "in_cgroups": contest.experiment.capabilities.cgroup_missing.is_none(),
    });
    let report = contest.experiment.report(setting, &rows, interrupted).with("saves", &saves)?;
    report.finish(&output, || plot(&rows, series::threads))
}
