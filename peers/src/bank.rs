//! Transfers between accounts, a transaction each, at equal durability: a sync a second.

use anyhow::Result;
use fulgurite_format::format_bytes;

use crate::contest::{Contest, Results};
use crate::drive::What;
use crate::series::{self, Keys, Row};
use crate::stores::{ACCOUNT_BYTES, Name, Spec};
use crate::values;

/// Clients: as many as keep two workers busy while some wait for flash.
const CLIENTS: [usize; 2] = [2, 32];
/// The most accounts.
const ACCOUNTS: u64 = 2_000_000;

/// Runs all of them.
///
/// # Errors
/// Interrupted.
pub fn run(contest: &mut Contest, results: &mut Results) -> Result<()> {
    let args = contest.args.clone();
    let accounts = args.keys.min(ACCOUNTS);
    for name in args.peers.iter().filter(|name| !name.has_transactions()) {
        let lacks = name.lacks().unwrap_or("has no transactions");
        contest.experiment.notes.push(format!("{} has no row in bank: it {lacks}.", name.label()));
    }
    let names = args.peers.iter().copied().filter(|name| name.has_transactions());
    let spec = |name| Spec {
        name,
        directory: Default::default(),
        keys: accounts,
        value_bytes: ACCOUNT_BYTES,
        memory_bytes: args.memory,
        dram: None,
        workers: 2.min(contest.experiment.machine.cores),
        bank: true,
        halved: 0,
    };
    let specs: Vec<Spec> = std::iter::once(Name::Fulgurite).chain(names).map(spec).collect();
    let mut stores = values::filled(contest, &specs)?;
    let mut all: Vec<_> = CLIENTS.iter().flat_map(|clients| series::all(&stores, *clients, What::Bank)).collect();
    let keys = Keys { count: accounts, value_bytes: ACCOUNT_BYTES, zipf: args.zipf };
    // Each store's accounts have the sum that they began with.
    series::measure_and_check(contest, results, "bank", &mut stores, &mut all, keys, 0)
}

/// The tables.
pub fn tables(contest: &Contest, results: &Results) -> Vec<String> {
    let mut tables = Vec::new();
    for clients in CLIENTS {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.part == "bank" && row.clients == clients).collect();
        if !rows.is_empty() {
            tables.push(format!(
                "\nbank: transfers between {} accounts, {} for each store, {clients} clients, 2 workers",
                contest.args.keys.min(ACCOUNTS),
                format_bytes(contest.args.memory)
            ));
            tables.push(values::throughput(rows));
        }
    }
    tables.push(values::cost(results, "bank"));
    tables
}
