//! Names of permanent arrays and pools, and where each lies. Decisions only.

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
    /// Slots that are not on flash as they are here.
    changed: BTreeSet<u32>,
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
    /// Adds a name, or changes where one leads that there is. False when there are as many as there
    /// may be.
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
            self.changed.insert(entry.slot);
        }
    }
    /// Slots that changed since the last call, with their names, or none where there is none now.
    pub fn take_changed(&mut self) -> BTreeMap<u32, Option<(String, Entry)>> {
        let mut changed: BTreeMap<_, _> =
            std::mem::take(&mut self.changed).into_iter().map(|slot| (slot, None)).collect();
        for (name, entry) in &self.entries {
            if let Some(found) = changed.get_mut(&entry.slot) {
                *found = Some((name.clone(), *entry));
            }
        }
        changed
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
        let changed = names.take_changed();
        let is_a = |found: &Option<(String, Entry)>| found.as_ref().is_some_and(|(name, e)| name == "a" && e.size == 9);
        assert!(changed.len() == 2 && is_a(&changed[&0]) && changed[&1].is_none(), "{changed:?}");
        assert!(names.take_changed().is_empty());
        names.give_changed_back([0].into_iter());
        assert!(is_a(&names.take_changed()[&0]));
        // "a", "old", and the slot of the name that was there twice.
        let more = (0..).take_while(|n| names.set(&format!("n{n}"), 8, target)).count();
        assert_eq!(more, NAMES_MAX as usize - 3);
        assert!(names.set("old", 10, target), "it has its slot");
        assert_eq!(names.get("old").map(|entry| (entry.slot, entry.size)), Some((3, 10)));
    }
}
