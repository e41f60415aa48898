//! Goal: a core pays at a miss what it is said to pay, once, and its times are what their names
//! say. Method: jobs of fixed spans, for which each number is known exactly: whatever is left out
//! of the model, or is counted twice, moves one of them.

use fulgurite_policy::SchedulingPolicy;
use fulgurite_sim::queue::{Core, CoreReport, Jobs, Misses, Spans};
use fulgurite_sim::{FrontEnd, RunError, Step, Time};

const WORK: Time = Time::us(10);
const FLASH: Time = Time::us(50);

fn core(misses: Misses, between: Option<Time>) -> Core {
    Core { misses, flash: FLASH, miss_cost: Time::us(3), switch_cost: Time::us(2), between, warm_up: 200, jobs: 2000 }
}
fn switch(policy: SchedulingPolicy, threads: usize) -> Misses {
    Misses::Switch { policy, threads }
}
fn run(core: Core) -> CoreReport {
    let jobs = Jobs::new(Spans::Fixed(WORK), Spans::Fixed(WORK), core.threads(), 1);
    core.run(jobs, 1).unwrap()
}
fn is(what: &str, ours: f64, expected: f64) {
    assert!((ours / expected - 1.0).abs() < 0.002, "{what}: {ours} and not {expected}");
}

#[test]
fn a_core_that_stalls_waits_for_all_of_the_flash() {
    let report = run(core(Misses::Stall, None));
    is("computing", report.computing, 10.0 / 63.0);
    is("service", report.service.mean_ns.unwrap().value, 63_000.0);
    assert_eq!(report.misses, 2000);
}
#[test]
fn a_core_that_switches_pays_for_the_miss_and_for_one_switch() {
    for policy in SchedulingPolicy::ALL {
        let report = run(core(switch(policy, 32), None));
        is(policy.name(), report.computing, 10.0 / 15.0);
        is(policy.name(), report.jobs_per_s, 1e6 / 15.0);
    }
}
#[test]
fn too_few_threads_leave_the_core_idle() {
    // Two wait and one runs: each comes to its turn once in its own cycle.
    let report = run(core(switch(SchedulingPolicy::ArrivedFirst, 2), None));
    assert!(report.computing < 0.5, "{}", report.computing);
}
#[test]
fn a_job_alone_takes_its_work_its_miss_and_its_switch() {
    let report = run(core(switch(SchedulingPolicy::PriorityAging, 32), Some(Time::us(2000))));
    let median = report.service.p50_ns.unwrap().value;
    is("service", median, 65_000.0);
    // Nobody is before it.
    is("response", report.response.unwrap().p50_ns.unwrap().value, median);
}
#[test]
fn responses_hold_the_queue_and_services_do_not() {
    let report = run(core(Misses::Stall, Some(Time::us(70))));
    is("service", report.service.mean_ns.unwrap().value, 63_000.0);
    let response = report.response.unwrap().mean_ns.unwrap().value;
    assert!(response > 100_000.0, "{response}");
}
#[test]
fn fifo_never_shrinks_after_a_burst() {
    let queued = |policy| {
        // Misses that cost little, so that a burst of them is under way at once.
        let core = Core { miss_cost: Time::ZERO, switch_cost: Time::ns(100), ..core(switch(policy, 32), None) };
        let source = Jobs::new(Spans::Fixed(WORK), Spans::Fixed(WORK), core.threads(), 1);
        let report = core.run(source.cold_start(Spans::Fixed(Time::ns(500)), Time::us(300)), 1).unwrap();
        report.law.mean_present
    };
    let (fifo, aging) = (queued(SchedulingPolicy::Fifo), queued(SchedulingPolicy::PriorityAging));
    // 50 µs hold five misses of 10 µs, and the burst has filled the queue with 32.
    assert!(fifo > 30.0 && aging < 8.0, "{fifo} {aging}");
}

/// The job of the first thread never ends. The jobs of the others compute.
#[derive(Default)]
struct Endless {
    computed: bool,
}
impl FrontEnd for Endless {
    fn next(&mut self, thread: u32) -> Step {
        if thread == 0 {
            return Step::Miss;
        }
        self.computed = !self.computed;
        if self.computed { Step::Compute(WORK) } else { Step::End }
    }
}
#[test]
fn what_never_ends_is_an_error() {
    // The first thread is inside at all times, and never leaves.
    let core = core(switch(SchedulingPolicy::ArrivedFirst, 2), None);
    let told = core.run(Endless::default(), 1);
    assert!(matches!(told, Err(RunError::Unsteady(_))), "a job that never ends was not noticed: {told:?}");
}
