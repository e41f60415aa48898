//! How a small batch of write-backs falls apart, and what keeping hot and cold apart is worth.
//!
//! A program with Zipf keys writes through a cache of 3% of its data; what leaves the cache dirty
//! is written to a store in batches. Counted, not timed: what is written for each subpage that the
//! program wrote (write amplification, without metadata), and how many subpages of a batch are
//! contiguous, so that a medium makes one request of them. For a pool that is striped over several
//! members, the example also counts to how many members six requests of up to 256 KiB go, which is
//! the number that a sync has under way.
//!
//! `cargo run --release -p fulgurite-store --example runs -- [ZIPF [BATCH [SHARE OF READS [FLASH
//! PAGES IN AN EXTENT [MEMBERS [VICTIMS]]]]]]`, the last longest-chains, greedy or cost-benefit

mod shared;

use std::collections::{HashMap, HashSet, VecDeque};

use fulgurite_format::PoolId;
use fulgurite_store::{Durability, Geometry, Store, StoreConfig, Victims, recover};
use shared::{Pages, Random};

/// Subpages of data: half a gigabyte.
const SUBPAGES: u32 = 131_072;
/// Times that all of it is written; the second half is counted.
const OVERWRITES: u64 = 6;

/// Requests that a sync has under way, and the most subpages of one.
const REQUESTS: usize = 6;
const REQUEST_SUBPAGES: u32 = 64;

/// How many members receive the requests that are under way together.
#[derive(Default)]
struct Spread {
    last: VecDeque<u32>,
    sum: u64,
    count: u64,
}

impl Spread {
    fn request(&mut self, member: u32) {
        self.last.push_back(member);
        if self.last.len() > REQUESTS {
            self.last.pop_front();
        }
        let different: HashSet<u32> = self.last.iter().copied().collect();
        (self.sum, self.count) = (self.sum + different.len() as u64, self.count + 1);
    }
    fn mean(&self) -> f64 {
        self.sum as f64 / self.count as f64
    }
}

/// Subpages in the order in which a cache lets them go dirty.
struct WriteBacks {
    /// By rank, how likely a key of that rank or a more popular one is, not divided by the sum.
    sums: Vec<f64>,
    read_share: f64,
    random: Random,
    /// Whether it was used since it was last checked, and whether it is dirty.
    cache: HashMap<u32, (bool, bool)>,
    clock: VecDeque<u32>,
}

impl WriteBacks {
    fn next(&mut self) -> u32 {
        let all = *self.sums.last().expect("there are keys");
        loop {
            if self.cache.len() > SUBPAGES as usize * 3 / 100 {
                let oldest = self.clock.pop_front().expect("as long as the cache");
                let (used, dirty) = self.cache[&oldest];
                if used {
                    self.cache.insert(oldest, (false, dirty));
                    self.clock.push_back(oldest);
                    continue;
                }
                self.cache.remove(&oldest);
                if dirty {
                    return oldest;
                }
            }
            let at = self.random.unit() * all;
            let rank = self.sums.partition_point(|sum| *sum < at) as u32;
            // An odd factor: each rank has a place of its own.
            let subpage = rank.wrapping_mul(0x9E37_79B9) % SUBPAGES;
            let writes = self.random.unit() >= self.read_share;
            match self.cache.get_mut(&subpage) {
                Some((used, dirty)) => (*used, *dirty) = (true, *dirty || writes),
                None => {
                    self.cache.insert(subpage, (false, writes));
                    self.clock.push_back(subpage);
                }
            }
        }
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let victims = match std::env::args().nth(6).as_deref() {
        Some("longest-chains") => Victims::LongestChains,
        Some("greedy") => Victims::Greedy,
        Some("cost-benefit") | None => Victims::CostBenefit,
        Some(other) => panic!("{other} is no way to choose victims"),
    };
    let mut number = |otherwise: f64| words.next().map_or(otherwise, |word| word.parse().expect("a number"));
    let (zipf, batch_len, read_share) = (number(1.2), number(16.0) as usize, number(0.8));
    let (extent_pages, members) = (number(512.0) as u32, number(1.0) as u32);
    let flash_pages = SUBPAGES * 5 / 4 + 32 * 512;
    let geometry = Geometry::new(flash_pages, extent_pages, Some(SUBPAGES)).expect("sizes that go together");
    let mut metadata = Pages { pages: HashMap::new(), flash_pages: geometry.flash_pages() };
    metadata.pages.extend(Store::format(geometry, PoolId([1; 16]), 0));
    let mut config = StoreConfig::default();
    config.durability = Durability::Cache;
    config.victims = victims;
    let (mut store, _) = recover(&mut metadata, config).expect("made above");
    let mut places = Vec::new();
    // Returns how many runs it was.
    let mut write = |store: &mut Store, batch: &mut Vec<u32>, spread: &mut Spread| {
        batch.sort_unstable();
        batch.dedup();
        let mut runs = 0;
        let mut rest = &batch[..];
        while !rest.is_empty() {
            places.clear();
            store.place(rest, &mut places).expect("there is space");
            let (now, later) = rest.split_at(places.len());
            let mut written: Vec<_> = now.iter().zip(&places).map(|(subpage, place)| (*subpage, *place, 0)).collect();
            store.written(&mut written).expect("nothing fails");
            rest = later;
            places.sort_unstable();
            for run in places.chunk_by(|a, b| a + 1 == *b) {
                runs += 1;
                // As `Striped` has it: one extent after the other, on one member after the other.
                let requests = run.chunks(REQUEST_SUBPAGES as usize);
                requests.for_each(|request| spread.request(request[0] / extent_pages % members));
            }
            metadata.serve(store);
        }
        batch.clear();
        runs
    };
    let mut batch: Vec<u32> = Vec::new();
    for subpage in 0..SUBPAGES {
        batch.push(subpage);
        if batch.len() == 512 {
            write(&mut store, &mut batch, &mut Spread::default());
        }
    }
    let sums = (1..=SUBPAGES).scan(0.0, |sum, rank| {
        *sum += f64::from(rank).powf(-zipf);
        Some(*sum)
    });
    let random = Random(0x9E37_79B9_7F4A_7C15);
    let mut next =
        WriteBacks { sums: sums.collect(), read_share, random, cache: HashMap::new(), clock: VecDeque::new() };
    let (mut before, mut runs, mut spread) = (store.counters(), 0, Spread::default());
    for i in 0..OVERWRITES * u64::from(SUBPAGES) {
        if i == OVERWRITES * u64::from(SUBPAGES) / 2 {
            (before, runs, spread) = (store.counters(), 0, Spread::default());
        }
        batch.push(next.next());
        if batch.len() == batch_len {
            runs += write(&mut store, &mut batch, &mut spread);
        }
    }
    let after = store.counters();
    let (written, copied) = (after.written - before.written, after.copied - before.copied);
    println!(
        "{victims:?}, Zipf {zipf}, batches of {batch_len}, {:.0}% reads: {:.3} written for each, {:.2} side by side",
        read_share * 100.0,
        (written + copied) as f64 / written as f64,
        written as f64 / runs as f64
    );
    if members > 1 {
        println!("extents of {extent_pages}: {REQUESTS} requests go to {:.2} of {members} members", spread.mean());
    }
}
