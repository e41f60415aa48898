//! One table's words, in the order of their tags: open addressing over buckets of 64 bytes.
//!
//! ```text
//! home bucket of a tag = tag * buckets >> 28
//!
//! | 8 words | 8 words | 8 words | ..          a word is in its home bucket, or behind it:
//!   full      full      has room              every bucket from its home on is full
//! ```
//!
//! A word holds its tag, so the table is made anew with any number of buckets without its keys. It
//! grows by an eighth when it is seven eighths full, and shrinks by an eighth, to nine sixteenths,
//! when it is less than half full. So a key costs 9.1 to 10.5 bytes while a table grows, at any
//! size. uDepot (FAST '19) has the entries of 8 bytes, and doubles instead.
//!
//! Invariants:
//! * All buckets from a word's home to the one before its own are full. Behind the last bucket the
//!   first one follows. So a search ends at the first bucket with room.
//! * At most seven of eight slots are used, so there is such a bucket.
//!
//! Words that come in the order of tags, as from a checkpoint, would all have their homes at the
//! front of a table that is still small. So room for them is made before, by [`Table::reserve`].
//! Words that are removed in that order leave a part that is as dense as it was. Then the table
//! does not shrink before few are left.
//!
//! What it does not do: it compares no keys. Words with equal tags are all found.

use std::ops::{Deref, DerefMut};

use fulgurite_sys::Mapping;

use crate::planted::Planted;
use crate::word::{TAG_BITS, Tag, Word};

/// Words of a bucket, which is a line of the processor's cache.
const SLOTS: usize = 8;
/// Bytes of a bucket.
const BUCKET_BYTES: usize = SLOTS * size_of::<u64>();
/// Buckets of a page of DRAM.
const PAGE_BUCKETS: usize = 4096 / BUCKET_BYTES;
/// From here on a table is mapped by itself, in whole pages. A page is an eighth of this, so that
/// it grows by an eighth here too.
const MAPPED_BUCKETS: usize = 8 * PAGE_BUCKETS;
/// Words of two buckets after a table has shrunk.
const SHRUNK_WORDS_IN_TWO: usize = 9;
/// Words that a bucket may pass on to the next one when a table shrinks. Where tags are evenly
/// spread it passes on 20 at most, with a million buckets.
const PASSED_ON_MAX: usize = 64;
/// Words of the old table that are moved before their memory goes back.
const PART: usize = (64 << 10) / size_of::<u64>();

/// A table would have to grow, and has no DRAM for it. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the index needs {needed} bytes of DRAM and may have {allowed}; give it more, or remove keys")]
pub struct NoDram {
    /// Bytes that it would have.
    pub needed: usize,
    /// Bytes that it may have.
    pub allowed: usize,
}

/// Where a word is, until the table changes: [`Table::replace`] changes no other slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot(usize);

#[derive(Debug)]
enum Words {
    Boxed(Box<[u64]>),
    Mapped(Mapping<u64>),
}

impl Words {
    fn zeroed(buckets: usize) -> Words {
        let words = buckets * SLOTS;
        if buckets < MAPPED_BUCKETS {
            Words::Boxed(vec![0; words].into_boxed_slice())
        } else {
            Words::Mapped(Mapping::zeroed(words))
        }
    }
    fn discard(&mut self, range: std::ops::Range<usize>) {
        if let Words::Mapped(words) = self {
            words.discard(range);
        }
    }
}
impl Deref for Words {
    type Target = [u64];
    #[inline(always)]
    fn deref(&self) -> &[u64] {
        match self {
            Words::Boxed(words) => words,
            Words::Mapped(words) => words,
        }
    }
}
impl DerefMut for Words {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u64] {
        match self {
            Words::Boxed(words) => words,
            Words::Mapped(words) => words,
        }
    }
}

/// The words of one table. See the head of this file.
#[derive(Debug)]
pub struct Table {
    words: Words,
    buckets: usize,
    count: usize,
    /// It may shrink when it has fewer words than this.
    shrink_below: usize,
    planted: Option<Planted>,
}

impl Default for Table {
    fn default() -> Table {
        Table::new()
    }
}

impl Table {
    /// Bytes of DRAM of an empty one.
    pub const BYTES_MIN: usize = BUCKET_BYTES;

    /// An empty table of one bucket.
    pub fn new() -> Table {
        Table { words: Words::zeroed(1), buckets: 1, count: 0, shrink_below: 0, planted: None }
    }
    /// A bug on purpose.
    #[doc(hidden)]
    pub fn plant(&mut self, bug: Option<Planted>) {
        self.planted = bug;
    }
    /// Keys that it has words of.
    pub fn len(&self) -> usize {
        self.count
    }
    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// DRAM of its words.
    pub fn bytes(&self) -> usize {
        self.buckets * BUCKET_BYTES
    }
    /// What [`Table::bytes`] would be after one more word.
    pub fn bytes_after_insert(&self) -> usize {
        self.buckets_after_insert() * BUCKET_BYTES
    }
    fn buckets_after_insert(&self) -> usize {
        if self.count < Table::words_max(self.buckets) { self.buckets } else { self.larger() }
    }
    /// Seven eighths of the slots.
    fn words_max(buckets: usize) -> usize {
        buckets * (SLOTS - 1)
    }
    /// The next number of buckets up: an eighth more, in whole pages where the table is mapped.
    fn larger(&self) -> usize {
        if self.buckets < MAPPED_BUCKETS {
            // From there on whole pages are counted.
            (self.buckets + (self.buckets / SLOTS).max(1)).min(MAPPED_BUCKETS)
        } else {
            let pages = self.buckets / PAGE_BUCKETS;
            (pages + pages / SLOTS) * PAGE_BUCKETS
        }
    }
    /// The least number of buckets with this many words or fewer in two of them.
    fn buckets_for(words: usize, in_two: usize) -> usize {
        let buckets = (2 * words).div_ceil(in_two).max(1);
        if buckets < MAPPED_BUCKETS { buckets } else { buckets.next_multiple_of(PAGE_BUCKETS) }
    }
    #[inline]
    fn home(&self, tag: Tag) -> usize {
        home(tag, self.buckets)
    }
    #[inline]
    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets { 0 } else { bucket + 1 }
    }
    /// How many buckets behind `from` a bucket is.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.buckets - from }
    }
    #[inline]
    fn bucket(&self, bucket: usize) -> &[u64; SLOTS] {
        self.words[bucket * SLOTS..].first_chunk().expect("a bucket is inside the table")
    }
    fn is_full(&self, bucket: usize) -> bool {
        self.bucket(bucket).iter().all(|word| *word != 0)
    }

    /// The words that have this tag, with their slots.
    #[inline]
    pub fn find(&self, tag: Tag) -> Matches<'_> {
        let mut found = Matches { table: self, tag, bucket: self.home(tag), left: 0, ended: false };
        found.load();
        found
    }
    /// The word in a slot.
    ///
    /// # Panics
    /// When there is none.
    #[inline]
    pub fn word(&self, slot: Slot) -> Word {
        Word::from_bits(self.words[slot.0]).expect("a slot has a word until the table changes")
    }
    /// Another word of the same tag for a slot.
    ///
    /// # Panics
    /// When the slot has no word of this tag.
    #[inline]
    pub fn replace(&mut self, slot: Slot, word: Word) {
        assert_eq!(self.word(slot).tag(), word.tag(), "a word is replaced by one of another tag");
        self.words[slot.0] = word.bits();
    }
    /// Enters a word. Takes time for the whole table where it grows, which is once for each eighth
    /// of its words.
    ///
    /// # Errors
    /// [`NoDram`] where it would have to grow beyond `bytes_max` bytes. Nothing has changed then.
    pub fn insert(&mut self, word: Word, bytes_max: usize) -> Result<Slot, NoDram> {
        let buckets = self.buckets_after_insert();
        if buckets != self.buckets {
            let needed = buckets * BUCKET_BYTES;
            if needed > bytes_max {
                return Err(NoDram { needed, allowed: bytes_max });
            }
            self.rehash(buckets);
        }
        Ok(self.push(word))
    }
    /// Makes room for this many words in all, which then come in any order.
    ///
    /// # Errors
    /// As [`Table::insert`].
    pub fn reserve(&mut self, words: usize, bytes_max: usize) -> Result<(), NoDram> {
        let buckets = Table::buckets_for(words, 2 * (SLOTS - 1));
        let needed = buckets * BUCKET_BYTES;
        if buckets <= self.buckets {
            return Ok(());
        }
        if needed > bytes_max {
            return Err(NoDram { needed, allowed: bytes_max });
        }
        self.rehash(buckets);
        Ok(())
    }
    fn push(&mut self, word: Word) -> Slot {
        let mut bucket = self.home(word.tag());
        loop {
            if let Some(free) = self.bucket(bucket).iter().position(|word| *word == 0) {
                let slot = bucket * SLOTS + free;
                self.words[slot] = word.bits();
                self.count += 1;
                return Slot(slot);
            }
            bucket = self.next(bucket);
        }
    }
    /// Removes the word in a slot. Words that are behind their homes close up, so that searches
    /// need no mark.
    ///
    /// # Panics
    /// When the slot has no word.
    pub fn remove(&mut self, slot: Slot) {
        assert!(self.words[slot.0] != 0, "a slot without a word is emptied");
        let mut hole = slot.0;
        loop {
            let bucket = hole / SLOTS;
            let was_full = self.is_full(bucket);
            self.words[hole] = 0;
            if !was_full || self.planted == Some(Planted::RemovalLeavesHole) {
                break;
            }
            let Some(from) = self.word_past(bucket) else { break };
            self.words[hole] = self.words[from];
            hole = from;
        }
        self.count -= 1;
        if self.count < self.shrink_below {
            self.shrink();
        }
    }
    fn shrink(&mut self) {
        let buckets = Table::buckets_for(self.count, SHRUNK_WORDS_IN_TWO);
        if buckets >= self.buckets {
            return;
        }
        if self.passed_on_max(buckets) <= PASSED_ON_MAX {
            self.rehash(buckets);
        } else {
            // All words were counted for this, so it is not tried again soon.
            self.shrink_below = self.count - self.count / SLOTS;
        }
    }
    /// The most words that a bucket would pass on to the next one, with this number of buckets.
    /// Counting takes a byte for each of them.
    fn passed_on_max(&self, buckets: usize) -> usize {
        let mut counts = vec![0u8; buckets];
        for (_, word) in self.all() {
            let home = &mut counts[home(word.tag(), buckets)];
            *home = home.saturating_add(1);
        }
        let (mut passed_on, mut most) = (0, 0);
        // The last one passes on to the first one.
        for count in counts.iter().chain(&counts) {
            passed_on = (passed_on + usize::from(*count)).saturating_sub(SLOTS);
            most = most.max(passed_on);
        }
        most
    }
    /// The nearest word behind a bucket whose search comes past it.
    fn word_past(&self, bucket: usize) -> Option<usize> {
        let mut at = bucket;
        loop {
            at = self.next(at);
            let past = self.distance(bucket, at);
            let comes_past = |word: Word| self.distance(self.home(word.tag()), at) >= past;
            let found = self.bucket(at).iter().position(|bits| Word::from_bits(*bits).is_some_and(comes_past));
            if let Some(found) = found {
                return Some(at * SLOTS + found);
            }
            if !self.is_full(at) {
                return None;
            }
        }
    }
    /// Makes the table anew. Both are in the same order, so that the old one gives its memory back
    /// while the new one takes it.
    fn rehash(&mut self, buckets: usize) {
        let mut old = std::mem::replace(&mut self.words, Words::zeroed(buckets));
        (self.buckets, self.count, self.shrink_below) = (buckets, 0, buckets * (SLOTS / 2));
        let mut at = 0;
        while at < old.len() {
            let end = old.len().min(at + PART);
            for bits in &old[at..end] {
                if let Some(word) = Word::from_bits(*bits) {
                    self.push(word);
                }
            }
            old.discard(at..end);
            at = end;
        }
    }

    /// Adds the next words from a tag on to a list, in the order of their tags. Returns the tag
    /// from which the scan continues, or None at its end.
    ///
    /// These are the words of one home bucket: seven on average, or more where tags are equal. All
    /// words of a tag come at once. So a scan that continues returns each word that stays exactly
    /// once, whatever else is inserted or removed, and however often the table grows or shrinks.
    pub fn scan(&self, from: Tag, words: &mut Vec<Word>) -> Option<Tag> {
        let home = self.home(from);
        let first = words.len();
        let mut bucket = home;
        loop {
            let found = self.bucket(bucket).iter().filter_map(|bits| Word::from_bits(*bits));
            words.extend(found.filter(|word| word.tag() >= from && self.home(word.tag()) == home));
            if !self.is_full(bucket) {
                break;
            }
            bucket = self.next(bucket);
        }
        words[first..].sort_unstable_by_key(|word| word.tag());
        let next = ((home as u64 + 1) << TAG_BITS).div_ceil(self.buckets as u64);
        u32::try_from(next).ok().and_then(Tag::new)
    }
    /// All words with their slots, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Slot, Word)> {
        self.words.iter().enumerate().filter_map(|(at, bits)| Some((Slot(at), Word::from_bits(*bits)?)))
    }

    /// The most buckets that a search reads.
    #[doc(hidden)]
    pub fn longest_search(&self) -> usize {
        let searched = |(slot, word): (Slot, Word)| self.distance(self.home(word.tag()), slot.0 / SLOTS) + 1;
        self.all().map(searched).max().unwrap_or(0)
    }
    /// Checks everything: the number of words, that all are found, and that the size fits.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.words.len() != self.buckets * SLOTS {
            return Err(format!("{} words in {} buckets", self.words.len(), self.buckets));
        }
        let mut count = 0;
        for (slot, word) in self.all() {
            count += 1;
            if word.bits() as u32 == 0 {
                return Err(format!("the word {:#x} names no place", word.bits()));
            }
            let (home, bucket) = (self.home(word.tag()), slot.0 / SLOTS);
            let mut at = home;
            while at != bucket {
                if !self.is_full(at) {
                    return Err(format!("a word of home {home} is in {bucket}, and {at} has room"));
                }
                at = self.next(at);
            }
        }
        if count != self.count || count > Table::words_max(self.buckets) {
            return Err(format!("{count} words, {} counted, in {} buckets", self.count, self.buckets));
        }
        Ok(())
    }
}

/// The home bucket of a tag, of this number of buckets.
#[inline]
fn home(tag: Tag, buckets: usize) -> usize {
    ((u64::from(tag.number()) * buckets as u64) >> TAG_BITS) as usize
}

/// The words of one tag. [`Table::find`] makes it.
#[derive(Clone, Debug)]
pub struct Matches<'a> {
    table: &'a Table,
    tag: Tag,
    bucket: usize,
    /// Slots of this bucket that have the tag and are still to be returned, as bits.
    left: u32,
    /// This bucket has room, so that no other one follows.
    ended: bool,
}

impl Matches<'_> {
    #[inline(always)]
    fn load(&mut self) {
        let (mut left, mut ended) = (0, false);
        for (i, bits) in self.table.bucket(self.bucket).iter().enumerate() {
            let matches = Word::from_bits(*bits).is_some_and(|word| word.tag() == self.tag);
            left |= u32::from(matches) << i;
            ended |= *bits == 0;
        }
        (self.left, self.ended) = (left, ended);
    }
}

impl Iterator for Matches<'_> {
    type Item = (Slot, Word);
    #[inline]
    fn next(&mut self) -> Option<(Slot, Word)> {
        while self.left == 0 {
            if self.ended {
                return None;
            }
            self.bucket = self.table.next(self.bucket);
            self.load();
        }
        let slot = Slot(self.bucket * SLOTS + self.left.trailing_zeros() as usize);
        self.left &= self.left - 1;
        Some((slot, self.table.word(slot)))
    }
}
