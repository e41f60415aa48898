//! Goal: programs that write as fast as a pool takes it never use up the space that reclaim needs
//! to make more: a full pool goes on. Method: pools filled to what they can hold are overwritten
//! with as many writes in flight as the queue is deep, some subpages far more often than others, on
//! a medium that takes its time. No end to a write after a great many turns is a pool that stands
//! still.

use std::sync::Arc;

use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, Flash, MemoryFlash, Op, Request, Rule, When};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::{Durability, Geometry, Pool, StoreConfig};
use fulgurite_sys::{Arena, Backed, Notifier};
use fulgurite_testkit::Random;

const POOL: PoolId = PoolId([9; 16]);
/// Turns without a write's end after which none is expected any more; a commit takes fewer than a
/// hundred.
const PATIENCE: u32 = 20_000;

/// Every power of two of subpages is as likely as any other: 1/x, about what Zipf's law gives.
fn skewed(random: &mut Random, n: u64) -> u32 {
    let below = 1_u64 << (1 + random.below(u64::from(n.ilog2())));
    (random.below(below).wrapping_mul(0x9E37_79B9) % n) as u32
}

fn overwrite(extents: u32, extent_pages: u32, depth: usize, writes: u32, seed: u64) {
    println!("{extents} extents of {extent_pages}, {depth} in flight, seed {seed}");
    let geometry = Geometry::new(extents * extent_pages, extent_pages, None).unwrap();
    // What reclaim reads and writes takes as long as what programs write.
    let late = Rule { op: None, when: When::OneIn(2), fault: Fault::Late { polls: 8 } };
    let plan = FaultPlan { seed, reorder: true, rules: vec![late], ..FaultPlan::default() };
    let memory = MemoryFlash::new(geometry.flash_pages()).unwrap();
    let medium: Arc<dyn Flash> = Arc::new(FaultyFlash::new(memory, plan));
    Pool::format(&medium, geometry, POOL, 0).unwrap();
    let mut config = StoreConfig::default();
    config.durability = Durability::Cache;
    let flash = Pool::open(medium, config).unwrap().0.into_flash();
    let frames = Arc::new(Arena::anonymous(depth * SUBPAGE_BYTES, Backed::BasePages).unwrap());
    let mut queue = flash.open_queue(frames, depth, Arc::new(Notifier::new().unwrap())).unwrap();
    let (mut random, mut begun, mut ended, mut idle) = (Random(seed), 0, 0, 0);
    let mut free: Vec<u32> = (0..depth as u32).collect();
    let mut under_way = std::collections::HashMap::new();
    let mut completions = Vec::new();
    while ended < geometry.subpages + writes {
        while begun < geometry.subpages + writes && !free.is_empty() {
            // First all of it, then what is likely to be written more often.
            let subpage =
                if begun < geometry.subpages { begun } else { skewed(&mut random, u64::from(geometry.subpages)) };
            if under_way.values().any(|s| *s == subpage) {
                break;
            }
            let frame = free.pop().unwrap();
            let (tag, place) = (u64::from(frame), SubpageIndex(subpage));
            under_way.insert(tag, subpage);
            queue.submit(Request { tag, op: Op::Write, subpage: place, frame: FrameIndex(frame) }).unwrap();
            begun += 1;
        }
        queue.flush().unwrap();
        idle += 1;
        queue.poll(&mut completions);
        for completion in completions.drain(..) {
            assert_eq!(completion.result, Ok(()), "after {ended} writes");
            under_way.remove(&completion.tag);
            free.push(completion.tag as u32);
            (ended, idle) = (ended + 1, 0);
        }
        let layer = flash.layer();
        assert!(idle < PATIENCE, "stands still after {ended} writes: {:?}, {:?}", layer.info(), layer.uses());
    }
    assert!(flash.layer().counters().reclaimed > 0, "nothing was reclaimed");
    assert_eq!(flash.layer().audit(), Vec::<String>::new());
}

#[test]
fn regression_a_full_pool_goes_on_under_writes_without_end() {
    for (extents, extent_pages) in [(24, 32), (130, 16), (200, 32), (400, 16)] {
        for (depth, seed) in [(1, 1), (16, 2), (256, 3)] {
            overwrite(extents, extent_pages, depth, 15_000, seed);
        }
    }
}
