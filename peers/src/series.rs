//! Rounds of stores in turns, and what they come to.

use anyhow::Result;
use fulgurite_harness::Spread;
use fulgurite_term::progress;
use serde::Serialize;

use crate::contest::{Contest, Contestant, Turn};
use crate::drive::{Plan, What};
use crate::stores::Name;

/// The rounds of one store with one kind and number of clients, and one mix.
pub struct Series {
    /// Of the stores.
    pub at: usize,
    pub fibers: bool,
    pub clients: usize,
    pub what: What,
    pub turns: Vec<Option<Turn>>,
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

/// A series for each store and kind of client: ours have fibers as well as threads.
pub fn all(stores: &[Contestant], clients: usize, what: What) -> Vec<Series> {
    let mut all = Vec::new();
    for (at, one) in stores.iter().enumerate() {
        for fibers in [true, false] {
            if one.name.ours() || !fibers {
                all.push(Series { at, fibers, clients, what, turns: Vec::new() });
            }
        }
    }
    all
}

/// The requests of a series that begin with number `first`.
fn plan(contest: &Contest, one: &Series, keys: Keys, first: u64) -> Plan {
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
pub fn warm(contest: &mut Contest, stores: &mut [Contestant], all: &[Series], keys: Keys, requests: u64) -> Result<()> {
    for (at, store) in stores.iter_mut().enumerate() {
        let most = |one: &&Series| (one.what.gets(), one.clients, one.fibers);
        let Some(one) = all.iter().filter(|one| one.at == at).max_by_key(most) else { continue };
        let mut done = 0;
        for turn in 0..WARM_TURNS_MOST {
            if done >= requests || !store.runs() {
                break;
            }
            let plan = plan(contest, one, keys, (WARM_FROM + turn) << 36);
            let Some(turn) = contest.warm_turn(store, &plan)? else { break };
            done += turn.outcome.requests();
        }
    }
    Ok(())
}

/// Has all of them execute their rounds, in turns. A store that failed takes no more.
///
/// # Errors
/// Interrupted.
pub fn take_turns(contest: &mut Contest, stores: &mut [Contestant], all: &mut [Series], keys: Keys) -> Result<()> {
    let rounds = contest.args.rounds;
    let bar = progress::steps("peers: turns", u64::from(rounds) * all.len() as u64);
    for round in 0..rounds {
        // None is always behind the same one.
        let first = round as usize * all.len() / rounds as usize;
        for i in 0..all.len() {
            let number = (first + i) % all.len();
            let one = &mut all[number];
            let store = &mut stores[one.at];
            bar.set_message(format!("{}, {} clients", store.name.label(), one.clients));
            // All stores get the same requests.
            let first = (u64::from(round) * 1000 + u64::from(one.what.gets())) << 36;
            let plan = plan(contest, one, keys, first);
            let turn = if store.runs() { contest.turn(store, &plan)? } else { None };
            one.turns.push(turn);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// The rate of each round; none where it did not end.
pub fn rates(one: &Series) -> impl Iterator<Item = Option<f64>> {
    one.turns.iter().map(|turn| turn.as_ref().map(|turn| turn.outcome.rate()))
}

/// The share of `gets` gets that needed none of `reads` reads; none without gets.
fn hit_ratio(reads: u64, gets: f64) -> Option<f64> {
    (gets > 0.0).then(|| (1.0 - reads as f64 / gets).max(0.0))
}

/// Latency that this share of the requests does not exceed, in µs.
fn quantile(pairs: &[(u64, u64)], share: f64) -> f64 {
    let all: u64 = pairs.iter().map(|(_, count)| count).sum();
    let wanted = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
    let mut seen = 0;
    for (ns, count) in pairs {
        seen += count;
        if seen >= wanted {
            return *ns as f64 / 1000.0;
        }
    }
    0.0
}

/// The rows of series.
pub fn rows(part: &'static str, stores: &[Contestant], all: &[Series], value_bytes: usize) -> Vec<Row> {
    let median = |one: &Series| Spread::of(rates(one).flatten()).median;
    let row = |one: &Series| {
        let rivals = all.iter().filter(|other| {
            let of = stores[other.at].name;
            of.keeps() && !of.ours() && (other.clients, other.what) == (one.clients, one.what)
        });
        let best = rivals.max_by(|a, b| median(a).total_cmp(&median(b)));
        let ratios = best.into_iter().flat_map(|best| rates(one).zip(rates(best))).filter_map(|(a, b)| Some(a? / b?));
        let turns: Vec<&Turn> = one.turns.iter().flatten().collect();
        let sum = |of: fn(&Turn) -> u64| turns.iter().map(|turn| of(turn)).sum::<u64>() as f64;
        let requests = sum(|turn| turn.outcome.requests());
        let mut latency: Vec<_> = turns.iter().flat_map(|turn| turn.outcome.latency.iter().copied()).collect();
        latency.sort_unstable();
        let put_bytes = sum(|turn| turn.outcome.puts) * value_bytes as f64;
        let reads = turns.iter().map(|turn| turn.outcome.flash_reads).sum::<Option<u64>>();
        Row {
            part,
            store: stores[one.at].name,
            fibers: one.fibers,
            clients: one.clients,
            gets: one.what.gets(),
            rounds: turns.len(),
            ops_per_s: Spread::of_any(rates(one).flatten()),
            of_best_peer: Spread::of_any(ratios),
            p50_us: quantile(&latency, 0.5),
            p99_us: quantile(&latency, 0.99),
            p999_us: quantile(&latency, 0.999),
            cpu_us_per_op: sum(|turn| turn.outcome.cpu_ns + turn.kernel_ns) / 1000.0 / requests.max(1.0),
            read_bytes_per_op: sum(|turn| turn.outcome.read_bytes) / requests.max(1.0),
            written_per_byte_put: (put_bytes > 0.0).then(|| sum(|turn| turn.outcome.written_bytes) / put_bytes),
            hit_ratio: reads.and_then(|reads| hit_ratio(reads, sum(|turn| turn.outcome.gets))),
            lost: sum(|turn| turn.outcome.lost) as u64,
            requests: requests as u64,
        }
    };
    all.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_are_no_hits() {
        let all = [(0, 200.0), (50, 200.0), (300, 200.0), (1, 0.0)].map(|(reads, gets)| hit_ratio(reads, gets));
        assert_eq!(all, [Some(1.0), Some(0.75), Some(0.0), None]);
    }
    #[test]
    fn quantiles_are_of_the_counts() {
        let pairs = [(1000, 98), (5000, 1), (9000, 1)];
        let all = [0.5, 0.98, 0.99, 0.999].map(|share| quantile(&pairs, share));
        assert_eq!(all, [1.0, 1.0, 5.0, 9.0]);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
