//! `checkpoint`: a long computation that survives a crash, by `sync` of a pool and by what a
//! program in plain memory can do itself.
//!
//! ```text
//!  computes | a checkpoint falls due                    | the next one
//!  ---------+---------------------------------------------+----------------
//!  file, dump    held: writes and fsync  | goes on
//!  fork          held: fork | goes on; pages are copied as they are written to; a child process writes
//!  behind        held: copy | goes on; another thread writes
//!  sync          goes on; the gate is closed for a moment; kernel and workers write
//! ```
//!
//! The price of a checkpoint is the longest time without an update, the speed compared with unkept
//! plain memory in turns, and all CPU time. What each keeps is read back, and must be the memory at
//! the checkpoint's cut.

mod in_memory;
mod in_pool;
mod job;
mod log;
mod method;
mod shown;
mod target;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_sys::affinity;
use serde::Serialize;

use crate::args::CheckpointArgs;
use fulgurite_harness::Spread;
use fulgurite_harness::checks;
use fulgurite_harness::child::added_work;
use fulgurite_term::bad_input::bad_input;
use fulgurite_term::interrupt::{Interrupt, until_interrupted};
use fulgurite_term::machine::Machine;
use fulgurite_term::progress;
use fulgurite_term::report::charts::stack;
use fulgurite_term::report::{self, Report};

use job::Job;
use method::{Method, Run};
use target::Target;

const WORK: Duration = Duration::from_micros(10);

/// A method, over all rounds.
#[derive(Clone, Debug, Serialize)]
struct Row {
    way: &'static str,
    survives_a_crash: &'static str,
    rounds: usize,
    data_bytes: u64,
    /// Of the memory; not what a fork doubles, or a copy.
    dram_bytes: u64,
    dirty_bytes: u64,
    /// Made in a round; as many fell due as `setting` says.
    checkpoints: Spread,
    updates: u64,
    /// Plain memory's time over this one's, by round.
    share_of_plain: Spread,
    /// The longest time without an update, of each turn but the first.
    longest_gap_ms: Spread,
    /// From a checkpoint's beginning until it would survive.
    durable_ms: Option<Spread>,
    written_bytes_per_checkpoint: Option<u64>,
    /// Of this process, its children and the kernel's threads.
    cpu_us_per_update: f64,
    /// What was read back and compared: how many of the updates were in it, by round.
    restored_updates: Vec<u64>,
    /// Of the memory in the end: the same in all rows.
    work_hash: String,
}

/// Runs `checkpoint`.
pub fn run(args: &CheckpointArgs) -> Result<()> {
    let interrupt = Interrupt::catch()?;
    checks::outputs(&args.output)?;
    let machine = Machine::describe();
    let quick = args.output.quick;
    let data_bytes = args.size.data.unwrap_or(if quick { 64 << 20 } else { 512 << 20 });
    let (dirty_bytes, dram_bytes) = (data_bytes / 16, data_bytes / 4);
    let rounds = args.repeat.rounds.unwrap_or(if quick { 1 } else { 3 }) as usize;
    let checkpoints = if quick { 3 } else { 6 };
    let interval = Duration::from_millis(if quick { 50 } else { 500 });
    let page = SUBPAGE_BYTES as u64;
    if !data_bytes.is_multiple_of(16 * page) {
        bad_input!("--data {} is not a multiple of 64 KiB", format_bytes(data_bytes));
    }
    let updates = interval.as_nanos() as u64 / WORK.as_nanos() as u64;
    let directory = checks::scratch_directory(args.place.dir.as_deref(), None)?;
    let iterations = {
        let per_million = added_work::time(1 << 20).max(1);
        (WORK.as_nanos() as u64 * (1 << 20)) / per_million
    };
    let pages = data_bytes / page;
    let job = Job { seed: args.output.seed, pages, dirty_pages: dirty_bytes / page, updates, checkpoints, iterations };
    // Two images, or one and the log.
    let files_bytes = data_bytes + data_bytes.max(log::log_bytes(&job));
    checks::space("--dir", &directory, files_bytes + target::pool_bytes(data_bytes))?;
    let checked = target::check(&directory, data_bytes, dram_bytes, &machine)?;
    let files = tempfile::Builder::new().prefix("fulgurite-checkpoint-").tempdir_in(&directory)?;
    let kept = files.path().join("kept");
    std::fs::create_dir(&kept)?;
    let cores = affinity::cores();

    let target = Target::make(checked, data_bytes, &interrupt)?;
    let preparing = progress::waiting("the first state");
    let first = job.first();
    preparing.finish_and_clear();
    let bar = progress::steps("checkpoint", (rounds * Method::ALL.len()) as u64);
    let (runs, interrupted) = until_interrupted(0..rounds, |number| {
        let mut round: [Option<Run>; Method::ALL.len()] = Default::default();
        for turn in 0..Method::ALL.len() {
            interrupt.check()?;
            // Each round begins with another one, so that none always comes after the same.
            let index = (turn + number) % Method::ALL.len();
            let method = Method::ALL[index];
            bar.set_message(method.name());
            let run = if method.in_pool() {
                in_pool::run(&target, &job, first, dram_bytes, method == Method::Sync, &cores)
            } else {
                in_memory::run(&kept, &job, first, method, &cores)
            };
            round[index] = Some(run.with_context(|| format!("{} failed", method.name()))?);
            bar.inc(1);
        }
        Ok(round.into_iter().flatten().collect())
    })?;
    bar.finish_and_clear();
    let rows: Vec<Row> = if runs.is_empty() { Vec::new() } else { rows(&runs, &job, dram_bytes)? };
    report::print(&args.output, &machine.line())?;
    report::print(
        &args.output,
        &format!(
            "{} of data in {}, {} of it changed between two checkpoints, {interval:?} apart; {} of DRAM before the pool; the \
             computation on core {}, whoever works for it on all {}",
            format_bytes(data_bytes),
            directory.display(),
            format_bytes(dirty_bytes),
            format_bytes(dram_bytes),
            cores[0],
            cores.len()
        ),
    )?;
    report::print(&args.output, &format!("The pool of fulgurite and sync is on: {}.", target.describe()))?;
    report::print(&args.output, &shown::lines(&rows))?;
    let setting = serde_json::json!({
        "medium": target.describe(),
        "interval_ms": interval.as_secs_f64() * 1e3,
        "work_us": WORK.as_secs_f64() * 1e6,
        "checkpoints_due": checkpoints,
        "computes_on_core": cores[0],
        "cores": cores,
    });
    Report { interrupted, ..Report::new(&machine, setting, &rows) }
        .finish(&args.output, || stack(&shown::drawings(&rows)))
}

/// What all rounds came to, by method.
fn rows(runs: &[Vec<Run>], job: &Job, dram_bytes: u64) -> Result<Vec<Row>> {
    let hash = runs[0][0].end.hash;
    let row = |(index, method): (usize, Method)| {
        let of_way: Vec<&Run> = runs.iter().map(|round| &round[index]).collect();
        for run in &of_way {
            ensure!(run.end.hash == hash, "{} did other work than {}", method.name(), Method::ALL[0].name());
        }
        let made: Vec<_> = of_way.iter().flat_map(|run| &run.made).collect();
        let longest = of_way.iter().flat_map(|run| run.gaps.longest_ns.iter().skip(1).map(|ns| *ns as f64 / 1e6));
        let updates = job.all_updates();
        let cpu_s = of_way.iter().map(|run| run.cpu_s).sum::<f64>();
        Ok(Row {
            way: method.name(),
            survives_a_crash: method.survives(),
            rounds: of_way.len(),
            data_bytes: job.bytes() as u64,
            dram_bytes: if method.in_pool() { dram_bytes } else { job.bytes() as u64 },
            dirty_bytes: job.dirty_pages * SUBPAGE_BYTES as u64,
            checkpoints: Spread::of(of_way.iter().map(|run| run.made.len() as f64)),
            updates,
            share_of_plain: Spread::of(runs.iter().map(|r| r[0].gaps.seconds() / r[index].gaps.seconds())),
            longest_gap_ms: Spread::of(longest),
            durable_ms: Spread::of_any(made.iter().map(|made| made.durable.as_secs_f64() * 1e3)),
            written_bytes_per_checkpoint: (!made.is_empty())
                .then(|| made.iter().map(|made| made.written).sum::<u64>() / made.len() as u64),
            cpu_us_per_update: cpu_s * 1e6 / (updates * of_way.len() as u64) as f64,
            restored_updates: of_way.iter().filter_map(|run| run.restored).collect(),
            work_hash: format!("{hash:016x}"),
        })
    };
    Method::ALL.iter().copied().enumerate().map(row).collect()
}
