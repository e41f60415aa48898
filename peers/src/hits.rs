//! The price of a hit: a cached blob of 128 bytes compared with a `HashMap` of boxes of the
//! standard library, with the same keys in turns.

use anyhow::Result;
use fulgurite_format::format_bytes;
use fulgurite_harness::Spread;
use fulgurite_harness::experiment::Series;
use fulgurite_term::report::table::{Columns, number, or_dash};

use crate::child::Outcome;
use crate::contest::{Contest, Results};
use crate::drive::What;
use crate::series::{self, Keys, Row, Served};
use crate::stores::{Dram, Name, Spec};
use crate::values;

const VALUE_BYTES: usize = 128;
/// Bytes of values that are cached, and with --quick.
const CACHED: [u64; 2] = [1 << 30, 32 << 20];

/// Runs both.
///
/// # Errors
/// Interrupted.
pub fn run(contest: &mut Contest, results: &mut Results) -> Result<()> {
    let cached = CACHED[usize::from(contest.args.quick)];
    let count = cached / VALUE_BYTES as u64;
    // Objects with their overhead, what the pool's tables need for each, and the index.
    let dram = Dram { objects: cached / 2 * 3, total: cached / 2 * 3 + count * 96 + (48 << 20) };
    let spec = |name, dram: Option<Dram>| Spec {
        name,
        directory: Default::default(),
        keys: count,
        value_bytes: VALUE_BYTES,
        memory_bytes: dram.map_or(cached * 3 + (64 << 20), |dram| dram.total + (128 << 20)),
        dram,
        workers: 1,
        bank: false,
        halved: 0,
    };
    let mut stores = values::filled(contest, &[spec(Name::Fulgurite, Some(dram)), spec(Name::Boxes, None)])?;
    for one in &mut stores {
        contest.warm(one)?;
    }
    let what = What::Values { gets: 100 };
    let wanted = |one: &Served| one.fibers || !stores[one.at].name.ours();
    let mut all: Vec<Served> = series::all(&stores, 1, what).into_iter().filter(wanted).collect();
    let keys = Keys { count, value_bytes: VALUE_BYTES, zipf: 0.0 };
    let (turns, ran) = series::measure(contest, results, "hits", &mut stores, &mut all, keys, 0);
    let ns = |turns: &Series<Outcome>| turns.rates().map(|rate| rate.map(|rate| 1e9 / rate)).collect::<Vec<_>>();
    let of = |name| all.iter().zip(&turns).find(|(one, _)| stores[one.at].name == name).map(|(_, turns)| ns(turns));
    if let (Some(ours), Some(boxes)) = (of(Name::Fulgurite), of(Name::Boxes)) {
        results.hit_beyond_boxes_ns = Spread::of_any(ours.iter().zip(&boxes).filter_map(|(a, b)| Some((*a)? - (*b)?)));
    }
    stores.iter_mut().for_each(|one| contest.stop(one));
    ran
}

/// The table, and the difference.
pub fn tables(contest: &Contest, results: &Results) -> Vec<String> {
    let rows = results.rows.iter().filter(|row| row.part == "hits");
    let table = Columns::of(rows)
        .left("one client", |row: &Row| row.store.label())
        .right("ns/get", |row| or_dash(row.ops_per_s, |spread| number(1e9 / spread.median)))
        .right("p99 µs", |row| number(row.p99_us))
        .right("cached", |row| or_dash(row.hit_ratio, |ratio| format!("{:.2}%", ratio * 100.0)))
        .table();
    let cached = CACHED[usize::from(contest.args.quick)];
    let mut tables =
        vec![format!("\nhits: values of 128 B, {} of them, uniform, all cached", format_bytes(cached)), table];
    tables.extend(results.hit_beyond_boxes_ns.map(|by| {
        format!(
            "A hit takes {:.0} ns more than in a HashMap of boxes ({:.0} to {:.0} by round).",
            by.median, by.min, by.max
        )
    }));
    tables
}
