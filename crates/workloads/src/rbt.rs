//! Red-Black Tree: look-ups down a binary tree ("data structure lookups with pointer chasing
//! behavior", AstriFlash section V-A), a few updates of values, and a few inserts and removals
//! ("limited write traffic").
//!
//! Even keys are there from the start and stay. Look-ups and updates go to them. Odd keys come and
//! go: a *toggle* inserts its key if it is not there and removes it if it is. So whether an odd key
//! is there in the end depends on how many toggles of it there were, not on their order, and the
//! tree never grows by more than one key in [`TOGGLED_EVERY`].
//!
//! Nodes are scattered over the heap, as they are after a life of inserts in random order: each
//! step down is to another subpage.
//!
//! Invariants, under any interleaving and after any error: the tree is a red-black tree. All even
//! keys and no unknown odd ones are there, each with its own payload. The first word of a
//! value is the sum of the weights of the updates of the key.

mod edit;
mod tree;

use std::sync::Arc;

use fulgurite_memory::{AccessError, Address, Heap, Latch, Layout, Memory, Ptr, Region, SUBPAGE_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::keys::{Random, ZipfKeys};
use crate::rows::{hash_of, increase, is_of, payload, row_of};
use crate::{Params, Site, Workload, WorkloadError, header};

pub use tree::RedBlackTree;

/// Shares of requests, of 100: the paper says look-ups and limited write traffic. The rest toggle.
const LOOKUP_PERCENT: u64 = 90;
const UPDATE_PERCENT: u64 = 5;
/// One odd key may be inserted for this number of even ones.
const TOGGLED_EVERY: u64 = 64;
/// Latches for values, shared by hash of the node.
const LATCH_COUNT: usize = 4096;
/// Room in the heap for its header, the tree's root, and slabs that are begun: two pages and a
/// little.
const HEAP_SLACK_BYTES: u64 = 36 * SUBPAGE_BYTES as u64;

/// A value, with its links and key it fills a cache line.
type Value = [u64; 5];

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Header {
    cell: Address,
    heap: Region,
    count: u64,
}

type Tree<L> = RedBlackTree<Value, L>;

/// The tree, open.
#[derive(Debug)]
pub struct Rbt<L> {
    tree: Tree<L>,
    heap: Arc<Heap>,
    keys: ZipfKeys,
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RbtRequest {
    /// Finds the key.
    Lookup(u64),
    /// Adds to the key's sum.
    Update(u64, u64),
    /// Inserts the key, or removes it if it is there.
    Toggle(u64),
}

/// The key with this index, there from the start.
const fn lasting(index: u64) -> u64 {
    2 * index
}
/// The key that is inserted and removed after the `slot * TOGGLED_EVERY`th lasting one.
const fn toggled(slot: u64) -> u64 {
    lasting(slot * TOGGLED_EVERY) + 1
}

/// Bytes that a heap needs for a tree with `count` lasting keys.
fn heap_bytes<L: Latch>(count: u64) -> u64 {
    let per_subpage = (SUBPAGE_BYTES / Tree::<L>::NODE_BYTES) as u64;
    // Each writer has a fresh node in hand for a moment: room for a thousand of them.
    let nodes = count + count.div_ceil(TOGGLED_EVERY) + 1024.min(count);
    nodes.div_ceil(per_subpage) * SUBPAGE_BYTES as u64 + HEAP_SLACK_BYTES
}

impl<L: Latch> Workload for Rbt<L> {
    const NAME: &'static str = "rbt";
    const PINS: u32 = Tree::<L>::PINS;
    type Request = RbtRequest;

    fn build<M: Memory>(memory: &mut M, mut site: Site<'_>) -> Result<(), WorkloadError> {
        let (at, data) = site.split(Self::NAME, 2 * HEAP_SLACK_BYTES)?;
        let count = header::most(data.bytes, heap_bytes::<L>);
        let heap = Arc::new(Heap::create(memory, data)?);
        let layout = Layout::Scattered { seed: site.params.seed };
        let tree = Tree::<L>::bulk(memory, heap.clone(), count, layout, |index| {
            site.tick(index, count);
            (lasting(index), row_of(lasting(index)))
        })?;
        heap.save(memory)?;
        let cell = tree.cell().address();
        site.finish(memory, Self::NAME, at, Header { cell, heap: data, count })
    }

    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        let header: Header = header::read(memory, Self::NAME, region)?;
        let heap = Arc::new(Heap::open(memory, header.heap)?);
        Ok(Rbt {
            tree: Tree::open(Ptr::new(header.cell), heap.clone(), LATCH_COUNT)?,
            heap,
            keys: ZipfKeys::new(Self::NAME, header.count, params.zipf)?,
        })
    }

    #[inline]
    fn request(&self, seed: u64, number: u64) -> RbtRequest {
        let mut random = Random::new(seed, number);
        let index = self.keys.sample(&mut random);
        match random.below(100) {
            draw if draw < LOOKUP_PERCENT => RbtRequest::Lookup(lasting(index)),
            draw if draw < LOOKUP_PERCENT + UPDATE_PERCENT => RbtRequest::Update(lasting(index), random.next()),
            _ => RbtRequest::Toggle(toggled(index / TOGGLED_EVERY)),
        }
    }

    #[inline]
    fn execute<M: Memory>(&self, memory: &mut M, request: &RbtRequest) -> Result<u64, AccessError> {
        match *request {
            RbtRequest::Lookup(key) => Ok(self.tree.get(memory, key)?.as_ref().map_or(0, payload)),
            RbtRequest::Update(key, weight) => {
                Ok(self.tree.update(memory, key, |value| increase(value, weight))?.unwrap_or(0))
            }
            // Exactly one change, whatever else toggles the same key: a removal that found it, or
            // an insert that did not. An insert that finds it writes what is there already.
            RbtRequest::Toggle(key) => loop {
                if self.tree.remove(memory, key)?.is_some() {
                    return Ok(0);
                }
                if self.tree.insert(memory, key, row_of(key))?.is_none() {
                    return Ok(1);
                }
            },
        }
    }

    /// Lasting keys and their payloads never change.
    #[inline]
    fn answer_is_fixed(&self, request: &RbtRequest) -> bool {
        !matches!(request, RbtRequest::Toggle(_))
    }

    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        let broken = |what| Err(WorkloadError::Inconsistent { workload: Self::NAME, what });
        let count = self.keys.count();
        let (mut sum, mut lasting_keys, mut wrong) = (0u64, 0, None);
        self.tree.check(memory, |key, value| {
            let comes_and_goes = key % 2 == 1;
            let known = if comes_and_goes {
                (key - 1).is_multiple_of(2 * TOGGLED_EVERY) && value[0] == 0
            } else {
                lasting_keys += 1;
                true
            };
            if !known || key / 2 >= count || !is_of(&value, key) {
                wrong = Some(key);
            }
            sum = sum.wrapping_add(hash_of(&value, key));
        })?;
        if let Some(key) = wrong {
            return broken(format!("key {key} has the value of another, or was never put in"));
        }
        if lasting_keys != count {
            return broken(format!("{lasting_keys} of {count} lasting keys are there"));
        }
        Ok(sum)
    }

    fn save<M: Memory>(&self, memory: &mut M) -> Result<(), WorkloadError> {
        Ok(self.heap.save(memory)?)
    }

    fn dram_bytes(&self) -> u64 {
        (self.tree.dram_bytes() + self.heap.dram_bytes()) as u64
    }
}
