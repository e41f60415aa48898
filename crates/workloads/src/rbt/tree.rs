//! Red-black tree in flash memory: an ordered map from numbers to values, one node an entry.
//!
//! ```text
//! node: | left child, low bit: red | right child | key | value |      cell: | root |
//! ```
//!
//! Nodes come from the heap, so several share a subpage and none straddles. A node stays where it
//! is while its key is there: a removal relinks its neighbours and copies nothing.
//!
//! Invariants (`check` verifies them):
//! * Keys ascend strictly. The root is black, a red node has black children, and every path from a
//!   node down has equally many black nodes. So the height is at most 2 log2(n + 1).
//!
//! One latch with a version stands for the structure. Readers go down without it and check its
//! version. Inserts and removals plan the change on copies, take the latch if nothing has changed
//! meanwhile, and commit. Values have latches of their own, by node. Changing a value takes only
//! its latch (then checks the structure's version), so it disturbs no reader of another node.
//! Removing a node takes both, first the structure's. The holder of a value's latch never waits for
//! the structure's.
//!
//! Writers of the structure take turns to commit, and plan anew after they lost.
//!
//! It is written over what `fulgurite-memory` gives every container, and is none that a pool names.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use fulgurite_memory::{
    AccessError, Address, Heap, Latch, LatchTable, Layout, Memory, Plain, Ptr, Reservation, SUBPAGE_BYTES, WriteSet,
    optimistic,
};

use super::edit::{Bounds, DEPTH_MAX, Edit, Links, NODES_MAX, Path, Side, corrupt};

/// How often an update looks for its node before it takes the structure's latch.
const UPDATE_ATTEMPTS: u32 = 8;
const KEY_AT: usize = size_of::<Links>();
const VALUE_AT: usize = KEY_AT + size_of::<u64>();

/// An ordered map from `u64` to `V` in flash memory.
#[derive(Debug)]
pub struct RedBlackTree<V, L> {
    /// Where the address of the root node is kept.
    cell: Ptr<Address>,
    bounds: Bounds,
    heap: Arc<Heap>,
    structure: L,
    values: LatchTable<L>,
    value: PhantomData<fn() -> V>,
}

impl<V: Plain, L: Latch> RedBlackTree<V, L> {
    /// Bytes of a node, before the heap rounds them up.
    pub const NODE_BYTES: usize = {
        assert!(align_of::<V>() <= 8, "values are aligned to at most 8 bytes");
        let bytes = (VALUE_AT + size_of::<V>()).next_multiple_of(8);
        assert!(bytes <= SUBPAGE_BYTES, "a node fits a subpage");
        bytes
    };
    /// Pins that an operation may take.
    pub const PINS: u32 = NODES_MAX;

    /// Makes an empty tree, with `latch_count` latches for values (8 bytes each, rounded up to a
    /// power of two).
    ///
    /// # Errors
    /// [`AccessError::NoSpace`]; what the memory says.
    pub fn create<M: Memory>(memory: &mut M, heap: Arc<Heap>, latch_count: usize) -> Result<Self, AccessError> {
        let cell = Ptr::new(heap.allocate(memory, size_of::<Address>())?);
        memory.store(cell, Address::NULL)?;
        Self::open(cell, heap, latch_count)
    }

    /// Opens the tree whose root is kept in this cell of the heap. Accesses nothing.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when there can be no cell.
    pub fn open(cell: Ptr<Address>, heap: Arc<Heap>, latch_count: usize) -> Result<Self, AccessError> {
        let bounds = Bounds { region: heap.region(), node_bytes: Self::NODE_BYTES as u64 };
        Bounds { node_bytes: size_of::<Address>() as u64, ..bounds }.node(cell.address())?;
        let (structure, values) = (L::default(), LatchTable::new(latch_count));
        Ok(RedBlackTree { cell, bounds, heap, structure, values, value: PhantomData })
    }

    /// Makes a tree of `count` entries, whose keys ascend with their ranks. Each node is written
    /// once, where `layout` says. All levels are full but the last, whose nodes are red.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`]. The memory's errors. The heap's space is not given back then.
    pub fn bulk<M: Memory>(
        memory: &mut M,
        heap: Arc<Heap>,
        count: u64,
        layout: Layout,
        mut entry: impl FnMut(u64) -> (u64, V),
    ) -> Result<Self, AccessError> {
        let tree = Self::create(memory, heap, 1)?;
        let nodes = tree.heap.reserve(memory, Self::NODE_BYTES, count, layout)?;
        Self::subtree(memory, &nodes, 0..count, 0, &mut entry)?;
        memory.store(tree.cell, middle(&nodes, &(0..count)))?;
        Ok(tree)
    }

    /// Writes the nodes of these ranks, whose root is `depth` levels below the tree's.
    fn subtree<M: Memory>(
        memory: &mut M,
        nodes: &Reservation,
        ranks: Range<u64>,
        depth: u32,
        entry: &mut impl FnMut(u64) -> (u64, V),
    ) -> Result<(), AccessError> {
        if ranks.is_empty() {
            return Ok(());
        }
        let rank = ranks.start.midpoint(ranks.end);
        let (before, after) = (ranks.start..rank, rank + 1..ranks.end);
        let red = depth == nodes.len().ilog2() && depth > 0;
        let links = Links::new(middle(nodes, &before), middle(nodes, &after), red);
        Self::subtree(memory, nodes, before, depth + 1, entry)?;
        let (key, value) = entry(rank);
        let view = memory.view_mut(nodes.at(rank), VALUE_AT + size_of::<V>())?;
        view.store(0, links);
        view.store(KEY_AT, key);
        view.store(VALUE_AT, value);
        Self::subtree(memory, nodes, after, depth + 1, entry)
    }

    /// What to store, to open the tree again.
    pub fn cell(&self) -> Ptr<Address> {
        self.cell
    }
    /// DRAM that it uses, without the heap.
    pub fn dram_bytes(&self) -> usize {
        size_of::<Self>() + self.values.bytes()
    }

    #[inline(always)]
    fn latch(&self, node: Address) -> &L {
        self.values.of(node.bits())
    }
    #[inline(always)]
    fn value(node: Address) -> Ptr<V> {
        Ptr::new(node.add(VALUE_AT as u64))
    }

    /// Goes down to `key`; calls `passed` with each node on the way that is not it.
    #[inline(always)]
    fn seek<M: Memory>(
        &self,
        memory: &mut M,
        key: u64,
        mut passed: impl FnMut(Address, Side) -> Result<(), AccessError>,
    ) -> Result<Option<Address>, AccessError> {
        let mut at = memory.load(self.cell)?;
        for _ in 0..DEPTH_MAX {
            if at.is_null() {
                return Ok(None);
            }
            let node = self.bounds.node(at)?;
            let view = memory.view(node, VALUE_AT)?;
            let side = match key.cmp(&view.load(KEY_AT)) {
                Ordering::Equal => return Ok(Some(node)),
                Ordering::Less => Side::Left,
                Ordering::Greater => Side::Right,
            };
            at = view.load::<Links>(0).child(side);
            passed(node, side)?;
        }
        Err(corrupt("red-black tree depth", at))
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// What the memory says.
    #[inline]
    pub fn get<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<V>, AccessError> {
        optimistic::read(&self.structure, memory, |memory, _| match self.seek(memory, key, |_, _| Ok(()))? {
            Some(node) => {
                optimistic::read(self.latch(node), memory, |memory, _| memory.load(Self::value(node))).map(Some)
            }
            None => Ok(None),
        })
    }

    /// Changes the value of `key` in place, and returns what `change` returns, or `None` without
    /// the key. `change` is called at most once, and must not panic.
    ///
    /// # Errors
    /// What the memory says; nothing was changed and `change` not called then.
    pub fn update<M: Memory, R>(
        &self,
        memory: &mut M,
        key: u64,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<Option<R>, AccessError> {
        let _section = memory.write_section()?;
        let find = |memory: &mut M| self.seek(memory, key, |_, _| Ok(()));
        for _ in 0..UPDATE_ATTEMPTS {
            let version = self.structure.read_begin(memory)?;
            let Some(node) = optimistic::read(&self.structure, memory, |memory, _| find(memory))? else {
                return Ok(None);
            };
            let _held = self.latch(node).lock(memory)?;
            if self.structure.read_validate(version) {
                // Removing the node needs the latch that is held.
                return Self::change(memory, node, change).map(Some);
            }
        }
        let _structure = self.structure.lock(memory)?;
        let Some(node) = find(memory)? else { return Ok(None) };
        let _held = self.latch(node).lock(memory)?;
        Self::change(memory, node, change).map(Some)
    }

    /// The caller has the latch of the value.
    fn change<M: Memory, R>(memory: &mut M, node: Address, change: impl FnOnce(&mut V) -> R) -> Result<R, AccessError> {
        let view = memory.view_mut(Self::value(node).address(), size_of::<V>())?;
        let mut value = view.load::<V>(0);
        let result = change(&mut value);
        view.store(0, value);
        Ok(result)
    }

    /// Sets the value of `key`, and returns the one it had.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`] when the heap is full, and the memory's errors. No entry was
    /// changed then.
    pub fn insert<M: Memory>(&self, memory: &mut M, key: u64, value: V) -> Result<Option<V>, AccessError> {
        let _section = memory.write_section()?;
        loop {
            if let Some(old) = self.update(memory, key, |now| std::mem::replace(now, value))? {
                return Ok(Some(old));
            }
            let node = self.heap.allocate(memory, Self::NODE_BYTES)?;
            let added = self.add(memory, node, key, value);
            if added == Ok(true) {
                return Ok(None);
            }
            self.free(memory, node);
            added?;
        }
    }

    /// Adds a node. False: somebody else has added the key.
    fn add<M: Memory>(&self, memory: &mut M, node: Address, key: u64, value: V) -> Result<bool, AccessError> {
        loop {
            let plan = optimistic::plan(&self.structure, memory, |memory, _| {
                let mut path = Path::new();
                if self.seek(memory, key, |node, side| path.push(node, side))?.is_some() {
                    return Ok(None);
                }
                let mut edit = Edit::new(self.bounds);
                edit.insert(memory, &path, node)?;
                Ok(Some(edit))
            })?;
            let Some((edit, _held)) = plan else { return Ok(false) };
            let mut set = WriteSet::new();
            if edit.complete {
                set.store(Ptr::new(node.add(KEY_AT as u64)), key)?;
                set.store(Self::value(node), value)?;
            }
            self.commit(memory, &edit, set)?;
            if edit.complete {
                return Ok(true);
            }
        }
    }

    fn commit<M: Memory>(&self, memory: &mut M, edit: &Edit, mut set: WriteSet) -> Result<(), AccessError> {
        for (node, links) in edit.changed() {
            set.store(Ptr::new(node), links)?;
        }
        if let Some(root) = edit.root {
            set.store(self.cell, root)?;
        }
        set.commit(memory)
    }

    /// Removes `key`, and returns the value it had.
    ///
    /// # Errors
    /// What the memory says; no entry was changed then.
    pub fn remove<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<V>, AccessError> {
        let _section = memory.write_section()?;
        loop {
            let plan = optimistic::plan(&self.structure, memory, |memory, _| {
                let mut path = Path::new();
                let Some(node) = self.seek(memory, key, |node, side| path.push(node, side))? else {
                    return Ok(None);
                };
                let mut edit = Edit::new(self.bounds);
                edit.remove(memory, &mut path, node)?;
                Ok(Some((edit, node)))
            })?;
            let Some(((edit, node), held)) = plan else { return Ok(None) };
            if !edit.complete {
                self.commit(memory, &edit, WriteSet::new())?;
                continue;
            }
            let held_value = self.latch(node).lock(memory)?;
            let value = memory.load(Self::value(node))?;
            self.commit(memory, &edit, WriteSet::new())?;
            drop((held_value, held));
            self.free(memory, node);
            return Ok(Some(value));
        }
    }

    fn free<M: Memory>(&self, memory: &mut M, node: Address) {
        let freed = self.heap.free(memory, node, Self::NODE_BYTES);
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    /// Walks the tree, checks the invariants, calls `each` with the entries in order, and returns
    /// their number. Nothing may change the tree meanwhile.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] with what was found; what the memory says.
    pub fn check<M: Memory>(&self, memory: &mut M, mut each: impl FnMut(u64, V)) -> Result<u64, AccessError> {
        /// What is left to be done. A job's stack has no room for a call a level.
        enum Step<V> {
            Enter { at: Address, parent: Address, parent_is_red: bool, blacks: u64, depth: usize },
            Visit { node: Address, key: u64, value: V },
        }
        let (mut previous, mut count, mut height) = (None, 0, None);
        let (at, parent) = (memory.load(self.cell)?, Address::NULL);
        let mut steps = vec![Step::Enter { at, parent, parent_is_red: true, blacks: 0, depth: 0 }];
        while let Some(step) = steps.pop() {
            match step {
                Step::Visit { node, key, value } => {
                    if previous.is_some_and(|previous| previous >= key) {
                        return Err(corrupt("red-black tree order", node));
                    }
                    (previous, count) = (Some(key), count + 1);
                    each(key, value);
                }
                Step::Enter { at, parent, blacks, .. } if at.is_null() => {
                    // Every path down has as many black nodes.
                    let expected = *height.get_or_insert(blacks);
                    if blacks != expected {
                        let what = "red-black tree black height";
                        return Err(AccessError::Corrupt { what, at: parent, expected, got: blacks });
                    }
                }
                Step::Enter { at, parent_is_red, blacks, depth, .. } => {
                    if depth == DEPTH_MAX {
                        return Err(corrupt("red-black tree depth", at));
                    }
                    let node = self.bounds.node(at)?;
                    let view = memory.view(node, VALUE_AT + size_of::<V>())?;
                    let (links, key, value) = (view.load::<Links>(0), view.load(KEY_AT), view.load(VALUE_AT));
                    if links.is_red() && parent_is_red {
                        return Err(corrupt("red-black tree: red root, or red below red", node));
                    }
                    let blacks = blacks + u64::from(!links.is_red());
                    let below = |side| Step::Enter {
                        at: links.child(side),
                        parent: node,
                        parent_is_red: links.is_red(),
                        blacks,
                        depth: depth + 1,
                    };
                    steps.extend([below(Side::Right), Step::Visit { node, key, value }, below(Side::Left)]);
                }
            }
        }
        Ok(count)
    }
}

/// Where the root of the nodes of these ranks is.
fn middle(nodes: &Reservation, ranks: &Range<u64>) -> Address {
    if ranks.is_empty() { Address::NULL } else { nodes.at(ranks.start.midpoint(ranks.end)) }
}
