//! A path at which a server listens: a Unix socket of its owner's alone.
//!
//! A socket appears at the path when it already listens, with its mode set: it is bound under a
//! name of its own next to the path, and renamed without replacing anything. So a server that finds
//! a socket there that refuses connections has found what a dead server left. It is taken away
//! first, under a lock of the directory, so that no server removes a socket that another has just
//! put there. Only a server that finds such a socket takes that lock, and not for long: any process
//! that may read a directory can lock it, and keep it locked.
//!
//! Invariants: no one else's file is removed or replaced, of servers that begin at a path at the
//! same time, at most one has it. No call waits for another process for more than two seconds.
//! Links are not followed.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::descriptors::above_standard;
use crate::direct_file::rename_new;

/// The reason that a path cannot be listened at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketPathError {
    /// A server listens there.
    #[error("in use by another server")]
    InUse,
    /// What is there is no socket.
    #[error("it is a {kind}")]
    NotASocket {
        /// What it is: a symbolic link, for example.
        kind: &'static str,
    },
    /// What is there is a socket of another user's.
    #[error("it belongs to user {uid}")]
    Foreign {
        /// Its owner.
        uid: u32,
    },
    /// The kernel says no.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The kernel's word.
        source: io::Error,
    },
}

fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> SocketPathError {
    move |source| SocketPathError::System { what, source: source.into() }
}

/// What is at a path that a server would listen at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Nothing,
    /// What a dead server left.
    Stale,
}

/// What is at a path, if it is no socket. What cannot be checked is nothing.
#[must_use]
pub fn not_a_socket(path: &Path) -> Option<&'static str> {
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    if kind.is_socket() {
        None
    } else if kind.is_symlink() {
        Some("symbolic link")
    } else if kind.is_dir() {
        Some("directory")
    } else if kind.is_file() {
        Some("regular file")
    } else {
        Some("special file")
    }
}

/// Whether a server could listen at a path, as far as that can be found out without creating
/// anything. Checks for a socket of the given kind.
///
/// # Errors
/// [`SocketPathError`].
pub fn check(path: &Path, kind: SocketType) -> Result<(), SocketPathError> {
    check_path(path, kind).map(|_| ())
}

fn check_path(path: &Path, kind: SocketType) -> Result<Found, SocketPathError> {
    let failed = system("check the path");
    let address = SocketAddrUnix::new(path).map_err(system("use the path"))?;
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match fs::metadata(parent_of(path)) {
                Ok(of) if of.is_dir() => Ok(Found::Nothing),
                Ok(_) => Err(failed(io::ErrorKind::NotADirectory.into())),
                Err(error) => Err(failed(error)),
            };
        }
        Err(error) => return Err(failed(error)),
    };
    if let Some(kind) = not_a_socket(path) {
        return Err(SocketPathError::NotASocket { kind });
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(SocketPathError::Foreign { uid: found.uid() });
    }
    if refuses(&address, kind)? { Ok(Found::Stale) } else { Err(SocketPathError::InUse) }
}

/// Whether an address has no listener.
fn refuses(address: &SocketAddrUnix, kind: SocketType) -> Result<bool, SocketPathError> {
    // Where a server is stopped and as many wait for it as can, a connection that may wait does so
    // for ever.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = above_standard(|| rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None));
    let probe = probe.map_err(system("make a socket"))?;
    // Anything else: it has a listener, or is another kind of socket.
    Ok(rustix::net::connect(&probe, address) == Err(Errno::CONNREFUSED))
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A unique name next to a path: this process's, and a new one each time.
fn unique_name(path: &Path) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Short, as an address has 107 bytes.
    path.with_file_name(OsString::from(format!(".{:x}-{number:x}", std::process::id())))
}

/// Renames, and replaces nothing. False when something is there.
fn renamed(from: &Path, to: &Path) -> Result<bool, SocketPathError> {
    rename_new(from, to).map_err(|source| SocketPathError::System { what: "rename a socket", source })
}

/// How long another program may keep a directory locked.
const LOCK: Duration = Duration::from_secs(2);

/// Locks the directory of a path, until the file is dropped.
fn locked(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::DIRECTORY.bits() as i32);
    let directory = above_standard(|| options.open(parent_of(path)))?;
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < LOCK => std::thread::sleep(LOCK / 400),
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "another program keeps it locked"));
            }
            locked => return locked.map(|()| directory).map_err(io::Error::from),
        }
    }
}

/// Takes away what a dead server left, if it is still there.
///
/// # Errors
/// [`SocketPathError::InUse`] when it turns out that it is a living one's.
fn take_away(path: &Path, kind: SocketType) -> Result<(), SocketPathError> {
    let _locked = locked(path).map_err(system("lock the directory of the path"))?;
    if check_path(path, kind)? == Found::Nothing {
        return Ok(());
    }
    let taken = unique_name(path);
    match rustix::fs::renameat_with(CWD, path, CWD, &taken, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        // Another process has removed it.
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(system("remove what a dead server left")(error)),
    }
    let address = SocketAddrUnix::new(&taken).map_err(system("use the path"))?;
    if not_a_socket(&taken).is_none() && refuses(&address, kind)? {
        return fs::remove_file(&taken).map_err(system("remove what a dead server left"));
    }
    // A process without the lock was faster. Where yet another one has come since, it stays under
    // this name.
    renamed(&taken, path)?;
    Err(SocketPathError::InUse)
}

/// Where a server listens. Dropping it removes the socket from its path, unless what is there by
/// now is another one: drop it before the socket, which keeps its inode from being used again.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    /// The socket, by device and inode.
    identity: (u64, u64),
}

/// The number of lost races that are tolerated.
const TRIES: usize = 8;

impl SocketPath {
    /// Listens at a path, for the owner of this process alone (mode 0600). What a dead server left
    /// there is removed.
    ///
    /// # Errors
    /// [`SocketPathError`]. Then nothing was created.
    pub fn listen(path: &Path, kind: SocketType) -> Result<(OwnedFd, SocketPath), SocketPathError> {
        check_path(path, kind)?;
        let name = unique_name(path);
        let address = SocketAddrUnix::new(&name).map_err(system("use the path"))?;
        let open = || rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let socket = above_standard(open);
        let socket = socket.map_err(system("make a socket"))?;
        // What a process with this one's number left. Two that live have different ones.
        let _ = fs::remove_file(&name);
        rustix::net::bind(&socket, &address).map_err(system("bind a socket"))?;
        let placed = SocketPath::place(path, &name, &socket, kind);
        if placed.is_err() {
            let _ = fs::remove_file(&name);
        }
        Ok((socket, placed?))
    }
    fn place(path: &Path, name: &Path, socket: &OwnedFd, kind: SocketType) -> Result<SocketPath, SocketPathError> {
        // No client can connect before it listens.
        rustix::fs::chmod(name, Mode::RUSR | Mode::WUSR).map_err(system("restrict a socket"))?;
        rustix::net::listen(socket, 64).map_err(system("listen"))?;
        let of = fs::symlink_metadata(name).map_err(system("check the path"))?;
        for _ in 0..TRIES {
            if renamed(name, path)? {
                return Ok(SocketPath { path: path.to_owned(), identity: (of.dev(), of.ino()) });
            }
            if check_path(path, kind)? == Found::Stale {
                take_away(path, kind)?;
            }
        }
        Err(SocketPathError::InUse)
    }
    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|of| (of.dev(), of.ino()) == self.identity) {
            // Another process may have removed it meanwhile, on request.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Barrier;

    use super::*;

    /// A directory that is removed with the test.
    struct Directory(PathBuf);
    impl Directory {
        fn new(name: &str) -> Directory {
            let path = std::env::temp_dir().join(format!("fulgurite-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Directory(path)
        }
        fn names(&self) -> usize {
            self.0.read_dir().unwrap().count()
        }
    }
    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// What a server leaves that is killed.
    fn leave(path: &Path, kind: SocketType) {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    }

    #[test]
    fn of_servers_that_begin_at_once_one_has_the_place() {
        let directory = Directory::new("places");
        let path = directory.0.join("socket");
        for round in 0..300 {
            let kind = if round % 2 == 0 { SocketType::SEQPACKET } else { SocketType::STREAM };
            if round % 3 > 0 {
                leave(&path, kind);
            }
            let start = Barrier::new(4);
            let begin = || {
                start.wait();
                SocketPath::listen(&path, kind)
            };
            let found: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(begin)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let (have, rest): (Vec<_>, Vec<_>) = found.into_iter().partition(Result::is_ok);
            assert_eq!(have.len(), 1, "round {round}: {rest:?}");
            assert!(rest.iter().all(|e| matches!(e, Err(SocketPathError::InUse))), "round {round}: {rest:?}");
            let client = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            rustix::net::connect(&client, &SocketAddrUnix::new(&path).unwrap()).expect("it listens");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(directory.names(), 1, "nothing else is left");
            drop(have);
            assert_eq!(directory.names(), 0);
        }
    }

    /// Any process may keep a directory locked: a free place is had nevertheless, and else there is
    /// an error.
    #[test]
    fn a_locked_directory_is_no_wait_without_end() {
        let directory = Directory::new("locked");
        let held = File::open(&directory.0).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        let path = directory.0.join("socket");
        leave(&path, SocketType::STREAM);
        match SocketPath::listen(&path, SocketType::STREAM) {
            Err(SocketPathError::System { source, .. }) => assert_eq!(source.kind(), io::ErrorKind::TimedOut),
            other => panic!("{other:?}"),
        }
        drop(held);
        SocketPath::listen(&path, SocketType::STREAM).unwrap();
    }

    #[test]
    fn what_is_somebody_elses_stays() {
        let directory = Directory::new("others");
        let path = directory.0.join("socket");
        let listen = || SocketPath::listen(&path, SocketType::STREAM).map(|_| ());
        fs::write(&path, "precious").unwrap();
        assert!(matches!(listen(), Err(SocketPathError::NotASocket { kind: "regular file" })));
        fs::remove_file(&path).unwrap();
        let target = directory.0.join("target");
        leave(&target, SocketType::STREAM);
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(matches!(listen(), Err(SocketPathError::NotASocket { kind: "symbolic link" })));
        fs::remove_file(&path).unwrap();
        // Of another kind, and alive.
        let _other = SocketPath::listen(&path, SocketType::SEQPACKET).unwrap();
        assert!(matches!(listen(), Err(SocketPathError::InUse)));
        assert!(matches!(check(&path, SocketType::SEQPACKET), Err(SocketPathError::InUse)));
        // One that took its place meanwhile is not removed.
        let (_socket, first) = SocketPath::listen(&directory.0.join("first"), SocketType::STREAM).unwrap();
        fs::remove_file(first.path()).unwrap();
        fs::write(first.path(), "new").unwrap();
        let kept = first.path().to_owned();
        drop(first);
        assert_eq!(fs::read(kept).unwrap(), b"new");
        let nowhere = SocketPath::listen(&directory.0.join("no/such"), SocketType::STREAM);
        assert!(matches!(nowhere, Err(SocketPathError::System { .. })));
    }
}
