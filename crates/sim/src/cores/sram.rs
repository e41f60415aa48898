//! A set-associative cache on the chip, least recently used first: also a TLB.

/// Tags in their order of use, the latest first, each with a value.
#[derive(Clone, Debug)]
pub struct Sram<V = ()> {
    entries: Vec<(u64, V)>,
    ways: usize,
    sets: u64,
}

/// No tag.
const NONE: u64 = u64::MAX;

impl<V: Copy + Default> Sram<V> {
    /// An empty one.
    pub fn new(entries: u64, ways: u64) -> Sram<V> {
        let sets = (entries / ways).max(1);
        Sram { entries: vec![(NONE, V::default()); (sets * ways) as usize], ways: ways as usize, sets }
    }
    /// How many entries it has room for.
    pub fn entries(&self) -> u64 {
        self.entries.len() as u64
    }
    fn set(&mut self, tag: u64) -> &mut [(u64, V)] {
        let first = (tag % self.sets) as usize * self.ways;
        &mut self.entries[first..first + self.ways]
    }
    /// Touches an entry if it is there. Returns its value.
    pub fn find(&mut self, tag: u64) -> Option<&mut V> {
        let set = self.set(tag);
        let at = set.iter().position(|(other, _)| *other == tag)?;
        set[..=at].rotate_right(1);
        Some(&mut set[0].1)
    }
    /// Puts in an entry that is not there. Returns the one that is evicted for it.
    pub fn put(&mut self, tag: u64, value: V) -> Option<u64> {
        let set = self.set(tag);
        set.rotate_right(1);
        let (victim, _) = std::mem::replace(&mut set[0], (tag, value));
        (victim != NONE).then_some(victim)
    }
    /// Takes an entry out, if it is there. Its place is used next.
    pub fn remove(&mut self, tag: u64) {
        let set = self.set(tag);
        if let Some(at) = set.iter().position(|(other, _)| *other == tag) {
            set[at..].rotate_left(1);
            set[set.len() - 1].0 = NONE;
        }
    }
    /// All entries.
    pub fn tags(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().map(|(tag, _)| *tag).filter(|tag| *tag != NONE)
    }
    /// Touches an entry. Returns whether it was there, and puts it in.
    pub fn touch(&mut self, tag: u64) -> bool {
        let found = self.find(tag).is_some();
        if !found {
            self.put(tag, V::default());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes() {
        let mut cache: Sram = Sram::new(4, 2);
        assert!(!cache.touch(0) && !cache.touch(2) && cache.touch(0));
        assert!(!cache.touch(4), "a third of the set");
        assert!(cache.touch(0) && !cache.touch(2));
        assert!(!cache.touch(1), "the other set is empty");
    }
    #[test]
    fn what_was_taken_out_leaves_room() {
        let mut cache = Sram::new(4, 2);
        assert_eq!((cache.put(0, 'a'), cache.put(2, 'b'), cache.put(4, 'c')), (None, None, Some(0)));
        cache.remove(4);
        cache.remove(6);
        assert_eq!((cache.find(4).copied(), cache.put(8, 'd')), (None, None));
        assert_eq!((cache.find(2).copied(), cache.find(8).copied()), (Some('b'), Some('d')));
        assert_eq!(cache.tags().count(), 2);
    }
}
