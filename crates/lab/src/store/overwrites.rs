//! What the journaled store writes in addition to programs' data, and what it keeps in DRAM.
//!
//! Nothing is timed and no data moves: the store is a state machine, and its requests are answered
//! at once. The real store decides. The simulation that it is compared with has its reclaim policy
//! alone. [`super::device`] has the times.

use std::time::Duration;

use anyhow::{Result, anyhow};
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_store::{Geometry, Store, StoreConfig};
use fulgurite_workloads::{Random, ZipfKeys};
use serde::Serialize;

use super::counted::{Counted, in_batches, sync_every};
use super::medium::{self, CheckedPoolMedium, Otherwise, geometry_of};
use super::{device, objects, simulate};
use crate::args::StoreArgs;
use crate::values::VictimChoice;
use fulgurite_harness::checks;
use fulgurite_term::interrupt::{Interrupt, until_interrupted};
use fulgurite_term::machine::Machine;
use fulgurite_term::names;
use fulgurite_term::progress;
use fulgurite_term::report::charts::{Bar, Bars, stack};
use fulgurite_term::report::table::Columns;
use fulgurite_term::report::{self, Report};

/// One pattern of writes at one fill under one policy.
#[derive(Clone, Debug, Serialize)]
struct Row {
    pattern: &'static str,
    /// Live data as a share of what is not reserve.
    full: f64,
    victims: &'static str,
    pool_bytes: u64,
    live_bytes: u64,
    /// A sync follows this number of bytes written.
    sync_every_bytes: u64,
    /// Subpages that programs wrote while it was counted.
    written: u64,
    /// (written + copied) / written.
    amplification: f64,
    simulated: f64,
    ratio: f64,
    /// Pages of metadata for each subpage written.
    metadata_per_write: f64,
    /// All that reached the flash for each byte that programs wrote.
    bytes_per_byte: f64,
    /// DRAM of the store as a share of the live data, with one version a page.
    dram_share_filled: f64,
    /// That share after the overwrites.
    dram_share: f64,
}

const EXTENT_PAGES: u32 = 512;
/// Subpages that a batch of write-backs has.
const BATCH: usize = 64;
/// How often the data is overwritten; counted is the second half.
const OVERWRITES: u64 = 4;
/// Live data in percent of what is not reserve.
const FULL: [f64; 5] = [50.0, 60.0, 70.0, 80.0, 90.0];
const QUICK_FULL: [f64; 1] = [80.0];

names! {
    /// In which order it writes.
    Pattern {
        /// All subpages alike.
        Uniform = "uniform",
        /// A few much more often than others.
        Zipf = "zipf",
        /// One after the other.
        Sequential = "sequential",
    }
}

pub fn run(args: &StoreArgs, interrupt: &Interrupt) -> Result<()> {
    let machine = Machine::describe();
    let bytes = args.size.unwrap_or(if args.output.quick { 256 << 20 } else { 1 << 30 });
    let geometry = geometry_of(bytes, EXTENT_PAGES)?;
    // The map and the page table, twice, and a page of metadata for each extent and journal page.
    checks::memory(bytes / 64 + objects::memory_bytes(args.output.quick), bytes, &machine)?;
    let beside = CheckedPoolMedium::new(args, Otherwise::Emulated, device::medium_bytes(bytes), &machine)?;
    let full: &[f64] = if args.output.quick { &QUICK_FULL } else { &FULL };
    let mut cases = Vec::new();
    for pattern in Pattern::ALL {
        for full in full {
            cases.extend(args.victims.iter().map(|victims| (*pattern, *full, *victims)));
        }
    }
    let bar = progress::steps("store", cases.len() as u64);
    let (rows, mut interrupted) = until_interrupted(cases, |(pattern, full, victims)| {
        bar.set_message(format!("{} at {full}%, {victims}", pattern.name()));
        let row = row(geometry, pattern, full, victims, args, interrupt);
        bar.inc(1);
        row
    })?;
    bar.finish_and_clear();
    let setting = device::Setting {
        pool_bytes: bytes,
        rounds: args.repeat.rounds.unwrap_or(if args.output.quick { 3 } else { 9 }),
        time: Duration::from_millis(if args.output.quick { 60 } else { 300 }),
        seed: args.output.seed,
    };
    let mut packed = Vec::new();
    if !interrupted {
        (packed, interrupted) = objects::rows(args, interrupt)?;
    }
    let mut beside_medium = Vec::new();
    if !interrupted {
        let measured = until_interrupted([beside], |beside| device::measure(beside, &setting, interrupt))?;
        (beside_medium, interrupted) = (measured.0.concat(), measured.1);
    }
    report::print_all(
        &args.output,
        [machine.line(), lines(&rows), objects::lines(&packed), device::lines(&beside_medium)],
    )?;
    let setting = serde_json::json!({
        "mode": "overwrites", "extent_pages": EXTENT_PAGES, "overwrites": OVERWRITES, "reserve_extents": geometry.reserved_extents(),
        "beside_full_percent": device::FULL,
    });
    Report { interrupted, ..Report::new(&machine, setting, &rows) }
        .with("beside_medium", &beside_medium)?
        .with("objects", &packed)?
        .finish(&args.output, || stack(&[bars(&rows).draw(), device::bars(&beside_medium).draw()]))
}

/// Flash writes for each write, compared with the policy alone.
fn bars(rows: &[Row]) -> Bars {
    let bar = |value: f64, row: &Row, of: &str| {
        let tip =
            format!("{} at {}%, {}: {value:.3} flash writes for each write, {of}", row.pattern, row.full, row.victims);
        Some(Bar { value, spread: None, tip })
    };
    Bars {
        title: "Flash writes for each write".to_owned(),
        subtitle: rows.first().map_or_else(String::new, |row| {
            format!(
                "a pool of {}, a sync after each {:.1}% of the data",
                format_bytes(row.pool_bytes),
                row.sync_every_bytes as f64 * 100.0 / row.live_bytes as f64
            )
        }),
        unit: "flash writes".to_owned(),
        groups: rows.iter().map(|row| format!("{} {}%", row.pattern, row.full)).collect(),
        series: ["data", "policy alone", "with metadata"].map(str::to_owned).to_vec(),
        bars: rows
            .iter()
            .map(|row| {
                let of = [
                    (row.amplification, "data alone"),
                    (row.simulated, "simulated without a store"),
                    (row.bytes_per_byte, "metadata included"),
                ];
                of.map(|(value, what)| bar(value, row, what)).to_vec()
            })
            .collect(),
        mark: None,
    }
}

enum Next {
    InOrder(u32, u32),
    Keys(ZipfKeys, Random),
}

impl Next {
    fn new(pattern: Pattern, subpages: u32, seed: u64) -> Result<Next> {
        let exponent = match pattern {
            Pattern::Sequential => return Ok(Next::InOrder(0, subpages)),
            Pattern::Uniform => 0.0,
            Pattern::Zipf => 0.99,
        };
        let keys = ZipfKeys::new("store", subpages.into(), exponent).map_err(|e| anyhow!("{e}"))?;
        Ok(Next::Keys(keys, Random::new(seed, 0)))
    }
    fn subpage(&mut self) -> u32 {
        match self {
            Next::InOrder(at, subpages) => {
                *at = (*at + 1) % *subpages;
                *at
            }
            Next::Keys(keys, random) => keys.sample(random) as u32,
        }
    }
}

fn row(
    geometry: Geometry,
    pattern: Pattern,
    full: f64,
    victims: VictimChoice,
    args: &StoreArgs,
    interrupt: &Interrupt,
) -> Result<Row> {
    let subpages = medium::subpages_at(geometry, full);
    let mut config = StoreConfig::default();
    config.victims = victims.policy();
    let mut counted = Counted::new(geometry, config, subpages)?;
    let write = |counted: &mut Counted, batch: &[u32]| {
        counted.place(batch)?;
        counted.wrote(batch.len())?;
        interrupt.check()
    };
    let live_bytes = u64::from(subpages) * SUBPAGE_BYTES as u64;
    let dram_share = |store: &Store| store.info().dram_bytes as f64 / live_bytes as f64;
    in_batches(0..subpages, BATCH, |batch| write(&mut counted, batch))?;
    let dram_share_filled = dram_share(&counted.store);
    let mut next = Next::new(pattern, subpages, args.output.seed)?;
    let writes = OVERWRITES * u64::from(subpages);
    in_batches((0..writes / 2).map(|_| next.subpage()), BATCH, |batch| write(&mut counted, batch))?;
    let before = counted.store.counters();
    in_batches((writes / 2..writes).map(|_| next.subpage()), BATCH, |batch| write(&mut counted, batch))?;
    let store = counted.store;
    let after = store.counters();
    let (written, copied) = (after.written - before.written, after.copied - before.copied);
    let pages = after.metadata - before.metadata;
    let wrong = store.state().audit();
    anyhow::ensure!(wrong.is_empty(), "the store's tables disagree: {}", wrong.join("; "));
    let (extent_pages, policy) = (geometry.data_pages(), victims.policy());
    let (extents, reserve) = (geometry.extents - geometry.fixed_extents(), geometry.reserved_extents());
    let setting = simulate::Setting { subpages, extents, extent_pages, reserve, victims: policy };
    let mut next = Next::new(pattern, subpages, args.output.seed + 1)?;
    let simulated = simulate::amplification(setting, writes, || next.subpage());
    let amplification = (written + copied) as f64 / written as f64;
    Ok(Row {
        pattern: pattern.name(),
        full,
        victims: victims.name(),
        pool_bytes: u64::from(geometry.flash_pages()) * SUBPAGE_BYTES as u64,
        live_bytes,
        sync_every_bytes: sync_every(subpages) * SUBPAGE_BYTES as u64,
        written,
        amplification,
        simulated,
        ratio: amplification / simulated,
        metadata_per_write: pages as f64 / written as f64,
        bytes_per_byte: (written + copied + pages) as f64 / written as f64,
        dram_share_filled,
        dram_share: dram_share(&store),
    })
}

fn lines(rows: &[Row]) -> String {
    let ratio = |value: f64| format!("{value:.3}");
    Columns::of(rows)
        .left("writes", |row| row.pattern)
        .left("full", |row| format!("{}%", row.full))
        .left("victims", |row| row.victims)
        .right("flash writes", |row| ratio(row.amplification))
        .right("policy alone", |row| ratio(row.simulated))
        .right("ratio", |row| ratio(row.ratio))
        .right("metadata", |row| ratio(row.metadata_per_write))
        .right("in all", |row| ratio(row.bytes_per_byte))
        .right("DRAM, filled", |row| format!("{:.3}%", row.dram_share_filled * 100.0))
        .right("DRAM", |row| format!("{:.3}%", row.dram_share * 100.0))
        .table()
}
