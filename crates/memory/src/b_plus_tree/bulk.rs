//! Fills an empty B+-tree from sorted keys: leaves are written once, left to right, and never
//! split.

use std::mem;

use super::BPlusTree;
use crate::tree::node::{Image, Shape};
use crate::tree::{Stop, again};
use crate::{AccessError, Address, Latch, Memory, Plain};

/// The nodes under construction: one leaf, and one inner node of each level above it that has one.
struct Loader<'t, V, L> {
    tree: &'t BPlusTree<V, L>,
    /// Keys of a finished leaf and of a finished inner node.
    fill: (usize, usize),
    leaf: Image<V>,
    leaf_at: Address,
    /// The first key below each unfinished inner node, and the node, lowest level first.
    inner: Vec<(u64, Image<Address>)>,
    /// Every node that was allocated.
    nodes: Vec<Address>,
    bytes: Vec<u8>,
}

impl<V: Plain, L: Latch> BPlusTree<V, L> {
    /// Fills an empty tree with ascending keys, and returns how many there were. Nodes are filled
    /// to the fraction `fill` (0 to 1; 0.7 is what random inserts leave). Readers see nothing until
    /// all is there.
    ///
    /// # Errors
    /// As [`BPlusTree::insert`]; the tree stays empty.
    ///
    /// # Panics
    /// When the tree is not empty, or the keys do not ascend strictly.
    pub fn bulk_load<M: Memory>(
        &self,
        memory: &mut M,
        entries: impl IntoIterator<Item = (u64, V)>,
        fill: f64,
    ) -> Result<u64, AccessError> {
        self.nodes.memory.check(memory.id())?;
        self.assert_empty(memory)?;
        let part = |shape: &Shape| ((shape.capacity as f64 * fill) as usize).clamp(2, shape.capacity);
        let mut loader = Loader {
            tree: self,
            fill: (part(self.shape()), part(&self.nodes.inner)),
            leaf: Image { level: 0, next: Address::NULL, keys: Vec::new(), values: Vec::new() },
            leaf_at: Address::NULL,
            inner: Vec::new(),
            nodes: Vec::new(),
            bytes: vec![0; self.nodes.leaf_bytes],
        };
        let count = loader.load(memory, entries);
        if count.is_err() {
            loader.nodes.iter().for_each(|&at| self.nodes.free(memory, at, 0));
        }
        count
    }

    fn assert_empty<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        let empty = again(|| {
            let seen = self.nodes.begin(memory, self.root.root)?;
            let (_, head) = self.nodes.view_root(memory, &seen)?;
            self.nodes.validate(&seen)?;
            Ok(head.level == 0 && head.count == 0)
        })?;
        assert!(empty, "only an empty tree can be filled at once");
        Ok(())
    }
}

impl<V: Plain, L: Latch> Loader<'_, V, L> {
    fn load<M: Memory>(
        &mut self,
        memory: &mut M,
        entries: impl IntoIterator<Item = (u64, V)>,
    ) -> Result<u64, AccessError> {
        self.leaf_at = self.allocate(memory)?;
        let (mut count, mut last) = (0, None);
        for (key, value) in entries {
            assert!(last.is_none_or(|last| last < key), "key {key} comes after {last:?}: sort the keys first");
            last = Some(key);
            if self.leaf.keys.len() == self.fill.0 {
                self.finish_leaf(memory)?;
            }
            self.leaf.keys.push(key);
            self.leaf.values.push(value);
            count += 1;
        }
        self.finish(memory)?;
        Ok(count)
    }

    fn allocate<M: Memory>(&mut self, memory: &mut M) -> Result<Address, AccessError> {
        let at = self.tree.nodes.heap.allocate(memory, self.tree.nodes.leaf_bytes)?;
        self.nodes.push(at);
        Ok(at)
    }

    fn finish_leaf<M: Memory>(&mut self, memory: &mut M) -> Result<(), AccessError> {
        let next = self.allocate(memory)?;
        self.leaf.next = next;
        self.write_leaf(memory)?;
        self.leaf.keys.clear();
        self.leaf.values.clear();
        self.leaf.next = Address::NULL;
        self.leaf_at = next;
        Ok(())
    }
    fn write_leaf<M: Memory>(&mut self, memory: &mut M) -> Result<(), AccessError> {
        self.leaf.write(self.tree.shape(), &mut self.bytes);
        memory.write_bytes(self.leaf_at, &self.bytes)?;
        self.add_child(memory, 0, self.leaf.keys[0], self.leaf_at)
    }

    /// Adds a child to the inner node under construction `height` levels above the leaves' parents.
    fn add_child<M: Memory>(
        &mut self,
        memory: &mut M,
        height: usize,
        first: u64,
        child: Address,
    ) -> Result<(), AccessError> {
        let fresh = || Image { level: height as u8 + 1, next: Address::NULL, keys: Vec::new(), values: vec![child] };
        match self.inner.get_mut(height) {
            None => self.inner.push((first, fresh())),
            Some((_, node)) if node.keys.len() < self.fill.1 => {
                node.keys.push(first);
                node.values.push(child);
            }
            Some(full) => {
                let (first, node) = mem::replace(full, (first, fresh()));
                self.write_inner(memory, first, &node)?;
            }
        }
        Ok(())
    }
    fn write_inner<M: Memory>(&mut self, memory: &mut M, first: u64, node: &Image<Address>) -> Result<(), AccessError> {
        let at = self.allocate(memory)?;
        node.write(&self.tree.nodes.inner, &mut self.bytes);
        memory.write_bytes(at, &self.bytes)?;
        self.add_child(memory, usize::from(node.level), first, at)
    }

    /// Finishes what is under construction and lets the highest node be the root.
    fn finish<M: Memory>(&mut self, memory: &mut M) -> Result<(), AccessError> {
        if self.inner.is_empty() {
            self.leaf.write(self.tree.shape(), &mut self.bytes);
            self.replace_root(memory)?;
            // All went into the root.
            self.nodes.iter().for_each(|&at| self.tree.nodes.free(memory, at, 0));
            return Ok(());
        }
        self.write_leaf(memory)?;
        let mut height = 0;
        while height + 1 < self.inner.len() {
            let (first, node) = self.inner[height].clone();
            self.write_inner(memory, first, &node)?;
            height += 1;
        }
        let (_, top) = &self.inner[height];
        top.write(&self.tree.nodes.inner, &mut self.bytes);
        self.replace_root(memory)
    }
    fn replace_root<M: Memory>(&mut self, memory: &mut M) -> Result<(), AccessError> {
        let tree = self.tree;
        again(|| {
            let seen = tree.nodes.begin(memory, tree.root.root)?;
            tree.assert_empty(memory)?;
            let _held = tree.nodes.hold(memory, [&seen])?;
            let root = memory.view_mut(seen.at, tree.nodes.leaf_bytes).map_err(Stop::Failed)?;
            root.copy_from(0, &self.bytes);
            Ok(())
        })
    }
}
