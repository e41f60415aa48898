//! Why a medium cannot be opened.

use std::path::PathBuf;

use fulgurite_device::SocketError;
use fulgurite_flash::OpenError;
use fulgurite_format::ParseUnitError;
use fulgurite_store::{GeometryError, MemberError, PoolError};

/// See the top of the file. Exhaustive, so that the public crate turns each of them into one of its
/// own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A size cannot be read.
    #[error(transparent)]
    Unit(#[from] ParseUnitError),
    /// A setting has no meaning for this medium.
    #[error("{setting} has no effect on {medium}: {remedy}")]
    NotHonoured {
        /// The setting, as the builder or the medium calls it.
        setting: &'static str,
        /// The medium, as its constructor is called.
        medium: &'static str,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The medium cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no device at a socket, or it cannot be used.
    #[error(transparent)]
    Device(#[from] SocketError),
    /// There is no pool there, or it cannot be opened.
    #[error("{}: {source}", .path.display())]
    Pool {
        /// Where.
        path: PathBuf,
        /// Why.
        source: PoolError,
    },
    /// A pool cannot be made.
    #[error(transparent)]
    Format(PoolError),
    /// A pool of this size cannot be made.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The files or devices that a pool spans cannot be put together.
    #[error("{}: {source}", .path.display())]
    Members {
        /// The one that was named.
        path: PathBuf,
        /// Why.
        source: MemberError,
    },
    /// The kernel gives no random numbers for the identity of a pool.
    #[error("no random numbers from /dev/urandom: {0}")]
    Random(std::io::Error),
}
