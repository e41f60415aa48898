//! A medium over a medium: a layer decides where each subpage is stored, and what is read is
//! checked.
//!
//! The layer decides (see [`Layer`]) and this file moves. Frames are entrusted to it: each request
//! that is passed on names the frame of a request in flight here, for the same operation. So the
//! contract of the medium within holds for this one too.
//!
//! Invariants: each request is completed exactly once. A write is completed after the layer has
//! recorded it, so that later reads find it. A read is completed with what the layer said last, or
//! with an error.

use std::sync::Arc;
use std::time::Duration;

use fulgurite_format::{SUBPAGE_BYTES, SubpageIndex, crc32c};
use fulgurite_sys::{Arena, Clock, Notifier};

use crate::slots::Slots;
use crate::{
    Backing, Completion, DeviceCounters, Flash, FlashError, Op, OpenedQueue, Queue, QueueFull, QueueUser, Request,
    Switches, Traits, check_depth, check_range, frame_count,
};

/// Where a subpage is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlashAddress {
    /// The flash page of the medium within.
    pub flash_page: u32,
    /// CRC32C of its content.
    pub checksum: u32,
    /// The subpage shares the flash page: only its first bytes are stored there, and the rest is
    /// zeros. None where it has all of the flash page. Only for reads.
    pub part: Option<Part>,
}

/// A part of a flash page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The first byte.
    pub offset: u16,
    /// How many bytes; offset and length together are at most a flash page's.
    pub length: u16,
}

impl FlashAddress {
    /// Of a subpage that has a flash page for itself.
    #[must_use]
    pub fn whole(flash_page: u32, checksum: u32) -> FlashAddress {
        FlashAddress { flash_page, checksum, part: None }
    }
}

/// What a layer knows of where a subpage is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Location {
    /// It was never written, and reads as zeros.
    Unmapped,
    /// There.
    At(FlashAddress),
    /// That is on flash itself: this flash page has to be read first, and given to
    /// [`Layer::learn`].
    Indirect(u32),
}

impl Location {
    /// The place, where it is known.
    #[must_use]
    pub fn place(self) -> Option<FlashAddress> {
        if let Location::At(place) = self { Some(place) } else { None }
    }
}

impl From<Option<FlashAddress>> for Location {
    fn from(place: Option<FlashAddress>) -> Location {
        place.map_or(Location::Unmapped, Location::At)
    }
}

/// A write that has ended well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// The subpage.
    pub subpage: u32,
    /// Where it is stored.
    pub place: FlashAddress,
}

/// Decides where subpages are stored. Shared by all queues.
pub trait Layer: Send + Sync + 'static {
    /// The medium within.
    fn medium(&self) -> &Arc<dyn Flash>;
    /// What tells its queues how long they have kept writes back.
    fn clock(&self) -> &Clock;
    /// Subpages that can be addressed.
    fn subpages(&self) -> u32;
    /// One line for people.
    fn describe(&self) -> String;
    /// DRAM of all that it keeps.
    fn dram_bytes(&self) -> usize;
    /// Where a subpage is stored now. Called before and after each read: when both answers agree,
    /// nothing else was written to that place in between. The answers also agree when the second
    /// one names the flash page from which the place was learnt before the first one.
    fn locate(&self, subpage: u32) -> Location;
    /// This is what a flash page holds, read because [`Location::Indirect`] named it for this
    /// subpage.
    /// Then the layer is asked again, which knows more, or names another one.
    ///
    /// # Errors
    /// [`FlashError::Corrupt`] when it is not what was written there.
    fn learn(&self, _subpage: u32, _flash_page: u32, _content: &[u8; SUBPAGE_BYTES]) -> Result<(), FlashError> {
        Ok(())
    }
    /// Says that this will soon be asked of a subpage, so that it can be loaded. Changes nothing.
    fn will_locate(&self, _subpage: u32) {}
    /// Gives places to ascending subpages that will be written: one for each of the first ones, as
    /// far as there are places. The others ask again later.
    ///
    /// # Errors
    /// When there is no place, and waiting brings none.
    fn place(&self, subpages: &[u32], places: &mut Vec<u32>) -> Result<(), FlashError>;
    /// Whether asking for places is worthwhile. False after there were none, until that may have
    /// changed.
    fn may_place(&self) -> bool {
        true
    }
    /// Writes have ended: from now on the subpages are stored there. The order does not matter.
    ///
    /// # Errors
    /// When that cannot be recorded; the subpages stay where they were before.
    fn written(&self, writes: &mut Vec<Written>) -> Result<(), FlashError>;
    /// A write failed, so nothing is stored at this place. Returns whether to try another one.
    fn not_written(&self, flash_page: u32, error: FlashError) -> bool;
    /// A flash page could not be read, or did not hold what was written, also when read again.
    fn unreadable(&self, flash_page: u32, error: FlashError);
    /// Whether writes and reads have checksums. Asked once for each queue. Where not, each is 0.
    fn checks(&self) -> bool {
        true
    }
    /// Does some of the layer's own work, if there is any and no other thread does. Never blocks.
    /// Returns whether there is more.
    fn work(&self) -> bool;
    /// Whether a caller without a queue has left work to the sleepers in one. Cheap.
    fn has_work(&self) -> bool {
        false
    }
    /// A queue is opened, whose waiting owner this wakes.
    fn opened(&self, _wake: &Arc<Notifier>) {}
    /// What a cache over it is to ask in addition to reading and writing, if anything.
    fn backing(&self) -> Option<&dyn Backing>;
    /// Begins to make durable what was written; returns what to ask for.
    ///
    /// # Errors
    /// When that cannot be.
    fn begin_flush(&self) -> Result<u64, FlashError>;
    /// Whether that is done.
    ///
    /// # Errors
    /// When it failed.
    fn is_flushed(&self, flush: u64) -> Result<bool, FlashError>;
}

/// A layer as a medium.
#[derive(Debug)]
pub struct Layered<L> {
    layer: Arc<L>,
}

impl<L: Layer> Layered<L> {
    /// Over what the layer says.
    pub fn new(layer: Arc<L>) -> Layered<L> {
        Layered { layer }
    }
    /// The layer.
    pub fn layer(&self) -> &Arc<L> {
        &self.layer
    }
}

impl<L: Layer> Flash for Layered<L> {
    fn subpages(&self) -> u32 {
        self.layer.subpages()
    }
    fn describe(&self) -> String {
        self.layer.describe()
    }
    fn traits(&self) -> Traits {
        let medium = self.layer.medium().traits();
        Traits {
            dram_bytes: self.layer.dram_bytes(),
            holds_writes: if medium.gathers > 1 { medium.gathers } else { 0 },
            // What is not needed any more is the layer's affair.
            trims: false,
            ..medium
        }
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        self.layer.medium().staging_bytes(frames)
    }
    fn open_queue_for(&self, user: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        check_depth(depth)?;
        let mut inner = self.layer.medium().open_queue_for(user, frames.clone(), depth, wake.clone())?;
        self.layer.opened(&wake);
        let checks = self.layer.checks();
        Ok(Box::new(LayeredQueue {
            checks,
            medium_checks: inner.switch(Switches { checksums: checks, ..Switches::default() }).checksums,
            inner,
            clock: self.layer.clock().clone(),
            layer: self.layer.clone(),
            frame_count: frame_count(&frames),
            frames,
            slots: Slots::new(depth),
            requests: vec![Pending::NONE; depth].into(),
            reads: Vec::with_capacity(depth),
            writes: Vec::with_capacity(depth),
            flushes: Vec::new(),
            recorded: Vec::with_capacity(depth),
            unflushed: false,
            ended: Vec::with_capacity(depth),
            arrived: Vec::with_capacity(depth),
            written: Vec::with_capacity(depth),
            gathers: self.layer.medium().traits().gathers,
            hold: 1,
            may_hold: false,
            held_since: None,
            subpages: Vec::with_capacity(depth),
            places: Vec::with_capacity(depth),
            busy: false,
            polls: 0,
        }))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages())
    }
    fn backing(&self) -> Option<&dyn Backing> {
        self.layer.backing()
    }
    fn counters(&self) -> DeviceCounters {
        self.layer.medium().counters()
    }
}

/// A request in flight. In this order, subpage and frame apart: one load of eight bytes for both
/// would wait until the two stores that made them have left the store queue (50 ns, by profile).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Pending {
    subpage: u32,
    place: FlashAddress,
    frame: fulgurite_format::FrameIndex,
    /// How often it failed: a read with a wrong checksum is tried once more, a write at
    /// [`PLACES_MAX`] places.
    failed: u32,
    op: Op,
    /// What is read says where the subpage is stored.
    learns: bool,
    /// The flash page that has said so.
    learnt: Option<u32>,
}

impl Pending {
    const NONE: Pending = Pending {
        op: Op::Flush,
        subpage: 0,
        frame: fulgurite_format::FrameIndex(0),
        place: FlashAddress { flash_page: 0, checksum: 0, part: None },
        failed: 0,
        learns: false,
        learnt: None,
    };
}

/// Places at which a write is tried. Flash pages fail alone: many in a row are the device's
/// failure.
const PLACES_MAX: u32 = 4;

struct LayeredQueue<L: Layer> {
    inner: Box<dyn Queue>,
    layer: Arc<L>,
    clock: Clock,
    frames: Arc<Arena>,
    frame_count: u32,
    /// There are checksums.
    checks: bool,
    /// The medium within says the checksums of what it moves.
    medium_checks: bool,
    /// The caller's tags; the medium within sees slots.
    slots: Slots,
    requests: Box<[Pending]>,
    /// Submitted, and not handed over.
    reads: Vec<u32>,
    /// Submitted writes that are not handed over, also those that have found no place yet.
    writes: Vec<u32>,
    /// Flushes that are under way, and the layer's name for each.
    flushes: Vec<(u32, u64)>,
    /// Writes that have ended and are being recorded.
    recorded: Vec<u32>,
    /// The queue within has requests that were not handed over.
    unflushed: bool,
    /// Ended without the medium's doing.
    ended: Vec<(u32, Result<(), FlashError>)>,
    arrived: Vec<Completion>,
    written: Vec<Written>,
    subpages: Vec<u32>,
    places: Vec<u32>,
    /// The largest number of writes that the medium makes one request of.
    gathers: usize,
    /// The most writes that are kept back to find places side by side. 1: none are.
    hold: usize,
    may_hold: bool,
    /// When the first waiting write came, in nanoseconds of the clock. None where they are to wait
    /// no more.
    held_since: Option<u64>,
    /// The layer had more work when it was asked last.
    busy: bool,
    polls: u32,
}

/// How long writes are kept back at most.
const HOLD: Duration = Duration::from_micros(500);
/// One frame in this many may be part of such writes.
const HOLD_SHARE: usize = 64;
/// At one in how many polls it is asked whether they have waited for so long.
const HOLD_POLLS: u32 = 8;
/// At one in how many polls that find nothing a layer that has work is asked to do some.
const WORK_EVERY: u32 = 4;

/// Memory that a page is copied to for its checksum, on the stack.
#[repr(align(64))]
struct Copied([u8; SUBPAGE_BYTES]);

impl<L: Layer> LayeredQueue<L> {
    fn pass_on(&mut self, slot: u32, op: Op, flash_page: u32) {
        let request = Request {
            tag: slot.into(),
            op,
            subpage: SubpageIndex(flash_page),
            frame: self.requests[slot as usize].frame,
        };
        self.unflushed = true;
        self.inner.submit(request).expect("the queue within is as deep and has no more in flight");
    }
    /// The checksum of what was moved.
    fn checksum(&self, slot: u32, completion: u32) -> u32 {
        if self.medium_checks || !self.checks {
            // Without any, the medium says 0.
            return completion;
        }
        let mut copied = Copied([0; SUBPAGE_BYTES]);
        self.frames.read(self.requests[slot as usize].frame.index() * SUBPAGE_BYTES, &mut copied.0);
        crc32c(&copied.0)
    }
    /// Makes the frame that holds a flash page the subpage that a part of it is. Returns false, and
    /// leaves it, where the checksum is wrong.
    #[cold]
    fn take_part(&self, slot: u32, part: Part, checksum: u32) -> bool {
        let base = self.requests[slot as usize].frame.index() * SUBPAGE_BYTES;
        let mut copied = Copied([0; SUBPAGE_BYTES]);
        self.frames.read(base, &mut copied.0);
        let Some(bytes) = copied.0.get(usize::from(part.offset)..usize::from(part.offset) + usize::from(part.length))
        else {
            return false;
        };
        if crc32c(bytes) != checksum {
            return false;
        }
        self.frames.zero(base, SUBPAGE_BYTES);
        self.frames.write(base, bytes);
        true
    }
    fn begin_read(&mut self, slot: u32) {
        let Pending { subpage, frame, .. } = self.requests[slot as usize];
        match self.layer.locate(subpage) {
            Location::At(place) => {
                self.requests[slot as usize].place = place;
                self.pass_on(slot, Op::Read, place.flash_page);
            }
            Location::Indirect(flash_page) => {
                let request = &mut self.requests[slot as usize];
                (request.place, request.learns) = (FlashAddress::whole(flash_page, 0), true);
                self.pass_on(slot, Op::Read, flash_page);
            }
            Location::Unmapped => {
                // What was never written is zeros, and never what was in the frame before.
                self.frames.zero(frame.index() * SUBPAGE_BYTES, SUBPAGE_BYTES);
                self.ended.push((slot, Ok(())));
            }
        }
    }
    /// Whether the writes that wait have been kept back for long enough.
    fn find_due_writes(&mut self) -> bool {
        if !self.may_hold || self.writes.len() >= self.hold {
            self.held_since = None;
        }
        !self.writes.is_empty() && self.held_since.is_none_or(|since| self.clock.since(since) >= HOLD)
    }
    /// Places the writes that wait, if they are due, side by side in the order of their subpages,
    /// and passes them on.
    fn begin_writes(&mut self) {
        if !self.find_due_writes() {
            return;
        }
        // What finds no place now has waited already.
        self.held_since = None;
        if !self.layer.may_place() {
            self.busy = true;
            return;
        }
        let requests = &self.requests;
        self.writes.sort_unstable_by_key(|slot| requests[*slot as usize].subpage);
        self.subpages.clear();
        self.subpages.extend(self.writes.iter().map(|slot| requests[*slot as usize].subpage));
        self.places.clear();
        if let Err(error) = self.layer.place(&self.subpages, &mut self.places) {
            self.ended.extend(self.writes.drain(..).map(|slot| (slot, Err(error))));
            return;
        }
        let placed = self.places.len().min(self.writes.len());
        for i in 0..placed {
            let (slot, flash_page) = (self.writes[i], self.places[i]);
            self.requests[slot as usize].place = FlashAddress::whole(flash_page, 0);
            self.pass_on(slot, Op::Write, flash_page);
        }
        self.writes.drain(..placed);
        self.busy |= !self.writes.is_empty();
    }
    fn complete(&mut self, slot: u32, result: Result<(), FlashError>, completions: &mut Vec<Completion>) {
        completions.push(Completion { tag: self.slots.release(slot), result, checksum: 0 });
    }
    fn read_ended(&mut self, slot: u32, ended: Completion, completions: &mut Vec<Completion>) {
        let result = ended.result;
        let Pending { subpage, place, failed, learns, learnt, .. } = self.requests[slot as usize];
        if learns {
            return self.learn(slot, result, completions);
        }
        let lies = self.layer.locate(subpage);
        if lies != Location::At(place) {
            // It is still this flash page that says where the subpage is stored: that knowledge has
            // left DRAM again, and has not changed. Without this, requests for many subpages could
            // keep each other from their ends.
            let stays = learnt.is_some_and(|flash_page| lies == Location::Indirect(flash_page));
            if stays
                && result.is_ok()
                && let Some(part) = place.part
                && self.take_part(slot, part, place.checksum)
            {
                self.complete(slot, result, completions);
                return;
            }
            // It moved while it was read, so what is stored at the old place may be anything.
            self.begin_read(slot);
            return;
        }
        let wrong = || match place.part {
            None => self.checksum(slot, ended.checksum) != place.checksum,
            Some(part) => !self.take_part(slot, part, place.checksum),
        };
        if result.is_ok() && wrong() {
            if failed > 0 {
                self.layer.unreadable(place.flash_page, FlashError::Corrupt);
                self.complete(slot, Err(FlashError::Corrupt), completions);
            } else {
                self.requests[slot as usize].failed = 1;
                self.begin_read(slot);
            }
            return;
        }
        if let Err(error) = result {
            self.layer.unreadable(place.flash_page, error);
        }
        self.complete(slot, result, completions);
    }
    /// The place of a subpage was read, or could not be.
    #[cold]
    fn learn(&mut self, slot: u32, result: Result<(), FlashError>, completions: &mut Vec<Completion>) {
        let Pending { subpage, place, failed, frame, .. } = self.requests[slot as usize];
        self.requests[slot as usize].learns = false;
        let learnt = result.and_then(|()| {
            let mut copied = Copied([0; SUBPAGE_BYTES]);
            self.frames.read(frame.index() * SUBPAGE_BYTES, &mut copied.0);
            self.layer.learn(subpage, place.flash_page, &copied.0)
        });
        match learnt {
            Ok(()) => {
                self.requests[slot as usize].learnt = Some(place.flash_page);
                self.begin_read(slot);
            }
            // Once more: it may have been the way and not the flash, or another flash page by now.
            Err(_) if failed == 0 => {
                self.requests[slot as usize].failed = 1;
                self.begin_read(slot);
            }
            Err(error) => self.complete(slot, Err(error), completions),
        }
    }
    fn work(&mut self) {
        self.busy = self.layer.work();
        if !self.writes.is_empty() {
            self.begin_writes();
        }
    }
}

impl<L: Layer> Queue for LayeredQueue<L> {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        let slot = self.slots.take(request.tag).ok_or(QueueFull)?;
        self.requests[slot as usize] =
            Pending { op: request.op, subpage: request.subpage.0, frame: request.frame, ..Pending::NONE };
        let inside = request.subpage.0 < self.layer.subpages() && request.frame.0 < self.frame_count;
        match request.op {
            Op::Flush => match self.layer.begin_flush() {
                Ok(flush) => self.flushes.push((slot, flush)),
                Err(error) => self.ended.push((slot, Err(error))),
            },
            _ if !inside => self.ended.push((slot, Err(FlashError::OutOfRange))),
            Op::Read => {
                self.layer.will_locate(request.subpage.0);
                self.reads.push(slot);
            }
            Op::Write => {
                if self.writes.is_empty() && self.hold > 1 && self.may_hold {
                    self.held_since = Some(self.clock.now_ns());
                }
                self.writes.push(slot);
            }
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        for i in 0..self.reads.len() {
            self.begin_read(self.reads[i]);
        }
        self.reads.clear();
        self.begin_writes();
        self.unflushed = false;
        self.inner.flush()
    }
    fn will_poll(&self) {
        self.inner.will_poll();
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.polls = self.polls.wrapping_add(1);
        let due = self.busy && self.polls.is_multiple_of(WORK_EVERY);
        if self.held_since.is_some() && self.polls.is_multiple_of(HOLD_POLLS) {
            self.begin_writes();
        }
        let nothing_here = self.ended.is_empty() && self.flushes.is_empty() && !self.unflushed;
        if self.inner.poll(&mut self.arrived) == 0 && nothing_here && !due {
            // As most polls.
            return 0;
        }
        let mut arrived = std::mem::take(&mut self.arrived);
        // Each end is looked up, to be checked or recorded.
        for completion in &arrived {
            self.layer.will_locate(self.requests[completion.tag as usize].subpage);
        }
        for completion in arrived.drain(..) {
            let slot = completion.tag as u32;
            let Pending { op, subpage, place, .. } = self.requests[slot as usize];
            match (op, completion.result) {
                (Op::Read, _) => self.read_ended(slot, completion, completions),
                (Op::Write, Ok(())) => {
                    // The frame does not change until the completion is returned.
                    let place = FlashAddress { checksum: self.checksum(slot, completion.checksum), ..place };
                    self.written.push(Written { subpage, place });
                    self.recorded.push(slot);
                }
                (Op::Write, Err(error)) => {
                    let failed = &mut self.requests[slot as usize].failed;
                    *failed += 1;
                    let tried = *failed;
                    if self.layer.not_written(place.flash_page, error) && tried < PLACES_MAX {
                        // The frame is its request's until the completion is returned, so it can be
                        // written elsewhere.
                        self.writes.push(slot);
                        (self.held_since, self.busy) = (None, true);
                    } else {
                        self.complete(slot, Err(error), completions);
                    }
                }
                (Op::Flush, _) => unreachable!("the layer flushes by itself"),
            }
        }
        self.arrived = arrived;
        if !self.written.is_empty() {
            let result = self.layer.written(&mut self.written);
            self.written.clear();
            for i in 0..self.recorded.len() {
                self.complete(self.recorded[i], result, completions);
            }
            self.recorded.clear();
            self.busy = true;
        }
        if self.busy || !self.flushes.is_empty() {
            self.work();
        }
        for (slot, flush) in std::mem::take(&mut self.flushes) {
            match self.layer.is_flushed(flush) {
                Ok(false) => self.flushes.push((slot, flush)),
                Ok(true) => self.complete(slot, Ok(()), completions),
                Err(error) => self.complete(slot, Err(error), completions),
            }
        }
        while let Some((slot, result)) = self.ended.pop() {
            self.complete(slot, result, completions);
        }
        // Repeated reads, and writes that found a place, go out at once: nothing else hands them
        // over.
        if std::mem::take(&mut self.unflushed) {
            let _ = self.inner.flush();
        }
        completions.len() - before
    }
    fn switch(&mut self, to: Switches) -> Switches {
        self.may_hold = to.hold_writes;
        // What is kept back here has its places side by side already, and checksums are compared
        // here.
        let inner = self.inner.switch(Switches { hold_writes: false, checksums: self.checks, ..to });
        // A write that waits for a place ends without a completion of the medium within.
        Switches { hold_writes: to.hold_writes && self.gathers > 1, checksums: false, notifies: false, ..inner }
    }
    fn use_frames(&mut self, frames: std::ops::Range<u32>) {
        self.hold = self.gathers.min(frames.len() / HOLD_SHARE).max(1);
        self.inner.use_frames(frames);
    }
    fn wait(&mut self, timeout: Option<Duration>) {
        if self.inner.in_flight() == 0 && self.reads.is_empty() {
            // Nothing else would end.
            self.held_since = None;
        }
        let _ = self.flush();
        if !self.ended.is_empty() {
            return;
        }
        if let Some(left) = self.held_since.map(|since| HOLD.saturating_sub(self.clock.since(since))) {
            self.inner.wait(Some(timeout.map_or(left, |t| t.min(left))));
        } else if self.busy || !self.writes.is_empty() || !self.flushes.is_empty() {
            // The layer's own work is found by asking, not by sleeping.
            self.work();
            let short = Duration::from_micros(100);
            self.inner.wait(Some(timeout.map_or(short, |t| t.min(short))));
        } else {
            self.inner.wait(timeout);
            // Then the next wait is a short one, until all of it is done.
            self.busy = self.layer.has_work();
        }
    }
    fn in_flight(&self) -> usize {
        self.slots.in_use()
    }
    fn depth(&self) -> usize {
        self.slots.depth()
    }
    fn bytes(&self) -> usize {
        self.inner.bytes() + self.slots.bytes() + self.requests.len() * (size_of::<Pending>() + 40)
    }
}

/// How long the end of a queue waits for placed writes. A device that hangs keeps these.
const LAST_WRITES: Duration = Duration::from_secs(1);

impl<L: Layer> Drop for LayeredQueue<L> {
    fn drop(&mut self) {
        let last_ns = self.clock.after(LAST_WRITES);
        let mut completions = Vec::new();
        while self.inner.in_flight() > 0 && self.clock.now_ns() < last_ns {
            self.inner.wait(Some(Duration::from_millis(1)));
            self.poll(&mut completions);
        }
        // What the layer has under way by this thread's hand may be cancelled when the thread ends.
        while self.layer.work() && self.clock.now_ns() < last_ns {
            self.clock.sleep(Duration::from_micros(100));
        }
    }
}
