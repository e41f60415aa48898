//! `alloc`: SSDAlloc's evaluation. Programs that change only their allocation calls run with each
//! allocator in turns, in processes with the same DRAM. They are compared with the kernel's paging,
//! and with the programs rewritten on blobs. What the runtime itself costs is measured before.

mod bare;
pub mod child;
mod contest;
mod memory;
mod overhead;
pub mod page_fault;
mod program;
mod programs;
mod rows;
mod walk;

use std::time::Duration;

use anyhow::Result;
use fulgurite_format::format_bytes;

use crate::args::AllocArgs;
use crate::values::AllocConfig;
use contest::{ALLOWANCE_BYTES, Contest, How, THREADS, file_bytes};
use fulgurite_harness::checks;
use fulgurite_harness::experiment::{Experiment, plot};
use fulgurite_term::bad_input::bad_input;
use fulgurite_term::interrupt::{Interrupt, ended_early, go_on};
use fulgurite_term::report::{print, print_all};

/// Runs `alloc`.
///
/// # Errors
/// Bad input, an interruption, what failed.
pub fn run(args: &AllocArgs) -> Result<()> {
    let interrupt = Interrupt::catch()?;
    checks::outputs(&args.output)?;
    let how = how(args)?;
    let scratch = checks::scratch_directory(args.place.dir.as_deref(), None)?;
    let mut configs = args.config.clone();
    configs.sort();
    configs.dedup();
    let files: u64 = configs.iter().map(|config| file_bytes(*config, how.data_bytes)).sum();
    checks::space("fulgurite-lab alloc", &scratch, files + how.data_bytes)?;
    let mut experiment = Experiment::start(&interrupt, &scratch)?;
    experiment.leave_out(&mut configs, |config, machine| match config {
        AllocConfig::OsSwap => machine.without_swap(),
        AllocConfig::Mmap => machine.cgroup_missing.clone(),
        _ => None,
    });
    if let Some(missing) = &experiment.capabilities.cgroup_missing {
        let kept = format!("The DRAM is kept by the allocators alone, not by the kernel as well: {missing}.");
        experiment.note(kept);
    }
    experiment.note(format!(
        "Each process has {} of DRAM for data, and {} for itself. What a program keeps in DRAM is added: heads of \
         chains, tables of packets.",
        format_bytes(how.dram_bytes),
        format_bytes(ALLOWANCE_BYTES)
    ));
    print(&args.output, &experiment.machine.line())?;
    let mut contest = Contest::new(experiment, scratch, how);
    let costs = contest.overhead();
    let unmeasured = |e| contest.experiment.note(format!("The runtime itself was not measured: {e:#}."));
    let costs = go_on(costs, unmeasured)?.unwrap_or_default();
    let interrupted = ended_early(args.program.iter().try_for_each(|program| {
        let measured = contest.measure(*program, &configs);
        contest.experiment.noted(program, measured).map(drop)
    }))?;
    contest.clean()?;
    let Contest { rows, experiment, .. } = contest;
    if !costs.is_empty() {
        print(&args.output, &overhead::shown(&costs))?;
    }
    print(&args.output, &rows::shown(&rows))?;
    print_all(&args.output, &experiment.notes)?;
    let setting = serde_json::json!({
        "data_bytes": how.data_bytes, "dram_bytes": how.dram_bytes, "allowance_bytes": ALLOWANCE_BYTES,
        "threads": how.threads, "zswap": experiment.capabilities.zswap,
    });
    let report = experiment.report(setting, &rows, interrupted).with("overhead", &costs)?;
    report.finish(&args.output, || plot(&rows, rows::requests))
}

fn how(args: &AllocArgs) -> Result<How> {
    let quick = args.output.quick;
    let data_bytes = args.size.data.unwrap_or(if quick { 48 << 20 } else { 1 << 30 });
    let dram_bytes = args.dram.of(data_bytes);
    if dram_bytes + ALLOWANCE_BYTES >= data_bytes {
        bad_input!(
            "{} of DRAM, and {} for the process itself, hold all of {} of data; ask for less --dram or more --data",
            format_bytes(dram_bytes),
            format_bytes(ALLOWANCE_BYTES),
            format_bytes(data_bytes)
        );
    }
    Ok(How {
        data_bytes,
        dram_bytes,
        threads: THREADS,
        rounds: args.repeat.rounds.unwrap_or(if quick { 1 } else { 5 }),
        requests: args.requests.unwrap_or(if quick { 4000 } else { 200_000 }),
        disk_time: Duration::from_millis(if quick { 100 } else { 1000 }),
        seed: args.output.seed,
    })
}
