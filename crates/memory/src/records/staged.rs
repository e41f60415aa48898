//! Maps of records in transactions: what one changes is kept by it until it commits.
//!
//! ```text
//!  body:   get --> its own changes, then the map, and the version of the key's latches is noted
//!          put --> kept, and the latches are noted
//!  commit: read what has the key's tag | append the records  ... may wait or fail: nothing is seen
//!          latches taken and validated  -->  words and entries ... in DRAM alone, and cannot fail
//! ```
//!
//! A record that was appended for a transaction which then fails is dead, and in no page with
//! another record of its tag, so that no search finds it.

use std::ptr::NonNull;

use fulgurite_records::{HEAD_BYTES_MAX, KeyHash, KeyRef, Location, LogPage, Record};
use fulgurite_runtime::AccessError;

use super::entry::{Entry, Kind};
use super::log::Which;
use super::{Before, RecordMap, SEED};
use crate::transaction::Change;
use crate::{ByKind, Latch, Memory};

/// What a transaction does to a key.
pub struct KeyChange {
    map: NonNull<RecordMap>,
    hash: KeyHash,
    key: Vec<u8>,
    /// None: it is removed.
    value: Option<Vec<u8>>,
    ready: Option<Ready>,
}

/// All that the commit needs of a change.
struct Ready {
    before: Before,
    old: Option<LogPage>,
    record: Vec<u8>,
    to: Option<Location>,
}

impl KeyChange {
    fn map(&self) -> &RecordMap {
        // SAFETY: a transaction keeps the containers that it has noted changes of (`Staged`).
        unsafe { self.map.as_ref() }
    }
    fn key(&self) -> KeyRef<'_> {
        KeyRef { table: self.map().table, hash: self.hash, bytes: &self.key }
    }
}

impl<M: Memory> Change<M> for KeyChange {
    fn is_of(&self, container: NonNull<()>, key: &[u8]) -> bool {
        self.map.cast() == container && self.key == key
    }
    fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }
    fn prepare(&mut self, memory: &mut M) -> Result<(), AccessError> {
        let map = self.map();
        map.check(memory)?;
        let (before, old) = map.old_of(memory, self.key())?;
        let (mut record, mut to) = (Vec::new(), None);
        if let Some(value) = &self.value {
            record.reserve(HEAD_BYTES_MAX + self.key.len() + value.len());
            Record::new(map.table, &self.key, value).append(SEED, &mut record).expect("its lengths were checked");
            to = Some(map.log.append(memory, (Which::Unsure, self.hash), &record, |_| None)?);
        }
        self.ready = Some(Ready { before, old, record, to });
        Ok(())
    }
    fn install(&mut self) {
        let Some(Ready { before, old, record, to }) = self.ready.take() else { return };
        let (map, key) = (self.map(), self.key());
        match (to, old) {
            (Some(to), from) => {
                map.log.note_now(&Entry { hash: self.hash, kind: Kind::Put, to: Some(to), from });
                map.enter(key, &record, to, before);
            }
            (None, Some(from)) => {
                map.log.note_now(&Entry { hash: self.hash, kind: Kind::Removed, to: None, from: Some(from) });
                map.leave(key, before);
            }
            (None, None) => {}
        }
    }
}

impl RecordMap {
    /// [`RecordMap::get`] in a transaction.
    pub(super) fn get_staged<M: Memory>(
        &self,
        memory: &mut M,
        key: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<bool, AccessError> {
        into.clear();
        let this = NonNull::from(self).cast();
        if let Some(tracker) = memory.tracker()
            && let Some(change) = tracker.notes.changes.iter().find(|change| change.is_of(this, key))
        {
            let value = change.value();
            into.extend_from_slice(value.unwrap_or_default());
            return Ok(value.is_some());
        }
        let latch = self.turns.of(self.hash(key).0);
        loop {
            let version = latch.read_begin(memory)?;
            let tracker = memory.tracker().expect("a transaction has one");
            let found = self.get(tracker.memory, key, into)?;
            if latch.read_validate(version) {
                return Ok(found);
            }
        }
    }
    /// [`RecordMap::put`] and [`RecordMap::remove`] in a transaction. Returns whether the key was
    /// there.
    pub(super) fn change_staged<M: Memory>(
        &self,
        memory: &mut M,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<bool, AccessError> {
        let had = self.get_staged(memory, key, &mut Vec::new())?;
        let hash = self.hash(key);
        // They are noted, and taken by the commit.
        drop(self.turns.of(hash.0).lock(memory)?);
        drop(self.swings.of(hash.0).lock(memory)?);
        let changes = &mut memory.tracker().expect("a transaction has one").notes.changes;
        changes.retain(|change| !change.is_of(NonNull::from(self).cast(), key));
        let (key, value) = (key.to_vec(), value.map(<[u8]>::to_vec));
        changes.push(Box::new(KeyChange { map: NonNull::from(self), hash, key, value, ready: None }));
        Ok(had)
    }
}
