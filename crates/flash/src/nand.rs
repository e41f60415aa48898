//! NAND in real time: the times, the order and the failures of the model, over a medium that holds
//! the data.
//!
//! ```text
//!   queue 0   queue 1   ..                what moves data: the medium within, at once
//!      |         |                          |
//!      +----+----+------> requests ---------+
//!           |
//!      [ Fil + NAND model ]   simulated nanoseconds = nanoseconds of the clock since this was made
//!           |
//!   a request ends when its data was moved and, for the model, its time has come
//! ```
//!
//! Invariants: no completion is returned before the model's time for it (the counters say how much
//! later). A request ends once. What the model failed is not returned as read, though the medium
//! within has its data. All queues share the model under a lock, for which queues of one thread
//! never wait.
//!
//! It has the constraints of NAND: a writer keeps the order that [`fulgurite_nand::Fil`] states, as
//! the journaled store does. Another order is not refused. Its programs, erases and log are the
//! model's, while the data is what was written last.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite_format::SubpageIndex;
use fulgurite_nand::{
    Fil, FilConfig, FilCounters, FilError, FlashDone, FlashOp, FlashRequest, FlashStatus, NandCounters, Profile,
};
use fulgurite_sys::{Arena, Clock, Counter, Notifier};

use crate::counters::Counters;
use crate::slots::Slots;
use crate::{
    Backing, Completion, DeviceCounters, Flash, FlashError, Op, OpenError, OpenedQueue, Queue, QueueFull, QueueUser,
    Request, Switches, Traits, check_depth, check_range, frame_count, lock,
};

/// EIO: what a drive says of a page that it cannot read or program.
const MEDIUM_ERROR: FlashError = FlashError::Io(5);

/// The NAND model in real time, over a medium that holds the data.
pub struct NandFlash {
    inner: Arc<dyn Flash>,
    shared: Arc<Shared>,
    extent_pages: u32,
    subpages: u32,
}

impl std::fmt::Debug for NandFlash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NandFlash").field("inner", &self.inner.describe()).finish_non_exhaustive()
    }
}

/// What the device did, and what it costs.
#[derive(Clone, Copy, Debug, Default)]
pub struct NandReport {
    /// Of the flash interface layer.
    pub fil: FilCounters,
    /// Of the NAND below it.
    pub nand: NandCounters,
    /// Flash pages of a page of NAND.
    pub flash_pages_per_page: u32,
    /// DRAM of the model's tables in this process, no part of a program's budget.
    pub model_bytes: usize,
}

#[derive(Debug)]
struct Shared {
    model: Mutex<Model>,
    clock: Clock,
    start_ns: u64,
    /// When the model has something to do again, in its time, or `u64::MAX`.
    next_ns: AtomicU64,
    /// Requests whose data the medium within moved, and which the model failed.
    failed_reads: Counter,
    failed_writes: Counter,
    lateness: Counters,
}

#[derive(Debug)]
struct Model {
    fil: Fil,
    done: Vec<FlashDone>,
    ports: Vec<Port>,
}

/// The model's side of a queue.
#[derive(Debug, Default)]
struct Port {
    /// What has ended and was not fetched, and that there is some; none where the queue is gone.
    ended: Option<(Vec<FlashDone>, Arc<AtomicBool>)>,
    /// Requests in the model that have not ended. Only when there are none can another queue have
    /// the port.
    under_way: usize,
}

impl Port {
    fn is_free(&self) -> bool {
        self.ended.is_none() && self.under_way == 0
    }
}

impl Shared {
    fn now(&self) -> u64 {
        self.clock.now_ns().saturating_sub(self.start_ns)
    }
}

impl Model {
    /// Works up to `now`, and gives each queue what is its own.
    fn advance(&mut self, now: u64, shared: &Shared) {
        self.fil.advance(now, &mut self.done);
        for done in self.done.drain(..) {
            let port = &mut self.ports[(done.tag >> 32) as usize];
            port.under_way -= 1;
            if let Some((ended, there)) = &mut port.ended {
                ended.push(done);
                there.store(true, Ordering::Release);
            }
        }
        // Last: a reader of "nothing under way" finds what has ended (see `NandQueue::wait`).
        shared.next_ns.store(self.fil.next_event_ns().unwrap_or(u64::MAX), Ordering::Release);
    }
}

impl NandFlash {
    /// NAND by a profile, whose data is in `inner`: flash page i of the device is subpage i of it.
    ///
    /// # Errors
    /// When the profile cannot be divided as the configuration says, or `inner` is smaller than the
    /// device.
    pub fn new(inner: Arc<dyn Flash>, profile: Profile, config: FilConfig) -> Result<NandFlash, OpenError> {
        let fil = Fil::new(profile, config)?;
        let subpages = fil.flash_pages();
        if inner.subpages() < subpages {
            return Err(OpenError::Storage { bytes: inner.subpages() as usize * 4096, subpages });
        }
        let (clock, extent_pages) = (Clock::get(), fil.extent_pages());
        let shared = Shared {
            model: Mutex::new(Model { fil, done: Vec::with_capacity(256), ports: Vec::new() }),
            start_ns: clock.now_ns(),
            clock,
            next_ns: AtomicU64::new(u64::MAX),
            failed_reads: Counter::default(),
            failed_writes: Counter::default(),
            lateness: Counters::default(),
        };
        Ok(NandFlash { inner, shared: Arc::new(shared), extent_pages, subpages })
    }
    /// The same by another clock, by which the model's time begins now.
    ///
    /// # Panics
    /// When queues were opened already.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> NandFlash {
        let shared = Arc::get_mut(&mut self.shared).expect("no queue has been opened");
        (shared.start_ns, shared.clock) = (clock.now_ns(), clock);
        self
    }
    /// The same of a device that is opened again: all of `inner` counts as written, so reads take
    /// their time, and writes begin extents anew. Wear begins with the model.
    ///
    /// # Errors
    /// As [`NandFlash::new`].
    pub fn reopened(inner: Arc<dyn Flash>, profile: Profile, config: FilConfig) -> Result<NandFlash, OpenError> {
        NandFlash::reopened_with(inner, profile, config, None)
    }
    /// The same, going on from a [`NandFlash::state`]: wear, failed and spare blocks and the log
    /// are as they were then. Later writes and erases are unknown.
    ///
    /// # Errors
    /// As [`NandFlash::new`], and [`OpenError::System`] for a state of another device.
    pub fn reopened_with(
        inner: Arc<dyn Flash>,
        profile: Profile,
        config: FilConfig,
        state: Option<&[u8]>,
    ) -> Result<NandFlash, OpenError> {
        let flash = NandFlash::new(inner, profile, config)?;
        {
            let fil = &mut lock(&flash.shared.model).fil;
            if let Some(state) = state {
                fil.restore(state).map_err(|error| OpenError::System {
                    what: "go on from the state of the NAND",
                    source: std::io::Error::other(error),
                })?;
            }
            (0..fil.extents()).try_for_each(|extent| fil.assume_written(extent, fil.extent_pages()))?;
        }
        Ok(flash)
    }
    /// What of the NAND outlives this process, as bytes, for [`NandFlash::reopened_with`].
    #[must_use]
    pub fn state(&self) -> Vec<u8> {
        lock(&self.shared.model).fil.state()
    }
    /// Flash pages of an extent, which a store over it must have as well.
    #[must_use]
    pub fn extent_pages(&self) -> u32 {
        self.extent_pages
    }
    /// A queue of its own over one of the medium within.
    fn over(&self, inner: Box<dyn Queue>, frames: u32, depth: usize, wake: Arc<Notifier>) -> Box<dyn Queue> {
        let there = Arc::new(AtomicBool::new(false));
        let mut model = lock(&self.shared.model);
        let free = model.ports.iter().position(Port::is_free);
        let port = free.unwrap_or(model.ports.len());
        if free.is_none() {
            model.ports.push(Port::default());
        }
        model.ports[port].ended = Some((Vec::with_capacity(depth), there.clone()));
        let port = port as u32;
        Box::new(NandQueue {
            shared: self.shared.clone(),
            subpages: self.subpages,
            frames,
            inner,
            wake,
            port,
            there,
            slots: Slots::new(depth),
            halves: vec![Half::Neither; depth].into(),
            batch: Vec::with_capacity(depth),
            given: Vec::with_capacity(depth),
            arrived: Vec::with_capacity(depth),
            ended: Vec::with_capacity(depth),
            own_work: false,
        })
    }
    /// What it has done so far.
    #[must_use]
    pub fn report(&self) -> NandReport {
        let model = lock(&self.shared.model);
        let fil = &model.fil;
        NandReport {
            fil: *fil.counters(),
            nand: *fil.nand().counters(),
            flash_pages_per_page: fil.nand().geometry().flash_pages_per_page(),
            model_bytes: fil.bytes(),
        }
    }
}

impl Flash for NandFlash {
    fn subpages(&self) -> u32 {
        self.subpages
    }
    fn describe(&self) -> String {
        let model = lock(&self.shared.model);
        let (profile, geometry) = (model.fil.nand().profile(), model.fil.nand().geometry());
        format!(
            "NAND, {} planes on {} channels of {} MB/s, read {}, program {}, erase {}, over {}",
            geometry.planes(),
            geometry.channels(),
            profile.timing.bus_bytes_per_second / 1_000_000,
            fulgurite_format::format_duration(Duration::from_nanos(profile.timing.read_ns)),
            fulgurite_format::format_duration(Duration::from_nanos(profile.timing.program_ns)),
            fulgurite_format::format_duration(Duration::from_nanos(profile.timing.erase_ns)),
            self.inner.describe()
        )
    }
    fn traits(&self) -> Traits {
        let per_page = lock(&self.shared.model).fil.nand().geometry().flash_pages_per_page() as usize;
        let inner = self.inner.traits();
        // The model has no such command: what lies on its pages stays there until they are erased.
        Traits { gathers: per_page.max(inner.gathers), trims: false, ..inner }
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        self.inner.staging_bytes(frames)
    }
    fn open_queue_for(&self, user: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        check_depth(depth)?;
        let count = frame_count(&frames);
        Ok(self.over(self.inner.open_queue_for(user, frames, depth, wake.clone())?, count, depth, wake))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages())
    }
    fn backing(&self) -> Option<&dyn Backing> {
        self.inner.backing()
    }
    fn counters(&self) -> DeviceCounters {
        let (reads, writes) = (self.shared.failed_reads.get(), self.shared.failed_writes.get());
        let (own, inner) = (self.shared.lateness.read(), self.inner.counters());
        // The medium within counted these as moved; each request counts once.
        DeviceCounters {
            reads: inner.reads.saturating_sub(reads),
            writes: inner.writes.saturating_sub(writes),
            errors: inner.errors + reads + writes,
            late: own.late,
            lateness_ns_total: own.lateness_ns_total,
            lateness_ns_max: own.lateness_ns_max,
            ..inner
        }
    }
}

/// What is known of a request's end.
#[derive(Clone, Copy, Debug)]
enum Half {
    Neither,
    /// Its data was moved, or not.
    Moved(Completion),
    /// Its time in the model has come.
    Due(FlashDone),
}

struct NandQueue {
    shared: Arc<Shared>,
    subpages: u32,
    frames: u32,
    inner: Box<dyn Queue>,
    wake: Arc<Notifier>,
    port: u32,
    /// Something of this queue has ended in the model.
    there: Arc<AtomicBool>,
    slots: Slots,
    halves: Box<[Half]>,
    /// Submitted, not handed over.
    batch: Vec<FlashRequest>,
    /// Handed over, not yet taken by the model.
    given: Vec<FlashRequest>,
    arrived: Vec<Completion>,
    ended: Vec<FlashDone>,
    /// What it is given is work of a store's own.
    own_work: bool,
}

impl NandQueue {
    /// Gives the model what was handed over, lets it work, and fetches this queue's ends.
    fn turn(&mut self, now: u64) {
        let shared = &*self.shared;
        let due = now >= shared.next_ns.load(Ordering::Acquire);
        if !due && self.given.is_empty() && !self.there.load(Ordering::Acquire) {
            return;
        }
        let mut model = lock(&shared.model);
        let mut taken = 0;
        for request in &self.given {
            match model.fil.submit(now, *request) {
                Ok(()) => {
                    taken += 1;
                    model.ports[self.port as usize].under_way += 1;
                }
                // Later: what is under way makes room.
                Err(FilError::Full) => break,
                // Where there is no such flash page, the medium within says so. Here it ends at
                // once.
                Err(_) => {
                    taken += 1;
                    let (tag, status) = (request.tag, FlashStatus::Ok);
                    self.ended.push(FlashDone {
                        tag,
                        status,
                        submitted_ns: now,
                        done_ns: now,
                        blocked_by_reclaim: false,
                    });
                }
            }
        }
        self.given.drain(..taken);
        model.advance(now, shared);
        if self.there.swap(false, Ordering::AcqRel)
            && let Some((ended, _)) = &mut model.ports[self.port as usize].ended
        {
            self.ended.append(ended);
        }
    }
    /// The end of a request both of whose halves are known.
    fn end(
        &mut self,
        now: u64,
        slot: u32,
        moved: Completion,
        done: FlashDone,
        lateness: &mut DeviceCounters,
    ) -> Completion {
        lateness.was_late(now.saturating_sub(done.done_ns));
        let failed = match done.status {
            FlashStatus::Ok | FlashStatus::Corrected(_) => None,
            FlashStatus::Uncorrectable => Some(&self.shared.failed_reads),
            FlashStatus::WriteFailed => Some(&self.shared.failed_writes),
        };
        let result = match failed {
            Some(counter) if moved.result.is_ok() => {
                counter.add(1);
                Err(MEDIUM_ERROR)
            }
            _ => moved.result,
        };
        Completion { tag: self.slots.release(slot), result, checksum: moved.checksum }
    }
}

impl Queue for NandQueue {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        let slot = self.slots.take(request.tag).ok_or(QueueFull)?;
        // The medium within may be larger than the device, and is not to answer for what that has
        // not. Nor may the model do a write that the medium refuses.
        let outside = request.op != Op::Flush && (request.subpage.0 >= self.subpages || request.frame.0 >= self.frames);
        let subpage = if outside { SubpageIndex(u32::MAX) } else { request.subpage };
        self.inner
            .submit(Request { tag: slot.into(), subpage, ..request })
            .expect("the queue within is as deep and has no more in flight");
        self.halves[slot as usize] = Half::Neither;
        let op = match request.op {
            Op::Read => FlashOp::Read,
            Op::Write => FlashOp::Write,
            Op::Flush => FlashOp::Flush,
        };
        let tag = u64::from(self.port) << 32 | u64::from(slot);
        self.batch.push(FlashRequest { tag, op, flash_page: subpage.0, reclaim: self.own_work });
        Ok(())
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.given.append(&mut self.batch);
        // The data first: a read that the model lets pass from now on finds it.
        let handed_over = self.inner.flush();
        self.turn(self.shared.now());
        handed_over
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        if self.slots.in_use() == 0 {
            return 0;
        }
        let before = completions.len();
        let now = self.shared.now();
        let mut lateness = DeviceCounters::default();
        let mut arrived = std::mem::take(&mut self.arrived);
        self.inner.poll(&mut arrived);
        for moved in arrived.drain(..) {
            let slot = moved.tag as u32;
            match self.halves[slot as usize] {
                Half::Due(done) => completions.push(self.end(now, slot, moved, done, &mut lateness)),
                _ => self.halves[slot as usize] = Half::Moved(moved),
            }
        }
        self.arrived = arrived;
        self.turn(now);
        let mut ended = std::mem::take(&mut self.ended);
        for done in ended.drain(..) {
            let slot = done.tag as u32;
            match self.halves[slot as usize] {
                Half::Moved(moved) => completions.push(self.end(now, slot, moved, done, &mut lateness)),
                _ => self.halves[slot as usize] = Half::Due(done),
            }
        }
        self.ended = ended;
        self.shared.lateness.add(&lateness);
        completions.len() - before
    }
    fn will_poll(&self) {
        self.inner.will_poll();
    }
    fn switch(&mut self, to: Switches) -> Switches {
        self.own_work = to.own_work;
        Switches { own_work: to.own_work, ..self.inner.switch(to) }
    }
    fn use_frames(&mut self, frames: std::ops::Range<u32>) {
        self.inner.use_frames(frames);
    }
    fn wait(&mut self, timeout: Option<Duration>) {
        let _ = self.flush();
        // Before the look at the ends: another thread's turn in between could leave no time to wake
        // at.
        let next_ns = self.shared.next_ns.load(Ordering::Acquire);
        if self.there.load(Ordering::Acquire) || !self.ended.is_empty() {
            return;
        }
        if self.slots.in_use() == 0 {
            return self.inner.wait(timeout);
        }
        let shared = &*self.shared;
        let Some(nap) = shared.clock.nap(shared.start_ns.saturating_add(next_ns), timeout) else { return };
        if self.inner.in_flight() > 0 {
            self.inner.wait(Some(nap));
        } else {
            shared.clock.wait(&self.wake, Some(nap));
        }
    }
    fn in_flight(&self) -> usize {
        self.slots.in_use()
    }
    fn depth(&self) -> usize {
        self.slots.depth()
    }
    fn bytes(&self) -> usize {
        self.inner.bytes()
            + self.slots.bytes()
            + self.slots.depth() * (size_of::<Half>() + 2 * size_of::<FlashRequest>())
    }
}

impl Drop for NandQueue {
    fn drop(&mut self) {
        lock(&self.shared.model).ports[self.port as usize].ended = None;
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_format::FrameIndex;

    use super::*;
    use crate::MemoryFlash;

    #[test]
    fn ports_of_queues_that_are_gone_are_used_again_once_nothing_of_theirs_is_under_way() {
        let profile = Profile::built_in("mlc").unwrap().scaled(64 << 20, 4).unwrap();
        let pages = Fil::new(profile, FilConfig::default()).unwrap().flash_pages();
        let inner = Arc::new(MemoryFlash::new(pages).unwrap());
        let nand = NandFlash::new(inner, profile, FilConfig::default()).unwrap();
        let frames = Arc::new(Arena::anonymous(16 * 4096, fulgurite_sys::Backed::BasePages).unwrap());
        let open = || nand.open_queue(frames.clone(), 8, Arc::new(Notifier::new().unwrap())).unwrap();
        let ports = || lock(&nand.shared.model).ports.len();
        (0..100).for_each(|_| drop(open()));
        assert_eq!(ports(), 1);
        // Gone with a program of more than a millisecond under way: the next queue must not see its
        // end.
        let mut gone = open();
        let subpage = SubpageIndex(nand.extent_pages());
        for tag in 0..4 {
            let subpage = SubpageIndex(subpage.0 + tag as u32);
            gone.submit(Request { tag, op: Op::Write, subpage, frame: FrameIndex(tag as u32) }).unwrap();
        }
        gone.flush().unwrap();
        assert_eq!(lock(&nand.shared.model).ports[0].under_way, 4);
        drop(gone);
        let mut next = open();
        assert_eq!(ports(), 2);
        let mut completions = Vec::new();
        next.submit(Request { tag: 77, op: Op::Flush, subpage, frame: FrameIndex(0) }).unwrap();
        while completions.is_empty() {
            next.wait(None);
            next.poll(&mut completions);
        }
        assert_eq!(completions.iter().map(|c| c.tag).collect::<Vec<_>>(), [77]);
        assert!(lock(&nand.shared.model).ports[0].is_free());
        let _third = open();
        assert_eq!(ports(), 2);
    }
}
