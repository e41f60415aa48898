//! Goal: what the cache says of an object is what was put last, and flash gets it in the end,
//! whatever is evicted, read, written late, or fails, and however large the cache becomes. Method:
//! random operations on the cache, on a map of what must be there and on a map of what flash has.
//! Writes and reads are under way for a while, and end in any order, well or not. The cache is
//! resized meanwhile. Each planted bug is found.

use std::collections::HashMap;

use fulgurite_objects::{Batch, Cache, Planted, Pressure, Ticket};
use fulgurite_testkit::Random;

const BYTES: usize = 1 << 20;
const NUMBERS: u64 = 9000;
const STEPS: usize = 120_000;

/// The content of an object, as the version and length that determine it. None where it was freed.
type Versions = HashMap<u32, Option<(u64, usize)>>;

fn content(number: u32, version: u64, length: usize) -> Vec<u8> {
    (0..length).map(|i| (u64::from(number) * 31 + version * 7 + i as u64 / 3) as u8).collect()
}
fn of(number: u32, what: Option<(u64, usize)>) -> Vec<u8> {
    what.map_or(Vec::new(), |(version, length)| content(number, version, length))
}

struct World {
    cache: Cache,
    random: Random,
    now: Versions,
    flash: HashMap<u32, Vec<u8>>,
    writing: Vec<Batch>,
    reading: Vec<(u32, Ticket, Vec<u8>)>,
    version: u64,
    resized: u64,
}

impl World {
    fn new(seed: u64, bug: Option<Planted>) -> World {
        let mut cache = Cache::new(BYTES);
        cache.plant(bug);
        let (now, flash) = (HashMap::new(), HashMap::new());
        World {
            cache,
            random: Random(seed),
            now,
            flash,
            writing: Vec::new(),
            reading: Vec::new(),
            version: 0,
            resized: 0,
        }
    }
    fn number(&mut self) -> u32 {
        // Half of the accesses go to a tenth.
        let below = if self.random.below(2) == 0 { NUMBERS / 10 } else { NUMBERS };
        self.random.below(below) as u32
    }
    fn expected(&self, number: u32) -> Vec<u8> {
        of(number, self.now.get(&number).copied().flatten())
    }
    fn check_one(&mut self, number: u32) -> Result<(), String> {
        let expected = self.expected(number);
        let found = self.cache.get(number, <[u8]>::to_vec);
        match found {
            Some(found) if found != expected => Err(format!("object {number} is not what was put")),
            Some(_) => Ok(()),
            None => {
                let flash = self.flash.get(&number).cloned().unwrap_or_default();
                if flash != expected {
                    return Err(format!("object {number} is neither here nor in flash"));
                }
                let ticket = self.cache.begin_read(number);
                self.reading.push((number, ticket, flash));
                Ok(())
            }
        }
    }
    fn put(&mut self, number: u32) {
        if self.cache.pressure() == Pressure::Wait {
            self.begin_write();
            while !self.writing.is_empty() {
                self.end_write(true);
            }
            return;
        }
        self.version += 1;
        let what = match self.random.below(8) {
            0 => None,
            1 => Some((self.version, self.random.below(4097) as usize)),
            // Mostly of one length, so that it is overwritten in place.
            _ => Some((self.version, 60 + number as usize % 200)),
        };
        let bytes = of(number, what);
        self.cache.put(number, &bytes).expect("there is room where there is no pressure");
        self.now.insert(number, what);
    }
    fn begin_write(&mut self) {
        let mut batch = Batch::new();
        self.cache.begin_write(1 + self.random.below(300) as usize, 1 << 16, &mut batch);
        self.writing.push(batch);
    }
    fn end_write(&mut self, well: bool) {
        if self.writing.is_empty() {
            return;
        }
        // In order: the store records batches so.
        let batch = self.writing.remove(0);
        if well {
            for (number, bytes) in batch.objects() {
                self.flash.insert(number, bytes.to_vec());
            }
        }
        self.cache.end_write(&batch.numbers(), well);
    }
    fn end_read(&mut self) {
        if self.reading.is_empty() {
            return;
        }
        let at = self.random.below(self.reading.len() as u64) as usize;
        let (number, ticket, bytes) = self.reading.swap_remove(at);
        let well = self.random.below(8) > 0;
        self.cache.end_read(number, ticket, well.then_some(&bytes));
    }
    /// To a size between a quarter of the first one and twice it.
    fn resize(&mut self) -> Result<(), String> {
        let bytes = BYTES / 4 + self.random.below(BYTES * 7 / 4);
        let before = (self.cache.unwritten(), self.cache.unwritten_bytes(), self.cache.bytes(), self.cache.len());
        let resized = self.cache.resize(bytes);
        self.cache.check()?;
        let after = (self.cache.unwritten(), self.cache.unwritten_bytes(), self.cache.bytes(), self.cache.len());
        match resized {
            Ok(()) if after.2 <= bytes && (after.0, after.1) == (before.0, before.1) => {
                // What fits stays.
                if bytes > before.2 * 5 / 4 && after.3 < before.3 {
                    return Err(format!("objects left a cache that grew: {before:?}, {after:?}"));
                }
                self.resized += 1;
            }
            Err(_) if after == before => {}
            _ => return Err(format!("resized to {bytes} from {before:?}: {resized:?}, {after:?}")),
        }
        Ok(())
    }
    fn run(&mut self) -> Result<(), String> {
        for step in 0..STEPS {
            let number = self.number();
            match self.random.below(16) {
                0..6 => self.check_one(number)?,
                6..12 => self.put(number),
                12 => self.begin_write(),
                13 => {
                    let well = self.random.below(6) > 0;
                    self.end_write(well);
                }
                _ => self.end_read(),
            }
            if step % 3000 == 0 {
                self.resize()?;
            }
            if step % 10_000 == 0 {
                self.cache.check()?;
            }
        }
        while self.cache.unwritten() > 0 {
            self.begin_write();
            while !self.writing.is_empty() {
                self.end_write(true);
            }
        }
        self.cache.check()?;
        for number in 0..NUMBERS as u32 {
            if self.flash.get(&number).cloned().unwrap_or_default() != self.expected(number) {
                return Err(format!("flash never got object {number}"));
            }
        }
        Ok(())
    }
}

#[test]
fn what_was_put_is_found() {
    fulgurite_testkit::each_seed(1, 4, |seed| {
        let mut world = World::new(seed, None);
        world.run().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let counts = world.cache.counts();
        assert!(counts.evicted > 1000 && counts.hits > 1000 && counts.written > 1000, "{counts:?}");
        assert!(counts.returned > 100 && counts.returned < counts.misses, "{counts:?}");
        assert!(world.resized > 10, "only {} times", world.resized);
    });
}

#[test]
fn planted_bugs_are_found() {
    let bugs = [Planted::OldReadEnters, Planted::ChangedIsWritten, Planted::WritingLeaves, Planted::FailedIsWritten];
    for bug in bugs {
        let found = (1..=8).find_map(|seed| World::new(seed, Some(bug)).run().err());
        assert!(found.is_some(), "{bug:?} was not found");
    }
}

#[test]
fn a_cache_keeps_what_was_used_when_it_shrinks() {
    let mut cache = Cache::new(BYTES);
    for number in 0..6000u32 {
        let ticket = cache.begin_read(number);
        assert!(cache.end_read(number, ticket, Some(&[number as u8; 100])));
    }
    for _ in 0..2 {
        (0..1000).for_each(|number| _ = cache.get(number, |_| ()));
    }
    let all = cache.len();
    cache.resize(BYTES / 2).unwrap();
    cache.check().unwrap();
    assert!(cache.bytes() <= BYTES / 2 && cache.len() < all && cache.len() > all / 3, "{} of {all}", cache.len());
    let used = (0..1000).filter(|number| cache.get(*number, |_| ()).is_some()).count();
    assert!(used > 950, "only {used} of those that were used");
    // What waits to be written is not lost for a size.
    for number in 0..2000 {
        cache.put(number, &[1; 100]).unwrap();
    }
    assert!(cache.resize(BYTES / 4).is_err());
    cache.check().unwrap();
    assert_eq!(cache.unwritten(), 2000);
}

#[test]
fn what_is_forgotten_is_gone() {
    let mut cache = Cache::new(BYTES);
    for number in 0..100 {
        cache.put(number, &[number as u8; 40]).unwrap();
    }
    cache.forget_range(&(20..70));
    cache.check().unwrap();
    assert_eq!((cache.len(), cache.unwritten()), (50, 50));
    assert_eq!(cache.get(20, |_| ()), None);
    assert_eq!(cache.get(70, |bytes| bytes[0]), Some(70));
    let ticket = cache.begin_read(20);
    cache.forget();
    cache.check().unwrap();
    assert!(!cache.end_read(20, ticket, Some(b"of before")));
    assert!(cache.is_empty());
}
