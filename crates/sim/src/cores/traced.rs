//! Trace files on cores: the accesses of one trace, divided over the threads of all cores.
//!
//! A job is a fixed number of accesses of the trace, in its order. A thread that takes a job takes
//! the next one of the trace, as it does with a recording. An access is one of each cache block
//! that it covers, loads or stores. Before it, the thread computes:
//!
//! | `workload.instructions` | instructions before an access |
//! |---|---|
//! | a number | this number |
//! | `trace`, of ChampSim | those between this access and the one before |
//! | `trace`, of a format with times | as many as a core retires between the two times |
//!
//! What no format says is a key. An access may depend on the one before: with its first block.
//! Addresses may already be the data's. Virtual ones are not: each of their pages is the next page
//! of data from its first access on.
//!
//! Invariants: no access leads beyond the data. A trace whose jobs end before a run does is refused
//! ([`Traced::misfit`]).

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use fulgurite_format::format_bytes;

use super::work::{BLOCK, PAGE, Step};
use crate::system::{Document, SystemError};
use crate::time::Time;
use crate::trace::{Record, Trace};

/// Blocks of a page.
const BLOCKS: u64 = PAGE / BLOCK;
/// The most accesses of a job, and instructions before an access.
const ACCESSES_MAX: u64 = 1 << 20;
const INSTRUCTIONS_MAX: u64 = 1 << 20;

/// One access of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Accessed {
    /// Instructions before it.
    instructions: u64,
    /// Its first block, as the trace has it.
    block: u64,
    /// How many blocks.
    blocks: u64,
    writes: bool,
}

/// What a thread does before an access.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Before {
    Stated(u64),
    /// Instructions of the trace.
    Counted,
    /// Time stamps, and how many instructions retire in a picosecond.
    Timed(f64),
}

impl Before {
    /// The instructions before a record, which follows another one.
    fn of(self, last: Option<&Record>, record: &Record) -> u64 {
        match self {
            Before::Stated(count) => count,
            Before::Counted => record.line.saturating_sub(last.map_or(0, |last| last.line) + 1),
            Before::Timed(per_ps) => {
                let time = |record: &Record| record.at.unwrap_or_default();
                let since = last.map_or(Time::ZERO, |last| time(record).since(time(last)));
                (since.0 as f64 * per_ps + 0.5) as u64
            }
        }
    }
}

/// A trace as jobs, for a system of cores.
#[derive(Clone, PartialEq, Debug)]
pub struct Traced {
    accesses: Vec<Accessed>,
    /// Accesses of a job.
    of_job: usize,
    /// The first block of an access depends on the access before.
    depends: bool,
    /// DRAM has had the pages of the trace once.
    warmed: bool,
    /// The page of data of each virtual page. None: they are the same.
    places: Option<HashMap<u64, u64>>,
    /// Pages of data.
    pages: u64,
}

impl Traced {
    /// Reads the keys of a trace's jobs, and fits the trace to `pages` pages of data. A core with
    /// this time of a cycle retires `per_cycle` instructions in one.
    ///
    /// # Errors
    /// What is wrong with the system or the trace, with its line.
    pub(super) fn read(
        document: &Document,
        trace: &Trace,
        pages: u64,
        (cycle, per_cycle): (Time, f64),
    ) -> Result<Traced, SystemError> {
        let of_job = document.count("workload.accesses", 1, ACCESSES_MAX)? as usize;
        let depends = document.flag("workload.depends")?;
        let warmed = document.flag("workload.warmed")?;
        let is_virtual = document.word("workload.addresses", &[("physical", false), ("virtual", true)])?;
        let before = before(document, trace, per_cycle / cycle.0.max(1) as f64)?;
        let (mut accesses, mut places) = (Vec::with_capacity(trace.records.len()), HashMap::new());
        let mut last = None;
        for record in &trace.records {
            let Record { line, writes, offset, bytes, .. } = *record;
            let beyond = |told: &str| {
                let held = format_bytes(pages * PAGE);
                let told = format!("line {line} of the trace is for {bytes} B at {offset}, and {told} {held} of data");
                document.impossible("workload.data", told)
            };
            let end = offset.saturating_add(bytes.max(1));
            if bytes > pages * PAGE || (!is_virtual && end > pages * PAGE) {
                return Err(beyond("there are"));
            }
            if is_virtual {
                for page in offset / PAGE..=(end - 1) / PAGE {
                    let next = places.len() as u64;
                    places.entry(page).or_insert(next);
                }
                if places.len() as u64 > pages {
                    return Err(beyond("its pages are more than the pages of"));
                }
            }
            let block = offset / BLOCK;
            let blocks = (end - 1) / BLOCK - block + 1;
            accesses.push(Accessed { instructions: before.of(last, record), block, blocks, writes });
            last = Some(record);
        }
        Ok(Traced { accesses, of_job, depends, warmed, places: is_virtual.then_some(places), pages })
    }
    /// How many jobs it has. The last one may be shorter than others.
    pub fn jobs(&self) -> u64 {
        self.accesses.len().div_ceil(self.of_job) as u64
    }
    /// Why a run over `pages` pages of data, in which up to `begin` jobs begin, cannot be of this
    /// trace: the key, and what it would have to be. None: it can.
    pub(super) fn misfit(&self, pages: u64, begin: u64, threads: u64) -> Option<(&'static str, String)> {
        if pages != self.pages {
            let here = format_bytes(self.pages * PAGE);
            return Some(("workload.data", format!("the trace was read for {here}")));
        }
        let jobs = self.jobs();
        if jobs < begin {
            let told = format!(
                "the trace ends before the run: it has {jobs} jobs of {} accesses, and up to {begin} begin here, \
                 on {threads} threads",
                self.of_job
            );
            return Some(("run.jobs", told));
        }
        None
    }
    /// Blocks of the longest job.
    pub(super) fn longest(&self) -> u64 {
        let blocks = |job: &[Accessed]| job.iter().fold(0, |sum: u64, access| sum.saturating_add(access.blocks));
        self.accesses.chunks(self.of_job).map(blocks).max().unwrap_or(0)
    }
    /// Whether DRAM has had the pages of the trace before the run.
    pub(super) fn warmed(&self) -> bool {
        self.warmed
    }
    /// Puts the pages of a job, from 0 on, in the place of others. Returns whether there is one.
    pub(super) fn pages(&self, job: u64, pages: &mut Vec<u64>) -> bool {
        pages.clear();
        let Some(accesses) = self.accesses.chunks(self.of_job).nth(job as usize) else { return false };
        for Accessed { block, blocks, .. } in accesses {
            let of = block / BLOCKS..=(block + blocks - 1) / BLOCKS;
            pages.extend(of.map(|page| self.place(page)));
        }
        true
    }
    /// The page of data of a page of the trace.
    fn place(&self, page: u64) -> u64 {
        match &self.places {
            Some(places) => *places.get(&page).expect("each page has got its place"),
            None => page,
        }
    }
    /// The beginning of a job, from 0 on. None: there are fewer.
    fn job(&self, number: u64) -> Option<Position> {
        let access = usize::try_from(number).ok()?.checked_mul(self.of_job)?;
        let instructions = self.accesses.get(access)?.instructions;
        let end = (access + self.of_job).min(self.accesses.len());
        Some(Position { access, end, instructions, block: 0 })
    }
    /// The next step of a job.
    fn step(&self, at: &mut Position) -> Step {
        if at.access == at.end {
            return Step::End;
        }
        if at.instructions > 0 {
            let count = at.instructions.min(u64::from(u32::MAX));
            at.instructions -= count;
            return Step::Compute(count as u32);
        }
        let Accessed { block, blocks, writes, .. } = self.accesses[at.access];
        let (first, block) = (at.block == 0, block + at.block);
        let address = self.place(block / BLOCKS) * PAGE + block % BLOCKS * BLOCK;
        at.block += 1;
        if at.block == blocks {
            (at.access, at.block) = (at.access + 1, 0);
            at.instructions = self.accesses.get(at.access).map_or(0, |next| next.instructions);
        }
        if writes { Step::Store { address } } else { Step::Load { address, depends: first && self.depends } }
    }
}

/// What a thread does before each access, by `workload.instructions`.
fn before(document: &Document, trace: &Trace, per_ps: f64) -> Result<Before, SystemError> {
    let key = "workload.instructions";
    let text = document.text_or_count(key)?;
    if text != "trace" {
        let count = text.parse::<u64>().ok().filter(|count| *count <= INSTRUCTIONS_MAX);
        let told = || document.refuse(key, format!("write \"trace\", or a number from 0 to {INSTRUCTIONS_MAX}"));
        return count.map(Before::Stated).ok_or_else(told);
    }
    if trace.format.counts_instructions() {
        return Ok(Before::Counted);
    }
    if let Some(record) = trace.records.iter().find(|record| record.at.is_none()) {
        let told = "of the trace has neither a time nor a count of instructions: write a number";
        return Err(document.refuse(key, format!("line {} {told}", record.line)));
    }
    if let Some(pair) = trace.records.windows(2).find(|pair| pair[0].at > pair[1].at) {
        let told = "of the trace comes before the line above it: sort it by time";
        return Err(document.refuse(key, format!("line {} {told}", pair[1].line)));
    }
    Ok(Before::Timed(per_ps))
}

/// Where in a job a thread is.
#[derive(Clone, Copy, Debug)]
struct Position {
    access: usize,
    /// The first access of the next job.
    end: usize,
    /// Instructions that are left before the access.
    instructions: u64,
    /// Blocks of the access that are done.
    block: u64,
}

/// One thread that does jobs of a trace. Each job is the next one that no thread has taken.
#[derive(Debug)]
pub struct Tracer {
    traced: Arc<Traced>,
    taken: Rc<Cell<u64>>,
    at: Option<Position>,
}

impl Tracer {
    /// A thread. `taken` is how many jobs all have taken.
    pub fn new(traced: Arc<Traced>, taken: Rc<Cell<u64>>) -> Tracer {
        Tracer { traced, taken, at: None }
    }
    /// The next step.
    pub fn next(&mut self) -> Step {
        let Tracer { traced, taken, at } = self;
        let place = at.get_or_insert_with(|| {
            let job = traced.job(taken.replace(taken.get() + 1));
            job.expect("a system is refused that may begin more jobs than there are")
        });
        let step = traced.step(place);
        if step == Step::End {
            *at = None;
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Format;

    fn document(more: &str) -> Document {
        let text = format!("[workload]\ndata = \"4M\"\naccesses = 2\ndepends = true\nwarmed = false\n{more}");
        Document::read("s.toml", &text, &[]).unwrap()
    }
    fn read(more: &str, trace: &Trace) -> Result<Traced, String> {
        let cores = (Time::ns(1), 2.0);
        Traced::read(&document(more), trace, 1 << 10, cores).map_err(|error| error.to_string())
    }
    fn steps(traced: &Traced, job: u64) -> Vec<Step> {
        let mut at = traced.job(job).unwrap();
        std::iter::from_fn(|| Some(traced.step(&mut at)).filter(|step| *step != Step::End)).collect()
    }
    const PHYSICAL: &str = "addresses = \"physical\"\ninstructions = ";

    #[test]
    fn accesses_are_steps_of_their_blocks() {
        let text = b"0 0 1 1 1\n20 0 7 2 0\n50 0 0 1 1\n";
        let trace = Trace::read(text, Some(Format::Mqsim), None).unwrap();
        let load = |address, depends| Step::Load { address, depends };
        let stores = (56..72).map(|block| Step::Store { address: block * 64 });
        let loads = |first: u64| (first..first + 8).map(move |block| load(block * 64, block == first));
        let stated = read(&format!("{PHYSICAL}7"), &trace).unwrap();
        assert_eq!((stated.jobs(), stated.longest()), (2, 24));
        let compute = |count| std::iter::once(Step::Compute(count));
        let first: Vec<Step> = compute(7).chain(loads(8)).chain(compute(7)).chain(stores.clone()).collect();
        assert_eq!(steps(&stated, 0), first);
        // Two instructions a nanosecond. Nothing is known of what was before the first access.
        let timed = read(&format!("{PHYSICAL}\"trace\""), &trace).unwrap();
        let first: Vec<Step> = loads(8).chain(compute(40)).chain(stores).collect();
        assert_eq!(steps(&timed, 0), first);
        let second: Vec<Step> = compute(60).chain(loads(0)).collect();
        assert_eq!(steps(&timed, 1), second);
        assert!(timed.job(2).is_none());
        let mut pages = vec![9];
        assert!(timed.pages(0, &mut pages) && pages == [0u64, 0, 1] && !timed.pages(2, &mut pages));
    }
    #[test]
    fn instructions_are_those_of_the_trace() {
        let of = |line, writes| Record { line, at: None, writes, offset: 64 * line, bytes: 8 };
        let records = vec![of(4, false), of(4, true), of(5, false), of(9, false)];
        let traced = read(&format!("{PHYSICAL}\"trace\""), &Trace { format: Format::Champsim, records }).unwrap();
        let load = |line: u64| Step::Load { address: 64 * line, depends: true };
        assert_eq!(steps(&traced, 0), [Step::Compute(3), load(4), Step::Store { address: 256 }]);
        assert_eq!(steps(&traced, 1), [load(5), Step::Compute(3), load(9)]);
    }
    #[test]
    fn virtual_pages_come_one_after_the_other() {
        let text = b"LD 0x7ffd12345040\nST 0x601080\nLD 0x7ffd12345080\n";
        let trace = Trace::read(text, None, None).unwrap();
        let traced = read("addresses = \"virtual\"\ninstructions = 0", &trace).unwrap();
        let load = |address| Step::Load { address, depends: true };
        assert_eq!(steps(&traced, 0), [load(0x40), Step::Store { address: PAGE + 0x80 }]);
        assert_eq!(steps(&traced, 1), [load(0x80)]);
        assert!(read(&format!("{PHYSICAL}0"), &trace).unwrap_err().contains("line 1 of the trace"));
        let many: Vec<u8> = (0..1025u64).flat_map(|page| format!("LD {}\n", page << 30).into_bytes()).collect();
        let told = read("addresses = \"virtual\"\ninstructions = 0", &Trace::read(&many, None, None).unwrap());
        assert!(told.as_ref().is_err_and(|told| told.contains("line 1025 of the trace")), "{told:?}");
    }
}
