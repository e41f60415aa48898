//! The command line of `fulgurite device`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use fulgurite_nbd::NbdAddress;
use fulgurite_term::media::device::Below;
use fulgurite_term::values::{self, Output};

use crate::args::Moved;

/// What to do with a device.
#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    /// Serve a device. Other programs attach to its socket and then access it by loads and stores.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Show a served device: its kind, size and counters.
    #[command(after_help = INFO_EXAMPLES)]
    Info(InfoArgs),
    /// Write the boot region of a served device to standard output. This works while the device
    /// starts, too.
    #[command(after_help = BOOT_EXAMPLES)]
    Boot(BootArgs),
    /// Moved to `fulgurite-lab device`.
    #[command(hide = true, disable_help_flag = true)]
    Bench(Moved),
}

/// `device boot`.
#[derive(Debug, Args)]
pub struct BootArgs {
    /// The Unix socket that the device listens at.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,
}

/// `device info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// The Unix socket that the device listens at.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,
    /// Write one JSON object instead; without FILE or with `-` to standard output.
    #[arg(long, value_name = "FILE", num_args = 0..=1, value_parser = values::output)]
    #[arg(default_missing_value = "-", value_hint = ValueHint::FilePath)]
    pub json: Option<Output>,
}

/// Examples of all commands.
pub const EXAMPLES: &str = "\
Examples:
  fulgurite device serve --socket /run/user/1000/flash.sock --size 8G
  fulgurite device info --socket /run/user/1000/flash.sock";

const BOOT_EXAMPLES: &str = "\
Examples:
  fulgurite device serve --socket flash.sock --size 8G --boot loader.img
  fulgurite device boot --socket flash.sock > loader.img";

const INFO_EXAMPLES: &str = "\
Examples:
  fulgurite device info --socket flash.sock
  fulgurite device info --socket flash.sock --json info.json";

const SERVE_EXAMPLES: &str = "\
Examples:
  # memory behind the firmware: no medium at all
  fulgurite device serve --socket flash.sock --size 1G
  # flushed writes survive in a file
  fulgurite device serve --socket flash.sock --size 8G --data flash.img
  # writes complete in 64 MiB of DRAM, and are in the file after a flush
  fulgurite device serve --socket flash.sock --size 8G --data flash.img \\
    --write-cache 64M
  # an image that programs can read before the store has recovered
  fulgurite device serve --socket flash.sock --size 8G --nand mlc \\
    --data flash.img --boot loader.img
  # the memory of a program with its own states (Medium::device_pool)
  fulgurite device serve --socket flash.sock --size 8G --data pool --store \\
    --keep-tokens 16 --keep-age 3600s
  # with a budget for the firmware's DRAM, which `device info` shows
  fulgurite device serve --socket flash.sock --size 8G --nand mlc --dram 64M
  # on a block device, whose wear is kept in a file
  fulgurite device serve --socket flash.sock --size 8G --nand mlc \\
    --data /dev/vdb --wear vdb.nand
  # also as a block device, for fio, qemu and nbdcopy
  fulgurite device serve --socket flash.sock --size 8G --nbd nbd.sock
  fulgurite device serve --socket flash.sock --size 8G --nbd localhost:10809

Only the socket's owner can use it (mode 0600). NBD has no password here. A
socket for NBD is its owner's, too. A port on loopback is open to every user
of this machine. Other addresses are refused.

It runs until Ctrl-C. Flushed writes are in --data then, and after kill -9.
With --write-cache, as over NAND, completed but unflushed writes are in DRAM
only: kill -9 and a power loss destroy them. Hosts of this program keep copies
of such writes, and repeat them to a returned device.";

/// `device serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The Unix socket that programs attach to. It must not exist, or be left by a dead server.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,
    /// NAND model, by name or from a TOML file, or none (plain memory, or the file alone). A TOML
    /// file's plane with more than twice the blocks that --size needs gets only those.
    #[arg(long, value_name = "NAME|FILE.toml|none", default_value = "none", value_parser = Below::parse, value_hint = ValueHint::FilePath)]
    pub nand: Below,
    /// Bytes of the device, for example 8G. With --store: bytes of its pool, of which programs get
    /// about five sixths [default: the size of --data, where that exists].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub size: Option<u64>,
    /// The file or block device for the data. A missing file is created. With --nand or --store it
    /// may also be blank. Other contents are refused without --force [default: nothing is kept].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub data: Option<PathBuf>,
    /// The file for the NAND's wear and failed blocks. For a new device it must not exist, without
    /// --force [default: FILE.nand next to --data].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub wear: Option<PathBuf>,
    /// Overwrite the contents of --data and --wear. Without --nand and --store, --data is served
    /// although it holds a pool or a device over NAND, and writes destroy that. With them, a new
    /// device overwrites other contents, and an existing one is served as it is.
    #[arg(long)]
    pub force: bool,
    /// Serve a store directly over --data, without NAND. Its pool is created where the file is
    /// missing or blank.
    #[arg(long)]
    pub store: bool,
    /// Tokens that a store keeps in addition to the pinned ones, the newest first: states named by
    /// programs, and flushes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub keep_tokens: u32,
    /// Maximum age of a store's tokens, for example 3600s. Older ones are dropped when a newer one
    /// is made [default: any age].
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub keep_age: Option<Duration>,
    /// DRAM budget of the firmware: its store's tables and buffers, --write-cache, --boot, queue
    /// pairs. At the bound, older states are dropped, then writes wait for a flush. More queue
    /// pairs are refused [default: no bound].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub dram: Option<u64>,
    /// Image for the boot region, up to 64M. Programs read it by plain loads, even before the
    /// device is up.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub boot: Option<PathBuf>,
    /// Volatile buffer in which writes complete. Flushes write it out. Not over NAND, whose store
    /// has its own [default: none].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub write_cache: Option<u64>,
    /// Also serve a block device over NBD, at the path of a socket or a port on loopback.
    #[arg(long, value_name = "PATH|localhost:PORT", value_parser = NbdAddress::from_str, value_hint = ValueHint::FilePath)]
    pub nbd: Option<NbdAddress>,
    /// Core of the firmware [default: the last one, where there are several].
    #[arg(long, value_name = "N")]
    pub core: Option<usize>,
    /// Maximum queue pairs of all attached programs. A program that reattaches after the device's
    /// death needs one more for a while.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub queues: u32,
}
