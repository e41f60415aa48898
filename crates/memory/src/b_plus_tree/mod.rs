//! A B+-tree in flash memory: u64 keys, plain values, read by optimistic lock coupling.
//!
//! Readers hold no latch and validate; writers latch what they change (see the module `tree`).
//!
//! Every change is one commit, to one leaf, or to a node and its parent. Full nodes are split, and
//! nearly empty ones merged, from the top down. These commits do not change what the tree holds. So
//! an error anywhere leaves the tree as it was, and no change pins more than two subpages.
//!
//! Nodes are a subpage by default. A search then misses at most once for each level, and the inner
//! nodes, 0.5% of the data, stay in DRAM. A dirty leaf is written back whole, whatever its size.
//! Smaller nodes share subpages: with nodes of 512 bytes the inner nodes would be 4% of the data.
//!
//! Invariants (see [`BPlusTree::check`]): keys ascend. Every leaf is equally deep. Leaves are
//! linked in key order. The root never moves, so [`BPlusTreeRoot`] is stored once. Only the root
//! may be empty or, for a while, a node with full siblings.
//!
//! It keeps no count of its keys (every insert would write it), and moves values in leaves' splits
//! and merges. A record that must not move is stored elsewhere, with a [`crate::Ptr`] as the value.

mod bulk;
mod check;
mod leaf;

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::heap::Heap;
use crate::latch::harmless;
use crate::tree::node::{Image, Shape, next};
use crate::tree::{Nodes, Seen, Stop, again};
use crate::{AccessError, Address, Latch, LatchTable, Memory, Plain, SUBPAGE_BYTES};
pub use check::BPlusTreeShape;
use leaf::PlainLeaf;

/// Where a B+-tree is stored, and its measures: what has to be stored to open it again. Never
/// changes.
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

/// An ordered map from `u64` to `V`. Share it between workers in an `Arc`, because its latches
/// order them.
#[derive(Debug)]
pub struct BPlusTree<V, L> {
    nodes: Nodes<PlainLeaf<V>, L>,
    root: BPlusTreeRoot,
}

impl<V: Plain, L: Latch> BPlusTree<V, L> {
    /// An empty tree with nodes of one subpage, which share `latch_count` latches (8 bytes of DRAM
    /// each).
    ///
    /// # Errors
    /// As [`Heap::allocate`] and [`view`](crate::RawMemory::view).
    ///
    /// # Panics
    /// When three values do not fit into a node, `V` needs more than 8-byte alignment, or
    /// `latch_count` is zero.
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
        let tree = Self::over(heap, root, (leaf, inner), latch_count);
        let empty = Image::<V> { level: 0, next: Address::NULL, keys: Vec::new(), values: Vec::new() };
        let written = memory.write_bytes(root.root, &empty.to_bytes(&leaf, node_bytes));
        written.inspect_err(|_| tree.nodes.free(memory, root.root, 0))?;
        Ok(tree)
    }

    /// The tree that was stored as `root`.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when there is none, or one of other values. Else as
    /// [`view`](crate::RawMemory::view).
    ///
    /// # Panics
    /// When `latch_count` is zero.
    pub fn open<M: Memory>(
        memory: &mut M,
        heap: Arc<Heap>,
        root: BPlusTreeRoot,
        latch_count: usize,
    ) -> Result<Self, AccessError> {
        heap.memory().check(memory.id())?;
        let corrupt = |what, expected, got| Err(AccessError::Corrupt { what, at: root.root, expected, got });
        if root.value_bytes as usize != size_of::<V>() {
            return corrupt("B+-tree root (bytes of a value)", size_of::<V>() as u64, u64::from(root.value_bytes));
        }
        let node_bytes = root.node_bytes as usize;
        let fits = node_bytes.is_multiple_of(8) && node_bytes <= SUBPAGE_BYTES;
        let Some((leaf, inner)) = Self::shapes(node_bytes).filter(|_| fits) else {
            return corrupt("B+-tree root (bytes of a node)", SUBPAGE_BYTES as u64, u64::from(root.node_bytes));
        };
        let tree = Self::over(heap, root, (leaf, inner), latch_count);
        again(|| {
            let seen = tree.nodes.begin(memory, root.root)?;
            tree.nodes.view_root(memory, &seen)?;
            Ok(())
        })?;
        Ok(tree)
    }

    fn over(heap: Arc<Heap>, root: BPlusTreeRoot, (leaf, inner): (Shape, Shape), latch_count: usize) -> Self {
        let (leaf, latches) = (PlainLeaf { shape: leaf, value: PhantomData }, LatchTable::new(latch_count));
        let (leaf_bytes, inner_bytes) = (root.node_bytes as usize, root.node_bytes as usize);
        BPlusTree { nodes: Nodes { memory: heap.memory(), heap, latches, leaf, leaf_bytes, inner, inner_bytes }, root }
    }

    fn shapes(node_bytes: usize) -> Option<(Shape, Shape)> {
        if align_of::<V>() > 8 {
            return None;
        }
        Some((Shape::new(node_bytes, size_of::<V>(), 0)?, Shape::new(node_bytes, size_of::<Address>(), 1)?))
    }

    /// What to store in order to open the tree again.
    pub fn root(&self) -> BPlusTreeRoot {
        self.root
    }
    pub(crate) fn disturb(&self, gone: bool) {
        self.nodes.latches.disturb(gone);
    }
    /// DRAM that its latches use.
    pub fn dram_bytes(&self) -> usize {
        self.nodes.latches.bytes()
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// As [`view`](crate::RawMemory::view), [`AccessError::Poisoned`], or [`AccessError::Corrupt`].
    #[inline]
    pub fn get<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<V>, AccessError> {
        self.nodes.memory.check(memory.id())?;
        again(|| {
            let seen = self.find_leaf(memory, key)?;
            let (view, head) = self.nodes.view_leaf(memory, &seen)?;
            let index = self.shape().keys_below(&view, head.count, key);
            let hit = index < head.count && self.shape().key(&view, index) == key;
            let value = hit.then(|| self.shape().value(&view, index));
            self.nodes.validate(&seen)?;
            Ok(value)
        })
    }

    /// Sets the value of `key` and returns the one that it had.
    ///
    /// # Errors
    /// As [`BPlusTree::get`], and as [`Heap::allocate`]. The tree holds what it held before.
    pub fn insert<M: Memory>(&self, memory: &mut M, key: u64, value: V) -> Result<Option<V>, AccessError> {
        self.nodes.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        again(|| {
            let root = self.nodes.begin(memory, self.root.root)?;
            let seen = self.nodes.find_leaf(memory, root, key)?;
            let (view, head) = self.nodes.view_leaf(memory, &seen)?;
            let index = self.shape().keys_below(&view, head.count, key);
            let hit = index < head.count && self.shape().key(&view, index) == key;
            if !hit && head.count == self.shape().capacity {
                self.nodes.validate(&seen)?;
                self.nodes.split_towards(memory, root, key)?;
                return Err(Stop::Changed);
            }
            let _held = self.nodes.hold(memory, [&seen])?;
            let node = memory.view_mut(seen.at, self.nodes.leaf_bytes)?;
            if hit {
                let old = self.shape().value(&node, index);
                self.shape().set_value(&node, index, value);
                return Ok(Some(old));
            }
            self.shape().insert(&node, head.count, index, key, value);
            Ok(None)
        })
    }

    /// Changes the value of `key` in place, and returns whether there was one. `change` is called
    /// at most once, under the latch of the leaf. A panic in it changes nothing.
    ///
    /// # Errors
    /// As [`BPlusTree::get`]; nothing was changed.
    pub fn update<M: Memory>(
        &self,
        memory: &mut M,
        key: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<bool, AccessError> {
        self.nodes.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        let mut change = Some(change);
        again(|| {
            let seen = self.find_leaf(memory, key)?;
            let (view, head) = self.nodes.view_leaf(memory, &seen)?;
            let index = self.shape().keys_below(&view, head.count, key);
            if index == head.count || self.shape().key(&view, index) != key {
                self.nodes.validate(&seen)?;
                return Ok(false);
            }
            let held = self.nodes.hold(memory, [&seen])?;
            let node = memory.view_mut(seen.at, self.nodes.leaf_bytes)?;
            let mut value = self.shape().value(&node, index);
            let change = change.take().expect("nothing starts again after the change");
            let ((), _held) = harmless(held, || change(&mut value));
            self.shape().set_value(&node, index, value);
            Ok(true)
        })
    }

    /// Removes `key` and returns its value. Leaves that get nearly empty are merged with a sibling.
    ///
    /// # Errors
    /// As [`BPlusTree::get`]; nothing was removed.
    pub fn remove<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<V>, AccessError> {
        self.nodes.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        let removed = again(|| {
            let seen = self.find_leaf(memory, key)?;
            let (view, head) = self.nodes.view_leaf(memory, &seen)?;
            let index = self.shape().keys_below(&view, head.count, key);
            if index == head.count || self.shape().key(&view, index) != key {
                self.nodes.validate(&seen)?;
                return Ok(None);
            }
            let _held = self.nodes.hold(memory, [&seen])?;
            let node = memory.view_mut(seen.at, self.nodes.leaf_bytes)?;
            let value = self.shape().value(&node, index);
            self.shape().remove::<V>(&node, head.count, index);
            Ok(Some((value, head.count - 1)))
        })?;
        let Some((value, left)) = removed else { return Ok(None) };
        if left <= self.shape().capacity / 4 {
            self.nodes.merge_around(memory, self.root.root, key);
        }
        Ok(Some(value))
    }

    /// Shows `visit` the keys `from..=to` and their values in ascending order, until it breaks.
    /// What it sees of one leaf is of one time. Different leaves may be of different times.
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
        self.nodes.memory.check(memory.id())?;
        // The next key to search for: what is before it has been shown.
        let mut from = from;
        again(|| {
            let mut seen = self.find_leaf(memory, from)?;
            let mut leaves = 0;
            loop {
                leaves += 1;
                if leaves > 1 {
                    // Short scans end in their first leaves. Longer ones will want the next leaf
                    // too.
                    let (view, head) = self.nodes.view_leaf(memory, &seen)?;
                    let following = next(&view);
                    if head.count > 0 && self.shape().key(&view, head.count - 1) < to && !following.is_null() {
                        memory.prefetch(following);
                    }
                }
                let (view, head) = self.nodes.view_leaf(memory, &seen)?;
                for index in self.shape().keys_below(&view, head.count, from)..head.count {
                    let (key, value) = (self.shape().key(&view, index), self.shape().value(&view, index));
                    self.nodes.validate(&seen)?;
                    if key > to || visit(key, &value).is_break() || key == u64::MAX {
                        return Ok(());
                    }
                    from = key + 1;
                }
                let following = next(&view);
                self.nodes.validate(&seen)?;
                if following.is_null() || from > to {
                    return Ok(());
                }
                let following = self.nodes.begin(memory, following)?;
                self.nodes.validate(&seen)?;
                seen = following;
            }
        })
    }

    /// The first key that is `key` or more, and its value.
    pub fn first_at_or_after<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<(u64, V)>, AccessError> {
        let mut first = None;
        self.scan(memory, key, u64::MAX, |key, value| {
            first = Some((key, *value));
            ControlFlow::Break(())
        })?;
        Ok(first)
    }

    /// The last key that is `key` or less, and its value.
    pub fn last_at_or_before<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<(u64, V)>, AccessError> {
        self.nodes.memory.check(memory.id())?;
        let mut key = key;
        again(|| {
            loop {
                // The leaf of `key` holds keys from `floor` on. If none will do, the answer is
                // before it.
                let mut floor = None;
                let root = self.nodes.begin(memory, self.root.root)?;
                let note = |separator| floor = Some(separator);
                let seen = self.nodes.find_leaf_noting(memory, root, key, note)?;
                let (view, head) = self.nodes.view_leaf(memory, &seen)?;
                let index = self.shape().keys_up_to(&view, head.count, key);
                let found = (index > 0)
                    .then(|| (self.shape().key(&view, index - 1), self.shape().value::<V>(&view, index - 1)));
                self.nodes.validate(&seen)?;
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
    fn shape(&self) -> &Shape {
        &self.nodes.leaf.shape
    }
    #[inline(always)]
    fn find_leaf<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Seen, Stop> {
        let root = self.nodes.begin(memory, self.root.root)?;
        self.nodes.find_leaf(memory, root, key)
    }
}
