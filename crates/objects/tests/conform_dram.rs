//! Goal: an object of 128 bytes costs at most 24 bytes of DRAM in addition to its own, and as many
//! objects are hit as S3-FIFO over objects would hit. Method: fill a cache, count what it holds; a
//! Zipf trace through it and through a list of numbers under the same policy.

use std::collections::{HashMap, HashSet, VecDeque};

use fulgurite_objects::{Cache, Ticket};
use fulgurite_testkit::Random;

const BYTES: usize = 4 << 20;

fn read(cache: &mut Cache, number: u32) -> bool {
    if cache.get(number, |bytes| assert_eq!(bytes.len(), 128)).is_some() {
        return true;
    }
    let ticket: Ticket = cache.begin_read(number);
    cache.end_read(number, ticket, Some(&[number as u8; 128]));
    false
}

#[test]
fn an_object_costs_its_bytes_and_24() {
    let mut cache = Cache::new(BYTES);
    for number in 0..200_000 {
        read(&mut cache, number);
    }
    cache.check().unwrap();
    assert!(cache.bytes() <= BYTES, "{} of {BYTES}", cache.bytes());
    let each = cache.bytes() as f64 / cache.len() as f64;
    assert!(each <= 152.0, "{each:.1} bytes of DRAM for each object of 128");
}

/// Frees are let through when changes have to wait.
#[test]
fn it_takes_no_more_when_only_frees_come() {
    let mut cache = Cache::new(BYTES);
    let refused = (0..200_000).filter(|number| cache.put(*number, &[]).is_err()).count();
    cache.check().unwrap();
    assert!(cache.bytes() <= BYTES, "{} of {BYTES}", cache.bytes());
    assert!(refused > 0 && cache.unwritten() + refused == 200_000, "{refused} refused");
}

/// S3-FIFO over numbers of one size.
struct Simulated {
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    uses: HashMap<u32, u8>,
    ghost: VecDeque<u32>,
    in_ghost: HashSet<u32>,
    objects: usize,
}

impl Simulated {
    fn read(&mut self, number: u32) -> bool {
        if let Some(uses) = self.uses.get_mut(&number) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        while self.small.len() + self.main.len() >= self.objects {
            if self.small.len() > self.objects / 10 { self.evict_small() } else { self.evict_main() }
        }
        let to = if self.in_ghost.remove(&number) { &mut self.main } else { &mut self.small };
        to.push_back(number);
        self.uses.insert(number, 0);
        false
    }
    fn evict_small(&mut self) {
        let number = self.small.pop_front().unwrap();
        if self.uses[&number] > 1 {
            self.uses.insert(number, 0);
            self.main.push_back(number);
            return;
        }
        self.uses.remove(&number);
        self.ghost.push_back(number);
        self.in_ghost.insert(number);
        if self.ghost.len() > self.objects / 2 {
            let gone = self.ghost.pop_front().unwrap();
            self.in_ghost.remove(&gone);
        }
    }
    fn evict_main(&mut self) {
        let Some(number) = self.main.pop_front() else { return self.evict_small() };
        match self.uses[&number] {
            0 => _ = self.uses.remove(&number),
            uses => {
                self.uses.insert(number, uses - 1);
                self.main.push_back(number);
            }
        }
    }
}

#[test]
fn as_much_is_hit_as_the_policy_says() {
    let mut cache = Cache::new(BYTES);
    let objects = BYTES / 152;
    // Data is 16 times as large as DRAM, and drawn by Zipf's law with exponent 0.99.
    let count = 16 * objects;
    let mut sum = 0.0;
    let shares: Vec<f64> = (1..=count).map(|rank| (sum += (rank as f64).powf(-0.99), sum).1).collect();
    let mut simulated = Simulated {
        small: VecDeque::new(),
        main: VecDeque::new(),
        uses: HashMap::new(),
        ghost: VecDeque::new(),
        in_ghost: HashSet::new(),
        objects,
    };
    let mut random = Random(5);
    let (mut hits, mut expected, reads) = (0, 0, 600_000);
    for _ in 0..reads {
        let at = random.below(1u64 << 52) as f64 / (1u64 << 52) as f64 * sum;
        let number = (shares.partition_point(|share| *share < at) as u32).wrapping_mul(7919) % count as u32;
        hits += u32::from(read(&mut cache, number));
        expected += u32::from(simulated.read(number));
    }
    cache.check().unwrap();
    let percent = |hits: u32| 100.0 * f64::from(hits) / f64::from(reads);
    println!("{:.1}% of the reads were hits, {:.1}% in the simulation", percent(hits), percent(expected));
    assert!(percent(hits) > percent(expected) - 2.0, "{:.1}%, {:.1}%", percent(hits), percent(expected));
    assert!(percent(hits) < percent(expected) + 4.0, "{:.1}%, {:.1}%", percent(hits), percent(expected));
}
