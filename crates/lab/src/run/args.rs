//! The options of `run`.

use std::time::Duration;

use clap::Args;

use crate::args::{DataArgs, RoundTimeArgs, RoundsArgs};
use crate::values::{self, Part, Size, Under};
use fulgurite_harness::args::{CONFIG, DRAM, DirArgs, WORKLOAD};
use fulgurite_term::args::OutputArgs;

/// The options of `run`.
#[derive(Clone, Debug, Args)]
#[command(hide_possible_values = true)]
pub struct RunBenchArgs {
    #[arg(long = "workload", alias = "part", value_name = "LIST", value_delimiter = ',', help = WORKLOAD)]
    #[arg(value_parser = Part::parser(), default_value = "touches,redis,memcached,save")]
    pub part: Vec<Part>,
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Under::parser(), help = CONFIG)]
    #[arg(default_value = "dram,swap,compatible,in-line")]
    pub config: Vec<Under>,
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "25%", value_parser = values::size, help = DRAM)]
    pub dram: Size,
    #[command(flatten)]
    pub(crate) size: DataArgs,
    /// Threads that touch memory, comma-separated.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,8,32")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Vec<u32>,
    /// Clients of a server, a connection and an OS thread each.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub clients: u32,
    /// Percent of a server's requests that read, comma-separated. The others write.
    #[arg(long, value_name = "PERCENT,..", value_delimiter = ',', default_value = "90,50")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    pub gets: Vec<u32>,
    #[command(flatten)]
    pub(crate) repeat: RoundsArgs,
    #[command(flatten)]
    pub(crate) turn: RoundTimeArgs,
    #[command(flatten)]
    pub(crate) place: DirArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl RunBenchArgs {
    /// The most memory of a program, in bytes.
    pub fn dram_bytes(&self) -> u64 {
        self.dram.of(self.data_bytes())
    }
    /// Bytes that a program keeps.
    pub fn data_bytes(&self) -> u64 {
        self.size.data.unwrap_or(if self.output.quick { 96 << 20 } else { 1 << 30 })
    }
    /// Rounds that count.
    pub fn rounds(&self) -> u32 {
        self.repeat.rounds.unwrap_or(if self.output.quick { 1 } else { 5 })
    }
    /// Time of a turn.
    pub fn round_time(&self) -> Duration {
        self.turn.round_time.unwrap_or(Duration::from_millis(if self.output.quick { 250 } else { 3000 }))
    }
}

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  fulgurite-lab run --dir /mnt/nvme --json run.json
  fulgurite-lab run --workload touches --threads 1,8,32 --quick
  fulgurite-lab run --workload redis,memcached --config swap,compatible \\
    --gets 50 --clients 32

Programs that were never written for Fulgurite, with the same memory cgroup,
the same disk and the same requests, in turns. A program is stopped (SIGSTOP)
while another one has its turn. Each has a turn first that does not count.

Workloads:
  touches    threads read, or add to, a word of a page at random
  redis      redis-server, values of 1 KiB under Zipf keys: each value read
             must be one that its key can have at that moment
  memcached  the same with memcached
  save       BGSAVE of redis while a client writes: what is saved must be the
             state at its begin

Configurations:
  dram                 enough DRAM
  swap                 the kernel's swap
  compatible, in-line  the modes of `fulgurite run`

--dram is the limit of a program's cgroup, which all have but for `dram`.

Swap and cgroups need root. Without them, and without redis-server or
memcached, the rows that need them are left out, and a note says so. With fio,
pages that are read and written are also compared with fio's, in the
same mix and with as many requests under way as there are threads. Pages that
are read ahead do not count. A save with swap is measured with a page a fault,
and with eight.

A fault is one that waits for a read with swap, and any with `fulgurite run`.
The hit ratio is the share of operations without a read of the disk, if none
makes two. Bytes written are of all turns. \"x swap\" is the throughput
as a multiple of swap's, round by round: median, lowest and highest.";
