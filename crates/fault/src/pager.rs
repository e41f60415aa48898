//! The pager: the third driver of the cache. Its waiters are accesses that found their page
//! missing.
//!
//! Each round of the handler thread serves faults, commands, completions, eviction ahead of demand,
//! and the budget. Then it sleeps until there is a fault, a command or a completion. Threads that
//! resolve their own faults take it in between (`entry`).
//!
//! It stops while a thread forks (`fork`).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite_cache::residency::{State, decode};
use fulgurite_cache::{Cache, FrameSources, Miss, Outcome, Step};
use fulgurite_flash::{Flash, FlashError, ForkedFlash, Queue};
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SUBPAGE_SHIFT, SubpageIndex, format_bytes};
use fulgurite_policy::Waiter;
use fulgurite_sys::faults::{Fault, FaultOutcome, Waiter as Switched};
use fulgurite_sys::userfault::Waiting as Touched;
use fulgurite_sys::{Clock, Gate, Region, workers};

use crate::Access;
use crate::backend::FaultBackend;
use crate::budget::Budget;
use crate::command::{Command, Commands, Reply, lock};
use crate::mapped::{Mapped, Mapping, SPARE_MOST};
use crate::notices::Notices;
use crate::own_reads::OwnReads;
use crate::published::Publisher;
use crate::space::Space;
use crate::statistics::{Statistics, WaitOf};

/// Faults that are under way at one time. Later ones stay in the kernel.
pub const WAITS: usize = 1024;
/// How often the budget is checked, and requests that are late.
pub const CHECK_NS: u64 = 20_000_000;
/// How often it is checked near the cap, and while there was something to do lately, because the
/// program's other memory grows without notice. Loading a library of Python took 5 MiB in 80 ms.
const NEAR_CHECK_NS: u64 = 4_000_000;
/// How long after that.
const LATELY_NS: u64 = 1_000_000_000;
/// The longest sleep.
const SLEEP: Duration = Duration::from_millis(100);
/// The sleep while something is to be tried again.
const SHORT_SLEEP: Duration = Duration::from_micros(200);

/// The shortest time between two checks of the budget because frames are short.
const SHORT_CHECK_NS: u64 = 1_000_000;

/// Words of the gate of a wait: under way or unused, and the ends.
pub const IDLE: u32 = 0;
pub const DONE: u32 = 1;
pub const FAILED: u32 = 2;

/// What the end of a wait says of its access.
pub fn outcome_of(word: u32) -> FaultOutcome {
    if word == DONE { FaultOutcome::Again } else { FaultOutcome::Failed }
}

/// What became of a fault or a hold that a thread began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultStart {
    Ended(FaultOutcome),
    /// The thread sleeps on the gate of this wait, or its fiber is notified of its end.
    Waits(u32),
    /// All waits are taken.
    Full,
}

/// Where a wait came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Waiting {
    /// The kernel, which finds out when the page comes.
    #[default]
    Kernel,
    /// A thread that has not gone to sleep yet.
    Caller,
    /// A thread that sleeps, or is about to.
    Thread,
    /// A fiber, whose waiter is notified.
    Fiber,
}

/// A fault that is under way.
#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    subpage: u32,
    since_ns: u64,
    turn: bool,
    waiting: Waiting,
    /// The page is to be pinned for the thread.
    holds: bool,
    /// It is an access that writes.
    writes: bool,
}

/// Figures that are reported from time to time.
#[derive(Debug)]
pub struct Figures {
    json: bool,
    every_ns: u64,
    begun_ns: Option<u64>,
    next_ns: u64,
}

impl Figures {
    pub fn new(json: bool, every_ms: u64) -> Figures {
        Figures { json, every_ns: every_ms.saturating_mul(1_000_000), begun_ns: None, next_ns: 0 }
    }
    /// As before, in a child: of its own time.
    pub fn again(&self) -> Figures {
        Figures { begun_ns: None, next_ns: 0, ..*self }
    }
    /// How long it is since the begin, if figures are to be reported now.
    fn due(&mut self, now: u64) -> Option<Duration> {
        if self.every_ns == 0 {
            return None;
        }
        let begun = *self.begun_ns.get_or_insert(now);
        self.next_ns = self.next_ns.max(begun.saturating_add(self.every_ns));
        (now >= self.next_ns).then(|| {
            self.next_ns = now.saturating_add(self.every_ns);
            Duration::from_nanos(now - begun)
        })
    }
}

/// What was said already.
#[derive(Debug, Default)]
struct WarnedOnce {
    out_of_frames: bool,
    outgrown: bool,
    unlocked: bool,
}

/// What a pager works with. A child has parts of its own.
pub struct Parts {
    /// The medium of the cache.
    pub flash: Arc<ForkedFlash>,
    pub backend: Arc<FaultBackend>,
    pub space: Arc<Mutex<Space>>,
    pub region: Arc<Region>,
    pub commands: Arc<Commands>,
    pub statistics: Arc<Statistics>,
    pub budget: Budget,
    pub notices: Arc<Notices>,
    pub figures: Figures,
    /// Reads that threads do themselves, also of the cache's queue.
    pub own: Arc<OwnReads>,
}

/// See the module.
pub struct Pager {
    pub cache: Cache<Mapped>,
    pub parts: Parts,
    pub clock: Clock,
    /// What other processes may read.
    publisher: Publisher,
    warned: WarnedOnce,
    waits: Box<[Wait]>,
    free: VecDeque<u32>,
    gates: Arc<[Gate]>,
    /// What is notified of the ends of fibers' waits.
    switched: Box<[Option<Arc<dyn Switched>>]>,
    /// Accesses that were read from the kernel.
    faults: Vec<Touched>,
    ended: Vec<(Waiter, Outcome)>,
    /// Faults to check again: the kernel holds their pages for a moment.
    again: Vec<u32>,
    /// Pins of subpages that were dropped, whose holders have not let go yet.
    outlived: BTreeMap<u32, u32>,
    /// Commands that something under way holds up.
    held_up: Vec<(Command, Arc<Reply>)>,
    next_check_ns: u64,
    next_short_check_ns: u64,
    /// At the last check the program's other memory could hardly grow without frames being given
    /// back.
    is_near: bool,
    last_busy_ns: u64,
    /// The first thread of the program has ended, and its others may soon.
    pub is_near_end: bool,
    /// A fork is near: nothing new is begun.
    pub winds_down: bool,
    /// All is ready for a fork. Inside: the seat of the child, if it can have one.
    pub ready: Option<Option<u32>>,
}

impl Pager {
    pub fn new(cache: Cache<Mapped>, parts: Parts) -> Pager {
        Pager {
            cache,
            parts,
            clock: Clock::get(),
            publisher: Publisher::new(),
            warned: WarnedOnce::default(),
            waits: vec![Wait::default(); WAITS].into(),
            free: (0..WAITS as u32).collect(),
            gates: (0..WAITS).map(|_| Gate::new()).collect(),
            switched: (0..WAITS).map(|_| None).collect(),
            faults: Vec::with_capacity(64),
            ended: Vec::with_capacity(WAITS),
            again: Vec::with_capacity(WAITS),
            outlived: BTreeMap::new(),
            held_up: Vec::new(),
            next_check_ns: 0,
            next_short_check_ns: 0,
            is_near: false,
            last_busy_ns: 0,
            is_near_end: false,
            winds_down: false,
            ready: None,
        }
    }

    /// The pager of a child: it has the pages and frames of its parent's, and nothing else.
    ///
    /// # Panics
    /// When a request is in flight.
    pub fn renew(self, parts: Parts, queue: Box<dyn Queue>) -> Pager {
        let Pager { mut cache, warned, .. } = self;
        // Its ring, or its threads, are the parent's.
        std::mem::forget(cache.replace_queue(queue));
        cache.reset_counts();
        // Other threads of the parent would let them go, which the child does not have.
        cache.forget_pins();
        cache.users().renew(parts.backend.clone());
        Pager { warned, ..Pager::new(cache, parts) }
    }

    /// Whether nothing is under way, and what is to leave DRAM has left it. Pinned pages stay: a
    /// thread may hold them for as long as its system call takes.
    pub fn is_quiet(&self) -> bool {
        let is_idle = self.free.len() == WAITS && self.again.is_empty() && self.held_up.is_empty();
        is_idle && self.cache.in_flight() == 0 && !self.cache.has_notices() && !self.cache.could_shrink()
    }
    /// The frame of a subpage whose page the program has.
    fn mapped(&mut self, subpage: u32) -> Option<FrameIndex> {
        self.frame_of(subpage).filter(|frame| self.cache.users().has_mapped(*frame))
    }
    /// Lets the program write to a page that it has. False when it has not, or cannot write yet.
    pub fn let_write(&mut self, subpage: u32) -> bool {
        self.mapped(subpage).is_some_and(|frame| self.cache.users().let_write(frame, subpage) == Mapping::Done)
    }
    /// Checks the budget in the next round.
    pub fn check_budget_soon(&mut self) {
        self.next_check_ns = 0;
    }

    /// One round. Returns whether there was anything to do.
    pub fn turn(&mut self) -> bool {
        let now = self.clock.now_ns();
        let mut busy = !self.winds_down && self.read_faults(now);
        busy |= !self.winds_down && self.read_commands();
        let clock = &self.clock;
        busy |= self.cache.in_flight() > 0 && self.cache.poll(|_| (), || clock.now_ns()) > 0;
        busy |= self.deliver();
        for slot in std::mem::take(&mut self.again) {
            self.resolve(slot);
        }
        for (command, reply) in std::mem::take(&mut self.held_up) {
            self.obey(command, reply);
        }
        self.make_room(now);
        if busy {
            self.last_busy_ns = now;
        }
        if self.is_check_due(now, busy) {
            self.check_budget(now);
        }
        self.cache.hand_over();
        self.publish();
        busy
    }

    fn make_room(&mut self, now: u64) {
        if self.cache.wants_room() {
            self.cache.make_room(FrameSources::Wait, now);
            self.deliver();
        }
    }

    /// Whether the budget is to be checked: from time to time, and when frames are short.
    fn is_check_due(&self, now: u64, busy: bool) -> bool {
        let is_short = self.cache.frames_free() == 0 && self.cache.frame_limit() < self.cache.shared().frames_max();
        now >= self.next_check_ns || is_short && busy && now >= self.next_short_check_ns
    }

    /// The gates of waits.
    pub fn gates(&self) -> &Arc<[Gate]> {
        &self.gates
    }
    /// What a thread does that has begun something, before it gives the pager back. Returns whether
    /// the handler thread has something to do. It also hands over what was begun.
    pub fn tend(&mut self) -> bool {
        self.deliver();
        let now = self.clock.now_ns();
        self.last_busy_ns = now;
        self.make_room(now);
        self.parts.own.has_left() || self.has_to_be_polled() || self.is_check_due(now, true)
    }
    /// Does a turn for a thread that has done a read, which it takes up.
    pub fn take_up(&mut self) -> bool {
        let (clock, cache) = (&self.clock, &mut self.cache);
        self.parts.own.take_up(|| cache.poll(|_| (), || clock.now_ns()));
        self.tend()
    }
    /// Something is to be tried again soon, which the handler thread does.
    fn has_to_be_polled(&self) -> bool {
        !self.again.is_empty() || !self.held_up.is_empty()
    }

    pub fn sleep(&mut self) {
        let time = self.sleep_time();
        if self.parts.backend.is_in_line() {
            // Not in the queue: it would take what is notified whenever another thread polls it.
            self.parts.commands.sleep(time.min(SHORT_SLEEP));
            return;
        }
        self.cache.sleep(Some(time));
        // What was notified is served in the next round.
        self.parts.commands.awake();
    }

    /// How long the handler thread may sleep.
    pub fn sleep_time(&self) -> Duration {
        let soon = self.has_to_be_polled();
        let looks = self.cache.in_flight() > 0 || self.cache.is_shrinking() || self.cache.frame_waiters() > 0;
        if soon {
            SHORT_SLEEP
        } else if looks || self.is_near || self.is_near_end {
            Duration::from_nanos(self.check_interval_ns(self.clock.now_ns()))
        } else {
            SLEEP
        }
    }
    /// How long it is from one check of the budget to the next.
    fn check_interval_ns(&self, now: u64) -> u64 {
        let was_busy = now.saturating_sub(self.last_busy_ns) < LATELY_NS;
        if self.is_near && was_busy { NEAR_CHECK_NS } else { CHECK_NS }
    }

    // ---- faults ----

    fn read_faults(&mut self, now: u64) -> bool {
        if self.free.len() < 64 {
            return false;
        }
        let mut faults = std::mem::take(&mut self.faults);
        let count = self.parts.backend.read(&mut faults);
        for Touched { address, is_write: writes, is_protected, thread } in faults.drain(..) {
            let Some(offset) = self.parts.region.offset_of(address) else { continue };
            let subpage = (offset >> SUBPAGE_SHIFT) as u32;
            if is_protected && self.let_write(subpage) {
                continue;
            }
            let slot = self.take_wait().expect("there is room for what is read at a time");
            self.waits[slot as usize] = Wait { subpage, since_ns: now, writes, ..Wait::default() };
            self.parts.statistics.count_fault(if workers::is_marked(thread) { WaitOf::Worker } else { WaitOf::Thread });
            self.resolve(slot);
        }
        self.faults = faults;
        count > 0
    }

    /// A wait that nothing uses. One that has ended is in use until its thread has seen it.
    fn take_wait(&mut self) -> Option<u32> {
        for _ in 0..self.free.len() {
            let slot = self.free.pop_front()?;
            if self.gates[slot as usize].get() == IDLE {
                return Some(slot);
            }
            self.free.push_back(slot);
        }
        None
    }

    /// What the program may do with a page; none where nothing is mapped.
    fn access_of(&self, subpage: u32) -> Option<Access> {
        lock(&self.parts.space).access_of(subpage as usize)
    }

    /// Begins to resolve a fault of the calling thread. With `switches` its fiber waits for it, and
    /// the thread does not.
    pub fn begin_fault(&mut self, subpage: u32, fault: &Fault, switches: bool) -> FaultStart {
        let may = match self.access_of(subpage) {
            None | Some(Access::None) => false,
            Some(Access::Read) => !fault.is_write,
            Some(Access::ReadWrite) => true,
        };
        if !may {
            return FaultStart::Ended(FaultOutcome::NotMine);
        }
        // The first write to it, or it may have come since.
        if self.mapped(subpage).is_some() {
            if fault.is_write {
                self.let_write(subpage);
            }
            return FaultStart::Ended(FaultOutcome::Again);
        }
        // What may be done there may have changed.
        if !fault.is_missing && !self.parts.backend.takes_mappings() {
            return FaultStart::Ended(FaultOutcome::Again);
        }
        let begun = self.begin_wait(subpage, false, fault.is_write);
        self.parts.statistics.count_fault(match begun {
            FaultStart::Waits(_) if switches => WaitOf::Fiber,
            _ if workers::is_here() => WaitOf::Worker,
            _ => WaitOf::Thread,
        });
        begun
    }

    /// The wait that was just begun is a fiber's, which is notified of its end.
    pub fn switch(&mut self, slot: u32, waiter: Arc<dyn Switched>) {
        self.waits[slot as usize].waiting = Waiting::Fiber;
        self.switched[slot as usize] = Some(waiter);
    }

    /// Begins to make a page resident for the calling thread, and to pin it.
    pub fn begin_hold(&mut self, subpage: u32) -> FaultStart {
        match self.access_of(subpage) {
            // The kernel refuses it by itself.
            None | Some(Access::None) => FaultStart::Ended(FaultOutcome::NotMine),
            // The kernel may write to it, which is no fault that could be resolved.
            Some(_) => self.begin_wait(subpage, true, true),
        }
    }

    fn begin_wait(&mut self, subpage: u32, holds: bool, writes: bool) -> FaultStart {
        let Some(slot) = self.take_wait() else { return FaultStart::Full };
        let (since_ns, waiting) = (self.clock.now_ns(), Waiting::Caller);
        self.waits[slot as usize] = Wait { subpage, since_ns, turn: false, waiting, holds, writes };
        self.resolve(slot);
        self.deliver();
        match self.gates[slot as usize].get() {
            IDLE => {
                self.waits[slot as usize].waiting = Waiting::Thread;
                FaultStart::Waits(slot)
            }
            ended => {
                self.gates[slot as usize].set_quietly(IDLE);
                FaultStart::Ended(outcome_of(ended))
            }
        }
    }

    /// Ends a wait.
    fn end(&mut self, slot: u32, word: u32) {
        let Wait { subpage, waiting, holds, .. } = self.waits[slot as usize];
        if holds
            && word == DONE
            && let Some(frame) = self.frame_of(subpage)
        {
            self.cache.shared().pin(frame);
        }
        match waiting {
            Waiting::Kernel => {}
            Waiting::Caller => self.gates[slot as usize].set_quietly(word),
            Waiting::Thread => self.gates[slot as usize].set(word),
            Waiting::Fiber => {
                let waiter = self.switched[slot as usize].take().expect("a fiber waits");
                waiter.end(outcome_of(word));
            }
        }
        self.free.push_back(slot);
    }

    /// Ends a hold of a subpage.
    pub fn let_go(&mut self, subpage: u32) {
        // Of several holders, the last one unpins what is there now.
        if let Some(left) = self.outlived.get_mut(&subpage) {
            *left -= 1;
            if *left == 0 {
                self.outlived.remove(&subpage);
            }
            return;
        }
        if let Some(frame) = self.frame_of(subpage) {
            self.cache.shared().unpin(frame);
        }
    }

    /// The frame of a resident subpage.
    pub fn frame_of(&self, subpage: u32) -> Option<FrameIndex> {
        match decode(self.cache.shared().table.word(subpage).load(Ordering::Acquire)) {
            State::Resident(frame) => Some(frame),
            _ => None,
        }
    }

    /// Continues with a fault as far as possible now.
    fn resolve(&mut self, slot: u32) {
        loop {
            let Wait { subpage, turn, .. } = self.waits[slot as usize];
            let word = self.cache.shared().table.word(subpage).load(Ordering::Acquire);
            if let State::Resident(frame) = decode(word) {
                self.map(slot, frame);
                return;
            }
            self.waits[slot as usize].turn = false;
            let miss = Miss { subpage, waiter: Waiter(slot.into()), wanted: 0, turn };
            match self.cache.begin_miss(miss, self.clock.now_ns()) {
                Step::Again => {}
                Step::Wait | Step::WaitForFrame => return,
                Step::Elsewhere(_) => unreachable!("there is one cache"),
            }
        }
    }

    fn map(&mut self, slot: u32, frame: FrameIndex) {
        let shared = self.cache.shared().clone();
        let Wait { subpage, since_ns, writes, .. } = self.waits[slot as usize];
        let mapping = match self.access_of(subpage) {
            // Unmapped meanwhile: the access fails by itself.
            None | Some(Access::None) => {
                self.parts.backend.wake(&self.parts.region, (subpage as usize) << SUBPAGE_SHIFT);
                Mapping::Done
            }
            Some(access) => self.cache.users().map(&shared.frames, frame, subpage, access, writes),
        };
        match mapping {
            Mapping::Done => {
                let waited = self.clock.now_ns().saturating_sub(since_ns);
                self.parts.statistics.waited_ns.fetch_add(waited, Ordering::Relaxed);
                self.end(slot, DONE);
            }
            Mapping::Later => self.again.push(slot),
            Mapping::Refused(errno) => self.give_up(errno),
        }
    }

    /// Ends the process: a filter of system calls, which nobody saw being set, denies what handles
    /// faults. Each thread that waits for a page would wait for good.
    fn give_up(&self, errno: i32) -> ! {
        let error = std::io::Error::from_raw_os_error(errno);
        self.parts.notices.report(&format!(
            "a filter of system calls (seccomp) denies what handles faults ({error}): the process ends; set it before the \
             program starts, or by the functions of the C library"
        ));
        std::process::abort()
    }

    /// Tells faults what became of their waits. Returns whether there were any.
    fn deliver(&mut self) -> bool {
        let mut any = false;
        while self.cache.has_notices() {
            any = true;
            let mut ended = std::mem::take(&mut self.ended);
            self.cache.take_notices(&mut ended);
            for (Waiter(slot), outcome) in ended.drain(..) {
                self.end_wait(slot as u32, outcome);
            }
            self.ended = ended;
        }
        any
    }

    fn end_wait(&mut self, slot: u32, outcome: Outcome) {
        let subpage = self.waits[slot as usize].subpage;
        match outcome {
            Outcome::Again => self.resolve(slot),
            Outcome::Turn => {
                self.waits[slot as usize].turn = true;
                self.resolve(slot);
            }
            Outcome::Pinned => {
                let State::Resident(frame) = decode(self.cache.shared().table.word(subpage).load(Ordering::Acquire))
                else {
                    unreachable!("a pinned subpage is resident")
                };
                self.map(slot, frame);
                self.cache.shared().unpin(frame);
            }
            Outcome::Fetched(_) => unreachable!("the page buffer fetches no objects"),
            Outcome::Failed(error) => self.fail(slot, error),
            Outcome::OutOfFrames => {
                if !std::mem::replace(&mut self.warned.out_of_frames, true) {
                    let frames = self.cache.frame_limit();
                    self.parts.notices.report(&format!(
                        "no page of {frames} can leave DRAM, as threads wait in system calls that use them; choose more \
                         (--dram)"
                    ));
                }
                self.again.push(slot);
            }
        }
    }

    /// Ends an access by a `SIGBUS`: its contents cannot be had.
    fn fail(&mut self, slot: u32, error: FlashError) {
        let subpage = self.waits[slot as usize].subpage;
        let address = self.parts.region.base() + ((subpage as usize) << SUBPAGE_SHIFT);
        self.parts.notices.report(&format!("the flash failed ({error}): SIGBUS for accesses to {address:#x}..+4096"));
        self.cache.users().poison(subpage);
        self.end(slot, FAILED);
    }

    // ---- commands ----

    fn read_commands(&mut self) -> bool {
        let mut any = false;
        while let Some((command, reply)) = self.parts.commands.next() {
            any = true;
            self.obey(command, reply);
        }
        any
    }

    fn obey(&mut self, command: Command, reply: Arc<Reply>) {
        let result = match &command {
            Command::Drop(range) => {
                // Waits that have ended have pins of their own until their threads are notified.
                self.deliver();
                self.outlive(range);
                self.cache.users().unmap(range).map(|()| {
                    let is_dropped = self.cache.drop_contents(range).count == 0;
                    if is_dropped {
                        let trimmed = self.parts.flash.trim(SubpageIndex(range.start), range.len() as u32);
                        trimmed.expect("the range was checked by its caller");
                    }
                    is_dropped
                })
            }
            Command::Protect(range, access) => {
                let resident = self.resident(range);
                let shared = self.cache.shared().clone();
                let (first, pages) = (range.start as usize, range.len());
                // First: what comes from now on is for what may be done then.
                lock(&self.parts.space).set_access(first, pages, *access);
                if self.cache.users().take_back_all(&shared.frames, resident.into_iter()) {
                    let allowed = self.parts.backend.allow(
                        &self.parts.region,
                        first << SUBPAGE_SHIFT,
                        pages << SUBPAGE_SHIFT,
                        *access,
                    );
                    allowed.map(|()| true)
                } else {
                    Ok(false)
                }
            }
        };
        match result {
            Ok(true) => reply.give(Ok(())),
            Ok(false) => self.held_up.push((command, reply)),
            Err(error) => reply.give(Err(error.raw_os_error().unwrap_or(0))),
        }
    }

    /// Takes the pins of a range away: a system call that holds a page finds it gone, as it would
    /// without flash, and nothing says how long it takes.
    fn outlive(&mut self, range: &Range<u32>) {
        if !self.parts.backend.is_in_line() {
            return;
        }
        for subpage in range.clone() {
            let Some(frame) = self.frame_of(subpage) else { continue };
            let pins = self.cache.shared().frames.pins(frame).swap(0, Ordering::Relaxed);
            if pins > 0 {
                *self.outlived.entry(subpage).or_default() += u32::from(pins);
            }
        }
    }

    /// The frames of the resident subpages of a range.
    fn resident(&self, range: &Range<u32>) -> Vec<FrameIndex> {
        let table = &self.cache.shared().table;
        let frame = |subpage| match decode(table.word(subpage).load(Ordering::Acquire)) {
            State::Resident(frame) => Some(frame),
            _ => None,
        };
        range.clone().filter_map(frame).collect()
    }

    // ---- the budget ----

    fn check_budget(&mut self, now: u64) {
        (self.next_check_ns, self.next_short_check_ns) = (now + self.check_interval_ns(now), now + SHORT_CHECK_NS);
        self.cache.give_up_late_requests(FrameSources::Wait, now);
        self.deliver();
        if let Some(since) = self.parts.figures.due(now) {
            let before = format!("{:.1} s, process {}: ", since.as_secs_f64(), std::process::id());
            self.parts.notices.report_figures(&self.parts.statistics.summary(), self.parts.figures.json, &before);
        }
        self.parts.flash.clear_up(now);
        self.parts.budget.set_cap(self.parts.flash.dram_bytes());
        let (limit, most) = (self.cache.frame_limit(), self.cache.shared().frames_max());
        if self.cache.could_shrink() {
            return;
        }
        if self.cache.is_shrinking() {
            self.cache.discard_beyond();
        }
        self.cache.users().shrunk(limit);
        let with_pages = self.cache.users().pages();
        // With a check that fails, as many as there are.
        let Ok(used) = self.parts.budget.used() else { return };
        self.is_near = self.parts.budget.is_near(used);
        // Frames may have pages for a moment that are not counted yet.
        let soon = used + (SPARE_MOST * SUBPAGE_BYTES) as u64;
        let frames = self.parts.budget.frames(soon, with_pages, limit, most);
        self.warn(used, with_pages);
        self.parts.statistics.peak_bytes.store(self.parts.budget.peak(), Ordering::Relaxed);
        // Nor for less than the precision of the measure, because a change visits every frame.
        if frames > limit || frames + 32 < limit {
            self.cache.set_frames(frames);
        }
    }

    /// Says once what the person should know.
    fn warn(&mut self, used: u64, with_pages: u32) {
        // A part of the cap may be passed while all processes together are within it.
        let is_whole =
            self.parts.budget.cap() == self.parts.statistics.summary().cap_bytes && self.parts.flash.seat() == 0;
        if let Some(others) = self.parts.budget.outgrown(used, with_pages).filter(|_| is_whole)
            && !std::mem::replace(&mut self.warned.outgrown, true)
        {
            self.parts.notices.report(&format!(
                "the cap of {} is passed: memory that is not of flash takes {} alone; choose more (--dram), or let \
                 smaller mappings go to flash (--threshold)",
                format_bytes(self.parts.budget.cap()),
                format_bytes(others)
            ));
        }
        if self.parts.backend.has_unlocked() && !std::mem::replace(&mut self.warned.unlocked, true) {
            self.parts
                .notices
                .report("the program locked memory of flash, and its locks are ended: such pages have to move");
        }
    }

    fn publish(&self) {
        let (counts, to) = (self.cache.counts(), &self.parts.statistics);
        for (counter, count) in [
            (&to.reads, counts.misses),
            (&to.fresh, counts.fresh),
            (&to.evicted_clean, counts.evicted_clean),
            (&to.evicted_dirty, counts.evicted_dirty),
            (&to.prefetched, counts.prefetched),
            (&to.errors, counts.read_errors + counts.write_errors),
            (&to.frames, self.cache.frame_limit().into()),
        ] {
            counter.store(count, Ordering::Relaxed);
        }
        self.publisher.publish(&to.summary());
    }
}
