//! The directory of a pool: what is handed out of its address space, and the named roots of
//! programs' data.
//!
//! It is the first page of the address space, data like all else there: versions of it are kept and
//! rolled back with the rest. Its first subpage is the header, the other fifteen hold sixteen
//! entries each.
//!
//! ```text
//! header                                       entry, 256 bytes
//! offset  bytes                                offset  bytes
//!      0      8  magic "FULGDIR\0"                  0      4  CRC32C of the other 252 bytes
//!      8      2  version: 1                         4      1  1: used. A free entry is all zeros
//!     10      2  free ranges, n                     5      1  bytes of the name
//!     12      4  CRC32C, these four zero            6      1  bytes of the type's name
//!     16      4  pages of the address space         7      1  zero
//!     20      4  first page never handed out        8      8  address
//!     24     40  zero                              16      8  bytes there
//!     64    8 n  free ranges, ascending,           24      8  first part of the type: size 4, align 4
//!                none touches the next:            32      8  second part; zeros: none
//!                first page 4, pages 4             40     96  name, UTF-8, zeros behind it
//!                                                 136    120  name of the type, likewise
//! ```
//! All numbers are little-endian. What is not drawn is zero.

use crate::{Address, PAGE_BYTES, PageBuffer, SUBPAGE_BYTES, crc32c, zero_page};

/// Roots that a directory holds at most.
pub const ROOTS_MAX: usize = (PAGE_BYTES / SUBPAGE_BYTES - 1) * (SUBPAGE_BYTES / ROOT_ENTRY_BYTES);
/// Bytes of an entry.
pub const ROOT_ENTRY_BYTES: usize = 256;
/// Bytes of a root's name at most.
pub const ROOT_NAME_MAX: usize = TYPE_AT - NAME_AT;
/// Bytes of the name of a root's type at most.
pub const ROOT_TYPE_MAX: usize = ROOT_ENTRY_BYTES - TYPE_AT;
/// Free ranges that a directory remembers at most.
pub const FREE_RANGES_MAX: usize = (SUBPAGE_BYTES - RANGES_AT) / 8;
/// The version that is written. Higher ones are refused.
pub const DIRECTORY_VERSION: u16 = 1;

const MAGIC: [u8; 8] = *b"FULGDIR\0";
const RANGES_AT: usize = 64;
const NAME_AT: usize = 40;
const TYPE_AT: usize = 136;

/// Why bytes are no part of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotDirectory {
    /// Something else is stored there.
    #[error("there is no directory")]
    Magic,
    /// A newer program wrote it.
    #[error(
        "the directory is of version {0}, and this program knows versions up to {DIRECTORY_VERSION}; use a newer one"
    )]
    Version(u16),
    /// It was damaged.
    #[error("its checksum is wrong")]
    Checksum,
    /// Its checksum is right and what it says cannot be.
    #[error("its content is invalid")]
    Malformed,
}

/// Contiguous pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRange {
    /// The first one.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// What is handed out of an address space.
///
/// Invariants: free ranges ascend, do not touch, and are between the directory's page and `next`.
/// `next` is at most `pages`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Space {
    /// Pages that there are, the directory's own included.
    pub pages: u32,
    /// The first page that was never handed out.
    pub next: u32,
    /// Pages below `next` that were given back.
    pub free: Vec<PageRange>,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as many bytes as were taken")
}
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(number(bytes, at))
}

impl Space {
    /// A space of `pages` of which only the directory's own page is in use.
    pub fn new(pages: u32) -> Space {
        Space { pages, next: 1, free: Vec::new() }
    }

    fn is_sound(&self) -> bool {
        let mut end = 0u64;
        let ordered = self.free.iter().all(|range| {
            let apart = u64::from(range.first) > end && range.first > 0 && range.count > 0;
            end = u64::from(range.first) + u64::from(range.count);
            apart
        });
        // What ends where nothing was ever handed out is not a range, but part of that.
        ordered && (end < u64::from(self.next)) && self.next >= 1 && self.next <= self.pages
    }

    /// Takes `count` contiguous pages: from the first range given back that has enough of them, or
    /// new ones. None: there are not enough.
    pub fn take(&mut self, count: u32) -> Option<PageRange> {
        if count == 0 {
            return None;
        }
        if let Some(i) = self.free.iter().position(|range| range.count >= count) {
            let taken = PageRange { first: self.free[i].first, count };
            self.free[i].first += count;
            self.free[i].count -= count;
            if self.free[i].count == 0 {
                self.free.remove(i);
            }
            return Some(taken);
        }
        let end = self.next.checked_add(count).filter(|&end| end <= self.pages)?;
        let first = std::mem::replace(&mut self.next, end);
        Some(PageRange { first, count })
    }

    /// Takes pages back. False, and nothing is changed, when they were not all handed out. Where
    /// more ranges are free than can be remembered, the smallest is forgotten: its addresses are
    /// not handed out again.
    pub fn give_back(&mut self, range: PageRange) -> bool {
        let Some(end) = range.first.checked_add(range.count) else { return false };
        let place = self.free.partition_point(|free| free.first < range.first);
        let before = place.checked_sub(1).map(|i| self.free[i]);
        let after = self.free.get(place).copied();
        let apart = before.is_none_or(|b| b.first + b.count <= range.first) && after.is_none_or(|a| end <= a.first);
        if range.count == 0 || range.first == 0 || end > self.next || !apart {
            return false;
        }
        self.free.insert(place, range);
        if after.is_some_and(|a| a.first == end) {
            self.free[place].count += self.free.remove(place + 1).count;
        }
        if before.is_some_and(|b| b.first + b.count == range.first) {
            let joined = self.free.remove(place);
            self.free[place - 1].count += joined.count;
        }
        if let Some(last) = self.free.last().copied().filter(|last| last.first + last.count == self.next) {
            self.free.pop();
            self.next = last.first;
        }
        if self.free.len() > FREE_RANGES_MAX {
            let smallest = (0..self.free.len()).min_by_key(|&i| self.free[i].count).expect("there are many");
            self.free.remove(smallest);
        }
        true
    }

    /// Whether all these pages are handed out.
    pub fn has_handed_out(&self, range: PageRange) -> bool {
        let end = u64::from(range.first) + u64::from(range.count);
        range.count > 0
            && range.first > 0
            && end <= u64::from(self.next)
            && self.free.iter().all(|f| end <= f.first.into() || f.first + f.count <= range.first)
    }

    /// Pages that can still be handed out.
    pub fn free_pages(&self) -> u32 {
        self.pages - self.next + self.free.iter().map(|range| range.count).sum::<u32>()
    }

    /// The header.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn encode(&self) -> PageBuffer {
        assert!(self.is_sound() && self.free.len() <= FREE_RANGES_MAX, "a directory that cannot be: {self:?}");
        // Not on the stack, because the stacks of fibers are small.
        let mut bytes = zero_page();
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&DIRECTORY_VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(self.free.len() as u16).to_le_bytes());
        bytes[16..20].copy_from_slice(&self.pages.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.next.to_le_bytes());
        for (range, into) in self.free.iter().zip(bytes[RANGES_AT..].chunks_exact_mut(8)) {
            into[..4].copy_from_slice(&range.first.to_le_bytes());
            into[4..].copy_from_slice(&range.count.to_le_bytes());
        }
        let sum = crc32c(&*bytes);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// From the header. None: nothing was ever written there.
    pub fn decode(bytes: &[u8; SUBPAGE_BYTES]) -> Result<Option<Space>, NotDirectory> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        if bytes[..8] != MAGIC {
            return Err(NotDirectory::Magic);
        }
        let mut plain = bytes.to_vec();
        plain[12..16].fill(0);
        if crc32c(&plain) != u32_at(bytes, 12) {
            return Err(NotDirectory::Checksum);
        }
        match u16::from_le_bytes(number(bytes, 8)) {
            0 => return Err(NotDirectory::Malformed),
            DIRECTORY_VERSION => {}
            newer => return Err(NotDirectory::Version(newer)),
        }
        let count = usize::from(u16::from_le_bytes(number(bytes, 10)));
        if count > FREE_RANGES_MAX {
            return Err(NotDirectory::Malformed);
        }
        let free = bytes[RANGES_AT..].chunks_exact(8).take(count);
        let free = free.map(|range| PageRange { first: u32_at(range, 0), count: u32_at(range, 4) }).collect();
        let space = Space { pages: u32_at(bytes, 16), next: u32_at(bytes, 20), free };
        if space.is_sound() { Ok(Some(space)) } else { Err(NotDirectory::Malformed) }
    }
}

/// Size and alignment of a part of a type, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TypePart {
    /// Its size.
    pub size: u32,
    /// Its alignment. 0: there is no such part.
    pub align: u32,
}

impl TypePart {
    /// Size and alignment of a type.
    pub const fn of<T>() -> TypePart {
        TypePart { size: size_of::<T>() as u32, align: align_of::<T>() as u32 }
    }
}

/// A named root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootEntry {
    /// Its name, 1 to [`ROOT_NAME_MAX`] bytes.
    pub name: String,
    /// The name of its type, 1 to [`ROOT_TYPE_MAX`] bytes.
    pub type_name: String,
    /// What the type is made of: itself, or key and value.
    pub parts: [TypePart; 2],
    /// Where it is stored.
    pub address: Address,
    /// How many bytes are its own there.
    pub bytes: u64,
}

impl RootEntry {
    /// The entry.
    ///
    /// # Panics
    /// When a name is empty or too long.
    pub fn encode(&self) -> [u8; ROOT_ENTRY_BYTES] {
        let (name, type_name) = (self.name.as_bytes(), self.type_name.as_bytes());
        assert!((1..=ROOT_NAME_MAX).contains(&name.len()) && (1..=ROOT_TYPE_MAX).contains(&type_name.len()));
        let mut bytes = [0; ROOT_ENTRY_BYTES];
        bytes[4..8].copy_from_slice(&[1, name.len() as u8, type_name.len() as u8, 0]);
        bytes[8..16].copy_from_slice(&self.address.bits().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        for (part, into) in self.parts.iter().zip(bytes[24..NAME_AT].chunks_exact_mut(8)) {
            into[..4].copy_from_slice(&part.size.to_le_bytes());
            into[4..].copy_from_slice(&part.align.to_le_bytes());
        }
        bytes[NAME_AT..NAME_AT + name.len()].copy_from_slice(name);
        bytes[TYPE_AT..TYPE_AT + type_name.len()].copy_from_slice(type_name);
        let sum = crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// From an entry. None: it is free.
    pub fn decode(bytes: &[u8; ROOT_ENTRY_BYTES]) -> Result<Option<RootEntry>, NotDirectory> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        if crc32c(&bytes[4..]) != u32_at(bytes, 0) {
            return Err(NotDirectory::Checksum);
        }
        let text = |at: usize, len: u8, max: usize| {
            let len = usize::from(len);
            let (text, rest) = bytes[at..at + max].split_at_checked(len).ok_or(NotDirectory::Malformed)?;
            let sound = len > 0 && rest.iter().all(|&byte| byte == 0);
            let text = std::str::from_utf8(text).map_err(|_| NotDirectory::Malformed)?;
            if sound { Ok(text.to_owned()) } else { Err(NotDirectory::Malformed) }
        };
        if bytes[4] != 1 || bytes[7] != 0 {
            return Err(NotDirectory::Malformed);
        }
        let part = |at| TypePart { size: u32_at(bytes, at), align: u32_at(bytes, at + 4) };
        Ok(Some(RootEntry {
            name: text(NAME_AT, bytes[5], ROOT_NAME_MAX)?,
            type_name: text(TYPE_AT, bytes[6], ROOT_TYPE_MAX)?,
            parts: [part(24), part(32)],
            address: Address::from_bits(u64::from_le_bytes(number(bytes, 8))),
            bytes: u64::from_le_bytes(number(bytes, 16)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> RootEntry {
        RootEntry {
            name: "users".into(),
            type_name: "hash map of u64 to [u8; 56]".into(),
            parts: [TypePart::of::<u64>(), TypePart::of::<[u8; 56]>()],
            address: Address::from_linear(0x30000),
            bytes: 1 << 20,
        }
    }

    #[test]
    fn limits_are_those_drawn() {
        assert_eq!((ROOTS_MAX, ROOT_NAME_MAX, ROOT_TYPE_MAX, FREE_RANGES_MAX), (240, 96, 120, 504));
    }
    #[test]
    fn entries_come_back_and_every_flipped_bit_is_found() {
        let bytes = entry().encode();
        assert_eq!(RootEntry::decode(&bytes), Ok(Some(entry())));
        assert_eq!(RootEntry::decode(&[0; ROOT_ENTRY_BYTES]), Ok(None));
        for bit in 0..8 * ROOT_ENTRY_BYTES {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RootEntry::decode(&bad), Err(NotDirectory::Checksum), "bit {bit}");
        }
    }
    #[test]
    fn every_flipped_bit_of_a_header_is_found() {
        let space = Space { pages: 900, next: 400, free: vec![PageRange { first: 7, count: 3 }] };
        let bytes = space.encode();
        assert_eq!(Space::decode(&bytes), Ok(Some(space)));
        for bit in 0..8 * SUBPAGE_BYTES {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Space::decode(&bad).is_err(), "bit {bit}");
        }
    }
    #[test]
    fn what_cannot_be_is_refused_though_its_checksum_is_right() {
        let mut header = *Space::new(10).encode();
        let with_sum = |mut bytes: [u8; SUBPAGE_BYTES]| {
            bytes[12..16].fill(0);
            let sum = crc32c(&bytes);
            bytes[12..16].copy_from_slice(&sum.to_le_bytes());
            Space::decode(&bytes)
        };
        header[8] = 2;
        assert_eq!(with_sum(header), Err(NotDirectory::Version(2)));
        header[8] = 1;
        for (at, value) in [(10, 1), (11, 255), (20, 0), (20, 11)] {
            let mut bad = header;
            bad[at] = value;
            assert_eq!(with_sum(bad), Err(NotDirectory::Malformed), "byte {at} = {value}");
        }
        let space = |free: &[(u32, u32)]| {
            let free = free.iter().map(|&(first, count)| PageRange { first, count }).collect();
            Space { pages: 40, next: 20, free }
        };
        for good in [&[(1, 1), (3, 1)][..], &[(2, 17)], &[(18, 1)]] {
            assert_eq!(Space::decode(&space(good).encode()), Ok(Some(space(good))));
        }
        // Side by side, one over the other, out of order, empty, of the directory's page, up to
        // what was never handed out.
        for bad in [&[(1, 2), (3, 1)][..], &[(1, 3), (3, 1)], &[(3, 1), (1, 1)], &[(5, 0)], &[(0, 1)], &[(18, 2)]] {
            assert!(!space(bad).is_sound(), "{bad:?}");
        }
        // A name that is no text, or none. A type without a name.
        let no_text = |bytes: &mut [u8; ROOT_ENTRY_BYTES]| bytes[NAME_AT] = 0xFF;
        let none = |bytes: &mut [u8; ROOT_ENTRY_BYTES]| {
            bytes[5] = 0;
            bytes[NAME_AT..NAME_AT + ROOT_NAME_MAX].fill(0);
        };
        for spoil in [no_text, none] {
            let mut bad = entry().encode();
            spoil(&mut bad);
            let sum = crc32c(&bad[4..]);
            bad[..4].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(RootEntry::decode(&bad), Err(NotDirectory::Malformed));
        }
    }
    #[test]
    fn taking_and_giving_back_agrees_with_a_bitmap() {
        let (mut space, mut used, mut random) = (Space::new(60), [false; 60], fulgurite_testkit::Random(11));
        let mut held: Vec<PageRange> = Vec::new();
        used[0] = true;
        for _ in 0..5000 {
            let pick = random.next() as u32;
            if pick.is_multiple_of(2) || held.is_empty() {
                if let Some(range) = space.take(1 + pick / 2 % 7) {
                    let pages = range.first as usize..(range.first + range.count) as usize;
                    assert!(used[pages.clone()].iter().all(|used| !used), "handed out twice: {range:?}");
                    used[pages].fill(true);
                    held.push(range);
                }
            } else {
                let range = held.swap_remove(pick as usize / 2 % held.len());
                assert!(space.has_handed_out(range));
                assert!(space.give_back(range) && !space.give_back(range) && !space.has_handed_out(range));
                used[range.first as usize..(range.first + range.count) as usize].fill(false);
            }
            assert_eq!(space.free_pages() as usize, used.iter().filter(|used| !**used).count());
            assert_eq!(Space::decode(&space.encode()), Ok(Some(space.clone())));
        }
        assert!(!space.give_back(PageRange { first: 0, count: 1 }), "the directory's own page");
    }
    #[test]
    fn with_too_many_ranges_the_smallest_is_forgotten() {
        let mut space = Space::new(10_000);
        space.take(9_000).unwrap();
        for i in 0..=FREE_RANGES_MAX as u32 {
            assert!(space.give_back(PageRange { first: 1 + 4 * i, count: if i == 5 { 1 } else { 2 } }));
        }
        assert_eq!(space.free.len(), FREE_RANGES_MAX);
        assert!(space.free.iter().all(|range| range.count == 2));
    }
}
