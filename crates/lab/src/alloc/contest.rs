//! The contest of one program: a process for each configuration, in turns.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;

use super::child::{Batch, Command, Opened};
use super::memory::MemoryPlan;
use super::overhead::Cost;
use super::programs;
use super::rows::{More, Row};
use crate::values::{AllocConfig, AllocProgram};
use fulgurite_harness::experiment::{Contestant, Experiment, Series, Turn, take_turns};
use fulgurite_harness::fio::{self, Pages};
use fulgurite_harness::own_process::Measured;
use fulgurite_harness::privileged::Request;
use fulgurite_term::interrupt::go_on;
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
struct Allocating {
    config: AllocConfig,
    one: Contestant<Measured>,
    /// A baseline that its cgroup does not hold, as a note says.
    left_out: bool,
    opened: Opened,
    file: PathBuf,
    sum: Option<u64>,
}

/// The experiment of all programs.
pub struct Contest {
    pub experiment: Experiment,
    scratch: PathBuf,
    how: How,
    pub rows: Vec<Row>,
    /// A file that fio may overwrite.
    beside: Option<PathBuf>,
}

impl Contest {
    /// None has begun.
    pub fn new(experiment: Experiment, scratch: PathBuf, how: How) -> Contest {
        Contest { experiment, scratch, how, rows: Vec::new(), beside: None }
    }

    /// One program with all configurations.
    ///
    /// # Errors
    /// Interrupted; what the helper could not do.
    pub fn measure(&mut self, program: AllocProgram, configs: &[AllocConfig]) -> Result<()> {
        let swaps = configs.contains(&AllocConfig::OsSwap);
        if swaps {
            self.experiment.swap_on(&self.scratch, file_bytes(AllocConfig::OsSwap, self.how.data_bytes))?;
        }
        let mut all = Vec::new();
        let measured = self.measure_all(program, configs, &mut all);
        for mut one in all {
            let ended = self.end(&mut one);
            self.noted(program, &mut one, ended)?;
            if one.left_out {
                self.rows.retain(|row| row.workload != program.name() || row.config != one.config.name());
            }
        }
        let off = if swaps { self.experiment.helper.perform(&Request::SwapOff) } else { Ok(()) };
        measured.and(off)
    }

    fn measure_all(&mut self, program: AllocProgram, configs: &[AllocConfig], all: &mut Vec<Allocating>) -> Result<()> {
        let How { threads, rounds, requests, seed, .. } = self.how;
        let (mixes, before) = (mixes(program), self.rows.len());
        let steps = configs.len() as u64 * (2 + mixes.len() as u64 * u64::from(rounds + 1));
        let bar = progress::steps(program.name(), steps);
        for config in configs {
            bar.set_message(format!("{config}: filling"));
            let started = self.start(program, *config);
            all.extend(go_on(started, |error| {
                self.experiment.fail(named(program, *config), config.is_paged_by_kernel(), &error);
            })?);
            bar.inc(1);
        }
        for (number, mix) in mixes.into_iter().enumerate() {
            let Mix { zipf, writes_percent } = mix;
            // The first round brings in what is used.
            let (series, ended) = take_turns(all, 0..=rounds, |one, round| {
                bar.set_message(format!("{}, round {round}", one.config));
                let first = (number as u64 * u64::from(rounds + 1) + u64::from(round)) * requests;
                let batch = Batch { seed, first, count: requests, zipf, writes_percent, threads };
                bar.inc(1);
                self.ask::<Turn>(program, one, &Command::Run(batch))
            });
            ended?;
            for one in &mut *all {
                self.experiment.ran(&mut one.one.group)?;
            }
            for (one, turns) in all.iter().zip(&series) {
                bar.set_message(format!("{}, the disk alone", one.config));
                let of_disk = self.of_disk(turns);
                let of_disk = self.experiment.noted(named(program, one.config), of_disk)?.flatten();
                let row = self.row(program, mix, (one, turns), (all, &series), of_disk);
                self.rows.extend(row);
            }
        }
        for one in &mut *all {
            bar.set_message(format!("{}: checking", one.config));
            if one.config.is_paged_by_kernel() {
                self.experiment.lift(&one.one.group)?;
            }
            one.sum = self.ask(program, one, &Command::Check)?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        self.compare(program, all, before);
        Ok(())
    }

    /// What one made of its turn. What failed is noted.
    fn ask<T: DeserializeOwned>(
        &mut self,
        program: AllocProgram,
        one: &mut Allocating,
        command: &Command,
    ) -> Result<Option<T>> {
        let asked = self.experiment.ask(&mut one.one, |process| process.ask(command));
        Ok(self.noted(program, one, asked)?.flatten())
    }
    /// Notes what failed of one, or that it is left out.
    fn noted<T>(&mut self, program: AllocProgram, one: &mut Allocating, result: Result<T>) -> Result<Option<T>> {
        let Allocating { config, left_out, .. } = one;
        go_on(result, |error| {
            *left_out |= self.experiment.fail(named(program, *config), config.is_paged_by_kernel(), &error);
        })
    }

    /// All have the same data at the end, or it is noted. `before`: rows of other programs.
    fn compare(&mut self, program: AllocProgram, all: &[Allocating], before: usize) {
        let sums: Vec<_> = all.iter().filter_map(|one| Some((one.config, one.sum?))).collect();
        for (config, sum) in &sums {
            let (first, expected) = sums[0];
            if *sum != expected {
                let told = format!("{program}: {config} has other data ({sum:016x}) than {first} ({expected:016x})");
                self.experiment.failed.push(told);
            }
            for row in self.rows[before..].iter_mut().filter(|row| row.config == config.name()) {
                row.more.work_hash = Some(format!("{sum:016x}"));
            }
        }
    }

    /// What the object-per-page allocator itself costs.
    ///
    /// # Errors
    /// Interrupted; that it cannot be measured by this user.
    pub fn overhead(&mut self) -> Result<Vec<Cost>> {
        let mut process = Measured::start(&["__alloc".as_ref()], &self.experiment.interrupt)?;
        let file = self.file()?;
        let measured = process.ask(&Command::Overhead { file: std::path::absolute(&file)? });
        drop(process);
        self.remove(&file)?;
        measured
    }

    /// Pages that one read and wrote in a second, as a share of what fio does in the same mix. None
    /// without fio, and where none was read or written.
    fn of_disk(&mut self, turns: &Series<Turn>) -> Result<Option<f64>> {
        let (reads, writes) = (turns.sum(|turn| turn.reads), turns.sum(Turn::writes));
        let pages = Pages { reads, writes, elapsed_ns: turns.sum(|turn| turn.elapsed_ns) };
        if reads + writes == 0 {
            return Ok(None);
        }
        if self.beside.is_none() {
            let file = self.file()?;
            fio::make_file(&file, self.how.data_bytes)?;
            self.beside = Some(file);
        }
        let Some(path) = &self.beside else { return Ok(None) };
        pages.share_of_fio(path, self.how.data_bytes, self.how.threads, self.how.disk_time)
    }

    /// Removes what was made for all programs.
    ///
    /// # Errors
    /// What the helper could not do.
    pub fn clean(&mut self) -> Result<()> {
        self.beside.take().map_or(Ok(()), |file| self.remove(&file))
    }

    /// A path of which nothing is there yet. The helper removes what comes there, too.
    fn file(&mut self) -> Result<PathBuf> {
        let number = self.experiment.number();
        let file = self.scratch.join(format!("fulgurite-alloc-{}-{number}", std::process::id()));
        self.experiment.helper.adopt(&file)?;
        Ok(file)
    }
    fn remove(&mut self, file: &Path) -> Result<()> {
        let _ = std::fs::remove_file(file);
        self.experiment.helper.release(file)
    }

    fn start(&mut self, program: AllocProgram, config: AllocConfig) -> Result<Allocating> {
        let (how, limit_bytes) = (self.how, self.how.limit_bytes(program));
        let process = Measured::start(&["__alloc".as_ref()], &self.experiment.interrupt)?;
        let file = self.file()?;
        let group = self.experiment.limit(process.pid(), limit_bytes, config == AllocConfig::OsSwap)?;
        let plan = MemoryPlan {
            config,
            limit_bytes,
            objects_max: u32::try_from(programs::objects_max(program, how.data_bytes))
                .context("more objects than can be distinguished; ask for less --data")?,
            threads: how.threads,
            file: std::path::absolute(&file)?,
            file_bytes: file_bytes(config, how.data_bytes),
        };
        let mut one = Contestant::new(process, group);
        let open = Command::Open { program, data_bytes: how.data_bytes, plan };
        let opened = self.experiment.ask(&mut one, |process| process.ask(&open));
        match opened {
            Ok(opened) => {
                let opened = opened.unwrap_or_default();
                Ok(Allocating { config, one, left_out: false, opened, file, sum: None })
            }
            Err(error) => {
                self.experiment.end(&mut one);
                self.remove(&file)?;
                Err(error)
            }
        }
    }

    fn end(&mut self, one: &mut Allocating) -> Result<()> {
        let killed = self.experiment.end(&mut one.one);
        self.remove(&one.file)?;
        killed.map_or(Ok(()), |over| Err(over.into()))
    }

    fn row(
        &self,
        program: AllocProgram,
        mix: Mix,
        (one, turns): (&Allocating, &Series<Turn>),
        (all, series): (&[Allocating], &[Series<Turn>]),
        of_disk: Option<f64>,
    ) -> Option<Row> {
        let is = |other: &Allocating, config| other.config == config && !other.left_out;
        let of = |config| all.iter().zip(series).find(|(other, _)| is(other, config)).map(|(_, turns)| turns);
        let written = |turns: &Series<Turn>| turns.sum(|turn| turn.bytes_written);
        let swap = of(AllocConfig::OsSwap);
        let by_swap = swap.map(written).filter(|bytes| *bytes > 0);
        let (lines, lines_changed) = programs::lines(program, one.config);
        let more = More {
            zipf: mix.zipf,
            writes_percent: mix.writes_percent,
            data_bytes: self.how.data_bytes,
            dram_bytes: self.how.limit_bytes(program),
            requests: turns.sum(|turn| turn.operations),
            ratio_to_memory_page: of(one.config.memory_page()).and_then(|other| turns.ratio_to(other)),
            written_to_swap: by_swap.map(|bytes| written(turns) as f64 / bytes as f64),
            of_disk,
            lines,
            lines_changed,
            work_hash: None,
            flash: one.opened.described.clone(),
        };
        let row = Row::of(program.name(), one.config, self.how.threads, turns, swap, more)?;
        Some(Row { peak_bytes: one.one.group.peak_bytes, ..row })
    }
}

/// How sentences about what failed begin.
fn named(program: AllocProgram, config: AllocConfig) -> String {
    format!("{program}, {config}")
}
