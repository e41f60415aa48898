//! The seven workloads as streams of addresses, without data.
//!
//! An operation computes, walks an index, and touches records. The index has 16 children a node and
//! a cache block a node. A record is chosen by Zipf over all pages. In addition, an operation
//! touches blocks of its thread's own: stack and buffers.
//!
//! A node of the red-black tree is one cache block, and nodes are scattered over the pages
//! (`fulgurite-workloads`). A page has few popular ones. So the records of an operation are the
//! nodes at the end of one path, and a page's block is always the same one. Each node's place is
//! read in the one before, and all are as popular as the key. How many there are is the system's
//! to say ([`Shape`]). At the sizes of `model_cores` there are four: of 2^19 nodes, the 12 levels
//! above are as many as 4,096 pages of DRAM hold at all times. Below are 7 nodes of a path, half of
//! them on pages in DRAM, which holds half of the data. The other four are missing one after the
//! other.
//!
//! What a miss costs does not depend on what an operation is for. So a workload is its shape: how
//! much it computes, and how many dependent and independent accesses it makes. The interval between
//! misses follows from that, from Zipf's exponent and from the size of DRAM, and is reported.

use crate::closed_forms::bisect;
use crate::random::Random;
use crate::system::{Document, SystemError};

/// Bytes of a page and of a cache block.
pub const PAGE: u64 = 4096;
pub const BLOCK: u64 = 64;
const FANOUT: u64 = 16;
/// The odd number next to 2^64 / golden ratio.
const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;
/// The most levels of an index, and the pages of one of that many.
pub const LEVELS_MAX: u32 = 6;
const INDEX_PAGES: u64 = (FANOUT.pow(LEVELS_MAX) - 1) / (FANOUT - 1) * BLOCK / PAGE + 1;
/// Pages of each thread's own blocks, and the blocks that they have.
const OWN_PAGES: u64 = 2;
pub const OWN_BLOCKS: u64 = OWN_PAGES * PAGE / BLOCK;

/// Zipf's distribution over 1 to `count`, by rejection-inversion (Hörmann and Derflinger, 1996).
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    exponent: f64,
    first: f64,
    last: f64,
    shortcut: f64,
    count: f64,
}

impl Zipf {
    /// Over `count` ranks.
    pub fn new(count: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf { exponent, first: 0.0, last: 0.0, shortcut: 0.0, count: count as f64 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(count as f64 + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }
    /// The integral of x^-exponent, up to a constant.
    fn integral(&self, x: f64) -> f64 {
        let (log, power) = (libm::log(x), 1.0 - self.exponent);
        if power.abs() < 1e-9 { log } else { libm::expm1(power * log) / power }
    }
    fn inverse(&self, x: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power.abs() < 1e-9 { libm::exp(x) } else { libm::exp(libm::log1p((x * power).max(-1.0)) / power) }
    }
    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.exponent * libm::log(x))
    }
    /// A rank, from 0 on.
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.last + random.unit() * (self.first - self.last);
            let x = self.inverse(u);
            let k = (x + 0.5).clamp(1.0, self.count) as u64;
            let rank = k as f64;
            if rank - x <= self.shortcut || u >= self.integral(rank + 0.5) - self.density(rank) {
                return k - 1;
            }
        }
    }
}

/// A cache of the least recently used under Zipf, by Che's approximation: an item stays for the
/// same time since its last use, whichever it is (Che, Tung and Wang, 2002). Times are in draws.
struct Che {
    /// Ranks in groups that grow by a 50th, each as if all of it were its middle: the first rank,
    /// how many, and their share of the draws.
    groups: Vec<(u64, u64, f64)>,
    stays: f64,
}

impl Che {
    /// None: everything fits.
    fn new(count: u64, exponent: f64, frames: u64) -> Option<Che> {
        if frames >= count {
            return None;
        }
        let mut groups: Vec<(u64, u64, f64)> = Vec::new();
        let mut first = 1;
        while first <= count {
            let ranks = (first / 50 + 1).min(count + 1 - first);
            let middle = first as f64 + (ranks - 1) as f64 / 2.0;
            groups.push((first - 1, ranks, libm::exp(-exponent * libm::log(middle))));
            first += ranks;
        }
        let all: f64 = groups.iter().map(|(_, ranks, weight)| *ranks as f64 * weight).sum();
        groups.iter_mut().for_each(|(_, _, weight)| *weight /= all);
        let held = |time: f64| {
            let held = |(_, ranks, share): &(u64, u64, f64)| *ranks as f64 * -libm::expm1(-share * time);
            groups.iter().map(held).sum::<f64>()
        };
        // The logarithm of the time, as it spans many orders.
        let stays = libm::exp(bisect(0.0, 100.0, |log| held(libm::exp(log)) >= frames as f64));
        Some(Che { groups, stays })
    }
}

/// The share of draws that miss such a cache.
pub fn miss_ratio(count: u64, exponent: f64, frames: u64) -> f64 {
    let Some(che) = Che::new(count, exponent, frames) else { return 0.0 };
    let missed = |(_, ranks, share): &(u64, u64, f64)| *ranks as f64 * share * libm::exp(-share * che.stays);
    che.groups.iter().map(missed).sum()
}

/// The ranks that such a cache holds after a long time, the least recently used first.
pub fn resident(count: u64, exponent: f64, frames: u64, random: &mut Random) -> Vec<u64> {
    let Some(che) = Che::new(count, exponent, frames) else { return (0..count).rev().collect() };
    let mut ages: Vec<(f64, u64)> = Vec::with_capacity(frames as usize + che.groups.len());
    for (first, ranks, share) in &che.groups {
        let there = -libm::expm1(-share * che.stays);
        let held = ((*ranks as f64 * there + random.unit()) as u64).min(*ranks);
        for turn in 0..held {
            // One from each of as many equal parts, used at some time since it would have gone.
            let (from, to) = (turn * ranks / held, (turn + 1) * ranks / held);
            let rank = first + from + random.below(to - from);
            ages.push((-libm::log1p(-random.unit() * there) / share, rank));
        }
    }
    // No rank is there twice, so that the order is one.
    ages.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    ages.into_iter().map(|(_, rank)| rank).collect()
}

/// One step of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// This number of instructions.
    Compute(u32),
    /// A load. With `depends` its address is what the last one has loaded.
    Load { address: u64, depends: bool },
    /// A store.
    Store { address: u64 },
    /// The job is done.
    End,
}

/// What an operation is like. A count is a mean: between two whole numbers, each time it is one of
/// them at random.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    /// Operations of a job, one at least.
    pub operations: f64,
    /// Instructions between two accesses.
    pub compute: f64,
    /// Levels of the index, 6 at most. Each is a load that depends on the last.
    pub levels: f64,
    /// Records of an operation, one at least.
    pub records: f64,
    /// Blocks of a record that are touched, one at least.
    pub blocks: f64,
    /// Of 100 records, those whose last block is written.
    pub writes: f64,
    /// Blocks of the thread's own between two records.
    pub own: f64,
    /// The records of an operation are nodes of one path: the index leads to the first one, and
    /// each to the next one. A node is one block, which its page decides.
    pub path: bool,
}

/// The most of a count of a shape.
const COUNT_MAX: f64 = 1e6;

impl Shape {
    /// Reads the shape of a workload, from the keys of `workload.shapes`. None: it has none there.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(document: &Document, workload: Workload) -> Result<Option<Shape>, SystemError> {
        let of = format!("workload.shapes.{}", workload.name());
        if !document.has(&of) {
            return Ok(None);
        }
        let number = |key: &str, low: f64, high: f64| document.number(&format!("{of}.{key}"), low, high);
        Ok(Some(Shape {
            operations: number("operations", 1.0, COUNT_MAX)?,
            compute: number("compute", 0.0, COUNT_MAX)?,
            levels: number("levels", 0.0, f64::from(LEVELS_MAX))?,
            records: number("records", 1.0, COUNT_MAX)?,
            blocks: number("blocks", 1.0, (PAGE / BLOCK) as f64)?,
            writes: 100.0 * document.share(&format!("{of}.writes"))?,
            own: number("own", 0.0, OWN_BLOCKS as f64)?,
            path: document.flag(&format!("{of}.path"))?,
        }))
    }
    /// Records of a job, on average.
    pub fn records_of_job(&self) -> f64 {
        self.operations.max(1.0) * self.records.max(1.0)
    }
}

/// A whole number with this mean: one of the two next to it.
fn whole(mean: f64, random: &mut Random) -> u32 {
    let least = mean.max(0.0) as u32;
    let rest = mean - f64::from(least);
    // A whole mean draws nothing.
    least + u32::from(rest > 0.0 && random.unit() < rest)
}

/// The workloads of AstriFlash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Two elements change places.
    ArraySwap,
    /// Look-ups in a red-black tree.
    Rbt,
    /// Look-ups in a hash table.
    HashTable,
    /// "Update subscriber data".
    Tatp,
    /// "New order".
    Tpcc,
    /// Transactions of Silo.
    Silo,
    /// Look-ups in Masstree.
    Masstree,
}

impl Workload {
    /// All of them, in the paper's order.
    pub const ALL: [Workload; 7] = [
        Workload::ArraySwap,
        Workload::Rbt,
        Workload::HashTable,
        Workload::Tatp,
        Workload::Tpcc,
        Workload::Silo,
        Workload::Masstree,
    ];
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Workload::ArraySwap => "array-swap",
            Workload::Rbt => "rbt",
            Workload::HashTable => "hash-table",
            Workload::Tatp => "tatp",
            Workload::Tpcc => "tpcc",
            Workload::Silo => "silo",
            Workload::Masstree => "masstree",
        }
    }
}

/// Where page tables begin. They are in a part of DRAM that is no cache, unless the system caches
/// them.
pub const TABLES: u64 = 1 << 52;
/// Their first page, after the pages of data: beyond all indices and threads.
const TABLE_PAGES: u64 = 1 << 24;

/// Where the space of addresses is divided: data first, then indices, then threads' own blocks.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Pages of data: a power of two.
    pub pages: u64,
}

impl Space {
    /// The page of a rank: an order without neighbours, one to one.
    pub fn page_of(self, rank: u64) -> u64 {
        let mask = self.pages - 1;
        let half = (u64::BITS - mask.leading_zeros()).div_ceil(2);
        let mut page = rank & mask;
        // Multiplying by an odd number and folding the upper half down can be undone.
        for factor in [SCATTER, 0xd605_1a5f_f91c_a5a3] {
            page = page.wrapping_mul(factor) & mask;
            page ^= page >> half;
        }
        page
    }
    fn node(self, level: u32, rank: u64) -> u64 {
        let nodes = FANOUT.pow(level);
        let before = (nodes - 1) / (FANOUT - 1);
        let node = rank.wrapping_mul(SCATTER) >> 32;
        self.pages * PAGE + (before + node % nodes) * BLOCK
    }
    /// A block of a thread's own.
    pub fn own(self, thread: u64, block: u64) -> u64 {
        // They begin at another set of the L1 each.
        (self.pages + INDEX_PAGES + thread * OWN_PAGES) * PAGE + (thread * 5 % 32 + block) * BLOCK
    }
    /// Which of a thread's own blocks an address of that thread is. None: it is data or an index.
    pub fn own_block(self, thread: u64, address: u64) -> Option<u64> {
        (address >= self.shared_blocks() * BLOCK).then(|| (address - self.own(thread, 0)) / BLOCK)
    }
    /// Blocks of data and of indices.
    pub fn shared_blocks(self) -> u64 {
        (self.pages + INDEX_PAGES) * (PAGE / BLOCK)
    }
    /// The pages that are used at all times, of an index of `levels` levels and of `threads`
    /// threads.
    pub fn hot(self, levels: u32, threads: u64) -> impl Iterator<Item = u64> {
        let index = ((FANOUT.pow(levels) - 1) / (FANOUT - 1) * BLOCK).div_ceil(PAGE);
        let own = self.pages + INDEX_PAGES;
        (self.pages..self.pages + index).chain(own..own + threads * OWN_PAGES)
    }
    /// The page of an address. Pages of page tables follow all others.
    pub fn page_at(self, address: u64) -> u64 {
        if address >= TABLES { self.pages + TABLE_PAGES + (address - TABLES) / PAGE } else { address / PAGE }
    }
    /// The block of the page table that translates a page.
    pub fn table(self, page: u64) -> u64 {
        TABLES + page * 8 / BLOCK * BLOCK
    }
}

/// The operations of one thread.
#[derive(Clone, Debug)]
pub struct Work {
    shape: Shape,
    zipf: Zipf,
    space: Space,
    thread: u64,
    random: Random,
    /// Steps of the record under way, the last one first.
    steps: Vec<Step>,
    /// Records of the operation under way that have begun, and all that it has. All are none before
    /// a job.
    records: (u32, u32),
    /// Operations of the job under way that have ended, and all that it has.
    operations: (u32, u32),
    /// The rank of the first node of the path under way.
    first: u64,
}

impl Work {
    /// Of a thread, by its number among all of them.
    pub fn new(shape: Shape, zipf: Zipf, space: Space, thread: u64, seed: u64) -> Work {
        let random = Random::new(seed ^ thread.wrapping_mul(0xd605_1a5f_f91c_a5a3), 5);
        let (records, operations) = ((0, 0), (0, 0));
        Work { shape, zipf, space, thread, random, steps: Vec::new(), records, operations, first: 0 }
    }
    /// The next step.
    pub fn next(&mut self) -> Step {
        if let Some(step) = self.steps.pop() {
            return step;
        }
        let (begun, all) = self.records;
        if begun == all {
            let job_ends = all > 0 && self.operations.0 + 1 == self.operations.1;
            if job_ends {
                self.records = (0, 0);
                return Step::End;
            }
            self.operations = match all {
                0 => (0, whole(self.shape.operations.max(1.0), &mut self.random)),
                _ => (self.operations.0 + 1, self.operations.1),
            };
            self.records = (0, whole(self.shape.records.max(1.0), &mut self.random));
        }
        self.records.0 += 1;
        self.record();
        self.next()
    }
    /// The rank of the record under way. Nodes of a path have ranks next to each other.
    fn rank(&mut self) -> u64 {
        let (number, all) = self.records;
        if !self.shape.path {
            return self.zipf.draw(&mut self.random);
        }
        if number == 1 {
            let drawn = self.zipf.draw(&mut self.random);
            self.first = drawn - drawn % u64::from(all);
        }
        self.first + u64::from(number - 1)
    }
    fn record(&mut self) {
        let Shape { compute, levels, blocks, writes, own, path, .. } = self.shape;
        let rank = self.rank();
        let (compute, writes) = ((compute + 0.5) as u32, (writes + 0.5) as u64);
        let mut count = |mean: f64| whole(mean, &mut self.random);
        let (levels, blocks, own) = (count(levels).min(LEVELS_MAX), count(blocks.max(1.0)), count(own));
        let (number, all) = self.records;
        // Behind the first node, a path needs no index. Its last node has the key.
        let (levels, ends) = if path && number > 1 { (0, number == all) } else { (levels, !path) };
        // About the mean, so that threads do not march in step.
        let mut some = |mean: u32| Step::Compute(mean / 2 + self.random.below(u64::from(mean) + 1) as u32);
        let mut steps = Vec::with_capacity(2 * (levels + blocks + own) as usize + 2);
        for block in 0..own {
            steps.push(some(compute));
            steps.push(Step::Load { address: self.space.own(self.thread, u64::from(block)), depends: false });
        }
        for level in 0..levels {
            steps.push(some(compute / 4));
            steps.push(Step::Load { address: self.space.node(level, rank), depends: level > 0 });
        }
        let page = self.space.page_of(rank) * PAGE;
        let of_page = PAGE / BLOCK;
        let first = if path { (page / PAGE).wrapping_mul(SCATTER) >> 32 } else { self.random.below(of_page) };
        let written = self.random.below(100) < writes;
        for block in 0..u64::from(blocks) {
            let address = page + (first + block) % of_page * BLOCK;
            steps.push(Step::Compute(compute / 2));
            // The record's place is what the index or the node before has said.
            steps.push(Step::Load { address, depends: block == 0 && (levels > 0 || path) });
            if written && ends && block + 1 == u64::from(blocks) {
                steps.push(Step::Store { address });
            }
        }
        steps.reverse();
        self.steps = steps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workload of AstriFlash's system.
    fn shape_of(workload: Workload) -> Shape {
        let text = include_str!("../../../../systems/astriflash.toml");
        let document = Document::read("astriflash.toml", text, &[]).unwrap();
        Shape::read(&document, workload).unwrap().unwrap()
    }

    #[test]
    fn ranks_are_as_frequent_as_zipf_says() {
        for exponent in [0.8, 1.0, 1.3] {
            let (zipf, mut random) = (Zipf::new(1000, exponent), Random::new(1, 0));
            let weight = |rank: u64| libm::pow(rank as f64 + 1.0, -exponent);
            let all: f64 = (0..1000).map(weight).sum();
            let draws = 400_000;
            let mut counts = [0u64; 1000];
            (0..draws).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
            for rank in [0, 1, 2, 10] {
                let (ours, theory) = (counts[rank] as f64 / f64::from(draws), weight(rank as u64) / all);
                assert!((ours / theory - 1.0).abs() < 0.05, "{exponent}, rank {rank}: {ours} and not {theory}");
            }
            let tail: u64 = counts[500..].iter().sum();
            let theory: f64 = (500..1000).map(weight).sum::<f64>() / all;
            assert!((tail as f64 / f64::from(draws) / theory - 1.0).abs() < 0.05);
        }
    }
    #[test]
    fn misses_are_those_of_a_simulated_cache() {
        use crate::memory::Tags;
        for (exponent, frames) in [(0.8, 400), (1.1, 400), (1.1, 1600)] {
            let (zipf, mut random) = (Zipf::new(16_384, exponent), Random::new(1, 0));
            let (mut tags, mut missed) = (Tags::new(frames / 16, 16), 0);
            for number in 0..120_000 {
                let page = zipf.draw(&mut random) as u32;
                if !tags.touch(page, false) {
                    missed += u32::from(number >= 40_000);
                    tags.replace(page);
                    tags.arrived(page);
                }
            }
            let (ours, theory) = (f64::from(missed) / 80_000.0, miss_ratio(16_384, exponent, u64::from(frames)));
            assert!((ours / theory - 1.0).abs() < 0.06, "{exponent}, {frames}: {ours} and not {theory}");
        }
        assert_eq!(miss_ratio(100, 1.0, 100), 0.0);
    }
    #[test]
    fn a_cache_begins_as_it_goes_on() {
        use crate::memory::Tags;
        let (count, frames, mut random) = (16_384, 1600, Random::new(1, 0));
        let zipf = Zipf::new(count, 1.1);
        let mut tags = Tags::new(frames / 16, 16);
        let ranks = resident(count, 1.1, u64::from(frames), &mut random);
        assert!(ranks.len().abs_diff(frames as usize) < 60, "{}", ranks.len());
        tags.fill(ranks.into_iter().map(|rank| rank as u32));
        let mut missed = [0u32; 2];
        for number in 0..60_000 {
            let page = zipf.draw(&mut random) as u32;
            if !tags.touch(page, false) {
                missed[number / 30_000] += 1;
                tags.replace(page);
                tags.arrived(page);
            }
        }
        let (first, then) = (f64::from(missed[0]), f64::from(missed[1]));
        assert!((first / then - 1.0).abs() < 0.06, "{missed:?}");
    }
    #[test]
    fn each_rank_has_a_page_of_its_own() {
        for pages in [1024u64, 2048] {
            let space = Space { pages };
            let mut all: Vec<u64> = (0..pages).map(|rank| space.page_of(rank)).collect();
            all.sort_unstable();
            assert!(all.iter().enumerate().all(|(at, page)| at as u64 == *page));
        }
    }
    #[test]
    fn a_look_up_goes_down_one_path() {
        let space = Space { pages: 1024 };
        let shape = shape_of(Workload::Rbt);
        let (records, levels) = (shape.records as usize, shape.levels as usize);
        let mut work = Work::new(shape, Zipf::new(1024, 1.0), space, 3, 1);
        let mut block_of = std::collections::HashMap::new();
        for _ in 0..500 {
            let job: Vec<Step> = std::iter::from_fn(|| Some(work.next()).filter(|step| *step != Step::End)).collect();
            let loads = |of: std::ops::Range<u64>| {
                job.iter().filter_map(move |step| match step {
                    Step::Load { address, depends } if of.contains(address) => Some((*address, *depends)),
                    _ => None,
                })
            };
            let nodes: Vec<(u64, bool)> = loads(0..1024 * PAGE).collect();
            assert_eq!(nodes.len(), records);
            let index = (1024 + INDEX_PAGES) * PAGE;
            assert_eq!(loads(1024 * PAGE..index).count(), levels, "the index is used once");
            for (address, depends) in &nodes {
                assert!(*depends, "a node is found by what was read before");
                assert_eq!(block_of.entry(address / PAGE).or_insert(*address), address, "a page has one block");
            }
            let written: Vec<u64> = job
                .iter()
                .filter_map(|step| match step {
                    Step::Store { address } => Some(*address),
                    _ => None,
                })
                .collect();
            assert!(written.is_empty() || written == [nodes[records - 1].0]);
        }
        assert!(block_of.len() > 100);
    }
    #[test]
    fn a_job_makes_the_accesses_of_its_shape() {
        let (space, jobs) = (Space { pages: 1024 }, 10_000);
        let (data, index) = (1024 * PAGE, (1024 + INDEX_PAGES) * PAGE);
        for workload in Workload::ALL {
            let shape = shape_of(workload);
            let mut work = Work::new(shape, Zipf::new(1024, 1.0), space, 3, 1);
            // Loads of data, of the index and of the thread's own; stores; loads that depend.
            let (mut ended, mut counts) = (0, [0u32; 5]);
            while ended < jobs {
                match work.next() {
                    Step::End => ended += 1,
                    Step::Compute(count) => assert!(f64::from(count) <= 1.5 * shape.compute, "{count}"),
                    Step::Store { address } => {
                        assert!(address < data, "{}: only data is written", workload.name());
                        counts[3] += 1;
                    }
                    Step::Load { address, depends } => {
                        let of = if address < data { 0 } else { 1 + usize::from(address >= index) };
                        counts[of] += 1;
                        counts[4] += u32::from(depends);
                    }
                }
            }
            let records = shape.records_of_job();
            // A path is led to once, and its last node alone may be written.
            let led = if shape.path { shape.operations } else { records };
            let levels = led * shape.levels;
            // In an index all but the root, and each record's place but where it is computed.
            let found = if shape.levels > 0.0 || shape.path { records } else { 0.0 };
            let depends = led * (shape.levels - 1.0).max(0.0) + found;
            let wanted = [records * shape.blocks, levels, records * shape.own, led * shape.writes / 100.0, depends];
            for (ours, theory) in counts.iter().zip(wanted) {
                let ours = f64::from(*ours) / f64::from(jobs);
                assert!((ours - theory).abs() <= 0.06 * theory, "{}: {counts:?} and not {wanted:?}", workload.name());
            }
        }
    }
    #[test]
    fn counts_between_whole_numbers_are_means() {
        let (space, jobs) = (Space { pages: 1024 }, 4000);
        let shape = Shape { operations: 1.2, records: 2.4, blocks: 1.5, levels: 0.0, ..shape_of(Workload::Tatp) };
        let mut work = Work::new(shape, Zipf::new(1024, 1.0), space, 3, 1);
        let (mut ended, mut data) = (0, 0);
        while ended < jobs {
            match work.next() {
                Step::End => ended += 1,
                Step::Load { address, .. } => data += u64::from(address < 1024 * PAGE),
                Step::Store { .. } | Step::Compute(_) => {}
            }
        }
        let (ours, theory) = (data as f64 / f64::from(jobs), shape.records_of_job() * shape.blocks);
        assert!((ours / theory - 1.0).abs() < 0.03, "{ours} and not {theory}");
        let mut random = Random::new(1, 0);
        assert_eq!((whole(3.0, &mut random), whole(-1.0, &mut random)), (3, 0));
        // A path of one node writes at its only one.
        let of_one = Shape { records: 0.4, writes: 100.0, ..shape_of(Workload::Rbt) };
        let mut work = Work::new(of_one, Zipf::new(1024, 1.0), space, 3, 1);
        let job: Vec<Step> = std::iter::from_fn(|| Some(work.next()).filter(|step| *step != Step::End)).collect();
        assert_eq!(
            job.iter().filter(|step| matches!(step, Step::Load { address, .. } if *address < 1024 * PAGE)).count(),
            1
        );
    }
    #[test]
    fn jobs_end_and_stay_in_their_space() {
        let space = Space { pages: 1024 };
        for workload in Workload::ALL {
            let mut work = Work::new(shape_of(workload), Zipf::new(1024, 1.0), space, 3, 1);
            let (mut ended, mut data) = (0, 0);
            for _ in 0..20_000 {
                match work.next() {
                    Step::End => ended += 1,
                    Step::Load { address, .. } | Step::Store { address } => data += u64::from(address < 1024 * PAGE),
                    Step::Compute(_) => {}
                }
            }
            assert!(ended > 10 && data > ended, "{}: {ended} {data}", workload.name());
        }
    }
}
