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
use fulgurite_harness::privileged::{Capabilities, Helper, Request};
use fulgurite_term::bad_input::bad_input;
use fulgurite_term::interrupt::{Interrupt, ended_early, go_on};
use fulgurite_term::machine::Machine;
use fulgurite_term::report::{Report, print, print_all};

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
    let machine = Machine::describe();
    let mut helper = Helper::start()?;
    let capabilities = helper.probe(&scratch)?;
    let mut notes = skipped(&mut configs, &capabilities);
    if configs.contains(&AllocConfig::OsSwap) && capabilities.zswap == "on" {
        helper.perform(&Request::ZswapOff)?;
        notes.push("zswap is on; for os-swap it was turned off, and is on again after the run.".to_owned());
    }
    notes.push(format!(
        "Each process has {} of DRAM for data, and {} for itself. What a program keeps in DRAM is added: heads of \
         chains, tables of packets.",
        format_bytes(how.dram_bytes),
        format_bytes(ALLOWANCE_BYTES)
    ));
    print(&args.output, &machine.line())?;
    let mut contest = Contest::new(interrupt, helper, capabilities, scratch, how);
    let costs = go_on(contest.overhead(), |e| notes.push(format!("The runtime itself was not measured: {e:#}.")))?;
    let costs = costs.unwrap_or_default();
    let interrupted = ended_early(args.program.iter().try_for_each(|program| {
        let measured = contest.measure(*program, &configs);
        go_on(measured, |e| contest.failed.push(format!("{program}: {e:#}"))).map(drop)
    }))?;
    contest.clean()?;
    let Contest { rows, failed, capabilities, .. } = contest;
    if !costs.is_empty() {
        print(&args.output, &overhead::shown(&costs))?;
    }
    print(&args.output, &rows::shown(&rows))?;
    print_all(&args.output, &notes)?;
    let setting = serde_json::json!({
        "data_bytes": how.data_bytes, "dram_bytes": how.dram_bytes, "allowance_bytes": ALLOWANCE_BYTES,
        "threads": how.threads, "zswap": capabilities.zswap, "notes": notes,
    });
    Report { interrupted, failed: &failed, ..Report::new(&machine, setting, &rows) }
        .with("overhead", &costs)?
        .finish(&args.output, || rows::plot(&rows))
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

/// Takes away what this machine cannot do. Returns sentences about it.
fn skipped(configs: &mut Vec<AllocConfig>, capabilities: &Capabilities) -> Vec<String> {
    let mut notes = Vec::new();
    configs.retain(|config| {
        let missing = match config {
            AllocConfig::OsSwap => capabilities.cgroup_missing.as_ref().or(capabilities.swap_missing.as_ref()),
            AllocConfig::Mmap => capabilities.cgroup_missing.as_ref(),
            _ => None,
        };
        notes.extend(missing.map(|missing| format!("{config} is skipped: {missing}.")));
        missing.is_none()
    });
    if let Some(missing) = &capabilities.cgroup_missing {
        notes.push(format!("The DRAM is kept by the allocators alone, not by the kernel as well: {missing}."));
    }
    notes
}
