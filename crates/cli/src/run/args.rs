//! The options of `fulgurite run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use fulgurite_term::values;

/// The options of `fulgurite run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The cap on all memory of the program, for example 512M.
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub dram: u64,
    /// Where flash is: a directory, or a file that does not exist yet. What is made there is gone
    /// when the program ends.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, required_unless_present = "pool")]
    pub flash: Option<PathBuf>,
    /// A pool whose unused space is taken instead, for as long as the program runs. What else is in
    /// it stays as it is.
    #[arg(long, value_name = "POOL", value_hint = ValueHint::AnyPath, conflicts_with = "flash")]
    pub pool: Option<PathBuf>,
    /// How much of it [default: 8 times --dram, or what is unused of the pool]
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub flash_size: Option<u64>,
    /// The smallest mapping that goes to flash.
    #[arg(long, value_name = "SIZE", value_parser = values::bytes, default_value = "128K")]
    pub threshold: u64,
    /// Let small blocks of malloc go to flash as well.
    #[arg(long)]
    pub small_blocks: bool,
    /// Hold each block of malloc from BYTES [128] to 4082 bytes as an object in a page of its own:
    /// only its bytes take DRAM and flash. Needs the right to userfaultfd. `fork` is refused.
    #[arg(long, value_name = "BYTES", num_args = 0..=1, default_missing_value = "128")]
    pub objects: Option<u64>,
    /// Which threads resolve faults: a handler thread (compatible), the faulting ones (in-line), or
    /// the best that this user may have.
    #[arg(long, value_enum, default_value = "auto")]
    pub mode: Mode,
    /// Report how page faults are handled, and why.
    #[arg(long)]
    pub explain: bool,
    /// Print figures at this interval (`1s`) while the program runs, each child's as well.
    #[arg(long, value_name = "TIME", value_parser = values::non_zero_duration)]
    pub stats: Option<Duration>,
    /// Print figures as lines of JSON.
    #[arg(long)]
    pub json: bool,
    /// The program, and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// Which threads resolve faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Mode {
    /// A handler thread, where the user has the right to userfaultfd; else in-line.
    Auto,
    /// A handler thread. System calls work as they are. Needs the right to userfaultfd.
    Compatible,
    /// The threads themselves. System calls of the C library are wrapped.
    InLine,
}

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  fulgurite run --dram 512M --flash /mnt/nvme -- redis-server --save ''
  fulgurite run --dram 64M --flash /mnt/nvme --flash-size 2G --explain \\
    -- ./program 1000000
  fulgurite run --dram 1G --flash flash.img --threshold 1M -- sort huge.txt
  fulgurite run --dram 1G --flash /mnt/nvme --small-blocks --stats 1s \\
    -- sqlite3 :memory:
  fulgurite run --dram 256M --flash /mnt/nvme --objects \\
    -- redis-server --save ''
  fulgurite run --dram 1G --pool /dev/nvme1n1 -- memcached -m 8192

The program's large anonymous mappings get memory of flash, behind a cache in
DRAM. All of the program's memory together stays within --dram. What the
program maps otherwise (its code, stacks, files, and small blocks of malloc
without --small-blocks) is in DRAM as before, and takes its part of --dram.

The summary goes to the standard error output when the program ends by exit
or by returning from main.

Static programs and programs in Go are refused, because they do not call the
C library. Setuid programs are refused. Children of the program after fork
share --dram and --flash-size with it. See docs/run.md.";
