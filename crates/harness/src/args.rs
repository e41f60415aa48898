//! Options of what is compared: the flash, the memory in front of it, the work between misses.
//!
//! What benchmarks have with different defaults or lists is said once, by a constant.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use fulgurite_runtime::DEFAULT_FIBERS;

use crate::checks::Wanted;
use crate::values::{self, FlashChoice, Size, non_zero_duration};

/// `--config`.
pub const CONFIG: &str = "What is measured, comma-separated (below)";
/// `--workload`.
pub const WORKLOAD: &str = "Workloads, comma-separated (below)";
/// `--dram`.
pub const DRAM: &str = "DRAM in front of the data: a size (`64M`), or a share of the data (`3%`)";

/// The flash of a benchmark.
#[derive(Clone, Debug, Default, Args)]
pub struct OnFlashArgs {
    /// The flash: `emulated`, `nand:PROFILE`, `device:SOCKET`, `memory`, or the path of a file or
    /// block device. Its contents are lost. `emulated` is a device of fixed latencies, played by a
    /// thread on another core. `nand:PROFILE` is a device with a store over a NAND model: slc, mlc,
    /// tlc, pcm, nvmm or a TOML file. `device:SOCKET` is the device of `fulgurite device serve`,
    /// divided among concurrent configurations [default: emulated, and for `store --recovery` and
    /// `store --sync` a file in --dir that is removed at the end].
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
    /// The requested flash, for the checks. Otherwise an emulated device.
    pub fn wanted(&self) -> Wanted<'_> {
        let OnFlashArgs { create, force, share_frames, .. } = *self;
        Wanted { flash: self.flash.as_ref().unwrap_or(&FlashChoice::Emulated), create, force, share_frames }
    }
}

/// What every benchmark has that makes files.
#[derive(Clone, Debug, Default, Args)]
pub struct DirArgs {
    /// Directory for flash, swap and mapped files, which are removed at the end [default: the
    /// directory of the --flash file, else the temporary directory].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
}

/// The flash and the memory in front of it.
#[derive(Clone, Debug, Args)]
pub struct FlashArgs {
    #[command(flatten)]
    pub on: OnFlashArgs,
    /// Read latency of the emulated device: AstriFlash's.
    #[arg(skip = Duration::from_micros(50))]
    pub read_latency: Duration,
    /// Write latency of the emulated device.
    #[arg(skip = Duration::from_micros(100))]
    pub write_latency: Duration,
    /// Planes of the emulated device and of built-in NAND: the number of requests served at once.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub planes: u32,
    /// Maximum pages of a block of built-in NAND. Shorter blocks make reclaim erase more often.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub block_pages: Option<u32>,
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "3%", value_parser = values::size, help = DRAM)]
    pub dram: Size,
    /// Worker threads, each on a core of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub workers: u32,
    /// Fibers of one worker: the maximum of requests that wait for flash at once.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_FIBERS as u32, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub fibers: u32,
    #[command(flatten)]
    pub place: DirArgs,
    /// What a cgroup's limit has beyond the budget. No option.
    #[arg(skip = CGROUP_ALLOWANCE_BYTES)]
    pub allowance_bytes: u64,
}

/// What a cgroup's limit has beyond the budget: for the process, its page tables and its binary,
/// and the same for every configuration.
const CGROUP_ALLOWANCE_BYTES: u64 = 64 << 20;

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
        self.on.wanted()
    }
    /// What was asked for.
    pub fn choice(&self) -> &FlashChoice {
        self.wanted().flash
    }
}

/// The work of a request in addition to its misses.
#[derive(Clone, Debug, Args)]
pub struct WorkArgs {
    /// Computing between two misses: the request's own, then fewer misses (Zipf exponent, unless
    /// --zipf fixes it), then added computing (think time) [default: only the request's own; `live
    /// --quick`: 10us].
    #[arg(long, value_name = "TIME", value_parser = non_zero_duration, conflicts_with = "work")]
    pub miss_every: Option<Duration>,
    /// Add this much computing to every request (0: none).
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub work: Option<Duration>,
    /// Zipf exponent of the keys, 0 (uniform) to 4.
    #[arg(long, value_name = "EXPONENT", value_parser = values::zipf)]
    pub zipf: Option<f64>,
}

/// Time between misses of the first table of docs/figures.md.
const HEADLINE_MISS_EVERY: Duration = Duration::from_micros(10);

impl WorkArgs {
    /// What was asked for. With `--quick` and nothing else, the headline's work.
    pub fn or_headline(&self, quick: bool) -> WorkArgs {
        let asked = self.miss_every.is_some() || self.work.is_some() || self.zipf.is_some();
        let miss_every = if quick && !asked { Some(HEADLINE_MISS_EVERY) } else { self.miss_every };
        WorkArgs { miss_every, ..self.clone() }
    }
}
