//! The tags of a queue's requests in flight, and its bounded depth.
//!
//! A tag has 64 bits and stays here. A small slot number travels to a device and back. Invariant: a
//! slot is either free or holds the tag of exactly one request.

/// Slots for the requests in flight of one queue.
#[derive(Debug)]
pub(crate) struct Slots {
    tags: Box<[u64]>,
    free: Vec<u32>,
}

impl Slots {
    pub(crate) fn new(depth: usize) -> Slots {
        Slots { tags: vec![0; depth].into(), free: (0..depth as u32).rev().collect() }
    }
    /// Takes a slot for a request with this tag; none when all are taken.
    #[inline]
    pub(crate) fn take(&mut self, tag: u64) -> Option<u32> {
        let slot = self.free.pop()?;
        self.tags[slot as usize] = tag;
        Some(slot)
    }
    /// Frees a slot and returns its tag.
    #[inline]
    pub(crate) fn release(&mut self, slot: u32) -> u64 {
        debug_assert!(!self.free.contains(&slot), "slot {slot} was completed twice");
        self.free.push(slot);
        self.tags[slot as usize]
    }
    pub(crate) fn in_use(&self) -> usize {
        self.tags.len() - self.free.len()
    }
    pub(crate) fn depth(&self) -> usize {
        self.tags.len()
    }
    /// Slots that hold a request. Slow: for the end of a queue.
    pub(crate) fn taken(&self) -> Vec<u32> {
        let mut taken = vec![true; self.tags.len()];
        for &slot in &self.free {
            taken[slot as usize] = false;
        }
        (0..self.tags.len() as u32).filter(|&s| taken[s as usize]).collect()
    }
    pub(crate) fn bytes(&self) -> usize {
        self.tags.len() * 8 + self.free.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_bounded_and_reused() {
        let mut slots = Slots::new(2);
        let (a, b) = (slots.take(7).unwrap(), slots.take(8).unwrap());
        assert_eq!(slots.take(9), None);
        assert_eq!(slots.release(a), 7);
        assert_eq!(slots.taken(), [b]);
        assert_eq!((slots.in_use(), slots.depth()), (1, 2));
        assert_eq!(slots.take(9), Some(a));
    }
}
