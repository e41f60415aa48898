//! What the tests of the server share: random numbers, and a client that sends exactly what a test
//! asks it to.
#![allow(dead_code, unused_imports, reason = "not every test file uses all of it")]

pub use fulgurite_testkit as trials;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{Flash, MemoryFlash};
use fulgurite_nbd::{NbdAddress, NbdConfig, NbdServer};
pub use trials::{Random, seed};

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const WRITE_ZEROES: u16 = 6;
pub const FUA: u16 = 1;

/// A server over a socket in a directory of its own.
pub struct Served {
    pub server: NbdServer,
    pub path: PathBuf,
    _directory: tempfile::TempDir,
}

/// Serves a flash, after `change` has changed the configuration.
pub fn serve(flash: Arc<dyn Flash>, change: impl FnOnce(&mut NbdConfig)) -> Served {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nbd.sock");
    let mut config = NbdConfig::new(NbdAddress::Unix(path.clone()));
    change(&mut config);
    Served { server: NbdServer::start(flash, config).unwrap(), path, _directory: directory }
}

pub fn memory(subpages: u32) -> Arc<MemoryFlash> {
    Arc::new(MemoryFlash::new(subpages).unwrap())
}

/// A client. Its reads end after a few seconds, so that a server that falls silent fails the test.
pub struct Client {
    pub stream: UnixStream,
    pub structured: bool,
    cookie: u64,
}

/// What a client found out about the export.
#[derive(Debug, PartialEq, Eq)]
pub struct Export {
    pub bytes: u64,
    pub flags: u16,
    pub block_sizes: [u32; 3],
}

pub const PATIENCE: Duration = Duration::from_secs(20);

impl Client {
    /// Connects and reads the greeting.
    pub fn greet(path: &Path) -> Client {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client { stream, structured: false, cookie: 0 };
        assert_eq!(&client.take(16), b"NBDMAGICIHAVEOPT");
        assert_eq!(client.take(2), [0, 3], "fixed newstyle, no zeroes");
        client
    }
    /// Connects and chooses the export.
    pub fn open(path: &Path, structured: bool) -> (Client, Export) {
        let mut client = Client::greet(path);
        client.put(&3u32.to_be_bytes());
        if structured {
            client.option(8, b"");
            assert_eq!(client.option_reply(), (8, 1, vec![]));
            client.structured = true;
        }
        client.option(7, &[0, 0, 0, 0, 0, 1, 0, 3]);
        let mut export = Export { bytes: 0, flags: 0, block_sizes: [0; 3] };
        loop {
            let (option, kind, content) = client.option_reply();
            assert_eq!(option, 7);
            match (kind, content.first_chunk()) {
                (1, _) => return (client, export),
                (3, Some([0, 0])) => {
                    export.bytes = u64::from_be_bytes(content[2..10].try_into().unwrap());
                    export.flags = u16::from_be_bytes(content[10..12].try_into().unwrap());
                }
                (3, Some([0, 3])) => {
                    let size = |i: usize| u32::from_be_bytes(content[2 + 4 * i..6 + 4 * i].try_into().unwrap());
                    export.block_sizes = [0, 1, 2].map(size);
                }
                _ => panic!("reply {kind:x} {content:?}"),
            }
        }
    }
    pub fn put(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }
    /// Whether the server has hung up, after whatever it still says.
    pub fn hung_up(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe),
        }
    }
    pub fn option(&mut self, option: u32, content: &[u8]) {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((content.len() as u32).to_be_bytes());
        bytes.extend(content);
        self.put(&bytes);
    }
    /// Option, kind, content.
    pub fn option_reply(&mut self) -> (u32, u32, Vec<u8>) {
        let head = self.take(20);
        let field = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        assert_eq!(head[..8], 0x0003_e889_0455_65a9u64.to_be_bytes());
        let content = self.take(field(16) as usize);
        (field(8), field(12), content)
    }
    /// Sends a command, without its payload, and returns its cookie.
    pub fn send(&mut self, command: u16, flags: u16, offset: u64, length: u32) -> u64 {
        self.cookie += 1;
        let bytes = command_bytes(command, flags, self.cookie, offset, length);
        self.put(&bytes);
        self.cookie
    }
    /// The next reply: cookie, error and, of a read of `length(cookie)` bytes, the data.
    pub fn reply(&mut self, length: impl Fn(u64) -> usize) -> (u64, u32, Vec<u8>) {
        let magic = u32::from_be_bytes(self.take(4).try_into().unwrap());
        if magic == 0x6744_6698 {
            let head = self.take(12);
            let error = u32::from_be_bytes(head[..4].try_into().unwrap());
            let cookie = u64::from_be_bytes(head[4..].try_into().unwrap());
            let data = if error == 0 { self.take(length(cookie)) } else { Vec::new() };
            assert!(
                !self.structured || data.is_empty(),
                "a simple reply to a read after structured ones were agreed on"
            );
            return (cookie, error, data);
        }
        assert_eq!(magic, 0x668e_33ef);
        assert!(self.structured);
        let head = self.take(16);
        let kind = u16::from_be_bytes(head[2..4].try_into().unwrap());
        let cookie = u64::from_be_bytes(head[4..12].try_into().unwrap());
        let content = self.take(u32::from_be_bytes(head[12..].try_into().unwrap()) as usize);
        assert_eq!(head[..2], [0, 1], "the only chunk is the last one");
        match kind {
            1 => {
                assert_eq!(content.len(), 8 + length(cookie));
                (cookie, 0, content[8..].to_vec())
            }
            0x8001 => {
                assert_eq!(content.len(), 6);
                (cookie, u32::from_be_bytes(content[..4].try_into().unwrap()), Vec::new())
            }
            _ => panic!("chunk of type {kind}"),
        }
    }
    /// A command and its reply.
    pub fn call(&mut self, command: u16, flags: u16, offset: u64, length: u32, payload: &[u8]) -> (u32, Vec<u8>) {
        let cookie = self.send(command, flags, offset, length);
        self.put(payload);
        let (answered, error, data) = self.reply(|_| if command == READ { length as usize } else { 0 });
        assert_eq!(answered, cookie);
        (error, data)
    }
    pub fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        let (error, data) = self.call(READ, 0, offset, length, b"");
        assert_eq!(error, 0);
        data
    }
    pub fn write(&mut self, offset: u64, payload: &[u8]) {
        assert_eq!(self.call(WRITE, 0, offset, payload.len() as u32, payload).0, 0);
    }
}

pub fn command_bytes(command: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

/// Waits until something holds that another thread brings about.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(std::time::Instant::now() < end, "{what}: not after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
