//! Border nodes: the leaves of a layer's tree.
//!
//! ```text
//!  0      8      16      32       152      272      288       304             512
//! +------+------+-------+--------+--------+--------+---------+---------------+
//! | head | next | kinds | slices | values | starts | lengths | suffixes      |
//! |      |      | 15 x 1| 15 x 8 | 15 x 8 | 15 x 1 | 15 x 1  | 208 bytes     |
//! +------+------+-------+--------+--------+--------+---------+---------------+
//! ```
//!
//! An entry is a slice (eight bytes of the key, the first one highest, so that slices compare as
//! the bytes do) and a kind. Kinds 0 to 8: the key ends with that many bytes of the slice.
//! Otherwise its rest is in this node's suffixes, in a record of its own, or in the layer below.
//! The value is the caller's, or the address of the record or layer.
//!
//! Invariants: entries ascend by slice, then by kind. Keys that continue come last, at most one for
//! a slice. All entries of a slice are in one node. Bytes of a slice beyond the key's end are zero.

use crate::tree::Leaf;
use crate::tree::check::{Breach, check_keys};
use crate::tree::node::{Head, NEXT, next, partition};
use crate::tree::structure::cutting_place;
use crate::{Address, View, ViewMut};

/// Bytes of a border node: an eighth of a subpage.
pub(super) const BORDER_BYTES: usize = 512;
/// Entries of a border node (Mao, Kohler, Morris, section 4.2: 15 keys).
pub(super) const CAPACITY: usize = 15;
const KINDS: usize = 16;
const SLICES: usize = 32;
const VALUES: usize = SLICES + 8 * CAPACITY;
const STARTS: usize = VALUES + 8 * CAPACITY;
const LENGTHS: usize = STARTS + 16;
const SUFFIXES: usize = LENGTHS + 16;
/// Bytes of all suffixes that are in a node.
pub(super) const SUFFIX_BYTES: usize = BORDER_BYTES - SUFFIXES;
const _: () = assert!(SUFFIX_BYTES <= u8::MAX as usize);

/// The key goes on; its rest is in this node.
pub(super) const SUFFIX: u8 = 9;
/// The key goes on; its rest and its value are in a record of their own.
pub(super) const RECORD: u8 = 10;
/// Keys go on in the layer below.
pub(super) const LAYER: u8 = 11;

/// One entry of a border node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub slice: u64,
    pub kind: u8,
    pub value: u64,
    /// Where the suffix is, for [`SUFFIX`].
    pub start: u8,
    pub length: u8,
}

impl Entry {
    /// An entry without a suffix in the node.
    pub fn plain(slice: u64, kind: u8, value: u64) -> Entry {
        Entry { slice, kind, value, start: 0, length: 0 }
    }
    #[inline(always)]
    pub fn read(view: &View<'_>, index: usize) -> Entry {
        Entry {
            slice: view.load(SLICES + 8 * index),
            kind: view.load(KINDS + index),
            value: view.load(VALUES + 8 * index),
            start: view.load(STARTS + index),
            length: view.load(LENGTHS + index),
        }
    }
    /// Its place among the entries of its slice.
    #[inline(always)]
    pub fn rank(&self) -> u8 {
        self.kind.min(SUFFIX)
    }
    #[inline(always)]
    fn place(&self) -> (u64, u8) {
        (self.slice, self.rank())
    }
    /// The bytes that the key's suffix has in this node.
    #[inline]
    pub fn suffix<'b>(&self, view: &View<'_>, buffer: &'b mut [u8; SUFFIX_BYTES]) -> &'b [u8] {
        // While another worker writes, these may be any numbers.
        let start = usize::from(self.start).min(SUFFIX_BYTES);
        let length = usize::from(self.length).min(SUFFIX_BYTES - start);
        view.copy_to(SUFFIXES + start, &mut buffer[..length]);
        &buffer[..length]
    }
}

/// The slice at the front of `key`, and the rank of its entry: how many bytes it has, or [`SUFFIX`]
/// if it continues.
#[inline(always)]
pub(super) fn slice_of(key: &[u8]) -> (u64, u8) {
    if let Some((first, rest)) = key.split_first_chunk::<8>() {
        return (u64::from_be_bytes(*first), if rest.is_empty() { 8 } else { SUFFIX });
    }
    let mut bytes = [0; 8];
    bytes[..key.len()].copy_from_slice(key);
    (u64::from_be_bytes(bytes), key.len() as u8)
}

/// How many of the `count` entries come before an entry for this slice and rank.
#[inline(always)]
pub(super) fn position(view: &View<'_>, count: usize, slice: u64, rank: u8) -> usize {
    let mut index = partition(view, SLICES, count, |s| s < slice);
    while index < count && Entry::read(view, index).place() < (slice, rank) {
        index += 1;
    }
    index
}

/// Sets the value of the entry at `index`.
pub(super) fn set_value(view: &ViewMut<'_>, index: usize, value: u64) {
    view.store(VALUES + 8 * index, value);
}

/// A border node taken apart.
#[derive(Clone, Debug)]
pub(super) struct BorderImage {
    pub next: Address,
    pub entries: Vec<Entry>,
    /// What the entries' `start` and `length` refer to.
    pub suffixes: Vec<u8>,
}

impl BorderImage {
    pub fn empty() -> Self {
        BorderImage { next: Address::NULL, entries: Vec::with_capacity(CAPACITY), suffixes: Vec::new() }
    }
    fn suffix_bytes(&self) -> usize {
        self.entries.iter().map(|e| usize::from(e.length)).sum()
    }
    /// Whether a suffix of this length fits next to the existing ones.
    pub fn has_room_for(&self, suffix: usize) -> bool {
        self.suffix_bytes() + suffix <= SUFFIX_BYTES
    }
    /// Puts an entry with its suffix at `index`. There must be room.
    pub fn insert_with_suffix(&mut self, index: usize, slice: u64, value: u64, suffix: &[u8]) {
        self.pack();
        let (start, length) = (self.suffixes.len() as u8, suffix.len() as u8);
        self.suffixes.extend_from_slice(suffix);
        self.entries.insert(index, Entry { slice, kind: SUFFIX, value, start, length });
    }
    /// Lays the suffixes side by side.
    fn pack(&mut self) {
        let mut packed = Vec::with_capacity(SUFFIX_BYTES);
        for entry in &mut self.entries {
            let start = packed.len() as u8;
            packed.extend_from_slice(&self.suffixes[usize::from(entry.start)..][..usize::from(entry.length)]);
            entry.start = start;
        }
        self.suffixes = packed;
    }
    pub fn to_bytes(&self) -> [u8; BORDER_BYTES] {
        let mut bytes = [0; BORDER_BYTES];
        Border.write(self, &mut bytes);
        bytes
    }
}

/// The kind of leaf that a layer's tree has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Border;

impl Leaf for Border {
    type Image = BorderImage;

    #[inline(always)]
    fn capacity(&self) -> usize {
        CAPACITY
    }
    fn read(&self, view: &View<'_>, head: Head) -> BorderImage {
        let mut suffixes = vec![0; SUFFIX_BYTES];
        view.copy_to(SUFFIXES, &mut suffixes);
        let mut entries = Vec::with_capacity(CAPACITY);
        entries.extend((0..head.count).map(|i| Entry::read(view, i)));
        for entry in &mut entries {
            // As in `Entry::suffix`.
            entry.start = entry.start.min(SUFFIX_BYTES as u8);
            entry.length = entry.length.min(SUFFIX_BYTES as u8 - entry.start);
        }
        BorderImage { next: next(view), entries, suffixes }
    }
    fn write(&self, image: &BorderImage, bytes: &mut [u8]) {
        assert!(image.entries.len() <= CAPACITY, "a border node has {CAPACITY} entries");
        let mut put = |at: usize, from: &[u8]| bytes[at..at + from.len()].copy_from_slice(from);
        put(0, &Head { level: 0, count: image.entries.len() }.to_bits().to_ne_bytes());
        put(NEXT, &image.next.bits().to_ne_bytes());
        let mut start = 0u8;
        for (i, entry) in image.entries.iter().enumerate() {
            put(KINDS + i, &[entry.kind]);
            put(SLICES + 8 * i, &entry.slice.to_ne_bytes());
            put(VALUES + 8 * i, &entry.value.to_ne_bytes());
            put(STARTS + i, &[start]);
            put(LENGTHS + i, &[entry.length]);
            let suffix = &image.suffixes[usize::from(entry.start)..][..usize::from(entry.length)];
            put(SUFFIXES + usize::from(start), suffix);
            start += entry.length;
        }
    }
    fn next(image: &BorderImage) -> Address {
        image.next
    }
    fn link(image: &mut BorderImage, next: Address) {
        image.next = next;
    }
    fn cut(mut left: BorderImage, key: u64) -> (BorderImage, u64, BorderImage) {
        // Between two slices, as near as possible to the place. A full node has at least two,
        // because a slice has ten kinds.
        let slices: Vec<u64> = left.entries.iter().map(|e| e.slice).collect();
        let wanted = cutting_place(&slices, key);
        let places = (1..slices.len()).filter(|&i| slices[i - 1] != slices[i]);
        let at = places.min_by_key(|&i| i.abs_diff(wanted)).unwrap_or(wanted);
        let entries = left.entries.split_off(at);
        let right = BorderImage { next: left.next, entries, suffixes: left.suffixes.clone() };
        (left, slices[at], right)
    }
    fn join(&self, mut left: BorderImage, mut right: BorderImage) -> Option<BorderImage> {
        let either_empty = left.entries.is_empty() || right.entries.is_empty();
        let most = if either_empty { CAPACITY } else { CAPACITY * 3 / 4 };
        if left.entries.len() + right.entries.len() > most || !left.has_room_for(right.suffix_bytes()) {
            return None;
        }
        left.pack();
        right.pack();
        let shift = left.suffixes.len() as u8;
        left.entries.extend(right.entries.into_iter().map(|e| Entry { start: e.start + shift, ..e }));
        left.suffixes.extend(right.suffixes);
        left.next = right.next;
        Some(left)
    }
    fn check(&self, _: &View<'_>, image: &BorderImage, bounds: (u64, u64)) -> Result<(), Breach> {
        let mut slices: Vec<u64> = image.entries.iter().map(|e| e.slice).collect();
        slices.dedup();
        check_keys(&slices, bounds)?;
        if let Some(pair) = image.entries.windows(2).find(|pair| pair[0].place() >= pair[1].place()) {
            return Err(("border node (order of kinds)", pair[0].kind.into(), pair[1].kind.into()));
        }
        if image.suffix_bytes() > SUFFIX_BYTES {
            return Err(("border node (bytes of suffixes)", SUFFIX_BYTES as u64, image.suffix_bytes() as u64));
        }
        for entry in &image.entries {
            if entry.kind > LAYER {
                return Err(("border node (kind)", LAYER.into(), entry.kind.into()));
            }
            if (entry.kind == SUFFIX) != (entry.length > 0) {
                return Err(("border node (length of a suffix)", u64::from(entry.kind == SUFFIX), entry.length.into()));
            }
            if entry.kind < 8 && entry.slice << (8 * u32::from(entry.kind)) != 0 {
                return Err(("border node (bytes after the end of a key)", 0, entry.slice));
            }
        }
        Ok(())
    }
}
