//! Rounds of stores in turns, and what they come to.

use anyhow::Result;
use fulgurite_harness::Spread;
use fulgurite_harness::experiment::{self, Series};
use fulgurite_term::progress;
use serde::Serialize;

use crate::child::Outcome;
use crate::contest::{Contest, Contestant, Kept, Results};
use crate::drive::{Plan, What};
use crate::stores::Name;

/// One store with one kind and number of clients, and one mix.
#[derive(Clone, Copy)]
pub struct Served {
    /// Of the stores.
    pub at: usize,
    pub fibers: bool,
    pub clients: usize,
    pub what: What,
}

/// What all series of a part have in common.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    pub count: u64,
    pub value_bytes: usize,
    pub zipf: f64,
}

/// What a series came to.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `values`, `small`, `bank` or `hits`.
    pub part: &'static str,
    pub store: Name,
    /// Fibers; else OS threads.
    pub fibers: bool,
    pub clients: usize,
    /// Percent of the requests that are gets.
    pub gets: u32,
    pub rounds: usize,
    /// Requests a second, over the rounds.
    pub ops_per_s: Option<Spread>,
    /// Throughput as a multiple of the best peer's that keeps every key, round by round.
    pub of_best_peer: Option<Spread>,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// CPU time of the process and of the kernel's threads.
    pub cpu_us_per_op: f64,
    pub read_bytes_per_op: f64,
    /// Written to the disk for each byte of values put; none where nothing is put.
    pub written_per_byte_put: Option<f64>,
    /// Of the gets, those that needed no read of flash, where the store tells. Reads for puts count
    /// as if they were for gets.
    pub hit_ratio: Option<f64>,
    /// Gets that found no key.
    pub lost: u64,
    /// Requests in all rounds.
    pub requests: u64,
}

impl Row {
    /// The name of its store and clients.
    pub fn name(&self) -> String {
        match (self.store.ours(), self.fibers) {
            (true, true) => "ours, fibers".to_owned(),
            (true, false) => "ours, threads".to_owned(),
            (false, _) => self.store.label().to_owned(),
        }
    }
}

/// Each store and kind of client: ours have fibers as well as threads.
pub fn all(stores: &[Contestant], clients: usize, what: What) -> Vec<Served> {
    let mut all = Vec::new();
    for (at, one) in stores.iter().enumerate() {
        for fibers in [true, false] {
            if one.name.ours() || !fibers {
                all.push(Served { at, fibers, clients, what });
            }
        }
    }
    all
}

/// The requests of one that begin with number `first`.
fn plan(contest: &Contest, one: &Served, keys: Keys, first: u64) -> Plan {
    Plan {
        what: one.what,
        clients: one.clients,
        fibers: one.fibers,
        time: contest.args.round_time,
        first,
        seed: contest.args.seed,
        zipf: keys.zipf,
        keys: keys.count,
        value_bytes: keys.value_bytes,
    }
}

/// The turns that do not count begin with this number, behind the turns of all rounds.
const WARM_FROM: u64 = 1 << 24;
/// A store that is slow takes no more of them.
const WARM_TURNS_MOST: u64 = 32;

/// Has each store execute one of its series in turns that do not count, until it had `requests`
/// requests: gets of the most clients, and fibers where it has these.
///
/// # Errors
/// Interrupted.
fn warm(contest: &mut Contest, stores: &mut [Contestant], all: &[Served], keys: Keys, requests: u64) -> Result<()> {
    for (at, store) in stores.iter_mut().enumerate() {
        let most = |one: &&Served| (one.what.gets(), one.clients, one.fibers);
        let Some(one) = all.iter().filter(|one| one.at == at).max_by_key(most) else { continue };
        let mut done = 0;
        for turn in 0..WARM_TURNS_MOST {
            if done >= requests || !store.one.runs() {
                break;
            }
            let plan = plan(contest, one, keys, (WARM_FROM + turn) << 36);
            let Some(turn) = contest.warm_turn(store, &plan)? else { break };
            done += turn.turn.operations;
        }
    }
    Ok(())
}

/// Has stores execute all of these in turns, once they had a number of requests that do not count,
/// and adds the rows. A store that failed takes no more turns.
///
/// The second result is an error where it was interrupted.
pub fn measure(
    contest: &mut Contest,
    results: &mut Results,
    part: &'static str,
    stores: &mut [Contestant],
    all: &mut [Served],
    keys: Keys,
    warm_requests: u64,
) -> (Vec<Series<Outcome>>, Result<()>) {
    if let Err(interrupted) = warm(contest, stores, all, keys, warm_requests) {
        return (Vec::new(), Err(interrupted));
    }
    let rounds = contest.args.rounds;
    let bar = progress::steps("peers: turns", u64::from(rounds) * all.len() as u64);
    let (series, ran) = experiment::take_turns(all, 1..=rounds, |one, round| {
        let store = &mut stores[one.at];
        bar.set_message(format!("{}, {} clients", store.name.label(), one.clients));
        // All stores get the same requests.
        let first = (u64::from(round - 1) * 1000 + u64::from(one.what.gets())) << 36;
        let turn = contest.turn(store, &plan(contest, one, keys, first));
        bar.inc(1);
        turn
    });
    bar.finish_and_clear();
    results.rows.extend(rows(part, stores, all, &series, keys.value_bytes));
    (series, ran)
}

/// Measures a part, has each store check its keys, and keeps what it took.
///
/// # Errors
/// Interrupted.
pub fn measure_and_check(
    contest: &mut Contest,
    results: &mut Results,
    part: &'static str,
    stores: &mut [Contestant],
    all: &mut [Served],
    keys: Keys,
    warm_requests: u64,
) -> Result<()> {
    let (_, ran) = measure(contest, results, part, stores, all, keys, warm_requests);
    let ended = ran.and_then(|()| stores.iter_mut().try_for_each(|one| contest.end(one)));
    results.stores.extend(stores.iter().map(|one| Kept::of(part, one)));
    ended
}

/// The share of `gets` gets that needed none of `reads` reads; none without gets.
fn hit_ratio(reads: u64, gets: f64) -> Option<f64> {
    (gets > 0.0).then(|| (1.0 - reads as f64 / gets).max(0.0))
}

/// The rows of series.
fn rows(
    part: &'static str,
    stores: &[Contestant],
    all: &[Served],
    series: &[Series<Outcome>],
    value_bytes: usize,
) -> Vec<Row> {
    let median = |series: &Series<Outcome>| series.rate().unwrap_or_default().median;
    let row = |(one, turns): (&Served, &Series<Outcome>)| {
        let rivals = all.iter().zip(series).filter(|(other, _)| {
            let of = stores[other.at].name;
            of.keeps() && !of.ours() && (other.clients, other.what) == (one.clients, one.what)
        });
        let best = rivals.max_by(|(_, a), (_, b)| median(a).total_cmp(&median(b)));
        let sum = |of: fn(&Outcome) -> u64| turns.sum(of) as f64;
        let (requests, latency) = (sum(|outcome| outcome.turn.operations), turns.latency());
        // A transfer writes two accounts.
        let each = if one.what == What::Bank { 2 * value_bytes } else { value_bytes };
        let put_bytes = sum(|outcome| outcome.puts) * each as f64;
        let reads = turns.ended().map(|outcome| outcome.flash_reads).sum::<Option<u64>>();
        Row {
            part,
            store: stores[one.at].name,
            fibers: one.fibers,
            clients: one.clients,
            gets: one.what.gets(),
            rounds: turns.ended().count(),
            ops_per_s: turns.rate(),
            of_best_peer: best.and_then(|(_, best)| turns.ratio_to(best)),
            p50_us: latency.us(50.0),
            p99_us: latency.us(99.0),
            p999_us: latency.us(99.9),
            cpu_us_per_op: sum(|outcome| outcome.turn.cpu_ns) / 1000.0 / requests.max(1.0),
            read_bytes_per_op: sum(|outcome| outcome.read_bytes) / requests.max(1.0),
            written_per_byte_put: (put_bytes > 0.0).then(|| sum(|outcome| outcome.turn.bytes_written) / put_bytes),
            hit_ratio: reads.and_then(|reads| hit_ratio(reads, sum(|outcome| outcome.gets))),
            lost: sum(|outcome| outcome.lost) as u64,
            requests: requests as u64,
        }
    };
    all.iter().zip(series).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_are_no_hits() {
        let all = [(0, 200.0), (50, 200.0), (300, 200.0), (1, 0.0)].map(|(reads, gets)| hit_ratio(reads, gets));
        assert_eq!(all, [Some(1.0), Some(0.75), Some(0.0), None]);
    }
}
