//! Goal: jobs that view values of a pool see each whole, or get the error that it is gone, while
//! others change it, frames leave DRAM, syncs name states and roll backs take older ones up.
//! Nothing is lost by that.
//! Method: more data than frames, in values of up to several subpages, with and without objects.
//! Jobs on two workers view them, and others put, change, remove and do so in transactions. Another
//! thread syncs and rolls back. Each piece of a view is compared with what the first one says.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fulgurite::{AccessError, Blobs, Context, Error, Fulgurite, Medium, Rooted};
use fulgurite_testkit::Random;

type Map = Arc<Rooted<Blobs<u64>>>;

const KEYS: u64 = 150;
const LENS: [usize; 6] = [0, 24, 1000, 4096, 30_000, 400_000];

/// The byte at a place of a value with this number.
fn byte(number: u64, at: usize) -> u8 {
    if at < 8 { number.to_le_bytes()[at] } else { (number ^ (at as u64 >> 12).wrapping_mul(number | 1)) as u8 }
}
fn value(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| byte(number, at)).collect()
}

/// Views a value, and compares it as it comes. Whether there was one.
fn view(m: &mut Context, map: &Map, key: u64) -> Result<bool, AccessError> {
    let (mut number, mut done, mut piece_bytes) = (0, 0, vec![0; 4096]);
    let len = map.view(m, &key, |piece| {
        let bytes = &mut piece_bytes[..piece.len()];
        piece.copy_to(0, bytes);
        if done == 0 {
            number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        }
        // All but the number are the same in a subpage.
        let (first, expected) = (if done == 0 { 8 } else { 0 }, byte(number, done.max(8)));
        assert!(bytes[first..].iter().all(|byte| *byte == expected), "key {key} is torn at {done}");
        done += bytes.len();
        ControlFlow::Continue(())
    })?;
    assert_eq!(len.unwrap_or(0), done);
    Ok(len.is_some())
}

/// The length of the values of a key of which each has the same. So what is written in place is all
/// of a value, whatever others do to it.
fn fixed_len(key: u64) -> Option<usize> {
    key.is_multiple_of(3).then(|| LENS[1 + key as usize / 3 % 3])
}

fn change(memory: &Fulgurite, map: &Map, random: &mut Random) -> Result<(), Error> {
    let (key, number) = (random.below(KEYS), random.next());
    let (any, way, its) = (LENS[random.below(LENS.len())], random.below(10), map.clone());
    let fixed = fixed_len(key);
    let new = value(number, fixed.unwrap_or(any));
    if way < 2 {
        return memory.transaction(|t| {
            t.put(map, &key, &new[..])?;
            t.remove(map, &(KEYS + key))?;
            Ok(())
        });
    }
    let changed = memory.run(move |m| match way {
        2 => its.remove(m, &key).map(drop),
        3 => its.update(m, &key, |now| now.clone_from(&new)).map(drop),
        // All of a value in its place, if there is one.
        4 if fixed.is_some() => its.write_at(m, &key, 0, &new).map(drop),
        _ => its.put(m, &key, &new).map(drop),
    });
    Ok(changed?)
}

/// What may happen to a job when another thread rolls back.
fn gone(error: &AccessError) -> bool {
    matches!(error, AccessError::ValueGone { .. })
}

fn views_among_changes(objects: bool) {
    let directory = tempfile::tempdir().unwrap();
    let mut medium = Medium::new_pool(directory.path().join("pool"), "128M");
    if objects {
        medium = medium.objects(KEYS * 400);
    }
    // A pool of objects has larger tables.
    let mut builder = Fulgurite::builder(medium).dram(if objects { "30M" } else { "12M" }).workers(2);
    if objects {
        builder = builder.object_cache("1M");
    }
    let memory = builder.with(|runtime| runtime.stack(128 << 10).fibers(16)).start().unwrap();
    let map: Map = memory.named("blobs").blobs::<u64>(2 * KEYS, 32 << 20).unwrap();
    let random = Random::seeded("views of a pool", objects.into());
    let (over, until) = (AtomicBool::new(false), Instant::now() + Duration::from_secs(4));
    let (seen, told, rolled) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (mut random, memory, map, over) = (random.split(thread), &memory, &map, &over);
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    match change(memory, map, &mut random) {
                        Ok(()) => {}
                        Err(Error::Access(error)) if gone(&error) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        for thread in 2..6 {
            let (mut random, memory, over) = (random.split(thread), &memory, &over);
            let (map, seen, told) = (&map, &seen, &told);
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    let (key, its) = (random.below(KEYS), map.clone());
                    match memory.run(move |m| view(m, &its, key)) {
                        Ok(found) => _ = seen.fetch_add(found.into(), Relaxed),
                        Err(error) if gone(&error) => _ = told.fetch_add(1, Relaxed),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let mut random = random.split(9);
        while Instant::now() < until {
            let token = memory.sync().unwrap();
            std::thread::sleep(Duration::from_millis(random.below(30u64)));
            if random.one_in(3) {
                match memory.roll_back(token) {
                    Ok(()) => _ = rolled.fetch_add(1, Relaxed),
                    // A job holds a pin.
                    Err(Error::Sync(error)) => println!("{error}"),
                    Err(error) => panic!("{error}"),
                }
            }
        }
        over.store(true, Relaxed);
    });
    println!("{seen:?} views, {told:?} that were told, {rolled:?} roll backs");
    assert!(seen.load(Relaxed) > 100 && rolled.load(Relaxed) > 3);
    let its = map.clone();
    memory.run(move |m| its.check(m)).unwrap();
    let its = map.clone();
    memory
        .run(move |m| {
            (0..KEYS).try_for_each(|key| its.remove(m, &key).map(drop))?;
            // What a roll back has left.
            its.writer(m, 0).map(drop)
        })
        .unwrap();
    // An empty map has its index, and nothing else.
    let (its, mut empty) = (map.clone(), 0);
    memory.run(|m| its.check(m).map(|found| empty = found.0)).unwrap();
    assert_eq!(empty, 0);
    assert!(map.heap().used_bytes() < 400_000, "{} bytes are lost", map.heap().used_bytes());
}

#[test]
fn views_among_changes_in_frames() {
    views_among_changes(false);
}

#[test]
fn views_among_changes_of_objects() {
    views_among_changes(true);
}
