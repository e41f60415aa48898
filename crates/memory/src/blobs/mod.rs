//! Blobs: values of any length under keys, each read whole or not at all.
//!
//! ```text
//!           swings: readers validate            turns: writers of a key, one at a time
//!                     |                                  |
//!   key --> index --> word: where, how long --> value in the heap, contiguous
//! ```
//!
//! A writer puts the new value where nothing leads, which may miss, fail or take long. Then it
//! sets the key's word, and only then it frees the old value. A reader notes the version of the
//! key's *swing* latch, follows the word, copies the value out, and asks whether the version is
//! still the same. The word changes only under that latch, and the space of a value is reused only
//! after that. So whole bytes of one value were copied, or the reader reads again.
//!
//! A value that is viewed (`views`) stays as it is until its views end, also when its key leads
//! elsewhere.
//!
//! A value of up to a subpage may be an object instead (`space`): a subpage of address space that
//! is cached and written by its length. A writer overwrites one of the same length in its place,
//! all at once, so that nothing else changes.
//!
//! Invariants:
//! * A word in the index leads to the value's own object.
//! * An object changes only under its key's turn and swing latches, and all at once. So a
//!   transaction that read it finds out.
//! * A word changes only in a write section, under the key's turn and swing latches. The swing
//!   latch is held while the index or an object changes, and never while another value is written.
//! * A change that fails has changed nothing.
//!
//! Values are not encoded, compressed or checked beyond the checksums of the medium.

mod index;
mod parts;
mod readers;
mod space;
mod values;
mod views;

use std::sync::Arc;

use fulgurite_format::{Address, SUBPAGE_BYTES};
use fulgurite_runtime::AccessError;

pub use index::{BlobIndex, KEY_BYTES_MAX};
pub(crate) use parts::NOTES_BYTES;
use parts::{ATTEMPTS, PART_BYTES, Parts, overlay};
pub use parts::{ValueReader, ValueWriter};
use space::Space;
pub use values::VALUE_BYTES_MAX;
use values::{Span, Values};

use crate::MemoryId;
use crate::latch::harmless;
use crate::{
    ByKind, HashMap, HashMapRoot, Heap, KeyHash, Latch, LatchTable, Masstree, MasstreeRoot, Memory, Region,
    VersionLatch, WriteSet, optimistic,
};

/// Values of any length under keys of one plain type.
///
/// ```
/// use fulgurite_memory::{Address, Blobs, Heap, Latch, PlainMemory, Region, VersionLatch};
/// use fulgurite_sys::Backed;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut memory = PlainMemory::new(Backed::BasePages)?;
/// let (heap, buckets) = Region::new(Address::from_linear(1 << 20), 2 << 20).split(1 << 20);
/// let heap = Heap::create(&mut memory, heap)?.into();
/// let sessions = Blobs::<u64>::create(&mut memory, buckets, heap, 1000, 64)?;
/// sessions.put(&mut memory, &7, b"signed in")?;
/// let mut value = Vec::new();
/// assert!(sessions.get(&mut memory, &7, &mut value)?);
/// assert_eq!(value, b"signed in");
/// assert!(sessions.compare_and_put(&mut memory, &7, Some(b"signed in"), b"")?);
/// assert_eq!(sessions.value_len(&mut memory, &7)?, Some(0));
/// assert!(sessions.remove(&mut memory, &7)?);
/// # Ok(())
/// # }
/// ```
pub type Blobs<K, L = VersionLatch> = BlobMap<HashMap<K, u64, L>>;

/// Values of any length under byte strings of up to [`KEY_BYTES_MAX`] bytes, in their order.
pub type OrderedBlobs<L = VersionLatch> = BlobMap<Masstree<L>>;

/// Values of 0 bytes to [`VALUE_BYTES_MAX`] under keys: [`Blobs`] and [`OrderedBlobs`].
///
/// Share it between workers in an `Arc`, because its latches order them. Each change is a write
/// section: a named state has all of it or none. A change that fails has changed nothing.
#[derive(Debug)]
pub struct BlobMap<I: BlobIndex> {
    memory: MemoryId,
    index: I,
    values: Values<I::Latch>,
    turns: LatchTable<I::Latch>,
    swings: LatchTable<I::Latch>,
    parts: Parts,
}

impl<I: BlobIndex> BlobMap<I> {
    /// Pins that an operation may take.
    pub const PINS: u32 = 4;

    pub(crate) fn over(index: I, heap: Arc<Heap>, latch_count: usize) -> Self {
        let latches = || LatchTable::new(latch_count.max(1));
        let (memory, values, parts) = (heap.memory(), Values { heap, space: None }, Parts::default());
        BlobMap { memory, index, values, turns: latches(), swings: latches(), parts }
    }

    /// Bytes of a value in `into`, which was read as one state. False without the key: `into` is
    /// empty then, as it is after an error.
    ///
    /// # Errors
    /// As [`view`](crate::RawMemory::view), [`AccessError::Poisoned`], or [`AccessError::Corrupt`].
    pub fn get<M: Memory>(&self, memory: &mut M, key: &I::Key, into: &mut Vec<u8>) -> Result<bool, AccessError> {
        let found = self.look_up(memory, key, |memory, span, still| {
            if span.object {
                return memory.read_object(span.at, span.len, |bytes| {
                    into.clear();
                    into.extend_from_slice(bytes);
                });
            }
            // Without what was there: nothing is copied when the buffer grows.
            into.clear();
            into.resize(span.len, 0);
            self.values.read(memory, span, 0, into, still)
        });
        if !matches!(found, Ok(Some(()))) {
            into.clear();
        }
        Ok(found?.is_some())
    }

    /// Copies the bytes of a value from `offset` on, at most as much as `into` holds, and returns
    /// how many bytes that were. `None` without the key.
    ///
    /// # Errors
    /// As [`BlobMap::get`].
    pub fn read_at<M: Memory>(
        &self,
        memory: &mut M,
        key: &I::Key,
        offset: usize,
        into: &mut [u8],
    ) -> Result<Option<usize>, AccessError> {
        self.look_up(memory, key, |memory, span, still| {
            let len = span.len.saturating_sub(offset).min(into.len());
            if len > 0 {
                self.values.read(memory, span, offset, &mut into[..len], still)?;
            }
            Ok(len)
        })
    }

    /// Copies the beginning of a value, as much as `into` holds, and returns the length of the
    /// whole value. `None` without the key.
    ///
    /// # Errors
    /// As [`BlobMap::get`].
    pub fn copy_to<M: Memory>(
        &self,
        memory: &mut M,
        key: &I::Key,
        into: &mut [u8],
    ) -> Result<Option<usize>, AccessError> {
        self.look_up(memory, key, |memory, span, still| {
            let len = span.len.min(into.len());
            if len > 0 {
                self.values.read(memory, span, 0, &mut into[..len], still)?;
            }
            Ok(span.len)
        })
    }

    /// The length of a value. `None` without the key.
    ///
    /// # Errors
    /// As [`BlobMap::get`].
    pub fn value_len<M: Memory>(&self, memory: &mut M, key: &I::Key) -> Result<Option<usize>, AccessError> {
        let word = self.index.word(memory, key)?;
        Ok(word.map(|word| self.values.span(word)).transpose()?.map(|span| span.len))
    }

    /// What `read` reads of one state of a value.
    #[inline]
    fn look_up<M: Memory, R>(
        &self,
        memory: &mut M,
        key: &I::Key,
        mut read: impl FnMut(&mut M, Span, &dyn Fn() -> bool) -> Result<R, AccessError>,
    ) -> Result<Option<R>, AccessError> {
        self.memory.check(memory.id())?;
        loop {
            let state = memory.roll_backs();
            let found = optimistic::read(self.swings.of(I::hash(key)), memory, |memory, still| {
                let Some(word) = self.index.word(memory, key)? else { return Ok(None) };
                let span = self.values.span(word)?;
                read(memory, span, still).map(Some)
            });
            // A part may be of either state, because the latch is marked only at the end of a roll
            // back.
            if memory.roll_backs() == state {
                return found;
            }
        }
    }

    /// Sets the value of `key`. Returns whether there was one before. Of a value of more than 1 MiB
    /// under a name, each MiB is a section of its own, so that a sync does not wait for all of it.
    ///
    /// # Errors
    /// [`AccessError::TooLong`], [`AccessError::NoSpace`], [`AccessError::PoolFull`]; what the
    /// memory says. The old value is still there then.
    pub fn put<M: Memory>(&self, memory: &mut M, key: &I::Key, value: &[u8]) -> Result<bool, AccessError> {
        self.memory.check(memory.id())?;
        I::fits(key)?;
        values::fits(value.len())?;
        if value.len() > PART_BYTES && self.has_parts::<M>() {
            return self.put_in_parts(memory, key, value);
        }
        let _section = memory.write_section()?;
        let _turn = self.turns.of(I::hash(key)).lock(memory)?;
        self.replace(memory, key, value)
    }

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// What the memory says; nothing was removed then.
    pub fn remove<M: Memory>(&self, memory: &mut M, key: &I::Key) -> Result<bool, AccessError> {
        self.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        let _turn = self.turns.of(I::hash(key)).lock(memory)?;
        let old = {
            let _swing = self.swings.of(I::hash(key)).lock(memory)?;
            self.index.unset(memory, key)?
        };
        if let Some(old) = old {
            self.free_word(memory, old);
        }
        Ok(old.is_some())
    }

    /// Sets the value of `key` if it is `expected` now, where `None` is no value at all. Returns
    /// whether it was. Of values of more than 1 MiB under a name, a sync waits for 1 MiB, as in
    /// [`BlobMap::put`]. It waits for all where others change the value again and again meanwhile.
    ///
    /// # Errors
    /// As [`BlobMap::put`].
    pub fn compare_and_put<M: Memory>(
        &self,
        memory: &mut M,
        key: &I::Key,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, AccessError> {
        self.memory.check(memory.id())?;
        I::fits(key)?;
        values::fits(value.len())?;
        if value.len().max(expected.map_or(0, <[u8]>::len)) > PART_BYTES && self.has_parts::<M>() {
            for _ in 0..ATTEMPTS {
                if let Some(same) = self.compare_and_put_in_parts(memory, key, expected, value)? {
                    return Ok(same);
                }
            }
        }
        let _section = memory.write_section()?;
        let _turn = self.turns.of(I::hash(key)).lock(memory)?;
        let now = self.current(memory, key)?;
        let same = match (now, expected) {
            (None, None) => true,
            (Some(span), Some(expected)) if span.len == expected.len() => {
                let mut bytes = vec![0; span.len];
                self.values.read(memory, span, 0, &mut bytes, &|| true)?;
                bytes == expected
            }
            _ => false,
        };
        if same {
            self.replace(memory, key, value)?;
        }
        Ok(same)
    }

    /// Changes a copy of the value of `key`, puts it, and returns what `change` returned. `None`
    /// without the key. Other writers of the key wait. `change` is called at most once. A panic in
    /// it changes nothing. All of it is one section, so a sync waits for it, whatever the length.
    ///
    /// # Errors
    /// As [`BlobMap::put`]; nothing was changed then.
    pub fn update<M: Memory, R>(
        &self,
        memory: &mut M,
        key: &I::Key,
        change: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<Option<R>, AccessError> {
        self.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        let turn = self.turns.of(I::hash(key)).lock(memory)?;
        let Some(span) = self.current(memory, key)? else { return Ok(None) };
        let mut value = vec![0; span.len];
        self.values.read(memory, span, 0, &mut value, &|| true)?;
        // Held until the new value is there, or another writer's would be lost.
        let (changed, _turn) = harmless(turn, || change(&mut value));
        self.replace(memory, key, &value)?;
        Ok(Some(changed))
    }

    /// Appends to the value of `key`, which counts as empty without one. Returns its length. Mostly
    /// only the appended bytes are written, because an object has room for an eighth more. More
    /// than 1 MiB at a time is written with the whole value anew, in parts as in [`BlobMap::put`].
    ///
    /// # Errors
    /// As [`BlobMap::put`]; nothing was changed then.
    pub fn append<M: Memory>(&self, memory: &mut M, key: &I::Key, bytes: &[u8]) -> Result<usize, AccessError> {
        self.memory.check(memory.id())?;
        I::fits(key)?;
        let most = if self.has_parts::<M>() { PART_BYTES } else { usize::MAX };
        for _ in 0..ATTEMPTS {
            if let Some(len) = self.append_at_once(memory, key, bytes, most)? {
                return Ok(len);
            }
            if let Some(len) = self.append_in_parts(memory, key, bytes)? {
                return Ok(len);
            }
        }
        let len = self.append_at_once(memory, key, bytes, usize::MAX)?;
        Ok(len.expect("there is no more than that to write"))
    }
    /// Appends in one section. None where that would write more than `most` bytes.
    fn append_at_once<M: Memory>(
        &self,
        memory: &mut M,
        key: &I::Key,
        bytes: &[u8],
        most: usize,
    ) -> Result<Option<usize>, AccessError> {
        let _section = memory.write_section()?;
        let _turn = self.turns.of(I::hash(key)).lock(memory)?;
        let now = self.current(memory, key)?.unwrap_or_else(|| self.values.empty());
        let len = now.len.saturating_add(bytes.len());
        values::fits(len)?;
        let has_room = now.len > 0 && !now.object && len <= self.values.room(now);
        if if has_room { bytes.len() } else { len } > most {
            return Ok(None);
        }
        if has_room {
            // Nothing leads behind the value's end, so this may fail half way.
            self.values.fill(memory, now.at.add(now.len as u64), bytes)?;
            self.swing(memory, key, Span { len, ..now })?;
            return Ok(Some(len));
        }
        let mut value = vec![0; len];
        self.values.read(memory, now, 0, &mut value[..now.len], &|| true)?;
        value[now.len..].copy_from_slice(bytes);
        self.replace(memory, key, &value)?;
        Ok(Some(len))
    }

    /// Changes bytes of a value in place, from `offset` bytes in. Returns whether they are inside a
    /// value of `key`. Without that nothing is changed. A change of up to four subpages writes no
    /// more than these. A longer one writes the whole value anew, in parts as in [`BlobMap::put`].
    /// So does one of a value that is viewed ([`BlobMap::view`]).
    ///
    /// # Errors
    /// As [`BlobMap::put`]; nothing was changed then.
    pub fn write_at<M: Memory>(
        &self,
        memory: &mut M,
        key: &I::Key,
        offset: usize,
        bytes: &[u8],
    ) -> Result<bool, AccessError> {
        self.memory.check(memory.id())?;
        let most = if self.has_parts::<M>() { PART_BYTES } else { usize::MAX };
        for _ in 0..ATTEMPTS {
            if let Some(inside) = self.write_at_once(memory, key, offset, bytes, most)? {
                return Ok(inside);
            }
            if let Some(inside) = self.write_at_in_parts(memory, key, offset, bytes)? {
                return Ok(inside);
            }
        }
        let inside = self.write_at_once(memory, key, offset, bytes, usize::MAX)?;
        Ok(inside.expect("there is no more than that to write"))
    }
    /// Changes bytes of a value in one section. None where a value of more than `most` bytes would
    /// be written anew.
    fn write_at_once<M: Memory>(
        &self,
        memory: &mut M,
        key: &I::Key,
        offset: usize,
        bytes: &[u8],
        most: usize,
    ) -> Result<Option<bool>, AccessError> {
        let _section = memory.write_section()?;
        let _turn = self.turns.of(I::hash(key)).lock(memory)?;
        let Some(span) = self.current(memory, key)? else { return Ok(Some(false)) };
        if offset.checked_add(bytes.len()).is_none_or(|end| end > span.len) {
            return Ok(Some(false));
        }
        let at = span.at.add(offset as u64);
        let subpages = (at.subpage_offset() + bytes.len()).div_ceil(SUBPAGE_BYTES);
        // An object is in no frame.
        if !M::TRACKED && !span.object && subpages <= Self::PINS as usize {
            let mut set = WriteSet::new();
            set.write_bytes(at, bytes);
            // Readers read again: they may have copied a part.
            let _swing = self.swings.of(I::hash(key)).lock(memory)?;
            // What is viewed stays as it is.
            if !self.parts.readers.notify(span.at) {
                set.commit(memory)?;
                return Ok(Some(true));
            }
        }
        if span.len > most {
            return Ok(None);
        }
        let mut part = vec![0; span.len.min(PART_BYTES)];
        if span.len <= PART_BYTES {
            self.values.read(memory, span, 0, &mut part, &|| true)?;
            part[offset..offset + bytes.len()].copy_from_slice(bytes);
            self.replace(memory, key, &part)?;
            return Ok(Some(true));
        }
        let new = Span { at: self.values.heap.allocate(memory, span.len)?, ..span };
        for from in (0..span.len).step_by(PART_BYTES) {
            let part = &mut part[..(span.len - from).min(PART_BYTES)];
            let copied = self.values.read(memory, span, from, part, &|| true).and_then(|()| {
                overlay(from, part, offset, bytes);
                self.values.fill(memory, new.at.add(from as u64), part)
            });
            if let Err(error) = copied.and_then(|()| memory.yield_now()) {
                self.values.free(memory, new);
                return Err(error);
            }
        }
        self.lead_to(memory, key, new)?;
        Ok(Some(true))
    }

    /// Whether long values are written in parts.
    fn has_parts<M: Memory>(&self) -> bool {
        !M::TRACKED && self.parts.has_notes()
    }
    /// Where the value of a key is. The caller has the key's turn.
    fn current<M: Memory>(&self, memory: &mut M, key: &I::Key) -> Result<Option<Span>, AccessError> {
        self.index.word(memory, key)?.map(|word| self.values.span(word)).transpose()
    }

    /// Gives back what a word led to before.
    fn free_word<M: Memory>(&self, memory: &mut M, word: u64) {
        // A damaged word led to nothing that could be given back.
        if let Ok(span) = self.values.span(word) {
            self.release(memory, span);
        }
    }
    /// Lets the key lead to another value, and returns the word that it had.
    fn swing<M: Memory>(&self, memory: &mut M, key: &I::Key, to: Span) -> Result<Option<u64>, AccessError> {
        let _swing = self.swings.of(I::hash(key)).lock(memory)?;
        self.index.set(memory, key, self.values.word(to))
    }

    /// Puts a new value in the place of the old one, which is free then. Returns whether there was
    /// one. The caller has the key's turn.
    fn replace<M: Memory>(&self, memory: &mut M, key: &I::Key, value: &[u8]) -> Result<bool, AccessError> {
        if self.values.space.is_some()
            && memory.takes_objects()
            // What is no word is replaced like any other.
            && let Ok(Some(old)) = self.current(memory, key)
            && self.values.can_overwrite(memory, old, value.len())
        {
            // Without the latch, which readers wait for.
            memory.wait_for_object_room(old.at)?;
            // A transaction that read the old value finds out.
            let _swing = self.swings.of(I::hash(key)).lock(memory)?;
            memory.write_object(old.at, value)?;
            return Ok(true);
        }
        let new = self.values.write(memory, value)?;
        self.lead_to(memory, key, new)
    }
    /// Lets the key lead to a value that was written, and frees the old one. Returns whether there
    /// was one. After an error the new one is free. The caller has the key's turn.
    fn lead_to<M: Memory>(&self, memory: &mut M, key: &I::Key, new: Span) -> Result<bool, AccessError> {
        match self.swing(memory, key, new) {
            Ok(old) => {
                if let Some(old) = old {
                    self.free_word(memory, old);
                }
                Ok(old.is_some())
            }
            Err(error) => {
                self.values.free(memory, new);
                Err(error)
            }
        }
    }

    /// Checks index and heap, and that each value has its own place. Returns keys and bytes of
    /// values. Nothing may change anything meanwhile.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] with what was found; what the memory says.
    pub fn check<M: Memory>(&self, memory: &mut M) -> Result<(u64, u64), AccessError> {
        self.memory.check(memory.id())?;
        let mut words = Vec::new();
        self.index.check_words(memory, &mut |word| words.push(word))?;
        let mut spans = words.iter().map(|word| self.values.span(*word)).collect::<Result<Vec<_>, _>>()?;
        let (keys, bytes) = (spans.len() as u64, spans.iter().map(|span| span.len as u64).sum());
        spans.retain(|span| span.len > 0);
        spans.sort_unstable_by_key(|span| span.at);
        for pair in spans.windows(2) {
            let end = pair[0].at.add(self.values.room(pair[0]) as u64);
            if end > pair[1].at {
                let (what, at) = ("value inside another one", pair[1].at);
                return Err(AccessError::Corrupt { what, at, expected: end.bits(), got: at.bits() });
            }
        }
        if let Some(space) = &self.values.space {
            let numbers: Vec<u64> = spans.iter().filter(|span| span.object).map(|span| space.number(span.at)).collect();
            space.check(memory, &numbers)?;
        }
        self.values.heap.check(memory)?;
        Ok((keys, bytes))
    }

    /// DRAM that its latches use, without the latches of index and heap.
    pub fn dram_bytes(&self) -> usize {
        self.turns.bytes() + self.swings.bytes() + self.values.space.as_ref().map_or(0, Space::bytes)
    }

    pub(crate) fn index(&self) -> &I {
        &self.index
    }
    /// As [`Latch::disturb`], without the index.
    pub(crate) fn disturb(&self, gone: bool) {
        self.turns.disturb(gone);
        self.swings.disturb(gone);
        self.values.space.iter().for_each(|space| space.disturb(gone));
        self.parts.disturb();
    }

    /// Bytes of address space for `count` values of up to a subpage as objects.
    pub const fn object_bytes_needed(count: u64) -> u64 {
        Space::<I::Latch>::bytes_needed(count)
    }
    /// From now on, new values of up to a subpage are objects, as many as `region` has address
    /// space for ([`BlobMap::object_bytes_needed`]). The caller is in a write section.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`] when that is not even one; what the memory says.
    pub fn make_objects<M: Memory>(&mut self, memory: &mut M, region: Region) -> Result<(), AccessError> {
        self.memory.check(memory.id())?;
        self.values.space = Some(Space::create(memory, region)?);
        Ok(())
    }
    /// From now on, what is written in parts is noted here, so that a kill loses no space. Notes of
    /// this map are here already, or zeros.
    pub(crate) fn keep_notes(&mut self, at: Address) {
        self.parts.with_notes(at);
    }
    /// Where its objects are, if it has any.
    pub fn objects(&self) -> Option<Region> {
        self.values.space.as_ref().map(Space::region)
    }
    /// Opens the objects that were made there.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when none were; what the memory says.
    pub fn open_objects<M: Memory>(&mut self, memory: &mut M, region: Region) -> Result<(), AccessError> {
        self.memory.check(memory.id())?;
        self.values.space = Some(Space::open(memory, region)?);
        Ok(())
    }
}

impl<K: KeyHash + Eq, L: Latch> BlobMap<HashMap<K, u64, L>> {
    /// Bytes of region for the buckets of `capacity` keys. Values and overflow blocks come from the
    /// heap.
    pub const fn bytes_needed(capacity: u64) -> u64 {
        HashMap::<K, u64, L>::bytes_to_grow(capacity)
    }

    /// Makes an empty one for about `capacity` keys, with its buckets at the front of `region`, its
    /// values in `heap`, and thrice `latch_count` latches (8 bytes each, rounded up to a power of
    /// two).
    ///
    /// # Errors
    /// As [`HashMap::create`].
    pub fn create<M: Memory>(
        memory: &mut M,
        region: Region,
        heap: Arc<Heap>,
        capacity: u64,
        latch_count: usize,
    ) -> Result<Self, AccessError> {
        let index = HashMap::create_growing(memory, region, heap.clone(), capacity, latch_count)?;
        Ok(Self::over(index, heap, latch_count))
    }

    /// Opens the one with this root. Accesses nothing.
    ///
    /// # Errors
    /// As [`HashMap::open`].
    pub fn open(root: HashMapRoot, heap: Arc<Heap>, latch_count: usize) -> Result<Self, AccessError> {
        Ok(Self::over(HashMap::open(root, heap.clone(), latch_count)?, heap, latch_count))
    }

    /// What to store, to open it again.
    pub fn root(&self) -> HashMapRoot {
        self.index.root()
    }

    /// Calls `each` with every key and its length, in no order. Keys may come and go meanwhile.
    ///
    /// # Errors
    /// As [`BlobMap::get`].
    pub fn for_each_key<M: Memory>(&self, memory: &mut M, mut each: impl FnMut(&K, usize)) -> Result<(), AccessError> {
        let mut damaged = None;
        self.index.for_each(memory, |key, word| match self.values.span(*word) {
            Ok(span) => each(key, span.len),
            Err(error) => damaged = Some(error),
        })?;
        damaged.map_or(Ok(()), Err)
    }
}

impl<L: Latch> BlobMap<Masstree<L>> {
    /// Makes an empty one in `heap`, with thrice `latch_count` latches (8 bytes each, rounded up to
    /// a power of two).
    ///
    /// # Errors
    /// As [`Masstree::create`].
    ///
    /// # Panics
    /// When `latch_count` is zero.
    pub fn create<M: Memory>(memory: &mut M, heap: Arc<Heap>, latch_count: usize) -> Result<Self, AccessError> {
        Ok(Self::over(Masstree::create(memory, heap.clone(), latch_count)?, heap, latch_count))
    }

    /// Opens the one with this root.
    ///
    /// # Errors
    /// As [`Masstree::open`].
    ///
    /// # Panics
    /// When `latch_count` is zero.
    pub fn open<M: Memory>(
        memory: &mut M,
        heap: Arc<Heap>,
        root: MasstreeRoot,
        latch_count: usize,
    ) -> Result<Self, AccessError> {
        Ok(Self::over(Masstree::open(memory, heap.clone(), root, latch_count)?, heap, latch_count))
    }

    /// What to store, to open it again.
    pub fn root(&self) -> MasstreeRoot {
        self.index.root()
    }

    /// Up to `limit` keys from `from` on and the lengths of their values, ascending. Each was there
    /// when it was read. Different ones may be of different times.
    ///
    /// # Errors
    /// As [`BlobMap::get`].
    pub fn keys<M: Memory>(
        &self,
        memory: &mut M,
        from: &[u8],
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, usize)>, AccessError> {
        let mut keys = Vec::new();
        self.index.scan(memory, from, limit, |key, word| {
            keys.push((key.to_vec(), word));
            std::ops::ControlFlow::Continue(())
        })?;
        keys.into_iter().map(|(key, word)| Ok((key, self.values.span(word)?.len))).collect()
    }

    /// Shows `visit` up to `limit` keys from `from` on and their values, ascending, until it
    /// breaks, and returns how many. Each value is whole and was there when it was read. Different
    /// ones may be of different times. A key that is removed meanwhile is left out.
    ///
    /// # Errors
    /// As [`BlobMap::get`]. What was shown before was right.
    pub fn scan<M: Memory>(
        &self,
        memory: &mut M,
        from: &[u8],
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]) -> std::ops::ControlFlow<()>,
    ) -> Result<usize, AccessError> {
        /// Keys that are read ahead of their values.
        const AT_ONCE: usize = 64;
        let (mut from, mut shown, mut value) = (from.to_vec(), 0, Vec::new());
        while shown < limit {
            let keys = self.keys(memory, &from, AT_ONCE.min(limit - shown))?;
            let Some((last, _)) = keys.last() else { break };
            // The least byte string that is greater.
            from.clone_from(last);
            from.push(0);
            for (key, _) in &keys {
                if self.get(memory, key, &mut value)? {
                    shown += 1;
                    if visit(key, &value).is_break() {
                        return Ok(shown);
                    }
                }
            }
        }
        Ok(shown)
    }
}
