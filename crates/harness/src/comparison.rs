//! One workload in all configurations, in turns: rows, bars of shares, curves of latencies.

use std::time::Duration;

use anyhow::Result;
use fulgurite_term::args::OutputArgs;
use fulgurite_term::media::{NandChoice, NandCounts};
use fulgurite_term::progress;
use fulgurite_term::report::charts::{Axis, Bar, Bars, Curve, Curves, nines, percentile_axis, stack};
use fulgurite_term::report::{self, table};

use crate::Spread;
use crate::args::WorkArgs;
use crate::calibrate::{self, Plan};
use crate::child::protocol::Outcome;
use crate::disturbance::{self, Patience};
use crate::image::Image;
use crate::privileged::Request;
use crate::rounds::{self, Contestant, Ran};
use crate::rows::{Checksums, LiveRow, Percentiles, Variant};
use crate::session::{Session, Setup, swap_bytes};
use crate::values::{Config, FlashChoice};
use crate::yardstick::Limit;

/// How configurations are compared.
#[derive(Clone, Copy, Debug)]
pub struct Measure<'m> {
    pub configs: &'m [Config],
    /// Values of `vm.page-cluster` for os-swap.
    pub clusters: &'m [u32],
    pub rounds: u32,
    /// Rounds that may be run again because other work disturbed them.
    pub repeats: u32,
    pub round_time: Duration,
    pub work: &'m WorkArgs,
    pub output: &'m OutputArgs,
}

/// Decides what requests look like.
///
/// # Errors
/// When a configuration cannot be calibrated.
pub fn planned(session: &mut Session, image: &mut Image, how: &Measure<'_>) -> Result<Plan> {
    let misses_matter = how.configs.iter().any(|c| c.capped());
    let plan = calibrate::calibrate(session, image, how.work, how.round_time, misses_matter)?;
    image.params.zipf = plan.calibration.zipf;
    report::print(how.output, &plan.sentence(&image.label()))?;
    Ok(plan)
}

/// Measures it with requests that are decided.
///
/// # Errors
/// When there is no swap to turn on, or the guarded path cannot be measured.
pub fn measured(session: &mut Session, image: &Image, how: &Measure<'_>, plan: &Plan) -> Result<(Vec<LiveRow>, Ran)> {
    let name = image.label();
    let setups: Vec<Setup> = how
        .configs
        .iter()
        .flat_map(|c| Setup::all(*c, session.flash.workers, how.clusters, how.output.quick))
        .collect();
    let swapped = setups.iter().filter(|w| w.config == Config::OsSwap).count() as u64;
    if swapped > 0 {
        let (scratch, bytes) = (session.scratch.clone(), swap_bytes(image.region_bytes, swapped));
        session.experiment.helper.perform(&Request::SwapOn { scratch, bytes })?;
    }
    let bar = progress::steps(&name, setups.len() as u64 * u64::from(how.rounds + 1));
    let mut patience = Patience::new(session, how.repeats, how.output.quick);
    let ran = rounds::run(session, image, plan, &setups, how.rounds, &mut patience, &bar);
    bar.finish_and_clear();
    let unswapped = if swapped > 0 { session.experiment.helper.perform(&Request::SwapOff) } else { Ok(()) };
    let mut ran = ran?;
    if let Err(e) = unswapped {
        // What was measured before that is what it is.
        ran.failed.push(format!("the swap file cannot be taken out of use: {e:#}"));
    }
    let mut rows = rows(session, &name, plan, &ran.contestants);
    rows.iter_mut().for_each(|row| row.repeated_rounds = ran.repeated);
    rows.iter().flat_map(disturbed).for_each(|sentence| session.note(sentence));
    Ok((rows, ran))
}

/// Throughput round by round as a multiple of the other's.
fn shares(one: &Contestant, other: Option<&Contestant>) -> Vec<f64> {
    let Some(other) = other else { return Vec::new() };
    one.outcomes.iter().zip(&other.outcomes).map(|(a, b)| a.rate() / b.rate()).collect()
}

/// Requests a second of its device in a round. Neighbouring subpages of one request count as one.
fn device_rate(outcome: &Outcome) -> f64 {
    (outcome.read_requests() + outcome.write_requests()) as f64 * 1e9 / outcome.elapsed_ns.max(1) as f64
}

/// Reads and writes a second, round by round, as a share of what fio got right after.
fn shares_of_fio(one: &Contestant) -> Vec<f64> {
    let rounds = one.outcomes.iter().zip(&one.limits);
    rounds.filter_map(|(outcome, limit)| Some(device_rate(outcome) / limit.fio_per_s?)).collect()
}

/// What a device allows, by the yardstick that got more out of it.
fn allowed(limit: &Limit) -> Option<f64> {
    limit.device_per_s.into_iter().chain(limit.fio_per_s).max_by(f64::total_cmp)
}

/// Throughput by round, as a share of the lesser of the device's limit and dram-only's.
fn shares_of_device_limit(one: &Contestant, dram_only: Option<&Contestant>) -> Vec<f64> {
    let share = |round: usize, outcome: &Outcome| {
        let of_device = device_rate(outcome) / allowed(one.limits.get(round)?)?;
        let of_dram = dram_only.and_then(|d| Some(outcome.rate() / d.outcomes.get(round)?.rate()));
        // A share of the lesser of two is the larger of the shares of both.
        Some(of_device.max(of_dram.unwrap_or(0.0)))
    };
    one.outcomes.iter().enumerate().filter_map(|(round, outcome)| share(round, outcome)).collect()
}

/// One row for each configuration: its best setup, where it has several.
fn rows(session: &Session, workload: &str, plan: &Plan, contestants: &[Contestant]) -> Vec<LiveRow> {
    let dram_only = contestants.iter().find(|c| c.setup.config == Config::DramOnly && c.is_main(session.flash.workers));
    let mut rows = Vec::new();
    let setups_of = |config: Config| -> Vec<&Contestant> {
        let main = |c: &&Contestant| c.setup.config == config && c.is_main(session.flash.workers);
        contestants.iter().filter(main).filter(|c| !c.outcomes.is_empty()).collect()
    };
    // The best of those that ran to the end, else of all.
    let best_of = |setups: &[&Contestant]| -> Option<usize> {
        let ended = setups.iter().map(|c| c.outcomes.len()).max().unwrap_or(0);
        let all = (0..setups.len()).filter(|i| setups[*i].outcomes.len() == ended);
        all.max_by(|a, b| setups[*a].rate().total_cmp(&setups[*b].rate()))
    };
    for config in Config::ALL {
        let setups = setups_of(*config);
        let Some(best) = best_of(&setups).map(|i| setups[i]) else { continue };
        let mut row = row(session, workload, plan, best, dram_only);
        let alone = contestants.iter().find(|c| c.setup.config == *config && !c.is_main(session.flash.workers));
        row.speedup_over_one_worker = Spread::of_any(shares(best, alone));
        let over = |paged| {
            let others = setups_of(paged);
            let other = best_of(&others).map(|i| others[i]);
            Spread::of_any(shares(best, other)).filter(|_| config.guarded())
        };
        (row.over_os_swap, row.over_mmap) = (over(Config::OsSwap), over(Config::Mmap));
        if *config == Config::Pool {
            let without = setups_of(Config::PoolUnchecked);
            row.checksums = without.first().and_then(|without| checksums(best, without, dram_only));
        }
        if setups.len() > 1 {
            row.variants = setups.iter().map(|c| variant(c, dram_only)).collect();
        }
        rows.push(row);
    }
    rows
}

/// What checksums take of a pool, round by round, which is the second one without them.
fn checksums(pool: &Contestant, without: &Contestant, dram_only: Option<&Contestant>) -> Option<Checksums> {
    let shares_of = |one| shares(one, dram_only);
    let taken = shares_of(without).into_iter().zip(shares_of(pool)).map(|(without, with)| without - with);
    let more = |of: fn(&Outcome) -> u64| pool.batches().us_per_request(of) - without.batches().us_per_request(of);
    Some(Checksums {
        share_of_dram_only: Spread::of_any(taken)?,
        cpu_us_per_op: more(Outcome::all_cpu_ns),
        device_cpu_us_per_op: more(|o| o.device_cpu_ns),
    })
}

fn variant(one: &Contestant, dram_only: Option<&Contestant>) -> Variant {
    let mut latency = Percentiles::default();
    one.outcomes.iter().for_each(|o| latency.add(&o.latency));
    Variant {
        threads: one.setup.threads,
        page_cluster: one.setup.page_cluster,
        rounds: one.outcomes.len(),
        ops_per_s: one.rate(),
        share_of_dram_only: Spread::of_any(shares(one, dram_only)),
        p99_us: latency.us(99.0),
    }
}

fn row(session: &Session, workload: &str, plan: &Plan, one: &Contestant, dram_only: Option<&Contestant>) -> LiveRow {
    let batches = one.batches();
    let sum = |of: fn(&Outcome) -> u64| batches.sum(of);
    let per = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
    let (requests, misses, accesses) = (sum(|o| o.requests), sum(|o| o.misses), sum(|o| o.accesses));
    let (elapsed_s, reads, writes) = (sum(|o| o.elapsed_ns) / 1e9, sum(|o| o.device_reads), sum(|o| o.device_writes));
    let dram_ns_per_op = dram_only.map_or(0.0, |d| per(1e9 * f64::from(session.flash.workers), d.rate()));
    let mut latency = Percentiles::default();
    one.outcomes.iter().for_each(|o| latency.add(&o.latency));
    let guarded = one.setup.config.guarded();
    let limit = |of: fn(&Limit) -> Option<f64>| Spread::of_any(one.limits.iter().filter_map(of));
    let (device_limit, fio) = (limit(allowed), limit(|l| l.fio_per_s));
    let of_device_limit = Spread::of_any(shares_of_device_limit(one, dram_only));
    let of_fio = Spread::of_any(shares_of_fio(one));
    let nand = one.outcomes.iter().filter_map(|o| o.nand).reduce(NandCounts::and);
    LiveRow {
        workload: workload.to_owned(),
        config: one.setup.config.to_string(),
        flash: one.flash.clone(),
        medium: match session.flash.choice() {
            FlashChoice::Nand(NandChoice::BuiltIn(_)) => format!("{}/{}", session.flash.choice(), session.flash.planes),
            other => other.to_string(),
        },
        media: 1,
        workers: session.flash.workers,
        fibers_or_threads: if guarded { session.flash.fibers as usize } else { one.setup.threads },
        page_cluster: one.setup.page_cluster,
        dram_bytes: one.dram_bytes,
        workload_dram_bytes: one.workload_bytes,
        data_bytes: session.data_bytes,
        rounds: one.outcomes.len(),
        requests: requests as u64,
        ops_per_s: one.rate(),
        device_limit_per_s: device_limit.map(|s| s.median),
        device_limit_spread: device_limit,
        fio_per_s: fio.map(|s| s.median),
        fio_spread: fio,
        share_of_fio: of_fio.map(|s| s.median),
        share_of_fio_spread: of_fio,
        share_of_device_limit: of_device_limit.map(|s| s.median),
        share_of_device_limit_spread: of_device_limit,
        share_of_dram_only: Spread::of_any(shares(one, dram_only)),
        misses_per_s: per(misses, elapsed_s),
        work_us_per_miss: (misses > 0.0).then(|| dram_ns_per_op * requests / 1000.0 / misses),
        accesses_per_miss: (guarded && misses > 0.0).then(|| accesses / misses),
        miss_ratio: (accesses > 0.0).then(|| misses / accesses),
        misses_per_op: per(misses, requests),
        p50_us: latency.us(50.0),
        p99_us: latency.us(99.0),
        p999_us: latency.us(99.9),
        cpu_us_per_op: batches.us_per_request(Outcome::all_cpu_ns),
        device_cpu_us_per_op: batches.us_per_request(|o| o.device_cpu_ns),
        kernel_cpu_us_per_op: batches.kernel_us_per_request(),
        device_reads: reads as u64,
        device_writes: writes as u64,
        device_write_requests: sum(|o| o.device_write_requests) as u64,
        device_read_requests: sum(|o| o.device_read_requests) as u64,
        device_late: sum(|o| o.device_late) as u64,
        device_lateness_us: Spread::of(one.outcomes.iter().map(|o| o.device_lateness_ns as f64 / 1e3)).median,
        device_late_share: per(sum(|o| o.device_late), reads + writes),
        device_lateness_us_max: one.outcomes.iter().map(|o| o.device_lateness_ns_max).max().unwrap_or(0) as f64 / 1e3,
        device_latency_us: (guarded && *session.flash.choice() == FlashChoice::Emulated)
            .then_some(session.flash.read_latency.as_secs_f64() * 1e6),
        taken_share: Spread::of(one.taken.iter().copied()),
        disturbed_rounds: one.taken.iter().filter(|share| **share > disturbance::OF_ROUND).count(),
        wait_share: per(sum(|o| o.wait_ns), sum(|o| o.elapsed_ns) * f64::from(session.flash.workers)),
        work_hash: one.work_hash().map(|hash| format!("{hash:016x}")),
        cgroup_limit_bytes: one.limit_bytes,
        cgroup_peak_bytes: one.peak_bytes,
        calibration: plan.calibration,
        cores: session.cores.clone(),
        nand,
        nand_shape: one.nand,
        blocked_by_reclaim_share: nand.and_then(NandCounts::blocked_share),
        erasing_share: nand.zip(one.nand).map(|(did, shape)| shape.erasing(did.erases, sum(|o| o.elapsed_ns) as u64)),
        device_core: session.device_core.filter(|_| guarded),
        curve: latency.curve(),
        ..LiveRow::default()
    }
}

/// Sentences about other work during a row's rounds: the time it took, and a late device.
fn disturbed(row: &LiveRow) -> Vec<String> {
    let (name, config) = (&row.workload, &row.config);
    let mut sentences = Vec::new();
    if row.disturbed_rounds > 0 {
        let taken = row.taken_share;
        let again = match row.repeated_rounds {
            0 => String::new(),
            1 => ", after one was run again".to_owned(),
            n => format!(", after {n} were run again"),
        };
        sentences.push(format!(
            "{name}, {config}: other work disturbed {} of {} rounds{again}; it took {} of their time ({} to {} by round). Repeat the run \
             on a quiet machine.",
            row.disturbed_rounds,
            row.rounds,
            table::percent(taken.median),
            table::percent(taken.min),
            table::percent(taken.max)
        ));
    }
    let asked_us = row.device_latency_us.unwrap_or(f64::INFINITY);
    if row.device_lateness_us > asked_us * LATE {
        sentences.push(format!(
            "{name}, {config}: the emulated device was late: {} of its completions by more than 5 µs, all by {} µs on average, one by {} µs; \
             {} µs were asked for.",
            table::percent(row.device_late_share),
            table::number(row.device_lateness_us),
            table::number(row.device_lateness_us_max),
            table::number(asked_us)
        ));
    }
    sentences
}

/// From this share of the asked latency on, completions are said to be late.
const LATE: f64 = 0.1;

/// All configurations but the denominator, each on each medium, as they are called.
pub fn labels(rows: &[LiveRow]) -> Vec<String> {
    let configs = Config::ALL.iter().filter(|config| **config != Config::DramOnly);
    let rows = configs.flat_map(|config| rows.iter().filter(|row| row.config == config.name()));
    report::distinct(rows.map(LiveRow::label))
}

/// Bars of shares, and a latency curve for each workload.
pub fn plot(rows: &[LiveRow]) -> String {
    let mut charts = vec![share_bars(rows).draw()];
    for name in names_of(rows) {
        charts.push(latency_curves(rows, &name).draw());
    }
    stack(&charts)
}

fn names_of(rows: &[LiveRow]) -> Vec<String> {
    report::distinct(rows.iter().map(|row| row.workload.clone()))
}

pub fn share_bars(rows: &[LiveRow]) -> Bars {
    let groups = names_of(rows);
    let series = labels(rows);
    let bar = |workload: &String, config: &String| {
        let row = rows.iter().find(|r| r.workload == *workload && r.label() == *config)?;
        let share = row.share_of_dram_only?;
        let tip = format!(
            "{workload}, {config}: {} of dram-only, {} requests/s",
            table::percent(share.median),
            table::number(row.ops_per_s)
        );
        Some(Bar { value: share.median * 100.0, spread: Some((share.min * 100.0, share.max * 100.0)), tip })
    };
    let subtitle = rows.first().map_or(String::new(), |row| {
        let (dram, data) =
            (rows.iter().find(|r| r.config == "fulgurite").map_or(row.dram_bytes, |r| r.dram_bytes), row.data_bytes);
        let every = row
            .calibration
            .miss_every_ns
            .map_or(String::new(), |ns| format!(", a miss every {} µs", ns as f64 / 1000.0));
        format!(
            "{} of data, {} of DRAM{every}; lines: lowest and highest round",
            fulgurite_format::format_bytes(data),
            fulgurite_format::format_bytes(dram)
        )
    });
    Bars {
        title: "Throughput as a share of DRAM-only".to_owned(),
        subtitle,
        unit: "% of dram-only".to_owned(),
        bars: groups.iter().map(|g| series.iter().map(|s| bar(g, s)).collect()).collect(),
        groups,
        series,
        mark: Some((100.0, "dram-only".to_owned())),
    }
}

/// The highest percentile that this number of requests can show: ten of them are above it.
fn highest_percentile(requests: u64) -> f64 {
    100.0 * (1.0 - 10.0 / requests.max(10) as f64)
}

pub fn latency_curves(rows: &[LiveRow], workload: &str) -> Curves {
    let of = |row: &LiveRow| Curve {
        name: row.label(),
        // Beyond it fewer than ten requests decide.
        points: (row.curve.iter().filter(|(p, _)| *p <= highest_percentile(row.requests)))
            .map(|(p, us)| (nines(*p), us.max(0.01)))
            .collect(),
    };
    // The denominator is measured with every medium, but is drawn once.
    let again = |i: usize| rows[..i].iter().any(|old| old.workload == workload && old.label() == rows[i].label());
    let shown = (0..rows.len()).filter(|i| rows[*i].workload == workload && !again(*i));
    let curves = shown.map(|i| of(&rows[i])).collect();
    let (title, y) = (format!("Latency of a request: {workload}"), Axis::logarithmic("µs"));
    Curves { dots: false, ..Curves::new(title, "closed loop, from start to end", percentile_axis(), y, curves) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests, reads and writes in a second for each round, and what the device allowed.
    fn contestant(config: Config, rounds: &[(u64, u64, f64)]) -> Contestant {
        let outcome = |&(requests, device, _): &(u64, u64, f64)| Outcome {
            requests,
            device_reads: device / 2,
            device_writes: device / 2,
            elapsed_ns: 1_000_000_000,
            ..Outcome::default()
        };
        let limit = |&(_, _, allowed): &(u64, u64, f64)| Limit { device_per_s: Some(allowed), fio_per_s: None };
        Contestant {
            name: String::new(),
            setup: Setup { config, threads: 1, page_cluster: None },
            running: None,
            left_out: false,
            taken: Vec::new(),
            outcomes: rounds.iter().map(outcome).collect(),
            request_hash: 0,
            invariant: None,
            peak_bytes: None,
            limits: rounds.iter().map(limit).collect(),
            flash: String::new(),
            nand: None,
            dram_bytes: 0,
            workload_bytes: 0,
            limit_bytes: None,
        }
    }

    #[test]
    fn a_curve_ends_where_its_sample_does() {
        let curve: Vec<(f64, f64)> = [50.0, 90.0, 99.0, 99.9, 99.99].map(|p| (p, p)).to_vec();
        let row = |requests| LiveRow { workload: "tatp".into(), requests, curve: curve.clone(), ..LiveRow::default() };
        let points = |requests| latency_curves(&[row(requests)], "tatp").curves[0].points.len();
        assert_eq!([5, 100, 1000, 10_000, 99_999, 100_000].map(points), [0, 2, 3, 4, 4, 5]);
    }
    #[test]
    fn a_round_is_held_against_what_was_allowed_right_after() {
        let dram_only = contestant(Config::DramOnly, &[(1000, 0, 0.0), (1000, 0, 0.0)]);
        // Each makes two requests to the device, which allows 800 of these a second, and then very
        // many.
        let ours = contestant(Config::Fulgurite, &[(600, 1200, 1600.0), (900, 1800, 9000.0)]);
        assert_eq!(shares_of_device_limit(&ours, Some(&dram_only)), [0.75, 0.9]);
        assert_eq!(shares_of_device_limit(&ours, None), [0.75, 0.2]);
        assert!(shares_of_fio(&ours).is_empty());
    }

    #[test]
    fn checksums_are_what_the_pool_without_them_has_more() {
        let contestant = |config, requests: [u64; 3], cpu_ns| {
            let mut one = contestant(config, &requests.map(|requests| (requests, 0, 0.0)));
            one.outcomes.iter_mut().for_each(|o| o.cpu_ns = cpu_ns * o.requests);
            one
        };
        let dram_only = contestant(Config::DramOnly, [1000, 1000, 2000], 1000);
        let pool = contestant(Config::Pool, [900, 930, 1900], 3000);
        let without = contestant(Config::PoolUnchecked, [920, 920, 1920], 2500);
        let found = checksums(&pool, &without, Some(&dram_only)).unwrap();
        let Spread { median, min, max } = found.share_of_dram_only;
        let in_thousandths = [median, min, max].map(|share| (share * 1000.0).round());
        assert_eq!(in_thousandths, [10.0, -10.0, 20.0]);
        assert!((found.cpu_us_per_op - 0.5).abs() < 1e-9 && found.device_cpu_us_per_op.abs() < 1e-9);
        assert_eq!(checksums(&pool, &without, None), None);
    }
}
