//! Checking the trie against its invariants.

use super::border::{LAYER, RECORD, SUFFIX};
use super::{Address, Masstree, RECORD_LENGTH};
use crate::{AccessError, Latch, Memory, Ptr};

/// What a trie consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MasstreeShape {
    /// Keys.
    pub keys: u64,
    /// Trees, the first one included.
    pub layers: u64,
    /// The most layers that a key goes through.
    pub depth: u64,
    /// Border nodes of all layers.
    pub borders: u64,
    /// Inner nodes of all layers.
    pub inner_nodes: u64,
    /// Keys whose rest is in the border node.
    pub suffixes: u64,
    /// Keys whose rest is in a record of its own.
    pub records: u64,
}

impl<L: Latch> Masstree<L> {
    /// Reads the whole trie and checks every layer's tree, the order of kinds, that a slice's keys
    /// are together, and that suffixes are inside their node. Nothing may change the trie
    /// meanwhile.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`], which names the first bad node. Else as [`Masstree::get`].
    pub fn check<M: Memory>(&self, memory: &mut M) -> Result<MasstreeShape, AccessError> {
        self.nodes.memory.check(memory.id())?;
        let mut shape = MasstreeShape::default();
        let mut layers = vec![(self.root.root, 1)];
        let mut records = Vec::new();
        while let Some((root, depth)) = layers.pop() {
            shape.layers += 1;
            shape.depth = shape.depth.max(depth);
            let tree = self.nodes.check(memory, root, &mut |border| {
                for entry in &border.entries {
                    shape.keys += u64::from(entry.kind != LAYER);
                    shape.suffixes += u64::from(entry.kind == SUFFIX);
                    match entry.kind {
                        LAYER => layers.push((Address::from_bits(entry.value), depth + 1)),
                        RECORD => records.push(Address::from_bits(entry.value)),
                        _ => {}
                    }
                }
            })?;
            shape.borders += tree.leaves;
            shape.inner_nodes += tree.inner_nodes;
            shape.records += records.len() as u64;
            for at in records.drain(..) {
                let length: u64 = memory.load(Ptr::new(at.add(RECORD_LENGTH)))?;
                let space = self.nodes.heap.bytes();
                if length == 0 || length > space {
                    let what = "record of a key (length)";
                    return Err(AccessError::Corrupt { what, at, expected: space, got: length });
                }
            }
        }
        Ok(shape)
    }
}
