//! Goal: a pool whose program dies again and again, soon after it has opened it, stays usable: no
//! life leaves less room for the next, and what was synced is there. Method: lives of a pool on a
//! small flash, of which each writes and syncs a little and is then cut off, its flash copied as it
//! is at some moment; many times as many lives as the flash has extents. The last one goes on for
//! long. Seeds are printed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{
    Completion, Fault, FaultPlan, FaultyFlash, Flash, FlashError, Layered, MemoryFlash, Op, Queue, Request, When,
};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::{Arena, Backed, Notifier};
use fulgurite_testkit::Random;

const PAGES: u32 = 2048;
const SUBPAGES: u32 = 512;
const DEPTH: usize = 4;
const LIVES: u32 = 1000;

/// A flash that takes its time to flush, so that a life may end between any two of its requests.
fn flash() -> Arc<FaultyFlash<MemoryFlash>> {
    let plan = FaultPlan::rule(Some(Op::Flush), When::Every(1), Fault::Late { polls: 30 });
    Arc::new(FaultyFlash::new(MemoryFlash::new(PAGES).unwrap(), plan))
}

struct Life {
    medium: Arc<FaultyFlash<MemoryFlash>>,
    flash: Layered<Pool>,
    queue: Box<dyn Queue>,
    frames: Arc<Arena>,
    ended: Vec<Completion>,
}

impl Life {
    fn open(medium: Arc<FaultyFlash<MemoryFlash>>) -> Life {
        let (pool, _) = Pool::open(medium.clone(), StoreConfig::default()).unwrap();
        let flash = pool.into_flash();
        let frames = Arc::new(Arena::anonymous(DEPTH * SUBPAGE_BYTES, Backed::BasePages).unwrap());
        let queue = flash.open_queue(frames.clone(), DEPTH, Arc::new(Notifier::new().unwrap())).unwrap();
        Life { medium, flash, queue, frames, ended: Vec::new() }
    }
    /// Requests by frame: to their end, or at most `polls` polls. None if they have not ended by
    /// then.
    fn run(&mut self, requests: &[(Op, u32)], polls: u64) -> Option<Result<(), FlashError>> {
        for (frame, (op, subpage)) in (0..).zip(requests) {
            let (subpage, frame) = (SubpageIndex(*subpage), FrameIndex(frame));
            self.queue.submit(Request { tag: frame.0.into(), op: *op, subpage, frame }).unwrap();
        }
        let _ = self.queue.flush();
        let (begun, mut polled) = (std::time::Instant::now(), 0);
        while self.ended.len() < requests.len() {
            if polled == polls {
                return None;
            }
            polled += 1;
            self.queue.poll(&mut self.ended);
            assert!(begun.elapsed() < Duration::from_secs(60), "requests never end");
        }
        Some(self.ended.drain(..).try_for_each(|ended| ended.result))
    }
    /// Ends it here: what the flash holds now is what the next one finds.
    fn crash(self) -> Arc<FaultyFlash<MemoryFlash>> {
        let next = flash();
        let (from, to) = (self.medium.inner().storage(), next.inner().storage());
        Arena::copy(from, 0, to, 0, PAGES as usize * SUBPAGE_BYTES);
        next
    }
}

#[test]
fn a_pool_whose_programs_die_soon_stays_usable() {
    let seed = fulgurite_testkit::seed();
    let mut medium = flash();
    let below: Arc<dyn Flash> = medium.clone();
    Pool::format(&below, Geometry::new(PAGES, 32, Some(SUBPAGES)).unwrap(), PoolId([3; 16]), 0).unwrap();
    let mut random = Random(seed);
    // None: it was cut off, and either is right.
    let mut synced: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for life in 0..LIVES {
        let mut now = Life::open(medium);
        let is_last = life + 1 == LIVES;
        for _ in 0..if is_last { 2000 } else { 1 } {
            // In a life that is cut off soon, the first write or the sync may not end.
            let polls = if is_last || random.below(2) == 0 { u64::MAX } else { random.below(400) };
            let first = random.below(u64::from(SUBPAGES) - DEPTH as u64) as u32;
            let (mut requests, mut written) = (Vec::new(), Vec::new());
            for frame in 0..DEPTH as u32 {
                let value = random.next();
                now.frames.write(frame as usize * SUBPAGE_BYTES, &value.to_le_bytes().repeat(SUBPAGE_BYTES / 8));
                written.push((first + frame, value));
                requests.push((Op::Write, first + frame));
            }
            synced.extend(written.iter().map(|(subpage, _)| (*subpage, None)));
            let ended = now.run(&requests, polls).and_then(|result| {
                assert_eq!(result, Ok(()), "life {life}: {:?}", now.flash.layer().info());
                now.run(&[(Op::Flush, 0)], polls)
            });
            if let Some(result) = ended {
                assert_eq!(result, Ok(()), "life {life}: {:?}", now.flash.layer().info());
                synced.extend(written.iter().map(|(subpage, value)| (*subpage, Some(*value))));
            }
        }
        if is_last || life % 50 == 0 && now.ended.is_empty() && now.queue.in_flight() == 0 {
            for (&subpage, value) in &synced {
                assert_eq!(now.run(&[(Op::Read, subpage)], u64::MAX), Some(Ok(())));
                let mut word = [0; 8];
                now.frames.read(0, &mut word);
                assert!(value.is_none_or(|value| word == value.to_le_bytes()), "life {life}, subpage {subpage}");
            }
        }
        medium = now.crash();
    }
}
