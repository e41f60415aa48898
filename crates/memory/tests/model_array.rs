//! Goal: every element of an array has a place of its own inside one subpage, and keeps its value.
//! Method: element types whose sizes do and do not divide a subpage, at lengths around the
//! subpage's edges, in the suite of all containers; injected errors.

use crate::{common, maps};

use common::{FaultyMemory, Random, plain};
use fulgurite_memory::{AccessError, Address, Array, Memory, Plain, Region, SUBPAGE_BYTES};
use maps::{Found, Map, Plan};

const BASE: u64 = 3 * 65536 + 4096;

fn against_a_model<T: Plain + PartialEq + std::fmt::Debug + Send + Sync>(make: impl Fn(u64) -> T + Sync) {
    let per_subpage = Array::<T>::PER_SUBPAGE;
    for len in [0, 1, 2, per_subpage - 1, per_subpage, per_subpage + 1, 5 * per_subpage + 3] {
        let mut memory = plain();
        let region = Region::new(Address::from_linear(BASE), Array::<T>::bytes_needed(len));
        let mut array = Array::create(&mut memory, region, len, &make).unwrap();
        assert_eq!(array.len(), len);
        for index in 0..len {
            assert_eq!(array.get(&mut memory, index), Ok(make(index)));
        }
        if len > 0 {
            array = maps::agrees_with_a_model(array, &mut memory, plan(len, &make), None, |_, _| {
                Array::open(region, len).unwrap()
            });
        }
        for index in 0..len {
            let at = array.ptr(index).unwrap().address();
            assert!(
                at.subpage_offset() + size_of::<T>() <= SUBPAGE_BYTES && region.contains(at, size_of::<T>() as u64)
            );
        }
        for outside in [len, len + 1, u64::MAX / size_of::<T>() as u64, u64::MAX] {
            assert!(array.ptr(outside).is_none());
            assert!(matches!(array.get(&mut memory, outside), Err(AccessError::OutOfRange { .. })));
            assert!(matches!(array.set(&mut memory, outside, make(0)), Err(AccessError::OutOfRange { .. })));
        }
        if len > 0 {
            let short = Region::new(region.base, region.bytes - SUBPAGE_BYTES as u64);
            assert!(matches!(Array::<T>::open(short, len), Err(AccessError::NoSpace { .. })));
        }
    }
}

#[test]
fn elements_that_divide_a_subpage() {
    against_a_model(|n| n as u8);
    against_a_model(|n| n);
    against_a_model(|n| [n; 16]);
    against_a_model(|n| [n; 512]);
}

#[test]
fn elements_that_do_not_divide_a_subpage() {
    against_a_model(|n| [n as u8; 3]);
    against_a_model(|n| [n; 3]);
    against_a_model(|n| [n as u16; 500]);
    against_a_model(|n| [n; 257]);
}

#[test]
fn a_length_that_no_region_holds() {
    let region = Region::new(Address::from_linear(BASE), SUBPAGE_BYTES as u64);
    assert!(matches!(Array::<u64>::open(region, u64::MAX), Err(AccessError::NoSpace { .. })));
}

impl<T: Plain + PartialEq + std::fmt::Debug + Send + Sync> Map for Array<T> {
    type Key = u64;
    type Value = T;
    const GROWS: bool = false;

    fn get<M: Memory>(&self, memory: &mut M, index: &u64) -> Found<T> {
        self.get(memory, *index).map(Some)
    }
    fn insert<M: Memory>(&self, memory: &mut M, index: &u64, value: T) -> Found<T> {
        let old = self.get(memory, *index)?;
        self.set(memory, *index, value)?;
        Ok(Some(old))
    }
    fn remove<M: Memory>(&self, _: &mut M, _: &u64) -> Found<T> {
        panic!("an array keeps its length")
    }
    fn update<M: Memory>(&self, memory: &mut M, index: &u64, mut change: impl FnMut(&mut T)) -> Found<T> {
        let mut value = self.get(memory, *index)?;
        change(&mut value);
        Map::insert(self, memory, index, value)
    }
    fn scan<M: Memory>(&self, memory: &mut M, from: &u64, limit: usize) -> Result<Vec<(u64, T)>, AccessError> {
        (*from..self.len()).take(limit).map(|index| self.get(memory, index).map(|value| (index, value))).collect()
    }
    fn check<M: Memory>(&self, _: &mut M) -> u64 {
        self.len()
    }
}

fn plan<T: Plain + PartialEq + std::fmt::Debug + Send + Sync>(
    len: u64,
    make: &(dyn Fn(u64) -> T + Sync),
) -> Plan<'_, Array<T>> {
    let random = Random::seeded(std::any::type_name::<T>(), 1);
    Plan { random, first: 0, key: &|n| n, value: make, keys: len, steps: 400 }
}

#[test]
fn a_failed_access_changes_nothing() {
    let mut memory = FaultyMemory::new();
    let region = Region::new(Address::from_linear(BASE), Array::<[u64; 3]>::bytes_needed(400));
    let array = Array::create(&mut memory, region, 400, |n| [n; 3]).unwrap();
    maps::survives_failed_accesses(&array, &mut memory, plan(400, &|n| [n; 3]), 300);
}
