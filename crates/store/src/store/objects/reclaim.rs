//! Reclaim of an extent of objects: what is needed is read, packed again, and written elsewhere.
//!
//! The extent's summary, or else a walk through the page table, finds the owners. The packing is
//! computed before anything is copied. If the rest would fill as many flash pages again, nothing is
//! moved. Objects keep their order, because neighbours there are neighbours in memory, unless
//! sorting by length saves enough. Then flash pages of the whole extent are filled at the same
//! time. Each flash page of the extent is read once in both cases.
//!
//! Invariants: an object is moved only while its slot still names the place that was read, and that
//! place is not given away meanwhile. So overwritten objects stay dead. Its checksum is compared at
//! the read and does not change, so damage stays recognisable.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use fulgurite_flash::FlashError;
use fulgurite_format::{
    Header, Kind, OBJECTS_MAX, ObjectLocation, ObjectMoved, ObjectsMoved, Owner, PageBuffer, Record, SUBPAGE_BYTES,
    crc32c, zero_page,
};

use super::super::ObjectPurpose as Purpose;
use super::super::request::{is_of_the_page, may_be_repeated};
use super::super::{Io, N, Outcome, Store};
use super::log::summary_pages;
use super::streams::{Division, Stream};
use crate::checkpoint::{PIECES_AHEAD, Sources};
use crate::extents::Writer;
use crate::geometry::METADATA_RESERVE;
use crate::objects::{OPEN_PAGES, Packer, TightPacker, UNITS_PER_PAGE, weight};
use crate::state::{Held, Piece};

/// Flash pages that are read at a time.
const DEPTH: usize = 8;
/// Flash pages that wait to be written, or are being written, when no more are read.
const MOVED_MAX: usize = 16;
/// The fewest flash pages of hot objects, and of others, for a division: the last page of each is
/// not full.
const APART_FROM: u32 = 2;
/// Writes that are begun again before the extent is given up for this time.
const REPEATED_MAX: u32 = 16;

/// The search for what is needed.
#[derive(Debug, Default)]
struct Search {
    /// It searches these subpages, ascending, or all up to `all`.
    subpages: Vec<u32>,
    all: Option<u32>,
    /// Which is next.
    next: u32,
    found: Vec<Found>,
    /// What was read of pages whose leaves are on flash alone.
    sources: Sources,
}

/// An object that is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub subpage: u32,
    /// Its slot, as the place of a subpage, if it had one when it was found.
    pub slot: u32,
    pub at: ObjectLocation,
    pub checksum: u32,
}

/// Where an object goes: to which of the flash pages that are to be filled, and its offset there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Planned {
    found: Found,
    page: u32,
    offset: u16,
    stream: Stream,
}

/// A flash page of objects that go elsewhere: each with its offset there.
#[derive(Debug)]
pub(super) struct MovePage {
    pub stream: Stream,
    pub page: PageBuffer,
    pub objects: Vec<(Found, u16)>,
}

impl MovePage {
    pub fn bytes(&self) -> usize {
        SUBPAGE_BYTES + self.objects.capacity() * size_of::<(Found, u16)>()
    }
}

/// The most DRAM that the reclaim of an extent of `objects` objects and `pages` flash pages takes.
pub(super) fn bytes_max(objects: usize, pages: usize) -> usize {
    // Memory that grows doubles; and what is needed is listed once in all, and then by flash page.
    let listed =
        objects * (2 * size_of::<Owner>() + 2 * size_of::<u32>() + 2 * size_of::<Found>() + 3 * size_of::<Planned>());
    // All flash pages may be filled at the same time, in addition to waiting and written ones. Each
    // read may fill two.
    let waiting = MOVED_MAX + 2 * DEPTH + OPEN_PAGES + 1;
    let filling = pages * (SUBPAGE_BYTES + size_of::<MovePage>() + 2 * size_of::<u32>());
    let moved = 2 * (objects + waiting * UNITS_PER_PAGE as usize) * size_of::<(Found, u16)>();
    listed + filling + moved + waiting * SUBPAGE_BYTES
}

/// How far the owners are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listing {
    /// This page of the summary, counted from the end, is read next, or is being read.
    Next(u32),
    Asked(u32),
    Read,
    /// What lives is looked for, page by page.
    Looking,
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
    search: Search,
    /// Flash pages to be read, the last first, with what is needed of each.
    todo: Vec<(u32, Vec<Planned>)>,
    reading: Vec<(u32, Vec<Planned>)>,
    /// For each flash page to fill, how many objects are still to come, and those that have objects
    /// already.
    to_come: Vec<u32>,
    filling: HashMap<u32, MovePage, FixedState>,
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
            search: Search::default(),
            todo: Vec::new(),
            reading: Vec::new(),
            to_come: Vec::new(),
            filling: HashMap::default(),
            repeated: 0,
            unreadable: false,
            without_room: false,
        }
    }
    pub fn is_moving(&self) -> bool {
        !self.without_room || !self.reading.is_empty()
    }
    pub fn copied_from(&self) -> Option<u32> {
        (self.listing == Listing::Done).then_some(self.extent)
    }
    pub fn bytes(&self) -> usize {
        let planned: usize = self.todo.iter().chain(&self.reading).map(|(_, planned)| planned.capacity()).sum();
        let filling = self.filling.values().map(MovePage::bytes).sum::<usize>();
        let found = self.search.found.capacity() * size_of::<Found>() + self.search.subpages.capacity() * 4;
        let lists = found + self.owners.capacity() * size_of::<Owner>() + self.to_come.capacity() * size_of::<u32>();
        lists + planned * size_of::<Planned>() + filling
    }
    /// An object has come to its flash page, or none when it is unneeded or unreadable. Returns
    /// that page after its last one.
    fn put(&mut self, planned: Planned, bytes: Option<&[u8]>) -> Option<MovePage> {
        if let Some(bytes) = bytes {
            let new = || MovePage { stream: planned.stream, page: zero_page(), objects: Vec::new() };
            let page = self.filling.entry(planned.page).or_insert_with(new);
            let offset = usize::from(planned.offset);
            page.page[offset..offset + bytes.len()].copy_from_slice(bytes);
            page.objects.push((planned.found, planned.offset));
        }
        let to_come = &mut self.to_come[planned.page as usize];
        *to_come -= 1;
        if *to_come == 0 { self.filling.remove(&planned.page) } else { None }
    }
}

/// Where objects of an extent go, in flash pages from 0 on, and how many of these. They keep their
/// order unless that takes `worth` flash pages more than needed, or more than `enough`.
fn pack_again(found: &[Found], stream: Stream, worth: usize, enough: usize) -> (Vec<Planned>, usize) {
    let planned =
        |found: &Found, (page, offset): (usize, u16)| Planned { found: *found, page: page as u32, offset, stream };
    let mut packer = Packer::new();
    let in_order: Vec<Planned> = found.iter().map(|found| planned(found, packer.put(found.at.length))).collect();
    let pages = packer.pages();
    let better = |fewer: usize| fewer + worth <= pages || (pages > enough && fewer < pages);
    let units: u32 = found.iter().map(|found| found.at.units()).sum();
    if !better(units.div_ceil(UNITS_PER_PAGE) as usize) {
        return (in_order, pages);
    }
    let mut by_length: Vec<&Found> = found.iter().collect();
    by_length.sort_by_key(|found| std::cmp::Reverse(found.at.length));
    let mut packer = TightPacker::new();
    let mut tight: Vec<Planned> = by_length.iter().map(|found| planned(found, packer.put(found.at.length))).collect();
    if !better(packer.pages()) {
        return (in_order, pages);
    }
    tight.sort_unstable_by_key(|planned| (planned.found.at.flash_page, planned.found.at.offset));
    (tight, packer.pages())
}

/// Packs hot and cold ones apart, unless one kind is small or that takes more than `enough`.
fn pack_apart(found: &[Found], division: Division<'_>, worth: usize, enough: usize) -> (Vec<Planned>, usize) {
    let cold = Stream::cold(Writer::Reclaim);
    let units = |found: &[Found]| found.iter().map(|found| found.at.units()).sum::<u32>();
    let (hot_ones, cold_ones): (Vec<Found>, Vec<Found>) =
        found.iter().copied().partition(|found| division.stream(found.subpage).hot);
    let (hot_units, cold_units) = (units(&hot_ones), units(&cold_ones));
    if hot_units.min(cold_units) > APART_FROM * UNITS_PER_PAGE {
        let (mut planned, first) = pack_again(&cold_ones, cold, worth, enough);
        let (mut hot_ones, pages) = pack_again(&hot_ones, cold.other(), worth, enough);
        if first + pages <= enough {
            hot_ones.iter_mut().for_each(|planned| planned.page += first as u32);
            planned.append(&mut hot_ones);
            planned.sort_unstable_by_key(|planned| (planned.found.at.flash_page, planned.found.at.offset));
            return (planned, first + pages);
        }
    }
    pack_again(found, if hot_units > cold_units { cold.other() } else { cold }, worth, enough)
}

impl Store {
    pub(in super::super) fn reclaim_objects(&mut self, extent: u32, forced: bool) {
        let condemned = self.state.wear().is_retired(extent);
        self.log().reclaim = Some(ObjectReclaim::new(extent, forced || condemned));
    }
    pub(super) fn advance_object_reclaim(&mut self) {
        if !self.log().landed.is_empty() {
            self.record_landed();
        }
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
            Listing::Read | Listing::Looking => match self.plan(&mut reclaim) {
                Some(true) => {}
                // It waits for pieces.
                None if !reclaim.unreadable => {}
                Some(false) | None => {
                    self.extents.give_up_for_now(extent, self.state.weighed(extent));
                    return;
                }
            },
            Listing::Done => {}
        }
        let waiting =
            self.config.history_bytes != usize::MAX && self.journal.sealed.len() >= 2 * self.config.commit_after;
        self.commit_wanted |= waiting;
        while !waiting
            && reclaim.reading.len() < DEPTH
            && self.log().ready.len() + self.log().moving.len() + self.log().landed.len() < MOVED_MAX
        {
            let Some((place, planned)) = reclaim.todo.pop() else { break };
            reclaim.reading.push((place, planned));
            self.send(super::super::Purpose::Objects(Purpose::Source(place)), Io::Read { place });
        }
        let read = reclaim.listing == Listing::Done && reclaim.todo.is_empty() && reclaim.reading.is_empty();
        assert!(!read || reclaim.filling.is_empty(), "every object that was planned has come or was left out");
        reclaim.without_room = !self.log().ready.is_empty();
        let over = read && self.log().ready.is_empty() && !self.log().is_moving();
        if !over || self.try_again(&mut reclaim) {
            self.log().reclaim = Some(reclaim);
        }
        self.note_copied_from();
    }
    /// All was copied. Returns whether there is more, which the summary did not name.
    fn try_again(&mut self, reclaim: &mut ObjectReclaim) -> bool {
        let extent = reclaim.extent;
        if self.state.live(extent) == 0 {
            self.counters.reclaimed += 1;
            return false;
        }
        if !reclaim.walked && !reclaim.unreadable {
            // Once: what a walk does not find either is not of objects.
            self.walk(reclaim);
            return true;
        }
        if reclaim.unreadable {
            self.extents.give_up_for_now(extent, self.state.weighed(extent));
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
    /// Searches the page table from now on, and no longer what the summary names.
    fn walk(&self, reclaim: &mut ObjectReclaim) {
        reclaim.walked = true;
        reclaim.search = Search { all: Some(self.geometry().subpages), ..Search::default() };
        reclaim.listing = Listing::Looking;
    }
    /// Finds what is needed, and decides whether moving it gains anything. None while it searches.
    fn plan(&mut self, reclaim: &mut ObjectReclaim) -> Option<bool> {
        let (g, extent) = (self.geometry(), reclaim.extent);
        if reclaim.listing == Listing::Read {
            let mut subpages: Vec<u32> = reclaim.owners.drain(..).map(|owner| owner.subpage).collect();
            subpages.sort_unstable();
            subpages.dedup();
            reclaim.search = Search { subpages, ..Search::default() };
            reclaim.listing = Listing::Looking;
        }
        self.search(reclaim)?;
        let weighs = reclaim.search.found.iter().map(|found| weight(found.at.length.into())).sum::<u32>();
        if !reclaim.walked && weighs < self.state.objects().needed(extent).weight {
            self.walk(reclaim);
            self.search(reclaim)?;
        }
        let mut found = std::mem::take(&mut reclaim.search).found;
        found.sort_unstable_by_key(|found| (found.at.flash_page, found.at.offset));
        let enough = g.extent_pages.saturating_sub(summary_pages(found.len()) + g.worth()) as usize;
        let division = Division::of_copies(&self.heat, g);
        let (planned, pages) = pack_apart(&found, division, g.worth() as usize, enough);
        if !reclaim.forced && pages > enough {
            return Some(false);
        }
        reclaim.to_come = vec![0; pages];
        planned.iter().for_each(|planned| reclaim.to_come[planned.page as usize] += 1);
        let sources = planned.chunk_by(|a, b| a.found.at.flash_page == b.found.at.flash_page);
        reclaim.todo = sources.map(|planned| (planned[0].found.at.flash_page, planned.to_vec())).collect();
        reclaim.todo.reverse();
        reclaim.listing = Listing::Done;
        Some(true)
    }
    /// Looks for what is needed of the extent, in the leaves that are here, and in pieces of the
    /// checkpoint for the others. None while one of these is being read.
    fn search(&mut self, reclaim: &mut ObjectReclaim) -> Option<()> {
        let (g, extent) = (self.geometry(), reclaim.extent);
        let state = &self.state;
        let search = &mut reclaim.search;
        let count = search.all.unwrap_or(search.subpages.len() as u32);
        let is_here = |at: &ObjectLocation| at.length > 0 && g.extent_of(at.flash_page) == extent;
        while search.next < count {
            let subpage = if search.all.is_some() { search.next } else { search.subpages[search.next as usize] };
            let page = subpage / N;
            if subpage >= g.subpages || !state.is_used(page) {
                search.next += 1;
                continue;
            }
            if !state.is_out(page) {
                let slots = state.slots_of(subpage).into_iter().filter(|(_, at)| is_here(at));
                search.found.extend(slots.map(|(slot, at)| {
                    let checksum = state.checksum(page, Held { subpage: subpage % N, place: slot }).unwrap_or(0);
                    Found { subpage, slot, at, checksum }
                }));
                search.next += 1;
                continue;
            }
            let piece = state.piece_of(page)?;
            let Some(leaf) = search.sources.leaf(Some(piece), page) else {
                // What a piece should have and has not is damage, or another checkpoint's.
                reclaim.unreadable |= search.sources.lacks(piece, page);
                self.read_owners(reclaim, page);
                return None;
            };
            let found = leaf.iter().find(|(s, at, _)| *s == subpage % N && is_here(at));
            search.found.extend(found.map(|(_, at, checksum)| Found {
                subpage,
                slot: 0,
                at: *at,
                checksum: *checksum,
            }));
            search.next += 1;
            search.sources.forget_before(page);
        }
        Some(())
    }
    /// Reads the pieces of this page, and of some that are checked next.
    fn read_owners(&mut self, reclaim: &mut ObjectReclaim, page: u32) {
        let (state, search) = (&self.state, &mut reclaim.search);
        let mut pieces = Vec::new();
        if search.all.is_some() {
            let behind = |piece: &Piece| state.piece_behind(*piece);
            pieces.extend(std::iter::successors(state.piece_of(page), behind).take(PIECES_AHEAD));
        } else {
            let next = search.subpages[search.next as usize..].iter().take(PIECES_AHEAD * N as usize);
            let out = next.map(|subpage| subpage / N).filter(|page| state.is_out(*page));
            pieces.extend(out.filter_map(|page| state.piece_of(page)));
            pieces.dedup();
            pieces.truncate(PIECES_AHEAD);
        }
        pieces.retain(|piece| search.sources.ask(*piece));
        for piece in pieces {
            self.send(super::super::Purpose::Objects(Purpose::Owners(piece)), Io::Read { place: piece.place });
        }
    }
    pub(super) fn owners_read(&mut self, piece: Piece, outcome: Outcome) {
        let leaves = self.opened(piece, outcome);
        let is_now = self.state.piece_of(piece.first) == Some(piece);
        let Some(reclaim) = &mut self.log().reclaim else { return };
        // The extent is tried again another time.
        reclaim.unreadable |= leaves.is_err() && is_now;
        reclaim.search.sources.read(piece.first, leaves.ok());
    }
    /// Whether an object is still needed and where it was, as far as that is known here.
    fn is_there(&self, found: &Found) -> bool {
        let is_out = self.state.is_out(found.subpage / N);
        is_out || self.state.objects().get(found.slot) == Some(found.at) || {
            // Its leaf has gone and come back.
            let at = found.at;
            self.state.is_paged()
                && self.state.slot_at(found.subpage, at.flash_page, at.offset).is_some_and(|(_, there)| there == at)
        }
    }
    pub(super) fn objects_read(&mut self, place: u32, outcome: Outcome) {
        let Some(mut reclaim) = self.log().reclaim.take() else { return };
        if let Some(at) = reclaim.reading.iter().position(|(reading, _)| *reading == place) {
            let (_, all) = reclaim.reading.swap_remove(at);
            match outcome {
                Outcome::Read(page) => {
                    for planned in all {
                        let found = planned.found;
                        let bytes = &page[found.at.range()];
                        let there = self.is_there(&found);
                        if there && found.checksum != crc32c(bytes) {
                            self.counters.damaged += 1;
                            self.suspect(place, FlashError::Corrupt);
                        }
                        let full = reclaim.put(planned, there.then_some(bytes));
                        self.log().ready.extend(full);
                    }
                }
                // They stay where they are; the extent is not emptied this time.
                Outcome::Failed(error) => {
                    self.counters.damaged += 1;
                    self.suspect(place, error);
                    reclaim.unreadable |= is_of_the_page(error);
                    for planned in all {
                        let full = reclaim.put(planned, None);
                        self.log().ready.extend(full);
                    }
                }
                Outcome::Done | Outcome::Copied(_) | Outcome::NotWritten(_) => unreachable!("the end of a read"),
            }
        }
        self.log().reclaim = Some(reclaim);
    }
    /// Gives places to flash pages of moved objects, and writes them.
    pub(super) fn write_moved(&mut self) {
        let reserve = METADATA_RESERVE + self.checkpoint_extents();
        while let Some((stream, count)) = self.log().ready.front().map(|page| (page.stream, page.objects.len())) {
            let Some(place) = self.give_objects(stream, count, reserve) else {
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
        if self.state.is_paged() && !matches!(outcome, Outcome::Failed(_)) {
            moved.objects.iter().for_each(|(found, _)| self.state.pin_leaf(found.subpage / N));
            self.log().landed.push((place, moved));
            self.record_landed();
            return;
        }
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
        self.record_moved(place, &moved);
    }
    /// Records flash pages of moved objects whose leaves are all here.
    pub(super) fn record_landed(&mut self) {
        for (place, moved) in std::mem::take(&mut self.log().landed) {
            let pages = || moved.objects.iter().map(|(found, _)| found.subpage / N);
            match self.want_leaves(pages()) {
                Ok(true) => self.record_moved(place, &moved),
                Ok(false) => {
                    self.log().landed.push((place, moved));
                    continue;
                }
                Err(_) => {
                    // They stay where they are.
                    self.log().settled(place, std::iter::empty());
                    if let Some(reclaim) = &mut self.log().reclaim {
                        reclaim.unreadable = true;
                    }
                    self.settle_objects();
                }
            }
            pages().for_each(|page| self.state.unpin_leaf(page));
        }
    }
    fn record_moved(&mut self, place: u32, moved: &MovePage) {
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

#[cfg(test)]
mod tests;
