//! Goal: a core pays at a miss what its system says, and no thread starves. Method: the same jobs
//! under each system, of which the differences are known; a cache that is too small for its
//! threads; and bugs that are planted.

use fulgurite_sim::Planted;
use fulgurite_sim::cores::{CoresReport, CoresSystem};

use crate::common::cores;

fn run(set: &[(&str, &str)]) -> CoresReport {
    cores(set).run(1).unwrap()
}
fn near(what: &str, ours: f64, theory: f64, share: f64) {
    assert!((ours / theory - 1.0).abs() < share, "{what}: {ours} and not {theory}");
}
/// Nanoseconds of a core for each job.
fn job_ns(report: &CoresReport) -> f64 {
    2.0 * 1e9 / report.jobs_per_s
}
/// Nanoseconds of a core that a miss costs, beside another run.
fn cost_ns(report: &CoresReport, beside: &CoresReport) -> f64 {
    let misses_per_job = job_ns(report) / report.interval_ns.unwrap();
    (job_ns(report) - job_ns(beside)) / misses_per_job
}

#[test]
fn each_system_pays_its_own_at_a_miss() {
    let dram = run(&[("system.paging", "dram-only")]);
    assert_eq!((dram.misses, dram.interval_ns), (0, None));
    let (switch, free) = (run(&[]), run(&[("threads.switch", "0ns")]));
    // More than the switch, and not by far: tags, flush, cold L1.
    let paid = cost_ns(&switch, &dram);
    assert!((300.0..1500.0).contains(&paid), "{paid}");
    near("switch", cost_ns(&switch, &dram) - cost_ns(&free, &dram), 100.0, 0.5);
    // The flash: command, array, bus of 4 KiB at 333 MB/s. The fault and the switch.
    let wait = cost_ns(&run(&[("system.paging", "wait")]), &dram);
    near("wait", wait, 300.0 + 75_000.0 + 12_301.0, 0.05);
    near("system", cost_ns(&run(&[("system.paging", "system")]), &dram), 10_000.0, 0.05);
}
#[test]
fn the_window_hides_what_is_independent() {
    let with = |entries| job_ns(&run(&[("system.paging", "dram-only"), ("core.reorder_buffer", entries)]));
    let (one, usual, large) = (with("1"), with("128"), with("4096"));
    assert!(one > usual * 1.02 && usual >= large, "{one} {usual} {large}");
}
#[test]
fn no_thread_starves_where_pages_go_before_it_runs() {
    // Fewer frames than threads: a page is often gone again when its thread is resumed.
    let report = run(&[("cache.sets", "16"), ("run.jobs", "12000"), ("run.warm_up", "1000")]);
    assert!(report.blocked > 10, "{report:?}");
    assert_eq!(report.service.count, 12_000);
}
#[test]
fn writes_come_back_to_flash() {
    let report = run(&[]);
    assert!(report.written_back > 0 && report.written_back < report.misses, "{report:?}");
}
#[test]
fn planted_bugs_are_found() {
    // A front end so long that its flush is what a miss costs. Tags so long that they are what a
    // hit costs.
    let flush = [("core.front_end", "4000")];
    let tags = [("cache.ways", "64"), ("cache.sets", "512")];
    let planted = |set: &[(&str, &str)], planted| CoresSystem { planted, ..cores(set) }.run(1).unwrap();
    let dram = run(&[("system.paging", "dram-only")]);
    let right = cost_ns(&planted(&flush, Planted::None), &dram);
    near("flush", right - cost_ns(&run(&[]), &dram), 2000.0, 0.1);
    assert!(cost_ns(&planted(&flush, Planted::FreeFlush), &dram) < 2000.0, "FreeFlush was not found");
    let slow = job_ns(&planted(&tags, Planted::None)) / job_ns(&planted(&tags, Planted::FreeTags));
    assert!(slow > 1.02, "FreeTags was not found: {slow}");
}
