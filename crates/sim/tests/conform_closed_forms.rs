//! Goal: queues through the event loop come to what theory says. Method: M/M/1 and M/M/k at several
//! loads with fixed seeds. The mean is compared within 1%, the 99th percentile within 2%, and the
//! intervals must hold the closed form.

use fulgurite_sim::queue::{Core, Jobs, Misses, Servers, Spans};
use fulgurite_sim::{Time, closed_forms};

const SERVICE: Time = Time::us(10);

fn near(what: &str, ours: f64, theory: f64, share: f64) {
    assert!((ours / theory - 1.0).abs() < share, "{what}: {ours} and not {theory}");
}

#[test]
fn servers_of_one_queue_are_m_m_k() {
    for (servers, load) in [(1, 0.5), (2, 0.6), (6, 0.7)] {
        let rate = load * f64::from(servers) / SERVICE.as_ns();
        let between = Time::from_ns(1.0 / rate);
        let report = Servers { servers, service: SERVICE, between, jobs: 700_000 }.run(1).unwrap();
        let what = format!("{servers} servers at {load}");
        let mean = report.response.mean_ns.unwrap();
        let theory = closed_forms::mean_response(servers, SERVICE.as_ns(), rate);
        near(&what, mean.value, theory, 0.01);
        let (low, high) = mean.interval();
        assert!((low..=high).contains(&theory), "{what}: {low} to {high} without {theory}");
        let p99 = report.response.p99_ns.unwrap().value;
        near(&what, p99, closed_forms::response_quantile(servers, SERVICE.as_ns(), rate, 0.99), 0.02);
        near(&what, report.load, load, 0.01);
        assert!(report.law.holds() && report.law.unended.abs() < 0.001, "{:?}", report.law);
    }
}

#[test]
fn a_core_without_misses_is_m_m_1() {
    let load = 0.6;
    let core = Core {
        misses: Misses::Absent,
        flash: Time::us(50),
        miss_cost: Time::us(1),
        switch_cost: Time::us(1),
        between: Some(Time::from_ns(SERVICE.as_ns() / load)),
        warm_up: 10_000,
        jobs: 2_000_000,
    };
    let jobs = Jobs::new(Spans::Exponential(SERVICE), Spans::Exponential(Time::us(20)), core.threads(), 1);
    let report = core.run(jobs, 1).unwrap();
    let response = report.response.unwrap();
    near("mean", response.mean_ns.unwrap().value, SERVICE.as_ns() / (1.0 - load), 0.01);
    let theory = closed_forms::response_quantile(1, SERVICE.as_ns(), load / SERVICE.as_ns(), 0.99);
    near("p99", response.p99_ns.unwrap().value, theory, 0.03);
    near("service", report.service.mean_ns.unwrap().value, SERVICE.as_ns(), 0.01);
    assert_eq!(report.misses, 0);
}
