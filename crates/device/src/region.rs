//! The shared memory region: registers, queue pairs, data buffer, boot region.
//!
//! ```text
//! byte 0     special registers
//!   0x000    magic, version, sectors, queue pairs, depth, buffer sectors, boot sectors, features,
//!            instance, largest command, CRC32C of these           written once, by the device
//!   0x080    status, heartbeat, other hosts, hosts before, room   written by the device
//!   0x100    doorbell: the device sleeps                          written by both, rarely
//! 0x1000     for each queue pair, each part on 128-byte lines of its own:
//!            the host sleeps (one word)                           written by both, rarely
//!            submission queue: n entries of 32 bytes              written by the host
//!            completion queue: n entries of 16 bytes              written by the device
//! then       boot region: an image that the device was given      written once, by the device
//! then       data buffer: so many sectors a queue pair            written by either side
//! ```
//!
//! n is the depth, rounded up to a power of two, and at least 16. `ring` says how an entry is known
//! to be new, `entry` what is in it. All numbers are little-endian words of 64 bits.
//!
//! 128 bytes and not 64: the processor fetches lines in pairs, and a line that one side only reads
//! must not move because of its neighbour.
//!
//! *Room* is the number of sectors that can certainly be written before the program of a session
//! names a state ([`Features::ROOM`]). It excludes what has a place in the store before the entry
//! that completes its write can be seen.
//!
//! Invariant: neither side believes what it reads here. The device never reads its registers back.
//! The host copies the registers once, checks the copy, and uses the copy. The memory can change at
//! any time, its size cannot (in another process it is a sealed memfd).

use std::sync::Arc;

use fulgurite_format::crc32c;
use fulgurite_sys::{Arena, ArenaError, Backed};

use crate::bell::Bell;
use crate::entry::{COMPLETION_WORDS, DEPTH_MAX, SECTOR_BYTES, SUBMISSION_WORDS};
use crate::ring::{Consumer, Producer, entries_for};
use crate::window::{Ordering, Window};

/// "FULGDEV1".
const MAGIC: u64 = u64::from_le_bytes(*b"FULGDEV1");
const VERSION: u64 = 2;
const LINE: usize = 128;
const REGISTER_WORDS: usize = 10;
const STATUS: usize = 0x80;
const DOORBELL: usize = 0x100;
const PAIRS: usize = 0x1000;
/// The most queue pairs of one region.
pub const PAIRS_MAX: u32 = 256;
/// The most sectors of a region's data buffers together: 16 GiB.
const BUFFER_MAX: u64 = 1 << 22;

/// What a device can do beyond reading, writing, flushing and identifying itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features(pub u64);

impl Features {
    /// Pages can be allocated, deleted, restricted; sectors can be trimmed.
    pub const PAGES: Features = Features(1);
    /// States have names: sync, roll back, tokens, pin, read of an old one.
    pub const TOKENS: Features = Features(2);
    /// A completed write survives the end of the device's process, if not the loss of power.
    pub const KEEPS_WRITES: Features = Features(4);
    /// The device's processor moves all data: nothing touches memory after its process has ended.
    pub const MOVES_BY_CPU: Features = Features(8);
    /// Writes complete when they are in the device's volatile buffer ([`crate::CachedFlash`]).
    pub const CACHED_WRITES: Features = Features(16);
    /// Nothing survives the end of the device's process, flushed or not: its medium is memory.
    pub const FORGETS: Features = Features(32);
    /// One program may have a session, in which only it names states. What it has not named is
    /// rolled back when it leaves.
    pub const SESSIONS: Features = Features(64);
    /// The register *room* says how many sectors can be written before a state is named.
    pub const ROOM: Features = Features(128);

    /// Whether all of these are there.
    #[must_use]
    pub fn has(self, features: Features) -> bool {
        self.0 & features.0 == features.0
    }
    /// With these, too, when `there`.
    #[must_use]
    pub fn with(self, features: Features, there: bool) -> Features {
        Features(self.0 | if there { features.0 } else { 0 })
    }
}

/// The capability registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capability {
    /// Capacity, in sectors of 4 KiB.
    pub sectors: u32,
    /// Queue pairs of this region.
    pub pairs: u32,
    /// Most commands in flight of each.
    pub depth: u32,
    /// Sectors of data buffer of each; 0 where the host gives memory of its own.
    pub buffer_sectors: u32,
    /// Sectors of the boot region.
    pub boot_sectors: u32,
    /// What the device can do.
    pub features: Features,
    /// Another number each time the device starts, which tells a host that what was in flight is
    /// gone.
    pub instance: u64,
    /// The largest number of sectors that one command may name.
    pub command_sectors: u32,
}

/// Why a region cannot be made, or not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// No memory.
    #[error(transparent)]
    Memory(#[from] ArenaError),
    /// A number that a region cannot have.
    #[error("a region cannot have {what} = {found}; choose {least} to {most}")]
    Shape {
        /// Which number.
        what: &'static str,
        /// What was asked for, or read.
        found: u64,
        /// The least possible.
        least: u64,
        /// The most possible.
        most: u64,
    },
    /// The memory is no region of this version.
    #[error(
        "the memory does not begin with the registers of a device (found {found:#x}); is this a device's socket, of this version?"
    )]
    NotADevice {
        /// What is there instead of magic or version.
        found: u64,
    },
    /// The registers were scribbled over.
    #[error(
        "the registers of the device do not have their checksum (found {found:#x}, expected {expected:#x}); attach again"
    )]
    Registers {
        /// What is there.
        found: u64,
        /// What belongs there.
        expected: u64,
    },
    /// The registers speak of more memory than there is.
    #[error("the registers speak of {needed} bytes of shared memory, and {found} were handed over; attach again")]
    TooSmall {
        /// By the registers.
        needed: u64,
        /// What is there.
        found: u64,
    },
}

/// What the device says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DeviceStatus {
    /// It does not take commands yet; the boot region can be read.
    Starting,
    /// It takes commands.
    Ready,
    /// It has ended, and takes none.
    Ended,
    /// No word that a device writes.
    Unknown(u64),
}

impl DeviceStatus {
    fn word(self) -> u64 {
        match self {
            DeviceStatus::Starting => 0,
            DeviceStatus::Ready => 1,
            DeviceStatus::Ended => 2,
            DeviceStatus::Unknown(word) => word,
        }
    }
}

impl Capability {
    fn words(&self) -> [u64; REGISTER_WORDS] {
        [
            MAGIC,
            VERSION,
            self.sectors.into(),
            self.pairs.into(),
            self.depth.into(),
            self.buffer_sectors.into(),
            self.boot_sectors.into(),
            self.features.0,
            self.instance,
            self.command_sectors.into(),
        ]
    }
    fn check(words: &[u64; REGISTER_WORDS]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        crc32c(&bytes).into()
    }
    /// What registers say, if a device can have such registers.
    fn of(words: &[u64; REGISTER_WORDS]) -> Result<Capability, RegionError> {
        let within = |what, found: u64, least: u64, most: u64| {
            if (least..=most).contains(&found) {
                Ok(found as u32)
            } else {
                Err(RegionError::Shape { what, found, least, most })
            }
        };
        let &[magic, version, sectors, pairs, depth, buffer, boot, features, instance, command] = words;
        if magic != MAGIC || version != VERSION {
            return Err(RegionError::NotADevice { found: if magic == MAGIC { version } else { magic } });
        }
        let sectors = within("sectors", sectors, 1, u32::MAX.into())?;
        let pairs = within("queue pairs", pairs, 1, PAIRS_MAX.into())?;
        Ok(Capability {
            sectors,
            pairs,
            depth: within("depth", depth, 1, DEPTH_MAX as u64)?,
            buffer_sectors: within("buffer sectors", buffer, 0, BUFFER_MAX / u64::from(pairs))?,
            boot_sectors: within("boot sectors", boot, 0, BUFFER_MAX)?,
            features: Features(features),
            instance,
            command_sectors: within("sectors of a command", command, 1, BUFFER_MAX)?,
        })
    }
    fn entries(&self) -> usize {
        entries_for(self.depth as usize)
    }
    fn pair_bytes(&self) -> usize {
        (LINE + self.entries() * (SUBMISSION_WORDS + COMPLETION_WORDS) * 8).next_multiple_of(LINE)
    }
    fn boot_offset(&self) -> usize {
        (PAIRS + self.pairs as usize * self.pair_bytes()).next_multiple_of(SECTOR_BYTES)
    }
    fn buffer_offset(&self) -> usize {
        self.boot_offset() + self.boot_sectors as usize * SECTOR_BYTES
    }
    /// Bytes of the region.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.buffer_offset() + self.pairs as usize * self.buffer_sectors as usize * SECTOR_BYTES
    }
}

/// A region, seen by either side.
#[derive(Debug)]
pub struct Region {
    arena: Arc<Arena>,
    /// As the device wrote it, or as the host has checked it.
    capability: Capability,
    /// Both sides are in this process.
    within_process: bool,
}

impl Region {
    /// Makes a region of this process's memory for threads of it, or a `shared` one for another
    /// process.
    ///
    /// # Errors
    /// When a number is out of range, or there is no memory.
    pub fn create(capability: Capability, shared: bool) -> Result<Region, RegionError> {
        let words = capability.words();
        let capability = Capability::of(&words)?;
        let bytes = capability.bytes();
        let arena = if shared {
            Arena::sealed_memfd("fulgurite-device", bytes)?
        } else {
            Arena::anonymous(bytes, Backed::BasePages)?
        };
        let registers = arena.words(0, REGISTER_WORDS + 1);
        for (register, word) in registers.iter().zip(words.into_iter().chain([Capability::check(&words)])) {
            register.store(word, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(Region { arena: Arc::new(arena), capability, within_process: !shared })
    }
    /// Sees a region that a device has made.
    ///
    /// # Errors
    /// When no device can have its registers, or they speak of more memory than there is.
    pub fn attach(arena: Arc<Arena>) -> Result<Region, RegionError> {
        let found = arena.len() as u64;
        if arena.len() < PAIRS {
            return Err(RegionError::TooSmall { needed: PAIRS as u64, found });
        }
        let registers = arena.words(0, REGISTER_WORDS + 1);
        let mut words = [0; REGISTER_WORDS];
        for (word, register) in words.iter_mut().zip(registers) {
            *word = register.load(std::sync::atomic::Ordering::Relaxed);
        }
        let said = registers[REGISTER_WORDS].load(std::sync::atomic::Ordering::Relaxed);
        let capability = Capability::of(&words)?;
        let expected = Capability::check(&words);
        if said != expected {
            return Err(RegionError::Registers { found: said, expected });
        }
        let needed = capability.bytes() as u64;
        if needed > found {
            return Err(RegionError::TooSmall { needed, found });
        }
        Ok(Region { arena, capability, within_process: false })
    }
    /// Its memory.
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }
    /// The capability registers, as they were written or checked.
    #[must_use]
    pub fn capability(&self) -> &Capability {
        &self.capability
    }

    fn pair(&self, pair: u32) -> usize {
        assert!(pair < self.capability.pairs, "queue pair {pair} of {}", self.capability.pairs);
        PAIRS + pair as usize * self.capability.pair_bytes()
    }
    fn window(&self, offset: usize, words: usize) -> Window {
        Window::new(&self.arena, offset, words)
    }
    fn bell(&self, offset: usize) -> Bell {
        let window = self.window(offset, 1);
        if self.within_process { Bell::within_process(window) } else { Bell::new(window) }
    }
    fn submissions(&self, pair: u32) -> Window {
        self.window(self.pair(pair) + LINE, self.capability.entries() * SUBMISSION_WORDS)
    }
    fn completions(&self, pair: u32) -> Window {
        let entries = self.capability.entries();
        let offset = self.pair(pair) + LINE + entries * SUBMISSION_WORDS * 8;
        self.window(offset, entries * COMPLETION_WORDS)
    }
    /// The host's ends of a queue pair.
    ///
    /// # Panics
    /// When there is no such pair.
    #[must_use]
    pub fn host_ends(&self, pair: u32) -> (Producer<SUBMISSION_WORDS>, Consumer<COMPLETION_WORDS>) {
        (Producer::new(self.submissions(pair)), Consumer::new(self.completions(pair)))
    }
    /// The device's ends of a queue pair.
    ///
    /// # Panics
    /// When there is no such pair.
    #[must_use]
    pub fn device_ends(&self, pair: u32) -> (Consumer<SUBMISSION_WORDS>, Producer<COMPLETION_WORDS>) {
        (Consumer::new(self.submissions(pair)), Producer::new(self.completions(pair)))
    }
    /// The word that says that the host sleeps.
    ///
    /// # Panics
    /// When there is no such pair.
    #[must_use]
    pub fn host_bell(&self, pair: u32) -> Bell {
        self.bell(self.pair(pair))
    }
    /// The doorbell: the word that says that the device sleeps.
    #[must_use]
    pub fn doorbell(&self) -> Bell {
        self.bell(DOORBELL)
    }
    /// Where a pair's data buffer begins, in sectors from the region's first byte.
    ///
    /// # Panics
    /// When there is no such pair.
    #[must_use]
    pub fn buffer_first(&self, pair: u32) -> u32 {
        assert!(pair < self.capability.pairs, "queue pair {pair} of {}", self.capability.pairs);
        (self.capability.buffer_offset() / SECTOR_BYTES) as u32 + pair * self.capability.buffer_sectors
    }

    /// Writes the status register.
    pub fn set_status(&self, status: DeviceStatus) {
        self.window(STATUS, 1).word(0).store(status.word(), Ordering::Release);
    }
    /// Reads it.
    #[must_use]
    pub fn status(&self) -> DeviceStatus {
        match self.window(STATUS, 1).word(0).load(Ordering::Acquire) {
            0 => DeviceStatus::Starting,
            1 => DeviceStatus::Ready,
            2 => DeviceStatus::Ended,
            word => DeviceStatus::Unknown(word),
        }
    }
    /// Writes the heartbeat register: a number that grows as long as the device runs.
    pub fn beat(&self, beats: u64) {
        self.window(STATUS, 2).word(1).store(beats, Ordering::Relaxed);
    }
    /// Reads it.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.window(STATUS, 2).word(1).load(Ordering::Relaxed)
    }
    /// Says that other hosts have queue pairs of this device, or have had.
    pub fn mark_others(&self) {
        self.window(STATUS, 3).word(2).store(1, Ordering::Release);
    }
    /// Whether they have, or have had; also to be asked of a device that has died.
    #[must_use]
    pub fn has_others(&self) -> bool {
        self.window(STATUS, 3).word(2).load(Ordering::Acquire) != 0
    }
    /// Says, before the hand-over, that other hosts have had queue pairs of this device since its
    /// start.
    pub fn mark_predecessors(&self) {
        self.window(STATUS, 4).word(3).store(1, Ordering::Release);
    }
    /// Whether they had.
    #[must_use]
    pub fn had_predecessors(&self) -> bool {
        self.window(STATUS, 4).word(3).load(Ordering::Acquire) != 0
    }
    /// Says for how many sectors there is room.
    pub fn set_room(&self, sectors: u64) {
        self.window(STATUS, 5).word(4).store(sectors, Ordering::Release);
    }
    /// For how many there is, as the device says; none where it does not.
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        let says = self.capability.features.has(Features::ROOM);
        says.then(|| self.window(STATUS, 5).word(4).load(Ordering::Acquire))
    }
    /// Fills a sector of the boot region.
    ///
    /// # Panics
    /// When there is no such sector.
    pub fn write_boot(&self, sector: u32, bytes: &[u8; SECTOR_BYTES]) {
        assert!(sector < self.capability.boot_sectors, "boot sector {sector}");
        self.arena.write(self.capability.boot_offset() + sector as usize * SECTOR_BYTES, bytes);
    }
    /// Reads the boot region with plain loads: no queue, no driver, no command (7.2 of the paper).
    /// Returns false when the range is not all inside it.
    #[must_use]
    pub fn read_boot(&self, offset: usize, into: &mut [u8]) -> bool {
        let bytes = self.capability.boot_sectors as usize * SECTOR_BYTES;
        if offset > bytes || into.len() > bytes - offset {
            return false;
        }
        self.arena.read(self.capability.boot_offset() + offset, into);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capability() -> Capability {
        Capability {
            sectors: 1000,
            pairs: 3,
            depth: 20,
            buffer_sectors: 40,
            boot_sectors: 2,
            features: Features::PAGES,
            instance: 77,
            command_sectors: 128,
        }
    }

    #[test]
    fn what_the_device_wrote_is_what_the_host_reads() {
        let device = Region::create(capability(), true).unwrap();
        device.write_boot(1, &[7; SECTOR_BYTES]);
        let host = Region::attach(device.arena().clone()).unwrap();
        assert_eq!(host.capability(), &capability());
        let mut boot = [0; 2];
        assert!(host.read_boot(SECTOR_BYTES - 1, &mut boot));
        assert_eq!(boot, [0, 7]);
        for (offset, len) in [(2 * SECTOR_BYTES, 1), (usize::MAX, 1), (0, 2 * SECTOR_BYTES + 1)] {
            assert!(!host.read_boot(offset, &mut vec![0; len]));
        }
        assert_eq!(host.status(), DeviceStatus::Starting);
        device.set_status(DeviceStatus::Ready);
        device.beat(3);
        assert_eq!((host.status(), host.beats(), host.has_others()), (DeviceStatus::Ready, 3, false));
        device.mark_others();
        assert!(host.has_others() && !host.had_predecessors());
        device.mark_predecessors();
        assert!(host.had_predecessors());
        device.set_room(u64::MAX - 1);
        assert_eq!((host.status(), host.beats(), host.room()), (DeviceStatus::Ready, 3, None));
        let features = Features::PAGES.with(Features::ROOM, true);
        let device = Region::create(Capability { features, ..capability() }, true).unwrap();
        device.set_room(u64::MAX - 1);
        assert_eq!(Region::attach(device.arena().clone()).unwrap().room(), Some(u64::MAX - 1));
    }
    #[test]
    fn the_parts_do_not_overlap() {
        let region = Region::create(capability(), false).unwrap();
        let c = region.capability();
        assert!(region.pair(2) + c.pair_bytes() <= c.boot_offset());
        assert_eq!(region.pair(1) % LINE, 0);
        assert_eq!(region.buffer_first(0) as usize * SECTOR_BYTES, c.boot_offset() + 2 * SECTOR_BYTES);
        assert_eq!((region.buffer_first(2) + 40) as usize * SECTOR_BYTES, c.bytes());
        assert_eq!(region.arena().len(), c.bytes());
    }
    /// Whatever any register says, it is refused, or the region is inside its memory.
    #[test]
    fn scribbled_registers_are_refused() {
        let region = Region::create(capability(), false).unwrap();
        let words = region.arena().words(0, REGISTER_WORDS + 1);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        for (i, register) in words.iter().enumerate() {
            let kept = register.load(relaxed);
            for value in [0, 1, 1 << 31, u64::from(u32::MAX), 1 << 32, u64::MAX, kept ^ 1] {
                register.store(value, relaxed);
                if value != kept {
                    assert!(Region::attach(region.arena().clone()).is_err(), "register {i} = {value:#x}");
                }
            }
            register.store(kept, relaxed);
        }
        // With the right check, too.
        for i in 2..REGISTER_WORDS {
            for value in [0, 3, 1 << 20, u64::from(u32::MAX), 1 << 32, u64::MAX] {
                let mut lie = capability().words();
                lie[i] = value;
                for (register, word) in words.iter().zip(lie.into_iter().chain([Capability::check(&lie)])) {
                    register.store(word, relaxed);
                }
                if let Ok(found) = Region::attach(region.arena().clone()) {
                    assert!(found.capability().bytes() <= found.arena().len());
                    let _ = (found.host_ends(found.capability().pairs - 1), found.host_bell(0));
                }
            }
        }
        let zeros = Arc::new(Arena::anonymous(1, Backed::BasePages).unwrap());
        assert!(matches!(Region::attach(zeros), Err(RegionError::NotADevice { found: 0 })));
    }
}
