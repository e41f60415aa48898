//! Traces that gzip or xz has compressed, uncompressed as they are read.
//!
//! What is wrong with compressed bytes is a [`CompressedError`] inside of the [`io::Error`], with
//! the count of bytes that have been read. Files of several members or streams are read to the end.

use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::{Action, Status, XzStream};

use thiserror::Error;

/// What is wrong with a trace that is compressed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompressedError {
    /// It is compressed by a method that is not read.
    #[error("the trace is compressed; give what {0} prints")]
    Other(&'static str),
    /// It ends before what it holds.
    #[error("the trace is truncated: {by} wants more than its {byte} bytes")]
    Truncated {
        /// What compressed it.
        by: &'static str,
        /// Compressed bytes that there are.
        byte: u64,
    },
    /// Its bytes are not what they should be.
    #[error("the trace is damaged before byte {byte} of what {by} compressed: {told}")]
    Damaged {
        /// What compressed it.
        by: &'static str,
        /// Compressed bytes that have been read.
        byte: u64,
        /// What is wrong.
        told: String,
    },
}

/// KiB of memory that xz may take: twice what its largest preset, `-9`, does.
const XZ_KIB_MAX: u32 = 128 << 10;

/// Bytes that may be compressed.
pub enum Source<R: BufRead> {
    Plain(Rewound<R>),
    Gzip(MultiGzDecoder<Counted<Rewound<R>>>),
    Xz(Box<Xz<Rewound<R>>>),
}

/// A reader whose first bytes have been read and put back.
type Rewound<R> = io::Chain<io::Cursor<Vec<u8>>, R>;

impl<R: BufRead> Source<R> {
    /// Reads the first bytes, to see how it is compressed.
    pub fn open(mut reader: R) -> io::Result<Source<R>> {
        let mut first = Vec::new();
        (&mut reader).take(6).read_to_end(&mut first)?;
        let rewound = |first| io::Cursor::new(first).chain(reader);
        Ok(match first[..] {
            // Deflate, the only method that there is (RFC 1952, 2.3.1).
            [0x1f, 0x8b, 8, ..] => {
                Source::Gzip(MultiGzDecoder::new(Counted { reader: rewound(first), read: 0, failed: false }))
            }
            [0xfd, b'7', b'z', b'X', b'Z', 0] => {
                let stream = XzStream::new_mem_limit(true, XZ_KIB_MAX);
                Source::Xz(Box::new(Xz { reader: rewound(first), stream, ended: false }))
            }
            [0x28, 0xb5, 0x2f, 0xfd, ..] => return Err(io::Error::other(CompressedError::Other("zstd -dc"))),
            [b'B', b'Z', b'h', ..] => return Err(io::Error::other(CompressedError::Other("bzip2 -dc"))),
            _ => Source::Plain(rewound(first)),
        })
    }
}

impl<R: BufRead> Read for Source<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::Plain(reader) => reader.read(into),
            Source::Gzip(decoder) => match decoder.read(into) {
                Err(error) if decoder.get_ref().failed => Err(error),
                Err(error) => Err(wrong("gzip", decoder.get_ref().read, error)),
                Ok(count) => Ok(count),
            },
            Source::Xz(xz) => xz.read(into),
        }
    }
}

/// What a decoder says of its bytes.
fn wrong(by: &'static str, byte: u64, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other(CompressedError::Truncated { by, byte }),
        io::ErrorKind::OutOfMemory => {
            let told = format!("it needs more than {} MiB of memory", XZ_KIB_MAX >> 10);
            io::Error::other(CompressedError::Damaged { by, byte, told })
        }
        _ => io::Error::other(CompressedError::Damaged { by, byte, told: error.to_string() }),
    }
}

/// A reader that counts what is taken from it.
pub struct Counted<R> {
    reader: R,
    read: u64,
    /// Whether the reader itself has failed.
    failed: bool,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(into);
        self.failed |= read.is_err();
        let count = read?;
        self.read += count as u64;
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let filled = self.reader.fill_buf();
        self.failed |= filled.is_err();
        filled
    }
    fn consume(&mut self, count: usize) {
        self.reader.consume(count);
        self.read += count as u64;
    }
}

/// What xz has compressed.
pub struct Xz<R> {
    reader: R,
    stream: XzStream,
    ended: bool,
}

impl<R: BufRead> Read for Xz<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !self.ended && !into.is_empty() {
            let bytes = self.reader.fill_buf()?;
            let action = if bytes.is_empty() { Action::Finish } else { Action::Run };
            let done = self.stream.process(bytes, into, action);
            let done = done.map_err(|error| wrong("xz", self.stream.total_in(), error))?;
            let stuck = bytes.is_empty() && done.bytes_produced == 0;
            self.reader.consume(done.bytes_consumed);
            self.ended = done.status == Status::StreamEnd;
            if done.bytes_produced > 0 {
                return Ok(done.bytes_produced);
            }
            if stuck && !self.ended {
                return Err(wrong("xz", self.stream.total_in(), io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_begin_a_little_like_gzip_are_plain() {
        for bytes in [&[0x1f_u8, 0x8b, 7, 0, 1, 2, 3][..], &[0x1f, 0x8b], &[0x1f]] {
            let mut read = Vec::new();
            let mut source = Source::open(bytes).unwrap();
            assert!(matches!(source, Source::Plain(_)), "{bytes:?}");
            source.read_to_end(&mut read).unwrap();
            assert_eq!(read, bytes);
        }
        assert!(matches!(Source::open(&[0x1f_u8, 0x8b, 8, 0][..]), Ok(Source::Gzip(_))));
    }
}
