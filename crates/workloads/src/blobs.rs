//! Blobs: gets of values, and puts that make the next version of one, under a hash index.
//!
//! ```text
//! key --> hash map: word --> heap: | key | version | check | bytes | (`value`)
//! ```
//!
//! A value carries its key, its version and a check, and all other bytes follow from these. A put
//! reads a value, adds its weight to the version and writes it whole ([`BlobMap::update`]).
//!
//! Invariants, under any interleaving and after any error: each key has a whole value of its own,
//! of its own length (nothing is torn or mixed). Its version is the sum of the weights of its puts,
//! which does not depend on their order and is what `check` hashes.
//!
//! [`BlobMap::update`]: fulgurite_memory::BlobMap::update

use std::sync::Arc;

use fulgurite_memory::{AccessError, Address, Blobs, HashMapRoot, Heap, Latch, Memory, Region, SUBPAGE_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::keys::{Random, ZipfKeys, mix};
use crate::value::{self, VALUE_BYTES_MIN};
use crate::{Params, Site, Workload, WorkloadError, header};

const SUBPAGE: u64 = SUBPAGE_BYTES as u64;
/// Latches of each of the three tables of the map.
const LATCHES: usize = 1 << 12;
/// The longest of the values of many lengths.
const LONGEST: u64 = 1 << 20;
/// Values that are replaced at the same time, and so there twice: workers times fibers, about.
const REPLACED: u64 = 64;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Root {
    map: HashMapRoot,
    heap: Region,
    count: u64,
    /// No value is longer.
    longest: u64,
}

/// The values, open.
#[derive(Debug)]
pub struct BlobValues<L: Latch> {
    map: Blobs<u64, L>,
    heap: Arc<Heap>,
    keys: ZipfKeys,
    longest: u64,
    value_bytes: Option<u32>,
    gets: u64,
}

/// A get, or a put of the next version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueRequest {
    /// The key.
    pub key: u64,
    /// What is added to the version. `None` for a get.
    pub add: Option<u64>,
}

/// Bytes of the value of a key.
fn len_of(value_bytes: Option<u32>, key: u64, longest: u64) -> usize {
    let fixed = value_bytes.map(|bytes| bytes as usize);
    fixed.unwrap_or_else(|| (1024u64 << mix(key).trailing_ones().min(10)).min(longest) as usize)
}

/// What a value of `len` bytes takes of the heap, or a little more.
fn slot_bytes(len: usize) -> u64 {
    let len = len as u64;
    match len.is_power_of_two() || len <= 1024 {
        // Powers of two have a class of their own.
        true => len.next_power_of_two(),
        false => (len + len / 8).next_multiple_of(SUBPAGE),
    }
}

/// Bytes of the heap in addition to the values: blocks that overflow (three tenths of the buckets,
/// and a reserve), and values that are there twice. A heap that is opened without having been saved
/// forgets what was free, and benchmarks open the data anew for each run: a sixteenth is for that.
fn spare_bytes(buckets: u64, longest: u64, data: u64) -> u64 {
    let replaced = (REPLACED * slot_bytes(longest as usize)).min(data / 4);
    (buckets / 2 + replaced + data / 16 + 32 * SUBPAGE).next_multiple_of(SUBPAGE)
}

/// As many values as fit into `bytes`, and the longest.
fn fitting<L: Latch>(value_bytes: Option<u32>, bytes: u64) -> (u64, u64) {
    let longest = value_bytes.map_or_else(|| LONGEST.min(bytes / 32).max(1024), u64::from);
    let (mut count, mut values) = (0, 0);
    // The buckets are counted in steps, because their number is not cheap to find.
    let mut step = (bytes / 1024 / 64).max(1);
    loop {
        let more: u64 = (count..count + step).map(|key| slot_bytes(len_of(value_bytes, key, longest))).sum();
        let buckets = Blobs::<u64, L>::bytes_needed(count + step).next_multiple_of(SUBPAGE);
        if values + more + buckets + spare_bytes(buckets, longest, bytes) <= bytes {
            (count, values) = (count + step, values + more);
        } else if step > 1 {
            step /= 2;
        } else {
            return (count, longest);
        }
    }
}

/// A value that is not whole, or another key's.
fn torn(at: Address, key: u64) -> AccessError {
    AccessError::Corrupt { what: "blob (a value of another key or version)", at, expected: key, got: 0 }
}

impl<L: Latch> Workload for BlobValues<L> {
    const NAME: &'static str = "blobs";
    const PINS: u32 = Blobs::<u64, L>::PINS;
    const GETS: Option<u32> = Some(95);
    type Request = ValueRequest;

    fn build<M: Memory>(memory: &mut M, mut site: Site<'_>) -> Result<(), WorkloadError> {
        let value_bytes = site.params.value_bytes;
        if value_bytes.is_some_and(|bytes| (bytes as usize) < VALUE_BYTES_MIN) {
            let what = format!("a value has at least {VALUE_BYTES_MIN} bytes");
            return Err(WorkloadError::Unusable { workload: Self::NAME, what });
        }
        let (at, data) = site.split(Self::NAME, 128 * SUBPAGE)?;
        let (count, longest) = fitting::<L>(value_bytes, data.bytes);
        if count == 0 {
            let what = "no value fits into so little data; choose more".to_owned();
            return Err(WorkloadError::Unusable { workload: Self::NAME, what });
        }
        let (buckets, rest) = data.split(Blobs::<u64, L>::bytes_needed(count).next_multiple_of(SUBPAGE));
        let heap = Arc::new(Heap::create(memory, rest)?);
        let map = Blobs::<u64, L>::create(memory, buckets, heap.clone(), count, 1)?;
        let mut bytes = Vec::new();
        for key in 0..count {
            if key.is_multiple_of(1 << 12) {
                site.advance(key as f64 / count as f64);
            }
            bytes.resize(len_of(value_bytes, key, longest), 0);
            value::fill(&mut bytes, key, 0);
            map.put(memory, &key, &bytes)?;
        }
        heap.save(memory)?;
        site.finish(memory, Self::NAME, at, Root { map: map.root(), heap: rest, count, longest })
    }

    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        let root: Root = header::read(memory, Self::NAME, region)?;
        let heap = Arc::new(Heap::open(memory, root.heap)?);
        Ok(BlobValues {
            map: Blobs::open(root.map, heap.clone(), LATCHES)?,
            heap,
            keys: ZipfKeys::new(Self::NAME, root.count, params.zipf)?,
            longest: root.longest,
            value_bytes: params.value_bytes,
            gets: params.gets::<Self>(),
        })
    }

    #[inline]
    fn request(&self, seed: u64, number: u64) -> ValueRequest {
        let mut random = Random::new(seed, number);
        let key = self.keys.sample(&mut random);
        ValueRequest { key, add: (!random.percent(self.gets)).then(|| random.next() >> 1) }
    }

    fn execute<M: Memory>(&self, memory: &mut M, request: &ValueRequest) -> Result<u64, AccessError> {
        let &ValueRequest { key, add } = request;
        let missing = || torn(self.heap.region().base, key);
        let len = len_of(self.value_bytes, key, self.longest);
        if let Some(weight) = add {
            let changed = self.map.update(memory, &key, |bytes| {
                let version = value::version_of(bytes, key).filter(|_| bytes.len() == len)?;
                value::fill(bytes, key, version.wrapping_add(weight));
                Some(())
            })?;
            changed.flatten().ok_or_else(missing)?;
            return Ok(mix(key ^ len as u64));
        }
        // Small ones into the stack.
        let mut short = [0; 1024];
        let found = if len <= short.len() {
            let got = self.map.copy_to(memory, &key, &mut short)?;
            got == Some(len) && value::version_of(&short[..len], key).is_some()
        } else {
            let mut bytes = Vec::new();
            self.map.get(memory, &key, &mut bytes)? && bytes.len() == len && value::version_of(&bytes, key).is_some()
        };
        if found { Ok(mix(key ^ len as u64)) } else { Err(missing()) }
    }

    /// Lengths never change, and versions are not returned.
    #[inline]
    fn answer_is_fixed(&self, _: &ValueRequest) -> bool {
        true
    }

    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        let broken = |what| Err(WorkloadError::Inconsistent { workload: Self::NAME, what });
        let (count, _) = self.map.check(memory)?;
        if count != self.keys.count() {
            return broken(format!("{count} keys, and {} were put in", self.keys.count()));
        }
        let (mut sum, mut bytes) = (0u64, Vec::new());
        for key in 0..count {
            if !self.map.get(memory, &key, &mut bytes)? {
                return broken(format!("key {key} is missing"));
            }
            let own = bytes.len() == len_of(self.value_bytes, key, self.longest);
            let Some(version) = value::version_of(&bytes, key).filter(|_| own) else {
                return broken(format!("the value of key {key} is torn, or another one's"));
            };
            sum = sum.wrapping_add(mix(mix(key).wrapping_add(version)));
        }
        Ok(sum)
    }

    fn save<M: Memory>(&self, memory: &mut M) -> Result<(), WorkloadError> {
        Ok(self.heap.save(memory)?)
    }

    fn dram_bytes(&self) -> u64 {
        // The map has two tables of latches, and its index one more of this size.
        (self.map.dram_bytes() / 2 * 3 + self.heap.dram_bytes()) as u64
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_memory::{Address, NoLatch, PlainMemory};
    use fulgurite_sys::Backed;

    use super::*;

    /// Bytes that the heap has left, of those meant for values that are there twice.
    fn left(value_bytes: Option<u32>, bytes: u64) -> (u64, u64) {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let region = Region::new(Address::from_linear(SUBPAGE), bytes);
        let params = Params { bytes, zipf: 0.99, seed: 1, value_bytes, ..Params::default() };
        BlobValues::<NoLatch>::build(&mut memory, Site::new(region, &params, &mut |_| ())).unwrap();
        let opened = BlobValues::<NoLatch>::open(&mut memory, region, &params).unwrap();
        let replaced = (REPLACED * slot_bytes(opened.longest as usize)).min(bytes / 4);
        (opened.heap.free_bytes(), replaced)
    }

    #[test]
    fn data_that_is_opened_again_keeps_its_free_space() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let bytes = 8 << 20;
        let region = Region::new(Address::from_linear(SUBPAGE), bytes);
        let params = Params { bytes, zipf: 0.99, seed: 1, gets: Some(50), ..Params::default() };
        type Half = BlobValues<NoLatch>;
        Half::build(&mut memory, Site::new(region, &params, &mut |_| ())).unwrap();
        let mut opened = Half::open(&mut memory, region, &params).unwrap();
        let free = opened.heap.free_bytes();
        for round in 0..200 {
            for number in 0..100 {
                let request = opened.request(round, number);
                opened.execute(&mut memory, &request).unwrap();
            }
            opened.save(&mut memory).unwrap();
            opened = Half::open(&mut memory, region, &params).unwrap();
            assert_eq!(opened.heap.free_bytes(), free, "round {round}");
        }
    }

    #[test]
    fn all_sizes_of_data_leave_room_to_replace_values() {
        // Buckets split one after the other: in between, some overflow.
        for mebibytes in [8, 9, 10, 12, 15, 48] {
            let bytes = mebibytes << 20;
            for (free, needed) in [Some(128), Some(900), None].map(|value_bytes| left(value_bytes, bytes)) {
                println!("{bytes} bytes: {free} left of {needed}");
                assert!(free >= needed, "{bytes} bytes: {free} left, and {needed} are needed");
            }
        }
    }
}
