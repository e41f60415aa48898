//! Checking a B+-tree against its invariants.

use super::structure::Node;
use super::{BPlusTree, Image, Stop};
use crate::{AccessError, Address, Latch, Memory, Plain};

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

/// What the walk knows of the leaves before the one it is at.
struct Walk {
    shape: BPlusTreeShape,
    /// Where the leaf before says that the next one is.
    expected: Option<Address>,
}

impl<V: Plain, L: Latch> BPlusTree<V, L> {
    /// Reads the whole tree and checks its invariants. Nobody may change the tree meanwhile.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`], which names the first node that breaks one; else as [`BPlusTree::get`].
    pub fn check<M: Memory>(&self, memory: &mut M) -> Result<BPlusTreeShape, AccessError> {
        let mut walk = Walk { shape: BPlusTreeShape::default(), expected: None };
        self.check_below(memory, self.root.root, None, (0, u64::MAX), &mut walk)?;
        match walk.expected {
            Some(next) if !next.is_null() => Err(corrupt("B+-tree leaf links (the last leaf's)", next, 0, next.bits())),
            _ => Ok(walk.shape),
        }
    }

    /// Checks the node at `at`, whose keys must lie in `bounds` (both inclusive), and what is below it.
    fn check_below<M: Memory>(
        &self,
        memory: &mut M,
        at: Address,
        level: Option<u8>,
        bounds: (u64, u64),
        walk: &mut Walk,
    ) -> Result<(), AccessError> {
        let seen = self.begin(memory, at)?;
        let node = match self.node(memory, &seen) {
            Ok(node) => node,
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Changed) => return Err(corrupt("B+-tree check (another worker changes it)", at, 0, 1)),
        };
        let (view, head) = match self.view(memory, &seen) {
            Ok(found) => found,
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Changed) => return Err(corrupt("B+-tree check (another worker changes it)", at, 0, 1)),
        };
        let (keys, samples_agree) = match &node {
            Node::Leaf(image) => (&image.keys, image.samples_agree(&view)),
            Node::Inner(image) => (&image.keys, image.samples_agree(&view)),
        };
        if let Some(level) = level.filter(|&level| level != head.level) {
            return Err(corrupt("B+-tree node (level)", at, u64::from(level), u64::from(head.level)));
        }
        if !samples_agree {
            return Err(corrupt("B+-tree node (samples)", at, 1, 0));
        }
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(corrupt("B+-tree node (order of keys)", at, pair[0], pair[1]));
        }
        if let Some(&key) = keys.iter().find(|&&key| key < bounds.0 || key > bounds.1) {
            return Err(corrupt("B+-tree node (key outside its bounds)", at, bounds.0, key));
        }
        if level.is_none() {
            walk.shape.depth = u32::from(head.level) + 1;
        }
        match node {
            Node::Leaf(image) => {
                if let Some(expected) = walk.expected.filter(|&expected| expected != at) {
                    return Err(corrupt("B+-tree leaf links", at, at.bits(), expected.bits()));
                }
                walk.expected = Some(image.next);
                walk.shape.leaves += 1;
                walk.shape.keys += image.keys.len() as u64;
                Ok(())
            }
            Node::Inner(image) => {
                walk.shape.inner_nodes += 1;
                self.check_children(memory, at, &image, bounds, walk)
            }
        }
    }

    fn check_children<M: Memory>(
        &self,
        memory: &mut M,
        at: Address,
        image: &Image<Address>,
        bounds: (u64, u64),
        walk: &mut Walk,
    ) -> Result<(), AccessError> {
        for (i, &child) in image.values.iter().enumerate() {
            let low = if i == 0 { bounds.0 } else { image.keys[i - 1] };
            let high = match image.keys.get(i) {
                Some(0) => return Err(corrupt("B+-tree node (separator)", at, 1, 0)),
                Some(key) => key - 1,
                None => bounds.1,
            };
            self.check_below(memory, child, Some(image.level - 1), (low, high), walk)?;
        }
        Ok(())
    }
}

fn corrupt(what: &'static str, at: Address, expected: u64, got: u64) -> AccessError {
    AccessError::Corrupt { what, at, expected, got }
}
