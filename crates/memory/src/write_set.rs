//! Write sets: several changes that happen all together or not at all.
//!
//! A change of a data structure touches several subpages, and any access may fail (the medium, a deadline). So an operation
//! first reads, and stages what it wants to write here, in DRAM; `commit` then brings all the subpages in and pins them,
//! which may fail and changes nothing, and only then writes, which cannot fail. The latches that keep others away are the
//! caller's.

use fulgurite_format::{Address, Plain, SUBPAGE_BYTES};
use fulgurite_runtime::AccessError;

use crate::{Memory, Pinned, Ptr};

/// Staged writes. Reusable: `commit` and `clear` empty it and keep its memory.
#[derive(Default, Debug, Clone)]
pub struct WriteSet {
    writes: Vec<Write>,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Write {
    at: Address,
    start: u32,
    len: u32,
}

impl WriteSet {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Whether nothing is staged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
    /// Forgets what is staged.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.bytes.clear();
    }

    /// Stages a value. Later writes win over earlier ones to the same bytes.
    ///
    /// # Errors
    /// [`AccessError::Straddles`] when it would not lie aligned inside one subpage.
    pub fn store<T: Plain>(&mut self, at: Ptr<T>, value: T) -> Result<(), AccessError> {
        at.checked()?;
        self.write_bytes(at.address(), value.as_bytes());
        Ok(())
    }

    /// Stages bytes, in as many subpages as it takes.
    pub fn write_bytes(&mut self, at: Address, bytes: &[u8]) {
        // The same value staged again (a counter, say) is replaced in place.
        if let Some(same) =
            self.writes.iter().rev().take(8).find(|w| w.at == at && w.len as usize == bytes.len()).copied()
            && self.newest_overlap(at, bytes.len()) == Some(same.start)
        {
            self.bytes[same.start as usize..][..bytes.len()].copy_from_slice(bytes);
            return;
        }
        let mut done = 0;
        while done < bytes.len() {
            let here = at.add(done as u64);
            let len = (bytes.len() - done).min(SUBPAGE_BYTES - here.subpage_offset());
            self.writes.push(Write { at: here, start: self.bytes.len() as u32, len: len as u32 });
            self.bytes.extend_from_slice(&bytes[done..done + len]);
            done += len;
        }
    }

    fn newest_overlap(&self, at: Address, len: usize) -> Option<u32> {
        let (start, end) = (at.linear(), at.linear() + len as u64);
        let overlaps = |w: &&Write| w.at.linear() < end && start < w.at.linear() + u64::from(w.len);
        self.writes.iter().rev().find(overlaps).map(|w| w.start)
    }

    /// Reads a value as it will be after `commit`.
    ///
    /// # Errors
    /// As [`Memory::load`].
    pub fn load<M: Memory, T: Plain>(&self, memory: &mut M, at: Ptr<T>) -> Result<T, AccessError> {
        let mut value = memory.load(at)?;
        self.overlay(at, &mut value);
        Ok(value)
    }

    /// Puts the staged bytes of `at` over `value`, which was read from there.
    pub fn overlay<T: Plain>(&self, at: Ptr<T>, value: &mut T) {
        if self.writes.is_empty() {
            return;
        }
        let (start, end) = (at.address().linear(), at.address().linear() + size_of::<T>() as u64);
        // `T: Plain` is Copy but need not be FromZeros-through-&mut: go through a byte copy.
        let mut bytes = value.as_bytes().to_vec();
        let mut changed = false;
        for w in &self.writes {
            let (from, to) = (w.at.linear().max(start), (w.at.linear() + u64::from(w.len)).min(end));
            if from < to {
                let source = w.start as usize + (from - w.at.linear()) as usize;
                bytes[(from - start) as usize..(to - start) as usize]
                    .copy_from_slice(&self.bytes[source..source + (to - from) as usize]);
                changed = true;
            }
        }
        if changed {
            *value = T::read_from_bytes(&bytes).expect("as many bytes as a T has");
        }
    }

    /// How many pins [`WriteSet::commit`] will take at once.
    #[must_use]
    pub fn pins(&self) -> usize {
        let mut subpages: Vec<_> = self.writes.iter().map(|w| w.at.subpage()).collect();
        subpages.sort_unstable();
        subpages.dedup();
        if subpages.len() > 1 { subpages.len() } else { 0 }
    }

    /// Makes all staged writes, or none, and empties the set (on an error it is kept, so that the caller may try again).
    ///
    /// # Errors
    /// As [`Memory::pin`]; nothing was written then.
    pub fn commit<M: Memory>(&mut self, memory: &mut M) -> Result<(), AccessError> {
        let Some(first) = self.writes.first().copied() else { return Ok(()) };
        // Most sets touch one subpage: one access brings it in, and nothing can come between it and the writes.
        if self.writes.iter().all(|w| w.at.subpage() == first.at.subpage()) {
            let view = memory.view_mut(first.at.subpage().address(), SUBPAGE_BYTES)?;
            for w in &self.writes {
                view.copy_from(w.at.subpage_offset(), &self.bytes[w.start as usize..][..w.len as usize]);
            }
            self.clear();
            return Ok(());
        }
        // Stable by subpage, so that later writes to the same bytes still win.
        let mut order: Vec<u32> = (0..self.writes.len() as u32).collect();
        order.sort_by_key(|&i| self.writes[i as usize].at.subpage());
        let mut pins: Vec<M::Pin> = Vec::new();
        let mut last = None;
        for &i in &order {
            let w = self.writes[i as usize];
            if last != Some(w.at.subpage()) {
                pins.push(memory.pin(w.at)?);
                last = Some(w.at.subpage());
            }
        }
        let mut at = 0;
        for &i in &order {
            let w = self.writes[i as usize];
            while pins[at].address().subpage() != w.at.subpage() {
                at += 1;
            }
            let bytes = &self.bytes[w.start as usize..][..w.len as usize];
            pins[at].view_mut(w.at.subpage_offset(), bytes.len()).copy_from(0, bytes);
        }
        self.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PlainMemory;
    use fulgurite_sys::Backed;

    #[test]
    fn staged_writes_are_read_back_and_committed_in_order() {
        let mut m = PlainMemory::new(Backed::BasePages).unwrap();
        let at = |linear| Ptr::<u64>::new(Address::from_linear(linear));
        let mut set = WriteSet::new();
        for (i, place) in [0u64, 8192, 0, 4096, 8200, 0].into_iter().enumerate() {
            set.store(at(place), i as u64 + 1).unwrap();
        }
        set.write_bytes(Address::from_linear(4094), &[9, 9, 9]);
        assert_eq!(m.load(at(0)), Ok(0), "nothing happens before commit");
        assert_eq!(set.load(&mut m, at(0)), Ok(6));
        assert_eq!(set.load(&mut m, at(4096)), Ok(9));
        assert_eq!(set.pins(), 3);
        set.commit(&mut m).unwrap();
        assert!(set.is_empty());
        assert_eq!([m.load(at(0)), m.load(at(4096)), m.load(at(8192)), m.load(at(8200))], [Ok(6), Ok(9), Ok(2), Ok(5)]);
        assert_eq!(m.load(Ptr::<u8>::new(Address::from_linear(4094))), Ok(9));
    }
}
