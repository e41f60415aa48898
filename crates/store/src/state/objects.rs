//! How records of objects change the state, and how a checkpoint has them.
//!
//! An object is a subpage whose place is a slot ([`crate::objects`]), and versions, tokens and
//! deletions treat it as any subpage. Slots are not on flash: records and checkpoints name a flash
//! page, an offset and a length.

use fulgurite_format::{
    Checksums, EntryIndex, FlashPage, ObjectLocation, ObjectsMoved, ObjectsWritten, PageEntry, Status,
    WORDS_OF_AN_OBJECT,
};

use super::{Held, N, Seen, State, Version, entries_of, held};
use crate::geometry::FIRST_EXTENT;
use crate::table::TableFull;

/// Objects in a checkpoint: where each is stored, and its checksum.
pub(super) fn objects_of(words: &[u32]) -> impl Iterator<Item = (ObjectLocation, u32)> {
    words.as_chunks::<{ WORDS_OF_AN_OBJECT as usize }>().0.iter().map(|words| ObjectLocation::of_words(*words))
}

impl State {
    /// Whether an object may be stored there.
    pub(super) fn is_inside(&self, place: ObjectLocation) -> bool {
        let first = self.geometry.first_of(FIRST_EXTENT);
        let inside = (first..self.geometry.flash_pages()).contains(&place.flash_page) || place.length == 0;
        self.geometry.objects && place.is_sane() && inside
    }
    /// Whether what an entry of a checkpoint says of objects can be.
    pub fn are_sane(&self, entry: PageEntry, words: &[u32]) -> bool {
        entry.valid() >> N == 0
            && objects_of(words).all(|(place, checksum)| self.is_inside(place) && (place.length > 0 || checksum == 0))
    }
    /// Whether what a record says of objects can be.
    pub fn may_write(&self, written: &ObjectsWritten) -> bool {
        written.as_slice().iter().all(|object| {
            let is_valid = object.length > 0 || (object.offset == 0 && object.checksum == 0);
            object.subpage < self.geometry.subpages && is_valid && self.is_inside(written.location(object))
        })
    }
    /// Whether what a record says of the new locations of objects can be.
    pub fn may_move(&self, moved: &ObjectsMoved) -> bool {
        moved.as_slice().iter().all(|object| {
            let to = ObjectLocation { flash_page: moved.flash_page, offset: object.offset, length: 1 };
            let there = self.slot_at(object.subpage, object.from, object.from_offset);
            let to = there.map_or(to, |(_, from)| ObjectLocation { length: from.length, ..to });
            object.subpage < self.geometry.subpages && self.is_inside(to)
        })
    }

    pub(super) fn write_objects(&mut self, written: &ObjectsWritten, seen: &impl Seen) -> Result<(), TableFull> {
        let count = written.as_slice().len() as u32;
        if self.table.room() < count * (N + 1) || self.objects.room() < count {
            return Err(TableFull);
        }
        for object in written.as_slice() {
            if seen.contains(object.subpage / N) {
                continue;
            }
            let slot = self.objects.take(written.location(object));
            let (page, subpage) = (object.subpage / N, object.subpage % N);
            let mut checksums = Checksums::EMPTY;
            checksums.push(object.checksum);
            let start = FlashPage(u64::from(slot) - u64::from(subpage));
            self.write(page, start, 1 << subpage, written.status, &checksums)?;
        }
        Ok(())
    }
    pub(super) fn move_objects(&mut self, moved: &ObjectsMoved, seen: &impl Seen) {
        for object in moved.as_slice() {
            if seen.contains(object.subpage / N) {
                continue;
            }
            let Some((slot, from)) = self.slot_at(object.subpage, object.from, object.from_offset) else { continue };
            let to = ObjectLocation { flash_page: moved.flash_page, offset: object.offset, length: from.length };
            self.note_leaf(object.subpage / N);
            self.note_moved(object.subpage / N);
            self.emptied.extend(self.objects.relocate(slot, to));
        }
    }

    /// The object of a subpage that is stored there, if a needed version has it: its slot and its
    /// location.
    pub fn slot_at(&self, subpage: u32, flash_page: u32, offset: u16) -> Option<(u32, ObjectLocation)> {
        self.slots_of(subpage).into_iter().find(|(_, at)| at.flash_page == flash_page && at.offset == offset)
    }
    /// The objects of all versions of a subpage that are needed.
    pub fn slots_of(&self, subpage: u32) -> Vec<(u32, ObjectLocation)> {
        let (page, mut slots) = (subpage / N, Vec::new());
        if subpage >= self.geometry.subpages {
            return slots;
        }
        let visible = self.map.get(subpage).map(|located| located.place);
        slots.extend(visible.and_then(|place| Some((place, self.objects.get(place)?))));
        // Older versions are entries that name their places.
        for entry in self.table.chain(page).filter(|entry| !entry.status().has(Status::MAPPED)) {
            if let Some(FlashPage(place)) = entry.place(subpage % N, N)
                && let place = place as u32
                && Some(place) != visible
                && let Some(at) = self.objects.get(place)
            {
                slots.push((place, at));
            }
        }
        slots
    }

    /// The entry under which a checkpoint has the objects of a version, and what it says of each.
    pub(super) fn object_entry(&self, page: u32, version: &Version) -> Option<(PageEntry, Vec<u32>)> {
        let (mut valid, mut words) = (0, Vec::new());
        for h in version.held().filter(|h| self.objects.has(h.place)) {
            let at = self.objects.get(h.place).expect("a slot that is used");
            valid |= 1 << h.subpage;
            words.extend(at.words(self.checksum(page, h).unwrap_or(0)));
        }
        let status = version.status.with(Status::OBJECTS);
        let entry = PageEntry::new(FlashPage(0), EntryIndex::NONE, valid, version.time as u32, status);
        (valid != 0).then_some((entry, words))
    }
    /// Versions as a checkpoint has them, with slots in place of the locations of objects.
    pub(super) fn take_slots(
        &mut self,
        versions: &[(PageEntry, Vec<u32>)],
    ) -> Result<Vec<(PageEntry, Vec<u32>)>, TableFull> {
        let mut with_slots = Vec::with_capacity(versions.len());
        for (entry, words) in versions {
            if !entry.status().has(Status::OBJECTS) {
                with_slots.push((*entry, words.clone()));
                continue;
            }
            if self.objects.room() < N {
                return Err(TableFull);
            }
            let subpages = (0..N).filter(|subpage| entry.valid() & (1 << subpage) != 0);
            let (all, checksums): (Vec<Held>, Vec<u32>) = subpages
                .zip(objects_of(words))
                .map(|(subpage, (at, checksum))| (Held { subpage, place: self.objects.take(at) }, checksum))
                .unzip();
            let (mut entries, mut rest) = (Vec::new(), &checksums[..]);
            entries_of(&all, entry.time(), entry.status().without(Status::OBJECTS), &mut entries);
            for entry in entries {
                let (its, others) = rest.split_at(held(entry).count());
                rest = others;
                with_slots.push((entry, its.to_vec()));
            }
        }
        Ok(with_slots)
    }
}
