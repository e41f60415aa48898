//! What reaches the flash when objects are overwritten, some more often than others: what keeping
//! hot and cold apart is worth.
//!
//! A pool that is 80% full of objects of one size, overwritten with Zipf keys or uniform ones, in
//! batches. Counted, not timed: flash pages of data that are written for each that the objects
//! would fill, and the share of reclaim in them.
//!
//! `cargo run --release -p fulgurite-store --example objects -- [ZIPF [BYTES [BATCH [EXTENTS]]]]`

mod shared;

use std::collections::HashMap;

use fulgurite_format::{PoolId, SUBPAGE_BYTES};
use fulgurite_store::{Geometry, Store, StoreConfig, recover};
use shared::{Pages, Random};

/// Flash pages in an extent.
const EXTENT_PAGES: u32 = 64;
/// Live data as a share of what is not reserve.
const FULL: f64 = 0.8;
/// Times that all of it is written; the second half is counted.
const OVERWRITES: u64 = 6;

/// A number without a common divisor with `count`, so that its multiples are all numbers below.
fn stride(count: u32) -> u64 {
    let divides = |a: u64, b: u64| {
        let (mut a, mut b) = (a, b);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (0x9E37_79B9..).find(|n| divides(*n, count.into()) == 1).expect("there are primes")
}

fn write(store: &mut Store, medium: &mut Pages, batch: &mut Vec<u32>, content: &[u8]) {
    batch.sort_unstable();
    batch.dedup();
    let objects: Vec<(u32, &[u8])> = batch.iter().map(|object| (*object, content)).collect();
    let mut rest = &objects[..];
    while !rest.is_empty() {
        let taken = store.write_objects(rest).expect("there is space");
        medium.serve(store);
        if taken.taken > 0 {
            store.take_batch(taken.number).expect("it was answered").expect("nothing fails");
        }
        rest = &rest[taken.taken..];
    }
    batch.clear();
}

fn main() {
    let mut words = std::env::args().skip(1);
    let mut number = |otherwise: f64| words.next().map_or(otherwise, |word| word.parse().expect("a number"));
    let (zipf, bytes, batch_len, extents) =
        (number(0.99), number(128.0) as usize, number(128.0) as usize, number(256.0) as u32);
    let flash_pages = extents * EXTENT_PAGES;
    let in_a_page = (SUBPAGE_BYTES / bytes) as f64;
    // Two checkpoints and a journal twice as long as one follow the number of objects.
    let least = Geometry::with_objects(flash_pages, EXTENT_PAGES, 16).expect("sizes that go together");
    let mut count = 16;
    for _ in 0..32 {
        let checkpoint = f64::from(count) * 13.5 / SUBPAGE_BYTES as f64 / f64::from(EXTENT_PAGES) + 1.0;
        let reserved = f64::from(least.fixed_extents() + least.reserved_extents()) + 4.0 * checkpoint;
        count = ((f64::from(extents) - reserved) * f64::from(least.data_pages()) * FULL * in_a_page) as u32;
    }
    let geometry = Geometry::with_objects(flash_pages, EXTENT_PAGES, count).expect("sizes that go together");
    let mut medium = Pages { pages: HashMap::new(), flash_pages };
    medium.pages.extend(Store::format(geometry, PoolId([1; 16]), 0));
    let (mut store, _) = recover(&mut medium, StoreConfig::default()).expect("made above");
    let (content, mut batch) = (vec![7; bytes], Vec::new());
    for object in 0..count {
        batch.push(object);
        if batch.len() == 512 || object + 1 == count {
            write(&mut store, &mut medium, &mut batch, &content);
        }
    }
    let sums: Vec<f64> = (1..=count)
        .scan(0.0, |sum, rank| {
            *sum += f64::from(rank).powf(-zipf);
            Some(*sum)
        })
        .collect();
    let (mut random, stride) = (Random(0x9E37_79B9_7F4A_7C15), stride(count));
    let (mut before, mut unsynced) = (store.counters(), 0);
    let all = OVERWRITES * u64::from(count);
    for i in 0..all {
        if i == all / 2 {
            before = store.counters();
        }
        let at = random.unit() * sums.last().expect("there are objects");
        let rank = sums.partition_point(|sum| *sum < at) as u64;
        batch.push((rank * stride % u64::from(count)) as u32);
        if batch.len() == batch_len {
            write(&mut store, &mut medium, &mut batch, &content);
            unsynced += batch_len as u32;
        }
        if unsynced > count / 100 {
            unsynced = 0;
            store.sync().expect("there is space");
            medium.serve(&mut store);
        }
    }
    let after = store.counters();
    let (written, copied) =
        (after.object_pages - before.object_pages, after.object_pages_copied - before.object_pages_copied);
    let ideal = (after.object_bytes - before.object_bytes) as f64 / (in_a_page * bytes as f64);
    println!(
        "{count} objects of {bytes} B, Zipf {zipf}, batches of {batch_len}: {:.3} written for each, {:.3} by programs and {:.3} by reclaim",
        (written + copied) as f64 / ideal,
        written as f64 / ideal,
        copied as f64 / ideal
    );
}
