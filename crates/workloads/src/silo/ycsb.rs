//! "silo": transactions on a few keys, four of five of them only read.
//!
//! After the YCSB that the Silo paper runs (SOSP 2013, section 5.2), itself a variant of YCSB's
//! workload A (Cooper et al., SoCC 2010). It has 80% reads and 20% read-modify-writes instead of
//! blind writes, records of 100 bytes instead of 1000, keys of 8 bytes in a tree. Two things
//! differ: a transaction has [`YCSB_KEYS`] keys instead of one, so that there is something to keep
//! serialisable, and keys have a Zipf distribution, as AstriFlash's workloads do.
//!
//! ```text
//! +-----+---------+------------------------+
//! | tid | counter | payload[0..12]         |   112 bytes; the payload follows from key and counter
//! +-----+---------+------------------------+
//! ```
//!
//! A read-modify-write adds the request's weight to the counter, so the sums that remain do not
//! depend on the order.

use std::ops::ControlFlow;
use std::sync::Arc;

use fulgurite_memory::{
    AccessError, Address, Array, BPlusTree, BPlusTreeRoot, Heap, Latch, Memory, NoLatch, Ptr, Region, SUBPAGE_BYTES,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Record, Silo, Tid};
use crate::rows::Rows;
use crate::{Params, Random, Site, Workload, WorkloadError, ZipfKeys, header, mix};

/// Keys of a transaction.
pub const YCSB_KEYS: usize = 4;
/// Percent of accesses that change what they read.
const WRITES_PERCENT: u64 = 20;
/// Latches of records, 512 KiB: with 64 transactions of 4 keys under way, one in 256 collides with
/// another on a latch.
const LATCHES: usize = 1 << 16;

/// A row of 104 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Row {
    counter: u64,
    payload: [u64; 12],
}

/// A record, as it is stored: the layout of a [`Record`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Stored {
    tid: Tid,
    row: Row,
}

const _: () = assert!(size_of::<Record<Row>>() == 112 && size_of::<Stored>() == 112);

impl Row {
    #[inline]
    fn new(key: u64, counter: u64) -> Row {
        let first = mix(key ^ counter.rotate_left(32));
        Row { counter, payload: std::array::from_fn(|i| first.wrapping_mul(2 * i as u64 + 1)) }
    }
}

/// The epoch that built the records.
const FIRST_EPOCH: u32 = 1;

/// From a key to its record.
type Index<L> = BPlusTree<Address, L>;

/// Latches of the index. They are held for a moment, and only by writers.
const INDEX_LATCHES: usize = 1 << 10;
/// Keys that a leaf holds at least when it is filled (each takes 16 bytes, and a node has a head).
const KEYS_PER_LEAF: u64 = 250;
/// Subpages of a heap that are no nodes: its header, and what it has cut off in advance.
const HEAP_SUBPAGES: u64 = 2 + 16;

/// Bytes of a heap with room for an index with `keys` keys: leaves, inner nodes for each 250 of
/// them, a leaf that is not full and two inner nodes.
fn heap_bytes(keys: u64) -> u64 {
    (keys.div_ceil(KEYS_PER_LEAF) * 102 / 100 + 3 + HEAP_SUBPAGES) * SUBPAGE_BYTES as u64
}

/// Bytes of the index's heap, the epoch and the records.
fn bytes_of(count: u64) -> u64 {
    heap_bytes(count) + Array::<u32>::bytes_needed(1) + Array::<Stored>::bytes_needed(count)
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Root {
    count: u64,
    heap_bytes: u64,
    index: BPlusTreeRoot,
}

/// Silo under YCSB.
#[derive(Debug)]
pub struct SiloYcsb<L> {
    silo: Silo<L>,
    heap: Arc<Heap>,
    index: Index<L>,
    rows: Array<Stored>,
    keys: ZipfKeys,
}

/// One transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct YcsbRequest {
    /// Its keys. One may come twice.
    pub keys: [u64; YCSB_KEYS],
    /// Bit i: whether key i is changed.
    pub writes: u8,
    /// What is added to the counters.
    pub weight: u64,
}

impl<L: Latch> SiloYcsb<L> {
    /// The record of a key, which must have one.
    #[inline(always)]
    fn find<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Ptr<Record<Row>>, AccessError> {
        let (what, at) = ("index (a key that it must have)", self.index.root().root);
        let found = self.index.get(memory, key)?;
        found.map(Ptr::new).ok_or(AccessError::Corrupt { what, at, expected: key, got: 0 })
    }
}

impl<L: Latch> Workload for SiloYcsb<L> {
    const NAME: &'static str = "silo";
    const PINS: u32 = YCSB_KEYS as u32;
    type Request = YcsbRequest;

    fn build<M: Memory>(memory: &mut M, mut site: Site<'_>) -> Result<(), WorkloadError> {
        let (at, data) = site.split(Self::NAME, bytes_of(1))?;
        let count = header::most(data.bytes, bytes_of);
        let heap_bytes = heap_bytes(count);
        let (heap, mut rest) = data.split(heap_bytes);
        memory.store(Array::take(&mut rest, 1).at(0), FIRST_EPOCH)?;
        site.part(0.0, 0.9);
        let rows = Array::create(memory, rest, count, |key| {
            site.tick(key, count);
            Stored { tid: Tid::new(FIRST_EPOCH, 0), row: Row::new(key, 0) }
        })?;
        let heap = Arc::new(Heap::create(memory, heap)?);
        let index = Index::<NoLatch>::create(memory, heap.clone(), 1)?;
        index.bulk_load(memory, (0..count).map(|key| (key, rows.at(key).address())), 1.0)?;
        heap.save(memory)?;
        site.finish(memory, Self::NAME, at, Root { count, heap_bytes, index: index.root() })
    }

    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        let root: Root = header::read(memory, Self::NAME, region)?;
        let data = header::data(region);
        if root.count > data.bytes || bytes_of(root.count) > data.bytes {
            let what = "its records do not fit in this region; open all of the region it was built in".to_owned();
            return Err(WorkloadError::Unusable { workload: Self::NAME, what });
        }
        let (heap, mut rest) = data.split(root.heap_bytes);
        let heap = Arc::new(Heap::open(memory, heap)?);
        let epoch = Array::<u32>::take(&mut rest, 1).at(0);
        Ok(SiloYcsb {
            silo: Silo::open(memory, epoch, LATCHES)?,
            index: Index::open(memory, heap.clone(), root.index, INDEX_LATCHES)?,
            heap,
            rows: Array::take(&mut rest, root.count),
            keys: ZipfKeys::new(Self::NAME, root.count, params.zipf)?,
        })
    }

    #[inline]
    fn request(&self, seed: u64, number: u64) -> YcsbRequest {
        let mut random = Random::new(seed, number);
        let mut request = YcsbRequest { keys: [0; YCSB_KEYS], writes: 0, weight: random.next() };
        for (i, key) in request.keys.iter_mut().enumerate() {
            *key = self.keys.sample(&mut random);
            request.writes |= u8::from(random.percent(WRITES_PERCENT)) << i;
        }
        request
    }

    #[inline]
    fn execute<M: Memory>(&self, memory: &mut M, request: &YcsbRequest) -> Result<u64, AccessError> {
        self.silo.run(memory, |transaction, memory| {
            let mut found = 0u64;
            for (i, &key) in request.keys.iter().enumerate() {
                let record = self.find(memory, key)?;
                let row = transaction.read(memory, record)?;
                found = row.payload.iter().fold(found, |sum, &word| sum.wrapping_add(word));
                if request.writes >> i & 1 != 0 {
                    transaction.write(record, &Row::new(key, row.counter.wrapping_add(request.weight)));
                }
            }
            Ok(found)
        })
    }

    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        let broken = |what| Err(WorkloadError::Inconsistent { workload: Self::NAME, what });
        let mut sum = 0u64;
        for key in 0..self.rows.len() {
            let Stored { tid, row } = self.rows.get(memory, key)?;
            if !(FIRST_EPOCH..=self.silo.epoch()).contains(&tid.epoch()) {
                return broken(format!("record {key} is of epoch {}, and it is {}", tid.epoch(), self.silo.epoch()));
            }
            if (row.counter == 0) != (tid == Tid::new(FIRST_EPOCH, 0)) {
                return broken(format!("record {key} has {tid:?} and the counter {}", row.counter));
            }
            if row != Row::new(key, row.counter) {
                return broken(format!("record {key} has a payload that does not belong to its counter"));
            }
            sum = sum.wrapping_add(mix(key ^ mix(row.counter)));
        }
        let (mut next, mut right) = (0, true);
        self.index.scan(memory, 0, u64::MAX, |key, &address| {
            right = key == next && self.rows.ptr(key).is_some_and(|row| row.address() == address);
            next += 1;
            if right { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if !right || next != self.rows.len() {
            return broken("the index does not lead to each record once".to_owned());
        }
        self.index.check(memory)?;
        Ok(sum)
    }

    fn dram_bytes(&self) -> u64 {
        self.silo.dram_bytes() + (self.index.dram_bytes() + self.heap.dram_bytes()) as u64
    }
}
