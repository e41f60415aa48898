//! What the index holds of a key: one word of 64 bits.
//!
//! ```text
//!    63      62    61..60   59 ......... 32   31 ................... 0
//! | cached | read | span  |  tag, 28 bits   |  page, or unit plus one |
//! ```
//!
//! The word of a cold key names the page of flash in which its record begins. The word of a cached
//! one names the entry that holds the record, and the entry names the page. Zero is no word.

use std::num::{NonZeroU32, NonZeroU64};

/// How many of the hash's top bits may choose the shard. The tag is taken from behind them.
pub const SHARD_BITS: u32 = 6;
/// Bits of a tag.
pub const TAG_BITS: u32 = 28;

const CACHED: u64 = 1 << 63;
const READ: u64 = 1 << 62;
const SPAN_SHIFT: u32 = 60;
const TAG_SHIFT: u32 = 32;

/// The hash of a key. The driver hashes, with one function for all keys of a table. Its seed is
/// secret where strangers choose keys, because those with equal tags are searched one by one. Each
/// table has another one, so that keys that are copied from table to table come in no order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// The shard of the key, of `1 << bits` shards.
    ///
    /// # Panics
    /// When there are more bits than [`SHARD_BITS`].
    pub fn shard(self, bits: u32) -> usize {
        assert!(bits <= SHARD_BITS, "{bits} bits for the shard, of at most {SHARD_BITS}");
        (u128::from(self.0) << bits >> 64) as usize
    }
    /// The tag of the key.
    #[inline]
    pub fn tag(self) -> Tag {
        Tag((self.0 << SHARD_BITS >> (64 - TAG_BITS)) as u32)
    }
}

/// The 28 bits of a key's hash that the index keeps. Tables are in the order of tags.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(u32);

impl Tag {
    /// Where a scan of a whole table begins.
    pub const FIRST: Tag = Tag(0);
    /// As a number below `1 << TAG_BITS`.
    pub fn number(self) -> u32 {
        self.0
    }
    /// The tag with this number. None where it has more bits.
    pub fn new(number: u32) -> Option<Tag> {
        (number >> TAG_BITS == 0).then_some(Tag(number))
    }
}

/// A page of the log on flash, of 4 KiB. Never zero, so that a word never is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogPage(NonZeroU32);

impl LogPage {
    /// The page with this number. None for page zero, which the log does not use.
    pub fn new(number: u32) -> Option<LogPage> {
        NonZeroU32::new(number).map(LogPage)
    }
    /// Its number.
    pub fn number(self) -> u32 {
        self.0.get()
    }
}

/// How many pages hold the whole record, so that one read brings all of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Span {
    /// The page in which it begins.
    One,
    /// That page and the next one.
    Two,
    /// Three or four pages.
    UpToFour,
    /// More: the head of the record has its length.
    More,
}

impl Span {
    const ALL: [Span; 4] = [Span::One, Span::Two, Span::UpToFour, Span::More];

    /// The span of this number of pages.
    pub fn of(pages: usize) -> Span {
        match pages {
            0..=1 => Span::One,
            2 => Span::Two,
            3..=4 => Span::UpToFour,
            _ => Span::More,
        }
    }
    /// How many pages a first read takes. All of the record is in them, except for
    /// [`Span::More`].
    pub fn pages(self) -> usize {
        [1, 2, 4, 4][self as usize]
    }
}

/// Where a record is on flash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// The page in which it begins.
    pub page: LogPage,
    /// How many pages hold all of it.
    pub span: Span,
}

/// Where an entry is in the cache's buffer, in units of [`crate::ring::UNIT`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryUnit(pub u32);

/// A key in the index. Its tag never changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Word(NonZeroU64);

impl Word {
    fn new(tag: Tag, span: Span, low: NonZeroU32, flags: u64) -> Word {
        let high = u64::from(tag.0) << TAG_SHIFT | (span as u64) << SPAN_SHIFT | flags;
        Word(NonZeroU64::from(low) | high)
    }
    /// The word of a key whose record is only on flash, and was not read since it was written.
    pub fn cold(tag: Tag, location: Location) -> Word {
        Word::new(tag, location.span, location.page.0, 0)
    }
    /// A word from what [`Word::bits`] gave, after it was stored. None where no cold word has these
    /// bits.
    pub fn from_cold_bits(bits: u64) -> Option<Word> {
        let word = Word::from_bits(bits)?;
        (!word.is_cached() && bits as u32 != 0).then_some(word)
    }
    /// All of it.
    pub fn bits(self) -> u64 {
        self.0.get()
    }
    /// Its tag.
    #[inline]
    pub fn tag(self) -> Tag {
        Tag((self.bits() >> TAG_SHIFT) as u32 & ((1 << TAG_BITS) - 1))
    }
    /// Whether the record is in the cache.
    #[inline]
    pub fn is_cached(self) -> bool {
        self.bits() & CACHED != 0
    }
    /// Whether the record was read since it was written.
    #[inline]
    pub fn was_read(self) -> bool {
        self.bits() & READ != 0
    }
    /// How many pages hold the record, cached or not.
    pub fn span(self) -> Span {
        Span::ALL[(self.bits() >> SPAN_SHIFT) as usize & 3]
    }
    /// Where the record is on flash. None where the word names an entry of the cache.
    pub fn location(self) -> Option<Location> {
        let page = LogPage::new(self.bits() as u32).filter(|_| !self.is_cached())?;
        Some(Location { page, span: self.span() })
    }

    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Option<Word> {
        NonZeroU64::new(bits).map(Word)
    }
    #[inline]
    pub(crate) fn with_read(self) -> Word {
        Word(self.0 | READ)
    }
    pub(crate) fn with_read_if(self, read: bool) -> Word {
        if read { self.with_read() } else { self }
    }
    /// The entry of a cached one.
    #[inline]
    pub(crate) fn entry(self) -> Option<EntryUnit> {
        self.is_cached().then(|| EntryUnit((self.bits() as u32).wrapping_sub(1)))
    }
    /// This key is in the cache from now on, in this entry.
    pub(crate) fn cached_at(self, entry: EntryUnit) -> Word {
        let low = NonZeroU32::new(entry.0 + 1).expect("entries are inside a buffer of fewer units");
        Word::new(self.tag(), self.span(), low, CACHED).with_read_if(self.was_read())
    }
    /// This key is only on flash from now on.
    pub(crate) fn cold_at(self, page: LogPage) -> Word {
        Word::new(self.tag(), self.span(), page.0, 0).with_read_if(self.was_read())
    }
    /// The record is stored in as many pages from now on.
    pub(crate) fn with_span(self, span: Span) -> Word {
        let rest = self.bits() & !(3 << SPAN_SHIFT);
        Word(NonZeroU64::new(rest).expect("a page or a unit is left") | (span as u64) << SPAN_SHIFT)
    }
    /// The record is another one from now on, which nobody has read.
    pub(crate) fn unread(self) -> Word {
        Word(NonZeroU64::new(self.bits() & !READ).expect("a page or a unit is left"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_its_parts() {
        let page = LogPage::new(u32::MAX).unwrap();
        for (tag, span) in [(0, Span::One), (1, Span::Two), (0x0FFF_FFFF, Span::UpToFour), (77, Span::More)] {
            let tag = Tag::new(tag).unwrap();
            let cold = Word::cold(tag, Location { page, span });
            assert_eq!((cold.tag(), cold.span(), cold.location()), (tag, span, Some(Location { page, span })));
            assert!(!cold.is_cached() && !cold.was_read() && cold.with_read().was_read());
            let cached = cold.with_read().cached_at(EntryUnit(0));
            assert_eq!((cached.tag(), cached.span(), cached.location()), (tag, span, None));
            assert_eq!(cached.entry().unwrap().0, 0);
            assert_eq!(cached.cold_at(page), cold.with_read());
            assert_eq!(Word::from_cold_bits(cold.bits()), Some(cold));
            assert_eq!(Word::from_cold_bits(cached.bits()), None);
            assert_eq!(cold.with_span(Span::Two).span(), Span::Two);
        }
        assert_eq!(Word::from_cold_bits(1 << TAG_SHIFT), None);
        assert_eq!(Tag::new(1 << TAG_BITS), None);
    }
    #[test]
    fn a_hash_gives_shard_and_tag_from_bits_of_their_own() {
        let hash = KeyHash(0b10_1101 << 58 | 0x0ABC_DEF1 << 30 | 0x3FFF_FFFF);
        assert_eq!((hash.shard(6), hash.shard(2), hash.shard(0)), (0b10_1101, 0b10, 0));
        assert_eq!(hash.tag().number(), 0x0ABC_DEF1);
    }
    #[test]
    fn spans_cover_their_pages() {
        assert!((1..=4).all(|pages| Span::of(pages).pages() >= pages));
        assert_eq!(Span::of(5), Span::More);
    }
}
