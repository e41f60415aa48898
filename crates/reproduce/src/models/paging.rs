//! Memory that is larger than its DRAM: pages that come from a backing store when they are missed.
//!
//! NVMM's controller reads the page that missed, and then the next ones. The core waits for it.
//! With an SSD the operating system runs first, which one lock serialises, and reads the pages
//! around the fault. Pages are striped over planes, which read at once, and a package's bus moves
//! one page at a time.
//!
//! Replacement is `policy::Lru`. Accesses of all threads happen in the order of time, so that what
//! is reserved first is served first.

use std::collections::HashMap;

use fulgurite_format::{LocalFrame, SubpageIndex};
use fulgurite_policy::{AnyReplacement, Replacement, ReplacementPolicy};
use fulgurite_sim::{Random, Time};

use super::Always;

/// The flash behind the DRAM.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Flash {
    /// Planes that read at once.
    pub planes: u32,
    /// Planes of a package, which share its bus.
    pub planes_of_package: u32,
    /// From the array.
    pub read: Time,
    /// A page on a package's bus.
    pub transfer: Time,
}

/// How a miss is served.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Way {
    /// By the memory's controller, which reads so many of the next pages as well.
    Controller {
        /// Pages after the one that missed.
        prefetch: u32,
    },
    /// By the operating system.
    System {
        /// Its time, one fault after another.
        software: Time,
        /// The interface's time.
        interface: Time,
        /// Pages of the aligned window around the fault, the faulting one among them.
        around: u32,
    },
}

/// A program that touches pages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Accesses {
    /// Pages of its data.
    pub pages: u32,
    /// Pages of DRAM, empty at first.
    pub frames: u32,
    /// Accesses of all threads together.
    pub count: u64,
    /// The share of them that are anywhere. The others are to the thread's next page.
    pub random: f64,
    /// Threads that run at once.
    pub threads: u32,
    /// Computing of an access.
    pub work: Time,
    /// Of the addresses.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outcome {
    /// From the first access to the last.
    pub time: Time,
    /// Accesses that found no page, not even one on its way.
    pub misses: u64,
    /// Accesses.
    pub accesses: u64,
}

impl Outcome {
    /// Misses for each access.
    pub fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.accesses as f64
    }
}

struct Memory {
    flash: Flash,
    replacement: AnyReplacement,
    frames: u32,
    /// The page of each frame, and when its data is there.
    held: Vec<(u32, Time)>,
    places: HashMap<u32, LocalFrame>,
    planes: Vec<Time>,
    buses: Vec<Time>,
    lock: Time,
}

impl Memory {
    fn read(&mut self, page: u32, now: Time) -> Time {
        let plane = (page % self.flash.planes) as usize;
        let bus = plane / self.flash.planes_of_package as usize;
        let ready = self.planes[plane].max(now) + self.flash.read;
        let done = self.buses[bus].max(ready) + self.flash.transfer;
        self.planes[plane] = ready;
        self.buses[bus] = done;
        done
    }
    fn bring(&mut self, page: u32, now: Time) -> Time {
        let there = self.read(page, now);
        let frame = if (self.held.len() as u32) < self.frames {
            self.held.push((page, there));
            LocalFrame(self.held.len() as u32 - 1)
        } else {
            let frame = self.replacement.victim(&mut Always).expect("every frame may be evicted");
            let (old, _) = std::mem::replace(&mut self.held[frame.index()], (page, there));
            self.places.remove(&old);
            frame
        };
        self.places.insert(page, frame);
        self.replacement.inserted(frame, SubpageIndex(page));
        there
    }
    /// When the data of a page is there, and whether that was a miss.
    fn access(&mut self, page: u32, pages: u32, way: Way, now: Time) -> (Time, bool) {
        if let Some(frame) = self.places.get(&page).copied() {
            self.replacement.touched(frame);
            return (self.held[frame.index()].1.max(now), false);
        }
        let there = match way {
            Way::Controller { prefetch } => {
                let there = self.bring(page, now);
                for next in (page + 1..pages).take(prefetch as usize) {
                    if !self.places.contains_key(&next) {
                        self.bring(next, now);
                    }
                }
                there
            }
            Way::System { software, interface, around } => {
                self.lock = self.lock.max(now) + software;
                let asked = self.lock;
                let there = self.bring(page, asked) + interface;
                let first = page - page % around.max(1);
                for other in first..(first + around).min(pages) {
                    if other != page && !self.places.contains_key(&other) {
                        self.bring(other, asked);
                    }
                }
                there
            }
        };
        (there, true)
    }
}

/// Runs a program.
pub fn run(flash: Flash, way: Way, accesses: Accesses) -> Outcome {
    let packages = flash.planes.div_ceil(flash.planes_of_package) as usize;
    let mut memory = Memory {
        flash,
        replacement: AnyReplacement::new(ReplacementPolicy::Lru, accesses.frames as usize),
        frames: accesses.frames,
        held: Vec::new(),
        places: HashMap::new(),
        planes: vec![Time::ZERO; flash.planes as usize],
        buses: vec![Time::ZERO; packages],
        lock: Time::ZERO,
    };
    let mut random = Random::new(accesses.seed, 9);
    let pages = u64::from(accesses.pages);
    // Each thread's time, and its last page.
    let mut threads: Vec<(Time, u32)> =
        (0..accesses.threads).map(|_| (Time::ZERO, random.below(pages) as u32)).collect();
    let mut misses = 0;
    for _ in 0..accesses.count {
        let at = (0..threads.len()).min_by_key(|at| (threads[*at].0, *at)).expect("there is a thread");
        let (now, last) = threads[at];
        let page =
            if random.unit() < accesses.random { random.below(pages) as u32 } else { (last + 1) % accesses.pages };
        let (there, missed) = memory.access(page, accesses.pages, way, now);
        misses += u64::from(missed);
        threads[at] = (there + accesses.work, page);
    }
    let time = threads.iter().map(|(time, _)| *time).max().unwrap_or(Time::ZERO);
    Outcome { time, misses, accesses: accesses.count }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLASH: Flash = Flash { planes: 32, planes_of_package: 2, read: Time::us(75), transfer: Time::us(10) };
    const ACCESSES: Accesses =
        Accesses { pages: 10_000, frames: 5_000, count: 1_000, random: 1.0, threads: 1, work: Time::ZERO, seed: 1 };

    #[test]
    fn a_miss_takes_its_read_and_its_transfer() {
        let outcome = run(FLASH, Way::Controller { prefetch: 0 }, ACCESSES);
        assert_eq!(outcome.time, Time::us(85) * outcome.misses);
        // Of 10,000 pages 1,000 are drawn: about 48 of them again.
        assert!((930..970).contains(&outcome.misses), "{}", outcome.misses);
    }
    #[test]
    fn pages_that_follow_are_there() {
        let sequential = Accesses { random: 0.0, count: 1_700, ..ACCESSES };
        let outcome = run(FLASH, Way::Controller { prefetch: 16 }, sequential);
        // One of 17, and what is on its way is waited for, which is not a miss.
        assert_eq!(outcome.misses, 100);
    }
    #[test]
    fn the_system_adds_its_time_and_brings_the_window() {
        let way = Way::System { software: Time::us(70), interface: Time::us(4), around: 1 };
        let outcome = run(FLASH, way, ACCESSES);
        assert_eq!(outcome.time, Time::us(159) * outcome.misses);
        let around = Way::System { software: Time::us(70), interface: Time::us(4), around: 32 };
        let all_fit = Accesses { frames: ACCESSES.pages, ..ACCESSES };
        assert!(run(FLASH, around, all_fit).misses < outcome.misses / 2);
    }
    #[test]
    fn threads_overlap_flash_and_not_the_lock() {
        let many = Accesses { threads: 8, ..ACCESSES };
        let alone = run(FLASH, Way::Controller { prefetch: 0 }, ACCESSES).time;
        let overlapped = run(FLASH, Way::Controller { prefetch: 0 }, many).time;
        assert!(overlapped.0 * 5 < alone.0, "{overlapped} {alone}");
        let way = Way::System { software: Time::us(70), interface: Time::us(4), around: 1 };
        let locked = run(FLASH, way, many);
        assert!(locked.time >= Time::us(70) * locked.misses);
    }
}
