//! Splits and merges: changes of the tree's structure that leave its keys and values as they are.
//!
//! A split writes a new node that nobody can reach yet, then holds the latches of the full node and its parent and
//! commits both. A merge fills the left of two siblings, and holds the latches of both and their parent; the right one is
//! freed after that. Freed memory may get other contents while a reader is still about to look at it: the reader noted the
//! node's version before it validated the one that led to it, so it finds that the version has grown.

use super::{BPlusTree, Image, Seen, Stop};
use crate::{AccessError, Address, Latch, Memory, Plain, WriteSet};

/// A node of either kind, taken apart.
#[derive(Clone, Debug)]
pub(super) enum Node<V> {
    Leaf(Image<V>),
    Inner(Image<Address>),
}

/// A full node that can be split now.
enum Split {
    /// The root: both halves move to new nodes.
    Root(Seen),
    /// Another node, which is child `index` of a parent that has room for one more.
    Child { parent: Seen, index: usize, node: Seen },
}

impl<V: Plain, L: Latch> BPlusTree<V, L> {
    pub(super) fn node<M: Memory>(&self, memory: &mut M, seen: &Seen) -> Result<Node<V>, Stop> {
        let (view, head) = self.view(memory, seen)?;
        let node = if head.level == 0 {
            Node::Leaf(Image::read(&self.leaf, &view, head))
        } else {
            Node::Inner(Image::read(&self.inner, &view, head))
        };
        self.validate(seen)?;
        Ok(node)
    }
    pub(super) fn inner_node<M: Memory>(&self, memory: &mut M, seen: &Seen) -> Result<Image<Address>, Stop> {
        match self.node(memory, seen)? {
            Node::Inner(image) => Ok(image),
            // Seen as an inner node before at this version, so it has changed.
            Node::Leaf(_) => Err(Stop::Changed),
        }
    }
    fn bytes_of(&self, node: &Node<V>) -> Vec<u8> {
        match node {
            Node::Leaf(image) => image.to_bytes(&self.leaf, self.node_bytes()),
            Node::Inner(image) => image.to_bytes(&self.inner, self.node_bytes()),
        }
    }

    /// Splits the highest of the full nodes that stand in the way of putting `key` into its leaf.
    #[cold]
    pub(super) fn split_towards<M: Memory>(&self, memory: &mut M, key: u64) -> Result<(), Stop> {
        let mut split = None;
        let mut parent: Option<(Seen, usize, bool)> = None;
        let mut seen = self.begin(memory, self.root.root)?;
        let mut level = None;
        loop {
            let (view, head) = self.view(memory, &seen)?;
            self.expect_level(&seen, head, level)?;
            let shape = if head.level == 0 { &self.leaf } else { &self.inner };
            let full = head.count == shape.capacity;
            match parent {
                _ if !full => split = None,
                None => split = Some(Split::Root(seen)),
                // A full parent is split first; it is noted already.
                Some((_, _, true)) => {}
                Some((parent, index, false)) => split = Some(Split::Child { parent, index, node: seen }),
            }
            if head.level == 0 {
                break;
            }
            let index = self.inner.keys_up_to(&view, head.count, key);
            let child = self.inner.value(&view, index);
            let below = self.begin(memory, child)?;
            self.validate(&seen)?;
            parent = Some((seen, index, full));
            (seen, level) = (below, Some(head.level - 1));
        }
        match split {
            Some(Split::Root(root)) => self.split_root(memory, key, root),
            Some(Split::Child { parent, index, node }) => self.split_child(memory, key, parent, index, node),
            None => Ok(()),
        }
    }

    fn split_child<M: Memory>(
        &self,
        memory: &mut M,
        key: u64,
        parent: Seen,
        index: usize,
        seen: Seen,
    ) -> Result<(), Stop> {
        let mut above = self.inner_node(memory, &parent)?;
        let (mut left, separator, right) = cut(self.node(memory, &seen)?, key);
        let new = self.write_new(memory, &right)?;
        if let Node::Leaf(left) = &mut left {
            left.next = new;
        }
        above.keys.insert(index, separator);
        above.values.insert(index + 1, new);
        let mut writes = WriteSet::new();
        writes.write_bytes(seen.at, &self.bytes_of(&left));
        writes.write_bytes(parent.at, &self.bytes_of(&Node::Inner(above)));
        self.commit_or_free(memory, writes, [&parent, &seen], [new])
    }

    fn split_root<M: Memory>(&self, memory: &mut M, key: u64, seen: Seen) -> Result<(), Stop> {
        let (mut left, separator, right) = cut(self.node(memory, &seen)?, key);
        let level = match &left {
            Node::Leaf(image) => image.level,
            Node::Inner(image) => image.level,
        };
        let new_right = self.write_new(memory, &right)?;
        if let Node::Leaf(left) = &mut left {
            left.next = new_right;
        }
        let new_left = self.write_new(memory, &left).inspect_err(|_| self.free(memory, new_right))?;
        let values = vec![new_left, new_right];
        let root = Image { level: level + 1, next: Address::NULL, keys: vec![separator], values };
        let mut writes = WriteSet::new();
        writes.write_bytes(seen.at, &self.bytes_of(&Node::Inner(root)));
        self.commit_or_free(memory, writes, [&seen], [new_left, new_right])
    }

    /// Allocates and fills a node that nobody can reach yet.
    fn write_new<M: Memory>(&self, memory: &mut M, node: &Node<V>) -> Result<Address, AccessError> {
        let at = self.heap.allocate(memory, self.node_bytes())?;
        match memory.write_bytes(at, &self.bytes_of(node)) {
            Ok(()) => Ok(at),
            Err(error) => {
                self.free(memory, at);
                Err(error)
            }
        }
    }
    /// Frees a node that nobody can reach. When that fails the node's bytes are lost, and nothing else.
    pub(super) fn free<M: Memory>(&self, memory: &mut M, at: Address) {
        let _ = self.heap.free(memory, at, self.node_bytes());
    }
    /// Commits while it holds the latches of `nodes`; frees `new` if it cannot.
    fn commit_or_free<M: Memory, const N: usize, const K: usize>(
        &self,
        memory: &mut M,
        mut writes: WriteSet,
        nodes: [&Seen; N],
        new: [Address; K],
    ) -> Result<(), Stop> {
        let held = self.hold::<M, N>(nodes);
        let done = match &held {
            Ok(_) => writes.commit(memory).map_err(Stop::Failed),
            Err(_) => Err(Stop::Changed),
        };
        drop(held);
        if done.is_err() {
            new.into_iter().for_each(|at| self.free(memory, at));
        }
        done
    }

    /// Merges the nearly empty nodes on the path to `key` with siblings, from the leaf up. For the sake of space only: what
    /// fails here fails for whoever comes next, who is told.
    #[cold]
    pub(super) fn merge_around<M: Memory>(&self, memory: &mut M, key: u64) {
        let mut level = 0;
        loop {
            match self.merge_at(memory, key, level) {
                Ok(true) => level += 1,
                Err(Stop::Changed) => {}
                Ok(false) | Err(Stop::Failed(_)) => return,
            }
        }
    }

    /// Merges the node at `level` on the path to `key` with a sibling if it is nearly empty and both fit into one. Returns
    /// whether to try the level above.
    fn merge_at<M: Memory>(&self, memory: &mut M, key: u64, level: u8) -> Result<bool, Stop> {
        // Down to the parent of that node.
        let mut parent = self.begin(memory, self.root.root)?;
        let (above, index) = loop {
            let Node::Inner(image) = self.node(memory, &parent)? else { return Ok(false) };
            if image.level <= level {
                return self.shrink_root(memory, &parent, &image);
            }
            let index = image.keys.partition_point(|&k| k <= key);
            if image.level == level + 1 {
                break (image, index);
            }
            let below = self.begin(memory, image.values[index])?;
            self.validate(&parent)?;
            parent = below;
        };
        if above.keys.is_empty() {
            // No sibling: the parent needs one first.
            return Ok(true);
        }
        let seen = self.begin(memory, above.values[index])?;
        self.validate(&parent)?;
        let (_, head) = self.view(memory, &seen)?;
        let capacity = if level == 0 { self.leaf.capacity } else { self.inner.capacity };
        if head.count > capacity / 4 {
            self.validate(&seen)?;
            return Ok(false);
        }
        // With the right sibling, or the left one of a last child.
        let index = index.min(above.keys.len() - 1);
        let left = self.begin(memory, above.values[index])?;
        let right = self.begin(memory, above.values[index + 1])?;
        self.validate(&parent)?;
        let (a, b) = (self.node(memory, &left)?, self.node(memory, &right)?);
        let Some(merged) = self.joined(a, above.keys[index], b) else { return Ok(false) };
        let mut above = above;
        above.keys.remove(index);
        above.values.remove(index + 1);
        let small = above.keys.len() <= self.inner.capacity / 4;
        let mut writes = WriteSet::new();
        writes.write_bytes(left.at, &self.bytes_of(&merged));
        writes.write_bytes(parent.at, &self.bytes_of(&Node::Inner(above)));
        self.commit_or_free(memory, writes, [&parent, &left, &right], [])?;
        self.free(memory, right.at);
        Ok(small)
    }

    /// Two siblings in one, if they fit with some room to grow.
    fn joined(&self, left: Node<V>, separator: u64, right: Node<V>) -> Option<Node<V>> {
        match (left, right) {
            (Node::Leaf(mut left), Node::Leaf(right)) => {
                let either_empty = left.keys.is_empty() || right.keys.is_empty();
                left.keys.extend(right.keys);
                left.values.extend(right.values);
                left.next = right.next;
                let most = if either_empty { self.leaf.capacity } else { self.leaf.capacity * 3 / 4 };
                (left.keys.len() <= most).then_some(Node::Leaf(left))
            }
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
        let child = self.begin(memory, image.values[0])?;
        self.validate(root)?;
        let node = self.node(memory, &child)?;
        let level = image.level - 1;
        let mut writes = WriteSet::new();
        writes.write_bytes(root.at, &self.bytes_of(&node));
        self.commit_or_free(memory, writes, [root, &child], [])?;
        self.free(memory, child.at);
        // The next call finds the root one level lower, and may shrink it again.
        Ok(level > 0)
    }
}

/// Cuts a full node in two, and says what separates them. In the middle, unless `key` goes beyond the last key: keys that
/// arrive in ascending order then leave full nodes behind.
fn cut<V: Plain>(node: Node<V>, key: u64) -> (Node<V>, u64, Node<V>) {
    let middle = |keys: &[u64]| {
        let ascending = keys.last().is_some_and(|&last| last < key);
        if ascending { keys.len() - (keys.len() / 8).max(1) } else { keys.len() / 2 }
    };
    match node {
        Node::Leaf(mut left) => {
            let at = middle(&left.keys);
            let right =
                Image { level: 0, next: left.next, keys: left.keys.split_off(at), values: left.values.split_off(at) };
            (Node::Leaf(left), right.keys[0], Node::Leaf(right))
        }
        Node::Inner(mut left) => {
            // The separator itself goes up, and each half keeps at least one key.
            let at = middle(&left.keys).min(left.keys.len() - 2);
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
