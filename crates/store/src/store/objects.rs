//! Objects are written: packed into flash pages, and recorded in the order in which they came.
//!
//! Unlike whole subpages, objects pass through here, because they are gathered, and their flash
//! pages are the store's own requests. A batch is packed, and its flash pages wait for places in
//! extents of their own. Writes are recorded page by page, in the order of the batches, so the
//! later of two contents counts.
//!
//! An extent of objects has its summary at its end like others, as long as its objects need. It
//! names the owners of each flash page, and grows backward from the last flash page, so its first
//! page says whether there is more.
//!
//! Invariants: an extent holds objects or subpages, never both. What waits here is part of no token
//! until it is recorded.

pub(super) mod log;
mod lost;
mod reclaim;
mod room;
mod streams;

use fulgurite_format::{OBJECTS_MAX, ObjectWritten, ObjectsWritten, Owner, Record, SUBPAGE_BYTES, crc32c, zero_page};

use super::request::may_be_repeated;
use super::{Io, N, ObjectPurpose as Purpose, Outcome, Store, WriteError};
use crate::extents::Writer;
use crate::objects::Packer;
pub use log::OBJECTS_AT_ONCE;
use log::{
    Batch, DEPTH, ObjectLog, OpenExtent, PLACES_MAX, PackedPage, Stage, WAITING_MAX, status_when_written, summary_pages,
};
use streams::{Division, Stream};

/// What became of a batch that was handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectBatch {
    /// How many of its first objects were taken. The others are handed over again later.
    pub taken: usize,
    /// What to ask [`Store::take_batch`] for.
    pub number: u64,
}

impl Store {
    fn log(&mut self) -> &mut ObjectLog {
        self.objects.as_mut().expect("a pool of objects")
    }
    /// Takes objects to be written: for each a subpage and its first bytes, with zeros behind them.
    /// No bytes free the object. The first ones are taken, as many as there is room for. They count
    /// from when [`Store::take_batch`] says so, in order.
    ///
    /// # Errors
    /// When the pool has no objects, there is no such subpage, no space will come, or the pool is
    /// poisoned. None is taken then.
    pub fn write_objects(&mut self, objects: &[(u32, &[u8])]) -> Result<ObjectBatch, WriteError> {
        self.check()?;
        if self.objects.is_none() {
            return Err(WriteError::NoObjects);
        }
        let none =
            |(subpage, bytes): &&(u32, &[u8])| *subpage >= self.geometry().subpages || bytes.len() > SUBPAGE_BYTES;
        if let Some((subpage, bytes)) = objects.iter().find(none) {
            return Err(WriteError::NotAnObject { subpage: *subpage, bytes: bytes.len() });
        }
        let free = WAITING_MAX.saturating_sub(self.log().queue.len());
        let admitted = if free == 0 { 0 } else { self.admit(objects.len().min(OBJECTS_AT_ONCE))? };
        let ready = self.admit_leaves(objects[..admitted].iter().map(|(subpage, _)| *subpage))?;
        if ready == 0 && admitted > 0 {
            let number = self.log().next_batch;
            return Ok(ObjectBatch { taken: 0, number });
        }
        let admitted = ready;
        // Not far beyond what may wait; one is taken whatever its size.
        let (mut bytes, mut room) = (free * SUBPAGE_BYTES, self.room());
        let before = room;
        let fitting = objects[..admitted].iter().take_while(|(subpage, object)| {
            let left = room.checked_sub(self.growth(*subpage, object.len())).filter(|_| bytes > 0);
            room = left.unwrap_or(room);
            bytes = bytes.saturating_sub(object.len());
            left.is_some()
        });
        let taken = fitting.count();
        let grows = before - room;
        let number = self.log().next_batch;
        if taken == 0 {
            // Writes under way may turn out to take less than they might.
            let settled = self.placed == 0 && self.log().queue.is_empty();
            return if admitted > 0 && settled { Err(self.no_space()) } else { Ok(ObjectBatch { taken, number }) };
        }
        let mut bytes = 0;
        for (subpage, object) in objects[..taken].iter().filter(|(_, object)| !object.is_empty()) {
            bytes += object.len();
            if self.heat.counter_byte(*subpage).is_some() || self.state.is_written(*subpage) {
                self.heat.touch(*subpage);
            } else {
                self.heat.touch_first(*subpage);
            }
        }
        let pages = pack(&objects[..taken], number, Division::of_batch(&self.heat, self.geometry(), bytes));
        self.placed += pages.iter().map(|page| page.objects.len() as u64).sum::<u64>();
        // Their leaves stay until they are recorded.
        pages.iter().flat_map(|page| &page.objects).for_each(|object| self.state.pin_leaf(object.subpage / N));
        let log = self.log();
        log.next_batch += 1;
        log.grows += grows;
        log.batches.insert(number, Batch { pages: pages.len(), grows, result: Ok(()) });
        log.queue.extend(pages);
        self.record_written();
        Ok(ObjectBatch { taken, number })
    }
    /// Whether a batch is written, so that programs read its objects. None while it is under way.
    /// An answer forgets it.
    pub fn take_batch(&mut self, number: u64) -> Option<Result<(), WriteError>> {
        let poisoned = self.check();
        let log = self.objects.as_mut()?;
        let ended = poisoned.is_err() || log.batches.get(&number).is_some_and(|batch| batch.pages == 0);
        let batch = if ended { log.batches.remove(&number) } else { return None };
        Some(batch.map_or(poisoned, |batch| if batch.pages == 0 { batch.result } else { poisoned }))
    }

    /// A flash page for `count` objects, in flight from now on. None if that takes another extent
    /// and no more than `reserve` are free.
    fn give_objects(&mut self, stream: Stream, count: usize, reserve: u32) -> Option<u32> {
        // Better among others than not at all.
        self.give_in(stream, count, Some(reserve)).or_else(|| self.give_in(stream.other(), count, None))
    }
    /// A flash page for `count` objects in one stream; without a reserve, only where it has an
    /// extent.
    fn give_in(&mut self, stream: Stream, count: usize, reserve: Option<u32>) -> Option<u32> {
        let (g, wear) = (self.state.geometry(), self.state.wear());
        let log = self.objects.as_mut()?;
        loop {
            let open = &mut log.open[stream.index()];
            let Some(at) = open else {
                let cold = stream == Stream::cold(Writer::Reclaim);
                let extent = self.extents.take_for_objects(reserve?, wear, cold)?;
                *open = Some(OpenExtent { extent, next: 0, pending: 0, promised: 0, owners: Vec::new() });
                continue;
            };
            let end = g.data_pages().min(g.extent_pages - summary_pages(at.promised + count));
            let first = g.first_of(at.extent);
            while at.next < end && wear.contains(first + at.next) {
                at.next += 1;
            }
            if at.next < end {
                at.next += 1;
                at.pending += 1;
                at.promised += count;
                return Some(first + at.next - 1);
            }
            log.settling.extend(open.take());
        }
    }
    /// Closes what is open from this extent on.
    pub(super) fn close_objects_behind(&mut self, limit: u32) {
        let Some(log) = &mut self.objects else { return };
        let behind = log.open.iter_mut().filter_map(|open| open.take_if(|open| open.extent >= limit));
        log.settling.extend(behind);
        self.settle_objects();
    }
    /// Closes extents that are full, and writes their summaries.
    fn settle_objects(&mut self) {
        while let Some(at) = self.log().settling.iter().position(|open| open.pending == 0) {
            let OpenExtent { extent, next, owners, .. } = self.log().settling.swap_remove(at);
            self.extents.close_objects(extent, next);
            if self.state.live(extent) == 0 {
                self.extents.note_empty(extent, self.last_record());
                continue;
            }
            if self.poisoned.is_some() {
                continue;
            }
            let last = self.geometry().first_of(extent) + self.geometry().extent_pages - 1;
            for (index, owners) in (0..).zip(owners.chunks(Owner::PER_PAGE)) {
                self.write_summary(last - index, index, owners);
            }
        }
    }

    pub(super) fn advance_objects(&mut self) {
        let reserve = self.reserve();
        let mut under_way = self.log().queue.iter().filter(|page| matches!(page.stage, Stage::Writing(_))).count();
        for index in 0..self.log().queue.len() {
            let waits = &self.log().queue[index];
            if waits.stage != Stage::Waiting {
                continue;
            }
            if under_way == DEPTH {
                break;
            }
            let (count, stream) = (waits.objects.len(), waits.stream);
            let Some(place) = self.give_objects(stream, count, reserve) else {
                if !self.space_will_come() {
                    self.fail_waiting();
                }
                break;
            };
            let log = self.log();
            let number = log.first + index as u64;
            let waits = &mut log.queue[index];
            waits.stage = Stage::Writing(place);
            let page = waits.page.clone().expect("what waits is written");
            under_way += 1;
            self.send(super::Purpose::Objects(Purpose::Write(number)), Io::Write { place, page });
        }
        self.settle_objects();
        self.record_written();
        self.advance_object_reclaim();
    }
    /// There is no space, and none will come.
    fn fail_waiting(&mut self) {
        let error = self.no_space();
        let waiting = self.log().queue.iter_mut().filter(|page| page.stage == Stage::Waiting);
        waiting.for_each(|page| page.stage = Stage::Failed(error));
    }
    pub(super) fn objects_done(&mut self, purpose: Purpose, outcome: Outcome) {
        match purpose {
            Purpose::Write(number) => self.object_page_written(number, &outcome),
            Purpose::Summary => self.object_summary_read(outcome),
            Purpose::Owners(piece) => self.owners_read(piece, outcome),
            Purpose::Source(place) => self.objects_read(place, outcome),
            Purpose::Move(place) => self.objects_moved(place, &outcome),
        }
    }
    fn object_page_written(&mut self, number: u64, outcome: &Outcome) {
        let log = self.log();
        let page = &mut log.queue[(number - log.first) as usize];
        let Stage::Writing(place) = page.stage else { return };
        let Outcome::Failed(error) = *outcome else {
            page.stage = Stage::Written(place);
            self.record_written();
            return;
        };
        page.failed += 1;
        let again = may_be_repeated(error) && page.failed < PLACES_MAX;
        page.stage = if again { Stage::Waiting } else { Stage::Failed(WriteError::Flash(error)) };
        log.settled(place, std::iter::empty());
        self.counters.repeated += u64::from(again);
        self.suspect(place, error);
        self.settle_objects();
        self.record_written();
    }
    /// Records what was written, as far as all that came before it is.
    fn record_written(&mut self) {
        loop {
            let log = self.log();
            let ended = log.queue.front().is_some_and(|p| matches!(p.stage, Stage::Written(_) | Stage::Failed(_)));
            let Some(page) = log.queue.pop_front_if(|_| ended) else { break };
            log.first += 1;
            self.placed = self.placed.saturating_sub(page.objects.len() as u64);
            page.objects.iter().for_each(|object| self.state.unpin_leaf(object.subpage / N));
            let result = match page.stage {
                Stage::Written(place) => self.record_objects(&page, place),
                Stage::Failed(error) => Err(error),
                Stage::Waiting | Stage::Writing(_) => unreachable!("it has ended"),
            };
            let log = self.log();
            let batch = log.batches.get_mut(&page.batch).expect("it is asked for behind its last page");
            batch.pages -= 1;
            batch.result = batch.result.and(result);
            if batch.pages == 0 {
                // All that was written of it is live by now, and counted so.
                log.grows -= std::mem::take(&mut batch.grows);
            }
        }
    }
    fn record_objects(&mut self, page: &PackedPage, place: u32) -> Result<(), WriteError> {
        if page.page.is_some() {
            self.log().settled(place, page.objects.iter().map(|object| object.subpage));
        }
        let mut result = self.check();
        if result.is_ok() {
            let status = |object: &ObjectWritten| status_when_written(self.state.status(object.subpage / N));
            let mut records: Vec<ObjectsWritten> = Vec::with_capacity(page.objects.len() / OBJECTS_MAX + 1);
            for object in &page.objects {
                let status = status(object);
                let fits = |last: &&mut ObjectsWritten| last.status == status && last.as_slice().len() < OBJECTS_MAX;
                match records.last_mut().filter(fits) {
                    Some(last) => last.push(*object),
                    None => {
                        let mut record = ObjectsWritten::new(place, status);
                        record.push(*object);
                        records.push(record);
                    }
                }
            }
            for record in records {
                result = result.and(self.record(Record::Objects(record)));
            }
            self.counters.objects += page.objects.len() as u64;
            self.counters.object_bytes += page.objects.iter().map(|object| u64::from(object.length)).sum::<u64>();
            self.counters.object_pages += u64::from(page.page.is_some());
            self.uncommitted += page.objects.len() as u64;
        }
        self.settle_objects();
        self.condemn();
        result
    }
}

/// Packs a batch, the longest objects first, so that little is left over, and hot ones apart. Of
/// two objects of one subpage the later one counts.
fn pack(objects: &[(u32, &[u8])], batch: u64, division: Division<'_>) -> Vec<PackedPage> {
    let mut order: Vec<usize> = (0..objects.len()).collect();
    // Stable: the later one comes last.
    order.sort_by_key(|i| objects[*i].0);
    let counts = |w: usize| order.get(w + 1).is_none_or(|next| objects[*next].0 != objects[order[w]].0);
    let mut order: Vec<usize> = (0..order.len()).filter(|w| counts(*w)).map(|w| order[w]).collect();
    // Equal lengths stay in the order of their subpages: neighbours in memory are neighbours in
    // flash.
    order.sort_by_key(|i| std::cmp::Reverse(objects[*i].1.len()));
    let empty = |page, stream, stage| PackedPage { page, stream, objects: Vec::new(), stage, failed: 0, batch };
    let mut packed = [(Packer::new(), Vec::<PackedPage>::new()), (Packer::new(), Vec::new())];
    let mut freed = Vec::new();
    for i in order {
        let (subpage, bytes) = objects[i];
        if bytes.is_empty() {
            freed.push(ObjectWritten { subpage, ..ObjectWritten::default() });
            continue;
        }
        let length = bytes.len() as u16;
        let stream = division.stream(subpage);
        let (packer, pages) = &mut packed[usize::from(stream.hot)];
        let (at, offset) = packer.put(length);
        if at == pages.len() {
            pages.push(empty(Some(zero_page()), stream, Stage::Waiting));
        }
        let page = &mut pages[at];
        let buffer = page.page.as_mut().expect("made above");
        buffer[usize::from(offset)..usize::from(offset) + bytes.len()].copy_from_slice(bytes);
        page.objects.push(ObjectWritten { subpage, length, offset, checksum: crc32c(bytes) });
    }
    let mut pages: Vec<PackedPage> = packed.into_iter().flat_map(|(_, pages)| pages).collect();
    if !freed.is_empty() {
        pages.push(PackedPage { objects: freed, ..empty(None, Stream::cold(Writer::Program), Stage::Written(0)) });
    }
    pages
}

#[cfg(test)]
mod tests;
