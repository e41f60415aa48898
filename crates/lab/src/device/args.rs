//! The settings of `device`, and of its second process.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::args::RoundsArgs;
use fulgurite_harness::args::DirArgs;
use fulgurite_term::args::OutputArgs;

/// The process that serves devices next to the one that runs `device`.
#[derive(Debug, Args)]
pub struct DeviceProcessArgs {
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

/// `device`.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Measurements, comma-separated (below).
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    #[arg(default_value = "interface,depth,buffer,chunk")]
    pub figure: Vec<Figure>,
    #[command(flatten)]
    pub(crate) place: DirArgs,
    #[command(flatten)]
    pub(crate) repeat: RoundsArgs,
}

/// What help says below the options.
pub const EXAMPLES: &str = "\
Examples:
  fulgurite-lab device --quick
  fulgurite-lab device --figure interface,depth --rounds 9
  fulgurite-lab device --dir /mnt/nvme --json device.json \\
    --plot device.svg

Figures:
  interface  overhead of the protocol over the copies alone, by chunk, one
             command at a time, nothing behind the firmware (figures 6 and 7)
  depth      4 KiB reads a second by commands in flight, and the CPU of each
             on the host and the device
  buffer     four requests at a time, by data buffer and chunk (figure 8)
  chunk      reads and writes by chunk, one and four at a time (figure 9)

Variants:
  copy            the copies alone, in turns with the next one
  device-bypassed the device in this process, nothing behind its firmware.
                  Both read into 64 MiB, and -near into one place
  device          the same over plain memory. -copies: through the data buffer
                  also where frames could be shared
  process         the same in a process of its own, over its socket. Also
                  -bypassed and -copies
  nand            the device over the store over NAND like the paper's. -dma:
                  with copies limited to 450 MB/s, as the paper's DMA
  file            io_uring on a file past the page cache, the host polling.
                  -asleep: the host sleeping

The host runs on the first core, the firmware on the last. Each device, and
the file that they are compared with, has 256 MiB (16 with --quick).

CPU is of the host's thread, user and system (CLOCK_THREAD_CPUTIME_ID).
\"Productive\" excludes polls that found nothing: a worker would run its fibers
then.";
