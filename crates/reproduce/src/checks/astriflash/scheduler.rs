//! A10: the threads' scheduler, compared with what figure 8 says.
//!
//! `policy::Scheduler` is driven by jobs that miss and end at random. It is compared with the queue
//! of figure 8 as a plain list, which says at each decision what has to happen. Where the paper
//! checks the head of its queue alone, the scheduler passes over a head whose data is not here:
//! that is the paper's own remedy for slow reads, the queue of page arrivals (section IV-D-2).

use fulgurite_policy::{Choice, FiberIndex, Point, Scheduler, SchedulingPolicy};
use fulgurite_sim::{Random, Time};

use crate::check::{Finding, Found, Inputs};
use crate::models::Planted;
use crate::units::Dimension;

/// Decisions of a run that is reported, for each bound of the queue.
const DECISIONS: u64 = 400_000;
/// Jobs that miss, of all runs of a thread.
const MISSES: f64 = 0.6;
/// Decisions at which there is no new job.
const NO_JOB: f64 = 0.1;

/// A thread in the queue of figure 8.
#[derive(Clone, Copy)]
struct Waiting {
    thread: u32,
    entered: u64,
    /// When its data is here.
    data: u64,
    /// The scheduler was notified.
    told: bool,
}

/// What was seen.
#[derive(Default)]
struct Seen {
    /// New jobs that should have begun, and those that did not.
    new: (u64, u64),
    /// Heads that had aged, or had no new job to compete with, and those that were not resumed.
    aged: (u64, u64),
    /// Decisions with a full queue and no data, and those that did not wait.
    full: (u64, u64),
    most: usize,
    /// The longest that a thread with data waited beyond the mean flash time.
    overdue_ns: u64,
    /// The longest that a thread ran.
    ran_ns: u64,
    /// Sums of the scheduler's mean flash time and of the decisions.
    mean: (u128, u128),
}

/// Drives a scheduler. Threads run for `work` on average, and flash takes 80 to 120% of `flash`.
fn drive(policy: SchedulingPolicy, bound: usize, work: Time, flash: Time, decisions: u64, seed: u64) -> Seen {
    let mut scheduler = Scheduler::new(policy, bound, bound + 1);
    let mut random = Random::new(seed, 12);
    let mut free: Vec<u32> = (0..=bound as u32).rev().collect();
    let mut queue: Vec<Waiting> = Vec::new();
    let (mut now, mut why, mut seen) = (0_u64, Point::Idle, Seen::default());
    for _ in 0..decisions {
        // In the order of their arrivals, as the hardware tells.
        let mut arrived: Vec<usize> =
            (0..queue.len()).filter(|at| !queue[*at].told && queue[*at].data <= now).collect();
        arrived.sort_by_key(|at| (queue[*at].data, *at));
        for at in arrived {
            queue[at].told = true;
            scheduler.arrived(FiberIndex(queue[at].thread), queue[at].data);
        }
        let new_job = random.unit() >= NO_JOB;
        let mean = scheduler.flash_mean_ns();
        seen.mean = (seen.mean.0 + u128::from(mean), seen.mean.1 + u128::from(mean > 0));
        let first = queue.iter().position(|waiting| waiting.told);
        let is_old = first.is_some_and(|at| now.saturating_sub(queue[at].entered) > mean);
        let may_start = new_job && queue.len() < bound;
        let expected = match first {
            Some(at) if is_old || !may_start => Choice::Resume(FiberIndex(queue[at].thread)),
            _ if may_start => Choice::StartNew,
            _ => Choice::Wait,
        };
        let choice = scheduler.pick(why, now, new_job);
        let differs = u64::from(choice != expected);
        let seen_here = match expected {
            Choice::StartNew => &mut seen.new,
            Choice::Resume(_) => &mut seen.aged,
            Choice::Wait => &mut seen.full,
        };
        *seen_here = (seen_here.0 + 1, seen_here.1 + differs);
        let thread = match choice {
            Choice::Wait => {
                // Until something arrives, or a job.
                let data = queue.iter().filter(|waiting| !waiting.told).map(|waiting| waiting.data).min();
                now = data.unwrap_or(now + 1).max(now + 1);
                why = Point::Idle;
                continue;
            }
            Choice::Resume(FiberIndex(thread)) => {
                let at = queue.iter().position(|waiting| waiting.thread == thread).expect("it waits");
                let waited = queue.remove(at);
                let due = waited.data.max(waited.entered + mean);
                seen.overdue_ns = seen.overdue_ns.max(now.saturating_sub(due));
                thread
            }
            Choice::StartNew => free.pop().expect("there are more threads than may wait"),
        };
        let ran = random.exponential(work).whole_ns();
        (now, seen.ran_ns) = (now + ran, seen.ran_ns.max(ran));
        why = if random.unit() < MISSES { Point::Missed } else { Point::Finished };
        if why == Point::Missed {
            scheduler.missed(FiberIndex(thread), now, now);
            let takes = random.uniform(Time(flash.0 * 4 / 5), Time(flash.0 * 6 / 5)).whole_ns();
            queue.push(Waiting { thread, entered: now, data: now + takes, told: false });
            seen.most = seen.most.max(queue.len());
        } else {
            free.push(thread);
        }
        scheduler.check();
    }
    seen
}

pub fn run(inputs: &Inputs<'_>) -> Found {
    let (work, flash) = (inputs.time("miss.interval")?, inputs.time("flash.read")?);
    let planted = inputs.planted == Some(Planted::NoAging);
    let policy = if planted { SchedulingPolicy::Fifo } else { SchedulingPolicy::PriorityAging };
    let decisions = inputs.volume(DECISIONS).max(20_000);
    let mut bounds = vec![inputs.count("threads.of_core")? as f64];
    bounds.extend(inputs.numbers("threads.also", Dimension::Count)?);
    let mut all = Seen::default();
    let (mut exceeded, mut overdue) = (0, 0.0_f64);
    for bound in bounds {
        let bound = (bound as usize).max(1);
        // At a fifth of the work the queue is full, which at the paper's it is not.
        for work in [work, Time(work.0 / 5), Time(work.0 / 50)] {
            let seen = drive(policy, bound, work, flash, decisions, inputs.seed);
            let add = |a: (u64, u64), b: (u64, u64)| (a.0 + b.0, a.1 + b.1);
            (all.new, all.aged, all.full) =
                (add(all.new, seen.new), add(all.aged, seen.aged), add(all.full, seen.full));
            all.mean = (all.mean.0 + seen.mean.0, all.mean.1 + seen.mean.1);
            exceeded += seen.most.saturating_sub(bound);
            all.most = all.most.max(seen.most);
            overdue = overdue.max(seen.overdue_ns as f64 / (bound as f64 * seen.ran_ns as f64));
        }
    }
    let mean = all.mean.0 as f64 / all.mean.1.max(1) as f64 / flash.as_ns();
    Ok(vec![
        Finding::of("new-first", "new jobs have priority 2, pending ones 1")
            .within(all.new.1 as f64, "decisions differ from figure 8", (0.0, 0.0))
            .by("policy::Scheduler beside a plain queue: a new job, while no thread with data has aged")
            .also("of", all.new.0 as f64),
        Finding::of("aged-first", "the pending head runs once older than the mean flash time")
            .within(all.aged.1 as f64, "decisions differ from figure 8", (0.0, 0.0))
            .by("the first of the queue whose data is here; the paper's queue of page arrivals tells which")
            .also("of", all.aged.0 as f64),
        Finding::of("bounded", "the pending queue's size is limited")
            .within(exceeded as f64, "threads beyond 32, 48 and 64", (0.0, 0.0))
            .by("misses at ten times the paper's rate fill the queue; no job begins then")
            .also("most that waited", all.most as f64),
        Finding::of("full", "once it is full, the scheduler waits for flash")
            .within(all.full.1 as f64, "decisions differ from figure 8", (0.0, 0.0))
            .by("for the first read that ends: the oldest may wait for a thread behind it")
            .also("of", all.full.0 as f64),
        Finding::of("mean", "the average flash response time")
            .within(mean, "of the mean of all reads", (0.98, 1.02))
            .by("the scheduler's moving mean over about 16 arrivals, averaged"),
        Finding::of("starvation", "aging prevents starvation")
            .trend(overdue <= 1.0, overdue, "of one run of each thread, the longest wait of a thread that had aged")
            .by("a thread that has aged waits for those before it in the queue only"),
    ])
}
