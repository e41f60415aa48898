//! Goal: a pool that is opened or made has one maker, is never seen half made, and is not made
//! again once it is there. Method: several threads open it at once, each with a pool of its own in
//! mind; the temporary file that a killed maker leaves is there already, and a file that cannot be
//! a pool has its name.

use std::fs;
use std::path::Path;
use std::sync::Barrier;

use fulgurite_backing::{Error, Kept, Medium, Opened, Settings};
use fulgurite_flash::OpenError;
use fulgurite_format::PoolId;

const NONE: Settings = Settings {
    durability: None,
    keep_tokens: None,
    keep_age: None,
    keep_space: None,
    on_device: None,
    history_share: None,
    growing: None,
    dram_bytes: 8 << 20,
};

fn open(path: &Path) -> Result<Opened, Error> {
    Medium::pool_or_new(path, "16M").open(&NONE)
}

fn names(directory: &Path) -> Vec<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// What distinguishes one pool from another.
fn identity(opened: &Opened) -> PoolId {
    match opened.kept.as_ref() {
        Some(Kept::Here(pool)) => pool.id(),
        _ => panic!("it is a pool of this process"),
    }
}

#[test]
fn it_is_made_once_and_then_opened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let first = open(&path).unwrap();
    assert!(matches!(open(&path), Err(Error::Open(OpenError::InUse { .. }))), "two have it");
    let (was, subpages) = (identity(&first), first.flash.subpages());
    drop(first);
    // The size counts when it is made.
    let again = Medium::pool_or_new(&path, "64M").open(&NONE).unwrap();
    assert_eq!((identity(&again), again.flash.subpages()), (was, subpages));
    assert_eq!(names(directory.path()), ["pool"]);
}

#[test]
fn of_several_that_begin_at_once_one_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let begin = Barrier::new(4);
    let results: Vec<Result<Opened, Error>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    begin.wait();
                    open(&path)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut have = 0;
    for result in &results {
        match result {
            Ok(_) => have += 1,
            // It lost the race for a name, or for the pool.
            Err(Error::Open(OpenError::InUse { .. } | OpenError::Exists { .. })) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(have, 1);
    drop(results);
    assert_eq!(names(directory.path()), ["pool"]);
    open(&path).unwrap();
}

#[test]
fn what_a_killed_maker_left_is_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (path, left) = (directory.path().join("pool"), directory.path().join("pool.unfinished"));
    fs::write(&left, vec![7; 5 << 20]).unwrap();
    drop(open(&path).unwrap());
    assert_eq!(names(directory.path()), ["pool"]);
}

#[test]
fn what_is_no_pool_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes");
    fs::write(&path, "not a pool").unwrap();
    assert!(open(&path).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"not a pool");
    // A size that no pool can have is refused before anything is made.
    let absent = directory.path().join("absent");
    assert!(matches!(Medium::pool_or_new(&absent, "4K").open(&NONE), Err(Error::Geometry(_))));
    assert_eq!(names(directory.path()), ["notes"]);
}
