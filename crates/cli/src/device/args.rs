//! The command line of `fulgurite device`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use fulgurite_bench::device::args::{BenchArgs, BesideArgs};
use fulgurite_bench::device::medium::Below;
use fulgurite_bench::values::{self, Output};
use fulgurite_nbd::NbdAddress;

/// What to do with a device.
#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    /// Serve a device: other programs attach to its socket, and reach it by loads and stores from then on.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Show a device that is served: what it is, how large, what it has done.
    #[command(after_help = INFO_EXAMPLES)]
    Info(InfoArgs),
    /// Write the boot region of a served device to standard output, also while the device starts.
    #[command(after_help = BOOT_EXAMPLES)]
    Boot(BootArgs),
    /// The evaluation of the DRAM-interface paper, live: protocol, depth, buffer, chunks; beside io_uring and NBD.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// The device in another process that `device bench` measures: it serves until its standard input ends.
    #[command(name = "__beside", hide = true)]
    Beside(BesideArgs),
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
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "-",
        value_parser = values::output,
        value_hint = ValueHint::FilePath
    )]
    pub json: Option<Output>,
}

/// Of both.
pub const EXAMPLES: &str = "\
Examples:
  fulgurite device serve --socket /run/user/1000/flash.sock --size 8G
  fulgurite device info --socket /run/user/1000/flash.sock
  fulgurite device bench --quick
  fulgurite device bench --json device.json --plot device.svg";

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
  # what is flushed survives in a file
  fulgurite device serve --socket flash.sock --size 8G --data flash.img
  # writes complete in 64 MiB of DRAM, and are in the file after a flush
  fulgurite device serve --socket flash.sock --size 8G --data flash.img \\
    --write-cache 64M
  # an image that programs can read before the store has recovered
  fulgurite device serve --socket flash.sock --size 8G --nand mlc \\
    --data flash.img --boot loader.img
  # the memory of a program that names its states itself (Medium::device_pool)
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

The socket is its owner's alone (mode 0600). NBD has no password here: a
socket of its own is its owner's too, a port on loopback is open to every user
of this machine, and nothing else is accepted.

It runs until Ctrl-C. What was flushed is in --data then, and after kill -9.
With --write-cache, as over NAND, a write that has completed and was not
flushed is in DRAM alone: kill -9 and the loss of power take it. Hosts of this
program keep copies of such writes, and repeat them to a device that returns.";

const BENCH_EXAMPLES: &str = "\
Examples:
  fulgurite device bench --quick
  fulgurite device bench --figure interface,depth --rounds 9
  fulgurite device bench --dir /mnt/nvme --json device.json \\
    --plot device.svg

Figures:
  interface  what the protocol adds to the copies alone, by chunk, one command
             at a time, nothing behind the firmware (figures 6 and 7)
  depth      4 KiB reads a second by commands in flight; what each takes of
             the host's core and of the device's
  buffer     four requests at a time, by data buffer and chunk (figure 8)
  chunk      reads and writes by chunk, one and four at a time (figure 9)

Ways:
  copy            the copies alone, in turns with the next one
  device-bypassed the device in this process, nothing behind its firmware;
                  both read into 64 MiB, and -near into one place
  device          the same over plain memory; -copies: through the data buffer
                  also where frames could be shared
  process         the same in a process of its own, over its socket; also
                  -bypassed and -copies
  nand            the device over the store over --nand; -dma: with copies
                  held to 450 MB/s, as the paper's DMA
  file            io_uring on a file past the page cache, the host polling;
                  -asleep: the host sleeping
  nbd             this machine's NBD server over memory, by a Unix socket

CPU is that of the host's thread, user and system (CLOCK_THREAD_CPUTIME_ID).
\"Productive\" leaves out looks at a queue that found nothing: a worker would
run its fibers then.";

/// `device serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The Unix socket that programs attach to. It must not exist, or be what a dead server left.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,
    /// What the flash is: a NAND model by name or from a TOML file, or none (plain memory, or the file alone). Of a file's NAND no more
    /// blocks of a plane are made than --size takes, where it has more than twice as many.
    #[arg(long, value_name = "NAME|FILE.toml|none", default_value = "none", value_parser = Below::parse, value_hint = ValueHint::FilePath)]
    pub nand: Below,
    /// Bytes of the device; with --store of its pool, of which programs get about five sixths [default: those of --data, where that exists].
    #[arg(long, value_name = "8G", value_parser = values::bytes)]
    pub size: Option<u64>,
    /// The file or block device that keeps the data; a file that does not exist is made. With --nand or --store it may be blank as well; what
    /// holds something else is refused without --force [default: nothing is kept].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub data: Option<PathBuf>,
    /// The file that keeps how worn the NAND is, and which of its blocks have failed. Where a device is made it may not exist yet, without
    /// --force [default: FILE.nand beside --data].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub wear: Option<PathBuf>,
    /// Uses up what --data and --wear hold: serves --data as it is although a pool or a device over NAND lies in it, and what is written
    /// destroys that. With --nand or --store a device is made although there is something else, which is gone then; one that is there is
    /// served as it is.
    #[arg(long)]
    pub force: bool,
    /// A store lies straight over --data, without NAND: a pool, which is made where the file does not exist or is blank.
    #[arg(long)]
    pub store: bool,
    /// Tokens that a store keeps beside those that are pinned, the newest first: states that programs have named, and flushes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub keep_tokens: u32,
    /// How old a token of a store may become: older ones are dropped as a newer one is made [default: any age].
    #[arg(long, value_name = "3600s", value_parser = values::duration)]
    pub keep_age: Option<Duration>,
    /// The most DRAM for the firmware: its store's map, tables, checksums and buffers, --write-cache, --boot, queue pairs. Older states of a
    /// store that would take more go, then writes wait for a flush; a queue pair that would is refused [default: no bound].
    #[arg(long, value_name = "32M", value_parser = values::bytes)]
    pub dram: Option<u64>,
    /// An image for the boot region, up to 64M: programs read it by plain loads, also before the device is up.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub boot: Option<PathBuf>,
    /// A volatile buffer in which writes complete; flushes wait until it is written out. Not over NAND, whose store has its own
    /// [default: none].
    #[arg(long, value_name = "64M", value_parser = values::bytes)]
    pub write_cache: Option<u64>,
    /// Also serve it as a block device over NBD: the path of a socket, or a port on loopback.
    #[arg(long, value_name = "PATH|localhost:PORT", value_parser = NbdAddress::from_str, value_hint = ValueHint::FilePath)]
    pub nbd: Option<NbdAddress>,
    /// The core that the firmware runs on [default: the last one, where there are several].
    #[arg(long, value_name = "N")]
    pub core: Option<usize>,
    /// Queue pairs, over all programs that are attached. A program that finds the device again after its death wants one more for a while.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub queues: u32,
}
