//! What goes over the wire, bit for bit: the numbers of the NBD protocol, and the encoding of what
//! the server sends.
//!
//! Source of all of it: the protocol's description, `doc/proto.md` of the project
//! NetworkBlockDevice/nbd. All integers are big-endian. Nothing here reads or writes a socket.
//!
//! ```text
//! request  magic u32 | flags u16 | command u16 | cookie u64 | offset u64 | length u32 | (payload)
//! reply    magic u32 | error u32 | cookie u64 | (payload)                      simple
//! chunk    magic u32 | flags u16 | type u16 | cookie u64 | length u32 | content       structured
//! ```

/// `NBDMAGIC`: the first 8 bytes of a server.
pub(crate) const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: the next 8, and the first 8 of each option.
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Begins each reply to an option.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins each request.
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins each simple reply.
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Begins each chunk of a structured reply.
pub(crate) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flag, in both directions: options may be answered by errors, and the handshake
/// continues.
pub(crate) const FIXED_NEWSTYLE: u16 = 1;
/// Handshake flag, in both directions: no 124 zeros after the old option that names an export.
pub(crate) const NO_ZEROES: u16 = 2;

/// Options of a client.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
}

/// Replies to options.
pub(crate) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    const ERROR: u32 = 1 << 31;
    pub(crate) const ERR_UNSUP: u32 = ERROR | 1;
    pub(crate) const ERR_INVALID: u32 = ERROR | 3;
    pub(crate) const ERR_PLATFORM: u32 = ERROR | 4;
    pub(crate) const ERR_UNKNOWN: u32 = ERROR | 6;
    pub(crate) const ERR_TOO_BIG: u32 = ERROR | 9;
}

/// Pieces of information about an export.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// What an export can do.
pub(crate) mod transmission {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Commands of a client.
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const WRITE_ZEROES: u16 = 6;
}

/// Flags of a command.
pub(crate) mod command_flag {
    /// Durable before the reply.
    pub(crate) const FUA: u16 = 1;
    /// Zeroes: do not free the space. Nothing is freed here anyway.
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    /// Structured read: do not send it in pieces. It never is.
    pub(crate) const DF: u16 = 1 << 2;
}

/// The protocol's errors, whose values are Linux's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Errno {
    NotPermitted = 1,
    Io = 5,
    Invalid = 22,
    NoSpace = 28,
    NotSupported = 95,
}

/// Last chunk of its reply.
const CHUNK_DONE: u16 = 1;
/// A chunk of data at an offset.
const CHUNK_OFFSET_DATA: u16 = 1;
/// A chunk that says that the command failed.
const CHUNK_ERROR: u16 = (1 << 15) + 1;

/// Bytes of a request before its payload.
pub(crate) const REQUEST_BYTES: usize = 28;

/// A request as it came. Nothing in it has been checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) magic: u32,
    pub(crate) flags: u16,
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl Request {
    pub(crate) fn parse(bytes: &[u8; REQUEST_BYTES]) -> Request {
        let mut fields = Fields(bytes);
        Request {
            magic: fields.u32().unwrap_or(0),
            flags: fields.u16().unwrap_or(0),
            command: fields.u16().unwrap_or(0),
            cookie: fields.u64().unwrap_or(0),
            offset: fields.u64().unwrap_or(0),
            length: fields.u32().unwrap_or(0),
        }
    }
}

/// Takes big-endian fields off the front of bytes. `None` when there are too few.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

/// Appends the reply to an option.
pub(crate) fn put_option_reply(into: &mut Vec<u8>, option: u32, kind: u32, content: &[u8]) {
    into.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    into.extend(option.to_be_bytes());
    into.extend(kind.to_be_bytes());
    into.extend((content.len() as u32).to_be_bytes());
    into.extend(content);
}

/// Appends a simple reply's head. After a read that went well, its data must follow.
pub(crate) fn put_simple_reply(into: &mut Vec<u8>, cookie: u64, error: Option<Errno>) {
    into.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
    into.extend(error.map_or(0, |e| e as u32).to_be_bytes());
    into.extend(cookie.to_be_bytes());
}

/// Appends the head of a structured reply of one chunk: `length` bytes at `offset`, which must
/// follow.
pub(crate) fn put_data_chunk(into: &mut Vec<u8>, cookie: u64, offset: u64, length: u32) {
    put_chunk(into, CHUNK_OFFSET_DATA, cookie, length.saturating_add(8));
    into.extend(offset.to_be_bytes());
}

/// Appends a structured reply of one chunk, without a message: the command failed.
pub(crate) fn put_error_chunk(into: &mut Vec<u8>, cookie: u64, error: Errno) {
    put_chunk(into, CHUNK_ERROR, cookie, 6);
    into.extend((error as u32).to_be_bytes());
    into.extend(0u16.to_be_bytes());
}

fn put_chunk(into: &mut Vec<u8>, kind: u16, cookie: u64, length: u32) {
    into.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
    into.extend(CHUNK_DONE.to_be_bytes());
    into.extend(kind.to_be_bytes());
    into.extend(cookie.to_be_bytes());
    into.extend(length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_magics_are_words() {
        assert_eq!(&MAGIC.to_be_bytes(), b"NBDMAGIC");
        assert_eq!(&OPTION_MAGIC.to_be_bytes(), b"IHAVEOPT");
    }

    #[test]
    fn a_request_has_its_fields_where_the_protocol_says() {
        let mut bytes = [0; REQUEST_BYTES];
        for (i, b) in bytes.iter_mut().enumerate() {
            *b = i as u8;
        }
        let r = Request::parse(&bytes);
        assert_eq!((r.magic, r.flags, r.command), (0x0001_0203, 0x0405, 0x0607));
        assert_eq!((r.cookie, r.offset), (0x0809_0a0b_0c0d_0e0f, 0x1011_1213_1415_1617));
        assert_eq!(r.length, 0x1819_1a1b);
    }

    #[test]
    fn fields_end_where_the_bytes_end() {
        let mut fields = Fields(&[1, 2, 3]);
        assert_eq!((fields.u16(), fields.u16(), fields.bytes(1)), (Some(0x0102), None, Some(&[3][..])));
    }

    #[test]
    fn a_chunk_counts_its_offset() {
        let mut out = Vec::new();
        put_data_chunk(&mut out, 7, 4096, 512);
        assert_eq!(out.len(), 28);
        assert_eq!(out[16..20], 520u32.to_be_bytes());
    }
}
