//! The versions of a page as a checkpoint has them: written from the state, and loaded into it
//! again.

use fulgurite_format::{EntryIndex, FlashPage, History, PageEntry, Status};

use super::{Held, Leaf, N, State, bits, entries_of, held, status_of};
use crate::map::Located;
use crate::table::{EMPTY, TableFull};

impl State {
    /// All versions of a page with their checksums, newest first, for a checkpoint: each entry
    /// names its places itself.
    pub fn history_of(&self, page: u32) -> Vec<(PageEntry, Vec<u32>)> {
        let mut history = Vec::new();
        for version in self.versions_of(page) {
            let all: Vec<Held> = version.held().filter(|h| !self.objects.has(h.place)).collect();
            let objects = self.object_entry(page, &version);
            let mut entries = Vec::new();
            entries_of(&all, version.time as u32, version.status, &mut entries);
            if all.is_empty() && objects.is_none() {
                let status = version.status;
                entries.push(PageEntry::new(FlashPage(0), EntryIndex::NONE, 0, version.time as u32, status));
            }
            let sums = |e: PageEntry| held(e).map(|h| self.checksum(page, h).unwrap_or(0)).collect();
            history.extend(entries.into_iter().map(|e| (e, sums(e))).chain(objects));
        }
        history
    }
    /// Appends the history of a page, for a checkpoint, if it has at most one version and no
    /// objects, and keeps `into` within `most`. Otherwise changes nothing and returns false.
    pub fn append_history(&self, page: u32, most: usize, entries: &mut Vec<PageEntry>, into: &mut Vec<u8>) -> bool {
        let head = self.table.head(page);
        if head == EMPTY {
            return true;
        }
        if head.previous() != EntryIndex::NONE || status_of(head).has(Status::DELETED) || head.valid() == 0 {
            return false;
        }
        entries.clear();
        if head.status().has(Status::MAPPED) {
            let (mut visible, mut count) = ([Held::NONE; N as usize], 0);
            for subpage in bits(head.valid()) {
                let located = self.map.get(page * N + subpage).expect("the map knows the places of a mapped entry");
                visible[count] = Held { subpage, place: located.place };
                count += 1;
            }
            entries_of(&visible[..count], head.time(), status_of(head), entries);
        } else {
            entries.push(head);
        }
        // The locations of objects are not their slots.
        if entries.iter().any(|entry| held(*entry).any(|h| self.objects.has(h.place))) {
            return false;
        }
        let checksums = entries.iter().map(|e| e.subpages(N).count_ones() as usize);
        let bytes = History::FIXED_BYTES + checksums.map(History::version_bytes).sum::<usize>();
        if into.len() + bytes > most {
            return false;
        }
        History::begin(page, entries.len(), into);
        for entry in entries {
            History::encode_version(*entry, held(*entry).map(|h| self.checksum(page, h).unwrap_or(0)), into);
        }
        true
    }
    /// The history of a page that is out, whose leaf is this.
    pub fn history_out(&self, page: u32, leaf: &Leaf) -> Vec<(PageEntry, Vec<u32>)> {
        let head = self.table.head(page);
        let valid = leaf.iter().fold(0, |valid, (subpage, ..)| valid | (1 << subpage));
        let status = status_of(head).with(Status::OBJECTS);
        let entry = PageEntry::new(FlashPage(0), EntryIndex::NONE, valid, head.time(), status);
        vec![(entry, leaf.iter().flat_map(|(_, at, checksum)| at.words(*checksum)).collect())]
    }
    /// Sets the versions of a page, as a checkpoint has them.
    ///
    /// # Errors
    /// When the table is full.
    pub fn load(&mut self, page: u32, versions: &[(PageEntry, Vec<u32>)]) -> Result<(), TableFull> {
        if self.load_out(page, versions) {
            return Ok(());
        }
        if versions.iter().any(|(entry, _)| entry.status().has(Status::OBJECTS)) {
            let with_slots = self.take_slots(versions)?;
            return self.load(page, &with_slots);
        }
        let entries: Vec<PageEntry> = versions.iter().map(|(e, _)| *e).collect();
        self.table.replace(page, &entries)?;
        let mut visible = true;
        let mut seen = 0u32;
        let mut places = self.map.page(page);
        for (entry, checksums) in versions {
            for (h, checksum) in held(*entry).zip(checksums) {
                if visible && seen & (1 << h.subpage) == 0 {
                    places.set(h.subpage, Some(Located { place: h.place, checksum: *checksum }));
                } else {
                    self.old.insert(h.place, *checksum);
                }
                seen |= 1 << h.subpage;
                self.gain(h.place);
            }
            visible &= !entry.status().has(Status::DELETED);
        }
        self.map.set_page(page, &places);
        self.history.set(page, versions.len() > 1);
        self.note_loaded(page);
        Ok(())
    }
}
