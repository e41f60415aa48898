//! The simulated worker: its misses, evictions and completions, and the loop that runs fibers. In the order of things it does what a
//! worker of the runtime does, one step after another.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{Completion, Flash, FlashError, Layered, Op, Queue, Request};
use fulgurite_format::{FrameIndex, LocalFrame, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_policy::{
    Admission, AdmissionPolicy, AnyReplacement, Choice, FiberIndex, MissKind, MissTable, Point, PrefetchPolicy,
    Prefetcher, Replacement, ReplacementPolicy, Scheduler, SchedulingPolicy, Waiter,
};
use fulgurite_store::Pool;
use fulgurite_sys::{Arena, Backed, Notifier};

use super::cut::Cut;
use super::fibers::{Fiber, Job, Wake};
use super::frames::{Frame, Life, View, Where};
use super::operator::Operator;
use super::world::{Harness, World, holds};

/// After so much simulated time the waiters of a request are told that the device does not answer.
const DEVICE_TIMEOUT_NS: u64 = 10_000_000_000;
/// After a failed write-back, when the next one is tried.
const RETRY_NS: u64 = 1_000_000;
/// No job takes longer, whatever fails: a few requests in a row that are very late.
pub const JOB_NS_MAX: u64 = 600_000_000_000;
/// Turns of the loop after which it has certainly gone round in vain.
const TURNS_MAX: u64 = 100_000;

/// Waits after one another until a pool has certainly seen that it has nothing to do: it looks at one in 32.
const WAITS: u32 = 40;

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Read,
    Abandoned,
    WriteBack,
    InPlace,
}

#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub subpage: u32,
    pub frame: u32,
    pub purpose: Purpose,
    pub since_ns: u64,
}

pub struct Machine {
    pub pool: Arc<Pool>,
    pub flash: Layered<Pool>,
    queue: Box<dyn Queue>,
    queue_number: usize,
    pub arena: Arc<Arena>,
    pub frames: Vec<Frame>,
    pub table: Vec<Where>,
    pub free: Vec<u32>,
    pub replacement: AnyReplacement,
    pub misses: MissTable,
    pub scheduler: Scheduler,
    pub prefetcher: Prefetcher,
    pub admission: Admission,
    pub fibers: Vec<Fiber>,
    pub idle: Vec<u32>,
    pub jobs: VecDeque<Job>,
    pub frame_waiters: VecDeque<u32>,
    /// Fibers that sleep, and until when.
    pub sleepers: Vec<(u64, u32)>,
    /// Fibers that wait for something of the cut.
    pub cut_waiters: Vec<u32>,
    pub cut: Option<Cut>,
    requests: Vec<Option<Asked>>,
    pub write_failure: Option<FlashError>,
    retry_ns: u64,
    pub operator: Operator,
    pub point: Point,
    turns: u64,
    /// Turns since a fiber last ran.
    waits: u32,
}

impl Machine {
    pub fn new(world: &mut World, pool: Arc<Pool>) -> Machine {
        let random = &mut world.random;
        let frames = 4 + random.below(20);
        let fibers = 2 + random.below(12);
        let depth = 4 + random.below(12);
        let pick = |n: u32| n as usize;
        let replacement = ReplacementPolicy::ALL[pick(random.below(3))];
        let scheduling = SchedulingPolicy::ALL[pick(random.below(3))];
        let prefetch = match random.below(3) {
            0 => PrefetchPolicy::Off,
            1 => PrefetchPolicy::Fixed(1 + random.below(4) as u8),
            _ => PrefetchPolicy::Adaptive,
        };
        let admission = if random.one_in(2) {
            AdmissionPolicy::Unlimited
        } else {
            AdmissionPolicy::QueueDelay { target_ns: 300_000, interval_ns: 1_000_000 }
        };
        let arena = Arena::anonymous(frames as usize * SUBPAGE_BYTES, Backed::BasePages).expect("there is memory");
        let arena = Arc::new(arena);
        let flash = Layered::new(pool.clone());
        let queue_number = world.disk.next_queue();
        let wake = Arc::new(Notifier::new().expect("there are file descriptors"));
        let queue = flash.open_queue(arena.clone(), depth as usize, wake).expect("the device has queues");
        Machine {
            table: vec![Where::Absent; world.now.len()],
            operator: Operator::new(world),
            pool,
            flash,
            queue,
            queue_number,
            arena,
            frames: vec![Frame::FREE; frames as usize],
            free: (0..frames).collect(),
            replacement: AnyReplacement::new(replacement, frames as usize),
            misses: MissTable::new(depth as usize, fibers as usize),
            scheduler: Scheduler::new(scheduling, fibers as usize, fibers as usize),
            prefetcher: Prefetcher::new(prefetch),
            admission: Admission::new(admission),
            fibers: (0..fibers).map(|_| Fiber::default()).collect(),
            idle: (0..fibers).collect(),
            jobs: VecDeque::new(),
            frame_waiters: VecDeque::new(),
            sleepers: Vec::new(),
            cut_waiters: Vec::new(),
            cut: None,
            requests: vec![None; depth as usize],
            write_failure: None,
            retry_ns: 0,
            point: Point::Idle,
            turns: 0,
            waits: 0,
        }
    }
    /// Runs until the device is dead, the pool takes nothing more, or all that was to be done is.
    pub fn run(&mut self, world: &mut World) {
        while !world.disk.is_dead() && !self.operator.is_done(self) {
            self.turn(world);
            if self.operator.is_poisoned {
                return;
            }
        }
    }
    /// One turn of the worker's loop.
    pub fn turn(&mut self, world: &mut World) {
        self.turns += 1;
        assert!(self.turns < TURNS_MAX, "the machine goes round in vain: {}", self.describe(world));
        self.poll(world);
        self.give_up_late(world);
        self.make_room(world);
        self.advance_cut(world);
        self.wake_sleepers(world);
        self.operate(world);
        if world.disk.is_dead() {
            return;
        }
        let now = world.disk.now_ns();
        if self.turns.is_multiple_of(64) {
            self.check(world);
        }
        let may_start = !self.jobs.is_empty() && !self.idle.is_empty() && !self.operator.drains;
        match self.scheduler.pick(self.point, now, may_start) {
            Choice::Resume(FiberIndex(fiber)) => self.run_fiber(world, fiber),
            Choice::StartNew => {
                let fiber = self.idle.pop().expect("there is one");
                let job = self.jobs.pop_front().expect("there is one");
                world.note(&[2, fiber.into(), job.arrived_ns]);
                self.fibers[fiber as usize] = Fiber::of(job);
                self.run_fiber(world, fiber);
            }
            Choice::Wait => {
                self.point = Point::Idle;
                let sleeps = self.sleepers.iter().map(|(until, _)| *until).min().unwrap_or(u64::MAX);
                let until = self.operator.next_ns().min(sleeps).min(now + 1_000_000_000);
                self.queue.wait(Some(Duration::from_nanos(until.saturating_sub(now).max(1_000))));
                self.waits += 1;
                if self.waits > WAITS {
                    // The pool has had its turns, and so all there is to wait for is the device.
                    world.disk.advance(until);
                }
                return;
            }
        }
        self.waits = 0;
    }
    pub fn describe(&self, world: &World) -> String {
        let lives: Vec<_> = self.frames.iter().map(|f| (f.life, f.subpage, f.dirty, f.pins)).collect();
        format!(
            "device {}, cut {:?}, jobs {}, idle {} of {}, waiting for frames {:?}, runnable {}, pending {}, requests {:?}, failure {:?}, \
             frames {lives:?}, operator {:?}, pool {:?}",
            world.disk.describe(),
            self.cut,
            self.jobs.len(),
            self.idle.len(),
            self.fibers.len(),
            self.frame_waiters,
            self.scheduler.runnable(),
            self.scheduler.pending(),
            self.requests.iter().flatten().collect::<Vec<_>>(),
            self.write_failure,
            self.operator,
            self.pool.info(),
        )
    }
    /// Asserts what holds at any time.
    pub fn check(&self, world: &World) {
        let now_ns = world.disk.now_ns();
        self.replacement.check();
        self.misses.check();
        self.scheduler.check();
        self.prefetcher.check();
        let wrong = self.pool.audit();
        assert!(wrong.is_empty(), "{wrong:#?}");
        let count = |life| self.frames.iter().filter(|f| f.life == life).count();
        assert_eq!(count(Life::Free), self.free.len());
        assert_eq!(count(Life::Resident), self.replacement.len());
        assert_eq!(count(Life::Reading) + count(Life::Leaving), self.misses.len());
        for (index, frame) in self.frames.iter().enumerate() {
            let at = self.table[frame.subpage as usize];
            match frame.life {
                Life::Resident => assert_eq!(at, Where::Resident(index as u32)),
                Life::Reading | Life::Leaving => assert_eq!(at, Where::Moving),
                Life::Free | Life::Abandoned => {}
            }
        }
        for fiber in self.fibers.iter().filter_map(|f| f.job.as_ref()) {
            assert!(now_ns - fiber.arrived_ns < JOB_NS_MAX, "a job hangs: {}", self.describe(world));
        }
    }

    // ---- requests ----

    pub fn in_flight(&self) -> usize {
        self.requests.iter().flatten().count()
    }
    fn writing(&self) -> usize {
        self.requests.iter().flatten().filter(|a| matches!(a.purpose, Purpose::WriteBack | Purpose::InPlace)).count()
    }
    fn has_room(&self) -> bool {
        self.in_flight() < self.requests.len()
    }
    /// Reads go on whatever is written.
    fn room_to_write(&self) -> usize {
        let room = self.requests.len() - self.in_flight();
        (self.requests.len() / 2).saturating_sub(self.writing()).min(room)
    }
    fn submit(&mut self, world: &World, op: Op, subpage: u32, frame: u32, purpose: Purpose) {
        let tag = self.requests.iter().position(Option::is_none).expect("asked for room before");
        self.requests[tag] = Some(Asked { subpage, frame, purpose, since_ns: world.disk.now_ns() });
        let request = Request { tag: tag as u64, op, subpage: SubpageIndex(subpage), frame: FrameIndex(frame) };
        self.queue.submit(request).expect("as many as the queue is deep");
    }
    fn poll(&mut self, world: &mut World) {
        self.queue.flush().expect("the device takes requests");
        let mut ended = Vec::new();
        self.queue.poll(&mut ended);
        for completion in ended {
            self.complete(world, completion);
        }
        if self.operator.ticks {
            self.pool.tick();
        }
    }
    fn complete(&mut self, world: &mut World, completion: Completion) {
        let asked = self.requests[completion.tag as usize].take().expect("each request ends once");
        let Asked { subpage, frame, purpose, .. } = asked;
        world.note(&[3, subpage.into(), frame.into(), u64::from(completion.result.is_ok())]);
        match purpose {
            Purpose::Abandoned => {
                self.explain_read(world, subpage, completion.result);
                self.release(frame);
            }
            Purpose::Read => {
                self.explain_read(world, subpage, completion.result);
                match completion.result {
                    Ok(()) => {
                        let number = world.now[subpage as usize];
                        assert!(holds(&self.arena, frame, number), "subpage {subpage} came in, and is not {number}");
                        self.install(world, subpage, frame, false);
                    }
                    Err(error) => {
                        self.table[subpage as usize] = Where::Absent;
                        self.release(frame);
                        self.end_miss(world, subpage, Wake::Failed(error));
                    }
                }
            }
            Purpose::WriteBack => self.written_back(world, subpage, frame, completion.result),
            Purpose::InPlace => self.written_in_place(world, frame, completion.result),
        }
    }
    fn explain_read(&mut self, world: &mut World, subpage: u32, result: Result<(), FlashError>) {
        let Err(error) = result else { return };
        world.report.errors += 1;
        let explained = world.disk.is_dead() || world.disk.explains_failed_read(self.queue_number);
        assert!(explained, "subpage {subpage} cannot be read: {error}");
    }
    fn release(&mut self, frame: u32) {
        self.frames[frame as usize] = Frame::FREE;
        self.free.push(frame);
    }
    /// A frame with contents is its subpage's; who waited for it finds it there.
    fn install(&mut self, world: &mut World, subpage: u32, frame: u32, dirty: bool) {
        let waiters = self.misses.get(SubpageIndex(subpage)).expect("it was on its way").waiters;
        // Until each has run.
        let pins = if world.has(Harness::StaleFrame) { 0 } else { waiters };
        let before_cut = self.frames[frame as usize].before_cut;
        self.frames[frame as usize] =
            Frame { life: Life::Resident, subpage, dirty, touched: waiters > 0, pins, before_cut, ..Frame::FREE };
        self.table[subpage as usize] = Where::Resident(frame);
        self.replacement.inserted(LocalFrame(frame), SubpageIndex(subpage));
        self.end_miss(world, subpage, Wake::Pinned(frame));
    }
    fn end_miss(&mut self, world: &World, subpage: u32, wake: Wake) {
        let mut waiters = Vec::new();
        self.misses.complete(SubpageIndex(subpage), |waiter| waiters.push(waiter));
        for Waiter(fiber) in waiters {
            self.wake(world, fiber as u32, wake);
        }
    }
    pub fn wake(&mut self, world: &World, fiber: u32, wake: Wake) {
        self.fibers[fiber as usize].wake = Some(wake);
        self.scheduler.arrived(FiberIndex(fiber), world.disk.now_ns());
    }
    fn give_up_late(&mut self, world: &mut World) {
        let now = world.disk.now_ns();
        for tag in 0..self.requests.len() {
            let Some(asked) = self.requests[tag].filter(|a| now - a.since_ns > DEVICE_TIMEOUT_NS) else { continue };
            match asked.purpose {
                Purpose::Read => {
                    self.requests[tag] = Some(Asked { purpose: Purpose::Abandoned, ..asked });
                    self.frames[asked.frame as usize].life = Life::Abandoned;
                    self.table[asked.subpage as usize] = Where::Absent;
                    self.end_miss(world, asked.subpage, Wake::Failed(FlashError::TimedOut));
                }
                // It holds the only copy: its readers fail, and it stays busy.
                Purpose::WriteBack => {
                    let (subpage, frame) = (SubpageIndex(asked.subpage), FrameIndex(asked.frame));
                    self.requests[tag] = Some(Asked { since_ns: now, ..asked });
                    self.end_miss(world, asked.subpage, Wake::Failed(FlashError::TimedOut));
                    self.misses.begin(subpage, frame, MissKind::Write).expect("it ended just now");
                }
                Purpose::InPlace => self.requests[tag] = Some(Asked { since_ns: now, ..asked }),
                Purpose::Abandoned => continue,
            }
            world.report.timeouts += 1;
        }
    }

    // ---- misses ----

    /// A frame for a miss, if there is one and a request may be begun.
    fn take_frame(&mut self, world: &mut World) -> Option<u32> {
        if self.free.is_empty() && self.has_room() {
            self.evict(world, 2);
        }
        if self.has_room() { self.free.pop() } else { None }
    }
    /// The subpage is not in a frame: the fiber waits for it, or for a frame.
    pub fn miss(&mut self, world: &mut World, fiber: u32, subpage: u32) {
        let request_ns = self.fibers[fiber as usize].request_ns();
        let now = world.disk.now_ns();
        let index = SubpageIndex(subpage);
        match self.misses.get(index) {
            Some(entry) => {
                world.report.joined += 1;
                if entry.kind == MissKind::Prefetch {
                    self.misses.set_kind(index, MissKind::Read);
                    let ahead = self.prefetcher.used(index);
                    self.join(fiber, subpage);
                    self.read_ahead(world, ahead);
                } else {
                    self.join(fiber, subpage);
                }
                self.scheduler.missed(FiberIndex(fiber), request_ns, now);
            }
            None => match self.take_frame(world) {
                Some(frame) => {
                    self.begin_read(world, subpage, frame, MissKind::Read);
                    self.join(fiber, subpage);
                    self.scheduler.missed(FiberIndex(fiber), request_ns, now);
                    let ahead = self.prefetcher.missed(index);
                    self.read_ahead(world, ahead);
                }
                None => {
                    self.frame_waiters.push_back(fiber);
                    self.scheduler.blocked(FiberIndex(fiber), request_ns, now);
                }
            },
        }
    }
    fn join(&mut self, fiber: u32, subpage: u32) {
        self.misses.join(SubpageIndex(subpage), Waiter(fiber.into())).expect("as many waiters as fibers");
    }
    fn begin_read(&mut self, world: &World, subpage: u32, frame: u32, kind: MissKind) {
        self.misses.begin(SubpageIndex(subpage), FrameIndex(frame), kind).expect("it was absent");
        self.table[subpage as usize] = Where::Moving;
        self.frames[frame as usize] = Frame { life: Life::Reading, subpage, ..Frame::FREE };
        self.submit(world, Op::Read, subpage, frame, Purpose::Read);
    }
    pub fn read_ahead(&mut self, world: &mut World, range: Option<std::ops::Range<u32>>) {
        let Some(range) = range else { return };
        for subpage in range.start..range.end.min(self.table.len() as u32) {
            if self.table[subpage as usize] != Where::Absent {
                continue;
            }
            if self.free.len() <= self.low_water() / 2 || !self.has_room() {
                return;
            }
            let frame = self.free.pop().expect("seen above");
            world.report.prefetched += 1;
            self.begin_read(world, subpage, frame, MissKind::Prefetch);
        }
    }

    // ---- eviction ----

    fn low_water(&self) -> usize {
        (self.frames.len() / 4).max(1)
    }
    fn make_room(&mut self, world: &mut World) {
        let now = world.disk.now_ns();
        let short = (2 * self.low_water()).saturating_sub(self.free.len() + self.writing());
        if self.free.len() < self.low_water() && now >= self.retry_ns {
            self.evict(world, short);
        }
        for _ in 0..self.free.len().min(self.requests.len() - self.in_flight()) {
            let Some(fiber) = self.frame_waiters.pop_front() else { break };
            self.wake(world, fiber, Wake::Retry);
        }
        // Nothing that is under way would ever free a frame.
        let moving = self.in_flight() > 0 || self.scheduler.has_runnable() || self.cut.is_some();
        if let Some(error) = self.write_failure
            && !moving
        {
            while let Some(fiber) = self.frame_waiters.pop_front() {
                self.wake(world, fiber, Wake::Failed(error));
            }
        }
    }
    fn evict(&mut self, world: &mut World, want: usize) {
        let (mut writes_left, holds_back) = (self.room_to_write(), self.holds_back(world));
        for _ in 0..want {
            let mut view = View { frames: &mut self.frames, holds_back, writes_left };
            let Some(LocalFrame(frame)) = self.replacement.victim(&mut view) else { break };
            writes_left = view.writes_left;
            let Frame { subpage, dirty, touched, .. } = self.frames[frame as usize];
            if let Some(known) = self.replacement.last_victim_holds() {
                assert_eq!(known, SubpageIndex(subpage), "the policy and the worker disagree on a frame");
            }
            world.note(&[4, frame.into(), subpage.into(), dirty.into()]);
            if world.random.one_in(16) {
                // It was touched at that moment.
                self.replacement.reinstated(LocalFrame(frame), SubpageIndex(subpage));
                continue;
            }
            if !touched {
                self.prefetcher.wasted(SubpageIndex(subpage));
            }
            if !dirty || world.has(Harness::LostWriteBack) && world.random.one_in(4) {
                if self.frames[frame as usize].before_cut {
                    self.cut_has_one_less(None);
                }
                self.table[subpage as usize] = Where::Absent;
                self.release(frame);
                continue;
            }
            if self.room_to_write() == 0 {
                // The one that was put back may have taken it.
                self.replacement.reinstated(LocalFrame(frame), SubpageIndex(subpage));
                continue;
            }
            self.misses
                .begin(SubpageIndex(subpage), FrameIndex(frame), MissKind::Write)
                .expect("a resident subpage is not in the miss table, which is as large as the queue is deep");
            self.table[subpage as usize] = Where::Moving;
            self.frames[frame as usize].life = Life::Leaving;
            self.submit(world, Op::Write, subpage, frame, Purpose::WriteBack);
        }
    }
    fn written_back(&mut self, world: &mut World, subpage: u32, frame: u32, result: Result<(), FlashError>) {
        let result = self.write_ended(world, result);
        if self.frames[frame as usize].before_cut {
            self.frames[frame as usize].before_cut = false;
            self.cut_has_one_less(result.err());
        }
        let waiters = self.misses.get(SubpageIndex(subpage)).expect("a write-back is in the miss table").waiters;
        if result.is_ok() && waiters == 0 {
            world.report.written_back += 1;
            self.misses.complete(SubpageIndex(subpage), |_| ());
            self.table[subpage as usize] = Where::Absent;
            self.release(frame);
            return;
        }
        // Wanted again, or not to be lost: it stays.
        self.install(world, subpage, frame, result.is_err());
    }
    /// What every write's end is followed by.
    pub fn write_ended(&mut self, world: &mut World, result: Result<(), FlashError>) -> Result<(), FlashError> {
        if let Err(error) = result {
            world.allow("a write", error);
            if world.has(Harness::FailedIsDone) {
                return Ok(());
            }
            self.retry_ns = world.disk.now_ns() + RETRY_NS;
            self.operator.write_failed(error);
        }
        self.write_failure = result.err();
        result
    }
    /// Writes a frame where it lies, for a cut. False when there is no room for another request.
    pub fn write_in_place(&mut self, world: &World, frame: u32) -> bool {
        if !self.has_room() || self.writing() >= (self.requests.len() * 7 / 8).max(1) {
            return false;
        }
        let subpage = self.frames[frame as usize].subpage;
        self.frames[frame as usize].in_place = true;
        self.frames[frame as usize].pins += 1;
        self.submit(world, Op::Write, subpage, frame, Purpose::InPlace);
        true
    }
}
