//! The state of a pool, and how each record of the journal changes it.
//!
//! The running store and recovery both change the state through [`State::apply`] alone, so that what is recovered is what was.
//!
//! A version is needed when programs see it, or when a kept token names a state in which they saw it; the flash pages of needed
//! versions are live. What is no longer needed leaves the chain at once.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use fulgurite_format::{Checksums, EntryIndex, FlashPage, PageEntry, Record, Status, full_time};

use crate::geometry::{Geometry, SUBPAGES_PER_PAGE};
use crate::map::{Located, Map};
use crate::planted::Planted;
use crate::table::{EMPTY, Table, TableFull};
use crate::tokens::Tokens;

const N: u32 = SUBPAGES_PER_PAGE;

/// A subpage of a version: which, and where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Its number in the page.
    pub subpage: u32,
    /// Its flash page.
    pub place: u32,
}

/// The subpages of a version, ascending.
pub fn held(entry: PageEntry) -> impl Iterator<Item = Held> {
    (0..N).filter_map(move |s| entry.place(s, N).map(|place| Held { subpage: s, place: place.0 as u32 }))
}

/// The entries that name these subpages (ascending) at these places: as few as the two placements allow.
pub fn entries_of(subpages: &[Held], time: u32, status: Status, into: &mut Vec<PageEntry>) {
    let mut rest = subpages;
    while let Some(first) = rest.first() {
        // As the paper has it, where all keep their distance; one entry then holds any subset of them.
        let offset = i64::from(first.place) - i64::from(first.subpage);
        let same = rest.iter().take_while(|h| i64::from(h.place) - i64::from(h.subpage) == offset).count();
        let side_by_side = rest.iter().zip(first.place..).take_while(|(h, place)| h.place == *place).count();
        let (count, packed) = if side_by_side > same || offset < 0 { (side_by_side, true) } else { (same, false) };
        let valid = rest[..count].iter().fold(0, |valid, h| valid | (1 << h.subpage));
        let (start, status) = if packed {
            (u64::from(first.place), status.with(Status::PACKED))
        } else {
            (offset as u64, status.without(Status::PACKED))
        };
        into.push(PageEntry::new(FlashPage(start), EntryIndex::NONE, valid, time, status));
        rest = &rest[count..];
    }
}

/// Joins neighbours that were written at the same time, where one entry can name what both hold.
fn coalesce(versions: &mut Vec<PageEntry>) {
    let same = |a: &PageEntry, b: &PageEntry| {
        a.time() == b.time() && status_of(*a) == status_of(*b) && a.subpages(N) & b.subpages(N) == 0
    };
    if !versions.is_sorted_by(|a, b| !same(a, b)) {
        let mut joined = Vec::with_capacity(versions.len());
        for group in versions.chunk_by(same) {
            let mut all: Vec<Held> = group.iter().flat_map(|e| held(*e)).collect();
            all.sort_unstable_by_key(|h| h.subpage);
            let distinct = all.is_sorted_by(|a, b| a.subpage < b.subpage);
            if group.len() == 1 || !distinct || all.is_empty() {
                joined.extend_from_slice(group);
            } else {
                entries_of(&all, group[0].time(), status_of(group[0]), &mut joined);
            }
        }
        *versions = joined;
    }
}

/// Status of a page, without what an entry's status says of its placement.
pub fn status_of(entry: PageEntry) -> Status {
    entry.status().without(Status::PACKED)
}

/// A set of pages.
#[derive(Debug)]
struct PageSet(Vec<u64>);

impl PageSet {
    fn set(&mut self, page: u32, member: bool) {
        let (word, bit) = (&mut self.0[page as usize / 64], 1 << (page % 64));
        *word = if member { *word | bit } else { *word & !bit };
    }
    fn next(&self, from: u32) -> Option<u32> {
        let mut at = from as usize / 64;
        let mut word = self.0.get(at)? & (u64::MAX << (from % 64));
        while word == 0 {
            at += 1;
            word = *self.0.get(at)?;
        }
        Some(at as u32 * 64 + word.trailing_zeros())
    }
}

/// The state.
#[derive(Debug)]
pub struct State {
    geometry: Geometry,
    table: Table,
    map: std::sync::Arc<Map>,
    /// Checksums of what only tokens still see, by place.
    old: HashMap<u32, u32, FixedState>,
    /// Pages with versions that only tokens still see.
    history: PageSet,
    tokens: Tokens,
    epoch: u64,
    /// Live flash pages of each extent.
    live: Vec<u32>,
    /// Extents that have lost their last live flash page since somebody asked.
    emptied: Vec<u32>,
    /// Flash pages that failed.
    bad: Vec<u32>,
    scratch: Vec<PageEntry>,
    pruned: Vec<PageEntry>,
    pub(crate) planted: Option<Planted>,
}

/// Which pages a record is already part of: those whose piece of the checkpoint was made after the record.
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
            map: std::sync::Arc::new(Map::new(geometry.subpages)),
            old: HashMap::default(),
            history: PageSet(vec![0; (geometry.pages() as usize).div_ceil(64)]),
            tokens: Tokens::default(),
            epoch: 1,
            live: vec![0; geometry.extents as usize],
            emptied: Vec::new(),
            bad: Vec::new(),
            scratch: Vec::new(),
            pruned: Vec::new(),
            planted: None,
        }
    }
    /// Sets what an anchor says.
    pub fn set_epoch(&mut self, epoch: u64, tokens: Tokens) {
        (self.epoch, self.tokens) = (epoch, tokens);
    }

    /// Sets how many entries new versions may bring the page table to.
    pub fn set_table_limit(&mut self, limit: u32) {
        self.table.set_limit(limit);
    }

    /// The geometry.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }
    /// The map, which may be read while the state changes.
    pub fn map(&self) -> &std::sync::Arc<Map> {
        &self.map
    }
    /// The page table.
    pub fn table(&self) -> &Table {
        &self.table
    }
    /// Tokens that are kept.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }
    /// The current epoch: the token that the next sync returns.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
    /// Live flash pages of an extent.
    pub fn live(&self, extent: u32) -> u32 {
        self.live[extent as usize]
    }
    /// Live flash pages in all.
    pub fn live_total(&self) -> u64 {
        self.live.iter().map(|n| u64::from(*n)).sum()
    }
    /// Flash pages that failed.
    pub fn bad(&self) -> &[u32] {
        &self.bad
    }
    /// Extents that have lost their last live flash page since this was called last.
    pub fn take_emptied(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.emptied)
    }
    /// DRAM in all.
    pub fn bytes(&self) -> usize {
        self.table.bytes()
            + self.map.bytes()
            + self.old.capacity() * size_of::<(u32, u32)>()
            + self.history.0.capacity() * 8
            + self.live.capacity() * 4
    }
    /// Whether a page is allocated, and what may be done with it.
    pub fn status(&self, page: u32) -> Status {
        status_of(self.table.head(page))
    }
    /// The checksum of what lies at a place that a version of this page holds.
    pub fn checksum(&self, page: u32, held: Held) -> Option<u32> {
        match self.map.get(page * N + held.subpage) {
            Some(l) if l.place == held.place => Some(l.checksum),
            _ => self.old.get(&held.place).copied(),
        }
    }
    /// The version of a page that holds this subpage at this place, if it is still needed.
    pub fn version_at(&self, page: u32, held: Held) -> Option<PageEntry> {
        self.table.chain(page).find(|e| e.place(held.subpage, N) == Some(FlashPage(held.place.into())))
    }

    fn time(&self, entry: PageEntry) -> u64 {
        full_time(entry.time(), self.epoch)
    }
    fn gain(&mut self, place: u32) {
        self.live[self.geometry.extent_of(place) as usize] += 1;
    }
    fn lose(&mut self, place: u32) {
        let extent = self.geometry.extent_of(place);
        let live = &mut self.live[extent as usize];
        *live -= 1;
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
            Record::Move { page, time, subpages, from, to } => {
                if !seen.contains(page) {
                    self.relocate(page, time, subpages, from, to)?;
                }
            }
            Record::Token { epoch } => {
                self.tokens.push(epoch);
                self.epoch = epoch + 1;
            }
            Record::Drop { epoch } => {
                self.tokens.remove(epoch);
                self.prune_all(seen)?;
            }
            Record::Pin { epoch, pinned } => self.tokens.pin(epoch, pinned),
            Record::RollBack { epoch } => self.roll_back(epoch, seen)?,
            Record::Bad { place } => self.bad.push(place.0 as u32),
            Record::Restamp { epoch } => self.restamp(epoch, seen)?,
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
        let entry = PageEntry::new(start, EntryIndex::NONE, valid, self.epoch as u32, status);
        // Pruning may split versions: at worst one more for each subpage.
        if self.table.room() < N + 1 {
            return Err(TableFull);
        }
        self.table.push(page, entry)?;
        for (h, checksum) in held(entry).zip(sums.as_slice()) {
            let subpage = page * N + h.subpage;
            if let Some(before) = self.map.get(subpage) {
                self.old.insert(before.place, before.checksum);
            }
            self.map.set(subpage, Some(Located { place: h.place, checksum: *checksum }));
            self.gain(h.place);
        }
        self.prune(page)
    }

    fn set_status(&mut self, page: u32, status: Status) -> Result<(), TableFull> {
        if self.table.room() < N + 1 {
            return Err(TableFull);
        }
        let entry =
            PageEntry::new(FlashPage(0), EntryIndex::NONE, 0, self.epoch as u32, status.without(Status::PACKED));
        self.table.push(page, entry)?;
        if status.has(Status::DELETED) {
            for subpage in page * N..(page + 1) * N {
                if let Some(before) = self.map.get(subpage) {
                    self.old.insert(before.place, before.checksum);
                    self.map.set(subpage, None);
                }
            }
        }
        self.prune(page)
    }

    fn relocate(&mut self, page: u32, time: u32, moved: u32, from: FlashPage, to: FlashPage) -> Result<(), TableFull> {
        let mut versions = std::mem::take(&mut self.scratch);
        versions.clear();
        versions.extend(self.table.chain(page));
        let first = moved.trailing_zeros().min(N - 1);
        let found = versions.iter().position(|e| e.time() == time && e.place(first, N) == Some(from));
        let Some(found) = found else {
            self.scratch = versions;
            return Ok(());
        };
        let entry = versions[found];
        let mut pieces = Vec::new();
        let stays: Vec<Held> = held(entry).filter(|h| moved & (1 << h.subpage) == 0).collect();
        entries_of(&stays, entry.time(), status_of(entry), &mut pieces);
        let goes: Vec<(Held, Held)> = held(entry)
            .filter(|h| moved & (1 << h.subpage) != 0)
            .map(|h| {
                let before = (moved & ((1 << h.subpage) - 1)).count_ones();
                (h, Held { place: to.0 as u32 + before, ..h })
            })
            .collect();
        let new: Vec<Held> = goes.iter().map(|(_, new)| *new).collect();
        entries_of(&new, entry.time(), status_of(entry), &mut pieces);
        versions.splice(found..=found, pieces);
        coalesce(&mut versions);
        let replaced = self.table.replace(page, &versions);
        self.scratch = versions;
        replaced?;
        for (old, new) in goes {
            let subpage = page * N + old.subpage;
            match self.map.get(subpage) {
                Some(l) if l.place == old.place && self.planted == Some(Planted::StaleMap) => {}
                Some(l) if l.place == old.place => self.map.set(subpage, Some(Located { place: new.place, ..l })),
                _ => {
                    if let Some(checksum) = self.old.remove(&old.place) {
                        self.old.insert(new.place, checksum);
                    }
                }
            }
            self.gain(new.place);
            self.lose(old.place);
        }
        Ok(())
    }

    /// Drops what nobody needs any more from the versions of a page.
    fn prune(&mut self, page: u32) -> Result<(), TableFull> {
        let mut versions = std::mem::take(&mut self.scratch);
        let mut kept = std::mem::take(&mut self.pruned);
        versions.clear();
        kept.clear();
        versions.extend(self.table.chain(page));
        // For each subpage, when the version that hides older ones was written.
        let mut hidden = [u64::MAX; N as usize];
        let mut newer = u64::MAX;
        let (mut old, mut needed) = (false, 0);
        let mut dropped: [Held; N as usize] = [Held { subpage: 0, place: 0 }; N as usize];
        let mut all_dropped: Vec<u32> = Vec::new();
        for (i, entry) in versions.iter().enumerate() {
            let time = self.time(*entry);
            let (mut kept_here, mut count) = ([Held { subpage: 0, place: 0 }; N as usize], 0);
            let mut drops = 0;
            for h in held(*entry) {
                let by = &mut hidden[h.subpage as usize];
                let visible = *by == u64::MAX;
                if visible || self.tokens.any_in(time, *by) {
                    kept_here[count] = h;
                    count += 1;
                    old |= !visible;
                } else {
                    dropped[drops] = h;
                    drops += 1;
                }
                *by = time;
            }
            // The status of this version is needed by whoever sees the page as it was then.
            let status_needed = i == 0 || self.tokens.any_in(time, newer);
            let deletes = entry.status().has(Status::DELETED);
            if drops == 0 && (count > 0 || status_needed) {
                kept.push(*entry);
            } else if count > 0 {
                entries_of(&kept_here[..count], entry.time(), status_of(*entry), &mut kept);
            } else if status_needed {
                kept.push(PageEntry::new(FlashPage(0), EntryIndex::NONE, 0, entry.time(), status_of(*entry)));
            } else if deletes && kept.last().is_none_or(|e| !e.status().has(Status::DELETED)) {
                // Nobody asks for this status, but what is older must stay hidden.
                kept.push(*entry);
            }
            if count > 0 || status_needed {
                needed = kept.len();
            }
            old |= i > 0 && status_needed;
            all_dropped.extend(dropped[..drops].iter().map(|h| h.place));
            newer = time;
            if deletes {
                hidden = [time; N as usize];
            }
        }
        // A deletion that hides nothing any more.
        kept.truncate(needed);
        // Nothing is left of a page that was deleted, once no token remembers it.
        if let [only] = kept[..]
            && only.valid() == 0
            && only.status().has(Status::DELETED)
        {
            kept.clear();
        }
        let changed = kept.len() != versions.len() || !all_dropped.is_empty();
        let replaced = if changed { self.table.replace(page, &kept) } else { Ok(()) };
        self.history.set(page, old);
        (self.scratch, self.pruned) = (versions, kept);
        replaced?;
        for place in all_dropped {
            self.old.remove(&place);
            self.lose(place);
        }
        Ok(())
    }

    fn prune_all(&mut self, seen: &impl Seen) -> Result<(), TableFull> {
        let mut from = 0;
        while let Some(page) = self.history.next(from) {
            if !seen.contains(page) {
                self.prune(page)?;
            }
            from = page + 1;
        }
        Ok(())
    }
    /// Gives versions that were written before an epoch the time of the first token that sees them.
    fn restamp(&mut self, before: u64, seen: &impl Seen) -> Result<(), TableFull> {
        for page in 0..self.geometry.pages() {
            if self.table.head(page) == EMPTY || seen.contains(page) {
                continue;
            }
            let versions: Vec<PageEntry> = self.table.chain(page).collect();
            let stamped = versions.iter().map(|entry| {
                let time = self.time(*entry);
                if time < before {
                    entry.at_time(self.tokens.first_from(time).unwrap_or(self.epoch) as u32)
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
    /// Drops what nobody needs any more from all pages, after recovery.
    pub fn prune_everything(&mut self) -> Result<(), TableFull> {
        self.prune_all(&Unseen)
    }

    fn roll_back(&mut self, epoch: u64, seen: &impl Seen) -> Result<(), TableFull> {
        self.tokens.cut(epoch);
        for page in 0..self.geometry.pages() {
            let head = self.table.head(page);
            if head != EMPTY && self.time(head) > epoch && !seen.contains(page) {
                self.roll_back_page(page, epoch)?;
            }
        }
        Ok(())
    }
    fn roll_back_page(&mut self, page: u32, epoch: u64) -> Result<(), TableFull> {
        let versions: Vec<PageEntry> = self.table.chain(page).collect();
        let stays = versions.iter().position(|e| self.time(*e) <= epoch).unwrap_or(versions.len());
        if self.planted != Some(Planted::RollBackMapOnly) {
            self.table.replace(page, &versions[stays..])?;
        }
        let mut now = [None; N as usize];
        for entry in &versions[stays..] {
            for h in held(*entry) {
                let slot = &mut now[h.subpage as usize];
                *slot = slot.or(Some(h.place));
            }
            if entry.status().has(Status::DELETED) {
                break;
            }
        }
        for (subpage, place) in (page * N..).zip(now) {
            let before = self.map.get(subpage);
            let located = match (place, before) {
                (Some(place), Some(b)) if b.place == place => Some(b),
                (Some(place), _) => self.old.remove(&place).map(|checksum| Located { place, checksum }),
                (None, _) => None,
            };
            // What is left of older versions may hide behind a deletion: its checksum stays with the old ones.
            if let Some(b) = before
                && located != Some(b)
            {
                self.old.insert(b.place, b.checksum);
            }
            self.map.set(subpage, located);
        }
        for h in versions[..stays].iter().flat_map(|e| held(*e)) {
            self.old.remove(&h.place);
            self.lose(h.place);
        }
        self.prune(page)
    }

    /// All versions of a page with their checksums, newest first, for a checkpoint.
    pub fn history_of(&self, page: u32) -> Vec<(PageEntry, Vec<u32>)> {
        let sums = |e: PageEntry| held(e).map(|h| self.checksum(page, h).unwrap_or(0)).collect();
        self.table.chain(page).map(|e| (e.after(EntryIndex::NONE), sums(e))).collect()
    }
    /// Sets the versions of a page, as a checkpoint has them.
    ///
    /// # Errors
    /// When the table is full.
    pub fn load(&mut self, page: u32, versions: &[(PageEntry, Vec<u32>)]) -> Result<(), TableFull> {
        let entries: Vec<PageEntry> = versions.iter().map(|(e, _)| *e).collect();
        self.table.replace(page, &entries)?;
        let mut visible = true;
        let mut seen = 0u32;
        for (entry, checksums) in versions {
            for (h, checksum) in held(*entry).zip(checksums) {
                if visible && seen & (1 << h.subpage) == 0 {
                    self.map.set(page * N + h.subpage, Some(Located { place: h.place, checksum: *checksum }));
                } else {
                    self.old.insert(h.place, *checksum);
                }
                seen |= 1 << h.subpage;
                self.gain(h.place);
            }
            visible &= !entry.status().has(Status::DELETED);
        }
        self.history.set(page, versions.len() > 1);
        Ok(())
    }

    /// What the state should be, computed another way; for tests and `check`. Returns sentences about what is wrong.
    pub fn audit(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut live = vec![0u32; self.live.len()];
        let mut owner: HashMap<u32, u32, FixedState> = HashMap::default();
        for page in 0..self.geometry.pages() {
            let mut newest: [Option<u32>; N as usize] = [None; N as usize];
            let (mut before, mut deleted) = (u64::MAX, false);
            for entry in self.table.chain(page) {
                let time = self.time(entry);
                if time > before {
                    wrong.push(format!("page {page}: a version is newer than the one before it"));
                }
                before = time;
                for h in held(entry) {
                    if h.place >= self.geometry.flash_pages() {
                        wrong.push(format!("page {page}: flash page {} does not exist", h.place));
                        continue;
                    }
                    live[self.geometry.extent_of(h.place) as usize] += 1;
                    if owner.insert(h.place, page).is_some() {
                        wrong.push(format!("page {page}: flash page {} belongs to another version too", h.place));
                    }
                    if self.checksum(page, h).is_none() {
                        wrong.push(format!("page {page}: no checksum of flash page {}", h.place));
                    }
                    if !deleted {
                        newest[h.subpage as usize].get_or_insert(h.place);
                    }
                }
                deleted |= entry.status().has(Status::DELETED);
            }
            for (subpage, place) in (page * N..).zip(newest) {
                if self.map.get(subpage).map(|l| l.place) != place {
                    wrong.push(format!("subpage {subpage}: the map and the page table disagree"));
                }
            }
        }
        for (extent, (found, counted)) in self.live.iter().zip(&live).enumerate() {
            if found != counted {
                wrong.push(format!("extent {extent}: {found} live flash pages counted, {counted} found"));
            }
        }
        wrong
    }
}
