//! Goal: flash behind a link comes to what its parts say. Method: systems in which one part
//! decides, for each of which theory has a closed form, within 1%. A bug that is planted in the
//! model has to be found by one of them.

use fulgurite_sim::Planted;
use fulgurite_sim::flash::{FlashReport, FlashSystem};
use fulgurite_sim::system::Document;

use crate::common::flash;

const COMMAND: f64 = 300.0;
const ARRAY: f64 = 75_000.0;
/// 8 KiB at 333 MB/s, rounded up to whole nanoseconds.
const BUS: f64 = 24_601.0;
/// 8 KiB at 4 GB/s.
const LINK: f64 = 2_048.0;
const LINK_COMMAND: f64 = 500.0;
/// Channels and planes of the test's device.
const CHANNELS: f64 = 2.0;
const PLANES: f64 = 8.0;

fn near(what: &str, ours: f64, theory: f64, share: f64) -> Result<(), String> {
    if (ours / theory - 1.0).abs() < share { Ok(()) } else { Err(format!("{what}: {ours} and not {theory}")) }
}
fn run(set: &[(&str, &str)], planted: Planted) -> FlashReport {
    FlashSystem { planted, ..flash(set) }.run(1).unwrap()
}

/// A request alone takes what its steps take.
fn unloaded(planted: Planted) -> Result<(), String> {
    let report = run(&[], planted);
    let all = LINK_COMMAND + COMMAND + ARRAY + BUS + LINK;
    near("latency", report.reads.mean_ns.unwrap().value, all, 1e-4)?;
    near("rate", report.requests_per_s, 1e9 / all, 0.01)?;
    let split = report.read_stages.unwrap();
    near("stages", split.mean_ns, all, 1e-4)?;
    let of = |name: &str| split.stages.iter().find(|stage| stage.name == name).unwrap().mean_ns;
    near("array", of("array"), ARRAY, 1e-9)?;
    near("bus", of("bus"), BUS, 1e-9)?;
    near("link", of("link"), LINK, 1e-3)
}
/// Planes work at the same time, each with its array and its register.
fn planes_in_parallel(planted: Planted) -> Result<(), String> {
    let set = [("requests.depth", "64"), ("nand.timing.bus", "8GB/s"), ("requests.count", "20000")];
    let cycle = COMMAND + ARRAY + 1024.0;
    near("planes", run(&set, planted).requests_per_s, PLANES * 1e9 / cycle, 0.01)
}
/// Where arrays are fast, the buses decide. Each carries one thing at a time.
fn buses(planted: Planted) -> Result<(), String> {
    let set = [("requests.depth", "64"), ("nand.timing.read", "1us"), ("requests.count", "20000")];
    let report = run(&set, planted);
    near("buses", report.requests_per_s, CHANNELS * 1e9 / (COMMAND + BUS), 0.01)?;
    near("busy", report.bus_busy, 1.0, 0.01)
}
/// Where all else is fast, the link decides.
fn link(planted: Planted) -> Result<(), String> {
    let set = [
        ("requests.depth", "64"),
        ("nand.timing.read", "1us"),
        ("nand.timing.bus", "8GB/s"),
        ("link.rate", "800MB/s"),
        ("link.command", "0ns"),
        ("requests.count", "20000"),
    ];
    near("link", run(&set, planted).read_bytes_per_s, 800e6, 0.01)
}
/// One plane with one register is a queue with a fixed service: M/D/1.
fn one_plane_is_m_d_1(planted: Planted) -> Result<(), String> {
    let service = COMMAND + ARRAY + BUS;
    for load in [0.3, 0.7] {
        let between = format!("{}ps", (service / load * 1e3) as u64);
        let set = [
            ("requests.arrivals", "poisson"),
            ("requests.between", &between),
            ("requests.count", "200000"),
            ("nand.geometry.channels", "1"),
            ("nand.geometry.dies_per_package", "1"),
            ("nand.geometry.planes_per_die", "1"),
            ("link.command", "0ns"),
            ("link.rate", "1000GB/s"),
        ];
        let mean = run(&set, planted).reads.mean_ns.unwrap().value;
        near("M/D/1", mean, service + load * service / 2.0 / (1.0 - load), 0.01)?;
    }
    Ok(())
}
/// A write is programmed whole, and ends when it is.
fn writes(planted: Planted) -> Result<(), String> {
    let report = run(&[("requests.reads", "0%"), ("requests.count", "100"), ("requests.warm_up", "0")], planted);
    let all = LINK_COMMAND + LINK + COMMAND + BUS + 750_000.0;
    near("write", report.writes.p50_ns.unwrap().value, all, 0.001)?;
    near("stages", report.write_stages.unwrap().mean_ns, all, 0.001)
}
/// Energy is the sum over all operations, and power is energy over time.
fn energy(planted: Planted) -> Result<(), String> {
    let report = run(&[("requests.warm_up", "0")], planted);
    let of_one = 1.5e-6 + 8192.0 * 75e-12;
    near("energy", report.energy_j, 2000.0 * of_one, 0.01)?;
    near("power", report.power_w * report.simulated_s, report.energy_j, 1e-9)
}

type Form = fn(Planted) -> Result<(), String>;
const FORMS: [Form; 7] = [unloaded, planes_in_parallel, buses, link, one_plane_is_m_d_1, writes, energy];

/// MQSim's defaults, with fewer blocks.
fn mqsim(set: &[(&str, &str)]) -> FlashReport {
    let text = include_str!("../../../systems/compat-mqsim.toml");
    let few = [
        ("nand.geometry.blocks_per_plane", "16"),
        ("flash.filled", "75%"),
        ("requests.warm_up", "5000"),
        ("requests.count", "40000"),
    ];
    let set: Vec<(String, String)> =
        few.iter().chain(set).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    FlashSystem::read(&Document::read("mqsim.toml", text, &set).unwrap(), None).unwrap().run(1).unwrap()
}
#[test]
fn the_defaults_of_mqsim_come_to_what_their_parts_say() {
    // Command, array, bus and link, and what eight buses carry.
    let alone = mqsim(&[]).reads.mean_ns.unwrap().value;
    near("alone", alone, COMMAND + ARRAY + BUS + LINK, 0.01).unwrap();
    let all = mqsim(&[("requests.depth", "1024"), ("requests.pattern", "sequential")]);
    near("bandwidth", all.read_bytes_per_s, 8.0 * 8192.0 * 1e9 / (COMMAND + BUS), 0.01).unwrap();
}
#[test]
fn closed_forms_hold() {
    let failed: Vec<String> = FORMS.iter().filter_map(|form| form(Planted::None).err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
#[test]
fn planted_bugs_are_found() {
    for planted in [Planted::FreeLink, Planted::LateClock] {
        assert!(FORMS.iter().any(|form| form(planted).is_err()), "{planted:?} was not found");
    }
}
/// Overwriting everything in order needs no copies. At random it does, and reclaim blocks reads.
#[test]
fn reclaim_moves_what_lives_and_blocks_its_plane() {
    let run = |set: &[(&str, &str)]| run(set, Planted::None);
    let set = [("requests.depth", "8"), ("requests.count", "8000"), ("flash.filled", "80%")];
    let mixed = |pattern| [&set[..], &[("requests.reads", "50%"), ("requests.pattern", pattern)]].concat();
    let in_order = run(&[&set[..], &[("requests.reads", "0%")]].concat());
    near("in order", in_order.write_amplification.unwrap(), 1.0, 1e-9).unwrap();
    assert!(in_order.erased_blocks > 0 && in_order.warnings.is_empty(), "{in_order:?}");
    let random = run(&mixed("random"));
    let (factor, behind) = (random.write_amplification.unwrap(), random.reads_behind_reclaim.unwrap());
    assert!(factor > 1.2 && behind > 0.05, "reclaim copies {factor} and blocks {behind}");
    let aged = run(&[&mixed("random")[..], &[("flash.aged", "3")]].concat());
    near("aged", aged.write_amplification.unwrap(), factor, 0.25).unwrap();
}
#[test]
fn writes_without_reclaim_are_reported() {
    let report = run(&[("requests.reads", "0%"), ("requests.count", "50"), ("requests.warm_up", "0")], Planted::None);
    assert!(report.warnings.iter().any(|warning| warning.contains("no block was reclaimed")), "{report:?}");
    assert_eq!(report.reads.mean_ns, None);
    assert_eq!(report.reads_behind_reclaim, None);
}
#[test]
fn one_request_is_finite() {
    let report = run(&[("requests.count", "1"), ("requests.warm_up", "0")], Planted::None);
    let text = serde_json::to_string(&report).unwrap();
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    assert_eq!(report.reads.count, 1);
}
#[test]
fn a_read_alone_takes_what_it_takes_in_mqsim() {
    // 8 KiB: command, array, bus of the chip, and PCIe.
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../systems/compat-mqsim.toml");
    let text = std::fs::read_to_string(file).unwrap();
    let set = [("requests.count", "2000"), ("requests.warm_up", "100")];
    let set = set.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let system = FlashSystem::read(&Document::read(file, &text, &set).unwrap(), None).unwrap();
    let reads = system.run(1).unwrap().reads;
    let mean = reads.mean_ns.unwrap().value;
    near("MQSim", mean, COMMAND + ARRAY + BUS + LINK, 1e-4).unwrap();
    // All of them, as MQSim prints it.
    assert_eq!((mean / 1e3).round(), 102.0);
    assert_eq!((reads.p99_ns.unwrap().value / 1e3).round(), 102.0);
}
