//! Goal: a program that only writes is not stopped by what others should do for it. A lazy pool
//! syncs before space runs out, tokens grow old while it runs, and what a sync leaves to be done is
//! done while all threads sleep. Idle threads do not wake up. Method: a lazy pool whose time to
//! sync never comes, written over several times. Such a pool under `Durability::Sync`, which must
//! fail, and continue after a sync. A pool much larger than DRAM, which must take all that DRAM
//! holds. Tokens with an age. A checkpoint that is due when a sync returns to a thread that then
//! does nothing. Wake-ups are counted.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fulgurite::{AccessError, Array, Context, Durability, Error, Fulgurite, Medium, Memory, runtime::Runtime};
use fulgurite_flash::{Flash, FlashError, MemoryFlash};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};

const POOL_BYTES: u64 = 48 << 20;
/// About half of the pool: with a version that a token keeps, more than all of it.
const PAGES: u64 = 5 << 10;
const WORDS: u64 = 512;

fn start(path: &Path, durability: Durability, on_device: bool) -> Fulgurite {
    let medium = Medium::new_pool(path, POOL_BYTES);
    let builder = Fulgurite::builder(medium).dram("4M").durability(durability);
    let builder = if on_device { builder.on_device(None) } else { builder };
    builder.start().unwrap()
}
/// A word of every page is written.
fn write_all(memory: &Fulgurite, array: Array<u64>, round: u64) -> Result<(), Error> {
    for first in (0..PAGES).step_by(64) {
        let pages = first..first + 64;
        memory.run(move |m| pages.clone().try_for_each(|page| array.set(m, page * WORDS, round * PAGES + page)))?;
    }
    Ok(())
}

#[test]
fn a_pool_much_larger_than_dram_takes_as_many_changes_as_dram_holds() {
    const FRAMES: u64 = 2500;
    let directory = tempfile::tempdir().unwrap();
    let medium = Medium::new_pool(directory.path().join("pool"), 256 << 20);
    let builder = Fulgurite::builder(medium).dram("16M").durability(Durability::Sync);
    let memory = builder.start().unwrap();
    assert!(memory.runtime().frames() > FRAMES, "{}", memory.runtime().frames());
    let array = memory.named("words").array(2 * FRAMES * WORDS, |_| 0u64).unwrap();
    memory.sync().unwrap();
    // What was never written, what was, and both.
    for (round, pages) in
        [0..FRAMES, 0..FRAMES, FRAMES..2 * FRAMES, 0..2 * FRAMES, 0..2 * FRAMES].into_iter().enumerate()
    {
        let told = memory.run({
            let pages = pages.clone();
            move |m| pages.clone().try_for_each(|page| array.set(m, page * WORDS, round as u64))
        });
        told.unwrap_or_else(|e| panic!("round {round}, pages {pages:?}: {e}"));
        memory.sync().unwrap();
    }
}
#[test]
fn who_writes_more_than_there_is_room_for_waits_for_a_sync() {
    waits_for_a_sync(false);
}
#[test]
fn who_writes_more_than_there_is_room_for_waits_for_a_sync_of_a_store_on_a_device() {
    waits_for_a_sync(true);
}

fn waits_for_a_sync(on_device: bool) {
    let directory = tempfile::tempdir().unwrap();
    let never = Durability::Lazy { every: Duration::from_secs(1 << 30), bytes: u64::MAX };
    let memory = start(&directory.path().join("lazy"), never, on_device);
    let array = memory.named("words").array(PAGES * WORDS, |_| 0u64).unwrap();
    let first = memory.sync().unwrap();
    for round in 1..8 {
        write_all(&memory, array, round).unwrap();
    }
    let tokens = memory.tokens().unwrap();
    assert!(tokens.last() > Some(&first), "nobody synced: {tokens:?}");
    let wrong = memory
        .run(move |m| {
            (0..PAGES).try_fold(0, |wrong, page| {
                Ok::<u64, AccessError>(wrong + u64::from(array.get(m, page * WORDS)? != 7 * PAGES + page))
            })
        })
        .unwrap();
    assert_eq!(wrong, 0);
    drop(memory);

    // Where the program names the states, nobody else does, and it gets an error.
    let memory = start(&directory.path().join("sync"), Durability::Sync, on_device);
    let array = memory.named("words").array(PAGES * WORDS, |_| 0u64).unwrap();
    let first = memory.sync().unwrap();
    for _ in 0..3 {
        let told = (1..8).try_for_each(|round| write_all(&memory, array, round));
        let error = told.expect_err("seven times what there is room for was written");
        let Error::Access(AccessError::PoolFull { uncommitted, .. }) = error else { panic!("{error}") };
        // Between what fits in DRAM and all that was tried.
        assert!(on_device || uncommitted.is_some_and(|count| (1..7 * PAGES).contains(&count)), "{error}");
        assert_eq!(on_device, uncommitted.is_none(), "a device does not say");
        assert_eq!(on_device, !error.to_string().contains("subpages are changed and not yet synced"), "{error}");
        // A sync has room, and makes room.
        memory.sync().unwrap();
    }
    assert!(memory.tokens().unwrap().last() > Some(&first));
}

#[test]
fn tokens_grow_old_while_the_program_runs() {
    let directory = tempfile::tempdir().unwrap();
    for (name, age, kept) in [("young", Duration::from_millis(1), 1), ("old", Duration::from_secs(1 << 30), 4)] {
        let medium = Medium::new_pool(directory.path().join(name), 16 << 20);
        let builder = Fulgurite::builder(medium).dram("4M").keep_tokens(100).keep_age(age);
        let memory = builder.start().unwrap();
        memory.named("value").value(0u64).unwrap();
        for _ in 0..4 {
            // At least this long, and longer does no harm.
            std::thread::sleep(Duration::from_millis(10));
            memory.sync().unwrap();
        }
        assert_eq!(memory.tokens().unwrap().len(), kept, "{name}");
    }
}

#[test]
fn the_oldest_tokens_go_when_space_is_short() {
    let directory = tempfile::tempdir().unwrap();
    let kept = |name: &str, space: &str| {
        let medium = Medium::new_pool(directory.path().join(name), 16 << 20);
        let builder = Fulgurite::builder(medium).dram("4M").keep_tokens(100).keep_space(space);
        let memory = builder.start().unwrap();
        let array = memory.named("words").array(256 * WORDS, |_| 0u64).unwrap();
        for round in 1..=4 {
            memory.run(move |m| (0..256).try_for_each(|page| array.set(m, page * WORDS, round))).unwrap();
            memory.sync().unwrap();
        }
        let tokens = memory.tokens().unwrap();
        let newest = memory.open_token(*tokens.last().unwrap(), 4 << 20).unwrap();
        let word = array.ptr(7 * WORDS).unwrap();
        assert_eq!(newest.run(move |m| m.load(word)), Ok(4), "the newest stays");
        tokens.len()
    };
    // A state is a mebibyte, of 16.
    assert_eq!(kept("no bound", "0"), 4);
    assert_eq!(kept("little", "1M"), 4);
    let some = kept("some", "12M");
    assert!((2..4).contains(&some), "{some}");
    assert_eq!(kept("all", "1T"), 1, "all but the newest");
    let wrong = Fulgurite::builder(Medium::memory(1 << 20)).keep_space("much").start().err().unwrap();
    assert!(matches!(wrong, Error::Unit(_)), "{wrong}");
}

#[test]
fn a_lazy_pool_counts_what_is_dirty_in_dram() {
    let directory = tempfile::tempdir().unwrap();
    let medium = Medium::new_pool(directory.path().join("pool"), 16 << 20);
    // Nothing has to leave DRAM, and the time to sync never comes: only what is dirty there makes
    // it due.
    let lazy = Durability::Lazy { every: Duration::from_secs(1 << 30), bytes: 128 * 4096 };
    let memory = Fulgurite::builder(medium).dram("8M").durability(lazy).start().unwrap();
    let array = memory.named("words").array(256 * WORDS, |_| 0u64).unwrap();
    let first = memory.sync().unwrap();
    assert_eq!(memory.runtime().changed_frames(), 0);
    // Kept busy, or what is cold is written while there is nothing to do.
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let job = memory.submit(move |m| -> Result<u64, AccessError> {
        for round in 1.. {
            for page in 0..200 {
                array.set(m, page * WORDS, round)?;
            }
            if stopped.load(std::sync::atomic::Ordering::Relaxed) {
                return Ok(round);
            }
            m.yield_now()?;
        }
        Ok(0)
    });
    let begun = Instant::now();
    while memory.tokens().unwrap().last() == Some(&first) {
        assert!(begun.elapsed() < Duration::from_secs(20), "200 dirty subpages, 128 may be: nobody syncs");
        std::thread::sleep(Duration::from_millis(1));
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    job.unwrap().wait().unwrap().unwrap();
}

/// A part whose state cannot be saved for some time.
struct Ill(AtomicU32);
impl fulgurite::runtime::Durable for Ill {
    fn save(&self, _: &mut Context) -> Result<(), AccessError> {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let at = fulgurite::Address::from_linear(0);
        left.map_or(Ok(()), |_| Err(AccessError::Flash { at, source: FlashError::Io(5) }))
    }
    fn reload(&self, _: &mut Context) -> Result<(), AccessError> {
        Ok(())
    }
}

#[test]
fn a_lazy_pool_that_could_not_be_synced_is_synced_again_and_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let medium = Medium::new_pool(path.clone(), 16 << 20);
    // It checks no more often than it can, however often it is to.
    let lazy = Durability::Lazy { every: Duration::ZERO, bytes: u64::MAX };
    let memory = Fulgurite::builder(medium).dram("4M").durability(lazy).start().unwrap();
    let array = memory.named("words").array(WORDS, |_| 0u64).unwrap();
    let ill = Arc::new(Ill(AtomicU32::new(0)));
    memory.runtime().keep(ill.clone());
    ill.0.store(2, Ordering::SeqCst);
    let begun = Instant::now();
    while ill.0.load(Ordering::SeqCst) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "it was not tried again");
        std::thread::sleep(Duration::from_millis(1));
    }
    let last = memory.tokens().unwrap().last().copied();
    while memory.tokens().unwrap().last().copied() == last {
        assert!(begun.elapsed() < Duration::from_secs(30), "nobody syncs any more");
        std::thread::sleep(Duration::from_millis(1));
    }
    // The program's own syncs are not refused for what is past. One that ends while the medium is
    // ill has its last sync.
    memory.sync().unwrap();
    ill.0.store(1, Ordering::SeqCst);
    while ill.0.load(Ordering::SeqCst) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "nobody syncs");
        std::thread::sleep(Duration::from_millis(1));
    }
    memory.run(move |m| array.set(m, 7, 77)).unwrap();
    drop(memory);
    let memory = Fulgurite::builder(Medium::pool(path)).dram("4M").start().unwrap();
    let array = memory.named("words").array(WORDS, |_| 0u64).unwrap();
    assert_eq!(memory.run(move |m| array.get(m, 7)), Ok(77));
}

#[test]
fn what_cannot_be_removed_for_want_of_room_stays_and_is_removed_after_a_sync() {
    let directory = tempfile::tempdir().unwrap();
    let memory = start(&directory.path().join("pool"), Durability::Sync, false);
    // As many pages of 64 KiB as there is no room for to delete when the rest is full.
    const LARGE: u64 = 200 * 16 * WORDS;
    let large = memory.named("large").array(LARGE, |_| 3u64).unwrap();
    let array = memory.named("words").array(PAGES * WORDS, |_| 0u64).unwrap();
    memory.sync().unwrap();
    let full = (1..64).try_for_each(|round| {
        (0..PAGES).step_by(32).try_for_each(|first| {
            memory.run(move |m| (first..first + 32).try_for_each(|page| array.set(m, page * WORDS, round)))
        })
    });
    assert!(matches!(full, Err(AccessError::PoolFull { .. })), "{full:?}");
    let refused = memory.named("large").remove();
    assert!(matches!(refused, Err(Error::Pool(_))), "{refused:?}");
    let again = memory.named("large").array(LARGE, |_| 0u64).unwrap();
    let _ = large;
    for at in [0, 1, LARGE / 2, LARGE - 1] {
        assert_eq!(memory.run(move |m| again.get(m, at)), Ok(3), "word {at}");
    }
    memory.sync().unwrap();
    memory.named("large").remove().unwrap();
    let gone = memory.named("large").remove();
    assert!(matches!(gone, Err(Error::Root(_))), "{gone:?}");
    memory.sync().unwrap();
}

#[test]
fn what_a_sync_leaves_is_done_while_all_sleep_and_then_nobody_wakes() {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096).unwrap());
    let geometry = Geometry::new(4096, 16, Some(1024)).unwrap();
    Pool::format(&medium, geometry, PoolId([9; 16]), 0).unwrap();
    let mut config = StoreConfig::default();
    // Each sync makes one due.
    config.checkpoint_after = 1;
    let flash = Pool::open(medium, config).unwrap().0.into_flash();
    let pool = flash.layer().clone();
    let runtime = Runtime::builder(Arc::new(flash)).workers(2).dram(8 << 20).build().unwrap();
    let sleeps = || runtime.statistics().workers.iter().map(|w| w.counts.sleeps).sum::<u64>();
    for round in 0..5 {
        let made = pool.counters().checkpoints;
        pool.sync().unwrap();
        let begun = Instant::now();
        while pool.counters().checkpoints == made {
            assert!(begun.elapsed() < Duration::from_secs(10), "round {round}: nobody goes on with the checkpoint");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    // Until nobody has anything to do: two checks in a row see only their own wake-ups.
    let begun = Instant::now();
    let mut before = sleeps();
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let now = sleeps();
        // The check wakes each worker once, and may find it on its way to sleep.
        if now - before <= 4 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{} wake-ups in 100 ms", now - before);
        before = now;
    }
}
