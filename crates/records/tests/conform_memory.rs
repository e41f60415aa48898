//! Goal: shards that shrink and grow take the memory of their sizes and no more, and so do tables,
//! whatever was allocated before. Method: this binary again as a child, which has nothing else to
//! do. Shards get keys, lose them and are resized, each time by another thread, to sizes that are
//! never the same. What of the process is resident is compared with what the shards say that they
//! take, after each step.

use std::sync::mpsc;

use fulgurite_records::{KeyHash, KeyRef, Shard, TableId};
use fulgurite_testkit as trials;
use trials::Random;

use crate::conform_dram::{put, read, shard};

const CHILD: &str = "FULGURITE_TEST_SHARDS";
const NAME: &str = "shards_that_are_resized_take_their_sizes_and_no_more";
const SHARDS: usize = 8;
const THREADS: usize = 4;
const ROUNDS: u64 = 8;
/// What the allocator, the stacks and the channels take in addition.
const EXTRA: usize = 1 << 20;

/// Anonymous memory of this process that is resident.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = text.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"));
    kib.unwrap().trim().parse::<usize>().unwrap() << 10
}

/// As many keys as fill it, and more that are only in the index for a while.
fn work(shard: &mut Shard, from: u32, bytes: usize, random: &mut Random) {
    shard.resize(bytes);
    let keys = 10_000 + random.below(40_000);
    for key in from..from + keys {
        put(shard, key, 150).unwrap();
        if key % 16 == 0 {
            read(shard, from + random.below(key - from + 1), 150);
        }
    }
    // A table that is dropped gives back what it had.
    if random.one_in(2) {
        shard.drop_table(TableId(1)).unwrap();
        shard.add_table(TableId(1)).unwrap();
    } else {
        let hash = |key: u32| KeyHash(Random(u64::from(key)).next());
        for key in from..from + keys {
            let sought = KeyRef { table: TableId(1), hash: hash(key), bytes: &key.to_le_bytes() };
            let changed = shard.remove(sought);
            if let fulgurite_records::Changed::Unverified(cold) = changed {
                let own = cold.candidates().find(|candidate| candidate.location().page.number() == key + 1);
                shard.remove_verified(sought, fulgurite_records::Verified { cold: &cold, own });
            }
        }
        assert_eq!(shard.keys(TableId(1)), Some(0));
    }
    // Of a full one this would take memory of its own.
    shard.check().unwrap();
}

fn resizes() {
    let mut random = Random(27);
    let before = resident();
    let mut shards: Vec<Option<Shard>> = (0..SHARDS).map(|_| Some(shard(1 << 20, 8 << 20))).collect();
    let (back, returned) = mpsc::channel();
    // Each thread that allocates has a heap of its own.
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (send, jobs) = mpsc::channel::<(usize, u32, usize, Shard)>();
            let (back, mut random) = (back.clone(), Random(27).split(thread as u64));
            std::thread::spawn(move || {
                for (at, from, bytes, mut shard) in jobs {
                    work(&mut shard, from, bytes, &mut random);
                    back.send((at, shard)).unwrap();
                }
            });
            send
        })
        .collect();
    let (mut peak, mut most) = (0, 0);
    for round in 0..ROUNDS {
        for at in 0..SHARDS {
            let step = random.below(1usize << 19);
            let bytes = if round % 2 == 0 { (2 << 20) + step } else { (256 << 10) + step };
            let job = (at, round as u32 * 100_000, bytes, shards[at].take().unwrap());
            threads[random.below(THREADS)].send(job).unwrap();
            let (at, shard) = returned.recv().unwrap();
            shards[at] = Some(shard);
            let (now, of_all) = (resident() - before, shards.iter().flatten().map(Shard::bytes).sum::<usize>());
            (peak, most) = (peak.max(now), most.max(of_all));
            assert!(now <= of_all + EXTRA, "round {round}: {now} bytes are resident of shards of {of_all}");
        }
    }
    println!("at most {peak} bytes were resident, of shards of {most}");
}

#[test]
fn shards_that_are_resized_take_their_sizes_and_no_more() {
    if std::env::var_os(CHILD).is_some() {
        return resizes();
    }
    let child = trials::again(module_path!(), NAME).env(CHILD, "1").output().unwrap();
    println!("{}", String::from_utf8_lossy(&child.stdout));
    assert!(child.status.success(), "{:?}: {}", child.status, String::from_utf8_lossy(&child.stderr));
}
