//! Objects of 128 bytes, sixteen times as many as the cache of objects holds: what is hit, compared
//! with a simulation of the same policy over objects, and what is written, compared with frames of
//! 4 KiB.

use anyhow::Result;
use fulgurite_format::format_bytes;
use fulgurite_policy::{Hits, ReplacementPolicy, miss_ratio_with};
use fulgurite_term::report::table::{Columns, number, or_dash};
use fulgurite_workloads::{Random, ZipfKeys};

use crate::contest::{Contest, Results};
use crate::drive::What;
use crate::series::{self, Keys, Row};
use crate::stores::{Dram, Name, Spec};
use crate::values;

const VALUE_BYTES: usize = 128;
/// Data to the cache of objects.
const DATA_TO_CACHE: u64 = 16;
/// What an object costs in the cache, with its overhead.
const OBJECT_BYTES: u64 = 152;
const CLIENTS: usize = 32;
/// Accesses for each object that the cache holds before hits are counted, in the stores and in the
/// simulation.
const WARM: u64 = 10;
/// Values for each one of the other parts: as their bytes are fewer.
const TIMES: u64 = 4;

/// What the cache holds, and the DRAM in all, which also has the pool's tables and the index.
fn dram(count: u64) -> Dram {
    let objects = (count * VALUE_BYTES as u64 / DATA_TO_CACHE).max(1 << 20);
    Dram { objects, total: objects + count * 64 + (40 << 20) }
}

/// Runs ours with objects, and with frames of 4 KiB instead, and the simulation.
///
/// # Errors
/// Interrupted.
pub fn run(contest: &mut Contest, results: &mut Results) -> Result<()> {
    let count = contest.args.keys * TIMES;
    let dram = dram(count);
    let spec = |name| Spec {
        name,
        directory: Default::default(),
        keys: count,
        value_bytes: VALUE_BYTES,
        memory_bytes: dram.total + (64 << 20),
        dram: Some(dram),
        workers: contest.experiment.machine.cores,
        bank: false,
        halved: 0,
    };
    let mut stores = values::filled(contest, &[spec(Name::Fulgurite), spec(Name::FulguritePages)])?;
    let mut all = Vec::new();
    for gets in [100, 50] {
        let both = series::all(&stores, CLIENTS, What::Values { gets });
        all.extend(both.into_iter().filter(|one| one.fibers));
    }
    let keys = Keys { count, value_bytes: VALUE_BYTES, zipf: contest.args.zipf };
    let objects = dram.objects / OBJECT_BYTES;
    results.simulated_hit_ratio = Some(simulated(keys, objects as usize, contest.args.seed)?);
    series::measure_and_check(contest, results, "small", &mut stores, &mut all, keys, objects * WARM)
}

/// The share of accesses that the default policy hits with room for `objects` objects, once warm.
fn simulated(keys: Keys, objects: usize, seed: u64) -> Result<f64> {
    let zipf = ZipfKeys::new("peers", keys.count, keys.zipf)?;
    let (warm, all) = (objects as u64 * WARM, objects as u64 * 3 * WARM);
    let misses = |accesses: u64| {
        let keys = (0..accesses).map(|number| zipf.sample(&mut Random::new(seed, number)));
        miss_ratio_with(ReplacementPolicy::default(), objects, Hits::Known, keys).misses
    };
    Ok(1.0 - (misses(all) - misses(warm)) as f64 / (all - warm) as f64)
}

/// The tables.
pub fn tables(contest: &Contest, results: &Results) -> Vec<String> {
    let rows: Vec<&Row> = results.rows.iter().filter(|row| row.part == "small").collect();
    let count = contest.args.keys * TIMES;
    let dram = dram(count);
    let table = Columns::of(rows.iter().copied())
        .left("store", |row| row.store.label())
        .right("gets", |row| format!("{}%", row.gets))
        .right("ops/s", |row| or_dash(row.ops_per_s, |spread| number(spread.median)))
        .right("without a read", |row| or_dash(row.hit_ratio, |ratio| format!("{:.1}%", ratio * 100.0)))
        .right("B/B put", |row| or_dash(row.written_per_byte_put, number))
        .right("p99 µs", |row| number(row.p99_us))
        .table();
    let mut tables = vec![
        format!(
            "\nsmall: {count} values of 128 B, {} of DRAM for objects, {} in all with tables and index",
            format_bytes(dram.objects),
            format_bytes(dram.total)
        ),
        table,
    ];
    tables.extend(
        results
            .simulated_hit_ratio
            .map(|ratio| format!("The same policy over objects, simulated, hits {:.1}% of the gets.", ratio * 100.0)),
    );
    let written = |store| rows.iter().find(|row| row.store == store && row.gets < 100)?.written_per_byte_put;
    if let (Some(objects), Some(pages)) = (written(Name::Fulgurite), written(Name::FulguritePages)) {
        tables.push(format!("Objects write {:.1} times less than frames of 4 KiB.", pages / objects.max(1e-9)));
    }
    tables.push(values::cost(results, "small"));
    tables
}
