//! The state of a pool, and how each record of the journal changes it.
//!
//! The running store and recovery both change the state through [`State::apply`] alone, so that the
//! recovered state is the same.
//!
//! A version is needed when programs see it, or a kept token names a state in which they saw it.
//! The flash pages of needed versions are live. Unneeded ones leave the chain at once, and versions
//! that no kept token distinguishes become one.
//!
//! What programs see of a version is spread over the log after a while, and the map knows where.
//! One entry then has its valid bits, and says that the places are in the map ([`Status::MAPPED`]).
//! So a page has as many entries as it has distinct states that can be asked for. Such entries are
//! never on flash, where each names its places itself.

mod audit;
mod chains;
mod history;
mod leaves;
mod objects;
mod page_set;

use std::collections::HashMap;

use foldhash::fast::FixedState;
use fulgurite_format::{Checksums, EntryIndex, FlashPage, PageEntry, Record, Status, full_time};

use crate::chains::Chains;
use crate::geometry::{Geometry, SUBPAGES_PER_PAGE};
use crate::map::{Located, Map, MapWriter, PageLocations};
use crate::objects::Objects;
use crate::planted::Planted;
use crate::table::{EMPTY, Table, TableFull};
use crate::tokens::Tokens;
use crate::wear::Wear;
use leaves::Leaves;
pub use leaves::{LEAF_BYTES, LEAVES_MIN, Leaf, Piece, Used, WHOLE_BYTES, leaf_of};
use page_set::PageSet;

const N: u32 = SUBPAGES_PER_PAGE;
/// Bytes of a bucket in the table of old checksums (hashbrown: two words of 32 bits and a byte of
/// control).
pub const OLD_BUCKET_BYTES: usize = 9;

/// Pages of which the tables begin to be loaded before they are pruned.
const PRUNED_AHEAD: u32 = 8;

/// A subpage of a version: which, and where it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Its number in the page.
    pub subpage: u32,
    /// Its flash page.
    pub place: u32,
}

impl Held {
    /// Stands for none.
    pub const NONE: Held = Held { subpage: 0, place: 0 };
}

/// The subpages that an entry names itself, ascending.
pub fn held(entry: PageEntry) -> impl Iterator<Item = Held> {
    bits(entry.subpages(N))
        .filter_map(move |s| entry.place(s, N).map(|place| Held { subpage: s, place: place.0 as u32 }))
}

/// The entries that name these subpages (ascending) at these places: as few as the two placements
/// allow.
pub fn entries_of(subpages: &[Held], time: u32, status: Status, into: &mut Vec<PageEntry>) {
    let mut rest = subpages;
    while let Some((entry, count)) = one_entry(rest, time, status) {
        into.push(entry);
        rest = &rest[count..];
    }
}

/// The entry that names the first of these subpages (ascending), and how many of them that is.
fn one_entry(subpages: &[Held], time: u32, status: Status) -> Option<(PageEntry, usize)> {
    let first = subpages.first()?;
    if subpages.len() == 1 && first.place >= first.subpage {
        let start = FlashPage((first.place - first.subpage).into());
        let status = status.without(Status::PACKED);
        return Some((PageEntry::new(start, EntryIndex::NONE, 1 << first.subpage, time, status), 1));
    }
    // As the paper has it, where all keep their distance; one entry then holds any subset of them.
    let offset = i64::from(first.place) - i64::from(first.subpage);
    let same = subpages.iter().take_while(|h| i64::from(h.place) - i64::from(h.subpage) == offset).count();
    let side_by_side = subpages.iter().zip(first.place..).take_while(|(h, place)| h.place == *place).count();
    let (count, packed) = if side_by_side > same || offset < 0 { (side_by_side, true) } else { (same, false) };
    let valid = subpages[..count].iter().fold(0, |valid, h| valid | (1 << h.subpage));
    let (start, status) = if packed {
        (u64::from(first.place), status.with(Status::PACKED))
    } else {
        (offset as u64, status.without(Status::PACKED))
    };
    Some((PageEntry::new(FlashPage(start), EntryIndex::NONE, valid, time, status), count))
}

/// Status of a page, without what an entry's status says of its placement.
pub fn status_of(entry: PageEntry) -> Status {
    entry.status().without(Status::PACKED).without(Status::MAPPED).without(Status::OBJECTS)
}

/// A version of a page, with all its places.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// When it was written.
    pub time: u64,
    /// Status of the page then.
    pub status: Status,
    /// Which subpages it holds, a bit each.
    pub valid: u32,
    /// Where they are stored.
    places: [u32; N as usize],
}

impl Version {
    fn new(time: u64, status: Status) -> Version {
        Version { time, status, valid: 0, places: [0; N as usize] }
    }
    /// What it holds, in ascending order of the subpages.
    pub fn held(&self) -> impl Iterator<Item = Held> {
        bits(self.valid).map(|subpage| Held { subpage, place: self.places[subpage as usize] })
    }
    fn put(&mut self, held: Held) {
        self.valid |= 1 << held.subpage;
        self.places[held.subpage as usize] = held.place;
    }
    fn deletes(&self) -> bool {
        self.status.has(Status::DELETED)
    }
}

/// The bits that are set, ascending.
fn bits(mut set: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(bit)
    })
}

/// Whether what is visible of a subpage is what a version holds.
fn is_at(visible: Option<Located>, held: Held) -> bool {
    visible.is_some_and(|l| l.place == held.place)
}

/// The state.
#[derive(Debug)]
pub struct State {
    geometry: Geometry,
    table: Table,
    map: MapWriter,
    /// Checksums of what only tokens still see, by place.
    old: HashMap<u32, u32, FixedState>,
    /// Pages with versions that only tokens still see.
    history: PageSet,
    tokens: Tokens,
    next_token: u64,
    /// Live flash pages of each extent, and of all, without pages of objects.
    live: Vec<u32>,
    live_in_all: u64,
    /// Where objects are stored.
    objects: Objects,
    /// Extents that have lost their last live flash page since the last question.
    emptied: Vec<u32>,
    /// What has failed and how often extents were filled.
    wear: Wear,
    /// Which pages' places are in DRAM, where not all have to be.
    leaves: Option<Box<Leaves>>,
    /// Where reclaim goes by them.
    chains: Option<Chains>,
    /// Versions of the page that is being changed.
    versions: Vec<Version>,
    entries: Vec<PageEntry>,
    pub(crate) planted: Option<Planted>,
}

/// The pages that contain a record already: those whose piece of the checkpoint is newer than the
/// record.
pub trait Seen {
    /// Whether it is part of this page.
    fn contains(&self, page: u32) -> bool;
}
/// Of none: the running store.
#[derive(Clone, Copy, Debug)]
pub struct Unseen;
impl Seen for Unseen {
    fn contains(&self, _: u32) -> bool {
        false
    }
}

impl State {
    /// An empty pool. `table_limit` is the most entries that the page table may have.
    pub fn new(geometry: Geometry, table_limit: u32) -> State {
        State {
            geometry,
            table: Table::new(geometry.pages(), table_limit),
            map: MapWriter::new(geometry.pages()),
            old: HashMap::default(),
            history: PageSet(vec![0; (geometry.pages() as usize).div_ceil(64)]),
            tokens: Tokens::default(),
            next_token: 1,
            live: vec![0; geometry.extents as usize],
            live_in_all: 0,
            objects: Objects::new(geometry),
            emptied: Vec::new(),
            wear: Wear::new(geometry),
            leaves: None,
            chains: None,
            versions: Vec::new(),
            entries: Vec::new(),
            planted: None,
        }
    }
    /// Sets what an anchor says.
    pub fn set_tokens(&mut self, next_token: u64, tokens: Tokens) {
        (self.next_token, self.tokens) = (next_token, tokens);
    }
    /// Sets the next token, from which times count.
    pub fn set_next_token(&mut self, next_token: u64) {
        self.next_token = next_token;
    }

    /// Sets how many entries the page table can have at all.
    pub fn set_table_indices(&mut self, indices: u32) {
        self.table.set_indices(indices);
    }
    /// How many indices of the page table new versions, and those that they make old, may take. The
    /// others are for what only tokens see, which may need one each.
    pub fn room_for(&self) -> u32 {
        let old = u32::try_from(self.old.len()).unwrap_or(u32::MAX);
        self.table.indices_left().saturating_sub(old)
    }
    /// Sets how many entries new versions may bring the page table to.
    pub fn set_table_limit(&mut self, limit: u32) {
        self.table.set_limit(limit);
    }

    /// The pool has `extents` extents from now on, more than before. The new ones hold nothing.
    pub fn grow(&mut self, extents: u32) {
        self.geometry.extents = extents;
        self.live.resize(extents as usize, 0);
        self.wear.grow(extents);
        self.objects.grow(extents);
        if let Some(chains) = &mut self.chains {
            chains.grow(extents);
        }
    }
    /// The geometry.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }
    /// The map, which may be read while the state changes.
    pub fn map(&self) -> &std::sync::Arc<Map> {
        self.map.map()
    }
    /// Whether programs see something that was written of a subpage.
    pub fn is_written(&self, subpage: u32) -> bool {
        self.map.get(subpage).is_some()
    }
    /// The page table.
    pub fn table(&self) -> &Table {
        &self.table
    }
    /// Tokens that are kept.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }
    /// One more reader of a token, which stays meanwhile. Returns whether there is such a token.
    /// Not recovered.
    pub fn begin_read(&mut self, token: u64) -> bool {
        self.tokens.begin_read(token)
    }
    /// One reader less.
    pub fn end_read(&mut self, token: u64) {
        self.tokens.end_read(token);
    }
    /// The token that the next sync returns.
    pub fn next_token(&self) -> u64 {
        self.next_token
    }
    /// Live flash pages of an extent. Objects count at their worst, and at most to its size.
    pub fn live(&self, extent: u32) -> u32 {
        self.weighed(extent).min(self.geometry.data_pages())
    }
    /// Live weight of an extent, which may be more than it has flash pages, because what is packed
    /// well weighs more than what it fills.
    pub fn weighed(&self, extent: u32) -> u32 {
        self.live[extent as usize] + self.objects.live(extent)
    }
    /// Live flash pages of an extent; of objects, as many as they take at least.
    pub fn live_at_least(&self, extent: u32) -> u32 {
        self.live[extent as usize] + self.objects.live_at_least(extent)
    }
    /// Live flash pages in all; of objects, as many as they take at the worst.
    pub fn live_total(&self) -> u64 {
        self.live_in_all + self.objects.live_total()
    }
    /// Live flash pages of whole subpages in all.
    pub fn live_subpages(&self) -> u64 {
        self.live_in_all
    }
    /// Where objects are stored.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }
    /// Flash pages that failed, and how often extents were filled.
    pub fn wear(&self) -> &Wear {
        &self.wear
    }
    /// Extents that have lost their last live flash page since this was called last.
    pub fn take_emptied(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.emptied)
    }
    /// DRAM as it is.
    pub fn bytes(&self) -> usize {
        self.fixed_bytes()
            + self.leaves_grown_bytes()
            + self.table.bytes()
            + self.map().bytes()
            + self.old_bytes()
            + self.objects.bytes()
    }
    /// DRAM when all pages have a scattered version, without older ones: it never takes more.
    pub fn bytes_max(&self) -> usize {
        let tables = match &self.leaves {
            None => self.map().bytes_max() + self.objects.bytes_max(),
            Some(_) => self.leaves_bytes_at_most(),
        };
        self.fixed_bytes() + self.table.bytes_max() + tables
    }
    fn fixed_bytes(&self) -> usize {
        self.history.0.capacity() * 8
            + self.live.capacity() * 4
            + self.wear.bytes()
            + self.leaves_fixed_bytes()
            + self.chains.as_ref().map_or(0, Chains::bytes)
    }
    /// Checksums of what only tokens still see.
    pub fn old_count(&self) -> usize {
        self.old.len()
    }
    /// DRAM for older versions: their entries and checksums, and slots where they are objects.
    pub fn history_bytes(&self) -> usize {
        self.table.history_bytes() + self.old_bytes() + self.objects.history_bytes()
    }
    fn old_bytes(&self) -> usize {
        self.old.capacity() / 7 * 8 * OLD_BUCKET_BYTES
    }
    /// Whether a page is allocated, and what may be done with it.
    pub fn status(&self, page: u32) -> Status {
        status_of(self.table.head(page))
    }
    /// The checksum of what is stored at a place that a version of this page holds.
    pub fn checksum(&self, page: u32, held: Held) -> Option<u32> {
        match self.map.get(page * N + held.subpage) {
            Some(l) if l.place == held.place => Some(l.checksum),
            _ => self.old.get(&held.place).copied(),
        }
    }
    /// Whether there is a version of a page.
    pub fn is_used(&self, page: u32) -> bool {
        self.table.head(page) != EMPTY
    }
    /// How many more subpages only tokens would see if a page was deleted.
    pub fn old_when_deleted(&self, page: u32) -> u32 {
        if self.is_out(page) {
            // The oldest token sees all of it.
            return self.table.head(page).valid().count_ones();
        }
        let versions = self.versions_of(page);
        let seen = versions.iter().filter(|version| self.tokens.any_in(version.time, self.next_token));
        seen.flat_map(Version::held).filter(|h| self.is_visible(page, *h)).count() as u32
    }
    /// Whether a version of a page that is needed holds this subpage at this place.
    pub fn is_live(&self, page: u32, held: Held) -> bool {
        // Entries whose places are in the map hold nothing but what is visible.
        let names =
            |e: PageEntry| e.place(held.subpage, N).is_some_and(|place| place == FlashPage(u64::from(held.place)));
        let named = |e: PageEntry| !e.status().has(Status::MAPPED) && names(e);
        self.is_visible(page, held) || self.table.chain(page).any(named)
    }
    /// Starts loading what says where a subpage is stored.
    pub fn prefetch(&self, subpage: u32) {
        self.map().prefetch(subpage);
        self.table.prefetch(subpage / N);
    }
    /// Prefetches what a write of a subpage changes: with tokens, mostly more than one entry of the
    /// page.
    pub fn prefetch_for_write(&self, subpage: u32) {
        if self.tokens.newest().is_some() {
            self.prefetch_page(subpage / N);
        } else {
            self.prefetch(subpage);
        }
    }
    fn is_visible(&self, page: u32, held: Held) -> bool {
        is_at(self.map.get(page * N + held.subpage), held)
    }
    /// All versions of a page, newest first.
    pub fn versions_of(&self, page: u32) -> Vec<Version> {
        let mut versions = Vec::new();
        self.expand(page, &mut versions);
        versions
    }
    /// Where a subpage is stored in the state of a kept token. None when it reads as zeros there.
    pub fn located_at(&self, subpage: u32, token: u64) -> Option<Located> {
        let page = subpage / N;
        for version in self.versions_of(page).iter().filter(|version| version.time <= token) {
            if let Some(held) = version.held().find(|held| held.subpage == subpage % N) {
                let checksum = self.checksum(page, held)?;
                return Some(Located { place: held.place, checksum });
            }
            if version.deletes() {
                return None;
            }
        }
        None
    }
    /// Starts loading what says where all subpages of a page are stored.
    pub fn prefetch_page(&self, page: u32) {
        self.table.prefetch(page);
        self.map().prefetch_page(page);
    }
    fn expand(&self, page: u32, versions: &mut Vec<Version>) {
        versions.clear();
        for entry in self.table.chain(page) {
            let mut version = Version::new(self.time(entry), status_of(entry));
            if entry.status().has(Status::MAPPED) {
                let places = self.map.page(page);
                for subpage in bits(entry.valid()) {
                    let located = places.get(subpage).expect("the map knows the places of a mapped entry");
                    version.put(Held { subpage, place: located.place });
                }
            } else {
                held(entry).for_each(|h| version.put(h));
            }
            match versions.last_mut() {
                // Entries of one version, that one alone could not name.
                Some(last)
                    if last.time == version.time
                        && !last.deletes()
                        && !version.deletes()
                        && last.valid & version.valid == 0 =>
                {
                    version.held().for_each(|h| last.put(h));
                }
                _ => versions.push(version),
            }
        }
    }
    /// Makes these the page's versions, with as few entries as will do.
    fn compress(&mut self, page: u32, versions: &[Version]) -> Result<(), TableFull> {
        let places = self.map.page(page);
        self.compress_over(page, versions, &places)
    }
    /// As [`State::compress`], where programs will see these places. Changes nothing when there is
    /// no room.
    fn compress_over(&mut self, page: u32, versions: &[Version], places: &PageLocations) -> Result<(), TableFull> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        for version in versions {
            let (mut visible, mut old) = ([Held::NONE; N as usize], [Held::NONE; N as usize]);
            let (mut seen, mut unseen) = (0, 0);
            for h in version.held() {
                if is_at(places.get(h.subpage), h) {
                    visible[seen] = h;
                    seen += 1;
                } else {
                    old[unseen] = h;
                    unseen += 1;
                }
            }
            match one_entry(&visible[..seen], version.time as u32, version.status) {
                Some((entry, all)) if all == seen => entries.push(entry),
                Some(_) => {
                    let valid = visible[..seen].iter().fold(0, |valid, h| valid | (1 << h.subpage));
                    let status = version.status.with(Status::MAPPED);
                    entries.push(PageEntry::new(FlashPage(0), EntryIndex::NONE, valid, version.time as u32, status));
                }
                None => {}
            }
            entries_of(&old[..unseen], version.time as u32, version.status, &mut entries);
            if seen + unseen == 0 {
                entries.push(PageEntry::new(FlashPage(0), EntryIndex::NONE, 0, version.time as u32, version.status));
            }
        }
        let replaced = self.table.replace(page, &entries);
        self.entries = entries;
        replaced
    }

    fn time(&self, entry: PageEntry) -> u64 {
        full_time(entry.time(), self.next_token)
    }
    fn gain(&mut self, place: u32) {
        if self.objects.has(place) {
            return self.objects.gain(place);
        }
        self.live[self.geometry.extent_of(place) as usize] += 1;
        self.live_in_all += 1;
    }
    fn lose(&mut self, place: u32) {
        if self.objects.has(place) {
            return self.emptied.extend(self.objects.lose(place));
        }
        let extent = self.geometry.extent_of(place);
        let live = &mut self.live[extent as usize];
        *live -= 1;
        self.live_in_all -= 1;
        if *live == 0 {
            self.emptied.push(extent);
        }
    }

    /// Changes the state by a record. Pages in `seen` have it already.
    ///
    /// # Errors
    /// When the page table is full. The state is as before.
    pub fn apply(&mut self, record: &Record, seen: &impl Seen) -> Result<(), TableFull> {
        match *record {
            Record::Write { page, start, valid, status, ref checksums } => {
                if !seen.contains(page) {
                    self.write(page, start, valid, status, checksums)?;
                }
            }
            Record::Status { page, status } => {
                if !seen.contains(page) {
                    self.set_status(page, status)?;
                }
            }
            Record::Move { page, subpages, from, to } => {
                if !seen.contains(page) {
                    self.relocate(page, subpages, from, to)?;
                }
            }
            Record::Token { token } => {
                self.tokens.push(token);
                self.next_token = token + 1;
                self.settle_leaves();
            }
            Record::Drop { token } => {
                self.tokens.remove(token);
                self.stir_leaves();
                self.prune_all(seen)?;
            }
            Record::Pin { token, pinned } => self.tokens.pin(token, pinned),
            Record::RollBack { token } => self.roll_back(token, seen)?,
            Record::Bad { place } => {
                self.wear.insert(place.0 as u32);
            }
            Record::Restamp { token } => self.restamp(token, seen)?,
            Record::Wear { extent, ref fills } => self.wear.set_fills(extent, fills.as_slice()),
            Record::Time { token, age, clock } => self.tokens.set_time(token, age, clock),
            Record::Objects(ref written) => self.write_objects(written, seen)?,
            Record::MoveObjects(ref moved) => self.move_objects(moved, seen),
        }
        Ok(())
    }

    fn write(
        &mut self,
        page: u32,
        start: FlashPage,
        valid: u32,
        status: Status,
        sums: &Checksums,
    ) -> Result<(), TableFull> {
        // At worst the versions that older tokens see fall apart: one more entry for each subpage.
        if self.table.room() < N + 1 {
            return Err(TableFull);
        }
        self.note_leaf(page);
        self.note_version(page);
        let entry = PageEntry::new(start, EntryIndex::NONE, valid, self.next_token as u32, status);
        if self.rewrite(page, entry, sums) {
            return Ok(());
        }
        let mut versions = std::mem::take(&mut self.versions);
        self.expand(page, &mut versions);
        let mut version = Version::new(self.next_token, status_of(entry));
        let mut places = self.map.page(page);
        for (h, checksum) in held(entry).zip(sums.as_slice()) {
            version.put(h);
            // Without a token, no request can ask for what was there.
            if let Some(before) = places.get(h.subpage)
                && self.tokens.newest().is_some()
            {
                self.old.insert(before.place, before.checksum);
            }
            places.set(h.subpage, Some(Located { place: h.place, checksum: *checksum }));
            self.gain(h.place);
        }
        self.map.set_page(page, &places);
        versions.insert(0, version);
        let result = self.settle(page, &mut versions);
        self.versions = versions;
        result
    }

    /// Gives an entry to a page where only the map changes and the newest version stays one: no
    /// kept token distinguishes the two, and what is below is hidden as before. Most overwrites are
    /// such. Returns false, and changes nothing, where more is needed.
    fn rewrite(&mut self, page: u32, entry: PageEntry, sums: &Checksums) -> bool {
        let (head, subpages) = (self.table.head(page), entry.subpages(N));
        let alone = head.previous() == EntryIndex::NONE || subpages & !head.valid() == 0;
        let mapped = head.status().has(Status::MAPPED);
        let deletes = head.status().with(entry.status()).has(Status::DELETED);
        if !mapped || deletes || !alone || self.tokens.any_in(self.time(head), self.next_token) {
            return false;
        }
        let (mut before, mut replaced) = ([0; N as usize], 0);
        let mut note = |located: Option<Located>| {
            before[replaced] = located.map_or(0, |l| l.place);
            replaced += usize::from(located.is_some());
        };
        let located = held(entry).zip(sums.as_slice());
        let mut located = located.map(|(h, checksum)| (h.subpage, Located { place: h.place, checksum: *checksum }));
        if subpages.is_power_of_two() {
            // Not the whole page, because half of it may be in no cache.
            if let Some((subpage, located)) = located.next() {
                note(self.map.get(page * N + subpage));
                self.map.set(page * N + subpage, Some(located));
                self.gain(located.place);
            }
        } else {
            let mut places = self.map.page(page);
            for (subpage, located) in located {
                note(places.get(subpage));
                places.set(subpage, Some(located));
                self.gain(located.place);
            }
            self.map.set_page(page, &places);
        }
        // Behind all gains, so that no extent seems empty in between.
        before[..replaced].iter().for_each(|place| self.supersede(page, *place));
        let (valid, status) = (head.valid() | subpages, status_of(entry).with(Status::MAPPED));
        self.table
            .set_head(page, PageEntry::new(FlashPage(0), EntryIndex::NONE, valid, self.next_token as u32, status));
        true
    }

    fn set_status(&mut self, page: u32, status: Status) -> Result<(), TableFull> {
        if self.table.room() < N + 1 {
            return Err(TableFull);
        }
        self.note_leaf_if_any(page);
        let mut versions = std::mem::take(&mut self.versions);
        self.expand(page, &mut versions);
        if status.has(Status::DELETED) {
            let places = self.map.page(page);
            for before in (0..N).filter_map(|subpage| places.get(subpage)) {
                self.old.insert(before.place, before.checksum);
            }
            self.map.set_page(page, &PageLocations::NONE);
        }
        versions.insert(0, Version::new(self.next_token, status.without(Status::PACKED).without(Status::MAPPED)));
        let result = self.settle(page, &mut versions);
        self.versions = versions;
        result
    }

    fn relocate(&mut self, page: u32, moved: u32, from: FlashPage, to: FlashPage) -> Result<(), TableFull> {
        self.note_leaf(page);
        self.note_moved(page);
        let one = Held { subpage: moved.trailing_zeros().min(N - 1), place: from.0 as u32 };
        if moved == 1 << one.subpage && self.move_mapped(page, one, to.0 as u32) {
            return Ok(());
        }
        let mut versions = std::mem::take(&mut self.versions);
        self.expand(page, &mut versions);
        let mut places = self.map.page(page);
        // Where they were, and where they are now.
        let (mut moves, mut count) = ([(0, 0); N as usize], 0);
        if let Some(version) = versions.iter_mut().find(|v| v.held().any(|h| h == one)) {
            for subpage in bits(moved & version.valid) {
                let place = to.0 as u32 + (moved & ((1 << subpage) - 1)).count_ones();
                let old = std::mem::replace(&mut version.places[subpage as usize], place);
                if let Some(l) = places.get(subpage).filter(|l| l.place == old)
                    && self.planted != Some(Planted::StaleMap)
                {
                    places.set(subpage, Some(Located { place, ..l }));
                }
                moves[count] = (old, place);
                count += 1;
            }
        }
        // Before anything else changes: it may not be possible.
        let result = self.compress_over(page, &versions, &places);
        self.versions = versions;
        result?;
        self.map.set_page(page, &places);
        for (old, place) in &moves[..count] {
            if let Some(checksum) = self.old.remove(old) {
                self.old.insert(*place, checksum);
            }
            self.gain(*place);
            self.lose(*old);
        }
        Ok(())
    }

    /// Moves what is visible and unnamed by entries. Returns false, and changes nothing, where it
    /// is not so.
    fn move_mapped(&mut self, page: u32, held: Held, to: u32) -> bool {
        let subpage = page * N + held.subpage;
        let Some(located) = self.map.get(subpage).filter(|l| l.place == held.place) else { return false };
        // The newest entry with the subpage belongs to the version which is visible.
        let holder = self.table.chain(page).find(|entry| entry.subpages(N) & (1 << held.subpage) != 0);
        let mapped = holder.is_some_and(|entry| entry.status().has(Status::MAPPED));
        if !mapped || self.planted.is_some() {
            return false;
        }
        self.map.set(subpage, Some(Located { place: to, ..located }));
        self.gain(to);
        self.lose(held.place);
        true
    }

    /// Drops the unneeded versions of a page, joins those that no token distinguishes, and makes
    /// the rest the page's.
    fn settle(&mut self, page: u32, versions: &mut Vec<Version>) -> Result<(), TableFull> {
        // For each subpage, when the version that hides older ones was written.
        let mut hidden = [u64::MAX; N as usize];
        let (mut kept, mut old) = (0, false);
        let places = self.map.page(page);
        for i in 0..versions.len() {
            let mut version = versions[i];
            for h in versions[i].held() {
                let by = std::mem::replace(&mut hidden[h.subpage as usize], version.time);
                if is_at(places.get(h.subpage), h) {
                    continue;
                }
                if self.tokens.any_in(version.time, by) {
                    old = true;
                } else {
                    version.valid &= !(1 << h.subpage);
                    if !self.old.is_empty() {
                        self.old.remove(&h.place);
                    }
                    self.supersede(page, h.place);
                }
            }
            if version.deletes() {
                hidden = [version.time; N as usize];
            }
            match versions[..kept].last_mut() {
                // No kept token distinguishes them: the newer one's status holds.
                Some(newer)
                    if !newer.deletes() && !version.deletes() && !self.tokens.any_in(version.time, newer.time) =>
                {
                    debug_assert_eq!(newer.valid & version.valid, 0, "what is hidden is not needed");
                    version.held().for_each(|h| newer.put(h));
                }
                // One deletion hides as much as two.
                Some(newer)
                    if newer.deletes() && version.deletes() && !self.tokens.any_in(version.time, newer.time) => {}
                newer => {
                    // A token sees the status; or it deletes, and what is older must stay hidden.
                    let needed = newer.is_none_or(|newer| {
                        version.valid != 0 || version.deletes() || self.tokens.any_in(version.time, newer.time)
                    });
                    if needed {
                        old |= kept > 0;
                        versions[kept] = version;
                        kept += 1;
                    }
                }
            }
        }
        versions.truncate(kept);
        // A deletion that hides nothing any more: nothing is left of the page as it was before.
        while versions.last().is_some_and(Version::deletes) {
            versions.pop();
        }
        // What a deletion hid may have been all of it.
        let visible = |version: &Version| version.held().all(|h| is_at(places.get(h.subpage), h));
        self.history.set(page, old && (versions.len() > 1 || !versions.iter().all(visible)));
        self.compress(page, versions)
    }
    fn prune(&mut self, page: u32) -> Result<(), TableFull> {
        self.note_leaf_if_any(page);
        let mut versions = std::mem::take(&mut self.versions);
        self.expand(page, &mut versions);
        let result = self.settle(page, &mut versions);
        self.versions = versions;
        result
    }

    fn prune_all(&mut self, seen: &impl Seen) -> Result<(), TableFull> {
        let (mut from, mut loaded) = (0, 0);
        while let Some(page) = self.history.next(from) {
            // Ahead of the one that is pruned, as most of it is in no cache.
            for _ in 0..if from == 0 { PRUNED_AHEAD } else { 1 } {
                if let Some(later) = self.history.next(loaded) {
                    self.prefetch_page(later);
                    loaded = later + 1;
                }
            }
            if !seen.contains(page) {
                self.prune(page)?;
            }
            from = page + 1;
        }
        Ok(())
    }
    /// Gives versions with an older time than `before` the time of the first token that sees them.
    fn restamp(&mut self, before: u64, seen: &impl Seen) -> Result<(), TableFull> {
        for page in 0..self.geometry.pages() {
            if self.table.head(page) == EMPTY || seen.contains(page) {
                continue;
            }
            let versions: Vec<PageEntry> = self.table.chain(page).collect();
            let stamped = versions.iter().map(|entry| {
                let time = self.time(*entry);
                if time < before {
                    entry.at_time(self.tokens.first_from(time).unwrap_or(self.next_token) as u32)
                } else {
                    *entry
                }
            });
            let stamped: Vec<PageEntry> = stamped.collect();
            if stamped != versions {
                self.table.replace(page, &stamped)?;
            }
        }
        Ok(())
    }
    /// Drops what is not needed any more from all pages, after recovery.
    pub fn prune_everything(&mut self) -> Result<(), TableFull> {
        self.prune_all(&Unseen)
    }

    fn roll_back(&mut self, token: u64, seen: &impl Seen) -> Result<(), TableFull> {
        self.tokens.cut(token);
        for page in 0..self.geometry.pages() {
            let head = self.table.head(page);
            if head != EMPTY && self.time(head) > token && !seen.contains(page) {
                self.roll_back_page(page, token)?;
            }
        }
        Ok(())
    }
    fn roll_back_page(&mut self, page: u32, token: u64) -> Result<(), TableFull> {
        self.note_leaf(page);
        let mut versions = std::mem::take(&mut self.versions);
        self.expand(page, &mut versions);
        let stays = versions.iter().position(|v| v.time <= token).unwrap_or(versions.len());
        let mut now = [None; N as usize];
        for version in &versions[stays..] {
            for h in version.held() {
                let slot = &mut now[h.subpage as usize];
                *slot = slot.or(Some(h.place));
            }
            if version.deletes() {
                break;
            }
        }
        let mut places = self.map.page(page);
        for (subpage, place) in (0..N).zip(now) {
            let before = places.get(subpage);
            let located = match (place, before) {
                (Some(place), Some(b)) if b.place == place => Some(b),
                (Some(place), _) => self.old.remove(&place).map(|checksum| Located { place, checksum }),
                (None, _) => None,
            };
            // Older versions may hide behind a deletion: their checksums stay with the old ones.
            if let Some(b) = before
                && located != Some(b)
            {
                self.old.insert(b.place, b.checksum);
            }
            places.set(subpage, located);
        }
        self.map.set_page(page, &places);
        for version in versions.drain(..stays) {
            for h in version.held() {
                self.old.remove(&h.place);
                self.supersede(page, h.place);
            }
        }
        let result =
            if self.planted == Some(Planted::RollBackMapOnly) { Ok(()) } else { self.settle(page, &mut versions) };
        self.versions = versions;
        result
    }
}

#[cfg(test)]
mod tests;
