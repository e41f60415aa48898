//! Goal: a container that holds more than its pool can let go of before a sync is removed all the
//! same, wholly, and a kill on the way leaves all of it or goes on.
//! Method: a heap that has grown to several ranges, with twice as many pages as its pool remembers.
//! It is removed over and over, with more addresses in sum than the pool has. The program syncs, or
//! the pool itself. A pinned token keeps pages from being removed. It is rolled back to, and all of
//! them are there. Then a process is killed at each of the first syncs after a removal. The pool is
//! opened, and has all or nothing by the name. What was left is removed with later syncs.
//! A container of a kind that there was in earlier versions is refused by name, and removed.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;

use fulgurite::containers::{Container, RootError, TypePart};
use fulgurite::{AccessError, Address, Durability, Error, Fulgurite, Heap, Medium, Memory, views::Ptr};
use fulgurite_testkit as trials;

use crate::conform_give_back::live;

const CHILD: &str = "FULGURITE_TEST_REMOVAL";
/// Objects of a subpage: 24 MiB. A pool with 4 MiB of DRAM remembers some 14 MiB of pages.
const OBJECTS: u64 = 6000;
/// Syncs in which all of it has to go.
const SYNCS: usize = 12;

fn open(medium: Medium, durability: Durability) -> Fulgurite {
    let builder = Fulgurite::builder(medium).dram("4M").durability(durability).keep_tokens(1);
    builder.with(|runtime| runtime.stack(128 << 10).fibers(16)).start().unwrap()
}
fn large(memory: &Fulgurite) -> Arc<Heap> {
    memory.named("large").heap("1M").unwrap()
}
fn syncs(memory: &Fulgurite, count: usize) {
    for _ in 0..count {
        memory.sync().unwrap();
    }
}
/// Fills it, a part before each sync.
fn fill(memory: &Fulgurite) -> Vec<Address> {
    let heap = large(memory);
    let mut all = Vec::new();
    for first in (0..OBJECTS).step_by(250) {
        let its = heap.clone();
        let part = memory.run(move |m| {
            let one = |number| -> Result<Address, AccessError> {
                let at = its.allocate(m, 4096)?;
                m.store(Ptr::<u64>::new(at), number)?;
                Ok(at)
            };
            (first..first + 250).map(one).collect::<Result<Vec<_>, _>>()
        });
        all.extend(part.unwrap_or_else(|error| panic!("from {first} on: {error}")));
        memory.sync().unwrap();
    }
    all
}
fn assert_whole(memory: &Fulgurite, all: &[Address]) {
    let heap = large(memory);
    let found = memory.run(|m| {
        heap.check(m)?;
        all.iter().map(|at| m.load(Ptr::<u64>::new(*at))).collect::<Result<Vec<_>, _>>()
    });
    assert!(found.unwrap() == (0..OBJECTS).collect::<Vec<_>>());
}
fn has_large(memory: &Fulgurite) -> bool {
    memory.roots().unwrap().iter().any(|root| root.name == "large")
}

#[test]
fn what_is_too_large_for_one_sync_goes_in_parts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let memory = open(Medium::new_pool(&path, "64M"), Durability::Sync);
    for _ in 0..5 {
        let all = fill(&memory);
        assert_whole(&memory, &all);
        let heap = large(&memory);
        memory.named("large").remove().unwrap();
        assert!(!has_large(&memory));
        let told = memory.run(|m| heap.allocate(m, 4096));
        assert!(told.is_err(), "{told:?}");
        let again = memory.named("large").remove();
        assert!(matches!(again, Err(Error::Root(_))), "{again:?}");
        syncs(&memory, SYNCS);
    }
    drop(memory);
    let left = live(&path);
    assert!(left < OBJECTS / 10, "{left} flash pages are still needed");
}
#[test]
fn a_pool_that_syncs_by_itself_is_rid_of_it_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let memory = open(Medium::new_pool(&path, "64M"), Durability::default());
    for _ in 0..5 {
        // There would be no addresses for another one.
        let all = fill(&memory);
        assert_whole(&memory, &all);
        memory.named("large").remove().unwrap();
    }
    drop(memory);
    let left = live(&path);
    assert!(left < OBJECTS / 10, "{left} flash pages are still needed");
}

#[test]
fn a_roll_back_brings_all_of_it_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let memory = open(Medium::new_pool(&path, "64M"), Durability::Sync);
    let all = fill(&memory);
    let token = memory.sync().unwrap();
    memory.pin_token(token, true).unwrap();
    for round in 0..2 {
        memory.named("large").remove().unwrap();
        // Some of it has to stay for the token.
        syncs(&memory, round * 3);
        assert!(!has_large(&memory));
        memory.roll_back(token).unwrap();
        assert_whole(&memory, &all);
    }
    memory.named("large").remove().unwrap();
    memory.sync().unwrap();
    memory.pin_token(token, false).unwrap();
    syncs(&memory, SYNCS);
    drop(memory);
    let left = live(&path);
    assert!(left < OBJECTS / 10, "{left} flash pages are still needed");
}

#[test]
fn a_roll_back_brings_back_what_had_the_name_before() {
    let directory = tempfile::tempdir().unwrap();
    let memory = open(Medium::new_pool(directory.path().join("pool"), "64M"), Durability::Sync);
    let map = || memory.named("map").hash_map::<u64, u64>(1000).unwrap();
    let first = map();
    memory.run(|m| (0..1000).try_for_each(|key| first.insert(m, &key, 1).map(drop))).unwrap();
    let token = memory.sync().unwrap();
    memory.pin_token(token, true).unwrap();
    for round in 0..3 {
        memory.named("map").remove().unwrap();
        // At the same addresses, or at others.
        if round == 1 {
            memory.named("between").value(0u64).unwrap();
        }
        let second = map();
        memory.run(|m| second.insert(m, &7, 2)).unwrap();
        if round == 2 {
            memory.sync().unwrap();
        }
        memory.roll_back(token).unwrap();
        let told = memory.run(|m| second.get(m, &7));
        assert!(matches!(told, Err(AccessError::Poisoned)), "{told:?}");
        let again = map();
        assert_eq!(memory.run(|m| again.check(m)), Ok(1000));
        assert_eq!(memory.run(|m| again.insert(m, &7, 1)), Ok(Some(1)));
    }
}

/// The process that is killed.
#[test]
#[ignore = "started by the test below"]
fn removes() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let memory = open(Medium::pool(path), Durability::Sync);
    println!("\nopen");
    memory.named("large").remove().unwrap();
    println!("\nremoved");
    loop {
        memory.sync().unwrap();
        println!("\nsynced");
    }
}

#[test]
fn a_kill_leaves_all_of_it_or_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("pool"), directory.path().join("copy"));
    let memory = open(Medium::new_pool(&path, "64M"), Durability::Sync);
    let all = fill(&memory);
    drop(memory);
    for told in 1..=if trials::is_full() { 12 } else { 3 } {
        std::fs::copy(&path, &copy).unwrap();
        let mut child = trials::again(module_path!(), "removes")
            .env(CHILD, &copy)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let words = ["open", "removed", "synced"];
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let lines: Vec<String> = lines.filter(|line| words.contains(&line.as_str())).take(told).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(lines.len(), told, "the process ended by itself: {lines:?}");
        let memory = open(Medium::pool(&copy), Durability::Sync);
        if has_large(&memory) {
            assert!(told < 3, "it was removed, and a sync returned");
            assert_whole(&memory, &all);
            memory.named("large").remove().unwrap();
        }
        syncs(&memory, SYNCS);
        // Its addresses are free.
        for _ in 0..3 {
            fill(&memory);
            memory.named("large").remove().unwrap();
            syncs(&memory, SYNCS);
        }
        drop(memory);
        let left = live(&copy);
        assert!(left < OBJECTS / 10, "kill {told}: {left} flash pages are still needed");
    }
}

/// A red-black tree, under the name of its type and with its root as long as in earlier versions.
struct RedBlackTree;

impl Container for RedBlackTree {
    type Root = [u64; 2];
    fn type_name() -> String {
        "red-black tree of u64 to u64".into()
    }
    fn parts() -> [TypePart; 2] {
        [TypePart::of::<u64>(); 2]
    }
    fn root_record(&self) -> [u64; 2] {
        [1 << 20, 8 << 32 | 8]
    }
    fn open_root<M: Memory>(_: &mut M, _: [u64; 2], _: &Arc<Heap>, _: usize) -> Result<Self, AccessError> {
        unreachable!("it is made here, and opened as something else")
    }
    fn disturb(&self, _: bool) {}
}

#[test]
fn a_kind_that_is_gone_is_refused_by_name_and_can_be_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let memory = open(Medium::new_pool(&path, "16M"), Durability::Sync);
    drop(memory.named("levels").container("1M", 0, |_, _, _| Ok(RedBlackTree)).unwrap());
    memory.sync().unwrap();
    drop(memory);

    let memory = open(Medium::pool(&path), Durability::Sync);
    let named = memory.named("levels");
    let refused = [
        named.b_plus_tree::<u64>("1M").err(),
        named.hash_map::<u64, u64>(100).err(),
        named.masstree("1M").err(),
        named.blobs::<u64>(100, "1M").err(),
        named.heap("1M").err(),
        named.value(0u64).err(),
    ];
    for error in refused.into_iter().map(|error| error.expect("it is something else")) {
        let named =
            matches!(&error, Error::Root(RootError::WrongType { found, .. }) if *found == RedBlackTree::type_name());
        assert!(named, "{error}");
    }
    named.remove().unwrap();
    memory.sync().unwrap();
    let tree = named.b_plus_tree::<u64>("1M").unwrap();
    assert_eq!(memory.run(|m| tree.insert(m, 1, 2)), Ok(None));
}
