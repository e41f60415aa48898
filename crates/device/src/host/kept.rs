//! Copies of completed writes that no flush covers, which a host replays to a returned device.
//!
//! Only the newest copy of a sector is kept. Each has a number, ascending by completion. A
//! successful flush lets go of all copies below the next number at its submission.
//!
//! Invariants: copies and promises together never exceed the limit. `order` holds each copy's
//! number once, ascending. A write has a promise of a place before it is sent.
//!
//! Not here: the replay ([`super::shared`]).

use std::collections::{HashMap, VecDeque};

use crate::entry::SECTOR_BYTES;

/// A sector's bytes.
type Bytes = Box<[u8; SECTOR_BYTES]>;

/// The copies.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Sectors that may be kept.
    limit: usize,
    newest: HashMap<u32, (u64, Bytes)>,
    /// Numbers and sectors; also of copies that a newer one has replaced.
    order: VecDeque<(u64, u32)>,
    next: u64,
    promised: usize,
    /// Memory of copies that were let go of.
    free: Vec<Bytes>,
}

impl Kept {
    /// From now on `sectors` sectors may be kept, if that is more than before.
    pub(super) fn raise_limit(&mut self, sectors: usize) {
        self.limit = self.limit.max(sectors);
    }
    /// Sectors that may be kept.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }
    /// Sectors for which there is a place.
    pub(super) fn room(&self) -> usize {
        self.limit.saturating_sub(self.newest.len() + self.promised)
    }
    /// Promises a place to a write. Returns whether there is one.
    pub(super) fn promise(&mut self) -> bool {
        let there = self.room() > 0;
        self.promised += usize::from(there);
        there
    }
    /// Takes a promise back.
    pub(super) fn give_back(&mut self) {
        self.promised = self.promised.checked_sub(1).expect("a place was promised");
    }
    /// Keeps a write that has completed, whose place was promised.
    pub(super) fn keep(&mut self, sector: u32, copy: impl FnOnce(&mut [u8])) {
        self.give_back();
        let number = self.next;
        self.next += 1;
        let free = &mut self.free;
        let mut memory = || free.pop().unwrap_or_else(|| Box::new([0; SECTOR_BYTES]));
        let (newest, bytes) = self.newest.entry(sector).or_insert_with(|| (number, memory()));
        *newest = number;
        copy(&mut bytes[..]);
        self.order.push_back((number, sector));
        if self.order.len() > 64 + 2 * self.limit {
            let newest = &self.newest;
            self.order.retain(|(number, sector)| newest.get(sector).is_some_and(|(newest, _)| newest == number));
        }
    }
    /// What a flush submitted now lets go of when it succeeds: all numbers below this one.
    pub(super) fn mark(&self) -> u64 {
        self.next
    }
    /// A flush that was submitted at this mark has succeeded.
    pub(super) fn flushed(&mut self, mark: u64) {
        while let Some(&(number, sector)) = self.order.front()
            && number < mark
        {
            self.order.pop_front();
            if self.newest.get(&sector).is_some_and(|(newest, _)| *newest == number) {
                self.free.extend(self.newest.remove(&sector).map(|(_, bytes)| bytes));
            }
        }
    }
    /// Lets go of the copies of some sectors. Returns whether there were any.
    pub(super) fn forget(&mut self, gone: impl Fn(u32) -> bool) -> bool {
        let before = self.newest.len();
        self.newest.retain(|sector, _| !gone(*sector));
        let newest = &self.newest;
        self.order.retain(|(_, sector)| newest.contains_key(sector));
        self.newest.len() < before
    }
    /// Sectors that are kept.
    pub(super) fn len(&self) -> usize {
        self.newest.len()
    }
    /// At most `most` copies, from this number on: number, sector and bytes.
    pub(super) fn some_from(&self, number: u64, most: usize) -> Vec<(u64, u32, Bytes)> {
        let first = self.order.partition_point(|(of, _)| *of < number);
        let newest = self.order.range(first..).filter_map(|&(number, sector)| {
            let (newest, bytes) = self.newest.get(&sector)?;
            (*newest == number).then(|| (number, sector, bytes.clone()))
        });
        newest.take(most).collect()
    }
    /// The copies, in the order in which the writes completed.
    #[cfg(test)]
    fn in_order(&self) -> impl Iterator<Item = (u32, &[u8; SECTOR_BYTES])> {
        self.order.iter().filter_map(|(number, sector)| {
            let (newest, bytes) = self.newest.get(sector)?;
            (newest == number).then_some((*sector, &**bytes))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn of(number: u64) -> impl FnOnce(&mut [u8]) {
        move |bytes| bytes.fill(number as u8)
    }

    /// Against a list of all writes that no flush covers.
    #[test]
    fn what_is_kept_is_what_no_flush_covers() {
        const SECTORS: u64 = 12;
        for seed in 0..200u64 {
            let mut state = fulgurite_testkit::Random(seed);
            let mut random = |below: u64| state.below(below);
            let mut kept = Kept::default();
            kept.raise_limit(5);
            let mut all: Vec<(u64, u32)> = Vec::new();
            let mut marks: Vec<(u64, usize)> = Vec::new();
            let mut written = 0;
            for _ in 0..500 {
                match random(8) {
                    0 => marks.push((kept.mark(), all.len())),
                    1 if !marks.is_empty() => {
                        let (mark, count) = marks.remove(random(marks.len() as u64) as usize);
                        kept.flushed(mark);
                        all[..count].iter_mut().for_each(|(number, _)| *number = u64::MAX);
                    }
                    2 if random(4) == 0 => {
                        let gone = random(SECTORS) as u32;
                        kept.forget(|sector| sector == gone);
                        all.iter_mut().filter(|(_, s)| *s == gone).for_each(|(number, _)| *number = u64::MAX);
                    }
                    _ => {
                        let sector = random(SECTORS) as u32;
                        if kept.promise() {
                            kept.keep(sector, of(written));
                            all.push((written, sector));
                            written += 1;
                        } else {
                            assert_eq!(kept.len(), 5);
                        }
                    }
                }
                let mut newest = BTreeMap::new();
                for &(number, sector) in all.iter().filter(|(number, _)| *number != u64::MAX) {
                    newest.insert(sector, number);
                }
                let mut expected: Vec<(u64, u32)> =
                    newest.into_iter().map(|(sector, number)| (number, sector)).collect();
                expected.sort_unstable();
                let found: Vec<(u32, u8)> = kept.in_order().map(|(sector, bytes)| (sector, bytes[9])).collect();
                let expected: Vec<(u32, u8)> = expected.into_iter().map(|(n, sector)| (sector, n as u8)).collect();
                assert_eq!(found, expected, "seed {seed}");
                let (mut from, mut pieces) = (0, Vec::new());
                while let Some((last, ..)) = kept.some_from(from, 2).last() {
                    pieces.extend(kept.some_from(from, 2).iter().map(|(_, sector, bytes)| (*sector, bytes[9])));
                    from = last + 1;
                }
                assert_eq!(pieces, expected, "seed {seed}");
                assert!(kept.order.len() <= 64 + 2 * 5 + 1);
            }
        }
    }
    #[test]
    fn a_promise_is_a_place() {
        let mut kept = Kept::default();
        assert!(!kept.promise());
        kept.raise_limit(2);
        assert!(kept.promise() && kept.promise() && !kept.promise());
        kept.give_back();
        kept.keep(7, of(1));
        assert_eq!((kept.room(), kept.len()), (1, 1));
        let mark = kept.mark();
        // Written again since: the flush does not cover that.
        assert!(kept.promise());
        kept.keep(7, of(2));
        kept.flushed(mark);
        assert_eq!(kept.in_order().map(|(sector, bytes)| (sector, bytes[0])).collect::<Vec<_>>(), [(7, 2)]);
        kept.flushed(kept.mark());
        assert_eq!((kept.room(), kept.len()), (2, 0));
    }
}
