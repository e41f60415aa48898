//! Goal: a process that is killed among transactions leaves all of each or nothing, and what a sync
//! had named. Method: jobs in a process of its own move amounts between accounts in an array, a
//! hash map, a tree and blobs, and count their transfers in the same transaction. Another thread
//! syncs, and reports through a pipe what had been counted before. The process is killed at a
//! random moment. The pool is opened: the accounts must have their sum, and the counts must be no
//! less than was reported. Transfers in two transactions instead of one must be found.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fulgurite::{
    AccessError, Array, BPlusTree, Blobs, Context, Error, Fulgurite, HashMap, Medium, Rooted, Transactions,
    latches::VersionLatch,
};
use fulgurite_memory::Transaction;
use fulgurite_testkit as trials;
use trials::Random;

const CHILD: &str = "FULGURITE_TEST_BANK";
/// Set where each transfer is two transactions.
const HALVES: &str = "FULGURITE_TEST_BANK_IN_HALVES";
/// The name of a pool whose blobs are objects.
const OBJECTS: &str = "objects";
const WRITERS: u64 = 4;
const KINDS: u64 = 4;
/// Accounts of each kind: more than fit into DRAM.
const ACCOUNTS: u64 = 30_000;
const FIRST: u64 = 1000;

#[derive(Clone)]
struct Bank {
    array: Array<[u64; 8]>,
    map: Arc<Rooted<HashMap<u64, [u64; 6], VersionLatch>>>,
    tree: Arc<Rooted<BPlusTree<[u64; 4], VersionLatch>>>,
    blobs: Arc<Rooted<Blobs<u64>>>,
    counts: Arc<Rooted<HashMap<u64, u64, VersionLatch>>>,
}

impl Bank {
    fn open(memory: &Fulgurite) -> Result<Bank, Error> {
        Ok(Bank {
            array: memory.named("array").array(ACCOUNTS, |_| [FIRST; 8])?,
            map: memory.named("map").hash_map(ACCOUNTS)?,
            tree: memory.named("tree").b_plus_tree(4 << 20)?,
            blobs: memory.named("blobs").blobs(ACCOUNTS, 4 << 20)?,
            counts: memory.named("counts").hash_map(WRITERS)?,
        })
    }
    /// What an account has. One that was never written to has [`FIRST`].
    fn get(&self, t: &mut Transaction<'_, Context>, account: u64) -> Result<u64, AccessError> {
        let at = account / KINDS;
        let found = match account % KINDS {
            0 => t.get(&self.array, &at)?.map(|row| row[7]),
            1 => t.get(&self.map, &at)?.map(|row| row[5]),
            2 => t.get(&self.tree, &at)?.map(|row| row[3]),
            _ => t.get(&self.blobs, &at)?.map(|blob| u64::from_le_bytes(blob[..8].try_into().unwrap())),
        };
        Ok(found.unwrap_or(FIRST))
    }
    fn put(&self, t: &mut Transaction<'_, Context>, account: u64, amount: u64) -> Result<(), AccessError> {
        let at = account / KINDS;
        match account % KINDS {
            0 => t.put(&self.array, &at, &[amount; 8]),
            1 => t.put(&self.map, &at, &[amount; 6]),
            2 => t.put(&self.tree, &at, &[amount; 4]),
            _ => t.put(&self.blobs, &at, &amount.to_le_bytes().repeat(1 + at as usize % 30)),
        }
    }
    fn transfer(
        &self,
        m: &mut Context,
        transactions: &Transactions,
        (from, to, amount): (u64, u64, u64),
        (writer, number): (u64, u64),
        halves: bool,
    ) -> Result<(), AccessError> {
        let take = |t: &mut Transaction<'_, Context>| {
            let has = self.get(t, from)?;
            self.put(t, from, has.wrapping_sub(amount))?;
            t.put(&self.counts, &writer, &number)
        };
        let give = |t: &mut Transaction<'_, Context>| {
            let has = self.get(t, to)?;
            self.put(t, to, has.wrapping_add(amount))
        };
        if halves {
            transactions.run(m, take)?;
            return transactions.run(m, give);
        }
        transactions.run(m, |t| {
            take(t)?;
            give(t)
        })
    }
    /// All accounts together, and the counts.
    fn sum(&self, m: &mut Context) -> Result<(u64, Vec<u64>), AccessError> {
        let transactions = Transactions::new();
        let mut sum = 0u64;
        for first in (0..KINDS * ACCOUNTS).step_by(100) {
            let part = transactions.run(m, |t| {
                (first..first + 100)
                    .try_fold(0u64, |sum, account| Ok::<_, AccessError>(sum.wrapping_add(self.get(t, account)?)))
            });
            sum = sum.wrapping_add(part?);
        }
        let counts = (0..WRITERS).map(|writer| Ok(self.counts.get(m, &writer)?.unwrap_or(0)));
        Ok((sum, counts.collect::<Result<_, AccessError>>()?))
    }
}

/// Of so little DRAM that data has to leave it.
pub(crate) fn start(medium: Medium, objects: bool) -> Fulgurite {
    let memory = Fulgurite::builder(medium).workers(2);
    let memory = if objects { memory.dram("24M").object_cache("1M") } else { memory.dram("8M") };
    // A build without optimization takes more stack than the 32 KiB of a fiber.
    memory.with(|runtime| runtime.stack(128 << 10).fibers(16)).start().unwrap()
}
fn open(medium: Medium, objects: bool) -> (Fulgurite, Bank) {
    let memory = start(medium, objects);
    let bank = Bank::open(&memory).unwrap();
    assert_eq!(bank.blobs.objects().is_some(), objects);
    (memory, bank)
}

/// The process that is killed.
#[test]
#[ignore = "started by the tests below"]
fn writers() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let halves = std::env::var_os(HALVES).is_some();
    let (memory, bank) = open(Medium::pool(&path), path.as_encoded_bytes().ends_with(OBJECTS.as_bytes()));
    let its = bank.clone();
    let (_, counts) = memory.run(move |m| its.sum(m)).unwrap();
    let done: Arc<Vec<AtomicU64>> = Arc::new(counts.into_iter().map(AtomicU64::new).collect());
    for writer in 0..WRITERS {
        let (bank, transactions, done) = (bank.clone(), memory.transactions(), done.clone());
        let options = fulgurite::JobOptions::new().pins(8).worker(writer as usize % 2);
        let code = move |m: &mut Context| {
            let mut random = Random(u64::from(std::process::id()) << 8 | writer);
            loop {
                let number = done[writer as usize].load(Ordering::SeqCst) + 1;
                // Some accounts are wanted by all.
                let accounts = if random.one_in(4u64) { 8 } else { KINDS * ACCOUNTS };
                let (from, to) = (random.below(accounts), random.below(accounts));
                let what = (from, to, random.below(100u64));
                bank.transfer(m, &transactions, what, (writer, number), halves).unwrap();
                done[writer as usize].store(number, Ordering::SeqCst);
                m.yield_now().unwrap();
            }
        };
        drop(memory.submit_with::<()>(&options, code).unwrap());
    }
    trials::sync_and_report(&done, Duration::from_millis(5), || {
        memory.sync().unwrap();
    });
}

/// Kills `kills` times. Returns how many transfers there were, or what was wrong.
fn kill(kills: u64, random: &mut Random, objects: bool, halves: bool) -> Result<u64, String> {
    // The directory of the built programs is more likely on a disk than the one of temporary files.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join(if objects { OBJECTS } else { "pool" });
    drop(open(Medium::new_pool(&path, "64M").objects(if objects { 40_000 } else { 0 }), objects));
    let mut transfers = 0;
    for kill in 0..kills {
        let told = run_and_kill(&path, Duration::from_millis(100 + random.below(300u64)), halves);
        let (memory, bank) = open(Medium::pool(&path), objects);
        let its = bank.clone();
        let (sum, counts) = memory.run(move |m| its.sum(m)).unwrap();
        if sum != KINDS * ACCOUNTS * FIRST {
            return Err(format!("kill {kill}: {sum} instead of {}", KINDS * ACCOUNTS * FIRST));
        }
        if told.iter().zip(&counts).any(|(told, count)| count < told) {
            return Err(format!("kill {kill}: transfers are lost: {counts:?} of {told:?}"));
        }
        let its = bank.clone();
        memory.run(move |m| its.map.check(m).and(its.blobs.check(m)).and(its.tree.check(m)).map(drop)).unwrap();
        transfers = counts.iter().sum();
    }
    Ok(transfers)
}

#[test]
fn a_killed_process_leaves_transfers_whole() {
    kill_all("transactions", false, 1);
}
#[test]
fn a_killed_process_leaves_transfers_of_objects_whole() {
    kill_all("transactions over objects", true, 2);
}

fn kill_all(what: &str, objects: bool, seed: u64) {
    let kills = trials::runs(if trials::is_full() { 100 } else { 20 });
    let mut random = Random::seeded(&format!("kills among {what}"), trials::first_seed(seed));
    let transfers = kill(kills, &mut random, objects, false).unwrap();
    println!("{kills} kills, {transfers} transfers");
    assert!(transfers > kills * 20, "only {transfers} transfers were named");
    trials::figure(23, &format!("kills among {what}"), kills);
}

#[test]
fn transfers_in_two_transactions_are_found() {
    let mut random = Random::seeded("kills among halves", trials::first_seed(1));
    let found = (0..20).any(|_| kill(1, &mut random, false, true).is_err());
    assert!(found, "no kill came between the halves of a transfer");
}

/// Lets the writers run for a while, and returns what they reported last.
fn run_and_kill(path: &Path, time: Duration, halves: bool) -> Vec<u64> {
    let mut child = trials::again(module_path!(), "writers");
    if halves {
        child.env(HALVES, "1");
    }
    trials::kill_after(child.env(CHILD, path), WRITERS as usize, time, |_| ())
}
