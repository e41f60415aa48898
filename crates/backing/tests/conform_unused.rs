//! Goal: what is unused of a pool is a medium of that size, whose trimmed space comes back, and of
//! which nothing is left when the pool is opened again, while what is in the pool stays.
//! Method: a pool with some pages written and synced. What is unused is written several times over,
//! read back, trimmed by halves, and written again. Then it is dropped without a word, and the pool
//! is compared with what it was.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_backing::{Error, Kept, Medium, Opened, Settings, unused_of_pool};
use fulgurite_flash::{Flash, Op, QueueUser, Request};
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::Pool;
use fulgurite_sys::{Arena, Backed, Notifier};

const DEPTH: u32 = 64;

/// Moves subpages, each with a word of its own, and returns the words that were read.
fn run(flash: &dyn Flash, op: Op, subpages: impl Iterator<Item = u32>, word: impl Fn(u32) -> u64) -> Vec<u64> {
    let frames = Arc::new(Arena::anonymous(DEPTH as usize * SUBPAGE_BYTES, Backed::BasePages).unwrap());
    let wake = Arc::new(Notifier::new().unwrap());
    let mut queue = flash.open_queue_for(QueueUser::OneThread, frames.clone(), DEPTH as usize, wake).unwrap();
    let (subpages, mut read) = (subpages.collect::<Vec<u32>>(), Vec::new());
    for batch in subpages.chunks(DEPTH as usize) {
        for (frame, subpage) in (0..).zip(batch) {
            if op == Op::Write {
                frames.write(frame as usize * SUBPAGE_BYTES, &word(*subpage).to_ne_bytes());
            }
            let request = Request { tag: 0, op, subpage: SubpageIndex(*subpage), frame: FrameIndex(frame) };
            queue.submit(request).unwrap();
        }
        queue.flush().unwrap();
        let mut ended = Vec::new();
        while ended.len() < batch.len() {
            if queue.poll(&mut ended) == 0 {
                queue.wait(Some(Duration::from_secs(1)));
            }
        }
        assert!(ended.iter().all(|one| one.result.is_ok()), "{ended:?}");
        for frame in 0..batch.len() {
            let mut bytes = [0; 8];
            frames.read(frame * SUBPAGE_BYTES, &mut bytes);
            read.push(u64::from_ne_bytes(bytes));
        }
    }
    read
}

fn store(opened: &Opened) -> &Pool {
    match &opened.kept {
        Some(Kept::Here(pool)) => pool,
        _ => panic!("it is no pool of this process"),
    }
}

/// What is in the pool, which is written or compared.
fn kept(path: &Path, op: Op) {
    let medium = if op == Op::Write { Medium::new_pool(path, 16 << 20) } else { Medium::pool(path) };
    let opened = medium.open(&Settings { dram_bytes: 8 << 20, ..Settings::default() }).unwrap();
    let word = |subpage| u64::from(subpage) << 32 | 7;
    let read = run(&*opened.flash, op, 100..300, word);
    assert_eq!(read, (100..300).map(word).collect::<Vec<u64>>());
    if op == Op::Write {
        store(&opened).sync().unwrap();
    }
    assert_eq!(store(&opened).audit(), Vec::<String>::new());
    assert_eq!(store(&opened).info().live, 200);
}

#[test]
fn what_is_unused_of_a_pool_is_used_and_left_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    kept(&path, Op::Write);
    for life in 0..2u64 {
        let opened = unused_of_pool(&path, u64::MAX).unwrap();
        let (flash, count) = (&*opened.flash, opened.flash.subpages());
        assert!(flash.traits().trims && flash.versions().is_none());
        assert!(count > 1500 && count < 4096 - 200, "{count} in life {life}");
        for round in 0..6u64 {
            let word = |subpage| round << 32 | u64::from(subpage);
            run(flash, Op::Write, 0..count, word);
            assert_eq!(run(flash, Op::Read, 0..count, word), (0..count).map(word).collect::<Vec<u64>>());
            assert_eq!(store(&opened).info().live, u64::from(count) + 200);
            // Halves of pages go with the other half.
            flash.trim(SubpageIndex(8), count / 2).unwrap();
            assert_eq!(store(&opened).info().live, u64::from(count - count / 2 / 16 * 16 + 16) + 200);
            flash.trim(SubpageIndex(0), count).unwrap();
            assert_eq!(store(&opened).info().live, 200);
            assert_eq!(run(flash, Op::Read, 0..count, word), vec![0; count as usize]);
        }
        run(flash, Op::Write, 0..count, u64::from);
        drop(opened);
        kept(&path, Op::Read);
    }
    let few = unused_of_pool(&path, 130 << 12).unwrap();
    assert_eq!(few.flash.subpages(), 128, "whole pages, and not more than asked for");
    assert!(matches!(unused_of_pool(&path, 1 << 20), Err(Error::Open(_))), "it is in use");
}
