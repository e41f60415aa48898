//! Write sets: several changes that happen all together or not at all.
//!
//! A change of a data structure touches several subpages, and any access may fail (the medium, a
//! deadline). So an operation first reads, and stages its writes here, in DRAM. `commit` then
//! brings all the subpages in and pins them, which may fail and changes nothing. Only then it
//! writes, which cannot fail. The caller's latches keep others away.

use fulgurite_format::{Address, Plain, SUBPAGE_BYTES};
use fulgurite_runtime::AccessError;

use crate::{Memory, Pinned, Ptr};

/// Staged writes. Reusable: `commit` and `clear` empty it and keep its memory. Writes are to
/// addresses ([`Ptr`]), and no operation can tell of which memory an address is.
#[derive(Default, Debug, Clone)]
pub struct WriteSet {
    writes: Vec<Write>,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Write {
    at: Address,
    /// Where its bytes are in `bytes`.
    start: usize,
    /// At most a subpage.
    len: usize,
}

/// The first byte of an address's subpage. Its controller stays, so an address out of range stays
/// so.
fn subpage_of(at: Address) -> Address {
    Address::from_bits(at.bits() - at.subpage_offset() as u64)
}

/// How far `at` is behind `start`, if that is less than `len`.
fn inside(at: Address, start: Address, len: usize) -> Option<usize> {
    let behind = at.bits().wrapping_sub(start.bits());
    (behind < len as u64).then_some(behind as usize)
}

impl WriteSet {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }
    /// Whether nothing is staged.
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
    /// [`AccessError::Straddles`] when it would not be aligned inside one subpage.
    pub fn store<T: Plain>(&mut self, at: Ptr<T>, value: T) -> Result<(), AccessError> {
        at.checked()?;
        self.write_bytes(at.address(), value.as_bytes());
        Ok(())
    }

    /// Stages bytes, in as many subpages as it takes.
    pub fn write_bytes(&mut self, at: Address, bytes: &[u8]) {
        // A value that is staged again (a counter, say) is replaced in place.
        if let Some(same) = self.writes.iter().rev().take(8).find(|w| w.at == at && w.len == bytes.len()).copied()
            && self.newest_overlap(at, bytes.len()) == Some(same.start)
        {
            self.bytes[same.start..][..bytes.len()].copy_from_slice(bytes);
            return;
        }
        let mut done = 0;
        while done < bytes.len() {
            let here = at.add(done as u64);
            let len = (bytes.len() - done).min(SUBPAGE_BYTES - here.subpage_offset());
            self.writes.push(Write { at: here, start: self.bytes.len(), len });
            self.bytes.extend_from_slice(&bytes[done..done + len]);
            done += len;
        }
    }

    /// Where the newest write that touches these bytes has its own.
    fn newest_overlap(&self, at: Address, len: usize) -> Option<usize> {
        let overlaps = |w: &&Write| inside(at, w.at, w.len).is_some() || inside(w.at, at, len).is_some();
        self.writes.iter().rev().find(overlaps).map(|w| w.start)
    }

    /// Reads a value as it will be after `commit`.
    pub fn load<M: Memory, T: Plain>(&self, memory: &mut M, at: Ptr<T>) -> Result<T, AccessError> {
        let mut value = memory.load(at)?;
        self.overlay(at, &mut value);
        Ok(value)
    }

    /// Puts the staged bytes of `at` over `value`, which was read from there.
    pub fn overlay<T: Plain>(&self, at: Ptr<T>, value: &mut T) {
        let (at, len) = (at.address(), size_of::<T>());
        for w in &self.writes {
            // Where the two begin to be the same bytes, in each of them.
            let (skip, source) = match (inside(at, w.at, w.len), inside(w.at, at, len)) {
                (Some(behind), _) => (0, behind),
                (None, Some(behind)) => (behind, 0),
                (None, None) => continue,
            };
            let count = (len - skip).min(w.len - source);
            let from = &self.bytes[w.start + source..][..count];
            value.as_mut_bytes()[skip..skip + count].copy_from_slice(from);
        }
    }

    /// How many pins [`WriteSet::commit`] will take at once.
    pub fn pins(&self) -> usize {
        let mut subpages: Vec<_> = self.writes.iter().map(|w| subpage_of(w.at)).collect();
        subpages.sort_unstable();
        subpages.dedup();
        if subpages.len() > 1 { subpages.len() } else { 0 }
    }

    /// Makes all staged writes, or none, and empties the set. On an error the set is kept for a
    /// retry.
    ///
    /// # Errors
    /// As [`pin`](crate::RawMemory::pin); nothing was written then.
    pub fn commit<M: Memory>(&mut self, memory: &mut M) -> Result<(), AccessError> {
        let Some(first) = self.writes.first().copied() else { return Ok(()) };
        if M::TRACKED {
            // Nobody sees a part of them.
            self.writes.iter().try_for_each(|w| {
                memory.view_mut(w.at, w.len)?.copy_from(0, &self.bytes[w.start..][..w.len]);
                Ok(())
            })?;
            self.clear();
            return Ok(());
        }
        let _section = memory.write_section()?;
        // Most sets touch one subpage: one access brings it in, and nothing comes between it and
        // the writes.
        let only = subpage_of(first.at);
        if self.writes.iter().all(|w| subpage_of(w.at) == only) {
            let view = memory.view_mut(only, SUBPAGE_BYTES)?;
            for w in &self.writes {
                view.copy_from(w.at.subpage_offset(), &self.bytes[w.start..][..w.len]);
            }
            self.clear();
            return Ok(());
        }
        // Stable by subpage, so that later writes to the same bytes still win.
        let mut order: Vec<usize> = (0..self.writes.len()).collect();
        order.sort_by_key(|&i| subpage_of(self.writes[i].at));
        let mut pins: Vec<(Address, M::Pin)> = Vec::new();
        for &i in &order {
            let subpage = subpage_of(self.writes[i].at);
            if pins.last().is_none_or(|(last, _)| *last != subpage) {
                pins.push((subpage, memory.pin(subpage)?));
            }
        }
        let mut pins = pins.iter();
        let mut here = pins.next();
        for &i in &order {
            let w = self.writes[i];
            while here.is_some_and(|(subpage, _)| *subpage != subpage_of(w.at)) {
                here = pins.next();
            }
            let (_, pin) = here.expect("every subpage was pinned, in the same order");
            pin.view_mut(w.at.subpage_offset(), w.len).copy_from(0, &self.bytes[w.start..][..w.len]);
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
