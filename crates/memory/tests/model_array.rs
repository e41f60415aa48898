//! Goal: every element of an array has a place of its own inside one subpage, and keeps its value.
//! Method: element types whose sizes do and do not divide a subpage, at lengths around the
//! subpage's edges, against a `Vec`; injected errors.

use crate::common;

use common::{FaultyMemory, Random, errors, plain};
use fulgurite_memory::{AccessError, Address, Array, Plain, Region, SUBPAGE_BYTES};

const BASE: u64 = 3 * 65536 + 4096;

fn against_a_vec<T: Plain + PartialEq + std::fmt::Debug>(make: impl Fn(u64) -> T) {
    let per_subpage = Array::<T>::PER_SUBPAGE;
    let mut random = Random::seeded(std::any::type_name::<T>(), 1);
    for len in [0, 1, 2, per_subpage - 1, per_subpage, per_subpage + 1, 5 * per_subpage + 3] {
        let mut memory = plain();
        let region = Region::new(Address::from_linear(BASE), Array::<T>::bytes_needed(len));
        let array = Array::create(&mut memory, region, len, &make).unwrap();
        let mut model: Vec<T> = (0..len).map(&make).collect();
        assert_eq!(array.len(), len);
        for _ in 0..if len == 0 { 0 } else { 200 } {
            let (index, value) = (random.below(len), make(random.next()));
            array.set(&mut memory, index, value).unwrap();
            model[index as usize] = value;
        }
        let again = Array::<T>::open(region, len).unwrap();
        for (index, want) in model.iter().enumerate() {
            let at = again.ptr(index as u64).unwrap().address();
            assert!(
                at.subpage_offset() + size_of::<T>() <= SUBPAGE_BYTES && region.contains(at, size_of::<T>() as u64)
            );
            assert_eq!(again.get(&mut memory, index as u64).as_ref(), Ok(want), "element {index} of {len}");
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
    against_a_vec(|n| n as u8);
    against_a_vec(|n| n);
    against_a_vec(|n| [n; 16]);
    against_a_vec(|n| [n; 512]);
}

#[test]
fn elements_that_do_not_divide_a_subpage() {
    against_a_vec(|n| [n as u8; 3]);
    against_a_vec(|n| [n; 3]);
    against_a_vec(|n| [n as u16; 500]);
    against_a_vec(|n| [n; 257]);
}

#[test]
fn a_length_that_no_region_holds() {
    let region = Region::new(Address::from_linear(BASE), SUBPAGE_BYTES as u64);
    assert!(matches!(Array::<u64>::open(region, u64::MAX), Err(AccessError::NoSpace { .. })));
}

#[test]
fn a_failed_access_changes_nothing() {
    let mut memory = FaultyMemory::new();
    let region = Region::new(Address::from_linear(BASE), Array::<[u64; 3]>::bytes_needed(400));
    let array = Array::create(&mut memory, region, 400, |n| [n; 3]).unwrap();
    for (error, index) in errors().into_iter().zip([0, 170, 399]) {
        memory.fail_after(0, error);
        assert_eq!(array.set(&mut memory, index, [0; 3]), Err(error));
        assert_eq!(array.get(&mut memory, index), Ok([index; 3]));
    }
}
