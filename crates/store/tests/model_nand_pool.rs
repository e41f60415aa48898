//! Goal: a pool over NAND in real time loses nothing that was synced: not by reclaim, not by going
//! back to a token, not when it is opened again over a device whose model begins anew, and not when
//! blocks wear out. Method: random requests through a queue of the pool against a map, which is
//! kept at each token; often enough overwritten that reclaim runs; the device is made anew over the
//! same memory between lives. With wear, writes may fail once there is no space, and a life may
//! end; what was synced before that is read back over a device that does not fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{Completion, Flash, FlashError, Layered, MemoryFlash, NandFlash, Op, Queue, Request};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_nand::{FilConfig, Geometry as Division, Parts, Profile};
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::{Arena, Backed, Notifier};
use fulgurite_testkit::{Random, seed};

const DEPTH: usize = 16;
const EXTENT_PAGES: u32 = 16;
const SUBPAGES: u32 = 1000;

/// 4 planes of 70 blocks of 8 pages, in times that a test can wait for; extents span 2 planes.
fn profile() -> Profile {
    let mut profile = Profile::built_in("slc").unwrap();
    profile.geometry = Division::new(Parts {
        channels: 2,
        packages_per_channel: 1,
        dies_per_package: 1,
        planes_per_die: 2,
        blocks_per_plane: 70,
        pages_per_block: 8,
        page_bytes: 4096,
    })
    .unwrap();
    profile.wear.factory_bad = 0.0;
    let timing = &mut profile.timing;
    (timing.command_ns, timing.read_ns, timing.program_ns, timing.erase_ns) = (20, 1_000, 2_000, 5_000);
    timing.bus_bytes_per_second = 40_000_000_000;
    profile
}
fn fil() -> FilConfig {
    FilConfig { planes_per_extent: 2, log_blocks: 4, spare_blocks: 2, hold_ns: 2_000, ..FilConfig::default() }
}

fn value_of(frames: &Arena, frame: usize) -> u64 {
    let mut page = [0; SUBPAGE_BYTES];
    frames.read(frame * SUBPAGE_BYTES, &mut page);
    let first = u64::from_le_bytes(page[..8].try_into().unwrap());
    assert!(page.chunks(8).all(|word| word == first.to_le_bytes()), "a torn subpage");
    first
}

/// A life of a pool: from its opening to its end.
struct Life {
    nand: Arc<NandFlash>,
    flash: Layered<Pool>,
    queue: Box<dyn Queue>,
    frames: Arc<Arena>,
    ended: Vec<Completion>,
}

impl Life {
    fn open(nand: NandFlash, make: bool) -> Life {
        let nand = Arc::new(nand);
        let medium: Arc<dyn Flash> = nand.clone();
        assert_eq!(nand.extent_pages(), EXTENT_PAGES);
        if make {
            let geometry = Geometry::new(nand.subpages(), EXTENT_PAGES, Some(SUBPAGES)).unwrap();
            Pool::format(&medium, geometry, PoolId([7; 16]), 0).unwrap();
        }
        let mut config = StoreConfig::default();
        (config.checkpoint_after, config.commit_after) = (16, 4);
        let flash = Pool::open(medium, config).unwrap().0.into_flash();
        let frames = Arc::new(Arena::anonymous(DEPTH * SUBPAGE_BYTES, Backed::BasePages).unwrap());
        let queue = flash.open_queue(frames.clone(), DEPTH, Arc::new(Notifier::new().unwrap())).unwrap();
        Life { nand, flash, queue, frames, ended: Vec::new() }
    }
    fn pool(&self) -> &Pool {
        self.flash.layer()
    }
    /// Different subpages, each read (none) or written, at a time; results in their order. What a
    /// read found is its value.
    fn batch(&mut self, wanted: &[(u32, Option<u64>)]) -> Vec<Result<u64, FlashError>> {
        for (frame, (subpage, value)) in wanted.iter().enumerate() {
            let bytes = value.unwrap_or(u64::MAX).to_le_bytes().repeat(SUBPAGE_BYTES / 8);
            self.frames.write(frame * SUBPAGE_BYTES, &bytes);
            let op = if value.is_some() { Op::Write } else { Op::Read };
            let (subpage, at) = (SubpageIndex(*subpage), FrameIndex(frame as u32));
            self.queue.submit(Request { tag: frame as u64, op, subpage, frame: at }).unwrap();
        }
        let _ = self.queue.flush();
        let mut results = vec![None; wanted.len()];
        let start = std::time::Instant::now();
        while self.queue.in_flight() > 0 {
            if self.queue.poll(&mut self.ended) == 0 {
                self.queue.wait(Some(Duration::from_micros(100)));
            }
            for c in self.ended.drain(..) {
                let frame = c.tag as usize;
                let result = c.result.map(|()| value_of(&self.frames, frame));
                assert!(results[frame].replace(result).is_none(), "a request ended twice");
            }
            assert!(start.elapsed() < Duration::from_secs(60), "requests never end");
        }
        results.into_iter().map(|result| result.expect("each ends")).collect()
    }
    /// Everything is as the map says. Nothing was written to what it does not say.
    fn check(&mut self, expected: &BTreeMap<u32, u64>) {
        let all: Vec<(u32, Option<u64>)> = (0..SUBPAGES).map(|subpage| (subpage, None)).collect();
        for wanted in all.chunks(DEPTH) {
            for ((subpage, _), result) in wanted.iter().zip(self.batch(wanted)) {
                assert_eq!(result, Ok(expected.get(subpage).copied().unwrap_or(0)), "subpage {subpage}");
            }
        }
    }
}

/// Different subpages, half of them of a tenth of all.
fn choose(random: &mut Random) -> Vec<u32> {
    let mut chosen = Vec::new();
    for _ in 0..=random.below(DEPTH as u64 - 1) {
        let range = if random.below(2) == 0 { SUBPAGES / 10 } else { SUBPAGES };
        let subpage = random.below(range);
        if !chosen.contains(&subpage) {
            chosen.push(subpage);
        }
    }
    chosen
}

#[test]
fn nothing_is_lost_by_reclaim_tokens_and_lives() {
    let mut random = Random(seed() | 1);
    let device = |memory: &Arc<MemoryFlash>, old: bool| {
        let make = if old { NandFlash::reopened } else { NandFlash::new };
        make(memory.clone(), profile(), fil()).unwrap()
    };
    let memory = Arc::new(MemoryFlash::new(2048).unwrap());
    let (mut live, mut synced, mut value) = (BTreeMap::new(), BTreeMap::new(), 0);
    let mut reclaimed = 0;
    for number in 0..3 {
        let mut life = Life::open(device(&memory, number > 0), number == 0);
        life.check(&synced);
        live.clone_from(&synced);
        let mut token = None;
        for step in 0..1500 {
            let wanted: Vec<_> = choose(&mut random)
                .into_iter()
                .map(|subpage| {
                    value += 1;
                    (subpage, (random.below(3) != 0).then_some(value))
                })
                .collect();
            for ((subpage, write), result) in wanted.iter().zip(life.batch(&wanted)) {
                assert!(result.is_ok(), "subpage {subpage}: {result:?}");
                match write {
                    Some(value) => drop(live.insert(*subpage, *value)),
                    None => assert_eq!(result, Ok(live.get(subpage).copied().unwrap_or(0)), "subpage {subpage}"),
                }
            }
            if step % 100 == 99 {
                token = Some(life.pool().sync().unwrap());
                synced.clone_from(&live);
            }
            if step % 400 == 350 {
                life.pool().roll_back(token.unwrap()).unwrap();
                live.clone_from(&synced);
                life.check(&live);
            }
        }
        life.check(&live);
        assert_eq!(life.pool().audit(), Vec::<String>::new());
        reclaimed += life.pool().counters().reclaimed;
        let report = life.nand.report();
        assert_eq!((report.nand.violations, report.fil.read_failures, report.fil.write_failures), (0, 0, 0));
        assert!(report.nand.erases > 0, "nothing was erased in life {number}");
    }
    assert!(reclaimed > 0, "nothing was reclaimed");
}

#[test]
fn nothing_synced_is_lost_when_blocks_wear_out() {
    let mut random = Random(seed() | 1);
    let mut worn = profile();
    // The first fail after about 8 erases.
    (worn.wear.endurance, worn.wear.failure, worn.wear.spread) = (20, 20, 0.4);
    let memory = Arc::new(MemoryFlash::new(2048).unwrap());
    let mut life = Life::open(NandFlash::new(memory.clone(), worn, fil()).unwrap(), true);
    let mut live: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut synced, mut value, mut steps) = (BTreeMap::new(), 0, 0);
    'life: for step in 0..6000 {
        let wanted: Vec<_> = choose(&mut random)
            .into_iter()
            .map(|subpage| {
                value += 1;
                (subpage, (random.below(3) != 0).then_some(value))
            })
            .collect();
        for ((subpage, write), result) in wanted.iter().zip(life.batch(&wanted)) {
            match (write, result) {
                (Some(value), Ok(_)) => drop(live.insert(*subpage, *value)),
                (None, Ok(found)) => assert_eq!(found, live.get(subpage).copied().unwrap_or(0), "subpage {subpage}"),
                // The device is at its end.
                (_, Err(error)) => {
                    println!("step {step}, subpage {subpage}, {write:?}: {error}");
                    break 'life;
                }
            }
        }
        steps = step;
        if step % 50 == 49 {
            match life.pool().sync() {
                Ok(_) => synced.clone_from(&live),
                Err(error) => {
                    println!("step {step}, sync: {error}");
                    break;
                }
            }
        }
        if life.nand.report().fil.write_failures > 200 {
            break;
        }
    }
    let report = life.nand.report();
    println!("{steps} steps, {report:?}");
    assert!(report.fil.write_failures > 0, "no write failed");
    assert!(synced.len() > SUBPAGES as usize / 2, "it ended before it had begun");
    assert_eq!(report.nand.violations, 0);
    // By what is stored there, without the blocks' failures. A sync that failed may be there all
    // the same: then it is newer, never less.
    drop(life);
    let mut life = Life::open(NandFlash::reopened(memory, profile(), fil()).unwrap(), false);
    for subpage in 0..SUBPAGES {
        let found = life.batch(&[(subpage, None)])[0];
        let allowed = [&synced, &live].map(|map| map.get(&subpage).copied().unwrap_or(0));
        assert!(found.is_ok_and(|found| found >= allowed[0]), "subpage {subpage}: {found:?}, synced {allowed:?}");
    }
    assert_eq!(life.pool().audit(), Vec::<String>::new());
}
