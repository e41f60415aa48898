//! A device in a process of its own, reached over a Unix socket that hands over the memory.
//!
//! ```text
//!   program                    socket (SOCK_SEQPACKET, 0600)         device's process
//!   connect                    ── uid of the peer, both ways ──      accept
//!   "info"                     ────────────────────────────>
//!                              <────────────────────────────         sectors, text, counters
//!   "boot"                     ────────────────────────────>
//!                              <─────── (boot region) ───────        also while it starts
//!   "open": depth, buffer      ───────── (frames) ─────────>         a region: a sealed memfd
//!                              <──────── (region) ──────────         its thread serves it
//!   loads and stores           ══════ shared memory ════════         loads and stores
//!   one byte: doorbell         ────────────────────────────>         only when the device sleeps
//!   only when the host sleeps  <────────────────────────────         one byte: interrupt
//!   end of the program         ─── the socket is closed ───>         closes the queue pair
//!                              <── the socket is closed ────         end of the device
//! ```
//!
//! A message is "FULGSOK1", 20 little-endian words of 64 bits, and text up to 1,024 bytes in all:
//!
//! ```text
//! word 0      1 info, 2 open, 3 boot; an answer has its question's (0: turned away unheard)
//! word 1      of an answer: 0 done, 1 refused (the text says why), 2 starting, 3 another program
//!             is in the way, 4 others have been there since the start, 5 at work (an answer to
//!             "open" follows)
//! open:       2 depth, 3 sectors of the data buffer, 4: 1 if a memfd with the frames comes along,
//!             5: the program's own number if it wants the device for itself, else 0, 6 the host's
//!             number, 7: 1 if it is to replay what was lost, 8: 1 if its program names the states,
//!             9: 1 if it only looks, 10: of such a program that returns, the newest token when it
//!             began
//! its answer: the region as a memfd; 4: 1 if the frames are used, 8 the newest token, 9: 1 if the
//!             temporary pages of a returning program are still there
//! info:       the answer has 2 sectors, 3 bytes of DRAM that are set aside, then counts since the
//!             start: reads, writes, flushes, errors, CPU time in ns, late completions, their
//!             lateness in ns in all and at the most, write requests, read requests; 14 features,
//!             15 bytes of DRAM in use, 16 the bound for DRAM or 0; text: what the device is
//! ```
//!
//! Only the first host since the start may replay, alone while it does. No pair is opened next to a
//! pair of a program with another number. A program that only observes may always open one.
//!
//! Each queue pair has its connection: the kernel tells each side of the other's death, and a pair
//! is closed with its program. Both bells are bytes on it: a shared eventfd could be drained by
//! either side, or made to block the device. A byte that does not fit is dropped, as others wait to
//! be read.
//!
//! Not believed, here either: lengths, kinds and numbers of messages, and descriptors that come
//! along.

mod link;
mod server;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fulgurite_sys::descriptors::moved;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use crate::firmware::Wake;

pub use link::SocketLink;
pub use server::{Listening, Server, ServerConfig};

/// "FULGSOK1".
const MAGIC: u64 = u64::from_le_bytes(*b"FULGSOK1");
const INFO: u64 = 1;
const OPEN: u64 = 2;
const BOOT: u64 = 3;
/// Second word of an answer, where it is not 0.
const REFUSED: u64 = 1;
const STARTING: u64 = 2;
const OCCUPIED: u64 = 3;
const SHARED: u64 = 4;
const AT_IT: u64 = 5;
/// Words of a message; text follows them.
const WORDS: usize = 20;
/// Most bytes of a message.
const MESSAGE_MAX: usize = 1024;

/// Why a device's process is not reached, or cannot be reached by others.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Something with the path or the socket.
    #[error("cannot {what} {}: {source}{}", path.display(), nobody_there(source.kind(), path))]
    Socket {
        /// What was tried.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
    /// A server has no place.
    #[error("cannot {what} ({}): {source}", path.display())]
    Listen {
        /// What was tried.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
    /// What listens says nothing.
    #[error("the device at {} has not answered for {} s; is it stopped or overloaded? Resume it, or restart it", path.display(), after.as_secs())]
    TimedOut {
        /// The path.
        path: PathBuf,
        /// How long was waited.
        after: Duration,
    },
    /// Another device listens there.
    #[error("{} is in use by another device; stop that one, or choose another path", path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// What is at the path is no socket.
    #[error("{} is a {kind}; choose the path of a socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The other side runs as somebody else.
    #[error("the device at {} is run by user {found}, not by {expected}; it is not used", path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
        /// The user that it runs as.
        found: u32,
        /// This process's user.
        expected: u32,
    },
    /// What came is not what a device says.
    #[error("the listener at {} does not speak the device protocol of this version ({what})", path.display())]
    Protocol {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// There is no device yet.
    #[error("the device at {} is starting; its store may be recovering, try again", path.display())]
    Starting {
        /// The path.
        path: PathBuf,
    },
    /// It is, or has to be, another program's alone.
    #[error("the device at {} is in use by another program, and one of the two needs exclusive use; end that program \
         first", path.display())]
    Occupied {
        /// The path.
        path: PathBuf,
    },
    /// Others have been there first.
    #[error("other programs have used the device at {} since it started; earlier writes may be older than theirs", path.display())]
    Shared {
        /// The path.
        path: PathBuf,
    },
    /// There is no store.
    #[error("the device at {} keeps no states; serve a store there: `fulgurite device serve` with --nand, or with --store", path.display())]
    NoStates {
        /// The path.
        path: PathBuf,
    },
    /// The device refused.
    #[error("the device at {} refused: {text}", path.display())]
    Refused {
        /// The path.
        path: PathBuf,
        /// Its words.
        text: String,
    },
}

/// What to do where nothing listens; else nothing.
fn nobody_there(kind: io::ErrorKind, path: &Path) -> String {
    match kind {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            format!("; is it served there? `fulgurite device serve --socket {}`", path.display())
        }
        _ => String::new(),
    }
}

impl SocketError {
    /// Whether no answer comes now, but may soon: a killed device returns at its path.
    fn is_away(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
        match self {
            SocketError::Starting { .. } => true,
            SocketError::Socket { source, .. } => {
                matches!(source.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof)
            }
            _ => false,
        }
    }
}

/// A message: words, and a text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Message {
    words: [u64; WORDS],
    text: String,
}

impl Message {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = [MAGIC].iter().chain(&self.words).flat_map(|word| word.to_le_bytes()).collect();
        let room = MESSAGE_MAX - bytes.len();
        let mut end = self.text.len().min(room);
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        bytes.extend_from_slice(&self.text.as_bytes()[..end]);
        bytes
    }
    fn of(bytes: &[u8]) -> Option<Message> {
        let (head, text) = bytes.split_at_checked(8 * (1 + WORDS))?;
        let mut words = head.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        if words.next() != Some(MAGIC) {
            return None;
        }
        let mut message = Message { words: [0; WORDS], text: String::from_utf8_lossy(text).into_owned() };
        message.words.iter_mut().zip(words).for_each(|(to, from)| *to = from);
        Some(message)
    }
}

/// Sends a message, with a descriptor or without. Does not wait for a peer that reads nothing.
fn send(socket: BorrowedFd<'_>, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let bytes = message.to_bytes();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[io::IoSlice::new(&bytes)], &mut control, flags)?;
    Ok(())
}

/// Receives a message and its descriptor, if one came. Closes other descriptors. None at the end of
/// the connection.
fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut bytes = vec![0; MESSAGE_MAX];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(&mut bytes)];
    let received = loop {
        match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            result => break result?,
        }
    };
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            for other in descriptors {
                descriptor.get_or_insert(moved(other)?);
            }
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(received.bytes);
    Ok(Some((bytes, descriptor)))
}

/// Rings over a connection. Never blocks, whatever the other side does.
#[derive(Debug)]
struct SocketBell(OwnedFd);

impl Wake for SocketBell {
    fn wake(&self) {
        let _ = rustix::net::send(self.0.as_fd(), &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// The user at the other end, if it is not one that is trusted: this process's own, or root.
fn foreign(socket: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    let own = rustix::process::geteuid();
    Ok((peer.uid != own && !peer.uid.is_root()).then(|| peer.uid.as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_others_are_refused() {
        let mut message = Message { text: "ä".repeat(1000), ..Message::default() };
        message.words[19] = u64::MAX;
        let bytes = message.to_bytes();
        assert!(bytes.len() <= MESSAGE_MAX);
        let back = Message::of(&bytes).unwrap();
        assert!(message.text.starts_with(&back.text) && back.text.len() > 500);
        assert_eq!(back.words, message.words);
        for length in [0, 1, 8, 8 * (1 + WORDS) - 1] {
            assert_eq!(Message::of(&bytes[..length]), None);
        }
        assert_eq!(Message::of(&[0; MESSAGE_MAX]), None);
        let mut odd = bytes;
        odd.extend([0xFF; 3]);
        assert!(Message::of(&odd).is_some());
    }
}
