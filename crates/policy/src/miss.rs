//! The miss status table: which subpages are on their way, into which frame, and the waiters for
//! them.
//!
//! AstriFlash's miss status row (section IV-B2), one per worker. A second miss on the same subpage
//! finds the entry and joins it, so flash is asked once. Where the paper's row is set-associative
//! and full sets wait, this is an open-addressed table with linear probing: entries within the
//! bound always fit.
//!
//! Invariants ([`MissTable::check`]): at most `capacity` entries, one per subpage. The table has at
//! least twice as many slots as entries, so a probe ends. Every waiter's node is in exactly one
//! entry's list or in the free list. Lists keep the order of joining.
//!
//! Not here: frames (whose they are, what is in them) and fibers (a [`Waiter`] is the runtime's own
//! number).

use fulgurite_format::{FrameIndex, SubpageIndex};
use thiserror::Error;

/// No node: the end of a list.
const NONE: u32 = u32::MAX;

/// Why a subpage is in the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MissKind {
    /// Being read on demand.
    Read,
    /// Being written back. Accesses before the write is done wait for that.
    Write,
    /// Being read, because it may be asked for soon.
    Prefetch,
}

/// A waiter. The runtime packs worker and fiber into it. This crate does not interpret it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub struct Waiter(pub u64);

/// One miss under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MissEntry {
    /// The frame the data goes into (or, for [`MissKind::Write`], comes from).
    pub frame: FrameIndex,
    /// Why it is under way.
    pub kind: MissKind,
    /// How many wait for it.
    pub waiters: u32,
}

/// Why a miss did not begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum BeginError {
    /// The subpage is in the table already.
    #[error("subpage {} is on its way already, into frame {}: join that miss", .subpage.0, .frame.0)]
    Duplicate { subpage: SubpageIndex, frame: FrameIndex },
    /// As many misses are under way as the table can hold.
    #[error("all {capacity} entries of the miss status table are in use: wait for a miss to complete, then try again")]
    Full { capacity: usize },
}

/// Why a waiter did not join a miss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum JoinError {
    /// The subpage is not in the table.
    #[error("subpage {} is not on its way: begin a miss first", .subpage.0)]
    NotMissing { subpage: SubpageIndex },
    /// As many waiters as the table can hold.
    #[error(
        "all {capacity} waiter places of the miss status table are in use: wait for a miss to complete, then try again"
    )]
    Full { capacity: usize },
}

#[derive(Clone, Copy)]
struct Slot {
    subpage: SubpageIndex,
    frame: FrameIndex,
    /// First and last waiter node, or `NONE` without waiters.
    head: u32,
    tail: u32,
    waiters: u32,
    /// `None`: the slot is empty.
    kind: Option<MissKind>,
}

const EMPTY: Slot =
    Slot { subpage: SubpageIndex(0), frame: FrameIndex(0), head: NONE, tail: NONE, waiters: 0, kind: None };

#[derive(Clone, Copy)]
struct Node {
    waiter: Waiter,
    next: u32,
}

/// The misses under way. See the module.
pub struct MissTable {
    slots: Box<[Slot]>,
    /// Slots less one. Slots are a power of two.
    mask: usize,
    /// 64 less the bits of `mask`: a hash's top bits are its home.
    shift: u32,
    len: usize,
    capacity: usize,
    nodes: Box<[Node]>,
    free: u32,
    waiting: usize,
}

impl MissTable {
    /// A table for at most `capacity` misses and `waiter_capacity` waiters, at any one time.
    ///
    /// # Panics
    /// If `capacity` is 0, or either number is above 2^30.
    pub fn new(capacity: usize, waiter_capacity: usize) -> Self {
        assert!(capacity > 0, "a miss status table needs at least one entry");
        assert!(capacity <= 1 << 30 && waiter_capacity <= 1 << 30, "at most 2^30 entries and 2^30 waiters");
        let slots = (capacity * 2).next_power_of_two();
        let nodes = (0..waiter_capacity as u32)
            .map(|i| Node { waiter: Waiter(0), next: if i as usize + 1 < waiter_capacity { i + 1 } else { NONE } })
            .collect();
        MissTable {
            slots: vec![EMPTY; slots].into_boxed_slice(),
            mask: slots - 1,
            shift: 64 - slots.trailing_zeros(),
            len: 0,
            capacity,
            nodes,
            free: if waiter_capacity > 0 { 0 } else { NONE },
            waiting: 0,
        }
    }

    /// Makes room for `waiter_capacity` waiters, or leaves the room there is where that is more.
    ///
    /// # Panics
    /// If it is above 2^30.
    pub fn grow_waiters(&mut self, waiter_capacity: usize) {
        assert!(waiter_capacity <= 1 << 30, "at most 2^30 waiters");
        let mut nodes = std::mem::take(&mut self.nodes).into_vec();
        for node in nodes.len()..waiter_capacity {
            nodes.push(Node { waiter: Waiter(0), next: self.free });
            self.free = node as u32;
        }
        self.nodes = nodes.into_boxed_slice();
    }

    /// Where a subpage's probe starts: the top bits of a multiplication by 2^64 over the golden
    /// ratio (Knuth, volume 3, section 6.4), which spreads neighbours and strides evenly.
    #[inline(always)]
    fn home(&self, subpage: SubpageIndex) -> usize {
        (u64::from(subpage.0).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// The subpage's slot, or the empty one where it would go.
    #[inline(always)]
    fn probe(&self, subpage: SubpageIndex) -> usize {
        let mut at = self.home(subpage);
        loop {
            let slot = &self.slots[at & self.mask];
            if slot.kind.is_none() || slot.subpage == subpage {
                return at & self.mask;
            }
            at += 1;
        }
    }

    /// A miss begins: `subpage` is on its way into `frame`.
    ///
    /// # Errors
    /// [`BeginError::Duplicate`] when it was already, [`BeginError::Full`] at the bound. Nothing
    /// changes then.
    #[inline]
    pub fn begin(&mut self, subpage: SubpageIndex, frame: FrameIndex, kind: MissKind) -> Result<(), BeginError> {
        let at = self.probe(subpage);
        let slot = &mut self.slots[at];
        if slot.kind.is_some() {
            return Err(BeginError::Duplicate { subpage, frame: slot.frame });
        }
        if self.len == self.capacity {
            return Err(BeginError::Full { capacity: self.capacity });
        }
        *slot = Slot { subpage, frame, kind: Some(kind), ..EMPTY };
        self.len += 1;
        Ok(())
    }

    /// `waiter` waits for `subpage` too, behind those that wait already.
    ///
    /// # Errors
    /// [`JoinError::NotMissing`] when it is not in the table, [`JoinError::Full`] at the bound of
    /// waiters. Nothing changes then.
    #[inline]
    pub fn join(&mut self, subpage: SubpageIndex, waiter: Waiter) -> Result<(), JoinError> {
        let at = self.probe(subpage);
        let slot = &mut self.slots[at];
        if slot.kind.is_none() {
            return Err(JoinError::NotMissing { subpage });
        }
        let node = self.free;
        if node == NONE {
            return Err(JoinError::Full { capacity: self.nodes.len() });
        }
        self.free = self.nodes[node as usize].next;
        self.nodes[node as usize] = Node { waiter, next: NONE };
        if slot.tail == NONE {
            slot.head = node;
        } else {
            self.nodes[slot.tail as usize].next = node;
        }
        slot.tail = node;
        slot.waiters += 1;
        self.waiting += 1;
        Ok(())
    }

    /// What is known of `subpage`. `None` when it is not on its way.
    #[inline]
    pub fn get(&self, subpage: SubpageIndex) -> Option<MissEntry> {
        let slot = &self.slots[self.probe(subpage)];
        slot.kind.map(|kind| MissEntry { frame: slot.frame, kind, waiters: slot.waiters })
    }

    /// Changes why `subpage` is under way (a prefetch that gains a waiter becomes a read); its
    /// waiters stay. Returns the kind it had, `None` when it is not in the table.
    #[inline]
    pub fn set_kind(&mut self, subpage: SubpageIndex, kind: MissKind) -> Option<MissKind> {
        let at = self.probe(subpage);
        let slot = &mut self.slots[at];
        let had = slot.kind?;
        slot.kind = Some(kind);
        Some(had)
    }

    /// The miss is done: it leaves the table, and `waiters` is called for each waiter, in the order
    /// they joined. Returns the entry as it was, `None` (without a call) when it is not in the
    /// table.
    ///
    /// `waiters` must not panic, because the waiters behind it in the list would not be notified.
    #[inline]
    pub fn complete(&mut self, subpage: SubpageIndex, mut waiters: impl FnMut(Waiter)) -> Option<MissEntry> {
        let at = self.probe(subpage);
        let slot = self.slots[at];
        let kind = slot.kind?;
        self.vacate(at);
        let mut node = slot.head;
        while node != NONE {
            let Node { waiter, next } = self.nodes[node as usize];
            self.nodes[node as usize].next = self.free;
            self.free = node;
            node = next;
            waiters(waiter);
        }
        self.waiting -= slot.waiters as usize;
        Some(MissEntry { frame: slot.frame, kind, waiters: slot.waiters })
    }

    /// Empties slot `hole` and moves later ones of its run back, so that no probe meets a gap (no
    /// tombstones).
    #[inline]
    fn vacate(&mut self, mut hole: usize) {
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let slot = self.slots[at];
            if slot.kind.is_none() {
                break;
            }
            // It may move if its home is not after the hole, going round from the hole to where it
            // is.
            let from_home = at.wrapping_sub(self.home(slot.subpage)) & self.mask;
            let from_hole = at.wrapping_sub(hole) & self.mask;
            if from_home >= from_hole {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole].kind = None;
        self.len -= 1;
    }

    /// Misses under way.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// No miss is under way.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// At the bound: the next `begin` fails.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Waiters of all misses together.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Bytes of DRAM it uses.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.slots) + size_of_val(&*self.nodes)
    }

    /// Asserts the invariants. Takes time in proportion to the table.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        let mut seen = vec![false; self.nodes.len()];
        let mut visit = |node: u32| {
            assert!(!core::mem::replace(&mut seen[node as usize], true), "waiter node {node} is in two lists");
        };
        let (mut entries, mut waiting) = (0, 0);
        for (at, slot) in self.slots.iter().enumerate().filter(|(_, s)| s.kind.is_some()) {
            entries += 1;
            assert_eq!(self.probe(slot.subpage), at, "subpage {} is not where its probe ends", slot.subpage.0);
            let (mut node, mut last, mut count) = (slot.head, NONE, 0);
            while node != NONE {
                visit(node);
                (last, count, node) = (node, count + 1, self.nodes[node as usize].next);
            }
            assert_eq!((slot.tail, slot.waiters), (last, count), "waiters of subpage {}", slot.subpage.0);
            waiting += count as usize;
        }
        assert_eq!((entries, waiting), (self.len, self.waiting), "entries and waiters counted");
        assert!(self.len <= self.capacity && self.capacity * 2 <= self.slots.len());
        let mut node = self.free;
        while node != NONE {
            visit(node);
            node = self.nodes[node as usize].next;
        }
        assert!(seen.iter().all(|s| *s), "a waiter node is in no list");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(table: &mut MissTable, subpage: u32) -> (Option<MissEntry>, Vec<u64>) {
        let mut got = Vec::new();
        let entry = table.complete(SubpageIndex(subpage), |w| got.push(w.0));
        table.check();
        (entry, got)
    }

    #[test]
    fn waiters_come_in_the_order_they_joined() {
        let mut table = MissTable::new(4, 3);
        table.begin(SubpageIndex(u32::MAX), FrameIndex(7), MissKind::Prefetch).unwrap();
        for w in [5, 1, 9] {
            table.join(SubpageIndex(u32::MAX), Waiter(w)).unwrap();
        }
        assert_eq!(table.set_kind(SubpageIndex(u32::MAX), MissKind::Read), Some(MissKind::Prefetch));
        assert_eq!(table.set_kind(SubpageIndex(0), MissKind::Read), None);
        let entry = MissEntry { frame: FrameIndex(7), kind: MissKind::Read, waiters: 3 };
        assert_eq!(table.get(SubpageIndex(u32::MAX)), Some(entry));
        assert_eq!(completed(&mut table, u32::MAX), (Some(entry), vec![5, 1, 9]));
        assert_eq!(completed(&mut table, u32::MAX), (None, vec![]));
        assert!(table.is_empty());
    }

    #[test]
    fn more_waiters_find_room() {
        let mut table = MissTable::new(2, 1);
        let (a, b) = (SubpageIndex(0), SubpageIndex(1));
        table.begin(a, FrameIndex(3), MissKind::Read).unwrap();
        table.begin(b, FrameIndex(4), MissKind::Read).unwrap();
        table.join(a, Waiter(1)).unwrap();
        assert_eq!(table.join(b, Waiter(2)), Err(JoinError::Full { capacity: 1 }));
        table.grow_waiters(3);
        table.join(b, Waiter(2)).unwrap();
        table.join(a, Waiter(3)).unwrap();
        assert_eq!(table.join(a, Waiter(4)), Err(JoinError::Full { capacity: 3 }));
        table.check();
        table.grow_waiters(2);
        assert_eq!(completed(&mut table, 0).1, vec![1, 3]);
        assert_eq!(completed(&mut table, 1).1, vec![2]);
    }

    #[test]
    fn bounds_are_errors_and_change_nothing() {
        let mut table = MissTable::new(1, 1);
        let (a, b) = (SubpageIndex(0), SubpageIndex(1));
        assert_eq!(table.join(a, Waiter(1)), Err(JoinError::NotMissing { subpage: a }));
        table.begin(a, FrameIndex(3), MissKind::Read).unwrap();
        assert_eq!(
            table.begin(a, FrameIndex(4), MissKind::Read),
            Err(BeginError::Duplicate { subpage: a, frame: FrameIndex(3) })
        );
        assert_eq!(table.begin(b, FrameIndex(4), MissKind::Read), Err(BeginError::Full { capacity: 1 }));
        table.join(a, Waiter(1)).unwrap();
        assert_eq!(table.join(a, Waiter(2)), Err(JoinError::Full { capacity: 1 }));
        assert!(table.is_full());
        assert_eq!(completed(&mut table, 0).1, vec![1]);
        table.begin(b, FrameIndex(4), MissKind::Write).unwrap();
        table.check();
    }

    #[test]
    fn no_waiters_at_all_is_a_table_too() {
        let mut table = MissTable::new(2, 0);
        table.begin(SubpageIndex(1), FrameIndex(0), MissKind::Prefetch).unwrap();
        assert_eq!(table.join(SubpageIndex(1), Waiter(0)), Err(JoinError::Full { capacity: 0 }));
        table.check();
    }
}
