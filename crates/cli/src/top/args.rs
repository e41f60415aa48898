//! The options of `fulgurite top`.

use std::time::Duration;

use clap::Args;
use fulgurite_term::values;

/// The options of `fulgurite top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Only these processes [default: all that this user may inspect]
    #[arg(value_name = "PID")]
    pub pids: Vec<u32>,
    /// How often to read the figures [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = values::non_zero_duration)]
    pub every: Option<Duration>,
    /// Print one table and end.
    #[arg(long, conflicts_with_all = ["json", "every"])]
    pub once: bool,
    /// Print one array of JSON and end. With --every, print one on a line of its own each time.
    #[arg(long)]
    pub json: bool,
}

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  fulgurite top
  fulgurite top --every 500ms 4711
  fulgurite top --once
  fulgurite top --json
  fulgurite top --json --every 10s

Keys: q or Esc ends, Up and Down select a program, s sorts by the next
column, space pauses.

Programs under `fulgurite run` are shown, and others that have a page buffer.
Programs of other users are shown to root only. Figures of a second are of the
time between two readings, and null in the JSON of the first one. \"waiting\"
is how many threads waited for pages, on average.";
