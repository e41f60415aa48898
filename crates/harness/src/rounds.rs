//! Rounds: all configurations execute the same requests, in an order that rotates.

use anyhow::Result;
use fulgurite_term::progress::ProgressBar;

use crate::Spread;
use crate::calibrate::Plan;
use crate::child::protocol::{Batches, Load, Outcome};
use crate::disturbance::{self, Patience};
use crate::experiment::order;
use crate::image::Image;
use crate::privileged::Request;
use crate::session::{Running, Session, Setup};
use crate::values::Config;
use crate::yardstick::{self, Limit};
use fulgurite_term::interrupt::{ended_early, go_on};
use fulgurite_term::media::NandShape;

/// One configuration, in one of its setups, and what it did.
#[derive(Debug)]
pub struct Contestant {
    /// Of the workload and the setup.
    pub name: String,
    pub setup: Setup,
    pub running: Option<Running>,
    /// A baseline that the kernel killed in its cgroup, as a note says.
    pub left_out: bool,
    /// One for each round that it ran in and that counts.
    pub outcomes: Vec<Outcome>,
    /// The share of its time that other work took from it, in each of these.
    pub taken: Vec<f64>,
    /// Hash of all requests executed, of those that are not measured too.
    pub request_hash: u64,
    pub invariant: Option<u64>,
    pub peak_bytes: Option<u64>,
    /// What its file or device allowed by itself, right after each of these rounds.
    pub limits: Vec<Limit>,
    /// What it runs on, in a line.
    pub flash: String,
    pub nand: Option<NandShape>,
    pub dram_bytes: u64,
    /// Of that, what the workload itself uses.
    pub workload_bytes: u64,
    pub limit_bytes: Option<u64>,
}

/// All that ran, and what went wrong.
#[derive(Debug, Default)]
pub struct Ran {
    /// The contestants, in the order they were named.
    pub contestants: Vec<Contestant>,
    /// Sentences about configurations that failed or disagree.
    pub failed: Vec<String>,
    /// Rounds that other work disturbed and that were run again.
    pub repeated: u32,
    /// Whether somebody pressed Ctrl-C.
    pub interrupted: bool,
}

/// A setup slower than this share of its configuration's best in the first round is dropped.
const WORTH_GOING_ON: f64 = 0.8;

/// Starts everything, runs the warm-up and the rounds, checks the results, ends everything.
///
/// # Errors
/// Only what makes the whole run pointless; the failure of one configuration is in [`Ran::failed`],
/// or in a note if it is a baseline that its cgroup does not hold.
pub fn run(
    session: &mut Session,
    image: &Image,
    plan: &Plan,
    setups: &[Setup],
    rounds: u32,
    patience: &mut Patience,
    bar: &ProgressBar,
) -> Result<Ran> {
    let mut ran = Ran::default();
    let result = run_all(session, image, plan, setups, rounds, patience, bar, &mut ran);
    // Whatever happened: end what runs, keep what was measured.
    for one in &mut ran.contestants {
        end(session, one, &mut ran.failed);
    }
    drop_left_out(&mut ran.contestants);
    ran.interrupted = ended_early(result)?;
    Ok(ran)
}

#[expect(clippy::too_many_arguments, reason = "the run's settings, each used once")]
fn run_all(
    session: &mut Session,
    image: &Image,
    plan: &Plan,
    setups: &[Setup],
    rounds: u32,
    patience: &mut Patience,
    bar: &ProgressBar,
    ran: &mut Ran,
) -> Result<()> {
    for setup in setups {
        bar.set_message(format!("{}: starting", name(*setup)));
        let started = session.spawn(image, *setup);
        let named = format!("{}, {}", image.label(), name(*setup));
        let failed = |e| {
            if !session.experiment.leaves_out(&named, setup.config.paged_by_kernel(), &e) {
                ran.failed.push(format!("{}: {e:#}", name(*setup)));
            }
        };
        let Some(running) = go_on(started, failed)? else { continue };
        ran.contestants.push(Contestant {
            name: named,
            setup: *setup,
            left_out: false,
            outcomes: Vec::new(),
            taken: Vec::new(),
            request_hash: 0,
            invariant: None,
            peak_bytes: None,
            limits: Vec::new(),
            flash: running.opened.flash.clone(),
            nand: running.nand,
            dram_bytes: running.dram_bytes,
            workload_bytes: running.workload_bytes,
            limit_bytes: running.group.limit_bytes,
            running: Some(running),
        });
    }
    let mut first = 0;
    let mut twin = None;
    let mut round = 0;
    while round <= rounds {
        let (warm_up, count) = (round == 0, if round == 0 { plan.warm_up } else { plan.count });
        let mut next = |count| {
            let batch = plan.batch(image.params.seed, first, count, Load::Closed);
            first += count;
            batch
        };
        let lead_in = Some(plan.lead_in).filter(|count| !warm_up && *count > 0).map(&mut next);
        let batch = next(count);
        for turn in order(round, rounds + 1, ran.contestants.len()) {
            let one = &mut ran.contestants[turn];
            let on_file = yardstick::on_file(session, one.setup) && one.is_main(session.flash.workers);
            let Some(running) = &mut one.running else { continue };
            let shown = if warm_up { "warm-up".into() } else { format!("round {round}") };
            bar.set_message(format!("{}, {shown}", name(one.setup)));
            let mut request_hash = 0;
            let led_in = set_page_cluster(session, one.setup).and_then(|()| {
                lead_in.as_ref().map_or(Ok(()), |lead_in| {
                    running.child.run(lead_in).map(|outcome| request_hash = outcome.request_hash)
                })
            });
            let outcome = led_in.and_then(|()| disturbance::run(session, running, &batch));
            let mut failed = None;
            if let Some(outcome) = go_on(outcome, |error| failed = Some(error))? {
                request_hash = outcome.request_hash.wrapping_add(request_hash);
                one.request_hash = one.request_hash.wrapping_add(request_hash);
                if warm_up && on_file && twin.is_none() {
                    let made = yardstick::twin_for(session, image, &outcome);
                    let failed = |e| ran.failed.push(format!("a file for what the device allows: {e:#}"));
                    twin = go_on(made, failed)?.flatten();
                }
                if !warm_up {
                    // What a disturbed attempt left is kept until then, in case of Ctrl-C.
                    let before = round as usize - 1;
                    one.outcomes.truncate(before);
                    one.taken.truncate(before);
                    one.limits.truncate(before);
                    let mut limit = Ok(Limit::default());
                    if on_file {
                        bar.set_message(format!("{}: what the device allows", name(one.setup)));
                        limit = yardstick::measure(session, running, twin.as_ref(), &outcome);
                    }
                    let failed = |e| ran.failed.push(format!("{}, what the device allows: {e:#}", name(one.setup)));
                    one.limits.push(go_on(limit, failed)?.unwrap_or_default());
                    one.taken.push(disturbance::share(&outcome, one.setup.config, session.flash.read_latency));
                    one.outcomes.push(outcome);
                }
            }
            if let Some(error) = failed {
                fail(session, one, &error, &mut ran.failed);
            }
            bar.inc(1);
        }
        let count = ran.contestants.iter().map(|one| one.outcomes.len()).max().unwrap_or(0);
        let disturbed = |one: &Contestant| one.taken.get(count - 1).is_some_and(|share| *share > disturbance::OF_ROUND);
        if !warm_up
            && count > 0
            && ran.contestants.iter().any(disturbed)
            && patience.repeats(|| bar.set_message("waiting for a quiet moment"))?
        {
            // All run again: their requests are the same in each round.
            ran.repeated += 1;
            bar.inc_length(ran.contestants.iter().filter(|one| one.running.is_some()).count() as u64);
            continue;
        }
        if round == 1 {
            let dropped = drop_slow(session, &mut ran.contestants, &mut ran.failed);
            bar.inc(dropped * u64::from(rounds - 1));
        }
        round += 1;
    }
    drop(twin);
    check(session, ran, bar)
}

/// Sets how many pages the kernel swaps at once, for a setup under swap.
fn set_page_cluster(session: &mut Session, setup: Setup) -> Result<()> {
    setup.page_cluster.map_or(Ok(()), |value| session.experiment.helper.perform(&Request::PageCluster { value }))
}

/// Ends a configuration that has failed. Why is known once it has ended.
fn fail(session: &mut Session, one: &mut Contestant, error: &anyhow::Error, failed: &mut Vec<String>) {
    end(session, one, failed);
    if !one.left_out {
        failed.push(format!("{}: {error:#}", name(one.setup)));
    }
}

/// Ends the setups that are clearly slower than another setup of their configuration. Returns how
/// many.
fn drop_slow(session: &mut Session, contestants: &mut [Contestant], failed: &mut Vec<String>) -> u64 {
    let rate = |c: &Contestant| c.outcomes.first().map_or(0.0, Outcome::rate);
    let best =
        |setup: Setup, all: &[Contestant]| all.iter().filter(|c| c.setup.rivals(&setup)).map(rate).fold(0.0, f64::max);
    let mut dropped = 0;
    for i in 0..contestants.len() {
        if rate(&contestants[i]) < best(contestants[i].setup, contestants) * WORTH_GOING_ON
            && contestants[i].running.is_some()
        {
            end(session, &mut contestants[i], failed);
            dropped += 1;
        }
    }
    dropped
}

/// Ends a configuration if it still runs. Notes its highest use, or that it ended badly, which does
/// not affect the others.
fn end(session: &mut Session, one: &mut Contestant, failed: &mut Vec<String>) {
    let Some(running) = one.running.take() else { return };
    match session.end(running) {
        Ok(peak) => one.peak_bytes = peak,
        Err(e) => {
            one.left_out = session.experiment.leaves_out(&one.name, one.setup.config.paged_by_kernel(), &e);
            if !one.left_out {
                failed.push(format!("{e:#}"));
            }
        }
    }
}

/// Drops the setups that are left out. Of their configurations the other setups stay if one of them
/// ran to the end: those that were dropped as slower have no checked result.
fn drop_left_out(contestants: &mut Vec<Contestant>) {
    let configs = |which: fn(&Contestant) -> bool| -> Vec<Config> {
        contestants.iter().filter(|one| which(one)).map(|one| one.setup.config).collect()
    };
    let (left_out, whole) = (configs(|one| one.left_out), configs(|one| !one.left_out && one.invariant.is_some()));
    contestants.retain(|one| {
        let config = one.setup.config;
        !one.left_out && (whole.contains(&config) || !left_out.contains(&config))
    });
}

/// Has everybody check its data, and compares: all have executed the same requests.
fn check(session: &mut Session, ran: &mut Ran, bar: &ProgressBar) -> Result<()> {
    // Of several setups of a configuration the best is reported, so the best is checked.
    for i in 0..ran.contestants.len() {
        let better = |c: &Contestant| c.setup.rivals(&ran.contestants[i].setup) && c.rate() > ran.contestants[i].rate();
        if ran.contestants.iter().any(|c| c.running.is_some() && better(c)) {
            end(session, &mut ran.contestants[i], &mut ran.failed);
        }
    }
    for one in &mut ran.contestants {
        let on_file = yardstick::on_file(session, one.setup);
        let measured = on_file && one.is_main(session.flash.workers);
        let Some(running) = &mut one.running else { continue };
        bar.set_message(format!("{}: checking", name(one.setup)));
        let set = set_page_cluster(session, one.setup);
        let stored = session.is_read_whole(one.setup.config);
        let grows = one.setup.config.paged_by_kernel() || stored || on_file;
        let ready = set.and_then(|()| session.experiment.ran(&mut running.group));
        let ready = ready.and_then(|()| if grows { session.experiment.lift(&running.group) } else { Ok(()) });
        let checked = ready.and_then(|()| running.child.check());
        let mut failed = None;
        one.invariant = go_on(checked, |error| failed = Some(error))?;
        if measured && one.invariant.is_some() {
            bar.set_message(format!("{}: what the device allows", name(one.setup)));
            yardstick::fio_in_the_end(session, running, &one.outcomes, &mut one.limits);
        }
        // What it holds is no longer needed: the next one has the memory.
        match failed {
            Some(error) => fail(session, one, &error, &mut ran.failed),
            None => end(session, one, &mut ran.failed),
        }
    }
    let hashes: Vec<_> = ran.contestants.iter().filter_map(|c| Some((c.setup, c.work_hash()?))).collect();
    if let Some(((reference, expected), rest)) = hashes.split_first() {
        for (setup, hash) in rest.iter().filter(|(_, hash)| hash != expected) {
            ran.failed.push(format!(
                "{} did other work than {}: its work hash is {hash:016x} and not {expected:016x}; the results are not comparable",
                name(*setup),
                name(*reference)
            ));
        }
    }
    Ok(())
}

impl Contestant {
    /// Whether it runs with as many workers as were asked for, and is not the single worker that
    /// runs for comparison.
    pub fn is_main(&self, workers: u32) -> bool {
        self.setup.config.paged_by_kernel() || self.setup.threads == workers as usize
    }
    /// Requests a second, median of the rounds.
    pub fn rate(&self) -> f64 {
        Spread::of(self.outcomes.iter().map(Outcome::rate)).median
    }
    pub fn batches(&self) -> Batches<'_> {
        Batches(self.outcomes.iter().collect())
    }
    /// Hash of the requests executed and of the final invariant, once it was checked.
    pub fn work_hash(&self) -> Option<u64> {
        let invariant = self.invariant?;
        Some(fulgurite_workloads::mix(self.request_hash ^ fulgurite_workloads::mix(invariant)))
    }
}

pub fn name(setup: Setup) -> String {
    match (setup.config.paged_by_kernel(), setup.page_cluster) {
        (false, _) if setup.threads > 1 => format!("{}, {} workers", setup.config, setup.threads),
        (false, _) => setup.config.to_string(),
        (true, None) => format!("{}, {} threads", setup.config, setup.threads),
        (true, Some(cluster)) => format!("{}, {} threads, page-cluster {cluster}", setup.config, setup.threads),
    }
}
