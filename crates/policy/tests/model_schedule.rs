//! Goal: the scheduler runs the fiber its policy names, loses none, keeps the bound of pending
//! fibers, and never waits while something can run, with one fiber as with 10,000. Method: random
//! calls on it and on a model that searches a list, side by side. Then whole workers (jobs that
//! miss at random, flash that answers out of order) driven by a simulated clock to the end of their
//! work.

use std::collections::BTreeMap;

use fulgurite_policy::{Choice, FiberIndex, Point, Scheduler, SchedulingPolicy};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

#[derive(Clone, Copy)]
struct Waiting {
    fiber: u32,
    runnable: bool,
    yielded: bool,
    on_flash: bool,
    request_ns: u64,
    entered_ns: u64,
    /// Order of entry, and the key that orders runnable fibers.
    order: u64,
    key: u64,
}

/// The scheduler's decisions, made by searching.
struct Model {
    policy: SchedulingPolicy,
    bound: usize,
    waiting: Vec<Waiting>,
    largest_key: u64,
    order: u64,
    mean_scaled: u64,
    job_turn: bool,
}

impl Model {
    fn enter(&mut self, fiber: u32, request_ns: u64, now: u64, on_flash: bool) {
        self.order += 1;
        let (order, key) = (self.order, self.order);
        let (runnable, yielded) = (false, false);
        self.waiting.push(Waiting { fiber, runnable, yielded, on_flash, request_ns, entered_ns: now, order, key });
    }

    fn make_runnable(&mut self, fiber: u32, yielded: bool) {
        let alone = !self.waiting.iter().any(|w| w.runnable);
        let waiting = self.waiting.iter_mut().find(|w| w.fiber == fiber).unwrap();
        (waiting.runnable, waiting.yielded) = (true, yielded);
        if self.policy == SchedulingPolicy::ArrivedFirst {
            let behind = if yielded && !alone { self.largest_key } else { 0 };
            waiting.key = waiting.request_ns.max(behind);
        }
        self.largest_key = if alone { waiting.key } else { self.largest_key.max(waiting.key) };
    }

    fn arrived(&mut self, fiber: u32, now: u64) {
        let waiting = self.waiting.iter().find(|w| w.fiber == fiber).unwrap();
        if waiting.on_flash {
            let sample = now - waiting.entered_ns;
            self.mean_scaled =
                if self.mean_scaled == 0 { sample * 16 } else { self.mean_scaled - self.mean_scaled / 16 + sample };
        }
        self.make_runnable(fiber, false);
    }

    fn pick(&mut self, why: Point, now: u64, new_job: bool) -> Choice {
        let first = self.waiting.iter().filter(|w| w.runnable).min_by_key(|w| (w.key, w.order)).copied();
        let job_first = new_job
            && self.waiting.len() < self.bound
            && first.is_none_or(|first| match self.policy {
                SchedulingPolicy::ArrivedFirst => first.yielded && self.job_turn,
                SchedulingPolicy::PriorityAging => now - first.entered_ns <= self.mean_scaled / 16,
                SchedulingPolicy::Fifo => why != Point::Missed,
            });
        if job_first {
            self.job_turn = false;
            return Choice::StartNew;
        }
        self.job_turn = first.is_some_and(|f| f.yielded);
        if let Some(first) = first {
            self.waiting.retain(|w| w.fiber != first.fiber);
            return Choice::Resume(FiberIndex(first.fiber));
        }
        Choice::Wait
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// The n-th fiber that is out misses, blocks or yields. Its request is this old.
    Miss(usize, u64),
    Block(usize, u64),
    Yield(usize, u64),
    /// The n-th pending fiber's data is here.
    Arrive(usize),
    Pick(Point, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let point = prop::sample::select(&[Point::Finished, Point::Missed, Point::Idle][..]);
    prop_oneof![
        4 => (any::<usize>(), 0_u64..40).prop_map(|(n, age)| Step::Miss(n, age)),
        1 => (any::<usize>(), 0_u64..40).prop_map(|(n, age)| Step::Block(n, age)),
        1 => (any::<usize>(), 0_u64..40).prop_map(|(n, age)| Step::Yield(n, age)),
        5 => any::<usize>().prop_map(Step::Arrive),
        5 => (point, any::<bool>()).prop_map(|(why, new_job)| Step::Pick(why, new_job)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn as_the_model(
        policy in prop::sample::select(&SchedulingPolicy::ALL[..]),
        bound in 1_usize..6,
        fibers in 1_u32..10,
        steps in prop::collection::vec((step(), 0_u64..20), 1..300),
    ) {
        let mut scheduler = Scheduler::new(policy, bound, fibers as usize);
        let mut model =
            Model { policy, bound, waiting: Vec::new(), largest_key: 0, order: 0, mean_scaled: 0, job_turn: false };
        let bytes = scheduler.bytes();
        let mut now = 1_000;
        for (step, passed) in steps {
            now += passed;
            let out: Vec<u32> = (0..fibers).filter(|f| !model.waiting.iter().any(|w| w.fiber == *f)).collect();
            let pending: Vec<u32> = model.waiting.iter().filter(|w| !w.runnable).map(|w| w.fiber).collect();
            match step {
                Step::Miss(n, age) if !out.is_empty() => {
                    scheduler.missed(FiberIndex(out[n % out.len()]), now - age, now);
                    model.enter(out[n % out.len()], now - age, now, true);
                }
                Step::Block(n, age) if !out.is_empty() => {
                    scheduler.blocked(FiberIndex(out[n % out.len()]), now - age, now);
                    model.enter(out[n % out.len()], now - age, now, false);
                }
                Step::Yield(n, age) if !out.is_empty() => {
                    scheduler.yielded(FiberIndex(out[n % out.len()]), now - age, now);
                    model.enter(out[n % out.len()], now - age, now, false);
                    model.make_runnable(out[n % out.len()], true);
                }
                Step::Arrive(n) if !pending.is_empty() => {
                    scheduler.arrived(FiberIndex(pending[n % pending.len()]), now);
                    model.arrived(pending[n % pending.len()], now);
                }
                Step::Pick(why, new_job) => {
                    prop_assert_eq!(scheduler.pick(why, now, new_job), model.pick(why, now, new_job));
                }
                _ => {}
            }
            scheduler.check();
            let runnable = model.waiting.iter().filter(|w| w.runnable).count();
            prop_assert_eq!(scheduler.runnable(), runnable);
            prop_assert_eq!(scheduler.has_runnable(), runnable > 0);
            prop_assert_eq!(scheduler.pending(), model.waiting.len() - runnable);
            prop_assert_eq!(scheduler.may_start(), model.waiting.len() < bound);
            prop_assert_eq!(scheduler.flash_mean_ns(), model.mean_scaled / 16);
            prop_assert_eq!(scheduler.bytes(), bytes);
            for fiber in 0..fibers {
                let pending = model.waiting.iter().any(|w| w.fiber == fiber && !w.runnable);
                prop_assert_eq!(scheduler.is_pending(FiberIndex(fiber)), pending);
            }
        }
    }
}

/// A worker of simulated time. Jobs arrive every `gap_ns`, run 10 µs between misses, and miss as
/// `misses(job)` says.
struct Load {
    jobs: usize,
    bound: usize,
    gap_ns: u64,
    flash_ns: fn(u64) -> u64,
    misses: fn(usize) -> usize,
}

#[derive(Default)]
struct Outcome {
    /// From a job's start to its end.
    service_ns: Vec<u64>,
    most_waiting: usize,
}

fn work(policy: SchedulingPolicy, load: &Load) -> Outcome {
    const SLICE_NS: u64 = 10_000;
    let mut scheduler = Scheduler::new(policy, load.bound, load.bound);
    let mut free: Vec<u32> = (0..load.bound as u32).rev().collect();
    let mut flash: BTreeMap<(u64, u32), ()> = BTreeMap::new();
    // Per fiber: job, misses left, start.
    let mut running = vec![(0_usize, 0_usize, 0_u64); load.bound];
    let (mut now, mut started, mut reads, mut why) = (1_u64, 0_usize, 0_u64, Point::Idle);
    let mut outcome = Outcome::default();
    while outcome.service_ns.len() < load.jobs {
        while let Some(entry) = flash.first_entry().filter(|e| e.key().0 <= now) {
            scheduler.arrived(FiberIndex(entry.key().1), now);
            entry.remove();
        }
        let next_job_ns = if started < load.jobs { 1 + started as u64 * load.gap_ns } else { u64::MAX };
        let new_job = next_job_ns <= now;
        let had_runnable = scheduler.has_runnable();
        let fiber = match scheduler.pick(why, now, new_job) {
            Choice::Resume(fiber) => {
                assert!(running[fiber.0 as usize].1 > 0, "fiber {} was not waiting", fiber.0);
                running[fiber.0 as usize].1 -= 1;
                fiber.0
            }
            Choice::StartNew => {
                assert!(new_job);
                let fiber = free.pop().expect("the bound leaves a fiber free");
                running[fiber as usize] = (started, (load.misses)(started), now);
                started += 1;
                fiber
            }
            Choice::Wait => {
                assert!(!had_runnable, "waits while a fiber is runnable");
                assert!(!new_job || !scheduler.may_start(), "waits while a job may start");
                let arrival = flash.first_key_value().map_or(u64::MAX, |((at, _), ())| *at);
                let next = if scheduler.may_start() { arrival.min(next_job_ns) } else { arrival };
                assert!(next != u64::MAX, "nothing will ever happen: a fiber was lost");
                now = next;
                why = Point::Idle;
                continue;
            }
        };
        now += SLICE_NS;
        let (job, misses_left, start) = running[fiber as usize];
        if misses_left == 0 {
            free.push(fiber);
            outcome.service_ns.push(now - start);
            why = Point::Finished;
        } else {
            scheduler.missed(FiberIndex(fiber), 1 + job as u64 * load.gap_ns, now);
            reads += 1;
            flash.insert((now + (load.flash_ns)(reads), fiber), ());
            why = Point::Missed;
        }
        outcome.most_waiting = outcome.most_waiting.max(scheduler.pending() + scheduler.runnable());
    }
    assert_eq!((scheduler.pending(), scheduler.runnable()), (0, 0));
    scheduler.check();
    outcome
}

fn flash_out_of_order(read: u64) -> u64 {
    50_000 + read.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 20_000 + if read.is_multiple_of(97) { 1_000_000 } else { 0 }
}

#[test]
fn every_job_ends_and_pending_stays_bounded() {
    for policy in SchedulingPolicy::ALL {
        for bound in [1, 2, 7, 64] {
            for gap_ns in [0, 15_000, 100_000] {
                let load = Load { jobs: 2_000, bound, gap_ns, flash_ns: flash_out_of_order, misses: |job| job * 7 % 5 };
                let outcome = work(policy, &load);
                assert_eq!(outcome.service_ns.len(), 2_000, "{policy}, bound {bound}");
                assert!(outcome.most_waiting <= bound, "{policy}: {} waited", outcome.most_waiting);
            }
        }
    }
}

#[test]
fn only_fifo_lets_jobs_that_do_not_miss_starve_those_that_do() {
    // AstriFlash section VI-B: a job in 20 misses, once, and new jobs never cease.
    let load = Load {
        jobs: 4_000,
        bound: 32,
        gap_ns: 0,
        flash_ns: |_| 50_000,
        misses: |job| usize::from(job % 20 == 0 && job < 2_000),
    };
    let longest = |policy| work(policy, &load).service_ns.into_iter().max().unwrap();
    // Two slices, the flash time, and the job that happened to run when the data came.
    assert!(longest(SchedulingPolicy::ArrivedFirst) <= 80_000);
    assert!(longest(SchedulingPolicy::PriorityAging) <= 90_000);
    assert!(longest(SchedulingPolicy::Fifo) > 5_000_000);
}

#[test]
fn ten_thousand_fibers() {
    let count = 10_000;
    for policy in SchedulingPolicy::ALL {
        let load = Load { jobs: 30_000, bound: count, gap_ns: 0, flash_ns: |_| 200_000_000, misses: |job| 1 + job % 3 };
        let outcome = work(policy, &load);
        assert_eq!(outcome.service_ns.len(), 30_000);
        assert_eq!(outcome.most_waiting, count, "{policy} fills the bound");
    }
    // Oldest request first, whatever the order of arrival.
    let mut scheduler = Scheduler::new(SchedulingPolicy::ArrivedFirst, count, count);
    let age = |fiber: u32| u64::from(fiber) * 7_919 % count as u64;
    (0..count as u32).for_each(|f| scheduler.missed(FiberIndex(f), age(f), 20_000));
    (0..count as u32).for_each(|f| scheduler.arrived(FiberIndex(f * 3_331 % count as u32), 30_000));
    for expected in 0..count as u64 {
        let Choice::Resume(fiber) = scheduler.pick(Point::Missed, 30_000, true) else { panic!("a fiber is runnable") };
        assert_eq!(age(fiber.0), expected);
    }
}

#[test]
fn a_fiber_that_yields_for_ever_keeps_nobody_out() {
    for policy in SchedulingPolicy::ALL {
        let mut scheduler = Scheduler::new(policy, 4, 4);
        // Fiber 0 yields each time it runs. Fiber 1 arrives once. Jobs are always there and do not
        // miss.
        scheduler.yielded(FiberIndex(0), 1, 10);
        scheduler.missed(FiberIndex(1), 5, 10);
        scheduler.arrived(FiberIndex(1), 20);
        let (mut yields, mut jobs, mut arrived) = (0, 0, 0);
        for now in (20..2_000).step_by(10) {
            // Fifo reads its queue at misses only, so let every other job miss, as it were.
            let why = if now % 20 == 0 { Point::Missed } else { Point::Finished };
            match scheduler.pick(why, now, true) {
                Choice::Resume(FiberIndex(0)) => {
                    yields += 1;
                    scheduler.yielded(FiberIndex(0), 1, now);
                }
                Choice::Resume(_) => arrived += 1,
                Choice::StartNew => jobs += 1,
                other => panic!("{policy}: {other:?}"),
            }
        }
        assert_eq!(arrived, 1, "{policy}");
        assert!(yields > 50 && jobs > 50, "{policy}: {yields} yields, {jobs} jobs");
    }
}

#[test]
fn names_parse_as_printed() {
    for policy in SchedulingPolicy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    assert!("Arrived-First".parse::<SchedulingPolicy>().unwrap_err().to_string().contains("priority-aging"));
}
