//! `pool pin`, `unpin`, `rollback` and `compact`. Refusals are judged on a pool that is only read,
//! whose lock is kept until the change.

use anyhow::Result;
use fulgurite_store::PoolError;

use super::args::{CompactArgs, RollbackArgs, TokenArgs};
use super::open::{self, admin_error, config, to_change, to_read};
use super::served::{self, Change};
use fulgurite_term::bad_input;
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::progress;
use fulgurite_term::report::say;
use fulgurite_term::stderr::log;

fn list(tokens: &[u64]) -> String {
    let words: Vec<String> = tokens.iter().map(u64::to_string).collect();
    words.join(", ")
}

/// `pool pin` and `pool unpin`.
pub fn pin(args: &TokenArgs, pinned: bool) -> Result<()> {
    let token = args.token;
    let word = if pinned { "pinned" } else { "not pinned" };
    let already = || say(&format!("token {token} is {word} already"));
    if let Some(socket) = served::socket_of(&args.pool.path) {
        let store = Change::of(&args.pool, &socket)?;
        if store.tokens.iter().any(|t| t.token == token && t.pinned == pinned) {
            return already();
        }
        store.pin(&args.pool, token, pinned)?;
        return say(&format!("token {token} is {word}"));
    }
    let (path, looked) = (&args.pool.path, to_read(&args.pool, None)?);
    let tokens = looked.pool().tokens();
    if !tokens.contains(token) {
        let kept = tokens.to_vec();
        return Err(open::pool_error(path, PoolError::NoToken { token, kept }));
    }
    if tokens.as_slice().iter().any(|t| t.token == token && t.pinned == pinned) {
        return already();
    }
    let opened = looked.into_files().open(config(None)).map_err(admin_error)?;
    opened.pool().pin(token, pinned).map_err(|e| open::pool_error(path, e))?;
    say(&format!("token {token} is {word}"))
}

/// `pool rollback`.
pub fn roll_back(args: &RollbackArgs) -> Result<()> {
    let token = args.token;
    let newest = || say(&format!("token {token} is the newest: its state is what the pool holds"));
    if let Some(socket) = served::socket_of(&args.pool.path) {
        let store = Change::of(&args.pool, &socket)?;
        if !may_roll_back(args, store.tokens.iter().map(|t| (t.token, t.pinned)))? {
            return newest();
        }
        store.roll_back(&args.pool, token)?;
    } else {
        let (path, looked) = (&args.pool.path, to_read(&args.pool, None)?);
        let error = |e| open::pool_error(path, e);
        let tokens = looked.pool().tokens();
        if !may_roll_back(args, tokens.as_slice().iter().map(|t| (t.token, t.pinned)))? {
            return newest();
        }
        looked.pool().can_roll_back(token).map_err(error)?;
        let opened = looked.into_files().open(config(None)).map_err(admin_error)?;
        opened.pool().roll_back(token).map_err(error)?;
    }
    say(&format!("the pool holds the state of token {token}"))
}

/// Whether there is anything to roll back over. The pool refuses an unknown token.
fn may_roll_back(args: &RollbackArgs, tokens: impl Iterator<Item = (u64, bool)>) -> Result<bool> {
    let token = args.token;
    let mut newer: Vec<(u64, bool)> = tokens.filter(|(t, _)| *t >= token).collect();
    if newer.first().is_none_or(|(first, _)| *first != token) {
        return Ok(true);
    }
    newer.remove(0);
    if newer.is_empty() {
        return Ok(false);
    }
    let all: Vec<u64> = newer.iter().map(|(t, _)| *t).collect();
    let pinned: Vec<u64> = newer.iter().filter(|(_, pinned)| *pinned).map(|(t, _)| *t).collect();
    if !pinned.is_empty() {
        bad_input!("newer than token {token} are the pinned {}, which would be lost; unpin them first", list(&pinned));
    }
    if !args.yes {
        bad_input!("a rollback to token {token} takes away the newer {}; add --yes if that is meant", list(&all));
    }
    Ok(true)
}

/// `pool compact`.
pub fn compact(args: &CompactArgs) -> Result<()> {
    let opened = to_change(&args.pool, config(args.keep))?;
    let error = |e| open::pool_error(&args.pool.path, e);
    let pool = opened.pool();
    let interrupt = Interrupt::catch()?;
    let before = pool.info().free_extents;
    let dropped = args.keep.map_or(Ok(0), |keep| pool.drop_tokens(keep as usize)).map_err(error)?;
    let bar = progress::waiting("compacting live data");
    // Each extent at most once: one that cannot be emptied would come again.
    let mut extents = pool.uses().data.len();
    while extents > 0 && pool.reclaim_one().map_err(error)? {
        extents -= 1;
        // What was done so far is whole; the checkpoint below is written nevertheless.
        if interrupt.asked() {
            break;
        }
    }
    pool.checkpoint().map_err(error)?;
    bar.finish_and_clear();
    let (counters, info) = (pool.counters(), pool.info());
    say(&format!(
        "{dropped} tokens dropped, {} extents emptied, {} subpages copied; of {} extents {} are free, {before} were before",
        counters.reclaimed, counters.copied, info.extents, info.free_extents
    ))?;
    let may_go = pool.tokens().superfluous(1).len();
    if args.keep.is_none() && may_go > 0 {
        say(&format!("what tokens keep stays; {may_go} older ones are not pinned, and --keep 1 drops them"))?;
    }
    if counters.damaged > 0 {
        let damaged = counters.damaged;
        log(format_args!(
            "fulgurite: {damaged} subpages did not read as they were written; see `fulgurite pool check`"
        ));
    }
    interrupt.check()
}
