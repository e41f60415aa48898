//! Goal: a place is not given to anybody while reclaim copies from it. It was: programs overwrote
//! all that was live in the extent, a commit made it free, and the same subpage was then stored at
//! the same place again. The copy of what had been there before was taken for a copy of that, and
//! the subpage was lost. Method: reclaim's reads of what it copies do not end while all subpages
//! are overwritten again and again; nothing may be stored in the extent that it copies from. Then
//! they end, and everything is read and compared.

use std::sync::Arc;

use fulgurite_flash::{Completion, Fault, FaultPlan, FaultyFlash, Flash, Layer, MemoryFlash, Op, Queue, Request, When};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::{Durability, Geometry, Pool, StoreConfig};
use fulgurite_sys::{Arena, Backed, Notifier};

const EXTENTS: u32 = 40;
const EXTENT_PAGES: u32 = 16;
const SUBPAGES: u32 = 64;
/// One in this number is written once to begin with, and so is copied.
const COLD: u32 = 8;
/// Turns without an end after which none is expected any more.
const PATIENCE: u32 = 20_000;

struct Program {
    queue: Box<dyn Queue>,
    frames: Arc<Arena>,
    completions: Vec<Completion>,
    /// By subpage: what was written last.
    model: Vec<u64>,
}

impl Program {
    fn request(&mut self, op: Op, subpage: u32) {
        self.queue.submit(Request { tag: 0, op, subpage: SubpageIndex(subpage), frame: FrameIndex(0) }).unwrap();
        self.queue.flush().unwrap();
        for _ in 0..PATIENCE {
            if self.queue.poll(&mut self.completions) > 0 {
                assert_eq!(self.completions.pop().map(|c| c.result), Some(Ok(())), "{op:?} of {subpage}");
                return;
            }
        }
        panic!("{op:?} of {subpage} does not end");
    }
    fn write(&mut self, subpage: u32) {
        let value = &mut self.model[subpage as usize];
        *value += 1;
        let content = (u64::from(subpage) << 32 | *value).to_le_bytes().repeat(SUBPAGE_BYTES / 8);
        self.frames.write(0, &content);
        self.request(Op::Write, subpage);
    }
    fn check(&mut self, subpage: u32) {
        self.request(Op::Read, subpage);
        let mut content = [0; 8];
        self.frames.read(SUBPAGE_BYTES - 8, &mut content);
        assert_eq!(u64::from_le_bytes(content), u64::from(subpage) << 32 | self.model[subpage as usize]);
    }
}

#[test]
fn regression_a_place_that_is_copied_from_is_not_given_away() {
    let geometry = Geometry::new(EXTENTS * EXTENT_PAGES, EXTENT_PAGES, Some(SUBPAGES)).unwrap();
    let medium = Arc::new(FaultyFlash::new(MemoryFlash::new(geometry.flash_pages()).unwrap(), FaultPlan::default()));
    let shared: Arc<dyn Flash> = medium.clone();
    Pool::format(&shared, geometry, PoolId([9; 16]), 0).unwrap();
    let mut config = StoreConfig::default();
    config.durability = Durability::Cache;
    let flash = Pool::open(shared, config).unwrap().0.into_flash();
    let frames = Arc::new(Arena::anonymous(SUBPAGE_BYTES, Backed::BasePages).unwrap());
    let queue = flash.open_queue(frames.clone(), 1, Arc::new(Notifier::new().unwrap())).unwrap();
    let mut program = Program { queue, frames, completions: Vec::new(), model: vec![0; SUBPAGES as usize] };

    // The first read is for a summary; the reads of what is copied do not end.
    let stuck = FaultPlan::rule(Some(Op::Read), When::From(2), Fault::Late { polls: u32::MAX });
    medium.set_plan(FaultPlan { record: true, ..stuck });
    let before = medium.record().len();
    let copied_from = || {
        let record = medium.record();
        let mut reads = record[before..].iter().filter(|(op, _)| *op == Op::Read).skip(1);
        reads.next().map(|(_, place)| geometry.extent_of(place.0))
    };
    (0..SUBPAGES).for_each(|subpage| program.write(subpage));
    let mut writes = 0;
    while copied_from().is_none() {
        writes += 1;
        assert!(writes < 100_000, "nothing is ever reclaimed");
        if !(writes % SUBPAGES).is_multiple_of(COLD) {
            program.write(writes % SUBPAGES);
        }
    }
    let extent = copied_from().unwrap();
    (0..SUBPAGES).for_each(|subpage| program.write(subpage));
    let is_there = |subpage: &u32| {
        flash.layer().locate(*subpage).place().is_some_and(|place| geometry.extent_of(place.flash_page) == extent)
    };
    assert_eq!((0..SUBPAGES).find(is_there), None, "all was written elsewhere");
    for round in 0..40 * EXTENTS {
        let subpage = round * 7 % SUBPAGES;
        program.write(subpage);
        assert!(!is_there(&subpage), "subpage {subpage} was given a place in extent {extent}, from which is copied");
    }
    medium.set_plan(FaultPlan::default());
    medium.end_late();
    // Then it is an extent as any other.
    let mut used_again = false;
    for round in 0..100 * EXTENTS {
        let subpage = round * 7 % SUBPAGES;
        program.write(subpage);
        used_again |= is_there(&subpage);
    }
    assert!(used_again, "extent {extent} is never used again");
    (0..SUBPAGES).for_each(|subpage| program.check(subpage));
    assert_eq!(flash.layer().counters().damaged, 0);
    assert_eq!(flash.layer().audit(), Vec::<String>::new());
}

/// The test for objects, which are stored several to a flash page and are copied by means of pages
/// that are packed anew.
#[test]
fn regression_a_place_that_objects_are_copied_from_is_not_given_away() {
    const OBJECTS: u32 = 256;
    let geometry = Geometry::with_objects(EXTENTS * EXTENT_PAGES, EXTENT_PAGES, OBJECTS).unwrap();
    let medium = Arc::new(FaultyFlash::new(MemoryFlash::new(geometry.flash_pages()).unwrap(), FaultPlan::default()));
    let shared: Arc<dyn Flash> = medium.clone();
    Pool::format(&shared, geometry, PoolId([9; 16]), 0).unwrap();
    let mut config = StoreConfig::default();
    config.durability = Durability::Cache;
    let pool = Pool::open(shared, config).unwrap().0;
    let mut model = vec![0_u64; OBJECTS as usize];
    let mut write = |first: u32| {
        let some = (first..first + 4).map(|subpage| {
            model[subpage as usize] += 1;
            (subpage, (u64::from(subpage) << 32 | model[subpage as usize]).to_le_bytes().repeat(125))
        });
        let some = Vec::from_iter(some);
        pool.write_objects(&Vec::from_iter(some.iter().map(|(subpage, bytes)| (*subpage, &bytes[..])))).unwrap();
    };
    let all = || (0..OBJECTS).step_by(4);
    all().for_each(&mut write);

    let stuck = FaultPlan::rule(Some(Op::Read), When::From(2), Fault::Late { polls: u32::MAX });
    medium.set_plan(FaultPlan { record: true, ..stuck });
    let before = medium.record().len();
    let copied_from = || {
        let record = medium.record();
        let mut reads = record[before..].iter().filter(|(op, _)| *op == Op::Read).skip(1);
        reads.next().map(|(_, place)| geometry.extent_of(place.0))
    };
    let mut writes = 0_u32;
    while copied_from().is_none() {
        writes += 1;
        assert!(writes < 100_000, "nothing is ever reclaimed");
        // Some are never written again, and so are copied.
        if !writes.is_multiple_of(COLD) {
            write(writes * 4 % OBJECTS);
        }
    }
    let extent = copied_from().unwrap();
    all().for_each(&mut write);
    let is_there = |subpage: &u32| {
        pool.locate_object(*subpage).unwrap().is_some_and(|object| geometry.extent_of(object.at.flash_page) == extent)
    };
    assert_eq!((0..OBJECTS).find(is_there), None, "all was written elsewhere");
    for round in 0..40 * EXTENTS {
        let subpage = round * 28 % OBJECTS;
        write(subpage);
        assert!(!is_there(&subpage), "object {subpage} was given a place in extent {extent}, from which is copied");
    }
    medium.set_plan(FaultPlan::default());
    medium.end_late();
    let mut used_again = false;
    for round in 0..100 * EXTENTS {
        let subpage = round * 28 % OBJECTS;
        write(subpage);
        used_again |= is_there(&subpage);
    }
    assert!(used_again, "extent {extent} is never used again");
    let mut content = [0; SUBPAGE_BYTES];
    for (subpage, version) in (0..OBJECTS).zip(&model) {
        let length = pool.read_object(subpage, &mut content).unwrap();
        assert_eq!(content[..length], (u64::from(subpage) << 32 | version).to_le_bytes().repeat(125));
    }
    assert_eq!(pool.counters().damaged, 0);
    assert_eq!(pool.audit(), Vec::<String>::new());
}
