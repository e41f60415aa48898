//! The settings of `device bench`, and of its second process.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::medium::Below;
use crate::args::OutputArgs;
use crate::values;

/// The process beside `device bench`.
#[derive(Debug, Args)]
pub struct BesideArgs {
    /// Where its sockets are to be.
    #[arg(long)]
    pub directory: PathBuf,
    /// Bytes of each device.
    #[arg(long)]
    pub size: u64,
    /// The core that the firmware runs on.
    #[arg(long)]
    pub core: Option<usize>,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Figure {
    /// Figures 6 and 7.
    Interface,
    /// Commands in flight.
    Depth,
    /// Figure 8.
    Buffer,
    /// Figure 9.
    Chunk,
}

impl Figure {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Interface => "interface",
            Figure::Depth => "depth",
            Figure::Buffer => "buffer",
            Figure::Chunk => "chunk",
        }
    }
}

/// `device bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Measurements, comma-separated (below).
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    #[arg(default_value = "interface,depth,buffer,chunk")]
    pub figure: Vec<Figure>,
    /// NAND model of `nand`, by name or from a TOML file, or none [default: one like the paper's].
    #[arg(long, value_name = "NAME|FILE.toml|none", value_parser = Below::parse, value_hint = ValueHint::FilePath)]
    pub nand: Option<Below>,
    /// Bytes of each device, and of the file beside them [default: 256M; --quick: 64M].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub size: Option<u64>,
    /// Directory for the file of the comparison, which is removed at the end [default: the
    /// temporary directory].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Core of the firmware. The host runs on the first one [default: the last one].
    #[arg(long, value_name = "N")]
    pub core: Option<usize>,
    /// Rounds. Everything is measured once in each [default: 7; --quick: 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
}
