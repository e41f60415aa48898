//! The client's side of NBD for a measurement: one export, reads and writes, simple replies.
//!
//! The server is this program's own ([`fulgurite_nbd`]), so its answers are trusted. A wrong magic
//! ends the run.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, ensure};

const OPTION_MAGIC: &[u8] = b"IHAVEOPT";
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

pub struct Client {
    incoming: BufReader<UnixStream>,
    stream: UnixStream,
    bytes: u64,
    /// A request, and the payload of a write behind it.
    out: Vec<u8>,
}

impl Client {
    /// Connects, and chooses the default export.
    ///
    /// # Errors
    /// The socket's, and when the peer is not an NBD server.
    pub fn connect(path: &Path) -> Result<Client> {
        let stream = UnixStream::connect(path).with_context(|| format!("cannot connect to {}", path.display()))?;
        let mut incoming = BufReader::with_capacity(256 << 10, stream.try_clone()?);
        let mut greeting = [0; 18];
        incoming.read_exact(&mut greeting)?;
        ensure!(greeting.starts_with(b"NBDMAGICIHAVEOPT"), "the peer is not an NBD server");
        // Fixed newstyle, no zeroes, then the unnamed export: its size and flags come back.
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend(OPTION_MAGIC);
        hello.extend(1u32.to_be_bytes());
        hello.extend(0u32.to_be_bytes());
        (&stream).write_all(&hello)?;
        let mut export = [0; 10];
        incoming.read_exact(&mut export)?;
        let bytes = u64::from_be_bytes(export[..8].try_into().expect("eight bytes"));
        Ok(Client { incoming, stream, bytes, out: Vec::new() })
    }
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// Sends a read, or a write of ones.
    pub fn ask(&mut self, reads: bool, offset: u64, length: u32) -> Result<()> {
        let whole = 28 + if reads { 0 } else { length as usize };
        self.out.resize(whole, 1);
        let head = &mut self.out[..28];
        head[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        head[4..6].fill(0);
        head[6..8].copy_from_slice(&u16::from(!reads).to_be_bytes());
        head[8..16].fill(0);
        head[16..24].copy_from_slice(&offset.to_be_bytes());
        head[24..].copy_from_slice(&length.to_be_bytes());
        Ok(self.stream.write_all(&self.out)?)
    }
    /// The next reply, with the data of a read.
    pub fn answer(&mut self, data: &mut [u8]) -> Result<()> {
        let mut head = [0; 16];
        self.incoming.read_exact(&mut head)?;
        ensure!(head[..4] == REPLY_MAGIC.to_be_bytes(), "a reply without its magic");
        ensure!(
            head[4..8] == [0; 4],
            "the server reports error {}",
            u32::from_be_bytes([head[4], head[5], head[6], head[7]])
        );
        Ok(self.incoming.read_exact(data)?)
    }
}
