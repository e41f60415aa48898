//! What the B+-tree and the layers of the trie share: trees of latched nodes over leaves of some
//! kind.
//!
//! Readers hold no latch. They note the version of a node's latch, search the node in one view,
//! note the child's version, and then check the parent's. If it changed, they start again
//! (optimistic lock coupling: Leis, Scheibner, Kemper, Neumann, "The ART of Practical
//! Synchronization", DaMoN 2016). Writers search in the same way and then hold only the latches of
//! the nodes that they change, if their versions are still the same. No latch is waited for with
//! another one held, so nothing can deadlock, even though nodes share latches.
//!
//! Invariants: inner nodes separate their children by keys of 64 bits. All leaves of a tree are
//! equally deep and linked in order. The root stays at its address, so a change of structure writes
//! at most a node and its parent. The root may be a leaf or an inner node over time. Inner nodes
//! are not larger than leaves, so it is allocated as a leaf.

pub(crate) mod check;
pub(crate) mod node;
pub(crate) mod structure;

use std::fmt;
use std::sync::Arc;

use crate::heap::Heap;
use crate::{AccessError, Address, Exclusive, Latch, LatchTable, Memory, MemoryId, View};
use check::Breach;
use node::{Head, Shape};

/// Why an attempt ended without a result.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Another worker changed what was read: start again.
    Changed,
    Failed(AccessError),
}

impl From<AccessError> for Stop {
    fn from(error: AccessError) -> Self {
        Stop::Failed(error)
    }
}

/// Tries until nothing changes in between.
#[inline(always)]
pub(crate) fn again<T>(mut attempt: impl FnMut() -> Result<T, Stop>) -> Result<T, AccessError> {
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(Stop::Changed) => {}
            Err(Stop::Failed(error)) => return Err(error),
        }
    }
}

/// A node, and the version at which it is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub at: Address,
    pub latch: usize,
    pub version: u64,
}

/// A kind of leaf: its layout in memory, and how it is cut and joined.
pub(crate) trait Leaf: fmt::Debug {
    /// A leaf taken apart in DRAM.
    type Image;
    /// The most entries it holds.
    fn capacity(&self) -> usize;
    fn read(&self, view: &View<'_>, head: Head) -> Self::Image;
    /// Writes the leaf into `bytes`, which are as many as a leaf has.
    fn write(&self, image: &Self::Image, bytes: &mut [u8]);
    /// The address of the leaf after it.
    fn next(image: &Self::Image) -> Address;
    /// Sets that address.
    fn link(image: &mut Self::Image, next: Address);
    /// Cuts a full leaf in two, and says what separates them. `key` will be put into one of them.
    fn cut(image: Self::Image, key: u64) -> (Self::Image, u64, Self::Image);
    /// Two neighbours in one, if they fit with some room to grow.
    fn join(&self, left: Self::Image, right: Self::Image) -> Option<Self::Image>;
    /// Whether it keeps its invariants, and its keys are in `bounds` (both inclusive).
    fn check(&self, view: &View<'_>, image: &Self::Image, bounds: (u64, u64)) -> Result<(), Breach>;
}

/// The nodes of one or several trees of one kind: where they are allocated, their latches and
/// shapes.
#[derive(Debug)]
pub(crate) struct Nodes<K, L> {
    /// The memory that holds them.
    pub memory: MemoryId,
    pub heap: Arc<Heap>,
    pub latches: LatchTable<L>,
    pub leaf: K,
    pub leaf_bytes: usize,
    pub inner: Shape,
    pub inner_bytes: usize,
}

impl<K: Leaf, L: Latch> Nodes<K, L> {
    /// Notes the version of the node at `at`, once nobody holds it.
    #[inline(always)]
    pub fn begin<M: Memory>(&self, memory: &mut M, at: Address) -> Result<Seen, AccessError> {
        let latch = self.latches.index(at.bits());
        Ok(Seen { at, latch, version: self.latches.get(latch).read_begin(memory)? })
    }
    #[inline(always)]
    pub fn validate(&self, seen: &Seen) -> Result<(), Stop> {
        if self.latches.get(seen.latch).read_validate(seen.version) { Ok(()) } else { Err(Stop::Changed) }
    }

    /// The root of a tree, which may be a leaf or an inner node, in one view, and its head.
    #[inline(always)]
    pub fn view_root<'m, M: Memory>(&self, memory: &'m mut M, seen: &Seen) -> Result<(View<'m>, Head), Stop> {
        self.view(memory, seen, self.leaf_bytes)
    }
    #[inline(always)]
    pub fn view_leaf<'m, M: Memory>(&self, memory: &'m mut M, seen: &Seen) -> Result<(View<'m>, Head), Stop> {
        self.view_at(memory, seen, 0)
    }
    /// The node, which its parent says is at `level`: no path through the tree is endless.
    #[inline(always)]
    pub fn view_at<'m, M: Memory>(&self, memory: &'m mut M, seen: &Seen, level: u8) -> Result<(View<'m>, Head), Stop> {
        let (view, head) = self.view(memory, seen, if level == 0 { self.leaf_bytes } else { self.inner_bytes })?;
        if head.level == level { Ok((view, head)) } else { Err(self.wrong_level(seen, level, head.level)) }
    }
    #[inline(always)]
    fn view<'m, M: Memory>(&self, memory: &'m mut M, seen: &Seen, bytes: usize) -> Result<(View<'m>, Head), Stop> {
        // An address that was read while it changed may be anything.
        if !seen.at.bits().is_multiple_of(8) {
            return Err(self.blame(seen, AccessError::Straddles { at: seen.at, len: bytes }));
        }
        let view = match memory.view(seen.at, bytes) {
            Ok(view) => view,
            Err(error) => return Err(self.blame(seen, error)),
        };
        match Head::of(&view) {
            Some(head) if head.count <= self.capacity(head.level) => Ok((view, head)),
            _ => Err(self.blame(seen, no_node(seen.at, view.load(0)))),
        }
    }
    #[inline(always)]
    pub fn capacity(&self, level: u8) -> usize {
        if level == 0 { self.leaf.capacity() } else { self.inner.capacity }
    }

    #[cold]
    fn wrong_level(&self, seen: &Seen, expected: u8, got: u8) -> Stop {
        let (expected, got) = (u64::from(expected), u64::from(got));
        self.blame(seen, AccessError::Corrupt { what: "tree node (level)", at: seen.at, expected, got })
    }
    /// What an error means that was met at a node: nothing, if the node has changed since.
    #[cold]
    pub fn blame(&self, seen: &Seen, error: AccessError) -> Stop {
        let of_the_job = matches!(
            error,
            AccessError::Cancelled
                | AccessError::DeadlineExceeded
                | AccessError::Poisoned
                | AccessError::TooManyPins { .. }
                | AccessError::PinnedTooOften { .. }
                | AccessError::ShuttingDown
        );
        if !of_the_job && self.validate(seen).is_err() { Stop::Changed } else { Stop::Failed(error) }
    }

    /// Searches the tree at `root` down to the leaf that would hold `key`. Its bytes are still to
    /// be viewed.
    #[inline(always)]
    pub fn find_leaf<M: Memory>(&self, memory: &mut M, root: Seen, key: u64) -> Result<Seen, Stop> {
        self.find_leaf_noting(memory, root, key, |_| {})
    }
    /// As `find_leaf`; tells `note` the separators that `key` is not less than, the highest last.
    #[inline(always)]
    pub fn find_leaf_noting<M: Memory>(
        &self,
        memory: &mut M,
        root: Seen,
        key: u64,
        mut note: impl FnMut(u64),
    ) -> Result<Seen, Stop> {
        let mut seen = root;
        let mut level = None;
        loop {
            let (view, head) = match level {
                None => self.view_root(memory, &seen)?,
                Some(level) => self.view_at(memory, &seen, level)?,
            };
            if head.level == 0 {
                return Ok(seen);
            }
            let index = self.inner.keys_up_to(&view, head.count, key);
            if index > 0 {
                note(self.inner.key(&view, index - 1));
            }
            let child = self.inner.value(&view, index);
            let below = self.begin(memory, child)?;
            self.validate(&seen)?;
            seen = below;
            if head.level == 1 {
                return Ok(seen);
            }
            level = Some(head.level - 1);
        }
    }

    /// Holds the latches of some nodes, each once, if the nodes are as they were seen. Never waits.
    #[inline(always)]
    pub fn hold<M: Memory, const N: usize>(
        &self,
        memory: &mut M,
        nodes: [&Seen; N],
    ) -> Result<[Option<Exclusive<'_, L, M>>; N], Stop> {
        let mut held = [const { None }; N];
        for i in 0..N {
            match nodes[..i].iter().find(|n| n.latch == nodes[i].latch) {
                Some(same) if same.version == nodes[i].version => {}
                Some(_) => return Err(Stop::Changed),
                None => {
                    let latch = self.latches.get(nodes[i].latch).upgrade(memory, nodes[i].version);
                    held[i] = Some(latch.ok_or(Stop::Changed)?);
                }
            }
        }
        Ok(held)
    }

    /// Frees an unreachable leaf or root, or another block of that size. When that fails, only its
    /// bytes are lost.
    pub fn free<M: Memory>(&self, memory: &mut M, at: Address, level: u8) {
        let bytes = if level == 0 { self.leaf_bytes } else { self.inner_bytes };
        let _ = self.heap.free(memory, at, bytes);
    }
}

pub(crate) fn no_node(at: Address, got: u64) -> AccessError {
    let expected = Head { level: 0, count: 0 }.to_bits();
    AccessError::Corrupt { what: "tree node (first word)", at, expected, got }
}
