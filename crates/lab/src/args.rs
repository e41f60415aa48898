//! The settings of each benchmark, as command-line options.
//!
//! Every value is parsed to its type here, so that bad input is refused (exit code 2) before
//! anything exists. [`fulgurite_harness::checks`] checks values that depend on the machine or on
//! other options.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use fulgurite_term::args::OutputArgs;

use crate::values::{
    self, AllocConfig, AllocProgram, AnotherNand, CacheTraces, Config, Measure, Size, ValueBytes, VictimChoice,
    WorkloadName, non_zero_duration,
};
use fulgurite_harness::args::{CONFIG, DRAM, DirArgs, FlashArgs, OnFlashArgs, WORKLOAD, WorkArgs};
use fulgurite_runtime::DEFAULT_FIBERS;

/// What every benchmark has that repeats what it measures.
#[derive(Clone, Debug, Args)]
pub struct RoundsArgs {
    /// Rounds. In each, everything is measured once, in turns [default: 3 to 31, by the benchmark;
    /// fewer with --quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
}

/// What every benchmark has that builds data.
#[derive(Clone, Debug, Args)]
pub struct DataArgs {
    /// Bytes of data [default: 512M to 2G, by the benchmark; less with --quick]. A power of two for
    /// `micro`.
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub data: Option<u64>,
}

/// What every benchmark has whose turns last a time.
#[derive(Clone, Debug, Args)]
pub struct RoundTimeArgs {
    /// Time of a turn: of dram-only in `live`, of one load in `tail` [default: 100ms to 3s, by the
    /// benchmark; another one with --quick].
    #[arg(long, value_name = "TIME", value_parser = non_zero_duration)]
    pub round_time: Option<Duration>,
}

/// `micro`.
#[derive(Clone, Debug, Args)]
pub struct MicroArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) on: OnFlashArgs,
    #[command(flatten)]
    pub(crate) size: DataArgs,
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Measure::parser(), help = CONFIG)]
    #[arg(default_value = "switch,hit,miss,fault")]
    pub config: Vec<Measure>,
    #[command(flatten)]
    pub(crate) repeat: RoundsArgs,
    /// Also measure what requests of a configuration cost beyond requests to plain memory, with
    /// data and DRAM as in `live`, and write this system for `fulgurite-lab sim`.
    #[arg(long, value_name = "FILE.toml", value_hint = ValueHint::FilePath)]
    pub system: Option<PathBuf>,
    /// The configuration of --system, as in `live`: fulgurite, pool, on-device,
    /// pool-on-device, os-swap or mmap.
    #[arg(long, value_name = "CONFIG", value_parser = Config::parser(), default_value = "fulgurite")]
    #[arg(requires = "system", hide_possible_values = true)]
    pub of: Config,
    /// Fibers of --system.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_FIBERS as u32, value_parser = clap::value_parser!(u32).range(1..=64_000))]
    #[arg(requires = "system")]
    pub fibers: u32,
}

/// `live`.
#[derive(Clone, Debug, Args)]
pub struct LiveArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) flash: FlashArgs,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    #[arg(long, value_name = "all|LIST", value_delimiter = ',', help = WORKLOAD)]
    #[arg(value_parser = values::workload_parser(), default_value = "all")]
    pub workload: Vec<WorkloadName>,
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Config::parser(), help = CONFIG)]
    #[arg(default_value = "dram-only,resident,fulgurite,priority-aging,fifo,flash-sync,os-swap,mmap")]
    pub config: Vec<Config>,
    #[command(flatten)]
    pub(crate) size: DataArgs,
    #[command(flatten)]
    pub(crate) repeat: RoundsArgs,
    #[command(flatten)]
    pub(crate) turn: RoundTimeArgs,
    /// Directory of text for the search workload.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub input: Option<PathBuf>,
    /// Bytes of a value of the workload blobs, 24 to 1048576 [default: 900; mixed: 1 KiB to 1 MiB].
    #[arg(long, value_name = "BYTES|mixed", default_value = "900", value_parser = values::value_bytes)]
    pub value: ValueBytes,
    /// Requests of the workloads blobs and gups that only read, of 100. Each is measured with every
    /// one of several, comma-separated [default: blobs 95, gups 0].
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=100))]
    pub mix: Vec<u32>,
    /// More NAND to measure with the same requests and in the same table, comma-separated:
    /// nand:mlc,nand:slc/64 (64 planes).
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = values::another_nand)]
    pub also: Vec<AnotherNand>,
}

/// `tail`.
#[derive(Clone, Debug, Args)]
pub struct TailArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) flash: FlashArgs,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    /// Workload.
    #[arg(long, value_name = "NAME", value_parser = values::one_workload_parser())]
    #[arg(default_value = "tatp")]
    pub workload: WorkloadName,
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Config::parser(), help = CONFIG)]
    #[arg(default_value = "dram-only,fulgurite,priority-aging,fifo,flash-sync")]
    pub config: Vec<Config>,
    /// Loads in percent of dram-only's highest throughput, comma-separated [default: 10 to 98;
    /// --quick: 30,60,90].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = values::load)]
    pub loads: Vec<f64>,
    #[command(flatten)]
    pub(crate) size: DataArgs,
    #[command(flatten)]
    pub(crate) repeat: RoundsArgs,
    #[command(flatten)]
    pub(crate) turn: RoundTimeArgs,
}

/// `policies`.
#[derive(Clone, Debug, Args)]
pub struct PoliciesArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Directory with block traces, *.lis or *.lis.zst (lines of `first-page count 0 sequence`).
    #[arg(long, value_name = "DIR", default_value = "traces", value_parser = values::traces, value_hint = ValueHint::DirPath)]
    pub traces: CacheTraces,
    /// Directory of text for the search workload.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub input: Option<PathBuf>,
}

/// `store`.
#[derive(Clone, Debug, Args)]
pub struct StoreArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Measure the time to open a pool after a crash.
    #[arg(long, conflicts_with = "sync")]
    pub recovery: bool,
    /// Measure the time to write and sync a number of dirty bytes, compared with plain large writes
    /// to the same medium. Also measure this for a running program, with how long its gate is
    /// closed.
    #[arg(long)]
    pub sync: bool,
    /// Size of the pool [default: 1G, with --sync 2G, with --recovery 1G, 4G and 16G; --quick:
    /// 256M].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub size: Option<u64>,
    /// Order of reclaim, comma-separated: longest-chains (as NVMM proposes), greedy, cost-benefit.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = VictimChoice::parser())]
    #[arg(default_value = "cost-benefit")]
    pub victims: Vec<VictimChoice>,
    #[command(flatten)]
    pub(crate) repeat: RoundsArgs,
    #[command(flatten)]
    pub(crate) on: OnFlashArgs,
    #[command(flatten)]
    pub(crate) place: DirArgs,
}

/// `alloc`.
#[derive(Clone, Debug, Args)]
pub struct AllocArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[arg(long = "workload", alias = "program", value_name = "LIST", value_delimiter = ',', help = WORKLOAD)]
    #[arg(value_parser = AllocProgram::parser())]
    #[arg(default_value = "array,slab-cache,b-plus-tree,packet-cache,hash-cache")]
    pub program: Vec<AllocProgram>,
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = AllocConfig::parser(), help = CONFIG)]
    #[arg(default_value = "object-per-page,memory-page,memory-page-in-line,os-swap,mmap,blobs")]
    pub config: Vec<AllocConfig>,
    #[command(flatten)]
    pub(crate) size: DataArgs,
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "6.25%", value_parser = values::size, help = DRAM)]
    pub dram: Size,
    /// Requests of a round [default: 200000; --quick: 4000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub requests: Option<u64>,
    #[command(flatten)]
    pub(crate) repeat: RoundsArgs,
    #[command(flatten)]
    pub(crate) place: DirArgs,
}

/// `checkpoint`.
#[derive(Clone, Debug, Args)]
pub struct CheckpointArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) place: DirArgs,
    #[command(flatten)]
    pub(crate) size: DataArgs,
    #[command(flatten)]
    pub(crate) repeat: RoundsArgs,
}
