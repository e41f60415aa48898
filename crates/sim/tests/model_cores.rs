//! Goal: a core pays at a miss what its system says, and no thread starves. Method: the same jobs
//! under each system, of which the differences are known; a cache that is too small for its
//! threads; and bugs that are planted.

use fulgurite_sim::cores::{CoresReport, CoresSystem, Front};
use fulgurite_sim::{Planted, RunError};

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
/// Nanoseconds of a core that a miss costs, compared with another run.
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
fn the_stages_of_a_miss_are_its_costs() {
    let of = |paging: &str| {
        let split = run(&[("system.paging", paging)]).miss_stages.unwrap();
        let times: Vec<f64> = split.stages.iter().map(|stage| stage.mean_ns).collect();
        near("sum", times.iter().sum(), split.mean_ns, 1e-9);
        times
    };
    // The flash: command, array, bus. A switch, where the thread before has missed.
    let flash = 300.0 + 75_000.0 + 12_301.0;
    let switch = of("switch");
    assert!(switch[0] < 1000.0 && switch[1] > flash * 0.9 && switch[3] <= 100.0 && switch[3] > 1.0, "{switch:?}");
    let system = of("system");
    assert!(system[0] > 5000.0 && system[0] < 6000.0 && system[3] > 100.0, "{system:?}");
    let wait = of("wait");
    assert!(wait[1] >= flash * 0.95 && wait[2] == 0.0 && wait[3] == 0.0, "{wait:?}");
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
    let set = [("cache.sets", "16"), ("run.jobs", "12000"), ("run.warm_up", "1000")];
    let report = run(&set);
    assert!(report.blocked > 10, "{report:?}");
    assert_eq!(report.service.count, 12_000);
    // None is switched out again before it has retired an instruction.
    assert!(report.resumed > 5_000 && report.switched_again == 0, "{report:?}");
    // Without the bit, threads of one set evict each other's pages for ever.
    let without = CoresSystem { planted: Planted::NoForwardProgress, ..cores(&set) }.run(1);
    assert!(matches!(without, Err(RunError::Livelock { .. })), "NoForwardProgress was not found: {without:?}");
}
#[test]
fn a_miss_has_its_parts() {
    let cost = run(&[]).miss_cost.unwrap();
    near("switch", cost.switch_ns, 100.0, 0.001);
    // 13 cycles of the front end.
    near("flush", cost.flush_ns, 6.5, 0.01);
    // The tags' row and column and two commands are 81 cycles. In addition there are L1, LLC and
    // the mesh.
    assert!((45.0..120.0).contains(&cost.signal_ns), "{cost:?}");
    let system = run(&[("system.paging", "system")]).miss_cost.unwrap();
    near("fault", system.flush_ns, 5000.0, 0.001);
    assert_eq!(run(&[("system.paging", "wait")]).miss_cost, None);
}
#[test]
fn walks_miss_where_tables_are_in_flash() {
    let dram = run(&[]);
    // 64 blocks of 8 leaves each: few pages, which are touched by every miss of the TLB.
    let cached = run(&[("dram.tables", "cached")]);
    let near_all = cached.misses as f64 / dram.misses as f64;
    assert!((0.97..1.2).contains(&near_all), "{near_all}");
    assert!(dram.table_misses == 0 && cached.table_misses < cached.misses / 10, "{cached:?}");
    // A DRAM of a few pages loses them, too: then a miss is nearly two.
    let small = "64";
    let [flat, both] = ["flat", "cached"].map(|tables| {
        let report = run(&[("cache.sets", small), ("dram.tables", tables)]);
        (report.misses, report.table_misses)
    });
    assert_eq!(flat.1, 0);
    assert!(both.1 > 1_000 && both.1 < both.0, "{both:?} {flat:?}");
}
#[test]
fn writes_come_back_to_flash() {
    let report = run(&[]);
    assert!(report.written_back > 0 && report.written_back < report.misses, "{report:?}");
}
#[test]
fn energy_is_that_of_the_pages_that_miss_and_leave() {
    let report = run(&[("system.paging", "wait")]);
    let (reads, writes) = ((report.misses - report.duplicates) as f64, report.written_back as f64);
    let transfer = 4096.0 * 75e-12;
    // An erase for 256 pages, and what reclaim moves.
    let pages = reads * (1.5e-6 + transfer) + writes * (36e-6 + transfer);
    let energy = report.energy_j.unwrap();
    assert!(energy > pages * 0.98 && energy < pages * 1.1, "{energy} and not {pages}");
    near("power", report.power_w.unwrap() * report.simulated_s, energy, 1e-9);
    // 64 MiB, of which lines go to the chip, and which pages come to and leave.
    near("standby", report.dram.standby_w, 0.060 / 16.0, 1e-9);
    let lines = report.memory_accesses_per_job * 20_000.0 - report.misses as f64;
    let moved = lines * 64.0 + (reads + writes) * 4096.0;
    near("bus", report.dram.access_w * report.simulated_s, moved * 500e-12, 0.01);
    let dram = run(&[("system.paging", "dram-only")]);
    assert_eq!((dram.energy_j, dram.power_w), (None, None));
    near("128 MiB", dram.dram.standby_w, 0.060 / 8.0, 1e-9);
    near("its bus", dram.dram.access_w * dram.simulated_s, dram.memory_accesses_per_job * 20_000.0 * 32e-9, 0.01);
    // Tags are read with each line.
    let (tagged, plain) = (run(&[]).dram.access_w, report.dram.access_w);
    assert!(tagged > plain, "{tagged} {plain}");
}
#[test]
fn planted_bugs_are_found() {
    // A front end so slow that its flush is what a miss costs. Tags so slow that they are what a
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
    // Rows that take 10 us to open: a miss opens its set's row and its status row.
    let rows = [("dram.open", "20000"), ("run.jobs", "4000"), ("run.warm_up", "1000")];
    let until_flash_ns = |bug| {
        let stages = planted(&rows, bug).miss_stages.unwrap().stages;
        stages[0].mean_ns + stages[1].mean_ns
    };
    let two = until_flash_ns(Planted::None) - until_flash_ns(Planted::OneRowMiss);
    assert!(two > 5000.0, "OneRowMiss was not found: {two}");
}
#[test]
fn a_lost_event_is_an_error() {
    for paging in ["switch", "system", "wait"] {
        let lost = CoresSystem { planted: Planted::LostArrival, ..cores(&[("system.paging", paging)]) }.run(1);
        assert!(matches!(lost, Err(RunError::Stalled)), "LostArrival was not found: {lost:?}");
    }
}
/// Throughput of AstriFlash as a share of DRAM-only, and its time between misses.
fn share(set: &[(&str, &str)], front: &Front) -> (f64, f64) {
    let of = |paging| cores(&[&[("system.paging", paging)], set].concat()).run_with(1, front, false).unwrap();
    let switch = of("switch");
    (switch.jobs_per_s / of("dram-only").jobs_per_s, switch.interval_ns.unwrap())
}
#[test]
fn executed_and_modelled_workloads_agree() {
    // DRAM is so large that the flash has time for what is written back: where reads wait for that,
    // the flash decides. Silo differs by more (docs/status.md). A job of the red-black tree has
    // four records, and its requests are long.
    let (many, some, few) = (("1000", "16000"), ("1000", "8000"), ("500", "4000"));
    for (name, exponent, sets, (warm_up, jobs)) in [
        ("array-swap", "1.2", "1024", many),
        ("rbt", "1.2", "1024", few),
        ("hash-table", "1.2", "1024", many),
        ("hash-table", "1.3", "1024", many),
        ("tatp", "1.2", "400", many),
        ("tpcc", "1.2", "1024", few),
        ("masstree", "1.2", "1024", some),
    ] {
        let set = [
            ("workload.name", name),
            ("workload.data", "32M"),
            ("workload.exponent", exponent),
            ("cache.sets", sets),
            ("run.warm_up", warm_up),
            ("run.jobs", jobs),
        ];
        let (modelled, interval) = share(&set, &Front::Modelled);
        // As much computing between accesses as gives the same time between misses.
        let try_with = |instructions| share(&set, &Front::Executed { instructions, own: 8 });
        let (_, first) = try_with(20_000);
        let (executed, reached) = try_with((20_000.0 * interval / first) as u32);
        near("interval", reached, interval, 0.2);
        assert!((modelled - executed).abs() < 0.01, "{name}: {modelled} and {executed}, a miss every {interval} ns");
    }
}
