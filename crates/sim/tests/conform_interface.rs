//! Goal: the steps of the DRAM interface take what they are said to take. Method: systems in which
//! one part decides, within 1%.

use fulgurite_sim::Planted;
use fulgurite_sim::interface::{InterfaceReport, InterfaceSystem};

use crate::common::interface;

const PROTOCOL: f64 = 56_000.0;
const SETUP: f64 = 17_000.0;

fn near(what: &str, ours: f64, theory: f64) -> Result<(), String> {
    if (ours / theory - 1.0).abs() < 0.01 { Ok(()) } else { Err(format!("{what}: {ours} and not {theory}")) }
}
fn run(set: &[(&str, &str)], planted: Planted) -> InterfaceReport {
    InterfaceSystem { planted, ..interface(set) }.run(1).unwrap()
}

/// A request alone, without NAND: protocol, set-up, transfer and invalidation.
fn alone(planted: Planted) -> Result<(), String> {
    for (size, bytes) in [("4K", 4096.0), ("256K", 262_144.0)] {
        let set = [("requests.threads", "1"), ("device.bypass", "true"), ("requests.size", size)];
        let report = run(&set, planted);
        let all = PROTOCOL + SETUP + bytes / 0.45 + bytes / 1.8;
        near(size, report.requests.mean_ns.unwrap().value, all)?;
        near("stages", report.stages.unwrap().mean_ns, all)?;
        near("crossings", report.bus_crossings, 2.0)?;
    }
    Ok(())
}
/// Many at once: the engine decides, and its set-up with it.
fn engine(planted: Planted) -> Result<(), String> {
    let set = [("device.bypass", "true"), ("device.buffer", "4M")];
    let report = run(&set, planted);
    near("engine", report.bytes_per_s, 262_144e9 / (SETUP + 262_144.0 / 0.45))?;
    near("busy", report.dma_busy.unwrap(), 1.0)
}
/// A buffer of one command: commands follow each other.
fn one_place(planted: Planted) -> Result<(), String> {
    let set = [("device.bypass", "true"), ("device.buffer", "128K")];
    let report = run(&set, planted);
    let bytes = 131_072.0;
    // The invalidation after the transfer overlaps the next command.
    let cycle = PROTOCOL + SETUP + bytes / 0.45 + bytes / 1.8 / 2.0;
    near("one place", report.bytes_per_s, bytes * 1e9 / cycle)
}
/// A write with NAND: the transfer first, then the program.
fn write(planted: Planted) -> Result<(), String> {
    let set =
        [("requests.threads", "1"), ("requests.writes", "true"), ("requests.size", "8K"), ("requests.count", "50")];
    let report = run(&set, planted);
    let (bytes, nand) = (8192.0, 300.0 + 24_601.0 + 750_000.0);
    near("write", report.requests.p50_ns.unwrap().value, PROTOCOL + SETUP + bytes / 0.45 + bytes / 1.8 + nand)
}

/// The energy of each page that is read or written, and power as energy over time.
fn energy(planted: Planted) -> Result<(), String> {
    let one = [("requests.threads", "1")];
    let read = 1.5e-6 + 8192.0 * 75e-12;
    let report = run(&one, planted);
    near("reads", report.energy_j, 400.0 * 32.0 * read)?;
    near("power", report.power_w * report.simulated_s, report.energy_j)?;
    let write = [one[0], ("requests.writes", "true"), ("requests.size", "8K"), ("requests.count", "50")];
    near("writes", run(&write, planted).energy_j, 50.0 * (36e-6 + 8192.0 * 75e-12))?;
    let bypass = run(&[one[0], ("device.bypass", "true")], planted).energy_j;
    if bypass == 0.0 { Ok(()) } else { Err(format!("{bypass} J without NAND")) }
}

type Form = fn(Planted) -> Result<(), String>;
const FORMS: [Form; 5] = [alone, engine, one_place, write, energy];

#[test]
fn closed_forms_hold() {
    let failed: Vec<String> = FORMS.iter().filter_map(|form| form(Planted::None).err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
#[test]
fn planted_bugs_are_found() {
    let bugs = [
        Planted::FreeSetup,
        Planted::FreeInvalidation,
        Planted::OneCrossing,
        Planted::SwappedOperations,
        Planted::EndlessBuffer,
        Planted::WrongUnit,
    ];
    for bug in bugs {
        assert!(FORMS.iter().any(|form| form(bug).is_err()), "{bug:?} was not found");
    }
}
#[test]
fn commands_larger_than_the_buffer_are_split() {
    // 256 KiB in a buffer of 64 KiB: four commands.
    let report = run(&[("device.buffer", "64K"), ("requests.count", "1000"), ("requests.warm_up", "0")], Planted::None);
    assert!((4000..=4016).contains(&report.counted.requests), "{:?}", report.counted);
}
#[test]
fn the_firmware_is_one_processor() {
    let firmware = [("driver.protocol", "0us"), ("device.firmware", "100us"), ("device.bypass", "true")];
    let alone = run(&[("requests.threads", "1"), ("requests.size", "4K"), firmware[1], firmware[2]], Planted::None);
    let all = PROTOCOL + SETUP + 4096.0 / 0.45 + 4096.0 / 1.8 + 100_000.0;
    near("alone", alone.requests.mean_ns.unwrap().value, all).unwrap();
    let many = run(
        &[("requests.threads", "8"), ("requests.size", "4K"), firmware[0], firmware[1], firmware[2]],
        Planted::None,
    );
    near("many", many.bytes_per_s, 4096.0 / 100e-6).unwrap();
}
#[test]
fn steps_are_in_the_order_of_the_protocol() {
    let steps = |writes| {
        let report = run(&[("requests.threads", "1"), ("requests.writes", writes)], Planted::None);
        report.first_steps.iter().map(|(step, _)| *step).collect::<Vec<u8>>()
    };
    // 6 follows 5 and 8 follows 7 at once.
    assert_eq!(steps("false"), [2, 3, 4, 5, 7, 9]);
    assert_eq!(steps("true"), [1, 2, 3, 4, 5, 7]);
}
#[test]
fn cached_writes_end_before_their_program() {
    let set =
        [("requests.threads", "1"), ("requests.writes", "true"), ("requests.size", "8K"), ("requests.count", "400")];
    let cached = run(&[set[0], set[1], set[2], set[3], ("device.cached_writes", "true")], Planted::None);
    let waited = run(&set, Planted::None);
    // Eight planes take a program each: the host is the limit now.
    near("cached", cached.requests.p50_ns.unwrap().value, PROTOCOL + SETUP + 8192.0 / 0.45 + 8192.0 / 1.8).unwrap();
    assert!(cached.bytes_per_s > 4.0 * waited.bytes_per_s, "{} {}", cached.bytes_per_s, waited.bytes_per_s);
    // A buffer of one command hides nothing: the place is taken until the program has ended.
    let one = [("device.buffer", "8K"), ("device.cached_writes", "true")];
    let full = run(&[set[0], set[1], set[2], set[3], one[0], one[1]], Planted::None);
    let hidden = full.bytes_per_s / waited.bytes_per_s;
    // But for the completion, which overlaps the program.
    assert!((1.0..1.05).contains(&hidden), "{hidden}");
}
#[test]
fn random_requests_differ_by_seed_and_not_in_time() {
    let set = [("requests.pattern", "random"), ("requests.size", "8K"), ("requests.threads", "1")];
    let [one, other] = [1, 2].map(|seed| interface(&set).run(seed).unwrap());
    assert_eq!(one.requests.mean_ns.unwrap().value, other.requests.mean_ns.unwrap().value);
    let sequential = run(&[("requests.size", "8K"), ("requests.threads", "1")], Planted::None);
    near("alone", one.bytes_per_s, sequential.bytes_per_s).unwrap();
}
