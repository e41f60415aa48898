//! Goal: the path of memory comes to what its parts say, in the configurations that stand for other
//! simulators. Method: the files in `systems`, in which one part decides at a time, each with its
//! closed form, within 1%. Bugs are planted, each of which a form finds.

use std::path::Path;

use fulgurite_sim::Planted;
use fulgurite_sim::path::{PathReport, PathSystem};
use fulgurite_sim::system::Document;

fn run(file: &str, set: &[(&str, &str)]) -> PathReport {
    run_with(file, set, Planted::None)
}
fn run_with(file: &str, set: &[(&str, &str)], planted: Planted) -> PathReport {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    // What arrivals read is another key then.
    let poisson = set.contains(&("requests.arrivals", "poisson"));
    let text = if poisson { text.replace("depth = 1\n", "between = \"200us\"\n") } else { text };
    let short = [("requests.warm_up", "1000"), ("requests.count", "20000")];
    let set: Vec<(String, String)> =
        short.iter().chain(set).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let system = PathSystem::read(&Document::read(file, &text, &set).unwrap(), None).unwrap();
    PathSystem { planted, ..system }.run(1).unwrap()
}
fn is_near(what: &str, ours: f64, theory: f64) -> Result<(), String> {
    if (ours / theory - 1.0).abs() < 0.01 { Ok(()) } else { Err(format!("{what}: {ours} and not {theory}")) }
}
fn near(what: &str, ours: f64, theory: f64) {
    assert_eq!(is_near(what, ours, theory), Ok(()));
}
fn mean(report: &PathReport) -> f64 {
    report.reads.mean_ns.unwrap().value
}

const DRAM: &str = "compat-dramsim3.toml";
/// In nanoseconds, of DDR4-2400: 16 cycles each, a burst of 4, refresh.
const STEP: f64 = 13.328;
const BURST: f64 = 3.332;
const ACTIVE: f64 = 32.487;
const REFRESH: (f64, f64) = (349.86, 7800.212);
const WITHOUT_REFRESH: (&str, &str) = ("dram.refresh_every", "0ns");

#[test]
fn rows_that_hit_miss_and_conflict() {
    // One line after the other: the open row, but for the first of its 128 lines.
    let hits = run(DRAM, &[WITHOUT_REFRESH, ("requests.pattern", "sequential")]);
    near("hits", mean(&hits), STEP + BURST + 2.0 * STEP / 128.0);
    near("their share", hits.row_hits.unwrap(), 127.0 / 128.0);
    // At random: nearly always another row of one of 16 banks, which has been open for long.
    let conflicts = run(DRAM, &[WITHOUT_REFRESH]);
    near("conflicts", mean(&conflicts), 3.0 * STEP + BURST);
    assert!(conflicts.row_conflicts.unwrap() > 0.99, "{conflicts:?}");
    // Refreshed after each: no row is open.
    let closed = run(DRAM, &[("requests.arrivals", "poisson"), ("requests.count", "300000")]);
    assert!(closed.row_misses.unwrap() > 0.99, "{closed:?}");
    // One that comes during a refresh waits for half of it on average.
    let waits = REFRESH.0 * REFRESH.0 / 2.0 / REFRESH.1;
    // One whose row is being opened then has it closed again.
    let again = STEP / REFRESH.1 * (ACTIVE + STEP + REFRESH.0);
    near("closed", mean(&closed), 2.0 * STEP + BURST + waits + again);
}
#[test]
fn one_row_of_a_bank_is_open_for_tras_at_the_least() {
    // One bank, one request at a time: closed, opened, read, as fast as tRAS and tRP let it.
    let set = [WITHOUT_REFRESH, ("dram.banks", "1"), ("dram.active", "60ns")];
    near("tRC", 1e9 / run(DRAM, &set).requests_per_s, 60.0 + STEP);
}
#[test]
fn the_data_bus_and_refresh_decide() {
    let streams = [("requests.pattern", "sequential"), ("requests.depth", "64")];
    let all = run(DRAM, &[&streams[..], &[WITHOUT_REFRESH]].concat());
    near("bandwidth", all.bytes_per_s, 64e9 / BURST);
    near("busy", all.bus_busy, 1.0);
    // A refresh takes its time, closes the rows, and one is opened again.
    let refreshed = run(DRAM, &streams);
    let lost = (REFRESH.0 + 2.0 * STEP) / REFRESH.1;
    near("with refresh", refreshed.bytes_per_s, 64e9 / BURST * (1.0 - lost));
    assert!(refreshed.refreshes > 5);
}
#[test]
fn channels_multiply() {
    let of = |channels| {
        run(DRAM, &[("requests.depth", "256"), ("dram.channels", channels), ("requests.pattern", "sequential")])
    };
    near("four channels", of("4").bytes_per_s, of("1").bytes_per_s * 4.0);
}
#[test]
fn deeper_queues_find_more_open_rows() {
    // Two streams, each of its own rows: served first come, first served, they close each other's.
    let of =
        |queue| run(DRAM, &[WITHOUT_REFRESH, ("dram.queue", queue), ("requests.depth", "64"), ("dram.banks", "2")]);
    assert!(of("16").requests_per_s > of("1").requests_per_s * 1.3);
}

const HYBRID: &str = "compat-hybridsim.toml";
const ALONE: [(&str, &str); 3] = [("requests.depth", "1"), ("requests.reads", "100%"), ("dram.refresh_every", "0ns")];
/// A hit in nanoseconds. Each page shares a row with one that is not its neighbour, so that each of
/// its 64 lines has a part in closing and opening one. The link takes 64 ps.
const LINE: f64 = 3.0 + 13.5 + 6.0 + 2.0 * 13.5 / 64.0 + 0.064;

#[test]
fn a_cache_of_pages_hits_and_misses() {
    let alone = ALONE;
    // All requests within what is in DRAM: tags, and a line.
    let hits = run(HYBRID, &[&alone[..], &[("requests.pattern", "sequential")]].concat());
    near("hits", mean(&hits), LINE);
    assert_eq!(hits.page_misses, Some(0.0));
    // At random over the whole device: what is in DRAM hits, the rest waits for NAND and 4 KiB at
    // 2.5 ns.
    let misses = run(HYBRID, &[&alone[..], &[("requests.count", "6000")]].concat());
    let share = misses.page_misses.unwrap();
    let device = 16.0 * 2.0 * 256.0 * 64.0 * 0.9;
    near("their share", share, 1.0 - 131_072.0 / device);
    let split = misses.stages.as_ref().unwrap();
    let of = |name: &str| split.stages.iter().find(|stage| stage.name == name).unwrap().mean_ns;
    near("flash", of("flash"), share * (25_000.0 + 4096.0 * 2.5));
    near("sum", split.mean_ns, mean(&misses));
    // The page crosses DRAM's bus before its line is read: 64 bursts behind an opened row.
    assert!(of("DRAM") > share * 64.0 * 6.0 && of("DRAM") < share * 64.0 * 6.0 + 80.0, "{split:?}");
}
#[test]
fn planes_and_buses_decide_how_many_pages_come() {
    // Enough requests that each of 32 planes always has some, none of which waits behind one of
    // another plane. A plane reads into its one register, and again when that is empty.
    let pages = |rate: &str| {
        let set = [
            ("requests.depth", "4096"),
            ("requests.reads", "100%"),
            ("requests.warm_up", "20000"),
            ("nand.queues.die_queue", "255"),
            ("nand.queues.reorder", "true"),
            ("nand.timing.bus", rate),
            ("dram.refresh_every", "0ns"),
        ];
        // Requests whose page is on its way read none. Energy tells what was read.
        run(HYBRID, &set).power_w.unwrap() / (1.5e-6 + 4096.0 * 75e-12)
    };
    near("planes", pages("400GB/s"), 32.0 * 1e9 / (25_000.0 + 10.24));
    near("buses", pages("40MB/s"), 16.0 * 1e9 / 102_400.0);
}
#[test]
fn dirty_pages_go_back_to_flash() {
    let writes = run(
        HYBRID,
        &[("requests.reads", "50%"), ("requests.warm_up", "6000"), ("requests.count", "10000"), ("cache.sets", "64")],
    );
    let evicted = writes.page_misses.unwrap() * 10_000.0;
    // Each page was touched once or twice since it came: half of them by a write.
    let share = writes.written_back as f64 / evicted;
    assert!((0.4..0.75).contains(&share), "{share}");
}
#[test]
fn a_link_adds_its_time_both_ways() {
    let still = ("dram.refresh_every", "0ns");
    let set = [still, ("requests.depth", "1"), ("requests.reads", "100%"), ("requests.pattern", "sequential")];
    let with = |latency| mean(&run("cxl-flash.toml", &[&set[..], &[("link.latency", latency)]].concat()));
    near("both ways", with("570ns") - with("70ns"), 1000.0);
}

#[test]
fn energy_is_that_of_what_there_is_and_of_what_moves() {
    // 8 GiB, and a line of 64 B for each request.
    let lines = run(DRAM, &[]);
    near("standby", lines.dram.standby_w, 8.0 * 0.063);
    near("refresh", lines.dram.refresh_w, 8.0 * 0.012);
    near("lines", lines.dram.access_w * lines.simulated_s, 20_000.0 * 64.0 * 500e-12);
    near("all", lines.dram.energy_j, lines.dram.total_w() * lines.simulated_s);
    assert_eq!((lines.energy_j, lines.power_w), (None, None));
    // A page that comes is read from NAND, and crosses DRAM's bus before its line does.
    let pages = run(HYBRID, &[&ALONE[..], &[("requests.count", "6000")]].concat());
    let come = pages.page_misses.unwrap() * 6000.0;
    near("NAND", pages.energy_j.unwrap(), come * (1.5e-6 + 4096.0 * 75e-12));
    near("power", pages.power_w.unwrap() * pages.simulated_s, pages.energy_j.unwrap());
    near("bus", pages.dram.access_w * pages.simulated_s, (come * 64.0 + 6000.0) * 64.0 * 500e-12);
}

/// 64 B at 1 GB/s behind a line that hits.
fn data_crosses_the_link(planted: Planted) -> Result<(), String> {
    let report =
        run_with(DRAM, &[WITHOUT_REFRESH, ("requests.pattern", "sequential"), ("link.rate", "1GB/s")], planted);
    is_near("link", mean(&report), STEP + BURST + 2.0 * STEP / 128.0 + 64.0)
}
/// Tags are read before a line.
fn tags_are_read(planted: Planted) -> Result<(), String> {
    let report = run_with(HYBRID, &[&ALONE[..], &[("requests.pattern", "sequential")]].concat(), planted);
    is_near("hits", mean(&report), LINE)
}
/// A page that comes crosses DRAM's bus, 64 bursts of 6 ns, before its line is read.
fn pages_cross_the_bus(planted: Planted) -> Result<(), String> {
    let report = run_with(HYBRID, &[&ALONE[..], &[("requests.count", "2000")]].concat(), planted);
    let bus = report.page_misses.unwrap() * 64.0 + 1.0;
    let bursts = report.bus_busy * report.simulated_s / 6e-9 / 2000.0;
    is_near("bursts of a request", bursts, bus)
}
/// Most of what is evicted after writes goes back to flash.
fn changed_pages_go_back(planted: Planted) -> Result<(), String> {
    let few =
        [("requests.reads", "0%"), ("requests.warm_up", "6000"), ("requests.count", "4000"), ("cache.sets", "64")];
    let report = run_with(HYBRID, &few, planted);
    let share = report.written_back as f64 / (report.page_misses.unwrap() * 4000.0);
    if share > 0.9 { Ok(()) } else { Err(format!("{share} of what is evicted is written back")) }
}

type Form = fn(Planted) -> Result<(), String>;
const FORMS: [(Planted, Form); 4] = [
    (Planted::FreeLink, data_crosses_the_link),
    (Planted::FreeTags, tags_are_read),
    (Planted::FreeMove, pages_cross_the_bus),
    (Planted::LostWriteBack, changed_pages_go_back),
];

#[test]
fn planted_bugs_are_found() {
    for (bug, form) in FORMS {
        assert_eq!(form(Planted::None), Ok(()), "without {bug:?}");
        assert!(form(bug).is_err(), "{bug:?} was not found");
    }
}
