//! Goal: what is unused of a pool is a medium of that size, of which nothing is left when the pool
//! is opened again, while what is in the pool stays. Method: a pool with some pages written and
//! synced, side by side or scattered by many changes. What is unused is written several times over
//! and read back, at last with copies of the pool's own pages. Then it is dropped without a word,
//! and the pool is compared with what it was.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_backing::{Error, Kept, Medium, Opened, Settings, unused_of_pool};
use fulgurite_flash::{Flash, Op, QueueUser, Request};
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::Pool;
use fulgurite_sys::{Arena, Backed, Notifier};
use fulgurite_testkit::Random;

const DEPTH: u32 = 64;

/// Moves subpages, each of which begins with what `begin` says, and returns the words that were
/// read.
fn run(flash: &dyn Flash, op: Op, subpages: impl Iterator<Item = u32>, begin: impl Fn(u32) -> Vec<u8>) -> Vec<u64> {
    let frames = Arc::new(Arena::anonymous(DEPTH as usize * SUBPAGE_BYTES, Backed::BasePages).unwrap());
    let wake = Arc::new(Notifier::new().unwrap());
    let mut queue = flash.open_queue_for(QueueUser::OneThread, frames.clone(), DEPTH as usize, wake).unwrap();
    let (subpages, mut read) = (subpages.collect::<Vec<u32>>(), Vec::new());
    for batch in subpages.chunks(DEPTH as usize) {
        for (frame, subpage) in (0..).zip(batch) {
            if op == Op::Write {
                frames.write(frame as usize * SUBPAGE_BYTES, &begin(*subpage));
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

/// All of it with a word of each subpage.
fn words(flash: &dyn Flash, op: Op, range: Range<u32>, word: impl Fn(u32) -> u64) -> bool {
    let read = run(flash, op, range.clone(), |subpage| word(subpage).to_ne_bytes().to_vec());
    read.into_iter().eq(range.map(word))
}

fn store(opened: &Opened) -> &Pool {
    match &opened.kept {
        Some(Kept::Here(pool)) => pool,
        _ => panic!("it is no pool of this process"),
    }
}

fn opened(medium: &Medium) -> Opened {
    medium.open(&Settings { dram_bytes: 8 << 20, ..Settings::default() }).unwrap()
}

fn kept_word(subpage: u32) -> u64 {
    u64::from(subpage) << 32 | 7
}

/// Compares what is in the pool.
fn check(path: &Path, kept: Range<u32>) {
    let opened = opened(&Medium::pool(path));
    assert!(words(&*opened.flash, Op::Read, kept.clone(), kept_word));
    assert_eq!(store(&opened).audit(), Vec::<String>::new());
    assert_eq!(store(&opened).info().live, u64::from(kept.end - kept.start));
}

/// Uses what is unused, as several lives do.
fn use_unused_repeatedly(path: &Path, kept: Range<u32>, least: u32) {
    let whole = std::fs::read(path).unwrap();
    for life in 0..2u64 {
        let unused = unused_of_pool(path, u64::MAX, 0).unwrap();
        let (flash, count) = (&*unused.flash, unused.flash.subpages());
        assert!(unused.kept.is_none() && flash.versions().is_none());
        assert!(count > least && count < 4096 - (kept.end - kept.start), "{count} in life {life}");
        for round in 0..3u64 {
            let word = |subpage| round << 32 | u64::from(subpage);
            assert!(words(flash, Op::Write, 0..count, word) && words(flash, Op::Read, 0..count, word));
        }
        // What looks like the pool's own is none of it.
        let copied = |subpage: u32| whole[subpage as usize * SUBPAGE_BYTES..][..SUBPAGE_BYTES].to_vec();
        run(flash, Op::Write, 0..count, copied);
        drop(unused);
        check(path, kept.clone());
    }
}

#[test]
fn what_is_unused_of_a_pool_is_used_and_left_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let made = opened(&Medium::new_pool(&path, 16 << 20));
    assert!(words(&*made.flash, Op::Write, 100..300, kept_word));
    store(&made).sync().unwrap();
    drop(made);
    use_unused_repeatedly(&path, 100..300, 3500);
    let few = unused_of_pool(&path, 130 << 12, 130 << 12).unwrap();
    assert_eq!(few.flash.subpages(), 130, "not more than asked for");
    assert!(matches!(unused_of_pool(&path, 1 << 20, 0), Err(Error::Open(_))), "it is in use");
}

#[test]
fn what_is_unused_is_moved_together_where_it_is_scattered() {
    const KEPT: u32 = 1600;
    /// At least this number is unused after live data was moved together.
    const TOGETHER: u32 = 1700;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let made = opened(&Medium::new_pool(&path, 16 << 20));
    let mut random = Random::seeded("unused", 1);
    assert!(words(&*made.flash, Op::Write, 0..KEPT, kept_word));
    for _ in 0..40 {
        let some: Vec<u32> = (0..100).map(|_| random.below(KEPT)).collect();
        run(&*made.flash, Op::Write, some.into_iter(), |subpage| kept_word(subpage).to_ne_bytes().to_vec());
        store(&made).sync().unwrap();
    }
    drop(made);
    let before = std::fs::read(&path).unwrap();
    let too_few = unused_of_pool(&path, u64::MAX, 12 << 20).unwrap();
    let free = too_few.flash.subpages();
    assert!(free < TOGETHER, "{free} subpages are free without a move");
    drop(too_few);
    assert!(std::fs::read(&path).unwrap() == before, "nothing is moved for what cannot be");
    use_unused_repeatedly(&path, 0..KEPT, TOGETHER);
}
