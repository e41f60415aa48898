//! The program that is killed: it counts the words of a text into a pool's table, several pieces at
//! once, and saves its state now and then.
//!
//! A write section enters each piece with its words and its mark, so a state has all of it or
//! nothing. Lines on standard output say what it does, before or after the fact ([`Line`]), and are
//! held against it. It never ends by itself.
//!
//! With [`PLANTED`] in the environment it claims that a state is saved before it is, which the act
//! must notice.

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use fulgurite::{AccessError, Context, Durability, Fulgurite, HashMap, Medium, Rooted, latches::VersionLatch};
use fulgurite_runtime::DEFAULT_FIBERS;
use serde::{Deserialize, Serialize};

use super::text::{Key, counts_of};

/// An environment variable for the act's test: the program says too early what is saved.
pub const PLANTED: &str = "FULGURITE_PLANT_EARLY_ACKNOWLEDGEMENT";

/// The names of what is in the pool.
pub const WORDS: &str = "words";
/// How often each piece was counted, by its number.
pub const PIECES: &str = "pieces";

/// Pieces that are counted at once.
pub const JOBS: usize = DEFAULT_FIBERS / 4;
/// Tokens that the pool keeps in addition to those that are pinned.
const KEEP_TOKENS: usize = 2;

/// A table of counts under a name.
pub type Table<K> = Arc<Rooted<HashMap<K, u64, VersionLatch>>>;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    pub pool: PathBuf,
    /// How large to make it, where there is none yet.
    pub create_bytes: Option<u64>,
    pub dram_bytes: u64,
    pub text: PathBuf,
    pub ends: Vec<u32>,
    pub distinct: u64,
    pub save_every_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Line {
    Opened,
    /// It is about to count this piece.
    Begun(u32),
    /// This piece is counted and entered.
    Counted(u32),
    /// It is about to save its state: all that was counted, and perhaps some of what was begun.
    Saving,
    /// The state that it was saving has this token, and stays.
    Saved(u64),
    /// It cannot go on.
    Failed(String),
}

fn send(line: &Line) {
    let mut text = serde_json::to_string(line).expect("plain data");
    text.push('\n');
    let mut output = std::io::stdout().lock();
    if output.write_all(text.as_bytes()).and_then(|()| output.flush()).is_err() {
        // Nobody listens any more.
        std::process::exit(1);
    }
}

/// Reads a task from standard input, and counts until it is killed.
pub fn run() -> ExitCode {
    // Nothing of the demonstration survives it, whichever way it ends.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let mut line = String::new();
    let task = std::io::stdin().read_line(&mut line).map(|_| serde_json::from_str::<Task>(&line));
    let result = match task {
        Ok(Ok(task)) => count(&task),
        _ => Err(anyhow::anyhow!("no task was given; `fulgurite-demo` runs this")),
    };
    if let Err(error) = result {
        send(&Line::Failed(format!("{error:#}")));
    }
    // At once: another thread may be in the middle of saving.
    std::process::exit(1)
}

/// Opens a pool, or makes one.
pub fn open(medium: Medium, dram_bytes: u64) -> Result<Fulgurite, fulgurite::Error> {
    // Each state is one that the program names, and knows the pieces of.
    let builder = Fulgurite::builder(medium).durability(Durability::Sync).dram(dram_bytes).keep_tokens(KEEP_TOKENS);
    builder.with(|runtime| runtime.fibers(JOBS + 1)).start()
}

fn count(task: &Task) -> Result<()> {
    let text = std::fs::read_to_string(&task.text).context("the text cannot be read")?;
    let text: Arc<str> = text.into();
    let path = task.pool.clone();
    let medium = match task.create_bytes {
        Some(bytes) => Medium::new_pool(path, bytes),
        None => Medium::pool(path),
    };
    let memory = Arc::new(open(medium, task.dram_bytes)?);
    let words: Table<Key> = memory.named(WORDS).hash_map(task.distinct)?;
    let pieces: Table<u64> = memory.named(PIECES).hash_map(task.ends.len() as u64)?;
    send(&Line::Opened);
    if task.create_bytes.is_some() {
        send(&Line::Saving);
        send(&Line::Saved(memory.sync()?));
    }

    // Goes on where it was: with what has been counted least.
    let noted = pieces.clone();
    let mut times = vec![0; task.ends.len()];
    let times = memory.run(move |m| {
        noted.for_each(m, |piece, count| times[*piece as usize] = *count)?;
        Ok(times)
    })?;
    let mut order: Vec<u32> = (0..task.ends.len() as u32).collect();
    order.sort_by_key(|piece| times[*piece as usize]);

    let counted = Arc::new(AtomicU64::new(0));
    let (saver, seen, every) = (memory.clone(), counted.clone(), Duration::from_millis(task.save_every_ms));
    std::thread::Builder::new().name("saver".into()).spawn(move || {
        let result = save(&saver, &seen, every);
        if let Err(error) = result {
            send(&Line::Failed(error.to_string()));
        }
        std::process::exit(1);
    })?;
    let mut running = VecDeque::new();
    for piece in order.into_iter().cycle() {
        if running.len() == JOBS {
            let (piece, job): (u32, fulgurite::JobHandle<Result<(), AccessError>>) =
                running.pop_front().context("no job is running")?;
            job.wait()??;
            send(&Line::Counted(piece));
            counted.fetch_add(1, Ordering::Relaxed);
        }
        send(&Line::Begun(piece));
        let (words, pieces, text) = (words.clone(), pieces.clone(), text.clone());
        let start = piece.checked_sub(1).map_or(0, |before| task.ends[before as usize] as usize);
        let range = start..task.ends[piece as usize] as usize;
        let job = memory.submit(move |m| enter(m, &words, &pieces, u64::from(piece), &text[range]))?;
        running.push_back((piece, job));
    }
    Ok(())
}

/// Counts a piece and enters it, all or nothing.
fn enter(m: &mut Context, words: &Table<Key>, pieces: &Table<u64>, piece: u64, text: &str) -> Result<(), AccessError> {
    let counts = counts_of(text);
    let _section = m.write_section()?;
    for (word, count) in counts {
        add(m, words, &word, count)?;
    }
    add(m, pieces, &piece, 1)
}

/// Adds to a count while other jobs do so too: a replaced value is added to the new one.
fn add<K: fulgurite::Plain + Eq + fulgurite::KeyHash>(
    m: &mut Context,
    table: &HashMap<K, u64, VersionLatch>,
    key: &K,
    count: u64,
) -> Result<(), AccessError> {
    let mut more = count;
    loop {
        if table.update(m, key, |value| *value += more)?.is_some() {
            return Ok(());
        }
        match table.insert(m, key, more)? {
            None => return Ok(()),
            Some(replaced) => more = replaced,
        }
    }
}

/// Saves the state again and again, whenever there is something new.
fn save(memory: &Fulgurite, counted: &AtomicU64, every: Duration) -> Result<(), fulgurite::Error> {
    let lies = std::env::var_os(PLANTED).is_some();
    let mut last = 0;
    loop {
        let begun = Instant::now();
        while begun.elapsed() < every || counted.load(Ordering::Relaxed) == last {
            std::thread::sleep(Duration::from_millis(2));
        }
        last = counted.load(Ordering::Relaxed);
        send(&Line::Saving);
        if lies {
            let newest = memory.tokens()?.last().copied().unwrap_or(0);
            send(&Line::Saved(newest + 1));
            std::thread::sleep(every);
            memory.sync()?;
        } else {
            send(&Line::Saved(memory.sync()?));
        }
    }
}
