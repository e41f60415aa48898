//! `policies`: miss ratios of the replacement policies on traces, on Zipf keys and on the
//! workloads' own accesses.
//!
//! Nothing is timed. Each stream is replayed twice: with every hit known, as the policies' authors
//! have it (`known`), and with a mark per frame, as in the runtime (`marked`).

mod streams;
mod summary;

use std::collections::HashSet;
use std::path::Path;

use anyhow::Result;
use fulgurite_policy::{Hits, ReplacementPolicy, miss_ratio_with};
use fulgurite_workloads::Params;
use serde::Serialize;

use crate::args::PoliciesArgs;
use crate::parallel;
use fulgurite_harness::checks;
use fulgurite_term::bad_input::bad_input;
use fulgurite_term::interrupt::{Interrupt, ended_early};
use fulgurite_term::machine::Machine;
use fulgurite_term::progress;
use fulgurite_term::report::charts::{Axis, Curve, Curves, stack};
use fulgurite_term::report::table;
use fulgurite_term::report::{self, Report};
use streams::Stream;
use summary::{Standing, standings};

/// One policy at one size on one stream.
#[derive(Clone, Debug, Serialize)]
struct Row {
    stream: String,
    /// DRAM, in percent of the distinct subpages.
    share: f64,
    frames: usize,
    distinct: usize,
    accesses: u64,
    policy: &'static str,
    hits: &'static str,
    misses: u64,
    miss_ratio: f64,
}

const POLICIES: [ReplacementPolicy; 3] = [ReplacementPolicy::Clock, ReplacementPolicy::S3Fifo, ReplacementPolicy::Lru];
const KINDS: [(Hits, &str); 2] = [(Hits::Marked, "marked"), (Hits::Known, "known")];
/// DRAM, in percent of the distinct subpages touched.
const SHARES: [f64; 6] = [1.0, 2.0, 3.0, 5.0, 10.0, 20.0];
/// Exponents of bare Zipf keys, and of the recorded workloads' keys.
const BARE_ZIPF: [f64; 3] = [0.8, 0.99, 1.2];
const ZIPF: [f64; 2] = [0.8, 0.99];

/// Runs `policies`.
pub fn run(args: &PoliciesArgs) -> Result<()> {
    let interrupt = Interrupt::catch()?;
    checks::outputs(&args.output)?;
    let quick = args.output.quick;
    let data_bytes = if quick { 32 << 20 } else { 256 << 20 };
    let directory = &args.traces.directory;
    let asked_for = directory != Path::new("traces");
    if asked_for && !directory.is_dir() {
        bad_input!("--traces {} is not a directory", directory.display());
    }
    let mut notes = Vec::new();
    let names = names(args, &mut notes)?;
    let machine = Machine::describe();
    checks::memory(data_bytes * 2, data_bytes, &machine)?;
    let traces = streams::traces(directory)?;
    if traces.is_empty() {
        let directory = directory.display();
        if asked_for {
            bad_input!("--traces {directory} holds no *.lis or *.lis.zst; name a directory with block traces");
        }
        notes.push(format!(
            "SKIPPED: traces. There is no *.lis or *.lis.zst in {directory}; name a directory with --traces."
        ));
    }
    let (length, zipf_keys) = if quick { (60_000, 20_000) } else { (2_000_000, 1_000_000) };
    let bar = progress::steps("policies", (traces.len() + BARE_ZIPF.len() + names.len() * ZIPF.len()) as u64);
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    let mut replay = |stream: &Stream| -> Result<()> {
        bar.set_message(stream.name.clone());
        let distinct = stream.keys.iter().collect::<HashSet<_>>().len();
        let (mut made, ended) = replacement_rows(stream, distinct, &SHARES, &interrupt);
        rows.append(&mut made);
        ended?;
        bar.inc(1);
        Ok(())
    };
    let mut all = || -> Result<()> {
        for path in &traces {
            let (path, limit) = (path.clone(), if quick { length } else { TRACE_MAX });
            replay(&interrupt.unless_asked(move || streams::read_trace(&path, limit))??)?;
        }
        for exponent in BARE_ZIPF {
            replay(&streams::zipf_stream(exponent, zipf_keys, length, args.output.seed)?)?;
        }
        for name in &names {
            bar.set_message(format!("{name}: recording"));
            let params = Params {
                bytes: data_bytes,
                zipf: 0.99,
                seed: args.output.seed,
                input: args.input.clone(),
                ..Params::default()
            };
            let name = *name;
            match interrupt.unless_asked(move || streams::record(name, params, &ZIPF, length))? {
                Ok(recorded) => recorded.iter().try_for_each(&mut replay)?,
                // A workload that does not fit costs only its own results.
                Err(error) => failed.push(format!("SKIPPED: {error:#}.")),
            }
            interrupt.check()?;
        }
        Ok(())
    };
    let result = all();
    bar.finish_and_clear();
    let interrupted = ended_early(result)?;
    notes.append(&mut failed);
    let standings: Vec<Standing> = KINDS.iter().flat_map(|(_, hits)| standings(&rows, hits)).collect();
    report::print_all(&args.output, [table(&rows, &SHARES), summary::sentences(&standings)])?;
    report::print_all(&args.output, &notes)?;
    let setting = serde_json::json!({
        "policies": POLICIES.map(|policy| policy.to_string()), "data_bytes": data_bytes, "stream_length": length, "zipf": ZIPF,
        "seed": args.output.seed, "notes": notes,
    });
    Report { interrupted, ..Report::new(&machine, setting, &rows) }
        .with("standings", &standings)?
        .finish(&args.output, || plot(&rows))
}

/// No more of a trace is read: 512 MiB of keys.
const TRACE_MAX: usize = 1 << 26;

/// The workloads to record: all there are, the search only with text to index.
fn names(args: &PoliciesArgs, notes: &mut Vec<String>) -> Result<Vec<&'static str>> {
    let mut names = fulgurite_workloads::names().to_vec();
    match &args.input {
        Some(input) => checks::input(input)?,
        None => {
            names.retain(|name| *name != "search");
            notes.push("SKIPPED: the search workload. It needs --input DIR: a directory with text.".to_owned());
        }
    }
    Ok(names)
}

fn frames_of(distinct: usize, share: f64) -> usize {
    ((distinct as f64 * share / 100.0) as usize).max(1)
}

fn replacement_rows(stream: &Stream, distinct: usize, shares: &[f64], interrupt: &Interrupt) -> (Vec<Row>, Result<()>) {
    let mut runs = Vec::new();
    for share in shares {
        for policy in POLICIES {
            runs.extend(KINDS.iter().map(|(hits, name)| (*share, policy, *hits, *name)));
        }
    }
    parallel::run(fulgurite_sys::affinity::cores().len(), runs.len(), interrupt, |i| {
        let (share, policy, hits, name) = runs[i];
        let frames = frames_of(distinct, share);
        let misses = miss_ratio_with(policy, frames, hits, stream.keys_until(interrupt)).misses;
        Ok(Row {
            stream: stream.name.clone(),
            share,
            frames,
            distinct,
            accesses: stream.accesses,
            policy: policy.name(),
            hits: name,
            misses,
            miss_ratio: misses as f64 / stream.accesses.max(1) as f64,
        })
    })
}

fn sources(rows: &[Row]) -> Vec<String> {
    report::distinct(rows.iter().map(|row| row.stream.clone()))
}

/// One line for each stream and policy, one column for each size.
fn table(rows: &[Row], shares: &[f64]) -> String {
    let mut heading = vec!["stream".to_owned(), "policy".to_owned(), "hits".to_owned()];
    heading.extend(shares.iter().map(|s| format!("{s}%")));
    let mut lines = Vec::new();
    for source in sources(rows) {
        let mut first = true;
        for hits in ["marked", "known"] {
            for policy in POLICIES {
                let cell = |share: &f64| {
                    rows.iter()
                        .find(|r| {
                            r.stream == source && r.policy == policy.name() && r.hits == hits && r.share == *share
                        })
                        .map(|r| format!("{:.2}%", r.miss_ratio * 100.0))
                };
                let cells: Vec<Option<String>> = shares.iter().map(cell).collect();
                if cells.iter().all(Option::is_none) {
                    continue;
                }
                let mut line =
                    vec![if first { source.clone() } else { String::new() }, policy.name().into(), hits.into()];
                first = false;
                line.extend(cells.into_iter().map(|c| c.unwrap_or("-".to_owned())));
                lines.push(line);
            }
        }
    }
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    format!(
        "Misses per access, by DRAM as a share of the distinct subpages touched\n{}",
        table::table(&heading, 3, lines)
    )
}

/// Miss-ratio curves, one chart a stream.
fn plot(rows: &[Row]) -> String {
    let chart = |source: &String| {
        let curve = |policy: &ReplacementPolicy| Curve {
            name: policy.to_string(),
            points: rows
                .iter()
                .filter(|r| r.stream == *source && r.policy == policy.name() && r.hits == "marked")
                .map(|r| (r.share, r.miss_ratio * 100.0))
                .collect(),
        };
        let ticks = rows.iter().filter(|r| r.stream == *source).map(|r| r.share);
        let x = Axis {
            ticks: ticks.map(|t| (t, format!("{t}%"))).collect(),
            ..Axis::logarithmic("DRAM as a share of the distinct subpages touched")
        };
        let curves = POLICIES.iter().map(curve).filter(|c| !c.points.is_empty()).collect();
        let subtitle = "hits seen as one mark per frame, as in the runtime";
        Curves::new(format!("Miss ratio: {source}"), subtitle, x, Axis::linear("% of accesses"), curves).draw()
    };
    stack(&sources(rows).iter().map(chart).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_caches_miss_less() {
        let stream = streams::zipf_stream(0.99, 1000, 20_000, 1).unwrap();
        let shares = [1.0, 50.0];
        let (rows, ended) = replacement_rows(&stream, 1000, &shares, &Interrupt::default());
        ended.unwrap();
        let half = 2 * POLICIES.len();
        assert_eq!(rows.len(), 2 * half);
        assert!(rows[half].misses < rows[0].misses, "{rows:?}");
        assert!(table(&rows, &shares).contains("zipf-0.99"));
        assert!(!plot(&rows).contains("NaN"));
    }
}
