//! Goal: what kills leave of transactions is a history that could have happened one by one: all of
//! those that are counted, nothing of others, and none that a sync had named is missing.
//! Method: jobs in a process of its own read a few of 30 keys in arrays, hash maps, trees and
//! blobs, and overwrite some of these, with values that are written once. Before each commits, it
//! says what it has found. It counts itself in the same transaction, so the pool says which were
//! kept. A thread syncs, and tells what was counted before. The process is killed at a random
//! moment, again and again. Then each key's values must follow from each other up to the last one,
//! and what depends on what must have no circle. Transactions in two halves, and a checker that is
//! shown wrong histories, must find violations.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fulgurite::{
    AccessError, Array, BPlusTree, Blobs, Context, Error, Fulgurite, HashMap, JobOptions, Medium, OrderedBlobs, Rooted,
    Transactions, latches::VersionLatch,
};
use fulgurite_memory::Transaction;
use fulgurite_testkit as trials;
use trials::Random;

const CHILD: &str = "FULGURITE_TEST_HISTORIES";
/// Set where each transaction is two.
const HALVES: &str = "FULGURITE_TEST_HISTORIES_IN_HALVES";
/// The name of a pool whose blobs are objects.
const OBJECTS: &str = "objects";
const WRITERS: u64 = 4;
const KINDS: u64 = 5;
const KEYS: u64 = 6 * KINDS;
/// What a key has before it is written.
const FIRST: u64 = 1;

/// The value that a transaction writes to a key, and no other does.
fn value(writer: u64, number: u64, key: u64) -> u64 {
    1 << 63 | writer << 48 | number << 8 | key
}

/// One transaction: for each key that it read what it found, and whether it wrote there.
type Step = BTreeMap<u64, (u64, bool)>;
/// By writer and number.
type History = BTreeMap<(u64, u64), Step>;

// ---- the decision ----

/// Whether these transactions, each counted by its writer, explain what the keys have.
fn verify(history: &History, counts: &[u64], last: &[u64]) -> Result<(), String> {
    let kept = |id: &(u64, u64)| id.1 <= counts[id.0 as usize];
    for (writer, count) in (0..).zip(counts) {
        if let Some(number) = (1..=*count).find(|number| !history.contains_key(&(writer, *number))) {
            return Err(format!("transaction {number} of writer {writer} counts, and never said what it found"));
        }
    }
    // Of each key: which transaction wrote a value, and which one overwrote it.
    let (mut writer_of, mut follows) = (BTreeMap::new(), BTreeMap::new());
    for (id, step) in history.iter().filter(|(id, _)| kept(id)) {
        for (key, (found, _)) in step.iter().filter(|(_, (_, writes))| *writes) {
            writer_of.insert((*key, value(id.0, id.1, *key)), *id);
            if let Some(other) = follows.insert((*key, *found), *id) {
                return Err(format!("{id:?} and {other:?} both overwrote value {found:x} of key {key}"));
            }
        }
    }
    for (key, last) in (0..).zip(last) {
        let (mut now, mut steps) = (FIRST, 0);
        while let Some(id) = follows.get(&(key, now)) {
            now = value(id.0, id.1, key);
            steps += 1;
        }
        let all = writer_of.keys().filter(|(of, _)| *of == key).count();
        if now != *last || steps != all {
            return Err(format!("key {key} has {last:x}, and {steps} of {all} writes lead to {now:x}"));
        }
    }
    // What has to come before what.
    let mut before: BTreeMap<(u64, u64), BTreeSet<(u64, u64)>> = BTreeMap::new();
    for (id, step) in history.iter().filter(|(id, _)| kept(id)) {
        let mine = before.entry(*id).or_default();
        // The steps of one writer follow each other.
        mine.extend((id.1 > 1).then(|| (id.0, id.1 - 1)));
        for (key, (found, _)) in step {
            match writer_of.get(&(*key, *found)) {
                Some(writer) => {
                    mine.insert(*writer);
                }
                None if *found == FIRST => {}
                None => return Err(format!("{id:?} found {found:x} at key {key}, which nothing kept has written")),
            }
        }
    }
    for (id, step) in history.iter().filter(|(id, _)| kept(id)) {
        for (key, (found, _)) in step {
            if let Some(next) = follows.get(&(*key, *found)).filter(|next| *next != id) {
                before.entry(*next).or_default().insert(*id);
            }
        }
    }
    in_some_order(before)
}

/// Whether all can come after those that have to be before them.
fn in_some_order(before: BTreeMap<(u64, u64), BTreeSet<(u64, u64)>>) -> Result<(), String> {
    let mut waits: BTreeMap<_, usize> = before.iter().map(|(id, before)| (*id, before.len())).collect();
    let mut after: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (id, before) in &before {
        before.iter().for_each(|other| after.entry(*other).or_default().push(*id));
    }
    let mut free: Vec<_> = waits.iter().filter(|(_, waits)| **waits == 0).map(|(id, _)| *id).collect();
    let mut done = 0;
    while let Some(id) = free.pop() {
        done += 1;
        for next in after.remove(&id).unwrap_or_default() {
            let waits = waits.get_mut(&next).expect("it is one of them");
            *waits -= 1;
            free.extend((*waits == 0).then_some(next));
        }
    }
    if done == before.len() {
        Ok(())
    } else {
        Err(format!("{} of {} wait for each other", before.len() - done, before.len()))
    }
}

#[test]
fn histories_that_did_not_happen_are_found() {
    let step = |all: &[(u64, u64, bool)]| -> Step {
        all.iter().map(|(key, found, writes)| (*key, (*found, *writes))).collect()
    };
    let (a, b) = ((0, 1), (1, 1));
    let judged = |steps: [Step; 2], counts: [u64; 2], last: [u64; 2]| {
        verify(&[a, b].into_iter().zip(steps).collect(), &counts, &last)
    };
    let (a0, b0, b1) = (value(0, 1, 0), value(1, 1, 0), value(1, 1, 1));
    let (first, second) = (step(&[(0, FIRST, true)]), step(&[(0, a0, true), (1, FIRST, true)]));
    assert_eq!(judged([first.clone(), second.clone()], [1, 1], [b0, b1]), Ok(()));
    assert_eq!(judged([first.clone(), second.clone()], [1, 0], [a0, FIRST]), Ok(()));
    assert_eq!(judged([first.clone(), second.clone()], [0, 0], [FIRST, FIRST]), Ok(()));
    // A half of one, or one without what it has read.
    assert!(judged([first.clone(), second.clone()], [1, 1], [b0, FIRST]).is_err());
    assert!(judged([first.clone(), second.clone()], [0, 1], [b0, b1]).is_err());
    assert!(judged([first.clone(), second.clone()], [1, 0], [b0, b1]).is_err());
    assert!(judged([first.clone(), second], [1, 2], [b0, b1]).is_err());
    // Both overwrote the same.
    assert!(judged([first.clone(), first], [1, 1], [b0, FIRST]).is_err());
    // Each has read what the other one overwrote.
    let skewed = [step(&[(0, FIRST, true), (1, FIRST, false)]), step(&[(0, FIRST, false), (1, FIRST, true)])];
    assert!(judged(skewed, [1, 1], [a0, b1]).is_err());
}

// ---- the process that is killed ----

#[derive(Clone)]
struct Data {
    array: Array<[u64; 8]>,
    map: Arc<Rooted<HashMap<u64, [u64; 6], VersionLatch>>>,
    tree: Arc<Rooted<BPlusTree<[u64; 4], VersionLatch>>>,
    blobs: Arc<Rooted<Blobs<u64>>>,
    strings: Arc<Rooted<OrderedBlobs>>,
    counts: Arc<Rooted<HashMap<u64, u64, VersionLatch>>>,
}

impl Data {
    fn open(memory: &Fulgurite) -> Result<Data, Error> {
        Ok(Data {
            array: memory.named("array").array(KEYS, |_| [FIRST; 8])?,
            map: memory.named("map").hash_map(KEYS)?,
            tree: memory.named("tree").b_plus_tree(1 << 20)?,
            blobs: memory.named("blobs").blobs(KEYS, 1 << 20)?,
            strings: memory.named("strings").ordered_blobs(1000, 1 << 20)?,
            counts: memory.named("counts").hash_map(WRITERS)?,
        })
    }
    fn get(&self, t: &mut Transaction<'_, Context>, key: u64) -> Result<u64, AccessError> {
        let (at, of_bytes) = (key / KINDS, |blob: Vec<u8>| u64::from_le_bytes(blob[..8].try_into().unwrap()));
        let found = match key % KINDS {
            0 => t.get(&self.array, &at)?.map(|row| row[7]),
            1 => t.get(&self.map, &at)?.map(|row| row[5]),
            2 => t.get(&self.tree, &at)?.map(|row| row[3]),
            3 => t.get(&self.blobs, &at)?.map(of_bytes),
            _ => t.get(&self.strings, &at.to_be_bytes())?.map(of_bytes),
        };
        Ok(found.unwrap_or(FIRST))
    }
    fn put(&self, t: &mut Transaction<'_, Context>, key: u64, value: u64) -> Result<(), AccessError> {
        let (at, bytes) = (key / KINDS, value.to_le_bytes().repeat(1 + value as usize % 300));
        match key % KINDS {
            0 => t.put(&self.array, &at, &[value; 8]),
            1 => t.put(&self.map, &at, &[value; 6]),
            2 => t.put(&self.tree, &at, &[value; 4]),
            3 => t.put(&self.blobs, &at, &bytes),
            _ => t.put(&self.strings, &at.to_be_bytes(), &bytes),
        }
    }
    /// What all keys have, and how many each writer has counted, in one transaction.
    fn all(&self, m: &mut Context) -> Result<(Vec<u64>, Vec<u64>), AccessError> {
        Transactions::new().run(m, |t| {
            let counts = (0..WRITERS).map(|writer| Ok(t.get(&self.counts, &writer)?.unwrap_or(0)));
            let counts: Result<Vec<u64>, AccessError> = counts.collect();
            let keys: Result<Vec<u64>, AccessError> = (0..KEYS).map(|key| self.get(t, key)).collect();
            Ok((keys?, counts?))
        })
    }
    /// One transaction. In halves, the first half counts.
    fn step(
        &self,
        m: &mut Context,
        transactions: &Transactions,
        random: &mut Random,
        (writer, number): (u64, u64),
        halves: bool,
    ) -> Result<(), AccessError> {
        let keys: BTreeSet<u64> = (0..2 + random.below(3u64)).map(|_| random.below(KEYS)).collect();
        let keys: Vec<(u64, bool)> = keys.into_iter().map(|key| (key, !random.one_in(3u64))).collect();
        let part = |t: &mut Transaction<'_, Context>, keys: &[(u64, bool)]| {
            let mut said = String::new();
            for (key, writes) in keys {
                let found = self.get(t, *key)?;
                said += &format!(" {key}:{found}:{}", u8::from(*writes));
                if *writes {
                    self.put(t, *key, value(writer, number, *key))?;
                }
            }
            Ok::<String, AccessError>(said)
        };
        let (first, second) = keys.split_at(if halves { keys.len() / 2 } else { 0 });
        let mut said = String::new();
        if halves {
            said = transactions.run(m, |t| {
                let said = part(t, first)?;
                t.put(&self.counts, &writer, &number)?;
                println!("\nfound {writer} {number}{said}");
                Ok::<String, AccessError>(said)
            })?;
        }
        transactions.run(m, |t| {
            let said = said.clone() + &part(t, second)?;
            if !halves {
                t.put(&self.counts, &writer, &number)?;
            }
            // The last time that it says so is the one that commits.
            println!("\nfound {writer} {number}{said}");
            Ok::<(), AccessError>(())
        })
    }
}

fn open(medium: Medium, objects: bool) -> (Fulgurite, Data) {
    let memory = crate::crash_transactions::start(medium, objects);
    let data = Data::open(&memory).unwrap();
    assert_eq!(data.blobs.objects().is_some(), objects);
    (memory, data)
}

/// The process that is killed.
#[test]
#[ignore = "started by the tests below"]
fn writers() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let halves = std::env::var_os(HALVES).is_some();
    let (memory, data) = open(Medium::pool(&path), path.as_encoded_bytes().ends_with(OBJECTS.as_bytes()));
    let its = data.clone();
    let (_, counts) = memory.run(move |m| its.all(m)).unwrap();
    let done: Arc<Vec<AtomicU64>> = Arc::new(counts.into_iter().map(AtomicU64::new).collect());
    for writer in 0..WRITERS {
        let (data, transactions, done) = (data.clone(), memory.transactions(), done.clone());
        let options = JobOptions::new().pins(8).worker(writer as usize % 2);
        let code = move |m: &mut Context| {
            let mut random = Random(u64::from(std::process::id()) << 8 | writer);
            loop {
                let number = done[writer as usize].load(Ordering::SeqCst) + 1;
                data.step(m, &transactions, &mut random, (writer, number), halves).unwrap();
                done[writer as usize].store(number, Ordering::SeqCst);
                m.yield_now().unwrap();
            }
        };
        drop(memory.submit_with::<()>(&options, code).unwrap());
    }
    trials::sync_and_report(&done, Duration::from_millis(3), || {
        memory.sync().unwrap();
    });
}

// ---- kills ----

fn parse(line: &str) -> Option<((u64, u64), Step)> {
    let mut words = line.split(' ');
    let id = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let step = words.map(|word| {
        let mut numbers = word.split(':').map(|number| number.parse::<u64>().ok());
        Some((numbers.next()??, (numbers.next()??, numbers.next()?? == 1)))
    });
    Some((id, step.collect::<Option<Step>>()?))
}

/// Lets the writers run for a while, and adds what they say. Returns what was counted before their
/// last sync.
fn run_and_kill(path: &Path, time: Duration, halves: bool, history: &mut History) -> Vec<u64> {
    let mut child = trials::again(module_path!(), "writers");
    if halves {
        child.env(HALVES, "1");
    }
    // The last line may be cut off, of a transaction that has not committed.
    trials::kill_after(child.env(CHILD, path), WRITERS as usize, time, |line| {
        history.extend(line.strip_prefix("found ").and_then(parse));
    })
}

/// Transactions that are kept for each kill, at least.
const OF_A_KILL: u64 = 20;

/// Kills this number of times, and more often where a busy machine has kept too few
/// transactions. Returns how many were kept, or what is wrong.
fn kill(kills: u64, random: &mut Random, objects: bool, halves: bool) -> Result<u64, String> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join(if objects { OBJECTS } else { "pool" });
    drop(open(Medium::new_pool(&path, "64M").objects(if objects { 10_000 } else { 0 }), objects));
    let (mut history, mut kept) = (History::new(), 0);
    for kill in 0..10 * kills {
        if kill >= kills && kept > kills * OF_A_KILL {
            break;
        }
        let told = run_and_kill(&path, Duration::from_millis(20 + random.below(150u64)), halves, &mut history);
        let (memory, data) = open(Medium::pool(&path), objects);
        let its = data.clone();
        let (last, counts) = memory.run(move |m| its.all(m)).unwrap();
        if told.iter().zip(&counts).any(|(told, count)| count < told) {
            return Err(format!("kill {kill}: transactions are lost: {counts:?} of {told:?}"));
        }
        // The others never were. The next writers count on from here.
        history.retain(|id, _| id.1 <= counts[id.0 as usize]);
        verify(&history, &counts, &last).map_err(|why| format!("kill {kill}: {why}"))?;
        let its = data.clone();
        memory.run(move |m| its.map.check(m).and(its.blobs.check(m)).and(its.tree.check(m)).map(drop)).unwrap();
        kept = counts.iter().sum();
    }
    Ok(kept)
}

#[test]
fn what_kills_leave_of_transactions_is_serializable() {
    kill_all("histories", false, 1);
}
#[test]
fn what_kills_leave_of_transactions_over_objects_is_serializable() {
    kill_all("histories over objects", true, 2);
}

fn kill_all(what: &str, objects: bool, seed: u64) {
    let kills = trials::runs(if trials::is_full() { 60 } else { 8 });
    let mut random = Random::seeded(&format!("kills among {what}"), trials::first_seed(seed));
    let kept = kill(kills, &mut random, objects, false).unwrap();
    println!("{kills} kills, {kept} transactions");
    assert!(kept > kills * OF_A_KILL, "only {kept} transactions were kept");
    trials::figure(23, &format!("kills among {what}"), kills);
}

#[test]
fn transactions_in_halves_are_found() {
    let mut random = Random::seeded("kills among halved histories", trials::first_seed(1));
    let found = (0..20).any(|_| kill(1, &mut random, false, true).is_err());
    assert!(found, "no kill came between two halves");
}
