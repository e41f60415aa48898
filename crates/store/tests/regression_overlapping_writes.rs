//! Goal: writes of one subpage that are under way at the same time end with the content of one of
//! them, and hurt nobody. They could end in one batch, of which the store recorded each as if it
//! were another subpage of the page: with more than a page has, it panicked, and a device with it,
//! for all its programs; any client of a block device may send such writes. Method: batches of
//! writes of few subpages, each with a content of its own; all is read, the store is audited, and
//! opened again.

use crate::common;

use std::sync::Arc;

use common::{Driver, Random, arena, fill, seed, stamp_of};
use fulgurite_flash::{Flash, MemoryFlash, Op};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};

const DEPTH: u32 = 64;
/// Subpages of the first page, and one of the next.
const SUBPAGES: u64 = 17;

#[test]
fn regression_writes_of_one_subpage_at_the_same_time() {
    let seed = seed();
    println!("seed {seed}");
    let mut random = Random(seed);
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096).unwrap());
    Pool::format(&medium, Geometry::new(4096, 64, Some(1024)).unwrap(), PoolId([3; 16]), 0).unwrap();
    let open = || Pool::open(medium.clone(), StoreConfig::default()).unwrap().0.into_flash();
    let (mut flash, mut found) = (open(), vec![0; SUBPAGES as usize]);
    for round in 0..200u64 {
        let frames = arena(DEPTH + 1);
        let mut driver = Driver::new(&flash, &frames, DEPTH as usize);
        let mut allowed: Vec<Vec<u64>> = found.iter().map(|&before| vec![before]).collect();
        let mut written = vec![false; SUBPAGES as usize];
        for frame in 0..=random.below(u64::from(DEPTH)) as u32 {
            // A few of them many times, or all of them.
            let subpage = if round % 2 == 0 { random.below(3) } else { random.below(SUBPAGES) };
            let stamp = (round << 32 | u64::from(frame)) + 1;
            if frame < DEPTH {
                fill(&frames, frame, stamp);
                driver.submit(Op::Write, subpage as u32, frame);
                let allowed = &mut allowed[subpage as usize];
                if !std::mem::replace(&mut written[subpage as usize], true) {
                    allowed.clear();
                }
                allowed.push(stamp);
            }
        }
        assert!(driver.finish_all().values().all(Result::is_ok), "seed {seed}, round {round}");
        for subpage in 0..SUBPAGES as usize {
            driver.one(Op::Read, subpage as u32, DEPTH).unwrap();
            let stamp = stamp_of(&frames, DEPTH).unwrap_or(0);
            assert!(allowed[subpage].contains(&stamp), "seed {seed}, round {round}: {stamp:#x} in {subpage}");
            found[subpage] = stamp;
        }
        assert!(flash.layer().audit().is_empty(), "seed {seed}: {:?}", flash.layer().audit());
        if round % 20 == 19 {
            flash.layer().sync().unwrap();
            drop(driver);
            drop(flash);
            flash = open();
        }
    }
}
