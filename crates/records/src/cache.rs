//! The cached records of a shard: where each is put, and which one leaves.
//!
//! ```text
//!        puts, reads from flash                    left, and remembered
//!                  |                                        ^
//! buffer:  | small, a tenth: first in, first out | main: as small, used ones go round again |
//!                  +-------------- used twice ------------>
//! ```
//!
//! Replacement is S3-FIFO by bytes (SOSP '23, section 4.1). All records are clean: one that leaves
//! only puts its page back into its word.
//!
//! Invariants:
//! * For each live entry there is one word that names it, of the table and the tag of its record.
//! * Nothing here inserts or removes words, so that slots stay what they are.

use fulgurite_sys::Mapping;

use crate::ghost::{Fingerprint, Ghost, WAYS};
use crate::planted::Planted;
use crate::record::{Head, Record, TableId};
use crate::ring::{HEADER_BYTES, Header, Ring, UNIT, byte, size, unit};
use crate::table::Slot;
use crate::tables::{TableIndex, Tables};
use crate::word::{EntryUnit, LogPage, Word};

/// The least bytes that a cache is made of.
pub const CACHE_BYTES_MIN: usize = 1 << 10;
/// The most: the longest entry, a quarter of the main ring, has 28 bits in units of 16 bytes.
pub const CACHE_BYTES_MAX: usize = 16 << 30;
/// The share of the buffer that is the small ring (S3-FIFO, SOSP '23, section 4.1).
const SMALL_SHARE: usize = 10;
/// Uses that take a record from the small ring to the main one (the same).
const USES_TO_STAY: u32 = 2;
/// The longest entry is this share of the main ring.
const ENTRY_SHARE: usize = 4;
/// The ghost has room for as many records of this size as the cache has bytes, before its records
/// are known.
const BYTES_PER_GHOST: usize = 512;
/// The ghost never takes more than this share: entries have 32 bytes or more, and it 4 for each.
const GHOST_SHARE: usize = 8;
/// How much of the old buffer is copied before its memory goes back.
const PART: usize = 64 << 10;

/// What a shard has counted.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Records that were looked up and found in DRAM.
    pub hits: u64,
    /// Look-ups that needed flash.
    pub misses: u64,
    /// Look-ups of keys that the index does not have.
    pub absent: u64,
    /// Records that were read from flash and had left a short time ago. A larger cache would have
    /// had them.
    pub returned: u64,
    /// Records that left.
    pub evicted: u64,
}

impl Counts {
    /// Adds what another shard has counted.
    pub fn add(&mut self, other: Counts) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.absent += other.absent;
        self.returned += other.returned;
        self.evicted += other.evicted;
    }
}

/// How the bytes of a cache are divided.
struct Shape {
    buffer: usize,
    ghost_buckets: usize,
}

impl Shape {
    fn of(bytes: usize, records: usize) -> Shape {
        assert!((CACHE_BYTES_MIN..=CACHE_BYTES_MAX).contains(&bytes), "a cache of {bytes} bytes");
        let wanted = records.max(bytes / BYTES_PER_GHOST).div_ceil(WAYS);
        let ghost_buckets = wanted.clamp(1, bytes / GHOST_SHARE / (WAYS * size_of::<u32>()));
        let ghost = ghost_buckets * WAYS * size_of::<u32>();
        Shape { buffer: (bytes - ghost) / UNIT * UNIT, ghost_buckets }
    }
    fn small(&self) -> Ring {
        Ring::new(0, self.buffer / SMALL_SHARE / UNIT * UNIT)
    }
    fn main(&self) -> Ring {
        let small = self.small().bytes();
        Ring::new(small, self.buffer - small)
    }
}

pub struct Cache {
    /// What it was given.
    bytes_max: usize,
    buffer: Mapping<u8>,
    small: Ring,
    main: Ring,
    ghost: Ghost,
    /// Live entries.
    records: usize,
    pub counts: Counts,
    pub planted: Option<Planted>,
}

impl Cache {
    pub fn new(bytes: usize) -> Cache {
        let shape = Shape::of(bytes, 0);
        Cache {
            bytes_max: bytes,
            buffer: Mapping::zeroed(shape.buffer),
            small: shape.small(),
            main: shape.main(),
            ghost: Ghost::new(shape.ghost_buckets),
            records: 0,
            counts: Counts::default(),
            planted: None,
        }
    }
    pub fn bytes(&self) -> usize {
        self.buffer.len() + self.ghost.bytes()
    }
    pub fn records(&self) -> usize {
        self.records
    }
    /// Bytes of the longest entry.
    fn entry_bytes_max(&self) -> usize {
        self.main.bytes() / ENTRY_SHARE
    }

    /// The bytes of an entry's record. Others follow it.
    #[inline(always)]
    fn bytes_of(&self, entry: EntryUnit) -> &[u8] {
        &self.buffer[byte(entry) + HEADER_BYTES..]
    }
    /// The head of the record of an entry, and its key.
    #[inline(always)]
    pub fn key(&self, entry: EntryUnit) -> (Head, &[u8]) {
        let bytes = self.bytes_of(entry);
        let head = Head::read(bytes).expect("an entry holds a record");
        (head, head.key(bytes))
    }
    /// The record of an entry, which has this head.
    #[inline(always)]
    pub fn record(&self, entry: EntryUnit, head: &Head) -> Record<'_> {
        head.record(self.bytes_of(entry)).expect("an entry holds a record")
    }
    /// Where the record of an entry is on flash.
    pub fn page(&self, entry: EntryUnit) -> LogPage {
        Header::read(&self.buffer, byte(entry)).page()
    }
    /// Reclaim has copied the record of an entry.
    pub fn set_page(&mut self, entry: EntryUnit, page: LogPage) {
        if self.planted != Some(Planted::MoveIsForgotten) {
            Header::read(&self.buffer, byte(entry)).with_page(page).write(&mut self.buffer, byte(entry));
        }
    }
    /// The record of an entry was read.
    #[inline]
    pub fn count_use(&mut self, entry: EntryUnit) {
        let header = Header::read(&self.buffer, byte(entry));
        if header.uses() < crate::ring::USES_MAX {
            header.used(header.uses() + 1).write(&mut self.buffer, byte(entry));
        }
    }
    /// The word of an entry leads elsewhere from now on. The entry is dead until the ring comes by.
    pub fn kill(&mut self, entry: EntryUnit) {
        Header::read(&self.buffer, byte(entry)).dead().write(&mut self.buffer, byte(entry));
        self.records -= 1;
    }

    /// Caches a record, whose word is in this slot and may name an older entry of the key. On
    /// flash, it is in this page. Returns whether it was remembered, and None where it is too long.
    pub fn insert(
        &mut self,
        tables: &mut Tables,
        (index, slot): (TableIndex, Slot),
        page: LogPage,
        record: &[u8],
    ) -> Option<bool> {
        let (word, size) = (tables.get(index).word(slot), size(record.len()));
        let mut uses = None;
        if let Some(entry) = word.entry() {
            let header = Header::read(&self.buffer, byte(entry));
            if header.size() == size {
                // It keeps its place.
                header.with_page(page).used(header.uses() + 1).write(&mut self.buffer, byte(entry));
                let to = byte(entry) + HEADER_BYTES;
                self.buffer[to..to + record.len()].copy_from_slice(record);
                return Some(false);
            }
            uses = Some(header.uses() + 1);
            self.kill(entry);
            tables.replace(index, slot, word.cold_at(page));
        }
        if size > self.entry_bytes_max() {
            return None;
        }
        let id = Head::read(record).expect("the record was parsed").table;
        let returned = self.ghost.take(Fingerprint::of(id, word.tag()));
        let evicted = self.counts.evicted;
        let stays = returned || uses.is_some();
        let at = if stays || size > self.small.bytes() / 2 {
            self.place_in_main(tables, size)
        } else {
            self.place_in_small(tables, size)
        };
        Header::live(page, word.tag(), size).used(uses.unwrap_or(0)).write(&mut self.buffer, at);
        let to = at + HEADER_BYTES;
        self.buffer[to..to + record.len()].copy_from_slice(record);
        let word = tables.get(index).word(slot);
        tables.replace(index, slot, word.cached_at(unit(at)));
        self.records += 1;
        if self.counts.evicted > evicted {
            self.fit_ghost(tables);
        }
        Some(returned)
    }
    /// Makes the cache anew where the ghost has too little room for as many keys as there are
    /// records, or four times too much. This is once for each factor by which records become
    /// shorter or longer.
    fn fit_ghost(&mut self, tables: &mut Tables) {
        let (records, room) = (self.records, self.ghost.capacity());
        let plain = Shape::of(self.bytes_max, 0).ghost_buckets * WAYS;
        if records > room + room / 2 || room > 2 * plain && room > 4 * records {
            let wanted = Shape::of(self.bytes_max, records + records / 4);
            if wanted.ghost_buckets * WAYS != room {
                self.rebuild(tables, &wanted);
            }
        }
    }

    fn place_in_small(&mut self, tables: &mut Tables, size: usize) -> usize {
        loop {
            if let Some(at) = self.small.push(&mut self.buffer, size) {
                return at;
            }
            self.evict_small(tables);
        }
    }
    /// It ends, because each round of the ring takes a use from every entry.
    fn place_in_main(&mut self, tables: &mut Tables, size: usize) -> usize {
        loop {
            if let Some(at) = self.main.push(&mut self.buffer, size) {
                return at;
            }
            self.evict_main(tables);
        }
    }
    /// Takes the oldest entry out of the small ring.
    fn evict_small(&mut self, tables: &mut Tables) {
        let at = self.small.oldest().expect("no entry is longer than the ring");
        let header = Header::read(&self.buffer, at);
        // While the main ring is not full, nothing has to leave.
        let room = self.main.used() + 2 * header.size() <= self.main.bytes();
        if header.is_live() && (room || header.uses() >= USES_TO_STAY) {
            let to = self.place_in_main(tables, header.size());
            // Its uses count anew.
            self.relocate(tables, at, to, header.used(0));
        } else if header.is_live() {
            self.evict(tables, at, header);
        }
        self.small.pop(header.size());
    }
    /// Takes the oldest entry of the main ring out, or to its other end.
    fn evict_main(&mut self, tables: &mut Tables) {
        let at = self.main.oldest().expect("no entry is longer than the ring");
        let header = Header::read(&self.buffer, at);
        if header.is_live() && header.uses() > 0 {
            // Before its bytes are overwritten.
            let found = self.word_of(tables, at, header);
            self.main.pop(header.size());
            let to = self.main.push(&mut self.buffer, header.size()).expect("it has just left as much room");
            self.relocate_word(tables, found, at, to, header.used(header.uses() - 1));
            return;
        }
        if header.is_live() {
            self.evict(tables, at, header);
        }
        self.main.pop(header.size());
    }
    fn relocate(&mut self, tables: &mut Tables, from: usize, to: usize, header: Header) {
        let found = self.word_of(tables, from, header);
        self.relocate_word(tables, found, from, to, header);
    }
    fn relocate_word(
        &mut self,
        tables: &mut Tables,
        (index, slot, word): (TableIndex, Slot, Word),
        from: usize,
        to: usize,
        header: Header,
    ) {
        self.buffer.copy_within(from..from + header.size(), to);
        header.write(&mut self.buffer, to);
        tables.replace(index, slot, word.cached_at(unit(to)));
    }
    /// A record leaves.
    fn evict(&mut self, tables: &mut Tables, at: usize, header: Header) {
        let (index, slot, word) = self.word_of(tables, at, header);
        tables.replace(index, slot, word.cold_at(header.page()));
        let key = Fingerprint::of(table_of(&self.buffer, at), header.tag());
        self.ghost.remember(key, self.records);
        self.records -= 1;
        self.counts.evicted += 1;
    }
    /// The word that names an entry.
    fn word_of(&self, tables: &Tables, at: usize, header: Header) -> (TableIndex, Slot, Word) {
        let index = tables.index(table_of(&self.buffer, at)).expect("the entries of a table die with it");
        let mut words = tables.get(index).find(header.tag());
        let (slot, word) =
            words.find(|(_, word)| word.entry() == Some(unit(at))).expect("a live entry is in the index");
        (index, slot, word)
    }

    /// Takes `bytes` bytes of DRAM from now on, and keeps what fits.
    pub fn resize(&mut self, tables: &mut Tables, bytes: usize) {
        // As many records of the size that they have now.
        let records = (self.records as u128 * bytes as u128 / self.bytes_max as u128) as usize;
        let shape = Shape::of(bytes, records);
        self.bytes_max = bytes;
        self.rebuild(tables, &shape);
    }
    fn rebuild(&mut self, tables: &mut Tables, shape: &Shape) {
        let records = self.records;
        // From here on a word that names an entry names one of the new buffer.
        self.cool(tables);
        let mut buffer = std::mem::replace(&mut self.buffer, Mapping::zeroed(shape.buffer));
        let ghost = std::mem::replace(&mut self.ghost, Ghost::new(shape.ghost_buckets));
        self.ghost.take_over(&ghost);
        drop(ghost);
        let small = std::mem::replace(&mut self.small, shape.small());
        let main = std::mem::replace(&mut self.main, shape.main());
        self.records = 0;
        // Oldest first, so that the order stays. What has to leave for others is what would have
        // left next.
        let evicted = self.counts.evicted;
        self.take_over(tables, &mut buffer, main, true);
        self.take_over(tables, &mut buffer, small, false);
        self.counts.evicted = evicted + (records - self.records) as u64;
    }
    /// Takes over the entries of a ring of the old buffer, and gives their memory back meanwhile.
    fn take_over(&mut self, tables: &mut Tables, old: &mut Mapping<u8>, mut ring: Ring, is_main: bool) {
        let mut done = ring.oldest().unwrap_or(0);
        while let Some(at) = ring.oldest() {
            if at < done {
                // It goes on at the start of the ring.
                old.discard(done..ring.end());
                done = at;
            } else if at - done >= PART {
                old.discard(done..at);
                done = at;
            }
            let header = Header::read(old, at);
            let size = header.size();
            ring.pop(size);
            if !header.is_live() || size > self.entry_bytes_max() {
                continue;
            }
            let to = if is_main || size > self.small.bytes() / 2 {
                self.place_in_main(tables, size)
            } else {
                self.place_in_small(tables, size)
            };
            self.buffer[to..to + size].copy_from_slice(&old[at..at + size]);
            let index = tables.index(table_of(old, at)).expect("the entries of a table die with it");
            let mut words = tables.get(index).find(header.tag());
            let is_its = |word: Word| word.location().is_some_and(|location| location.page == header.page());
            let (slot, word) = words.find(|(_, word)| is_its(*word)).expect("its word was cooled");
            tables.replace(index, slot, word.cached_at(unit(to)));
            self.records += 1;
        }
    }
    /// Every word names its page. The entries are as they were.
    fn cool(&self, tables: &mut Tables) {
        for ring in [self.small, self.main] {
            for (at, header) in ring.entries(&self.buffer).filter(|(_, header)| header.is_live()) {
                let (index, slot, word) = self.word_of(tables, at, header);
                tables.replace(index, slot, word.cold_at(header.page()));
            }
        }
    }
    /// Forgets all records. Their words name their pages.
    pub fn forget(&mut self, tables: &mut Tables) {
        self.cool(tables);
        (self.small, self.main, self.records) = (self.small.emptied(), self.main.emptied(), 0);
    }

    /// Checks that rings, words and counts agree.
    pub fn check(&self, tables: &Tables) -> Result<(), String> {
        let mut live = 0;
        for (name, ring) in [("small", self.small), ("main", self.main)] {
            let mut used = 0;
            for (at, header) in ring.entries(&self.buffer) {
                used += header.size();
                if header.is_live() {
                    self.check_entry(tables, at, header)?;
                    live += 1;
                }
            }
            if used != ring.used() || used > ring.bytes() {
                return Err(format!("the {name} ring has {used} bytes, and counts {}", ring.used()));
            }
        }
        let words = tables.all().flat_map(|(_, table)| table.all()).filter(|(_, word)| word.is_cached()).count();
        if live != self.records || words != live {
            return Err(format!("{live} live entries, {} counted, {words} words of cached keys", self.records));
        }
        if self.bytes() > self.bytes_max {
            return Err(format!("the cache has {} bytes of {}", self.bytes(), self.bytes_max));
        }
        Ok(())
    }
    fn check_entry(&self, tables: &Tables, at: usize, header: Header) -> Result<(), String> {
        let record = Record::view(&self.buffer[at + HEADER_BYTES..at + header.size()]);
        let record = record.map_err(|error| format!("the entry at {at}: {error}"))?;
        if size(record.bytes()) != header.size() || header.size() > self.entry_bytes_max() {
            return Err(format!("an entry of {} bytes for a record of {}", header.size(), record.bytes()));
        }
        let index = tables.index(record.table).ok_or(format!("an entry of {:?}, which is gone", record.table))?;
        let words = tables.get(index).find(header.tag());
        match words.filter(|(_, word)| word.entry() == Some(unit(at))).count() {
            1 => Ok(()),
            count => Err(format!("{count} words name the entry at {at}")),
        }
    }
}

/// The table of the record in an entry.
fn table_of(buffer: &[u8], at: usize) -> TableId {
    Head::read(&buffer[at + HEADER_BYTES..]).expect("an entry holds a record").table
}
