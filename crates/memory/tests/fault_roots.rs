//! Goal: when an access fails while something with a name is made, opened or removed, the directory
//! is what it was or what it was to become, and the next attempt succeeds. Method: each operation
//! with its n-th access failing, for every n until none fails. Then the directory is read through:
//! the root is there whole or not at all, no page is handed out twice, and this operation, or what
//! is left of it, succeeds.

use crate::common;

use common::FaultyMemory;
use fulgurite_memory::{AccessError, Address, Directory, HashMap, Memory, NoLatch, Region, RootError, Rooted};

const PAGE: u64 = 64 << 10;
const SPACE: u64 = 64 * PAGE;
type Map = HashMap<u64, u64, NoLatch>;

fn create(m: &mut FaultyMemory, directory: &Directory) -> Result<Rooted<Map>, RootError> {
    Rooted::create(m, directory, "map", (1 << 16, Map::bytes_needed(100)), |m, heap, data| {
        Map::create(m, data, heap.clone(), 100, 1)
    })
}

/// Everything that is handed out, and all roots, without a contradiction.
fn check(m: &mut FaultyMemory, directory: &Directory) {
    let roots = directory.roots(m).unwrap();
    for (i, root) in roots.iter().enumerate() {
        let region = Region::new(root.address, root.bytes);
        assert_eq!(directory.has_handed_out(m, region), Ok(true), "\"{}\" is in pages that are free", root.name);
        for other in &roots[..i] {
            let apart = !region.contains(other.address, 1)
                && !Region::new(other.address, other.bytes).contains(root.address, 1);
            assert!(apart, "\"{}\" and \"{}\" share pages", root.name, other.name);
        }
    }
    let new = directory.reserve(m, PAGE).unwrap();
    assert!(roots.iter().all(|root| !Region::new(root.address, root.bytes).contains(new.base, 1)));
    directory.give_back(m, new).unwrap();
}

/// Runs `attempt` over a directory with a root "other", with each of its accesses failing. Returns
/// how many it has.
fn every_access_fails(
    prepare: impl Fn(&mut FaultyMemory, &Directory),
    attempt: impl Fn(&mut FaultyMemory, &Directory) -> Result<(), RootError>,
    finish: impl Fn(&mut FaultyMemory, &Directory),
) -> u64 {
    for n in 0.. {
        let mut m = FaultyMemory::new();
        let directory = Directory::open(&mut m, SPACE).unwrap();
        directory.create_root(&mut m, "other", 5u64).unwrap();
        prepare(&mut m, &directory);
        m.fail_after(n, AccessError::DeadlineExceeded);
        let result = attempt(&mut m, &directory);
        if m.heal() {
            assert_eq!(result, Ok(()));
            return n;
        }
        assert_eq!(result, Err(RootError::Access(AccessError::DeadlineExceeded)), "access {n}");
        check(&mut m, &directory);
        finish(&mut m, &directory);
        check(&mut m, &directory);
        let other = directory.root(&mut m, "other").unwrap();
        assert_eq!(m.load(other), Ok(5u64));
    }
    unreachable!("some attempt has fewer accesses")
}

#[test]
fn making_a_container() {
    let accesses = every_access_fails(
        |_, _| {},
        |m, directory| create(m, directory).map(drop),
        |m, directory| {
            // Half made is not made.
            assert!(matches!(directory.find(m, "map"), Err(RootError::Unknown { .. })));
            let map = create(m, directory).unwrap();
            map.insert(m, &1, 2).unwrap();
            map.check(m).unwrap();
        },
    );
    assert!(accesses > 250, "{accesses}");
}

#[test]
fn making_a_value() {
    every_access_fails(
        |_, _| {},
        |m, directory| directory.create_root(m, "value", [1u64, 2]).map(drop),
        |m, directory| {
            let at = directory.create_root(m, "value", [1u64, 2]).unwrap();
            assert_eq!(m.load(at), Ok([1, 2]));
        },
    );
}

#[test]
fn opening_a_container() {
    every_access_fails(
        |m, directory| {
            create(m, directory).unwrap().insert(m, &1, 2).unwrap();
        },
        |m, directory| Rooted::<Map>::open(m, directory, "map", 1).map(drop),
        |m, directory| {
            let map = Rooted::<Map>::open(m, directory, "map", 1).unwrap();
            assert_eq!(map.get(m, &1), Ok(Some(2)));
        },
    );
}

#[test]
fn reloading_a_container() {
    let mut n = 0;
    loop {
        let mut m = FaultyMemory::new();
        let directory = Directory::open(&mut m, SPACE).unwrap();
        let map = create(&mut m, &directory).unwrap();
        map.save(&mut m).unwrap();
        m.fail_after(n, AccessError::DeadlineExceeded);
        let result = map.reload(&mut m, &directory);
        if m.heal() {
            assert_eq!(result, Ok(true));
            assert!(map.heap().allocate(&mut m, 100).is_ok());
            return;
        }
        // Not known to be right, so that nobody may use it.
        assert_eq!(result, Err(RootError::Access(AccessError::DeadlineExceeded)), "access {n}");
        assert_eq!(map.heap().allocate(&mut m, 100), Err(AccessError::Poisoned));
        n += 1;
    }
}

#[test]
fn removing_a_root() {
    every_access_fails(
        |m, directory| drop(create(m, directory).unwrap()),
        |m, directory| directory.remove(m, "map").map(drop),
        |m, directory| {
            // Gone, or as it was.
            match Rooted::<Map>::open(m, directory, "map", 1) {
                Ok(map) => {
                    map.check(m).unwrap();
                    directory.remove(m, "map").unwrap();
                }
                Err(error) => assert!(matches!(error, RootError::Unknown { .. }), "{error}"),
            }
            create(m, directory).unwrap();
        },
    );
}

#[test]
fn opening_the_directory() {
    for n in 0.. {
        let mut m = FaultyMemory::new();
        m.fail_after(n, AccessError::DeadlineExceeded);
        let result = Directory::open(&mut m, SPACE);
        if m.heal() {
            assert!(result.is_ok());
            return;
        }
        assert_eq!(result.err(), Some(RootError::Access(AccessError::DeadlineExceeded)));
        let directory = Directory::open(&mut m, SPACE).unwrap();
        check(&mut m, &directory);
        assert_eq!(directory.reserve(&mut m, 1).unwrap().base, Address::from_linear(PAGE));
    }
}
