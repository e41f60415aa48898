//! Indexes: trees from keys to the records of a table.

use std::ops::ControlFlow;
use std::sync::Arc;

use fulgurite_memory::{
    AccessError, Address, BPlusTree, BPlusTreeRoot, Heap, Latch, Memory, NoLatch, Pinned, Plain, Ptr, SUBPAGE_BYTES,
};

use super::{Record, Tid};
use crate::WorkloadError;
use crate::tpcc::rows::{Rows, pin};

/// From a key to a record.
pub(super) type Index<L> = BPlusTree<Address, L>;

/// Latches of an index. They are held for a moment, and only by writers.
const LATCHES: usize = 1 << 10;
/// Keys that a leaf holds at least when it is filled (each takes 16 bytes, and a node has a head).
const KEYS_PER_LEAF: u64 = 250;

/// Subpages of a heap that are no nodes: its header, and what it has cut off in advance.
const HEAP_SUBPAGES: u64 = 2 + 16;

/// Bytes of a heap with room for `trees` indexes with `keys` keys altogether, and one with
/// `changing` keys that come and go.
pub(super) fn heap_bytes(trees: u64, keys: u64, changing: u64) -> u64 {
    // Leaves, inner nodes for each 250 of them, and for each tree a leaf that is not full and two
    // inner nodes.
    let nodes = |keys: u64, trees: u64| keys.div_ceil(KEYS_PER_LEAF) * 102 / 100 + 3 * trees;
    // Nodes of an index under change are half full at worst. And some for what a heap loses that
    // was not saved.
    let under_change = if changing == 0 { 0 } else { 3 * nodes(changing, 1) + keys / KEYS_PER_LEAF / 64 };
    (nodes(keys, trees) + under_change + HEAP_SUBPAGES) * SUBPAGE_BYTES as u64
}

/// Makes the index of a table: key `keys(i)` for record `i`. Keys ascend.
pub(super) fn build<M: Memory, T>(
    memory: &mut M,
    heap: &Arc<Heap>,
    rows: &Rows<Record<T>>,
    fill: f64,
    keys: impl Fn(u64) -> u64,
) -> Result<BPlusTreeRoot, WorkloadError> {
    let index = Index::<NoLatch>::create(memory, heap.clone(), 1)?;
    index.bulk_load(memory, (0..rows.count()).map(|i| (keys(i), rows.at(i).address())), fill)?;
    Ok(index.root())
}

pub(super) fn open<L: Latch, M: Memory>(
    memory: &mut M,
    heap: &Arc<Heap>,
    root: BPlusTreeRoot,
) -> Result<Index<L>, AccessError> {
    Index::open(memory, heap.clone(), root, LATCHES)
}

/// The record of a key that must have one.
#[inline(always)]
pub(super) fn find<T, L: Latch, M: Memory>(
    memory: &mut M,
    index: &Index<L>,
    key: u64,
) -> Result<Ptr<Record<T>>, AccessError> {
    match index.get(memory, key)? {
        Some(address) => Ok(Ptr::new(address)),
        None => Err(AccessError::Corrupt {
            what: "index (a key that it must have)",
            at: index.root().root,
            expected: key,
            got: 0,
        }),
    }
}

/// Writes all records of a table, a whole subpage with each access.
pub(super) fn fill<M: Memory, T: Plain>(
    memory: &mut M,
    rows: &Rows<Record<T>>,
    tid: Tid,
    done: &mut u64,
    progress: &mut dyn FnMut(u64),
    mut row: impl FnMut(u64) -> T,
) -> Result<(), WorkloadError> {
    let mut index = 0;
    while index < rows.count() {
        let subpage = rows.at(index).address().subpage();
        let pinned = pin(memory, rows.at(index))?;
        while index < rows.count() && rows.at(index).address().subpage() == subpage {
            let at = rows.at(index).address().subpage_offset();
            let view = pinned.view_mut(at, size_of::<Record<T>>());
            view.store(0, tid);
            view.store(8, row(index));
            index += 1;
        }
        *done += 1;
        if done.is_multiple_of(1024) {
            progress(*done);
        }
    }
    Ok(())
}

/// Whether an index has exactly the keys `keys(i)`, each for record `i`.
pub(super) fn is_complete<T, L: Latch, M: Memory>(
    memory: &mut M,
    index: &Index<L>,
    rows: &Rows<Record<T>>,
    keys: impl Fn(u64) -> u64,
) -> Result<bool, AccessError> {
    let (mut next, mut right) = (0, true);
    index.scan(memory, 0, u64::MAX, |key, &address| {
        right = next < rows.count() && key == keys(next) && address == rows.at(next).address();
        next += 1;
        if right { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(right && next == rows.count())
}

/// Reads a record without concurrent writers: its identifier, and its row.
pub(super) fn read<M: Memory, T: Plain>(memory: &mut M, record: Ptr<Record<T>>) -> Result<(Tid, T), AccessError> {
    let view = memory.view(record.address(), size_of::<Record<T>>())?;
    Ok((view.load(0), view.load(8)))
}
