//! Splits and merges: changes of a tree's structure that leave what it holds as it is.
//!
//! A split writes a new, unreachable node, then holds the latches of the full node and its parent
//! and commits both. A merge fills the left of two siblings, with the latches of both and their
//! parent, and then frees the right one. Freed memory may get other contents while a reader is
//! about to read it. The reader noted the node's version before it validated the one above, so it
//! finds that the version has grown.
//!
//! Full nodes are split, and nearly empty ones merged, in commits of their own, which pin at most
//! two subpages. So an error anywhere leaves the tree holding what it held.

use super::node::Image;
use super::{Leaf, Nodes, Seen, Stop};
use crate::{AccessError, Address, Latch, Memory, WriteSet};

/// A node of either kind, taken apart.
pub(crate) enum Node<I> {
    Leaf(I),
    Inner(Image<Address>),
}

impl<I> Node<I> {
    pub fn level(&self) -> u8 {
        match self {
            Node::Leaf(_) => 0,
            Node::Inner(image) => image.level,
        }
    }
}

/// A full node that can be split now.
enum Split {
    /// The root: both halves move to new nodes.
    Root(Seen),
    /// Another node, which is child `index` of a parent that has room for one more.
    Child { parent: Seen, parent_level: u8, index: usize, node: Seen },
}

impl<K: Leaf, L: Latch> Nodes<K, L> {
    /// Takes a node apart, as it was seen.
    pub fn node<M: Memory>(&self, memory: &mut M, seen: &Seen, level: Option<u8>) -> Result<Node<K::Image>, Stop> {
        let (view, head) = match level {
            None => self.view_root(memory, seen)?,
            Some(level) => self.view_at(memory, seen, level)?,
        };
        let node = if head.level == 0 {
            Node::Leaf(self.leaf.read(&view, head))
        } else {
            Node::Inner(Image::read(&self.inner, &view, head))
        };
        self.validate(seen)?;
        Ok(node)
    }
    fn bytes_of(&self, node: &Node<K::Image>) -> Vec<u8> {
        match node {
            Node::Leaf(image) => {
                let mut bytes = vec![0; self.leaf_bytes];
                self.leaf.write(image, &mut bytes);
                bytes
            }
            Node::Inner(image) => image.to_bytes(&self.inner, self.inner_bytes),
        }
    }

    /// Splits the highest of the full nodes that stand in the way of putting `key` into its leaf.
    #[cold]
    pub fn split_towards<M: Memory>(&self, memory: &mut M, root: Seen, key: u64) -> Result<(), Stop> {
        let mut split = None;
        let mut parent: Option<(Seen, u8, usize, bool)> = None;
        let mut seen = root;
        loop {
            let (view, head) = match parent {
                None => self.view_root(memory, &seen)?,
                Some((_, level, ..)) => self.view_at(memory, &seen, level - 1)?,
            };
            let full = head.count == self.capacity(head.level);
            match parent {
                _ if !full => split = None,
                None => split = Some(Split::Root(seen)),
                // A full parent is split first; it is noted already.
                Some((.., true)) => {}
                Some((parent, parent_level, index, false)) => {
                    split = Some(Split::Child { parent, parent_level, index, node: seen });
                }
            }
            if head.level == 0 {
                break;
            }
            let index = self.inner.keys_up_to(&view, head.count, key);
            let child = self.inner.value(&view, index);
            let below = self.begin(memory, child)?;
            self.validate(&seen)?;
            parent = Some((seen, head.level, index, full));
            seen = below;
        }
        match split {
            Some(Split::Root(root)) => self.split_root(memory, key, root),
            Some(Split::Child { parent, parent_level, index, node }) => {
                let above = self.node(memory, &parent, Some(parent_level))?;
                let Node::Inner(above) = above else { return Err(Stop::Changed) };
                self.split_child(memory, key, (parent, above), index, node)
            }
            None => Ok(()),
        }
    }

    fn split_child<M: Memory>(
        &self,
        memory: &mut M,
        key: u64,
        (parent, mut above): (Seen, Image<Address>),
        index: usize,
        seen: Seen,
    ) -> Result<(), Stop> {
        let level = above.level - 1;
        let (mut left, separator, right) = cut::<K>(self.node(memory, &seen, Some(level))?, key);
        let new = self.write_new(memory, &right)?;
        if let Node::Leaf(left) = &mut left {
            K::link(left, new);
        }
        above.keys.insert(index, separator);
        above.values.insert(index + 1, new);
        let mut writes = WriteSet::new();
        writes.write_bytes(seen.at, &self.bytes_of(&left));
        writes.write_bytes(parent.at, &self.bytes_of(&Node::Inner(above)));
        self.commit(memory, writes, [&parent, &seen]).inspect_err(|_| self.free(memory, new, level))
    }

    fn split_root<M: Memory>(&self, memory: &mut M, key: u64, seen: Seen) -> Result<(), Stop> {
        let (mut left, separator, right) = cut::<K>(self.node(memory, &seen, None)?, key);
        let level = left.level();
        let new_right = self.write_new(memory, &right)?;
        if let Node::Leaf(left) = &mut left {
            K::link(left, new_right);
        }
        let new_left = self.write_new(memory, &left).inspect_err(|_| self.free(memory, new_right, level))?;
        let values = vec![new_left, new_right];
        let root = Image { level: level + 1, next: Address::NULL, keys: vec![separator], values };
        let mut writes = WriteSet::new();
        writes.write_bytes(seen.at, &self.bytes_of(&Node::Inner(root)));
        self.commit(memory, writes, [&seen]).inspect_err(|_| {
            self.free(memory, new_left, level);
            self.free(memory, new_right, level);
        })
    }

    /// Allocates and fills a node that nobody can reach yet.
    pub fn write_new<M: Memory>(&self, memory: &mut M, node: &Node<K::Image>) -> Result<Address, AccessError> {
        let bytes = self.bytes_of(node);
        let at = self.heap.allocate(memory, bytes.len())?;
        memory.write_bytes(at, &bytes).inspect_err(|_| self.free(memory, at, node.level()))?;
        Ok(at)
    }
    /// Commits while it holds the latches of `nodes`.
    pub fn commit<M: Memory, const N: usize>(
        &self,
        memory: &mut M,
        mut writes: WriteSet,
        nodes: [&Seen; N],
    ) -> Result<(), Stop> {
        let _held = self.hold(memory, nodes)?;
        Ok(writes.commit(memory)?)
    }

    /// Merges the nearly empty nodes on the path to `key` with siblings, from the leaf up. It only
    /// saves space: a failure here is the next caller's.
    #[cold]
    pub fn merge_around<M: Memory>(&self, memory: &mut M, root: Address, key: u64) {
        let mut level = 0;
        loop {
            match self.merge_at(memory, root, key, level) {
                Ok(true) => level += 1,
                Err(Stop::Changed) => {}
                Ok(false) | Err(Stop::Failed(_)) => return,
            }
        }
    }

    /// Merges the node at `level` on the path to `key` with a sibling if it is nearly empty and
    /// both fit into one. Returns whether to try the level above.
    fn merge_at<M: Memory>(&self, memory: &mut M, root: Address, key: u64, level: u8) -> Result<bool, Stop> {
        // Down to the parent of that node.
        let mut parent = self.begin(memory, root)?;
        let mut parent_level = None;
        let (mut above, index) = loop {
            let Node::Inner(image) = self.node(memory, &parent, parent_level)? else { return Ok(false) };
            if image.level <= level {
                return self.shrink_root(memory, &parent, &image);
            }
            let index = image.keys.partition_point(|&k| k <= key);
            if image.level == level + 1 {
                break (image, index);
            }
            let below = self.begin(memory, image.values[index])?;
            self.validate(&parent)?;
            (parent, parent_level) = (below, Some(image.level - 1));
        };
        if above.keys.is_empty() {
            // No sibling: the parent needs one first.
            return Ok(true);
        }
        let seen = self.begin(memory, above.values[index])?;
        self.validate(&parent)?;
        let (_, head) = self.view_at(memory, &seen, level)?;
        if head.count > self.capacity(level) / 4 {
            self.validate(&seen)?;
            return Ok(false);
        }
        // With the right sibling, or the left one of a last child.
        let index = index.min(above.keys.len() - 1);
        let left = self.begin(memory, above.values[index])?;
        let right = self.begin(memory, above.values[index + 1])?;
        self.validate(&parent)?;
        let (a, b) = (self.node(memory, &left, Some(level))?, self.node(memory, &right, Some(level))?);
        let Some(merged) = self.joined(a, above.keys[index], b) else { return Ok(false) };
        above.keys.remove(index);
        above.values.remove(index + 1);
        let small = above.keys.len() <= self.inner.capacity / 4;
        let mut writes = WriteSet::new();
        writes.write_bytes(left.at, &self.bytes_of(&merged));
        writes.write_bytes(parent.at, &self.bytes_of(&Node::Inner(above)));
        self.commit(memory, writes, [&parent, &left, &right])?;
        self.free(memory, right.at, level);
        Ok(small)
    }

    fn joined(&self, left: Node<K::Image>, separator: u64, right: Node<K::Image>) -> Option<Node<K::Image>> {
        match (left, right) {
            (Node::Leaf(left), Node::Leaf(right)) => Some(Node::Leaf(self.leaf.join(left, right)?)),
            (Node::Inner(mut left), Node::Inner(right)) => {
                let either_single = left.keys.is_empty() || right.keys.is_empty();
                left.keys.push(separator);
                left.keys.extend(right.keys);
                left.values.extend(right.values);
                let most = if either_single { self.inner.capacity } else { self.inner.capacity * 3 / 4 };
                (left.keys.len() <= most).then_some(Node::Inner(left))
            }
            _ => None,
        }
    }

    /// Lets a root with one child become that child.
    fn shrink_root<M: Memory>(&self, memory: &mut M, root: &Seen, image: &Image<Address>) -> Result<bool, Stop> {
        if !image.keys.is_empty() {
            return Ok(false);
        }
        let level = image.level - 1;
        let child = self.begin(memory, image.values[0])?;
        self.validate(root)?;
        let node = self.node(memory, &child, Some(level))?;
        let mut writes = WriteSet::new();
        writes.write_bytes(root.at, &self.bytes_of(&node));
        self.commit(memory, writes, [root, &child])?;
        self.free(memory, child.at, level);
        // The next call finds the root one level lower, and may shrink it again.
        Ok(level > 0)
    }
}

/// Cuts a full node in two, and says what separates them.
fn cut<K: Leaf>(node: Node<K::Image>, key: u64) -> (Node<K::Image>, u64, Node<K::Image>) {
    match node {
        Node::Leaf(image) => {
            let (left, separator, right) = K::cut(image, key);
            (Node::Leaf(left), separator, Node::Leaf(right))
        }
        Node::Inner(mut left) => {
            // The separator itself goes up, and each half keeps at least one key.
            let at = cutting_place(&left.keys, key).min(left.keys.len() - 2);
            let right = Image {
                level: left.level,
                next: Address::NULL,
                keys: left.keys.split_off(at + 1),
                values: left.values.split_off(at + 1),
            };
            let separator = left.keys.pop().expect("a full node has three keys");
            (Node::Inner(left), separator, Node::Inner(right))
        }
    }
}

/// Where to cut a full node: in the middle, unless `key` is beyond the last key. Ascending keys
/// then leave full nodes behind.
pub(crate) fn cutting_place(keys: &[u64], key: u64) -> usize {
    let ascending = keys.last().is_some_and(|&last| last < key);
    if ascending { keys.len() - (keys.len() / 8).max(1) } else { keys.len() / 2 }
}
