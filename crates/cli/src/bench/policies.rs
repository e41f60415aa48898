//! `bench policies`: miss ratios of all replacement policies on traces, on Zipf keys and on the workloads' own accesses.
//!
//! Nothing is timed. Each stream of subpages is replayed through the policies of the runtime, twice: hearing of every hit,
//! as their authors describe them (`known`), and seeing only a mark per frame, as in the runtime (`marked`).

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fulgurite_memory::{
    AccessError, Address, Memory, NoLatch, PAGE_BYTES, PlainMemory, PlainPin, Region, View, ViewMut,
};
use fulgurite_policy::{Hits, MissCount, miss_ratio_with};
use fulgurite_sys::Backed;
use fulgurite_workloads::{Params, Random, Visitor, Workload, ZipfKeys};
use serde::Serialize;

use crate::args::PoliciesArgs;
use crate::bad_input::bad_input;
use crate::checks;
use crate::interrupt::{Interrupt, Interrupted};
use crate::machine::Machine;
use crate::progress;
use crate::report::charts::{Axis, Curve, Curves, stack};
use crate::report::{self, Report, table};
use crate::values::{Replacement, workloads};

/// One policy at one size on one stream.
#[derive(Clone, Debug, Serialize)]
struct Row {
    source: String,
    policy: &'static str,
    hits: &'static str,
    dram_share_percent: f64,
    frames: usize,
    distinct: usize,
    accesses: u64,
    misses: u64,
    miss_ratio: f64,
}

/// A stream of subpages.
struct Stream {
    name: String,
    keys: Vec<u64>,
    /// Accesses that the keys stand for: repetitions side by side are one key, as they hit whatever the policy.
    accesses: u64,
}

/// Runs it.
pub fn run(args: &PoliciesArgs) -> Result<()> {
    checks::outputs(&args.output)?;
    let quick = args.output.quick;
    let data_bytes = args.data.unwrap_or(if quick { 32 << 20 } else { 256 << 20 });
    let asked_for = args.traces.directory != Path::new("traces");
    if asked_for && !args.traces.directory.is_dir() {
        bad_input!("--traces {} is not a directory", args.traces.directory.display());
    }
    let machine = Machine::describe();
    checks::memory(data_bytes * 2, data_bytes, &machine)?;
    let interrupt = Interrupt::catch()?;
    let traces = traces(&args.traces.directory)?;
    let mut notes = Vec::new();
    if traces.is_empty() {
        let directory = args.traces.directory.display();
        notes.push(format!(
            "SKIPPED: traces. There is no *.lis or *.lis.zst in {directory}; name a directory with --traces."
        ));
    }
    let (length, zipf_keys) = if quick { (300_000, 100_000) } else { (4_000_000, 1_000_000) };
    let names = workloads(&args.workload);
    let zipf = [0.8, 0.99, 1.2];
    let bar = progress::steps("policies", (traces.len() + zipf.len() + names.len()) as u64);
    let mut rows = Vec::new();
    let mut source = |stream: Result<Stream>| -> Result<()> {
        bar.inc(1);
        replay(&stream?, &args.shares, quick, &interrupt, &mut rows)
    };
    let mut all = || -> Result<()> {
        for path in &traces {
            source(read_trace(path, if quick { 300_000 } else { usize::MAX }))?;
        }
        for exponent in zipf {
            source(zipf_stream(exponent, zipf_keys, length, args.output.seed))?;
        }
        for name in &names {
            source(record(name, data_bytes, length, args.output.seed))?;
        }
        Ok(())
    };
    let result = all();
    bar.finish_and_clear();
    let interrupted = matches!(&result, Err(e) if e.is::<Interrupted>());
    if !interrupted {
        result?;
    }
    report::print(&args.output, &table(&rows, &args.shares))?;
    for note in &notes {
        report::print(&args.output, note)?;
    }
    let setting = serde_json::json!({ "data_bytes": data_bytes, "seed": args.output.seed, "notes": notes });
    let report = Report { machine: &machine, command: report::command_line(), setting, interrupted, rows: &rows };
    report::write_json(&args.output, &report)?;
    report::write_plot(&args.output, || plot(&rows))?;
    if interrupted { Err(Interrupted.into()) } else { Ok(()) }
}

/// Trace files in a directory, by name.
fn traces(directory: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(Vec::new()) };
    let name = |path: &PathBuf| {
        path.file_name().is_some_and(|n| {
            let name = n.to_string_lossy();
            name.ends_with(".lis") || name.ends_with(".lis.zst")
        })
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(name).collect();
    paths.sort();
    Ok(paths)
}

/// Reads a trace: lines of `first-page count 0 sequence`, plain or compressed.
fn read_trace(path: &Path, limit: usize) -> Result<Stream> {
    let what = || format!("the trace {} cannot be read", path.display());
    let file = File::open(path).with_context(what)?;
    let reader: Box<dyn BufRead> = if path.extension().is_some_and(|e| e == "zst") {
        Box::new(BufReader::new(zstd::Decoder::new(file).with_context(what)?))
    } else {
        Box::new(BufReader::new(file))
    };
    let mut keys = Vec::new();
    for (number, line) in reader.lines().enumerate() {
        let line = line.with_context(what)?;
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        match (words.next(), words.next()) {
            (None, _) => continue,
            (Some(Ok(first)), Some(Ok(count))) if count <= 1 << 20 => keys.extend(first..first.saturating_add(count)),
            _ => bad_input!("{}: line {} is not \"first-page count 0 sequence\"", path.display(), number + 1),
        }
        if keys.len() >= limit {
            break;
        }
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_end_matches(".zst").trim_end_matches(".lis").to_owned();
    Ok(Stream { name, accesses: keys.len() as u64, keys })
}

fn zipf_stream(exponent: f64, count: u64, length: usize, seed: u64) -> Result<Stream> {
    let keys = ZipfKeys::new("zipf", count, exponent)?;
    let mut random = Random::new(seed, 0);
    let keys: Vec<u64> = (0..length).map(|_| keys.rank(&mut random)).collect();
    Ok(Stream { name: format!("zipf-{exponent}"), accesses: length as u64, keys })
}

/// Plain memory that notes which subpages are touched.
struct Recorder {
    memory: PlainMemory,
    keys: Vec<u64>,
    accesses: u64,
}

impl Recorder {
    fn note(&mut self, at: Address) {
        self.accesses += 1;
        let subpage = at.linear() >> 12;
        if self.keys.last() != Some(&subpage) {
            self.keys.push(subpage);
        }
    }
}

impl Memory for Recorder {
    type Pin = PlainPin;

    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        self.note(at);
        self.memory.view(at, len)
    }
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        self.note(at);
        self.memory.view_mut(at, len)
    }
    fn pin(&mut self, at: Address) -> Result<PlainPin, AccessError> {
        self.note(at);
        self.memory.pin(at)
    }
    fn prefetch(&mut self, _: Address) {}
    fn park(&mut self, key: usize, still: &dyn Fn() -> bool) -> Result<(), AccessError> {
        self.memory.park(key, still)
    }
    fn unpark_all(key: usize) {
        PlainMemory::unpark_all(key);
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
}

struct Record {
    data_bytes: u64,
    length: usize,
    seed: u64,
}

impl Visitor for Record {
    type Output = Result<Stream>;
    fn visit<W: Workload>(self) -> Self::Output {
        let mut memory = PlainMemory::new(Backed::HugePages)?;
        let region = Region::new(Address::from_linear(0), self.data_bytes.next_multiple_of(PAGE_BYTES as u64));
        let params = Params { bytes: self.data_bytes, zipf: 0.99, seed: self.seed, input: None };
        W::build(&mut memory, region, &params, &mut |_| ())?;
        let workload = W::open(&mut memory, region, &params)?;
        let mut recorder = Recorder { memory, keys: Vec::with_capacity(self.length + 4096), accesses: 0 };
        let mut number = 0;
        while recorder.keys.len() < self.length {
            workload.execute(&mut recorder, &workload.request(self.seed, number))?;
            number += 1;
        }
        Ok(Stream { name: W::NAME.to_owned(), keys: recorder.keys, accesses: recorder.accesses })
    }
}

fn record(name: &str, data_bytes: u64, length: usize, seed: u64) -> Result<Stream> {
    fulgurite_workloads::dispatch::<NoLatch, _>(name, Record { data_bytes, length, seed })?
        .with_context(|| format!("{name} could not be recorded"))
}

fn replay(stream: &Stream, shares: &[f64], quick: bool, interrupt: &Interrupt, rows: &mut Vec<Row>) -> Result<()> {
    let distinct = stream.keys.iter().collect::<HashSet<_>>().len();
    let kinds: &[(Hits, &str)] =
        if quick { &[(Hits::Marked, "marked")] } else { &[(Hits::Marked, "marked"), (Hits::Known, "known")] };
    for share in shares {
        let frames = ((distinct as f64 * share / 100.0) as usize).max(1);
        for policy in Replacement::ALL {
            for (hits, name) in kinds {
                interrupt.check()?;
                let MissCount { misses, .. } =
                    miss_ratio_with(policy.policy(), frames, *hits, stream.keys.iter().copied());
                rows.push(Row {
                    source: stream.name.clone(),
                    policy: policy.name(),
                    hits: name,
                    dram_share_percent: *share,
                    frames,
                    distinct,
                    accesses: stream.accesses,
                    misses,
                    miss_ratio: misses as f64 / stream.accesses.max(1) as f64,
                });
            }
        }
    }
    Ok(())
}

fn sources(rows: &[Row]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        if !names.contains(&row.source) {
            names.push(row.source.clone());
        }
    }
    names
}

/// One line for each stream and policy, one column for each size.
fn table(rows: &[Row], shares: &[f64]) -> String {
    let mut heading = vec!["source".to_owned(), "policy".to_owned(), "hits".to_owned()];
    heading.extend(shares.iter().map(|s| format!("{s}%")));
    let mut lines = Vec::new();
    for source in sources(rows) {
        let mut first = true;
        for hits in ["marked", "known"] {
            for policy in Replacement::ALL {
                let cell = |share: &f64| {
                    rows.iter()
                        .find(|r| {
                            r.source == source
                                && r.policy == policy.name()
                                && r.hits == hits
                                && r.dram_share_percent == *share
                        })
                        .map(|r| format!("{:.2}%", r.miss_ratio * 100.0))
                };
                let cells: Vec<String> = shares.iter().filter_map(cell).collect();
                if cells.is_empty() {
                    continue;
                }
                let mut line =
                    vec![if first { source.clone() } else { String::new() }, policy.name().into(), hits.into()];
                first = false;
                line.extend(cells);
                line.resize(shares.len() + 3, "-".to_owned());
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
        let curve = |policy: &Replacement| Curve {
            name: policy.to_string(),
            points: rows
                .iter()
                .filter(|r| r.source == *source && r.policy == policy.name() && r.hits == "marked")
                .map(|r| (r.dram_share_percent, r.miss_ratio * 100.0))
                .collect(),
        };
        let ticks = rows.iter().filter(|r| r.source == *source).map(|r| r.dram_share_percent);
        let x = Axis {
            ticks: ticks.map(|t| (t, format!("{t}%"))).collect(),
            ..Axis::logarithmic("DRAM as a share of the distinct subpages touched")
        };
        Curves {
            title: format!("Miss ratio: {source}"),
            subtitle: "hits seen as one mark per frame, as in the runtime".to_owned(),
            x,
            y: Axis::linear("% of accesses"),
            curves: Replacement::ALL.iter().map(curve).collect(),
            dots: true,
        }
        .draw()
    };
    stack(&sources(rows).iter().map(chart).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn traces_are_read_plain_and_compressed() {
        let directory = tempfile::tempdir().unwrap();
        let text = "100 3 0 1\n7 1 0 2\n\n";
        std::fs::write(directory.path().join("b.lis"), text).unwrap();
        let mut encoder = zstd::Encoder::new(File::create(directory.path().join("a.lis.zst")).unwrap(), 1).unwrap();
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap();
        let paths = traces(directory.path()).unwrap();
        assert_eq!(paths.len(), 2);
        for path in paths {
            assert_eq!(read_trace(&path, usize::MAX).unwrap().keys, [100, 101, 102, 7]);
        }
        std::fs::write(directory.path().join("c.lis"), "x\n").unwrap();
        assert!(read_trace(&directory.path().join("c.lis"), 10).is_err());
    }
    #[test]
    fn a_recorded_workload_touches_its_data() {
        let stream = record("array-swap", 1 << 20, 1000, 1).unwrap();
        assert!(stream.keys.len() >= 1000 && stream.accesses >= 1000);
        assert!(stream.keys.iter().all(|k| *k < 256));
    }
    #[test]
    fn larger_caches_miss_less() {
        let mut rows = Vec::new();
        let stream = zipf_stream(0.99, 1000, 20_000, 1).unwrap();
        replay(&stream, &[1.0, 50.0], true, &Interrupt::default(), &mut rows).unwrap();
        assert_eq!(rows.len(), 6);
        assert!(rows[3].misses < rows[0].misses, "{rows:?}");
        assert!(table(&rows, &[1.0, 50.0]).contains("zipf-0.99"));
    }
}
