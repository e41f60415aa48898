//! The flash interface layer: takes reads, writes and flushes of flash pages of 4 KiB, and makes
//! NAND's operations of them.
//!
//! What it expects of its caller is what the journaled store does: an extent is written in
//! ascending order, about. Each of its flash pages once, and it is used again only as a whole, from
//! its beginning. The first write to a flash page that was written before tells that its extent
//! *begins anew*: all its blocks are erased, and what was in it is gone. Only the first extents
//! ([`FilConfig::fixed_extents`]: the store's superblock) are rewritten in place.
//!
//! What becomes of a write:
//!
//! * It belongs to a page of NAND, its *home* (drawn in `layout.rs`). A home is programmed when all
//!   its flash pages are here and all homes before it in its block are programmed.
//! * Until then it is *held* in the buffer. After [`FilConfig::hold_ns`], or at a flush, what is
//!   held is programmed in the *log*, some blocks of each plane that take pages of NAND with
//!   anything in them: so it is durable, and its request ends. It stays held: when what was missing
//!   comes, its home is programmed nevertheless, and what is in the log is dead.
//! * When more is held than the buffer takes, what is held longest is programmed at home, and homes
//!   before it that are incomplete are programmed with what there is: *padded*. A flash page that
//!   comes later than that is *late*: it stays in the log.
//! * Flash pages of fixed extents have their place in the log alone.
//!
//! A block of the log is erased when nothing in it counts any more. What still counts in the block
//! that is due is moved. A block that fails at a program or an erase is replaced by a spare one
//! when its extent begins anew. Until then writes to it fail, and the store writes elsewhere.
//!
//! Invariants: each request ends exactly once. Pages of a block are programmed in order, never
//! twice between erases (the model under it checks that at each one). A flush ends after all
//! programs of what was written before it. Nothing is allocated for a request once the tables have
//! grown to what is held at a time.
//!
//! Not here: the data. The driver moves the data, when a write is submitted at the latest, and has
//! it where reads find it.

mod config;
mod home;
mod layout;
mod log;
mod program;
mod request;
mod state;

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

use crate::counters::FilCounters;
use crate::geometry::NandPage;
use crate::nand::{Command, Done, Nand, NandOp, Status};
use crate::profile::Profile;
use crate::slots::{NONE, Slots};
use config::{FLASH_PAGE_BYTES, LOG_PAGES_MAX};
pub use config::{FilConfig, FilError, StateError};
use home::Held;
use layout::Layout;
use log::{Log, Pending};
use program::{Program, purpose};
pub use request::{FlashDone, FlashOp, FlashRequest, FlashStatus};
pub use state::STATE_MAGIC;

#[derive(Clone, Copy, Debug, Default)]
struct Request {
    tag: u64,
    submitted: u64,
    write: bool,
    reclaim: bool,
}

/// Programs between two flushes.
#[derive(Clone, Copy, Debug, Default)]
struct Epoch {
    outstanding: u32,
    flush: Option<u32>,
    /// Something whose write had ended well is lost: only the flush is left to report it.
    lost: bool,
}

/// The layer.
#[derive(Debug)]
pub struct Fil {
    config: FilConfig,
    nand: Nand,
    layout: Layout,
    log: Log,
    requests: Slots<Request>,
    programs: Slots<Program>,
    /// Flash pages that were written since their extent began, a bit each.
    used: Vec<u64>,
    /// Of each extent: flash pages of it that are held or in the log.
    exceptions: Vec<u32>,
    /// Of each extent: how often it began.
    generations: Vec<u32>,
    /// What is held, by its home.
    held: HashMap<u32, Held, FixedState>,
    held_pages: u32,
    /// Homes in the order in which the first of them came to be held. Some may be programmed by
    /// now.
    order: VecDeque<u32>,
    /// What goes to the log when its time has come. Some may be programmed by now.
    pending: VecDeque<Pending>,
    /// Programs by flush: the last is open.
    epochs: VecDeque<Epoch>,
    /// The number of the first.
    first_epoch: u64,
    now: u64,
    done: Vec<FlashDone>,
    nand_done: Vec<Done>,
    counters: FilCounters,
    /// The largest number of operations of NAND that one request may bring about.
    reserve: usize,
}

impl Fil {
    /// A layer over a new device, where nothing was written.
    ///
    /// # Errors
    /// When the device does not divide so.
    pub fn new(profile: Profile, config: FilConfig) -> Result<Fil, FilError> {
        if !(1..=1_000_000).contains(&config.depth) {
            return Err(FilError::Depth(config.depth));
        }
        let g = profile.geometry;
        // All that is held may be in the log at the same time. More blocks than a plane has are
        // refused below.
        let planes_log = u64::from(g.planes()) * u64::from(config.log_blocks.max(2).min(g.blocks_per_plane()));
        let per_block = u64::from(g.pages_per_block()) * u64::from(g.flash_pages_per_page());
        let log_pages = planes_log * per_block;
        if log_pages > LOG_PAGES_MAX {
            return Err(FilError::Log { pages: log_pages });
        }
        let buffer_pages = u64::from(config.buffer_pages.min(1 << 20)).min(log_pages / 3).max(1) as u32;
        let config = FilConfig { buffer_pages, ..config };
        // An extent that begins, homes that are padded, what goes to the log, and what is moved
        // there. Bounded, all of it: 2^16 planes, 2^16 pages and 2^18 flash pages of a block, 2^20
        // of the buffer.
        let reserve = [g.planes(), g.pages_per_block(), config.buffer_pages, config.buffer_pages, 64];
        let reserve = reserve.into_iter().map(|count| count as usize).sum::<usize>() + per_block as usize;
        let depth = config.depth + 2 * reserve;
        let nand = Nand::new(profile, depth, config.seed);
        let (layout, log) = Layout::new(&nand, &config)?;
        let (extents, flash_pages) = (layout.extents as usize, layout.flash_pages() as usize);
        Ok(Fil {
            log: Log::new(g, log),
            requests: Slots::new(config.depth),
            programs: Slots::new(depth),
            used: vec![0; flash_pages.div_ceil(64)],
            exceptions: vec![0; extents],
            generations: vec![0; extents],
            held: HashMap::with_capacity_and_hasher(config.buffer_pages as usize, FixedState::default()),
            held_pages: 0,
            order: VecDeque::with_capacity(1024),
            pending: VecDeque::with_capacity(1024),
            epochs: VecDeque::from([Epoch::default()]),
            first_epoch: 0,
            now: 0,
            done: Vec::with_capacity(config.depth),
            nand_done: Vec::with_capacity(depth),
            counters: FilCounters::default(),
            reserve,
            config,
            nand,
            layout,
        })
    }

    // ---- what it is ----

    /// Flash pages that it offers.
    #[must_use]
    pub fn flash_pages(&self) -> u32 {
        self.layout.flash_pages()
    }
    /// Flash pages of an extent: the store above must have extents of this size.
    #[must_use]
    pub fn extent_pages(&self) -> u32 {
        self.layout.extent_pages
    }
    /// Extents.
    #[must_use]
    pub fn extents(&self) -> u32 {
        self.layout.extents
    }
    /// Spare blocks that are left.
    #[must_use]
    pub fn spare_blocks(&self) -> usize {
        self.layout.spares()
    }
    /// The device below.
    #[must_use]
    pub fn nand(&self) -> &Nand {
        &self.nand
    }
    /// What it has done.
    #[must_use]
    pub fn counters(&self) -> &FilCounters {
        &self.counters
    }
    /// Requests that have not ended, or whose end was not fetched.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.requests.taken() + self.done.len()
    }
    /// The time up to which it has worked.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now
    }
    /// DRAM that it takes, the model of the device included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.nand.bytes()
            + self.layout.bytes()
            + self.log.bytes()
            + self.used.len() * 8
            + self.exceptions.len() * 8
            + self.held.capacity() * (size_of::<Held>() + 8)
            + (self.programs.room() + self.programs.taken()) * (size_of::<Program>() + size_of::<Done>() + 4)
            + self.config.depth * (size_of::<Request>() + size_of::<FlashDone>() + 4)
    }

    // ---- requests ----

    /// Takes one request at a time. A time before an earlier call's time counts as that time.
    /// Requests of one batch have the same time, and [`Fil::advance`] is called behind them,
    /// because it gathers what came before it.
    ///
    /// # Errors
    /// [`FilError::Full`] when too many are under way, [`FilError::OutOfRange`] where there is no
    /// such flash page. Nothing has happened then.
    pub fn submit(&mut self, now_ns: u64, request: FlashRequest) -> Result<(), FilError> {
        let FlashRequest { tag, op, flash_page, reclaim } = request;
        if op != FlashOp::Flush && flash_page >= self.flash_pages() {
            return Err(FilError::OutOfRange(flash_page, self.flash_pages()));
        }
        // What is due at this very time waits for the batch that it may belong to.
        self.run(now_ns, false);
        // A read is at most one operation.
        let reserve = if op == FlashOp::Read { self.reserve } else { 2 * self.reserve };
        if self.nand.room() < reserve {
            return Err(FilError::Full);
        }
        let write = op == FlashOp::Write;
        let number = self.requests.take(Request { tag, submitted: self.now, write, reclaim }).ok_or(FilError::Full)?;
        match op {
            FlashOp::Read => self.read(number, flash_page, reclaim),
            FlashOp::Write => self.write(number, flash_page, reclaim),
            FlashOp::Flush => self.flush(number),
        }
        Ok(())
    }
    /// The first `pages` flash pages of an extent were written before this layer was made: for a
    /// device that is opened again, whose data is there and whose model is not. Reads take their
    /// time from then on, the rest of the extent may still be written, and the next write to what
    /// is there begins it anew. Wear begins with the model.
    ///
    /// # Errors
    /// [`FilError::OutOfRange`] when there is no such extent, or it has fewer flash pages.
    ///
    /// # Panics
    /// When something of the extent was written since the layer was made.
    pub fn assume_written(&mut self, extent: u32, pages: u32) -> Result<(), FilError> {
        if extent >= self.extents() || pages > self.extent_pages() {
            return Err(FilError::OutOfRange(extent.saturating_mul(self.extent_pages()), self.flash_pages()));
        }
        let first = extent * self.extent_pages();
        assert!((first..first + self.extent_pages()).all(|page| !self.is_used(page)), "extent {extent} was written");
        (first..first + pages).for_each(|page| self.set_used(page));
        if extent >= self.config.fixed_extents {
            let wide = pages.div_ceil(self.layout.per_page);
            for column in 0..self.layout.width {
                let rows = (wide + self.layout.width - 1 - column) / self.layout.width;
                self.nand.assume_programmed(self.layout.block(extent, column), rows);
            }
        }
        Ok(())
    }
    /// Works up to a time, and appends what has ended until then.
    pub fn advance(&mut self, now_ns: u64, done: &mut Vec<FlashDone>) {
        self.run(now_ns, true);
        done.append(&mut self.done);
    }
    /// When to call [`Fil::advance`] again: something may have ended then, or must be begun. None
    /// while nothing is under way.
    #[must_use]
    pub fn next_event_ns(&self) -> Option<u64> {
        if !self.done.is_empty() {
            return Some(self.now);
        }
        match (self.pending.front(), self.nand.next_event_ns()) {
            (Some(pending), Some(next)) => Some(next.min(pending.due)),
            (Some(pending), None) => Some(pending.due),
            (None, next) => next,
        }
    }
    /// Checks that what it keeps agrees.
    ///
    /// # Panics
    /// When it does not.
    pub fn check(&self) {
        self.nand.check();
        let held: u32 = self.held.values().map(|held| held.present.count_ones()).sum();
        assert_eq!(held, self.held_pages, "flash pages that are held");
        assert!(self.held_pages <= self.config.buffer_pages, "no more is held than the buffer takes");
        let mut exceptions = vec![0; self.exceptions.len()];
        for held in self.held.values() {
            exceptions[held.extent as usize] += held.present.count_ones();
        }
        self.log.pages().for_each(|page| exceptions[(page / self.layout.extent_pages) as usize] += 1);
        assert_eq!(exceptions, self.exceptions, "flash pages that are not only at home");
        for (home, held) in &self.held {
            let page = NandPage(*home);
            let block = self.layout.geometry.block_of(page);
            assert!(self.layout.geometry.index_of(page) >= self.nand.next_page(block), "{held:?} was programmed");
        }
        self.log.check();
        let outstanding: u32 = self.epochs.iter().map(|epoch| epoch.outstanding).sum();
        assert!(
            outstanding as usize <= self.programs.taken() + self.log.waiting(),
            "programs that flushes wait for are under way"
        );
        assert_eq!(self.nand.counters().violations, 0, "no rule of NAND was broken");
    }

    // ---- inside ----

    /// Works up to a time. What is due then only where that is included.
    fn run(&mut self, now_ns: u64, included: bool) {
        let limit = now_ns.max(self.now);
        loop {
            let due = self.pending.front().map(|pending| pending.due);
            let due = due.filter(|due| *due < limit || (included && *due == limit));
            let mut done = std::mem::take(&mut self.nand_done);
            let any = self.nand.advance_to_next(due.unwrap_or(limit), &mut done);
            self.now = self.now.max(self.nand.now_ns());
            done.iter().for_each(|done| self.ended(done));
            done.clear();
            self.nand_done = done;
            if any {
                continue;
            }
            if due.is_none() {
                return;
            }
            self.log_pending(self.now);
        }
    }
    /// An operation of NAND has ended.
    fn ended(&mut self, done: &Done) {
        let number = done.tag as u32;
        match done.tag & purpose::MASK {
            purpose::READ => {
                let status = match done.status {
                    Status::Corrected(bits) => FlashStatus::Corrected(bits),
                    Status::Uncorrectable => FlashStatus::Uncorrectable,
                    _ => FlashStatus::Ok,
                };
                self.counters.read_failures += u64::from(status == FlashStatus::Uncorrectable);
                let own = self.requests[number].reclaim;
                self.counters.reads_blocked_by_reclaim += u64::from(done.blocked_by_reclaim);
                self.counters.reclaim_reads_blocked += u64::from(own && done.blocked_by_reclaim);
                self.finish(number, status, done.blocked_by_reclaim);
            }
            purpose::PROGRAM => self.programmed(number, done.status == Status::Ok),
            purpose::MOVE => self.moved(number, done.status != Status::Uncorrectable),
            _ => {}
        }
    }
    fn finish(&mut self, number: u32, status: FlashStatus, blocked_by_reclaim: bool) {
        let Request { tag, submitted, write, .. } = self.requests[number];
        self.requests.give_back(number);
        self.counters.write_failures += u64::from(write && status == FlashStatus::WriteFailed);
        self.done.push(FlashDone { tag, status, submitted_ns: submitted, done_ns: self.now, blocked_by_reclaim });
    }
    fn extent_of(&self, flash_page: u32) -> usize {
        self.layout.extent_of(flash_page) as usize
    }
    fn is_used(&self, flash_page: u32) -> bool {
        self.used[flash_page as usize / 64] & (1 << (flash_page % 64)) != 0
    }
    fn read(&mut self, number: u32, flash_page: u32, reclaim: bool) {
        self.counters.reads += 1;
        let home = self.layout.home(flash_page);
        let mut place = (home.page, home.slot);
        if !self.is_used(flash_page) {
            self.counters.empty_reads += 1;
            return self.finish(number, FlashStatus::Ok, false);
        }
        let g = self.layout.geometry;
        let logged = if self.exceptions[home.extent as usize] > 0 { self.log.find(flash_page) } else { None };
        if let Some(logged) = logged {
            place = logged;
        } else if home.extent < self.config.fixed_extents
            || g.index_of(home.page) >= self.nand.next_page(g.block_of(home.page))
        {
            self.counters.buffer_reads += 1;
            return self.finish(number, FlashStatus::Ok, false);
        }
        self.counters.reclaim_reads += u64::from(reclaim);
        let op = NandOp::Read { page: place.0, offset: place.1 * FLASH_PAGE_BYTES, bytes: FLASH_PAGE_BYTES };
        if !self.operate(purpose::READ | u64::from(number), op, reclaim) {
            self.counters.read_failures += 1;
            self.finish(number, FlashStatus::Uncorrectable, false);
        }
    }
    fn flush(&mut self, number: u32) {
        self.counters.flushes += 1;
        self.log_pending(u64::MAX);
        self.epochs.back_mut().expect("one is open").flush = Some(number);
        self.epochs.push_back(Epoch::default());
        self.end_flushes();
    }
    fn end_flushes(&mut self) {
        while let Some(Epoch { outstanding: 0, flush: Some(number), lost }) = self.epochs.front().copied() {
            self.epochs.pop_front();
            self.first_epoch += 1;
            self.finish(number, if lost { FlashStatus::WriteFailed } else { FlashStatus::Ok }, false);
        }
    }
    /// What had ended well, in an epoch, is lost: the flushes that were to wait for it fail, or the
    /// next one.
    fn lose(&mut self, epoch: u64) {
        self.counters.write_failures += 1;
        let (first, now) = ((epoch - self.first_epoch) as usize, self.epochs.len() - 1);
        for epoch in self.epochs.range_mut(first..now.max(first + 1)) {
            epoch.lost = true;
        }
    }
    /// The number of the epoch that programs belong to now.
    fn epoch(&self) -> u64 {
        self.first_epoch + self.epochs.len() as u64 - 1
    }
    fn epoch_mut(&mut self, number: u64) -> &mut Epoch {
        &mut self.epochs[(number - self.first_epoch) as usize]
    }
    /// Gives the device an operation. Returns whether it was taken. It always is while
    /// [`Fil::submit`] keeps its reserve.
    fn operate(&mut self, tag: u64, op: NandOp, reclaim: bool) -> bool {
        let taken = self.nand.submit(self.now, Command { tag, op, reclaim });
        debug_assert_eq!(taken, Ok(()));
        taken.is_ok()
    }
    /// Programs a page of NAND.
    fn program(&mut self, page: NandPage, program: Program, reclaim: bool) {
        let number = self.programs.take(program).expect("as many as the device takes operations");
        self.epoch_mut(program.epoch).outstanding += 1;
        if !self.operate(purpose::PROGRAM | u64::from(number), NandOp::Program { page }, reclaim) {
            self.programmed(number, false);
        }
    }
    /// A page of NAND was programmed, or not.
    fn programmed(&mut self, number: u32, well: bool) {
        let program = std::mem::take(&mut self.programs[number]);
        self.programs.give_back(number);
        match (program.home, well) {
            (true, true) => self.home_programmed(&program),
            (true, false) => self.home_failed(&program),
            (false, true) => self.log_programmed(&program),
            (false, false) => self.log_failed(&program),
        }
        if well {
            for request in program.requests.into_iter().filter(|request| *request != NONE) {
                self.finish(request, FlashStatus::Ok, false);
            }
        }
        self.epoch_mut(program.epoch).outstanding -= 1;
        self.end_flushes();
        if program.moves {
            self.settle_moves();
        }
    }
}
