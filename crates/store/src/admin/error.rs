//! Why a pool cannot be administered.

use std::io;
use std::path::PathBuf;

use fulgurite_flash::{FlashError, OpenError};

use crate::driver::DriverError;
use crate::members::MemberError;
use crate::pool::PoolError;

/// Why something was not done. What was changed until then is said where that can be anything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum AdminError {
    /// The file or device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no pool there.
    #[error("{} is no pool: it holds {holds}", path.display())]
    NotAPool { path: PathBuf, holds: &'static str },
    /// Hardly anything of it is there.
    #[error("{} is truncated: of a pool {bytes} bytes are there; restore it from a copy", path.display())]
    Truncated { path: PathBuf, bytes: u64 },
    /// The files or devices that it spans do not belong together.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// It cannot be opened or changed.
    #[error("{}: {source}", path.display())]
    Pool { path: PathBuf, source: PoolError },
    /// What was judged is not so any more.
    #[error(
        "{} was changed by another command meanwhile, and is as that has left it; look at it, and try again", path.display()
    )]
    Changed { path: PathBuf },
    /// The devices under it have no room.
    #[error("the devices of the pool have no room for that; ask for less")]
    NoRoom,
    /// A file cannot be changed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    /// The file has another length than the pool needs, which has its new size.
    #[error("{} cannot be cut to its new size; the pool {} has it all the same: {source}", path.display(), pool.display())]
    NotCut { path: PathBuf, pool: PathBuf, source: io::Error },
    /// The flash failed.
    #[error(transparent)]
    Flash(#[from] FlashError),
    /// Frames or a queue.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// It was told to stop.
    #[error("stopped")]
    Stopped,
}
