//! `store --recovery`: how long it takes from a crash to the first access.
//!
//! A filled pool with a checkpoint gets dirty subpages that are synced, and some that are not. Then
//! the store is dropped as it stands, like in a crash. The time runs from the file's name to the
//! first subpage read. Opening writes nothing, so every round finds the same pool.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use fulgurite_flash::Flash;
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_store::{Pool, RecoverReport, StoreConfig};
use fulgurite_sys::clock::process_cpu;
use serde::Serialize;

use super::content::{self, Shuffled};
use super::medium::{self, CheckedPoolMedium, Otherwise};
use crate::args::StoreArgs;
use crate::medium::TestBed;
use fulgurite_flash::Mover;
use fulgurite_harness::Spread;
use fulgurite_term::bad_input::bad_input;
use fulgurite_term::interrupt::{Interrupt, until_interrupted};
use fulgurite_term::machine::Machine;
use fulgurite_term::progress;
use fulgurite_term::report::charts::{Bar, Bars, stack};
use fulgurite_term::report::table::{self, Columns};
use fulgurite_term::report::{self, Report};

/// Percent of what is not reserve: as much again for dirty data needs no reclaim.
const FULL: f64 = 60.0;
/// The most data dirtied: a million subpages.
const DIRTY_BYTES_MAX: u64 = 4 << 30;
/// How often the dirty data is synced while it is written.
const SYNCS: u32 = 16;
/// Subpages that are read back and verified after the last round.
const VERIFIED: u32 = 4096;

#[derive(Clone, Debug, Serialize)]
struct Row {
    flash: String,
    pool_bytes: u64,
    live_bytes: u64,
    /// Subpages written and synced since the last checkpoint.
    dirty_subpages: u32,
    /// Checkpoints that came unasked. Unless 0, there is less to replay than was meant.
    checkpoints_meanwhile: u64,
    records: u64,
    rounds: usize,
    /// From the open medium to the open pool.
    recover_s: Spread,
    /// From the file's name to the first subpage read.
    total_s: Spread,
    /// CPU time of this process meanwhile: what stays where others have the machine for a while.
    cpu_s: Spread,
    dram_bytes: u64,
}

struct Opened {
    recover_s: f64,
    total_s: f64,
    cpu_s: f64,
    report: RecoverReport,
    dram_bytes: u64,
}

/// How stores are opened here: a checkpoint comes when it is asked for.
fn config() -> StoreConfig {
    let mut config = StoreConfig::default();
    config.checkpoint_after = u64::MAX / 4;
    config
}

pub fn run(args: &StoreArgs, interrupt: &Interrupt) -> Result<()> {
    let machine = Machine::describe();
    let quick = args.output.quick;
    let sizes = match (args.size, quick) {
        (None, true) => vec![256 << 20],
        (None, false) => vec![1 << 30, 4 << 30, 16 << 30],
        (Some(size), _) => vec![size],
    };
    for size in &sizes {
        let geometry = medium::geometry(*size)?;
        let live = medium::subpages_at(geometry, FULL);
        // Some more is written that no sync names, and all of it needs room in addition to what is
        // live.
        let room = u64::from(medium::subpages_at(geometry, 100.0) - live).min(live.into()) * 9 / 10;
        if u64::from(dirty_of(*size)) > room {
            bad_input!("--size {} is too little for a pool: a quarter of it is written anew", format_bytes(*size));
        }
    }
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let medium = CheckedPoolMedium::new(args, Otherwise::File, largest, &machine)?.make(interrupt)?;
    let rounds = args.repeat.rounds.unwrap_or(if quick { 3 } else { 5 });
    let (rows, interrupted) = until_interrupted(&sizes, |size| row(&medium, *size, rounds, interrupt))?;
    report::print(&args.output, &machine.line())?;
    report::print(&args.output, &lines(&rows))?;
    let setting = serde_json::json!({ "mode": "recovery", "full_percent": FULL, "syncs": SYNCS });
    Report { interrupted, ..Report::new(&machine, setting, &rows) }
        .finish(&args.output, || stack(&[bars(&rows).draw()]))
}

/// Subpages that are dirtied in a pool of this size: a quarter of it.
fn dirty_of(size: u64) -> u32 {
    ((size / 4).min(DIRTY_BYTES_MAX) / SUBPAGE_BYTES as u64) as u32
}

fn row(medium: &TestBed, size: u64, rounds: u32, interrupt: &Interrupt) -> Result<Row> {
    let geometry = medium::geometry(size)?;
    let (live, dirty) = (medium::subpages_at(geometry, FULL), dirty_of(size));
    let order = Shuffled::new(live)?;
    let unsynced = (dirty / 64).min(live - dirty);
    let bar = progress::steps(&format!("a pool of {}", format_bytes(size)), u64::from(SYNCS + rounds) + 1);
    let (token, checkpoints_meanwhile, described);
    {
        let flash = medium.open(size)?;
        described = flash.describe();
        medium::format(&flash, geometry)?;
        let pool = Pool::open(flash, config())?.0.into_flash();
        let mut mover = Mover::new(&pool)?;
        bar.set_message("filling it");
        content::write(&mut mover, 0..live, 0, interrupt)?;
        pool.layer().sync()?;
        pool.layer().checkpoint()?;
        let before = pool.layer().counters().checkpoints;
        bar.inc(1);
        bar.set_message("dirtying it");
        let mut last = 0;
        for part in 0..SYNCS {
            let at = |part: u32| (u64::from(dirty) * u64::from(part) / u64::from(SYNCS)) as u32;
            content::write(&mut mover, (at(part)..at(part + 1)).map(|i| order.at(i)), 1, interrupt)?;
            last = pool.layer().sync()?;
            bar.inc(1);
        }
        token = last;
        checkpoints_meanwhile = pool.layer().counters().checkpoints - before;
        content::write(&mut mover, (dirty..dirty + unsynced).map(|i| order.at(i)), 2, interrupt)?;
        // Dropped as it is: a pool has no farewell to say.
    }
    bar.set_message("opening it");
    let mut opened = Vec::new();
    for round in 0..rounds {
        interrupt.check()?;
        opened.push(open(medium, size, order.at(round % live), round % live < dirty, token)?);
        bar.inc(1);
    }
    bar.set_message("reading it back");
    verify(medium, size, (live, dirty, unsynced), &order)?;
    bar.finish_and_clear();
    let spread = |of: fn(&Opened) -> f64| Spread::of(opened.iter().map(of));
    let first = &opened[0];
    Ok(Row {
        flash: described,
        pool_bytes: u64::from(geometry.flash_pages()) * SUBPAGE_BYTES as u64,
        live_bytes: u64::from(live) * SUBPAGE_BYTES as u64,
        dirty_subpages: dirty,
        checkpoints_meanwhile,
        records: first.report.records,
        rounds: opened.len(),
        recover_s: spread(|o| o.recover_s),
        total_s: spread(|o| o.total_s),
        cpu_s: spread(|o| o.cpu_s),
        dram_bytes: first.dram_bytes,
    })
}

/// Opens the pool, and reads one subpage.
fn open(medium: &TestBed, size: u64, subpage: u32, dirty: bool, token: u64) -> Result<Opened> {
    let cpu = process_cpu();
    let begun = Instant::now();
    let flash = medium.open(size)?;
    let recovering = Instant::now();
    let (pool, report) = Pool::open(flash, config())?;
    let recover_s = recovering.elapsed().as_secs_f64();
    let flash: Arc<dyn Flash> = Arc::new(pool.into_flash());
    content::check(&flash, |_| dirty.into(), std::iter::once(subpage))?;
    let total_s = begun.elapsed().as_secs_f64();
    let cpu_s = (process_cpu() - cpu).as_secs_f64();
    ensure!(report.token == token, "the pool came back as of token {}, and {token} was synced", report.token);
    Ok(Opened { recover_s, total_s, cpu_s, report, dram_bytes: flash.traits().dram_bytes as u64 })
}

/// What was synced is there, what was not is gone, and the tables agree.
fn verify(medium: &TestBed, size: u64, (live, dirty, unsynced): (u32, u32, u32), order: &Shuffled) -> Result<()> {
    let pool = Pool::open(medium.open(size)?, config())?.0;
    let wrong = pool.audit();
    ensure!(wrong.is_empty(), "the store's tables disagree: {}", wrong.join("; "));
    let flash: Arc<dyn Flash> = Arc::new(pool.into_flash());
    let some = |range: std::ops::Range<u32>| {
        let step = (range.len() as u32 / VERIFIED).max(1);
        range.step_by(step as usize).map(|i| order.at(i))
    };
    content::check(&flash, |_| 1, some(0..dirty))?;
    content::check(&flash, |_| 0, some(dirty..dirty + unsynced).chain(some(dirty + unsynced..live)))
}

fn lines(rows: &[Row]) -> String {
    let seconds = |s: Spread| format!("{:.3} s", s.median);
    Columns::of(rows)
        .right("pool", |row| format_bytes(row.pool_bytes))
        .right("live", |row| format_bytes(row.live_bytes))
        .right("dirty subpages", |row| table::thousands(row.dirty_subpages.into()))
        .right("records", |row| table::thousands(row.records.cast_signed()))
        .right("open", |row| seconds(row.recover_s))
        .right("CPU", |row| seconds(row.cpu_s))
        .right("in all", |row| format!("{:.3} s ({:.3}-{:.3})", row.total_s.median, row.total_s.min, row.total_s.max))
        .right("DRAM", |row| format_bytes(row.dram_bytes))
        .table()
}

fn bars(rows: &[Row]) -> Bars {
    let series = ["until the pool is open", "until a subpage is read"];
    let bar = |s: Spread, what: &str| {
        let tip = format!("{what}: {:.3} s ({:.3} to {:.3})", s.median, s.min, s.max);
        Some(Bar { value: s.median, spread: Some((s.min, s.max)), tip })
    };
    let group =
        |r: &Row| format!("{}, {} dirty", format_bytes(r.pool_bytes), table::thousands(r.dirty_subpages.into()));
    Bars {
        title: "From a crash to the first access".to_owned(),
        subtitle: rows.first().map_or_else(String::new, |row| row.flash.clone()),
        unit: "seconds".to_owned(),
        groups: rows.iter().map(group).collect(),
        series: series.map(str::to_owned).to_vec(),
        bars: rows.iter().map(|r| vec![bar(r.recover_s, series[0]), bar(r.total_s, series[1])]).collect(),
        mark: Some((2.0, "2 s".to_owned())),
    }
}
