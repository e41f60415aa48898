//! The thread that reads a client's commands, checks them, and reads what a write brings into
//! frames.
//!
//! Invariants: nothing that a client says is believed before it is checked. No payload is read
//! before there are frames for it. A command that began is there as a whole after `stall`, or the
//! connection ends. A command that is wrong in itself is answered with an error, one that breaks
//! the framing ends the connection.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_sys::Arena;

use crate::counters::Counters;
use crate::exchange::{Command, Exchange, Kind};
use crate::negotiate::broken;
use crate::stream::Incoming;
use crate::wire::{self, Errno, Request, command, command_flag};

/// Largest payload of a write that is read and refused. A client that does not know the server's
/// limit may send this much (proto.md, "Block size constraints"); beyond, the connection ends.
const REFUSED_PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// What the reader works with.
pub(crate) struct Reader {
    pub(crate) incoming: Incoming,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) frames: Arc<Arena>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) may: May,
    pub(crate) stall: Duration,
}

/// What a client may ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct May {
    /// Size of the export.
    pub(crate) bytes: u64,
    pub(crate) request_bytes_max: u32,
    pub(crate) read_only: bool,
    pub(crate) trims: bool,
    /// Reads are answered by structured replies.
    pub(crate) structured: bool,
}

impl Reader {
    /// Reads until the client leaves, breaks the protocol or falls silent within a command, or the
    /// engine has ended.
    pub(crate) fn run(mut self) {
        match self.read_all() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.counters.broken.add(1);
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                self.counters.stalled.add(1);
            }
            // It hung up, or was hung up on.
            Err(_) => {}
        }
        self.exchange.end_reader();
    }

    fn read_all(&mut self) -> io::Result<()> {
        while self.incoming.wait()? {
            let deadline = Instant::now() + self.stall;
            let mut head = [0; wire::REQUEST_BYTES];
            self.incoming.exact(&mut head, deadline)?;
            let request = Request::parse(&head);
            if request.magic != wire::REQUEST_MAGIC {
                return Err(broken("a request without its magic"));
            }
            if request.command == command::DISC {
                return Ok(());
            }
            self.counters.commands.add(1);
            let more = match judge(&request, &self.may) {
                Ok(kind) => self.accept(&request, kind, deadline)?,
                Err(error) => self.refuse(&request, error, deadline)?,
            };
            if !more {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Hands a good command on, with its payload. False when the engine has ended.
    fn accept(&mut self, request: &Request, kind: Kind, deadline: Instant) -> io::Result<bool> {
        let span = Span::of(request.offset, request.length);
        let count = match kind {
            Kind::Read => span.subpages(),
            Kind::Write => span.subpages() + span.partial(),
            Kind::WriteZeroes => span.partial(),
            Kind::Trim | Kind::Flush | Kind::Refuse { .. } => 0,
        };
        let Some(frames) = self.exchange.reserve(count as usize) else { return Ok(false) };
        if kind == Kind::Write {
            // What waited for frames has waited for the medium, and not for the client.
            self.payload(request, &frames, deadline.max(Instant::now() + self.stall))?;
        }
        // A flush has no range, whatever the client wrote there.
        let (offset, length) = if kind == Kind::Flush { (0, 0) } else { (request.offset, request.length) };
        self.exchange.push(Command {
            kind,
            cookie: request.cookie,
            offset,
            length,
            fua: request.flags & command_flag::FUA != 0 && kind != Kind::Read,
            frames,
        });
        Ok(true)
    }

    fn payload(&mut self, request: &Request, frames: &[u32], deadline: Instant) -> io::Result<()> {
        let mut at = request.offset as usize % SUBPAGE_BYTES;
        let end = at + request.length as usize;
        while at < end {
            let (frame, within) = (frames[at / SUBPAGE_BYTES], at % SUBPAGE_BYTES);
            let bytes = self.incoming.some((SUBPAGE_BYTES - within).min(end - at), deadline)?;
            self.frames.write(frame as usize * SUBPAGE_BYTES + within, bytes);
            at += bytes.len();
        }
        Ok(())
    }

    /// Has a command answered by an error. False when the engine has ended.
    fn refuse(&mut self, request: &Request, error: Errno, deadline: Instant) -> io::Result<bool> {
        if request.command == command::WRITE {
            if request.length > REFUSED_PAYLOAD_BYTES_MAX {
                return Err(broken("a write larger than any client may send"));
            }
            self.incoming.skip(request.length as usize, deadline)?;
        }
        let Some(frames) = self.exchange.reserve(0) else { return Ok(false) };
        let kind = Kind::Refuse { error, read: request.command == command::READ };
        self.exchange.push(Command { kind, cookie: request.cookie, offset: 0, length: 0, fua: false, frames });
        Ok(true)
    }
}

/// What a request asks for, if it may.
pub(crate) fn judge(r: &Request, may: &May) -> Result<Kind, Errno> {
    let &May { bytes, request_bytes_max, read_only, trims, structured } = may;
    let (kind, flags) = match r.command {
        command::READ if structured => (Kind::Read, command_flag::FUA | command_flag::DF),
        command::READ => (Kind::Read, command_flag::FUA),
        command::WRITE => (Kind::Write, command_flag::FUA),
        command::FLUSH => (Kind::Flush, command_flag::FUA),
        command::WRITE_ZEROES => (Kind::WriteZeroes, command_flag::FUA | command_flag::NO_HOLE),
        command::TRIM if trims => (Kind::Trim, command_flag::FUA),
        command::TRIM => return Err(Errno::NotSupported),
        _ => return Err(Errno::Invalid),
    };
    if r.flags & !flags != 0 {
        return Err(Errno::Invalid);
    }
    if kind == Kind::Flush {
        return Ok(kind);
    }
    let changes = kind != Kind::Read;
    if changes && read_only {
        return Err(Errno::NotPermitted);
    }
    if r.length == 0 || (!matches!(kind, Kind::WriteZeroes | Kind::Trim) && r.length > request_bytes_max) {
        return Err(Errno::Invalid);
    }
    // proto.md, "Request types": past the end a read is invalid, and for a write there is no space.
    if r.offset.checked_add(r.length.into()).is_none_or(|end| end > bytes) {
        return Err(if changes { Errno::NoSpace } else { Errno::Invalid });
    }
    Ok(kind)
}

/// Which subpages a range of bytes touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    /// The first one.
    pub(crate) first: u32,
    /// How many.
    count: u32,
    /// Where it begins in the first.
    pub(crate) head: usize,
    /// Where it ends in the last: 1 to 4096.
    pub(crate) tail: usize,
}

impl Span {
    /// Of a range that is inside the export, so that indices fit.
    pub(crate) fn of(offset: u64, length: u32) -> Span {
        let size = SUBPAGE_BYTES as u64;
        let end = offset.saturating_add(length.into()).max(offset.saturating_add(1));
        let last = (end - 1) / size;
        Span {
            first: (offset / size) as u32,
            count: (last - offset / size + 1) as u32,
            head: (offset % size) as usize,
            tail: (end - last * size) as usize,
        }
    }
    /// How many subpages.
    pub(crate) fn subpages(&self) -> u32 {
        self.count
    }
    /// The subpages that belong to the range as a whole: the first one, and how many.
    pub(crate) fn whole(&self) -> (u32, u32) {
        let head = u32::from(self.is_partial(0));
        let tail = u32::from(self.count > 1 && self.is_partial(self.count - 1));
        (self.first + head, self.count - head - tail)
    }
    /// The bytes of the `index`th subpage that belong to the range.
    pub(crate) fn within(&self, index: u32) -> std::ops::Range<usize> {
        let start = if index == 0 { self.head } else { 0 };
        start..if index + 1 == self.count { self.tail } else { SUBPAGE_BYTES }
    }
    /// Whether the `index`th subpage belongs to the range only in part.
    pub(crate) fn is_partial(&self, index: u32) -> bool {
        self.within(index).len() < SUBPAGE_BYTES
    }
    /// How many do: 0, 1 or 2.
    pub(crate) fn partial(&self) -> u32 {
        let ends = if self.count == 1 { 0..1 } else { 0..2 };
        ends.filter(|&e| self.is_partial(e * (self.count - 1))).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(command: u16, flags: u16, offset: u64, length: u32) -> Request {
        Request { magic: wire::REQUEST_MAGIC, flags, command, cookie: 0, offset, length }
    }

    #[test]
    fn what_is_wrong_is_refused_by_its_name() {
        let may = May { bytes: 1 << 20, request_bytes_max: 65536, read_only: false, trims: false, structured: false };
        let trims = May { trims: true, ..may };
        let judge = |c, f, o, l| super::judge(&request(c, f, o, l), &may);
        assert_eq!(judge(command::READ, 0, 0, 4096), Ok(Kind::Read));
        assert_eq!(judge(command::READ, 0, (1 << 20) - 1, 1), Ok(Kind::Read));
        assert_eq!(judge(command::READ, 0, (1 << 20) - 1, 2), Err(Errno::Invalid));
        assert_eq!(judge(command::WRITE, 0, (1 << 20) - 1, 2), Err(Errno::NoSpace));
        assert_eq!(judge(command::READ, 0, u64::MAX, 1), Err(Errno::Invalid));
        assert_eq!(judge(command::READ, 0, 0, 65537), Err(Errno::Invalid));
        assert_eq!(judge(command::READ, 0, 0, 0), Err(Errno::Invalid));
        assert_eq!(judge(command::READ, command_flag::DF, 0, 1), Err(Errno::Invalid));
        assert_eq!(judge(command::WRITE_ZEROES, command_flag::NO_HOLE, 0, 1 << 20), Ok(Kind::WriteZeroes));
        assert_eq!(judge(command::WRITE_ZEROES, 0, 0, u32::MAX), Err(Errno::NoSpace));
        assert_eq!(judge(command::TRIM, 0, 0, 4096), Err(Errno::NotSupported));
        let trim = |o, l| super::judge(&request(command::TRIM, 0, o, l), &trims);
        assert_eq!(trim(0, 1 << 20), Ok(Kind::Trim));
        assert_eq!((trim(1, 1 << 20), trim(0, 0)), (Err(Errno::NoSpace), Err(Errno::Invalid)));
        let read_only = May { read_only: true, ..trims };
        let refused = super::judge(&request(command::TRIM, 0, 0, 4096), &read_only);
        assert_eq!(refused, Err(Errno::NotPermitted));
        assert_eq!(judge(command::FLUSH, 0, 7, 7), Ok(Kind::Flush));
        assert_eq!(judge(5, 0, 0, 1), Err(Errno::Invalid));
        assert_eq!(judge(command::WRITE, 1 << 9, 0, 1), Err(Errno::Invalid));
    }

    #[test]
    fn a_span_covers_its_bytes() {
        let whole = Span::of(8192, 8192);
        assert_eq!((whole.first, whole.subpages(), whole.partial(), whole.whole()), (2, 2, 0, (2, 2)));
        let inner = Span::of(4096 + 10, 20);
        assert_eq!((inner.first, inner.subpages(), inner.partial(), inner.within(0)), (1, 1, 1, 10..30));
        let both = Span::of(4095, 4098);
        assert_eq!((both.first, both.subpages(), both.partial(), both.whole()), (0, 3, 2, (1, 1)));
        assert_eq!(Span::of(4096 + 10, 20).whole().1, 0);
        assert_eq!(Span::of(10, 2 * 4096).whole(), (1, 1));
        assert_eq!((both.within(0), both.within(1), both.within(2)), (4095..4096, 0..4096, 0..1));
        let tail = Span::of(0, 4097);
        assert_eq!((tail.subpages(), tail.partial(), tail.is_partial(0), tail.is_partial(1)), (2, 1, false, true));
        let last = Span::of((u64::from(u32::MAX) - 1) << 12, 4096);
        assert_eq!((last.first, last.subpages(), last.partial()), (u32::MAX - 1, 1, 0));
    }
}
