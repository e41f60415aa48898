//! Moves a store's own requests over a queue: reads and writes of metadata, copies, flushes, through frames of its own.
//!
//! What reclaim copies lands side by side, so the writes of copies wait for each other: a medium makes one request of neighbours that
//! it is handed together. Invariant: a copy waits only while another one is being read.

use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{Completion, Flash, FlashError, Op, OpenError, Queue, Request};
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

/// Copies that are written together where more are being read: the others go on meanwhile.
const COPIES_TOGETHER: usize = 8;

#[derive(Debug)]
struct Task {
    id: IoId,
    io: Io,
    frame: u32,
    checksum: u32,
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
    free: Vec<u32>,
    tasks: Vec<Option<Task>>,
    /// Requests that have ended, and of which the store was not told yet.
    completions: Vec<Completion>,
    /// Copies that are being read.
    reading: usize,
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
    /// With so many requests at a time, over a queue of its own.
    ///
    /// # Errors
    /// When there is no memory or no queue.
    pub fn new(flash: &dyn Flash, depth: usize) -> Result<Driver, DriverError> {
        Driver::that_checks(flash, depth, true)
    }
    /// The same; says whether it makes checksums of what it copies. Else they are 0.
    pub(crate) fn that_checks(flash: &dyn Flash, depth: usize, checks: bool) -> Result<Driver, DriverError> {
        let frames = Arc::new(Arena::anonymous(depth * SUBPAGE_BYTES, Backed::BasePages)?);
        let mut queue = flash.open_queue_for_any_thread(frames.clone(), depth, Arc::new(Notifier::new()?))?;
        queue.use_frames(0..depth as u32);
        Ok(Driver {
            checks,
            medium_checks: checks && queue.want_checksums(),
            queue,
            frames,
            flash_pages: flash.subpages(),
            free: (0..depth as u32).rev().collect(),
            tasks: (0..depth).map(|_| None).collect(),
            completions: Vec::with_capacity(depth),
            reading: 0,
            copied: Vec::with_capacity(depth),
            waiting: None,
            ahead: Vec::new(),
        })
    }
    /// DRAM of frames and rings.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.frames.len() + self.queue.bytes()
    }
    /// Requests in flight.
    #[must_use]
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

    /// Whether a turn would find that a request has ended.
    pub(crate) fn has_news(&mut self) -> bool {
        let mut completions = std::mem::take(&mut self.completions);
        let news = !completions.is_empty() || self.queue.poll(&mut completions) > 0;
        self.completions = completions;
        news
    }
    /// Hands over what the store wants, as far as there are frames, and gives it what has ended. Never blocks. Returns how many
    /// requests have ended.
    ///
    /// # Errors
    /// When the medium takes nothing more.
    pub fn turn(&mut self, store: &mut Store) -> Result<usize, FlashError> {
        let mut ended = 0;
        loop {
            while !self.free.is_empty() {
                let Some((id, io)) = self.waiting.take().or_else(|| store.next_io()) else { break };
                let frame = self.free.pop().expect("seen above");
                let (op, place) = match &io {
                    Io::Write { place, page } => {
                        self.frames.write(Self::frame_of(frame), &page[..]);
                        (Op::Write, *place)
                    }
                    Io::Read { place } => (Op::Read, *place),
                    Io::Copy { from, .. } => {
                        self.reading += 1;
                        (Op::Read, *from)
                    }
                    Io::Flush => (Op::Flush, 0),
                };
                self.submit(op, place, frame);
                self.tasks[frame as usize] = Some(Task { id, io, frame, checksum: 0 });
            }
            if self.reading == 0 || self.copied.len() >= COPIES_TOGETHER {
                while let Some((frame, place)) = self.copied.pop() {
                    self.submit(Op::Write, place, frame);
                }
            }
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
        let Some(mut task) = self.tasks[completion.tag as usize].take() else { return false };
        if matches!(task.io, Io::Copy { from, .. } if from != u32::MAX) {
            self.reading -= 1;
        }
        let outcome = match (completion.result, &mut task.io) {
            // Its reading has ended well.
            (Err(e), Io::Copy { from: u32::MAX, .. }) => Outcome::NotWritten(e),
            (Err(e), _) => Outcome::Failed(e),
            (Ok(()), Io::Write { .. } | Io::Flush) => Outcome::Done,
            (Ok(()), Io::Read { .. }) => Outcome::Read(self.page(task.frame)),
            (Ok(()), Io::Copy { from, to }) if *from != u32::MAX => {
                // Without any, the medium says 0.
                let said = self.medium_checks || !self.checks;
                task.checksum = if said { completion.checksum } else { self.checksum(task.frame) };
                *from = u32::MAX;
                let (to, frame) = (*to, task.frame);
                self.copied.push((frame, to));
                self.tasks[frame as usize] = Some(task);
                return false;
            }
            (Ok(()), Io::Copy { .. }) => Outcome::Copied(task.checksum),
        };
        self.free.push(task.frame);
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
    /// Writes pages and flushes: a new pool.
    ///
    /// # Errors
    /// The first that fails.
    pub fn write_all(&mut self, pages: Vec<(u32, PageBuffer)>) -> Result<(), FlashError> {
        for (place, page) in pages {
            let frame = *self.free.last().expect("nothing is in flight");
            self.frames.write(Self::frame_of(frame), &page[..]);
            self.one(Op::Write, place, frame)?;
            // In this order, whatever the device does.
            self.one(Op::Flush, 0, frame)?;
        }
        Ok(())
    }
    fn one(&mut self, op: Op, place: u32, frame: u32) -> Result<(), FlashError> {
        self.submit(op, place, frame);
        self.queue.flush()?;
        loop {
            self.completions.clear();
            let mut completions = std::mem::take(&mut self.completions);
            self.queue.poll(&mut completions);
            let result = completions.first().map(|c| c.result);
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
            for c in completions.drain(..) {
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
