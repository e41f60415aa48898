//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueHint};
use fulgurite_harness::args::FlashArgs;
use fulgurite_harness::values::{self, Config, FlashChoice, Size};
use fulgurite_term::args::OutputArgs;
use fulgurite_term::named;

named! {
    /// What `demo` shows.
    Act, "act", act {
        /// An index larger than DRAM, searched.
        Search = "search",
        /// Memory that survives kills.
        Survive = "survive",
    }
}

/// Index this machine's text into flash memory and serve it with 3-5% of the index in DRAM. Then
/// kill a program repeatedly, and find all that it saved.
#[derive(Clone, Debug, Parser)]
#[command(name = "fulgurite-demo", version, max_term_width = 110, after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub output: OutputArgs,
    /// The flash: `emulated`, `nand:PROFILE`, `device:SOCKET`, `memory`, or the path of a file or
    /// block device. Its contents are lost. `emulated` is a device of fixed latencies, played by a
    /// thread on another core.
    #[arg(long, value_name = "emulated|nand:PROFILE|device:SOCKET|memory|FILE", value_parser = values::flash)]
    #[arg(default_value = "emulated", value_hint = ValueHint::FilePath)]
    pub flash: FlashChoice,
    /// Create the file that --flash names, and remove it at the end.
    #[arg(long)]
    pub create: bool,
    /// Overwrite --flash even if it holds a pool (other than a benchmark's), a file system or a
    /// file of a known kind.
    #[arg(long)]
    pub force: bool,
    /// DRAM budget of the whole runtime: a size (`64M`), or a share of the index (`3%`).
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "3%", value_parser = values::size)]
    pub dram: Size,
    /// Directory for swap files, mapped files and the pool [default: the directory of the --flash
    /// file, else the temporary directory].
    #[arg(long = "dir", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub scratch: Option<PathBuf>,
    /// Configurations of `fulgurite-lab live`, comma-separated. dram-only always runs, as the
    /// denominator.
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

impl Args {
    /// The flash and the memory in front of it: what is not asked for is as in the laboratory.
    pub fn flash_args(&self) -> FlashArgs {
        FlashArgs {
            flash: self.flash.clone(),
            create: self.create,
            force: self.force,
            dram: self.dram,
            scratch: self.scratch.clone(),
            ..FlashArgs::usual()
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  # this machine's text, 3% of the index in DRAM
  fulgurite-demo
  fulgurite-demo --quick --input /usr/share/doc --report doc.html
  fulgurite-demo --dram 5% --flash /mnt/nvme/flash.img --create
  fulgurite-demo --config fulgurite,os-swap --dir /mnt/nvme \\
    --json demo.json --plot demo.svg
  fulgurite-demo --act survive --seed 7   # only the kills, at other moments

In the table, \"DRAM it may use\" is the budget of the guarded path, all of the
data for dram-only, and the whole cgroup (budget and 64 MiB) for the kernel's
paging. Peak is the highest use of a configuration's cgroup while it served.
Peak needs root.";
