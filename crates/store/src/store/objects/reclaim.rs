//! Reclaim of an extent of objects: what is needed is read, packed again, and written elsewhere.
//!
//! Whose the objects are is in the extent's summary, or else found by a walk through the page table. Before anything is copied it is
//! packed in thought: where the objects that are left would fill as many flash pages again, nothing is gained and nothing is moved.
//!
//! Invariants: an object is moved only when its slot still says that it lies where it was read; so what was overwritten meanwhile stays
//! dead. Its checksum is looked at when it is read and does not change: what is damaged stays recognisable.

use std::collections::VecDeque;

use fulgurite_flash::FlashError;
use fulgurite_format::{
    Header, Kind, OBJECTS_MAX, ObjectMoved, ObjectPlace, ObjectsMoved, Owner, PageBuffer, Record, SUBPAGE_BYTES,
    crc32c, zero_page,
};

use super::super::failing::{is_of_the_page, may_be_repeated};
use super::super::{Io, N, Outcome, Store};
use super::{Purpose, summary_pages};
use crate::extents::Writer;
use crate::geometry::METADATA_RESERVE;
use crate::objects::{OPEN_PAGES, Packer, UNITS_PER_PAGE};
use crate::state::Held;

/// Flash pages that are read at a time.
const DEPTH: usize = 8;
/// Flash pages that wait to be written, or are being written, when no more are read.
const MOVED_MAX: usize = 16;
/// Writes that are begun again before the extent is given up for this time.
const REPEATED_MAX: u32 = 16;

/// An object that is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub subpage: u32,
    /// Its slot, as the place of a subpage.
    pub slot: u32,
    pub at: ObjectPlace,
}

/// A flash page of objects that go elsewhere: each with its offset there.
#[derive(Debug)]
pub(super) struct MovePage {
    pub page: PageBuffer,
    pub objects: Vec<(Found, u16)>,
}

impl MovePage {
    pub fn bytes(&self) -> usize {
        SUBPAGE_BYTES + self.objects.capacity() * size_of::<(Found, u16)>()
    }
}

/// DRAM that the reclaim of an extent of so many objects may come to.
pub(super) fn bytes_max(objects: usize) -> usize {
    // Memory that grows doubles; and what is needed is listed once in all, and then by flash page.
    let listed = objects * (2 * size_of::<Owner>() + 3 * size_of::<Found>());
    // Each read may fill two pages, beside those that are looked at for room.
    let pages = MOVED_MAX + 2 * DEPTH + OPEN_PAGES + 1;
    listed + pages * (SUBPAGE_BYTES + UNITS_PER_PAGE as usize * size_of::<(Found, u16)>())
}

/// How far the owners are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listing {
    /// This page of the summary, counted from the end, is read next, or is being read.
    Next(u32),
    Asked(u32),
    /// All that there is was read.
    Read,
    /// What is to be copied is known.
    Done,
}

/// One extent on its way to be free.
#[derive(Debug)]
pub(super) struct ObjectReclaim {
    extent: u32,
    /// It is emptied whatever that gains.
    forced: bool,
    listing: Listing,
    owners: Vec<Owner>,
    walked: bool,
    /// Flash pages to be read, the last first, with what is needed of each.
    todo: Vec<(u32, Vec<Found>)>,
    reading: Vec<(u32, Vec<Found>)>,
    packer: Packer,
    /// Flash pages that are being filled; the first of them is this one of the packer's.
    filling: VecDeque<MovePage>,
    filling_from: usize,
    repeated: u32,
    unreadable: bool,
    without_room: bool,
}

impl ObjectReclaim {
    fn new(extent: u32, forced: bool) -> ObjectReclaim {
        ObjectReclaim {
            extent,
            forced,
            listing: Listing::Next(0),
            owners: Vec::new(),
            walked: false,
            todo: Vec::new(),
            reading: Vec::new(),
            packer: Packer::new(),
            filling: VecDeque::new(),
            filling_from: 0,
            repeated: 0,
            unreadable: false,
            without_room: false,
        }
    }
    pub fn is_moving(&self) -> bool {
        !self.without_room || !self.reading.is_empty()
    }
    pub fn bytes(&self) -> usize {
        let found: usize = self.todo.iter().chain(&self.reading).map(|(_, found)| found.capacity()).sum();
        let filling = self.filling.iter().map(MovePage::bytes).sum::<usize>();
        self.owners.capacity() * size_of::<Owner>() + found * size_of::<Found>() + filling
    }
    /// Puts an object into a flash page that is being filled. Returns those that are full by that.
    fn put(&mut self, found: Found, bytes: &[u8]) -> Option<MovePage> {
        let (at, offset) = self.packer.put(found.at.length);
        while at >= self.filling_from + self.filling.len() {
            self.filling.push_back(MovePage { page: zero_page(), objects: Vec::new() });
        }
        let page = &mut self.filling[at - self.filling_from];
        page.page[usize::from(offset)..usize::from(offset) + bytes.len()].copy_from_slice(bytes);
        page.objects.push((found, offset));
        // The packer looks back no further.
        let full = self.packer.first_open() > self.filling_from;
        self.filling_from += usize::from(full);
        self.filling.pop_front_if(|_| full)
    }
}

impl Store {
    pub(in super::super) fn reclaim_objects(&mut self, extent: u32) {
        let condemned = self.state.wear().is_retired(extent);
        let forced = self.levelling || condemned;
        self.log().reclaim = Some(ObjectReclaim::new(extent, forced));
    }
    pub(super) fn advance_object_reclaim(&mut self) {
        self.write_moved();
        let Some(mut reclaim) = self.log().reclaim.take() else { return };
        let (g, extent) = (self.geometry(), reclaim.extent);
        match reclaim.listing {
            Listing::Next(index) => {
                let place = g.first_of(extent) + g.extent_pages - 1 - index;
                reclaim.listing = Listing::Asked(index);
                self.send(super::super::Purpose::Objects(Purpose::Summary), Io::Read { place });
            }
            Listing::Asked(_) => {}
            Listing::Read => {
                if !self.plan(&mut reclaim) {
                    self.extents.give_up_for_now(extent, self.state.live(extent));
                    return;
                }
            }
            Listing::Done => {}
        }
        let waiting =
            self.config.history_bytes != usize::MAX && self.journal.sealed.len() >= 2 * self.config.commit_after;
        self.commit_wanted |= waiting;
        while !waiting && reclaim.reading.len() < DEPTH && self.log().ready.len() + self.log().moving.len() < MOVED_MAX
        {
            let Some((place, found)) = reclaim.todo.pop() else { break };
            reclaim.reading.push((place, found));
            self.send(super::super::Purpose::Objects(Purpose::Source(place)), Io::Read { place });
        }
        let read = reclaim.listing == Listing::Done && reclaim.todo.is_empty() && reclaim.reading.is_empty();
        if read {
            reclaim.filling_from += reclaim.filling.len();
            let last = std::mem::take(&mut reclaim.filling);
            self.log().ready.extend(last);
            reclaim.packer = Packer::new();
            reclaim.filling_from = 0;
            self.write_moved();
        }
        reclaim.without_room = !self.log().ready.is_empty();
        let over = read && self.log().ready.is_empty() && self.log().moving.is_empty();
        if !over || self.try_again(&mut reclaim) {
            self.log().reclaim = Some(reclaim);
        }
    }
    /// All was copied. Returns whether there is more, which the summary did not name.
    fn try_again(&mut self, reclaim: &mut ObjectReclaim) -> bool {
        let extent = reclaim.extent;
        if self.state.live(extent) == 0 {
            self.counters.reclaimed += 1;
            return false;
        }
        if !reclaim.walked && !reclaim.unreadable {
            reclaim.owners.clear();
            reclaim.listing = Listing::Read;
            return true;
        }
        if reclaim.unreadable {
            self.extents.give_up_for_now(extent, self.state.live(extent));
        } else {
            self.extents.give_up(extent);
        }
        false
    }

    pub(super) fn object_summary_read(&mut self, outcome: Outcome) {
        let (g, pool) = (self.geometry(), self.pool);
        let Some(reclaim) = &mut self.log().reclaim else { return };
        let Listing::Asked(index) = reclaim.listing else { return };
        reclaim.listing = Listing::Read;
        let Outcome::Read(page) = outcome else { return };
        let place = g.first_of(reclaim.extent) + g.extent_pages - 1 - index;
        let right = |h: &Header| h.kind == Kind::Summary && h.pool == pool && h.place == place;
        let opened = Header::open(&page).ok().filter(|(h, ..)| right(h) && h.sequence == u64::from(index));
        let Some((header, _, payload)) = opened else { return };
        let full = header.used == Owner::PER_PAGE * size_of::<Owner>();
        if Owner::decode_all(payload, &mut reclaim.owners).is_ok() && full && index + 1 < g.extent_pages {
            reclaim.listing = Listing::Next(index + 1);
        }
    }
    /// Finds what is needed, and judges whether moving it gains anything.
    fn plan(&mut self, reclaim: &mut ObjectReclaim) -> bool {
        let (g, extent) = (self.geometry(), reclaim.extent);
        let state = &self.state;
        let here = |subpage: u32| {
            let slots = state.slots_of(subpage).into_iter();
            let here = slots.filter(|(_, at)| at.length > 0 && g.extent_of(at.flash_page) == extent);
            here.map(move |(slot, at)| Found { subpage, slot, at })
        };
        let units = |found: &[Found]| found.iter().map(|found| found.at.units()).sum::<u32>();
        let mut subpages: Vec<u32> = reclaim.owners.drain(..).map(|owner| owner.subpage).collect();
        subpages.sort_unstable();
        subpages.dedup();
        let mut found: Vec<Found> = subpages.into_iter().flat_map(here).collect();
        if units(&found) < state.objects().units(extent) {
            reclaim.walked = true;
            found = (0..g.subpages).filter(|subpage| state.is_used(subpage / N)).flat_map(here).collect();
        }
        found.sort_unstable_by_key(|found| (found.at.flash_page, found.at.offset));
        let mut packer = Packer::new();
        found.iter().for_each(|found| {
            packer.put(found.at.length);
        });
        let worth = (g.data_pages() / 64).max(1);
        if !reclaim.forced && packer.pages() as u32 + summary_pages(found.len()) + worth > g.extent_pages {
            return false;
        }
        let pages = found.chunk_by(|a, b| a.at.flash_page == b.at.flash_page);
        reclaim.todo = pages.map(|found| (found[0].at.flash_page, found.to_vec())).collect();
        reclaim.todo.reverse();
        reclaim.listing = Listing::Done;
        true
    }
    /// Whether an object is still needed and where it was.
    fn is_there(&self, found: &Found) -> bool {
        self.state.objects().get(found.slot) == Some(found.at)
    }
    pub(super) fn objects_read(&mut self, place: u32, outcome: Outcome) {
        let Some(mut reclaim) = self.log().reclaim.take() else { return };
        if let Some(at) = reclaim.reading.iter().position(|(reading, _)| *reading == place) {
            let (_, all) = reclaim.reading.swap_remove(at);
            match outcome {
                Outcome::Read(page) => {
                    for found in all {
                        if !self.is_there(&found) {
                            continue;
                        }
                        let bytes = &page[found.at.range()];
                        let held = Held { subpage: found.subpage % N, place: found.slot };
                        if self.state.checksum(found.subpage / N, held) != Some(crc32c(bytes)) {
                            self.counters.damaged += 1;
                            self.suspect(place, FlashError::Corrupt);
                        }
                        let full = reclaim.put(found, bytes);
                        self.log().ready.extend(full);
                    }
                }
                // They stay where they are; the extent is not emptied this time.
                Outcome::Failed(error) => {
                    self.counters.damaged += 1;
                    self.suspect(place, error);
                    reclaim.unreadable |= is_of_the_page(error);
                }
                Outcome::Done | Outcome::Copied(_) | Outcome::NotWritten(_) => unreachable!("the end of a read"),
            }
        }
        self.log().reclaim = Some(reclaim);
    }
    /// Gives places to flash pages of moved objects, and writes them.
    pub(super) fn write_moved(&mut self) {
        let reserve = METADATA_RESERVE + self.checkpoint_extents();
        while let Some(count) = self.log().ready.front().map(|page| page.objects.len()) {
            let Some(place) = self.give_objects(Writer::Reclaim, count, reserve) else {
                self.commit_wanted |= self.extents.emptied() > 0;
                break;
            };
            let log = self.log();
            let moved = log.ready.pop_front().expect("seen above");
            let page = moved.page.clone();
            log.moving.push((place, moved));
            self.send(super::super::Purpose::Objects(Purpose::Move(place)), Io::Write { place, page });
        }
        self.settle_objects();
    }
    pub(super) fn objects_moved(&mut self, place: u32, outcome: &Outcome) {
        let Some(at) = self.log().moving.iter().position(|(moving, _)| *moving == place) else { return };
        let (_, moved) = self.log().moving.swap_remove(at);
        if let Outcome::Failed(error) = *outcome {
            self.log().settled(place, std::iter::empty());
            self.suspect(place, error);
            let log = self.log();
            // Else they stay where they are, and the extent is tried again another time.
            if let Some(reclaim) = log.reclaim.as_mut().filter(|r| r.repeated < REPEATED_MAX && may_be_repeated(error))
            {
                reclaim.repeated += 1;
                log.ready.push_front(moved);
                self.counters.repeated += 1;
            }
            self.settle_objects();
            return;
        }
        let there: Vec<&(Found, u16)> = moved.objects.iter().filter(|(found, _)| self.is_there(found)).collect();
        self.log().settled(place, there.iter().map(|(found, _)| found.subpage));
        for few in there.chunks(OBJECTS_MAX) {
            let mut record = ObjectsMoved::new(place);
            for (found, offset) in few {
                record.push(ObjectMoved {
                    subpage: found.subpage,
                    from: found.at.flash_page,
                    from_offset: found.at.offset,
                    offset: *offset,
                });
            }
            // A pool that takes no more changes leaves them where they are.
            let _ = self.record(Record::MoveObjects(record));
        }
        self.counters.object_pages_copied += 1;
        self.settle_objects();
        self.condemn();
    }
}
