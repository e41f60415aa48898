//! Turns in rounds, and the rows that they come to.

use anyhow::Result;
use serde::Serialize;

use super::contest::{Contest, Contestant, Program};
use crate::values::Under;
use fulgurite_harness::Spread;
use fulgurite_harness::experiment::{self, Turn, columns, ratio};
use fulgurite_harness::fio::{self, Pages};
use fulgurite_term::progress::ProgressBar;
use fulgurite_term::report::table::{number, or_dash};

/// What all programs do in turns.
pub struct Work {
    pub workload: String,
    /// Threads of the program, or clients.
    pub threads: usize,
    /// What it reads and writes of flash is compared with what fio does in the same mix.
    pub share_of_fio: bool,
}

/// What one program came to at one work.
pub type Row = experiment::Row<More>;

/// What `run` adds to a row.
#[derive(Clone, Debug, Serialize)]
pub struct More {
    /// What its cgroup may use.
    pub cap_bytes: Option<u64>,
    /// p99 as a multiple of swap's.
    pub p99_to_swap: Option<f64>,
    /// Pages of flash in a second as a multiple of fio's in the same mix, round by round: the disk
    /// itself is 1. Pages that are read ahead do not count.
    pub pages_of_fio: Option<Spread>,
    /// In all rounds.
    pub operations: u64,
}

/// The work of a row, in words.
pub fn threads(row: &Row) -> String {
    format!("{} threads", row.threads)
}

/// What a program is asked to do in this round. Round 0 does not count.
pub type Ask<'a> = dyn FnMut(&mut Contest, &mut Contestant, u32) -> Result<Option<Turn>> + 'a;

/// Has all programs do the same in turns, and adds the rows.
///
/// # Errors
/// Interrupted.
pub fn take_turns(
    contest: &mut Contest,
    all: &mut [Contestant],
    work: &Work,
    bar: &ProgressBar,
    ask: &mut Ask<'_>,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let mut of_fio = Vec::new();
    let (series, ended) = experiment::take_turns(all, 0..=contest.args.rounds(), |one, round| {
        bar.set_message(format!("{}, {}, round {round}", work.workload, one.under));
        let turn = if one.one.runs() { ask(contest, one, round)? } else { None };
        bar.inc(1);
        if let Some(turn) = turn.as_ref().filter(|_| work.share_of_fio && round > 0) {
            of_fio.extend(share_of_fio(contest, one, work, turn).map(|share| (one.under, share)));
        }
        Ok(turn)
    });
    ended?;
    let swap = all.iter().position(|one| one.under == Under::Swap && !one.left_out).map(|at| &series[at]);
    let swap_us = swap.map(|swap| swap.latency().us(99.0)).filter(|us| *us > 0.0);
    for (one, turns) in all.iter().zip(&series) {
        let shares = of_fio.iter().filter(|(under, _)| *under == one.under).map(|(_, share)| *share);
        let more = More {
            cap_bytes: one.one.group.limit_bytes,
            p99_to_swap: swap_us.map(|us| turns.latency().us(99.0) / us),
            pages_of_fio: Spread::of_any(shares),
            operations: turns.sum(|turn| turn.operations),
        };
        rows.extend(Row::of(&work.workload, one.under, work.threads, turns, swap, more));
    }
    Ok(())
}

/// Pages of flash in a turn as a multiple of fio's: on the file of the run, or on a file next to it
/// where fio writes.
fn share_of_fio(contest: &mut Contest, one: &Contestant, work: &Work, turn: &Turn) -> Option<f64> {
    let own = flash_of(one.one.group.pid)?;
    let pages = Pages { reads: turn.reads, writes: turn.writes(), elapsed_ns: turn.elapsed_ns };
    let path = if fio::only_reads(pages.read_share()) { Ok(own) } else { contest.second_file() };
    let (bytes, time) = (contest.args.data_bytes(), contest.args.round_time());
    let share = path.and_then(|path| pages.share_of_fio(&path, bytes, work.threads, time));
    share.unwrap_or_else(|error| {
        contest.experiment.note(format!("Pages are not compared with fio's: {error:#}."));
        None
    })
}

/// The file without a name that a run has its flash in.
fn flash_of(pid: u32) -> Option<std::path::PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_flash = |path: &std::path::PathBuf| {
        let target = std::fs::read_link(path).unwrap_or_default();
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("fulgurite-run-") && name.ends_with(" (deleted)")
    };
    paths.into_iter().find(is_flash)
}

/// Writes the peaks of programs that have ended into the rows from `first` on, and drops the rows of
/// programs that are left out.
pub fn note_peaks(rows: &mut Vec<Row>, first: usize, ended: &[Contestant]) {
    for row in rows.split_off(first) {
        let one = ended.iter().find(|one| one.under.name() == row.config);
        if !one.is_some_and(|one| one.left_out) {
            rows.push(Row { peak_bytes: one.and_then(|one| one.one.group.peak_bytes), ..row });
        }
    }
}

/// The rows for people.
pub fn table(rows: &[Row]) -> String {
    columns(rows, threads)
        .right("p99 x swap", |row| or_dash(row.more.p99_to_swap, number))
        .right("x fio", |row| ratio(row.more.pages_of_fio))
        .table()
}

/// Asks a program that answers, in a turn.
pub fn driven<'a, Q: Serialize>(order: &'a Q) -> impl FnOnce(&mut Program) -> Result<super::contest::Outcome> + 'a {
    move |program| program.driven()?.ask(order)
}
