//! The act in which memory survives: a program that counts a text's words into flash is killed
//! again and again, and the table is always what was saved last.
//!
//! The program ([`counter`]) uses the public crate. This process kills it (`killed`), opens the
//! pool (`pool`), and counts the text itself to compare (`text`). At the end it reads an old state
//! next to the newest one, rolls back to it, and reads it again. The pool is removed in any case,
//! and the copy of the text has no name.

pub mod counter;
mod killed;
mod messages;
mod pool;
mod text;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fulgurite_format::format_bytes;
use fulgurite_workloads::{Corpus, Random};
use serde::Serialize;

use self::counter::Task;
use self::killed::{Heard, Moment, Saved};
use self::pool::Reopened;
use self::text::{Contents, Text};
use fulgurite_harness::child::shared_path;
use fulgurite_harness::privileged::Helper;
use fulgurite_term::args::OutputArgs;
use fulgurite_term::interrupt::{Interrupt, ended_early};
use fulgurite_term::{progress, report};

pub use messages::{ending, page};

pub const POOL_BYTES: u64 = 64 << 20;
/// DRAM in front of it: 4% of it.
const DRAM_BYTES: u64 = (POOL_BYTES / 25) & !4095;
/// Different words at most: their table, and what changes of it between states, fit the pool.
const DISTINCT_MAX: usize = 120_000;

/// DRAM for an old state that is read next to the newest one.
const READER_DRAM_BYTES: u64 = 4 << 20;
/// To save a state takes about this time. A kill within it mostly hits the program while it saves.
const SAVING_ABOUT: Duration = Duration::from_millis(20);

struct Size {
    text_bytes: u64,
    kills: usize,
    save_every: Duration,
    /// States that are saved before a kill, at most.
    saved_max: u64,
}

/// What is done at full length, and with `--quick`.
const fn size(quick: bool) -> Size {
    if quick {
        Size { text_bytes: 8 << 20, kills: 3, save_every: Duration::from_millis(60), saved_max: 2 }
    } else {
        Size { text_bytes: 16 << 20, kills: 6, save_every: Duration::from_millis(200), saved_max: 4 }
    }
}

/// Bytes of text to look for, when nothing else needs any.
pub const fn text_bytes(quick: bool) -> u64 {
    8 * size(quick).text_bytes
}

/// Bytes of the copy of the text that is counted.
pub const fn copy_bytes(quick: bool) -> u64 {
    size(quick).text_bytes + 1
}

/// A kill, and what was there afterwards.
#[derive(Debug, Serialize)]
pub struct Kill {
    pub lived_ms: f64,
    /// The states that it said are saved.
    pub saved: Vec<Saved>,
    /// The last state that was acknowledged, in this life or before.
    pub acknowledged: u64,
    /// Whether it was saving another one when it was killed.
    pub was_saving: bool,
    /// How long it took to open the pool again.
    pub open_ms: f64,
    pub found: u64,
    pub pieces: u64,
    pub words: u64,
    pub distinct_words: u64,
}

/// An old state, which was read when newer ones were there, and then made the newest again.
#[derive(Debug, Serialize)]
pub struct Older {
    pub token: u64,
    pub pieces: u64,
    pub words: u64,
    /// The newest one when it was read.
    pub beside: u64,
    pub roll_back_ms: f64,
    /// How long it took to open the pool again after that.
    pub open_ms: f64,
}

#[derive(Debug, Default, Serialize)]
pub struct Survived {
    pub text_bytes: u64,
    pub text_pieces: u64,
    pub text_distinct_words: u64,
    pub pool_bytes: u64,
    pub dram_bytes: u64,
    /// Pieces that were counted at once.
    pub jobs: usize,
    pub save_every_ms: u64,
    /// The seed of the moments of the kills.
    pub seed: u64,
    pub kills: Vec<Kill>,
    /// The old state; none when the act ended before.
    pub older: Option<Older>,
    /// What was not as it must be.
    pub failure: Option<String>,
    /// Whether it ended early.
    pub interrupted: bool,
}

/// Plays the act, and prints it. Failures are in what it returns.
pub fn run(output: &OutputArgs, scratch: &Path, corpus: &Arc<Corpus>, interrupt: &Interrupt) -> Survived {
    let mut survived = Survived {
        pool_bytes: POOL_BYTES,
        dram_bytes: DRAM_BYTES,
        jobs: counter::JOBS,
        save_every_ms: size(output.quick).save_every.as_millis() as u64,
        seed: output.seed,
        ..Survived::default()
    };
    match ended_early(play(&mut survived, output, scratch, corpus, interrupt)) {
        Ok(interrupted) => survived.interrupted = interrupted,
        Err(error) => survived.failure = Some(format!("{error:#}")),
    }
    survived
}

/// The file of the pool. Dropped, it is removed; by the helper, when this process could not.
struct PoolFile {
    path: PathBuf,
    _helper: Helper,
}

impl PoolFile {
    fn plan(scratch: &Path) -> Result<PoolFile> {
        let path = scratch.canonicalize()?.join(format!("fulgurite-demo-{}.pool", std::process::id()));
        if path.exists() {
            bail!("{} exists, left by an earlier run; remove it", path.display());
        }
        let mut helper = Helper::start()?;
        helper.adopt(&path)?;
        Ok(PoolFile { path, _helper: helper })
    }
}

impl Drop for PoolFile {
    fn drop(&mut self) {
        // What is left the helper removes.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn play(
    survived: &mut Survived,
    output: &OutputArgs,
    scratch: &Path,
    corpus: &Arc<Corpus>,
    interrupt: &Interrupt,
) -> Result<()> {
    let size = size(output.quick);
    let waiting = progress::waiting("counting the text, to compare with");
    let (from, bytes) = (corpus.clone(), size.text_bytes);
    let text = interrupt.unless_asked(move || Text::of(&from, bytes, DISTINCT_MAX))?;
    waiting.finish_and_clear();
    let text = Arc::new(text?);
    let copy = text.copy(scratch)?;
    survived.text_bytes = text.bytes();
    survived.text_pieces = text.ends().len() as u64;
    survived.text_distinct_words = text.distinct();
    report::print(output, &messages::opening(survived))?;

    let file = PoolFile::plan(scratch)?;
    let mut task = Task {
        pool: file.path.clone(),
        create_bytes: Some(POOL_BYTES),
        dram_bytes: DRAM_BYTES,
        text: shared_path(copy.as_fd()),
        ends: text.ends().to_vec(),
        distinct: text.distinct(),
        save_every_ms: survived.save_every_ms,
    };
    let mut random = Random::new(output.seed, 0);
    let mut state = (0, Contents { times: vec![0; text.ends().len()], ..Contents::default() });
    let mut oldest = None;
    for kill in 0..size.kills {
        // The first kill needs a saved state beyond the empty table. Later ones do not.
        let saved = if kill == 0 { 2 + random.below(size.saved_max) } else { random.below(size.saved_max + 1) };
        // Every second time, about, while it is saving.
        let saving = random.below(2) == 0;
        let longest = if saving { SAVING_ABOUT } else { 2 * size.save_every };
        let delay = Duration::from_micros(random.below(longest.as_micros() as u64));
        let moment = Moment { saved: saved as usize, saving, delay };
        let waiting = progress::waiting("counting words into flash, until it is killed");
        let life = killed::life(&task, Heard::from(state.0, &state.1.times), moment, interrupt);
        waiting.finish_and_clear();
        let life = life?;
        task.create_bytes = None;
        report::print(output, &messages::death(kill, &life))?;
        // On a thread that can be left, should the pool not open at all.
        let (path, compare, heard, first) = (file.path.clone(), text.clone(), life.heard.clone(), kill == 0);
        let (token, closed, took, contents) = interrupt.unless_asked(move || -> Result<_> {
            let pool = Reopened::open(&path, DRAM_BYTES, compare.ends().len())
                .context("after the kill, the pool cannot be opened")?;
            let contents = pool.contents().context("after the kill")?;
            judge(heard.agrees(pool.token, &contents))?;
            judge(compare.agrees(&contents))?;
            if first {
                pool.pin(pool.token)?;
            }
            let (token, took) = (pool.token, pool.took);
            Ok((token, pool.close(), took, contents))
        })??;
        survived.kills.push(Kill {
            lived_ms: ms(life.lived),
            acknowledged: life.heard.acknowledged(),
            was_saving: life.heard.was_saving(),
            saved: life.heard.saved,
            open_ms: ms(took),
            found: token,
            pieces: contents.pieces(),
            words: contents.counted(),
            distinct_words: contents.words.len() as u64,
        });
        report::print(output, &messages::found(survived.kills.last().context("a kill")?))?;
        oldest = oldest.or_else(|| Some((token, contents.clone())));
        state = (closed, contents);
    }
    let Some((token, contents)) = oldest else { return Ok(()) };
    let older = Older {
        token,
        pieces: contents.pieces(),
        words: contents.counted(),
        beside: state.0,
        roll_back_ms: 0.0,
        open_ms: 0.0,
    };
    let path = file.path.clone();
    let older = interrupt.unless_asked(move || look_back(&path, older, &contents, &state.1, &text))??;
    report::print(output, &messages::older(&older))?;
    survived.older = Some(older);
    Ok(())
}

fn judge(result: Result<(), String>) -> Result<()> {
    result.map_err(anyhow::Error::msg)
}

/// Reads an old state next to the newest one, rolls back to it, and reopens the pool. It must
/// always be what it was when it was the newest.
fn look_back(path: &Path, mut older: Older, then: &Contents, newest: &Contents, text: &Text) -> Result<Older> {
    let (token, pieces) = (older.token, text.ends().len());
    let same = |found: &Contents, what: &str| {
        judge(text.agrees(found)).with_context(|| format!("state {token}, {what}"))?;
        if found.times != then.times {
            bail!("state {token}, {what}, has other pieces than when it was the newest");
        }
        Ok(())
    };
    let mut pool = Reopened::open(path, DRAM_BYTES, pieces)?;
    same(&pool.contents_of(token, READER_DRAM_BYTES)?, "read next to newer ones")?;
    if pool.contents()? != *newest {
        bail!("while state {token} was read, the newest one changed");
    }
    older.roll_back_ms = ms(pool.roll_back(token)?);
    same(&pool.contents()?, "rolled back to")?;
    drop(pool);
    let pool = Reopened::open(path, DRAM_BYTES, pieces)?;
    older.open_ms = ms(pool.took);
    // It, and what closing the pool saved; the numbers of those that are gone are not used again.
    let tokens = pool.tokens()?;
    if tokens.len() != 2 || tokens[0] != token {
        bail!("after the roll back to state {token}, these are there: {tokens:?}");
    }
    same(&pool.contents()?, "opened again after the roll back")?;
    Ok(older)
}

impl Survived {
    /// What the act counts, in words.
    fn setting(&self) -> String {
        format!(
            "the words of {} of text into a table in flash (a file of {} behind {} of DRAM)",
            format_bytes(self.text_bytes),
            format_bytes(self.pool_bytes),
            format_bytes(self.dram_bytes)
        )
    }
}
