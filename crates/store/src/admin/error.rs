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
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum AdminError {
    /// The file or device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{} is no pool: it holds {holds}", path.display())]
    NotAPool { path: PathBuf, holds: &'static str },
    #[error("{} is truncated: of a pool {bytes} bytes are there; restore it from a copy", path.display())]
    Truncated { path: PathBuf, bytes: u64 },
    /// The files or devices that it spans do not belong together.
    #[error(transparent)]
    Member(#[from] MemberError),
    #[error("{}: {source}", path.display())]
    Pool { path: PathBuf, source: PoolError },
    #[error(
        "{} was changed by another command meanwhile, and this one left it unchanged; check it, and try again", path.display()
    )]
    Changed { path: PathBuf },
    #[error("the devices of the pool have no room for that; ask for less")]
    NoRoom,
    #[error("cannot {what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{} cannot be cut to its new size; the pool {} has it all the same: {source}", path.display(), pool.display())]
    NotCut { path: PathBuf, pool: PathBuf, source: io::Error },
    /// The flash failed.
    #[error(transparent)]
    Flash(#[from] FlashError),
    /// Frames or a queue.
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("stopped")]
    Stopped,
}
