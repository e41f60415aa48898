//! A B+-tree index: nodes of up to 1 KiB, values in the leaves.

use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

use allocator_api2::boxed::Box as AnyBox;
use anyhow::{Context, Result, ensure};
use fulgurite_workloads::mix;

use crate::alloc::memory::Slab;
use crate::alloc::program::{Plain, Request};

/// Keys that a node has room for.
pub const KEYS: usize = 60;
/// Keys that it has: as many as in a tree that grew by random keys.
pub const FILLED: usize = 41;

type Child = AnyBox<Node, Slab>; // allocator

/// A node: its keys, in order, and what is behind each. An inner node's first key is the least of
/// the first child.
struct Node {
    count: usize,
    keys: [u64; KEYS],
    behind: Behind,
}

enum Behind {
    Values([AtomicU64; KEYS]),
    Children([Option<Child>; KEYS]),
}

struct Tree {
    root: RwLock<Child>,
    count: u64,
}

impl Node {
    fn leaf() -> Node {
        Node { count: 0, keys: [0; KEYS], behind: Behind::Values([const { AtomicU64::new(0) }; KEYS]) }
    }
    fn inner() -> Node {
        Node { count: 0, keys: [0; KEYS], behind: Behind::Children([const { None }; KEYS]) }
    }
    /// Where a key is, or belongs behind.
    fn place(&self, key: u64) -> usize {
        self.keys[..self.count].partition_point(|other| *other <= key).saturating_sub(1)
    }
    fn find(&self, key: u64) -> Option<&AtomicU64> {
        let at = self.place(key);
        match &self.behind {
            Behind::Values(values) => (self.count > 0 && self.keys[at] == key).then(|| &values[at]),
            Behind::Children(children) => children[at].as_ref()?.find(key),
        }
    }
}

impl Tree {
    /// Appends a key that is above all others.
    fn append(&self, key: u64) -> Result<()> {
        let mut root = self.root.write().ok().context("another thread failed")?;
        let Some(right) = append(&mut root, key)? else { return Ok(()) };
        let left = std::mem::replace(&mut *root, new(Node::inner())?);
        let (least, middle) = (left.keys[0], right.keys[0]);
        root.push(least, 0, Some(left));
        root.push(middle, 0, Some(right));
        Ok(())
    }
}

fn new(node: Node) -> Result<Child> {
    AnyBox::try_new_in(node, Slab).ok().context("the memory is full") // allocator
}

/// Appends a key to a subtree. Returns a new subtree to put next to it, where its nodes are full.
fn append(node: &mut Node, key: u64) -> Result<Option<Child>> {
    let grown = match &mut node.behind {
        Behind::Values(_) => None,
        Behind::Children(children) => {
            let last = children[node.count - 1].as_mut().context("a child is missing")?;
            let Some(right) = append(last, key)? else { return Ok(None) };
            Some(right)
        }
    };
    if node.count < FILLED {
        node.push(key, first_value(key), grown);
        return Ok(None);
    }
    let mut right = new(if grown.is_some() { Node::inner() } else { Node::leaf() })?;
    right.push(key, first_value(key), grown);
    Ok(Some(right))
}

impl Node {
    /// Appends a key, and a value or a child.
    fn push(&mut self, key: u64, value: u64, child: Option<Child>) {
        self.keys[self.count] = key;
        match &mut self.behind {
            Behind::Values(values) => *values[self.count].get_mut() = value,
            Behind::Children(children) => children[self.count] = child,
        }
        self.count += 1;
    }
    /// Keys below this node, a number that is made of them, and the least and the most of them.
    fn check(&self, from: u64, to: u64) -> Result<(u64, u64)> {
        ensure!(self.keys[..self.count].is_sorted_by(|a, b| a < b), "the keys of a node are not in order");
        ensure!(self.keys[..self.count].iter().all(|key| (from..=to).contains(key)), "a key is in another's subtree");
        let (mut count, mut sum) = (0, 0u64);
        for at in 0..self.count {
            match &self.behind {
                Behind::Values(values) => {
                    let value = values[at].load(Ordering::Relaxed);
                    is_of(self.keys[at], value)?;
                    (count, sum) = (count + 1, sum.wrapping_add(mix(self.keys[at])));
                }
                Behind::Children(children) => {
                    let below = if at + 1 < self.count { self.keys[at + 1] - 1 } else { to };
                    let child = children[at].as_ref().context("a child is missing")?;
                    let (more, of_these) = child.check(self.keys[at], below)?;
                    (count, sum) = (count + more, sum.wrapping_add(of_these));
                }
            }
        }
        Ok((count, sum))
    }
}

/// Nodes that take `bytes` bytes together.
pub fn nodes(bytes: u64) -> u64 {
    bytes / size_of::<Node>() as u64
}
/// Keys of a tree of `bytes` bytes. Some of its nodes are inner ones.
pub fn count(bytes: u64) -> u64 {
    nodes(bytes) * FILLED as u64 / 64 * 62
}
/// A key of the tree.
pub fn key_of(number: u64) -> u64 {
    number << 20
}
/// The value that a key has first.
pub fn first_value(key: u64) -> u64 {
    mix(key) >> 32 << 32
}
/// The value of a key after a write.
pub fn value(key: u64, number: u64) -> u64 {
    first_value(key) | number & 0xFFFF_FFFF
}
/// Whether a value is of this key.
pub fn is_of(key: u64, value: u64) -> Result<()> {
    ensure!(value >> 32 << 32 == first_value(key), "the value of {key} is another's");
    Ok(())
}

pub fn open(bytes: u64) -> Result<Box<dyn Plain>> {
    let tree = Tree { root: RwLock::new(new(Node::leaf())?), count: count(bytes) };
    for number in 0..tree.count {
        tree.append(key_of(number))?;
    }
    Ok(Box::new(tree))
}

impl Plain for Tree {
    fn keys(&self) -> u64 {
        self.count
    }
    fn execute(&self, Request { key, writes, number }: Request) -> Result<()> {
        let key = key_of(key);
        let root = self.root.read().ok().context("another thread failed")?;
        let found = root.find(key).with_context(|| format!("{key} was inserted and is not there"))?;
        is_of(key, found.load(Ordering::Relaxed))?;
        if writes {
            found.store(value(key, number), Ordering::Relaxed);
        }
        Ok(())
    }
    fn check(&self) -> Result<u64> {
        let root = self.root.read().ok().context("another thread failed")?;
        let (count, sum) = root.check(0, u64::MAX)?;
        ensure!(count == self.count, "{count} of {} keys are there", self.count);
        Ok(sum)
    }
}
