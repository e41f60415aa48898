//! Names of permanent arrays and pools, and where each is stored. Decisions only.

use std::collections::{BTreeMap, BTreeSet};

use super::records::{NAMES_MAX, Target};

/// What is known of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    slot: u32,
    /// Bytes of each object.
    pub size: u16,
    /// What it leads to.
    pub target: Target,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Names {
    entries: BTreeMap<String, Entry>,
    taken: BTreeSet<u32>,
    /// Slots whose names are not on flash as they are here.
    changed: BTreeSet<u32>,
    /// Slots whose names have gone since flash had them. Others may have these slots by now.
    gone: BTreeSet<u32>,
}

impl Names {
    /// What a name leads to.
    pub fn get(&self, name: &str) -> Option<Entry> {
        self.entries.get(name).copied()
    }
    /// All of them, ascending.
    pub fn all(&self) -> impl Iterator<Item = (&str, Entry)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), *entry))
    }
    /// A name that was read from its slot. False when there is another of that name.
    pub fn restore(&mut self, slot: u32, name: String, size: u16, target: Target) -> bool {
        let is_new = self.taken.insert(slot) && !self.entries.contains_key(&name);
        if is_new {
            self.entries.insert(name, Entry { slot, size, target });
        }
        is_new
    }
    /// Whether there are as many as there may be.
    pub fn is_full(&self) -> bool {
        self.taken.len() == NAMES_MAX as usize
    }
    /// Adds a name, or changes the root of a pool that has it. False when there are as many as
    /// there may be.
    pub fn set(&mut self, name: &str, size: u16, target: Target) -> bool {
        let slot = self.entries.get(name).map(|entry| entry.slot);
        let Some(slot) = slot.or_else(|| (0..NAMES_MAX).find(|slot| !self.taken.contains(slot))) else { return false };
        self.taken.insert(slot);
        self.changed.insert(slot);
        self.entries.insert(name.to_owned(), Entry { slot, size, target });
        true
    }
    /// Removes a name.
    pub fn remove(&mut self, name: &str) {
        if let Some(entry) = self.entries.remove(name) {
            self.taken.remove(&entry.slot);
            self.changed.remove(&entry.slot);
            self.gone.insert(entry.slot);
        }
    }
    /// Slots that a name has left since the last call. They are cleared before others are written.
    pub fn take_gone(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.gone)
    }
    /// These were not cleared.
    pub fn give_gone_back(&mut self, slots: BTreeSet<u32>) {
        self.gone.extend(slots);
    }
    /// Slots of the names that came or changed since the last call, with them.
    pub fn take_changed(&mut self) -> BTreeMap<u32, (String, Entry)> {
        let changed = std::mem::take(&mut self.changed);
        let of_these = self.entries.iter().filter(|(_, entry)| changed.contains(&entry.slot));
        of_these.map(|(name, entry)| (entry.slot, (name.clone(), *entry))).collect()
    }
    /// These did not get to flash.
    pub fn give_changed_back(&mut self, slots: impl Iterator<Item = u32>) {
        self.changed.extend(slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_slots_of_their_own() {
        let (mut names, target) = (Names::default(), Target::Array { first: 0, count: 1 });
        assert!(names.restore(3, "old".into(), 8, target) && !names.restore(4, "old".into(), 8, target));
        assert!(names.set("a", 8, target) && names.set("b", 8, target) && names.set("a", 9, target));
        names.remove("none");
        names.remove("b");
        let (gone, changed) = (names.take_gone(), names.take_changed());
        let is_a = |(name, entry): &(String, Entry)| name == "a" && entry.size == 9;
        assert!(changed.len() == 1 && is_a(&changed[&0]) && gone == BTreeSet::from([1]), "{changed:?}, {gone:?}");
        assert!(names.take_changed().is_empty() && names.take_gone().is_empty());
        names.give_gone_back(gone);
        assert_eq!(names.take_gone(), BTreeSet::from([1]));
        names.give_changed_back([0].into_iter());
        assert!(is_a(&names.take_changed()[&0]));
        // "a", "old", and the slot of the name that was there twice.
        let more = (0..).take_while(|n| names.set(&format!("n{n}"), 8, target)).count();
        assert_eq!(more, NAMES_MAX as usize - 3);
        assert!(names.is_full());
        assert!(names.set("old", 10, target), "it has its slot");
        assert_eq!(names.get("old").map(|entry| (entry.slot, entry.size)), Some((3, 10)));
    }
}
