//! Cached writes: a write completes in the device's own buffer, and is programmed afterwards.
//!
//! The paper names the lack of this as a reason for its low random write throughput (6.5). It hides
//! the time of a program from the host, but a long stream of writes is as slow as without.
//!
//! Durability: **a write that has completed is in DRAM**. It survives neither the end of the
//! device's process nor the loss of power before a later flush has completed. A flush waits until
//! all that was in the buffer is programmed, and then flushes the medium, as with any volatile
//! write cache. After a failed program every later flush and write fails, and the data stay
//! readable from the buffer.
//!
//! Invariants: a sector in the buffer is read from there. Of one sector at most one program is
//! under way, so that none overtakes another. Where the buffer is full, writes go through.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fulgurite_flash::{
    Backing, Completion, DeviceCounters, Flash, FlashError, Op, OpenError, OpenedQueue, Queue, QueueFull, QueueUser,
    Request, Switches, Traits, check_range,
};
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex, format_bytes};
use fulgurite_sys::{Arena, Backed, Notifier};

/// A medium with a volatile write buffer in front of it.
pub struct CachedFlash {
    inner: Arc<dyn Flash>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for CachedFlash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachedFlash").field("inner", &self.inner.describe()).finish_non_exhaustive()
    }
}

struct Shared {
    buffer: Arc<Arena>,
    state: Mutex<State>,
}

struct State {
    /// The buffer's own queue on the medium.
    queue: Box<dyn Queue>,
    /// By sector.
    held: HashMap<u32, Held>,
    free: Vec<u32>,
    /// Programs that were begun, or wait for one of their sector, by number.
    outstanding: BTreeSet<u64>,
    next: u64,
    failed: Option<FlashError>,
    arrived: Vec<Completion>,
}

/// A sector in the buffer.
struct Held {
    /// What is being programmed.
    slot: u32,
    number: u64,
    /// What was written since, and is programmed next.
    newer: Option<(u32, u64)>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.outstanding.insert(self.next);
        self.next
    }
    fn program(&mut self, sector: u32, slot: u32) {
        let request =
            Request { tag: sector.into(), op: Op::Write, subpage: SubpageIndex(sector), frame: FrameIndex(slot) };
        // There is at most one request for each slot, and the queue is as deep as there are slots.
        self.queue.submit(request).expect("a queue as deep as there are slots");
    }
    /// Puts a write into the buffer. Returns whether there was room.
    fn keep(&mut self, buffer: &Arena, sector: u32, frames: &Arena, at: usize) -> bool {
        let kept = self.held.get(&sector).map(|held| held.newer);
        let slot = match kept {
            // Not under way yet: overwritten in its place.
            Some(Some((slot, _))) => slot,
            _ => match self.free.pop() {
                Some(slot) => slot,
                None => return false,
            },
        };
        Arena::copy(frames, at, buffer, slot as usize * SUBPAGE_BYTES, SUBPAGE_BYTES);
        match kept {
            Some(Some(_)) => {}
            Some(None) => {
                let number = self.number();
                self.held.get_mut(&sector).expect("seen above").newer = Some((slot, number));
            }
            None => {
                let number = self.number();
                self.held.insert(sector, Held { slot, number, newer: None });
                self.program(sector, slot);
            }
        }
        true
    }
    /// The newest content of a sector, if it is in the buffer.
    fn newest(&self, sector: u32) -> Option<u32> {
        self.held.get(&sector).map(|held| held.newer.map_or(held.slot, |(slot, _)| slot))
    }
    /// Takes programs that have ended, and begins those that waited for them. Never blocks.
    fn turn(&mut self) {
        // What takes nothing more ends what it has, with errors.
        let _ = self.queue.flush();
        let mut arrived = std::mem::take(&mut self.arrived);
        self.queue.poll(&mut arrived);
        for completion in arrived.drain(..) {
            let sector = completion.tag as u32;
            if let Err(error) = completion.result {
                // What was acknowledged stays readable, and nothing that depends on it succeeds.
                self.failed.get_or_insert(error);
                continue;
            }
            let Some(held) = self.held.get_mut(&sector) else { continue };
            self.free.push(held.slot);
            self.outstanding.remove(&held.number);
            match held.newer.take() {
                Some((slot, number)) => {
                    (held.slot, held.number) = (slot, number);
                    self.program(sector, slot);
                }
                None => {
                    self.held.remove(&sector);
                }
            }
        }
        self.arrived = arrived;
        let _ = self.queue.flush();
    }
}

impl CachedFlash {
    /// With a buffer of `sectors` sectors.
    ///
    /// # Errors
    /// When there is no memory, or the medium opens no queue as deep, or is a store.
    pub fn new(inner: Arc<dyn Flash>, sectors: u32) -> Result<CachedFlash, OpenError> {
        if inner.backing().is_some() {
            // A sync would name a state that is not in the store yet.
            let source = std::io::Error::other("a store places writes together by itself; start it without one");
            return Err(OpenError::System { what: "put a write buffer before a store", source });
        }
        let buffer = Arc::new(Arena::anonymous(sectors as usize * SUBPAGE_BYTES, Backed::BasePages)?);
        let wake = Notifier::new().map_err(|source| OpenError::System { what: "make an eventfd", source })?;
        let queue = inner.open_queue_for(QueueUser::AnyThread, buffer.clone(), sectors as usize, Arc::new(wake))?;
        let state = State {
            queue,
            held: HashMap::new(),
            free: (0..sectors).rev().collect(),
            outstanding: BTreeSet::new(),
            next: 0,
            failed: None,
            arrived: Vec::new(),
        };
        Ok(CachedFlash { inner, shared: Arc::new(Shared { buffer, state: Mutex::new(state) }) })
    }
}

impl Flash for CachedFlash {
    fn subpages(&self) -> u32 {
        self.inner.subpages()
    }
    fn describe(&self) -> String {
        let bytes = format_bytes(self.shared.buffer.len() as u64);
        format!("{}, with a volatile write buffer of {bytes}", self.inner.describe())
    }
    fn traits(&self) -> Traits {
        let inner = self.inner.traits();
        let own = self.shared.buffer.len() + self.shared.state().queue.bytes();
        // A trim would have to find what is in the buffer and what is on its way.
        Traits { dram_bytes: inner.dram_bytes + own, trims: false, serves_callers: false, ..inner }
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        self.inner.staging_bytes(frames)
    }
    fn open_queue_for(&self, user: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        let sectors = self.inner.subpages();
        let inner = self.inner.open_queue_for(user, frames.clone(), depth, wake)?;
        let frame_count = u32::try_from(frames.len() / SUBPAGE_BYTES).unwrap_or(u32::MAX);
        Ok(Box::new(CachedQueue {
            sectors,
            shared: self.shared.clone(),
            inner,
            frames,
            frame_count,
            batch: Vec::with_capacity(depth),
            kept_back: Vec::new(),
            ended: Vec::with_capacity(depth),
            flushes: Vec::new(),
            depth,
        }))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages())
    }
    fn backing(&self) -> Option<&dyn Backing> {
        None
    }
    fn counters(&self) -> DeviceCounters {
        self.inner.counters()
    }
}

struct CachedQueue {
    shared: Arc<Shared>,
    inner: Box<dyn Queue>,
    frames: Arc<Arena>,
    frame_count: u32,
    sectors: u32,
    batch: Vec<Request>,
    /// Writes that wait for room in the buffer.
    kept_back: Vec<Request>,
    ended: Vec<Completion>,
    /// Flushes that wait until all programs up to a number have ended.
    flushes: Vec<(Request, u64)>,
    depth: usize,
}

impl CachedQueue {
    fn end(&mut self, tag: u64, result: Result<(), FlashError>) {
        self.ended.push(Completion { tag, result, checksum: 0 });
    }
    fn pass_on(&mut self, request: Request) {
        self.inner.submit(request).expect("the queue within is as deep and has no more in flight");
    }
    /// Does what the buffer can do at once, and passes on the rest.
    fn begin(&mut self, request: Request) {
        let Request { tag, op, subpage, frame } = request;
        let at = frame.index() * SUBPAGE_BYTES;
        let inside = subpage.0 < self.sectors && frame.0 < self.frame_count;
        let shared = self.shared.clone();
        let mut state = shared.state();
        match op {
            Op::Flush => self.flushes.push((request, state.next)),
            _ if !inside => self.end(tag, Err(FlashError::OutOfRange)),
            Op::Read => match state.newest(subpage.0) {
                Some(slot) => {
                    Arena::copy(&shared.buffer, slot as usize * SUBPAGE_BYTES, &self.frames, at, SUBPAGE_BYTES);
                    self.end(tag, Ok(()));
                }
                None => self.pass_on(request),
            },
            Op::Write => {
                if let Some(error) = state.failed {
                    self.end(tag, Err(error));
                } else if state.keep(&shared.buffer, subpage.0, &self.frames, at) {
                    self.end(tag, Ok(()));
                } else if state.newest(subpage.0).is_none() {
                    self.pass_on(request);
                } else {
                    // It would overtake, or be overtaken: it waits for room.
                    self.kept_back.push(request);
                }
            }
        }
    }
    fn end_flushes(&mut self, state: &State) {
        let (failed, oldest) = (state.failed, state.outstanding.first().copied().unwrap_or(u64::MAX));
        for (request, last) in std::mem::take(&mut self.flushes) {
            match failed {
                Some(error) => self.end(request.tag, Err(error)),
                None if oldest > last => self.pass_on(request),
                None => self.flushes.push((request, last)),
            }
        }
    }
}

impl Queue for CachedQueue {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        if self.in_flight() >= self.depth {
            return Err(QueueFull);
        }
        self.batch.push(request);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        for request in std::mem::take(&mut self.batch) {
            self.begin(request);
        }
        let shared = self.shared.clone();
        let mut state = shared.state();
        state.turn();
        self.end_flushes(&state);
        drop(state);
        self.inner.flush()
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        let shared = self.shared.clone();
        {
            let mut state = shared.state();
            state.turn();
            self.end_flushes(&state);
        }
        for request in std::mem::take(&mut self.kept_back) {
            self.begin(request);
        }
        // Those that waited for room, and flushes whose turn has come, go out by themselves.
        let _ = self.inner.flush();
        completions.append(&mut self.ended);
        self.inner.poll(completions);
        completions.len() - before
    }
    fn will_poll(&self) {
        self.inner.will_poll();
    }
    fn switch(&mut self, to: Switches) -> Switches {
        // What the buffer serves has none.
        self.inner.switch(Switches { checksums: false, ..to })
    }
    fn use_frames(&mut self, frames: std::ops::Range<u32>) {
        self.inner.use_frames(frames);
    }
    fn wait(&mut self, timeout: Option<Duration>) {
        let _ = self.flush();
        if !self.ended.is_empty() {
            return;
        }
        // Programs end at the buffer's own queue, which nobody is woken by.
        let waits = !self.flushes.is_empty() || !self.kept_back.is_empty();
        let short = Duration::from_micros(100);
        self.inner.wait(if waits { Some(timeout.map_or(short, |t| t.min(short))) } else { timeout });
    }
    fn in_flight(&self) -> usize {
        self.batch.len() + self.kept_back.len() + self.ended.len() + self.flushes.len() + self.inner.in_flight()
    }
    fn depth(&self) -> usize {
        self.depth
    }
    fn bytes(&self) -> usize {
        self.inner.bytes() + self.depth * (2 * size_of::<Request>() + size_of::<Completion>())
    }
}
