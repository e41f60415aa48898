//! The command line.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueHint};
use fulgurite_harness::args::{DirArgs, FlashArgs, OnFlashArgs};
use fulgurite_harness::checks;
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
    /// thread on another core [default: first a file in --dir, which is removed at the end, then
    /// emulated].
    #[arg(long, value_name = "emulated|nand:PROFILE|device:SOCKET|memory|FILE", value_parser = values::flash)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub flash: Option<FlashChoice>,
    /// Create the file that --flash names, and remove it at the end.
    #[arg(long)]
    pub create: bool,
    /// Overwrite --flash even if it holds a pool (other than a benchmark's), a file system or a
    /// file of a known kind.
    #[arg(long)]
    pub force: bool,
    /// DRAM budget of the whole runtime: a size (`64M`), or a share of the index (`3%`). Every
    /// configuration has a cgroup of this and 8 MiB, for the process itself.
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
    /// The media to search on, each with the memory in front of it: the one that was asked for, or
    /// a file in --dir and the emulated device. The rest is as in the laboratory.
    ///
    /// # Errors
    /// Bad input where no medium was asked for and --dir is no directory.
    pub fn media(&self) -> Result<Vec<FlashArgs>> {
        let medium = |flash, create, dir| FlashArgs {
            on: OnFlashArgs { flash: Some(flash), create, force: self.force, share_frames: false },
            dram: self.dram,
            place: DirArgs { dir },
            allowance_bytes: PROCESS_BYTES,
            ..FlashArgs::usual()
        };
        let Some(flash) = &self.flash else {
            let scratch = checks::scratch_directory(self.scratch.as_deref(), None)?;
            let file = scratch.join(format!("fulgurite-demo-{}.flash", std::process::id()));
            let media = [(FlashChoice::File(file), true), (FlashChoice::Emulated, false)];
            return Ok(media.map(|(flash, create)| medium(flash, create, Some(scratch.clone()))).into());
        };
        Ok(vec![medium(flash.clone(), self.create, self.scratch.clone())])
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

In the table, \"DRAM it may use\" is the limit of a configuration's cgroup: the
same for all but dram-only, which has all of the data in DRAM. Peak is the
highest use of it while it served. Both need root.";

/// What a process takes in addition to its data: its program, its page tables, what measures it.
const PROCESS_BYTES: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Each is one more thing to know. Lower the number when one is removed.
    #[test]
    fn options_are_few() {
        let all = fulgurite_term::pages::options(&Args::command());
        println!("{} options: {all:?}", all.len());
        assert!(all.len() <= 13, "{} options", all.len());
    }
}
