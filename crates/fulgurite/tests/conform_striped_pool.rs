//! Goal: a program runs on a pool that spans several files, opened by any of them: what it has
//! named is there by whichever is named next, and goes to all of them as their list says. One that
//! is missing is named by a typed error. Method: pools over three small files, and over two of
//! which the first is longer than its part (so that all of the pool would fit in it). A program
//! fills an array and syncs, also with the store in a device of the process. Each next one names
//! another file, and reads all of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulgurite::{
    Array, Context, Error, Fulgurite, Medium,
    media::{FileConfig, FileFlash, Flash},
    pool::{MemberError, Pool},
};
use fulgurite_format::{PoolId, SUBPAGE_BYTES};
use fulgurite_store::{Geometry, Members, StoreConfig};

const EXTENT_PAGES: u32 = 32;
const MEMBER_BYTES: u64 = 6 << 20;
/// Words in the array, 5 MiB of them: they can be written anew in addition to what the last token
/// keeps.
const WORDS: u64 = 5 << 17;
const POOL: PoolId = PoolId([9; 16]);

fn create(path: &Path, bytes: u64) -> Arc<dyn Flash> {
    Arc::new(FileFlash::open(&FileConfig::create(path, bytes)).expect("there is room"))
}
fn pages(bytes: u64) -> u32 {
    (bytes / SUBPAGE_BYTES as u64) as u32
}
/// A pool over three files in a directory.
fn three(directory: &Path) -> [PathBuf; 3] {
    let paths = ["a", "b", "c"].map(|name| directory.join(name));
    let members = paths.iter().map(|path| (path.clone(), create(path, MEMBER_BYTES))).collect();
    let members = Members::create(members, &[1, 2, 3].map(|n| PoolId([n; 16])), EXTENT_PAGES, POOL).unwrap();
    let flash: Arc<dyn Flash> = members.flash();
    Pool::format(&flash, Geometry::new(flash.subpages(), EXTENT_PAGES, None).unwrap(), POOL, 0).unwrap();
    paths
}
fn start(path: &Path, on_device: bool) -> Result<Fulgurite, Error> {
    let builder = Fulgurite::builder(Medium::pool(path)).dram("4M").with(|runtime| runtime.fibers(8));
    if on_device { builder.on_device(None).start() } else { builder.start() }
}
fn array(memory: &Fulgurite) -> Array<u64> {
    memory.named("words").array(WORDS, |i| i).expect("there is room")
}
/// Writes a word in each subpage, and names that.
fn write(memory: &Fulgurite, round: u64) {
    let words = array(memory);
    let write =
        move |m: &mut Context| (0..WORDS).step_by(512).try_for_each(|i| words.set(m, i + round, (round << 32) | i));
    memory.run(write).expect("it can be written");
    memory.sync().expect("it is durable");
}
/// How many words do not have the values of `rounds` rounds.
fn wrong(memory: &Fulgurite, rounds: u64) -> u64 {
    let words = array(memory);
    let count = move |m: &mut Context| {
        let mut wrong = 0;
        for i in 0..WORDS {
            let (subpage, word) = (i / 512 * 512, i % 512);
            let expected = if (1..=rounds).contains(&word) { (word << 32) | subpage } else { i };
            wrong += u64::from(words.get(m, i)? != expected);
        }
        Ok(wrong)
    };
    memory.run(count).expect("it can be read")
}

#[test]
fn what_a_program_names_is_there_by_whichever_file_is_named_next() {
    let directory = tempfile::tempdir().unwrap();
    let paths = three(directory.path());
    for (round, on_device) in [(1, false), (2, true), (3, false), (4, true)] {
        let memory = start(&paths[round as usize % 3], on_device).unwrap();
        assert_eq!(wrong(&memory, round - 1), 0, "round {round}");
        write(&memory, round);
    }
    for path in &paths {
        assert_eq!(wrong(&start(path, false).unwrap(), 4), 0, "{}", path.display());
        let used = fs::read(path).unwrap();
        let used = used.chunks(SUBPAGE_BYTES).filter(|page| page.iter().any(|byte| *byte != 0)).count();
        assert!(used > 500, "{} has {used} pages", path.display());
    }
}

#[test]
fn a_first_member_that_is_long_enough_for_all_is_not_taken_for_all() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["a", "b"].map(|name| directory.path().join(name));
    let long = create(&first, 3 * MEMBER_BYTES);
    let small = Geometry::new(pages(MEMBER_BYTES), EXTENT_PAGES, None).unwrap();
    Pool::format(&long, small, POOL, 0).unwrap();
    let mut members = Members::alone((first.clone(), long), PoolId([1; 16]), POOL, small);
    members.add(second.clone(), create(&second, 2 * MEMBER_BYTES), PoolId([2; 16])).unwrap();
    let all = Geometry::new(members.flash().subpages(), EXTENT_PAGES, None).unwrap();
    let (pool, _) = Pool::open(members.flash(), StoreConfig::default()).unwrap();
    assert!(pool.resize(all, &mut || true).unwrap());
    drop((pool, members));
    write(&start(&first, false).unwrap(), 1);
    let end = u64::from(small.flash_pages()) as usize * SUBPAGE_BYTES;
    assert!(fs::read(&first).unwrap()[end..].iter().all(|byte| *byte == 0), "something is behind the member's end");
    for path in [&second, &first] {
        assert_eq!(wrong(&start(path, false).unwrap(), 1), 0, "{}", path.display());
    }
}

#[test]
fn one_that_is_missing_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let paths = three(directory.path());
    write(&start(&paths[0], false).unwrap(), 1);
    let away = directory.path().join("away");
    fs::rename(&paths[1], &away).unwrap();
    let before = [&paths[0], &paths[2], &away].map(|path| fs::read(path).unwrap());
    for path in [&paths[0], &paths[2]] {
        let error = start(path, false).map(|_| ()).unwrap_err();
        let Error::Members { source: MemberError::Missing { position: 1, path: missing }, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(missing, &paths[1]);
        let said = error.to_string();
        assert!(said.contains("member 2 of the pool is missing") && said.contains("/b"), "{said}");
    }
    assert!(before == [&paths[0], &paths[2], &away].map(|path| fs::read(path).unwrap()), "something was touched");
    // Another file in its place.
    drop(create(&paths[1], MEMBER_BYTES));
    let error = start(&paths[0], false).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Members { source: MemberError::Foreign { position: 1, .. }, .. }), "{error:?}");
    fs::rename(&away, &paths[1]).unwrap();
    assert_eq!(wrong(&start(&paths[2], false).unwrap(), 1), 0);
    // An old copy of one: the others were changed since, by a program as by a command.
    let [whole, ..] = before;
    fs::write(&paths[0], whole).unwrap();
    let error = start(&paths[2], false).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Members { source: MemberError::Old { position: 0, .. }, .. }), "{error:?}");
}
