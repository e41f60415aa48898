//! Checking a B+-tree against its invariants.

use super::BPlusTree;
use crate::{AccessError, Latch, Memory, Plain};

/// What a tree consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BPlusTreeShape {
    /// Keys in the leaves.
    pub keys: u64,
    /// Leaves.
    pub leaves: u64,
    /// Inner nodes.
    pub inner_nodes: u64,
    /// Nodes on the way from the root to a leaf, both included.
    pub depth: u32,
}

impl<V: Plain, L: Latch> BPlusTree<V, L> {
    /// Reads the whole tree and checks order, bounds, equal depth, leaf links and samples. Nothing
    /// may change the tree meanwhile.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`], which names the first bad node. Else as [`BPlusTree::get`].
    pub fn check<M: Memory>(&self, memory: &mut M) -> Result<BPlusTreeShape, AccessError> {
        self.nodes.memory.check(memory.id())?;
        let mut keys = 0;
        let tree = self.nodes.check(memory, self.root.root, &mut |leaf| keys += leaf.keys.len() as u64)?;
        Ok(BPlusTreeShape { keys, leaves: tree.leaves, inner_nodes: tree.inner_nodes, depth: tree.depth })
    }
}
