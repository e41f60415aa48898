//! The store of a served device: the commands of `fulgurite pool` that take `device:SOCKET`.
//!
//! `info` and `tokens` read next to a running program. `pin`, `unpin` and `rollback` hold the store
//! meanwhile, like a pool's locked file. The others need extents or all data, and are refused with
//! a remedy.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result};
use fulgurite_device::{Commands, DeviceFlash, HostConfig, Link, SocketError, SocketLink, Standing};
use fulgurite_flash::{Backing, FlashError, OpenError, VersionError};

use super::args::{PoolArgs, PoolCommand};
use fulgurite_term::bad_input::{BadInput, bad_input, socket_error};

/// How long a device may leave a question without an answer; and be away, when one is opened.
const PATIENCE: Duration = Duration::from_secs(30);
/// Sectors for answers: 4096 tokens fit.
const BUFFER: u32 = 8;

/// The socket that a path of `fulgurite pool` names, if it names one.
pub fn socket_of(path: &Path) -> Option<PathBuf> {
    path.to_str().and_then(|path| path.strip_prefix("device:")).map(PathBuf::from)
}

/// Refuses the commands that are none for a served device.
pub fn refuse(command: &PoolCommand) -> Result<()> {
    let (what, paths, instead) = match command {
        PoolCommand::Info(_)
        | PoolCommand::Tokens(_)
        | PoolCommand::Pin(_)
        | PoolCommand::Unpin(_)
        | PoolCommand::Rollback(_) => return Ok(()),
        PoolCommand::Create(args) => (
            "create",
            args.paths.iter().collect::<Vec<_>>(),
            "a device makes its store itself: start `fulgurite device serve` with --nand, or with --store and --data",
        ),
        PoolCommand::Check(args) => (
            "check",
            vec![&args.pool.path],
            "the device has the store open, and names what it finds damaged as it is read; to check all of one that is served with --store, end \
             the device and name its --data file",
        ),
        PoolCommand::Compact(args) => (
            "compact",
            vec![&args.pool.path],
            "a device compacts its data by itself, and drops tokens as `fulgurite device serve --keep-tokens` and \
             --keep-age say",
        ),
        PoolCommand::Resize(args) => (
            "resize",
            vec![&args.pool.path],
            "a device has its size for as long as it is served; of one that is served with --store, end it and name its --data file",
        ),
        PoolCommand::AddMember(args) => {
            ("add-member", vec![&args.pool.path, &args.new], "a device is no member; name files or block devices")
        }
        PoolCommand::Export(args) => (
            "export",
            vec![&args.pool.path],
            "serve it as a block device as well (`fulgurite device serve --nbd`), and copy that with nbdcopy or qemu-img",
        ),
        PoolCommand::Import(args) => (
            "import",
            vec![&args.pool.path],
            "serve it as a block device as well (`fulgurite device serve --nbd`), and copy to that with nbdcopy or qemu-img",
        ),
    };
    if let Some(path) = paths.into_iter().find(|path| socket_of(path).is_some()) {
        bad_input!("{}: `pool {what}` is not for a served device: {instead}", path.display());
    }
    Ok(())
}

/// A token, and whether somebody wants it kept.
pub struct Known {
    pub token: u64,
    pub pinned: bool,
}

/// The store of a device, to be read.
pub struct StoreReader {
    link: Arc<SocketLink>,
    commands: Commands,
}

fn connect(pool: &PoolArgs, socket: &Path) -> Result<SocketLink> {
    if socket.as_os_str().is_empty() {
        bad_input!("device: names no socket; write device:PATH, the socket of `fulgurite device serve`");
    }
    if !pool.members.is_empty() {
        bad_input!("--member is for pools in files; a device knows its medium");
    }
    let link = SocketLink::connect(socket, false).map_err(|error| socket_error("device", error))?;
    // A device that has no store says so.
    link.keeps_states().map_err(|error| BadInput(error.to_string()))?;
    Ok(link)
}

fn host() -> HostConfig {
    HostConfig { timeout: Some(PATIENCE), reattach: PATIENCE, ..HostConfig::default() }
}

/// Why a store cannot be opened: in words that say what to do, where it is somebody else's.
fn open_error(error: OpenError) -> Error {
    if let OpenError::System { source, .. } = &error
        && let Some(error @ SocketError::Occupied { .. }) = source.get_ref().and_then(|inner| inner.downcast_ref())
    {
        return BadInput(error.to_string()).into();
    }
    error.into()
}

/// What a device says of a token, for people.
pub fn version_error(pool: &PoolArgs, error: VersionError) -> Error {
    let shown = pool.path.display();
    match error {
        VersionError::Flash(error) => flash_error(pool, error),
        error => BadInput(format!("{shown}: {error}")).into(),
    }
}

fn flash_error(pool: &PoolArgs, error: FlashError) -> Error {
    Error::new(error).context(pool.path.display().to_string())
}

impl StoreReader {
    /// Begins to read, next to other programs.
    pub fn at(pool: &PoolArgs, socket: &Path) -> Result<StoreReader> {
        let link = Arc::new(connect(pool, socket)?.only_observes());
        let commands = DeviceFlash::over(link.clone(), host()).commands(1, BUFFER).map_err(open_error)?;
        Ok(StoreReader { link, commands })
    }
    pub fn describe(&self) -> String {
        self.link.describe()
    }
    pub fn standing(&mut self, pool: &PoolArgs) -> Result<Standing> {
        self.commands.standing().map_err(|error| flash_error(pool, error))
    }
    pub fn tokens(&mut self, pool: &PoolArgs) -> Result<Vec<Known>> {
        let commands = &mut self.commands;
        let both = commands.pinned().and_then(|pinned| Ok((commands.tokens()?, pinned)));
        let (tokens, pinned) = both.map_err(|error| flash_error(pool, error))?;
        Ok(known(tokens, &pinned))
    }
}

fn known(tokens: Vec<u64>, pinned: &[u64]) -> Vec<Known> {
    tokens.into_iter().map(|token| Known { token, pinned: pinned.contains(&token) }).collect()
}

/// The store of a device, which this program holds. Earlier writes of others get a name at that.
pub struct Change {
    flash: DeviceFlash,
    pub tokens: Vec<Known>,
}

impl Change {
    /// Waits until it can be had; not for a program that uses it.
    pub fn of(pool: &PoolArgs, socket: &Path) -> Result<Change> {
        let link = connect(pool, socket)?.names_states().map_err(|error| BadInput(error.to_string()))?;
        let flash = DeviceFlash::over(Arc::new(link), host());
        flash.begin().map_err(open_error)?;
        let both = flash.pinned_tokens().and_then(|pinned| Ok((flash.kept_tokens()?, pinned)));
        let (tokens, pinned) = both.map_err(|error| version_error(pool, error))?;
        Ok(Change { flash, tokens: known(tokens, &pinned) })
    }
    /// Keeps a token, or no more.
    pub fn pin(&self, pool: &PoolArgs, token: u64, pinned: bool) -> Result<()> {
        self.flash.pin_token(token, pinned).map_err(|error| version_error(pool, error))
    }
    /// Makes the state of a token the state of the store.
    pub fn roll_back(&self, pool: &PoolArgs, token: u64) -> Result<()> {
        let versions = self.flash.versions().expect("a store has states with names");
        versions.roll_back(token).map_err(|error| version_error(pool, error))
    }
}
