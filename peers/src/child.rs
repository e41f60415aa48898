//! The process of one store: it makes it, and executes rounds. Its cgroup limits all that it uses.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fulgurite_harness::experiment::Turn;
use fulgurite_harness::{Answer, Latencies, Usage, serve};
use fulgurite_workloads::value;
use serde::{Deserialize, Serialize};

use crate::drive::{Plan, Taken};
use crate::stores::{self, FIRST_BALANCE, Spec, Store, account, balance, bytes_on_disk};

/// What the program asks for.
#[derive(Debug, Serialize, Deserialize)]
pub enum Command {
    Open(Spec),
    Run(Plan),
    /// Brings all keys into memory.
    Warm,
    /// Reads all keys.
    Check,
}

/// A store that was made and filled.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Opened {
    pub settings: String,
    /// To make it, empty. Ours writes all of its pool once.
    pub made_ns: u64,
    /// What it wrote meanwhile.
    pub made_bytes: u64,
    /// To fill it.
    pub load_ns: u64,
    /// What it wrote meanwhile.
    pub written_bytes: u64,
    pub flash_bytes: u64,
}

/// What a round came to. It lasts until the end of the last sync, or of the last client where
/// nothing is written.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub turn: Turn,
    pub gets: u64,
    pub puts: u64,
    pub lost: u64,
    pub read_bytes: u64,
    /// Reads of flash, where the store tells.
    pub flash_reads: Option<u64>,
}

impl AsRef<Turn> for Outcome {
    fn as_ref(&self) -> &Turn {
        &self.turn
    }
}

/// What a check of all keys found.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Checked {
    pub lost: u64,
    pub flash_bytes: u64,
}

/// The time between two syncs.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// What [`Usage`] counts in.
const BLOCK: u64 = 4096;

/// Serves until standard input closes.
pub fn run() -> ExitCode {
    // A stopped process would outlive a program that was killed.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let mut made: Option<(Spec, Box<dyn Store>)> = None;
    serve(|command: serde_json::Result<Command>| -> Answer {
        let answered = command.context("not a command").and_then(|command| answer(command, &mut made));
        answered.map_err(|error| fulgurite_term::bad_input::message_of(&error))
    });
    ExitCode::SUCCESS
}

fn answer(command: Command, made: &mut Option<(Spec, Box<dyn Store>)>) -> Result<serde_json::Value> {
    if let Command::Open(spec) = command {
        let (store, opened) = open(&spec)?;
        *made = Some((spec, store));
        return Ok(serde_json::to_value(opened)?);
    }
    let (spec, store) = made.as_ref().context("nothing is open")?;
    Ok(match command {
        Command::Run(plan) => serde_json::to_value(round(&**store, &plan)?)?,
        Command::Warm => serde_json::to_value(store.warm(spec.keys)?)?,
        _ => serde_json::to_value(check(&**store, spec)?)?,
    })
}

fn open(spec: &Spec) -> Result<(Box<dyn Store>, Opened)> {
    let (begun, before) = (Instant::now(), Usage::now());
    let store = stores::open(spec)?;
    let (made_ns, made) = (begun.elapsed().as_nanos() as u64, Usage::now());
    let begun = Instant::now();
    let len = spec.value_bytes;
    let make: &(dyn Fn(u64, &mut Vec<u8>) + Sync) = if spec.bank {
        &|_, into| {
            into.clear();
            into.extend_from_slice(&account(FIRST_BALANCE));
        }
    } else {
        &|key, into| {
            into.resize(len, 0);
            value::fill(into, key, 0);
        }
    };
    store.load(0..spec.keys, make)?;
    store.sync()?;
    store.settle()?;
    let opened = Opened {
        settings: store.settings(),
        made_ns,
        made_bytes: made.since(before).blocks_written * BLOCK,
        load_ns: begun.elapsed().as_nanos() as u64,
        written_bytes: Usage::now().since(made).blocks_written * BLOCK,
        flash_bytes: bytes_on_disk(&spec.directory)?,
    };
    Ok((store, opened))
}

fn round(store: &dyn Store, plan: &Plan) -> Result<Outcome> {
    let (before, reads) = (Usage::now(), store.flash_reads());
    let begun = Instant::now();
    let over = AtomicBool::new(false);
    let mut taken = thread::scope(|scope| {
        let syncs = scope.spawn(|| sync_each_second(store, plan, &over));
        let taken = store.run(plan);
        over.store(true, Ordering::Release);
        syncs.thread().unpark();
        syncs.join().map_err(|_| anyhow::anyhow!("a sync panicked"))??;
        taken
    })?;
    let last = taken.iter().filter_map(|one| one.ended).max().unwrap_or(begun);
    let ended = if plan.what.writes() { Instant::now() } else { last };
    let mut latency = Latencies::new();
    taken.iter_mut().for_each(|one| latency.add(&mut one.latency));
    let used = Usage::now().since(before);
    let sum = |of: fn(&Taken) -> u64| taken.iter().map(of).sum();
    let (gets, puts) = (sum(|one| one.gets), sum(|one| one.puts));
    let flash_reads = reads.zip(store.flash_reads()).map(|(old, new)| new - old);
    let turn = Turn {
        operations: gets + puts,
        elapsed_ns: ended.duration_since(begun).as_nanos() as u64,
        latency: latency.pairs(),
        cpu_ns: used.cpu_ns,
        faults: used.major_faults,
        reads: flash_reads.unwrap_or(0),
        bytes_written: used.blocks_written * BLOCK,
    };
    let (lost, read_bytes) = (sum(|one| one.lost), used.blocks_read * BLOCK);
    Ok(Outcome { turn, gets, puts, lost, read_bytes, flash_reads })
}

/// One a second while clients write, and one when they have ended, so that no store puts it off.
fn sync_each_second(store: &dyn Store, plan: &Plan, over: &AtomicBool) -> Result<()> {
    let mut last = Instant::now();
    while plan.what.writes() {
        let ended = over.load(Ordering::Acquire);
        if ended || last.elapsed() >= SYNC_EVERY {
            last = Instant::now();
            store.sync()?;
        }
        if ended {
            break;
        }
        thread::park_timeout(SYNC_EVERY.saturating_sub(last.elapsed()));
    }
    Ok(())
}

const NO_KEY: u64 = u64::MAX;

/// All values are whole and their keys' own. Of a bank, the sum is what it was.
fn check(store: &dyn Store, spec: &Spec) -> Result<Checked> {
    let (lost, sum, wrong) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(NO_KEY));
    store.each(0..spec.keys, &|key, value| {
        let Some(bytes) = value else {
            lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let good = if spec.bank {
            balance(bytes).map(|balance| sum.fetch_add(balance, Ordering::Relaxed)).is_ok()
        } else {
            value::version_of(bytes, key).is_some() && bytes.len() == spec.value_bytes
        };
        if !good {
            wrong.fetch_min(key, Ordering::Relaxed);
        }
    })?;
    let (lost, sum, wrong) = (lost.into_inner(), sum.into_inner(), wrong.into_inner());
    ensure!(wrong == NO_KEY, "the value of key {wrong} is torn, damaged or another key's");
    let expected = spec.keys.wrapping_mul(FIRST_BALANCE);
    ensure!(!spec.bank || sum == expected, "the accounts have {sum} together, not {expected}");
    ensure!(!spec.name.keeps() || lost == 0, "{lost} of {} keys are missing", spec.keys);
    Ok(Checked { lost, flash_bytes: bytes_on_disk(&spec.directory)? })
}
