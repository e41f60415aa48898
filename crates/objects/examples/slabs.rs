//! How much of its DRAM a cache of objects fills with objects: this crate's log compared with
//! slabs.
//!
//! ```text
//! cargo run --release -p fulgurite-objects --example slabs
//! ```
//!
//! Both have 16 MiB and get the same objects, until twice as many came as there is room for. Each
//! is used twice at once, so that it is not taken for one that is never used again. The slabs are
//! memcached's: of 64 KiB, of one class of sizes each, with classes that grow by a factor. A class
//! without a free chunk takes the slab that waits longest in its own class. So slabs stay with the
//! sizes that came first, as they do without a mover of slabs. What is left of those sizes is not
//! counted in the last line. The entry's header and the index cost the same in both, and a chunk
//! has two links of 4 bytes more, for the order of eviction.

use std::collections::VecDeque;

use fulgurite_objects::{CACHE_BYTES_MIN, Cache, OBJECT_BYTES_MAX};
use fulgurite_testkit::Random;

const BYTES: usize = 16 << 20;
const SLAB: usize = 64 << 10;
/// Header and index, as in the log. A ghost and a queue of dirty objects are left out.
const ENTRY: usize = 8 + 4;
const LINKS: usize = 8;
const _: () = assert!(BYTES >= CACHE_BYTES_MIN);

/// Slabs of classes of sizes.
struct Slabs {
    /// The longest object of each class, and its slabs, oldest first: the objects in each.
    classes: Vec<(usize, VecDeque<Vec<usize>>)>,
    free: usize,
}

impl Slabs {
    fn new(factor: f64) -> Slabs {
        let mut classes = vec![(32, VecDeque::new())];
        while classes[classes.len() - 1].0 < OBJECT_BYTES_MAX {
            let next = (classes[classes.len() - 1].0 as f64 * factor) as usize;
            classes.push((next.next_multiple_of(8).min(OBJECT_BYTES_MAX), VecDeque::new()));
        }
        Slabs { classes, free: BYTES / SLAB }
    }
    fn put(&mut self, length: usize) {
        let (longest, slabs) = self.classes.iter_mut().find(|(longest, _)| length <= *longest).expect("a class");
        let chunks = SLAB / (*longest + ENTRY + LINKS);
        if slabs.back().is_none_or(|slab| slab.len() == chunks) {
            if self.free > 0 {
                self.free -= 1;
            } else if slabs.pop_front().is_none() {
                // All slabs are of other classes: it is not cached.
                return;
            }
            slabs.push_back(Vec::with_capacity(chunks));
        }
        slabs.back_mut().expect("it was made").push(length);
    }
    fn held(&self, lengths: std::ops::Range<usize>) -> usize {
        let held = self.classes.iter().flat_map(|(_, slabs)| slabs.iter().flatten());
        held.filter(|length| lengths.contains(length)).sum()
    }
}

/// The log: what it holds of objects with these numbers.
struct Log {
    cache: Cache,
    next: u32,
}

impl Log {
    fn put(&mut self, length: usize) {
        let ticket = self.cache.begin_read(self.next);
        self.cache.end_read(self.next, ticket, Some(&[7; OBJECT_BYTES_MAX][..length]));
        for _ in 0..2 {
            self.cache.get(self.next, |_| ());
        }
        self.next += 1;
    }
    fn held(&mut self, lengths: std::ops::Range<usize>) -> usize {
        let held = (0..self.next).filter_map(|number| self.cache.get(number, <[u8]>::len));
        held.filter(|length| lengths.contains(length)).sum()
    }
}

/// Lengths of objects, from a random number.
type Lengths = fn(&mut Random) -> usize;

fn main() {
    let fixed: Lengths = |_| 128;
    let short: Lengths = |random| 16 + random.below(384) as usize;
    // As many between 16 and 32 as between 2048 and 4096.
    let wide: Lengths = |random| {
        let from = 16 << random.below(8);
        from + random.below(from as u64) as usize
    };
    let long: Lengths = |random| 1000 + random.below(1000) as usize;
    let mixes: [(&str, &[Lengths], usize); 4] = [
        ("128 bytes", &[fixed], 0),
        ("16 to 400, uniform", &[short], 0),
        ("16 to 4096, each power of two as often", &[wide], 0),
        ("1000 to 2000, after 16 to 400", &[short, long], 1000),
    ];
    println!("share of 16 MiB that holds objects            log   slabs, by 1.25   by 1.08");
    for (name, phases, least) in mixes {
        let mut log = Log { cache: Cache::new(BYTES), next: 0 };
        let mut slabs = [Slabs::new(1.25), Slabs::new(1.08)];
        let mut random = Random(1);
        for lengths in phases {
            let mut came = 0;
            while came < 2 * BYTES {
                let length = lengths(&mut random);
                log.put(length);
                slabs.iter_mut().for_each(|slabs| slabs.put(length));
                came += length;
            }
        }
        let share = |held: usize| 100.0 * held as f64 / BYTES as f64;
        let counted = least..OBJECT_BYTES_MAX + 1;
        let [wide, narrow] = slabs.each_ref().map(|slabs| share(slabs.held(counted.clone())));
        let log = share(log.held(counted));
        println!("{name:<42} {log:>5.1}%  {wide:>12.1}%  {narrow:>8.1}%");
    }
}
