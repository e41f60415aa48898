//! Goal: a command over UFS takes what its steps are said to take, and the interfaces compare as
//! the paper measured them. Method: systems in which one part decides, within 1%, and the files of
//! both.

use fulgurite_sim::Planted;
use fulgurite_sim::interface::{InterfaceReport, InterfaceSystem};
use fulgurite_sim::system::Document;

use crate::common::ufs;

const PROTOCOL: f64 = 56_000.0;
const CONTROLLER: f64 = 1_000.0;
const FIRMWARE: f64 = 20_000.0;
/// A read of the NAND, without its bus.
const READ: f64 = 300.0 + 75_000.0;

/// Nanoseconds of a UPIU with `data` bytes of data: two lanes of 5.8304 Gb/s, of which four fifths
/// are data, in frames of 286 bytes and 8 more.
fn sends(data: f64) -> f64 {
    let bytes = 32.0 + data;
    (bytes + (bytes / 286.0).ceil() * 8.0) / (2.0 * 5.8304 * 0.8 / 8.0)
}
fn near(what: &str, ours: f64, theory: f64) -> Result<(), String> {
    if (ours / theory - 1.0).abs() < 0.01 { Ok(()) } else { Err(format!("{what}: {ours} and not {theory}")) }
}
fn run(set: &[(&str, &str)], planted: Planted) -> InterfaceReport {
    InterfaceSystem { planted, ..ufs(set) }.run(1).unwrap()
}
/// Without NAND and with processors and firmware that take no time: the link is left.
const LINK: [(&str, &str); 4] =
    [("device.bypass", "true"), ("driver.protocol", "0ns"), ("device.firmware", "0ns"), ("controller.command", "0ns")];

/// A read of 4 KiB alone: each step once.
fn read(planted: Planted) -> Result<(), String> {
    let report = run(&[("requests.threads", "1"), ("requests.size", "4K")], planted);
    let nand = READ + 4096.0 / 0.333;
    let all = PROTOCOL + CONTROLLER + FIRMWARE + 2.0 * sends(0.0) + nand + sends(4096.0);
    near("read", report.requests.mean_ns.unwrap().value, all)?;
    near("stages", report.stages.unwrap().mean_ns, all)?;
    near("crossings", report.bus_crossings, 1.0)
}
/// A write of 8 KiB alone: a page, whose data is asked for in two parts.
fn write(planted: Planted) -> Result<(), String> {
    let set = [("requests.threads", "1"), ("requests.size", "8K"), ("requests.writes", "true")];
    let report = run(&[set[0], set[1], set[2], ("requests.count", "50")], planted);
    let nand = 300.0 + 24_601.0 + 750_000.0;
    // Both parts are asked for at once, so that the link has one after the other.
    let data = sends(0.0) + 2.0 * sends(4096.0);
    let all = PROTOCOL + CONTROLLER + FIRMWARE + 2.0 * sends(0.0) + data + nand;
    near("write", report.requests.p50_ns.unwrap().value, all)
}
/// Many reads: the link decides.
fn link_of_reads(planted: Planted) -> Result<(), String> {
    let report = run(&LINK, planted);
    near("reads", report.bytes_per_s, 262_144e9 / (64.0 * sends(4096.0) + sends(0.0)))?;
    near("busy", report.link_busy.unwrap(), 1.0)
}
/// Many writes: the link decides, with commands in the direction of the data.
fn link_of_writes(planted: Planted) -> Result<(), String> {
    let report = run(&[&LINK[..], &[("requests.writes", "true")]].concat(), planted);
    near("writes", report.bytes_per_s, 262_144e9 / (64.0 * sends(4096.0) + sends(0.0)))?;
    near("busy", report.link_busy.unwrap(), 1.0)
}
/// A write of 8 KiB in parts of 512 bytes, without NAND: each is asked for when the one before has
/// come, or while that is on its way.
fn transfers(planted: Planted) -> Result<(), String> {
    let set = [("requests.threads", "1"), ("requests.size", "8K"), ("requests.writes", "true"), ("link.data", "512B")];
    let with = |transfers| run(&[&LINK[..], &set, &[("device.transfers", transfers)]].concat(), planted);
    let (asks, part) = (sends(0.0), sends(512.0));
    near("one", with("1").requests.mean_ns.unwrap().value, 2.0 * asks + 16.0 * (asks + part))?;
    near("two", with("2").requests.mean_ns.unwrap().value, 2.0 * asks + asks + 16.0 * part)
}
/// 12 KiB alone, on pages of 8 KiB: a page and half of its neighbour, on another channel.
fn parts_of_pages(planted: Planted) -> Result<(), String> {
    let set = [("requests.threads", "1"), ("requests.size", "12K")];
    let command = PROTOCOL + CONTROLLER + FIRMWARE + 2.0 * sends(0.0);
    let bus = 8192.0 / 0.333;
    let read = run(&set, planted);
    // The half has been sent by the time at which the page comes.
    near("read", read.requests.mean_ns.unwrap().value, command + READ + bus + 2.0 * sends(4096.0))?;
    near("crossings", read.bus_crossings, 1.0)?;
    near("energy", read.energy_j, 400.0 * (2.0 * 1.5e-6 + 12_288.0 * 75e-12))?;
    let write = run(&[set[0], set[1], ("requests.writes", "true"), ("requests.count", "50")], planted);
    let data = sends(0.0) + 3.0 * sends(4096.0);
    near("write", write.requests.p50_ns.unwrap().value, command + data + 300.0 + bus + 750_000.0)?;
    near("crossings", write.bus_crossings, 1.0)?;
    // Half a page is programmed as a page.
    near("energy", write.energy_j, 50.0 * 2.0 * (36e-6 + 8192.0 * 75e-12))
}
/// More threads than slots, and processors for all: the time of a command decides.
fn slots(planted: Planted) -> Result<(), String> {
    // Enough that those under way at both ends are few.
    let set = [("requests.threads", "64"), ("requests.count", "12000"), ("host.processors", "64")];
    // A link so fast that waiting for it is no time compared with the processors'.
    let own = [("controller.slots", "4"), ("driver.protocol", "1ms"), ("link.lanes", "16")];
    let rest = [("requests.size", "4K"), ("device.bypass", "true"), ("device.firmware", "0ns")];
    let report = run(&[set, own, rest].concat(), planted);
    let each = 1e6 + CONTROLLER + (2.0 * sends(0.0) + sends(4096.0)) / 8.0;
    near("slots", report.bytes_per_s, 4.0 * 4096e9 / each)?;
    // The others wait for a slot.
    near("slots", report.requests.mean_ns.unwrap().value, 16.0 * each)
}
/// A buffer of one command: the next one is read when its data has left.
fn one_place(planted: Planted) -> Result<(), String> {
    let set = [("device.buffer", "8K"), ("requests.size", "8K"), ("driver.protocol", "0ns")];
    let own = [("device.firmware", "0ns"), ("controller.command", "0ns"), ("requests.threads", "4")];
    let report = run(&[set, own].concat(), planted);
    near("one place", report.bytes_per_s, 8192e9 / (READ + 8192.0 / 0.333 + 2.0 * sends(4096.0)))
}

type Form = fn(Planted) -> Result<(), String>;
const FORMS: [Form; 8] = [read, write, link_of_reads, link_of_writes, slots, one_place, transfers, parts_of_pages];

#[test]
fn closed_forms_hold() {
    let failed: Vec<String> = FORMS.iter().filter_map(|form| form(Planted::None).err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
#[test]
fn planted_bugs_are_found() {
    for bug in [Planted::FreeLink, Planted::EndlessQueue, Planted::SwappedOperations, Planted::EndlessBuffer] {
        assert!(FORMS.iter().any(|form| form(bug).is_err()), "{bug:?} was not found");
    }
}
#[test]
fn steps_are_in_the_order_of_the_protocol() {
    let steps = |writes| {
        let report = run(&[("requests.threads", "1"), ("requests.writes", writes)], Planted::None);
        assert!(report.first_steps.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{:?}", report.first_steps);
        report.first_steps.iter().map(|(step, _)| *step).collect::<Vec<u8>>()
    };
    assert_eq!(steps("false"), [1, 2, 5, 4, 6, 7]);
    assert_eq!(steps("true"), [1, 2, 3, 4, 5, 6, 7]);
}
#[test]
fn pages_are_sent_while_others_are_read() {
    // 128 KiB are two pages of each plane: their data crosses the link during the second reads.
    let report = run(&[("requests.threads", "1"), ("requests.size", "128K")], Planted::None);
    let split = report.stages.unwrap();
    let data = split.stages.iter().find(|stage| stage.name == "data UPIUs").unwrap();
    assert!(data.mean_ns > sends(4096.0) && data.mean_ns < 16.0 * sends(4096.0), "{split:?}");
}
#[test]
fn cached_writes_end_before_their_program() {
    let set = [("requests.threads", "1"), ("requests.writes", "true"), ("requests.size", "8K")];
    let own = [("requests.count", "400"), ("device.cached_writes", "true"), ("device.buffer", "512K")];
    let report = run(&[set, own].concat(), Planted::None);
    let data = sends(0.0) + 2.0 * sends(4096.0);
    let all = PROTOCOL + CONTROLLER + FIRMWARE + 2.0 * sends(0.0) + data;
    near("cached", report.requests.p50_ns.unwrap().value, all).unwrap();
    // A buffer of one command hides nothing: its room is free when the program has ended.
    let full = run(&[set, [own[0], own[1], ("device.buffer", "8K")]].concat(), Planted::None);
    let waited = run(&[set, [own[0], ("device.cached_writes", "false"), own[2]]].concat(), Planted::None);
    let hidden = full.bytes_per_s / waited.bytes_per_s;
    // But for the way back of the last one, and the way there of the next.
    assert!((1.0..1.12).contains(&hidden), "{hidden}");
}
/// Bytes a second of a file in `systems`.
fn of_file(name: &str, set: &[(&str, &str)]) -> f64 {
    let file = format!("{}/../../systems/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).unwrap();
    let short = [("requests.count", "1000"), ("requests.warm_up", "100")];
    let set = [&short[..], set].concat();
    let set: Vec<(String, String)> = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    InterfaceSystem::read(&Document::read(&file, &text, &set).unwrap()).unwrap().run(1).unwrap().bytes_per_s
}
#[test]
fn the_interfaces_compare_as_the_paper_measured_them() {
    // The link of the paper's phone: one lane of HS-G2.
    let phone = [("link.lanes", "1"), ("link.lane", "2915200kHz")];
    let both = |set: &[(&str, &str)]| (of_file("dram-interface", set), of_file("ufs", &[&phone[..], set].concat()));
    let (dram, ufs) = both(&[]);
    assert!(dram > ufs, "sequential reads: {dram} and {ufs}");
    let standard = of_file("ufs", &[]);
    assert!(standard > dram, "sequential reads with two lanes of HS-G3: {dram} and {standard}");
    let (writes, random) = (("requests.writes", "true"), ("requests.pattern", "random"));
    for set in [
        &[writes, ("requests.size", "512K")][..],
        &[random, ("requests.size", "4K")],
        &[random, writes, ("requests.size", "4K")],
    ] {
        let (dram, ufs) = both(set);
        assert!(dram < ufs, "{set:?}: {dram} and {ufs}");
    }
}
#[test]
fn energy_is_that_of_each_page() {
    let report = run(&[("requests.threads", "1"), ("requests.size", "8K")], Planted::None);
    near("energy", report.energy_j, 400.0 * (1.5e-6 + 8192.0 * 75e-12)).unwrap();
    near("power", report.power_w * report.simulated_s, report.energy_j).unwrap();
}
#[test]
fn commands_are_split_and_seeds_differ() {
    let report = run(&[("device.buffer", "64K"), ("requests.count", "1000"), ("requests.warm_up", "0")], Planted::None);
    assert!((4000..=4016).contains(&report.counted.requests), "{:?}", report.counted);
    let set = [("requests.pattern", "random"), ("requests.size", "4K"), ("requests.threads", "16")];
    let [one, again, other] = [1, 1, 2].map(|seed| ufs(&set).run(seed).unwrap());
    assert_eq!(one, again);
    assert_ne!(one.requests, other.requests);
}
