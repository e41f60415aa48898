//! What the queues carry, bit for bit: commands, completions, and their status codes.
//!
//! ```text
//! submission entry, 32 bytes, two to a cache line
//!   word 0   start sector                                    (64)
//!   word 1   buffer index (0..32)     | sector count (32..64)
//!   word 2   argument: a checksum, a token, permissions      (64)
//!   word 3   check (0..32) | command id (32..48) | opcode (48..56) | flags (56..63) | phase (63)
//!
//! completion entry, 16 bytes, four to a cache line
//!   word 0   result: a checksum, a token, a count            (64)
//!   word 1   check (0..32) | command id (32..48) | status (48..63) | phase (63)
//! ```
//!
//! These are the fields of the paper (3.2) with what it leaves out: the phase bit, the check, an
//! argument and a result. A sector has 4096 bytes, the unit that every medium here moves and that
//! has a checksum. Buffer index and count are in the same unit. A host with 512-byte blocks above
//! does what a file system does on a 4 KiB-native disk.
//!
//! There is no command for roots: the directory is stored in pages of the pool
//! (`fulgurite_format`'s `directory`), so reads, writes and roll backs include it.
//!
//! Where NVM Express 1.2 (figures 30 to 33) has a code, that code is used: type in bits 8 to 10,
//! code in bits 0 to 7. Type 7 is "vendor specific"; an errno of the medium has type 6.

use fulgurite_flash::{FlashError, ReadOnly};

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = fulgurite_format::SUBPAGE_BYTES;
/// Words of a submission entry.
pub const SUBMISSION_WORDS: usize = 4;
/// Words of a completion entry.
pub const COMPLETION_WORDS: usize = 2;
/// The most commands in flight of a queue pair: as many as a queue of [`fulgurite_flash`] may have.
pub const DEPTH_MAX: usize = fulgurite_flash::DEPTH_MAX;
/// The command id of a completion that answers an entry whose id cannot be believed.
pub const NO_ID: u16 = u16::MAX;
const _: () = assert!(DEPTH_MAX < NO_ID as usize);

/// What a command asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Opcode {
    /// Makes every write that completed before this was submitted durable.
    Flush = 0x00,
    /// Data buffer to sectors.
    Write = 0x01,
    /// Sectors to data buffer.
    Read = 0x02,
    /// Writes an [`crate::Identity`] into one sector of the data buffer.
    Identify = 0x06,
    /// Deletes the pages that are wholly inside the range. They read as zeros.
    Trim = 0x09,
    /// Allocates the pages of the sectors, with the permissions of the argument.
    Allocate = 0x80,
    /// Deletes the pages of the sectors.
    Delete = 0x81,
    /// Changes what may be done with the pages of the sectors; the argument says it.
    SetPermissions = 0x82,
    /// Waits until the argument's token is durable, or, for 0, names the state of all that was
    /// written and waits for that. The result is the token.
    Sync = 0x83,
    /// Returns to the state of the token in the argument. Nothing may be in flight.
    RollBack = 0x84,
    /// Writes the newest kept tokens that fit into the data buffer, ascending, 8 bytes each,
    /// little-endian. The result is their number.
    Tokens = 0x85,
    /// Keeps the token of the argument whatever the policy says.
    Pin = 0x86,
    /// Keeps it no more.
    Unpin = 0x87,
    /// Reads sectors as they were at the token of the argument.
    ReadAt = 0x88,
    /// Names the state of all that was written. The result is the token; [`Opcode::Sync`] says when
    /// it is durable.
    Name = 0x89,
    /// Whether [`Opcode::RollBack`] would be refused, as things are.
    MayRollBack = 0x8A,
    /// As [`Opcode::Tokens`], of those that somebody wants kept ([`Opcode::Pin`]).
    Pinned = 0x8B,
    /// Writes a [`crate::Standing`] of the store into one sector of the data buffer.
    Standing = 0x8C,
    /// Writes the permissions of as many pages as fit into the data buffer, a byte each, beginning
    /// with the start sector's page. Bits 0 to 2 are the bits of an argument, bit 3 says that the
    /// page is allocated. The result is the number of pages.
    Pages = 0x8D,
    /// Keeps the argument's token readable while this queue pair is open. Nothing survives of that.
    Hold = 0x8E,
    /// Writes unreported deleted temporary pages of ended programs into the data buffer, as many as
    /// fit, 8 bytes each, little-endian. They count as reported from then on. The result is their
    /// number.
    Dropped = 0x8F,
}

impl Opcode {
    /// All of them.
    pub const ALL: [Opcode; 21] = [
        Opcode::Flush,
        Opcode::Write,
        Opcode::Read,
        Opcode::Identify,
        Opcode::Trim,
        Opcode::Allocate,
        Opcode::Delete,
        Opcode::SetPermissions,
        Opcode::Sync,
        Opcode::RollBack,
        Opcode::Tokens,
        Opcode::Pin,
        Opcode::Unpin,
        Opcode::ReadAt,
        Opcode::Name,
        Opcode::MayRollBack,
        Opcode::Pinned,
        Opcode::Standing,
        Opcode::Pages,
        Opcode::Hold,
        Opcode::Dropped,
    ];
    /// Whether it changes sectors other than by a write: done late, it undoes later writes.
    #[must_use]
    pub fn changes_without_data(self) -> bool {
        matches!(self, Opcode::Trim | Opcode::Delete | Opcode::RollBack)
    }
    /// Whether it changes nothing and shows no sector: any program may ask it while any other uses
    /// the device.
    #[must_use]
    pub fn only_observes(self) -> bool {
        matches!(self, Opcode::Identify | Opcode::Tokens | Opcode::Pinned | Opcode::Standing | Opcode::Pages)
    }
    /// The one with this code.
    #[inline]
    #[must_use]
    pub fn of(code: u8) -> Option<Opcode> {
        Some(match code {
            0x00 => Opcode::Flush,
            0x01 => Opcode::Write,
            0x02 => Opcode::Read,
            0x06 => Opcode::Identify,
            0x09 => Opcode::Trim,
            0x80 => Opcode::Allocate,
            0x81 => Opcode::Delete,
            0x82 => Opcode::SetPermissions,
            0x83 => Opcode::Sync,
            0x84 => Opcode::RollBack,
            0x85 => Opcode::Tokens,
            0x86 => Opcode::Pin,
            0x87 => Opcode::Unpin,
            0x88 => Opcode::ReadAt,
            0x89 => Opcode::Name,
            0x8A => Opcode::MayRollBack,
            0x8B => Opcode::Pinned,
            0x8C => Opcode::Standing,
            0x8D => Opcode::Pages,
            0x8E => Opcode::Hold,
            0x8F => Opcode::Dropped,
            _ => return None,
        })
    }
}

/// Flag: the result is the checksum of what was moved. CRC32C of a sector; of several, CRC32C of
/// theirs, 4 bytes each, little-endian, in order.
pub const SAY_CHECKSUM: u8 = 1;
/// Flag of a write: the argument is that checksum. Where it differs from the data nothing is
/// written.
pub const VERIFY_CHECKSUM: u8 = 2;

/// A submission entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// Names the command among those in flight of its queue pair; less than the depth.
    pub id: u16,
    /// [`Opcode`], as it travels.
    pub opcode: u8,
    /// [`SAY_CHECKSUM`] and [`VERIFY_CHECKSUM`], each or not.
    pub flags: u8,
    /// The first sector.
    pub sector: u64,
    /// How many.
    pub count: u32,
    /// Where in the data buffer, in sectors.
    pub buffer: u32,
    /// By opcode.
    pub argument: u64,
}

impl Command {
    /// The words of the entry in the queue.
    #[inline]
    #[must_use]
    pub fn pack(&self) -> [u64; SUBMISSION_WORDS] {
        let Command { id, opcode, flags, sector, count, buffer, argument } = *self;
        let last = u64::from(id) << 32 | u64::from(opcode) << 48 | u64::from(flags) << 56;
        [sector, u64::from(buffer) | u64::from(count) << 32, argument, last]
    }
    /// The inverse.
    #[inline]
    #[must_use]
    pub fn unpack([sector, place, argument, last]: [u64; SUBMISSION_WORDS]) -> Command {
        Command {
            id: (last >> 32) as u16,
            opcode: (last >> 48) as u8,
            flags: (last >> 56) as u8 & 0x7F,
            sector,
            count: (place >> 32) as u32,
            buffer: place as u32,
            argument,
        }
    }
}

/// A completion entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The command's.
    pub id: u16,
    /// How it went.
    pub status: Status,
    /// By opcode.
    pub result: u64,
}

impl Ended {
    /// The words of the entry in the queue.
    #[inline]
    #[must_use]
    pub fn pack(&self) -> [u64; COMPLETION_WORDS] {
        [self.result, u64::from(self.id) << 32 | u64::from(self.status.0 & 0x7FFF) << 48]
    }
    /// The inverse.
    #[inline]
    #[must_use]
    pub fn unpack([result, last]: [u64; COMPLETION_WORDS]) -> Ended {
        Ended { id: (last >> 32) as u16, status: Status((last >> 48) as u16 & 0x7FFF), result }
    }
}

/// How a command went: 15 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

impl Status {
    /// All is well.
    pub const SUCCESS: Status = Status(0x000);
    /// There is no such command, or this device does not have it.
    pub const INVALID_OPCODE: Status = Status(0x001);
    /// A field is out of range: count, sectors, permissions or flags.
    pub const INVALID_FIELD: Status = Status(0x002);
    /// The id is out of range, or names a command in flight.
    pub const ID_CONFLICT: Status = Status(0x003);
    /// The range in the data buffer is not all inside it.
    pub const BUFFER_RANGE: Status = Status(0x004);
    /// The device was reset before it was done.
    pub const ABORTED: Status = Status(0x007);
    /// The sectors are not all there.
    pub const SECTOR_RANGE: Status = Status(0x080);
    /// No space for new versions, and none comes without a sync.
    pub const NO_SPACE: Status = Status(0x081);
    /// What was read is not what was written.
    pub const UNREADABLE: Status = Status(0x281);
    /// The data in the buffer do not have the checksum that the entry says; nothing was written.
    pub const WRONG_CHECKSUM: Status = Status(0x282);
    /// The page may not be touched in this way.
    pub const ACCESS_DENIED: Status = Status(0x286);
    /// There is no such token.
    pub const NO_TOKEN: Status = Status(0x701);
    /// A token that would go away is being read.
    pub const TOKEN_IN_USE: Status = Status(0x702);
    /// A flush failed earlier.
    pub const POISONED: Status = Status(0x703);
    /// The medium ended short of a sector.
    pub const SHORT: Status = Status(0x704);
    /// The entry was damaged; its id is not known. The result is how many entries were taken
    /// before.
    pub const DAMAGED_ENTRY: Status = Status(0x705);
    /// The medium was closed.
    pub const CLOSED: Status = Status(0x706);
    /// The medium did not answer in time.
    pub const TIMED_OUT: Status = Status(0x707);
    /// A page that is to be allocated is.
    pub const ALLOCATED: Status = Status(0x708);
    /// The medium may only be read, or keeps nothing that could be named.
    pub const READ_ONLY: Status = Status(0x709);
    /// A flush, which would name a state, in the session of a program that names them
    /// ([`Opcode::Name`]).
    pub const IN_SESSION: Status = Status(0x70A);
    /// A token that would go away is pinned.
    pub const TOKEN_PINNED: Status = Status(0x70B);
    /// The file of the medium was deleted or replaced.
    pub const UNLINKED: Status = Status(0x70C);
    /// Something failed that has no code.
    pub const INTERNAL: Status = Status(0x006);
    const ERRNO: u16 = 0x600;

    /// What a medium says, as it travels.
    #[must_use]
    pub fn of(result: Result<(), FlashError>) -> Status {
        match result {
            Ok(()) => Status::SUCCESS,
            Err(FlashError::Io(errno)) if (0..256).contains(&errno) => Status(Status::ERRNO | errno as u16),
            Err(FlashError::Short) => Status::SHORT,
            Err(FlashError::OutOfRange) => Status::SECTOR_RANGE,
            Err(FlashError::TimedOut) => Status::TIMED_OUT,
            Err(FlashError::Poisoned) => Status::POISONED,
            Err(FlashError::NoSpace) => Status::NO_SPACE,
            Err(FlashError::Corrupt) => Status::UNREADABLE,
            Err(FlashError::Closed) => Status::CLOSED,
            Err(FlashError::NoToken) => Status::NO_TOKEN,
            Err(FlashError::Unlinked) => Status::UNLINKED,
            Err(_) => Status::INTERNAL,
        }
    }
    /// What the host's layers report. An unknown code is an error of the device, and so is a code
    /// that no honest host receives.
    ///
    /// # Errors
    /// All but [`Status::SUCCESS`].
    #[inline]
    pub fn to_result(self) -> Result<(), FlashError> {
        if self == Status::SUCCESS { Ok(()) } else { Err(self.error()) }
    }
    #[cold]
    fn error(self) -> FlashError {
        // The kernel's words for what has no variant.
        const EIO: i32 = 5;
        const EACCES: i32 = 13;
        const EEXIST: i32 = 17;
        const EPROTO: i32 = 71;
        const EOPNOTSUPP: i32 = 95;
        match self {
            Status::SHORT => FlashError::Short,
            Status::SECTOR_RANGE | Status::BUFFER_RANGE => FlashError::OutOfRange,
            Status::TIMED_OUT => FlashError::TimedOut,
            Status::POISONED => FlashError::Poisoned,
            Status::NO_SPACE => FlashError::NoSpace,
            Status::UNREADABLE | Status::WRONG_CHECKSUM => FlashError::Corrupt,
            Status::CLOSED | Status::ABORTED => FlashError::Closed,
            Status::NO_TOKEN => FlashError::NoToken,
            Status::UNLINKED => FlashError::Unlinked,
            Status::ACCESS_DENIED => FlashError::Io(EACCES),
            Status::ALLOCATED => FlashError::Io(EEXIST),
            Status::READ_ONLY => ReadOnly::ERROR,
            Status::INVALID_OPCODE | Status::IN_SESSION => FlashError::Io(EOPNOTSUPP),
            Status::INTERNAL => FlashError::Io(EIO),
            Status(code) if code & 0x700 == Status::ERRNO => FlashError::Io(i32::from(code & 0xFF)),
            Status(_) => FlashError::Io(EPROTO),
        }
    }
    /// A few words for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Status::SUCCESS => "success",
            Status::INVALID_OPCODE => "no such command",
            Status::INVALID_FIELD => "a field is out of range",
            Status::ID_CONFLICT => "the command id is out of range or in use",
            Status::BUFFER_RANGE => "outside the data buffer",
            Status::ABORTED => "the device was reset",
            Status::SECTOR_RANGE => "outside the sectors",
            Status::NO_SPACE => "no space",
            Status::UNREADABLE => "unreadable",
            Status::WRONG_CHECKSUM => "wrong checksum in the data buffer",
            Status::ACCESS_DENIED => "access denied",
            Status::NO_TOKEN => "no such token",
            Status::TOKEN_IN_USE => "a newer token is being read",
            Status::TOKEN_PINNED => "a newer token is pinned",
            Status::UNLINKED => "the file was deleted or replaced",
            Status::POISONED => "a flush failed earlier",
            Status::SHORT => "less than a sector",
            Status::DAMAGED_ENTRY => "damaged entry",
            Status::CLOSED => "closed",
            Status::TIMED_OUT => "timed out",
            Status::ALLOCATED => "the page is allocated already",
            Status::READ_ONLY => "it may only be read",
            Status::IN_SESSION => "a flush, while a program names the states",
            Status::INTERNAL => "internal error",
            Status(code) if code & 0x700 == Status::ERRNO => "the medium's error",
            Status(_) => "unknown status",
        }
    }
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#05x} ({})", self.0, self.words())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back() {
        let command = Command {
            id: 0xABCD,
            opcode: 0xFE,
            flags: 0x7F,
            sector: u64::MAX,
            count: 0x1234_5678,
            buffer: 0x9ABC_DEF0,
            argument: 0x0123_4567_89AB_CDEF,
        };
        assert_eq!(Command::unpack(command.pack()), command);
        // Phase and check are the ring's.
        assert_eq!(command.pack()[3] & !crate::ring::LAST_WORD, 0);
        let ended = Ended { id: 0xABCD, status: Status(0x7FFF), result: u64::MAX };
        assert_eq!(Ended::unpack(ended.pack()), ended);
        assert_eq!(ended.pack()[1] & !crate::ring::LAST_WORD, 0);
    }
    #[test]
    fn every_opcode_is_its_code() {
        for opcode in Opcode::ALL {
            assert_eq!(Opcode::of(opcode as u8), Some(opcode));
        }
        assert_eq!((0..=255).filter_map(Opcode::of).count(), Opcode::ALL.len());
    }
    #[test]
    fn errors_of_media_come_back() {
        use FlashError::{Closed, Corrupt, Io, NoSpace, NoToken, OutOfRange, Poisoned, Short, TimedOut, Unlinked};
        for error in [Io(5), Io(28), Short, OutOfRange, TimedOut, Poisoned, NoSpace, Corrupt, Closed, NoToken, Unlinked]
        {
            assert_eq!(Status::of(Err(error)).to_result(), Err(error));
        }
        assert_eq!(Status::of(Ok(())).to_result(), Ok(()));
        for code in 1..=0x7FFF {
            assert!(Status(code).to_result().is_err(), "status {code:#x}");
        }
    }
}
