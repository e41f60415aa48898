//! The unique index on `Subscriber.sub_nbr`: a hash map from the number to `s_id`.

use std::sync::Arc;

use fulgurite_memory::{AccessError, HashMap, HashMapRoot, Heap, Latch, Memory, Region, SUBPAGE_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::schema::{SubNbr, sub_nbr};
use crate::{WorkloadError, header};

/// A number as a key: its 15 digits and a zero, in words, which compare faster than bytes.
type Key = [u64; 2];
type Map<L> = HashMap<Key, u32, L>;

/// Latches, shared by hash of the bucket. The index is never changed after the load, so few do.
const LATCH_COUNT: usize = 64;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct IndexRoot {
    map: HashMapRoot,
    heap: Region,
}

#[derive(Debug)]
pub(super) struct Index<L> {
    map: Map<L>,
    heap: Arc<Heap>,
}

fn key_of(number: &SubNbr) -> Key {
    let mut bytes = [0; 16];
    bytes[..15].copy_from_slice(number);
    let (words, _) = bytes.as_chunks::<8>();
    [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]
}

/// Bytes that the buckets take, and the blocks that do not fit into them.
fn parts<L: Latch>(count: u64) -> [u64; 2] {
    let buckets = Map::<L>::bytes_needed(count);
    [buckets, (buckets / 4 + 16 * SUBPAGE_BYTES as u64).next_multiple_of(SUBPAGE_BYTES as u64)]
}

/// Bytes that an index of `count` subscribers takes.
pub(super) fn bytes<L: Latch>(count: u64) -> u64 {
    parts::<L>(count).iter().sum()
}

impl<L: Latch> Index<L> {
    pub(super) fn build<M: Memory>(
        memory: &mut M,
        region: Region,
        count: u64,
        progress: &mut dyn FnMut(f64),
    ) -> Result<IndexRoot, AccessError> {
        let (buckets, heap_region) = region.split(parts::<L>(count)[0]);
        let heap = Arc::new(Heap::create(memory, heap_region)?);
        let entries = (0..count).map(|s_id| {
            if s_id.is_multiple_of(header::PROGRESS_EVERY) {
                progress(s_id as f64 / count as f64);
            }
            (key_of(&sub_nbr(s_id as u32)), s_id as u32)
        });
        let map = Map::<L>::bulk(memory, buckets, heap.clone(), count, 1, entries)?;
        heap.save(memory)?;
        Ok(IndexRoot { map: map.root(), heap: heap_region })
    }

    pub(super) fn open<M: Memory>(memory: &mut M, root: IndexRoot) -> Result<Self, AccessError> {
        let heap = Arc::new(Heap::open(memory, root.heap)?);
        Ok(Index { map: Map::open(root.map, heap.clone(), LATCH_COUNT)?, heap })
    }

    /// Every subscriber, and no other, is found by its number.
    pub(super) fn check<M: Memory>(
        &self,
        workload: &'static str,
        memory: &mut M,
        count: u64,
    ) -> Result<(), WorkloadError> {
        let broken = |what| Err(WorkloadError::Inconsistent { workload, what });
        let len = self.map.check(memory)?;
        if len != count {
            return broken(format!("the index knows {len} of {count} subscribers"));
        }
        let mut wrong = None;
        self.map.for_each(memory, |key, &s_id| {
            if u64::from(s_id) >= count || *key != key_of(&sub_nbr(s_id)) {
                wrong = Some(s_id);
            }
        })?;
        match wrong {
            Some(s_id) => broken(format!("the index finds subscriber {s_id} by a number of another")),
            None => Ok(()),
        }
    }

    pub(super) fn dram_bytes(&self) -> u64 {
        (self.map.dram_bytes() + self.heap.dram_bytes()) as u64
    }
}
