//! `store`: the journaled store by itself.
//!
//! Three benchmarks: the store's writes and DRAM (`overwrites`), with objects (`objects`) and the
//! medium's speed (`device`). The time to open a pool after a crash (`recovery`). The time of a
//! sync (`sync`), also of a running program (`programs`). What is counted and not timed is of a
//! store whose flash answers at once (`counted`).

mod content;
mod counted;
mod device;
mod drive;
mod medium;
mod objects;
mod overwrites;
mod programs;
mod recovery;
mod simulate;
mod sync;

use anyhow::Result;

use crate::args::StoreArgs;
use fulgurite_harness::checks;
use fulgurite_term::interrupt::Interrupt;

/// Runs the one that was asked for.
pub fn run(args: &StoreArgs) -> Result<()> {
    let interrupt = Interrupt::catch()?;
    checks::outputs(&args.output)?;
    match (args.recovery, args.sync) {
        (true, _) => recovery::run(args, &interrupt),
        (_, true) => sync::run(args, &interrupt),
        _ => overwrites::run(args, &interrupt),
    }
}
