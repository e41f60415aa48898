//! The index is made again: from the last checkpoint, and the entries of the log behind it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fulgurite_records::{SHARD_BITS, Word};
use fulgurite_runtime::AccessError;

use super::checkpoint::Checkpoint;
use super::entry::{Entry, Kind};
use super::log::SEGMENT_PAGES_MIN;
use super::segments::{self, Segment, Segments};
use super::{MAGIC, READY, RecordMap, RecordMapRoot, no_dram};
use crate::{Heap, Memory};

impl RecordMap {
    /// Opens the one with this root.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when there is none. [`AccessError::NoRecords`] where the memory has
    /// no DRAM for records, [`AccessError::IndexFull`] where it has not enough; what the memory
    /// says.
    pub fn open<M: Memory>(memory: &mut M, heap: Arc<Heap>, root: RecordMapRoot) -> Result<RecordMap, AccessError> {
        if root.magic != MAGIC || root.segment_pages < SEGMENT_PAGES_MIN {
            let (what, at) = ("root of a map of records", root.segments);
            return Err(AccessError::Corrupt { what, at, expected: MAGIC, got: root.magic });
        }
        let checkpoint = Checkpoint::open(memory, root.checkpoint)?;
        let segments = Segments::open(memory, root.segments)?;
        let map = RecordMap::over(memory, heap, root, segments, checkpoint)?;
        map.recover(memory)?;
        Ok(map)
    }

    /// Makes the index again after a roll back. Nothing uses it meanwhile.
    pub(crate) fn reload<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        let checkpoint = Checkpoint::open(memory, self.root.checkpoint)?;
        let segments = Segments::open(memory, self.root.segments)?;
        self.records.drop_table(self.table);
        self.records.add_table(self.table).map_err(|full| no_dram(full.into()))?;
        self.kept_from.store(checkpoint.oldest_segment(), Ordering::Release);
        let appended = self.log.appended();
        *self.checkpoint.lock() = Some(checkpoint.after(appended));
        self.log.become_other(segments);
        self.recover(memory)?;
        self.standing.store(READY, Ordering::Release);
        Ok(())
    }

    fn recover<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        let checkpoint = self.checkpoint.lock().take().expect("nothing saves it meanwhile");
        let recovered = self.recover_from(memory, &checkpoint);
        *self.checkpoint.lock() = Some(checkpoint);
        recovered
    }
    fn recover_from<M: Memory>(&self, memory: &mut M, checkpoint: &Checkpoint) -> Result<(), AccessError> {
        for number in 0..checkpoint.pieces().len() {
            memory.yield_now()?;
            let words = checkpoint.words(memory, number)?;
            let mut shard = self.records.shard(number);
            shard.reserve(self.table, words.len()).map_err(no_dram)?;
            for word in words {
                self.records.balance(&mut shard);
                shard.restore(self.table, word).map_err(no_dram)?;
            }
        }
        let oldest = checkpoint.oldest_segment();
        let main = |segment: &&Segment| segment.kind == segments::Kind::Main && segment.number >= oldest;
        let mut all: Vec<Segment> =
            self.log.segments(|segments| segments.all().map(|(_, segment)| segment).filter(main).copied().collect());
        all.sort_unstable_by_key(|segment| segment.number);
        for segment in all {
            memory.yield_now()?;
            let entries = self.log.entries_of(memory, &segment)?;
            for (n, entry) in entries.iter().enumerate() {
                let piece = &checkpoint.pieces()[entry.hash.shard(SHARD_BITS)];
                if piece.position() <= (segment.number, n as u64) {
                    self.apply(entry)?;
                }
            }
        }
        self.count_live()
    }
    fn apply(&self, entry: &Entry) -> Result<(), AccessError> {
        let mut shard = self.records.of(entry.hash);
        match (entry.kind, entry.to, entry.from) {
            (Kind::Removed, _, Some(from)) => _ = shard.remove_at(self.table, entry.hash, from),
            (Kind::Moved, Some(to), Some(from)) => {
                shard.moved(self.table, entry.hash, from, to).map_err(no_dram)?;
            }
            (_, Some(to), from) => {
                let replaces = |from| shard.moved(self.table, entry.hash, from, to).map_err(no_dram);
                // A record in the page of the one before has the same word.
                let is_there = match from {
                    Some(from) if from == to.page => shard.leads_to(self.table, entry.hash, from),
                    Some(from) => from != to.page && { replaces }(from)?,
                    None => false,
                };
                if !is_there {
                    self.records.balance(&mut shard);
                    shard.restore(self.table, Word::cold(entry.hash.tag(), to)).map_err(no_dram)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
    /// How many records of each segment are needed.
    fn count_live(&self) -> Result<(), AccessError> {
        let mut words = Vec::new();
        for number in 0..1 << SHARD_BITS {
            let mut from = Some(fulgurite_records::Tag::FIRST);
            let shard = self.records.shard(number);
            while let Some(tag) = from {
                from = shard.words(self.table, tag, &mut words);
            }
            drop(shard);
            self.log.segments(|segments| {
                for location in words.drain(..).filter_map(|word| word.location()) {
                    segments.count_live(location.page, 1);
                }
            });
        }
        // What was being filled had no number of records yet.
        self.log.segments(Segments::settle);
        Ok(())
    }
}
