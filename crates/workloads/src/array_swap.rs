//! Array Swap: each request swaps two elements of an array ("generating both reads and writes",
//! AstriFlash section V-A).
//!
//! An element is a cache line: a value, six words derived from it, and a sum that belongs to the
//! place:
//!
//! ```text
//! +-------+---------+-----------------+
//! | value | touched | payload[0..6]   |   64 bytes; value and payload move, touched stays
//! +-------+---------+-----------------+
//! ```
//!
//! Invariants, under any interleaving and after any error: the values are a permutation of
//! `0..count`, and each payload belongs to its value (nothing is torn or mixed). `touched` is the
//! sum of the weights of the requests that named the place. It does not depend on their order and
//! is what `check` hashes.

use fulgurite_memory::{AccessError, Array, Latch, LatchTable, Memory, Region, SUBPAGE_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::keys::{Random, ZipfKeys, mix};
use crate::rows::{Rows, load, pin, store};
use crate::{Params, Site, Workload, WorkloadError, header};

/// One element, one cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Element {
    value: u64,
    touched: u64,
    payload: [u64; 6],
}

const _: () = assert!(size_of::<Element>() == 64);

/// Latches, shared by hash. A latch is only held while two lines that are at hand are copied, so a
/// few thousand do.
const LATCH_COUNT: usize = 4096;

fn payload_of(value: u64) -> [u64; 6] {
    std::array::from_fn(|i| mix(value ^ (i as u64 + 1) << 56))
}

/// The array, open.
#[derive(Debug)]
pub struct ArraySwap<L> {
    elements: Array<Element>,
    keys: ZipfKeys,
    latches: LatchTable<L>,
}

/// Which places to swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapRequest {
    /// The first place.
    pub first: u64,
    /// The second, never the same.
    pub second: u64,
    /// What is added to `touched` of both.
    pub weight: u64,
}

impl<L: Latch> Workload for ArraySwap<L> {
    const NAME: &'static str = "array-swap";
    const PINS: u32 = 2;
    type Request = SwapRequest;

    fn build<M: Memory>(memory: &mut M, mut site: Site<'_>) -> Result<(), WorkloadError> {
        let (at, data) = site.split(Self::NAME, SUBPAGE_BYTES as u64)?;
        let count = data.bytes / SUBPAGE_BYTES as u64 * Array::<Element>::PER_SUBPAGE;
        // Any permutation will do, as requests name places and not values.
        Array::create(memory, data, count, |value| {
            site.tick(value, count);
            Element { value, touched: 0, payload: payload_of(value) }
        })?;
        site.finish(memory, Self::NAME, at, count)
    }

    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        let count: u64 = header::read(memory, Self::NAME, region)?;
        Ok(ArraySwap {
            elements: Array::open(header::data(region), count)?,
            keys: ZipfKeys::new(Self::NAME, count, params.zipf)?,
            latches: LatchTable::new(LATCH_COUNT),
        })
    }

    #[inline]
    fn request(&self, seed: u64, number: u64) -> SwapRequest {
        let mut random = Random::new(seed, number);
        let first = self.keys.sample(&mut random);
        let second = self.keys.sample(&mut random);
        // A swap with itself is none: take the neighbour.
        let second = if second != first {
            second
        } else if second + 1 < self.keys.count() {
            second + 1
        } else {
            0
        };
        SwapRequest { first, second, weight: random.next() }
    }

    #[inline]
    fn execute<M: Memory>(&self, memory: &mut M, request: &SwapRequest) -> Result<u64, AccessError> {
        let (a, b) = (self.elements.checked(request.first)?, self.elements.checked(request.second)?);
        // Both subpages first, the latches only then: no job waits for flash while holding one.
        let (pin_a, pin_b) = (pin(memory, a)?, pin(memory, b)?);
        let _section = memory.write_section()?;
        let (i, j) = (self.latches.index(request.first), self.latches.index(request.second));
        let _outer = self.latches.get(i.min(j)).lock(memory)?;
        let _inner = if i == j { None } else { Some(self.latches.get(i.max(j)).lock(memory)?) };
        // Nothing below can fail.
        let (old_a, old_b) = (load(&pin_a, a), load(&pin_b, b));
        store(&pin_a, a, Element { touched: old_a.touched.wrapping_add(request.weight), ..old_b });
        store(&pin_b, b, Element { touched: old_b.touched.wrapping_add(request.weight), ..old_a });
        Ok(old_a.value ^ old_b.value)
    }

    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        let broken = |what| Err(WorkloadError::Inconsistent { workload: Self::NAME, what });
        let count = self.keys.count();
        let mut seen = vec![0u64; count.div_ceil(64) as usize];
        let mut sum = 0u64;
        for place in 0..count {
            let element = self.elements.get(memory, place)?;
            let value = element.value;
            if value >= count {
                return broken(format!("element {place} is {value}, and there are only {count}"));
            }
            let (word, bit) = (&mut seen[(value / 64) as usize], 1 << (value % 64));
            if *word & bit != 0 {
                return broken(format!("not a permutation: {value} is in element {place} and in an earlier one"));
            }
            *word |= bit;
            if element.payload != payload_of(value) {
                return broken(format!("element {place} is {value} and has the payload of another"));
            }
            sum = sum.wrapping_add(mix(element.touched.wrapping_add(mix(place))));
        }
        Ok(sum)
    }

    fn dram_bytes(&self) -> u64 {
        self.latches.bytes() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_memory::{Address, NoLatch, PlainMemory};
    use fulgurite_sys::Backed;

    #[test]
    fn damage_is_found() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let region = Region::new(Address::from_linear(0), 1 << 16);
        let params = Params { bytes: 1 << 16, zipf: 0.9, seed: 1, ..Params::default() };
        ArraySwap::<NoLatch>::build(&mut memory, Site::new(region, &params, &mut |_| ())).unwrap();
        let array = ArraySwap::<NoLatch>::open(&mut memory, region, &params).unwrap();
        let untouched = array.check(&mut memory).unwrap();
        for number in 0..1000 {
            let request = array.request(1, number);
            assert_ne!(request.first, request.second);
            array.execute(&mut memory, &request).unwrap();
        }
        assert_ne!(array.check(&mut memory).unwrap(), untouched);
        let good = array.elements.get(&mut memory, 3).unwrap();
        let mut mixed = good;
        mixed.payload[5] ^= 1;
        let twice = array.elements.get(&mut memory, 4).unwrap();
        for bad in [mixed, twice, Element { value: u64::MAX, ..good }] {
            array.elements.set(&mut memory, 3, bad).unwrap();
            assert!(matches!(array.check(&mut memory), Err(WorkloadError::Inconsistent { .. })), "{bad:?}");
        }
    }
}
