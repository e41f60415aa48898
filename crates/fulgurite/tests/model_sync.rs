//! Goal: a token names one state of the whole memory, between write sections, in an order that some
//! thread saw, with no page torn, while jobs go on writing. A roll back of a running program makes
//! just that state again.
//!
//! Method: jobs on one or two workers, and threads that are no workers, move money between
//! accounts, one on each page, in write sections that wait in the middle. Others write first one
//! page and then another without a section, or hold pins and write through them. The cache has a
//! few frames only. Meanwhile another thread syncs. Each token is opened next to the live memory,
//! which goes on. The money must be all there, what is written second must not be ahead of what is
//! written first, the first and the last word of each page must agree. Tokens are compared with
//! what the memory holds after a roll back to them. Writes fail, sections stay open, all fibers
//! wait at the gate. Seeds are printed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fulgurite::{
    AccessError, Address, Context, JobOptions, SyncError,
    media::VersionError,
    runtime::{Durable, Runtime},
    views::{Pinned, RawMemory, SUBPAGE_BYTES},
};
use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, Flash, FlashError, MemoryFlash, Op, When};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Permissions, Pool, StoreConfig};
use fulgurite_testkit::Random;

const ACCOUNTS: u64 = 96;
const EACH: u64 = 1000;
/// Pages that are written without sections: two for each of this number of jobs and threads.
const PAIRS: u64 = PAIRS_OF_JOBS + THREADS;
const PAIRS_OF_JOBS: u64 = 4;
/// Pages that are written through pins, one by each job or thread that does so.
const PINNED: u64 = PINNED_BY_JOBS + THREADS;
const PINNED_BY_JOBS: u64 = 2;
/// Threads of each kind, where there are any.
const THREADS: u64 = 2;
const PAGES: u64 = ACCOUNTS + 2 * PAIRS + PINNED;
const LAST: u64 = SUBPAGE_BYTES as u64 - 8;

fn page(n: u64) -> Address {
    Address::from_linear(n * SUBPAGE_BYTES as u64)
}

fn seed(name: &str) -> u64 {
    let seed = fulgurite_testkit::first_seed(std::process::id().into());
    println!("{name}: seed {seed} (FULGURITE_SEED)");
    seed
}

fn config() -> StoreConfig {
    let mut config = StoreConfig::default();
    config.keep_tokens = 6;
    config.checkpoint_after = 32;
    config
}

/// A runtime over a new pool, and the pool.
fn start(medium: Arc<dyn Flash>, workers: usize, frames: u64) -> (Arc<Runtime>, Arc<Pool>) {
    let geometry = Geometry::new(medium.subpages(), 16, Some(1024)).unwrap();
    Pool::format(&medium, geometry, PoolId([9; 16]), 0).unwrap();
    // Nothing is in it: what is not written is "fresh", and not read from flash.
    open_with(medium, workers, frames, 0)
}
fn open(medium: Arc<dyn Flash>, workers: usize, frames: u64) -> (Arc<Runtime>, Arc<Pool>) {
    open_with(medium, workers, frames, u64::MAX)
}
fn open_with(medium: Arc<dyn Flash>, workers: usize, frames: u64, existing: u64) -> (Arc<Runtime>, Arc<Pool>) {
    let flash = Pool::open(medium, config()).unwrap().0.into_flash();
    let pool = flash.layer().clone();
    (Arc::new(over(Arc::new(flash), workers, frames, existing)), pool)
}
fn over(flash: Arc<dyn Flash>, workers: usize, frames: u64, existing: u64) -> Runtime {
    over_slow(flash, workers, frames, existing, Duration::from_secs(5))
}
/// A runtime over a medium that is given `patience`.
fn over_slow(flash: Arc<dyn Flash>, workers: usize, frames: u64, existing: u64, patience: Duration) -> Runtime {
    let bytes = existing.min(u64::from(flash.subpages()) * SUBPAGE_BYTES as u64);
    let builder = |dram| {
        let builder = Runtime::builder(flash.clone()).existing(bytes).workers(workers).fibers(8).dram(dram);
        builder.gate_timeout(Duration::from_secs(5)).device_timeout(patience)
    };
    // As few frames as asked for: what is fixed is asked of the error.
    match builder(1).build() {
        Err(fulgurite::runtime::BuildError::TooSmall { fixed, least, .. }) => {
            let per_frame = (least - fixed) / workers as u64;
            builder(fixed + per_frame * frames * workers as u64).build().unwrap()
        }
        other => panic!("one byte is enough? {:?}", other.err()),
    }
}

fn load<M: RawMemory>(m: &mut M, at: Address) -> Result<u64, AccessError> {
    fulgurite::Memory::load(m, fulgurite::views::Ptr::new(at))
}
/// Writes both ends of a page, with nothing in between that switches.
fn store<M: RawMemory>(m: &mut M, n: u64, value: u64) -> Result<(), AccessError> {
    store_slowly(m, n, value, 0)
}
/// As [`store`], and takes its time between both ends.
fn store_slowly<M: RawMemory>(m: &mut M, n: u64, value: u64, turns: u64) -> Result<(), AccessError> {
    let view = m.view_mut(page(n), SUBPAGE_BYTES)?;
    view.store(0, value);
    (0..turns).for_each(|_| std::hint::spin_loop());
    view.store(LAST as usize, value);
    Ok(())
}

/// Changes a page in one access: nobody comes in between.
fn change<M: RawMemory>(m: &mut M, n: u64, to: impl FnOnce(u64) -> u64) -> Result<(), AccessError> {
    let view = m.view_mut(page(n), SUBPAGE_BYTES)?;
    let value = to(view.load::<u64>(0));
    view.store(0, value);
    view.store(LAST as usize, value);
    Ok(())
}

/// The contents of all pages, each checked to be whole.
fn contents(runtime: &Runtime) -> Vec<u64> {
    let run = runtime.run(|m| {
        (0..PAGES)
            .map(|n| {
                let (first, last) = (load(m, page(n))?, load(m, page(n).add(LAST))?);
                assert_eq!(first, last, "page {n} is torn");
                Ok(first)
            })
            .collect()
    });
    run.unwrap()
}

/// What must hold in every token.
fn check(state: &[u64], token: u64) {
    let sum: u64 = state[..ACCOUNTS as usize].iter().sum();
    assert_eq!(sum, ACCOUNTS * EACH, "token {token} cuts a transfer in two");
    for pair in 0..PAIRS as usize {
        let (first, second) = (state[ACCOUNTS as usize + 2 * pair], state[ACCOUNTS as usize + 2 * pair + 1]);
        assert!(second <= first && first <= second + 1, "token {token}: pair {pair} is ({first}, {second})");
    }
}

/// A token, opened next to the live memory.
fn state_of(pool: &Arc<Pool>, token: u64) -> Vec<u64> {
    contents(&over(Arc::new(pool.view(token).unwrap().into_flash()), 1, 8, u64::MAX))
}

/// Sets the accounts up.
fn fill(runtime: &Runtime) {
    runtime
        .run(|m| {
            let _section = m.write_section()?;
            (0..PAGES).try_for_each(|n| store(m, n, if n < ACCOUNTS { EACH } else { 0 }))
        })
        .unwrap();
}

/// What a job or a thread does again and again.
#[derive(Clone, Copy)]
enum Does {
    /// Writes first one page of this pair, and then the other.
    Pair(u64),
    /// Writes this page through a pin.
    Pinned(u64),
    /// Moves money between accounts with this remainder, of that number of remainders. No other
    /// thread does, so that no latch is needed: fibers of one worker take turns at waits only.
    Moves { remainder: u64, of: u64 },
}

impl Does {
    fn once<M: RawMemory>(self, m: &mut M, random: &mut Random) -> Result<(), AccessError> {
        match self {
            Does::Pair(pair) => {
                let (first, second) = (ACCOUNTS + 2 * pair, ACCOUNTS + 2 * pair + 1);
                let next = load(m, page(first))? + 1;
                // As long as a sync takes to write it, now and then.
                let turns = if random.one_in(16) { random.below(20_000) } else { 0 };
                store_slowly(m, first, next, turns)?;
                store(m, second, next)?;
                m.yield_now()
            }
            Does::Pinned(n) => {
                let pin = m.pin(page(n))?;
                // Some are taken before a cut and let go of after it, some are taken right after
                // it.
                for _ in 0..random.below(4) {
                    let view = pin.view_mut(0, SUBPAGE_BYTES);
                    let value = view.load::<u64>(0) + 1;
                    view.store(0, value);
                    view.store(LAST as usize, value);
                    m.yield_now()?;
                }
                drop(pin);
                m.yield_now()
            }
            Does::Moves { remainder, of } => {
                let mut pick = || random.below(ACCOUNTS / of) * of + remainder;
                let (from, to) = (pick(), pick());
                let _section = m.write_section()?;
                let mut amount = 0;
                change(m, from, |held| {
                    amount = held.min(7);
                    held - amount
                })?;
                m.yield_now()?;
                change(m, to, |held| held + amount)
            }
        }
    }
}

struct Load {
    stop: Arc<AtomicBool>,
    moves: Arc<AtomicU64>,
    moves_of_threads: Arc<AtomicU64>,
    jobs: Vec<fulgurite::JobHandle<Result<(), AccessError>>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// Jobs, and `threads` threads of each kind, that write until they are stopped.
fn begin_load(runtime: &Arc<Runtime>, seed: u64, with_pins: bool, threads: u64) -> Load {
    let mut load = Load {
        stop: Arc::new(AtomicBool::new(false)),
        moves: Arc::new(AtomicU64::new(0)),
        moves_of_threads: Arc::new(AtomicU64::new(0)),
        jobs: Vec::new(),
        threads: Vec::new(),
    };
    let workers = runtime.workers() as u64;
    let of = workers + threads;
    for job in 0..6 * workers {
        let (stop, moves) = (load.stop.clone(), load.moves.clone());
        let mut random = Random(seed ^ job << 32);
        let options = JobOptions::new().worker((job % workers) as usize);
        let does = match job {
            0..PAIRS_OF_JOBS => Does::Pair(job),
            _ if job < PAIRS_OF_JOBS + PINNED_BY_JOBS && with_pins => Does::Pinned(PAGES - 1 - (job - PAIRS_OF_JOBS)),
            _ => Does::Moves { remainder: job % workers, of },
        };
        let code = move |m: &mut Context| -> Result<(), AccessError> {
            while !stop.load(Ordering::Relaxed) {
                does.once(m, &mut random)?;
                moves.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        load.jobs.push(runtime.submit_with(&options, code).unwrap());
    }
    for thread in 0..threads {
        let mut all = vec![Does::Pair(PAIRS_OF_JOBS + thread), Does::Moves { remainder: workers + thread, of }];
        if with_pins {
            all.push(Does::Pinned(PAGES - 1 - PINNED_BY_JOBS - thread));
        }
        for (kind, does) in all.into_iter().enumerate() {
            let (runtime, stop, moves) = (runtime.clone(), load.stop.clone(), load.moves_of_threads.clone());
            let mut random = Random(seed ^ thread << 40 ^ (kind as u64) << 48);
            load.threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    runtime.run_here(|m| does.once(m, &mut random)).unwrap();
                    moves.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
    }
    load
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Load {
    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        std::mem::take(&mut self.jobs).into_iter().for_each(|job| job.wait().unwrap().unwrap());
        std::mem::take(&mut self.threads).into_iter().for_each(|thread| thread.join().unwrap());
        self.moves.load(Ordering::Relaxed) + self.moves_of_threads.load(Ordering::Relaxed)
    }
    /// Waits until the jobs have done something more.
    fn some_more(&self) {
        let before = self.moves.load(Ordering::Relaxed);
        let of_threads = self.moves_of_threads.load(Ordering::Relaxed) + if self.threads.is_empty() { 0 } else { 10 };
        while self.moves.load(Ordering::Relaxed) < before + 50
            || self.moves_of_threads.load(Ordering::Relaxed) < of_threads
        {
            std::thread::yield_now();
        }
    }
}

fn tokens_name_whole_states(workers: usize, frames: u64, threads: u64) {
    let seed = seed("tokens_name_whole_states");
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096).unwrap());
    let (runtime, pool) = start(medium, workers, frames);
    fill(&runtime);
    let first = runtime.sync().unwrap();
    check(&state_of(&pool, first.token), first.token);
    let load = begin_load(&runtime, seed, frames > 16, threads);
    let (mut states, mut different) = (Vec::new(), 0);
    for _ in 0..30 {
        load.some_more();
        let synced = runtime.sync().unwrap();
        assert!(synced.gate >= synced.drain && synced.took >= synced.gate, "{synced:?}");
        let state = state_of(&pool, synced.token);
        check(&state, synced.token);
        different += u64::from(states.last() != Some(&state));
        states.push(state);
    }
    let moves = load.end();
    println!("{workers} workers, {threads} threads, {frames} frames: {moves} moves, {different} different states");
    assert!(different > 20, "the jobs stand still");
    let counts = runtime.statistics().total().counts;
    assert!(counts.sealed > 0, "{counts:?}");
    let last = runtime.sync().unwrap();
    assert_eq!(state_of(&pool, last.token), contents(&runtime), "a token at rest is what the memory holds");
}

#[test]
fn tokens_of_one_worker_name_whole_states() {
    tokens_name_whole_states(1, 24, 0);
}
#[test]
fn tokens_of_one_worker_with_a_few_frames_name_whole_states() {
    tokens_name_whole_states(1, 7, 0);
}
#[test]
fn tokens_of_two_workers_name_whole_states() {
    tokens_name_whole_states(2, 24, 0);
}
#[test]
fn tokens_of_a_memory_that_fits_name_whole_states() {
    tokens_name_whole_states(2, 200, 0);
}
#[test]
fn tokens_of_a_worker_and_threads_name_whole_states() {
    tokens_name_whole_states(1, 24, THREADS);
    tokens_name_whole_states(1, 200, THREADS);
}
#[test]
fn tokens_of_two_workers_and_threads_name_whole_states() {
    tokens_name_whole_states(2, 24, THREADS);
}

#[test]
fn a_roll_back_makes_a_state_again_while_jobs_run() {
    let seed = seed("a_roll_back_makes_a_state_again_while_jobs_run");
    let mut random = Random(seed);
    for (workers, threads) in [(1, 0), (2, 0), (1, THREADS), (2, THREADS)] {
        let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096).unwrap());
        let (runtime, _) = start(medium, workers, 24);
        fill(&runtime);
        let mut kept = Vec::new();
        for round in 0..12 {
            let token = runtime.sync().unwrap().token;
            kept.push((token, contents(&runtime)));
            kept.retain(|(token, _)| runtime.tokens().contains(token));
            let load = begin_load(&runtime, seed ^ round, false, threads);
            load.some_more();
            let (token, state) = kept[random.below(kept.len() as u64) as usize].clone();
            // Transfers may be under way when the gate closes; the roll back waits for them, and
            // undoes them.
            runtime.roll_back(token).unwrap();
            kept.retain(|(other, _)| *other <= token);
            assert_eq!(runtime.tokens(), kept.iter().map(|(token, _)| *token).collect::<Vec<_>>());
            load.end();
            // Jobs went on after it: their money is still all there.
            let after = contents(&runtime);
            assert_eq!(after[..ACCOUNTS as usize].iter().sum::<u64>(), ACCOUNTS * EACH);
            runtime.roll_back(token).unwrap();
            assert_eq!(contents(&runtime), state, "round {round}, token {token}");
        }
        let newest = *runtime.tokens().last().unwrap();
        let missing = runtime.roll_back(newest + 1000).unwrap_err();
        assert!(matches!(missing, SyncError::Version(VersionError::NoToken { .. })), "{missing}");
    }
}

#[test]
fn a_roll_back_is_refused_while_jobs_hold_pins() {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096).unwrap());
    let (runtime, _) = start(medium, 2, 24);
    fill(&runtime);
    let token = runtime.sync().unwrap().token;
    let (pinned, is_pinned) = std::sync::mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let ends = stop.clone();
    let job = runtime
        .submit(move |m| -> Result<(), AccessError> {
            let pin = m.pin(page(3))?;
            fulgurite::views::Pinned::view_mut(&pin, 0, 8).store(0, 7u64);
            pinned.send(()).unwrap();
            while !ends.load(Ordering::Relaxed) {
                m.sleep(Duration::from_micros(100))?;
            }
            assert_eq!(fulgurite::views::Pinned::view(&pin, 0, 8).load::<u64>(0), 7, "nothing was taken away");
            Ok(())
        })
        .unwrap();
    is_pinned.recv().unwrap();
    assert_eq!(runtime.roll_back(token), Err(SyncError::Busy { pins: 1 }));
    stop.store(true, Ordering::Relaxed);
    job.wait().unwrap().unwrap();
    runtime.roll_back(token).unwrap();
    assert_eq!(contents(&runtime)[3], EACH);
}

fn well(seed: u64) -> FaultPlan {
    FaultPlan { seed, ..FaultPlan::default() }
}

#[test]
fn a_sync_whose_writes_fail_makes_no_token_and_loses_nothing() {
    let seed = seed("a_sync_whose_writes_fail_makes_no_token_and_loses_nothing");
    for failing in 0..12 {
        let memory = MemoryFlash::new(4096).unwrap();
        let geometry = Geometry::new(4096, 16, Some(1024)).unwrap();
        let medium = Arc::new(FaultyFlash::new(memory, well(seed)));
        let shared: Arc<dyn Flash> = medium.clone();
        Pool::format(&shared, geometry, PoolId([9; 16]), 0).unwrap();
        let (runtime, pool) = open(shared, 1, 200);
        fill(&runtime);
        let first = runtime.sync().unwrap().token;
        runtime.run(|m| (0..PAGES).try_for_each(|n| store(m, n, n))).unwrap();
        let rule = FaultPlan::rule(Some(Op::Write), When::Nth(failing * 8), Fault::Fails(FlashError::Io(5)));
        medium.set_plan(FaultPlan { seed, ..rule });
        match runtime.sync() {
            Ok(synced) => assert_eq!(state_of(&pool, synced.token), (0..PAGES).collect::<Vec<_>>()),
            Err(error) => {
                println!("write {}: {error}", failing * 8);
                medium.set_plan(well(seed));
                assert_eq!(contents(&runtime), (0..PAGES).collect::<Vec<_>>(), "what was written is still there");
                assert_eq!(runtime.tokens(), [first]);
                if let Ok(synced) = runtime.sync() {
                    assert_eq!(state_of(&pool, synced.token), (0..PAGES).collect::<Vec<_>>());
                }
            }
        }
    }
}

/// Where there is no frame to copy a pinned one to, a sync writes it from its own frame and stands
/// still meanwhile. If that takes too long it goes on, and so does the job: what the medium then
/// reads may be torn.
#[test]
fn a_sync_that_could_not_wait_for_a_pinned_frame_makes_no_token() {
    let seed = seed("a_sync_that_could_not_wait_for_a_pinned_frame_makes_no_token");
    let medium = Arc::new(FaultyFlash::new(MemoryFlash::new(4096).unwrap(), well(seed)));
    let shared: Arc<dyn Flash> = medium.clone();
    Pool::format(&shared, Geometry::new(4096, 16, Some(1024)).unwrap(), PoolId([9; 16]), 0).unwrap();
    let flash = Pool::open(shared, config()).unwrap().0.into_flash();
    let runtime = over_slow(Arc::new(flash), 1, 4, 0, Duration::from_millis(200));
    runtime.run(|m| (0..4).try_for_each(|n| store(m, n, n))).unwrap();
    let first = runtime.sync().unwrap().token;
    let (stop, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(u64::MAX)));
    let (ends, after, its) = (stop.clone(), begun.clone(), medium.clone());
    let (pinned, is_pinned) = std::sync::mpsc::channel();
    let job = runtime
        .submit(move |m| -> Result<(), AccessError> {
            let pin = m.pin(page(3))?;
            pin.mark_dirty();
            pinned.send(()).unwrap();
            while !ends.load(Ordering::Relaxed) {
                // Something was written since the sync began, and this runs: the halt is over.
                if its.submitted() > after.load(Ordering::Relaxed) {
                    its.end_late();
                }
                m.sleep(Duration::from_millis(1))?;
            }
            Ok(())
        })
        .unwrap();
    is_pinned.recv().unwrap();
    let late = FaultPlan::rule(Some(Op::Write), When::From(1), Fault::Late { polls: u32::MAX });
    medium.set_plan(FaultPlan { seed, ..late });
    begun.store(medium.submitted(), Ordering::Relaxed);
    let result = runtime.sync();
    assert!(matches!(result, Err(SyncError::Version(VersionError::Flash(FlashError::TimedOut)))), "{result:?}");
    assert_eq!(runtime.tokens(), [first]);
    medium.set_plan(well(seed));
    stop.store(true, Ordering::Relaxed);
    job.wait().unwrap().unwrap();
    assert!(runtime.sync().unwrap().token > first);
}

/// What a page was given while it might be written is not lost when it may not be any more, and its
/// write-back fails.
#[test]
fn a_write_back_that_fails_loses_nothing_where_the_permission_has_gone() {
    let seed = seed("a_write_back_that_fails_loses_nothing_where_the_permission_has_gone");
    let medium = Arc::new(FaultyFlash::new(MemoryFlash::new(4096).unwrap(), well(seed)));
    let (runtime, pool) = start(medium.clone(), 1, 200);
    fill(&runtime);
    runtime.sync().unwrap();
    runtime.run(|m| store(m, 3, 77)).unwrap();
    pool.set_permissions(0..1, Permissions { write: false, ..Permissions::DEFAULT }).unwrap();
    let rule = |n| FaultPlan::rule(Some(Op::Write), When::Nth(n), Fault::Fails(FlashError::Io(5))).rules[0];
    // A write-back is tried at several places: all of the first one's fail, and some of the next.
    medium.set_plan(FaultPlan { seed, rules: (1..=6).map(rule).collect(), ..FaultPlan::default() });
    runtime.hold_state().unwrap().take_out(page(0), 16 * SUBPAGE_BYTES as u64, true).unwrap();
    assert!(runtime.statistics().total().counts.write_errors > 0, "none of the write-backs has failed");
    assert_eq!(contents(&runtime)[3], 77);
    assert!(matches!(runtime.run(|m| store(m, 3, 78)), Err(AccessError::NotPermitted { write: true, .. })));
}

#[test]
fn a_section_that_stays_open_fails_the_sync_and_opens_the_gate_again() {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096).unwrap());
    let geometry = Geometry::new(4096, 16, Some(1024)).unwrap();
    Pool::format(&medium, geometry, PoolId([9; 16]), 0).unwrap();
    let flash = Arc::new(Pool::open(medium, config()).unwrap().0.into_flash());
    let runtime =
        Runtime::builder(flash).dram(8 << 20).fibers(2).gate_timeout(Duration::from_millis(50)).build().unwrap();
    let (inside, is_inside) = std::sync::mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let ends = stop.clone();
    let job = runtime
        .submit(move |m| -> Result<(), AccessError> {
            let _outer = m.write_section()?;
            let inner = m.write_section()?;
            inside.send(()).unwrap();
            drop(inner);
            while !ends.load(Ordering::Relaxed) {
                m.sleep(Duration::from_micros(100))?;
            }
            Ok(())
        })
        .unwrap();
    is_inside.recv().unwrap();
    let error = runtime.sync().unwrap_err();
    assert!(matches!(error, SyncError::SectionOpen { worker: 0, .. }), "{error}");
    runtime.run(|m| m.write_section().map(drop)).expect("the gate is open again");
    stop.store(true, Ordering::Relaxed);
    job.wait().unwrap().unwrap();
    runtime.sync().unwrap();
}

/// Counts what it is notified of, in DRAM and in the memory.
struct Part(AtomicU64);
const PART_AT: u64 = PAGES + 3;

impl Durable for Part {
    fn save(&self, m: &mut Context) -> Result<(), AccessError> {
        let _section = m.write_section()?;
        store(m, PART_AT, self.0.load(Ordering::Relaxed))
    }
    fn reload(&self, m: &mut Context) -> Result<(), AccessError> {
        self.0.store(load(m, page(PART_AT))?, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn state_in_dram_is_saved_while_all_fibers_wait_at_the_gate() {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096).unwrap());
    let (runtime, _) = start(medium, 1, 16);
    let part = Arc::new(Part(AtomicU64::new(0)));
    runtime.keep(part.clone());
    let stop = Arc::new(AtomicBool::new(false));
    // As many as there are fibers: when the gate closes, all of them come to wait there.
    let jobs: Vec<_> = (0..8)
        .map(|_| {
            let (part, stop) = (part.clone(), stop.clone());
            runtime
                .submit(move |m| -> Result<(), AccessError> {
                    while !stop.load(Ordering::Relaxed) {
                        let _section = m.write_section()?;
                        part.0.fetch_add(1, Ordering::Relaxed);
                        m.yield_now()?;
                        part.0.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
                .unwrap()
        })
        .collect();
    let mut tokens = Vec::new();
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(1));
        tokens.push(runtime.sync().unwrap().token);
    }
    stop.store(true, Ordering::Relaxed);
    jobs.into_iter().for_each(|job| job.wait().unwrap().unwrap());
    let end = part.0.load(Ordering::Relaxed);
    let mut before = end + 1;
    for token in tokens.into_iter().rev() {
        runtime.roll_back(token).unwrap();
        let then = part.0.load(Ordering::Relaxed);
        assert!(then.is_multiple_of(2), "token {token} was made inside a section");
        assert!(then < before, "token {token}: {then} after {before}");
        before = then;
    }
    assert!(runtime.statistics().total().counts.gate_waits > 0, "nobody ever waited: the test tests nothing");
}

#[test]
fn what_is_cold_is_written_while_there_is_nothing_to_do() {
    for workers in [1, 2] {
        let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096).unwrap());
        let (runtime, pool) = start(medium, workers, 120);
        fill(&runtime);
        runtime.sync().unwrap();
        let written_ahead = || runtime.statistics().total().counts.written_ahead;
        // Some may have been written before this sync already; all is clean now, so none is until
        // the next change.
        let before = written_ahead();
        runtime.run(|m| (0..PAGES).try_for_each(|n| store(m, n, n + 5))).unwrap();
        let begun = std::time::Instant::now();
        // They count when they begin; what is still under way is the sync's as well.
        let some_are_done = || {
            let counts = runtime.statistics().total().counts;
            counts.written_ahead > before && counts.in_flight == 0
        };
        while !some_are_done() {
            assert!(begun.elapsed() < Duration::from_secs(20), "nothing is ever written ahead");
            std::thread::sleep(Duration::from_millis(1));
        }
        let synced = runtime.sync().unwrap();
        println!("{workers} workers: {} ahead, {} by the sync", written_ahead(), synced.subpages);
        assert!(synced.subpages < PAGES, "a sync has less to write");
        assert_eq!(state_of(&pool, synced.token), Vec::from_iter((0..PAGES).map(|n| n + 5)));
        // Written to again while it may be on its way: what the token names is what was written
        // last.
        for round in 6..20 {
            runtime.run(move |m| (0..PAGES).step_by(3).try_for_each(|n| store(m, n, n + round))).unwrap();
            std::thread::sleep(Duration::from_millis(1));
            runtime.run(move |m| (0..PAGES).step_by(2).try_for_each(|n| store(m, n, n + round + 1))).unwrap();
        }
        let expected = Vec::from_iter((0..PAGES).map(|n| {
            n + if n % 2 == 0 {
                20
            } else if n % 3 == 0 {
                19
            } else {
                5
            }
        }));
        let token = runtime.sync().unwrap().token;
        assert_eq!(state_of(&pool, token), expected);
        assert_eq!(contents(&runtime), expected);
    }
}

#[test]
fn what_keeps_no_versions_says_so() {
    let runtime = Runtime::builder(Arc::new(MemoryFlash::new(1024).unwrap())).dram(8 << 20).build().unwrap();
    assert!(matches!(runtime.sync(), Err(SyncError::NoVersions { .. })));
    assert!(matches!(runtime.roll_back(1), Err(SyncError::NoVersions { .. })));
    assert!(runtime.tokens().is_empty());
    runtime.write_back().unwrap();
}

#[test]
fn what_was_written_before_the_runtime_was_dropped_is_there_again() {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096).unwrap());
    let (runtime, _) = start(medium.clone(), 2, 24);
    fill(&runtime);
    drop(runtime);
    let (again, _) = open(medium, 1, 8);
    check(&contents(&again), 0);
}
