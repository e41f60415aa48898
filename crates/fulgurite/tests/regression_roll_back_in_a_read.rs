//! Goal: no read of a container with a roll back inside mixes two states. Jobs go on before
//! containers have taken up the older state, so latches have to tell readers before that. Method:
//! each container has the same keys in an older state and in a newer one of many more keys, under
//! other values. The memory of a reader rolls back before its n-th access, for each n. It must
//! find a value of either state.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender, channel};

use fulgurite::views::{RawMemory, View, ViewMut};
use fulgurite::{AccessError, Address, Context, Durability, Fulgurite, Medium};

/// A job's memory that asks for a roll back before an access, and goes on when it may.
struct Rolled<'c> {
    inner: &'c mut Context,
    countdown: u64,
    ask: Sender<()>,
    rolled: bool,
}

impl Rolled<'_> {
    fn access(&mut self) -> Result<(), AccessError> {
        if self.countdown == 0 {
            let before = self.inner.roll_backs();
            self.ask.send(()).expect("it is waited for");
            while self.inner.roll_backs() == before {
                self.inner.yield_now()?;
            }
            self.rolled = true;
        }
        self.countdown = self.countdown.wrapping_sub(1);
        Ok(())
    }
}

impl RawMemory for Rolled<'_> {
    type Pin = <Context as RawMemory>::Pin;
    type Section = <Context as RawMemory>::Section;
    type Inner = Self;
    fn identity(&self) -> fulgurite::views::Identity<'_> {
        self.inner.identity()
    }
    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        self.access()?;
        self.inner.view(at, len)
    }
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        self.access()?;
        self.inner.view_mut(at, len)
    }
    fn pin(&mut self, at: Address) -> Result<Self::Pin, AccessError> {
        self.access()?;
        self.inner.pin(at)
    }
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.inner.park(word, expected)
    }
    fn write_section(&mut self) -> Result<Self::Section, AccessError> {
        self.inner.write_section()
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        self.inner.yield_now()
    }
}

const OLD: u64 = 1;
const NEW: u64 = 2;
/// The distance between two keys of the older state.
const APART: u64 = 16;
const KEYS: u64 = 60 * APART;

/// Reads, with a roll back before the n-th access. Returns what was found, and whether the read got
/// as far.
fn read(
    memory: &Fulgurite,
    token: u64,
    count: u64,
    get: impl Fn(&mut Rolled<'_>) -> Result<Option<u64>, AccessError> + Sync,
) -> (Result<Option<u64>, AccessError>, bool) {
    let (ask, asked): (Sender<()>, Receiver<()>) = channel();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            memory.run(|m| {
                let mut rolled = Rolled { inner: m, countdown: count, ask, rolled: false };
                let found = get(&mut rolled);
                Ok((found, rolled.rolled))
            })
        });
        // Not asked for where the read has ended before.
        if asked.recv().is_ok() {
            memory.roll_back(token).unwrap();
        }
        reader.join().unwrap().unwrap()
    })
}

/// Rolls back before the n-th access of a read of each of some keys, for each n.
fn no_read_is_torn(
    what: &str,
    memory: &Fulgurite,
    put: impl Fn(&mut Context, u64, u64) -> Result<(), AccessError> + Sync,
    get: impl Fn(&mut Rolled<'_>, u64) -> Result<Option<u64>, AccessError> + Sync,
) {
    let fill = |keys: Range<u64>, step: u64, value: u64| {
        memory.run(|m| keys.step_by(step as usize).try_for_each(|key| put(m, key, value))).unwrap();
    };
    fill(0..KEYS, APART, OLD);
    let token = memory.sync().unwrap();
    let (mut olds, mut news) = (0, 0);
    for key in [7, 31, 58].map(|nth| nth * APART) {
        for count in 0.. {
            fill(0..KEYS, 1, NEW);
            let (found, rolled) = read(memory, token, count, |m| get(m, key));
            match found {
                Ok(Some(OLD)) => olds += 1,
                Ok(Some(NEW)) => news += 1,
                torn => panic!("{what}: key {key}, access {count}: {torn:?}"),
            }
            if !rolled {
                assert_eq!(found, Ok(Some(NEW)));
                memory.roll_back(token).unwrap();
                break;
            }
        }
    }
    println!("{what}: {olds} of the older state, {news} of the newer");
    assert!(olds > 5 && news >= 3, "{what}: {olds} {news}");
}

#[test]
fn no_read_with_a_roll_back_inside_is_torn() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let builder = Fulgurite::builder(Medium::new_pool(path, "64M")).dram("16M").durability(Durability::Sync);
    let memory = builder.workers(1).with(|runtime| runtime.stack(128 << 10).fibers(16)).start().unwrap();

    let map = memory.named("map").hash_map::<u64, u64>(KEYS).unwrap();
    no_read_is_torn(
        "a hash map",
        &memory,
        |m, key, value| map.insert(m, &key, value).map(drop),
        |m, key| map.get(m, &key),
    );
    let tree = memory.named("tree").b_plus_tree::<[u64; 7]>("8M").unwrap();
    no_read_is_torn(
        "a B+-tree",
        &memory,
        |m, key, value| tree.insert(m, key, [value; 7]).map(drop),
        |m, key| Ok(tree.get(m, key)?.map(|value| value[6])),
    );
    let trie = memory.named("trie").masstree("8M").unwrap();
    no_read_is_torn(
        "a trie",
        &memory,
        |m, key, value| trie.insert(m, format!("a longer key {key:08}").as_bytes(), value).map(drop),
        |m, key| trie.get(m, format!("a longer key {key:08}").as_bytes()),
    );
}

#[test]
fn a_container_that_the_state_does_not_have_is_not_an_empty_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let builder = Fulgurite::builder(Medium::new_pool(path, "64M")).dram("16M").durability(Durability::Sync);
    let memory = builder.workers(1).with(|runtime| runtime.stack(128 << 10).fibers(16)).start().unwrap();
    memory.named("other").value(0u64).unwrap();
    let token = memory.sync().unwrap();
    memory.pin_token(token, true).unwrap();
    let (mut news, mut gone) = (0, 0);
    for count in 0.. {
        let map = memory.named("map").hash_map::<u64, u64>(KEYS).unwrap();
        memory.run(|m| (0..KEYS).try_for_each(|key| map.insert(m, &key, NEW).map(drop))).unwrap();
        // The newest token is another one.
        if count % 2 == 1 {
            memory.sync().unwrap();
        }
        let (found, rolled) = read(&memory, token, count, |m| map.get(m, &(KEYS / 2)));
        match found {
            Ok(Some(NEW)) => news += 1,
            Err(AccessError::Poisoned) => gone += 1,
            wrong => panic!("access {count}: {wrong:?}"),
        }
        if !rolled {
            break;
        }
        // Another one of the name begins empty.
        let other = memory.named("map").hash_map::<u64, u64>(KEYS).unwrap();
        assert_eq!(memory.run(|m| other.get(m, &(KEYS / 2))), Ok(None));
        memory.named("map").remove().unwrap();
    }
    println!("{news} reads of the newer state, {gone} got the error that it is gone");
    assert!(news >= 1 && gone >= 1, "{news} {gone}");
}
