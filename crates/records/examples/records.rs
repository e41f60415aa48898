//! What a map's index and cache cost: DRAM a key, time of a cached get, and how many gets are hits.
//!
//! ```text
//! cargo run --release -p fulgurite-records --example records
//! ```
//!
//! The time of a get is the thread's CPU time, next to a hash map of the standard library with
//! boxed values, in turns. Both copy the value. All keys are cached, in 256 MiB and more, so that
//! gets wait for DRAM. A processor begins the next get while one waits, unless it depends on what
//! that one reads. Locks are a mutex for each shard, and a lock of readers for the map. Gets by
//! Zipf's law are of 2 million values of 900 bytes, with 250 MiB for cached records.

use std::collections::HashMap;
use std::sync::{Mutex, RwLock};
use std::time::Duration;

use fulgurite_records::{
    Changed, Found, KeyHash, KeyRef, Location, LogPage, Record, Seed, Shard, Span, TableId, Tag, Verified, Word,
};
use fulgurite_sys::clock::thread_cpu;
use fulgurite_testkit::Random;

const TABLE: TableId = TableId(1);
const SHARD_BITS: u32 = 6;
const ROUNDS: usize = 5;
/// The first byte of each value.
const FIRST: u8 = 7;

/// As good as any for numbers: the finaliser of SplitMix64.
fn hash(key: u64) -> KeyHash {
    KeyHash(Random(key).next())
}

fn get(shard: &mut Shard, key: u64, hash: KeyHash, value: &mut [u8]) -> bool {
    let key = KeyRef { table: TABLE, hash, bytes: &key.to_le_bytes() };
    let found = shard.get(key, |record| value[..record.value.len()].copy_from_slice(record.value));
    matches!(found, Found::Here(()))
}

struct Shards(Vec<Shard>);

impl Shards {
    fn new(cache_bytes: usize) -> Shards {
        let shard = || {
            let mut shard = Shard::new(cache_bytes >> SHARD_BITS, usize::MAX / 2);
            shard.add_table(TABLE).expect("the index may have all DRAM");
            shard
        };
        Shards((0..1 << SHARD_BITS).map(|_| shard()).collect())
    }
    fn of(&mut self, hash: KeyHash) -> &mut Shard {
        &mut self.0[hash.shard(SHARD_BITS)]
    }
    fn put(&mut self, key: u64, value: &[u8], bytes: &mut Vec<u8>) {
        bytes.clear();
        let key_bytes = key.to_le_bytes();
        let record = Record::new(TABLE, &key_bytes, value);
        record.append(Seed(0), bytes).expect("it is short");
        let page = LogPage::new(key as u32 / 4 + 1).expect("pages begin at one");
        let (hash, to) = (hash(key), Location { page, span: Span::One });
        let shard = self.of(hash);
        match shard.put(hash, bytes, to) {
            // Each key is new.
            Ok(Changed::Unverified(cold)) => {
                let verified = Verified { cold: &cold, own: None };
                let changed = shard.put_verified(hash, bytes, to, verified);
                assert_eq!(changed, Ok(Changed::Absent));
            }
            other => assert_eq!(other, Ok(Changed::Absent)),
        }
    }
    fn get(&mut self, key: u64, value: &mut [u8]) -> bool {
        let hash = hash(key);
        get(self.of(hash), key, hash, value)
    }
    fn sum(&self, of: impl Fn(&Shard) -> usize) -> usize {
        self.0.iter().map(of).sum()
    }
}

/// Also how long the longest put takes, which is one in which a table grows, and how fast the words
/// of a checkpoint are read and entered again.
fn bytes_a_key() {
    println!("keys         index, B a key    longest put, us    words, ns a key    restored, ns a key");
    for keys in [10_000, 100_000, 1_000_000, 10_000_000] {
        let mut shards = Shards::new(1 << 20);
        let (mut bytes, mut longest) = (Vec::new(), Duration::ZERO);
        for key in 0..keys {
            let before = thread_cpu();
            shards.put(key, b"", &mut bytes);
            longest = longest.max(thread_cpu() - before);
        }
        let before = thread_cpu();
        let words: Vec<Vec<Word>> = shards.0.iter().map(words).collect();
        let read = thread_cpu() - before;
        let (mut others, before) = (Shards::new(1 << 20), thread_cpu());
        for (shard, words) in others.0.iter_mut().zip(&words) {
            shard.reserve(TABLE, words.len()).expect("the index may have all DRAM");
            words.iter().for_each(|word| shard.restore(TABLE, *word).expect("the index may have all DRAM"));
        }
        let restored = thread_cpu() - before;
        let each = |time: Duration| time.as_nanos() as f64 / keys as f64;
        let (read, restored, longest) = (each(read), each(restored), longest.as_micros());
        let index = shards.sum(Shard::index_bytes) as f64 / keys as f64;
        println!("{keys:>10} {index:>16.2} {longest:>18} {read:>18.1} {restored:>21.1}");
    }
}
fn words(shard: &Shard) -> Vec<Word> {
    let (mut words, mut from) = (Vec::new(), Some(Tag::FIRST));
    while let Some(tag) = from {
        from = shard.words(TABLE, tag, &mut words);
    }
    words
}

/// CPU time of gets of random keys. Each returns the first byte of its value. Where they wait for
/// each other, the next key depends on it.
fn time(keys: u64, wait: bool, mut get: impl FnMut(u64) -> u8) -> Duration {
    let (mut random, gets) = (Random(7), 2_000_000);
    let before = thread_cpu();
    if wait {
        let mut first = FIRST;
        (0..gets).for_each(|_| first = get(random.below(keys) + u64::from(first ^ FIRST)));
    } else {
        (0..gets).for_each(|_| _ = get(random.below(keys)));
    }
    (thread_cpu() - before) / gets
}
/// Times both in turns, and prints the medians.
fn compare(
    length: usize,
    (what, wait): (&str, bool),
    keys: u64,
    mut ours: impl FnMut(u64) -> u8,
    mut theirs: impl FnMut(u64) -> u8,
) {
    let rounds: [_; ROUNDS] = std::array::from_fn(|_| [time(keys, wait, &mut ours), time(keys, wait, &mut theirs)]);
    let [ours, theirs] = [0, 1].map(|of| {
        let mut times = rounds.map(|round| round[of]);
        times.sort_unstable();
        times[ROUNDS / 2].as_nanos()
    });
    println!("{length:>10} {what:<24} {ours:>12} {theirs:>12} {:>8.2}", ours as f64 / theirs as f64);
}

fn time_of_a_get() {
    println!("\nvalue, B   gets                     records, ns  HashMap, ns    ratio");
    for (length, keys) in [(128, 1_500_000), (900, 280_000)] {
        let mut shards = Shards::new(320 << 20);
        let mut map: HashMap<u64, Box<[u8]>> = HashMap::new();
        let (value, mut bytes, mut out) = (vec![FIRST; length], Vec::new(), vec![0; length]);
        for key in 0..keys {
            shards.put(key, &value, &mut bytes);
            map.insert(key, value.clone().into_boxed_slice());
        }
        let (mut misses, mut other) = (0, vec![0; length]);
        for (what, wait) in [("that overlap", false), ("that wait for each other", true)] {
            let ours = |key| {
                misses += u64::from(!shards.get(key, &mut out));
                out[0]
            };
            let theirs = |key| {
                other.copy_from_slice(&map[&key]);
                other[0]
            };
            compare(length, (what, wait), keys, ours, theirs);
        }
        let locked: Vec<Mutex<Shard>> = shards.0.into_iter().map(Mutex::new).collect();
        let map = RwLock::new(map);
        let ours = |key| {
            let hash = hash(key);
            let mut shard = locked[hash.shard(SHARD_BITS)].lock().expect("nothing panics");
            misses += u64::from(!get(&mut shard, key, hash, &mut out));
            out[0]
        };
        let theirs = |key| {
            other.copy_from_slice(&map.read().expect("nothing panics")[&key]);
            other[0]
        };
        compare(length, ("and under locks", true), keys, ours, theirs);
        assert!(misses < 300 * ROUNDS as u64, "{misses} misses");
    }
}

fn hits_by_zipf() {
    const KEYS: u64 = 2_000_000;
    const MIB: usize = 250;
    let mut shards = Shards::new(MIB << 20);
    let (value, mut bytes, mut out) = ([7; 900], Vec::new(), [0; 900]);
    (0..KEYS).for_each(|key| shards.put(key, &value, &mut bytes));
    let mut sum = 0.0;
    let shares: Vec<f64> = (1..=KEYS).map(|rank| (sum += (rank as f64).powf(-0.99), sum).1).collect();
    let mut random = Random(5);
    let (mut gets, mut hits, all) = (0u64, 0u64, 16_000_000u64);
    println!("\n{KEYS} values of 900 bytes, Zipf 0.99, {MIB} MiB for records");
    println!("gets so far    hits of the last 4,000,000    records cached");
    for get in 1..=all {
        let at = random.below(1u64 << 52) as f64 / (1u64 << 52) as f64 * sum;
        let key = shares.partition_point(|share| *share < at) as u64 * 7919 % KEYS;
        gets += 1;
        if shards.get(key, &mut out) {
            hits += 1;
        } else {
            read(&mut shards, key, &value, &mut bytes);
        }
        if get % (all / 4) == 0 {
            let share = 100.0 * hits as f64 / gets as f64;
            println!("{get:>11} {share:>29.2}% {:>17}", shards.sum(Shard::records));
            (gets, hits) = (0, 0);
        }
    }
    let index = shards.sum(Shard::index_bytes) as f64 / f64::from(1 << 20);
    let cache = shards.sum(Shard::cache_bytes) as f64 / f64::from(1 << 20);
    println!("{index:.1} MiB of index in addition, {cache:.1} MiB of cache");
}
/// What a driver does after a miss.
fn read(shards: &mut Shards, key: u64, value: &[u8], bytes: &mut Vec<u8>) {
    let key_bytes = key.to_le_bytes();
    bytes.clear();
    Record::new(TABLE, &key_bytes, value).append(Seed(0), bytes).expect("it is short");
    let hash = hash(key);
    let sought = KeyRef { table: TABLE, hash, bytes: &key_bytes };
    let shard = shards.of(hash);
    let Found::Cold(cold) = shard.get(sought, |_| ()) else { return };
    let own = cold.candidates().find(|candidate| candidate.location().page.number() == key as u32 / 4 + 1);
    own.into_iter().for_each(|own| _ = shard.admit(sought, own, bytes));
}

fn main() {
    bytes_a_key();
    time_of_a_get();
    hits_by_zipf();
}
