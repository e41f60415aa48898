//! Masstree: a key-value store over a trie of B+-trees, as in Tailbench (AstriFlash section V-A):
//! gets and a few puts.
//!
//! Keys are strings, `user` and sixteen hexadecimal digits, spread evenly over all there could be,
//! as hashed keys are. The trie finds a key's row, a cache line in a separate table. Rows are in
//! the order in which the keys were loaded.
//!
//! Invariants, under any interleaving and after any error: the trie holds exactly the keys that
//! were loaded, each with its own row. A row's payload is its key's. Its first word is the
//! sum of what was put, which does not depend on the order.

use std::ops::ControlFlow;
use std::sync::Arc;

use fulgurite_memory::{
    AccessError, Array, Heap, Latch, LatchTable, Masstree, MasstreeRoot, Memory, Region, SUBPAGE_BYTES, optimistic,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::keys::{Random, ZipfKeys, mix};
use crate::rows::{Rows, hash_of, is_of, payload, row_of};
use crate::{Params, Site, Workload, WorkloadError, header};

/// Share of gets, of 100: YCSB's "read mostly" mix B.
const GET_PERCENT: u64 = 95;
/// Latches for rows, shared by hash, and for the nodes of the trie, which do not change after the
/// load.
const ROW_LATCH_COUNT: usize = 4096;
const NODE_LATCH_COUNT: usize = 64;

/// A key: `user` and sixteen hexadecimal digits.
type Key = [u8; 20];

/// A row, one cache line.
type Row = [u64; 8];

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Header {
    root: MasstreeRoot,
    heap: Region,
    count: u64,
    seed: u64,
}

/// The numbers that the keys spell, ascending: one in each of `count` equal parts of the 64-bit
/// numbers.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    part: u64,
    seed: u64,
}

impl Numbers {
    fn new(count: u64, seed: u64) -> Numbers {
        Numbers { part: u64::MAX / count.max(1), seed }
    }
    #[inline(always)]
    fn of(&self, index: u64) -> u64 {
        // Anywhere in the part, by the high bits of a product instead of a division.
        let inside = ((u128::from(mix(index ^ self.seed)) * u128::from(self.part)) >> 64) as u64;
        index * self.part + inside
    }
}

/// Eight hexadecimal digits, the highest first.
#[inline(always)]
fn digits(number: u32) -> [u8; 8] {
    // A nibble to each byte, then '0' or, from ten on, 'a' - 10: eight bytes at once.
    let mut nibbles = u64::from(number);
    nibbles = (nibbles | nibbles << 16) & 0x0000_FFFF_0000_FFFF;
    nibbles = (nibbles | nibbles << 8) & 0x00FF_00FF_00FF_00FF;
    nibbles = (nibbles | nibbles << 4) & 0x0F0F_0F0F_0F0F_0F0F;
    let letters = ((nibbles + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    (nibbles + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'0' - 10)).to_be_bytes()
}

/// The key that spells a number.
#[inline(always)]
fn key_of(number: u64) -> Key {
    let mut key = *b"user0000000000000000";
    key[4..12].copy_from_slice(&digits((number >> 32) as u32));
    key[12..].copy_from_slice(&digits(number as u32));
    key
}

/// The store, open.
#[derive(Debug)]
pub struct MasstreeStore<L> {
    tree: Masstree<L>,
    heap: Arc<Heap>,
    rows: Array<Row>,
    latches: LatchTable<L>,
    numbers: Numbers,
    keys: ZipfKeys,
}

/// One get or put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StringRequest {
    /// The key.
    pub key: [u8; 20],
    /// What is added to the row. `None` for a get.
    pub put: Option<u64>,
}

/// Bytes that rows, and the heap of the trie, take. The first slice of a key is `user` and four
/// digits, the second eight digits: keys that share the first get a layer of their own. Nodes have
/// 512 bytes at most, and 13 keys or more when filled in order.
fn parts(count: u64) -> [u64; 2] {
    const SLICES: u64 = 1 << 16;
    const NODE_BYTES: u64 = 512;
    let nodes = |keys: u64| keys.div_ceil(13) + if keys > 13 { keys.div_ceil(13 * 8) } else { 0 };
    let layers = SLICES.min(count / 2);
    let total = nodes(count.min(SLICES)) + layers * nodes(count.div_ceil(SLICES) + 1);
    let heap = (total * NODE_BYTES).next_multiple_of(SUBPAGE_BYTES as u64) + 64 * SUBPAGE_BYTES as u64;
    [Array::<Row>::bytes_needed(count), heap]
}

impl<L: Latch> Workload for MasstreeStore<L> {
    const NAME: &'static str = "masstree";
    const PINS: u32 = 1;
    type Request = StringRequest;

    fn build<M: Memory>(memory: &mut M, mut site: Site<'_>) -> Result<(), WorkloadError> {
        let (at, data) = site.split(Self::NAME, 96 * SUBPAGE_BYTES as u64)?;
        let count = header::most(data.bytes, |count| parts(count).iter().sum());
        let numbers = Numbers::new(count, site.params.seed);
        let (rows, heap_region) = data.split(parts(count)[0]);
        site.part(0.0, 0.2);
        Array::<Row>::create(memory, rows, count, |index| {
            site.tick(index, count);
            row_of(numbers.of(index))
        })?;
        let heap = Arc::new(Heap::create(memory, heap_region)?);
        let tree = Masstree::<L>::create(memory, heap.clone(), 1)?;
        site.part(0.2, 1.0);
        for index in 0..count {
            site.tick(index, count);
            tree.insert(memory, &key_of(numbers.of(index)), index)?;
        }
        heap.save(memory)?;
        let (root, seed) = (tree.root(), site.params.seed);
        site.finish(memory, Self::NAME, at, Header { root, heap: heap_region, count, seed })
    }

    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        let Header { root, heap, count, seed } = header::read(memory, Self::NAME, region)?;
        let heap = Arc::new(Heap::open(memory, heap)?);
        Ok(MasstreeStore {
            tree: Masstree::open(memory, heap.clone(), root, NODE_LATCH_COUNT)?,
            heap,
            rows: Array::open(header::data(region), count)?,
            latches: LatchTable::new(ROW_LATCH_COUNT),
            numbers: Numbers::new(count, seed),
            keys: ZipfKeys::new(Self::NAME, count, params.zipf)?,
        })
    }

    #[inline]
    fn request(&self, seed: u64, number: u64) -> StringRequest {
        let mut random = Random::new(seed, number);
        let index = self.keys.sample(&mut random);
        let put = (!random.percent(GET_PERCENT)).then(|| random.next());
        StringRequest { key: key_of(self.numbers.of(index)), put }
    }

    #[inline]
    fn execute<M: Memory>(&self, memory: &mut M, request: &StringRequest) -> Result<u64, AccessError> {
        let Some(index) = self.tree.get(memory, &request.key)? else { return Ok(0) };
        let row = self.rows.checked(index)?;
        let latch = self.latches.of(index);
        match request.put {
            None => Ok(payload(&optimistic::read(latch, memory, |memory, _| memory.load(row))?)),
            Some(weight) => {
                let _section = memory.write_section()?;
                let _held = latch.lock(memory)?;
                let view = memory.view_mut(row.address(), size_of::<Row>())?;
                let put: u64 = view.load(0);
                view.store(0, put.wrapping_add(weight));
                Ok(put)
            }
        }
    }

    /// Payloads never change. A put returns a sum of the puts before it.
    #[inline]
    fn answer_is_fixed(&self, request: &StringRequest) -> bool {
        request.put.is_none()
    }

    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        let broken = |what| Err(WorkloadError::Inconsistent { workload: Self::NAME, what });
        let count = self.keys.count();
        let keys = self.tree.check(memory)?.keys;
        let (mut next, mut wrong) = (0, None);
        self.tree.scan(memory, b"", usize::MAX, |key, index| {
            if next == count || index != next || *key != key_of(self.numbers.of(next)) {
                wrong = Some(String::from_utf8_lossy(key).into_owned());
                return ControlFlow::Break(());
            }
            next += 1;
            ControlFlow::Continue(())
        })?;
        if let Some(key) = wrong {
            return broken(format!("key \"{key}\" is not the {next}th, or leads to the row of another"));
        }
        if (keys, next) != (count, count) {
            return broken(format!("{keys} keys, {next} seen in order, and {count} were loaded"));
        }
        let mut sum = 0u64;
        for index in 0..count {
            let row = self.rows.get(memory, index)?;
            if !is_of(&row, self.numbers.of(index)) {
                return broken(format!("row {index} has the payload of another"));
            }
            sum = sum.wrapping_add(hash_of(&row, index));
        }
        Ok(sum)
    }

    fn dram_bytes(&self) -> u64 {
        (self.tree.dram_bytes() + self.heap.dram_bytes() + self.latches.bytes()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_spell_their_numbers() {
        for number in [0, 1, 9, 10, 0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210, u64::MAX] {
            assert_eq!(key_of(number), *format!("user{number:016x}").as_bytes());
        }
    }
    #[test]
    fn numbers_ascend() {
        for count in [1, 2, 1000, 1 << 40] {
            let numbers = Numbers::new(count, 5);
            let few = count.min(1000);
            assert!((count - few..count).map(|i| numbers.of(i)).is_sorted_by(|a, b| a < b));
        }
    }
}
