//! Layouts: what an address, a subpage and a frame are, and the units people write.
//!
//! Holds newtypes and arithmetic only. Invariant: every type here is plain data with a stated size; nothing here does
//! I/O, allocates or knows a clock. On-flash structures (page-table entries, extents, journals) join this crate with the
//! journaled store.
#![forbid(unsafe_code)]

mod address;
mod size;

pub use address::{Address, FrameIndex, OFFSET_BITS, PAGE_BITS, SubpageIndex};
pub use size::{ParseUnitError, format_bytes, format_duration, parse_bytes, parse_duration};

/// Bytes in a subpage: the unit of caching and of flash I/O (AstriFlash's DRAM-cache page, section III-B; NVMM's page
/// segment).
pub const SUBPAGE_BYTES: usize = 4096;
/// Binary logarithm of [`SUBPAGE_BYTES`].
pub const SUBPAGE_SHIFT: u32 = 12;
/// Bytes in a page: the unit of the page table, versions and permissions (NVMM).
pub const PAGE_BYTES: usize = 64 * 1024;
/// Bytes in a huge page of the processor, in which frames are laid out.
pub const HUGE_PAGE_BYTES: usize = 2 * 1024 * 1024;
const _: () = assert!(SUBPAGE_BYTES == 1 << SUBPAGE_SHIFT);

/// Data that may lie in flash memory: any bit pattern is a value, no padding, no pointers into the process.
pub trait Plain: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::Immutable + Copy + 'static {}
impl<T: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::Immutable + Copy + 'static> Plain for T {}
