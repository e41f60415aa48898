//! `device`: the evaluation of *Design and Implementation of a Mobile Storage Leveraging the
//! DRAM Interface* (6.2 to 6.4), live.
//!
//! Each round measures everything once, so that a disturbance hits all modes, and shares are of one
//! round. The host has the first core, the firmware the last. The paper's device moved data by DMA
//! at up to 450 MB/s, here the host's core copies.
//!
//! [`args`] has its options, `cells` what is measured, `rig` what on, `movers`, `driver` and
//! `process` how, `shapes` and `shown` the results.

pub mod args;
mod cells;
mod driver;
mod movers;
pub(crate) mod process;
mod rig;
mod shapes;
mod shown;

use std::time::Duration;

use anyhow::{Context, Result};
use fulgurite_sys::affinity;

use fulgurite_harness::checks;
use fulgurite_term::interrupt::{Interrupt, until_interrupted};
use fulgurite_term::machine::Machine;
use fulgurite_term::media::nand::Scaling;
use fulgurite_term::progress;
use fulgurite_term::report::charts::stack;
use fulgurite_term::report::{self, Report};

use args::{BenchArgs, Figure};
use cells::{Times, cells, rows};
use fulgurite_term::media::device::{self as medium, Plan};
use movers::Ran;
use rig::Rig;
use shapes::Shape;
use shown::Goal;

/// NAND as in the paper's prototype, and its planes.
const PAPERS_NAND: &str = include_str!("paper.toml");
const PAPERS_PLANES: u32 = 8;
/// Pages of its blocks in a device of some hundred megabytes, which leave the store enough extents.
const PAPERS_PAGES_PER_BLOCK: u32 = 16;

/// Said with every result.
const HOW_CPU_IS_COUNTED: &str = "\
Host CPU is its thread's, user and system (CLOCK_THREAD_CPUTIME_ID), by the reads that ended meanwhile. All variants poll without end \
but those asleep, and those that compute between polls; productive is all less the time of polls that found nothing, and what is \
computed is not counted. Other CPU: the thread of the device, which polls; for io_uring the kernel's workers of this process, but not \
its interrupts.";

/// What the store over NAND will be, if it is to be measured.
fn over_nand(args: &BenchArgs, bytes: u64, machine: &Machine) -> Result<Option<Plan>> {
    let scaling = Scaling { planes: Some(PAPERS_PLANES), pages_per_block: Some(PAPERS_PAGES_PER_BLOCK) };
    let is_measured = args.figure.iter().any(|figure| matches!(figure, Figure::Buffer | Figure::Chunk));
    is_measured.then(|| Plan::scaled("the paper's", PAPERS_NAND, scaling, bytes, machine)).transpose()
}

/// Runs it.
pub fn run(args: &BenchArgs) -> Result<()> {
    let interrupt = Interrupt::catch()?;
    checks::outputs(&args.output)?;
    let machine = Machine::describe();
    let quick = args.output.quick;
    let bytes = if quick { 16 << 20 } else { 256 << 20 };
    let nand = over_nand(args, bytes, &machine)?;
    let device_core = medium::core(None)?;
    let directory = checks::scratch_directory(args.place.dir.as_deref(), None)?;
    checks::space("--dir", &directory, bytes)?;
    // Two devices over memory here and in the other process, one over NAND, and some buffers.
    checks::memory(5 * bytes + (192 << 20), bytes, &machine)?;
    let rounds = args.repeat.rounds.unwrap_or(if quick { 3 } else { 7 });
    let millis = |quickly, else_| Duration::from_millis(if quick { quickly } else { else_ });
    // A program of NAND takes a millisecond and more.
    let times = Times { each: millis(4, 20), nand: millis(8, 100) };
    let cores = affinity::cores();
    let mut rig = Rig::start(bytes, nand.as_ref(), &directory, device_core, &interrupt)?;
    // From here on: the threads of devices and of the server are there, and not held to this core.
    affinity::pin(cores[0]).with_context(|| format!("core {} cannot be had", cores[0]))?;

    let cells = cells(&args.figure, times, args.output.seed);
    let mut ran: Vec<Vec<Ran>> = vec![Vec::new(); cells.len()];
    let bar = progress::steps("rounds", u64::from(rounds) * cells.len() as u64);
    let round = |_| {
        let each = cells.iter().map(|cell| {
            interrupt.check()?;
            bar.set_message(format!("{} {}", cell.figure.name(), cell.how.name()));
            bar.inc(1);
            rig.run(cell)
        });
        each.collect::<Result<Vec<Ran>>>()
    };
    let (whole, interrupted) = until_interrupted(0..rounds, round)?;
    for round in whole {
        ran.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
    }
    bar.finish_and_clear();
    let rows = if ran.iter().any(Vec::is_empty) { Vec::new() } else { rows(&cells, &ran) };

    let cores_line = format!(
        "the host on core {}, the firmware on {}, {rounds} rounds",
        cores[0],
        device_core.map_or("any".to_owned(), |core| format!("core {core}")),
    );
    report::print_all(&args.output, [machine.line(), cores_line])?;
    report::print_all(&args.output, rig.about())?;
    report::print_all(&args.output, [&shown::tables(&rows), HOW_CPU_IS_COUNTED])?;
    let nand_did = rig.nand_did();
    if let Some((did, late_us)) = nand_did {
        report::print(&args.output, &format!("nand: {}; its completions came {late_us:.1} µs late", did.sentence()))?;
    }
    let goals = shown::goals(&rows);
    report::print_all(&args.output, goals.iter().map(Goal::line))?;
    let shapes = shapes::shapes(&rows);
    report::print_all(&args.output, shapes.iter().map(Shape::line))?;
    if device_core.is_none() || device_core == Some(cores[0]) {
        report::print(&args.output, "Host and firmware share a core: they take turns, and all of it says little.")?;
    }
    let setting = serde_json::json!({
        "size_bytes": bytes,
        "round_ms": times.each.as_secs_f64() * 1e3,
        "nand_round_ms": times.nand.as_secs_f64() * 1e3,
        "host_core": cores[0],
        "device_core": device_core,
        "media": rig.about(),
        "nand_did": nand_did.map(|(did, _)| did),
        "nand_late_us": nand_did.map(|(_, late_us)| late_us),
        "cpu": HOW_CPU_IS_COUNTED,
        "goals": goals,
        "shapes": shapes,
        "optimised": !cfg!(debug_assertions),
    });
    Report { interrupted, ..Report::new(&machine, setting, &rows) }
        .finish(&args.output, || stack(&shown::drawings(&rows)))
}
