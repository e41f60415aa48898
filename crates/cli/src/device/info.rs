//! How a served device stands: asked over its socket, without a driver.

use std::time::Duration;

use anyhow::Result;
use fulgurite_device::{Features, Link, SocketLink};
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use serde::Serialize;

use super::args::InfoArgs;
use fulgurite_term::bad_input::socket_error;
use fulgurite_term::report::table;
use fulgurite_term::values::Output;
use fulgurite_term::{checks, report};

#[derive(Serialize)]
struct Info {
    description: String,
    bytes: u64,
    /// DRAM of the device's process: the most with its queue pairs, now, and the bound (`--dram`).
    dram_bytes: u64,
    dram_taken_bytes: u64,
    dram_budget_bytes: Option<u64>,
    features: Vec<&'static str>,
    /// Of its medium: what a store does for itself.
    sectors_read: u64,
    sectors_written: u64,
    read_requests: u64,
    write_requests: u64,
    flushes: u64,
    errors: u64,
    cpu_ns: u64,
    late: u64,
    lateness_ns_total: u64,
    lateness_ns_max: u64,
}

/// What a device can do, in words.
const FEATURES: [(Features, &str); 8] = [
    (Features::PAGES, "pages that are allocated, deleted and restricted"),
    (Features::TOKENS, "states with names"),
    (Features::SESSIONS, "a program may name them alone, for its own memory (Medium::device_pool)"),
    (Features::ROOM, "such a program knows what room there is until its next sync"),
    (Features::KEEPS_WRITES, "writes survive the end of its process"),
    (Features::CACHED_WRITES, "writes complete in a volatile buffer"),
    (Features::FORGETS, "nothing survives the end of its process"),
    (Features::MOVES_BY_CPU, "frames of programs may be its data buffer"),
];

/// A count, in groups of three digits.
fn thousands(count: u64) -> String {
    table::thousands(i64::try_from(count).unwrap_or(i64::MAX))
}

/// What it has of DRAM: of its own process, and of no host's.
fn dram(info: &Info) -> String {
    let (taken, most) = (format_bytes(info.dram_taken_bytes), format_bytes(info.dram_bytes));
    match info.dram_budget_bytes {
        Some(budget) => format!("{taken} taken, at most {most} as it is, of a budget of {}", format_bytes(budget)),
        None => format!("{taken} taken, at most {most} as it is; no budget"),
    }
}

fn text(info: &Info) -> String {
    let mut lines =
        vec![("device", info.description.clone()), ("size", format_bytes(info.bytes)), ("DRAM", dram(info))];
    lines.extend(info.features.iter().map(|&feature| ("notes", feature.to_owned())));
    let requests = |of: u64, in_requests: u64| match in_requests {
        0 => format!("{} sectors of its medium", thousands(of)),
        _ => format!("{} sectors of its medium, by {} requests", thousands(of), thousands(in_requests)),
    };
    lines.push(("read", requests(info.sectors_read, info.read_requests)));
    lines.push(("written", requests(info.sectors_written, info.write_requests)));
    lines.push(("flushes", thousands(info.flushes)));
    lines.push(("errors", thousands(info.errors)));
    lines.push(("CPU", format!("{:.1?}", Duration::from_nanos(info.cpu_ns))));
    if info.late > 0 {
        let longest = Duration::from_nanos(info.lateness_ns_max);
        lines.push(("late", format!("{} completions, at most {longest:.1?}", thousands(info.late))));
    }
    let mut before = "";
    let line = |(name, value): (&'static str, String)| {
        let shown = if name == before { "" } else { name };
        before = name;
        format!("{shown:<11}{value}\n")
    };
    lines.into_iter().map(line).collect()
}

/// `device info`.
pub fn run(args: &InfoArgs) -> Result<()> {
    if let Some(Output::File(path)) = &args.json {
        checks::writable("--json", path)?;
    }
    let link = SocketLink::connect(&args.socket, false).map_err(|error| socket_error("--socket", error))?;
    let (counters, features, dram) = (link.counters(), link.features(), link.device_dram());
    let info = Info {
        description: link.describe(),
        bytes: u64::from(link.sectors()) * SUBPAGE_BYTES as u64,
        dram_bytes: dram.set_aside,
        dram_taken_bytes: dram.taken,
        dram_budget_bytes: dram.bound,
        features: FEATURES.iter().filter(|(feature, _)| features.has(*feature)).map(|(_, words)| *words).collect(),
        sectors_read: counters.reads,
        sectors_written: counters.writes,
        read_requests: counters.read_requests,
        write_requests: counters.write_requests,
        flushes: counters.flushes,
        errors: counters.errors,
        cpu_ns: counters.device_cpu_ns,
        late: counters.late,
        lateness_ns_total: counters.lateness_ns_total,
        lateness_ns_max: counters.lateness_ns_max,
    };
    report::write_as(args.json.as_ref(), &info, || text(&info))
}
