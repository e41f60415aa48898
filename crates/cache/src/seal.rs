//! What a cut does to the frames of a cache: seals, writes and copies them. A roll back forgets
//! them all.
//!
//! A *sealed* frame holds a state that the token needs and flash has not. A write to it copies it
//! first, or waits while its bytes are on their way. Pinned frames may be written at any moment, so
//! they are copied while all workers are halted. Writes after the cut must not reach flash before
//! the token is named: their frames are not evicted until then.
//!
//! Invariants:
//! * Marks become [`SEALED`] only while all workers are halted. Later changes are by
//!   compare-and-swap.
//! * A sealed frame is written exactly once: by the pump, by its eviction, or as a copy.
//!   [`Cut::left`](crate::cut::Cut::left) counts unwritten ones, and write-backs under way at the
//!   cut.
//! * A frame that is pinned is neither sealed nor being written from where it is.

use fulgurite_flash::{Backing, FlashError, Op};
use fulgurite_format::{FrameIndex, LocalFrame};
use fulgurite_policy::Replacement;

use crate::cache::{Cache, Held, Outcome, Wait};
use crate::marks::{ASKS, CLEAN, COPYING, DIRTY, READ_ONLY, SEALED, WRITING, has_changes};
use crate::planted::Planted;
use crate::primitive::Ordering;
use crate::request::Purpose;
use crate::residency::State;
use crate::shared::Shared;
use crate::users::Users;

/// The most writes of sealed frames under way: six requests of 256 KiB. Ends are recorded in
/// batches, and the medium must not run dry meanwhile.
const PUMP_DEPTH: usize = 384;
/// The most while a waiter waits for a read, which then is not behind many of them.
const PUMP_DEPTH_WITH_READS: usize = 96;
/// Writes that begin together, so that they become large requests.
const PUMP_BATCH: usize = 64;

/// What makes a frame writable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writer {
    /// It waits for a sync that makes room, where there is none.
    MayWait,
    /// The sync waits for this writer, so it is refused at once where there is no room.
    HoldsUpSync,
    /// It is a part of the sync.
    OfSync,
}

/// Whether a frame may be written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsealed {
    /// Now.
    Yes,
    /// In a moment: ask again.
    Later,
    /// Its page has no permission.
    Never,
    /// The medium has no room for one more change.
    Refused(FlashError),
}

/// What a cut found in a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    /// The sealed frames, with the subpage in the upper half of each word, so that sorting joins
    /// neighbours. The store then records neighbours together, wherever their frames are. The cache
    /// writes none before they come back sorted ([`Cache::begin_pump`]).
    pub order: Vec<u64>,
    /// How many.
    pub sealed: u64,
    /// Pinned frames to copy or write before anything runs ([`Cache::write_pinned`]).
    pub pinned: Vec<LocalFrame>,
}

/// A sealed frame, for [`Sealed::order`].
fn sealed_at(subpage: u32, local: LocalFrame) -> u64 {
    u64::from(subpage) << 32 | u64::from(local.0)
}

impl Shared {
    /// Makes a frame writable whose mark asks for it. A sealed one stays sealed until it was
    /// written ([`Unsealed::Later`]). The caller holds the frame.
    pub fn ask_to_write(&self, subpage: u32, frame: FrameIndex, writer: Writer) -> Unsealed {
        let marks = self.frames.marks(frame);
        let seen = marks.dirty.load(Ordering::Acquire);
        if seen <= DIRTY {
            return Unsealed::Yes;
        }
        if seen == READ_ONLY {
            return Unsealed::Never;
        }
        if seen != ASKS {
            return Unsealed::Later;
        }
        match self.backing().map_or(Ok(()), |backing| backing.begin_change(subpage, writer == Writer::OfSync)) {
            Ok(()) => {
                marks.allow_writes();
                Unsealed::Yes
            }
            // The sync that is being written makes room.
            Err(_) if self.cut.makes_room() => Unsealed::Later,
            Err(FlashError::NoSpace)
                if writer == Writer::MayWait && self.backing().is_some_and(Backing::waits_for_room) =>
            {
                Unsealed::Later
            }
            Err(error) => Unsealed::Refused(error),
        }
    }
}

impl<U: Users, R: Replacement> Cache<U, R> {
    /// Seals all dirty frames but pinned ones, while all workers are halted, after
    /// [`Cut::hold_back`]. From here on the cache counts ending writes as the cut's.
    ///
    /// [`Cut::hold_back`]: crate::cut::Cut::hold_back
    pub fn seal(&mut self) -> Sealed {
        let (mut sealed, mut pinned) = (0, Vec::new());
        let mut order = std::mem::take(&mut self.pump_order);
        order.clear();
        self.users.note_written(&self.shared.frames, self.first_frame, self.end());
        for local in self.dirty() {
            let marks = self.shared.frames.marks(self.frame(local));
            if marks.dirty.load(Ordering::Relaxed) == WRITING {
                // On its way already, and counted with what is.
                continue;
            }
            if marks.pins.load(Ordering::Relaxed) == 0 {
                marks.dirty.store(SEALED, Ordering::Relaxed);
                order.push(sealed_at(self.held[local.index()].subpage, local));
                sealed += 1;
            } else {
                pinned.push(local);
            }
        }
        self.pump_at = 0;
        if self.shared.has_planted(Planted::PinnedLeftOut) {
            pinned.clear();
        }
        // What is being written already is part of the state, too.
        self.shared.cut.add(sealed + pinned.len() as u64 + self.writing as u64);
        self.counts.sealed += sealed;
        Sealed { order, sealed, pinned }
    }

    /// Copies frames that were dirty and pinned at the cut, or writes them where no frame is free.
    /// Workers are still halted. They continue to poll, because a medium may need another queue to
    /// make room.
    pub fn write_pinned(&mut self, pinned: &[LocalFrame], now_ns: u64, wait: Wait<'_, U, R>) {
        for &local in pinned {
            let (frame, subpage) = (self.frame(local), self.held[local.index()].subpage);
            if self.free.is_empty() || !self.has_room_to_write() {
                self.write_now(subpage, frame, now_ns, wait);
            } else {
                self.write_copy(subpage, frame, now_ns);
            }
        }
        self.counts.copied += pinned.len() as u64;
    }

    /// Writes a pinned frame from where it is and waits, because no frame is free for a copy.
    /// Nothing runs meanwhile.
    fn write_now(&mut self, subpage: u32, frame: FrameIndex, mut now_ns: u64, wait: Wait<'_, U, R>) {
        while !self.has_room_to_write() {
            match wait(self) {
                Ok(now) => now_ns = now,
                Err(error) => {
                    self.one_less_for_cut(Err(error));
                    return;
                }
            }
        }
        self.shared.pin(frame);
        self.writing += 1;
        self.submit(Op::Write, subpage, frame, Purpose::WriteInPlace, now_ns);
        // Completions come in any order: all that this cache has under way has to end.
        while self.writing > 0 {
            if let Err(error) = wait(self) {
                // The write is still under way and counted. The job may now write to the frame, so
                // what reaches the medium is part of no state.
                self.shared.cut.failed(error);
                return;
            }
        }
    }

    /// Copies a frame to a free one and writes that. The caller has checked for both, and for a
    /// request.
    fn write_copy(&mut self, subpage: u32, frame: FrameIndex, now_ns: u64) {
        let copy = self.free.pop().expect("the caller has checked");
        self.shared.frames.copy(frame, copy);
        self.writing += 1;
        self.submit(Op::Write, subpage, copy, Purpose::Copied, now_ns);
    }

    /// Takes sealed frames in the order in which to write them.
    pub fn begin_pump(&mut self, order: Vec<u64>) {
        (self.pump_order, self.pump_at) = (order, 0);
    }

    /// Whether there are sealed frames that [`Cache::pump`] has not passed yet.
    #[inline]
    pub fn has_to_pump(&self) -> bool {
        self.pump_at < self.pump_order.len()
    }

    /// Starts a batch of writes of sealed frames. They get three quarters of the requests, half of
    /// those while somebody reads. A few requests stay for copies.
    pub fn pump(&mut self, now_ns: u64) {
        let end = self.pump_order.len();
        if self.pump_at >= end {
            return;
        }
        let reading = self.in_flight() > self.writing;
        let (most, share) = if reading { (PUMP_DEPTH_WITH_READS, 3) } else { (PUMP_DEPTH, 6) };
        let depth = most.min(self.requests.len() * share / 8).max(1);
        if depth.saturating_sub(self.pumped) < PUMP_BATCH.min(depth / 2).max(1) {
            return;
        }
        while self.pump_at < end && self.pumped < depth && self.has_room_to_copy() {
            let local = LocalFrame(self.pump_order[self.pump_at] as u32);
            self.pump_at += 1;
            let frame = self.frame(local);
            let dirty = &self.shared.frames.marks(frame).dirty;
            if dirty.load(Ordering::Relaxed) == SEALED
                && dirty.compare_exchange(SEALED, WRITING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                debug_assert!(self.held[local.index()].linked, "a sealed frame holds something");
                self.shared.pin(frame);
                self.writing += 1;
                self.pumped += 1;
                let subpage = self.held[local.index()].subpage;
                self.submit(Op::Write, subpage, frame, Purpose::Sealed, now_ns);
            }
        }
    }

    /// How many frames differ from the medium, or may without asking it: pinned ones, and those
    /// under way there.
    pub fn count_changes(&mut self) -> u64 {
        // From here on it is asked for all that do not.
        let _ = self.mark_of_clean();
        self.users.note_written(&self.shared.frames, self.first_frame, self.end());
        let differs = |&local: &LocalFrame| {
            let marks = self.shared.frames.marks(self.frame(local));
            self.held[local.index()].linked
                && (has_changes(marks.dirty.load(Ordering::Relaxed)) || marks.pins.load(Ordering::Relaxed) > 0)
        };
        (self.locals().filter(differs).count() + self.write_backs()) as u64
    }

    /// Makes a sealed frame, of any cache, writable. The caller holds the frame.
    pub fn unseal(&mut self, subpage: u32, frame: FrameIndex, writer: Writer, now_ns: u64) -> Unsealed {
        let shared = self.shared.clone();
        let unsealed = shared.ask_to_write(subpage, frame, writer);
        let dirty = &shared.frames.marks(frame).dirty;
        let is_sealed = unsealed == Unsealed::Later && dirty.load(Ordering::Relaxed) == SEALED;
        if !is_sealed || self.free.is_empty() || !self.has_room_to_copy() {
            return unsealed;
        }
        // One more change than the one that is being written.
        if shared.backing().is_some_and(|backing| backing.asks() && backing.begin_change(subpage, false).is_err()) {
            return Unsealed::Later;
        }
        if dirty.compare_exchange(SEALED, COPYING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            if shared.has_planted(Planted::NotCopied) {
                self.one_less_for_cut(Ok(()));
            } else {
                self.write_copy(subpage, frame, now_ns);
            }
            self.counts.copied += 1;
            dirty.store(DIRTY, Ordering::Release);
            return Unsealed::Yes;
        }
        Unsealed::Later
    }

    /// The write of a sealed frame from where it is has ended.
    pub(crate) fn sealed_written(&mut self, frame: FrameIndex, result: Result<(), FlashError>) {
        self.pumped -= 1;
        self.written_from_place(frame, result);
    }

    /// The write of a frame that nobody could write to meanwhile has ended.
    pub(crate) fn written_from_place(&mut self, frame: FrameIndex, result: Result<(), FlashError>) {
        self.writing -= 1;
        self.shared.unpin(frame);
        self.counts.write_errors += u64::from(result.is_err());
        // It has contents on flash now, and is not "fresh" when it is evicted.
        if !self.shared.has_planted(Planted::StaysFresh) {
            let local = self.local(frame);
            self.held[local.index()].fresh &= result.is_err();
        }
        let mark = if result.is_err() { DIRTY } else { self.mark_of_clean() };
        self.shared.frames.marks(frame).dirty.store(mark, Ordering::Release);
    }

    /// The write of a copy has ended; the frame that it was copied from is dirty in any case.
    pub(crate) fn copy_written(&mut self, copy: FrameIndex, result: Result<(), FlashError>) {
        self.writing -= 1;
        self.counts.write_errors += u64::from(result.is_err());
        self.release_frame(copy);
    }

    /// A write has ended: one that the token waits for, if a cut is being written.
    pub(crate) fn count_for_cut(&mut self, result: Result<(), FlashError>) {
        if self.shared.cut.holds_back() {
            self.one_less_for_cut(result);
        }
    }

    fn one_less_for_cut(&mut self, result: Result<(), FlashError>) {
        let result = if self.shared.has_planted(Planted::FailureUntold) { Ok(()) } else { result };
        self.cut_written |= self.shared.cut.one_ended(result);
    }

    // ---- roll back ----

    /// Waits until nothing is under way.
    ///
    /// # Errors
    /// When the medium takes longer than it may.
    pub fn let_everything_end(&mut self, wait: Wait<'_, U, R>) -> Result<(), FlashError> {
        while self.in_flight() > 0 {
            wait(self)?;
        }
        Ok(())
    }

    /// Forgets the frames' contents while all workers are halted and nothing is under way. Outcomes
    /// not yet taken become [`Outcome::Again`]. The driver sees to those taken. Waiters' pins are
    /// forgotten. With `keep_pinned`, frames under other pins stay as they are, though no access
    /// finds them.
    pub fn forget(&mut self, keep_pinned: bool) {
        for (_, outcome) in &mut self.notices {
            if *outcome == Outcome::Pinned {
                *outcome = Outcome::Again;
            }
        }
        if self.shared.has_planted(Planted::NotForgotten) {
            return;
        }
        let shared = self.shared.clone();
        for local in self.locals() {
            let frame = self.frame(local);
            let marks = shared.frames.marks(frame);
            let pinned = keep_pinned && marks.pins.load(Ordering::Relaxed) > 0;
            if self.held[local.index()].linked {
                let Held { subpage, fresh, .. } = self.held[local.index()];
                let empty = fresh && !has_changes(marks.dirty.load(Ordering::Relaxed));
                self.replacement.removed(local);
                shared.table.unlink(subpage, frame, self.id).expect("a linked frame holds its subpage");
                shared.forget_place(subpage, frame);
                self.held[local.index()].linked = false;
                shared.table.finish(subpage, self.id, if empty { State::Fresh } else { State::Absent });
                if !pinned {
                    self.release_frame(frame);
                }
            }
            if !pinned {
                marks.dirty.store(CLEAN, Ordering::Relaxed);
                marks.pins.store(0, Ordering::Relaxed);
            }
        }
    }
}
