//! Why a server could not be started.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a server could not be started. Nothing was created, and nothing was removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NbdError {
    /// Neither a socket's path nor a port.
    #[error("\"{text}\" is no place for an NBD server; name a socket's path, or a port such as 127.0.0.1:10809")]
    Address {
        /// What was given.
        text: String,
    },
    /// Other machines could reach it.
    #[error(
        "{address} can be reached from elsewhere, and NBD has no password here; use 127.0.0.1, [::1] or a socket's path"
    )]
    NotLoopback {
        /// What was given.
        address: SocketAddr,
    },
    /// The address has a listener.
    #[error("{address} is in use by another server; stop that one, or choose another place")]
    InUse {
        /// The address.
        address: String,
    },
    /// A link could lead anywhere.
    #[error("{} is a symbolic link, which is not followed; name the place itself", path.display())]
    Symlink {
        /// The path as given.
        path: PathBuf,
    },
    /// Something else has that name.
    #[error("{} exists and is no socket; it is not replaced, so name another path", path.display())]
    NotASocket {
        /// The path as given.
        path: PathBuf,
    },
    /// Another user's socket.
    #[error("{} belongs to user {uid}; it is not replaced, so name another path", path.display())]
    Foreign {
        /// The path as given.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// A limit that makes no sense.
    #[error("{what} of {found} is out of range; choose {allowed}")]
    Limit {
        /// Which.
        what: &'static str,
        /// What was given.
        found: u64,
        /// What can be.
        allowed: &'static str,
    },
    /// The kernel says no.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The kernel's word.
        source: io::Error,
    },
    /// A thread or a descriptor.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The kernel's word.
        source: io::Error,
    },
}
