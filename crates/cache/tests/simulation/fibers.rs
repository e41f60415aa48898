//! Jobs of the simulated workers, as state machines: a fiber runs until it waits for a subpage, a
//! frame, a cut, the gate, or a time. Between finding a frame and using it, other workers may have
//! their turns.

use std::sync::atomic::Ordering;

use fulgurite_cache::marks::DIRTY;
use fulgurite_cache::residency::{frame_of, hit};
use fulgurite_cache::{Miss, Step as Missed, Table, Unsealed, Writer};
use fulgurite_flash::FlashError;
use fulgurite_format::FrameIndex;
use fulgurite_policy::{FiberIndex, Point, Waiter};

use super::Random;
use super::machine::{JOB_NS_MAX, Machine, Mail};
use super::world::{World, fill, holds, shows};

/// How long a write to a frame that is on its way to the medium waits before it tries again.
const SEALED_WAIT_NS: u64 = 20_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Read(u32),
    Write(u32),
    /// A read that pins the frame until the job ends, and reads it again then.
    Hold(u32),
    /// A write that pins the frame until the job ends, and writes to it again then.
    Keep(u32),
    Yield,
    Sleep(u64),
    Sync,
}

impl Step {
    fn writes(self) -> bool {
        matches!(self, Step::Write(_) | Step::Keep(_))
    }
}

#[derive(Clone, Debug)]
pub struct Job {
    pub arrived_ns: u64,
    /// Its writes belong together: no cut divides them.
    pub section: bool,
    pub steps: Vec<Step>,
}

/// What a fiber learns when it continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// What it waited for is in a frame, which is pinned for it.
    Pinned,
    /// Something has happened.
    Retry,
    /// Something has happened, and it is its turn to have a frame.
    Turn,
    Failed(FlashError),
    OutOfFrames,
    /// Its sync has ended.
    Synced,
}

/// A frame that a job has pinned.
#[derive(Clone, Copy, Debug)]
struct Pinned {
    frame: FrameIndex,
    subpage: u32,
    written: bool,
}

#[derive(Clone, Default, Debug)]
pub struct Fiber {
    pub job: Option<Job>,
    at: usize,
    pub wake: Option<Wake>,
    turn: bool,
    /// It is in its write section.
    inside: bool,
    pinned: Vec<Pinned>,
}
impl Fiber {
    pub fn of(job: Job) -> Fiber {
        Fiber { job: Some(job), ..Fiber::default() }
    }
    pub fn request_ns(&self) -> u64 {
        self.job.as_ref().map_or(0, |job| job.arrived_ns)
    }
    pub fn pins(&self) -> usize {
        self.pinned.len()
    }
}

/// A fiber that has found a frame, and not used it yet.
#[derive(Clone, Copy, Debug)]
pub struct AtFrame {
    pub fiber: u32,
    frame: FrameIndex,
    subpage: u32,
    step: Step,
}

/// A job of a few steps: some go through neighbours, some come back to what is hot.
pub fn random_job(random: &mut Random, subpages: u32, now_ns: u64) -> Job {
    let mut steps = Vec::new();
    let section = random.one_in(3);
    if random.one_in(8) {
        let first = random.below(subpages);
        let writes = random.one_in(4);
        for subpage in (first..subpages).take(4 + random.below(8) as usize) {
            steps.push(if writes { Step::Write(subpage) } else { Step::Read(subpage) });
        }
        return Job { arrived_ns: now_ns, section, steps };
    }
    for _ in 0..1 + random.below(5) {
        let range = if random.one_in(2) { subpages.min(8) } else { subpages };
        let subpage = random.below(range);
        steps.push(match random.below(26) {
            0 => Step::Yield,
            1 => Step::Sleep(1 + random.below(1_000_000)),
            // A section must not wait for a sync, which waits for its end.
            2 if !section => Step::Sync,
            3 | 4 => Step::Hold(subpage),
            5 | 6 => Step::Keep(subpage),
            7..=15 => Step::Write(subpage),
            _ => Step::Read(subpage),
        });
    }
    Job { arrived_ns: now_ns, section, steps }
}

/// A fiber of a worker, as caches know it.
pub fn waiter(worker: usize, fiber: u32) -> Waiter {
    Waiter((worker as u64) << 32 | u64::from(fiber))
}

impl Machine {
    pub fn run_fiber(&mut self, world: &mut World, worker: usize, fiber: u32) {
        loop {
            let now = world.disk.now_ns();
            let here = &mut self.workers[worker];
            let this = &mut here.fibers[fiber as usize];
            let wake = this.wake.take();
            if let Some(Wake::Failed(_) | Wake::OutOfFrames) = wake {
                world.note(&[6, fiber.into()]);
                if let Some(Wake::Failed(error)) = wake {
                    world.report.errors += 1;
                    world.allow_access(error);
                }
                return self.end_job(world, worker, fiber);
            }
            this.turn |= wake == Some(Wake::Turn);
            let job = this.job.as_ref().expect("a fiber that runs has a job");
            let step = job.steps.get(this.at).copied();
            let request_ns = this.request_ns();
            here.point = Point::Missed;
            if job.section && !this.inside {
                if self.gate_closed {
                    self.gate_waiters.push((worker, fiber));
                    return here.scheduler.blocked(FiberIndex(fiber), request_ns, now);
                }
                this.inside = true;
                self.open_sections += 1;
            }
            match step {
                None => return self.end_job(world, worker, fiber),
                Some(Step::Read(subpage) | Step::Write(subpage) | Step::Hold(subpage) | Step::Keep(subpage)) => {
                    let step = step.expect("seen above");
                    if !self.find(world, worker, fiber, subpage, step, wake) {
                        return;
                    }
                    if self.workers.len() > 1 && world.random.one_in(2) {
                        // Others run now; the slot names the frame.
                        return;
                    }
                    self.use_frame(world, worker);
                }
                Some(Step::Yield) => {
                    this.at += 1;
                    return here.scheduler.yielded(FiberIndex(fiber), request_ns, now);
                }
                Some(Step::Sleep(for_ns)) => {
                    this.at += 1;
                    return self.sleep(worker, fiber, now, now + for_ns);
                }
                Some(Step::Sync) if wake == Some(Wake::Synced) => this.at += 1,
                Some(Step::Sync) => {
                    here.scheduler.blocked(FiberIndex(fiber), request_ns, now);
                    match &self.cut {
                        // The one that is made may be of before: the next one is.
                        Some(_) => self.cut_waiters.push((worker, fiber)),
                        None => self.begin_cut(world, Some((worker, fiber))),
                    }
                    return;
                }
            }
        }
    }

    fn sleep(&mut self, worker: usize, fiber: u32, now: u64, until: u64) {
        let here = &mut self.workers[worker];
        here.sleepers.push((until, fiber));
        here.scheduler.blocked(FiberIndex(fiber), here.fibers[fiber as usize].request_ns(), now);
    }

    /// Where a subpage is, if it is resident; the worker's slot names the frame then.
    fn resident(&self, worker: usize, subpage: u32) -> Option<FrameIndex> {
        let shared = &self.shared;
        // SAFETY: the near table lives as long as what is shared, which we hold.
        if let Some(frame) = unsafe { shared.near.view().find(subpage.into()) } {
            return Some(frame);
        }
        // SAFETY: the bits are as many as subpages, and subpages of jobs are below that; they live
        // as long as what is shared.
        let absent = unsafe { shared.table.absent_bits().add((subpage / 8) as usize).as_ref() };
        if Table::says_absent(absent, subpage) {
            return None;
        }
        let frame = frame_of(hit(shared.table.word(subpage), self.slots.of(worker))?);
        // SAFETY: as above.
        unsafe { shared.near.view().note(subpage, frame) };
        Some(frame)
    }

    /// Looks for a subpage in the frames. False when the fiber waits now; else it is at the frame.
    fn find(
        &mut self,
        world: &mut World,
        worker: usize,
        fiber: u32,
        subpage: u32,
        step: Step,
        mut wake: Option<Wake>,
    ) -> bool {
        loop {
            let now = world.disk.now_ns();
            let found = self.resident(worker, subpage);
            let here = &mut self.workers[worker];
            let this = &mut here.fibers[fiber as usize];
            let Some(frame) = found else {
                assert!(
                    wake != Some(Wake::Pinned),
                    "subpage {subpage} left its frame while it was pinned for a waiter"
                );
                let (name, turn) = (waiter(worker, fiber), std::mem::take(&mut this.turn));
                let request_ns = this.request_ns();
                let miss = Miss { subpage, waiter: name, wanted: 0, turn };
                match here.cache.begin_miss(miss, now) {
                    Missed::Again => continue,
                    Missed::Wait => here.scheduler.missed(FiberIndex(fiber), request_ns, now),
                    Missed::WaitForFrame => here.scheduler.blocked(FiberIndex(fiber), request_ns, now),
                    Missed::Elsewhere(owner) => {
                        here.scheduler.missed(FiberIndex(fiber), request_ns, now);
                        self.workers[owner as usize].mail.push_back(Mail::Join { subpage, waiter: name });
                    }
                }
                self.deliver(world, worker);
                self.slots.clear(worker);
                return false;
            };
            this.turn = false;
            let marks = self.shared.frames.marks(frame);
            if wake.take() == Some(Wake::Pinned) {
                self.shared.unpin(frame);
            } else {
                marks.referenced.store(1, Ordering::Relaxed);
            }
            let may = match step {
                Step::Write(_) | Step::Keep(_) => marks.mark_dirty(),
                // A pin of the runtime may be written through at any moment.
                Step::Hold(_) => marks.dirty.load(Ordering::Acquire) <= DIRTY,
                _ => true,
            };
            if !may {
                match here.cache.unseal(subpage, frame, Writer::MayWait, now) {
                    Unsealed::Yes => {
                        world.report.unsealed += 1;
                        continue;
                    }
                    Unsealed::Later => {
                        self.slots.clear(worker);
                        self.sleep(worker, fiber, now, now + SEALED_WAIT_NS);
                        return false;
                    }
                    Unsealed::Never => panic!("nobody has taken permissions away"),
                    Unsealed::Refused(error) => {
                        world.allow("a change", error);
                        self.slots.clear(worker);
                        self.end_job(world, worker, fiber);
                        return false;
                    }
                }
            }
            here.at_frame = Some(AtFrame { fiber, frame, subpage, step });
            return true;
        }
    }

    /// The fiber that has found a frame uses it.
    pub fn use_frame(&mut self, world: &mut World, worker: usize) {
        let Some(AtFrame { fiber, frame, subpage, step }) = self.workers[worker].at_frame.take() else { return };
        if step.writes() {
            self.write(world, frame, subpage);
        } else {
            let number = world.now[subpage as usize];
            world.report.reads += 1;
            assert!(
                shows(self.arena(), frame.0, number),
                "a fiber reads subpage {subpage}, which is not {number}: {}",
                self.describe(world)
            );
            world.note(&[8, fiber.into(), subpage.into(), number]);
        }
        let pins: usize = self.workers.iter().flat_map(|w| &w.fibers).map(Fiber::pins).sum();
        let this = &mut self.workers[worker].fibers[fiber as usize];
        this.at += 1;
        if matches!(step, Step::Hold(_) | Step::Keep(_)) && pins < self.pins_max {
            // The slot protects the frame until here.
            self.shared.pin(frame);
            this.pinned.push(Pinned { frame, subpage, written: step.writes() });
            world.report.pinned += 1;
        }
        self.slots.clear(worker);
    }
    fn write(&self, world: &mut World, frame: FrameIndex, subpage: u32) {
        let number = world.next_number();
        world.now[subpage as usize] = number;
        world.report.writes += 1;
        fill(self.arena(), frame.0, number);
        world.note(&[7, subpage.into(), number]);
    }

    fn end_job(&mut self, world: &mut World, worker: usize, fiber: u32) {
        let now = world.disk.now_ns();
        let this = std::mem::take(&mut self.workers[worker].fibers[fiber as usize]);
        for Pinned { frame, subpage, written } in &this.pinned {
            let number = world.now[*subpage as usize];
            assert!(holds(self.arena(), frame.0, number), "subpage {subpage} is pinned, and is not {number}");
            if *written {
                // Marked as dirty when it was pinned: it may be written to until the pin is
                // removed.
                self.write(world, *frame, *subpage);
            }
            self.shared.unpin(*frame);
        }
        self.open_sections -= u32::from(this.inside);
        let age = now - this.request_ns();
        assert!(age < JOB_NS_MAX, "a job took {age} ns");
        let here = &mut self.workers[worker];
        here.idle.push(fiber);
        here.point = Point::Finished;
        world.note(&[9, fiber.into()]);
    }
    pub fn wake_sleepers(&mut self, world: &mut World, worker: usize) {
        let now = world.disk.now_ns();
        for at in (0..self.workers[worker].sleepers.len()).rev() {
            if self.workers[worker].sleepers[at].0 <= now {
                let (_, fiber) = self.workers[worker].sleepers.swap_remove(at);
                self.wake(world, worker, fiber, Wake::Retry);
            }
        }
    }
}
