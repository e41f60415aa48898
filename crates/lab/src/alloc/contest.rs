//! The contest of one program: a process for each configuration, in turns.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::child::{Batch, Command, Opened, Outcome};
use super::memory::MemoryPlan;
use super::overhead::Cost;
use super::programs;
use super::rows::Row;
use crate::values::{AllocConfig, AllocProgram};
use fulgurite_harness::Spread;
use fulgurite_harness::fio;
use fulgurite_harness::own_process::Measured;
use fulgurite_harness::privileged::{Capabilities, Helper, Request};
use fulgurite_harness::rows::Percentiles;
use fulgurite_term::interrupt::{Interrupt, go_on};
use fulgurite_term::progress;

/// What a process has in addition to its data in any case: its binary, its threads, what measures
/// it.
pub const ALLOWANCE_BYTES: u64 = 24 << 20;

/// Clients of a program.
pub const THREADS: usize = 4;

/// One kind of requests.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Mix {
    zipf: f64,
    writes_percent: u64,
}

/// The requests of SSDAlloc's evaluation of a program.
fn mixes(program: AllocProgram) -> Vec<Mix> {
    let zipf = |writes_percent| Mix { zipf: 0.99, writes_percent };
    let uniform = |writes_percent| Mix { zipf: 0.0, writes_percent };
    match program {
        AllocProgram::Array => vec![zipf(0), zipf(50), uniform(0), uniform(50)],
        AllocProgram::SlabCache => vec![zipf(50), zipf(10)],
        _ => vec![zipf(50)],
    }
}

/// What is measured of each program.
#[derive(Clone, Copy, Debug)]
pub struct How {
    pub data_bytes: u64,
    /// DRAM for data.
    pub dram_bytes: u64,
    pub threads: usize,
    pub rounds: u32,
    /// Of each round.
    pub requests: u64,
    /// How long fio shows what the disk does.
    pub disk_time: Duration,
    pub seed: u64,
}

impl How {
    /// DRAM of a process: for data, for itself, and for what the program keeps in DRAM by all
    /// means.
    fn limit_bytes(&self, program: AllocProgram) -> u64 {
        self.dram_bytes + ALLOWANCE_BYTES + programs::dram(program, self.data_bytes)
    }
}

/// Disk space of a configuration: a log and a pool have room for what cleaning needs.
pub fn file_bytes(config: AllocConfig, data_bytes: u64) -> u64 {
    let bytes = match config {
        AllocConfig::ObjectPerPage | AllocConfig::ObjectPerPageCompatible => data_bytes * 2 + (64 << 20),
        AllocConfig::Blobs => data_bytes * 2 + (192 << 20),
        _ => data_bytes / 4 * 5 + (64 << 20),
    };
    bytes.next_multiple_of(1 << 20)
}

/// A process with one configuration.
struct Contestant {
    config: AllocConfig,
    process: Measured,
    cgroup: Option<String>,
    opened: Opened,
    file: PathBuf,
    outcomes: Vec<Outcome>,
    sum: Option<u64>,
    peak_bytes: Option<u64>,
}

/// What processes are started with, and what becomes of them.
pub struct Contest {
    pub interrupt: Interrupt,
    pub helper: Helper,
    pub capabilities: Capabilities,
    pub scratch: PathBuf,
    pub how: How,
    pub rows: Vec<Row>,
    /// Sentences about what failed.
    pub failed: Vec<String>,
    made: u32,
    /// A file that fio may overwrite.
    beside: Option<PathBuf>,
}

impl Contest {
    /// None has begun.
    pub fn new(
        interrupt: Interrupt,
        helper: Helper,
        capabilities: Capabilities,
        scratch: PathBuf,
        how: How,
    ) -> Contest {
        let (rows, failed) = (Vec::new(), Vec::new());
        Contest { interrupt, helper, capabilities, scratch, how, rows, failed, made: 0, beside: None }
    }

    /// One program with all configurations.
    ///
    /// # Errors
    /// Interrupted; what the helper could not do.
    pub fn measure(&mut self, program: AllocProgram, configs: &[AllocConfig]) -> Result<()> {
        let swaps = configs.contains(&AllocConfig::OsSwap);
        if swaps {
            let (scratch, bytes) = (self.scratch.clone(), file_bytes(AllocConfig::OsSwap, self.how.data_bytes));
            self.helper.perform(&Request::SwapOn { scratch, bytes })?;
            // Of random accesses, what is read ahead is of no use.
            self.helper.perform(&Request::PageCluster { value: 0 })?;
        }
        let mut all = Vec::new();
        let measured = self.measure_all(program, configs, &mut all);
        for one in all {
            let ended = self.end(one);
            self.failed.extend(ended.err().map(|e| format!("{program}, {e:#}")));
        }
        if swaps {
            self.helper.perform(&Request::SwapOff)?;
        }
        measured
    }

    fn measure_all(&mut self, program: AllocProgram, configs: &[AllocConfig], all: &mut Vec<Contestant>) -> Result<()> {
        let How { threads, rounds, requests, seed, .. } = self.how;
        let (mixes, before) = (mixes(program), self.rows.len());
        let steps = configs.len() as u64 * (2 + mixes.len() as u64 * u64::from(rounds + 1));
        let bar = progress::steps(program.name(), steps);
        for config in configs {
            bar.set_message(format!("{config}: filling"));
            let started = self.start(program, *config);
            all.extend(self.noted(program, *config, started)?);
            bar.inc(1);
        }
        let mut first = 0;
        for Mix { zipf, writes_percent } in mixes {
            all.iter_mut().for_each(|one| one.outcomes.clear());
            for round in 0..=rounds {
                let batch = Batch { seed, first, count: requests, zipf, writes_percent, threads };
                first += requests;
                for turn in 0..all.len() {
                    let at = (turn + round as usize) % all.len();
                    let one = &mut all[at];
                    bar.set_message(format!("{}, round {round}", one.config));
                    let ran = one.process.ask::<Outcome>(&Command::Run(batch));
                    // The first one brings in what is used.
                    let outcome = self.noted(program, one.config, ran)?.filter(|_| round > 0);
                    one.outcomes.extend(outcome);
                    bar.inc(1);
                }
            }
            for one in &mut *all {
                if let Some(name) = &one.cgroup {
                    one.peak_bytes = Some(self.helper.peak(name)?.0);
                }
            }
            for one in &*all {
                bar.set_message(format!("{}, the disk alone", one.config));
                let of_disk = self.of_disk(one);
                let of_disk = self.noted(program, one.config, of_disk)?.flatten();
                let row = self.row(program, Mix { zipf, writes_percent }, one, all);
                self.rows.extend(row.map(|row| Row { of_disk, ..row }));
            }
        }
        for one in &mut *all {
            bar.set_message(format!("{}: checking", one.config));
            if let Some(name) = one.cgroup.clone().filter(|_| one.config.is_paged_by_kernel()) {
                self.helper.perform(&Request::Lift { name })?;
            }
            let checked = one.process.ask(&Command::Check);
            one.sum = self.noted(program, one.config, checked)?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        self.compare(program, all, before);
        Ok(())
    }

    /// What one made of its turn. An error is noted, unless it is an interruption.
    fn noted<T>(&mut self, program: AllocProgram, config: AllocConfig, made: Result<T>) -> Result<Option<T>> {
        go_on(made, |e| self.failed.push(format!("{program}, {config}: {e:#}")))
    }

    /// All have the same data at the end, or it is noted. `before`: rows of other programs.
    fn compare(&mut self, program: AllocProgram, all: &[Contestant], before: usize) {
        let sums: Vec<_> = all.iter().filter_map(|one| Some((one.config, one.sum?))).collect();
        for (config, sum) in &sums {
            let (first, expected) = sums[0];
            if *sum != expected {
                let told = format!("{program}: {config} has other data ({sum:016x}) than {first} ({expected:016x})");
                self.failed.push(told);
            }
            for row in self.rows[before..].iter_mut().filter(|row| row.config == config.name()) {
                row.work_hash = Some(format!("{sum:016x}"));
            }
        }
    }

    /// What the object-per-page allocator itself costs.
    ///
    /// # Errors
    /// Interrupted; that it cannot be measured by this user.
    pub fn overhead(&mut self) -> Result<Vec<Cost>> {
        let mut process = Measured::start(&["__alloc".as_ref()], &self.interrupt)?;
        let file = self.file();
        self.helper.adopt(&file)?;
        let measured = process.ask(&Command::Overhead { file: std::path::absolute(&file)? });
        drop(process);
        let _ = std::fs::remove_file(&file);
        self.helper.release(&file)?;
        measured
    }

    /// Pages that one read and wrote in a second, as a share of what fio does in the same mix. None
    /// without fio, and where none was read or written.
    fn of_disk(&mut self, one: &Contestant) -> Result<Option<f64>> {
        let sum = |of: fn(&Outcome) -> u64| one.outcomes.iter().map(of).sum::<u64>();
        let (reads, writes) = (sum(|o| o.counted.reads), sum(|o| o.counted.bytes_written) / 4096);
        let elapsed_ns = sum(|o| o.elapsed_ns);
        let Some(core) = fulgurite_sys::affinity::cores().first().copied().filter(|_| reads + writes > 0) else {
            return Ok(None);
        };
        if self.beside.is_none() {
            let file = self.file();
            self.helper.adopt(&file)?;
            fio::make_file(&file, self.how.data_bytes)?;
            self.beside = Some(file);
        }
        let Some(path) = &self.beside else { return Ok(None) };
        let pages = (reads + writes) as f64;
        let done = fio::per_second(&fio::Mix {
            path,
            bytes: self.how.data_bytes,
            read_share: reads as f64 / pages,
            write_bytes: 4096,
            depth: self.how.threads,
            core,
            time: self.how.disk_time,
        })?;
        Ok(done.map(|done| pages * 1e9 / elapsed_ns.max(1) as f64 / done.max(1.0)))
    }

    /// Removes what was made for all programs.
    ///
    /// # Errors
    /// What the helper could not do.
    pub fn clean(&mut self) -> Result<()> {
        let Some(file) = self.beside.take() else { return Ok(()) };
        let _ = std::fs::remove_file(&file);
        self.helper.release(&file)
    }

    /// A path of which nothing is there yet.
    fn file(&mut self) -> PathBuf {
        self.made += 1;
        self.scratch.join(format!("fulgurite-alloc-{}-{}", std::process::id(), self.made))
    }

    fn start(&mut self, program: AllocProgram, config: AllocConfig) -> Result<Contestant> {
        let (how, limit_bytes) = (self.how, self.how.limit_bytes(program));
        let mut process = Measured::start(&["__alloc".as_ref()], &self.interrupt)?;
        let file = self.file();
        let name = format!("alloc-{}-{config}", self.made);
        self.helper.adopt(&file)?;
        let mut cgroup = None;
        if self.capabilities.cgroup_version.is_some() {
            let no_swap = config != AllocConfig::OsSwap;
            self.helper.perform(&Request::Cgroup { name: name.clone(), limit_bytes, no_swap })?;
            self.helper.perform(&Request::Join { name: name.clone(), pid: process.pid() })?;
            cgroup = Some(name);
        }
        let plan = MemoryPlan {
            config,
            limit_bytes,
            objects_max: u32::try_from(programs::objects_max(program, how.data_bytes))
                .context("more objects than can be distinguished; ask for less --data")?,
            threads: how.threads,
            file: std::path::absolute(&file)?,
            file_bytes: file_bytes(config, how.data_bytes),
        };
        let opened = process.ask(&Command::Open { program, data_bytes: how.data_bytes, plan });
        let (opened, failed) = match opened {
            Ok(opened) => (opened, None),
            Err(error) => (Opened::default(), Some(error)),
        };
        let (outcomes, sum, peak_bytes) = (Vec::new(), None, None);
        let one = Contestant { config, process, cgroup, opened, file, outcomes, sum, peak_bytes };
        match failed {
            None => Ok(one),
            Some(error) => Err(match self.end(one) {
                Ok(()) => error,
                Err(ended) => error.context(format!("{ended:#}")),
            }),
        }
    }

    fn end(&mut self, one: Contestant) -> Result<()> {
        let Contestant { config, process, cgroup, file, .. } = one;
        let killed = match &cgroup {
            Some(name) => self.helper.peak(name)?.1,
            None => 0,
        };
        drop(process);
        let _ = std::fs::remove_file(&file);
        self.helper.release(&file)?;
        if let Some(name) = cgroup {
            self.helper.perform(&Request::DropCgroup { name })?;
        }
        ensure!(killed == 0, "{config}: the kernel ended it for want of memory; give more --dram");
        Ok(())
    }

    fn row(&self, program: AllocProgram, mix: Mix, one: &Contestant, all: &[Contestant]) -> Option<Row> {
        let rounds = one.outcomes.len();
        let beside = |config| all.iter().find(|other| other.config == config && other.outcomes.len() == rounds);
        let ratio_to = |config| {
            let rounds = one.outcomes.iter().zip(&beside(config)?.outcomes);
            Spread::of_any(rounds.map(|(a, b)| a.rate() / b.rate()))
        };
        let sum = |of: fn(&Outcome) -> u64, one: &Contestant| one.outcomes.iter().map(of).sum::<u64>();
        let written = |one: &Contestant| sum(|o| o.counted.bytes_written, one);
        let by_swap = beside(AllocConfig::OsSwap).map(written).filter(|bytes| *bytes > 0);
        let requests = Some(sum(|o| o.requests, one)).filter(|requests| *requests > 0)?;
        let mut latency = Percentiles::default();
        one.outcomes.iter().for_each(|o| latency.add(&o.latency));
        let (lines, lines_changed) = programs::lines(program, one.config);
        let spread = Spread::of(one.outcomes.iter().map(Outcome::rate));
        Some(Row {
            workload: program.to_string(),
            config: one.config.to_string(),
            zipf: mix.zipf,
            writes_percent: mix.writes_percent,
            threads: self.how.threads,
            data_bytes: self.how.data_bytes,
            dram_bytes: self.how.limit_bytes(program),
            rounds,
            requests,
            ops_per_s: spread.median,
            ops_per_s_spread: spread,
            p50_us: latency.us(50.0),
            p99_us: latency.us(99.0),
            p999_us: latency.us(99.9),
            peak_bytes: one.peak_bytes,
            bytes_written: written(one),
            faults: sum(|o| o.counted.faults, one),
            hit_ratio: 1.0 - (sum(|o| o.counted.reads, one) as f64 / requests as f64).min(1.0),
            cpu_us_per_op: sum(|o| o.cpu_ns, one) as f64 / 1000.0 / requests as f64,
            ratio_to_swap: ratio_to(AllocConfig::OsSwap),
            ratio_to_memory_page: ratio_to(one.config.memory_page()),
            written_to_swap: by_swap.map(|bytes| written(one) as f64 / bytes as f64),
            of_disk: None,
            lines,
            lines_changed,
            work_hash: None,
            flash: one.opened.described.clone(),
        })
    }
}
