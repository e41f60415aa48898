//! Goal: a worker pays what its system says, and predictions come out of costs and workloads alone.
//! Method: systems in which one cost decides, for each of which there is a closed form; kernel
//! paging as another set of costs; the data's own limits; bugs that are planted.

use fulgurite_sim::Planted;
use fulgurite_sim::workers::{WorkersReport, WorkersSystem};

use crate::common::workers;
use crate::own_policy;

fn run(set: &[(&str, &str)]) -> WorkersReport {
    workers(set).run(1).unwrap()
}
fn is_near(what: &str, ours: f64, theory: f64, share: f64) -> Result<(), String> {
    if (ours / theory - 1.0).abs() < share { Ok(()) } else { Err(format!("{what}: {ours} and not {theory}")) }
}
fn near(what: &str, ours: f64, theory: f64, share: f64) {
    assert_eq!(is_near(what, ours, theory, share), Ok(()));
}
/// Nothing costs anything but a miss.
const FREE: [(&str, &str); 4] =
    [("costs.request", "0ns"), ("costs.hit", "0ns"), ("costs.far_hit", "0ns"), ("costs.write_back", "0ns")];
fn free(more: &[(&str, &str)]) -> WorkersReport {
    free_with(more, Planted::None)
}
fn free_with(more: &[(&str, &str)], planted: Planted) -> WorkersReport {
    WorkersSystem { planted, ..workers(&[&FREE[..], more].concat()) }.run(1).unwrap()
}

#[test]
fn a_miss_alone_costs_what_the_simple_prediction_says() {
    for every in ["5us", "10us"] {
        let report = free(&[("workload.time", every)]);
        near("share", report.share_of_dram_only, report.simple_share.unwrap(), 0.003);
        assert!(report.spent.waiting < 0.003, "{report:?}");
        // The measurement misses about as often as the warm-up.
        let asked = if every == "5us" { 5000.0 } else { 10_000.0 };
        near("between misses", report.work_ns_per_miss.unwrap(), asked, 0.1);
    }
}
#[test]
fn each_cost_takes_its_share() {
    let report = run(&[]);
    let sum = report.spent.computing
        + report.spent.requests
        + report.spent.hits
        + report.spent.misses
        + report.spent.write_backs
        + report.spent.waiting;
    near("sum", sum, 1.0, 1e-9);
    near("computing", report.spent.computing, report.share_of_dram_only, 0.01);
    assert!(report.share_of_dram_only < report.simple_share.unwrap(), "hits and write-backs cost something");
    // Hits by their number.
    let far = report.far_share.unwrap();
    let accesses = report.accesses_per_miss.unwrap() * report.misses_per_request;
    let hit_ns = (1.0 - far) * 1.0 + far * 15.0;
    let hits = (accesses - report.misses_per_request) * hit_ns * report.requests_per_s / 1e9;
    near("hits", report.spent.hits, hits, 0.01);
    assert!(report.spent.write_backs > 0.0 && far > 0.0 && far < 1.0, "{report:?}");
    // A miss's stages are its cost, the device, and other fibers.
    let stages = report.miss_stages.unwrap();
    let of = |name: &str| stages.stages.iter().find(|stage| stage.name == name).unwrap().mean_ns;
    assert!(of("device") > 40_000.0 && of("CPU of the miss") > 350.0 && of("until it runs") > 0.0, "{stages:?}");
}
#[test]
fn one_fiber_waits_for_each_miss() {
    // Flash-Sync: the device's time is on the way.
    let report = free(&[("threads.count", "1"), ("workload.time", "10us"), ("device.planes", "65536")]);
    let waits = 1.0 - 10.0 / (10.0 + 0.391 + 50.0);
    // One more fiber runs while one waits, so that half of a wait is hidden.
    assert!(report.spent.waiting > waits * 0.4 && report.spent.waiting < waits, "{report:?}");
}
#[test]
fn a_slow_device_decides() {
    // 50,000 reads a second, and 100,000 are asked for.
    let report = free(&[("device.read_gap", "20us"), ("workload.time", "10us"), ("dram.writes", "dirty")]);
    near("reads", report.device_reads_per_s, 50_000.0, 0.02);
    assert!(report.spent.waiting > 0.4, "{report:?}");
}
#[test]
fn kernel_paging_is_another_set_of_costs() {
    let set = [
        ("workload.name", "gups"),
        ("threads.count", "8"),
        ("dram.replacement", "lru"),
        ("dram.writes", "all"),
        ("costs.miss", "10us"),
        ("costs.join", "10us"),
        ("device.planes", "65536"),
    ];
    let report = free(&set);
    near("half of the time", report.share_of_dram_only, 0.5, 0.05);
    // Clean victims are written, too.
    near("writes", report.device_writes_per_s, report.device_reads_per_s, 0.02);
    // A cluster brings neighbours, which others than their own miss do not want here.
    let around =
        free(&[&set[..], &[("dram.read_around", "4"), ("dram.frames", "2400"), ("workload.data", "32M")]].concat());
    assert!(
        around.misses_per_request > 0.0 && around.device_writes_per_s > 2.0 * around.device_reads_per_s,
        "{around:?}"
    );
}
#[test]
fn policies_decide_as_they_do_in_the_runtime() {
    let misses = |policy| run(&[("dram.replacement", policy)]).misses_per_request;
    assert!(misses("s3-fifo") < misses("clock"), "S3-FIFO has fewer misses on Zipf keys");
}
#[test]
fn a_policy_of_your_own_runs_next_to_the_built_in_ones() {
    let all = own_policy::compare(&workers(&[("run.warm_up", "4000"), ("run.requests", "4000")])).unwrap();
    let of = |name: &str| all.iter().find(|(other, _)| *other == name).unwrap().1;
    // First in, first out: it does not see touches, which those do.
    assert!(of("own") > of("clock") && of("own") > of("s3-fifo") && of("lru") > 0.0, "{all:?}");
}
#[test]
fn prefetch_is_the_runtimes() {
    let with =
        |prefetch| run(&[("workload.name", "mmap-bench"), ("workload.exponent", "0.0"), ("dram.prefetch", prefetch)]);
    let (off, next, runs) = (with("off"), with("next-4"), with("4"));
    assert_eq!((off.prefetched_per_request, off.wasted_share), (0.0, None));
    // Uniform places: four for each miss, in vain but for chance. No runs, so none of the other
    // kind.
    near("prefetched", next.prefetched_per_request / next.misses_per_request, 4.0, 0.2);
    assert!(next.wasted_share.unwrap() > 0.7 && runs.prefetched_per_request < 0.1, "{next:?}");
    assert!(next.device_reads_per_s > off.device_reads_per_s * 2.0);
}
#[test]
fn the_device_does_what_the_cache_asks_for() {
    for prefetch in ["off", "adaptive", "next-4"] {
        let report = run(&[("dram.prefetch", prefetch)]);
        let frames = report.frames;
        let ended = report.misses_per_request * 10_000.0;
        near("misses", (frames.misses + frames.joined) as f64, ended, 1e-9);
        // What is under way at both ends is a few of thousands.
        let reads = report.device_reads_per_s * report.simulated_s;
        near("reads", reads, (frames.misses + frames.prefetched) as f64, 0.01);
        near("writes", report.device_writes_per_s * report.simulated_s, frames.evicted_dirty as f64, 0.01);
        // Frames are full, so as many go as come. A few are wanted again while they are written,
        // and come back without a read.
        let gone = (frames.evicted_clean + frames.evicted_dirty) as f64;
        near("victims", gone, reads, 0.03);
        assert!(frames.evicted_dirty > 0 && frames.frame_waits == 0, "{frames:?}");
    }
}
#[test]
fn where_writes_are_slow_accesses_wait_for_frames() {
    // One plane writes 1,000 subpages a second, and frames are all dirty.
    let set = [("workload.name", "gups"), ("device.write", "1ms"), ("device.planes", "1"), ("dram.writes", "all")];
    let report = free(&[&set[..], &[("run.requests", "3000")]].concat());
    assert!(report.frames.frame_waits > 0 && report.spent.waiting > 0.9, "{report:?}");
    near("writes", report.device_writes_per_s, 950.0, 0.1);
}
#[test]
fn without_misses_nothing_is_made_up() {
    let few = [("workload.exponent", "0.0"), ("workload.computing", "request"), ("run.warm_up", "30000")];
    let all = run(&[&few[..], &[("dram.frames", "3000")]].concat());
    assert!(all.warnings.iter().any(|warning| warning.contains("no miss")), "{:?}", all.warnings);
    assert_eq!((all.simple_share, all.accesses_per_miss, all.joined_share), (None, None, None));
    assert!(all.miss_stages.is_none() && all.spent.waiting.abs() < 1e-9, "{all:?}");
}

/// W / (W + o) where nothing else costs anything.
fn a_miss_costs(planted: Planted) -> Result<(), String> {
    let report = free_with(&[], planted);
    is_near("share", report.share_of_dram_only, report.simple_share.unwrap(), 0.003)
}
/// 300 frames' words do not fit into caches for 64.
fn hits_are_far(planted: Planted) -> Result<(), String> {
    let far = free_with(&[], planted).far_share.unwrap();
    if far > 0.01 { Ok(()) } else { Err(format!("{far} of the hits are far")) }
}
/// One plane serves one read in 50 us, and five are asked for.
fn a_plane_serves_one(planted: Planted) -> Result<(), String> {
    // Of read-only work: what is written takes twice as long.
    let set = [("workload.name", "mmap-bench"), ("device.planes", "1"), ("dram.writes", "dirty")];
    let report = free_with(&set, planted);
    is_near("reads", report.device_reads_per_s, 20_000.0, 0.02)
}
/// Swap writes what it evicts: as much as it reads.
fn writes_what_it_evicts(planted: Planted) -> Result<(), String> {
    let report = free_with(&[("workload.name", "gups"), ("dram.writes", "all")], planted);
    is_near("writes", report.device_writes_per_s, report.device_reads_per_s, 0.02)
}
/// Four more for each miss of uniform accesses.
fn reads_the_next(planted: Planted) -> Result<(), String> {
    let set = [("workload.name", "mmap-bench"), ("workload.exponent", "0.0"), ("dram.prefetch", "next-4")];
    let report = free_with(&set, planted);
    is_near("prefetched", report.prefetched_per_request / report.misses_per_request, 4.0, 0.2)
}

type Form = fn(Planted) -> Result<(), String>;
const FORMS: [(Planted, Form); 5] = [
    (Planted::FreeMiss, a_miss_costs),
    (Planted::AllNear, hits_are_far),
    (Planted::EndlessPlanes, a_plane_serves_one),
    (Planted::LostWriteBack, writes_what_it_evicts),
    (Planted::LostReadAhead, reads_the_next),
];

#[test]
fn what_parts_cost_holds_and_planted_bugs_are_found() {
    for (bug, form) in FORMS {
        assert_eq!(form(Planted::None), Ok(()), "without {bug:?}");
        assert!(form(bug).is_err(), "{bug:?} was not found");
    }
}
