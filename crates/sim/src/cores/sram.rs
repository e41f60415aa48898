//! A set-associative cache on the chip, least recently used first: also a TLB.

/// Tags in their order of use, the latest first.
#[derive(Clone, Debug)]
pub struct Sram {
    tags: Vec<u64>,
    ways: usize,
    sets: u64,
}

/// No tag.
const NONE: u64 = u64::MAX;

impl Sram {
    /// An empty one.
    pub fn new(entries: u64, ways: u64) -> Sram {
        let sets = (entries / ways).max(1);
        Sram { tags: vec![NONE; (sets * ways) as usize], ways: ways as usize, sets }
    }
    fn set(&mut self, tag: u64) -> &mut [u64] {
        let first = (tag % self.sets) as usize * self.ways;
        &mut self.tags[first..first + self.ways]
    }
    /// Touches an entry if it is there. Returns whether it is.
    pub fn find(&mut self, tag: u64) -> bool {
        let set = self.set(tag);
        let found = set.iter().position(|other| *other == tag);
        if let Some(at) = found {
            set[..=at].rotate_right(1);
        }
        found.is_some()
    }
    /// Puts in an entry that is not there.
    pub fn put(&mut self, tag: u64) {
        let set = self.set(tag);
        set.rotate_right(1);
        set[0] = tag;
    }
    /// Touches an entry. Returns whether it was there, and puts it in.
    pub fn touch(&mut self, tag: u64) -> bool {
        let found = self.find(tag);
        if !found {
            self.put(tag);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes() {
        let mut cache = Sram::new(4, 2);
        assert!(!cache.touch(0) && !cache.touch(2) && cache.touch(0));
        assert!(!cache.touch(4), "a third of the set");
        assert!(cache.touch(0) && !cache.touch(2));
        assert!(!cache.touch(1), "the other set is empty");
    }
}
