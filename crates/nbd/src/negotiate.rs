//! The first half of a connection: the fixed newstyle handshake, up to the choice of the export.
//!
//! Invariants: what a client makes the server read, keep or answer here is bounded (options, their
//! length, the time for all of them). An option that is not understood is answered by an error, and
//! ends nothing. Whatever breaks the framing ends the connection. There is no TLS: the socket is
//! for its owner, or on loopback.

use std::io;
use std::time::Instant;

use crate::stream::{Incoming, Stream};
use crate::wire::{self, Fields, info, option, put_option_reply, reply, transmission};

/// Options that one client may send. The longest known handshake has about ten.
const OPTIONS_MAX: usize = 64;
/// Longest option that is understood: a name may have 4096 bytes (proto.md, "Terminology").
const OPTION_BYTES_MAX: u32 = 8 << 10;
/// Longest option that is read and refused. Beyond, the connection ends.
const OPTION_SKIP_BYTES_MAX: u32 = 256 << 10;

/// What a client learns about the export.
#[derive(Clone, Debug)]
pub(crate) struct Export {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) bytes: u64,
    pub(crate) read_only: bool,
    pub(crate) request_bytes_max: u32,
    /// Whether the flash behind it heeds what is not needed any more.
    pub(crate) trims: bool,
}

impl Export {
    /// What it can do.
    fn flags(&self, structured: bool) -> u16 {
        let mut flags = transmission::HAS_FLAGS
            | transmission::SEND_FLUSH
            | transmission::SEND_FUA
            | transmission::SEND_WRITE_ZEROES
            | transmission::CAN_MULTI_CONN;
        if self.read_only {
            flags |= transmission::READ_ONLY;
        }
        if self.trims {
            flags |= transmission::SEND_TRIM;
        }
        if structured {
            flags |= transmission::SEND_DF;
        }
        flags
    }
    fn is_called(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }
}

/// What was agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Agreed {
    /// Reads are answered by structured replies.
    pub(crate) structured: bool,
}

/// Talks until the client has chosen the export. `None`: it left, or only asked.
///
/// `ready` is called once, before the choice is granted: what it needs may be missing (its words go
/// to the client).
///
/// # Errors
/// `InvalidData` for a client that breaks the protocol. `TimedOut` for one that is not done by
/// `deadline`. The socket's.
pub(crate) fn negotiate(
    incoming: &mut Incoming,
    export: &Export,
    deadline: Instant,
    ready: &mut dyn FnMut() -> Result<(), String>,
) -> io::Result<Option<Agreed>> {
    let mut hello = Vec::with_capacity(18);
    hello.extend(wire::MAGIC.to_be_bytes());
    hello.extend(wire::OPTION_MAGIC.to_be_bytes());
    hello.extend((wire::FIXED_NEWSTYLE | wire::NO_ZEROES).to_be_bytes());
    incoming.stream().write_all_by(&hello, deadline)?;
    let mut flags = [0; 4];
    incoming.exact(&mut flags, deadline)?;
    let flags = u32::from_be_bytes(flags);
    if flags & !u32::from(wire::FIXED_NEWSTYLE | wire::NO_ZEROES) != 0 {
        return Err(broken("a handshake flag that does not exist"));
    }
    let fixed = flags & u32::from(wire::FIXED_NEWSTYLE) != 0;
    let zeroes = flags & u32::from(wire::NO_ZEROES) == 0;
    let mut agreed = Agreed { structured: false };
    for _ in 0..OPTIONS_MAX {
        let (option, content) = match next_option(incoming, deadline)? {
            Next::Option(option, content) => (option, content),
            Next::TooLong(option) => {
                say(incoming.stream(), option, reply::ERR_TOO_BIG, b"the option is too long", deadline)?;
                continue;
            }
        };
        let stream = incoming.stream();
        // Before the fixed newstyle, a client expects no reply to any option but this one.
        if !fixed && option != option::EXPORT_NAME {
            return Err(broken("an option that needs the fixed newstyle handshake"));
        }
        match option {
            option::EXPORT_NAME => {
                // This option has no way to say no but to hang up.
                if !export.is_called(&content) || ready().is_err() {
                    return Ok(None);
                }
                let mut answer = export.bytes.to_be_bytes().to_vec();
                answer.extend(export.flags(agreed.structured).to_be_bytes());
                answer.resize(answer.len() + if zeroes { 124 } else { 0 }, 0);
                stream.write_all_by(&answer, deadline)?;
                return Ok(Some(agreed));
            }
            option::GO | option::INFO => {
                let Some(asked) = asked(&content) else {
                    say(stream, option, reply::ERR_INVALID, b"the option's lengths do not add up", deadline)?;
                    continue;
                };
                if !export.is_called(asked.name) {
                    say(stream, option, reply::ERR_UNKNOWN, b"there is no export of this name", deadline)?;
                    continue;
                }
                if option == option::GO
                    && let Err(why) = ready()
                {
                    say(stream, option, reply::ERR_PLATFORM, why.as_bytes(), deadline)?;
                    continue;
                }
                let mut answer = Vec::new();
                describe(&mut answer, option, export, agreed, &asked);
                put_option_reply(&mut answer, option, reply::ACK, b"");
                stream.write_all_by(&answer, deadline)?;
                if option == option::GO {
                    return Ok(Some(agreed));
                }
            }
            option::STRUCTURED_REPLY | option::LIST if !content.is_empty() => {
                say(stream, option, reply::ERR_INVALID, b"this option has no content", deadline)?;
            }
            option::STRUCTURED_REPLY => {
                agreed.structured = true;
                say(stream, option, reply::ACK, b"", deadline)?;
            }
            option::LIST => {
                let mut server = (export.name.len() as u32).to_be_bytes().to_vec();
                server.extend(export.name.as_bytes());
                say(stream, option, reply::SERVER, &server, deadline)?;
                say(stream, option, reply::ACK, b"", deadline)?;
            }
            option::ABORT => {
                // The client may be gone already, which is what it asked for.
                let _ = say(stream, option, reply::ACK, b"", deadline);
                return Ok(None);
            }
            _ => say(stream, option, reply::ERR_UNSUP, b"", deadline)?,
        }
    }
    Err(broken("more options than any client needs"))
}

/// One option as it came.
enum Next {
    Option(u32, Vec<u8>),
    TooLong(u32),
}

fn next_option(incoming: &mut Incoming, deadline: Instant) -> io::Result<Next> {
    let mut head = [0; 16];
    incoming.exact(&mut head, deadline)?;
    let mut fields = Fields(&head);
    if fields.u64() != Some(wire::OPTION_MAGIC) {
        return Err(broken("an option without its magic"));
    }
    let (Some(option), Some(length)) = (fields.u32(), fields.u32()) else { return Err(broken("a cut option")) };
    if length > OPTION_SKIP_BYTES_MAX {
        return Err(broken("an option of absurd length"));
    }
    if length > OPTION_BYTES_MAX {
        incoming.skip(length as usize, deadline)?;
        return Ok(Next::TooLong(option));
    }
    let mut content = vec![0; length as usize];
    incoming.exact(&mut content, deadline)?;
    Ok(Next::Option(option, content))
}

/// What the options INFO and GO ask for.
struct Asked<'a> {
    name: &'a [u8],
    /// Kinds of information, as big-endian pairs.
    kinds: &'a [u8],
}

impl Asked<'_> {
    fn wants(&self, kind: u16) -> bool {
        self.kinds.chunks_exact(2).any(|k| k == kind.to_be_bytes())
    }
}

fn asked(content: &[u8]) -> Option<Asked<'_>> {
    let mut fields = Fields(content);
    let length = fields.u32()?;
    let name = fields.bytes(length as usize)?;
    let count = fields.u16()?;
    let kinds = fields.bytes(usize::from(count) * 2)?;
    fields.0.is_empty().then_some(Asked { name, kinds })
}

/// Name and kinds that an option's content asks for.
#[cfg(test)]
pub(crate) fn asked_for(content: &[u8]) -> Option<(&[u8], &[u8])> {
    asked(content).map(|asked| (asked.name, asked.kinds))
}

/// Appends the replies that describe the export: always its size, flags and block sizes. Its names
/// when asked.
fn describe(into: &mut Vec<u8>, option: u32, export: &Export, agreed: Agreed, asked: &Asked<'_>) {
    let mut put = |kind: u16, parts: &[&[u8]]| {
        put_option_reply(into, option, reply::INFO, &[&kind.to_be_bytes(), &parts.concat()[..]].concat());
    };
    put(info::EXPORT, &[&export.bytes.to_be_bytes(), &export.flags(agreed.structured).to_be_bytes()]);
    // Any byte can be asked for. Whole subpages cost least.
    let sizes = [1, fulgurite_format::SUBPAGE_BYTES as u32, export.request_bytes_max].map(u32::to_be_bytes);
    put(info::BLOCK_SIZE, &[&sizes[0], &sizes[1], &sizes[2]]);
    if asked.wants(info::NAME) {
        put(info::NAME, &[export.name.as_bytes()]);
    }
    if asked.wants(info::DESCRIPTION) {
        put(info::DESCRIPTION, &[export.description.as_bytes()]);
    }
}

fn say(stream: &Stream, option: u32, kind: u32, content: &[u8], deadline: Instant) -> io::Result<()> {
    let mut answer = Vec::with_capacity(20 + content.len());
    put_option_reply(&mut answer, option, kind, content);
    stream.write_all_by(&answer, deadline)
}

/// A client that breaks the protocol.
pub(crate) fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
