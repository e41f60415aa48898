//! Moves a store's own requests over a queue: metadata, copies, flushes, through frames of its own.
//!
//! Reclaim copies to neighbouring places, so the writes of copies wait for each other: a medium
//! makes one request of neighbours. The sources are neighbours, too, but for dead ones. Where the
//! medium gathers, short dead stretches are read along, for nothing.
//!
//! Invariants: a copy waits to be written only while another is being read. The last frame belongs
//! to no request, and its contents are of no use.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{Completion, Flash, FlashError, Op, OpenError, Queue, QueueUser, Request, Switches};
use fulgurite_format::{FrameIndex, PageBuffer, SUBPAGE_BYTES, SubpageIndex, crc32c, zero_page};
use fulgurite_sys::{Arena, ArenaError, Backed, Notifier};

use crate::recover::ReadPages;
use crate::store::{Io, IoId, Outcome, Store};

/// Why a driver cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// No frames.
    #[error(transparent)]
    Memory(#[from] ArenaError),
    /// No queue.
    #[error(transparent)]
    Queue(#[from] OpenError),
    /// No file descriptor.
    #[error("cannot make a file descriptor to be woken by: {0}; close some")]
    Wake(#[from] std::io::Error),
}

/// Dead flash pages between two copies that are read along: they take a disk as long as another
/// request (11 µs for a request and 4 for each subpage on a virtual disk).
const GAP_MAX: u32 = 2;
/// Copies that begin together on a gathering medium while others are under way. One by one, they
/// would never be neighbours.
const BEGUN_TOGETHER: usize = 16;
/// The tag of what is read along.
const ALONG: u64 = u64::MAX;

/// Copies that are written together where more are being read: the others go on meanwhile.
const COPIES_TOGETHER: usize = 8;

#[derive(Debug)]
struct Task {
    id: IoId,
    io: Io,
    frame: u32,
    checksum: u32,
    step: Step,
}

/// Where a request stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// There is but this.
    Only,
    /// A copy is being read.
    Reading,
    /// A copy is being written.
    Writing,
}

/// Requests of a store on their way.
pub struct Driver {
    queue: Box<dyn Queue>,
    frames: Arc<Arena>,
    flash_pages: u32,
    /// There are checksums of data.
    checks: bool,
    /// The medium says the checksums of what it moves.
    medium_checks: bool,
    /// The medium makes one request of reads of neighbours.
    medium_gathers: bool,
    /// The lowest first: frames side by side are one piece.
    free: BinaryHeap<Reverse<u32>>,
    tasks: Vec<Option<Task>>,
    /// Requests that have ended, and that the store has not been notified of yet.
    completions: Vec<Completion>,
    /// Copies that are being read, or are to be.
    reading: usize,
    /// All copies.
    copying: usize,
    /// Flash pages and frames of copies that will be, in the next batch.
    to_read: Vec<(u32, u32)>,
    /// Dead flash pages that are being read along.
    along: usize,
    /// Frames and places of copies that were read and wait to be written.
    copied: Vec<(u32, u32)>,
    waiting: Option<(IoId, Io)>,
    /// Pages read ahead during recovery, the last first.
    ahead: Vec<(u32, Result<PageBuffer, FlashError>)>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("in_flight", &self.queue.in_flight()).finish_non_exhaustive()
    }
}

impl Driver {
    /// With `depth` requests at a time, over a queue of its own.
    ///
    /// # Errors
    /// When there is no memory or no queue.
    pub fn new(flash: &dyn Flash, depth: usize) -> Result<Driver, DriverError> {
        Driver::that_checks(flash, depth, true)
    }
    /// Makes a driver, and says whether it makes checksums of what it copies. Else they are 0.
    pub(crate) fn that_checks(flash: &dyn Flash, depth: usize, checks: bool) -> Result<Driver, DriverError> {
        let frames = Arc::new(Arena::anonymous((depth + 1) * SUBPAGE_BYTES, Backed::BasePages)?);
        let gathers = flash.traits().gathers > 1;
        let in_flight = if gathers { 2 * depth } else { depth };
        let mut queue =
            flash.open_queue_for(QueueUser::AnyThread, frames.clone(), in_flight, Arc::new(Notifier::new()?))?;
        queue.use_frames(0..depth as u32 + 1);
        let heeded =
            queue.switch(Switches { gather_reads: gathers, checksums: checks, own_work: true, ..Switches::default() });
        Ok(Driver {
            checks,
            medium_checks: heeded.checksums,
            queue,
            frames,
            flash_pages: flash.subpages(),
            medium_gathers: heeded.gather_reads,
            free: (0..depth as u32).map(Reverse).collect(),
            tasks: (0..depth).map(|_| None).collect(),
            completions: Vec::with_capacity(depth),
            reading: 0,
            copying: 0,
            to_read: Vec::with_capacity(depth),
            along: 0,
            copied: Vec::with_capacity(depth),
            waiting: None,
            ahead: Vec::new(),
        })
    }
    /// DRAM of frames and rings.
    pub fn bytes(&self) -> usize {
        self.frames.len() + self.queue.bytes()
    }
    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    fn frame_of(frame: u32) -> usize {
        frame as usize * SUBPAGE_BYTES
    }
    fn submit(&mut self, op: Op, place: u32, frame: u32) {
        let request = Request { tag: frame.into(), op, subpage: SubpageIndex(place), frame: FrameIndex(frame) };
        // As many frames as the queue is deep, and a request holds one.
        self.queue.submit(request).expect("a queue as deep as there are frames");
    }

    /// Reads what is to be copied, with the next batch.
    fn begin_copy(&mut self, from: u32, frame: u32) {
        self.reading += 1;
        self.to_read.push((from, frame));
    }
    /// Begins the copies that wait for it, unless more will come.
    fn read_copies(&mut self) {
        if self.medium_gathers && self.to_read.len() < BEGUN_TOGETHER && self.copying > self.to_read.len() {
            return;
        }
        let mut to_read = std::mem::take(&mut self.to_read);
        if self.medium_gathers {
            to_read.sort_unstable();
        }
        let scratch = self.tasks.len() as u32;
        let mut before = None;
        for (from, frame) in to_read.drain(..) {
            let gap = before.map_or(0, |before| from.saturating_sub(before + 1));
            if self.medium_gathers && gap <= GAP_MAX && self.along + gap as usize <= self.tasks.len() {
                self.along += gap as usize;
                for subpage in (from - gap..from).map(SubpageIndex) {
                    let request = Request { tag: ALONG, op: Op::Read, subpage, frame: FrameIndex(scratch) };
                    self.queue.submit(request).expect("twice as deep as there are frames");
                }
            }
            self.submit(Op::Read, from, frame);
            before = Some(from);
        }
        self.to_read = to_read;
    }

    /// Whether a turn would find that a request has ended.
    pub(crate) fn poll_news(&mut self) -> bool {
        let mut completions = std::mem::take(&mut self.completions);
        let news = !completions.is_empty() || self.queue.poll(&mut completions) > 0;
        self.completions = completions;
        news
    }
    /// Hands over the store's requests, as far as there are frames, and gives it what has ended.
    /// Never blocks. Returns how many requests have ended.
    ///
    /// # Errors
    /// When the medium takes nothing more.
    pub fn turn(&mut self, store: &mut Store) -> Result<usize, FlashError> {
        let mut ended = 0;
        loop {
            while !self.free.is_empty() {
                let Some((id, io)) = self.waiting.take().or_else(|| store.next_io()) else { break };
                let Reverse(frame) = self.free.pop().expect("seen above");
                let step = match &io {
                    Io::Write { place, page } => {
                        self.frames.write(Self::frame_of(frame), &page[..]);
                        self.submit(Op::Write, *place, frame);
                        Step::Only
                    }
                    Io::Read { place } => {
                        self.submit(Op::Read, *place, frame);
                        Step::Only
                    }
                    Io::Copy { from, .. } => {
                        self.copying += 1;
                        self.begin_copy(*from, frame);
                        Step::Reading
                    }
                    Io::Flush => {
                        self.submit(Op::Flush, 0, frame);
                        Step::Only
                    }
                };
                self.tasks[frame as usize] = Some(Task { id, io, frame, checksum: 0, step });
            }
            // Those read first: a wait for everything under way includes these.
            if self.reading == self.to_read.len() || self.copied.len() >= COPIES_TOGETHER {
                while let Some((frame, place)) = self.copied.pop() {
                    self.submit(Op::Write, place, frame);
                }
            }
            self.read_copies();
            // Mostly: a turn comes with every batch of programs' writes.
            if self.queue.in_flight() == 0 && self.completions.is_empty() {
                return Ok(ended);
            }
            self.queue.flush()?;
            let mut completions = std::mem::take(&mut self.completions);
            self.queue.poll(&mut completions);
            let polled = completions.len();
            for completion in completions.drain(..) {
                ended += usize::from(self.completed(completion, store));
            }
            self.completions = completions;
            if polled == 0 {
                return Ok(ended);
            }
        }
    }
    /// Whether that was the end of a request of the store.
    fn completed(&mut self, completion: Completion, store: &mut Store) -> bool {
        if completion.tag == ALONG {
            self.along -= 1;
            return false;
        }
        let Some(mut task) = self.tasks[completion.tag as usize].take() else { return false };
        self.reading -= usize::from(task.step == Step::Reading);
        let outcome = match (completion.result, &task.io, task.step) {
            (Err(e), Io::Copy { .. }, Step::Writing) => Outcome::NotWritten(e),
            (Err(e), ..) => Outcome::Failed(e),
            (Ok(()), Io::Write { .. } | Io::Flush, _) => Outcome::Done,
            (Ok(()), Io::Read { .. }, _) => Outcome::Read(self.page(task.frame)),
            (Ok(()), &Io::Copy { to, .. }, Step::Reading) => {
                // Without any, the medium says 0.
                let said = self.medium_checks || !self.checks;
                task.checksum = if said { completion.checksum } else { self.checksum(task.frame) };
                task.step = Step::Writing;
                self.copied.push((task.frame, to));
                self.tasks[completion.tag as usize] = Some(task);
                return false;
            }
            (Ok(()), Io::Copy { .. }, _) => Outcome::Copied(task.checksum),
        };
        self.copying -= usize::from(task.step != Step::Only);
        self.free.push(Reverse(task.frame));
        store.done(task.id, outcome);
        true
    }
    fn checksum(&self, frame: u32) -> u32 {
        let mut page = [0; SUBPAGE_BYTES];
        self.frames.read(Self::frame_of(frame), &mut page);
        crc32c(&page)
    }
    fn page(&self, frame: u32) -> PageBuffer {
        let mut page = zero_page();
        self.frames.read(Self::frame_of(frame), &mut page[..]);
        page
    }
    /// Sleeps until something may have ended, at most so long.
    pub fn wait(&mut self, timeout: Duration) {
        if self.queue.in_flight() > 0 {
            self.queue.wait(Some(timeout));
        }
    }
    /// Goes on until the store has nothing under way.
    ///
    /// # Errors
    /// When the medium takes nothing more, or the pool is poisoned.
    pub fn settle(&mut self, store: &mut Store) -> Result<(), FlashError> {
        loop {
            self.turn(store)?;
            if let Some(error) = store.poisoned() {
                return Err(error);
            }
            if store.is_quiet() {
                return Ok(());
            }
            self.wait(Duration::from_millis(10));
        }
    }
    /// The medium has this number of flash pages from now on.
    pub(crate) fn medium_has(&mut self, flash_pages: u32) {
        self.flash_pages = flash_pages;
    }
    /// Writes pages and flushes: a new pool.
    ///
    /// # Errors
    /// The first that fails.
    pub fn write_all(&mut self, pages: Vec<(u32, PageBuffer)>) -> Result<(), FlashError> {
        for (place, page) in pages {
            let Reverse(frame) = *self.free.peek().expect("nothing is in flight");
            self.frames.write(Self::frame_of(frame), &page[..]);
            self.one(Op::Write, place, frame)?;
            // In this order, whatever the device does.
            self.one(Op::Flush, 0, frame)?;
        }
        Ok(())
    }
    /// Makes durable what was written by now. Nothing else may be in flight.
    pub fn flush(&mut self) -> Result<(), FlashError> {
        let Reverse(frame) = *self.free.peek().expect("nothing is in flight");
        self.one(Op::Flush, 0, frame)
    }
    fn one(&mut self, op: Op, place: u32, frame: u32) -> Result<(), FlashError> {
        self.submit(op, place, frame);
        self.queue.flush()?;
        loop {
            self.completions.clear();
            let mut completions = std::mem::take(&mut self.completions);
            self.queue.poll(&mut completions);
            self.along -= completions.iter().filter(|c| c.tag == ALONG).count();
            let result = completions.iter().find(|c| c.tag != ALONG).map(|c| c.result);
            completions.clear();
            self.completions = completions;
            match result {
                Some(result) => return result,
                None => self.queue.wait(Some(Duration::from_millis(10))),
            }
        }
    }
}

impl ReadPages for Driver {
    fn read(&mut self, place: u32, ahead: u32) -> Result<PageBuffer, FlashError> {
        if let Some((at, page)) = self.ahead.pop() {
            if at == place {
                return page;
            }
            self.ahead.clear();
        }
        let count =
            (ahead.saturating_add(1)).min(self.free.len() as u32).min(self.flash_pages.saturating_sub(place)).max(1);
        for i in 0..count {
            self.submit(Op::Read, place + i, i);
        }
        self.queue.flush()?;
        let mut pages: Vec<Option<Result<PageBuffer, FlashError>>> = (0..count).map(|_| None).collect();
        let mut left = count;
        while left > 0 {
            let mut completions = std::mem::take(&mut self.completions);
            completions.clear();
            if self.queue.poll(&mut completions) == 0 {
                self.queue.wait(Some(Duration::from_millis(10)));
            }
            self.along -= completions.iter().filter(|c| c.tag == ALONG).count();
            for c in completions.drain(..).filter(|c| c.tag != ALONG) {
                pages[c.tag as usize] = Some(c.result.map(|()| self.page(c.tag as u32)));
                left -= 1;
            }
            self.completions = completions;
        }
        let numbered = (place..).zip(pages).map(|(place, page)| (place, page.expect("all have ended")));
        self.ahead = numbered.collect();
        self.ahead.reverse();
        self.ahead.pop().expect("at least one").1
    }
    fn flash_pages(&self) -> u32 {
        self.flash_pages
    }
}

#[cfg(test)]
mod tests;
