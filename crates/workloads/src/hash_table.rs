//! Hash Table: look-ups that follow a chain ("data structure lookups with pointer chasing
//! behavior", AstriFlash section V-A), and a few updates ("limited write traffic").
//!
//! Invariants, under any interleaving and after any error: the table holds the keys `0..count`,
//! each with its own payload (nothing is torn or mixed). The first word of a value is the sum of
//! the weights of the updates of the key. It does not depend on their order and is what `check`
//! hashes.

use fulgurite_memory::{AccessError, HashMap, Latch, Memory, Region, SUBPAGE_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::hashed::{Hashed, HashedRoot};
use crate::keys::{Random, ZipfKeys};
use crate::rows::{hash_of, increase, is_of, payload, row_of};
use crate::{Params, Site, Workload, WorkloadError, header};

/// Share of requests that only look up, of 100. The paper says look-ups, and writes limited as
/// production key-value stores see them. 9 to 1 is the low end of what the studies it cites report
/// for caches.
const LOOKUP_PERCENT: u64 = 90;
/// Latches, shared by hash of the bucket.
const LATCH_COUNT: usize = 4096;

/// A value: 120 bytes, so that key and value are two cache lines.
type Value = [u64; 15];

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Header {
    root: HashedRoot,
    count: u64,
}

type Map<L> = Hashed<u64, Value, L>;

/// The table, open.
#[derive(Debug)]
pub struct HashTable<L> {
    table: Map<L>,
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

impl<L: Latch> Workload for HashTable<L> {
    const NAME: &'static str = "hash-table";
    const PINS: u32 = HashMap::<u64, Value, L>::PINS;
    type Request = KeyRequest;

    fn build<M: Memory>(memory: &mut M, mut site: Site<'_>) -> Result<(), WorkloadError> {
        let (at, data) = site.split(Self::NAME, 64 * SUBPAGE_BYTES as u64)?;
        let count = header::most(data.bytes, Map::<L>::bytes);
        let entries = (0..count).map(|key| {
            site.tick(key, count);
            (key, row_of(key))
        });
        let root = Map::<L>::build(memory, data, count, entries)?;
        site.finish(memory, Self::NAME, at, Header { root, count })
    }

    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        let header: Header = header::read(memory, Self::NAME, region)?;
        Ok(HashTable {
            table: Map::open(memory, header.root, LATCH_COUNT)?,
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
            let changed = self.table.map.update(memory, &request.key, |value| increase(value, weight))?;
            return Ok(changed.unwrap_or(0));
        }
        Ok(self.table.map.get(memory, &request.key)?.as_ref().map_or(0, payload))
    }

    /// Payloads never change, and updates return a word of them.
    #[inline]
    fn answer_is_fixed(&self, _: &KeyRequest) -> bool {
        true
    }

    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        let broken = |what| WorkloadError::Inconsistent { workload: Self::NAME, what };
        let len = self.table.map.check(memory)?;
        if len != self.keys.count() {
            return Err(broken(format!("{len} keys, and {} were put in", self.keys.count())));
        }
        let (mut sum, mut wrong) = (0u64, None);
        self.table.map.for_each(memory, |&key, value| {
            if key >= len || !is_of(value, key) {
                wrong = Some(key);
            }
            sum = sum.wrapping_add(hash_of(value, key));
        })?;
        match wrong {
            Some(key) => Err(broken(format!("key {key} has the value of another, or was never put in"))),
            None => Ok(sum),
        }
    }

    fn dram_bytes(&self) -> u64 {
        self.table.dram_bytes()
    }
}
