//! Goal: a process that is killed at any moment leaves its permanent objects as of its last sync,
//! whole, and none of its temporary ones. Method: a child changes an array and a list of objects of
//! a pool in a file, and temporary ones between them, far more than its DRAM has room for. It
//! syncs, and says so. It is killed at random moments, and the pool is checked. The next child
//! finds the state of one round, no older than what was said.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fulgurite_alloc::{Mode, ObjectAllocator, ObjectArray, ObjectPool, ObjectSettings, StartError};
use fulgurite_backing::Medium;
use fulgurite_store::admin::{self, PoolFiles};
use fulgurite_store::{Permissions, StoreConfig};
use fulgurite_testkit::{Random, again, kill_after, share, sync_and_report};

const POOL: &str = "FULGURITE_TEST_PERMANENT_POOL";
const MODE: &str = "FULGURITE_TEST_PERMANENT_MODE";
const COUNT: u32 = 2400;
const WORDS: usize = 16;
/// A round writes one of this number of objects of the array.
const PART: u32 = 5;
/// Objects of the list at a time.
const LISTED: usize = 50;
const NO_USERFAULTFD: &str = "no userfaultfd";

fn fill(array: ObjectArray, index: u32, round: u64) {
    for word in 0..WORDS {
        // SAFETY: the array is this process's alone, and an object has room.
        unsafe { array.at(index).cast::<u64>().add(word).write(round << 16 | word as u64) };
    }
}
/// The round that wrote an object last; 0 if none did.
fn round_of(array: ObjectArray, index: u32) -> u64 {
    // SAFETY: as in `fill`.
    let words: [u64; WORDS] = unsafe { array.at(index).cast().read() };
    let round = words[0] >> 16;
    for (word, found) in words.iter().enumerate() {
        assert_eq!(*found, if round == 0 { 0 } else { round << 16 | word as u64 }, "object {index}: {words:?}");
    }
    round
}
/// Whether a round writes an object of the array.
fn writes(round: u64, index: u32) -> bool {
    (u64::from(index) * 7 + round).is_multiple_of(PART.into())
}
/// Objects of the list, the newest first: each has its round, and the next one's reference plus 1.
fn rounds(allocator: &ObjectAllocator, list: ObjectPool) -> Vec<u64> {
    let (mut rounds, mut at) = (Vec::new(), list.root());
    while let Some(object) = at {
        // SAFETY: as in `fill`.
        let [round, next] = unsafe { object.cast::<[u64; 2]>().read() };
        rounds.push(round);
        at = next.checked_sub(1).map(|next| allocator.object_of(next as u32).expect("the list is whole"));
    }
    rounds
}

/// The process that is killed.
#[test]
#[ignore = "started by the test below"]
fn worker() {
    let Some(path) = std::env::var_os(POOL) else { return };
    let mut settings = ObjectSettings::new(Medium::pool_or_new(path, "24M"), 16 << 20, 24 << 10);
    settings.page_buffer_bytes = Some(512 << 10);
    settings.mode = if std::env::var_os(MODE).is_some() { Mode::InLine } else { Mode::Compatible };
    let allocator = match ObjectAllocator::start(&settings) {
        Err(StartError::PageBuffer(fulgurite_fault::Error::Userfault(_))) => {
            println!("\n{NO_USERFAULTFD}");
            sync_and_report(&[AtomicU64::new(0)], Duration::from_millis(1), || {});
        }
        started => started.unwrap(),
    };
    let array = allocator.array_named_or_new("array", COUNT, WORDS * 8).unwrap();
    let list = allocator.pool_named("list", 16).unwrap();
    // All is of one round.
    let listed = rounds(allocator, list);
    let found = listed.first().copied().unwrap_or(0);
    assert!(listed.iter().enumerate().all(|(at, round)| *round == found - at as u64), "{listed:?}");
    assert_eq!(listed.len(), (found as usize).min(LISTED));
    assert_eq!(allocator.summary().objects as usize, COUNT as usize + listed.len(), "temporary ones are gone");
    for index in 0..COUNT {
        let last = (found.saturating_sub(PART.into()) + 1..=found).rev().find(|round| writes(*round, index));
        assert_eq!(round_of(array, index), last.unwrap_or(0), "object {index} in round {found}");
    }
    println!("\nfound {found}");
    let (round, mut random) = ([AtomicU64::new(found)], Random::seeded("worker", found));
    sync_and_report(&round, Duration::ZERO, || {
        let next = round[0].load(Ordering::SeqCst) + 1;
        let temporary = allocator.array(1500, 200).expect("there is room");
        for index in (0..COUNT).filter(|index| writes(next, *index)) {
            fill(array, index, next);
            let other = random.below(1500);
            // SAFETY: as in `fill`.
            unsafe { temporary.at(other).cast::<u64>().write(next) };
            if index / 1000 % 2 == 1 && index % 1000 < PART {
                // It is on flash before the state that has it.
                allocator.write_back();
            }
        }
        let object = list.allocate().expect("there is room");
        let before = list.root().map_or(0, |root| u64::from(allocator.reference(root).unwrap()) + 1);
        // SAFETY: as in `fill`.
        unsafe { object.cast::<[u64; 2]>().write([next, before]) };
        list.set_root(Some(object)).unwrap();
        if next as usize > LISTED {
            // The last but one becomes the last.
            let mut at = object;
            let next_of = |at: std::ptr::NonNull<u8>| {
                // SAFETY: as in `fill`.
                let [_, next] = unsafe { at.cast::<[u64; 2]>().read() };
                allocator.object_of((next - 1) as u32).expect("the list is whole")
            };
            (1..LISTED).for_each(|_| at = next_of(at));
            let last = next_of(at);
            // SAFETY: as in `fill`. Nothing leads to the last one then.
            unsafe {
                at.cast::<u64>().add(1).write(0);
                allocator.free(last).unwrap();
            }
        }
        allocator.sync().unwrap();
        // SAFETY: nothing uses the array.
        unsafe { allocator.free_array(temporary.first()) }.unwrap();
        assert_eq!(allocator.summary().own_syncs, 0);
        round[0].store(next, Ordering::SeqCst);
    });
}

/// Checks the pool as `fulgurite pool check` does. Returns how many pages of it are temporary.
fn check(path: &Path) -> usize {
    let checked =
        admin::check(
            PoolFiles::find(path, &[]).unwrap(),
            StoreConfig::default(),
            &mut |_, _| ControlFlow::Continue(()),
        );
    let checked = checked.unwrap();
    assert!(checked.damaged.is_empty() && checked.seen.is_ok(), "{:?}", checked.damaged);
    let mut config = StoreConfig::default();
    config.temporary_stays = true;
    let opened = PoolFiles::find(path, &[]).unwrap().inspect(config, None).unwrap();
    let pages = opened.flash.layer().geometry().pages();
    let temporary = |permissions: &Option<Permissions>| permissions.is_some_and(|p| !p.permanent);
    opened.flash.layer().permissions_of(0..pages).iter().filter(|permissions| temporary(permissions)).count()
}

#[test]
fn a_killed_process_leaves_its_last_state() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("pool");
    let mut random = Random::seeded("kills", 1);
    let kills = share(30);
    let (mut said, mut had_temporary) = (0, 0);
    for kill in 0..kills {
        let mut child = again(module_path!(), "worker");
        child.env(POOL, &path);
        if kill % 2 == 1 {
            child.env(MODE, "in line");
        }
        let (mut found, mut skipped) = (None, false);
        let time = Duration::from_millis(random.below(120));
        let last = kill_after(&mut child, 1, time, |line| {
            skipped |= line == NO_USERFAULTFD;
            found = found.or(line.strip_prefix("found ").and_then(|round| round.parse::<u64>().ok()));
        });
        if skipped {
            eprintln!("skipped: {NO_USERFAULTFD}");
            return;
        }
        let found = found.expect("a child says what it found");
        assert!(found >= said && found <= said + 1, "kill {kill}: round {found} was found, and {said} was said");
        // That round was counted before the next one was synced.
        said = last[0] + 1;
        had_temporary += usize::from(check(&path) > 0);
    }
    assert!(had_temporary > 0, "no child was killed while it had temporary objects on flash");
    println!("{kills} kills, {said} rounds, {had_temporary} with temporary pages");
}
