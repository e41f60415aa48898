//! Checking a tree of nodes against its invariants.

use super::node::Image;
use super::structure::Node;
use super::{Leaf, Nodes, Stop};
use crate::{AccessError, Address, Latch, Memory};

/// What breaks an invariant of a leaf: which one, what was expected, what is there.
pub(crate) type Breach = (&'static str, u64, u64);

/// What a tree consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TreeShape {
    pub leaves: u64,
    pub inner_nodes: u64,
    /// Nodes on the way from the root to a leaf, both included.
    pub depth: u32,
}

/// What the walk knows of the leaves before the one it is at.
#[derive(Default)]
struct Walk {
    shape: TreeShape,
    /// Where the leaf before says that the next one is.
    expected: Option<Address>,
}

impl<K: Leaf, L: Latch> Nodes<K, L> {
    /// Reads the tree at `root`, checks it, and shows all its leaves to `visit`. Nothing may change
    /// the tree meanwhile.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`], which names the first bad node. Else as
    /// [`view`](crate::RawMemory::view).
    pub fn check<M: Memory>(
        &self,
        memory: &mut M,
        root: Address,
        visit: &mut impl FnMut(&K::Image),
    ) -> Result<TreeShape, AccessError> {
        let mut walk = Walk::default();
        self.check_below(memory, root, None, (0, u64::MAX), &mut walk, visit)?;
        match walk.expected {
            Some(next) if !next.is_null() => Err(corrupt(next, ("leaf links (past the last leaf)", 0, next.bits()))),
            _ => Ok(walk.shape),
        }
    }

    /// Checks the node at `at`, whose keys must be in `bounds` (both inclusive), and what is below
    /// it.
    fn check_below<M: Memory>(
        &self,
        memory: &mut M,
        at: Address,
        level: Option<u8>,
        bounds: (u64, u64),
        walk: &mut Walk,
        visit: &mut impl FnMut(&K::Image),
    ) -> Result<(), AccessError> {
        let settled = |stop| match stop {
            Stop::Failed(error) => error,
            Stop::Changed => corrupt(at, ("check (another worker changes the tree)", 0, 1)),
        };
        let seen = self.begin(memory, at)?;
        let node = self.node(memory, &seen, level).map_err(settled)?;
        let (view, _) = self.view_at(memory, &seen, node.level()).map_err(settled)?;
        if level.is_none() {
            walk.shape.depth = u32::from(node.level()) + 1;
        }
        match node {
            Node::Leaf(image) => {
                if let Some(expected) = walk.expected.filter(|&expected| expected != at) {
                    return Err(corrupt(at, ("leaf links", at.bits(), expected.bits())));
                }
                self.leaf.check(&view, &image, bounds).map_err(|breach| corrupt(at, breach))?;
                walk.expected = Some(K::next(&image));
                walk.shape.leaves += 1;
                visit(&image);
                Ok(())
            }
            Node::Inner(image) => {
                if !image.samples_agree(&view) {
                    return Err(corrupt(at, ("inner node (samples)", 1, 0)));
                }
                check_keys(&image.keys, bounds).map_err(|breach| corrupt(at, breach))?;
                walk.shape.inner_nodes += 1;
                self.check_children(memory, at, &image, bounds, walk, visit)
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
        visit: &mut impl FnMut(&K::Image),
    ) -> Result<(), AccessError> {
        for (i, &child) in image.values.iter().enumerate() {
            let low = if i == 0 { bounds.0 } else { image.keys[i - 1] };
            let high = match image.keys.get(i) {
                Some(0) => return Err(corrupt(at, ("inner node (separator)", 1, 0))),
                Some(key) => key - 1,
                None => bounds.1,
            };
            self.check_below(memory, child, Some(image.level - 1), (low, high), walk, visit)?;
        }
        Ok(())
    }
}

/// That keys ascend strictly and are in `bounds`.
pub(crate) fn check_keys(keys: &[u64], bounds: (u64, u64)) -> Result<(), Breach> {
    if let Some(pair) = keys.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Err(("node (order of keys)", pair[0], pair[1]));
    }
    match keys.iter().find(|&&key| key < bounds.0 || key > bounds.1) {
        Some(&key) => Err(("node (key outside its bounds)", bounds.0, key)),
        None => Ok(()),
    }
}

fn corrupt(at: Address, (what, expected, got): Breach) -> AccessError {
    AccessError::Corrupt { what, at, expected, got }
}
