//! Goal: caches that shrink and grow take the memory of their sizes and no more, whatever was
//! allocated before. Method: this binary again as a child, which has nothing else to do. Caches are
//! filled, and resized one after the other, each time by another thread, to sizes that are never
//! the same. What of the process is resident is compared with what the caches may have after each
//! step, and its peak at the end.

use std::sync::mpsc;

use fulgurite_objects::{CACHE_BYTES_MIN, Cache};
use fulgurite_testkit as trials;
use trials::Random;

const CHILD: &str = "FULGURITE_TEST_CACHES";
const NAME: &str = "caches_that_are_resized_take_their_sizes_and_no_more";
const CACHES: usize = 16;
const THREADS: usize = 4;
const ROUNDS: u64 = 12;
/// What the allocator, the stacks and the channels take in addition.
const EXTRA: usize = 1 << 20;

/// Anonymous memory of this process that is resident.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = text.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"));
    kib.unwrap().trim().parse::<usize>().unwrap() << 10
}

/// As many objects as it holds, some of which are used again.
fn fill(cache: &mut Cache, random: &mut Random) {
    for number in 0..(cache.bytes() / 200) as u32 {
        let number = number.wrapping_add(random.below(64) as u32);
        if cache.get(number, |_| ()).is_none() {
            let ticket = cache.begin_read(number);
            cache.end_read(number, ticket, Some(&[number as u8; 200][..100 + number as usize % 100]));
        }
    }
}

fn resizes() {
    let mut random = Random(27);
    let before = resident();
    let mut caches: Vec<Option<Cache>> = (0..CACHES).map(|_| Some(Cache::new(CACHE_BYTES_MIN))).collect();
    let (back, returned) = mpsc::channel();
    // Each thread that allocates has a heap of its own.
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (work, jobs) = mpsc::channel::<(usize, usize, Cache)>();
            let (back, mut random) = (back.clone(), Random(27).split(thread as u64));
            std::thread::spawn(move || {
                for (at, bytes, mut cache) in jobs {
                    cache.resize(bytes).unwrap();
                    fill(&mut cache, &mut random);
                    cache.check().unwrap();
                    back.send((at, cache)).unwrap();
                }
            });
            work
        })
        .collect();
    let (mut peak, mut most) = (0, 0);
    for round in 0..ROUNDS {
        for at in 0..CACHES {
            let step = random.below(1u64 << 19) as usize;
            let bytes = if round % 2 == 0 { (2 << 20) + step } else { CACHE_BYTES_MIN + step };
            threads[random.below(THREADS as u64) as usize].send((at, bytes, caches[at].take().unwrap())).unwrap();
            let (at, cache) = returned.recv().unwrap();
            caches[at] = Some(cache);
            let (now, of_all) = (resident() - before, caches.iter().flatten().map(Cache::bytes).sum::<usize>());
            (peak, most) = (peak.max(now), most.max(of_all));
            assert!(now <= of_all + EXTRA, "round {round}: {now} bytes are resident of caches of {of_all}");
        }
    }
    println!("at most {peak} bytes were resident, of caches of {most}");
}

#[test]
fn caches_that_are_resized_take_their_sizes_and_no_more() {
    if std::env::var_os(CHILD).is_some() {
        return resizes();
    }
    let child = trials::again(module_path!(), NAME).env(CHILD, "1").output().unwrap();
    println!("{}", String::from_utf8_lossy(&child.stdout));
    assert!(child.status.success(), "{:?}: {}", child.status, String::from_utf8_lossy(&child.stderr));
}
