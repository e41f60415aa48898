//! Goal: a record of 128 bytes costs at most 22 bytes of DRAM in addition to its own, an index no
//! more than it was given, and as many records are hit as S3-FIFO over records would hit. Method:
//! fill shards, count what they hold; a Zipf trace through a shard and through a list of numbers
//! under the same policy.

use std::collections::{HashMap, HashSet, VecDeque};

use fulgurite_records::{
    Changed, Found, KeyHash, KeyRef, Location, LogPage, Record, Refused, Seed, Shard, Span, TableId, Verified,
};
use fulgurite_testkit::Random;

const TABLE: TableId = TableId(1);
const BYTES: usize = 4 << 20;

fn hash(key: u32) -> KeyHash {
    KeyHash(Random(u64::from(key)).next())
}
fn key_ref(key: u32, bytes: &[u8; 4]) -> KeyRef<'_> {
    KeyRef { table: TABLE, hash: hash(key), bytes }
}
/// A page of its own for each key.
fn location(key: u32) -> Location {
    Location { page: LogPage::new(key + 1).unwrap(), span: Span::One }
}
pub fn record(key: u32, value_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    Record::new(TABLE, &key.to_le_bytes(), &vec![key as u8; value_bytes]).append(Seed(0), &mut bytes).unwrap();
    bytes
}
pub fn shard(bytes: usize, index_bytes: usize) -> Shard {
    let mut shard = Shard::new(bytes, index_bytes);
    shard.add_table(TABLE).unwrap();
    shard
}
/// Puts a key that is new.
pub fn put(shard: &mut Shard, key: u32, value_bytes: usize) -> Result<(), Refused> {
    let (record, to) = (record(key, value_bytes), location(key));
    let mut changed = shard.put(hash(key), &record, to)?;
    if let Changed::Unverified(cold) = changed {
        changed = shard.put_verified(hash(key), &record, to, Verified { cold: &cold, own: None })?;
    }
    assert_eq!(changed, Changed::Absent);
    Ok(())
}
/// Reads a key, from flash where it is cold. Returns whether it was a hit.
pub fn read(shard: &mut Shard, key: u32, value_bytes: usize) -> bool {
    let bytes = key.to_le_bytes();
    match shard.get(key_ref(key, &bytes), |record| assert_eq!(record.value[0], key as u8)) {
        Found::Here(()) => true,
        Found::Cold(cold) => {
            let own = cold.candidates().find(|candidate| candidate.location() == location(key)).unwrap();
            assert!(shard.admit(key_ref(key, &bytes), own, &record(key, value_bytes)));
            false
        }
        Found::Absent => panic!("{key} is absent"),
    }
}

#[test]
fn a_record_costs_its_bytes_and_22() {
    let mut shard = shard(BYTES, 4 << 20);
    for key in 0..100_000 {
        put(&mut shard, key, 116).unwrap();
    }
    assert_eq!(record(7, 116).len(), 128);
    shard.check().unwrap();
    assert!(shard.cache_bytes() <= BYTES, "{} of {BYTES}", shard.cache_bytes());
    let each = shard.cache_bytes() as f64 / shard.records() as f64;
    assert!(each <= 150.0, "{each:.1} bytes of DRAM for each record of 128");
    let each = shard.index_bytes() as f64 / 100_000.0;
    assert!(each <= 10.5, "{each:.1} bytes of DRAM for each key");
}

#[test]
fn an_index_without_dram_refuses_keys_and_changes_nothing() {
    let mut shard = shard(64 << 10, 40_000);
    let refused = (0..10_000).find(|key| put(&mut shard, *key, 30).is_err()).unwrap();
    assert!(matches!(put(&mut shard, refused, 30), Err(Refused::NoDram(error)) if error.allowed == 40_000));
    shard.check().unwrap();
    assert!(shard.index_bytes() <= 40_000 && refused > 3400, "{refused} keys in {}", shard.index_bytes());
    assert_eq!(shard.keys(TABLE), Some(refused as usize));
    assert!(shard.bytes() < 40_000 + (64 << 10) + 2048);
    assert_eq!(shard.get(key_ref(refused, &refused.to_le_bytes()), |_| ()), Found::Absent);
    // There is room for another one when one was removed, and for all with more DRAM.
    assert!(matches!(shard.remove(key_ref(refused - 1, &(refused - 1).to_le_bytes())), Changed::Replaced(_)));
    put(&mut shard, refused, 30).unwrap();
    shard.set_index_bytes_max(1 << 20);
    (refused + 1..10_000).for_each(|key| put(&mut shard, key, 30).unwrap());
    (0..10_000).filter(|key| *key != refused - 1).for_each(|key| _ = read(&mut shard, key, 30));
    shard.check().unwrap();
}

#[test]
fn a_shard_keeps_what_was_used_when_it_shrinks() {
    let mut shard = shard(1 << 20, 1 << 20);
    (0..6000).for_each(|key| put(&mut shard, key, 80).unwrap());
    for _ in 0..2 {
        (0..1000).for_each(|key| _ = read(&mut shard, key, 80));
    }
    let all = shard.records();
    shard.resize(1 << 19);
    shard.check().unwrap();
    assert!(shard.cache_bytes() <= 1 << 19 && shard.records() > all / 3, "{} of {all}", shard.records());
    let used = (0..1000).filter(|key| read(&mut shard, *key, 80)).count();
    assert!(used > 950, "only {used} of those that were used");
    shard.forget();
    shard.check().unwrap();
    assert_eq!((shard.records(), shard.keys(TABLE)), (0, Some(6000)));
    assert!(!read(&mut shard, 1, 80) && read(&mut shard, 1, 80));
}

/// S3-FIFO over numbers of one size.
struct Simulated {
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    uses: HashMap<u32, u8>,
    ghost: VecDeque<u32>,
    in_ghost: HashSet<u32>,
    records: usize,
}

impl Simulated {
    fn read(&mut self, number: u32) -> bool {
        if let Some(uses) = self.uses.get_mut(&number) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        while self.small.len() + self.main.len() >= self.records {
            if self.small.len() > self.records / 10 { self.evict_small() } else { self.evict_main() }
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
        if self.ghost.len() > self.records {
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
    // Records of 128 and of 900 bytes, which want ghosts of other lengths.
    for value_bytes in [116, 888] {
        let mut shard = shard(BYTES, 16 << 20);
        let records = BYTES / (value_bytes + 33);
        // Data is 12 times as large as DRAM, and drawn by Zipf's law with exponent 0.99.
        let count = 12 * records;
        (0..count as u32).for_each(|key| put(&mut shard, key, value_bytes).unwrap());
        let mut sum = 0.0;
        let shares: Vec<f64> = (1..=count).map(|rank| (sum += (rank as f64).powf(-0.99), sum).1).collect();
        let mut simulated = Simulated {
            small: VecDeque::new(),
            main: VecDeque::new(),
            uses: HashMap::new(),
            ghost: VecDeque::new(),
            in_ghost: HashSet::new(),
            records,
        };
        let mut random = Random(5);
        let (mut hits, mut expected, warm, reads) = (0, 0, 200_000, 400_000);
        for step in 0..warm + reads {
            let at = random.below(1u64 << 52) as f64 / (1u64 << 52) as f64 * sum;
            let key = (shares.partition_point(|share| *share < at) as u32).wrapping_mul(7919) % count as u32;
            let (hit, would) = (read(&mut shard, key, value_bytes), simulated.read(key));
            if step >= warm {
                (hits, expected) = (hits + u32::from(hit), expected + u32::from(would));
            }
        }
        shard.check().unwrap();
        let percent = |hits: u32| 100.0 * f64::from(hits) / f64::from(reads);
        let (hits, expected) = (percent(hits), percent(expected));
        println!("records of {}: {hits:.1}% of reads were hits, {expected:.1}% simulated", value_bytes + 12);
        assert!((expected - 1.0..expected + 2.0).contains(&hits), "{hits:.1}%, {expected:.1}%");
    }
}
