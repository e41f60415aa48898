//! Layouts: what an address, a subpage and a frame are, what is stored on flash bit for bit, and
//! the units people write.
//!
//! Holds newtypes, arithmetic, and the encoding of the structures on flash: page-table entries,
//! superblock, anchor, journal, checkpoint, summaries of extents, and the directory of roots.
//! Invariant: nothing here does I/O or knows a clock, and no bytes make it panic. What the
//! structures mean together is the store's business. `docs/format.md` draws them.
#![forbid(unsafe_code)]

mod address;
mod checksum;
mod directory;
mod entry;
mod journal;
mod member;
mod metadata;
mod objects;
mod one_bit;
mod size;
mod superblock;

pub use address::{Address, Controller, FrameIndex, LocalFrame, OFFSET_BITS, PAGE_BITS, SubpageIndex};
pub use checksum::crc32c;
pub use directory::{
    DIRECTORY_VERSION, FREE_RANGES_MAX, NotDirectory, PageRange, ROOT_ENTRY_BYTES, ROOT_NAME_MAX, ROOT_TYPE_MAX,
    ROOTS_MAX, RootEntry, Space, TypePart,
};
pub use entry::{
    ENTRY_INDEX_BITS, EntryIndex, FLASH_PAGE_BITS, FlashPage, PageEntry, Placement, Status, TIME_BITS, full_time,
    place_positional, subpages_per_page,
};
pub use journal::{Checksums, History, Record, SUBPAGES_MAX};
pub use member::{BANDS_MAX, Band, MEMBER_PAGES, MEMBERS_MAX, Member, MemberName};
pub use metadata::{
    FORMAT_VERSION, HEADER_BYTES, Header, Kind, Malformed, NO_EXTENT, NotMetadata, PAYLOAD_BYTES, PageBuffer, PoolId,
    Reader, zero_page,
};
pub use objects::{
    OBJECT_ALIGNMENT, OBJECTS_MAX, ObjectLocation, ObjectMoved, ObjectWritten, ObjectsMoved, ObjectsWritten,
    WORDS_OF_AN_OBJECT,
};
pub use size::{ParseUnitError, Size, format_bytes, format_duration, parse_bytes, parse_duration};
pub use superblock::{
    Anchor, FEATURE_GROWING, FEATURE_OBJECTS, KeptToken, Owner, StreamPosition, Superblock, TOKENS_MAX, summary_pages,
};

/// Bytes in a subpage: the unit of caching and of flash I/O (AstriFlash's DRAM-cache page, section
/// III-B, NVMM's page segment).
pub const SUBPAGE_BYTES: usize = 4096;
/// Binary logarithm of [`SUBPAGE_BYTES`].
pub const SUBPAGE_SHIFT: u32 = 12;
/// Bytes in a page: the unit of the page table, versions and permissions (NVMM).
pub const PAGE_BYTES: usize = 64 * 1024;
/// Bytes in a huge page of the processor, in which frames are laid out.
pub const HUGE_PAGE_BYTES: usize = 2 * 1024 * 1024;
const _: () = assert!(SUBPAGE_BYTES == 1 << SUBPAGE_SHIFT && PAGE_BYTES == 1 << 16 && HUGE_PAGE_BYTES == 1 << 21);

/// Data that may be stored in flash memory: any bit pattern is a value, no padding, no pointers
/// into the process.
pub trait Plain: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::Immutable + Copy + 'static {}
impl<T: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::Immutable + Copy + 'static> Plain for T {}
