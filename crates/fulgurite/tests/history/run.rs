//! One run: a medium, a runtime with few frames over it, jobs, and what happens to all of them
//! meanwhile. Then all is read at rest, and again by another runtime over the same medium, as part
//! of the same history.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fulgurite::{
    AccessError, JobOptions,
    media::{Flash, MemoryFlash},
    runtime::{BuildError, Builder as RuntimeBuilder, Runtime},
    views::SUBPAGE_BYTES,
};
use fulgurite_flash::{EmulatedConfig, EmulatedFlash, Fault, FaultPlan, FaultyFlash, FlashError, Op, Rule, When};
use fulgurite_format::PoolId;
use fulgurite_runtime::Planted;
use fulgurite_store::{Geometry, Pool, StoreConfig};

use super::check::{self, Kind, Operation, Violation, overlapping};
use super::job::{FIRST_AT_REST, GROUP, Table, is_counter, read_all, work, work_here};
use super::record::{Event, Log, Stamps};

/// What is under the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MediumKind {
    /// Memory that answers late and out of order.
    Memory,
    /// A device on another thread, which moves the data while workers run.
    Emulated,
    /// Memory that fails.
    Faulty,
    /// A pool on memory that answers late and out of order.
    Pool,
    /// A pool on memory that fails.
    FaultyPool,
}

/// What happens while the jobs run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meanwhile {
    Nothing,
    /// States are named, one after the other; of a medium that keeps none, all is written back.
    Syncs,
    /// The DRAM budget falls to half and rises again.
    Squeezes,
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub medium: MediumKind,
    pub workers: usize,
    /// Threads that are no workers. The others of the [`FIBERS`] are jobs.
    pub threads: u64,
    /// Frames of each worker.
    pub frames: u64,
    /// Groups of [`GROUP`] subpages.
    pub groups: u64,
    /// Stamps by the clock, not by counting.
    pub clock: bool,
    pub meanwhile: Meanwhile,
}

/// Fibers of all workers; as many jobs and threads together.
const FIBERS: u64 = 48;
/// Operations of a run at full volume, about.
pub const OPERATIONS: u64 = 96_000;
/// Operations of this run, about. A bug that was planted is hunted with all.
pub fn operations(planted: Option<Planted>) -> u64 {
    if planted.is_some() { OPERATIONS } else { fulgurite_testkit::share(OPERATIONS) }
}
/// Flash pages of a pool: several times what is live, so that hundreds of write-backs may come
/// between two syncs, but few enough that extents do not become empty before they are wanted,
/// because then nothing would be reclaimed.
const POOL_PAGES: u32 = 1536;
/// This number of reads of a pool and as many writes fail for good, ever more seldom.
const BAD_PLACES: u64 = 12;

/// What a run has come to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub operations: u64,
    pub reads: u64,
    /// Reads that overlap a write of the same key.
    pub overlapping: u64,
    pub failed: u64,
    pub misses: u64,
    pub joined: u64,
    pub written_back: u64,
    pub written_ahead: u64,
    pub prefetched: u64,
    pub evicted: u64,
    pub sealed: u64,
    pub syncs: u64,
    pub reclaimed: u64,
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, other: Report) {
        self.operations += other.operations;
        self.reads += other.reads;
        self.overlapping += other.overlapping;
        self.failed += other.failed;
        self.misses += other.misses;
        self.joined += other.joined;
        self.written_back += other.written_back;
        self.written_ahead += other.written_ahead;
        self.prefetched += other.prefetched;
        self.evicted += other.evicted;
        self.sealed += other.sealed;
        self.syncs += other.syncs;
        self.reclaimed += other.reclaimed;
    }
}

/// The medium of a run.
struct Ground {
    flash: Arc<dyn Flash>,
    faults: Option<Arc<FaultyFlash<MemoryFlash>>>,
    pool: Option<Arc<Pool>>,
}

fn rule(op: Op, one_in: u64, fault: Fault) -> Rule {
    Rule { op: Some(op), when: When::OneIn(one_in), fault }
}

impl MediumKind {
    fn is_pool(self) -> bool {
        matches!(self, MediumKind::Pool | MediumKind::FaultyPool)
    }
    /// What the memory under it does to requests.
    fn faults(self, seed: u64) -> FaultPlan {
        let mut rules = vec![
            rule(Op::Read, 20, Fault::Late { polls: 300 }),
            rule(Op::Read, 2, Fault::Late { polls: 12 }),
            rule(Op::Write, 8, Fault::Late { polls: 300 }),
            rule(Op::Write, 2, Fault::Late { polls: 40 }),
        ];
        let eio = Fault::Fails(FlashError::Io(5));
        match self {
            MediumKind::Faulty => rules.extend([
                rule(Op::Read, 40, eio),
                rule(Op::Read, 80, Fault::Fails(FlashError::Short)),
                rule(Op::Write, 6, eio),
            ]),
            // A place that fails is not used any more, nor are its neighbours: few do, so that
            // there is room to the end. EAGAIN says nothing of the place.
            MediumKind::FaultyPool => {
                let again = Fault::Fails(FlashError::Io(11));
                rules.extend([rule(Op::Read, 60, again), rule(Op::Write, 60, again)]);
                let nth = |op, n| Rule { op: Some(op), when: When::Nth(n), fault: eio };
                rules.extend((1..=BAD_PLACES).flat_map(|n| [nth(Op::Write, 30 * n * n), nth(Op::Read, 40 * n * n)]));
            }
            MediumKind::Memory | MediumKind::Emulated | MediumKind::Pool => {}
        }
        // The first rule that hits decides.
        rules.reverse();
        FaultPlan { seed, rules, reorder: true, record: false }
    }
    fn tolerates(self) -> fn(&AccessError) -> bool {
        match self {
            MediumKind::Memory | MediumKind::Emulated => |_| false,
            // No sync came in time: it says so, and nothing was changed.
            MediumKind::Pool => |error| matches!(error, AccessError::PoolFull { .. }),
            MediumKind::Faulty | MediumKind::FaultyPool => |error| {
                let expected = |e: &FlashError| matches!(e, FlashError::Io(5 | 11) | FlashError::Short);
                match error {
                    AccessError::PoolFull { .. } => true,
                    AccessError::Flash { source, .. } => expected(source),
                    _ => false,
                }
            },
        }
    }
}

fn config() -> StoreConfig {
    let mut config = StoreConfig::default();
    config.keep_tokens = 2;
    config.checkpoint_after = 32;
    config
}

impl Ground {
    fn new(plan: &Plan, seed: u64) -> Ground {
        let subpages = (plan.groups * GROUP) as u32;
        let pages = if plan.medium.is_pool() { POOL_PAGES } else { subpages };
        if plan.medium == MediumKind::Emulated {
            let mut config = EmulatedConfig::new(pages);
            (config.read_latency, config.write_latency) = (Duration::from_micros(8), Duration::from_micros(30));
            let flash = Arc::new(EmulatedFlash::new(config).expect("memory for a test"));
            return Ground { flash, faults: None, pool: None };
        }
        let memory = MemoryFlash::new(pages).expect("memory for a test");
        let faults = Arc::new(FaultyFlash::new(memory, FaultPlan::default()));
        let mut ground = Ground { flash: faults.clone(), faults: Some(faults), pool: None };
        if plan.medium.is_pool() {
            let geometry = Geometry::new(pages, 16, Some(subpages)).expect("a pool of this size");
            Pool::format(&ground.flash, geometry, PoolId([14; 16]), 0).expect("an empty medium");
            ground.open_pool();
        }
        ground.fail(plan.medium.faults(seed));
        ground
    }
    fn fail(&self, plan: FaultPlan) {
        if let Some(faults) = &self.faults {
            faults.set_plan(plan);
            faults.end_late();
        }
    }
    /// Opens the pool, again if it was open.
    fn open_pool(&mut self) {
        let medium: Arc<dyn Flash> = self.faults.clone().expect("a pool of a test is in memory");
        self.pool = None;
        self.flash = medium.clone();
        let (opened, _) = Pool::open(medium, config()).unwrap_or_else(|error| panic!("the pool opens: {error}"));
        let flash = opened.into_flash();
        self.pool = Some(flash.layer().clone());
        self.flash = Arc::new(flash);
    }
    /// A runtime with as few frames as the plan wants.
    fn runtime(&self, plan: &Plan, existing: bool, planted: Option<Planted>) -> Runtime {
        let bytes = plan.groups * GROUP * SUBPAGE_BYTES as u64;
        let builder = || -> RuntimeBuilder {
            Runtime::builder(self.flash.clone())
                .workers(plan.workers)
                .fibers(FIBERS as usize / plan.workers)
                .existing(if existing { bytes } else { 0 })
                .spin(Duration::from_micros(20))
        };
        let Err(BuildError::TooSmall { fixed, least, .. }) = builder().dram(1).build() else {
            panic!("one byte of DRAM is too small");
        };
        let builder = builder().dram(fixed + (least - fixed) * plan.frames);
        let builder = planted.into_iter().fold(builder, RuntimeBuilder::plant);
        builder.build().expect("what the error asked for is enough")
    }
}

/// Squeezes, or syncs, until notified to stop. Returns how many syncs there were.
fn disturb(runtime: &Runtime, plan: &Plan, stop: &AtomicBool) -> u64 {
    let (full, mut done) = (runtime.dram_bytes(), 0);
    let half = runtime.fixed_bytes() + (full - runtime.fixed_bytes()) / 2;
    let faulty = matches!(plan.medium, MediumKind::Faulty | MediumKind::FaultyPool);
    while !stop.load(Ordering::Relaxed) {
        match plan.meanwhile {
            Meanwhile::Nothing => break,
            Meanwhile::Squeezes => {
                runtime.set_dram(if done % 2 == 0 { half } else { full }).expect("enough for frames")
            }
            Meanwhile::Syncs => {
                let synced = runtime.write_back();
                assert!(faulty || matches!(synced, Ok(()) | Err(FlashError::NoSpace)), "{synced:?}");
            }
        }
        done += 1;
        std::thread::sleep(Duration::from_micros(500));
    }
    runtime.set_dram(full).expect("what it was built with");
    done
}

/// Everything, read by one job while no other runs.
fn at_rest(runtime: &Runtime, table: &Arc<Table>, time: u64) -> Log {
    let its = table.clone();
    runtime.run(move |m| Ok(read_all(m, &its, FIRST_AT_REST + time))).expect("a job that returns what went wrong")
}

/// A run, and what it has come to, or what no order of its operations explains.
pub fn run(plan: &Plan, seed: u64, planted: Option<Planted>) -> Result<Report, String> {
    let mut ground = Ground::new(plan, seed);
    let stamps = if plan.clock { Stamps::clock() } else { Stamps::counted() };
    let each = operations(planted) / FIBERS;
    let table = Arc::new(Table::new(stamps, plan.groups, plan.workers as u64, plan.medium.tolerates()));
    let runtime = ground.runtime(plan, false, planted);
    let mut report = Report::default();
    let mut log = Log::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let disturbing = scope.spawn(|| disturb(&runtime, plan, &stop));
        // Some hold pins, but few enough that others need not wait for them to end.
        let has_pins = |id| id % 12 < 2;
        let threads: Vec<_> = (FIBERS - plan.threads..FIBERS)
            .map(|id| {
                let (runtime, table) = (&runtime, &table);
                scope.spawn(move || work_here(runtime, table, (id, seed, has_pins(id)), each))
            })
            .collect();
        let jobs: Vec<_> = (0..FIBERS - plan.threads)
            .map(|id| {
                let pins = has_pins(id);
                let options = JobOptions::new().pins(pins.into()).worker(id as usize % plan.workers);
                let its = table.clone();
                runtime.submit_with(&options, move |m| work(m, &its, (id, seed, pins), each)).unwrap()
            })
            .collect();
        for job in jobs {
            match job.wait() {
                Ok(its) => log.append(its),
                Err(died) => log.wrong.push(died.to_string()),
            }
        }
        for thread in threads {
            log.append(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        stop.store(true, Ordering::Relaxed);
        report.syncs = disturbing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    ground.fail(FaultPlan::default());
    log.append(at_rest(&runtime, &table, 0));
    let counts = runtime.statistics().total().counts;
    // What was handed over before the faults ended may fail still, once.
    runtime.write_back().or_else(|_| runtime.write_back()).map_err(|error| {
        let pool = ground.pool.as_ref().map(|pool| (pool.info(), pool.uses()));
        format!("nothing fails any more, and still not all can be written back: {error}; {pool:?}")
    })?;
    if let Some(pool) = &ground.pool {
        let counters = pool.counters();
        report.reclaimed = counters.reclaimed;
        // A medium that fails no read has what was written to it.
        if plan.medium == MediumKind::Pool && counters.damaged > 0 {
            log.wrong.insert(0, format!("a copy was not what was written: {counters:?}, {:?}", pool.info()));
        }
        log.wrong.extend(pool.audit());
    }
    drop(runtime);
    if plan.medium.is_pool() {
        ground.open_pool();
    }
    log.append(at_rest(&ground.runtime(plan, true, planted), &table, 1));
    report.failed = log.failed;
    report.misses = counts.misses;
    report.joined = counts.misses_joined;
    report.written_back = counts.evicted_dirty;
    report.written_ahead = counts.written_ahead;
    report.prefetched = counts.prefetched;
    report.evicted = counts.evicted_clean + counts.evicted_dirty;
    report.sealed = counts.sealed;
    verify(log, &mut report)?;
    Ok(report)
}

/// Whether a memory can have had this history.
fn verify(mut log: Log, report: &mut Report) -> Result<(), String> {
    if let Some(first) = log.wrong.first() {
        return Err(format!("{} things went wrong, first: {first}", log.wrong.len()));
    }
    for [first, second] in &log.unequal {
        if !log.unfinished.contains(first) {
            return Err(format!("a pair is half {first:#x} and half {second:#x}, and both writes have ended"));
        }
    }
    log.events.sort_unstable_by_key(|event| event.key);
    let mut history: Vec<Operation> = Vec::new();
    for events in log.events.chunk_by(|a: &Event, b: &Event| a.key == b.key) {
        let key = events[0].key;
        history.clear();
        history.extend(events.iter().map(|event| event.op));
        report.operations += history.len() as u64;
        report.reads += history.iter().filter(|op| op.kind == Kind::Read).count() as u64;
        report.overlapping += overlapping(&history);
        let judged = if is_counter(key) { check::counter(&mut history) } else { check::register(&mut history) };
        judged.map_err(|violation| describe(key, &violation, &history))?;
    }
    Ok(())
}

/// A violation, with the operations that it is about.
fn describe(key: u32, violation: &Violation, history: &[Operation]) -> String {
    let mut about: Vec<_> = history.iter().filter(|op| violation.values().contains(&op.value)).collect();
    about.sort_by_key(|op| op.invoked);
    let lines: Vec<String> = about.iter().take(16).map(|op| format!("\n  {op:x?}")).collect();
    format!("key {key}, {} operations: {violation}{}", history.len(), lines.concat())
}
