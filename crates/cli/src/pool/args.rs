//! The command line of `fulgurite pool`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use fulgurite_bench::values::{self, Output};

/// What to do with a pool.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Make a pool: a new file, written once from end to end, or what exists with --force.
    #[command(after_help = CREATE_EXAMPLES)]
    Create(CreateArgs),
    /// Show a pool: identity, size, space, tokens, DRAM that it needs. Writes nothing to it.
    #[command(after_help = INFO_EXAMPLES)]
    Info(InfoArgs),
    /// Read everything in a pool that is needed, and name what is damaged. Writes nothing to it without --repair.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// List the tokens of a pool: the states that can be returned to. Writes nothing to it.
    #[command(after_help = TOKENS_EXAMPLES)]
    Tokens(LookArgs),
    /// Keep a token whatever the policy of the program that uses the pool says.
    #[command(after_help = PIN_EXAMPLES)]
    Pin(TokenArgs),
    /// Pin a token no more. It stays until a sync or `compact --keep` lets it go.
    #[command(after_help = PIN_EXAMPLES)]
    Unpin(TokenArgs),
    /// Return to the state of a token. Everything newer is gone.
    #[command(after_help = ROLLBACK_EXAMPLES)]
    Rollback(RollbackArgs),
    /// Gather what is live in as few extents as it takes, and write a checkpoint; with --keep, drop old tokens first.
    #[command(after_help = COMPACT_EXAMPLES)]
    Compact(CompactArgs),
    /// Make a pool larger or smaller. A crash leaves the old size or the new one.
    #[command(after_help = RESIZE_EXAMPLES)]
    Resize(ResizeArgs),
    /// Add a file or device to those that a pool spans; the pool grows into it. A crash leaves it as it was, or with the new member.
    #[command(after_help = ADD_MEMBER_EXAMPLES)]
    AddMember(AddMemberArgs),
    /// Write the data of a pool to a new flat file. Writes nothing to the pool.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportArgs),
    /// Write a flat file over the beginning of a pool's data, and sync.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
}

/// Of all of them.
pub const EXAMPLES: &str = "\
Examples:
  fulgurite pool create data.pool --size 16G
  fulgurite pool import data.pool data.img   # the data of a flat file
  # space, tokens, DRAM that it needs
  fulgurite pool info data.pool
  # read everything, name what is damaged
  fulgurite pool check data.pool
  # the states that can be returned to
  fulgurite pool tokens data.pool
  fulgurite pool rollback data.pool 17 --yes
  fulgurite pool export data.pool now.img

Exit codes: 0 done, 1 something failed or is damaged, 2 bad input or no pool
(nothing was touched), 130 interrupted.";

const CREATE_EXAMPLES: &str = "\
Examples:
  fulgurite pool create data.pool --size 16G
  fulgurite pool create data.pool --size 16G --data 12G --extent 4M
  # the whole device; what was on it is gone
  fulgurite pool create /dev/nvme1n1 --force
  # 16 GiB on each, extent by extent in turns
  fulgurite pool create a.pool b.pool --size 32G
  fulgurite pool create /dev/nvme1n1 /dev/nvme2n1 --force

A pool that spans several files or devices is opened by any of them, and needs
all of them: it keeps no copies. The others are found beside the one that is
named, or where they were last.

--force never takes what is mounted or in use, somebody else's file, a file
with several names or a symbolic link.";

const ADD_MEMBER_EXAMPLES: &str = "\
Examples:
  fulgurite pool add-member data.pool more.pool --size 16G
  # All of a device; what was on it is gone:
  fulgurite pool add-member /dev/nvme1n1 /dev/nvme2n1 --force

From then on the pool needs all of its members: it keeps no copies. What it
holds stays where it is.";

const INFO_EXAMPLES: &str = "\
Examples:
  fulgurite pool info data.pool
  fulgurite pool info data.pool --json
  fulgurite pool info data.pool --json info.json
  # the store of a served device, also while a program uses it
  fulgurite pool info device:flash.sock
  # how long flash of 3000 cycles will last
  fulgurite pool info data.pool --endurance 3000
  # what its extents hold, as a picture
  fulgurite pool info data.pool --maps pool.svg";

const CHECK_EXAMPLES: &str = "\
Examples:
  fulgurite pool check data.pool
  fulgurite pool check data.pool --json
  fulgurite pool check data.pool --repair --force

Exit codes: 0 all is whole, 1 something is damaged (each thing is named), 2
this is no pool.

--repair writes damaged copies of the superblock, of the members' lists and of
anchors again from the other copy, and damaged summaries from the page table;
it leaves damaged pages of the journal or of a checkpoint that the pool can be
opened without behind a new checkpoint. Data that cannot be read is lost: it
is given up, so that its flash page is used no more, and reads of it fail
until it is written again. To have it back, roll back to a token that it is
not part of, or restore a copy.

A pool that has lost a token which it had promised is not opened for changes.
--accept-loss makes the last state that can be read the pool's state; the
tokens that are named are gone for good then. Export that state first:

  fulgurite pool check data.pool   # names what is lost
  fulgurite pool export data.pool rescued.img
  fulgurite pool check data.pool --repair --force --accept-loss";

const TOKENS_EXAMPLES: &str = "\
Examples:
  fulgurite pool tokens data.pool
  fulgurite pool tokens data.pool --json
  fulgurite pool tokens device:flash.sock

A token was made when its row says, by the clock of the machine it was made
on; `-` where that is not known, as of a device.";

const PIN_EXAMPLES: &str = "\
Examples:
  fulgurite pool tokens data.pool
  fulgurite pool pin data.pool 17
  fulgurite pool unpin data.pool 17
  # no program may use the device meanwhile
  fulgurite pool pin device:flash.sock 17";

const ROLLBACK_EXAMPLES: &str = "\
Examples:
  fulgurite pool export data.pool before.img --token 17  # look at it first
  fulgurite pool rollback data.pool 17 --yes

A rollback happens whole or not at all, also when the machine stops in the
middle of it.";

const COMPACT_EXAMPLES: &str = "\
Examples:
  fulgurite pool compact data.pool
  # the states of older tokens are gone then
  fulgurite pool compact data.pool --keep 3

Extents in which at least one flash page in 64 is dead are emptied by copying
what is live, fewest live first. What tokens keep is live: all stay, unless
--keep says how many; pinned ones stay in any case. The data does not change,
and the file does not become smaller: what is freed is free inside the pool.";

const RESIZE_EXAMPLES: &str = "\
Examples:
  fulgurite pool resize data.pool --size 32G
  # what is live moves to the first 8 GiB; the file is cut
  fulgurite pool resize data.pool --size 8G
  # the same flash, less of it for programs
  fulgurite pool resize data.pool --data 6G

To shrink, everything behind the new end is moved first. That is refused when
data lies behind the new end of the data, or when what is live does not fit,
older versions that tokens keep included: drop old tokens with `fulgurite pool
compact --keep 1`. A pool that spans several files grows on all of them.";

const EXPORT_EXAMPLES: &str = "\
Examples:
  fulgurite pool export data.pool data.img
  fulgurite pool export data.pool old.img --token 17
  fulgurite pool export data.pool rescued.img --skip-damaged

The file is as long as the pool's data, and has holes where nothing was ever
written.";

const IMPORT_EXAMPLES: &str = "\
Examples:
  fulgurite pool import data.pool data.img
  fulgurite pool import data.pool data.img --sync-every 256M --keep 1

Byte 0 of the file becomes byte 0 of the data; the last subpage is filled up
with zeros, and data behind it stays as it is. There is one sync, at the end:
until then a stop leaves the pool as it was, and the pool needs room for both.
With --sync-every it needs less, and a stop leaves the part that was synced
last.";

/// What is said of a path where the store of a device will do, too. (An argument that is changed comes last, unless its place is said.)
const OR_DEVICE: &str = "The pool: a file or block device, or any of those that it spans; or device:SOCKET, the store of a device that is served";

/// Which pool.
#[derive(Debug, Args)]
pub struct PoolArgs {
    /// The pool: a file or block device, or any of those that it spans.
    #[arg(value_hint = ValueHint::FilePath)]
    pub path: PathBuf,
    /// Where another file or device of the pool is, if it is neither beside PATH nor where it was last. May be given several times.
    #[arg(long = "member", value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub members: Vec<PathBuf>,
}

/// A pool to look at.
#[derive(Debug, Args)]
#[command(mut_arg("path", |path| path.index(1).help(OR_DEVICE)))]
pub struct LookArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
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

/// `pool info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// What is looked at, and how it is shown.
    #[command(flatten)]
    pub look: LookArgs,
    /// How often each flash page can be written before it fails: say how long the flash will last at the rate so far.
    #[arg(long, value_name = "CYCLES", value_parser = clap::value_parser!(u32).range(1..))]
    pub endurance: Option<u32>,
    /// Draw maps of the pool to a file that ends in .svg: use, live share, age and older versions of its extents.
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub maps: Option<PathBuf>,
}

/// `pool create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The file to make, or with --force a file or block device that exists. With several, the pool is striped over them.
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub paths: Vec<PathBuf>,
    /// Bytes of the pool, over all its files, rounded down to whole extents [default: all of what exists; a new file needs it].
    #[arg(long, value_name = "16G", value_parser = values::bytes)]
    pub size: Option<u64>,
    /// Bytes that programs may fill, rounded up to whole pages of 64 KiB [default: as many as fit].
    #[arg(long, value_name = "12G", value_parser = values::bytes)]
    pub data: Option<u64>,
    /// Make a pool of objects: contents of subpages that are shorter than 4096 bytes are packed several to a flash page, so that
    /// --data may be larger than --size (up to 16T; the address space costs DRAM, some 12 bytes for 4096).
    #[arg(long, requires = "data")]
    pub objects: bool,
    /// Bytes of an extent, the unit of reclaim: 32K to 256M [default: 2M, less for a pool under 256M].
    #[arg(long, value_name = "2M", value_parser = values::bytes)]
    pub extent: Option<u64>,
    /// Use what exists: everything on it is gone.
    #[arg(long)]
    pub force: bool,
}

/// `pool check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// Mend what can be mended, and give up what cannot be read; each thing is named.
    #[arg(long)]
    pub repair: bool,
    /// Really write to the pool (with --repair).
    #[arg(long, requires = "repair")]
    pub force: bool,
    /// Give up what was promised and cannot be read any more: the last state that can be read becomes the pool's.
    #[arg(long, requires = "repair")]
    pub accept_loss: bool,
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
    /// Really do it: newer tokens are gone then.
    #[arg(long)]
    pub yes: bool,
}

/// `pool compact`.
#[derive(Debug, Args)]
pub struct CompactArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// Tokens to keep beside those that are pinned, the newest first; the others are dropped [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,
}

/// `pool resize`.
#[derive(Debug, Args)]
pub struct ResizeArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// Bytes of the pool, over all its files, rounded down to whole extents [default: as now].
    #[arg(long, value_name = "32G", value_parser = values::bytes)]
    pub size: Option<u64>,
    /// Bytes that programs may fill, rounded up to whole pages of 64 KiB [default: as many as fit; in a pool of objects as now].
    #[arg(long, value_name = "24G", value_parser = values::bytes)]
    pub data: Option<u64>,
}

/// `pool add-member`.
#[derive(Debug, Args)]
pub struct AddMemberArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// The file to make, or with --force the file or device to take.
    pub new: PathBuf,
    /// Bytes of the new member, rounded down to whole extents, one of which it keeps for itself [default: all of what exists].
    #[arg(long, value_name = "16G", value_parser = values::bytes)]
    pub size: Option<u64>,
    /// Take what exists, a block device for example; everything on it is gone.
    #[arg(long)]
    pub force: bool,
}

/// `pool export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// The file to make; it must not exist.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The state of this token instead of the newest.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<u64>,
    /// Leave holes where data is damaged, and write the rest; the exit code is 1 then.
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
    /// Sync also whenever so much was written.
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub sync_every: Option<u64>,
    /// Tokens to keep beside those that are pinned, the newest first [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,
    /// Drop the oldest tokens that are not pinned, but for the newest, while less space than this holds nothing that is needed.
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub keep_space: Option<u64>,
}
