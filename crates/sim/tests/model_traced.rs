//! Goal: cores do what a trace says, neither more nor less. Method: short traces of which each hit
//! and miss is known; computing of known length, stated, counted and timed; the same trace at other
//! addresses and on more cores; and a recording that is written as a trace.

use fulgurite_sim::cores::{CoresReport, Front};
use fulgurite_sim::system::{Found, RunInput, System};
use fulgurite_sim::trace::{Format, Record, Trace, TraceError};
use fulgurite_sim::{Recording, RunError, Time};

use crate::common::{cores, traced_text};

fn run(text: &str, trace: &Trace) -> CoresReport {
    let system = System::read("s.toml", text, &[], RunInput::Trace(trace)).unwrap();
    assert_eq!(system.record(1).unwrap_err(), RunError::NoJobs);
    match system.run(1).unwrap().found {
        Found::Cores(report) => *report,
        other => panic!("{other:?}"),
    }
}
fn json(report: &CoresReport) -> String {
    serde_json::to_string(report).unwrap()
}
fn near(what: &str, ours: f64, theory: f64, share: f64) {
    assert!((ours / theory - 1.0).abs() < share, "{what}: {ours} and not {theory}");
}
/// Accesses of 64 B: page, block, and whether they write.
fn accesses(all: &[(u64, u64, bool)]) -> Trace {
    let record = |(at, (page, block, writes)): (usize, &(u64, u64, bool))| Record {
        line: at as u64 + 1,
        at: None,
        writes: *writes,
        offset: page * 4096 + block * 64,
        bytes: 64,
    };
    Trace { format: Format::Ramulator2, records: all.iter().enumerate().map(record).collect() }
}
/// Loads of blocks that differ: one before the measurement, eight within it, one behind it.
const KNOWN: [(u64, u64, bool); 10] = [
    (0, 0, false),
    (1, 0, false),
    (3, 0, true),
    (1, 1, false),
    (2, 0, false),
    (2, 1, false),
    (0, 1, false),
    (0, 2, false),
    (4, 0, false),
    (9, 0, false),
];
/// From a request to its data: command, array, and the bus of 4 KiB at 333 MB/s.
const FLASH_NS: f64 = 300.0 + 75_000.0 + 12_301.0;

#[test]
fn known_misses_are_counted() {
    let trace = accesses(&KNOWN);
    let of = |text: &str, misses: u64, written_back: u64| {
        let report = run(text, &trace);
        assert_eq!((report.misses, report.duplicates, report.table_misses), (misses, 0, 0), "{report:?}");
        assert_eq!((report.written_back, report.service.count), (written_back, 8), "{report:?}");
        // No block is touched twice, so each access leaves the chip. One that misses asks twice.
        // The pages share a block of the page table, which is on the chip.
        assert_eq!(report.memory_accesses_per_job, (8 + misses) as f64 / 8.0);
        assert!(report.law.deviation < 1e-9, "{:?}", report.law);
        report
    };
    let empty = traced_text("wait", 1);
    let report = of(&empty, 4, 0);
    near("time", report.simulated_s * 1e9, 4.0 * FLASH_NS, 0.02);
    near("energy", report.power_w.unwrap() * report.simulated_s, report.energy_j.unwrap(), 1e-9);
    // Two frames, for even pages and for odd ones: page 3 is written to, and leaves for page 1.
    let two = empty.replace("sets = 4096\nways = 4", "sets = 2\nways = 1");
    assert_ne!(two, empty);
    of(&two, 6, 1);
    // All pages have come before.
    let report = of(&empty.replace("warmed = false", "warmed = true"), 0, 0);
    assert_eq!(report.interval_ns, None);
    let report = of(&traced_text("dram-only", 1), 0, 0);
    assert_eq!(report.energy_j, None);
}
#[test]
fn threads_take_jobs_as_they_come() {
    let pages: Vec<(u64, u64, bool)> = (0..120).map(|page| (page, 0, page % 3 == 0)).collect();
    let text = traced_text("switch", 2);
    let report = run(&text, &accesses(&pages));
    assert_eq!(report.service.count, 8);
    assert!(report.misses > 0 && report.law.deviation < 1e-9, "{report:?}");
    // Threads of both cores wait at once.
    assert!(report.law.mean_present > 8.0, "{:?}", report.law);
    let system = System::read("s.toml", &text, &[], RunInput::Trace(&accesses(&pages))).unwrap();
    assert_eq!(json(&report), json(&run(&text, &accesses(&pages))));
    let other = System::read("s.toml", &text, &[], RunInput::Trace(&accesses(&pages[1..]))).unwrap();
    assert_ne!(system.hash(), other.hash());
}
#[test]
fn a_store_that_misses_rolls_back_and_is_done_again() {
    let all = |writes| {
        let pages: Vec<(u64, u64, bool)> = (0..60).map(|page| (page, 0, writes)).collect();
        run(&traced_text("switch", 1).replace("sets = 4096", "sets = 8"), &accesses(&pages))
    };
    let (loads, stores) = (all(false), all(true));
    // A store that misses costs a thread what a load does. It is in no buffer while its page comes.
    assert!(stores.misses > 0 && stores.misses == loads.misses, "{stores:?} {loads:?}");
    assert_eq!((stores.switched_again, stores.service.count), (0, 8));
    near("service", stores.service.mean_ns.unwrap().value, loads.service.mean_ns.unwrap().value, 0.01);
    let cost = |report: &CoresReport| report.miss_cost.unwrap().flush_ns;
    near("flush", cost(&stores), cost(&loads), 1e-9);
    // Done again, it has changed its page, which goes back to flash when another one comes.
    assert!(loads.written_back == 0 && stores.written_back > 0, "{stores:?}");
}
#[test]
fn the_store_buffer_hides_stores() {
    // Blocks of one row of DRAM, none of which is on the chip.
    let stores: Vec<(u64, u64, bool)> = (0..60).map(|block| (0, block, true)).collect();
    let job_ns = |entries: u64| {
        let buffer = format!("store_buffer = {entries}");
        let text = traced_text("dram-only", 1).replace("store_buffer = 32", &buffer);
        let text = text.replace("accesses = 1\ninstructions = 30", "accesses = 6\ninstructions = 9");
        1e9 / run(&text, &accesses(&stores)).jobs_per_s
    };
    // 31 instructions, of which 1.5 fit in a cycle of 0.5 ns.
    let (one, usual, large) = (job_ns(1), job_ns(32), job_ns(4096));
    // Six times 10 instructions, of which 1.5 fit in a cycle of 0.5 ns, and the way of the last
    // store to DRAM. With one entry, each store waits until the one before it has its block.
    assert!((20.0..25.0).contains(&large), "{large}");
    assert!(one > 1.5 * usual && usual > large, "{one} {usual} {large}");
}
/// Accesses of one block, which the L1 answers after the first one.
fn same_block(format: Format, count: u64, line: impl Fn(u64) -> u64, at: impl Fn(u64) -> Option<Time>) -> Trace {
    let of = |number| Record { line: line(number), at: at(number), writes: false, offset: 64, bytes: 8 };
    Trace { format, records: (0..count).map(of).collect() }
}
#[test]
fn threads_compute_what_is_stated_counted_or_timed() {
    let text = |instructions: &str| {
        traced_text("dram-only", 1).replace("instructions = 30", &format!("instructions = {instructions}"))
    };
    let untimed = same_block(Format::Ramulator2, 10, |number| number + 1, |_| None);
    let job_ns = |report: &CoresReport| 1e9 / report.jobs_per_s;
    // 1.5 instructions a cycle of 0.5 ns, and the load.
    let stated = run(&text("3000"), &untimed);
    near("stated", job_ns(&stated), 3001.0 / 3.0, 1e-5);
    near("twice", job_ns(&run(&text("6000"), &untimed)), 6001.0 / 3.0, 1e-5);
    let counted = same_block(Format::Champsim, 10, |number| 3001 * (number + 1), |_| None);
    assert_eq!(json(&run(&text("\"trace\""), &counted)), json(&stated));
    let timed = same_block(Format::Mqsim, 10, |number| number + 1, |number| Some(Time::us(number)));
    near("timed", job_ns(&run(&text("\"trace\""), &timed)), 3001.0 / 3.0, 1e-5);
    // Another distance of instructions is another run.
    let text = text("\"trace\"");
    let hash = |trace: &Trace| System::read("s.toml", &text, &[], RunInput::Trace(trace)).unwrap().hash().to_owned();
    let farther = same_block(Format::Champsim, 10, |number| 3002 * (number + 1), |_| None);
    assert_ne!(hash(&counted), hash(&farther));
}
#[test]
fn virtual_pages_are_those_of_data_in_their_order() {
    let mut known = KNOWN;
    // Pages in the order of their first access.
    let order = [0, 1, 3, 2, 4, 9];
    known.iter_mut().for_each(|access| {
        access.0 = order.iter().position(|page| *page == access.0).unwrap() as u64;
    });
    let packed = run(&traced_text("wait", 1), &accesses(&known));
    known.iter_mut().for_each(|access| access.0 = 0x7_ffd0_0000 + access.0 * 0x1_0001);
    let text = traced_text("wait", 1).replace("physical", "virtual");
    assert_eq!(json(&run(&text, &accesses(&known))), json(&packed));
}
#[test]
fn two_cores_do_twice_the_jobs() {
    let of = |cores| {
        let text = traced_text("dram-only", cores).replace("instructions = 30", "instructions = 3000");
        let text = text.replace("warm_up = 1\njobs = 8", "warm_up = 10\njobs = 80");
        run(&text, &same_block(Format::Ramulator2, 100, |number| number + 1, |_| None)).jobs_per_s
    };
    near("two cores", of(2) / of(1), 2.0, 0.03);
}
fn recorded() -> (CoresReport, Recording) {
    let few = [
        ("system.cores", "1"),
        ("system.paging", "dram-only"),
        ("workload.data", "8M"),
        ("run.warm_up", "10"),
        ("run.jobs", "40"),
    ];
    cores(&few).record(1, &Front::Modelled, false).unwrap()
}
#[test]
fn a_recording_comes_back_as_a_trace() {
    let (report, recording) = recorded();
    let (trace, summary) = (recording.trace(), recording.summary());
    let stores = trace.records.iter().filter(|record| record.writes).count() as u64;
    assert_eq!((trace.records.len() as u64 - stores, stores), (summary.loads, summary.stores));
    assert_eq!(trace.records.last().unwrap().line, summary.instructions);
    let read = |format: Format| Trace::read(&trace.write(format, None).unwrap(), Some(format), None).unwrap();
    assert_eq!(read(Format::Champsim), trace);
    let places = |trace: &Trace| -> Vec<(bool, u64)> {
        trace.records.iter().map(|record| (record.writes, record.offset)).collect()
    };
    assert_eq!(places(&read(Format::Ramulator2)), places(&trace));
    assert!(matches!(trace.write(Format::Fio, None), Err(TraceError::Unsaid { .. })));
    // What depends on what is not said. The truth is between all and nothing.
    let accesses = 14.0;
    let with = |depends: &str| {
        let text = traced_text("dram-only", 1).replace("instructions = 30", "instructions = \"trace\"");
        let text = text.replace("accesses = 1", "accesses = 14").replace("depends = true", depends);
        let text = text.replace("warm_up = 1\njobs = 8", "warm_up = 10\njobs = 40");
        run(&text, &trace).jobs_per_s * accesses
    };
    let ours = report.jobs_per_s * (summary.loads + summary.stores) as f64 / summary.jobs as f64;
    let (slow, fast) = (with("depends = true"), with("depends = false"));
    assert!(slow <= fast && slow < ours * 1.05 && fast > ours * 0.95, "{slow} {ours} {fast}");
}
