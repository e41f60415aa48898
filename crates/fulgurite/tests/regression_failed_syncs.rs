//! Goal: a sync can always be made, or says why none can be made any more. This holds after a
//! section as large as a pool keeps history for, with one damaged heap among those that have names,
//! and over a file that was deleted or replaced while it was open. After a sync that failed for
//! good, the tokens that are reported are the ones that a new start finds. Method: pools in small
//! files, changed past the program: bytes flipped, names removed and given to other files. And jobs
//! that declare how many pins they hold.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use fulgurite::{
    AccessError, Durability, Error, Fulgurite, JobOptions, Medium, Memory, SyncError, media::VersionError,
    pool::PoolError, runtime::SubmitError,
};
use fulgurite_flash::FlashError;

const PAGE: usize = 4096;

fn open(path: &Path) -> Fulgurite {
    let medium = match path.exists() {
        true => Medium::pool(path),
        false => Medium::new_pool(path, 32 << 20),
    };
    Fulgurite::builder(medium).dram("8M").start().unwrap()
}

// ---- history ----

/// A program that syncs by itself, and one that does so itself, over an array much larger than
/// DRAM.
fn one_large_section(durability: Durability) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let medium = Medium::new_pool(&path, 160 << 20);
    let memory = Fulgurite::builder(medium).dram("10M").durability(durability).start().unwrap();
    const LEN: u64 = (24 << 20) / 8;
    const STEP: usize = PAGE / 8;
    let array = memory.named("words").array(LEN, |_| 1u64).unwrap();
    memory.sync().unwrap();
    // All of it in one section is more than the pool may remember the older contents of.
    let told = memory.run(move |m| {
        let _section = m.write_section()?;
        let mut changed = 0;
        for i in (0..LEN).step_by(STEP) {
            match array.set(m, i, 2) {
                Ok(()) => changed += 1,
                Err(error) => return Ok((changed, Some(error))),
            }
        }
        Ok((changed, None))
    });
    let (changed, told) = told.unwrap();
    let told = told.unwrap_or_else(|| panic!("all {changed} fitted")).to_string();
    for word in ["older", "640.0 KiB", "DRAM", "Builder::dram"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    // Readers of all of it need frames, and get no error.
    let read =
        move |m: &mut fulgurite::Context| (0..LEN).step_by(STEP).try_fold(0, |sum, i| Ok(sum + array.get(m, i)?));
    let sum = memory.run(read).unwrap();
    assert_eq!(sum, LEN / STEP as u64 + changed, "what was changed is there, and nothing else");
    memory.sync().unwrap_or_else(|e| panic!("{changed} subpages were changed: {e}"));
    memory.run(move |m| (0..LEN / 4).step_by(STEP).try_for_each(|i| array.set(m, i, 3))).unwrap();
    memory.sync().unwrap();
    drop(memory);
    let memory = open(&path);
    let array = memory.named("words").array(LEN, |_| 0u64).unwrap();
    assert_eq!(memory.run(move |m| array.get(m, 0)).unwrap(), 3);
}
#[test]
fn a_program_that_syncs_by_itself_can_after_one_large_section() {
    one_large_section(Durability::Lazy { every: Duration::from_millis(200), bytes: 1 << 40 });
}
#[test]
fn a_program_that_is_asked_to_sync_can_after_one_large_section() {
    one_large_section(Durability::Sync);
}

// ---- damage ----

#[test]
fn one_damaged_heap_does_not_keep_all_else_from_being_synced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    const WHOLE: u64 = 0xA1B2_C3D4_E5F6_0718;
    let memory = open(&path);
    let heap = memory.named("bad").heap(1 << 20).unwrap();
    let object = memory
        .run(move |m| {
            let at = heap.allocate(m, PAGE)?;
            m.write_bytes(at, &WHOLE.to_le_bytes().repeat(PAGE / 8))?;
            Ok(at)
        })
        .unwrap();
    let value = memory.named("good").value(1u64).unwrap();
    memory.sync().unwrap();
    drop(memory);
    // A bit of the object is lost.
    let bytes = fs::read(&path).unwrap();
    let places: Vec<usize> =
        (0..bytes.len()).step_by(PAGE).filter(|at| bytes[*at..][..8] == WHOLE.to_le_bytes()).collect();
    assert!(!places.is_empty());
    let file = fs::File::options().write(true).open(&path).unwrap();
    places.iter().for_each(|at| file.write_all_at(&[0], *at as u64 + 100).unwrap());
    drop(file);

    let memory = open(&path);
    let heap = memory.named("bad").heap(1 << 20).unwrap();
    assert_eq!(memory.damaged().unwrap(), []);
    // What is free is written down in what was freed, at the next sync.
    memory.run(move |m| heap.free(m, object, PAGE)).unwrap();
    for round in 2..5 {
        memory.run(move |m| m.store(value, round)).unwrap();
        memory.sync().unwrap_or_else(|e| panic!("round {round}: {e}"));
        let damaged = memory.damaged().unwrap();
        assert!(
            matches!(&damaged[..], [(name, AccessError::Flash { source: FlashError::Corrupt, .. })] if name == "bad"),
            "{damaged:?}"
        );
    }
    drop(memory);
    let memory = open(&path);
    assert_eq!(memory.run(move |m| m.load(value)).unwrap(), 4);
    // What was not saved counts as in use; the heap goes on.
    let heap = memory.named("bad").heap(1 << 20).unwrap();
    let other = memory.run(move |m| heap.allocate(m, PAGE)).unwrap();
    assert_ne!(other, object);
    memory.sync().unwrap();
    memory.named("bad").remove().unwrap();
    memory.sync().unwrap();
    assert_eq!(memory.damaged().unwrap(), []);
}

#[test]
fn one_damaged_heap_keeps_no_other_from_being_rolled_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let memory = open(&path);
    let heap = memory.named("bad").heap(1 << 20).unwrap();
    let good = memory.named("good").value(1u64).unwrap();
    let token = memory.sync().unwrap();
    memory.run(move |m| m.store(good, 2)).unwrap();
    // A byte of each page with the header of a heap is lost, and so is the header of "bad".
    let bytes = fs::read(&path).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    let is_header = |at: &usize| bytes[*at..][..PAGE].windows(8).any(|words| words == b"flgheap1");
    let places: Vec<usize> = (0..bytes.len()).step_by(PAGE).filter(is_header).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| file.write_all_at(&[!bytes[at + 3000]], *at as u64 + 3000).unwrap());
    drop(file);

    memory.roll_back(token).unwrap();
    let damaged = memory.damaged().unwrap();
    assert!(matches!(&damaged[..], [(name, error)] if name == "bad" && error.is_damage()), "{damaged:?}");
    assert!(memory.run(move |m| heap.allocate(m, PAGE)).is_err(), "a heap of which nobody knows what is in use");
    assert_eq!(memory.run(move |m| m.load(good)).unwrap(), 1);
    memory.run(move |m| m.store(good, 3)).unwrap();
    memory.sync().unwrap();
    drop(memory);
    let memory = open(&path);
    let good = memory.named("good").value(9u64).unwrap();
    assert_eq!(memory.run(move |m| m.load(good)).unwrap(), 3);
}

// ---- names of files ----

fn says_unlinked(error: &Error) -> bool {
    matches!(error, Error::Sync(SyncError::Version(VersionError::Flash(FlashError::Unlinked))))
}
fn is_unlinked(error: &Error) -> bool {
    says_unlinked(error)
        || matches!(error, Error::Pool(PoolError::Flash(FlashError::Unlinked)))
        || matches!(error, Error::Pool(PoolError::Write(_))) && error.to_string().contains("deleted or replaced")
}

#[test]
fn a_pool_whose_file_was_deleted_or_replaced_is_not_synced_and_tells_of_what_is_durable() {
    for replaced in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        let other = directory.path().join("other");
        let memory = open(&path);
        let value = memory.named("value").value(1u64).unwrap();
        let good = memory.sync().unwrap();
        if replaced {
            // A copy takes its place, as a backup that is brought back does.
            fs::copy(&path, &other).unwrap();
            fs::rename(&other, &path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        memory.run(move |m| m.store(value, 2)).unwrap();
        for _ in 0..2 {
            let told = memory.sync().unwrap_err();
            assert!(says_unlinked(&told), "{told}");
            assert!(told.to_string().contains("deleted or replaced"), "{told}");
        }
        // What was named and is not durable is no token, and what was to give way to it still is
        // one.
        assert_eq!(memory.tokens().unwrap(), [good], "replaced: {replaced}");
        for told in [
            memory.roll_back(good).unwrap_err(),
            memory.open_token(good, 4 << 20).err().unwrap(),
            memory.pin_token(good, true).unwrap_err(),
        ] {
            assert!(is_unlinked(&told), "{told:?}");
        }
        drop(memory);
        if replaced {
            let memory = open(&path);
            assert_eq!(memory.tokens().unwrap(), [good]);
            assert_eq!(memory.run(move |m| m.load(value)).unwrap(), 1);
        }
    }
}

// ---- pins ----

#[test]
fn a_program_says_how_many_pins_a_job_holds() {
    let medium = Medium::memory(16 << 20);
    let memory = Fulgurite::builder(medium).dram("4M").start().unwrap();
    let region = memory.region(64 * PAGE as u64).unwrap();
    let pins = move |count: u64| {
        move |m: &mut fulgurite::Context| {
            let pins: Result<Vec<_>, _> = (0..count).map(|n| m.pin(region.base.add(n * PAGE as u64))).collect();
            pins.map(|pins| pins.len())
        }
    };
    let told = memory.run(pins(5)).unwrap_err();
    assert!(matches!(told, AccessError::TooManyPins { limit: 4 }) && told.to_string().contains("JobOptions::pins"));
    let options = JobOptions::new().name("of many pins").pins(32);
    assert_eq!(memory.run_with(&options, pins(32)).unwrap(), 32);
    assert!(matches!(memory.run_with(&options, pins(33)), Err(Error::Access(AccessError::TooManyPins { limit: 32 }))));
    assert_eq!(memory.submit_with(&options, pins(7)).unwrap().wait().unwrap().unwrap(), 7);
    let too_many = memory.run_with(&JobOptions::new().pins(1 << 20), pins(1));
    assert!(matches!(too_many, Err(Error::Submit(SubmitError::TooManyPins { .. }))), "{too_many:?}");
}
