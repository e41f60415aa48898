//! The simulated device: flash with a volatile cache behind queues, on a simulated clock that the
//! pool over it shares. A request ends at a random time, in any order; some fail, some are very
//! late; at a crash any part of what no flush covered is there, whole, torn, or not at all.
//!
//! A flush covers what had completed when it was handed over, and nothing else. Time goes on when
//! somebody waits, and a little with each poll. Everything follows from the seed, and all that was
//! handed over goes into the trace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fulgurite_flash::{
    Backing, Completion, DeviceCounters, Flash, FlashError, FrameContract, Op, OpenError, Queue, QueueFull, QueueUser,
    Request, Switches, Traits, check_range,
};
use fulgurite_format::{SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::{Arena, Clock, Notifier, SimulatedTime};

use super::{Random, Trace};

type Page = [u8; SUBPAGE_BYTES];
/// Bytes that a device writes whole or not at all.
pub const SECTOR: usize = 512;
/// What one poll takes.
const POLL_NS: u64 = 100;
/// Sleeps after one another in which nothing has ended, before the next one lasts until something
/// does.
const SLEEPS_IN_VAIN: u32 = 100;
/// More requests than any run makes: somebody makes them for ever.
const REQUESTS_MAX: u64 = 500_000;

/// Which faults happen while the machine runs: one request in this many, 0 for never.
#[derive(Clone, Copy, Default, Debug)]
pub struct Plan {
    pub reads: u32,
    pub writes: u32,
    /// The errno of writes that fail.
    pub write_error: i32,
    pub flushes: u32,
    /// Requests that take seconds.
    pub late: u32,
}

struct Flying {
    queue: usize,
    request: Request,
    frames: Arc<Arena>,
    /// A device may fetch what it writes at once, or late.
    fetched: Option<Arc<Page>>,
    /// Writes up to this one had completed when a flush was handed over.
    covers: u64,
    fails: Option<FlashError>,
}

struct Inner {
    time: SimulatedTime,
    random: Random,
    plan: Plan,
    durable: Vec<Option<Arc<Page>>>,
    /// What a read finds.
    current: Vec<Option<Arc<Page>>>,
    /// Completed, and not durable.
    cached: Vec<(u64, u32, Arc<Page>)>,
    writes: u64,
    flying: BTreeMap<(u64, u64), Flying>,
    handed: u64,
    /// The power fails before this request is handed over.
    fails_at: Option<u64>,
    dead: bool,
    poisoned: bool,
    /// By queue: what has ended, and how many reads were made to fail.
    ended: Vec<Vec<Completion>>,
    failed_reads: Vec<u64>,
    /// Sleeps since a request has ended.
    slept_in_vain: u32,
    trace: Trace,
}

/// The device.
pub struct Disk(Mutex<Inner>, Clock);

impl Disk {
    pub fn new(pages: u32, seed: u64) -> Arc<Disk> {
        let (clock, time) = Clock::simulated();
        let inner = Inner {
            time,
            random: Random(seed ^ 0xD15C),
            plan: Plan::default(),
            durable: vec![None; pages as usize],
            current: vec![None; pages as usize],
            cached: Vec::new(),
            writes: 0,
            flying: BTreeMap::new(),
            handed: 0,
            fails_at: None,
            dead: false,
            poisoned: false,
            ended: Vec::new(),
            failed_reads: Vec::new(),
            slept_in_vain: 0,
            trace: Trace::default(),
        };
        Arc::new(Disk(Mutex::new(inner), clock))
    }
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub fn now_ns(&self) -> u64 {
        self.1.now_ns()
    }
    /// What the pool over it has the time from.
    pub fn clock(&self) -> Clock {
        self.1.clone()
    }
    pub fn describe(&self) -> String {
        let inner = self.lock();
        let flying: Vec<_> =
            inner.flying.iter().map(|((due, _), f)| (*due, f.queue, f.request.op, f.request.subpage.0)).collect();
        format!(
            "now {}, plan {:?}, flying {flying:?}, dead {}, poisoned {}",
            inner.time.now_ns(),
            inner.plan,
            inner.dead,
            inner.poisoned
        )
    }
    pub fn set_plan(&self, plan: Plan) {
        self.lock().plan = plan;
    }
    /// After `requests` further requests, which are still handed over, nothing answers any more.
    pub fn dies_after(&self, requests: u64) {
        let mut inner = self.lock();
        inner.fails_at = Some(inner.handed + requests);
    }
    pub fn lives_on(&self) {
        self.lock().fails_at = None;
    }
    pub fn die(&self) {
        self.lock().die();
    }
    pub fn is_dead(&self) -> bool {
        self.lock().dead
    }
    /// Goes on to the next end of a request, at the latest to that time.
    pub fn advance(&self, until_ns: u64) {
        self.lock().advance_to_next(until_ns);
    }
    /// A read of that queue has failed: was it made to? Each failure explains one.
    pub fn explains_failed_read(&self, queue: usize) -> bool {
        let failed = &mut self.lock().failed_reads[queue];
        *failed > 0 && {
            *failed -= 1;
            true
        }
    }
    /// The number that the next queue gets.
    pub fn next_queue(&self) -> usize {
        self.lock().ended.len()
    }
    pub fn trace(&self) -> Trace {
        self.lock().trace
    }
    /// The power was off, and is on again.
    pub fn power_cycle(&self) {
        self.lock().power_cycle();
    }
    /// The power was off, and is on again, and nothing has arrived that no flush had covered.
    pub fn lose_cache(&self) {
        let mut inner = self.lock();
        inner.flying.clear();
        inner.cached.clear();
        inner.current = inner.durable.clone();
        inner.restart();
    }
    /// Only the process has died: what it had handed over takes its course, and the cache keeps
    /// what it has.
    pub fn process_died(&self) {
        let mut inner = self.lock();
        inner.drop_flying();
        inner.restart();
    }
}

impl Inner {
    fn die(&mut self) {
        self.dead = true;
        for ((due, _), flying) in std::mem::take(&mut self.flying) {
            // What is under way may arrive nevertheless.
            if flying.request.op == Op::Write && self.random.one_in(2) {
                let page = flying.page();
                self.land(flying.request.subpage.0, page);
            }
            let _ = due;
            self.end(&flying, Err(FlashError::Closed));
        }
    }
    fn drop_flying(&mut self) {
        for (_, flying) in std::mem::take(&mut self.flying) {
            if flying.request.op == Op::Write && self.random.one_in(2) {
                let page = flying.page();
                self.land(flying.request.subpage.0, page);
            }
        }
    }
    fn restart(&mut self) {
        self.ended.iter_mut().for_each(Vec::clear);
        (self.dead, self.poisoned, self.fails_at) = (false, false, None);
    }
    fn power_cycle(&mut self) {
        self.drop_flying();
        let fate_of_all = self.random.below(6);
        for (_, place, page) in std::mem::take(&mut self.cached) {
            let fate = if fate_of_all < 2 { fate_of_all } else { self.random.below(4) };
            let slot = &mut self.durable[place as usize];
            match fate {
                0 => {}
                3 => *slot = Some(torn(slot.as_deref(), &page, &mut self.random)),
                _ => *slot = Some(page),
            }
        }
        self.current.clone_from(&self.durable);
        self.restart();
    }
    fn land(&mut self, place: u32, page: Arc<Page>) {
        self.writes += 1;
        self.current[place as usize] = Some(page.clone());
        self.cached.push((self.writes, place, page));
    }
    fn end(&mut self, flying: &Flying, result: Result<(), FlashError>) {
        self.ended[flying.queue].push(Completion { tag: flying.request.tag, result, checksum: 0 });
    }

    fn hand_over(&mut self, queue: usize, request: Request, frames: &Arc<Arena>) {
        if self.fails_at == Some(self.handed) {
            self.die();
        }
        self.handed += 1;
        assert!(self.handed < REQUESTS_MAX, "somebody makes requests for ever");
        let (op, place) = (request.op, request.subpage.0);
        let mut flying =
            Flying { queue, request, frames: frames.clone(), fetched: None, covers: self.writes, fails: None };
        if self.dead {
            return self.end(&flying, Err(FlashError::Closed));
        }
        if op != Op::Flush && place as usize >= self.current.len() {
            return self.end(&flying, Err(FlashError::OutOfRange));
        }
        let Plan { reads, writes, write_error, flushes, late } = self.plan;
        let mut hit = |one_in: u32| one_in > 0 && self.random.one_in(one_in);
        flying.fails = match op {
            Op::Read if hit(reads) => Some(FlashError::Io(5)),
            Op::Write if hit(writes) => Some(FlashError::Io(write_error)),
            Op::Flush if hit(flushes) => Some(FlashError::Io(5)),
            _ => None,
        };
        let is_late = hit(late);
        if op != Op::Read && self.poisoned {
            flying.fails = Some(FlashError::Poisoned);
        }
        if op == Op::Write && self.random.one_in(2) {
            flying.fetched = Some(flying.page());
        }
        let (least, spread) = match op {
            Op::Read => (20_000, 130_000),
            Op::Write => (15_000, 300_000),
            Op::Flush => (50_000, 900_000),
        };
        let mut takes = least + self.random.below(spread);
        if self.random.one_in(16) {
            takes *= 10;
        }
        if is_late {
            takes += (1 + self.random.below(40)) * 1_000_000_000;
        }
        let due = self.time.now_ns() + takes;
        for word in [self.time.now_ns(), due, queue as u64, op as u64, place.into(), u64::from(flying.fails.is_some())]
        {
            self.trace.note(word);
        }
        self.flying.insert((due, self.handed), flying);
    }
    fn advance_to_next(&mut self, until_ns: u64) {
        let first = self.flying.keys().next().map(|(due, _)| *due);
        match first.filter(|due| *due <= until_ns) {
            Some(due) => self.advance_to(due),
            // Never to the end of time.
            None if until_ns == u64::MAX => self.advance_to(self.time.now_ns() + 1_000_000),
            None => {
                self.slept_in_vain += 1;
                self.advance_to(until_ns);
            }
        }
    }
    fn advance_to(&mut self, until_ns: u64) {
        while let Some(first) = self.flying.first_entry().filter(|first| first.key().0 <= until_ns) {
            let ((due, _), flying) = first.remove_entry();
            self.slept_in_vain = 0;
            self.time.advance_to(due);
            self.serve(&flying);
        }
        self.time.advance_to(until_ns);
    }
    fn serve(&mut self, flying: &Flying) {
        let place = flying.request.subpage.0;
        let at = flying.request.frame.index() * SUBPAGE_BYTES;
        match (flying.request.op, flying.fails) {
            (Op::Read, None) => match &self.current[place as usize] {
                Some(page) => flying.frames.write(at, &page[..]),
                None => flying.frames.zero(at, SUBPAGE_BYTES),
            },
            (Op::Read, Some(_)) => {
                self.failed_reads[flying.queue] += 1;
                // Something, and something else.
                let other = self.random.below(self.current.len() as u32) as usize;
                if let Some(page) = &self.current[other] {
                    flying.frames.write(at, &page[..SECTOR * 3]);
                }
            }
            (Op::Write, None) => self.land(place, flying.page()),
            (Op::Write, Some(_)) => match self.random.below(3) {
                0 => {}
                1 => self.land(place, flying.page()),
                _ => {
                    let torn = torn(self.current[place as usize].as_deref(), &flying.page(), &mut self.random);
                    self.land(place, torn);
                }
            },
            (Op::Flush, None) => {
                let covered = self.cached.partition_point(|(write, ..)| *write <= flying.covers);
                for (_, place, page) in self.cached.drain(..covered) {
                    self.durable[place as usize] = Some(page);
                }
            }
            (Op::Flush, Some(_)) => self.poisoned = true,
        }
        self.end(flying, flying.fails.map_or(Ok(()), Err));
    }
}

impl Flying {
    fn page(&self) -> Arc<Page> {
        self.fetched.clone().unwrap_or_else(|| {
            let mut page = [0; SUBPAGE_BYTES];
            self.frames.read(self.request.frame.index() * SUBPAGE_BYTES, &mut page);
            Arc::new(page)
        })
    }
}

/// Some sectors are new, the others as before.
fn torn(old: Option<&Page>, new: &Page, random: &mut Random) -> Arc<Page> {
    let mut page = *old.unwrap_or(&[0; SUBPAGE_BYTES]);
    let mask = 1 + random.below(254);
    for (i, sector) in new.chunks(SECTOR).enumerate().filter(|(i, _)| mask >> i & 1 == 1) {
        page[i * SECTOR..(i + 1) * SECTOR].copy_from_slice(sector);
    }
    Arc::new(page)
}

/// The device as a medium.
pub struct DiskFlash(pub Arc<Disk>);

// SAFETY: the device moves data on the thread that waits or polls, and only for requests that were
// handed over and have not ended. Those that a queue still has when it is dropped end there, and no
// other ones name its frames.
unsafe impl FrameContract for DiskFlash {}

impl Flash for DiskFlash {
    fn subpages(&self) -> u32 {
        self.0.lock().current.len() as u32
    }
    fn describe(&self) -> String {
        "a simulated device".to_owned()
    }
    fn traits(&self) -> Traits {
        Traits::PLAIN
    }
    fn staging_bytes(&self, _: u32) -> usize {
        0
    }
    fn open_queue_for(
        &self,
        _: QueueUser,
        frames: Arc<Arena>,
        depth: usize,
        _: Arc<Notifier>,
    ) -> Result<Box<dyn Queue>, OpenError> {
        let mut inner = self.0.lock();
        let number = inner.ended.len();
        inner.ended.push(Vec::new());
        inner.failed_reads.push(0);
        Ok(Box::new(SimulatedQueue { disk: self.0.clone(), number, frames, depth, batch: Vec::new(), in_flight: 0 }))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages())
    }
    fn backing(&self) -> Option<&dyn Backing> {
        None
    }
    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

struct SimulatedQueue {
    disk: Arc<Disk>,
    number: usize,
    frames: Arc<Arena>,
    depth: usize,
    batch: Vec<Request>,
    in_flight: usize,
}

impl Queue for SimulatedQueue {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        if self.in_flight == self.depth {
            return Err(QueueFull);
        }
        self.in_flight += 1;
        self.batch.push(request);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        let mut inner = self.disk.lock();
        self.batch.drain(..).for_each(|request| inner.hand_over(self.number, request, &self.frames));
        Ok(())
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let mut inner = self.disk.lock();
        let now = inner.time.now_ns() + POLL_NS;
        inner.advance_to(now);
        let ended = &mut inner.ended[self.number];
        let count = ended.len();
        completions.append(ended);
        self.in_flight -= count;
        count
    }
    fn will_poll(&self) {}
    fn switch(&mut self, _: Switches) -> Switches {
        Switches::default()
    }
    fn use_frames(&mut self, _: std::ops::Range<u32>) {}
    fn wait(&mut self, timeout: Option<Duration>) {
        let _ = self.flush();
        let mut inner = self.disk.lock();
        if !inner.ended[self.number].is_empty() {
            return;
        }
        assert!(timeout.is_some() || !inner.flying.is_empty(), "somebody sleeps for ever");
        // A sleeper of many short sleeps is sometimes not woken in time.
        let oversleeps = inner.slept_in_vain >= SLEEPS_IN_VAIN;
        let until = timeout.filter(|_| !oversleeps).map_or(u64::MAX, |t| inner.time.now_ns() + t.as_nanos() as u64);
        inner.advance_to_next(until);
    }
    fn in_flight(&self) -> usize {
        self.in_flight
    }
    fn depth(&self) -> usize {
        self.depth
    }
    fn bytes(&self) -> usize {
        0
    }
}

impl Drop for SimulatedQueue {
    fn drop(&mut self) {
        let mut inner = self.disk.lock();
        while inner.flying.values().any(|flying| flying.queue == self.number) {
            inner.advance_to_next(u64::MAX);
        }
    }
}
