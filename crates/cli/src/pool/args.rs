//! The command line of `fulgurite pool`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use fulgurite_term::values::{self, Output};

/// What to do with a pool.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Create a pool in a new file, written once from end to end, or in an existing one with
    /// --force.
    #[command(after_help = CREATE_EXAMPLES)]
    Create(CreateArgs),
    /// Show a pool: identity, size, space, tokens, required DRAM. Writes nothing to it.
    #[command(after_help = INFO_EXAMPLES)]
    Info(InfoArgs),
    /// Read all live data of a pool, and name the damage. Writes nothing to it without --repair.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// List the tokens of a pool: the states for a rollback. Writes nothing to it.
    #[command(after_help = TOKENS_EXAMPLES)]
    Tokens(ReadArgs),
    /// Pin a token, so that no retention policy drops it.
    #[command(after_help = PIN_EXAMPLES)]
    Pin(TokenArgs),
    /// Unpin a token. It stays until a sync or `compact --keep` drops it.
    #[command(after_help = PIN_EXAMPLES)]
    Unpin(TokenArgs),
    /// Return to the state of a token. Everything newer is lost.
    #[command(after_help = ROLLBACK_EXAMPLES)]
    Rollback(RollbackArgs),
    /// Move live data into as few extents as possible, and write a checkpoint. With --keep, drop
    /// old tokens first.
    #[command(after_help = COMPACT_EXAMPLES)]
    Compact(CompactArgs),
    /// Make a pool larger or smaller. A crash leaves the old size or the new one.
    #[command(after_help = RESIZE_EXAMPLES)]
    Resize(ResizeArgs),
    /// Add a file or device to a pool, and grow into it. A crash leaves the pool as it was, or with
    /// the new member.
    #[command(after_help = ADD_MEMBER_EXAMPLES)]
    AddMember(AddMemberArgs),
    /// Write the data of a pool to a new flat file. Writes nothing to the pool.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportArgs),
    /// Write a flat file over the beginning of a pool's data, and sync.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
}

/// Examples of all commands.
pub const EXAMPLES: &str = "\
Examples:
  fulgurite pool create data.pool --size 16G
  fulgurite pool import data.pool data.img   # the data of a flat file
  # space, tokens, required DRAM
  fulgurite pool info data.pool
  # read everything, name the damage
  fulgurite pool check data.pool
  # the states for a rollback
  fulgurite pool tokens data.pool
  fulgurite pool rollback data.pool 17 --yes
  fulgurite pool export data.pool now.img

Exit codes: 0 done, 1 failure or damage, 2 bad input or no pool (nothing was
changed), 130 interrupted.";

const CREATE_EXAMPLES: &str = "\
Examples:
  fulgurite pool create data.pool --size 16G
  fulgurite pool create data.pool --size 16G --data 12G --extent 4M
  # the whole device, whose contents are lost
  fulgurite pool create /dev/nvme1n1 --force
  # 16 GiB on each, alternating by extent
  fulgurite pool create a.pool b.pool --size 32G
  fulgurite pool create /dev/nvme1n1 /dev/nvme2n1 --force

A pool that spans several files or devices is opened by any of them. It needs
all of them, because it keeps no copies. The others are found next to the
named one, or at their last paths.

--force never overwrites anything mounted or in use, another user's file, a
file with several names, or a symbolic link.";

const ADD_MEMBER_EXAMPLES: &str = "\
Examples:
  fulgurite pool add-member data.pool more.pool --size 16G
  # a whole device, whose contents are lost
  fulgurite pool add-member /dev/nvme1n1 /dev/nvme2n1 --force

From then on the pool needs all of its members, because it keeps no copies.
Existing data does not move.";

const INFO_EXAMPLES: &str = "\
Examples:
  fulgurite pool info data.pool
  fulgurite pool info data.pool --json
  fulgurite pool info data.pool --json info.json
  # the store of a served device, also while a program uses it
  fulgurite pool info device:flash.sock
  # the lifetime of flash with 3000 cycles
  fulgurite pool info data.pool --endurance 3000
  # the contents of its extents, as a picture
  fulgurite pool info data.pool --maps pool.svg";

const CHECK_EXAMPLES: &str = "\
Examples:
  fulgurite pool check data.pool
  fulgurite pool check data.pool --json
  fulgurite pool check data.pool --repair --force

Exit codes: 0 no damage, 1 damage (each item is named), 2 this is no pool.

--repair rewrites damaged copies of the superblock, the members' lists and the
anchors from the other copy, and damaged summaries from the page table. A new
checkpoint supersedes damaged pages of the journal or of a checkpoint that are
not needed to open the pool. Unreadable data is lost. Its flash page is
retired, and reads fail until it is written again. To recover it, roll back to
a token without it, or restore a copy.

A pool that has lost a promised token is not opened for changes. --accept-loss
makes the last readable state the pool's state. The named tokens are lost for
good then. Export that state first:

  fulgurite pool check data.pool   # names the loss
  fulgurite pool export data.pool rescued.img
  fulgurite pool check data.pool --repair --force --accept-loss";

const TOKENS_EXAMPLES: &str = "\
Examples:
  fulgurite pool tokens data.pool
  fulgurite pool tokens data.pool --json
  fulgurite pool tokens device:flash.sock

Each row has the time when the token was made, by the clock of that machine.
It is `-` where the time is unknown, as for a device.";

const PIN_EXAMPLES: &str = "\
Examples:
  fulgurite pool tokens data.pool
  fulgurite pool pin data.pool 17
  fulgurite pool unpin data.pool 17
  # no program may use the device meanwhile
  fulgurite pool pin device:flash.sock 17";

const ROLLBACK_EXAMPLES: &str = "\
Examples:
  fulgurite pool export data.pool before.img --token 17  # check it first
  fulgurite pool rollback data.pool 17 --yes

A rollback is atomic, even if the machine stops in the middle of it.";

const COMPACT_EXAMPLES: &str = "\
Examples:
  fulgurite pool compact data.pool
  # the states of older tokens are lost
  fulgurite pool compact data.pool --keep 3

Extents with at least one dead flash page in 64 are emptied by copying their
live data, those with the least first. Data that tokens keep is live. All
tokens stay unless --keep limits them, and pinned ones always stay. The data
does not change. The file does not shrink: space is freed inside the pool.";

const RESIZE_EXAMPLES: &str = "\
Examples:
  fulgurite pool resize data.pool --size 32G
  # live data moves to the first 8 GiB, and the file is truncated
  fulgurite pool resize data.pool --size 8G
  # the same flash, less of it for programs
  fulgurite pool resize data.pool --data 6G

To shrink, everything behind the new end is moved first. That is refused when
data is behind the new end of the data, or when live data does not fit. Older
versions that tokens keep are live, too: drop old tokens with `fulgurite pool
compact --keep 1`. A pool that spans several files grows on all of them.";

const EXPORT_EXAMPLES: &str = "\
Examples:
  fulgurite pool export data.pool data.img
  fulgurite pool export data.pool old.img --token 17
  fulgurite pool export data.pool rescued.img --skip-damaged

The file is as long as the pool's data, with holes for data that was never
written.";

const IMPORT_EXAMPLES: &str = "\
Examples:
  fulgurite pool import data.pool data.img
  fulgurite pool import data.pool data.img --sync-every 256M --keep 1

Byte 0 of the file becomes byte 0 of the data. The last subpage is padded with
zeros, and data behind it stays. There is one sync, at the end. Until then an
interruption leaves the pool as it was, and the pool needs room for both. With
--sync-every it needs less, and an interruption leaves the last synced part.";

/// Help of a path that may also be the store of a device. (A changed argument comes last, unless
/// its index is given.)
const OR_DEVICE: &str = "The pool: a file or block device, any one of several that it spans, or device:SOCKET, the store of a served device";

/// The pool of a command.
#[derive(Debug, Args)]
pub struct PoolArgs {
    /// The pool: a file or block device, or any of those that it spans.
    #[arg(value_hint = ValueHint::FilePath)]
    pub path: PathBuf,
    /// Path of another file or device of the pool, if it is neither next to PATH nor at its last
    /// path. May be repeated.
    #[arg(long = "member", value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub members: Vec<PathBuf>,
}

/// A pool to inspect.
#[derive(Debug, Args)]
#[command(mut_arg("path", |path| path.index(1).help(OR_DEVICE)))]
pub struct ReadArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// Write one JSON object instead; without FILE or with `-` to standard output.
    #[arg(long, value_name = "FILE", num_args = 0..=1, value_parser = values::output)]
    #[arg(default_missing_value = "-", value_hint = ValueHint::FilePath)]
    pub json: Option<Output>,
}

/// `pool info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Write cycles of a flash page. Estimates the lifetime of the flash at the rate so far.
    #[arg(long, value_name = "CYCLES", value_parser = clap::value_parser!(u32).range(1..))]
    pub endurance: Option<u32>,
    /// DRAM of a program over the pool, a sixteenth of which remembers what it overwrites between
    /// two syncs [default: 64M].
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    pub dram: Option<u64>,
    /// Draw maps of the pool to an .svg file: use, live share, age and older versions of its
    /// extents.
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub maps: Option<PathBuf>,
}

/// `pool create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The file to create, or with --force an existing file or block device. A pool is striped over
    /// several.
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub paths: Vec<PathBuf>,
    /// Bytes of the pool, over all its files, for example 16G. Rounded down to whole extents
    /// [default: the existing size; required for a new file].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub size: Option<u64>,
    /// Bytes that programs may fill, rounded up to whole pages of 64 KiB [default: as many as fit].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub data: Option<u64>,
    /// Create a pool of objects. Contents of subpages shorter than 4096 bytes are packed several to
    /// a flash page, so --data may exceed --size (up to 16T). The address space costs 6 bytes of
    /// DRAM for 4096, and up to 16 more where something was written.
    #[arg(long, requires = "data")]
    pub objects: bool,
    /// Bytes of an extent, the unit of reclaim: 32K to 256M [default: 2M, less for a pool under
    /// 256M].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub extent: Option<u64>,
    /// Overwrite existing files or devices. All their contents are lost.
    #[arg(long)]
    pub force: bool,
}

/// `pool check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// Repair what can be repaired, and give up unreadable data. Each step is reported.
    #[arg(long)]
    pub repair: bool,
    /// Confirm that --repair writes to the pool.
    #[arg(long, requires = "repair")]
    pub force: bool,
    /// Give up promised data that is unreadable. The last readable state becomes the pool's.
    #[arg(long, requires = "repair")]
    pub accept_loss: bool,
    /// Write one JSON object instead; without FILE or with `-` to standard output.
    #[arg(long, value_name = "FILE", num_args = 0..=1, value_parser = values::output)]
    #[arg(default_missing_value = "-", value_hint = ValueHint::FilePath)]
    pub json: Option<Output>,
}

/// A token of a pool.
#[derive(Debug, Args)]
#[command(mut_arg("path", |path| path.index(1).help(OR_DEVICE)))]
pub struct TokenArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// The token, as `pool tokens` lists it.
    #[arg(index = 2)]
    pub token: u64,
}

/// `pool rollback`.
#[derive(Debug, Args)]
#[command(mut_arg("path", |path| path.index(1).help(OR_DEVICE)))]
pub struct RollbackArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// The token, as `pool tokens` lists it.
    #[arg(index = 2)]
    pub token: u64,
    /// Confirm the rollback. Newer tokens are lost.
    #[arg(long)]
    pub yes: bool,
}

/// `pool compact`.
#[derive(Debug, Args)]
pub struct CompactArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// Tokens to keep in addition to the pinned ones, the newest first. The others are dropped
    /// [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,
}

/// `pool resize`.
#[derive(Debug, Args)]
pub struct ResizeArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// Bytes of the pool, over all its files, for example 32G. Rounded down to whole extents
    /// [default: as now].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub size: Option<u64>,
    /// Bytes that programs may fill, rounded up to whole pages of 64 KiB [default: as many as fit,
    /// in a pool of objects as now].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub data: Option<u64>,
    /// Begin to pack objects: contents of subpages shorter than 4096 bytes, several to a page of
    /// flash. --data may then exceed --size. A pool that packs them stays one that does.
    #[arg(long)]
    pub objects: bool,
}

/// `pool add-member`.
#[derive(Debug, Args)]
pub struct AddMemberArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// The file to create, or with --force an existing file or device.
    pub new: PathBuf,
    /// Bytes of the new member, rounded down to whole extents, one of which is for its own metadata
    /// [default: the existing size].
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub size: Option<u64>,
    /// Overwrite an existing file or block device. All its contents are lost.
    #[arg(long)]
    pub force: bool,
}

/// `pool export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// The file to create. It must not exist.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Export the state of this token instead of the newest.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<u64>,
    /// Leave holes for damaged data, write the rest, and exit with code 1.
    #[arg(long)]
    pub skip_damaged: bool,
}

/// `pool import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// The file to read.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Also sync after each this many bytes.
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub sync_every: Option<u64>,
    /// Tokens to keep in addition to the pinned ones, the newest first [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,
    /// Free space to keep. While there is less, the oldest unpinned tokens are dropped, except the
    /// newest.
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub keep_space: Option<u64>,
}
