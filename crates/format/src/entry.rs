//! The 16-byte page-table entry of NVMM ("Page Table Organization for NAND Main Memory").
//!
//! ```text
//! bits   0..34   34..64            64..96       96..120        120..128
//!        start   previous entry    valid bits   time written   status and permissions
//! ```
//!
//! The paper's bit vector reads from the left. Its leftmost bit is bit 0 here. With n subpages in a
//! page, bit a x n + s says that this version holds subpage s, at the a-th alternate place.

use core::fmt;

use crate::PAGE_BYTES;

/// Bits of a flash page's number.
pub const FLASH_PAGE_BITS: u32 = 34;
/// Bits of an entry's index in the table.
pub const ENTRY_INDEX_BITS: u32 = 30;
/// Bits of the time that an entry was written.
pub const TIME_BITS: u32 = 24;
const FLASH_PAGE_MASK: u64 = (1 << FLASH_PAGE_BITS) - 1;
const ENTRY_INDEX_MASK: u64 = (1 << ENTRY_INDEX_BITS) - 1;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// A page of flash: where one subpage is stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FlashPage(pub u64);

/// The index of an entry in the page table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryIndex(pub u32);

impl EntryIndex {
    /// "There is none": the index that no entry has.
    pub const NONE: EntryIndex = EntryIndex(ENTRY_INDEX_MASK as u32);
}

/// How the bits of an entry name flash pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Subpage s is stored at start + s, or a whole number of pages' subpages further on, as in the
    /// paper. It leaves room for bad and taken flash pages.
    Positional,
    /// The k-th subpage that is present is stored at start + k, which suits a log that is written
    /// in order.
    Packed,
}

/// Status and permissions of a page: eight bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(u8);

impl Status {
    /// The page was allocated and not deleted.
    pub const ALLOCATED: Status = Status(1);
    /// It may be read.
    pub const READ: Status = Status(1 << 1);
    /// It may be written.
    pub const WRITE: Status = Status(1 << 2);
    /// It stays when the process that made it ends.
    pub const PERMANENT: Status = Status(1 << 3);
    /// The entry's placement is [`Placement::Packed`].
    pub const PACKED: Status = Status(1 << 4);
    /// The page was deleted here: what older entries hold is not part of it.
    pub const DELETED: Status = Status(1 << 5);
    /// The locations of the entry's subpages are in a separate table. In DRAM only, because on
    /// flash each entry names its locations.
    pub const MAPPED: Status = Status(1 << 6);
    /// The entry holds objects, packed several to a flash page, and each is followed by its
    /// location. In checkpoints only.
    pub const OBJECTS: Status = Status(1 << 7);
    const KNOWN: u8 = 0b0011_1111;

    /// From the bits as stored. None when a bit is set that has no meaning.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Status> {
        if bits & !Self::KNOWN == 0 { Some(Status(bits)) } else { None }
    }
    /// The bits as stored.
    pub const fn bits(self) -> u8 {
        self.0
    }
    /// Whether all of `other`'s bits are set.
    pub const fn has(self, other: Status) -> bool {
        self.0 & other.0 == other.0
    }
    /// Both.
    #[must_use]
    pub const fn with(self, other: Status) -> Status {
        Status(self.0 | other.0)
    }
    /// Without the bits of `other`.
    #[must_use]
    pub const fn without(self, other: Status) -> Status {
        Status(self.0 & !other.0)
    }
    /// How the entry places its subpages.
    pub const fn placement(self) -> Placement {
        if self.has(Status::PACKED) { Placement::Packed } else { Placement::Positional }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["allocated", "read", "write", "permanent", "packed", "deleted", "mapped", "objects"];
        f.debug_set().entries(names.iter().enumerate().filter(|(i, _)| self.0 & (1 << i) != 0).map(|(_, n)| n)).finish()
    }
}

/// One version of a page, or of a part of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PageEntry([u64; 2]);
const _: () = assert!(size_of::<PageEntry>() == 16);

impl PageEntry {
    /// From its fields. Each is cut to its width.
    pub const fn new(start: FlashPage, previous: EntryIndex, valid: u32, time: u32, status: Status) -> PageEntry {
        PageEntry([
            (start.0 & FLASH_PAGE_MASK) | ((previous.0 as u64 & ENTRY_INDEX_MASK) << FLASH_PAGE_BITS),
            valid as u64 | ((time as u64 & TIME_MASK) << 32) | ((status.0 as u64) << 56),
        ])
    }
    /// From the 16 bytes as stored. None when the status has bits without meaning. (Of objects:
    /// [`Status::OBJECTS`] has one here.)
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Option<PageEntry> {
        let entry = PageEntry([
            u64::from_le_bytes(*bytes.first_chunk().expect("sixteen")),
            u64::from_le_bytes(*bytes.last_chunk().expect("sixteen")),
        ]);
        let status = Status((entry.0[1] >> 56) as u8).without(Status::OBJECTS);
        if Status::from_bits(status.0).is_some() { Some(entry) } else { None }
    }
    /// The 16 bytes as stored.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0[0].to_le_bytes());
        bytes[8..].copy_from_slice(&self.0[1].to_le_bytes());
        bytes
    }
    /// The flash page that the bits count from.
    pub const fn start(self) -> FlashPage {
        FlashPage(self.0[0] & FLASH_PAGE_MASK)
    }
    /// The entry of the version before.
    pub const fn previous(self) -> EntryIndex {
        EntryIndex((self.0[0] >> FLASH_PAGE_BITS) as u32)
    }
    /// The sub-page valid bits.
    pub const fn valid(self) -> u32 {
        self.0[1] as u32
    }
    /// The low 24 bits of the token that was next when it was written.
    pub const fn time(self) -> u32 {
        ((self.0[1] >> 32) & TIME_MASK) as u32
    }
    /// Status and permissions.
    pub const fn status(self) -> Status {
        Status((self.0[1] >> 56) as u8)
    }
    /// The entry with another predecessor.
    #[must_use]
    pub const fn after(self, previous: EntryIndex) -> PageEntry {
        PageEntry::new(self.start(), previous, self.valid(), self.time(), self.status())
    }
    /// The entry written at another time.
    #[must_use]
    pub const fn at_time(self, time: u32) -> PageEntry {
        PageEntry::new(self.start(), self.previous(), self.valid(), time, self.status())
    }

    /// The subpages that this version holds, a bit each, of `n` in a page.
    pub const fn subpages(self, n: u32) -> u32 {
        let mut bits = self.valid();
        let mut shift = 32;
        while shift > n {
            shift -= n;
            bits |= self.valid() >> shift;
        }
        if n >= 32 { bits } else { bits & ((1 << n) - 1) }
    }
    /// Where this version holds a subpage, of `n` in a page. None where it does not.
    pub const fn place(self, subpage: u32, n: u32) -> Option<FlashPage> {
        match self.status().placement() {
            Placement::Packed => {
                if self.valid() & (1 << subpage) == 0 {
                    return None;
                }
                Some(FlashPage(self.start().0 + (self.valid() & ((1 << subpage) - 1)).count_ones() as u64))
            }
            Placement::Positional => {
                let mut bit = subpage;
                while bit < 32 {
                    if self.valid() & (1 << bit) != 0 {
                        return Some(FlashPage(self.start().0 + bit as u64));
                    }
                    bit += n;
                }
                None
            }
        }
    }
}

impl fmt::Debug for PageEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{start {:#x}, previous ", self.start().0)?;
        match self.previous() {
            EntryIndex::NONE => write!(f, "none")?,
            EntryIndex(index) => write!(f, "{index:#x}")?,
        }
        write!(f, ", valid {self}, time {:#x}, {:?}}}", self.time(), self.status())
    }
}
/// The valid bits as the paper prints them: from the left, a space after eight.
impl fmt::Display for PageEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for bit in 0..32 {
            if bit % 8 == 0 && bit > 0 {
                f.write_str(" ")?;
            }
            f.write_str(if self.valid() & (1 << bit) != 0 { "1" } else { "0" })?;
        }
        Ok(())
    }
}

/// Subpages in a page, for subpages of `subpage_bytes` bytes: 8 of 8 KiB (NVMM), 16 of 4 KiB.
#[must_use]
pub const fn subpages_per_page(subpage_bytes: usize) -> u32 {
    (PAGE_BYTES / subpage_bytes) as u32
}
const _: () = assert!(subpages_per_page(4096) == 16 && subpages_per_page(8192) == 8);

/// Places subpages as the paper does: each at start + s, or as many pages' subpages further on as
/// it takes to find a flash page that `free` accepts. None when all of a subpage's places are
/// taken.
#[must_use]
pub fn place_positional(
    start: FlashPage,
    subpages: u32,
    n: u32,
    mut free: impl FnMut(FlashPage) -> bool,
) -> Option<u32> {
    (0..n).filter(|s| subpages & (1 << s) != 0).try_fold(0, |valid, s| {
        let bit = (s..32).step_by(n as usize).find(|bit| free(FlashPage(start.0 + u64::from(*bit))))?;
        Some(valid | (1 << bit))
    })
}

/// The token that a time of 24 bits stands for: the one within 2^23 of `near`.
#[must_use]
pub const fn full_time(time: u32, near: u64) -> u64 {
    let difference = (time as u64).wrapping_sub(near) & TIME_MASK;
    // The upper half stands for earlier times.
    let signed =
        if difference >> (TIME_BITS - 1) == 1 { difference as i64 - (1 << TIME_BITS) } else { difference as i64 };
    near.saturating_add_signed(signed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EIGHT_KIB: u32 = 8;
    fn positional(start: u64, valid: u32) -> PageEntry {
        PageEntry::new(FlashPage(start), EntryIndex::NONE, valid, 0, Status::ALLOCATED)
    }

    #[test]
    fn status_bits_are_those_drawn() {
        let drawn = [
            Status::ALLOCATED,
            Status::READ,
            Status::WRITE,
            Status::PERMANENT,
            Status::PACKED,
            Status::DELETED,
            Status::MAPPED,
            Status::OBJECTS,
        ];
        for (bit, status) in drawn.into_iter().enumerate() {
            assert_eq!(status.bits(), 1 << bit);
        }
    }
    #[test]
    fn a_whole_page_of_the_paper() {
        let valid = place_positional(FlashPage(0), 0xFF, EIGHT_KIB, |_| true).unwrap();
        assert_eq!(positional(0, valid).to_string(), "11111111 00000000 00000000 00000000");
    }
    #[test]
    fn worn_out_pages_of_the_paper() {
        // Flash pages 56 and 59 are worn out. 67 already has data in it.
        let valid = place_positional(FlashPage(53), 0xFF, EIGHT_KIB, |p| ![56, 59, 67].contains(&p.0)).unwrap();
        let entry = positional(53, valid);
        assert_eq!(entry.to_string(), "11101101 00010000 00000010 00000000");
        assert_eq!(entry.place(3, EIGHT_KIB), Some(FlashPage(64)));
        assert_eq!(entry.place(6, EIGHT_KIB), Some(FlashPage(75)));
        assert_eq!(entry.place(7, EIGHT_KIB), Some(FlashPage(60)));
        assert_eq!(entry.subpages(EIGHT_KIB), 0xFF);
    }
    #[test]
    fn two_dirty_segments_of_the_paper() {
        let valid = place_positional(FlashPage(17), 0b10_0100, EIGHT_KIB, |_| true).unwrap();
        let entry = positional(17, valid);
        assert_eq!(entry.to_string(), "00100100 00000000 00000000 00000000");
        assert_eq!(entry.place(2, EIGHT_KIB), Some(FlashPage(19)));
        assert_eq!(entry.place(5, EIGHT_KIB), Some(FlashPage(22)));
        assert_eq!(entry.place(0, EIGHT_KIB), None);
    }
    #[test]
    fn distances_of_the_paper() {
        for (distance, printed) in [
            (3, "00100100 00000000 00000000 00000000"),
            (5, "00000100 00100000 00000000 00000000"),
            (11, "00100000 00000100 00000000 00000000"),
            (13, "00000100 00000000 00100000 00000000"),
            (19, "00100000 00000000 00000100 00000000"),
            (21, "00000100 00000000 00000000 00100000"),
            (27, "00100000 00000000 00000000 00000100"),
        ] {
            let bits = printed.chars().filter(|c| *c != ' ').enumerate().filter(|(_, c)| *c == '1');
            let entry = positional(0, bits.fold(0, |valid, (bit, _)| valid | (1 << bit)));
            let (two, five) = (entry.place(2, EIGHT_KIB).unwrap().0, entry.place(5, EIGHT_KIB).unwrap().0);
            assert_eq!(two.abs_diff(five), distance);
            assert_eq!(entry.subpages(EIGHT_KIB), 0b10_0100);
            assert_eq!(entry.to_string(), printed);
        }
    }
    #[test]
    fn no_place_is_left() {
        assert_eq!(place_positional(FlashPage(0), 1, EIGHT_KIB, |p| p.0 % 8 != 0), None);
        // The fourth place is the last.
        assert_eq!(place_positional(FlashPage(0), 1, EIGHT_KIB, |p| p.0 == 24), Some(1 << 24));
    }
    #[test]
    fn fields_have_the_widths_of_the_paper() {
        let all = PageEntry::new(FlashPage(u64::MAX), EntryIndex(u32::MAX), u32::MAX, u32::MAX, Status(0x3F));
        assert_eq!(all.start().0, (1 << 34) - 1);
        assert_eq!(all.previous().0, (1 << 30) - 1);
        assert_eq!(all.time(), (1 << 24) - 1);
        let bytes = PageEntry::new(FlashPage(1), EntryIndex(0), 0, 0, Status(0)).to_bytes();
        assert_eq!(bytes, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    #[test]
    fn a_status_without_meaning_is_refused() {
        let mut bytes = PageEntry::default().to_bytes();
        bytes[15] = 0x40;
        assert_eq!(PageEntry::from_bytes(bytes), None);
    }
    #[test]
    fn times_around_the_wrap() {
        let base = 1 << 24;
        assert_eq!(full_time(0xFF_FFFF, base + 5), base - 1);
        assert_eq!(full_time(3, base + 5), base + 3);
        assert_eq!(full_time(9, base + 5), base + 9);
        assert_eq!(full_time(7, base - 2), base + 7);
        assert_eq!(full_time(0, 0), 0);
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(start in 0..1u64 << 34, previous in 0..1u32 << 30, valid: u32, time in 0..1u32 << 24, status in 0..64u8) {
            let entry = PageEntry::new(FlashPage(start), EntryIndex(previous), valid, time, Status(status));
            prop_assert_eq!(PageEntry::from_bytes(entry.to_bytes()), Some(entry));
            prop_assert_eq!((entry.start().0, entry.previous().0, entry.valid(), entry.time(), entry.status().bits()), (start, previous, valid, time, status));
        }
        #[test]
        fn packed_subpages_are_contiguous(valid in 1..1u32 << 16) {
            let entry = PageEntry::new(FlashPage(100), EntryIndex::NONE, valid, 0, Status::PACKED);
            let places: Vec<_> = (0..16).filter_map(|s| entry.place(s, 16)).map(|p| p.0).collect();
            prop_assert_eq!(&places, &(100..100 + u64::from(valid.count_ones())).collect::<Vec<_>>());
        }
        #[test]
        fn full_times_are_found(token in 0..u64::MAX >> 1, off in -(1i64 << 23)..1 << 23) {
            let near = token.saturating_add_signed(off);
            prop_assume!(near.abs_diff(token) < 1 << 23);
            prop_assert_eq!(full_time(token as u32 & 0xFF_FFFF, near), token);
        }
    }
}
