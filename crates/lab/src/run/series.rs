//! Turns in rounds, and the rows that they come to.

use anyhow::Result;
use serde::Serialize;

use super::contest::{Contest, Contestant, Program, Turn};
use crate::against_swap::{self, Ran};
use crate::values::Under;
use fulgurite_format::format_bytes;
use fulgurite_harness::Spread;
use fulgurite_harness::fio;
use fulgurite_harness::rows::Percentiles;
use fulgurite_term::progress::ProgressBar;
use fulgurite_term::report::table::{Columns, number, or_dash};

/// What all programs do in turns.
pub struct Work {
    pub workload: String,
    /// Threads of the program, or clients.
    pub threads: usize,
    /// What it reads and writes of flash is compared with what fio does in the same mix.
    pub share_of_fio: bool,
}

/// The turns of one program at one work.
struct Series {
    turns: Vec<Option<Turn>>,
    of_fio: Vec<f64>,
}

/// What one program came to at one work.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub workload: String,
    pub config: Under,
    pub threads: usize,
    pub rounds: usize,
    /// Operations a second: the middle of the rounds.
    pub ops_per_s: f64,
    pub ops_per_s_spread: Spread,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// CPU time of the program and of the kernel's threads.
    pub cpu_us_per_op: f64,
    /// Highest use of its cgroup, of all works; none without one.
    pub peak_bytes: Option<u64>,
    /// What its cgroup may use.
    pub cap_bytes: Option<u64>,
    pub bytes_written: u64,
    pub faults: u64,
    pub hit_ratio: f64,
    /// Throughput as a multiple of swap's, round by round.
    pub ratio_to_swap: Option<Spread>,
    /// p99 as a multiple of swap's.
    pub p99_to_swap: Option<f64>,
    /// Pages of flash in a second as a multiple of fio's in the same mix, round by round: the disk
    /// itself is 1. Pages that are read ahead do not count.
    pub pages_of_fio: Option<Spread>,
    /// In all rounds.
    pub operations: u64,
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
    let mut series: Vec<Series> = all.iter().map(|_| Series { turns: Vec::new(), of_fio: Vec::new() }).collect();
    let count = all.len();
    for round in 0..=contest.args.rounds() {
        for i in 0..count {
            // None is always behind the same one.
            let at = (i + round as usize) % count;
            let one = &mut all[at];
            bar.set_message(format!("{}, {}, round {round}", work.workload, one.under));
            let turn = if one.runs() { ask(contest, one, round)? } else { None };
            bar.inc(1);
            if round == 0 {
                continue;
            }
            if let Some(turn) = &turn
                && work.share_of_fio
                && let Some(ratio) = share_of_fio(contest, one, work, turn)
            {
                series[at].of_fio.push(ratio);
            }
            series[at].turns.push(turn);
        }
    }
    add_rows(all, &series, work, rows);
    Ok(())
}

/// Pages of flash in a turn as a multiple of fio's: on the file of the run, or on a file next to it
/// where fio writes.
fn share_of_fio(contest: &mut Contest, one: &Contestant, work: &Work, turn: &Turn) -> Option<f64> {
    let own = flash_of(one.pid()?)?;
    let (reads, writes) = (turn.used.reads as f64, turn.writes() as f64);
    let read_share = reads / (reads + writes).max(1.0);
    let path = if fio::only_reads(read_share) { Ok(own) } else { contest.second_file() };
    let path = path.map_err(|error| contest.note(format!("Pages are not compared with fio's: {error:#}."))).ok()?;
    let mix = fio::Mix {
        path: &path,
        bytes: contest.args.data_bytes(),
        read_share,
        write_bytes: 4096,
        depth: work.threads,
        core: *fulgurite_sys::affinity::cores().first()?,
        time: contest.args.round_time(),
    };
    match fio::per_second(&mix) {
        Ok(iops) => iops.map(|iops| turn.pages_per_s() / iops.max(1.0)),
        Err(error) => {
            contest.note(format!("Pages are not compared with fio's: {error:#}."));
            None
        }
    }
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

fn add_rows(all: &[Contestant], series: &[Series], work: &Work, rows: &mut Vec<Row>) {
    let rates = |one: &Series| one.turns.iter().map(|turn| turn.as_ref().map(Turn::rate)).collect::<Vec<_>>();
    let percentiles = |one: &Series| {
        let mut all = Percentiles::default();
        one.turns.iter().flatten().for_each(|turn| all.add(&turn.outcome.latency));
        all
    };
    let swap = all.iter().position(|one| one.under == Under::Swap).map(|at| &series[at]);
    for (one, series) in all.iter().zip(series) {
        let turns: Vec<&Turn> = series.turns.iter().flatten().collect();
        if turns.is_empty() {
            continue;
        }
        let sum = |of: fn(&Turn) -> u64| turns.iter().map(|turn| of(turn)).sum::<u64>();
        let operations = sum(|turn| turn.outcome.operations);
        let share = |count: u64| count as f64 / operations.max(1) as f64;
        let latency = percentiles(series);
        let ratios = swap.into_iter().flat_map(|swap| rates(series).into_iter().zip(rates(swap)));
        let beside = swap.filter(|swap| swap.turns.iter().any(Option::is_some)).map(|swap| percentiles(swap).us(99.0));
        let spread = Spread::of(rates(series).into_iter().flatten());
        rows.push(Row {
            workload: work.workload.clone(),
            config: one.under,
            threads: work.threads,
            rounds: turns.len(),
            ops_per_s: spread.median,
            ops_per_s_spread: spread,
            p50_us: latency.us(50.0),
            p99_us: latency.us(99.0),
            p999_us: latency.us(99.9),
            cpu_us_per_op: share(sum(|turn| turn.used.cpu_ns + turn.kernel_ns)) / 1000.0,
            peak_bytes: None,
            cap_bytes: one.limit_bytes,
            bytes_written: sum(|turn| turn.used.written_bytes),
            faults: sum(|turn| turn.used.faults),
            hit_ratio: (1.0 - share(sum(|turn| turn.used.reads))).max(0.0),
            ratio_to_swap: Spread::of_any(ratios.filter_map(|(ours, swap)| Some(ours? / swap?.max(1e-9)))),
            p99_to_swap: beside.filter(|us| *us > 0.0).map(|us| latency.us(99.0) / us),
            pages_of_fio: Spread::of_any(series.of_fio.iter().copied()),
            operations,
        });
    }
}

/// Writes the peaks of programs that have ended into the rows from `first` on.
pub fn note_peaks(rows: &mut [Row], ended: &[Contestant]) {
    for row in rows {
        row.peak_bytes = ended.iter().find(|one| one.under == row.config).and_then(|one| one.peak_bytes);
    }
}

/// The rows for people.
pub fn table(rows: &[Row]) -> String {
    let ratio = |spread: Option<Spread>| {
        or_dash(spread, |spread| format!("{:.2} {}", spread.median, spread.range(|v| format!("{v:.2}"))))
    };
    Columns::of(rows)
        .left("workload", |row: &Row| row.workload.clone())
        .left("config", |row| row.config)
        .right("threads", |row| row.threads)
        .right("ops/s", |row| number(row.ops_per_s))
        .right("of swap", |row| ratio(row.ratio_to_swap))
        .right("p50 µs", |row| number(row.p50_us))
        .right("p99 µs", |row| number(row.p99_us))
        .right("p99.9 µs", |row| number(row.p999_us))
        .right("p99 of swap", |row| or_dash(row.p99_to_swap, number))
        .right("CPU µs/op", |row| number(row.cpu_us_per_op))
        .right("hits %", |row| format!("{:.1}", row.hit_ratio * 100.0))
        .right("faults", |row| row.faults)
        .right("written", |row| format_bytes(row.bytes_written))
        .right("peak", |row| or_dash(row.peak_bytes, format_bytes))
        .right("of fio", |row| ratio(row.pages_of_fio))
        .table()
}

/// The drawing.
pub fn plot(rows: &[Row]) -> String {
    let ran = |row: &Row| Ran {
        what: format!("{}, {} threads", row.workload, row.threads),
        config: row.config.to_string(),
        ops_per_s: row.ops_per_s_spread,
        ratio_to_swap: row.ratio_to_swap,
    };
    against_swap::plot(&rows.iter().map(ran).collect::<Vec<_>>())
}

/// Asks a program that answers, in a turn.
pub fn driven<'a, Q: Serialize>(order: &'a Q) -> impl FnOnce(&mut Program) -> Result<super::contest::Outcome> + 'a {
    move |program| program.driven()?.ask(order)
}
