//! `micro --system FILE`: what requests of a configuration cost here beyond requests to plain
//! memory, as a system that `fulgurite-lab sim` runs.
//!
//! The processes are the ones that `live` runs, and plain memory runs next to each of them, in
//! turns. NVMM's uniform workload shows what a miss costs: `gups` that only reads where victims are
//! clean, and that updates where they are dirty. A request is one access, and computes for 10 µs.
//! Where all data is in frames, the difference is a hit: far where places are uniform, near where a
//! few are used over and over.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fulgurite_format::format_bytes;
use fulgurite_workloads::Params;

use crate::values::{Config, FlashChoice};
use fulgurite_harness::Spread;
use fulgurite_harness::args::FlashArgs;
use fulgurite_harness::child::protocol::{Batch, Load, Outcome};
use fulgurite_harness::image::Image;
use fulgurite_harness::privileged::Request;
use fulgurite_harness::session::{Running, Session, Setup, swap_bytes};
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::progress;

/// Computing of a request, long enough that a device and the kernel keep up as they do in programs.
const WORK: Duration = Duration::from_micros(10);
/// Requests without computing of a round that measures hits, for each that measures misses.
const HITS_OF_A_MISS: u64 = 8;
/// Exponent at which a few subpages have nearly all accesses.
const NEAR_EXPONENT: f64 = 3.0;
/// Threads under kernel paging.
const THREADS: usize = 32;
/// Share of a round's time in which workers wait, from which on the device sets its pace.
const BOUND: f64 = 0.1;
/// Time that the device is measured by itself.
const DEVICE_TIME: Duration = Duration::from_millis(200);
/// Bytes of the processor's cache for each subpage that is near: its words, its marks, and a line
/// or two of data.
const NEAR_BYTES: u64 = 256;
/// The second cache of the processor, where the kernel does not tell.
const CACHE_BYTES: u64 = 1 << 20;

/// What is measured, and how much.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub config: Config,
    pub flash: FlashArgs,
    pub data_bytes: u64,
    pub rounds: u32,
    /// Requests of a round.
    pub requests: u64,
    pub seed: u64,
    pub quick: bool,
    /// What a guarded access that hits costs beyond a load that waits for another
    /// (`chained_overhead_ns`).
    pub hit_ns: Option<f64>,
}

/// What a system needs to know, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Measured {
    request: f64,
    hit: f64,
    far_hit: f64,
    near: u64,
    miss: f64,
    write_back: f64,
    frames: u64,
    read: f64,
    write: f64,
    planes: u32,
    read_gap: f64,
    write_gap: f64,
    copies: f64,
}

/// One round of a configuration compared with plain memory.
#[derive(Clone, Copy, Default)]
struct Round {
    /// CPU time of a request beyond plain memory's, waiting left out.
    more_ns: f64,
    misses: f64,
    writes: f64,
    reads: f64,
    /// All of its time, and the share of it in which the worker waited for the device.
    elapsed_ns: f64,
    waits: f64,
}

struct Probe<'s> {
    session: &'s mut Session,
    wanted: &'s Wanted,
    next: u64,
}

/// Measures a configuration.
///
/// # Errors
/// When it cannot run here, is interrupted, or something fails.
pub fn measure(wanted: &Wanted, interrupt: &Interrupt) -> Result<(String, Measured)> {
    let mut configs = vec![Config::DramOnly, wanted.config];
    let hits = wanted.config.guarded();
    if hits {
        configs.push(Config::Resident);
    }
    let setup = |config| vec![setup(config, wanted.quick)];
    let mut session = Session::start(&wanted.flash, wanted.data_bytes, &mut configs, &setup, interrupt)?;
    ensure!(configs.contains(&wanted.config), "{}", session.experiment.notes.join(" "));
    let machine = session.experiment.machine.line();
    let measured = Probe { session: &mut session, wanted, next: 0 }.measure(hits)?;
    Ok((machine, measured))
}

fn setup(config: Config, quick: bool) -> Setup {
    let paged = config.paged_by_kernel();
    let threads = match paged {
        true if quick => 8,
        true => THREADS,
        false => 1,
    };
    Setup { config, threads, page_cluster: paged.then_some(0) }
}

fn median(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    Spread::of(rounds.iter().map(of)).median
}

impl Probe<'_> {
    fn measure(&mut self, hits: bool) -> Result<Measured> {
        let mut measured = Measured { near: near_subpages(), ..Measured::default() };
        let reads = self.image(100)?;
        if hits {
            self.hits(&reads, &mut measured)?;
        }
        let (clean, frames) = self.misses(&reads, Some(&mut measured))?;
        drop(reads);
        let writes = self.image(0)?;
        let (dirty, _) = self.misses(&writes, None)?;
        // The rest of the accesses hits.
        let cost = |rounds: &[Round]| {
            let misses = median(rounds, |round| round.misses);
            let beside = measured.request + (1.0 - misses).max(0.0) * measured.far_hit;
            (median(rounds, |round| round.more_ns) - beside).max(0.0) / misses.max(0.01)
        };
        measured.miss = cost(&clean);
        measured.write_back = (cost(&dirty) - measured.miss).max(0.0);
        measured.frames = frames;
        let written = |round: &Round| if round.misses > 0.0 { round.writes / round.misses } else { 0.0 };
        if self.wanted.config.pooled() {
            measured.copies = (median(&dirty, written) - 1.0).max(0.0);
            let gap = write_gap(&dirty, measured.read_gap);
            measured.write_gap = gap.unwrap_or(measured.write_gap);
        }
        Ok(measured)
    }
    fn image(&self, gets: u32) -> Result<Image> {
        let (bytes, seed) = (self.wanted.data_bytes, self.wanted.seed);
        let params = Params { bytes, zipf: 0.0, seed, gets: Some(gets), ..Params::default() };
        Image::build("gups", &params, crate::catalog::WORKLOADS, &self.session.experiment.interrupt)
    }
    fn batch(&mut self, count: u64, work_iterations: u64) -> Batch {
        let first = self.next;
        self.next += count;
        Batch { seed: self.wanted.seed, first, count, transactions: 1, work_iterations, load: Load::Closed }
    }
    /// Runs the same requests in both, and compares.
    fn round(&mut self, plain: &mut Running, other: &mut Running, count: u64, iterations: u64) -> Result<Round> {
        let batch = self.batch(count, iterations);
        let (before, of) = (plain.child.run(&batch)?, other.child.run(&batch)?);
        let each = |outcome: &Outcome, ns: u64| ns as f64 / outcome.requests as f64;
        // Waiting is the device's, and simulated. Under kernel paging it cannot be separated from
        // the rest.
        let busy = of.elapsed_ns.saturating_sub(of.wait_ns);
        Ok(Round {
            more_ns: each(&of, busy) - each(&before, before.elapsed_ns),
            misses: each(&of, of.misses),
            writes: each(&of, of.device_writes),
            reads: each(&of, of.device_reads),
            elapsed_ns: each(&of, of.elapsed_ns),
            waits: of.wait_ns as f64 / of.elapsed_ns.max(1) as f64,
        })
    }

    /// Accesses that hit, where all data is in frames.
    fn hits(&mut self, image: &Image, measured: &mut Measured) -> Result<()> {
        let mut plain = self.session.spawn(image, setup(Config::DramOnly, self.wanted.quick))?;
        let mut resident = self.session.spawn(image, setup(Config::Resident, self.wanted.quick))?;
        let count = self.wanted.requests * HITS_OF_A_MISS;
        let mut of = [0.0; 2];
        for (exponent, median_ns) in [0.0, NEAR_EXPONENT].into_iter().zip(&mut of) {
            plain.child.zipf(exponent)?;
            resident.child.zipf(exponent)?;
            let warm = self.round(&mut plain, &mut resident, count, 0)?;
            let mut rounds = vec![warm];
            for _ in 1..self.wanted.rounds.max(3) {
                rounds.push(self.round(&mut plain, &mut resident, count, 0)?);
            }
            *median_ns = median(&rounds[1..], |round| round.more_ns);
        }
        self.session.end(plain)?;
        self.session.end(resident)?;
        let [far, near] = of;
        // A request of the near ones is a request and a hit.
        measured.hit = self.wanted.hit_ns.unwrap_or(0.0).max(0.0);
        measured.request = (near - measured.hit).max(0.0);
        measured.far_hit = (far - measured.request).max(measured.hit);
        Ok(())
    }

    /// Accesses nearly all of which miss. Returns the rounds, and how many frames there are.
    fn misses(&mut self, image: &Image, device: Option<&mut Measured>) -> Result<(Vec<Round>, u64)> {
        let config = self.wanted.config;
        if config != Config::OsSwap {
            return self.misses_of(config, image, device);
        }
        let (scratch, bytes) = (self.session.scratch.clone(), swap_bytes(image.region_bytes, 1));
        self.session.experiment.helper.perform(&Request::SwapOn { scratch, bytes })?;
        let measured = self.misses_of(config, image, device);
        let off = self.session.experiment.helper.perform(&Request::SwapOff);
        let measured = measured?;
        off.context("the swap file cannot be taken out of use")?;
        Ok(measured)
    }
    fn misses_of(&mut self, config: Config, image: &Image, device: Option<&mut Measured>) -> Result<(Vec<Round>, u64)> {
        let mut plain = self.session.spawn(image, setup(Config::DramOnly, self.wanted.quick))?;
        let mut other = self.session.spawn(image, setup(config, self.wanted.quick))?;
        let iterations = {
            let ns = plain.child.time_work(1 << 20)? as f64 / f64::from(1 << 20);
            (WORK.as_nanos() as f64 / ns) as u64
        };
        let bar = progress::steps(&format!("{}, {config}", image.workload), u64::from(self.wanted.rounds) + 1);
        let subpages = image.region_bytes / 4096;
        // Until the frames hold what they will hold. A pool is as young as in `live`.
        let frames = if other.opened.frames > 0 { other.opened.frames } else { self.session.dram_bytes / 4096 };
        self.round(&mut plain, &mut other, (frames * 2).max(self.wanted.requests), 0)?;
        bar.inc(1);
        let mut rounds = Vec::new();
        for _ in 0..self.wanted.rounds {
            rounds.push(self.round(&mut plain, &mut other, self.wanted.requests, iterations)?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let misses = median(&rounds, |round| round.misses);
        ensure!(
            misses > 0.05,
            "only {:.1}% of the accesses missed: the data is too small for this DRAM",
            misses * 100.0
        );
        if let Some(device) = device {
            self.device(&mut other, device)?;
        }
        // Kernel paging does not say how many it has: what does not miss is in one.
        let frames = match other.opened.frames {
            0 => ((1.0 - misses).max(0.01) * subpages as f64) as u64,
            frames => frames,
        };
        self.session.end(plain)?;
        self.session.end(other)?;
        Ok((rounds, frames))
    }

    /// What the device does by itself.
    fn device(&self, running: &mut Running, measured: &mut Measured) -> Result<()> {
        let flash = &self.wanted.flash;
        if self.wanted.config.paged_by_kernel() {
            // Its time is part of the time of the faults.
            measured.planes = 1 << 16;
            return Ok(());
        }
        if *flash.choice() == FlashChoice::Emulated {
            measured.read = flash.read_latency.as_nanos() as f64;
            measured.write = flash.write_latency.as_nanos() as f64;
            measured.planes = flash.planes;
            return Ok(());
        }
        let mut each = |read_share: f64, depth: usize| -> Result<f64> {
            Ok(1e9 / running.child.device(read_share, depth, DEVICE_TIME)?)
        };
        let depth = flash.fibers as usize;
        let (alone, mixed_alone) = (each(1.0, 1)?, each(0.5, 1)?);
        let (busy, mixed_busy) = (each(1.0, depth)?, each(0.5, depth)?);
        measured.planes = 1 << 16;
        measured.read = alone;
        // Half of the mixed ones are reads.
        measured.write = (2.0 * mixed_alone - alone).max(0.0);
        measured.read_gap = busy;
        measured.write_gap = (2.0 * mixed_busy - busy).max(0.0);
        Ok(())
    }
}

/// How much of the device's time a written subpage takes, where workers waited for the device: a
/// store writes many in one request. Random writes, one by one, would say more.
fn write_gap(rounds: &[Round], read_gap: f64) -> Option<f64> {
    let bound: Vec<&Round> = rounds.iter().filter(|round| round.waits >= BOUND && round.writes > 0.0).collect();
    let gap = |round: &&Round| ((round.elapsed_ns - round.reads * read_gap) / round.writes).max(0.0);
    (bound.len() * 2 > rounds.len()).then(|| Spread::of(bound.iter().map(gap)).median)
}

/// Subpages of which the processor's second cache keeps what is known.
fn near_subpages() -> u64 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/size").unwrap_or_default();
    let bytes = text.trim().strip_suffix('K').and_then(|kib| kib.parse::<u64>().ok()).map(|kib| kib << 10);
    (bytes.unwrap_or(CACHE_BYTES) / NEAR_BYTES).clamp(64, 1 << 20)
}

/// The system's file.
pub fn file(wanted: &Wanted, machine: &str, measured: &Measured, day: &str) -> String {
    let Wanted { config, flash, data_bytes, .. } = wanted;
    let Measured { request, hit, far_hit, near, miss, write_back, frames, read, write, planes, .. } = *measured;
    let Measured { read_gap, write_gap, copies, .. } = *measured;
    let kernel = config.paged_by_kernel();
    let replacement =
        if kernel { "lru".to_owned() } else { fulgurite_policy::ReplacementPolicy::default().to_string() };
    let (threads, writes) =
        if kernel { (setup(*config, wanted.quick).threads as u32, "all") } else { (flash.fibers, "dirty") };
    let prefetch = if kernel { "off".to_owned() } else { fulgurite_policy::PrefetchPolicy::default().to_string() };
    // What other work took from plain memory alone can be more than what a miss costs.
    let busy = if miss > 0.0 { "" } else { "# The machine was too busy to tell what a miss costs: measure again.\n" };
    let ns = |ns: f64| format!("{ns:.1}ns");
    format!(
        "# Written by `{}` on {day}.\n\
         # {machine}\n\
         # {} of data, {} frames. The costs are medians of {} rounds. [workload] and [run] are examples.\n\
         {busy}\n\
         model = \"workers\"\n\
         configuration = \"{config}\"\n\
         about = \"{config} on {}, measured {day}\"\n\n\
         [workload]\n\
         name = \"tatp\"\n\
         data = \"{data_bytes}B\"\n\
         exponent = 1.2\n\
         computing = \"between-misses\"\n\
         time = \"10us\"\n\n\
         [run]\n\
         warm_up = {}\n\
         requests = 100000\n\n\
         [threads]\n\
         count = {threads}\n\
         policy = \"arrived-first\"\n\n\
         [dram]\n\
         frames = {frames}\n\
         replacement = \"{replacement}\"\n\
         writes = \"{writes}\"\n\
         read_around = 1\n\
         prefetch = \"{prefetch}\"\n\n\
         [costs] # CPU time beyond plain memory's\n\
         request = \"{}\"\n\
         hit = \"{}\"\n\
         far_hit = \"{}\"\n\
         near = {near} # what the processor's second cache holds, at {NEAR_BYTES} B each\n\
         miss = \"{}\"\n\
         write_back = \"{}\"\n\
         join = \"{}\" # as a miss\n\
         read_around = \"0ns\"\n\n\
         [device]\n\
         read = \"{}\"\n\
         write = \"{}\"\n\
         planes = {planes}\n\
         read_gap = \"{}\"\n\
         write_gap = \"{}\"\n\
         copies = {copies:.3}\n",
        fulgurite_term::report::command_line(),
        format_bytes(*data_bytes),
        frames,
        wanted.rounds,
        flash.choice(),
        frames * 20,
        ns(request),
        ns(hit),
        ns(far_hit),
        ns(miss),
        ns(write_back),
        ns(miss),
        ns(read),
        ns(write),
        ns(read_gap),
        ns(write_gap),
    )
}

/// Measures, and writes the file.
///
/// # Errors
/// As [`measure`], and when the file cannot be written.
pub fn write(path: &Path, wanted: &Wanted, interrupt: &Interrupt) -> Result<String> {
    let (machine, measured) = measure(wanted, interrupt).with_context(|| format!("{}", wanted.config))?;
    let text = file(wanted, &machine, &measured, &fulgurite_term::machine::Machine::describe().day);
    fulgurite_term::report::write_file(path, text.as_bytes())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_takes_what_reads_leave_where_the_device_sets_the_pace() {
        let bound = Round { writes: 0.5, reads: 1.0, elapsed_ns: 15_000.0, waits: 0.4, ..Round::default() };
        let free = Round { waits: 0.0, ..bound };
        assert_eq!(write_gap(&[bound; 3], 10_000.0), Some(10_000.0));
        assert_eq!(write_gap(&[bound; 3], 20_000.0), Some(0.0));
        assert_eq!(write_gap(&[bound, free, free], 10_000.0), None);
        assert_eq!(write_gap(&[Round { writes: 0.0, ..bound }], 10_000.0), None);
    }
}
