//! The share of the medium's speed that a pool leaves. Reads at random, and writes in order and at
//! random, go through the pool and to the medium, in short turns, by one loop. The medium also
//! reads with a sum of each subpage, made where the pool has it made. Its writes go behind the
//! pool. Before reads the pool ends its reclaim, whose price depends on the volume of writes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_store::{Pool, StoreConfig};
use serde::Serialize;

use super::content;
use super::counted::sync_every;
use super::drive::{Driver, Kind, Load};
use super::medium::{self, CheckedPoolMedium};
use fulgurite_flash::Mover;
use fulgurite_harness::Spread;
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::progress;
use fulgurite_term::report::charts::{Bar, Bars};
use fulgurite_term::report::table::{self, Columns, or_dash};

/// How full the pool is, in percent of what is not reserve: writes at random have to reclaim.
pub const FULL: f64 = 80.0;
/// The pool's size over the size of the part behind it, for the medium's own writes.
const BEHIND: u64 = 4;

/// Turns of a measurement of reads, so that both meet the same moments of a shared machine.
const TURNS: u32 = 10;

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    kind: &'static str,
    flash: String,
    pool_bytes: u64,
    live_bytes: u64,
    depth: usize,
    /// A sync of the pool, or a flush of the medium, follows this number of writes.
    sync_every: Option<u64>,
    rounds: usize,
    raw_per_s: Spread,
    /// The medium with a sum of each subpage and nothing else: what checksums leave of it.
    summed_per_s: Option<Spread>,
    pool_per_s: Spread,
    /// The pool by the medium itself, round by round.
    ratio: Spread,
    /// The summed medium by the medium itself, round by round.
    summed_ratio: Option<Spread>,
    /// The pool by the summed medium, round by round: what the store takes in addition to its
    /// checksums.
    of_summed: Option<Spread>,
    /// What reached the medium for each subpage written.
    device_writes_per_write: Option<f64>,
}

/// Places in the turns: the pool's, and the medium's, without and with sums.
const POOL: usize = 0;
const RAW: usize = 1;
const SUMMED: usize = 2;
/// Requests a second of each in one round; 0 of writes with sums.
type Rates = [f64; 3];

pub struct Setting {
    pub pool_bytes: u64,
    pub rounds: u32,
    pub time: Duration,
    pub seed: u64,
}

/// Bytes of the medium for a pool of `pool_bytes`.
pub fn medium_bytes(pool_bytes: u64) -> u64 {
    let behind = (pool_bytes / BEHIND).next_multiple_of(SUBPAGE_BYTES as u64);
    pool_bytes + behind
}

/// Measures on a medium that was checked.
pub fn measure(judged: CheckedPoolMedium, setting: &Setting, interrupt: &Interrupt) -> Result<Vec<Row>> {
    let geometry = medium::geometry(setting.pool_bytes)?;
    let live = medium::subpages_at(geometry, FULL);
    let flush_every = sync_every(live);
    let medium = judged.make(interrupt)?;
    let flash = medium.open(medium_bytes(setting.pool_bytes))?;
    medium::format(&flash, geometry)?;
    let pool: Arc<_> = Pool::open(flash.clone(), StoreConfig::default())?.0.into_flash().into();
    content::write(&mut Mover::new(&*pool)?, 0..live, 0, interrupt)?;
    pool.layer().sync()?;
    let mut drivers = [Driver::new(&*pool)?, Driver::new(&*flash)?, Driver::that_sums(&*flash)?];
    let behind = (setting.pool_bytes / SUBPAGE_BYTES as u64) as u32..flash.subpages();
    let mut rates: [Vec<Rates>; Kind::ALL.len()] = Default::default();
    let mut counted = [(0u64, 0u64); Kind::ALL.len()];
    let bar = progress::steps("compared with the medium", u64::from(setting.rounds) * Kind::ALL.len() as u64);
    // The first round is not counted: frames and tables are touched for the first time.
    for round in 0..=u64::from(setting.rounds) {
        for (number, kind) in Kind::ALL.iter().copied().enumerate() {
            interrupt.check()?;
            if kind.reads() {
                pool.layer().checkpoint()?;
            }
            // Only reads are summed.
            let (turns, who) = if kind.reads() { (u64::from(TURNS), 3) } else { (1, 2) };
            let load = |subpages, turn: u64| {
                let seed = setting.seed ^ ((round << 8 | number as u64) << 8 | turn) << 8;
                Load { kind, subpages, flush_every, seed, time: setting.time / turns as u32 }
            };
            // All read from all that is in the pool's part.
            let place = if kind.reads() { 0..geometry.flash_pages() } else { behind.clone() };
            let mut rate = [0.0; 3];
            for turn in 0..turns {
                for step in 0..who {
                    let which = ((round + turn + step) % who) as usize;
                    let asked = load(if which == POOL { 0..live } else { place.clone() }, turn);
                    let before = (flash.counters().writes, pool.layer().counters().written);
                    let through = if which == POOL { ", through a pool" } else { "" };
                    let reached = drivers[which].per_second(&asked);
                    rate[which] += reached.with_context(|| format!("{}{through}", kind.name()))? / turns as f64;
                    if which == POOL && round > 0 {
                        counted[number].0 += flash.counters().writes - before.0;
                        counted[number].1 += pool.layer().counters().written - before.1;
                    }
                }
            }
            if round > 0 {
                rates[number].push(rate);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    let wrong = pool.layer().audit();
    ensure!(wrong.is_empty(), "the store's tables disagree: {}", wrong.join("; "));
    let row = |(number, kind): (usize, Kind)| {
        let rates = &rates[number];
        let spread = |of: fn(&Rates) -> f64| Spread::of(rates.iter().map(of));
        let (writes, (reached, written)) = (!kind.reads(), counted[number]);
        Row {
            kind: kind.name(),
            flash: flash.describe(),
            pool_bytes: setting.pool_bytes,
            live_bytes: u64::from(live) * SUBPAGE_BYTES as u64,
            depth: kind.depth(),
            sync_every: writes.then_some(flush_every),
            rounds: rates.len(),
            raw_per_s: spread(|r| r[RAW]),
            summed_per_s: kind.reads().then(|| spread(|r| r[SUMMED])),
            pool_per_s: spread(|r| r[POOL]),
            ratio: spread(|r| r[POOL] / r[RAW]),
            summed_ratio: kind.reads().then(|| spread(|r| r[SUMMED] / r[RAW])),
            of_summed: kind.reads().then(|| spread(|r| r[POOL] / r[SUMMED])),
            device_writes_per_write: (writes && written > 0).then(|| reached as f64 / written as f64),
        }
    };
    Ok(Kind::ALL.iter().copied().enumerate().map(row).collect())
}

pub fn lines(rows: &[Row]) -> String {
    Columns::of(rows)
        .left("compared with the medium", |row| row.kind)
        .right("medium/s", |row| table::number(row.raw_per_s.median))
        .right("summed/s", |row| or_dash(row.summed_per_s, |summed| table::number(summed.median)))
        .right("pool/s", |row| table::number(row.pool_per_s.median))
        .right("ratio", |row| table::percent(row.ratio.median))
        .right("(lowest-highest)", |row| format!("{}-{}", table::percent(row.ratio.min), table::percent(row.ratio.max)))
        .right("of summed", |row| or_dash(row.of_summed, |share| table::percent(share.median)))
        .right("device writes/write", |row| or_dash(row.device_writes_per_write, |writes| format!("{writes:.3}")))
        .table()
}

pub fn bars(rows: &[Row]) -> Bars {
    let bar = |row: &Row, share: Spread, per_s: Spread| {
        let tip = format!(
            "{}: {} of the medium's own rate ({} to {}), {} a second",
            row.kind,
            table::percent(share.median),
            table::percent(share.min),
            table::percent(share.max),
            table::number(per_s.median)
        );
        Bar { value: share.median * 100.0, spread: Some((share.min * 100.0, share.max * 100.0)), tip }
    };
    let pair = |row: &Row| {
        let summed = row.summed_ratio.zip(row.summed_per_s).map(|(share, per_s)| bar(row, share, per_s));
        vec![summed, Some(bar(row, row.ratio, row.pool_per_s))]
    };
    Bars {
        title: "Requests through a pool, as a share of the medium's own".to_owned(),
        subtitle: rows.first().map_or_else(String::new, |row| {
            format!("{}; a pool of {}, {FULL}% full", row.flash, format_bytes(row.pool_bytes))
        }),
        unit: "% of the medium".to_owned(),
        groups: rows.iter().map(|row| row.kind.to_owned()).collect(),
        series: vec!["the medium, reads summed".to_owned(), "pool".to_owned()],
        bars: rows.iter().map(pair).collect(),
        mark: Some((100.0, "the medium".to_owned())),
    }
}
