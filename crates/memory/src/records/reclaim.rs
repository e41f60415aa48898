//! Reclaim: what is still needed of a segment is copied, and the segment is free.
//!
//! The segment with the most benefit for its cost is taken, (dead / live) x age as the
//! log-structured file system has it (Rosenblum and Ousterhout, 1992). A segment that a checkpoint
//! does not cover stays, because its entries are needed to make the index again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_records::{KeyHash, LogPage, Record};
use fulgurite_runtime::AccessError;

use super::RecordMap;
use super::entry::{Entry, Kind};
use super::log::{AHEAD, Which};
use super::page::{Page, Part, head_of, parts};
use super::segments::{self, Segment, address_of};
use crate::{ByKind, Latch, Memory};

/// Segments that a log may have in addition to what is needed.
const SPARE: usize = 8;
/// Records that are needed of a hundred in the log, at least.
const NEEDED: u64 = 60;

/// How long a change waits for space, at most, and between two checks.
const PATIENCE: Duration = Duration::from_secs(2);
const CHECK: Duration = Duration::from_micros(500);

/// While it lives, this thread or fiber reclaims, and no other: what one segment needs is kept in
/// reserve, and not more.
struct Reclaiming<'m>(&'m RecordMap);

impl Reclaiming<'_> {
    fn begin(map: &RecordMap) -> Option<Reclaiming<'_>> {
        (!map.reclaims.swap(true, Ordering::AcqRel)).then_some(Reclaiming(map))
    }
}
impl Drop for Reclaiming<'_> {
    fn drop(&mut self) {
        self.0.reclaims.store(false, Ordering::Release);
    }
}

impl RecordMap {
    /// Reclaims a segment where too much of the log is dead.
    #[inline]
    pub(super) fn reclaim_if_due<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        if M::TRACKED || !self.log.segments(|segments| segments.has_too_many(SPARE, NEEDED)) {
            return Ok(());
        }
        self.reclaim(memory).map(drop)
    }

    /// What `change` returns. Where there is no space for the log, segments are reclaimed for it.
    /// It waits for others that do so, and for a sync, after which there are more of them.
    pub(super) fn reclaiming<M: Memory, R>(
        &self,
        memory: &mut M,
        mut change: impl FnMut(&mut M) -> Result<R, AccessError>,
    ) -> Result<R, AccessError> {
        let mut waited = Duration::ZERO;
        loop {
            let changed = change(memory);
            if !matches!(changed, Err(AccessError::NoSpace { .. })) {
                return changed;
            }
            let before = self.reclaimed.load(Ordering::Relaxed);
            if self.reclaim(memory)? {
                continue;
            }
            let others = self.reclaims.load(Ordering::Acquire);
            if !others && !self.is_behind.load(Ordering::Acquire) || waited > PATIENCE {
                return changed;
            }
            memory.pause(CHECK)?;
            waited += CHECK;
            if self.reclaimed.load(Ordering::Relaxed) != before {
                waited = Duration::ZERO;
            }
        }
    }

    /// Reclaims a segment. Returns whether it did: false where there is none, or another
    /// thread or fiber does so.
    ///
    /// # Errors
    /// What the memory says. Nothing is lost.
    #[cold]
    pub fn reclaim<M: Memory>(&self, memory: &mut M) -> Result<bool, AccessError> {
        let Some(_reclaiming) = Reclaiming::begin(self) else { return Ok(false) };
        let covered = self.kept_from.load(Ordering::Acquire);
        let Some((first, segment)) = self.log.segments(|segments| segments.take_victim(covered)) else {
            self.is_behind.store(true, Ordering::Release);
            return Ok(false);
        };
        let copied = self.copy_from(memory, &segment);
        if copied.is_err() {
            self.log.segments(|segments| segments.give_victim_back(first));
            copied?;
        }
        let _section = memory.write_section()?;
        self.log.free_segment(memory, first)?;
        self.reclaimed.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    fn copy_from<M: Memory>(&self, memory: &mut M, segment: &Segment) -> Result<(), AccessError> {
        let first = segments::page_of(segment.address).expect("a segment is inside the log");
        let pages = if segment.pages == 0 { self.log.pages() } else { segment.pages.min(self.log.pages()) };
        let mut page: Page = [0; SUBPAGE_BYTES];
        let mut record = Vec::new();
        for n in 0..pages {
            let from = LogPage::new(first.number() + n).expect("it is behind the first");
            if n.is_multiple_of(AHEAD as u32 / 2) {
                let ahead = (n + 1..pages.min(n + 1 + AHEAD as u32)).filter_map(|n| LogPage::new(first.number() + n));
                ahead.for_each(|page| memory.prefetch(address_of(page)));
            }
            memory.read_around(address_of(from), &mut page)?;
            if head_of(&page).segment != segment.number {
                // Of one that was not full, the rest was never written.
                break;
            }
            for part in parts(&page) {
                record.clear();
                match part {
                    Part::Whole { at, bytes } => record.extend_from_slice(&page[at..at + bytes]),
                    Part::Long { bytes } => self.read_long(memory, address_of(from), (&page, bytes), &mut record)?,
                }
                let Ok(view) = Record::view(&record) else { continue };
                let hash = self.hash(view.key);
                if view.table == self.table && self.records.of(hash).leads_to(self.table, hash, from) {
                    self.copy(memory, hash, from, &page, &record)?;
                }
            }
        }
        Ok(())
    }
    /// Copies a record, if its key leads to it.
    fn copy<M: Memory>(
        &self,
        memory: &mut M,
        hash: KeyHash,
        from: LogPage,
        page: &Page,
        record: &[u8],
    ) -> Result<(), AccessError> {
        let _section = memory.write_section()?;
        let _turn = self.turns.of(hash.0).lock(memory)?;
        if !self.records.of(hash).leads_to(self.table, hash, from) {
            return Ok(());
        }
        // Of several records of one key in a page, the last one counts.
        let key = Record::view(record).expect("it was seen to be one").key;
        if let Some(Part::Whole { at, bytes }) = super::page::find(page, self.table, key)
            && page[at..at + bytes] != *record
        {
            return Ok(());
        }
        let to = self.log.append(memory, (Which::Copies, hash), record, |_| None)?;
        self.log.note(memory, &Entry { hash, kind: Kind::Moved, to: Some(to), from: Some(from) })?;
        let moved = self.records.of(hash).moved(self.table, hash, from, to);
        debug_assert_eq!(moved, Ok(true), "its turn is the caller's");
        self.copied.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
