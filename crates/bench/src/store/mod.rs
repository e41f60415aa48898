//! `bench store`: the journaled store by itself.
//!
//! Three benchmarks: what it writes and keeps beside programs' data (`overwrites`), for objects that are packed beside such that have
//! a flash page each (`objects`), and what it leaves of the medium's speed
//! (`device`); how long a pool takes to open after a crash (`recovery`); how long a sync takes (`sync`), also
//! that of a running program (`programs`).

mod content;
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
use crate::checks;
use crate::interrupt::Interrupt;

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
