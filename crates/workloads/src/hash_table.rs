//! Hash Table: look-ups that follow a chain ("data structure lookups with pointer chasing
//! behavior", AstriFlash section V-A), and a few updates ("limited write traffic").
//!
//! Invariants, under any interleaving and after any error: the table holds the keys `0..count`,
//! each with its own payload (nothing is torn or mixed). `changed` is the sum of the weights of the
//! updates of the key. It does not depend on their order and is what `check` hashes.

use std::sync::Arc;

use fulgurite_memory::{AccessError, HashMap, HashMapRoot, Heap, Latch, Memory, Region, SUBPAGE_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::keys::{Random, ZipfKeys, mix};
use crate::{Params, Workload, WorkloadError, header};

/// Share of requests that only look up, of 100. The paper says look-ups, and writes limited as
/// production key-value stores see them. 9 to 1 is the low end of what the studies it cites report
/// for caches.
const LOOKUP_PERCENT: u64 = 90;
/// Latches, shared by hash of the bucket.
const LATCH_COUNT: usize = 4096;

/// A value: 120 bytes, so that key and value are two cache lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Value {
    changed: u64,
    payload: [u64; 14],
}

impl Value {
    fn of(key: u64) -> Value {
        Value { changed: 0, payload: std::array::from_fn(|i| mix(key ^ (i as u64 + 1) << 56)) }
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Header {
    root: HashMapRoot,
    heap: Region,
    count: u64,
}

type Map<L> = HashMap<u64, Value, L>;

/// The table, open.
#[derive(Debug)]
pub struct HashTable<L> {
    map: Map<L>,
    heap: Arc<Heap>,
    keys: ZipfKeys,
}

/// One look-up or update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyRequest {
    /// The key.
    pub key: u64,
    /// What is added to the key's sum. `None` for a look-up.
    pub add: Option<u64>,
}

/// Bytes of heap for the blocks that do not fit into their buckets: about a fifth of the buckets'
/// at the map's own capacity, and room for the heap's header and first slabs.
fn heap_bytes(bucket_bytes: u64) -> u64 {
    (bucket_bytes / 4 + 16 * SUBPAGE_BYTES as u64).next_multiple_of(SUBPAGE_BYTES as u64)
}

impl<L: Latch> Workload for HashTable<L> {
    const NAME: &'static str = "hash-table";
    const PINS: u32 = Map::<L>::PINS;
    type Request = KeyRequest;

    fn build<M: Memory>(
        memory: &mut M,
        region: Region,
        params: &Params,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), WorkloadError> {
        let (at, data) = header::split(Self::NAME, region, params.bytes, 64 * SUBPAGE_BYTES as u64)?;
        let bytes = |count| Map::<L>::bytes_needed(count) + heap_bytes(Map::<L>::bytes_needed(count));
        let count = header::most(data.bytes, bytes);
        let (buckets, rest) = data.split(Map::<L>::bytes_needed(count));
        let heap = Arc::new(Heap::create(memory, rest)?);
        let entries = (0..count).map(|key| {
            if key.is_multiple_of(header::PROGRESS_EVERY) {
                progress(key as f64 / count as f64);
            }
            (key, Value::of(key))
        });
        let map = Map::<L>::bulk(memory, buckets, heap.clone(), count, 1, entries)?;
        heap.save(memory)?;
        header::write(memory, Self::NAME, at, Header { root: map.root(), heap: rest, count })?;
        progress(1.0);
        Ok(())
    }

    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        let header: Header = header::read(memory, Self::NAME, region)?;
        let heap = Arc::new(Heap::open(memory, header.heap)?);
        Ok(HashTable {
            map: Map::open(header.root, heap.clone(), LATCH_COUNT)?,
            heap,
            keys: ZipfKeys::new(Self::NAME, header.count, params.zipf)?,
        })
    }

    #[inline]
    fn request(&self, seed: u64, number: u64) -> KeyRequest {
        let mut random = Random::new(seed, number);
        let key = self.keys.sample(&mut random);
        KeyRequest { key, add: (!random.percent(LOOKUP_PERCENT)).then(|| random.next()) }
    }

    #[inline]
    fn execute<M: Memory>(&self, memory: &mut M, request: &KeyRequest) -> Result<u64, AccessError> {
        if let Some(weight) = request.add {
            let changed = self.map.update(memory, &request.key, |value| {
                value.changed = value.changed.wrapping_add(weight);
                value.payload[0]
            })?;
            return Ok(changed.unwrap_or(0));
        }
        let value = self.map.get(memory, &request.key)?;
        Ok(value.map_or(0, |value| value.payload.iter().fold(0, |sum, word| sum ^ word)))
    }

    /// Payloads never change, and updates return a word of them.
    #[inline]
    fn answer_is_fixed(&self, _: &KeyRequest) -> bool {
        true
    }

    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        let broken = |what| WorkloadError::Inconsistent { workload: Self::NAME, what };
        let len = self.map.check(memory)?;
        if len != self.keys.count() {
            return Err(broken(format!("{len} keys, and {} were put in", self.keys.count())));
        }
        let (mut sum, mut wrong) = (0u64, None);
        self.map.for_each(memory, |&key, value| {
            if key >= len || *value != (Value { changed: value.changed, ..Value::of(key) }) {
                wrong = Some(key);
            }
            sum = sum.wrapping_add(mix(mix(key).wrapping_add(value.changed)));
        })?;
        match wrong {
            Some(key) => Err(broken(format!("key {key} has the value of another, or was never put in"))),
            None => Ok(sum),
        }
    }

    fn dram_bytes(&self) -> u64 {
        (self.map.dram_bytes() + self.heap.dram_bytes()) as u64
    }
}
