//! A shard: the words of its keys in all tables, and the records that it caches.
//!
//! A call either answers from DRAM, or returns the words of cold keys with the tag as
//! [`Cold`]. Then the driver reads the pages that they name without the shard's lock, and calls
//! again with what it found. Words that came in between are noticed, and returned again.
//!
//! # What the driver sees to
//! A word does not say which key it is of, and a page holds several records. So the driver packs
//! records into pages by these rules, which make words exact:
//! 1. A page has records of one key at most for each table and tag. A record of another key with
//!    this table and tag begins in another page, once in about 2^28 pairs.
//! 2. Of several records of one key in a page, the last one counts.
//! 3. A copy that reclaim makes begins in no page that has a record of its table and tag.
//!
//! So a word and a page together name one record, no order has to be kept among words of one tag,
//! and old records in a page never answer for a key that was removed. The shard refuses a put or a
//! move that would give two words of one table and tag the same page ([`Refused::SharesPage`]).
//! What it cannot see is an old record there, which no word leads to any more.

use crate::cache::{Cache, Counts};
use crate::planted::Planted;
use crate::record::{BadRecord, Record, TableId};
use crate::stamps::{Stamp, Stamps};
use crate::table::{NoDram, Slot};
use crate::tables::{TableIndex, Tables};
use crate::word::{KeyHash, Location, LogPage, Tag, Word};

/// A key that is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyRef<'a> {
    /// Its table.
    pub table: TableId,
    /// Its hash. One key always has the same.
    pub hash: KeyHash,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// A word that may be a key's, as it was when it was returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    word: Word,
    stamp: Stamp,
}

impl Candidate {
    /// The word. It is cold, so it has a location.
    pub fn word(&self) -> Word {
        self.word
    }
    /// Where the record is to be read.
    pub fn location(&self) -> Location {
        self.word.location().expect("only cold words are candidates")
    }
    /// Whether the word is the candidate's, and leads to the record that it led to then.
    fn is(&self, word: Word, stamps: &Stamps) -> bool {
        let location = word.location().filter(|location| location.page == self.location().page);
        location.is_some()
            && word.tag() == self.word.tag()
            && stamps.get(word.tag(), self.location().page) == self.stamp
    }
}

/// The cold words with a key's tag. Mostly there is one, and it is the key's. At most one is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cold {
    first: Option<Candidate>,
    others: Vec<Candidate>,
}

impl Cold {
    /// Each of them, to be read in any order.
    pub fn candidates(&self) -> impl Iterator<Item = Candidate> {
        self.first.into_iter().chain(self.others.iter().copied())
    }
    /// Adds the candidates of another one.
    pub fn extend(&mut self, other: &Cold) {
        other.candidates().for_each(|candidate| self.push(candidate));
    }
    fn push(&mut self, candidate: Candidate) {
        match self.first {
            None => self.first = Some(candidate),
            Some(_) => self.others.push(candidate),
        }
    }
}

/// What [`Shard::get`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found<R> {
    /// The record is cached, and this is what was made of it.
    Here(R),
    /// The key has one of these words, or none. Flash knows which.
    Cold(Cold),
    /// There is no such key.
    Absent,
}

/// A record that is not the key's any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Old {
    /// Where it is on flash.
    pub location: Location,
    /// Its length in bytes, where it was cached. The driver has read the others.
    pub bytes: Option<usize>,
}

/// What became of a put or a removal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Changed {
    /// There was no such key before.
    Absent,
    /// The key had this record.
    Replaced(Old),
    /// Nothing has changed. The driver reads these, and calls again with what it found.
    Unverified(Cold),
}

/// What the driver found in the pages of all candidates.
#[derive(Clone, Copy, Debug)]
pub struct Verified<'a> {
    /// The candidates, as they were returned.
    pub cold: &'a Cold,
    /// The one that is the key's. None where each is another key's.
    pub own: Option<Candidate>,
}

/// Why a put or a move cannot be. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The index has no DRAM for another key.
    #[error(transparent)]
    NoDram(#[from] NoDram),
    /// The table was dropped, or never added.
    #[error("there is no table {}", .0.0)]
    NoTable(TableId),
    /// Another key with the tag has a record in this page.
    #[error("page {} has the record of another key with the same tag; write it to another page", .0.number())]
    SharesPage(LogPage),
    /// The bytes are no record.
    #[error(transparent)]
    BadRecord(#[from] BadRecord),
}

/// See the head of this file.
pub struct Shard {
    tables: Tables,
    cache: Cache,
    stamps: Stamps,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (tables, records) = (self.tables.ids().len(), self.cache.records());
        f.debug_struct("Shard").field("tables", &tables).field("records", &records).finish_non_exhaustive()
    }
}

/// Where a key's word is.
enum Place {
    At(Slot, Word),
    Nowhere,
    Unverified(Cold),
}

impl Shard {
    /// An empty shard, whose cache takes at most `cache_bytes` bytes of DRAM, and whose index at
    /// most `index_bytes_max`. What it takes besides is in [`Shard::bytes`].
    ///
    /// # Panics
    /// When `cache_bytes` are outside of [`crate::CACHE_BYTES_MIN`] to [`crate::CACHE_BYTES_MAX`].
    pub fn new(cache_bytes: usize, index_bytes_max: usize) -> Shard {
        let (tables, cache) = (Tables::new(index_bytes_max), Cache::new(cache_bytes));
        Shard { tables, cache, stamps: Stamps::new() }
    }
    /// A bug on purpose.
    #[doc(hidden)]
    pub fn plant(&mut self, bug: Option<Planted>) {
        self.cache.planted = bug;
    }

    /// Adds an empty table, unless it is there.
    ///
    /// # Errors
    /// [`NoDram`].
    pub fn add_table(&mut self, id: TableId) -> Result<(), NoDram> {
        self.tables.add(id)
    }
    /// Drops a table with all its words and cached records. Returns how many keys it had. None
    /// where there is no such table.
    pub fn drop_table(&mut self, id: TableId) -> Option<usize> {
        let index = self.tables.index(id)?;
        let table = self.tables.drop(index);
        table.all().filter_map(|(_, word)| word.entry()).for_each(|entry| self.cache.kill(entry));
        self.stamps.count_all();
        Some(table.len())
    }
    /// The tables, in the order of their numbers.
    pub fn tables(&self) -> &[TableId] {
        self.tables.ids()
    }
    /// How many keys a table has. None where there is no such table.
    pub fn keys(&self, id: TableId) -> Option<usize> {
        Some(self.tables.get(self.tables.index(id)?).len())
    }

    /// Shows the record of a key, if it is cached. That counts as a use.
    #[inline]
    pub fn get<R>(&mut self, key: KeyRef<'_>, read: impl FnOnce(Record<'_>) -> R) -> Found<R> {
        let Some(index) = self.tables.index(key.table) else {
            self.cache.counts.absent += 1;
            return Found::Absent;
        };
        let (mut cold, mut hit) = (Cold::default(), None);
        for (slot, word) in self.tables.get(index).find(key.hash.tag()) {
            let Some(entry) = word.entry() else {
                cold.push(self.candidate(word));
                continue;
            };
            let (head, found) = self.cache.key(entry);
            if found == key.bytes {
                hit = Some((slot, word, entry, head));
                break;
            }
        }
        if let Some((slot, word, entry, head)) = hit {
            self.cache.counts.hits += 1;
            if !word.was_read() {
                self.tables.replace(index, slot, word.with_read());
            }
            self.cache.count_use(entry);
            return Found::Here(read(self.cache.record(entry, &head)));
        }
        if cold.first.is_none() {
            self.cache.counts.absent += 1;
            return Found::Absent;
        }
        self.cache.counts.misses += 1;
        Found::Cold(cold)
    }
    /// Whether a key is absent, after none of the candidates that [`Shard::get`] returned was its
    /// own. Else its record was written or moved meanwhile, and the driver calls
    /// [`Shard::get`] again.
    pub fn is_absent(&self, key: KeyRef<'_>, cold: &Cold) -> bool {
        matches!(self.replaces(key, Some(Verified { cold, own: None })), Changed::Absent)
    }
    /// What a put or a removal of a key would return. So a driver that has the shard's lock knows
    /// before it appends to the log whether the put that follows is [`Changed::Unverified`].
    pub fn replaces(&self, key: KeyRef<'_>, verified: Option<Verified<'_>>) -> Changed {
        let Some(index) = self.tables.index(key.table) else { return Changed::Absent };
        match self.find(index, key.hash.tag(), key.bytes, verified) {
            Place::Unverified(cold) => Changed::Unverified(cold),
            Place::Nowhere => Changed::Absent,
            Place::At(_, word) => Changed::Replaced(self.old(word)),
        }
    }
    fn candidate(&self, word: Word) -> Candidate {
        let page = word.location().expect("only cold words are candidates").page;
        Candidate { word, stamp: self.stamps.get(word.tag(), page) }
    }

    /// Caches what was read from flash for a key, where it is still its record. `record` begins
    /// with the record and may have other bytes behind it. Returns whether it is cached now.
    ///
    /// False where the bytes are no record of this key, as after a false tag, where the record was
    /// written anew, moved or removed since the candidate was returned, and where it is too long
    /// for the cache. Once in some hundred writes to the shard meanwhile, one of another key is
    /// taken for one of this key.
    pub fn admit(&mut self, key: KeyRef<'_>, candidate: Candidate, record: &[u8]) -> bool {
        let (Some(index), Ok(view)) = (self.tables.index(key.table), Record::view(record)) else { return false };
        let is_its = view.key == key.bytes && view.table == key.table && !view.removed;
        if !is_its && self.cache.planted != Some(Planted::OtherKeyEnters) {
            return false;
        }
        let mut words = self.tables.get(index).find(key.hash.tag());
        let is_there = |word: Word| match self.cache.planted {
            Some(Planted::OldReadEnters) => !word.is_cached(),
            Some(Planted::StampsAreIgnored) => word.location() == Some(candidate.location()),
            _ => candidate.is(word, &self.stamps),
        };
        let Some((slot, word)) = words.find(|(_, word)| is_there(*word)) else { return false };
        let (record, page) = (&record[..view.bytes()], word.location().expect("it is cold").page);
        self.tables.replace(index, slot, word.with_read());
        let returned = self.cache.insert(&mut self.tables, (index, slot), page, record);
        self.cache.counts.returned += u64::from(returned == Some(true));
        returned.is_some()
    }

    /// The word of a key, as far as DRAM and what was verified say.
    fn find(&self, index: TableIndex, tag: Tag, key: &[u8], verified: Option<Verified<'_>>) -> Place {
        let (mut unknown, mut own) = (Cold::default(), None);
        for (slot, word) in self.tables.get(index).find(tag) {
            if let Some(entry) = word.entry() {
                if self.cache.key(entry).1 == key {
                    return Place::At(slot, word);
                }
                continue;
            }
            let is_known = |verified: Verified<'_>| verified.cold.candidates().any(|seen| seen.is(word, &self.stamps));
            if verified.and_then(|verified| verified.own).is_some_and(|seen| seen.is(word, &self.stamps)) {
                own = Some((slot, word));
            } else if !verified.is_some_and(is_known) && self.cache.planted != Some(Planted::NewWordsAreIgnored)
                || verified.is_none()
            {
                unknown.push(self.candidate(word));
            }
        }
        match own {
            Some((slot, word)) => Place::At(slot, word),
            None if unknown.first.is_some() => Place::Unverified(unknown),
            None => Place::Nowhere,
        }
    }
    /// Where the record of a word is on flash.
    fn location(&self, word: Word) -> Location {
        match word.entry() {
            Some(entry) => Location { page: self.cache.page(entry), span: word.span() },
            None => word.location().expect("a word that names no entry names a page"),
        }
    }
    /// Whether a word of this tag, other than in this slot, leads to a page.
    fn shares_page(&self, index: TableIndex, tag: Tag, page: LogPage, except: Option<Slot>) -> bool {
        let mut words = self.tables.get(index).find(tag);
        words.any(|(slot, word)| Some(slot) != except && self.location(word).page == page)
    }

    /// A record was appended to the log: it is the record of its key from now on, and is cached
    /// where it fits. `record` begins with it, and the location is where it is on flash.
    ///
    /// # Errors
    /// [`Refused`], and nothing has changed.
    ///
    /// # Panics
    /// When it is a record of a removal, which [`Shard::remove`] is for.
    pub fn put(&mut self, hash: KeyHash, record: &[u8], to: Location) -> Result<Changed, Refused> {
        self.put_with(hash, record, to, None)
    }
    /// As [`Shard::put`], after the driver has read the candidates that it returned.
    ///
    /// # Errors
    /// As [`Shard::put`].
    ///
    /// # Panics
    /// As [`Shard::put`].
    pub fn put_verified(
        &mut self,
        hash: KeyHash,
        record: &[u8],
        to: Location,
        verified: Verified<'_>,
    ) -> Result<Changed, Refused> {
        self.put_with(hash, record, to, Some(verified))
    }
    fn put_with(
        &mut self,
        hash: KeyHash,
        record: &[u8],
        to: Location,
        verified: Option<Verified<'_>>,
    ) -> Result<Changed, Refused> {
        let view = Record::view(record)?;
        assert!(!view.removed, "a record of a removal is put");
        let (tag, record) = (hash.tag(), &record[..view.bytes()]);
        let index = self.tables.index(view.table).ok_or(Refused::NoTable(view.table))?;
        let place = self.find(index, tag, view.key, verified);
        let (found, changed) = match place {
            Place::Unverified(cold) => return Ok(Changed::Unverified(cold)),
            Place::Nowhere => (None, Changed::Absent),
            Place::At(slot, word) => (Some((slot, word)), Changed::Replaced(self.old(word))),
        };
        if self.shares_page(index, tag, to.page, found.map(|(slot, _)| slot)) {
            return Err(Refused::SharesPage(to.page));
        }
        let slot = match found {
            Some((slot, word)) if word.is_cached() => {
                self.tables.replace(index, slot, word.with_span(to.span).unread());
                slot
            }
            Some((slot, _)) => {
                self.tables.replace(index, slot, Word::cold(tag, to));
                slot
            }
            None => self.tables.insert(index, Word::cold(tag, to))?,
        };
        self.stamps.count(tag, to.page);
        self.cache.insert(&mut self.tables, (index, slot), to.page, record);
        Ok(changed)
    }
    fn old(&self, word: Word) -> Old {
        let bytes = word.entry().map(|entry| self.cache.key(entry).0.bytes());
        Old { location: self.location(word), bytes }
    }

    /// Removes a key. [`Changed::Absent`] says that there was none.
    pub fn remove(&mut self, key: KeyRef<'_>) -> Changed {
        self.remove_with(key, None)
    }
    /// As [`Shard::remove`], after the driver has read the candidates that it returned.
    pub fn remove_verified(&mut self, key: KeyRef<'_>, verified: Verified<'_>) -> Changed {
        self.remove_with(key, Some(verified))
    }
    fn remove_with(&mut self, key: KeyRef<'_>, verified: Option<Verified<'_>>) -> Changed {
        let Some(index) = self.tables.index(key.table) else { return Changed::Absent };
        match self.find(index, key.hash.tag(), key.bytes, verified) {
            Place::Unverified(cold) => Changed::Unverified(cold),
            Place::Nowhere => Changed::Absent,
            Place::At(slot, word) => {
                let old = self.old(word);
                word.entry().into_iter().for_each(|entry| self.cache.kill(entry));
                self.tables.remove(index, slot);
                Changed::Replaced(old)
            }
        }
    }

    /// Reclaim has copied a record from one page to another. Returns whether the key's word led to
    /// the old page and leads to the new one now, so that the copy is the record. Else it is waste.
    ///
    /// # Errors
    /// [`Refused::SharesPage`], and nothing has changed: the copy must be made to another page.
    pub fn moved(&mut self, table: TableId, hash: KeyHash, from: LogPage, to: Location) -> Result<bool, Refused> {
        let (Some(index), tag) = (self.tables.index(table), hash.tag()) else { return Ok(false) };
        let mut words = self.tables.get(index).find(tag);
        let Some((slot, word)) = words.find(|(_, word)| self.location(*word).page == from) else { return Ok(false) };
        if self.shares_page(index, tag, to.page, Some(slot)) {
            return Err(Refused::SharesPage(to.page));
        }
        let word = word.with_span(to.span);
        match word.entry() {
            Some(entry) => {
                self.cache.set_page(entry, to.page);
                self.tables.replace(index, slot, word);
            }
            None => self.tables.replace(index, slot, word.cold_at(to.page)),
        }
        self.stamps.count(tag, to.page);
        Ok(true)
    }
    /// Whether a key with this hash has its record in this page. So reclaim knows whether one that
    /// it found there is needed.
    pub fn leads_to(&self, table: TableId, hash: KeyHash, page: LogPage) -> bool {
        let Some(index) = self.tables.index(table) else { return false };
        self.tables.get(index).find(hash.tag()).any(|(_, word)| self.location(word).page == page)
    }
    /// Removes the key with this hash whose record is in this page: a log is replayed. Returns
    /// whether there was one.
    pub fn remove_at(&mut self, table: TableId, hash: KeyHash, page: LogPage) -> bool {
        let Some(index) = self.tables.index(table) else { return false };
        let mut words = self.tables.get(index).find(hash.tag());
        let Some((slot, word)) = words.find(|(_, word)| self.location(*word).page == page) else { return false };
        word.entry().into_iter().for_each(|entry| self.cache.kill(entry));
        self.tables.remove(index, slot);
        true
    }
    /// Makes room for this many keys of a table in all. Before words are restored in the order of
    /// tags this is needed, because they all belong to the front of a table that is small.
    ///
    /// # Errors
    /// [`Refused::NoDram`] and [`Refused::NoTable`], and nothing has changed.
    pub fn reserve(&mut self, table: TableId, keys: usize) -> Result<(), Refused> {
        let index = self.tables.index(table).ok_or(Refused::NoTable(table))?;
        Ok(self.tables.reserve(index, keys)?)
    }
    /// Enters a word that was stored, of a key that the table does not have: a pool is opened.
    /// Where many come in the order of tags, [`Shard::reserve`] is called before.
    ///
    /// # Errors
    /// [`Refused`], and nothing has changed.
    ///
    /// # Panics
    /// When the word is not cold.
    pub fn restore(&mut self, table: TableId, word: Word) -> Result<(), Refused> {
        let page = word.location().expect("only cold words are stored").page;
        let index = self.tables.index(table).ok_or(Refused::NoTable(table))?;
        if self.shares_page(index, word.tag(), page, None) {
            return Err(Refused::SharesPage(page));
        }
        self.tables.insert(index, word)?;
        self.stamps.count(word.tag(), page);
        Ok(())
    }
    /// Adds the next words of a table to a list, in the order of tags, for a checkpoint. All are
    /// cold: the words of cached keys name their pages. Returns the tag from which it continues, or
    /// None at the end. The cache does not notice.
    ///
    /// Words come as [`crate::Table::scan`] says: each that stays comes exactly once.
    pub fn words(&self, table: TableId, from: Tag, words: &mut Vec<Word>) -> Option<Tag> {
        let first = words.len();
        let next = self.tables.get(self.tables.index(table)?).scan(from, words);
        for word in &mut words[first..] {
            if let Some(entry) = word.entry() {
                *word = word.cold_at(self.cache.page(entry));
            }
        }
        next
    }

    /// Gives the cache `bytes` bytes of DRAM from now on, and keeps what fits. While this runs, it
    /// takes the larger of both sizes, 128 KiB, and the smaller one's ghost, which is an eighth at
    /// most and mostly a hundredth.
    ///
    /// # Panics
    /// As [`Shard::new`].
    pub fn resize(&mut self, bytes: usize) {
        self.cache.resize(&mut self.tables, bytes);
    }
    /// Whether the index has room for another key of a table.
    pub fn has_room(&self, table: TableId) -> bool {
        self.tables.index(table).is_some_and(|index| self.tables.has_room(index))
    }
    /// What the index may take from now on. It keeps what it has, also where that is more.
    pub fn set_index_bytes_max(&mut self, bytes: usize) {
        self.tables.set_bytes_max(bytes);
    }
    /// Forgets all cached records: all keys are cold.
    pub fn forget(&mut self) {
        self.cache.forget(&mut self.tables);
    }
    /// DRAM of the index: words and tables.
    pub fn index_bytes(&self) -> usize {
        self.tables.bytes()
    }
    /// What [`Shard::index_bytes`] may become.
    pub fn index_bytes_max(&self) -> usize {
        self.tables.bytes_max()
    }
    /// DRAM of the cache: records and ghost.
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }
    /// All DRAM that it takes.
    pub fn bytes(&self) -> usize {
        self.index_bytes() + self.cache_bytes() + Stamps::BYTES + size_of::<Shard>()
    }
    /// Records that are cached.
    pub fn records(&self) -> usize {
        self.cache.records()
    }
    /// What it has counted.
    pub fn counts(&self) -> Counts {
        self.cache.counts
    }

    /// Checks everything: tables, rings and words agree, and no two words share tag and page.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        self.tables.check()?;
        self.cache.check(&self.tables)?;
        for (id, table) in self.tables.all() {
            let places = table.all().map(|(_, word)| (word.tag(), self.location(word).page));
            let mut places: Vec<_> = places.collect();
            places.sort_unstable();
            if let Some(pair) = places.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(format!("two words of {id:?} have {:?}", pair[0]));
            }
        }
        Ok(())
    }
}
