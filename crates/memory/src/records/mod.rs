//! Maps of records: byte strings to byte strings, with the index in DRAM.
//!
//! ```text
//!   key --hash--> shard: word --> cached record         a get of what is cached touches DRAM only
//!                          |
//!                          +----> page of the log         of what is not, it is one read
//!   put: record --> log, word; the record before is dead
//! ```
//!
//! The log is ordinary memory: its pages are written when frames are needed or a state is named,
//! and roll back with everything else. So a named state has a log, and the index is made again from
//! it: from the words of the last checkpoint, and the entries of the log behind it (`log`,
//! `checkpoint`).
//!
//! * A key's writers take turns by a latch. Readers take none.
//! * Records are appended once. What is dead is left behind when a segment is emptied (`reclaim`).
//! * A record is clean in the cache at once, so that anything may leave at any time.
//!
//! Learnt from uDepot (FAST '19: entries of 8 bytes), KVell (SOSP '19: the index in DRAM, no order
//! on flash) and FASTER (SIGMOD '18: hash index over a log).

mod check;
mod checkpoint;
mod entry;
mod log;
mod page;
mod reclaim;
mod recover;
mod segments;
mod staged;
mod typed;

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use fulgurite_format::{Address, SUBPAGE_BYTES};
use fulgurite_records::{
    Candidate, Changed, Cold, Found, KEY_BYTES_MAX, KeyHash, KeyRef, Location, LogPage, Record, Refused, Seed, TableId,
    Verified,
};
use fulgurite_runtime::{AccessError, Records};
use parking_lot::Mutex;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{ByKind, Heap, Latch, LatchTable, Memory, MemoryId, VersionLatch};
use checkpoint::Checkpoint;
use entry::{Entry, Kind};
use log::{Log, SEGMENT_PAGES, SEGMENT_PAGES_MIN, Which, record_bytes_max};
use page::{HEAD, Page, Part, ROOM};
use segments::{Segments, address_of, make_list};
pub use typed::{RecordType, TypedRecords};

/// Turns of keys' writers: 8 bytes each.
const TURNS: usize = 1 << 12;
const MAGIC: u64 = u64::from_le_bytes(*b"flgrmap1");
/// The seed of all checksums. No other use of a place must be refused: pages have checksums, and a
/// word names a page of this log.
const SEED: Seed = Seed(0);

/// The index is as the memory is.
const READY: u8 = 0;
/// The memory was rolled back, and the index is made again.
const STALE: u8 = 1;
/// The map is not there any more.
const GONE: u8 = 2;
/// How long a reader waits between two checks whether the index was made again.
const STALE_WAIT: Duration = Duration::from_micros(100);

/// What leads to a map of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct RecordMapRoot {
    magic: u64,
    segments: Address,
    checkpoint: Address,
    /// The key of the hash, so that keys cannot be chosen that collide.
    secret: [u64; 2],
    /// The number of the map, for its records.
    table: u32,
    segment_pages: u32,
}

/// A map of byte strings of up to 64 KiB to byte strings. See the head of this file.
#[derive(Debug)]
pub struct RecordMap {
    memory: MemoryId,
    root: RecordMapRoot,
    table: TableId,
    records: Arc<Records>,
    log: Log,
    /// Held by a key's writer. A transaction notes their versions.
    turns: LatchTable<VersionLatch>,
    /// Held by a transaction while it changes words, so that no other one sees only some of them.
    swings: LatchTable<VersionLatch>,
    checkpoint: Mutex<Option<Checkpoint>>,
    reclaims: AtomicBool,
    /// Segments that were emptied, and records that were copied.
    reclaimed: AtomicU64,
    copied: AtomicU64,
    /// What could be reclaimed is not in the checkpoint.
    is_behind: AtomicBool,
    /// [`READY`], [`STALE`] or [`GONE`].
    standing: AtomicU8,
    /// The first segment that some piece of the checkpoint does not have.
    kept_from: AtomicU64,
}

impl Drop for RecordMap {
    fn drop(&mut self) {
        self.records.drop_table(self.table);
    }
}

/// What a map of records has counted since it was opened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct RecordCounts {
    /// Bytes of records and notes that were appended to the log, copies included.
    pub appended: u64,
    /// Segments that were emptied.
    pub reclaimed: u64,
    /// Records that were copied for that.
    pub copied: u64,
    /// Segments that the log has.
    pub segments: u64,
}

/// What a put or a removal knows of the record before.
struct Before {
    cold: Cold,
    own: Option<Candidate>,
}

impl RecordMap {
    /// Makes an empty one, whose records and lists are in `heap`.
    ///
    /// # Errors
    /// [`AccessError::NoRecords`] where the memory has no DRAM for records; what the memory says.
    pub fn create<M: Memory>(memory: &mut M, heap: Arc<Heap>, secret: [u64; 2]) -> Result<RecordMap, AccessError> {
        RecordMap::create_with(memory, heap, secret, SEGMENT_PAGES)
    }
    /// As [`RecordMap::create`], with segments of this number of subpages, 4 at least.
    #[doc(hidden)]
    pub fn create_with<M: Memory>(
        memory: &mut M,
        heap: Arc<Heap>,
        secret: [u64; 2],
        segment_pages: u32,
    ) -> Result<RecordMap, AccessError> {
        let segment_pages = segment_pages.max(SEGMENT_PAGES_MIN);
        let segments = make_list(memory, &heap, None)?;
        let (checkpoint, checkpoint_at) = Checkpoint::create(memory, &heap)?;
        // No two lists are at one place.
        let table = (segments.linear() / SUBPAGE_BYTES as u64) as u32;
        let root = RecordMapRoot { magic: MAGIC, segments, checkpoint: checkpoint_at, secret, table, segment_pages };
        RecordMap::over(memory, heap, root, Segments::new(segments), checkpoint)
    }
    fn over<M: Memory>(
        memory: &mut M,
        heap: Arc<Heap>,
        root: RecordMapRoot,
        segments: Segments,
        checkpoint: Checkpoint,
    ) -> Result<RecordMap, AccessError> {
        let records = memory.records().ok_or(AccessError::NoRecords)?;
        let table = TableId(root.table);
        records.add_table(table).map_err(|full| no_dram(Refused::NoDram(full)))?;
        Ok(RecordMap {
            memory: memory.id(),
            root,
            table,
            records,
            log: Log::new(heap, root.segment_pages, segments),
            turns: LatchTable::new(TURNS),
            swings: LatchTable::new(TURNS),
            kept_from: checkpoint.oldest_segment().into(),
            checkpoint: Mutex::new(Some(checkpoint)),
            reclaims: AtomicBool::new(false),
            reclaimed: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            is_behind: AtomicBool::new(false),
            standing: AtomicU8::new(READY),
        })
    }
    /// What to store, to open it again.
    pub fn root(&self) -> RecordMapRoot {
        self.root
    }
    /// What it has counted.
    pub fn counts(&self) -> RecordCounts {
        let [reclaimed, copied] = [&self.reclaimed, &self.copied].map(|count| count.load(Ordering::Relaxed));
        let segments = self.log.segments(|segments| segments.len() as u64);
        RecordCounts { appended: self.log.appended(), reclaimed, copied, segments }
    }
    /// Keys that it has.
    pub fn len(&self) -> u64 {
        self.records.keys(self.table)
    }
    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Refuses another memory, and waits while the index is made again.
    #[inline]
    fn check<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        self.memory.check(memory.id())?;
        if self.standing.load(Ordering::Acquire) == READY { Ok(()) } else { self.wait_until_ready(memory) }
    }
    #[cold]
    fn wait_until_ready<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        loop {
            match self.standing.load(Ordering::Acquire) {
                READY => return Ok(()),
                GONE => return Err(AccessError::Poisoned),
                _ => memory.pause(STALE_WAIT)?,
            }
        }
    }
    fn hash(&self, key: &[u8]) -> KeyHash {
        let [first, second] = self.root.secret;
        let mut hasher = siphasher::sip::SipHasher13::new_with_keys(first, second);
        hasher.write(key);
        KeyHash(hasher.finish())
    }
    fn key<'k>(&self, bytes: &'k [u8]) -> KeyRef<'k> {
        KeyRef { table: self.table, hash: self.hash(bytes), bytes }
    }
    fn fits(&self, key: &[u8], value: usize) -> Result<(), AccessError> {
        if key.len() > KEY_BYTES_MAX {
            let (bytes, most) = (key.len() as u64, KEY_BYTES_MAX as u64);
            return Err(AccessError::TooLong { what: "key", bytes, most });
        }
        let record = record_bytes_max(self.root.segment_pages).saturating_sub(fulgurite_records::HEAD_BYTES_MAX);
        let most = record.saturating_sub(key.len()) as u64;
        if value as u64 > most {
            return Err(AccessError::TooLong { what: "value", bytes: value as u64, most });
        }
        Ok(())
    }

    /// Copies the value of a key into `into`, which is emptied first. Returns whether there is one.
    ///
    /// # Errors
    /// [`AccessError::OtherMemory`]; what the memory says.
    #[inline]
    pub fn get<M: Memory>(&self, memory: &mut M, key: &[u8], into: &mut Vec<u8>) -> Result<bool, AccessError> {
        into.clear();
        Ok(self.get_with(memory, key, |value| into.extend_from_slice(value))?.is_some())
    }
    /// What `read` makes of the value of a key. It runs under a lock, so it must not wait, and use
    /// no map.
    ///
    /// # Errors
    /// As [`RecordMap::get`].
    #[inline]
    pub fn get_with<M: Memory, R>(
        &self,
        memory: &mut M,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, AccessError> {
        if M::TRACKED {
            let mut value = Vec::new();
            return Ok(self.get_staged(memory, key, &mut value)?.then(|| read(&value)));
        }
        self.check(memory)?;
        let key = self.key(key);
        self.swings.of(key.hash.0).read_begin(memory)?;
        let mut read = Some(read);
        let found = self.records.of(key.hash).get(key, |record| show(&mut read, record.value));
        match found {
            Found::Here(made) => Ok(Some(made)),
            Found::Absent => Ok(None),
            Found::Cold(cold) => self.get_cold(memory, key, cold, read),
        }
    }
    /// As [`RecordMap::get`], without reading flash: none where that is needed.
    ///
    /// # Errors
    /// As [`RecordMap::get`].
    pub fn get_cached<M: Memory>(
        &self,
        memory: &mut M,
        key: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<Option<bool>, AccessError> {
        self.check(memory)?;
        into.clear();
        let key = self.key(key);
        self.swings.of(key.hash.0).read_begin(memory)?;
        Ok(match self.records.of(key.hash).get(key, |record| into.extend_from_slice(record.value)) {
            Found::Here(()) => Some(true),
            Found::Absent => Some(false),
            Found::Cold(_) => None,
        })
    }
    #[cold]
    fn get_cold<M: Memory, R>(
        &self,
        memory: &mut M,
        key: KeyRef<'_>,
        mut cold: Cold,
        mut read: Option<impl FnOnce(&[u8]) -> R>,
    ) -> Result<Option<R>, AccessError> {
        let mut record = Vec::new();
        loop {
            let roll_backs = memory.roll_backs();
            for candidate in cold.candidates() {
                if !self.read(memory, key, candidate.location(), &mut record)? || memory.roll_backs() != roll_backs {
                    continue;
                }
                let value = Record::view(&record).map_err(|_| damaged(candidate.location()))?.value;
                self.records.of(key.hash).admit(key, candidate, &record);
                return Ok(Some(show(&mut read, value)));
            }
            // None of them is the key's, or the record was moved or written meanwhile.
            let mut shard = self.records.of(key.hash);
            if memory.roll_backs() == roll_backs && shard.is_absent(key, &cold) {
                return Ok(None);
            }
            match shard.get(key, |record| show(&mut read, record.value)) {
                Found::Here(made) => return Ok(Some(made)),
                Found::Absent => return Ok(None),
                Found::Cold(others) => cold = others,
            }
        }
    }

    /// Reads the record of a key in a page. Returns whether there is one.
    fn read<M: Memory>(
        &self,
        memory: &mut M,
        key: KeyRef<'_>,
        location: Location,
        record: &mut Vec<u8>,
    ) -> Result<bool, AccessError> {
        let at = address_of(location.page);
        let mut page: Page = [0; SUBPAGE_BYTES];
        memory.read_around(at, &mut page)?;
        record.clear();
        match page::find(&page, self.table, key.bytes) {
            Some(Part::Whole { at, bytes }) => {
                record.extend_from_slice(&page[at..at + bytes]);
                Ok(true)
            }
            Some(Part::Long { bytes }) => {
                self.read_long(memory, at, (&page, bytes), record)?;
                let view = Record::view(record);
                Ok(view.is_ok_and(|record| record.key == key.bytes && record.table == key.table))
            }
            None => Ok(false),
        }
    }
    /// Reads a long record whose first page was read.
    fn read_long<M: Memory>(
        &self,
        memory: &mut M,
        at: Address,
        (first, bytes): (&Page, usize),
        record: &mut Vec<u8>,
    ) -> Result<(), AccessError> {
        record.clear();
        let bytes = bytes.min(record_bytes_max(self.root.segment_pages));
        record.extend_from_slice(&first[HEAD..]);
        let mut page: Page = [0; SUBPAGE_BYTES];
        let mut at = at;
        while record.len() < bytes {
            at = at.add(SUBPAGE_BYTES as u64);
            memory.read_around(at, &mut page)?;
            record.extend_from_slice(&page[HEAD..HEAD + (bytes - record.len()).min(ROOM)]);
        }
        Ok(())
    }

    /// What DRAM and flash know of a key's record. Its writers have no turn meanwhile, so that it
    /// stays so, except that reclaim may move other keys' records.
    fn before<M: Memory>(&self, memory: &mut M, key: KeyRef<'_>) -> Result<Before, AccessError> {
        let mut record = Vec::new();
        let mut before = Before { cold: Cold::default(), own: None };
        loop {
            let changed = {
                let shard = self.records.of(key.hash);
                shard.replaces(key, Some(Verified { cold: &before.cold, own: before.own }))
            };
            let Changed::Unverified(cold) = changed else { return Ok(before) };
            before = Before { cold, own: None };
            for candidate in before.cold.candidates() {
                if self.read(memory, key, candidate.location(), &mut record)? {
                    before.own = Some(candidate);
                    break;
                }
            }
        }
    }

    /// Sets the value of a key. Returns whether it had one.
    ///
    /// # Errors
    /// [`AccessError::TooLong`], [`AccessError::IndexFull`], [`AccessError::OtherMemory`]; what the
    /// memory says. The value is as before then.
    pub fn put<M: Memory>(&self, memory: &mut M, key: &[u8], value: &[u8]) -> Result<bool, AccessError> {
        self.check(memory)?;
        self.fits(key, value.len())?;
        if M::TRACKED {
            return self.change_staged(memory, key, Some(value));
        }
        let key = self.key(key);
        let mut record = Vec::with_capacity(fulgurite_records::HEAD_BYTES_MAX + key.bytes.len() + value.len());
        Record::new(self.table, key.bytes, value).append(SEED, &mut record).expect("its lengths were checked");
        let had = self.reclaiming(memory, |memory| {
            let _section = memory.write_section()?;
            let _turn = self.turns.of(key.hash.0).lock(memory)?;
            self.replace(memory, key, &record)
        })?;
        self.reclaim_if_due(memory)?;
        Ok(had)
    }
    /// Puts a record. The caller has the key's turn, and is in a write section.
    fn replace<M: Memory>(&self, memory: &mut M, key: KeyRef<'_>, record: &[u8]) -> Result<bool, AccessError> {
        let (before, old) = self.old_of(memory, key)?;
        let entry = |to| Some(Entry { hash: key.hash, kind: Kind::Put, to: Some(to), from: old });
        let to = self.log.append(memory, (Which::Main, key.hash), record, entry)?;
        self.enter(key, record, to, before);
        Ok(old.is_some())
    }
    /// The page of a key's record, if it has one, and how that is known. There is room in the index
    /// for one that has none.
    fn old_of<M: Memory>(&self, memory: &mut M, key: KeyRef<'_>) -> Result<(Before, Option<LogPage>), AccessError> {
        loop {
            let before = self.before(memory, key)?;
            let mut shard = self.records.of(key.hash);
            match shard.replaces(key, Some(Verified { cold: &before.cold, own: before.own })) {
                Changed::Replaced(old) => return Ok((before, Some(old.location.page))),
                Changed::Absent => {
                    self.records.balance(&mut shard);
                    return if shard.has_room(key.table) { Ok((before, None)) } else { Err(no_room(&shard)) };
                }
                // A record of the same tag came in between.
                Changed::Unverified(_) => {}
            }
        }
    }
    /// Lets a key lead to a record that was appended. Its turn is still the caller's.
    fn enter(&self, key: KeyRef<'_>, record: &[u8], to: Location, mut before: Before) {
        let mut shard = self.records.of(key.hash);
        loop {
            let verified = Verified { cold: &before.cold, own: before.own };
            match shard.put_verified(key.hash, record, to, verified) {
                Ok(Changed::Absent | Changed::Replaced(_)) => break,
                // Others with this tag came in between. They are other keys': this one's turn is
                // the caller's.
                Ok(Changed::Unverified(mut cold)) => {
                    cold.extend(&before.cold);
                    before.cold = cold;
                }
                // Others have taken the room since it was seen. The record is in the log already.
                Err(Refused::NoDram(_)) if shard.index_bytes_max() < usize::MAX => {
                    let most = shard.index_bytes_max();
                    shard.set_index_bytes_max(usize::MAX);
                    let put =
                        shard.put_verified(key.hash, record, to, Verified { cold: &before.cold, own: before.own });
                    shard.set_index_bytes_max(most);
                    if !matches!(put, Ok(Changed::Unverified(_))) {
                        break;
                    }
                }
                Err(error) => unreachable!("the log and the index disagree: {error}"),
            }
        }
        self.records.balance(&mut shard);
    }

    /// Removes a key. Returns whether it was there.
    ///
    /// # Errors
    /// As [`RecordMap::put`].
    pub fn remove<M: Memory>(&self, memory: &mut M, key: &[u8]) -> Result<bool, AccessError> {
        self.check(memory)?;
        if M::TRACKED {
            return self.change_staged(memory, key, None);
        }
        let key = self.key(key);
        let removed = self.reclaiming(memory, |memory| {
            let _section = memory.write_section()?;
            let _turn = self.turns.of(key.hash.0).lock(memory)?;
            self.take_out(memory, key)
        })?;
        self.reclaim_if_due(memory)?;
        Ok(removed)
    }
    fn take_out<M: Memory>(&self, memory: &mut M, key: KeyRef<'_>) -> Result<bool, AccessError> {
        let (before, old) = self.old_of(memory, key)?;
        let Some(old) = old else { return Ok(false) };
        self.log.note(memory, &Entry { hash: key.hash, kind: Kind::Removed, to: None, from: Some(old) })?;
        self.leave(key, before);
        Ok(true)
    }
    /// Removes the word of a key, whose turn is the caller's.
    fn leave(&self, key: KeyRef<'_>, mut before: Before) {
        let mut shard = self.records.of(key.hash);
        while let Changed::Unverified(mut cold) =
            shard.remove_verified(key, Verified { cold: &before.cold, own: before.own })
        {
            // Others with this tag came in between.
            cold.extend(&before.cold);
            before.cold = cold;
        }
        self.records.balance(&mut shard);
    }

    /// Writes what it knows in DRAM alone, for a sync. Nothing changes it meanwhile.
    pub(crate) fn save<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        self.log.save(memory)?;
        let Some(mut checkpoint) = self.checkpoint.lock().take() else { return Ok(()) };
        let log = (self.log.appended(), self.log.position(), self.is_behind.swap(false, Ordering::AcqRel));
        let saved = checkpoint.go_on(memory, (&self.log.heap, &self.records, self.table), log);
        self.kept_from.store(checkpoint.oldest_segment(), Ordering::Release);
        *self.checkpoint.lock() = Some(checkpoint);
        saved
    }
    /// As [`Latch::disturb`].
    pub(crate) fn disturb(&self, gone: bool) {
        self.standing.store(if gone { GONE } else { STALE }, Ordering::Release);
        self.turns.disturb(gone);
        self.swings.disturb(gone);
    }
    /// DRAM that its latches use.
    pub fn dram_bytes(&self) -> usize {
        self.turns.bytes() + self.swings.bytes()
    }
}

fn damaged(location: Location) -> AccessError {
    AccessError::Corrupt { what: "record", at: address_of(location.page), expected: 1, got: 0 }
}
#[cold]
fn no_room(shard: &fulgurite_records::Shard) -> AccessError {
    AccessError::IndexFull { bytes: shard.index_bytes() as u64, most: shard.index_bytes_max() as u64 }
}
#[cold]
fn no_dram(refused: Refused) -> AccessError {
    match refused {
        Refused::NoDram(full) => AccessError::IndexFull { bytes: full.needed as u64, most: full.allowed as u64 },
        _ => AccessError::Corrupt { what: "index of a map", at: Address::NULL, expected: 1, got: 0 },
    }
}

/// Shows a value to what was to see it.
fn show<R>(read: &mut Option<impl FnOnce(&[u8]) -> R>, value: &[u8]) -> R {
    (read.take().expect("a value is shown once"))(value)
}
