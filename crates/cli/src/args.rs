//! The command line: commands, options, their help and examples.
//!
//! Every value is parsed to its type here, so that nonsense is refused (exit code 2) before anything exists. What depends
//! on the machine or on other options is checked in [`crate::checks`].

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};

use crate::checks::Wanted;
use crate::device::args::DeviceCommand;
use crate::pool::args::PoolCommand;
use crate::values::{
    self, Act, AnotherNand, CacheTraces, Config, FlashChoice, Measure, Output, Pattern, Prefetch, Replacement, Size,
    VictimChoice, WorkloadName, non_zero_duration,
};

/// Flash that passes for DRAM: demonstrations and benchmarks.
#[derive(Debug, Parser)]
#[command(name = "fulgurite", version, max_term_width = 110, disable_help_subcommand = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  # index and search this machine's text, 3% of the index in DRAM
  fulgurite demo
  # what a switch, a hit and a miss cost
  fulgurite bench micro
  # seven workloads beside DRAM, swap and mmap, in under a minute
  fulgurite bench live --quick
  fulgurite bench live --workload tatp,silo --miss-every 5us \\
    --json results.json --plot results.svg
  # load against tail latency, open loop
  fulgurite bench tail --workload tatp
  # miss ratios of the replacement policies
  fulgurite bench policies
  # memory that survives: a journaled pool in a file
  fulgurite pool create data.pool --size 16G
  # a flash device reached by loads and stores, beside io_uring and NBD
  fulgurite device bench --quick

Benchmarks that need a memory cgroup and a swap file (os-swap, mmap) want
root; without it they are skipped.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Index the text of this machine into flash memory and serve it with 3-5% of the index in DRAM; then kill a program again and
    /// again, and find all that it saved.
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Measure.
    #[command(subcommand, after_help = BENCH_EXAMPLES)]
    Bench(BenchCommand),
    /// Make pools, look at them, check them, roll them back, copy them out and in.
    #[command(subcommand, after_help = crate::pool::args::EXAMPLES)]
    Pool(PoolCommand),
    /// Serve a storage device behind the DRAM interface; measure it.
    #[command(subcommand, after_help = crate::device::args::EXAMPLES)]
    Device(DeviceCommand),
    /// Remove swap files, cgroups and temporary files that an earlier run left (only after kill -9 of its helper).
    #[command(after_help = CLEANUP_EXAMPLES)]
    Cleanup,
    /// Print a completion script for a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// bash, elvish, fish, powershell or zsh.
        shell: clap_complete::Shell,
    },
    /// Write manual pages.
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// An existing directory.
        #[arg(value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
    /// One configuration under measurement: driven by the parent over stdin and stdout.
    #[command(name = "__child", hide = true)]
    Child,
    /// Counts words into a pool until it is killed: the program of the demonstration's act.
    #[command(name = "__counter", hide = true)]
    Counter,
    /// Sets up swap and cgroups, and removes them when stdin closes.
    #[command(name = "__privileged", hide = true)]
    Privileged,
}

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Prices of the primitives: switch, hit, miss.
    #[command(after_help = MICRO_EXAMPLES)]
    Micro(MicroArgs),
    /// Throughput and latency of workloads, each configuration against plain DRAM, interleaved.
    #[command(after_help = LIVE_EXAMPLES)]
    Live(LiveArgs),
    /// Tail latency against load (Poisson arrivals, latency from arrival).
    #[command(after_help = TAIL_EXAMPLES)]
    Tail(TailArgs),
    /// The journaled store: what it writes beside the data and keeps in DRAM, its speed, recovery and sync.
    #[command(after_help = STORE_EXAMPLES)]
    Store(StoreArgs),
    /// A long computation kept by `sync`, by writing what it changed to a file, by dumping its memory.
    #[command(after_help = CHECKPOINT_EXAMPLES)]
    Checkpoint(CheckpointArgs),
    /// Miss ratios of all replacement policies on traces and workloads.
    #[command(after_help = POLICIES_EXAMPLES)]
    Policies(PoliciesArgs),
}

const DEMO_EXAMPLES: &str = "\
Examples:
  # this machine's text, 3% of the index in DRAM
  fulgurite demo
  fulgurite demo --quick --input /usr/share/doc --report doc.html
  fulgurite demo --dram 5% --flash /mnt/nvme/flash.img --create
  fulgurite demo --config fulgurite,os-swap --scratch /mnt/nvme \\
    --json demo.json --plot demo.svg
  fulgurite demo --act survive --seed 7   # only the kills, at other moments

The table: DRAM it may use is the budget of the guarded path, all of the data
for dram-only, and the whole cgroup, budget and 64 MiB, for what the kernel
pages. Peak is the highest use of a configuration's cgroup while it served;
that takes root.";

const BENCH_EXAMPLES: &str = "\
Examples:
  fulgurite bench micro --quick
  fulgurite bench live --workload tatp,silo --miss-every 10us \\
    --json results.json
  fulgurite bench tail --workload tatp --plot tail.svg
  fulgurite bench policies --workload none --traces DIR";

const CLEANUP_EXAMPLES: &str = "\
Examples:
  fulgurite cleanup        # as the user whose run was killed
  sudo fulgurite cleanup   # what root's runs have left: swap files, cgroups";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  fulgurite completions bash \\
    > ~/.local/share/bash-completion/completions/fulgurite
  fulgurite completions zsh > ~/.zfunc/_fulgurite";

const MAN_EXAMPLES: &str = "\
Examples:
  fulgurite man ~/.local/share/man/man1";

const LIVE_EXAMPLES: &str = "\
Examples:
  fulgurite bench live --workload all --flash emulated --miss-every 10us \\
    --json live.json --plot live.svg
  fulgurite bench live --workload tatp \\
    --config dram-only,fulgurite,flash-sync --dram 64M --data 2G
  fulgurite bench live --flash /mnt/nvme/flash.img --create --miss-every 10us
  fulgurite bench live --workload masstree --workers 2 \\
    --config dram-only,resident
  fulgurite bench live --workload all --miss-every 10us \\
    --config fulgurite,pool,pool-unchecked
  fulgurite bench live --workload gups,gups-read,mmap-bench --work 10us \\
    --config fulgurite,pool,mmap,os-swap --flash FILE
  fulgurite bench live --workload all --miss-every 10us --flash nand:slc \\
    --also nand:mlc --config fulgurite,fixed-latency
  fulgurite bench live --workload tatp --miss-every 10us \\
    --flash nand:tlc --planes 64 --also nand:tlc/256 --block-pages 16 \\
    --config fulgurite,fixed-latency

NVMM's GUPS (gups; gups-read only reads) and MMAP (mmap-bench) are uniform
unless --zipf is given, and no part of `all`.

Configurations:
  dram-only        plain references in huge pages: the denominator
  resident         guarded, all data in frames: what hits cost
  fulgurite        guarded, fibers switch on a miss, arrived ones first by age
  on-device        fulgurite; a device of our own, on a core of its own, makes
                   the requests: system calls are not the worker's
  pool             fulgurite over a journaled pool that the data fills to 80%:
                   versions, checksums, reclaim
  pool-unchecked   the same without checksums: beside pool, what they cost
  pool-on-device   the pool's store in a device of our own, whose core drives
                   the log and reclaim
  priority-aging   fulgurite with AstriFlash's scheduling: new jobs first, and
                   aging
  fifo             fulgurite, first come first served
  flash-sync       guarded, waits for every miss
  fixed-latency    fulgurite over flash of the NAND's latencies without its
                   queues, buses and wear (with --flash nand: only)
  os-swap          plain memory, a swap file: best of 1, 8, 32 threads
  mmap             plain memory, a mapped file: best of 1, 8, 32 threads

os-swap and mmap need a memory cgroup.";

const MICRO_EXAMPLES: &str = "\
Examples:
  fulgurite bench micro --json micro.json --plot micro.svg
  fulgurite bench micro --quick --rounds 7 --config switch,hit
  fulgurite bench micro --config miss --flash /mnt/nvme/flash.img --create
  fulgurite bench micro --config miss --flash nand:slc
  fulgurite bench micro --config miss --flash device:flash.sock --data 1G

On nand:PROFILE misses go to a device in this process, whose firmware has a
store over the model, as in `bench live`. On flash that answers later than 64
fibers compute, all of them wait at most misses, which are left out; where too
few are left, what a miss costs is not reported.";

const STORE_EXAMPLES: &str = "\
Examples:
  fulgurite bench store --json store.json
  fulgurite bench store --pattern zipf --full 50,80,90 \\
    --victims longest-chains,greedy,cost-benefit
  fulgurite bench store --flash /mnt/nvme/flash.img --create
  fulgurite bench store --recovery --scratch /mnt/nvme --json recovery.json \\
    --plot recovery.svg
  fulgurite bench store --sync --dirty 4K,1M,256M --scratch /mnt/nvme

What the store writes and keeps is counted, not timed: it decides as it does
in a pool, over flash that answers at once and keeps only metadata. `full` is
live data as a share of the pool less what the store keeps for reclaim,
journal and checkpoints. What it leaves of the speed of a medium is timed
beside that medium (--flash), in turns.

--recovery: from a crash to the first subpage read. --sync: from the first
write of dirty data until a token names it for good, beside plain writes of 1
MiB and a flush. With these, --flash defaults to a file in --scratch.";

const CHECKPOINT_EXAMPLES: &str = "\
Examples:
  fulgurite bench checkpoint --dir /mnt/nvme --plot checkpoint.svg
  fulgurite bench checkpoint --data 2G --dirty 16M --interval 1s \\
    --checkpoints 10 --json checkpoint.json
  fulgurite bench checkpoint --quick
  fulgurite bench checkpoint --flash /dev/nvme0n1 --dir /mnt/nvme
  fulgurite bench checkpoint --flash nand:mlc
  fulgurite bench checkpoint --flash device:flash.sock --data 256M

Ways, of one computation on one core; whoever else works for it may use the
others:
  plain      memory in huge pages, nothing is kept: the denominator
  file       the simplest: the thread that computes writes changed pages in
             place, then fsync; a crash in the middle spoils it
  dump       the simplest that a crash cannot spoil: it writes all memory to a
             new file, then fsync and rename
  fork       a forked child dumps the memory as it was, as Redis' BGSAVE does;
             pages are copied as they are written to meanwhile
  behind     it copies changed pages, and another thread appends them to a
             log, then fsync; nobody folds the log into the image
  fulgurite  a pool behind --dram, nothing is kept
  sync       the same, and a token for each checkpoint

The pool lies on --flash. The store of a served device (device serve --store,
--nand) is the pool: this process runs none, and a sync is the device's. On a
served device without one there is a pool of this process. emulated, memory
and nand are this process's own memory: a sync there survives what it would on
a device, but nothing is left of it after this program.

A checkpoint that falls due while one is being made is put off. After the last
there is one more interval. Each way's last checkpoint is read back and must
be the memory as it was when that was cut.";

const POLICIES_EXAMPLES: &str = "\
Examples:
  fulgurite bench policies --traces DIR --plot policies.svg
  fulgurite bench policies --workload tatp,silo --dram 1,3,10 --zipf 0.99 \\
    --json policies.json
  fulgurite bench policies --workload none --traces DIR --config s3-fifo,lru";

const TAIL_EXAMPLES: &str = "\
Examples:
  fulgurite bench tail --workload tatp --flash emulated --plot tail.svg
  fulgurite bench tail --quick --loads 30,60,90

Rows of the JSON have the keys of `bench live`. share_of_dram_only compares
throughputs at the same load, so it is below 1 only where arrivals were not
kept up with; max_share compares the highest throughputs. work_hash is of the
requests at that load. work_us_per_miss is null without misses.";

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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// What stands below the options of each command.
    fn all_after_help(command: &clap::Command, all: &mut Vec<(String, String)>) {
        let shown = command.get_after_help().map_or_else(String::new, ToString::to_string);
        all.push((command.get_name().to_owned(), shown));
        command.get_subcommands().for_each(|inner| all_after_help(inner, all));
    }

    #[test]
    fn examples_can_be_pasted_from_a_terminal_of_80_columns() {
        let mut all = Vec::new();
        all_after_help(&Cli::command(), &mut all);
        let mut parsed = 0;
        for (name, text) in &all {
            for line in text.lines() {
                let columns = line.chars().count();
                assert!(columns <= 78, "{name}: {columns} columns wrap in the middle of a command: {line}");
                assert!(!line.ends_with(' '), "{name}: a space after the end: {line}");
            }
            let joined = text.replace(" \\\n    ", " ");
            let examples = joined.lines().skip_while(|line| *line != "Examples:").skip(1);
            for line in examples.filter(|line| line.starts_with("  fulgurite ") || line.starts_with("  sudo ")) {
                // A table of names is no example.
                if line.starts_with("  fulgurite  ") {
                    continue;
                }
                let command = line.split(['#', '>']).next().unwrap_or_default();
                let words = command.split_whitespace().filter(|word| *word != "sudo");
                if let Err(e) = Cli::try_parse_from(words) {
                    panic!("{name}: an example that is refused: {line}: {e}");
                }
                parsed += 1;
            }
        }
        assert!(parsed > 50, "{parsed} examples");
    }
    #[test]
    fn lists_of_names_are_read_and_slips_are_understood() {
        let read = |words: &str| Cli::try_parse_from(words.split(' '));
        let Ok(Cli { command: Command::Demo(args) }) = read("fulgurite demo --config fulgurite,os-swap") else {
            panic!("a list of two");
        };
        assert_eq!(args.config, [Config::Fulgurite, Config::OsSwap]);
        let refused = read("fulgurite demo --config os-swap,fulgurit").unwrap_err().to_string();
        assert!(refused.contains("did you mean \"fulgurite\"?"), "{refused}");
        assert!(read("fulgurite bench live --prefetch 4").is_ok());
    }
}
