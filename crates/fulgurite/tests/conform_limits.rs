//! Goal: with the durability that a program gets unless it chooses another, no limit between two
//! syncs stops a writer while the pool has room: the pool syncs by itself before that. An error
//! names the limit that was met, and its knob. Method: pools of 1, 4 and 16 GiB in sparse files,
//! each with 160 MiB of data under 64 MiB of DRAM, all of it overwritten without a sync. Where only
//! the program syncs, that is refused. Then pools in which each limit in turn is met: DRAM for
//! history, changes since the last sync, older tokens, current data. And write sections that meet
//! one.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fulgurite::{AccessError, Array, Durability, Fulgurite, Medium};
use fulgurite_flash::{FileConfig, FileFlash, Flash, Shortage};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool};

const WORDS: u64 = 512;

/// A pool in a file of which only what is written takes space.
fn sparse_pool(path: &Path, bytes: u64) {
    File::create_new(path).unwrap().set_len(bytes).unwrap();
    let flash: Arc<dyn Flash> = Arc::new(FileFlash::open(&FileConfig::existing(path)).unwrap());
    Pool::format(&flash, Geometry::usual((bytes / 4096) as u32).unwrap(), PoolId([3; 16]), 0).unwrap();
}
/// A word of every subpage in these is written, in jobs of 64.
fn write(memory: &Fulgurite, array: Array<u64>, subpages: std::ops::Range<u64>, value: u64) -> Result<(), AccessError> {
    let last = subpages.end;
    for first in subpages.step_by(64) {
        let some = first..last.min(first + 64);
        memory.run(|m| some.clone().try_for_each(|n| array.set(m, n * WORDS, value)))?;
    }
    Ok(())
}
fn wrong(memory: &Fulgurite, array: Array<u64>, subpages: u64, value: u64) -> u64 {
    let count = |m: &mut fulgurite::Context| {
        (0..subpages).try_fold(0, |wrong, n| Ok(wrong + u64::from(array.get(m, n * WORDS)? != value)))
    };
    memory.run(count).unwrap()
}

#[test]
fn a_program_that_never_syncs_overwrites_more_than_its_dram_remembers() {
    const SUBPAGES: u64 = (160 << 20) / 4096;
    let directory = tempfile::tempdir().unwrap();
    for gigabytes in [1, 4, 16] {
        let path = directory.path().join(gigabytes.to_string());
        sparse_pool(&path, gigabytes << 30);
        let memory = Fulgurite::builder(Medium::pool(&path)).dram("64M").start().unwrap();
        let array = memory.named("words").array(SUBPAGES * WORDS, |_| 0u64).unwrap();
        let first = memory.sync().unwrap();
        write(&memory, array, 0..SUBPAGES, 1).unwrap_or_else(|e| panic!("{gigabytes} GiB: {e}"));
        assert!(memory.tokens().unwrap().last() > Some(&first), "{gigabytes} GiB: it was not met");
        assert_eq!(wrong(&memory, array, SUBPAGES, 1), 0, "{gigabytes} GiB");
        drop(memory);
        if gigabytes == 1 {
            // It is the limit, and the durability, that make the difference.
            let builder = Fulgurite::builder(Medium::pool(&path)).dram("64M").durability(Durability::Sync);
            let memory = builder.start().unwrap();
            let array = memory.named("words").array(SUBPAGES * WORDS, |_| 0u64).unwrap();
            let refused = write(&memory, array, 0..SUBPAGES, 2).unwrap_err();
            assert_eq!(limit(refused, "Builder::dram"), Shortage::History { bytes: 4 << 20 });
        }
        std::fs::remove_file(path).unwrap();
    }
}

/// The limit that an error names, with its knob.
fn limit(error: AccessError, knob: &str) -> Shortage {
    let AccessError::PoolFull { shortage: Some(shortage), .. } = error else { panic!("{error}") };
    assert!(error.to_string().contains(knob), "{error}");
    shortage
}

#[test]
fn an_error_names_the_limit_that_was_met() {
    const DATA: u64 = (20 << 20) / 4096;
    let directory = tempfile::tempdir().unwrap();
    let start = |name: &str, keep: usize| {
        let medium = Medium::new_pool(directory.path().join(name), 48 << 20);
        let builder = Fulgurite::builder(medium).dram("16M").keep_tokens(keep).durability(Durability::Sync);
        builder.start().unwrap()
    };
    let until_refused = |memory: &Fulgurite, array, syncs: bool| {
        for value in 1..100 {
            for first in (0..DATA).step_by(512) {
                if let Err(error) = write(memory, array, first..DATA.min(first + 512), value) {
                    return error;
                }
                if syncs && memory.sync().is_err() {
                    break;
                }
            }
        }
        panic!("nothing was refused");
    };
    // Everything is overwritten, and nothing synced.
    let memory = start("unsynced", 1);
    let array = memory.named("words").array(DATA * WORDS, |_| 0u64).unwrap();
    memory.sync().unwrap();
    assert_eq!(limit(until_refused(&memory, array, false), "sync more often"), Shortage::Unsynced);
    memory.sync().unwrap();
    // Every state is kept.
    let memory = start("tokens", 1000);
    let array = memory.named("words").array(DATA * WORDS, |_| 0u64).unwrap();
    assert_eq!(limit(until_refused(&memory, array, true), "keep_tokens"), Shortage::Tokens);
}

/// A sync ends when all open sections have, so none may wait for the room that this sync makes.
#[test]
fn a_section_does_not_wait_for_a_sync_that_waits_for_it() {
    const DATA: u64 = 2048;
    const JOBS: u64 = 16;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    sparse_pool(&path, 16 << 20);
    // Only a limit makes it sync. All data may differ in DRAM, for which there is no room.
    let seldom = Durability::Lazy { every: Duration::from_secs(3600), bytes: u64::MAX };
    let memory = Fulgurite::builder(Medium::pool(&path)).dram("32M").durability(seldom).start().unwrap();
    let array = memory.named("words").array(DATA * WORDS, |_| 0u64).unwrap();
    let first = memory.sync().unwrap();
    let writes = |job: u64| {
        for section in 0..256 {
            memory.run(|m| {
                let _section = m.write_section()?;
                (0..4).try_for_each(|n| array.set(m, (job + JOBS * (4 * section + n)) % DATA * WORDS, section))
            })?;
        }
        Ok::<_, AccessError>(())
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..JOBS).map(|job| scope.spawn(move || writes(job))).collect();
        jobs.into_iter().for_each(|job| job.join().unwrap().unwrap());
    });
    assert!(memory.tokens().unwrap().last() > Some(&first), "no limit was met");
}
