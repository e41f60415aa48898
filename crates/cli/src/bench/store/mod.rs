//! `bench store`: the journaled store by itself.
//!
//! Three benchmarks: what it writes and keeps beside programs' data ([`overwrites`]), how long a pool takes to open after a crash
//! ([`recovery`]), and how long a sync takes ([`sync`]).

mod content;
mod medium;
mod overwrites;
mod recovery;
mod simulate;

use anyhow::Result;

use crate::args::StoreArgs;
use crate::checks;
use crate::interrupt::Interrupt;

/// Runs the one that was asked for.
pub fn run(args: &StoreArgs) -> Result<()> {
    let interrupt = Interrupt::catch()?;
    checks::outputs(&args.output)?;
    if args.recovery { recovery::run(args, &interrupt) } else { overwrites::run(args, &interrupt) }
}
