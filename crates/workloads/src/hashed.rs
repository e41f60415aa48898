//! A hash map that is built at once, and its heap, in a region of their own.

use std::sync::Arc;

use fulgurite_memory::{AccessError, HashMap, HashMapRoot, Heap, KeyHash, Latch, Memory, Plain, Region, SUBPAGE_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What leads to a [`Hashed`].
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct HashedRoot {
    map: HashMapRoot,
    heap: Region,
}

/// The map, open.
#[derive(Debug)]
pub(crate) struct Hashed<K, V, L> {
    pub map: HashMap<K, V, L>,
    heap: Arc<Heap>,
}

impl<K: KeyHash + Eq, V: Plain, L: Latch> Hashed<K, V, L> {
    /// Bytes of buckets for `count` entries, and of heap for the blocks that do not fit into them:
    /// about a fifth of the buckets' at the map's own capacity, and room for the heap's header and
    /// first slabs.
    fn parts(count: u64) -> [u64; 2] {
        let buckets = HashMap::<K, V, L>::bytes_needed(count);
        [buckets, (buckets / 4 + 16 * SUBPAGE_BYTES as u64).next_multiple_of(SUBPAGE_BYTES as u64)]
    }
    /// Bytes that a map of `count` entries takes.
    pub fn bytes(count: u64) -> u64 {
        Self::parts(count).iter().sum()
    }
    /// Makes a map of these entries, which are `count`.
    pub fn build<M: Memory>(
        memory: &mut M,
        region: Region,
        count: u64,
        entries: impl Iterator<Item = (K, V)>,
    ) -> Result<HashedRoot, AccessError> {
        let (buckets, rest) = region.split(Self::parts(count)[0]);
        let heap = Arc::new(Heap::create(memory, rest)?);
        let map = HashMap::<K, V, L>::bulk(memory, buckets, heap.clone(), count, 1, entries)?;
        heap.save(memory)?;
        Ok(HashedRoot { map: map.root(), heap: rest })
    }
    pub fn open<M: Memory>(memory: &mut M, root: HashedRoot, latch_count: usize) -> Result<Self, AccessError> {
        let heap = Arc::new(Heap::open(memory, root.heap)?);
        Ok(Hashed { map: HashMap::open(root.map, heap.clone(), latch_count)?, heap })
    }
    pub fn dram_bytes(&self) -> u64 {
        (self.map.dram_bytes() + self.heap.dram_bytes()) as u64
    }
}
