//! A client's socket, Unix or TCP, whose every read and write ends by a deadline.
//!
//! A time-out of the socket alone would let a client live for ever by sending a byte now and then;
//! so each read or write states a deadline for the whole of it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;

/// A connected client.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(s) => s.as_fd(),
            Stream::Tcp(s) => s.as_fd(),
        }
    }
}

impl Stream {
    pub(crate) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(s) => Stream::Unix(s.try_clone()?),
            Stream::Tcp(s) => Stream::Tcp(s.try_clone()?),
        })
    }
    /// Ends both directions, for every clone: readers find the end, writers an error.
    pub(crate) fn shutdown(&self) {
        // An error says that the client was faster.
        let _ = match self {
            Stream::Unix(s) => s.shutdown(Shutdown::Both),
            Stream::Tcp(s) => s.shutdown(Shutdown::Both),
        };
    }
    fn read_once(&self, into: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.set_read_timeout(timeout).and_then(|()| (&mut &*s).read(into)),
            Stream::Tcp(s) => s.set_read_timeout(timeout).and_then(|()| (&mut &*s).read(into)),
        }
    }
    fn write_once(&self, from: &[u8], timeout: Option<Duration>) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.set_write_timeout(timeout).and_then(|()| (&mut &*s).write(from)),
            Stream::Tcp(s) => s.set_write_timeout(timeout).and_then(|()| (&mut &*s).write(from)),
        }
    }
    /// Sends what goes out at once, of bytes that there are: 0 when that is nothing.
    ///
    /// # Errors
    /// The socket's.
    pub(crate) fn write_some(&self, from: &[u8]) -> io::Result<usize> {
        match rustix::net::send(self, from, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => Ok(sent),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
    /// Waits until something would go out at once, but no longer than that.
    pub(crate) fn wait_writable(&self, timeout: Duration) {
        let timeout = Timespec::try_from(timeout).ok();
        // Its result is ignored: the next write fails.
        let _ = poll(&mut [PollFd::new(self, PollFlags::OUT)], timeout.as_ref());
    }
    /// Sends all of `from`.
    ///
    /// # Errors
    /// `TimedOut` when it is not gone by the deadline. The socket's.
    pub(crate) fn write_all_by(&self, mut from: &[u8], deadline: Instant) -> io::Result<()> {
        while !from.is_empty() {
            match self.write_once(from, Some(left(deadline)?)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => from = &from[n..],
                Err(error) if again(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether a deadline decides, not this error.
fn again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// What is left until a deadline, in whole milliseconds so that the system call takes it.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left.max(Duration::from_millis(1))) }
}

/// Reads a client's bytes through a buffer of fixed size.
#[derive(Debug)]
pub(crate) struct Incoming {
    stream: Stream,
    buffer: Box<[u8]>,
    /// What of the buffer is filled and not taken.
    start: usize,
    end: usize,
}

/// Enough for many small requests, and for large payloads to come in few system calls.
const BUFFER_BYTES: usize = 256 << 10;

impl Incoming {
    pub(crate) fn new(stream: Stream) -> Incoming {
        Incoming { stream, buffer: vec![0; BUFFER_BYTES].into(), start: 0, end: 0 }
    }
    /// Waits for ever for the first byte of whatever comes next. False when the client has closed
    /// the connection.
    ///
    /// # Errors
    /// The socket's.
    pub(crate) fn wait(&mut self) -> io::Result<bool> {
        while self.start == self.end {
            (self.start, self.end) = (0, 0);
            match self.stream.read_once(&mut self.buffer, None) {
                Ok(0) => return Ok(false),
                Ok(n) => self.end = n,
                Err(error) if again(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
    /// At most `most` bytes that are there, or come by the deadline, at least one.
    ///
    /// # Errors
    /// `UnexpectedEof` at the end of the connection, `TimedOut`, the socket's.
    pub(crate) fn some(&mut self, most: usize, deadline: Instant) -> io::Result<&[u8]> {
        while self.start == self.end {
            (self.start, self.end) = (0, 0);
            match self.stream.read_once(&mut self.buffer, Some(left(deadline)?)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.end = n,
                Err(error) if again(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let taken = self.start..self.end.min(self.start.saturating_add(most));
        self.start = taken.end;
        Ok(&self.buffer[taken])
    }
    /// Fills `into`.
    ///
    /// # Errors
    /// As [`Incoming::some`].
    pub(crate) fn exact(&mut self, mut into: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !into.is_empty() {
            let bytes = self.some(into.len(), deadline)?;
            let (filled, rest) = std::mem::take(&mut into).split_at_mut(bytes.len());
            filled.copy_from_slice(bytes);
            into = rest;
        }
        Ok(())
    }
    /// Reads and forgets.
    ///
    /// # Errors
    /// As [`Incoming::some`].
    pub(crate) fn skip(&mut self, mut bytes: usize, deadline: Instant) -> io::Result<()> {
        while bytes > 0 {
            bytes -= self.some(bytes, deadline)?.len();
        }
        Ok(())
    }
    /// The socket.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }
}
