//! The 64-bit address of NVMM: controller 20 bits, page number 28, offset 16.
//!
//! A pointer stored in flash memory is this address, so that data structures survive a restart
//! without swizzling. Controllers 0 and 0xFFFFF are local (NVMM). Address 0 is therefore never an
//! address of flash memory and serves as null.

use core::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{SUBPAGE_BYTES, SUBPAGE_SHIFT};

/// Bits of an address that select the byte inside a page.
pub const OFFSET_BITS: u32 = 16;
/// Bits of an address that select the page.
pub const PAGE_BITS: u32 = 28;
const LINEAR_BITS: u32 = OFFSET_BITS + PAGE_BITS;
const LINEAR_MASK: u64 = (1 << LINEAR_BITS) - 1;

/// A byte in flash memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Address(u64);

impl Address {
    /// Never an address of flash memory, because controller 0 is local.
    pub const NULL: Address = Address(0);
    /// The controller of the first pool. A runtime with one pool uses it.
    pub const FIRST_CONTROLLER: u32 = 1;

    /// From the three fields. Each is cut to its width.
    pub const fn new(controller: u32, page: u32, offset: u16) -> Self {
        Address(
            ((controller as u64 & 0xF_FFFF) << LINEAR_BITS)
                | ((page as u64 & 0xFFF_FFFF) << OFFSET_BITS)
                | offset as u64,
        )
    }
    /// The byte `linear` bytes into the first controller's space.
    #[inline(always)]
    #[must_use]
    pub const fn from_linear(linear: u64) -> Self {
        Address(((Self::FIRST_CONTROLLER as u64) << LINEAR_BITS) | (linear & LINEAR_MASK))
    }
    /// From the bits as stored.
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Address(bits)
    }
    /// The bits as stored.
    #[inline(always)]
    pub const fn bits(self) -> u64 {
        self.0
    }
    /// Which controller (20 bits).
    pub const fn controller(self) -> u32 {
        (self.0 >> LINEAR_BITS) as u32
    }
    /// Which page of the controller (28 bits).
    pub const fn page(self) -> u32 {
        ((self.0 & LINEAR_MASK) >> OFFSET_BITS) as u32
    }
    /// Which byte of the page (16 bits).
    #[must_use]
    pub const fn offset(self) -> u16 {
        self.0 as u16
    }
    /// Bytes from the start of the controller's space (44 bits).
    #[inline(always)]
    pub const fn linear(self) -> u64 {
        self.0 & LINEAR_MASK
    }
    /// The subpage that holds this byte.
    #[inline(always)]
    pub const fn subpage(self) -> SubpageIndex {
        SubpageIndex((self.linear() >> SUBPAGE_SHIFT) as u32)
    }
    /// The byte's place inside its subpage.
    #[inline(always)]
    pub const fn subpage_offset(self) -> usize {
        (self.0 as usize) & (SUBPAGE_BYTES - 1)
    }
    /// Whether this is [`Address::NULL`].
    #[inline(always)]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
    /// The address `bytes` further on. Wraps inside 64 bits. Whether the result is in range is
    /// found by the access.
    #[inline(always)]
    #[must_use]
    pub const fn add(self, bytes: u64) -> Self {
        Address(self.0.wrapping_add(bytes))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:05x}:{:07x}:{:04x}", self.controller(), self.page(), self.offset())
    }
}
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A controller, as an allocation names it: 20 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Controller(pub u32);

impl Controller {
    /// Whichever is at hand. NVMM has two numbers for that, all zeros and all ones.
    pub const LOCAL: Controller = Controller(0);
    /// The controller of the first pool, which its addresses carry.
    pub const FIRST: Controller = Controller(Address::FIRST_CONTROLLER);

    /// Whether it is one of the two numbers that stand for the one at hand.
    pub const fn is_local(self) -> bool {
        matches!(self.0, 0 | 0xF_FFFF)
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A subpage, counted from the start of the controller's space: 28 + 16 - 12 = 32 bits exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct SubpageIndex(pub u32);

impl SubpageIndex {
    /// As an index into tables.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    /// Its first byte, from the start of the controller's space.
    #[inline(always)]
    pub const fn linear(self) -> u64 {
        (self.0 as u64) << SUBPAGE_SHIFT
    }
    /// Its first byte.
    pub const fn address(self) -> Address {
        Address::from_linear(self.linear())
    }
}

/// A slot of the arena of all frames, which holds one subpage. At most 2^30 of them (4 TiB), so
/// that a residency word has room for a state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct FrameIndex(pub u32);

impl FrameIndex {
    /// One past the largest index.
    pub const LIMIT: u32 = 1 << 30;
    /// As an index into tables.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The index of a frame in one cache, from 0, which is what its replacement policy knows the frame
/// by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct LocalFrame(pub u32);

impl LocalFrame {
    /// As an index into tables.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_overlap() {
        let a = Address::new(0xA_BCDE, 0x123_4567, 0x89AB);
        assert_eq!(a.bits(), 0xABCD_E123_4567_89AB);
        assert_eq!((a.controller(), a.page(), a.offset()), (0xA_BCDE, 0x123_4567, 0x89AB));
        assert_eq!(a.linear(), 0x123_4567_89AB);
    }
    #[test]
    fn last_subpage_of_the_space() {
        let a = Address::new(1, 0xFFF_FFFF, 0xFFFF);
        assert_eq!(a.subpage(), SubpageIndex(u32::MAX));
        assert_eq!(a.subpage_offset(), 4095);
        assert_eq!(a.subpage().address().add(4095), a);
    }
    #[test]
    fn indices_are_numbers() {
        assert_eq!((SubpageIndex(7).index(), SubpageIndex(0).index()), (7, 0));
        assert_eq!((FrameIndex(7).index(), FrameIndex(0).index()), (7, 0));
    }
    #[test]
    fn null_is_local() {
        assert!(Address::NULL.is_null());
        assert_eq!(Address::NULL.controller(), 0);
        assert!(!Address::from_linear(0).is_null());
        let local = [0, 1, 2, 0xF_FFFE, 0xF_FFFF, 0x10_0000].map(|number| Controller(number).is_local());
        assert_eq!(local, [true, false, false, false, true, false]);
        assert_eq!(Address::from_linear(0).controller(), Controller::FIRST.0);
    }
}
