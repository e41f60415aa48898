//! Where a server listens: a Unix socket of its owner's, or a port on loopback.
//!
//! NBD as it is spoken here has no password and no encryption, so nothing that another machine can
//! reach is accepted. A Unix socket is created with mode 0600 (it is never more than that, not even
//! for a moment) and both ends must belong to one user. A port on loopback is open to every user of
//! this machine. Invariant: no one else's file is ever removed or replaced. A socket that a dead
//! server left behind is ([`SocketPath`]).

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use fulgurite_sys::descriptors::{above_standard, moved};
use fulgurite_sys::{SocketPath, SocketPathError, socket_path};
use rustix::net::SocketType;

use crate::NbdError;
use crate::stream::Stream;

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NbdAddress {
    /// A Unix socket, by its path.
    Unix(PathBuf),
    /// A TCP port. The address must be one of loopback's. Port 0 lets the kernel choose.
    Tcp(SocketAddr),
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddress::Unix(path) => write!(f, "{}", path.display()),
            NbdAddress::Tcp(address) => write!(f, "{address}"),
        }
    }
}

impl FromStr for NbdAddress {
    type Err = NbdError;
    /// `127.0.0.1:10809`, `[::1]:10809`, `localhost:10809`, or else the path of a socket.
    fn from_str(text: &str) -> Result<NbdAddress, NbdError> {
        let malformed = || NbdError::Address { text: text.to_owned() };
        if text.is_empty() {
            return Err(malformed());
        }
        let address = match text.strip_prefix("localhost:") {
            Some(port) => Some(SocketAddr::from(([127, 0, 0, 1], port.parse().map_err(|_| malformed())?))),
            None => text.parse::<SocketAddr>().ok(),
        };
        match address {
            Some(address) => loopback(address).map(NbdAddress::Tcp),
            // A name with a port would need a resolver, and could be any machine.
            None if !text.contains('/') && text.rsplit_once(':').is_some_and(|(_, p)| p.parse::<u16>().is_ok()) => {
                Err(malformed())
            }
            None => Ok(NbdAddress::Unix(text.into())),
        }
    }
}

fn loopback(address: SocketAddr) -> Result<SocketAddr, NbdError> {
    if address.ip().is_loopback() { Ok(address) } else { Err(NbdError::NotLoopback { address }) }
}

impl NbdAddress {
    /// Whether a server could listen here, as far as that can be found out without creating
    /// anything.
    ///
    /// # Errors
    /// [`NbdError`]: in use, a symbolic link, something that is no socket, no such directory, not
    /// loopback.
    pub fn check(&self) -> Result<(), NbdError> {
        match self {
            NbdAddress::Unix(path) => {
                socket_path::check(path, SocketType::STREAM).map_err(|error| of_path(path, error))
            }
            NbdAddress::Tcp(address) => {
                // Binding a port creates nothing that stays.
                TcpListener::bind(loopback(*address)?).map(drop).map_err(|e| self.failed(e))
            }
        }
    }
    fn failed(&self, source: io::Error) -> NbdError {
        match source.kind() {
            io::ErrorKind::AddrInUse => NbdError::InUse { address: self.to_string() },
            _ => NbdError::Listen { address: self.to_string(), source },
        }
    }
    pub(crate) fn listen(&self) -> Result<Listener, NbdError> {
        let failed = |source: io::Error| self.failed(source);
        match self {
            NbdAddress::Tcp(address) => {
                let address = loopback(*address)?;
                let listener = above_standard(|| TcpListener::bind(address)).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                Ok(Listener::Tcp(listener))
            }
            NbdAddress::Unix(path) => {
                let listening = SocketPath::listen(path, SocketType::STREAM);
                let (socket, place) = listening.map_err(|error| of_path(path, error))?;
                let listener = UnixListener::from(socket);
                listener.set_nonblocking(true).map_err(failed)?;
                Ok(Listener::Unix { place, listener })
            }
        }
    }
}

/// In this crate's words.
fn of_path(path: &Path, error: SocketPathError) -> NbdError {
    let (path, address) = (path.to_owned(), path.display().to_string());
    match error {
        SocketPathError::InUse => NbdError::InUse { address },
        SocketPathError::NotASocket { kind: "symbolic link" } => NbdError::Symlink { path },
        SocketPathError::NotASocket { .. } => NbdError::NotASocket { path },
        SocketPathError::Foreign { uid } => NbdError::Foreign { path, uid },
        SocketPathError::System { source, .. } => NbdError::Listen { address, source },
        error => NbdError::Listen { address, source: io::Error::other(error) },
    }
}

/// A listening socket. Dropping it removes its path, unless another server has replaced it.
#[derive(Debug)]
pub(crate) enum Listener {
    /// The place goes first.
    Unix {
        place: SocketPath,
        listener: UnixListener,
    },
    Tcp(TcpListener),
}

impl Listener {
    /// The next client. `PermissionDenied` for another user's.
    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Unix { listener, .. } => {
                let (stream, _) = listener.accept()?;
                let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid;
                if peer != rustix::process::geteuid() && !peer.is_root() {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                Ok(Stream::Unix(moved(stream.into())?.into()))
            }
            Listener::Tcp(listener) => {
                let (stream, _): (TcpStream, _) = listener.accept()?;
                // Replies go out whole. Waiting for more would only delay them.
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(moved(stream.into())?.into()))
            }
        }
    }
    /// Where it listens. For port 0, the port that it got.
    pub(crate) fn address(&self) -> io::Result<NbdAddress> {
        Ok(match self {
            Listener::Unix { place, .. } => NbdAddress::Unix(place.path().to_owned()),
            Listener::Tcp(listener) => NbdAddress::Tcp(listener.local_addr()?),
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix { listener, .. } => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_distinguished_from_paths() {
        let tcp = |s: &str| NbdAddress::Tcp(s.parse().unwrap());
        assert_eq!("127.0.0.1:10809".parse::<NbdAddress>().unwrap(), tcp("127.0.0.1:10809"));
        assert_eq!("localhost:7".parse::<NbdAddress>().unwrap(), tcp("127.0.0.1:7"));
        assert_eq!("[::1]:7".parse::<NbdAddress>().unwrap(), tcp("[::1]:7"));
        for path in ["/run/x.sock", "x.sock", "./10.0.0.1:7"] {
            assert_eq!(path.parse::<NbdAddress>().unwrap(), NbdAddress::Unix(path.into()));
        }
        for wrong in ["", "example.org:10809", "localhost:", "localhost:99999"] {
            assert!(matches!(wrong.parse::<NbdAddress>(), Err(NbdError::Address { .. })), "{wrong}");
        }
        for far in ["0.0.0.0:10809", "10.0.0.1:1", "[::]:10809"] {
            assert!(matches!(far.parse::<NbdAddress>(), Err(NbdError::NotLoopback { .. })), "{far}");
        }
    }
}
