//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum, ValueHint};
use fulgurite_term::values::{self, Output};

use crate::stores::Name;

/// Fulgurite compared with redb, fjall, LMDB and foyer: the same requests on the same disk, in the
/// same memory cgroup, in turns.
#[derive(Clone, Debug, Parser)]
#[command(name = "fulgurite-peers", bin_name = "fulgurite-lab peers", version, max_term_width = 110)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What to compare [default: all].
    #[arg(value_name = "WHAT")]
    pub what: Vec<What>,
    /// The stores that are compared with Fulgurite.
    #[arg(long, value_name = "STORES", value_delimiter = ',', default_value = "redb,fjall,lmdb,foyer")]
    pub peers: Vec<Name>,
    /// Values.
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1000..=1 << 31))]
    pub keys: u64,
    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value_t = 900, value_parser = clap::value_parser!(u32).range(24..=4096))]
    pub value: u32,
    /// What the cgroup of each store allows: the process, its caches and the page cache of its
    /// files.
    #[arg(long, value_name = "SIZE", default_value = "320M", value_parser = values::bytes)]
    pub memory: u64,
    /// Clients at the same time: OS threads, and fibers in a row of their own.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,32")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub clients: Vec<u32>,
    /// Percent of the requests that are gets. The others put.
    #[arg(long, value_name = "PERCENT,..", value_delimiter = ',', default_value = "100,95,50")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    pub gets: Vec<u32>,
    /// Exponent of the Zipf distribution of keys.
    #[arg(long, value_name = "EXPONENT", default_value_t = 0.99)]
    pub zipf: f64,
    /// Rounds. In each, all stores run in turns.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Length of a round of one store and mix.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = values::non_zero_duration)]
    pub round_time: Duration,
    /// An existing directory on the disk to be measured [default: the temporary directory].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Write the results as one JSON object (to standard output without FILE or with `-`).
    #[arg(long, value_name = "FILE", num_args = 0..=1, value_parser = values::output)]
    #[arg(default_missing_value = "-", require_equals = true, value_hint = ValueHint::FilePath)]
    pub json: Option<Output>,
    /// Run the same code on less data, in under two minutes.
    #[arg(long)]
    pub quick: bool,
    /// Seed of the requests.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum What {
    /// Gets and puts of values larger than memory.
    Values,
    /// Objects of 128 bytes, and frames of 4 KiB instead: only Fulgurite.
    Small,
    /// Transfers between accounts, a transaction each.
    Bank,
    /// A hit on a cached value compared with a hash map of the standard library.
    Hits,
}

const EXAMPLES: &str = "\
Examples:
  fulgurite-lab peers --dir /mnt/nvme --json=peers.json
  fulgurite-lab peers --quick
  fulgurite-lab peers values --peers redb,lmdb --gets 95 --clients 32

Stores get a process and a memory cgroup each, with the same limit, which
counts the page cache of their files as well. That needs root. A store is
stopped while another one has its turn. Where anything is put, a sync is made
each second on all sides, and once more before the round's time ends.

\"of best peer\" is the throughput as a multiple of the best peer that keeps every
key, round by round: median, lowest and highest.";

impl Args {
    /// At the sizes that were asked for.
    pub fn sized(mut self) -> Args {
        if self.quick {
            self.keys = self.keys.min(300_000);
            self.memory = self.memory.min(96 << 20);
            self.rounds = self.rounds.min(2);
            self.round_time = self.round_time.min(Duration::from_millis(250));
        }
        if self.what.is_empty() {
            self.what = What::value_variants().to_vec();
        }
        self
    }
}
