//! `live`: workloads in all configurations, interleaved, each as a share of dram-only.

use std::time::Duration;

use anyhow::Result;
use fulgurite_harness::args::{FlashArgs, OnFlashArgs};
use fulgurite_harness::comparison::{Measure, labels, measured, planned, plot};
use fulgurite_harness::image::Image;
use fulgurite_harness::rows::LiveRow;
use fulgurite_harness::session::{self, Session, Setup};
use fulgurite_harness::{Spread, checks};
use fulgurite_term::bad_input::bad_input;
use fulgurite_term::interrupt::{Interrupt, Interrupted, ended_early, go_on};
use fulgurite_term::report::{self, Report, table};
use fulgurite_workloads::Params;

use crate::args::LiveArgs;
use crate::values::{Config, FlashChoice, workloads};

/// Data with `--quick`: seven workloads in under a minute, and 3% still hold stacks and tables.
const QUICK_DATA_BYTES: u64 = 160 << 20;

/// Runs `live`.
pub fn run(args: &LiveArgs) -> Result<()> {
    let interrupt = Interrupt::catch()?;
    checks::outputs(&args.output)?;
    let quick = args.output.quick;
    let names = workloads(&args.workload);
    let data_bytes = args.size.data.unwrap_or(if quick { QUICK_DATA_BYTES } else { 2 << 30 });
    let rounds = args.repeat.rounds.unwrap_or(if quick { 2 } else { 5 });
    let work = args.work.or_headline(quick);
    let round_time = args.turn.round_time.unwrap_or(Duration::from_millis(if quick { 20 } else { 1000 }));
    if names.contains(&"search") && args.input.is_none() {
        bad_input!("the search workload needs --input DIR: a directory with text");
    }
    if let Some(input) = &args.input {
        checks::input(input)?;
    }
    checked_mixes(&names, &args.mix)?;
    // dram-only is the denominator, whether it was named or not.
    let mut configs = vec![Config::DramOnly];
    configs.extend(Config::ALL.iter().copied().filter(|c| *c != Config::DramOnly && args.config.contains(c)));
    let clusters: &[u32] = if quick { &[0] } else { &[0, 3] };
    let setups = |config| Setup::all(config, args.flash.workers, clusters, quick);
    let media = media(args, data_bytes)?;
    // All is checked before anything is measured. The first medium has all flashless runs.
    let mut sessions = Vec::new();
    for (number, flash) in media.iter().enumerate() {
        let mut configs = configs.clone();
        configs.retain(|c| number == 0 || *c == Config::DramOnly || (c.guarded() && *c != Config::Resident));
        sessions.push((Session::start(flash, data_bytes, &mut configs, &setups, &interrupt)?, configs));
    }
    report::print(&args.output, &sessions[0].0.experiment.machine.line())?;
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    let mut all = || -> Result<()> {
        for (name, gets) in in_mixes(&names, &args.mix) {
            let zipf = args.work.zipf.unwrap_or(0.99);
            let (seed, input) = (args.output.seed, args.input.clone());
            let params = Params { bytes: data_bytes, zipf, seed, input, value_bytes: args.value.0, gets };
            let built = Image::build(name, &params, crate::catalog::WORKLOADS, &interrupt);
            let Some(mut image) = go_on(built, |e| failed.push(format!("{name}: {e:#}")))? else { continue };
            let name = image.label();
            // All media get the same requests.
            let mut plan = None;
            for (session, configs) in &mut sessions {
                // Several media repeat none: one more round on one would change its requests.
                let repeats = if args.also.is_empty() { rounds } else { 0 };
                let (work, output) = (&work, &args.output);
                let how = Measure { configs, clusters, rounds, repeats, round_time, work, output };
                let planned = plan.map_or_else(|| planned(session, &mut image, &how), Ok);
                let done = planned.and_then(|plan| Ok((plan, measured(session, &image, &how, &plan)?)));
                let done = go_on(done, |e| failed.push(format!("{name}: {e:#}")))?;
                let Some((made, (mut these, ran))) = done else { continue };
                plan = Some(made);
                these.iter_mut().for_each(|row| row.media = media.len());
                rows.append(&mut these);
                failed.extend(ran.failed.into_iter().map(|sentence| format!("{name}: {sentence}")));
                if ran.interrupted {
                    return Err(Interrupted.into());
                }
            }
        }
        Ok(())
    };
    let interrupted = ended_early(all())?;
    let settings: Vec<_> = sessions[1..].iter().map(|(session, _)| session.setting()).collect();
    let mut sessions = sessions.into_iter().map(|(session, _)| session);
    let mut session = sessions.next().expect("--flash has one");
    for other in sessions {
        other.experiment.notes.iter().for_each(|note| session.note(note.clone()));
    }
    let tables = [Some(crate::live_tables::shown(&rows)), crate::live_tables::nand(&rows), Some(summary(&rows))];
    report::print_all(&args.output, tables.into_iter().flatten())?;
    report::print_all(&args.output, sentences(&rows))?;
    for row in rows.iter().filter(|row| suspect(row)) {
        session.note(format!(
            "{}, {}: faster than plain memory, which cannot be: something disturbed the run; repeat it.",
            row.workload, row.config
        ));
    }
    report::print_all(&args.output, &session.experiment.notes)?;
    let mut setting = session.setting();
    if !settings.is_empty() {
        setting["also"] = settings.into();
    }
    Report { interrupted, failed: &failed, ..Report::new(&session.experiment.machine, setting, &rows) }
        .finish(&args.output, || plot(&rows))
}

/// Refuses shares that no workload here can be asked for, and one that stands twice: its rows would
/// have the same name.
fn checked_mixes(names: &[&'static str], mixes: &[u32]) -> Result<()> {
    if !mixes.is_empty() && names.iter().all(|name| fulgurite_workloads::gets(name).is_none()) {
        bad_input!("--mix is of the workloads blobs and gups, not of {}; leave it out", names.join(", "));
    }
    if let Some((_, mix)) = mixes.iter().enumerate().find(|(at, mix)| mixes[..*at].contains(mix)) {
        bad_input!("--mix names {mix} twice; name it once");
    }
    Ok(())
}

/// Each workload, and with each share of reads that was asked for, where it can be. None: its own.
fn in_mixes(names: &[&'static str], mixes: &[u32]) -> Vec<(&'static str, Option<u32>)> {
    let of = |name: &str| -> Vec<Option<u32>> {
        let own = fulgurite_workloads::gets(name);
        if own.is_none() || mixes.is_empty() {
            return vec![None];
        }
        mixes.iter().map(|gets| Some(*gets).filter(|_| own != Some(*gets))).collect()
    };
    names.iter().flat_map(|name| of(name).into_iter().map(move |gets| (*name, gets))).collect()
}

/// Sentences next to the tables: the device's own speed, several workers, kernel paging, NAND.
fn sentences(rows: &[LiveRow]) -> Vec<String> {
    let name = |row: &LiveRow| format!("{}, {}", row.workload, row.config);
    let ratios = |of: Spread| format!("{:.2} to {:.2} by round", of.min, of.max);
    let spread = |of: Spread, show: fn(f64) -> String| {
        format!("{} ({} to {} by round)", show(of.median), show(of.min), show(of.max))
    };
    let mut sentences = Vec::new();
    for row in rows {
        if let (Some(limit), Some(share)) = (row.device_limit_spread, row.share_of_device_limit_spread) {
            let more = if share.median > 1.0 { "; more than 100%: neither yardstick found its ceiling" } else { "" };
            sentences.push(format!(
                "{}: {} of what the device allows, which completes {} requests/s in the same mix by itself{more}",
                name(row),
                spread(share, table::percent),
                spread(limit, table::number)
            ));
        }
        if let (Some(fio), Some(share)) = (row.fio_spread, row.share_of_fio_spread) {
            sentences.push(format!(
                "{}: {} of the requests/s that fio completes in the same mix, {}",
                name(row),
                spread(share, table::percent),
                spread(fio, table::number)
            ));
        }
    }
    sentences.extend(rows.iter().filter_map(|row| {
        let (speedup, workers) = (row.speedup_over_one_worker?, row.workers);
        let (times, range) = (speedup.median, ratios(speedup));
        Some(format!("{}: {workers} workers do {times:.2}x the work of one ({range})", name(row)))
    }));
    for row in rows {
        for (over, paged) in [(row.over_os_swap, Config::OsSwap), (row.over_mmap, Config::Mmap)] {
            sentences.extend(
                over.map(|over| format!("{}: {:.2}x the best {paged} ({})", name(row), over.median, ratios(over))),
            );
        }
    }
    let of_nand = |row: &LiveRow| Some(format!("{}, {}: {}", row.workload, row.label(), row.nand?.sentence()));
    sentences.extend(rows.iter().filter_map(of_nand));
    sentences
}

/// The flash of each part of the run: --flash, then each of --also. One kind of NAND gets blocks of
/// one size, the smallest that is needed. Otherwise more planes for the same data would mean more
/// erases.
fn media(args: &LiveArgs, data_bytes: u64) -> Result<Vec<FlashArgs>> {
    let mut media = vec![args.flash.clone()];
    if !args.also.is_empty() && !matches!(args.flash.choice(), FlashChoice::Nand(_)) {
        bad_input!(
            "--also compares NAND with NAND, and --flash is {}; write --flash nand:PROFILE",
            args.flash.choice()
        );
    }
    for also in &args.also {
        let planes = also.planes.unwrap_or(args.flash.planes);
        let on = OnFlashArgs { flash: Some(FlashChoice::Nand(also.nand.clone())), ..args.flash.on.clone() };
        media.push(FlashArgs { on, planes, ..args.flash.clone() });
    }
    let mut pages = Vec::new();
    for flash in &media {
        pages.push(session::block_pages(flash, data_bytes)?);
    }
    for i in 0..media.len() {
        let alike = (0..media.len()).filter(|other| media[*other].choice() == media[i].choice());
        media[i].block_pages = alike.filter_map(|other| pages[other]).min().or(media[i].block_pages);
    }
    Ok(media)
}

/// By more than this, no configuration with less DRAM outdoes plain memory.
const NOISE: f64 = 1.03;

/// Whether a row cannot be true.
fn suspect(row: &LiveRow) -> bool {
    Config::ALL.iter().any(|c| c.name() == row.config && c.capped())
        && row.share_of_dram_only.is_some_and(|share| share.median > NOISE)
}

fn summary(rows: &[LiveRow]) -> String {
    let of = |label: &String| {
        let these = rows.iter().filter(|row| row.label() == *label);
        let shares: Vec<f64> = these.filter_map(|row| Some(row.share_of_dram_only?.median)).collect();
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        (shares.len() > 1).then(|| format!("{label} {} (lowest {})", table::percent(mean), table::percent(least)))
    };
    let all: Vec<String> = labels(rows).iter().filter_map(of).collect();
    if all.is_empty() { String::new() } else { format!("Mean share of dram-only: {}", all.join(", ")) }
}
