//! The pool as this process opens it after a kill: what is in its newest state and in older ones.
//!
//! An orderly close saves the state once more, so each time the pool is read, a next state with the
//! same contents is left.

use std::collections::HashMap as Counts;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fulgurite::{
    AccessError, Context, Fulgurite, HashMap, Medium, Reader,
    latches::{Latch, NoLatch},
};

use super::counter::{PIECES, Table, WORDS, open};
use super::text::{Contents, Key};

pub struct Reopened {
    memory: Fulgurite,
    pub token: u64,
    /// How long it took until it was open.
    pub took: Duration,
    pieces: usize,
}

/// Reads all of both tables, and checks them on the way.
fn read<L: Latch>(
    m: &mut Context,
    words: &HashMap<Key, u64, L>,
    noted: &HashMap<u64, u64, L>,
    pieces: usize,
) -> Result<Contents, AccessError> {
    let mut contents = Contents { words: Counts::new(), times: vec![0; pieces] };
    words.check(m)?;
    noted.check(m)?;
    words.for_each(m, |word, count| contents.words.extend([(*word, *count)]))?;
    noted.for_each(m, |piece, count| {
        // A piece that the text does not have makes the table of words wrong, too.
        contents.times.get_mut(*piece as usize).into_iter().for_each(|times| *times = *count);
    })?;
    Ok(contents)
}

impl Reopened {
    /// Opens the pool in a file, whose text has this number of pieces.
    pub fn open(path: &Path, dram_bytes: u64, pieces: usize) -> Result<Reopened> {
        let start = Instant::now();
        let memory = open(Medium::pool(path), dram_bytes)?;
        let took = start.elapsed();
        let Some(token) = memory.tokens()?.last().copied() else { bail!("the pool is open, and no state is in it") };
        Ok(Reopened { memory, token, took, pieces })
    }
    /// What its newest state holds.
    pub fn contents(&self) -> Result<Contents> {
        let roots = self.memory.roots()?;
        for name in [WORDS, PIECES] {
            if !roots.iter().any(|root| root.name == name) {
                bail!("nothing with the name \"{name}\" is in state {}", self.token);
            }
        }
        let (words, noted): (Table<Key>, Table<u64>) =
            (self.memory.named(WORDS).hash_map(1)?, self.memory.named(PIECES).hash_map(1)?);
        let pieces = self.pieces;
        Ok(self.memory.run(move |m| read(m, &**words, &**noted, pieces))?)
    }
    /// Keeps a state for good.
    pub fn pin(&self, token: u64) -> Result<()> {
        Ok(self.memory.pin_token(token, true)?)
    }
    /// What an older state holds, read next to the newest one.
    ///
    /// # Errors
    /// When it is not there, or its tables are not.
    pub fn contents_of(&self, token: u64, dram_bytes: u64) -> Result<Contents> {
        let reader: Reader = self.memory.open_token(token, dram_bytes)?;
        let words = reader.container::<HashMap<Key, u64, NoLatch>>(WORDS)?;
        let noted = reader.container::<HashMap<u64, u64, NoLatch>>(PIECES)?;
        let pieces = self.pieces;
        Ok(reader.run(move |m| read(m, &**words, &**noted, pieces))?)
    }
    /// Makes an older state the newest again; how long that took.
    pub fn roll_back(&mut self, token: u64) -> Result<Duration> {
        let start = Instant::now();
        self.memory.roll_back(token)?;
        self.token = token;
        Ok(start.elapsed())
    }
    /// Closes it, unless it was rolled back; the state that is the newest then.
    pub fn close(self) -> u64 {
        self.token + 1
    }
    /// The states that are there, oldest first.
    pub fn tokens(&self) -> Result<Vec<u64>> {
        Ok(self.memory.tokens()?)
    }
}
