//! Gets and puts of values larger than memory: how many each store serves, how fast, at what cost.

use anyhow::Result;
use fulgurite_format::format_bytes;
use fulgurite_harness::experiment::ratio;
use fulgurite_term::progress;
use fulgurite_term::report::table::{Columns, number, or_dash};

use crate::contest::{Contest, Contestant, Kept, Results};
use crate::drive::What;
use crate::series::{self, Keys, Row, Served};
use crate::stores::{Name, Spec};

/// Requests before those that count, for each value that would fit into a store's memory.
const WARM: u64 = 2;

/// Runs all of them.
///
/// # Errors
/// Interrupted.
pub fn run(contest: &mut Contest, results: &mut Results) -> Result<()> {
    let args = contest.args.clone();
    let names = std::iter::once(Name::Fulgurite).chain(args.peers.iter().copied());
    let spec = |name| Spec {
        name,
        directory: Default::default(),
        keys: args.keys,
        value_bytes: args.value as usize,
        memory_bytes: args.memory,
        dram: None,
        workers: contest.experiment.machine.cores,
        bank: false,
        halved: 0,
    };
    let specs: Vec<Spec> = names.map(spec).collect();
    let mut stores = filled(contest, &specs)?;
    let mut all: Vec<Served> = Vec::new();
    for &clients in &args.clients {
        for &gets in &args.gets {
            all.extend(series::all(&stores, clients as usize, What::Values { gets }));
        }
    }
    let keys = Keys { count: args.keys, value_bytes: args.value as usize, zipf: args.zipf };
    let warm = args.memory / u64::from(args.value) * WARM;
    series::measure_and_check(contest, results, "values", &mut stores, &mut all, keys, warm)
}

/// The stores, filled one after the other. What fails is noted.
///
/// # Errors
/// Interrupted.
pub fn filled(contest: &mut Contest, specs: &[Spec]) -> Result<Vec<Contestant>> {
    let bar = progress::steps("peers: filled", specs.len() as u64);
    let mut stores = Vec::new();
    for spec in specs {
        bar.set_message(spec.name.label());
        stores.extend(contest.begin(spec)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(stores)
}

/// The tables.
pub fn tables(contest: &Contest, results: &Results) -> Vec<String> {
    let args = &contest.args;
    let rows: Vec<&Row> = results.rows.iter().filter(|row| row.part == "values").collect();
    let mut tables = Vec::new();
    let mut last = None;
    for row in &rows {
        let (clients, gets) = (row.clients, row.gets);
        if last.replace((clients, gets)) == Some((clients, gets)) {
            continue;
        }
        tables.push(format!(
            "\n{} values of {} B, {} for each store, {clients} {}, {gets}% gets",
            args.keys,
            args.value,
            format_bytes(args.memory),
            if clients == 1 { "client" } else { "clients" }
        ));
        let section = rows.iter().copied().filter(|row| (row.clients, row.gets) == (clients, gets));
        tables.push(throughput(section));
    }
    tables.push(cost(results, "values"));
    tables
}

/// A table of throughput and latency.
pub fn throughput<'r>(rows: impl IntoIterator<Item = &'r Row>) -> String {
    Columns::of(rows)
        .left("store", Row::name)
        .right("ops/s", |row| or_dash(row.ops_per_s, |spread| number(spread.median)))
        .right("of best peer", |row| ratio(row.of_best_peer))
        .right("p50 µs", |row| number(row.p50_us))
        .right("p99", |row| number(row.p99_us))
        .right("p99.9", |row| number(row.p999_us))
        .right("CPU", |row| number(row.cpu_us_per_op))
        .table()
}

/// A table of what stores take.
pub fn cost(results: &Results, part: &str) -> String {
    let written = |one: &Kept| {
        let of = results.rows.iter().filter(|row| row.part == part && row.store == one.store);
        fulgurite_harness::Spread::of_any(of.filter_map(|row| row.written_per_byte_put))
    };
    let table = Columns::of(results.stores.iter().filter(|one| one.part == part))
        .left("store", |one| one.store.label())
        .right("make s", |one| number(one.make_s))
        .right("written to make", |one| format_bytes(one.make_written_bytes))
        .right("load s", |one| number(one.load_s))
        .right("written", |one| format_bytes(one.load_written_bytes))
        .right("on flash", |one| format_bytes(one.flash_bytes))
        .right("at the end", |one| or_dash(one.flash_bytes_after, format_bytes))
        .right("B/B put", |one| or_dash(written(one), |spread| number(spread.median)))
        .right("peak", |one| or_dash(one.peak_bytes, format_bytes))
        .right("lost", |one| or_dash(one.lost, |lost| lost.to_string()))
        .table();
    format!("\n{table}")
}
