//! The B+-tree: a blob for each node, whose children are numbers of blobs.

use anyhow::{Context as _, Result, ensure};
use fulgurite::Context;
use fulgurite_workloads::mix;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::flash::{Flash, Rewritten};
use crate::alloc::memory::MemoryPlan;
use crate::alloc::program::Request;
use crate::alloc::programs::b_plus_tree::{FILLED, KEYS, count, first_value, is_of, key_of, nodes, value};

/// A node: its keys, in order, and a value or a child behind each.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Node {
    count: u64,
    /// Levels below it.
    level: u64,
    keys: [u64; KEYS],
    behind: [u64; KEYS],
}

struct Tree {
    root: u64,
    /// Leaves have the first numbers.
    leaves: u64,
    count: u64,
}

pub fn open(plan: &MemoryPlan, bytes: u64) -> Result<(Flash, Box<dyn Rewritten>)> {
    let flash = Flash::make(plan, nodes(bytes), size_of::<Node>(), 0)?;
    let count = count(bytes);
    let root = flash.job(|m| build(&flash, m, count))?;
    Ok((flash, Box::new(Tree { root, leaves: count.div_ceil(FILLED as u64), count })))
}

/// Level by level, from keys in order. Returns the number of the root.
fn build(flash: &Flash, m: &mut Context, count: u64) -> Result<u64> {
    let (mut level, mut below, mut below_len, mut keys_of_one, mut next) = (0, 0, count, 1, 0);
    loop {
        let first = next;
        for start in (0..below_len).step_by(FILLED) {
            let mut node = Node { level, ..Node::new_zeroed() };
            for entry in start..(start + FILLED as u64).min(below_len) {
                let (at, key) = (node.count as usize, key_of(entry * keys_of_one));
                node.keys[at] = key;
                node.behind[at] = if level == 0 { first_value(key) } else { below + entry };
                node.count += 1;
            }
            flash.blobs.put(m, &next, node.as_bytes())?;
            next += 1;
        }
        if next - first == 1 {
            return Ok(first);
        }
        (level, below, below_len, keys_of_one) = (level + 1, first, next - first, keys_of_one * FILLED as u64);
    }
}

fn read(flash: &Flash, m: &mut Context, number: u64, bytes: &mut Vec<u8>) -> Result<Node> {
    flash.get(m, number, bytes)?;
    let node = Node::read_from_bytes(bytes).ok().context("a node is cut short")?;
    ensure!((1..=KEYS as u64).contains(&node.count), "a node has {} keys", node.count);
    Ok(node)
}

impl Node {
    fn keys(&self) -> &[u64] {
        &self.keys[..self.count as usize]
    }
    /// Where a key is, or belongs behind.
    fn place(&self, key: u64) -> usize {
        self.keys().partition_point(|other| *other <= key).saturating_sub(1)
    }
}

impl Rewritten for Tree {
    fn keys(&self) -> u64 {
        self.count
    }
    fn execute(&self, flash: &Flash, m: &mut Context, Request { key, writes, number }: Request) -> Result<()> {
        let (key, mut at, mut bytes) = (key_of(key), self.root, Vec::new());
        loop {
            let node = read(flash, m, at, &mut bytes)?;
            let plan = node.place(key);
            if node.level > 0 {
                at = node.behind[plan];
                continue;
            }
            ensure!(node.keys[plan] == key, "{key} was inserted and is not there");
            is_of(key, node.behind[plan])?;
            if !writes {
                return Ok(());
            }
            return flash.update(m, at, |bytes| {
                let mut node = Node::read_from_bytes(bytes).ok().context("a node is cut short")?;
                node.behind[plan] = value(key, number);
                bytes.copy_from_slice(node.as_bytes());
                Ok(())
            });
        }
    }
    fn check(&self, flash: &Flash, m: &mut Context) -> Result<u64> {
        let (mut found, mut sum, mut bytes) = (0, 0u64, Vec::new());
        for leaf in 0..self.leaves {
            let node = read(flash, m, leaf, &mut bytes)?;
            for (key, value) in node.keys().iter().zip(node.behind) {
                ensure!(*key == key_of(found), "the keys of a node are not in order");
                is_of(*key, value)?;
                (found, sum) = (found + 1, sum.wrapping_add(mix(*key)));
            }
        }
        ensure!(found == self.count, "{found} of {} keys are there", self.count);
        Ok(sum)
    }
}
