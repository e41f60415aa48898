//! The computation as requests of a runtime over a pool ([`Target`]), with less DRAM than data:
//! kept by `sync` from another thread, or not at all.
//!
//! Each update is a write section, so a token has all of it or nothing. A sync that has closed the
//! gate asks the program for its state ([`Durable::save`]).

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use fulgurite_format::{Address, SUBPAGE_BYTES};
use fulgurite_memory::{AccessError, RawMemory};
use fulgurite_runtime::{Context, Durable, Next, Runtime, Service};

use super::job::{Gaps, Job, Progress, State, Sum};
use super::method::{CpuTime, Made, Run};
use super::target::Target;
use fulgurite_flash::Mover;
use fulgurite_harness::child::added_work;

/// How often it is seen that the computation has ended.
const POLL_EVERY: Duration = Duration::from_millis(50);

struct Updates {
    job: Job,
    begun: Cell<u64>,
    progress: Progress,
    gaps: RefCell<Option<Gaps>>,
    due: mpsc::Sender<()>,
    /// Where the gaps go in the end.
    ended: Arc<Mutex<Option<Gaps>>>,
}

impl Service for Updates {
    fn next(&self) -> Next {
        if self.begun.get() < self.job.all_updates() { Next::Ready } else { Next::Finished }
    }
    fn run(&self, context: &mut Context) {
        let update = self.begun.replace(self.begun.get() + 1);
        added_work::compute(self.job.iterations);
        let word = self.job.word(update);
        let at = Address::from_linear(word * 8);
        // Brought in before the section is opened: a sync waits for open ones to end.
        context.view(at, 8).expect("the pool answers");
        let section = context.write_section().expect("nothing cancels the job");
        let view = context.view_mut(at, 8).expect("the pool answers");
        view.store(0, view.load::<u64>(0).wrapping_add(1));
        let done = self.progress.count(word);
        drop(section);
        let mut gaps = self.gaps.borrow_mut();
        gaps.as_mut().expect("the last update comes last").done(done);
        if self.job.is_due(done) {
            // Where nobody keeps anything, nobody listens.
            let _ = self.due.send(());
        }
        if done == self.job.all_updates() {
            *self.ended.lock().expect("nobody panicked with it") = gaps.take();
        }
    }
}

/// Notes the computation's state when a token is cut, and restores it after a roll back.
struct Noted {
    progress: Progress,
    saved: Progress,
    saves: AtomicU64,
}

impl Durable for Noted {
    fn save(&self, _: &mut Context) -> Result<(), AccessError> {
        self.saved.set(self.progress.state());
        self.saves.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn reload(&self, _: &mut Context) -> Result<(), AccessError> {
        self.progress.set(self.saved.state());
        Ok(())
    }
}

/// Takes the checkpoints that fall due until the end. Returns them and the last token.
fn sync_when_due(
    runtime: &Runtime,
    target: &Target,
    noted: &Noted,
    job: &Job,
    fell_due: &mpsc::Receiver<()>,
    ended: impl Fn() -> bool,
) -> Result<(Vec<Made>, u64)> {
    let (mut made, mut token) = (Vec::new(), 0);
    loop {
        match fell_due.recv_timeout(POLL_EVERY) {
            Ok(()) => {}
            Err(mpsc::RecvTimeoutError::Timeout) if !ended() => continue,
            Err(_) => return Ok((made, token)),
        }
        // Those that fell due during the last one are one.
        while fell_due.try_recv().is_ok() {}
        if !made.is_empty() && noted.progress.state().updates == job.all_updates() {
            return Ok((made, token));
        }
        let before = target.written();
        let synced = runtime.sync()?;
        token = synced.token;
        let written = target.written() - before;
        made.push(Made { state: noted.saved.state(), durable: synced.took, written });
        ensure!(noted.saves.load(Ordering::Relaxed) == made.len() as u64, "a sync did not ask the program");
    }
}

/// Runs it over a new pool there.
pub fn run(target: &Target, job: &Job, first: State, dram_bytes: u64, with_sync: bool, cores: &[usize]) -> Result<Run> {
    let subpages = u32::try_from(job.pages)?;
    let flash = target.filled(job)?;
    let bytes = job.pages * SUBPAGE_BYTES as u64;
    let builder = Runtime::builder(flash.clone()).dram(dram_bytes).pool(bytes).existing(bytes).cores(&cores[..1]);
    let runtime = builder.build()?;
    let progress = Progress::from(first);
    let noted = Arc::new(Noted { progress: progress.clone(), saved: Progress::default(), saves: AtomicU64::new(0) });
    runtime.keep(noted.clone());
    let ended = Arc::new(Mutex::new(None));
    let (due, fell_due) = mpsc::channel();
    let (mut made, mut token) = (Vec::new(), 0);
    let before = CpuTime::now();
    std::thread::scope(|scope| -> Result<()> {
        let serving = scope.spawn(|| {
            let (job, progress, due, ended) = (*job, progress.clone(), due, ended.clone());
            runtime.serve(move |_| Updates {
                job,
                begun: Cell::new(0),
                progress: progress.clone(),
                gaps: RefCell::new(Some(Gaps::new(&job))),
                due: due.clone(),
                ended: ended.clone(),
            })
        });
        if with_sync {
            let ended = || serving.is_finished();
            (made, token) = sync_when_due(&runtime, target, &noted, job, &fell_due, ended)?;
        }
        serving.join().map_err(|_| anyhow!("the thread that serves died"))??;
        Ok(())
    })?;
    let cpu_s = before.elapsed_s(Duration::ZERO);
    let gaps = ended.lock().map_err(|_| anyhow!("the service died"))?.take().context("the service did not end")?;
    let end = progress.state();
    if let Some(last) = made.last() {
        runtime.roll_back(token).context("the last token cannot be returned to")?;
        let is = progress.state();
        ensure!(is == last.state, "after the roll back there are {} updates, not {}", is.updates, last.state.updates);
    }
    // A token of the state as it is now.
    drop(runtime);
    drop(flash);
    let again = target.again()?;
    let mut sum = Sum::default();
    Mover::new(&*again)?.read(0..subpages, |(subpage, page)| {
        sum.add(subpage.into(), page?);
        anyhow::Ok(())
    })?;
    let State { updates, hash } = made.last().map_or(end, |last| last.state);
    ensure!(sum.hash == hash, "what was kept after {updates} updates is {:x}; the memory was {hash:x}", sum.hash);
    let restored = made.last().map(|last| last.state.updates);
    Ok(Run { gaps, cpu_s, made, end, restored })
}
