//! The settings of each benchmark, as command-line options.
//!
//! Every value is parsed to its type here, so that bad input is refused (exit code 2) before
//! anything exists. [`crate::checks`] checks values that depend on the machine or on other options.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use fulgurite_term::args::OutputArgs;

use crate::checks::Wanted;
use crate::values::{
    self, Act, AllocConfig, AllocProgram, AnotherNand, CacheTraces, Config, FlashChoice, Measure, Pattern, Prefetch,
    Replacement, Size, VictimChoice, WorkloadName, non_zero_duration,
};

/// The flash and the memory in front of it.
#[derive(Clone, Debug, Args)]
pub struct FlashArgs {
    /// The flash: `emulated`, `nand:PROFILE`, `device:SOCKET`, `memory`, or the path of a file or
    /// block device. Its contents are lost. `emulated` is a device of fixed latencies, played by a
    /// thread on another core. `nand:PROFILE` is a device with a store over a NAND model: slc, mlc,
    /// tlc, pcm, nvmm or a TOML file. `device:SOCKET` is the device of `fulgurite device serve`,
    /// divided among concurrent configurations.
    #[arg(long, value_name = "emulated|nand:PROFILE|device:SOCKET|memory|FILE")]
    #[arg(value_parser = values::flash, default_value = "emulated")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub flash: FlashChoice,
    /// Create the file that --flash names, and remove it at the end.
    #[arg(long)]
    pub create: bool,
    /// Overwrite --flash even if it holds a pool (other than a benchmark's), a file system or a
    /// file of a known kind.
    #[arg(long)]
    pub force: bool,
    /// Share the DRAM frames with the device of `device:SOCKET`, which then moves data directly. It
    /// must have no --data of its own. Requests that it does not answer wait without a time-out.
    #[arg(long)]
    pub share_frames: bool,
    /// Read latency of the emulated device.
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = values::duration)]
    pub read_latency: Duration,
    /// Write latency of the emulated device.
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = values::duration)]
    pub write_latency: Duration,
    /// Planes of the emulated device and of built-in NAND: the number of requests served at once.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub planes: u32,
    /// Maximum pages of a block of built-in NAND. Shorter blocks make reclaim erase more often.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub block_pages: Option<u32>,
    /// DRAM budget of the whole runtime: a size (`64M`), or a share of the data (`3%`).
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "3%", value_parser = values::size)]
    pub dram: Size,
    /// Worker threads, each on a core of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub workers: u32,
    /// Fibers of one worker: the maximum of requests that wait for flash at once.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub fibers: u32,
    /// Replacement policy: clock, s3-fifo, lru, or sets of 4-way, 8-way or 64-way.
    #[arg(long, value_name = "POLICY", value_parser = Replacement::parser())]
    #[arg(default_value = "s3-fifo")]
    pub replacement: Replacement,
    /// Prefetch: off, adaptive, a window of 1 to 16 subpages ahead of sequential runs, or the next
    /// 1 to 16 after any miss.
    #[arg(long, value_name = "off|adaptive|N|next-N", value_parser = values::prefetch_parser())]
    #[arg(default_value = "adaptive")]
    pub prefetch: Prefetch,
    /// Directory for swap files and mapped files [default: that of the --flash file, else the
    /// temporary directory].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub scratch: Option<PathBuf>,
}

impl FlashArgs {
    /// What the command line has without options.
    pub fn usual() -> FlashArgs {
        #[derive(clap::Parser)]
        struct Alone {
            #[command(flatten)]
            flash: FlashArgs,
        }
        <Alone as clap::Parser>::parse_from(["usual"]).flash
    }
    /// The requested flash, for the checks.
    pub fn wanted(&self) -> Wanted<'_> {
        Wanted { flash: &self.flash, create: self.create, force: self.force, share_frames: self.share_frames }
    }
}

/// The flash of a benchmark that measures in its own process.
#[derive(Clone, Debug, Args)]
pub struct OnFlashArgs {
    /// The flash: `emulated`, `nand:PROFILE`, `device:SOCKET`, `memory`, or the path of a file or
    /// block device. Its contents are lost. `emulated` is a device of fixed latencies, played by a
    /// thread on another core. `nand:PROFILE` is a NAND model: slc, mlc, tlc, pcm, nvmm or a TOML
    /// file. `device:SOCKET` is the device of `fulgurite device serve` [default: emulated, and for
    /// `checkpoint` a file in --dir that is removed at the end].
    #[arg(long, value_name = "emulated|nand:PROFILE|device:SOCKET|memory|FILE")]
    #[arg(value_parser = values::flash, value_hint = ValueHint::FilePath)]
    pub flash: Option<FlashChoice>,
    /// Create the file that --flash names, and remove it at the end.
    #[arg(long, requires = "flash")]
    pub create: bool,
    /// Overwrite --flash even if it holds a pool (other than a benchmark's), a file system or a
    /// file of a known kind.
    #[arg(long, requires = "flash")]
    pub force: bool,
    /// Share the DRAM frames with the device of `device:SOCKET`, which then moves data directly. It
    /// must have no --data of its own. Requests that it does not answer wait without a time-out.
    #[arg(long, requires = "flash")]
    pub share_frames: bool,
}

impl OnFlashArgs {
    /// The requested flash, for the checks. Otherwise a new file, or an emulated device.
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

/// `micro`.
#[derive(Clone, Debug, Args)]
pub struct MicroArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) on: OnFlashArgs,
    /// Bytes of data in flash, a power of two [default: 2G; --quick: 256M].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub data: Option<u64>,
    /// Measurements, comma-separated: switch, hit, miss (with its parts), fault (a page fault of
    /// `fulgurite run` without I/O).
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Measure::parser())]
    #[arg(default_value = "switch,hit,miss,fault")]
    pub config: Vec<Measure>,
    /// Rounds, of which the median is reported.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Measure what requests of a configuration cost beyond those of plain memory as well, with
    /// data and DRAM as in `live`, and write this system for `fulgurite-lab sim`.
    #[arg(long, value_name = "FILE.toml", value_hint = ValueHint::FilePath)]
    pub system: Option<PathBuf>,
    /// The configuration of --system, as in `live`: fulgurite, pool, on-device,
    /// pool-on-device, os-swap or mmap.
    #[arg(long, value_name = "CONFIG", value_parser = Config::parser(), default_value = "fulgurite")]
    #[arg(requires = "system", hide_possible_values = true)]
    pub of: Config,
    /// Fibers of --system.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=64_000))]
    #[arg(requires = "system")]
    pub fibers: u32,
}

/// The work of a request beside its misses.
#[derive(Clone, Debug, Args)]
pub struct WorkArgs {
    /// Computing between two misses: the request's own, then fewer misses (Zipf exponent), then
    /// added computing (think time) [default: only the request's own; `live --quick`: 10us].
    #[arg(long, value_name = "TIME", value_parser = non_zero_duration, conflicts_with = "work")]
    pub miss_every: Option<Duration>,
    /// Add this much computing to every request (0: none).
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub work: Option<Duration>,
    /// Fixed Zipf exponent of the keys, 0 (uniform) to 4. Only added work then reaches
    /// --miss-every.
    #[arg(long, value_name = "EXPONENT", value_parser = values::zipf)]
    pub zipf: Option<f64>,
}

/// Time between misses of the first table of docs/figures.md.
const HEADLINE_MISS_EVERY: Duration = Duration::from_micros(10);

impl WorkArgs {
    /// What was asked for. With `--quick` and nothing else, that of the headline.
    pub fn or_headline(&self, quick: bool) -> WorkArgs {
        let asked = self.miss_every.is_some() || self.work.is_some() || self.zipf.is_some();
        let miss_every = if quick && !asked { Some(HEADLINE_MISS_EVERY) } else { self.miss_every };
        WorkArgs { miss_every, ..self.clone() }
    }
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
    /// Workloads, comma-separated. `all` means the seven of AstriFlash's figure 9. There are
    /// more, as `gups`, `bank` and `blobs`: a name that there is none of lists them.
    #[arg(long, value_name = "all|LIST", value_delimiter = ',')]
    #[arg(value_parser = values::workload_parser(), default_value = "all")]
    pub workload: Vec<WorkloadName>,
    /// Configurations, comma-separated (below). dram-only always runs, as the denominator.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Config::parser())]
    #[arg(default_value = "dram-only,resident,fulgurite,priority-aging,fifo,flash-sync,os-swap,mmap")]
    pub config: Vec<Config>,
    /// Bytes of data [default: 2G; --quick: 160M].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub data: Option<u64>,
    /// Rounds. Every configuration runs once in each [default: 5; --quick: 2].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Time of dram-only in a round [default: 1s; --quick: 20ms].
    #[arg(long, value_name = "TIME", value_parser = non_zero_duration)]
    pub round_time: Option<Duration>,
    /// Directory of text for the search workload.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub input: Option<PathBuf>,
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
    /// Computing of a request: the number of transactions that takes about this long (0: one).
    #[arg(long, value_name = "TIME", default_value = "10us", value_parser = values::duration)]
    pub request_time: Duration,
    /// Workload.
    #[arg(long, value_name = "NAME", value_parser = values::one_workload_parser())]
    #[arg(default_value = "tatp")]
    pub workload: WorkloadName,
    /// Configurations, comma-separated.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Config::parser())]
    #[arg(default_value = "dram-only,fulgurite,priority-aging,fifo,flash-sync")]
    pub config: Vec<Config>,
    /// Loads in percent of dram-only's highest throughput, comma-separated [default: 10 to 98;
    /// --quick: 30,60,90].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = values::load)]
    pub loads: Vec<f64>,
    /// Bytes of data [default: 2G; --quick: 256M].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub data: Option<u64>,
    /// Rounds [default: 21; --quick: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Time of one load in a round [default: 100ms; --quick: 150ms].
    #[arg(long, value_name = "TIME", value_parser = non_zero_duration)]
    pub round_time: Option<Duration>,
}

/// `policies`.
#[derive(Clone, Debug, Args)]
pub struct PoliciesArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Directory with block traces, *.lis or *.lis.zst (lines of `first-page count 0 sequence`).
    #[arg(long, value_name = "DIR", default_value = "traces", value_parser = values::traces, value_hint = ValueHint::DirPath)]
    pub traces: CacheTraces,
    /// Workloads whose accesses are recorded and replayed, comma-separated, or `all`, or `none`.
    #[arg(long, value_name = "all|none|LIST", value_delimiter = ',')]
    #[arg(value_parser = values::workload_or_none_parser(), default_value = "all")]
    pub workload: Vec<WorkloadName>,
    /// Replacement policies, comma-separated: clock, s3-fifo, lru, 4-way, 8-way, 64-way.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Replacement::parser())]
    #[arg(default_value = "clock,s3-fifo,lru")]
    pub config: Vec<Replacement>,
    /// DRAM, as shares of the distinct subpages touched, comma-separated percentages.
    #[arg(long = "dram", alias = "shares", value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = values::percent, default_value = "1,2,3,5,10,20")]
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

/// `store`.
#[derive(Clone, Debug, Args)]
pub struct StoreArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Measure the time to open a pool after a crash.
    #[arg(long, conflicts_with = "sync")]
    pub recovery: bool,
    /// Measure the time to write and sync so many dirty bytes, beside plain large writes to the
    /// same medium. Measure the same for a running program, with the time that its writers wait at
    /// the gate and its readers wait.
    #[arg(long)]
    pub sync: bool,
    /// Size of the pool. With --recovery several, comma-separated [default: 1G, with --recovery
    /// 1G,4G,16G; --quick: 256M].
    #[arg(long, alias = "data", value_name = "SIZE", value_delimiter = ',', value_parser = values::bytes)]
    pub size: Vec<u64>,
    /// Order of the overwrites, comma-separated: uniform, zipf (exponent 0.99), sequential.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Pattern::parser())]
    #[arg(default_value = "uniform,zipf,sequential")]
    pub pattern: Vec<Pattern>,
    /// Fill of the pool, in percent, comma-separated [--quick: 80].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = values::percent, default_value = "50,60,70,80,90")]
    pub full: Vec<f64>,
    /// Order of reclaim, comma-separated: longest-chains (as NVMM proposes), greedy, cost-benefit.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = VictimChoice::parser())]
    #[arg(default_value = "cost-benefit")]
    pub victims: Vec<VictimChoice>,
    /// Sync after this volume of writes, in percent of the data.
    #[arg(long, value_name = "PERCENT", value_parser = values::percent, default_value = "0.5")]
    pub sync_every: f64,
    /// Dirty data. With --recovery: written since the last checkpoint [default: a quarter of the
    /// pool, 4G at most]. With --sync: before each sync, comma-separated [default:
    /// 4K,64K,1M,16M,64M,256M; --quick: 4K,64K,1M,4M].
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = values::bytes)]
    pub dirty: Vec<u64>,
    /// Rounds of the timed parts [default: 9, with --recovery 5; --quick: 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// The flash of the timed parts: `emulated`, `memory`, or the path of a file or block device.
    /// Its contents are lost [default: emulated, with --recovery and --sync a file in --scratch
    /// that is removed at the end].
    #[arg(long, value_name = "emulated|memory|FILE|nand:NAME|nand:FILE.toml", value_parser = values::flash, value_hint = ValueHint::FilePath)]
    pub flash: Option<FlashChoice>,
    /// Create the file that --flash names, and remove it at the end.
    #[arg(long, requires = "flash")]
    pub create: bool,
    /// Overwrite --flash even if it holds a pool (other than a benchmark's), a file system or a
    /// file of a known kind.
    #[arg(long, requires = "flash")]
    pub force: bool,
    /// Directory for the file of --recovery and --sync [default: the temporary directory].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub scratch: Option<PathBuf>,
}

/// `alloc`.
#[derive(Clone, Debug, Args)]
pub struct AllocArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Programs, comma-separated: array, slab-cache, b-plus-tree, packet-cache, hash-cache.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = AllocProgram::parser())]
    #[arg(default_value = "array,slab-cache,b-plus-tree,packet-cache,hash-cache")]
    pub program: Vec<AllocProgram>,
    /// Where their data is, comma-separated: object-per-page, object-per-page-compatible,
    /// memory-page, memory-page-in-line, os-swap, mmap, blobs.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = AllocConfig::parser())]
    #[arg(default_value = "object-per-page,memory-page,memory-page-in-line,os-swap,mmap,blobs")]
    pub config: Vec<AllocConfig>,
    /// Bytes of data [default: 1G; --quick: 48M].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub data: Option<u64>,
    /// DRAM for data: a size, or a share of the data. A process has 24 MiB beside.
    #[arg(long, value_name = "64M|6.25%", default_value = "6.25%", value_parser = values::size)]
    pub dram: Size,
    /// Threads of a program: its clients.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// Requests of a round [default: 200000; --quick: 4000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub requests: Option<u64>,
    /// Rounds [default: 5; --quick: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Directory for flash, swap and mapped files [default: the temporary directory].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub scratch: Option<PathBuf>,
}

/// `checkpoint`.
#[derive(Clone, Debug, Args)]
pub struct CheckpointArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) on: OnFlashArgs,
    /// Directory for the files. They need twice the data, and without --flash a little more than
    /// four times [default: the temporary directory].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Bytes of data [default: 512M; --quick: 64M].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub data: Option<u64>,
    /// Bytes that change between two checkpoints [default: a sixteenth of the data].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub dirty: Option<u64>,
    /// DRAM in front of the pool: a size (`64M`), or a share of the data (`25%`).
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "25%", value_parser = values::size)]
    pub dram: Size,
    /// Computing time between two checkpoints, and after the last one [default: 500ms; --quick:
    /// 50ms].
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
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) flash: FlashArgs,
    /// Configurations of `live`, comma-separated. dram-only always runs, as the denominator.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Config::parser())]
    #[arg(default_value = "dram-only,fulgurite,flash-sync,os-swap")]
    pub config: Vec<Config>,
    /// Acts, comma-separated: search (an index larger than DRAM), survive (memory that survives
    /// kill -9).
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Act::parser())]
    #[arg(default_value = "search,survive")]
    pub act: Vec<Act>,
    /// Directory whose text is indexed [default: /usr, or all of / when /usr has less than 512 MiB
    /// of text].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub input: Option<PathBuf>,
    /// The report to write.
    #[arg(long, value_name = "FILE.html", default_value = "fulgurite-demo.html", value_hint = ValueHint::FilePath)]
    pub report: PathBuf,
}
