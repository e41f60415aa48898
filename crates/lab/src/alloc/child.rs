//! The process under measurement: one program with one configuration, driven over a pipe.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use fulgurite_workloads::{Random, ZipfKeys};
use serde::{Deserialize, Serialize};

use super::memory::MemoryPlan;
use super::overhead;
use super::page_fault::PageFaults;
use super::program::{Program, Request};
use super::programs;
use crate::values::AllocProgram;
use fulgurite_harness::experiment::Turn;
use fulgurite_harness::own_process::{self, Answer};
use fulgurite_harness::{Latencies, Share, Usage};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Start the allocator, and open a program with a number of bytes of data.
    Open {
        program: AllocProgram,
        data_bytes: u64,
        plan: MemoryPlan,
    },
    Run(Batch),
    Check,
    /// Measure what the object-per-page allocator itself costs, with this file as flash.
    Overhead {
        file: PathBuf,
    },
    /// Start a page buffer over this file, to measure its faults.
    OpenFaults {
        file: PathBuf,
    },
    Faults,
}

/// Requests that are a function of (seed, number).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Batch {
    pub seed: u64,
    pub first: u64,
    pub count: u64,
    pub zipf: f64,
    pub writes_percent: u64,
    pub threads: usize,
}

impl Batch {
    fn request(&self, keys: &ZipfKeys, number: u64) -> Request {
        let mut random = Random::new(self.seed, self.first + number);
        let writes = random.percent(self.writes_percent);
        Request { key: keys.sample(&mut random), writes, number: self.first + number }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Opened {
    pub described: String,
    /// Keys that requests may name.
    pub keys: u64,
}

/// Runs it.
pub fn run() -> ExitCode {
    // Nothing of the program survives it, whichever way it ends.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let mut running: Option<Running> = None;
    own_process::serve(|command: serde_json::Result<Command>| -> Answer {
        let served = command.context("not a command").and_then(|command| serve(&mut running, command));
        served.map_err(|e| format!("{e:#}"))
    });
    // Nothing is freed one by one: the process ends.
    std::mem::forget(running);
    ExitCode::SUCCESS
}

/// What this process has been asked to open.
enum Running {
    Program(Box<dyn Program>),
    Faults(PageFaults),
}

fn serve(running: &mut Option<Running>, command: Command) -> Result<serde_json::Value> {
    let value = match (command, &*running) {
        (Command::Open { program, data_bytes, plan }, None) => {
            let program = programs::open(program, &plan, data_bytes)?;
            let opened = Opened { described: program.describe(), keys: program.keys() };
            *running = Some(Running::Program(program));
            serde_json::to_value(opened)
        }
        (Command::Run(batch), Some(Running::Program(program))) => serde_json::to_value(run_batch(&**program, &batch)?),
        (Command::Check, Some(Running::Program(program))) => serde_json::to_value(program.check()?),
        (Command::Overhead { file }, None) => serde_json::to_value(overhead::measure(&file)?),
        (Command::OpenFaults { file }, None) => {
            *running = Some(Running::Faults(PageFaults::start(&file)?));
            serde_json::to_value(())
        }
        (Command::Faults, Some(Running::Faults(faults))) => serde_json::to_value(faults.measure()),
        (Command::Open { .. } | Command::Overhead { .. } | Command::OpenFaults { .. }, Some(_)) => {
            bail!("something is open already")
        }
        (Command::Run(_) | Command::Check | Command::Faults, _) => bail!("what is to be measured is not open yet"),
    };
    Ok(value?)
}

/// Requests that a client takes at a time.
const CHUNK: u64 = 16;

/// Runs a batch with its number of clients.
fn run_batch(program: &dyn Program, batch: &Batch) -> Result<Turn> {
    let keys = ZipfKeys::new("alloc", program.keys(), batch.zipf)?;
    let (share, before, counted) = (Share::of(batch.count, CHUNK), Usage::now(), program.counted());
    let begun = Instant::now();
    let client = || -> Result<Latencies> {
        let mut latency = Latencies::new();
        program.client(&mut |execute| {
            let mut now = Instant::now();
            loop {
                let chunk = share.take();
                if chunk.is_empty() {
                    return Ok(());
                }
                for number in chunk {
                    execute(batch.request(&keys, number))?;
                    let end = Instant::now();
                    latency.record((end - now).as_nanos() as u64);
                    now = end;
                }
            }
        })?;
        Ok(latency)
    };
    let ended: Vec<Result<Latencies>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..batch.threads).map(|_| scope.spawn(client)).collect();
        let join = |client: std::thread::ScopedJoinHandle<'_, _>| {
            client.join().unwrap_or_else(|_| bail!("a thread of the program panicked"))
        };
        clients.into_iter().map(join).collect()
    });
    let elapsed_ns = begun.elapsed().as_nanos() as u64;
    let mut latency = Latencies::new();
    for mut one in ended.into_iter().collect::<Result<Vec<_>>>()? {
        latency.add(&mut one);
    }
    let (used, now) = (Usage::now().since(before), program.counted());
    let turn = Turn {
        operations: batch.count,
        elapsed_ns,
        latency: latency.pairs(),
        cpu_ns: used.cpu_ns,
        faults: used.major_faults,
        reads: used.major_faults,
        bytes_written: used.blocks_written * 4096,
    };
    // What the kernel pages, it counts.
    let (Some(before), Some(now)) = (counted, now) else { return Ok(turn) };
    Ok(Turn {
        faults: now.faults - before.faults,
        reads: now.reads - before.reads,
        bytes_written: now.bytes_written - before.bytes_written,
        ..turn
    })
}
