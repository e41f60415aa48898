//! Red-black tree in flash memory: an ordered map, one node an entry.
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

mod edit;

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use fulgurite_format::{Address, Plain};
use fulgurite_runtime::AccessError;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::latch::harmless;
use crate::{Heap, Latch, LatchTable, Layout, Memory, MemoryId, Ptr, Reservation, WriteSet, optimistic};
use edit::{Bounds, DEPTH_MAX, Edit, Links, NODES_MAX, Path, Side, corrupt};

/// Entries that a range reads before it hands them out: at first, and at most.
const BATCH_FIRST: usize = 4;
const BATCH_MAX: usize = 64;
/// How often an update looks for its node before it takes the structure's latch.
const UPDATE_ATTEMPTS: u32 = 8;

/// What a program stores to find its tree again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct RedBlackTreeRoot {
    /// Where the address of the root node is kept.
    pub cell: Address,
    /// Size of a key, to notice when the wrong type is opened.
    pub key_bytes: u32,
    /// Size of a value.
    pub value_bytes: u32,
}

/// An ordered map from `K` to `V` in flash memory.
///
/// ```
/// use fulgurite_memory::{Address, Heap, Latch, PlainMemory, RedBlackTree, Region, VersionLatch};
/// use fulgurite_sys::Backed;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut memory = PlainMemory::new(Backed::BasePages)?;
/// let heap = Heap::create(&mut memory, Region::new(Address::from_linear(1 << 20), 1 << 20))?;
/// let prices = RedBlackTree::<u64, u32, VersionLatch>::create(&mut memory, heap.into(), 64)?;
/// for day in [3, 1, 2] {
///     prices.insert(&mut memory, &day, 100 * day as u32)?;
/// }
/// let mut seen = Vec::new();
/// prices.range(&mut memory, 2.., |&day, &price| {
///     seen.push((day, price));
///     true
/// })?;
/// assert_eq!(seen, [(2, 200), (3, 300)]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedBlackTree<K, V, L> {
    root: RedBlackTreeRoot,
    bounds: Bounds,
    memory: MemoryId,
    heap: Arc<Heap>,
    pub(crate) structure: L,
    pub(crate) values: LatchTable<L>,
    entries: PhantomData<fn() -> (K, V)>,
}

const KEY_AT: usize = size_of::<Links>();

impl<K: Plain + Ord, V: Plain, L: Latch> RedBlackTree<K, V, L> {
    const VALUE_AT: usize = (KEY_AT + size_of::<K>()).next_multiple_of(align_of::<V>());
    /// Bytes of a node, before the heap rounds them up.
    pub const NODE_BYTES: usize = {
        assert!(align_of::<K>() <= 8 && align_of::<V>() <= 8, "keys and values are aligned to at most 8 bytes");
        let bytes = (Self::VALUE_AT + size_of::<V>()).next_multiple_of(8);
        assert!(bytes <= fulgurite_format::SUBPAGE_BYTES, "a node fits a subpage");
        bytes
    };
    /// A value that is one word is read in one piece anyway.
    const VALUE_IS_ONE_WORD: bool = size_of::<V>() <= 8 && size_of::<V>() == align_of::<V>();
    /// Pins that an operation may take.
    pub const PINS: u32 = NODES_MAX;

    /// Makes an empty tree, with `latch_count` latches for values (8 bytes each, rounded up to a
    /// power of two).
    ///
    /// # Errors
    /// [`AccessError::NoSpace`]; what the memory says.
    pub fn create<M: Memory>(memory: &mut M, heap: Arc<Heap>, latch_count: usize) -> Result<Self, AccessError> {
        let cell = heap.allocate(memory, size_of::<Address>())?;
        if let Err(error) = memory.store(Ptr::new(cell), Address::NULL) {
            let _ = heap.free(memory, cell, size_of::<Address>());
            return Err(error);
        }
        let (key_bytes, value_bytes) = (size_of::<K>() as u32, size_of::<V>() as u32);
        Self::open(RedBlackTreeRoot { cell, key_bytes, value_bytes }, heap, latch_count)
    }

    /// Opens the tree with this root. Accesses nothing.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when the root is of another type of tree, or of another heap.
    pub fn open(root: RedBlackTreeRoot, heap: Arc<Heap>, latch_count: usize) -> Result<Self, AccessError> {
        let sizes = (size_of::<K>() as u64) << 32 | size_of::<V>() as u64;
        let found = u64::from(root.key_bytes) << 32 | u64::from(root.value_bytes);
        if sizes != found || !root.cell.bits().is_multiple_of(8) || !heap.region().contains(root.cell, 8) {
            let what = "red-black tree key and value sizes, or its cell";
            return Err(AccessError::Corrupt { what, at: root.cell, expected: sizes, got: found });
        }
        Ok(RedBlackTree {
            root,
            bounds: Bounds { region: heap.region(), node_bytes: Self::NODE_BYTES as u64 },
            memory: heap.memory(),
            heap,
            structure: L::default(),
            values: LatchTable::new(latch_count.max(1)),
            entries: PhantomData,
        })
    }

    /// Makes a tree of `count` entries in strictly ascending order of keys. Each node is written
    /// once, where `layout` says.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`]. [`AccessError::Corrupt`] when there are not `count` entries or
    /// they do not ascend. The memory's errors. The space is given back then.
    pub fn bulk<M: Memory>(
        memory: &mut M,
        heap: Arc<Heap>,
        latch_count: usize,
        count: u64,
        sorted: impl IntoIterator<Item = (K, V)>,
        layout: Layout,
    ) -> Result<Self, AccessError> {
        let tree = Self::create(memory, heap, latch_count)?;
        let nodes = match tree.heap.reserve(memory, Self::NODE_BYTES, count, layout) {
            Ok(nodes) => nodes,
            Err(error) => {
                tree.free_cell(memory);
                return Err(error);
            }
        };
        let mut sorted = sorted.into_iter();
        let mut builder = Builder { nodes, last: None, red_depth: count.max(1).ilog2(), count };
        let built = builder.subtree(memory, 0, count, 0, &mut sorted).and_then(|root| {
            if sorted.next().is_some() {
                return Err(Builder::<K>::wrong_input(root, count, count + 1));
            }
            memory.store(Ptr::new(tree.root.cell), root)
        });
        if let Err(error) = built {
            let _ = tree.heap.release(memory, &nodes);
            tree.free_cell(memory);
            return Err(error);
        }
        Ok(tree)
    }

    /// What to store, to open the tree again.
    pub fn root(&self) -> RedBlackTreeRoot {
        self.root
    }
    /// DRAM that it uses, without the heap.
    pub fn dram_bytes(&self) -> usize {
        size_of::<Self>() + self.values.bytes()
    }

    fn cell(&self) -> Ptr<Address> {
        Ptr::new(self.root.cell)
    }
    #[inline(always)]
    fn value_latch(&self, node: Address) -> &L {
        self.values.of(node.bits())
    }

    /// Goes down to `key`; calls `passed` with each node on the way that is not it.
    #[inline(always)]
    fn seek<M: Memory>(
        &self,
        memory: &mut M,
        key: &K,
        mut passed: impl FnMut(Address, Side) -> Result<(), AccessError>,
    ) -> Result<Option<Address>, AccessError> {
        let mut at = memory.load(self.cell())?;
        for _ in 0..DEPTH_MAX {
            if at.is_null() {
                return Ok(None);
            }
            let node = self.bounds.node(at)?;
            let view = memory.view(node, KEY_AT + size_of::<K>())?;
            let side = match key.cmp(&view.load::<K>(KEY_AT)) {
                Ordering::Equal => return Ok(Some(node)),
                Ordering::Less => Side::Left,
                Ordering::Greater => Side::Right,
            };
            at = view.load::<Links>(0).child(side);
            passed(node, side)?;
        }
        Err(corrupt("red-black tree depth", at))
    }

    /// The value of a node, in one state.
    #[inline(always)]
    fn value<M: Memory>(&self, memory: &mut M, node: Address) -> Result<V, AccessError> {
        let at = Ptr::<V>::new(node.add(Self::VALUE_AT as u64));
        // A transaction has to know when it changes.
        if Self::VALUE_IS_ONE_WORD && !M::TRACKED {
            return memory.load(at);
        }
        optimistic::read(self.value_latch(node), memory, |memory, _| memory.load(at))
    }

    /// The value of `key`.
    #[inline]
    pub fn get<M: Memory>(&self, memory: &mut M, key: &K) -> Result<Option<V>, AccessError> {
        self.memory.check(memory.id())?;
        optimistic::read(&self.structure, memory, |memory, _| match self.seek(memory, key, |_, _| Ok(()))? {
            Some(node) => self.value(memory, node).map(Some),
            None => Ok(None),
        })
    }

    /// Changes the value of `key` in place, and returns what `change` returns, or `None` without
    /// the key. `change` is called at most once. A panic in it changes nothing.
    ///
    /// # Errors
    /// What the memory says; nothing was changed and `change` not called then.
    pub fn update<M: Memory, R>(
        &self,
        memory: &mut M,
        key: &K,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<Option<R>, AccessError> {
        self.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        for _ in 0..UPDATE_ATTEMPTS {
            let version = self.structure.read_begin(memory)?;
            match self.seek(memory, key, |_, _| Ok(())) {
                Ok(Some(node)) => {
                    let held = self.value_latch(node).lock(memory)?;
                    if self.structure.read_validate(version) {
                        // Removing the node needs the latch that we hold.
                        return self.change_value(memory, node, held, change).map(Some);
                    }
                }
                Ok(None) if self.structure.read_validate(version) => return Ok(None),
                Err(error) if !optimistic::garbage_explains(error) || self.structure.read_validate(version) => {
                    return Err(error);
                }
                _ => {}
            }
        }
        let structure = self.structure.lock(memory)?;
        let Some(node) = self.seek(memory, key, |_, _| Ok(()))? else { return Ok(None) };
        let held = self.value_latch(node).lock(memory)?;
        self.change_value(memory, node, (structure, held), change).map(Some)
    }

    /// The caller has the latches in `held`.
    fn change_value<M: Memory, H, R>(
        &self,
        memory: &mut M,
        node: Address,
        held: H,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<R, AccessError> {
        let view = memory.view_mut(node.add(Self::VALUE_AT as u64), size_of::<V>())?;
        let mut value = view.load::<V>(0);
        let (result, _held) = harmless(held, || change(&mut value));
        view.store(0, value);
        Ok(result)
    }

    /// Sets the value of `key`, and returns the one it had.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`] when the heap is full, and the memory's errors. No entry was
    /// changed then.
    pub fn insert<M: Memory>(&self, memory: &mut M, key: &K, value: V) -> Result<Option<V>, AccessError> {
        self.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        let mut fresh = None;
        let inserted = self.insert_with(memory, key, value, &mut fresh);
        if let Some(unused) = fresh {
            self.free_node(memory, unused);
        }
        inserted
    }

    fn insert_with<M: Memory>(
        &self,
        memory: &mut M,
        key: &K,
        value: V,
        fresh: &mut Option<Address>,
    ) -> Result<Option<V>, AccessError> {
        loop {
            let plan = optimistic::plan(&self.structure, memory, |memory, _| {
                let mut path = Path::new();
                if self.seek(memory, key, |node, side| path.push(node, side))?.is_some() {
                    return Ok(None);
                }
                let node = match *fresh {
                    Some(node) => node,
                    None => *fresh.insert(self.heap.allocate(memory, Self::NODE_BYTES)?),
                };
                let mut edit = Edit::new(self.bounds);
                edit.insert(memory, &path, node)?;
                Ok(Some((edit, node)))
            })?;
            let Some(((edit, node), _held)) = plan else {
                // The key is there; or it was, and has been removed since.
                match self.update(memory, key, |now| std::mem::replace(now, value))? {
                    Some(old) => return Ok(Some(old)),
                    None => continue,
                }
            };
            let mut set = WriteSet::new();
            if edit.complete {
                set.write_bytes(node.add(KEY_AT as u64), key.as_bytes());
                set.write_bytes(node.add(Self::VALUE_AT as u64), value.as_bytes());
            }
            self.commit(memory, &edit, set)?;
            if edit.complete {
                *fresh = None;
                return Ok(None);
            }
        }
    }

    fn commit<M: Memory>(&self, memory: &mut M, edit: &Edit, mut set: WriteSet) -> Result<(), AccessError> {
        for (node, links) in edit.changed() {
            set.store(Ptr::new(node), links)?;
        }
        if let Some(root) = edit.root {
            set.store(self.cell(), root)?;
        }
        set.commit(memory)
    }

    /// Removes `key`, and returns the value it had.
    ///
    /// # Errors
    /// What the memory says; no entry was changed then.
    pub fn remove<M: Memory>(&self, memory: &mut M, key: &K) -> Result<Option<V>, AccessError> {
        self.memory.check(memory.id())?;
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
            let held_value = self.value_latch(node).lock(memory)?;
            let value = memory.load(Ptr::<V>::new(node.add(Self::VALUE_AT as u64)))?;
            self.commit(memory, &edit, WriteSet::new())?;
            drop(held_value);
            drop(held);
            self.free_node(memory, node);
            return Ok(Some(value));
        }
    }

    fn free_cell<M: Memory>(&self, memory: &mut M) {
        let freed = self.heap.free(memory, self.root.cell, size_of::<Address>());
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
    fn free_node<M: Memory>(&self, memory: &mut M, node: Address) {
        let freed = self.heap.free(memory, node, Self::NODE_BYTES);
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    /// Calls `each` with the entries in `range` in order, until it returns false. Returns the
    /// number of calls.
    ///
    /// Entries are read a few at a time, each time of one state; no latch is held during the calls.
    pub fn range<M: Memory>(
        &self,
        memory: &mut M,
        range: impl RangeBounds<K>,
        mut each: impl FnMut(&K, &V) -> bool,
    ) -> Result<u64, AccessError> {
        self.memory.check(memory.id())?;
        let mut from = range.start_bound().cloned();
        let mut batch: Vec<(K, V)> = Vec::new();
        let (mut size, mut calls) = (BATCH_FIRST, 0);
        loop {
            optimistic::read(&self.structure, memory, |memory, _| {
                batch.clear();
                self.batch(memory, &from, range.end_bound(), size, &mut batch)
            })?;
            for (key, value) in &batch {
                calls += 1;
                if !each(key, value) {
                    return Ok(calls);
                }
            }
            match batch.last() {
                Some(&(key, _)) if batch.len() == size => from = Bound::Excluded(key),
                _ => return Ok(calls),
            }
            size = (size * 2).min(BATCH_MAX);
        }
    }

    /// At most `size` entries from `from` on.
    fn batch<M: Memory>(
        &self,
        memory: &mut M,
        from: &Bound<K>,
        to: Bound<&K>,
        size: usize,
        into: &mut Vec<(K, V)>,
    ) -> Result<(), AccessError> {
        // Nodes that come after what is done, the nearest on top.
        let (mut above, mut height) = ([Address::NULL; DEPTH_MAX], 0);
        let mut at = memory.load(self.cell())?;
        // Down to the first one, then up and down again: each turn goes down at most the height.
        loop {
            for _ in 0..=DEPTH_MAX {
                if at.is_null() {
                    break;
                }
                let node = self.bounds.node(at)?;
                let view = memory.view(node, KEY_AT + size_of::<K>())?;
                let key = view.load::<K>(KEY_AT);
                let links = view.load::<Links>(0);
                let before = match from {
                    Bound::Included(from) => key < *from,
                    Bound::Excluded(from) => key <= *from,
                    Bound::Unbounded => false,
                };
                if before {
                    at = links.child(Side::Right);
                } else {
                    if height == DEPTH_MAX {
                        return Err(corrupt("red-black tree depth", node));
                    }
                    above[height] = node;
                    height += 1;
                    at = links.child(Side::Left);
                }
            }
            if !at.is_null() {
                return Err(corrupt("red-black tree depth", at));
            }
            if height == 0 || into.len() == size {
                return Ok(());
            }
            height -= 1;
            let node = above[height];
            let view = memory.view(node, KEY_AT + size_of::<K>())?;
            let key = view.load::<K>(KEY_AT);
            at = view.load::<Links>(0).child(Side::Right);
            let beyond = match to {
                Bound::Included(to) => key > *to,
                Bound::Excluded(to) => key >= *to,
                Bound::Unbounded => false,
            };
            if beyond {
                return Ok(());
            }
            into.push((key, self.value(memory, node)?));
        }
    }

    /// The entry with the smallest key.
    pub fn first<M: Memory>(&self, memory: &mut M) -> Result<Option<(K, V)>, AccessError> {
        self.memory.check(memory.id())?;
        let mut first = None;
        self.range(memory, .., |&key, &value| {
            first = Some((key, value));
            false
        })?;
        Ok(first)
    }

    /// How many entries: walks the tree.
    pub fn len<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
        self.memory.check(memory.id())?;
        self.range(memory, .., |_, _| true)
    }

    /// Walks the tree, checks the invariants, and returns the number of entries. Nothing may change
    /// the tree meanwhile.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] with what was found; what the memory says.
    pub fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
        self.memory.check(memory.id())?;
        let root = memory.load(self.cell())?;
        let mut walk = Walk { previous: None, count: 0 };
        self.check_subtree(memory, root, true, 0, &mut walk)?;
        Ok(walk.count)
    }

    /// Returns the number of black nodes on every path down.
    fn check_subtree<M: Memory>(
        &self,
        memory: &mut M,
        at: Address,
        parent_is_red: bool,
        depth: usize,
        walk: &mut Walk<K>,
    ) -> Result<u64, AccessError> {
        if at.is_null() {
            return Ok(0);
        }
        if depth == DEPTH_MAX {
            return Err(corrupt("red-black tree depth", at));
        }
        let node = self.bounds.node(at)?;
        let view = memory.view(node, Self::NODE_BYTES)?;
        let (links, key) = (view.load::<Links>(0), view.load::<K>(KEY_AT));
        if links.is_red() && parent_is_red {
            return Err(corrupt("red-black tree: red root, or red below red", node));
        }
        let left = self.check_subtree(memory, links.child(Side::Left), links.is_red(), depth + 1, walk)?;
        if walk.previous.is_some_and(|previous| previous >= key) {
            return Err(corrupt("red-black tree order", node));
        }
        walk.previous = Some(key);
        walk.count += 1;
        let right = self.check_subtree(memory, links.child(Side::Right), links.is_red(), depth + 1, walk)?;
        if left != right {
            let what = "red-black tree black height";
            return Err(AccessError::Corrupt { what, at: node, expected: left, got: right });
        }
        Ok(left + u64::from(!links.is_red()))
    }
}

struct Walk<K> {
    previous: Option<K>,
    count: u64,
}

/// Builds a tree as even as can be: all levels full but the last, whose nodes are red.
struct Builder<K> {
    nodes: Reservation,
    last: Option<K>,
    red_depth: u32,
    count: u64,
}

impl<K: Plain + Ord> Builder<K> {
    fn wrong_input(at: Address, expected: u64, got: u64) -> AccessError {
        AccessError::Corrupt { what: "input: as many entries as said, in ascending order", at, expected, got }
    }
    fn middle(&self, from: u64, to: u64) -> Option<u64> {
        (from < to).then(|| from + (to - from) / 2)
    }
    fn at(&self, rank: Option<u64>) -> Address {
        rank.map_or(Address::NULL, |rank| self.nodes.at(rank))
    }
    /// Builds the nodes of ranks `from..to`, `depth` levels below the root, and returns their root.
    fn subtree<M: Memory, V: Plain>(
        &mut self,
        memory: &mut M,
        from: u64,
        to: u64,
        depth: u32,
        sorted: &mut impl Iterator<Item = (K, V)>,
    ) -> Result<Address, AccessError> {
        let Some(rank) = self.middle(from, to) else { return Ok(Address::NULL) };
        let node = self.at(Some(rank));
        let left = self.subtree(memory, from, rank, depth + 1, sorted)?;
        let Some((key, value)) = sorted.next() else { return Err(Self::wrong_input(node, self.count, rank)) };
        if self.last.is_some_and(|last| last >= key) {
            return Err(Self::wrong_input(node, rank, rank));
        }
        self.last = Some(key);
        let right = self.at(self.middle(rank + 1, to));
        let links = Links::new(left, right, depth == self.red_depth && depth > 0);
        let value_at = (KEY_AT + size_of::<K>()).next_multiple_of(align_of::<V>());
        let view = memory.view_mut(node, value_at + size_of::<V>())?;
        view.store(0, links);
        view.store(KEY_AT, key);
        view.store(value_at, value);
        self.subtree(memory, rank + 1, to, depth + 1, sorted)?;
        Ok(node)
    }
}
