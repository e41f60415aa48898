//! Long values that are read and written in parts.
//!
//! ```text
//!  writer: | take space, note it | part | part | .. | forget the note, swing |  a section each
//!  reader: find the value, tell | part | part | ..            told when the value goes
//! ```
//!
//! A writer has no latch and no section between two parts, so a sync waits for at most one part.
//! What a kill or a roll back leaves of a value that nothing leads to yet is found by its note, in
//! the header of its container, and freed before the next one is written. A reader has no latch
//! either. Each change of a value tells its readers before it gives the value's space away, so they
//! get an error and no bytes of another value.
//!
//! A long change that depends on the old value reads it in parts first, too. Its last section
//! checks whether that value is still there, and writes nothing if not.
//!
//! Invariants:
//! * A note names a value to which no word leads, or none. A note changes in the section in which
//!   the value's space is taken, freed or led to.
//! * After a roll back no writer writes on: its space may be another's.
//! * A reader whose value has gone returns no more bytes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

use fulgurite_format::Address;
use fulgurite_runtime::AccessError;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::readers::{Readers, Reading, hold};
use super::values::{self, Span};
use super::{BlobIndex, BlobMap};
use crate::{ByKind, Latch, Memory, Ptr, hash_bytes};

/// Bytes that are written in one section: some 100 µs of copying.
pub(super) const PART_BYTES: usize = 1 << 20;
/// Changes in parts that another writer has overtaken, before one section has all of the change.
pub(super) const ATTEMPTS: u32 = 4;
/// Values that may be written in parts at a time. More are written, and lost to a kill.
const NOTES: usize = 32;
/// Bytes of the notes.
pub(crate) const NOTES_BYTES: usize = NOTES * size_of::<Note>();

/// The word of a value that is being written, with a check. Anything else is none.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Note {
    word: u64,
    check: u64,
}

impl Note {
    const NONE: Note = Note { word: 0, check: 0 };
    fn of(word: u64, at: Address) -> Note {
        let check = hash_bytes(&[word.to_le_bytes(), at.bits().to_le_bytes()].concat());
        Note { word, check: check ^ u64::from_le_bytes(*b"notes001") }
    }
}

/// What the readers and writers of a map's values in parts share.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Where its notes are, if it has any.
    notes: Option<Address>,
    /// Notes of writers that live. Others are left from an earlier run or state.
    taken: Mutex<u64>,
    /// What writers without a note have left.
    dropped: Mutex<Vec<Span>>,
    /// No note is left of an earlier run or state.
    swept: AtomicBool,
    /// Roll backs so far.
    roll_backs: AtomicU64,
    pub readers: Readers,
}

impl Parts {
    pub fn with_notes(&mut self, at: Address) {
        self.notes = Some(at);
    }
    pub fn has_notes(&self) -> bool {
        self.notes.is_some()
    }
    fn note(&self, place: usize) -> Option<(Ptr<Note>, Address)> {
        let at = self.notes?.add((place * size_of::<Note>()) as u64);
        Some((Ptr::new(at), at))
    }
    /// After a roll back.
    pub fn disturb(&self) {
        self.roll_backs.fetch_add(1, Ordering::SeqCst);
        *hold(&self.taken) = 0;
        hold(&self.dropped).clear();
        self.swept.store(false, Ordering::SeqCst);
        self.readers.disturb();
    }
    pub fn roll_backs(&self) -> u64 {
        self.roll_backs.load(Ordering::SeqCst)
    }
    /// Whether there was no roll back after the first `roll_backs`. It stays so until the end of a
    /// section.
    pub fn is_after(&self, roll_backs: u64) -> bool {
        self.roll_backs() == roll_backs
    }

    /// The value of a note is free, or led to. The note is another's from now on. Nothing has
    /// changed after an error.
    pub fn forget<M: Memory>(&self, memory: &mut M, place: Option<usize>) -> Result<(), AccessError> {
        let Some(place) = place else { return Ok(()) };
        if let Some((note, _)) = self.note(place) {
            memory.store(note, Note::NONE)?;
        }
        self.let_go(place);
        Ok(())
    }
    /// A value to which nothing leads is left to the next one that is written in parts.
    pub fn leave(&self, place: Option<usize>, span: Span) {
        match place {
            Some(place) => self.let_go(place),
            None => hold(&self.dropped).push(span),
        }
        self.swept.store(false, Ordering::SeqCst);
    }
    fn let_go(&self, place: usize) {
        *hold(&self.taken) &= !(1 << place);
    }
}

/// Reads a value in parts. [`BlobMap::reader`] makes one, and has an example.
///
/// It holds no latch and pins nothing, so it may live as long as it likes. When the value is
/// changed, replaced or removed, [`ValueReader::read`] fails with [`AccessError::ValueGone`]. A
/// value that only grew is read as it was.
pub struct ValueReader<'b, I: BlobIndex> {
    blobs: &'b BlobMap<I>,
    span: Span,
    /// A value that is an object, which was copied.
    copied: Option<Vec<u8>>,
    reading: Arc<Reading>,
    /// Roll backs of the memory before it was made.
    state: u64,
    position: usize,
}

impl<I: BlobIndex> std::fmt::Debug for ValueReader<'_, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValueReader").field("span", &self.span).field("position", &self.position).finish()
    }
}

impl<I: BlobIndex> Drop for ValueReader<'_, I> {
    fn drop(&mut self) {
        // It kept nothing.
        self.blobs.parts.readers.end(&self.reading);
    }
}

impl<I: BlobIndex> ValueReader<'_, I> {
    /// Bytes of the value.
    pub fn len(&self) -> usize {
        self.span.len
    }
    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.span.len == 0
    }
    /// Where the next read begins.
    pub fn position(&self) -> usize {
        self.position
    }
    /// The next read begins here. Behind the end there is nothing to read.
    pub fn seek(&mut self, position: usize) {
        self.position = position;
    }
    /// Copies the next bytes, as many as `into` holds, and returns how many. 0 at the end.
    ///
    /// # Errors
    /// [`AccessError::ValueGone`] when the value was changed since the reader was made. Otherwise
    /// as [`BlobMap::get`]. The position has not changed then, and `into` holds anything.
    pub fn read<M: Memory>(&mut self, memory: &mut M, into: &mut [u8]) -> Result<usize, AccessError> {
        self.blobs.memory.check(memory.id())?;
        let len = self.span.len.saturating_sub(self.position).min(into.len());
        let into = &mut into[..len];
        if let Some(copied) = &self.copied {
            into.copy_from_slice(&copied[self.position..][..len]);
        } else if len > 0 {
            let still = || !self.reading.is_gone();
            let read = self.blobs.values.read(memory, self.span, self.position, into, &still);
            // What was read must not be read below this.
            fence(Ordering::Acquire);
            if self.is_gone(memory) {
                return Err(AccessError::ValueGone { at: self.span.at });
            }
            read?;
        }
        self.position += len;
        Ok(len)
    }
    /// Whether the value is this one. At its beginning.
    fn is<M: Memory>(&mut self, memory: &mut M, expected: &[u8]) -> Result<bool, AccessError> {
        let mut part = vec![0; self.len().min(PART_BYTES)];
        for expected in expected.chunks(PART_BYTES) {
            let read = self.read(memory, &mut part)?;
            if part[..read] != *expected {
                return Ok(false);
            }
        }
        Ok(true)
    }
    fn is_gone<M: Memory>(&self, memory: &M) -> bool {
        // The reading is marked only at the end of a roll back.
        self.reading.is_gone() || memory.roll_backs() != self.state
    }
}

/// Writes a value in parts. [`BlobMap::writer`] makes one, and [`BlobMap::reader`] has an example.
///
/// Nobody sees the value before [`ValueWriter::finish`]. It holds no latch, and a sync waits for at
/// most one of its parts of 1 MiB. Dropped before its end, it changes nothing. Its space is then
/// free when the next value is written in parts.
pub struct ValueWriter<'b, I: BlobIndex> {
    blobs: &'b BlobMap<I>,
    span: Span,
    place: Option<usize>,
    /// Its space is not another's yet.
    owns: bool,
    roll_backs: u64,
    written: usize,
}

impl<I: BlobIndex> std::fmt::Debug for ValueWriter<'_, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValueWriter").field("span", &self.span).field("written", &self.written).finish()
    }
}

impl<I: BlobIndex> Drop for ValueWriter<'_, I> {
    fn drop(&mut self) {
        if !self.owns || !self.is_of_this_state() {
            return;
        }
        self.blobs.parts.leave(self.place, self.span);
    }
}

impl<I: BlobIndex> ValueWriter<'_, I> {
    /// Bytes that it was made for.
    pub fn len(&self) -> usize {
        self.span.len
    }
    /// Whether it was made for none.
    pub fn is_empty(&self) -> bool {
        self.span.len == 0
    }
    /// Bytes that were written.
    pub fn written(&self) -> usize {
        self.written
    }
    fn is_of_this_state(&self) -> bool {
        self.blobs.parts.is_after(self.roll_backs)
    }
    /// In a section: no roll back comes before its end.
    fn still_has_space(&self) -> Result<(), AccessError> {
        if self.is_of_this_state() { Ok(()) } else { Err(AccessError::ValueGone { at: self.span.at }) }
    }

    /// Writes the next bytes.
    ///
    /// # Errors
    /// [`AccessError::TooLong`] when there are more than it was made for.
    /// [`AccessError::ValueGone`] after a roll back. Otherwise what the memory says. Nothing was
    /// written then, and the same bytes can be written again.
    pub fn write<M: Memory>(&mut self, memory: &mut M, bytes: &[u8]) -> Result<(), AccessError> {
        self.blobs.memory.check(memory.id())?;
        let end = self.written.saturating_add(bytes.len());
        if end > self.span.len {
            let (bytes, most) = (end as u64, self.span.len as u64);
            return Err(AccessError::TooLong { what: "value written in parts", bytes, most });
        }
        let mut done = 0;
        for part in bytes.chunks(PART_BYTES) {
            if done > 0 {
                memory.yield_now()?;
            }
            let _section = memory.write_section()?;
            self.still_has_space()?;
            self.blobs.values.fill(memory, self.span.at.add((self.written + done) as u64), part)?;
            done += part.len();
        }
        self.written = end;
        Ok(())
    }

    /// Lets `key` lead to what was written. Returns whether there was a value before.
    ///
    /// # Errors
    /// [`AccessError::Unfinished`] when it was made for more bytes. Otherwise as [`BlobMap::put`],
    /// and [`AccessError::ValueGone`] after a roll back. The old value is still there then.
    pub fn finish<M: Memory>(self, memory: &mut M, key: &I::Key) -> Result<bool, AccessError> {
        self.blobs.memory.check(memory.id())?;
        let replaced = self.finish_if(memory, key, |_| Ok(true))?;
        Ok(replaced.expect("there was no condition"))
    }
    /// Finishes if `still` holds in the section in which the key's word changes. None if not: its
    /// space is free then.
    fn finish_if<M: Memory>(
        mut self,
        memory: &mut M,
        key: &I::Key,
        still: impl FnOnce(&mut M) -> Result<bool, AccessError>,
    ) -> Result<Option<bool>, AccessError> {
        I::fits(key)?;
        if self.written < self.span.len {
            return Err(AccessError::Unfinished { written: self.written as u64, bytes: self.span.len as u64 });
        }
        let blobs = self.blobs;
        let _section = memory.write_section()?;
        let _turn = blobs.turns.of(I::hash(key)).lock(memory)?;
        self.still_has_space()?;
        let holds = still(memory)?;
        self.forget_note(memory)?;
        if !holds {
            blobs.values.free(memory, self.span);
            return Ok(None);
        }
        match blobs.swing(memory, key, self.span) {
            Ok(old) => {
                if let Some(old) = old {
                    blobs.free_word(memory, old);
                }
                Ok(Some(old.is_some()))
            }
            Err(error) => {
                blobs.values.free(memory, self.span);
                Err(error)
            }
        }
    }
    /// Gives its space back at once.
    fn cancel<M: Memory>(mut self, memory: &mut M) {
        // Where this fails, the next writer does it.
        let Ok(_section) = memory.write_section() else { return };
        if self.still_has_space().is_ok() && self.forget_note(memory).is_ok() {
            self.blobs.values.free(memory, self.span);
        }
    }
    /// The value is its own from now on, or free.
    fn forget_note<M: Memory>(&mut self, memory: &mut M) -> Result<(), AccessError> {
        self.blobs.parts.forget(memory, self.place)?;
        self.owns = false;
        Ok(())
    }
}

impl<I: BlobIndex> BlobMap<I> {
    /// Begins to read the value of `key` in parts. None without the key.
    ///
    /// ```
    /// use fulgurite_memory::{AccessError, Address, Blobs, Heap, PlainMemory, Region};
    /// use fulgurite_sys::Backed;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut memory = PlainMemory::new(Backed::BasePages)?;
    /// # let (heap, buckets) = Region::new(Address::from_linear(1 << 20), 8 << 20).split(4 << 20);
    /// # let heap = Heap::create(&mut memory, heap)?.into();
    /// # let films = Blobs::<u64>::create(&mut memory, buckets, heap, 1000, 64)?;
    /// let mut writer = films.writer(&mut memory, 300_000)?;
    /// for _ in 0..300 {
    ///     writer.write(&mut memory, &[7; 1000])?;
    /// }
    /// writer.finish(&mut memory, &1)?;
    ///
    /// let mut reader = films.reader(&mut memory, &1)?.ok_or("no such film")?;
    /// let (mut part, mut bytes) = ([0; 4096], 0);
    /// loop {
    ///     match reader.read(&mut memory, &mut part)? {
    ///         0 => break,
    ///         read => bytes += read,
    ///     }
    /// }
    /// assert_eq!(bytes, 300_000);
    ///
    /// reader.seek(0);
    /// films.remove(&mut memory, &1)?;
    /// let gone = reader.read(&mut memory, &mut part);
    /// assert!(matches!(gone, Err(AccessError::ValueGone { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`BlobMap::get`].
    pub fn reader<M: Memory>(&self, memory: &mut M, key: &I::Key) -> Result<Option<ValueReader<'_, I>>, AccessError> {
        self.look_up(memory, key, |memory, span, _| {
            let mut copied = None;
            if span.object {
                copied = Some(memory.read_object(span.at, span.len, <[u8]>::to_vec)?);
            }
            let (reading, state) = (self.parts.readers.begin(span.at, false), memory.roll_backs());
            Ok(ValueReader { blobs: self, span, copied, reading, state, position: 0 })
        })
    }

    /// Takes space for a value of `len` bytes that is written in parts, and put under a key at its
    /// end ([`ValueWriter::finish`]). [`BlobMap::reader`] has an example.
    ///
    /// # Errors
    /// [`AccessError::TooLong`], [`AccessError::NoSpace`]; what the memory says.
    pub fn writer<M: Memory>(&self, memory: &mut M, len: usize) -> Result<ValueWriter<'_, I>, AccessError> {
        self.memory.check(memory.id())?;
        values::fits(len)?;
        let _section = memory.write_section()?;
        self.sweep(memory)?;
        let mut span = self.values.empty();
        if len > 0 {
            span = Span { at: self.values.heap.allocate(memory, len)?, len, object: false };
        }
        let roll_backs = self.parts.roll_backs();
        let place = if len > 0 { self.parts.take_place() } else { None };
        if let Some(place) = place
            && let Err(error) = self.note(memory, place, span)
        {
            self.parts.let_go(place);
            self.values.free(memory, span);
            return Err(error);
        }
        Ok(ValueWriter { blobs: self, span, place, owns: len > 0, roll_backs, written: 0 })
    }
    fn note<M: Memory>(&self, memory: &mut M, place: usize, span: Span) -> Result<(), AccessError> {
        let (note, at) = self.parts.note(place).expect("a place was taken");
        // The other one that sweeps may not have come here yet.
        self.sweep_note(memory, note, at)?;
        memory.store(note, Note::of(self.values.word(span), at))
    }

    /// Notes a value to which nothing leads any more, where it can be. In a section.
    pub(super) fn note_waiting<M: Memory>(&self, memory: &mut M, span: Span) -> Option<usize> {
        let place = self.parts.take_place()?;
        if self.note(memory, place, span).is_err() {
            self.parts.let_go(place);
            return None;
        }
        Some(place)
    }

    /// Puts a long value, so that a sync does not wait for all of it.
    pub(super) fn put_in_parts<M: Memory>(
        &self,
        memory: &mut M,
        key: &I::Key,
        value: &[u8],
    ) -> Result<bool, AccessError> {
        let mut writer = self.writer(memory, value.len())?;
        match writer.write(memory, value) {
            Ok(()) => writer.finish(memory, key),
            Err(error) => {
                writer.cancel(memory);
                Err(error)
            }
        }
    }

    /// [`BlobMap::compare_and_put`] of long values. None when another writer came between.
    pub(super) fn compare_and_put_in_parts<M: Memory>(
        &self,
        memory: &mut M,
        key: &I::Key,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<Option<bool>, AccessError> {
        let mut found = self.reader(memory, key)?;
        let same = match (&mut found, expected) {
            (None, None) => true,
            (Some(found), Some(expected)) if found.len() == expected.len() => match found.is(memory, expected) {
                Err(AccessError::ValueGone { .. }) => return Ok(None),
                same => same?,
            },
            _ => false,
        };
        if !same {
            return Ok(Some(false));
        }
        if value.len() <= PART_BYTES {
            let _section = memory.write_section()?;
            let _turn = self.turns.of(I::hash(key)).lock(memory)?;
            if !self.still_is(memory, key, found.as_ref())? {
                return Ok(None);
            }
            self.replace(memory, key, value)?;
            return Ok(Some(true));
        }
        let mut writer = self.writer(memory, value.len())?;
        if let Err(error) = writer.write(memory, value) {
            writer.cancel(memory);
            return Err(error);
        }
        let put = writer.finish_if(memory, key, |memory| self.still_is(memory, key, found.as_ref()))?;
        Ok(put.map(|_| true))
    }

    /// [`BlobMap::append`] that writes the whole value anew. None when another writer came between.
    pub(super) fn append_in_parts<M: Memory>(
        &self,
        memory: &mut M,
        key: &I::Key,
        bytes: &[u8],
    ) -> Result<Option<usize>, AccessError> {
        let mut found = self.reader(memory, key)?;
        let old = found.as_ref().map_or(0, ValueReader::len);
        let len = old.saturating_add(bytes.len());
        let mut writer = self.writer(memory, len)?;
        let copied = match &mut found {
            Some(found) => copy(memory, found, &mut writer, |_, _| ()),
            None => Ok(()),
        };
        if let Err(error) = copied.and_then(|()| writer.write(memory, bytes)) {
            writer.cancel(memory);
            return overtaken(error);
        }
        let put = writer.finish_if(memory, key, |memory| self.still_is(memory, key, found.as_ref()))?;
        Ok(put.map(|_| len))
    }

    /// [`BlobMap::write_at`] that writes a long value anew. None when another writer came between.
    pub(super) fn write_at_in_parts<M: Memory>(
        &self,
        memory: &mut M,
        key: &I::Key,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Option<bool>, AccessError> {
        let Some(mut found) = self.reader(memory, key)? else { return Ok(Some(false)) };
        if offset.checked_add(bytes.len()).is_none_or(|end| end > found.len()) {
            return Ok(Some(false));
        }
        let mut writer = self.writer(memory, found.len())?;
        let copied = copy(memory, &mut found, &mut writer, |from, part| overlay(from, part, offset, bytes));
        if let Err(error) = copied {
            writer.cancel(memory);
            return overtaken(error);
        }
        let put = writer.finish_if(memory, key, |memory| self.still_is(memory, key, Some(&found)))?;
        Ok(put.map(|_| true))
    }

    /// Whether the value that a reader was made for is still the key's, unchanged. None: no value.
    /// The caller has the key's turn.
    fn still_is<M: Memory>(
        &self,
        memory: &mut M,
        key: &I::Key,
        found: Option<&ValueReader<'_, I>>,
    ) -> Result<bool, AccessError> {
        match (self.current(memory, key)?, found) {
            (None, None) => Ok(true),
            (Some(now), Some(found)) if now == found.span => match &found.copied {
                // Readers are not notified when an object changes.
                Some(copied) => memory.read_object(now.at, now.len, |bytes| bytes == &copied[..]),
                None => Ok(!found.is_gone(memory)),
            },
            _ => Ok(false),
        }
    }

    /// Frees what an earlier run, an earlier state or a dropped writer has left. In a section.
    fn sweep<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        if self.parts.swept.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        for span in std::mem::take(&mut *hold(&self.parts.dropped)) {
            self.values.free(memory, span);
        }
        for place in 0..NOTES {
            let Some((note, at)) = self.parts.note(place) else { break };
            // Taken meanwhile, so that no other does the same.
            if !self.parts.take(place) {
                continue;
            }
            let swept = self.sweep_note(memory, note, at);
            self.parts.let_go(place);
            if let Err(error) = swept {
                self.parts.swept.store(false, Ordering::SeqCst);
                return Err(error);
            }
        }
        Ok(())
    }
    fn sweep_note<M: Memory>(&self, memory: &mut M, note: Ptr<Note>, at: Address) -> Result<(), AccessError> {
        let found = memory.load(note)?;
        if found != Note::NONE && found == Note::of(found.word, at) {
            memory.store(note, Note::NONE)?;
            self.values.free_word(memory, found.word);
        }
        Ok(())
    }
}

/// Copies a value to a writer, and lets `change` change each part. It gets the part's place.
fn copy<I: BlobIndex, M: Memory>(
    memory: &mut M,
    from: &mut ValueReader<'_, I>,
    to: &mut ValueWriter<'_, I>,
    mut change: impl FnMut(usize, &mut [u8]),
) -> Result<(), AccessError> {
    let mut part = vec![0; from.len().min(PART_BYTES)];
    loop {
        let at = from.position();
        let read = from.read(memory, &mut part)?;
        if read == 0 {
            return Ok(());
        }
        change(at, &mut part[..read]);
        to.write(memory, &part[..read])?;
    }
}

/// Changes bytes at `offset` of the value in a part of it, which begins at `from`.
pub(super) fn overlay(from: usize, part: &mut [u8], offset: usize, bytes: &[u8]) {
    let (start, end) = (offset.max(from), (offset + bytes.len()).min(from + part.len()));
    if start < end {
        part[start - from..end - from].copy_from_slice(&bytes[start - offset..end - offset]);
    }
}

/// None when another writer came between.
fn overtaken<T>(error: AccessError) -> Result<Option<T>, AccessError> {
    if matches!(error, AccessError::ValueGone { .. }) { Ok(None) } else { Err(error) }
}

impl Parts {
    /// Takes a note that nobody has. None where there are none.
    fn take_place(&self) -> Option<usize> {
        self.notes?;
        let mut taken = hold(&self.taken);
        let place = (0..NOTES).find(|place| *taken & (1 << place) == 0)?;
        *taken |= 1 << place;
        Some(place)
    }
    fn take(&self, place: usize) -> bool {
        let mut taken = hold(&self.taken);
        let is_free = *taken & (1 << place) == 0;
        *taken |= 1 << place;
        is_free
    }
}
