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

use std::sync::Arc;

use fulgurite_memory::{AccessError, BPlusTreeRoot, Heap, Latch, Memory, Ptr, Region, SUBPAGE_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::index::{self, Index};
use super::{Record, Silo, Tid};
use crate::tpcc::rows::Rows;
use crate::{Params, Random, Workload, WorkloadError, ZipfKeys, header, mix};

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

const _: () = assert!(size_of::<Record<Row>>() == 112);

impl Row {
    #[inline]
    fn new(key: u64, counter: u64) -> Row {
        let first = mix(key ^ counter.rotate_left(32));
        Row { counter, payload: std::array::from_fn(|i| first.wrapping_mul(2 * i as u64 + 1)) }
    }
}

/// The epoch that built the records.
const FIRST_EPOCH: u32 = 1;

/// Bytes of the indexes' heap, the epoch and the records.
fn bytes_of(count: u64) -> u64 {
    index::heap_bytes(1, count, 0) + Rows::<u32>::bytes(1) + Rows::<Record<Row>>::bytes(count)
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
    rows: Rows<Record<Row>>,
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

impl<L: Latch> Workload for SiloYcsb<L> {
    const NAME: &'static str = "silo";
    const PINS: u32 = YCSB_KEYS as u32;
    type Request = YcsbRequest;

    fn build<M: Memory>(
        memory: &mut M,
        region: Region,
        params: &Params,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), WorkloadError> {
        let (at, data) = header::split(Self::NAME, region, params.bytes, bytes_of(1))?;
        let count = header::most(data.bytes, bytes_of);
        let heap_bytes = index::heap_bytes(1, count, 0);
        let (heap, mut rest) = data.split(heap_bytes);
        memory.store(Rows::take(&mut rest, 1).at(0), FIRST_EPOCH)?;
        let rows = Rows::<Record<Row>>::take(&mut rest, count);
        let total = (Rows::<Record<Row>>::bytes(count) / SUBPAGE_BYTES as u64) as f64;
        let mut done = 0;
        let tell = &mut |done: u64| progress((done as f64 / total * 0.9).min(0.9));
        index::fill(memory, &rows, Tid::new(FIRST_EPOCH, 0), &mut done, tell, |key| Row::new(key, 0))?;
        let heap = Arc::new(Heap::create(memory, heap)?);
        let index = index::build(memory, &heap, &rows, 1.0, |key| key)?;
        heap.save(memory)?;
        progress(1.0);
        header::write(memory, Self::NAME, at, Root { count, heap_bytes, index })
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
        let epoch = Rows::<u32>::take(&mut rest, 1).at(0);
        Ok(SiloYcsb {
            silo: Silo::open(memory, epoch, LATCHES)?,
            index: index::open(memory, &heap, root.index)?,
            heap,
            rows: Rows::take(&mut rest, root.count),
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
                let record: Ptr<Record<Row>> = index::find(memory, &self.index, key)?;
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
        for key in 0..self.rows.count() {
            let (tid, row) = index::read(memory, self.rows.at(key))?;
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
        if !index::is_complete(memory, &self.index, &self.rows, |key| key)? {
            return broken("the index does not lead to each record once".to_owned());
        }
        self.index.check(memory)?;
        Ok(sum)
    }

    fn dram_bytes(&self) -> u64 {
        self.silo.dram_bytes() + (self.index.dram_bytes() + self.heap.dram_bytes()) as u64
    }
}
