//! Touches of pages at random, from several threads.

use std::time::Duration;

use anyhow::Result;

use super::contest::{Contest, Contestant};
use super::series::{Row, Work, driven, note_peaks, take_turns};
use super::touched::Order;
use fulgurite_term::progress;

/// Has the program that touches its memory run under each configuration.
///
/// # Errors
/// Interrupted.
pub fn run(contest: &mut Contest, rows: &mut Vec<Row>) -> Result<()> {
    let bytes = contest.args.data_bytes();
    let mut all = Vec::new();
    for under in contest.under.clone() {
        let Some(mut one) = contest.begin_own(under, &["__touch"])? else { continue };
        contest.ask(&mut one, |program| driven(&Order::Fill { bytes })(program))?;
        all.push(one);
    }
    let first = rows.len();
    let taken = turns(contest, &mut all, rows);
    for one in &mut all {
        // Where the run was interrupted, that is already reported.
        if let Ok(Some(found)) = contest.ask(one, |program| driven(&Order::Check)(program))
            && found.wrong > 0
        {
            contest.experiment.failed.push(format!("touches, {}: {} words are wrong", one.under, found.wrong));
        }
        contest.end(one);
    }
    note_peaks(rows, first, &all);
    taken
}

fn turns(contest: &mut Contest, all: &mut [Contestant], rows: &mut Vec<Row>) -> Result<()> {
    let works: Vec<(bool, u32)> =
        [false, true].iter().flat_map(|writes| contest.args.threads.iter().map(|n| (*writes, *n))).collect();
    let steps = works.len() * all.len() * (contest.args.rounds() as usize + 1);
    let bar = progress::steps("touches", steps as u64);
    let (time, seed) = (contest.args.round_time(), contest.args.output.seed);
    for (at, (writes, threads)) in works.into_iter().enumerate() {
        let workload = if writes { "touch, writes" } else { "touch, reads" };
        let work = Work { workload: workload.to_owned(), threads: threads as usize, share_of_fio: true };
        let mut ask = |contest: &mut Contest, one: &mut Contestant, round: u32| {
            // All contestants touch the same pages.
            let seed = seed.wrapping_add((at as u64) << 32 | u64::from(round) << 16);
            let time_ns = time_of(time, round).as_nanos() as u64;
            contest.turn(one, driven(&Order::Touch { threads, writes, time_ns, seed }))
        };
        take_turns(contest, all, &work, &bar, &mut ask, rows)?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Of a turn. One that does not count is shorter.
pub fn time_of(round_time: Duration, round: u32) -> Duration {
    if round == 0 { round_time / 2 } else { round_time }
}
