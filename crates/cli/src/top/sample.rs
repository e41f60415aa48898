//! Figures of programs, and what they have done between two samples.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use fulgurite_fault::Published;
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_term::report::table::{self, Columns};
use serde::Serialize;

/// Samples that are remembered of each program: what a wide terminal can show.
const HISTORY: usize = 240;

/// What a row shows of one program.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sample {
    pub pid: u32,
    pub program: String,
    pub used_bytes: u64,
    pub peak_bytes: u64,
    pub cap_bytes: u64,
    /// Since the last sample. None at the first one.
    pub faults_per_s: Option<f64>,
    pub bytes_read_per_s: Option<f64>,
    pub bytes_written_per_s: Option<f64>,
    /// Threads that waited for pages, on average.
    pub threads_waiting: Option<f64>,
    /// Faults that read no flash, as a share of all so far.
    pub hit_ratio: f64,
    pub faults: u64,
    pub faults_of_workers: u64,
    /// Faults for which a job waited alone.
    pub faults_switched: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub waited_s: f64,
    pub errors: u64,
}

struct Program {
    last: Published,
    seen_at: Duration,
    /// The sample before, and how long after it the last one was.
    before: Option<(Published, Duration)>,
    faults_per_s: VecDeque<u64>,
}

/// Programs, by process.
#[derive(Default)]
pub struct Samples {
    programs: BTreeMap<u32, Program>,
}

fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(SUBPAGE_BYTES as u64)
}

impl Samples {
    /// From one sample.
    pub fn of(seen: Vec<Published>) -> Samples {
        let mut samples = Samples::default();
        samples.add(seen, Duration::ZERO);
        samples
    }
    /// Adds a sample, taken `at` after the first one. Programs that are not seen any more are
    /// forgotten.
    pub fn add(&mut self, seen: Vec<Published>, at: Duration) {
        let mut before = std::mem::take(&mut self.programs);
        for now in seen {
            let pid = now.pid;
            let program = match before.remove(&pid) {
                Some(program) if program.goes_on_as(&now) => program.seen(now, at),
                // Another program may have got the number of one that ended.
                _ => Program { last: now, seen_at: at, before: None, faults_per_s: VecDeque::new() },
            };
            self.programs.insert(pid, program);
        }
    }
    /// A row for each.
    pub fn rows(&self) -> Vec<Sample> {
        self.programs.values().map(Program::sample).collect()
    }
    /// Faults a second of a program, oldest sample first.
    pub fn history(&self, pid: u32) -> Vec<u64> {
        self.programs.get(&pid).map_or_else(Vec::new, |program| program.faults_per_s.iter().copied().collect())
    }
}

impl Program {
    /// Whether these are later figures of the same program.
    fn goes_on_as(&self, now: &Published) -> bool {
        now.name == self.last.name && now.summary.faults >= self.last.summary.faults
    }
    fn seen(mut self, now: Published, at: Duration) -> Program {
        let time = at.saturating_sub(self.seen_at);
        self.before = Some((std::mem::replace(&mut self.last, now), time));
        self.seen_at = at;
        if self.faults_per_s.len() == HISTORY {
            self.faults_per_s.pop_front();
        }
        let rate = self.rate(|one| one.summary.faults).unwrap_or(0.0);
        self.faults_per_s.push_back(rate as u64);
        self
    }
    /// How much more of something there is in a second.
    fn rate(&self, of: fn(&Published) -> u64) -> Option<f64> {
        let (before, time) = self.before.as_ref()?;
        let more = of(&self.last).saturating_sub(of(before));
        Some(more as f64 / time.as_secs_f64().max(1e-9))
    }
    fn sample(&self) -> Sample {
        let Published { pid, ref name, used_bytes, summary: now } = self.last;
        let waited_ns = |one: &Published| u64::try_from(one.summary.waited.as_nanos()).unwrap_or(u64::MAX);
        let pages_read = |one: &Published| one.summary.reads.saturating_add(one.summary.prefetched);
        Sample {
            pid,
            program: name.clone(),
            used_bytes,
            peak_bytes: now.peak_bytes.max(used_bytes),
            cap_bytes: now.cap_bytes,
            faults_per_s: self.rate(|one| one.summary.faults),
            bytes_read_per_s: self.rate(pages_read).map(|pages| pages * SUBPAGE_BYTES as f64),
            bytes_written_per_s: self.rate(|one| one.summary.evicted_dirty).map(|pages| pages * SUBPAGE_BYTES as f64),
            threads_waiting: self.rate(waited_ns).map(|ns| ns / 1e9),
            hit_ratio: now.hit_ratio(),
            faults: now.faults,
            faults_of_workers: now.faults_of_workers,
            faults_switched: now.faults_switched,
            bytes_read: bytes(pages_read(&self.last)),
            bytes_written: bytes(now.evicted_dirty),
            waited_s: now.waited.as_secs_f64(),
            errors: now.errors,
        }
    }
}

impl Sample {
    /// Memory as a share of the cap.
    pub fn share_of_cap(&self) -> f64 {
        self.used_bytes as f64 / self.cap_bytes.max(1) as f64
    }
}

/// Of the whole life of each program.
pub fn table(rows: &[Sample]) -> String {
    Columns::of(rows)
        .left("PID", |row| row.pid)
        .left("program", |row| row.program.clone())
        .right("memory", |row| format_bytes(row.used_bytes))
        .right("cap", |row| format_bytes(row.cap_bytes))
        .right("faults", |row| table::number(row.faults as f64))
        .right("hits", |row| table::percent(row.hit_ratio))
        .right("read", |row| format_bytes(row.bytes_read))
        .right("written", |row| format_bytes(row.bytes_written))
        .right("waited s", |row| table::number(row.waited_s))
        .right("errors", |row| row.errors)
        .table()
}
