//! The computation in plain memory, in huge pages where possible: kept by its own thread, a child
//! process, another thread, or not at all.
//!
//! A checkpoint that falls due while another is being made waits, and merges with those due until
//! then. The computation's thread is pinned. Its helpers may run on all cores.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use fulgurite_format::{Address, SUBPAGE_BYTES};
use fulgurite_memory::{PlainMemory, RawMemory};
use fulgurite_sys::{Arena, Backed, DirectFile, ImageChild, ImageFile, affinity};

use super::job::{Gaps, Job, Progress, State, Sum, WORDS};
use super::log::{self, Changed, Log};
use super::method::{CpuTime, Made, Method, Run};
use fulgurite_harness::child::added_work;

const IMAGE: &str = "image";
const LOG: &str = "log";

/// A checkpoint that is being made while the computation goes on.
struct OngoingCheckpoint {
    at: Instant,
    state: State,
    by: By,
}

enum By {
    Child {
        child: ImageChild,
        bytes: u64,
    },
    /// The other thread, of these pages.
    Copy(Vec<u32>),
}

/// What takes checkpoints of a memory.
struct Keeper<'k> {
    method: Method,
    job: &'k Job,
    core: usize,
    cores: &'k [usize],
    image: &'k ImageFile,
    /// The image, to be changed in place.
    file: Option<File>,
    log: Option<&'k Log>,
    changed: Changed,
    busy: &'k AtomicBool,
    begun: mpsc::Sender<OngoingCheckpoint>,
    made: Vec<Made>,
}

impl Keeper<'_> {
    fn take(&mut self, memory: &Arena, state: State) -> Result<()> {
        let at = Instant::now();
        let written = match self.method {
            Method::Plain | Method::Fulgurite | Method::Sync => return Ok(()),
            Method::File => {
                let file = self.file.as_ref().context("the file is not open")?;
                let mut pages = self.changed.take();
                pages.sort_unstable();
                let mut bytes = [0; SUBPAGE_BYTES];
                for page in &pages {
                    let offset = *page as usize * SUBPAGE_BYTES;
                    memory.read(offset, &mut bytes);
                    file.write_all_at(&bytes, offset as u64)?;
                }
                file.sync_all()?;
                (pages.len() * SUBPAGE_BYTES) as u64
            }
            Method::Dump => {
                self.image.write(memory, self.job.bytes())?;
                self.job.bytes() as u64
            }
            Method::Fork => {
                // The kernel may put a child onto an idle core, which this thread's core is not.
                affinity::pin_to(self.cores)?;
                let child = self.image.write_in_child(memory, self.job.bytes()).context("there is no child process")?;
                affinity::pin(self.core)?;
                let by = By::Child { child, bytes: self.job.bytes() as u64 };
                return self.begin(OngoingCheckpoint { at, state, by });
            }
            Method::Behind => {
                let pages = self.changed.take();
                self.log.context("there is no log")?.copy(memory, &pages);
                return self.begin(OngoingCheckpoint { at, state, by: By::Copy(pages) });
            }
        };
        self.made.push(Made { state, durable: at.elapsed(), written });
        Ok(())
    }
    fn begin(&self, begun: OngoingCheckpoint) -> Result<()> {
        self.busy.store(true, Ordering::Release);
        self.begun.send(begun).map_err(|_| anyhow!("no thread waits for the checkpoint any more"))
    }
}

/// Runs it by one method, in a directory that is empty before and after.
pub fn run(directory: &Path, job: &Job, first: State, method: Method, cores: &[usize]) -> Result<Run> {
    let memory = PlainMemory::new(Backed::HugePages)?;
    let mut page_bytes = [0; SUBPAGE_BYTES];
    for page in 0..job.pages {
        job.fill(page, &mut page_bytes);
        memory.arena().write(page as usize * SUBPAGE_BYTES, &page_bytes);
    }
    let image = ImageFile::new(directory, IMAGE)?;
    if matches!(method, Method::File | Method::Behind) {
        image.write(memory.arena(), job.bytes()).context("the first image cannot be written")?;
    }
    let file = (method == Method::File).then(|| File::options().write(true).open(directory.join(IMAGE))).transpose()?;
    let log = (method == Method::Behind).then(|| Log::create(&directory.join(LOG), job)).transpose()?;
    let (progress, busy) = (Progress::from(first), AtomicBool::new(false));
    let before = CpuTime::now();
    let (begun, to_make) = mpsc::channel();
    let (gaps, made, children) = std::thread::scope(|scope| -> Result<_> {
        let making = scope.spawn(|| make(to_make, log.as_ref(), &busy));
        let keeper = Keeper {
            method,
            job,
            core: cores[0],
            cores,
            image: &image,
            file,
            log: log.as_ref(),
            changed: Changed::none_of(job.pages),
            busy: &busy,
            begun,
            made: Vec::new(),
        };
        let (own, progress) = (memory.clone(), &progress);
        let computing = scope.spawn(move || compute(own, job, progress, keeper));
        let computed = computing.join().map_err(|_| anyhow!("the thread that computes died"))?;
        // What went wrong elsewhere is why it could not go on here.
        let (behind, children) = making.join().map_err(|_| anyhow!("the thread that keeps died"))??;
        let (gaps, mut made) = computed?;
        made.extend(behind);
        Ok((gaps, made, children))
    })?;
    let cpu_s = before.elapsed_s(children);
    let end = progress.state();
    let hash = hash_of(memory.arena(), job);
    ensure!(hash == end.hash, "the memory holds {hash:x} after {} updates, and not {:x}", end.updates, end.hash);
    drop(memory);
    let restored = match made.last() {
        Some(last) => {
            let hash = restore(directory, job, method, made.len() as u64)?;
            let State { updates, hash: was } = last.state;
            ensure!(hash == was, "what was kept after {updates} updates is {hash:x}; the memory was {was:x}");
            Some(last.state.updates)
        }
        None => None,
    };
    drop(log);
    for name in [IMAGE, LOG] {
        match std::fs::remove_file(directory.join(name)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
            _ => {}
        }
    }
    Ok(Run { gaps, cpu_s, made, end, restored })
}

fn compute(
    mut memory: PlainMemory,
    job: &Job,
    progress: &Progress,
    mut keeper: Keeper<'_>,
) -> Result<(Gaps, Vec<Made>)> {
    affinity::pin(keeper.core).context("cannot pin to the computation's core")?;
    let arena = memory.arena().clone();
    let tracks = matches!(keeper.method, Method::File | Method::Behind);
    let mut is_due = false;
    let mut gaps = Gaps::new(job);
    for update in 0..job.all_updates() {
        added_work::compute(job.iterations);
        let word = job.word(update);
        let view = memory.view_mut(Address::from_linear(word * 8), 8)?;
        view.store(0, view.load::<u64>(0).wrapping_add(1));
        if tracks {
            keeper.changed.mark((word / WORDS) as u32);
        }
        let done = progress.count(word);
        gaps.done(done);
        is_due |= job.is_due(done);
        if is_due && !keeper.busy.load(Ordering::Acquire) {
            is_due = false;
            keeper.take(&arena, progress.state())?;
        }
    }
    Ok((gaps, keeper.made))
}

/// Makes, or waits for, what was begun.
fn make(
    to_make: mpsc::Receiver<OngoingCheckpoint>,
    log: Option<&Log>,
    busy: &AtomicBool,
) -> Result<(Vec<Made>, Duration)> {
    let (mut made, mut children, mut end) = (Vec::new(), Duration::ZERO, 0);
    for OngoingCheckpoint { at, state, by } in to_make {
        let written = match by {
            By::Child { child, bytes } => {
                children += child.wait().context("the child process could not write the image")?;
                bytes
            }
            By::Copy(pages) => {
                let log = log.context("there is no log")?;
                let bytes = log.append(made.len() as u64, end, &pages).context("the log cannot be written")?;
                end += bytes;
                bytes
            }
        };
        made.push(Made { state, durable: at.elapsed(), written });
        busy.store(false, Ordering::Release);
    }
    Ok((made, children))
}

fn hash_of(arena: &Arena, job: &Job) -> u64 {
    let mut sum = Sum::default();
    let mut bytes = [0; SUBPAGE_BYTES];
    for page in 0..job.pages {
        arena.read(page as usize * SUBPAGE_BYTES, &mut bytes);
        sum.add(page, &bytes);
    }
    sum.hash
}

/// Reads the image past the page cache, as after a crash.
fn restore(directory: &Path, job: &Job, method: Method, checkpoints: u64) -> Result<u64> {
    let kept = Arena::anonymous(job.bytes(), Backed::HugePages)?;
    let file = DirectFile::open(&directory.join(IMAGE))?;
    ensure!(file.bytes()? == job.bytes() as u64, "the image has {} bytes", file.bytes()?);
    log::read_whole(&file, 0, &kept, job.bytes())?;
    if method == Method::Behind {
        let segments = log::replay(&directory.join(LOG), &kept, job)?;
        ensure!(segments == checkpoints, "{segments} of {checkpoints} checkpoints are in the log");
    }
    Ok(hash_of(&kept, job))
}
