//! An experiment: configurations by rounds, in turns, and the rows that they come to.
//!
//! ```text
//!  Experiment: machine, helper, what is left out, what failed
//!    Contestant: a process with one configuration, in a cgroup of its own
//!      Turn, by rounds: Series -> Row: its table, its drawing, its JSON
//! ```
//!
//! A process is stopped while others have their turn. All do the same in each round. Rows have the
//! same figures in every benchmark, and what the benchmark adds to them. One that needs more of a
//! turn than [`Turn`] has wraps it.

use std::error::Error;
use std::fmt::{self, Display};
use std::path::Path;

use anyhow::Result;
use fulgurite_format::format_bytes;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::Spread;
use crate::privileged::{Capabilities, Helper, Request};
use crate::rows::Percentiles;
use fulgurite_term::interrupt::{Interrupt, Interrupted, go_on};
use fulgurite_term::machine::Machine;
use fulgurite_term::report::charts::{Bar, Bars, stack};
use fulgurite_term::report::table::{Columns, number, or_dash, percent};
use fulgurite_term::report::{Report, distinct};

/// What is the same for all configurations, and what is said at the end.
#[derive(Debug)]
pub struct Experiment {
    pub machine: Machine,
    pub interrupt: Interrupt,
    pub helper: Helper,
    pub capabilities: Capabilities,
    /// Sentences about what is left out or weaker than it should be.
    pub notes: Vec<String>,
    /// Sentences about what failed.
    pub failed: Vec<String>,
    made: u32,
}

/// What a process needs and what its cgroup allows do not go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OverLimit {
    /// The kernel killed it, or a child of it, for want of memory.
    Killed {
        limit_bytes: u64,
    },
    Used {
        bytes: u64,
        limit_bytes: u64,
    },
}

impl Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OverLimit::Killed { limit_bytes } => write!(
                f,
                "the kernel killed it in its cgroup of {}: it needs more memory than that, or found no room in swap; \
                 allow more (--dram, --memory), or free swap",
                format_bytes(*limit_bytes)
            ),
            OverLimit::Used { bytes, limit_bytes } => {
                let more = format_bytes(bytes.saturating_sub(*limit_bytes));
                write!(f, "it used {more} more than its cap of {}", format_bytes(*limit_bytes))
            }
        }
    }
}

impl Error for OverLimit {}

impl Experiment {
    /// Finds out what this machine offers, with swap files in a directory.
    ///
    /// # Errors
    /// The helper's.
    pub fn start(interrupt: &Interrupt, scratch: &Path) -> Result<Experiment> {
        let mut helper = Helper::start()?;
        let capabilities = helper.probe(scratch)?;
        let (machine, interrupt) = (Machine::describe(), interrupt.clone());
        let (notes, failed) = (Vec::new(), Vec::new());
        Ok(Experiment { machine, interrupt, helper, capabilities, notes, failed, made: 0 })
    }
    /// Keeps a sentence for the end, once.
    pub fn note(&mut self, sentence: String) {
        if !self.notes.contains(&sentence) {
            self.notes.push(sentence);
        }
    }
    /// None of what failed, which is kept for the end under a name.
    ///
    /// # Errors
    /// Interrupted.
    pub fn noted<T>(&mut self, name: impl Display, result: Result<T>) -> Result<Option<T>> {
        go_on(result, |error| self.failed.push(format!("{name}: {error:#}")))
    }
    /// Keeps for the end why a configuration has no result. Returns whether it is left out.
    pub fn fail(&mut self, name: impl Display, is_baseline: bool, error: &anyhow::Error) -> bool {
        let left_out = self.leaves_out(&name, is_baseline, error);
        if !left_out {
            self.failed.push(format!("{name}: {error:#}"));
        }
        left_out
    }
    /// Whether an error only leaves a configuration out, which a note then says: what the machine
    /// does to a baseline, which the kernel pages, fails no run. Its rows are to be dropped.
    pub fn leaves_out(&mut self, name: impl Display, is_baseline: bool, error: &anyhow::Error) -> bool {
        let over = error.downcast_ref::<OverLimit>().filter(|_| is_baseline);
        over.inspect(|over| self.note(format!("{name} is left out: {over}."))).is_some()
    }
    /// A number that nothing else has.
    pub fn number(&mut self) -> u32 {
        self.made += 1;
        self.made
    }
    /// Leaves out the configurations that this machine cannot run, with a sentence about each.
    pub fn leave_out<C: Display>(
        &mut self,
        configs: &mut Vec<C>,
        missing: impl Fn(&C, &Capabilities) -> Option<String>,
    ) {
        configs.retain(|config| {
            let missing = missing(config, &self.capabilities);
            self.notes.extend(missing.as_ref().map(|missing| format!("{config} is skipped: {missing}.")));
            missing.is_none()
        });
    }
    /// Turns zswap off, and notes what became of that: swap works with it too.
    pub fn zswap_off(&mut self) {
        if self.capabilities.zswap == "on" {
            let off = self.helper.perform(&Request::ZswapOff);
            self.note(match off {
                Ok(()) => "zswap is on; for swap it was turned off, and is on again after the run.".to_owned(),
                Err(e) => format!("zswap is on, and swap profits from it: {e:#}."),
            });
        }
    }
    /// Turns a swap file on, and zswap off. A fault reads one page, as what is read ahead of random
    /// accesses is of no use.
    ///
    /// # Errors
    /// The helper's.
    pub fn swap_on(&mut self, scratch: &Path, bytes: u64) -> Result<()> {
        self.zswap_off();
        self.helper.perform(&Request::PageCluster { value: 0 })?;
        self.helper.perform(&Request::SwapOn { scratch: scratch.to_owned(), bytes })
    }

    /// Puts a process into a cgroup of its own, where there are cgroups.
    ///
    /// # Errors
    /// The helper's.
    pub fn limit(&mut self, pid: u32, limit_bytes: u64, may_swap: bool) -> Result<Group> {
        if self.capabilities.cgroup_missing.is_some() {
            return Ok(Group { pid, ..Group::default() });
        }
        let name = format!("turns-{}", self.number());
        self.helper.perform(&Request::Cgroup { name: name.clone(), limit_bytes, no_swap: !may_swap })?;
        self.helper.perform(&Request::Join { name: name.clone(), pid })?;
        Ok(Group { pid, name: Some(name), limit_bytes: Some(limit_bytes), peak_bytes: None })
    }
    /// Has a process do something while the others are stopped. None of one that has ended. One
    /// that fails is ended.
    ///
    /// # Errors
    /// What it failed with, and [`OverLimit`] where that is why; interrupted.
    pub fn ask<P, T>(&mut self, one: &mut Contestant<P>, what: impl FnOnce(&mut P) -> Result<T>) -> Result<Option<T>> {
        let Some(process) = &mut one.process else { return Ok(None) };
        signal(one.group.pid, Signal::CONT);
        let asked = what(process);
        signal(one.group.pid, Signal::STOP);
        match asked {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.is::<Interrupted>() => Err(error),
            Err(error) => Err(match self.end(one) {
                Some(over) => error.context(over),
                None => error,
            }),
        }
    }
    /// Keeps the highest use of a cgroup until now: what happens in it from here on is no part of
    /// the run.
    ///
    /// # Errors
    /// The helper's.
    pub fn ran(&mut self, group: &mut Group) -> Result<()> {
        if let Some(name) = &group.name {
            group.peak_bytes = Some(self.helper.peak(name)?.0);
        }
        Ok(())
    }
    /// Lifts the limit of a cgroup: a walk over all data under it takes kernel paging minutes.
    ///
    /// # Errors
    /// The helper's.
    pub fn lift(&mut self, group: &Group) -> Result<()> {
        let lift = |name: &String| self.helper.perform(&Request::Lift { name: name.clone() });
        group.name.as_ref().map_or(Ok(()), lift)
    }
    /// Removes a cgroup whose process `end` ends, and keeps its highest use. Returns how the kernel
    /// killed the process, if it did.
    ///
    /// # Errors
    /// The helper's.
    pub fn remove(&mut self, group: &mut Group, end: impl FnOnce()) -> Result<Option<OverLimit>> {
        let peak = group.name.as_ref().and_then(|name| self.helper.peak(name).ok());
        group.peak_bytes = group.peak_bytes.or(peak.map(|(bytes, _)| bytes));
        end();
        if let Some(name) = group.name.take() {
            self.helper.perform(&Request::DropCgroup { name })?;
        }
        let killed = peak.is_some_and(|(_, killed)| killed > 0);
        Ok(group.limit_bytes.filter(|_| killed).map(|limit_bytes| OverLimit::Killed { limit_bytes }))
    }
    /// Ends a process. Returns how the kernel has killed it, if it has.
    pub fn end<P>(&mut self, one: &mut Contestant<P>) -> Option<OverLimit> {
        let Contestant { process, group } = one;
        self.remove(group, || *process = None).unwrap_or_else(|error| {
            self.failed.push(format!("a cgroup stays: {error:#}"));
            None
        })
    }

    /// The results, with the notes in their setting.
    pub fn report<'r, R: Serialize>(
        &'r self,
        mut setting: serde_json::Value,
        rows: &'r [R],
        interrupted: bool,
    ) -> Report<'r, R> {
        setting["notes"] = self.notes.clone().into();
        Report { interrupted, failed: &self.failed, ..Report::new(&self.machine, setting, rows) }
    }
}

/// A process and its cgroup; none without cgroups.
#[derive(Debug, Default)]
pub struct Group {
    pub pid: u32,
    name: Option<String>,
    /// What it may use.
    pub limit_bytes: Option<u64>,
    /// Its highest use, once it is known.
    pub peak_bytes: Option<u64>,
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = kill_process(pid, signal);
    }
}

/// A process that takes turns.
#[derive(Debug)]
pub struct Contestant<P> {
    /// None once it has ended.
    pub process: Option<P>,
    pub group: Group,
}

impl<P> Contestant<P> {
    /// One that has not ended.
    pub fn new(process: P, group: Group) -> Contestant<P> {
        Contestant { process: Some(process), group }
    }
    /// Whether it takes turns.
    pub fn runs(&self) -> bool {
        self.process.is_some()
    }
}

/// What a turn did, and what was used for it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Turn {
    pub operations: u64,
    pub elapsed_ns: u64,
    /// Nanoseconds, and how often.
    pub latency: Vec<(u64, u64)>,
    /// CPU time of all threads, with the kernel's own where they are counted.
    pub cpu_ns: u64,
    /// Accesses that found no page.
    pub faults: u64,
    /// Pages that a thread waited for until they were read.
    pub reads: u64,
    pub bytes_written: u64,
}

impl Turn {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
    /// Pages written.
    pub fn writes(&self) -> u64 {
        self.bytes_written / 4096
    }
}

impl AsRef<Turn> for Turn {
    fn as_ref(&self) -> &Turn {
        self
    }
}

/// Whose turn it is in a round of `rounds`, of `count`: none is always behind the same one, and
/// none is always first.
pub fn order(round: u32, rounds: u32, count: usize) -> impl Iterator<Item = usize> {
    let (round, rounds) = (round as usize, rounds as usize);
    // From round to round, as a machine that slowly changes would favour the first of a block of
    // rounds. With fewer rounds than that takes, in larger steps over all.
    let first = if rounds >= count { round } else { round * count / rounds.max(1) };
    (0..count).map(move |turn| (first + turn) % count)
}

/// Has all do the same in turns, by rounds, until `turn` fails. A round 0 warms and does not count.
/// Returns what they did until then.
pub fn take_turns<C, T>(
    all: &mut [C],
    rounds: std::ops::RangeInclusive<u32>,
    mut turn: impl FnMut(&mut C, u32) -> Result<Option<T>>,
) -> (Vec<Series<T>>, Result<()>) {
    let mut series: Vec<Series<T>> = all.iter().map(|_| Series { turns: Vec::new() }).collect();
    let count = rounds.clone().count() as u32;
    let ended = rounds.into_iter().try_for_each(|round| {
        order(round, count, all.len()).try_for_each(|at| {
            let took = turn(&mut all[at], round)?;
            if round > 0 {
                series[at].turns.push(took);
            }
            Ok(())
        })
    });
    (series, ended)
}

/// The turns of one, by rounds; none where it ended none.
#[derive(Clone, Debug)]
pub struct Series<T> {
    pub turns: Vec<Option<T>>,
}

impl<T: AsRef<Turn>> Series<T> {
    /// The turns that there are.
    pub fn ended(&self) -> impl Iterator<Item = &T> {
        self.turns.iter().flatten()
    }
    /// The sum of a count.
    pub fn sum(&self, of: impl Fn(&T) -> u64) -> u64 {
        self.ended().map(of).sum()
    }
    /// Operations a second, by round.
    pub fn rates(&self) -> impl Iterator<Item = Option<f64>> {
        self.turns.iter().map(|turn| turn.as_ref().map(|turn| turn.as_ref().rate()))
    }
    /// Operations a second; none without a turn.
    pub fn rate(&self) -> Option<Spread> {
        Spread::of_any(self.rates().flatten())
    }
    /// Throughput as a multiple of another one's, round by round.
    pub fn ratio_to(&self, other: &Series<T>) -> Option<Spread> {
        Spread::of_any(self.rates().zip(other.rates()).filter_map(|(one, other)| Some(one? / other?.max(1e-9))))
    }
    /// Latencies of all turns.
    pub fn latency(&self) -> Percentiles {
        let mut all = Percentiles::default();
        self.ended().for_each(|turn| all.add(&turn.as_ref().latency));
        all
    }
}

/// One configuration at one work, with what a benchmark adds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row<M> {
    pub workload: String,
    pub config: String,
    /// Threads of the program, or its clients.
    pub threads: usize,
    pub rounds: usize,
    /// Operations a second: the middle of the rounds.
    pub ops_per_s: f64,
    pub ops_per_s_spread: Spread,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub cpu_us_per_op: f64,
    /// The highest use of its cgroup. None without one.
    pub peak_bytes: Option<u64>,
    /// In all rounds.
    pub bytes_written: u64,
    /// Accesses that found no page, in all rounds. Of the kernel's paging, only those that read.
    pub faults: u64,
    /// Operations that read no flash, as a share, if none reads twice.
    pub hit_ratio: f64,
    /// Throughput as a multiple of swap's, round by round.
    pub ratio_to_swap: Option<Spread>,
    #[serde(flatten)]
    pub more: M,
}

impl<M> Row<M> {
    /// What a series came to. None without a turn.
    pub fn of<T: AsRef<Turn>>(
        workload: &str,
        config: impl Display,
        threads: usize,
        series: &Series<T>,
        swap: Option<&Series<T>>,
        more: M,
    ) -> Option<Row<M>> {
        let (spread, latency) = (series.rate()?, series.latency());
        let sum = |of: fn(&Turn) -> u64| series.sum(|turn| of(turn.as_ref()));
        let each = |count: u64| count as f64 / sum(|turn| turn.operations).max(1) as f64;
        Some(Row {
            workload: workload.to_owned(),
            config: config.to_string(),
            threads,
            rounds: series.ended().count(),
            ops_per_s: spread.median,
            ops_per_s_spread: spread,
            p50_us: latency.us(50.0),
            p99_us: latency.us(99.0),
            p999_us: latency.us(99.9),
            cpu_us_per_op: each(sum(|turn| turn.cpu_ns)) / 1000.0,
            peak_bytes: None,
            bytes_written: sum(|turn| turn.bytes_written),
            faults: sum(|turn| turn.faults),
            hit_ratio: (1.0 - each(sum(|turn| turn.reads))).max(0.0),
            ratio_to_swap: swap.and_then(|swap| series.ratio_to(swap)),
            more,
        })
    }
}

/// A ratio by rounds, as tables show it.
pub fn ratio(spread: Option<Spread>) -> String {
    or_dash(spread, |spread| format!("{:.2} {}", spread.median, spread.range(|v| format!("{v:.2}"))))
}

/// The columns that all tables of rows begin with. `work` says what a row does besides its
/// workload.
pub fn columns<M>(rows: &[Row<M>], work: fn(&Row<M>) -> String) -> Columns<'_, Row<M>> {
    Columns::of(rows)
        .left("workload", |row| row.workload.clone())
        .left("work", work)
        .left("config", |row| row.config.clone())
        .right("ops/s", |row| number(row.ops_per_s))
        .right("x swap", |row| ratio(row.ratio_to_swap))
        .right("p50 µs", |row| number(row.p50_us))
        .right("p99 µs", |row| number(row.p99_us))
        .right("p99.9 µs", |row| number(row.p999_us))
        .right("CPU µs", |row| number(row.cpu_us_per_op))
        .right("hits", |row| percent(row.hit_ratio))
        .right("faults", |row| row.faults)
        .right("written", |row| format_bytes(row.bytes_written))
        .right("peak", |row| or_dash(row.peak_bytes, format_bytes))
}

/// The drawing of rows: throughput compared with swap's, or by itself where there is none.
pub fn plot<M>(rows: &[Row<M>], work: fn(&Row<M>) -> String) -> String {
    let group_of = |row: &Row<M>| format!("{}, {}", row.workload, work(row));
    let groups = distinct(rows.iter().map(group_of));
    let series = distinct(rows.iter().map(|row| row.config.clone()));
    let is_compared = rows.iter().any(|row| row.ratio_to_swap.is_some());
    let bar = |group: &String, config: &String| {
        let row = rows.iter().find(|row| group_of(row) == *group && row.config == *config)?;
        let tip = format!("{group}, {config}: {} a second", number(row.ops_per_s));
        let Spread { median, min, max } = if is_compared { row.ratio_to_swap? } else { row.ops_per_s_spread };
        Some(Bar { value: median, spread: Some((min, max)), tip })
    };
    let (title, unit) = match is_compared {
        true => ("Throughput as a multiple of swap", "x swap"),
        false => ("Throughput", "operations/s"),
    };
    stack(&[Bars {
        title: title.to_owned(),
        subtitle: "the same DRAM; lines: lowest and highest round".to_owned(),
        unit: unit.to_owned(),
        bars: groups.iter().map(|group| series.iter().map(|config| bar(group, config)).collect()).collect(),
        groups,
        series,
        mark: is_compared.then(|| (1.0, "swap".to_owned())),
    }
    .draw()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(operations: u64, reads: u64) -> Option<Turn> {
        let latency = vec![(2000, operations)];
        Some(Turn {
            operations,
            reads,
            latency,
            elapsed_ns: 1_000_000_000,
            cpu_ns: operations * 500,
            ..Turn::default()
        })
    }

    #[test]
    fn each_is_first_once_and_takes_all_of_its_turns() {
        let mut seen = Vec::new();
        let series = take_turns(&mut ['a', 'b', 'c'], 0..=2, |one, round| {
            seen.push((round, *one));
            Ok((*one != 'b' || round < 2).then_some(round))
        });
        let order: String = seen.iter().map(|(_, one)| *one).collect();
        assert_eq!(order, "abcbcacab");
        let (series, ended) = series;
        assert!(ended.is_ok());
        let turns: Vec<_> = series.into_iter().map(|series| series.turns).collect();
        assert_eq!(turns, [[Some(1), Some(2)], [Some(1), None], [Some(1), Some(2)]]);
    }
    #[test]
    fn ratios_are_of_rounds_that_both_have_ended() {
        let (one, other) =
            (Series { turns: vec![turn(100, 25), None, turn(300, 0)] }, Series { turns: vec![turn(50, 0); 3] });
        let row = Row::of("w", "c", 8, &one, Some(&other), ()).unwrap();
        let ratio = row.ratio_to_swap.unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (2.0, 4.0, 6.0));
        assert_eq!((row.rounds, row.ops_per_s, row.cpu_us_per_op), (2, 200.0, 0.5));
        assert!((row.hit_ratio - (1.0 - 25.0 / 400.0)).abs() < 1e-9 && (row.p99_us - 2.0).abs() < 0.01);
        assert!(Row::of("w", "c", 8, &Series::<Turn> { turns: vec![None] }, None, ()).is_none());
    }
}
