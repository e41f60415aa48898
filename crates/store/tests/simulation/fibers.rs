//! Jobs of the simulated worker, as state machines: a fiber runs until it waits for a subpage, a frame, a cut, or a time.

use fulgurite_flash::FlashError;
use fulgurite_format::SubpageIndex;
use fulgurite_policy::{FiberIndex, Point};

use super::Random;
use super::frames::Where;
use super::machine::{JOB_NS_MAX, Machine};
use super::world::{Harness, World, fill, holds, shows};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Read(u32),
    Write(u32),
    /// A read that keeps the frame until the job ends, and looks at it again then.
    Hold(u32),
    Yield,
    Sleep(u64),
    Sync,
}

#[derive(Clone, Debug)]
pub struct Job {
    pub arrived_ns: u64,
    pub steps: Vec<Step>,
}

/// What a fiber is told when it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// What it waited for is in this frame, which is held for it.
    Pinned(u32),
    /// Something has happened.
    Retry,
    Failed(FlashError),
    /// Its sync has ended.
    Synced,
}

#[derive(Clone, Default, Debug)]
pub struct Fiber {
    pub job: Option<Job>,
    at: usize,
    pub wake: Option<Wake>,
    held: Vec<(u32, u32)>,
}
impl Fiber {
    pub fn of(job: Job) -> Fiber {
        Fiber { job: Some(job), ..Fiber::default() }
    }
    pub fn request_ns(&self) -> u64 {
        self.job.as_ref().map_or(0, |job| job.arrived_ns)
    }
}

/// A job of a few steps: some go through neighbours, some come back to what is hot.
pub fn random_job(random: &mut Random, subpages: u32, now_ns: u64) -> Job {
    let mut steps = Vec::new();
    if random.one_in(8) {
        let first = random.below(subpages);
        let writes = random.one_in(4);
        for subpage in (first..subpages).take(4 + random.below(8) as usize) {
            steps.push(if writes { Step::Write(subpage) } else { Step::Read(subpage) });
        }
        return Job { arrived_ns: now_ns, steps };
    }
    for _ in 0..1 + random.below(5) {
        let range = if random.one_in(2) { subpages.min(8) } else { subpages };
        let subpage = random.below(range);
        steps.push(match random.below(24) {
            0 => Step::Yield,
            1 => Step::Sleep(1 + u64::from(random.below(1_000_000))),
            2 => Step::Sync,
            3 | 4 => Step::Hold(subpage),
            5..=13 => Step::Write(subpage),
            _ => Step::Read(subpage),
        });
    }
    Job { arrived_ns: now_ns, steps }
}

impl Machine {
    pub fn run_fiber(&mut self, world: &mut World, fiber: u32) {
        loop {
            let this = &mut self.fibers[fiber as usize];
            let wake = this.wake.take();
            if let Some(Wake::Failed(error)) = wake {
                world.note(&[6, fiber.into()]);
                assert!(error != FlashError::Corrupt, "a job is told of a damaged subpage");
                return self.end_job(world, fiber);
            }
            let step = this.job.as_ref().expect("a fiber that runs has a job").steps.get(this.at).copied();
            let now = world.disk.now_ns();
            let request_ns = this.request_ns();
            self.point = Point::Missed;
            match step {
                None => return self.end_job(world, fiber),
                Some(Step::Read(subpage) | Step::Write(subpage) | Step::Hold(subpage)) => {
                    if !self.access(world, fiber, subpage, step.expect("seen above"), wake) {
                        return;
                    }
                    self.fibers[fiber as usize].at += 1;
                }
                Some(Step::Yield) => {
                    this.at += 1;
                    return self.scheduler.yielded(FiberIndex(fiber), request_ns, now);
                }
                Some(Step::Sleep(for_ns)) => {
                    this.at += 1;
                    self.sleepers.push((now + for_ns, fiber));
                    return self.scheduler.blocked(FiberIndex(fiber), request_ns, now);
                }
                Some(Step::Sync) if wake == Some(Wake::Synced) => this.at += 1,
                Some(Step::Sync) => {
                    match &self.cut {
                        // The one that is made may be of before: the next one is.
                        Some(_) => self.cut_waiters.push(fiber),
                        None => self.begin_cut(world, Some(fiber)),
                    }
                    return self.scheduler.blocked(FiberIndex(fiber), request_ns, now);
                }
            }
        }
    }
    /// One access. False when the fiber waits now.
    fn access(&mut self, world: &mut World, fiber: u32, subpage: u32, step: Step, wake: Option<Wake>) -> bool {
        let stale = world.has(Harness::StaleFrame);
        let (frame, is_held) = match (wake, self.table[subpage as usize]) {
            (Some(Wake::Pinned(frame)), at) => {
                assert!(stale || at == Where::Resident(frame), "subpage {subpage} left its frame while it was held");
                (frame, !stale)
            }
            (_, Where::Resident(frame)) => (frame, false),
            (_, Where::Absent | Where::Moving) => {
                self.miss(world, fiber, subpage);
                return false;
            }
        };
        let now = world.disk.now_ns();
        let here = &mut self.frames[frame as usize];
        if is_held {
            here.pins -= 1;
        } else {
            here.referenced = true;
        }
        if matches!(step, Step::Write(_)) && (here.before_cut || here.in_place) {
            let request_ns = self.fibers[fiber as usize].request_ns();
            self.cut_waiters.push(fiber);
            self.scheduler.blocked(FiberIndex(fiber), request_ns, now);
            return false;
        }
        let ahead =
            if std::mem::replace(&mut here.touched, true) { None } else { self.prefetcher.used(SubpageIndex(subpage)) };
        match step {
            Step::Write(_) => {
                here.dirty = true;
                let number = world.next_number();
                world.now[subpage as usize] = number;
                world.report.writes += 1;
                fill(&self.arena, frame, number);
                world.note(&[7, fiber.into(), subpage.into(), number]);
            }
            _ => {
                let number = world.now[subpage as usize];
                world.report.reads += 1;
                assert!(shows(&self.arena, frame, number), "a fiber reads subpage {subpage}, which is not {number}");
                world.note(&[8, fiber.into(), subpage.into(), number]);
            }
        }
        let held: usize = self.fibers.iter().map(|fiber| fiber.held.len()).sum();
        if matches!(step, Step::Hold(_)) && held < self.frames.len() / 4 {
            self.frames[frame as usize].pins += 1;
            self.fibers[fiber as usize].held.push((frame, subpage));
        }
        self.read_ahead(world, ahead);
        true
    }
    fn end_job(&mut self, world: &mut World, fiber: u32) {
        let now = world.disk.now_ns();
        for (frame, subpage) in std::mem::take(&mut self.fibers[fiber as usize].held) {
            let number = world.now[subpage as usize];
            assert!(holds(&self.arena, frame, number), "subpage {subpage} is held, and is not {number}");
            self.frames[frame as usize].pins -= 1;
        }
        let age = now - self.fibers[fiber as usize].request_ns();
        assert!(age < JOB_NS_MAX, "a job took {age} ns");
        self.fibers[fiber as usize] = Fiber::default();
        self.idle.push(fiber);
        self.point = Point::Finished;
        world.note(&[9, fiber.into()]);
    }
    pub fn wake_sleepers(&mut self, world: &mut World) {
        let now = world.disk.now_ns();
        for at in (0..self.sleepers.len()).rev() {
            if self.sleepers[at].0 <= now {
                let (_, fiber) = self.sleepers.swap_remove(at);
                self.wake(world, fiber, Wake::Retry);
            }
        }
    }
}
