//! A B+-tree in flash memory: u64 keys, plain values, read by optimistic lock coupling.
//!
//! Readers hold no latch. They note the version of a node's latch, search the node in one view, note the child's version
//! before they ask whether the parent's is still the same, and start again when it is not (Leis, Scheibner, Kemper,
//! Neumann: "The ART of Practical Synchronization", DaMoN 2016). Writers search in the same way and then hold only the
//! latches of the nodes that they change, and only if their versions are still those that they read. Nobody waits for a
//! latch with another one in hand, so nothing can deadlock even though nodes share the latches of a table.
//!
//! Every change is one commit: an insert or a removal changes one leaf, a split or a merge changes a node and its
//! parent. Full nodes are split, and nearly empty ones merged, from the top down, each in a commit of its own that does not
//! change what the tree holds. So an error anywhere leaves the tree as it was, and no change pins more than two subpages.
//!
//! Nodes are a subpage by default: a search then misses at most once for each level, the inner nodes are 0.5% of the
//! data and stay in DRAM, and a dirty leaf is written back whole whatever its size would be. Smaller nodes share subpages;
//! with keys and values of 8 bytes, nodes of 512 bytes would make the inner nodes 4% of the data.
//!
//! Invariants (see [`BPlusTree::check`]): keys ascend; every leaf is equally deep; leaves are linked in the order of their
//! keys; the root never moves, so [`BPlusTreeRoot`] is stored once. Only the root may be empty or, for a while, a node whose
//! siblings are full.
//!
//! It does not keep a count of its keys (every insert would write it), and it does not move values apart from its leaves'
//! splits and merges: who needs a record that stays where it is stores a [`crate::Ptr`] to it as the value.

mod bulk;
mod check;
mod node;
mod structure;

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::heap::Heap;
use crate::{AccessError, Address, Exclusive, Latch, LatchTable, Memory, Plain, SUBPAGE_BYTES, View};
pub use check::BPlusTreeShape;
use node::{Head, Image, Shape};

/// Where a B+-tree lies, and its measures: what has to be stored to open it again. Never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct BPlusTreeRoot {
    /// The root node.
    pub root: Address,
    /// Bytes of a node.
    pub node_bytes: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
}

/// An ordered map from `u64` to `V`. Share it between workers in an `Arc`; its latches are what orders them.
#[derive(Debug)]
pub struct BPlusTree<V, L> {
    heap: Arc<Heap>,
    latches: LatchTable<L>,
    root: BPlusTreeRoot,
    leaf: Shape,
    inner: Shape,
    value: PhantomData<fn() -> V>,
}

/// Why an attempt ended without a result.
#[derive(Debug)]
enum Stop {
    /// Another worker changed what was read: start again.
    Changed,
    Failed(AccessError),
}

impl From<AccessError> for Stop {
    fn from(error: AccessError) -> Self {
        Stop::Failed(error)
    }
}

/// A node, and the version at which it is being read.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Address,
    latch: usize,
    version: u64,
}

impl<V: Plain, L: Latch> BPlusTree<V, L> {
    /// An empty tree with nodes of one subpage, whose nodes share `latch_count` latches (8 bytes of DRAM each).
    ///
    /// # Errors
    /// As [`Heap::allocate`] and [`Memory::view`].
    ///
    /// # Panics
    /// When three values do not fit into a node, `V` needs more than 8-byte alignment, or `latch_count` is zero.
    pub fn create<M: Memory>(memory: &mut M, heap: Arc<Heap>, latch_count: usize) -> Result<Self, AccessError> {
        Self::create_with_nodes(memory, heap, latch_count, SUBPAGE_BYTES)
    }

    /// As [`BPlusTree::create`], with nodes of `node_bytes`.
    ///
    /// # Errors
    /// As [`BPlusTree::create`].
    ///
    /// # Panics
    /// As [`BPlusTree::create`], and when `node_bytes` is not a multiple of 8 up to a subpage.
    pub fn create_with_nodes<M: Memory>(
        memory: &mut M,
        heap: Arc<Heap>,
        latch_count: usize,
        node_bytes: usize,
    ) -> Result<Self, AccessError> {
        assert!(
            node_bytes.is_multiple_of(8) && node_bytes <= SUBPAGE_BYTES,
            "nodes are a multiple of 8 bytes up to a subpage"
        );
        let shape = Self::shapes(node_bytes);
        let (leaf, inner) =
            shape.expect("three values and their keys fit into a node, and values are aligned to 8 bytes");
        let root = heap.allocate(memory, node_bytes)?;
        let root = BPlusTreeRoot { root, node_bytes: node_bytes as u32, value_bytes: size_of::<V>() as u32 };
        let tree = BPlusTree { heap, latches: LatchTable::new(latch_count), root, leaf, inner, value: PhantomData };
        let empty = Image::<V> { level: 0, next: Address::NULL, keys: Vec::new(), values: Vec::new() };
        memory.write_bytes(root.root, &empty.to_bytes(&leaf, node_bytes))?;
        Ok(tree)
    }

    /// The tree that was stored as `root`.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when there is none, or one of other values; else as [`Memory::view`].
    ///
    /// # Panics
    /// When `latch_count` is zero.
    pub fn open<M: Memory>(
        memory: &mut M,
        heap: Arc<Heap>,
        root: BPlusTreeRoot,
        latch_count: usize,
    ) -> Result<Self, AccessError> {
        let corrupt = |what, expected, got| Err(AccessError::Corrupt { what, at: root.root, expected, got });
        if root.value_bytes as usize != size_of::<V>() {
            return corrupt("B+-tree root (bytes of a value)", size_of::<V>() as u64, u64::from(root.value_bytes));
        }
        let node_bytes = root.node_bytes as usize;
        let fits = node_bytes.is_multiple_of(8) && node_bytes <= SUBPAGE_BYTES;
        let Some((leaf, inner)) = Self::shapes(node_bytes).filter(|_| fits) else {
            return corrupt("B+-tree root (bytes of a node)", SUBPAGE_BYTES as u64, u64::from(root.node_bytes));
        };
        let tree = BPlusTree { heap, latches: LatchTable::new(latch_count), root, leaf, inner, value: PhantomData };
        let seen = tree.begin(memory, root.root)?;
        match tree.view(memory, &seen) {
            Err(Stop::Failed(error)) => Err(error),
            Ok(_) | Err(Stop::Changed) => Ok(tree),
        }
    }

    fn shapes(node_bytes: usize) -> Option<(Shape, Shape)> {
        if align_of::<V>() > 8 {
            return None;
        }
        Some((Shape::new(node_bytes, size_of::<V>(), 0)?, Shape::new(node_bytes, size_of::<Address>(), 1)?))
    }

    /// What to store in order to open the tree again.
    #[must_use]
    pub fn root(&self) -> BPlusTreeRoot {
        self.root
    }
    /// DRAM that its latches use.
    #[must_use]
    pub fn dram_bytes(&self) -> usize {
        self.latches.bytes()
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// As [`Memory::view`], [`AccessError::Poisoned`], or [`AccessError::Corrupt`].
    #[inline]
    pub fn get<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<V>, AccessError> {
        again(|| {
            let seen = self.find_leaf(memory, key)?;
            let (view, head) = self.view_leaf(memory, &seen)?;
            let index = self.leaf.keys_below(&view, head.count, key);
            let hit = index < head.count && self.leaf.key(&view, index) == key;
            let value = hit.then(|| self.leaf.value(&view, index));
            self.validate(&seen)?;
            Ok(value)
        })
    }

    /// Sets the value of `key` and returns the one that it had.
    ///
    /// # Errors
    /// As [`BPlusTree::get`], and as [`Heap::allocate`]. The tree holds what it held before.
    pub fn insert<M: Memory>(&self, memory: &mut M, key: u64, value: V) -> Result<Option<V>, AccessError> {
        again(|| {
            let seen = self.find_leaf(memory, key)?;
            let (view, head) = self.view_leaf(memory, &seen)?;
            let index = self.leaf.keys_below(&view, head.count, key);
            let hit = index < head.count && self.leaf.key(&view, index) == key;
            if !hit && head.count == self.leaf.capacity {
                self.validate(&seen)?;
                self.split_towards(memory, key)?;
                return Err(Stop::Changed);
            }
            let _held = self.hold::<M, 1>([&seen])?;
            let node = memory.view_mut(seen.at, self.node_bytes())?;
            if hit {
                let old = self.leaf.value(&node, index);
                self.leaf.set_value(&node, index, value);
                return Ok(Some(old));
            }
            self.leaf.insert(&node, head.count, index, key, value);
            Ok(None)
        })
    }

    /// Changes the value of `key` in place, if it has one, and returns whether it had. `change` is called at most once,
    /// under the latch of the leaf; a panic in it poisons that latch.
    ///
    /// # Errors
    /// As [`BPlusTree::get`]; nothing was changed.
    pub fn update<M: Memory>(
        &self,
        memory: &mut M,
        key: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<bool, AccessError> {
        let mut change = Some(change);
        again(|| {
            let seen = self.find_leaf(memory, key)?;
            let (view, head) = self.view_leaf(memory, &seen)?;
            let index = self.leaf.keys_below(&view, head.count, key);
            if index == head.count || self.leaf.key(&view, index) != key {
                self.validate(&seen)?;
                return Ok(false);
            }
            let _held = self.hold::<M, 1>([&seen])?;
            let node = memory.view_mut(seen.at, self.node_bytes())?;
            let mut value = self.leaf.value(&node, index);
            change.take().expect("nothing starts again after the change")(&mut value);
            self.leaf.set_value(&node, index, value);
            Ok(true)
        })
    }

    /// Removes `key` and returns its value. Leaves that get nearly empty are merged with a sibling.
    ///
    /// # Errors
    /// As [`BPlusTree::get`]; nothing was removed.
    pub fn remove<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<V>, AccessError> {
        let removed = again(|| {
            let seen = self.find_leaf(memory, key)?;
            let (view, head) = self.view_leaf(memory, &seen)?;
            let index = self.leaf.keys_below(&view, head.count, key);
            if index == head.count || self.leaf.key(&view, index) != key {
                self.validate(&seen)?;
                return Ok(None);
            }
            let _held = self.hold::<M, 1>([&seen])?;
            let node = memory.view_mut(seen.at, self.node_bytes())?;
            let value = self.leaf.value(&node, index);
            self.leaf.remove::<V>(&node, head.count, index);
            Ok(Some((value, head.count - 1)))
        })?;
        let Some((value, left)) = removed else { return Ok(None) };
        if left <= self.leaf.capacity / 4 {
            self.merge_around(memory, key);
        }
        Ok(Some(value))
    }

    /// Shows `visit` the keys `from..=to` and their values in ascending order, until it breaks. What `visit` sees of a leaf
    /// was there at one time; keys of different leaves may be of different times.
    ///
    /// # Errors
    /// As [`BPlusTree::get`]. What was shown before was right.
    pub fn scan<M: Memory>(
        &self,
        memory: &mut M,
        from: u64,
        to: u64,
        mut visit: impl FnMut(u64, &V) -> ControlFlow<()>,
    ) -> Result<(), AccessError> {
        // The next key to look for: what lies before it has been shown.
        let mut from = from;
        again(|| {
            let mut seen = self.find_leaf(memory, from)?;
            let mut leaves = 0;
            loop {
                leaves += 1;
                if leaves > 1 {
                    // Short scans end in their first leaves; one that does not will want the next leaf too.
                    let (view, head) = self.view_leaf(memory, &seen)?;
                    let next = self.leaf.next(&view);
                    if head.count > 0 && self.leaf.key(&view, head.count - 1) < to && !next.is_null() {
                        memory.prefetch(next);
                    }
                }
                let (view, head) = self.view_leaf(memory, &seen)?;
                for index in self.leaf.keys_below(&view, head.count, from)..head.count {
                    let (key, value) = (self.leaf.key(&view, index), self.leaf.value(&view, index));
                    self.validate(&seen)?;
                    if key > to || visit(key, &value).is_break() || key == u64::MAX {
                        return Ok(());
                    }
                    from = key + 1;
                }
                let next = self.leaf.next(&view);
                self.validate(&seen)?;
                if next.is_null() || from > to {
                    return Ok(());
                }
                let following = self.begin(memory, next)?;
                self.validate(&seen)?;
                seen = following;
            }
        })
    }

    /// The first key that is `key` or more, and its value.
    ///
    /// # Errors
    /// As [`BPlusTree::get`].
    pub fn first_at_or_after<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<(u64, V)>, AccessError> {
        let mut first = None;
        self.scan(memory, key, u64::MAX, |key, value| {
            first = Some((key, *value));
            ControlFlow::Break(())
        })?;
        Ok(first)
    }

    /// The last key that is `key` or less, and its value.
    ///
    /// # Errors
    /// As [`BPlusTree::get`].
    pub fn last_at_or_before<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<(u64, V)>, AccessError> {
        let mut key = key;
        again(|| {
            loop {
                // The leaf of `key` holds the keys from `floor`; if none of them will do, the answer is before it.
                let mut floor = None;
                let seen = self.find_leaf_noting(memory, key, |separator| floor = Some(separator))?;
                let (view, head) = self.view_leaf(memory, &seen)?;
                let index = self.leaf.keys_up_to(&view, head.count, key);
                let found =
                    (index > 0).then(|| (self.leaf.key(&view, index - 1), self.leaf.value::<V>(&view, index - 1)));
                self.validate(&seen)?;
                match floor {
                    None => return Ok(found),
                    Some(_) if found.is_some() => return Ok(found),
                    Some(separator) => match separator.checked_sub(1) {
                        Some(before) => key = before,
                        None => return Ok(None),
                    },
                }
            }
        })
    }

    #[inline(always)]
    fn node_bytes(&self) -> usize {
        self.root.node_bytes as usize
    }

    /// Notes the version of the node at `at`, once nobody holds it.
    #[inline(always)]
    fn begin<M: Memory>(&self, memory: &mut M, at: Address) -> Result<Seen, AccessError> {
        let latch = self.latches.index(at.bits());
        Ok(Seen { at, latch, version: self.latches.get(latch).read_begin(memory)? })
    }
    #[inline(always)]
    fn validate(&self, seen: &Seen) -> Result<(), Stop> {
        if self.latches.get(seen.latch).read_validate(seen.version) { Ok(()) } else { Err(Stop::Changed) }
    }

    /// The node, in one view, and its head.
    #[inline(always)]
    fn view<'m, M: Memory>(&self, memory: &'m mut M, seen: &Seen) -> Result<(View<'m>, Head), Stop> {
        // An address that was read while it changed may be anything.
        if !seen.at.bits().is_multiple_of(8) {
            return Err(self.blame(seen, AccessError::Straddles { at: seen.at, len: self.node_bytes() }));
        }
        let view = match memory.view(seen.at, self.node_bytes()) {
            Ok(view) => view,
            Err(error) => return Err(self.blame(seen, error)),
        };
        match Head::of(&view) {
            Some(head) if (if head.level == 0 { &self.leaf } else { &self.inner }).accepts(head) => Ok((view, head)),
            _ => {
                let (what, expected) = ("B+-tree node (first word)", Head { level: 0, count: 0 }.to_bits());
                Err(self.blame(seen, AccessError::Corrupt { what, at: seen.at, expected, got: view.load(0) }))
            }
        }
    }
    /// As `view`, of a node that must be a leaf.
    #[inline(always)]
    fn view_leaf<'m, M: Memory>(&self, memory: &'m mut M, seen: &Seen) -> Result<(View<'m>, Head), Stop> {
        let (view, head) = self.view(memory, seen)?;
        self.expect_level(seen, head, Some(0))?;
        Ok((view, head))
    }
    /// What an error means that was met at a node: nothing, if the node has changed since.
    #[cold]
    fn blame(&self, seen: &Seen, error: AccessError) -> Stop {
        let of_the_job = matches!(
            error,
            AccessError::Cancelled
                | AccessError::DeadlineExceeded
                | AccessError::Poisoned
                | AccessError::TooManyPins { .. }
                | AccessError::ShuttingDown
        );
        if !of_the_job && self.validate(seen).is_err() { Stop::Changed } else { Stop::Failed(error) }
    }

    /// Searches the tree down to the leaf that would hold `key`. Its bytes are still to be viewed.
    #[inline(always)]
    fn find_leaf<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Seen, Stop> {
        self.find_leaf_noting(memory, key, |_| {})
    }
    /// As `find_leaf`; tells `note` the separators that `key` is not less than, the highest last.
    #[inline(always)]
    fn find_leaf_noting<M: Memory>(&self, memory: &mut M, key: u64, mut note: impl FnMut(u64)) -> Result<Seen, Stop> {
        let mut seen = self.begin(memory, self.root.root)?;
        let mut level = None;
        loop {
            let (view, head) = self.view(memory, &seen)?;
            self.expect_level(&seen, head, level)?;
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
    /// That a node is as high above the leaves as its parent says: no path through the tree is endless.
    #[inline(always)]
    fn expect_level(&self, seen: &Seen, head: Head, level: Option<u8>) -> Result<(), Stop> {
        match level {
            Some(level) if level != head.level => Err(self.blame(
                seen,
                AccessError::Corrupt {
                    what: "B+-tree node (level)",
                    at: seen.at,
                    expected: u64::from(level),
                    got: u64::from(head.level),
                },
            )),
            _ => Ok(()),
        }
    }

    /// Holds the latches of some nodes, each latch once, if the nodes are as they were seen. Never waits.
    #[inline(always)]
    fn hold<M: Memory, const N: usize>(&self, nodes: [&Seen; N]) -> Result<[Option<Exclusive<'_, L, M>>; N], Stop> {
        let mut held = [const { None }; N];
        for i in 0..N {
            match nodes[..i].iter().find(|n| n.latch == nodes[i].latch) {
                Some(same) if same.version == nodes[i].version => {}
                Some(_) => return Err(Stop::Changed),
                None => {
                    let latch = self.latches.get(nodes[i].latch).upgrade(nodes[i].version);
                    held[i] = Some(latch.ok_or(Stop::Changed)?);
                }
            }
        }
        Ok(held)
    }
}

/// Tries until nothing changes in between.
#[inline(always)]
fn again<T>(mut attempt: impl FnMut() -> Result<T, Stop>) -> Result<T, AccessError> {
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(Stop::Changed) => {}
            Err(Stop::Failed(error)) => return Err(error),
        }
    }
}
