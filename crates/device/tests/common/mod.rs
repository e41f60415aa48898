//! A firmware that is turned by hand, and commands that are written by hand.

pub mod played;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fulgurite_device::*;
use fulgurite_flash::{Flash, MemoryFlash};
use fulgurite_sys::Notifier;

/// Counts how often a host was woken.
#[derive(Default)]
pub struct Woken(pub AtomicU64);

impl Wake for Woken {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A firmware over a medium, one region of two queue pairs, and the host's ends of the first.
pub struct Bench {
    pub firmware: Firmware,
    pub region: Arc<Region>,
    pub submissions: Producer<SUBMISSION_WORDS>,
    pub completions: Consumer<COMPLETION_WORDS>,
    pub woken: Arc<Woken>,
    pub wake: Arc<Notifier>,
}

pub const DEPTH: usize = 4;
pub const BUFFER: u32 = 8;
pub const SECTORS: u32 = 32;

pub fn memory() -> Arc<MemoryFlash> {
    Arc::new(MemoryFlash::new(SECTORS).unwrap())
}

impl Bench {
    pub fn new(flash: Arc<dyn Flash>, config: FirmwareConfig) -> Bench {
        let backend = Arc::new(Backend::new(flash, config, 1));
        let region = Arc::new(Region::create(backend.capability(2, DEPTH, BUFFER), false).unwrap());
        let (wake, woken) = (Arc::new(Notifier::new().unwrap()), Arc::new(Woken::default()));
        let mut firmware = Firmware::new(backend, &wake).unwrap();
        let port = firmware.backend().open_port(&region, 0, None, &wake, woken.clone()).unwrap();
        firmware.add(port);
        let (submissions, completions) = region.host_ends(0);
        Bench { firmware, region, submissions, completions, woken, wake }
    }
    /// The place of a sector of the first pair's data buffer in the region.
    pub fn at(&self, sector: u32) -> usize {
        (self.region.buffer_first(0) + sector) as usize * SECTOR_BYTES
    }
    pub fn put(&self, sector: u32, byte: u8) {
        self.region.arena().write(self.at(sector), &[byte; SECTOR_BYTES]);
    }
    pub fn get(&self, sector: u32) -> u8 {
        let mut bytes = [0; SECTOR_BYTES];
        self.region.arena().read(self.at(sector), &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "sector {sector} of the buffer is torn");
        bytes[0]
    }
    pub fn submit(&mut self, command: Command) {
        self.submissions.push(command.pack());
    }
    pub fn ended(&mut self) -> Option<Ended> {
        self.completions.pop().map(|entry| Ended::unpack(entry.expect("the device writes whole entries")))
    }
    /// One command, to its end.
    pub fn run(&mut self, command: Command) -> Ended {
        self.submit(command);
        for _ in 0..1000 {
            self.firmware.turn();
            if let Some(ended) = self.ended() {
                return ended;
            }
        }
        panic!("{command:?} never completes");
    }
}

pub fn command(id: u16, opcode: Opcode, sector: u64, count: u32, buffer: u32) -> Command {
    Command { id, opcode: opcode as u8, flags: 0, sector, count, buffer, argument: 0 }
}
