//! `bench checkpoint`: a long computation that can go on after a crash from a moment ago: by `sync` of a pool, by writing what it
//! has changed to a file, and by dumping all of its memory.
//!
//! The computation is the same in all ways: updates of single words, each after some computing, of pages that change from one
//! checkpoint to the next. Every way ends with a checkpoint, which is then read back: each update must be in it once.

use std::cell::Cell;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use fulgurite_flash::{FileConfig, FileFlash, Flash};
use fulgurite_format::{PoolId, SUBPAGE_BYTES, format_bytes};
use fulgurite_memory::{Address, Memory};
use fulgurite_runtime::{Context, Next, Runtime, Service};
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::clock::process_cpu;
use fulgurite_workloads::Random;
use serde::Serialize;

use crate::args::CheckpointArgs;
use crate::bad_input::bad_input;
use crate::checks;
use crate::child::{added_work, pool::EXTENT_PAGES};
use crate::interrupt::{Interrupt, Interrupted};
use crate::machine::Machine;
use crate::pool::mover::Mover;
use crate::progress;
use crate::report::charts::{Bar, Bars, stack};
use crate::report::{self, Report, table};

/// Computing before each update.
const WORK: Duration = Duration::from_micros(10);
/// Words of a page.
const WORDS: u64 = SUBPAGE_BYTES as u64 / 8;

/// How the computation is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// Plain memory, no checkpoints: what the others are compared with.
    Plain,
    /// Plain memory; the pages that have changed are written to a file in place, and that is flushed.
    File,
    /// Plain memory; all of it is written to a new file, which then takes the old one's place.
    Dump,
    /// A pool behind a DRAM cache, no checkpoints.
    Fulgurite,
    /// The same, and `sync`.
    Sync,
}

impl Way {
    const ALL: [Way; 5] = [Way::Plain, Way::File, Way::Dump, Way::Fulgurite, Way::Sync];
    fn name(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::File => "file",
            Way::Dump => "dump",
            Way::Fulgurite => "fulgurite",
            Way::Sync => "sync",
        }
    }
    fn in_pool(self) -> bool {
        matches!(self, Way::Fulgurite | Way::Sync)
    }
    fn survives(self) -> &'static str {
        match self {
            Way::Plain | Way::Fulgurite => "nothing",
            Way::File => "unless the crash comes while it writes",
            Way::Dump | Way::Sync => "always",
        }
    }
}

/// The computation.
#[derive(Clone, Copy, Debug)]
struct Job {
    seed: u64,
    pages: u64,
    /// Pages that change between two checkpoints.
    dirty_pages: u64,
    /// Updates between two checkpoints.
    updates: u64,
    checkpoints: u64,
    /// Of [`added_work`].
    iterations: u64,
}

impl Job {
    /// Which word an update changes: of a page among those of its turn.
    fn word(&self, update: u64) -> u64 {
        let turn = update / self.updates;
        let mut random = Random::new(self.seed, update);
        let among = random.below(self.dirty_pages);
        let page = Random::new(self.seed ^ turn.rotate_left(32), among).below(self.pages);
        page * WORDS + random.below(WORDS)
    }
    fn all_updates(&self) -> u64 {
        self.updates * self.checkpoints
    }
}

/// What one run of one way came to.
#[derive(Clone, Debug, Default)]
struct Run {
    seconds: f64,
    cpu: Duration,
    /// Of each checkpoint: how long it took, how long the computation could not go on, how much was written.
    took: Vec<Duration>,
    stopped: Vec<Duration>,
    written: u64,
}

/// A way, over all rounds.
#[derive(Clone, Debug, Serialize)]
struct Row {
    way: &'static str,
    survives_a_crash: &'static str,
    rounds: usize,
    data_bytes: u64,
    dram_bytes: u64,
    dirty_bytes: u64,
    checkpoints: u64,
    updates: u64,
    seconds: Spread,
    /// Plain memory's time over this one's, by round.
    share_of_plain: Spread,
    checkpoint_ms: Option<Spread>,
    stopped_ms: Option<Spread>,
    written_bytes_per_checkpoint: Option<u64>,
    cpu_us_per_update: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

fn spread(mut values: Vec<f64>) -> Option<Spread> {
    values.sort_by(f64::total_cmp);
    Some(Spread { median: *values.get(values.len() / 2)?, min: values[0], max: *values.last()? })
}

/// Runs it.
pub fn run(args: &CheckpointArgs) -> Result<()> {
    let interrupt = Interrupt::catch()?;
    checks::outputs(&args.output)?;
    let machine = Machine::describe();
    let quick = args.output.quick;
    let data_bytes = args.data.unwrap_or(if quick { 64 << 20 } else { 512 << 20 });
    let dirty_bytes = args.dirty.unwrap_or(data_bytes / 16);
    let dram_bytes = args.dram.of(data_bytes);
    let rounds = args.rounds.unwrap_or(if quick { 1 } else { 3 }) as usize;
    let checkpoints = args.checkpoints.unwrap_or(if quick { 3 } else { 6 });
    let interval = args.interval.unwrap_or(Duration::from_millis(if quick { 50 } else { 500 }));
    let page = SUBPAGE_BYTES as u64;
    if !data_bytes.is_multiple_of(16 * page) {
        bad_input!("--data {} is not a multiple of 64 KiB", format_bytes(data_bytes));
    }
    if dirty_bytes < page || dirty_bytes > data_bytes {
        bad_input!(
            "--dirty {} is not between a page of 4 KiB and the data, {}",
            format_bytes(dirty_bytes),
            format_bytes(data_bytes)
        );
    }
    let updates = interval.as_nanos() as u64 / WORK.as_nanos() as u64;
    if updates == 0 {
        bad_input!("--interval {interval:?} is shorter than one update: {WORK:?}");
    }
    // What lies on it, and room for what a token keeps and for reclaim.
    let pool_bytes = data_bytes * 2 + (256 << 20);
    let directory = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    if !directory.is_dir() {
        bad_input!("--dir {} is no directory", directory.display());
    }
    checks::space("--dir", &directory, pool_bytes + 2 * data_bytes)?;
    checks::memory(data_bytes * 2 + dram_bytes, data_bytes, &machine)?;
    let files = tempfile::Builder::new().prefix("fulgurite-checkpoint-").tempdir_in(&directory)?;
    let iterations = {
        let per_million = added_work::time(1 << 20).max(1);
        (WORK.as_nanos() as u64 * (1 << 20)) / per_million
    };
    let pages = data_bytes / page;
    let job = Job { seed: args.output.seed, pages, dirty_pages: dirty_bytes / page, updates, checkpoints, iterations };

    let preparing = progress::waiting("a file for the pool");
    let config = FileConfig::create(files.path().join("pool"), pool_bytes);
    let medium: Arc<dyn Flash> = Arc::new(FileFlash::open(&config)?);
    preparing.finish_and_clear();
    let bar = progress::steps("checkpoint", (rounds * Way::ALL.len()) as u64);
    let mut runs: Vec<Vec<Run>> = Vec::new();
    let mut interrupted = false;
    'all: for _ in 0..rounds {
        let mut round = Vec::new();
        for way in Way::ALL {
            if interrupt.check().is_err() {
                interrupted = true;
                break 'all;
            }
            bar.set_message(way.name());
            let run = if way.in_pool() {
                in_pool(&medium, &job, dram_bytes, way == Way::Sync)
            } else {
                in_memory(files.path(), &job, way)
            };
            round.push(run.with_context(|| format!("{} failed", way.name()))?);
            bar.inc(1);
        }
        runs.push(round);
    }
    bar.finish_and_clear();
    let rows: Vec<Row> = Way::ALL
        .into_iter()
        .enumerate()
        .filter_map(|(i, way)| {
            let of_way: Vec<&Run> = runs.iter().map(|round| &round[i]).collect();
            let millis = |of: fn(&Run) -> &[Duration]| {
                spread(of_way.iter().flat_map(|run| of(run)).map(|d| d.as_secs_f64() * 1e3).collect())
            };
            let written: u64 = of_way.iter().map(|run| run.written).sum();
            let made: usize = of_way.iter().map(|run| run.took.len()).sum();
            let cpu: f64 = of_way.iter().map(|run| run.cpu.as_secs_f64()).sum();
            Some(Row {
                way: way.name(),
                survives_a_crash: way.survives(),
                rounds: of_way.len(),
                data_bytes,
                dram_bytes: if way.in_pool() { dram_bytes } else { data_bytes },
                dirty_bytes,
                checkpoints: made as u64 / of_way.len().max(1) as u64,
                updates: job.all_updates(),
                seconds: spread(of_way.iter().map(|run| run.seconds).collect())?,
                share_of_plain: spread(runs.iter().map(|round| round[0].seconds / round[i].seconds).collect())?,
                checkpoint_ms: millis(|run| &run.took),
                stopped_ms: millis(|run| &run.stopped),
                written_bytes_per_checkpoint: (made > 0).then(|| written / made as u64),
                cpu_us_per_update: cpu * 1e6 / (job.all_updates() * of_way.len() as u64) as f64,
            })
        })
        .collect();
    report::print(&args.output, &machine.line())?;
    report::print(
        &args.output,
        &format!(
            "{} of data in {}, {} of it changed between two checkpoints, {interval:?} apart; {} of DRAM before the pool",
            format_bytes(data_bytes),
            directory.display(),
            format_bytes(dirty_bytes),
            format_bytes(dram_bytes),
        ),
    )?;
    report::print(&args.output, &lines(&rows))?;
    let setting =
        serde_json::json!({ "interval_ms": interval.as_secs_f64() * 1e3, "work_us": WORK.as_secs_f64() * 1e6 });
    let command = report::command_line();
    report::write_json(&args.output, &Report { machine: &machine, command, setting, interrupted, rows: &rows })?;
    report::write_plot(&args.output, || stack(&[bars(&rows, "stopped").draw(), bars(&rows, "took").draw()]))?;
    if interrupted { Err(Interrupted.into()) } else { Ok(()) }
}

// ---- in plain memory ----------------------------------------------------------------------------------------------------

fn in_memory(directory: &Path, job: &Job, way: Way) -> Result<Run> {
    let mut memory = vec![0u8; job.pages as usize * SUBPAGE_BYTES];
    // Resident before it is timed.
    memory.iter_mut().step_by(SUBPAGE_BYTES).for_each(|byte| *byte = std::hint::black_box(0));
    let path = directory.join(way.name());
    if way == Way::File {
        write_whole(&path, &memory)?;
    }
    let file = (way == Way::File).then(|| File::options().write(true).open(&path)).transpose()?;
    let mut changed = vec![false; job.pages as usize];
    let mut run = Run::default();
    let (begun, cpu) = (Instant::now(), process_cpu());
    for turn in 0..job.checkpoints {
        for update in turn * job.updates..(turn + 1) * job.updates {
            added_work::compute(job.iterations);
            let word = job.word(update);
            let at = word as usize * 8;
            let value = read_word(&memory[at..at + 8]) + 1;
            memory[at..at + 8].copy_from_slice(&value.to_le_bytes());
            changed[(word / WORDS) as usize] = true;
        }
        let stopped = Instant::now();
        match &file {
            Some(file) => {
                for page in (0..changed.len()).filter(|page| std::mem::take(&mut changed[*page])) {
                    let bytes = &memory[page * SUBPAGE_BYTES..][..SUBPAGE_BYTES];
                    file.write_all_at(bytes, (page * SUBPAGE_BYTES) as u64)?;
                    run.written += bytes.len() as u64;
                }
                file.sync_all()?;
            }
            None if way == Way::Dump => run.written += write_whole(&path, &memory)?,
            None => continue,
        }
        run.took.push(stopped.elapsed());
        run.stopped.push(stopped.elapsed());
    }
    (run.seconds, run.cpu) = (begun.elapsed().as_secs_f64(), process_cpu().saturating_sub(cpu));
    let kept = if way == Way::Plain { memory } else { std::fs::read(&path)? };
    let sum: u64 = kept.chunks_exact(8).map(read_word).sum();
    ensure!(sum == job.all_updates(), "{} of {} updates are in the last checkpoint", sum, job.all_updates());
    Ok(run)
}

/// A word of eight bytes.
fn read_word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// Writes a new file and puts it into the old one's place, so that one of them is whole at any time.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<u64> {
    let new: PathBuf = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(checks::parent_of(path))?.sync_all()?;
    Ok(bytes.len() as u64)
}

// ---- in a pool ----------------------------------------------------------------------------------------------------------

/// The computation as requests.
struct Updates {
    job: Job,
    begun: Cell<u64>,
    done: Arc<AtomicU64>,
}

impl Service for Updates {
    fn next(&self) -> Next {
        if self.begun.get() < self.job.all_updates() { Next::Ready } else { Next::Finished }
    }
    fn run(&self, context: &mut Context) {
        let update = self.begun.replace(self.begun.get() + 1);
        added_work::compute(self.job.iterations);
        // One access: no other request comes in between.
        let at = Address::from_linear(self.job.word(update) * 8);
        let word = context.view_mut(at, 8).expect("the pool answers");
        word.store(0, word.load::<u64>(0) + 1);
        self.done.store(self.done.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

fn in_pool(medium: &Arc<dyn Flash>, job: &Job, dram_bytes: u64, with_sync: bool) -> Result<Run> {
    let subpages = u32::try_from(job.pages)?;
    let geometry = Geometry::new(medium.subpages(), EXTENT_PAGES, Some(subpages))?;
    Pool::format(medium, geometry, PoolId(*b"to be remembered"), 0)?;
    let flash = Arc::new(Pool::open(medium.clone(), StoreConfig::default())?.0.into_flash());
    let mut rest = 0..subpages;
    Mover::new(&*flash)?.write(|page| {
        page.fill(0);
        Ok(rest.next())
    })?;
    flash.layer().sync()?;
    let bytes = job.pages * SUBPAGE_BYTES as u64;
    let runtime = Runtime::builder(flash.clone())
        .dram(dram_bytes)
        .pool(bytes)
        .existing(bytes)
        .submit_batch(4)
        .spin(Duration::from_micros(20))
        .build()?;
    let done = Arc::new(AtomicU64::new(0));
    let mut run = Run::default();
    let before = medium.counters().writes;
    let (begun, cpu) = (Instant::now(), process_cpu());
    std::thread::scope(|scope| -> Result<()> {
        let serving = scope.spawn(|| {
            let (job, done) = (*job, done.clone());
            runtime.serve(move |_| Updates { job, begun: Cell::new(0), done: done.clone() })
        });
        for turn in 1..=job.checkpoints {
            while done.load(Ordering::Acquire) < turn * job.updates && !serving.is_finished() {
                std::thread::sleep(Duration::from_micros(200));
            }
            if with_sync {
                let synced = runtime.sync()?;
                run.took.push(synced.took);
                run.stopped.push(synced.gate);
            }
        }
        serving.join().map_err(|_| anyhow!("the thread that serves died"))??;
        Ok(())
    })?;
    (run.seconds, run.cpu) = (begun.elapsed().as_secs_f64(), process_cpu().saturating_sub(cpu));
    run.written = (medium.counters().writes - before) * SUBPAGE_BYTES as u64;
    // A token of all, where none was made while it ran.
    drop(runtime);
    drop(flash);
    let again = Pool::open(medium.clone(), StoreConfig::default())?.0.into_flash();
    let mut sum = 0;
    Mover::new(&again)?.read(0..subpages, |(_, page)| {
        let page = page?;
        sum += page.chunks_exact(8).map(read_word).sum::<u64>();
        Ok(())
    })?;
    ensure!(sum == job.all_updates(), "{} of {} updates are in the last token", sum, job.all_updates());
    Ok(run)
}

// ---- what is shown ------------------------------------------------------------------------------------------------------

fn lines(rows: &[Row]) -> String {
    let heading = [
        "way",
        "survives a crash",
        "time",
        "of plain",
        "(lowest-highest)",
        "checkpoint",
        "stopped",
        "longest",
        "written",
        "CPU µs",
    ];
    let body = rows.iter().map(|row| {
        let ms = |s: &Option<Spread>, of: fn(&Spread) -> f64| {
            s.as_ref().map_or_else(|| "-".to_owned(), |s| format!("{} ms", table::number(of(s))))
        };
        vec![
            row.way.to_owned(),
            row.survives_a_crash.to_owned(),
            format!("{:.2} s", row.seconds.median),
            format!("{:.1}%", row.share_of_plain.median * 100.0),
            format!("({:.1}%-{:.1}%)", row.share_of_plain.min * 100.0, row.share_of_plain.max * 100.0),
            ms(&row.checkpoint_ms, |s| s.median),
            ms(&row.stopped_ms, |s| s.median),
            ms(&row.stopped_ms, |s| s.max),
            row.written_bytes_per_checkpoint.map_or_else(|| "-".to_owned(), format_bytes),
            format!("{:.2}", row.cpu_us_per_update),
        ]
    });
    table::table(&heading, 2, body)
}

fn bars(rows: &[Row], what: &str) -> Bars {
    let of = |row: &Row| if what == "stopped" { row.stopped_ms } else { row.checkpoint_ms };
    let with: Vec<&Row> = rows.iter().filter(|row| of(row).is_some()).collect();
    let bar = |row: &&Row| {
        of(row).map(|s| Bar {
            value: s.median,
            spread: Some((s.min, s.max)),
            tip: format!("{}: {:.2} ms, {:.2} to {:.2}", row.way, s.median, s.min, s.max),
        })
    };
    Bars {
        title: if what == "stopped" { "How long the computation stands still" } else { "How long a checkpoint takes" }
            .to_owned(),
        subtitle: rows.first().map_or_else(String::new, |row| {
            format!("{} of data, {} of it changed", format_bytes(row.data_bytes), format_bytes(row.dirty_bytes))
        }),
        unit: "ms".to_owned(),
        groups: vec!["a checkpoint".to_owned()],
        series: with.iter().map(|row| row.way.to_owned()).collect(),
        bars: vec![with.iter().map(bar).collect()],
        mark: None,
    }
}
