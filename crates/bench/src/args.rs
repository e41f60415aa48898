//! What each benchmark is told: its settings, as the options that they are on the command line.
//!
//! Every value is parsed to its type here, so that nonsense is refused (exit code 2) before anything exists. What depends
//! on the machine or on other options is checked in [`crate::checks`].

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use crate::checks::Wanted;
use crate::values::{
    self, Act, AnotherNand, CacheTraces, Config, FlashChoice, Measure, Output, Pattern, Prefetch, Replacement, Size,
    VictimChoice, WorkloadName, non_zero_duration,
};

/// Where results go.
#[derive(Clone, Debug, Args)]
pub struct OutputArgs {
    /// Write the results as one JSON object; without FILE or with `-` to standard output.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "-",
        value_parser = values::output,
        value_hint = ValueHint::FilePath
    )]
    pub json: Option<Output>,
    /// Draw the results.
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
    /// The same code on less data, in under a minute.
    #[arg(long)]
    pub quick: bool,
    /// Seed of data and requests.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The flash and the memory in front of it.
#[derive(Clone, Debug, Args)]
pub struct FlashArgs {
    /// `emulated` (a thread on another core plays a device of fixed latencies), `nand:PROFILE` (a device with a store over the model of
    /// NAND: slc, mlc, tlc, pcm, nvmm or a TOML file), `device:SOCKET` (that of `fulgurite device serve`; configurations
    /// that run beside each other have a part of it each), `memory`, or the path of a file or block device. What it holds is lost.
    #[arg(
        long,
        value_name = "emulated|nand:PROFILE|device:SOCKET|memory|FILE",
        default_value = "emulated",
        value_parser = values::flash,
        value_hint = ValueHint::FilePath
    )]
    pub flash: FlashChoice,
    /// Create the file that --flash names, and remove it at the end.
    #[arg(long)]
    pub create: bool,
    /// Use what --flash names even where it holds a pool (other than a benchmark's), a file system or a file of a known kind, which is
    /// gone then.
    #[arg(long)]
    pub force: bool,
    /// Hand the DRAM frames to the device of `device:SOCKET`, which then moves data straight from and to them; it must have no --data of
    /// its own. Requests that it does not answer wait without end.
    #[arg(long)]
    pub share_frames: bool,
    /// Latency of a read of the emulated device.
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = values::duration)]
    pub read_latency: Duration,
    /// Latency of a write of the emulated device.
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = values::duration)]
    pub write_latency: Duration,
    /// Planes of the emulated device, and of NAND that is built in: how many requests it serves at once.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub planes: u32,
    /// Pages of a block of built-in NAND at the most: reclaim's erases come so often as these are short.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub block_pages: Option<u32>,
    /// DRAM for everything that the runtime needs: a size, or a share of the data.
    #[arg(long, value_name = "64M|3%", default_value = "3%", value_parser = values::size)]
    pub dram: Size,
    /// Worker threads, each on a core of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub workers: u32,
    /// Fibers of one worker: the most requests that may wait for flash at once.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub fibers: u32,
    /// Which subpage leaves DRAM: clock, s3-fifo or lru.
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "s3-fifo",
        value_parser = Replacement::parser(),
        hide_possible_values = true
    )]
    pub replacement: Replacement,
    /// Sequential prefetch: off, adaptive, or a window of 1 to 16 subpages.
    #[arg(
        long,
        value_name = "off|adaptive|N",
        default_value = "adaptive",
        value_parser = values::prefetch_parser(),
        hide_possible_values = true
    )]
    pub prefetch: Prefetch,
    /// Directory for swap files and mapped files (default: that of the --flash file, else the temporary directory).
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub scratch: Option<PathBuf>,
}

impl FlashArgs {
    /// What is asked for, to be judged.
    pub fn wanted(&self) -> Wanted<'_> {
        Wanted { flash: &self.flash, create: self.create, force: self.force, share_frames: self.share_frames }
    }
}

/// The flash of a benchmark that measures in its own process.
#[derive(Clone, Debug, Args)]
pub struct OnFlashArgs {
    /// `emulated` (a thread on another core plays a device of fixed latencies), `nand:PROFILE` (the model of NAND: slc, mlc, tlc, pcm, nvmm
    /// or a TOML file), `device:SOCKET` (that of `fulgurite device serve`), `memory`, or the path of a file or block device. What it holds
    /// is lost [default: emulated; of `bench checkpoint` a file in --dir that is removed at the end].
    #[arg(
        long,
        value_name = "emulated|nand:PROFILE|device:SOCKET|memory|FILE",
        value_parser = values::flash,
        value_hint = ValueHint::FilePath
    )]
    pub flash: Option<FlashChoice>,
    /// Create the file that --flash names, and remove it at the end.
    #[arg(long, requires = "flash")]
    pub create: bool,
    /// Use what --flash names even where it holds a pool (other than a benchmark's), a file system or a file of a known kind, which is
    /// gone then.
    #[arg(long, requires = "flash")]
    pub force: bool,
    /// Hand the DRAM frames to the device of `device:SOCKET`, which then moves data straight from and to them; it must have no --data of
    /// its own. Requests that it does not answer wait without end.
    #[arg(long, requires = "flash")]
    pub share_frames: bool,
}

impl OnFlashArgs {
    /// What is asked for, to be judged; else this file, which is to be made, or an emulated device.
    pub fn wanted<'w>(&'w self, otherwise: &'w FlashChoice) -> Wanted<'w> {
        let made = self.flash.is_none() && matches!(otherwise, FlashChoice::File(_));
        Wanted {
            flash: self.flash.as_ref().unwrap_or(otherwise),
            create: self.create || made,
            force: self.force,
            share_frames: self.share_frames,
        }
    }
}

/// `bench micro`.
#[derive(Clone, Debug, Args)]
pub struct MicroArgs {
    /// Where results go.
    #[command(flatten)]
    pub output: OutputArgs,
    /// What misses are read from.
    #[command(flatten)]
    pub on: OnFlashArgs,
    /// Bytes of data in flash, a power of two [default: 2G; --quick: 256M].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub data: Option<u64>,
    /// What is measured, comma-separated: switch, hit, miss (with what it is made of).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = Measure::parser(),
        hide_possible_values = true,
        default_value = "switch,hit,miss"
    )]
    pub config: Vec<Measure>,
    /// Rounds; the median is reported.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
}

/// What a request costs beside its misses.
#[derive(Clone, Debug, Args)]
pub struct WorkArgs {
    /// Computing between two misses: the request's own, then fewer misses (Zipf exponent), then added computing.
    #[arg(long, value_name = "TIME", value_parser = non_zero_duration, conflicts_with = "work")]
    pub miss_every: Option<Duration>,
    /// Add this much computing to every request instead (0: none).
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub work: Option<Duration>,
    /// Zipf exponent of the keys, 0 (uniform) to 4; fixed, so that only added work reaches --miss-every.
    #[arg(long, value_name = "EXPONENT", value_parser = values::zipf)]
    pub zipf: Option<f64>,
}

/// `bench live`.
#[derive(Clone, Debug, Args)]
pub struct LiveArgs {
    /// Where results go.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The flash and the DRAM.
    #[command(flatten)]
    pub flash: FlashArgs,
    /// The work.
    #[command(flatten)]
    pub work: WorkArgs,
    /// Workloads, comma-separated; `all` are the seven of AstriFlash's figure 9.
    #[arg(
        long,
        value_name = "all|LIST",
        default_value = "all",
        value_delimiter = ',',
        value_parser = values::workload_parser(),
        hide_possible_values = true
    )]
    pub workload: Vec<WorkloadName>,
    /// Configurations, comma-separated (below). dram-only always runs: it is the denominator.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = Config::parser(),
        hide_possible_values = true,
        default_value = "dram-only,resident,fulgurite,priority-aging,fifo,flash-sync,os-swap,mmap"
    )]
    pub config: Vec<Config>,
    /// Bytes of data [default: 2G; --quick: 160M].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub data: Option<u64>,
    /// Rounds, in each of which every configuration runs once [default: 5; --quick: 2].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// How long dram-only takes in a round [default: 1s; --quick: 20ms].
    #[arg(long, value_name = "TIME", value_parser = non_zero_duration)]
    pub round_time: Option<Duration>,
    /// Directory of text for the search workload.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub input: Option<PathBuf>,
    /// More NAND to measure after --flash, with the same requests and in one table, comma-separated: nand:mlc,nand:slc/64 (64 planes).
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = values::another_nand)]
    pub also: Vec<AnotherNand>,
}

/// `bench tail`.
#[derive(Clone, Debug, Args)]
pub struct TailArgs {
    /// Where results go.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The flash and the DRAM.
    #[command(flatten)]
    pub flash: FlashArgs,
    /// The work.
    #[command(flatten)]
    pub work: WorkArgs,
    /// Computing of a request: as many transactions as take about this long (0: one).
    #[arg(long, value_name = "TIME", default_value = "10us", value_parser = values::duration)]
    pub request_time: Duration,
    /// Workload.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "tatp",
        value_parser = values::one_workload_parser(),
        hide_possible_values = true
    )]
    pub workload: WorkloadName,
    /// Configurations, comma-separated.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = Config::parser(),
        hide_possible_values = true,
        default_value = "dram-only,fulgurite,priority-aging,fifo,flash-sync"
    )]
    pub config: Vec<Config>,
    /// Loads in percent of dram-only's highest throughput, comma-separated [default: 10 to 98; --quick: 30,60,90].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = values::load)]
    pub loads: Vec<f64>,
    /// Bytes of data [default: 2G; --quick: 256M].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub data: Option<u64>,
    /// Rounds [default: 21; --quick: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// How long one load is applied in a round [default: 100ms; --quick: 150ms].
    #[arg(long, value_name = "TIME", value_parser = non_zero_duration)]
    pub round_time: Option<Duration>,
}

/// `bench policies`.
#[derive(Clone, Debug, Args)]
pub struct PoliciesArgs {
    /// Where results go.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Directory with block traces, *.lis or *.lis.zst (lines of `first-page count 0 sequence`).
    #[arg(long, value_name = "DIR", default_value = "traces", value_parser = values::traces, value_hint = ValueHint::DirPath)]
    pub traces: CacheTraces,
    /// Workloads whose accesses are recorded and replayed, comma-separated; `all`, or `none`.
    #[arg(
        long,
        value_name = "all|none|LIST",
        default_value = "all",
        value_delimiter = ',',
        value_parser = values::workload_or_none_parser(),
        hide_possible_values = true
    )]
    pub workload: Vec<WorkloadName>,
    /// Replacement policies, comma-separated: clock, s3-fifo, lru.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = Replacement::parser(),
        hide_possible_values = true,
        default_value = "clock,s3-fifo,lru"
    )]
    pub config: Vec<Replacement>,
    /// DRAM, as shares of the distinct subpages touched, comma-separated percentages.
    #[arg(
        long = "dram",
        alias = "shares",
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = values::percent,
        default_value = "1,2,3,5,10,20"
    )]
    pub shares: Vec<f64>,
    /// Bytes of data of the recorded workloads [default: 256M; --quick: 32M].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub data: Option<u64>,
    /// Zipf exponents of the recorded workloads' keys, comma-separated.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = values::zipf, default_value = "0.8,0.99")]
    pub zipf: Vec<f64>,
    /// Directory of text for the search workload.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub input: Option<PathBuf>,
}

/// `bench store`.
#[derive(Clone, Debug, Args)]
pub struct StoreArgs {
    /// Where results go.
    #[command(flatten)]
    pub output: OutputArgs,
    /// How long it takes to open a pool after a crash.
    #[arg(long, conflicts_with = "sync")]
    pub recovery: bool,
    /// How long it takes until so many dirty bytes are written and synced, beside plain large writes to the same medium; also of a
    /// running program, and how long its writers wait at the gate and its readers at all.
    #[arg(long)]
    pub sync: bool,
    /// Size of the pool; with --recovery several, comma-separated [default: 1G, with --recovery 1G,4G,16G; --quick: 256M].
    #[arg(long, alias = "data", value_name = "SIZE", value_delimiter = ',', value_parser = values::bytes)]
    pub size: Vec<u64>,
    /// Which subpages are overwritten, comma-separated: uniform, zipf (exponent 0.99), sequential.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = Pattern::parser(),
        hide_possible_values = true,
        default_value = "uniform,zipf,sequential"
    )]
    pub pattern: Vec<Pattern>,
    /// How full the pool is, in percent, comma-separated [--quick: 80].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = values::percent, default_value = "50,60,70,80,90")]
    pub full: Vec<f64>,
    /// Which extent is reclaimed next, comma-separated: longest-chains (as NVMM proposes), greedy, cost-benefit.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = VictimChoice::parser(),
        hide_possible_values = true,
        default_value = "cost-benefit"
    )]
    pub victims: Vec<VictimChoice>,
    /// A sync after so much was written, in percent of the data.
    #[arg(long, value_name = "PERCENT", value_parser = values::percent, default_value = "0.5")]
    pub sync_every: f64,
    /// Dirty data: with --recovery written since the last checkpoint [default: a quarter of the pool, 4G at most]; with --sync
    /// before each sync, comma-separated [default: 4K,64K,1M,16M,64M,256M; --quick: 4K,64K,1M,4M].
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = values::bytes)]
    pub dirty: Vec<u64>,
    /// Rounds of what is timed [default: 9, with --recovery 5; --quick: 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// What is timed is on `emulated`, `memory`, or the path of a file or block device, whose contents are lost [default:
    /// emulated; with --recovery and --sync a file in --scratch that is removed at the end].
    #[arg(long, value_name = "emulated|memory|FILE|nand:NAME|nand:FILE.toml", value_parser = values::flash, value_hint = ValueHint::FilePath)]
    pub flash: Option<FlashChoice>,
    /// Create the file that --flash names, and remove it at the end.
    #[arg(long, requires = "flash")]
    pub create: bool,
    /// Use what --flash names even where it holds a pool (other than a benchmark's), a file system or a file of a known kind, which is
    /// gone then.
    #[arg(long, requires = "flash")]
    pub force: bool,
    /// Directory for the file of --recovery and --sync (default: the temporary directory).
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub scratch: Option<PathBuf>,
}

/// `bench checkpoint`.
#[derive(Clone, Debug, Args)]
pub struct CheckpointArgs {
    /// Where results go.
    #[command(flatten)]
    pub output: OutputArgs,
    /// What the pool of `fulgurite` and `sync` lies on.
    #[command(flatten)]
    pub on: OnFlashArgs,
    /// Directory for the files; twice the data is needed, and without --flash as much again and some more [default: the temporary directory].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Bytes of data [default: 512M; --quick: 64M].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub data: Option<u64>,
    /// Bytes that change between two checkpoints [default: a sixteenth of the data].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub dirty: Option<u64>,
    /// DRAM before the pool: a size, or a share of the data.
    #[arg(long, value_name = "64M|25%", default_value = "25%", value_parser = values::size)]
    pub dram: Size,
    /// Computing between two checkpoints, and after the last one [default: 500ms; --quick: 50ms].
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub interval: Option<Duration>,
    /// Checkpoints of a run [default: 6; --quick: 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub checkpoints: Option<u64>,
    /// Rounds [default: 3; --quick: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
}

/// `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Where results go.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The flash and the DRAM.
    #[command(flatten)]
    pub flash: FlashArgs,
    /// Configurations, comma-separated, of those of `bench live`. dram-only always runs: it is the denominator.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = Config::parser(),
        hide_possible_values = true,
        default_value = "dram-only,fulgurite,flash-sync,os-swap"
    )]
    pub config: Vec<Config>,
    /// What is shown, comma-separated: search (an index larger than DRAM), survive (memory that a kill -9 does not harm).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = Act::parser(),
        hide_possible_values = true,
        default_value = "search,survive"
    )]
    pub act: Vec<Act>,
    /// Directory whose text is indexed [default: /usr, or all of / when /usr has less than 512 MiB of text].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub input: Option<PathBuf>,
    /// The report to write.
    #[arg(long, value_name = "FILE.html", default_value = "fulgurite-demo.html", value_hint = ValueHint::FilePath)]
    pub report: PathBuf,
}
