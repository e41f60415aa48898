//! Writing everything back, taking a range out of DRAM, and dropping its contents.

use std::ops::Range;

use fulgurite_flash::{FlashError, Op};
use fulgurite_format::{FrameIndex, LocalFrame};
use fulgurite_policy::Replacement;

use crate::cache::{Cache, Wait};
use crate::marks::{CLEAN, has_changes};
use crate::planted::Planted;
use crate::primitive::Ordering;
use crate::request::Purpose;
use crate::residency::{self, State};
use crate::users::Users;

/// What of a range is still in DRAM, or on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StillThere {
    /// Frames, and writes under way.
    pub count: u64,
    /// Of the frames, those that are pinned.
    pub pinned: u64,
}

/// Whether one of these ascending ranges has a subpage.
fn is_in(ranges: &[Range<u32>], subpage: u32) -> bool {
    let after = ranges.partition_point(|range| range.start <= subpage);
    after > 0 && subpage < ranges[after - 1].end
}

impl<U: Users, R: Replacement> Cache<U, R> {
    /// Takes subpages of ascending ranges out of DRAM: changes are written back, or dropped.
    /// Returns what could not go yet. No sync is under way.
    pub fn take_out(&mut self, ranges: &[Range<u32>], write_back: bool, now_ns: u64) -> StillThere {
        let mut still = StillThere::default();
        for local in self.locals() {
            let subpage = self.held[local.index()].subpage;
            if !self.held[local.index()].linked || !is_in(ranges, subpage) {
                continue;
            }
            let frame = self.frame(local);
            if self.shared.frames.pins(frame).load(Ordering::Relaxed) > 0 {
                still.count += 1;
                still.pinned += 1;
                continue;
            }
            self.replacement.removed(local);
            if let Some(victim) = self.unlink(local, subpage) {
                let dirty = &self.shared.frames.marks(frame).dirty;
                if !write_back && has_changes(dirty.load(Ordering::Relaxed)) {
                    dirty.store(CLEAN, Ordering::Relaxed);
                }
                self.finish_batch(&[victim], now_ns);
            }
            still.count += u64::from(self.held[local.index()].linked);
        }
        still.count += self.writes_under_way(|subpage| is_in(ranges, subpage));
        still
    }

    /// Drops the contents of subpages, which read as zero afterwards. The driver has shut their
    /// users out. Returns what could not go yet, because it is pinned or on its way: the driver
    /// calls again later. No sync is under way.
    pub fn drop_contents(&mut self, range: &std::ops::Range<u32>) -> StillThere {
        let mut still = StillThere::default();
        for subpage in range.start..range.end.min(self.shared.table.subpages()) {
            match residency::decode(self.shared.table.word(subpage).load(Ordering::Acquire)) {
                State::Fresh => {}
                State::Busy(_) => still.count += 1,
                State::Absent => match self.shared.table.begin(subpage, self.id) {
                    Ok(_) => self.shared.table.finish(subpage, self.id, State::Fresh),
                    Err(_) => still.count += 1,
                },
                State::Resident(frame) | State::Prefetched(frame) => {
                    if self.shared.frames.pins(frame).load(Ordering::Relaxed) > 0 {
                        still.count += 1;
                        still.pinned += 1;
                        continue;
                    }
                    let local = self.local(frame);
                    self.replacement.removed(local);
                    if self.unlink(local, subpage).is_none() {
                        still.count += 1;
                        continue;
                    }
                    self.users.dropped(frame);
                    self.shared.frames.marks(frame).dirty.store(CLEAN, Ordering::Relaxed);
                    self.shared.table.finish(subpage, self.id, State::Fresh);
                    self.release_frame(frame);
                }
            }
        }
        still
    }

    /// Writes all dirty frames back, waits for them, and flushes the medium. Nothing runs on this
    /// worker meanwhile. Frames that others write to may stay dirty.
    ///
    /// # Errors
    /// The first that the medium gave.
    pub fn write_back_all(&mut self, mut now_ns: u64, wait: Wait<'_, U, R>) -> Result<(), FlashError> {
        self.first_write_failure = None;
        self.users.note_written(&self.shared.frames, self.first_frame, self.end());
        for local in Vec::from_iter(self.dirty()) {
            while !self.has_room_to_write() {
                now_ns = wait(self)?;
            }
            if self.shared.frames.pins(self.frame(local)).load(Ordering::Relaxed) == 0 {
                self.replacement.removed(local);
                if let Some(victim) = self.unlink(local, self.held[local.index()].subpage) {
                    self.finish_batch(&[victim], now_ns);
                }
            }
            if self.held[local.index()].linked {
                self.write_in_place(local, now_ns);
            }
        }
        while self.writing > 0 {
            now_ns = wait(self)?;
        }
        if let Some(error) = self.first_write_failure {
            return Err(error);
        }
        while !self.has_room() {
            now_ns = wait(self)?;
        }
        self.flush_result = None;
        self.flush_number = self.flush_number.wrapping_add(1);
        self.submit(Op::Flush, self.flush_number, self.first_frame, Purpose::Flush, now_ns);
        loop {
            wait(self)?;
            if let Some(result) = self.flush_result.take() {
                return result;
            }
        }
    }

    /// Writes a frame that is in use. It stays dirty, because it may change at any moment. The pin
    /// prevents eviction and a second write until the medium is done.
    fn write_in_place(&mut self, local: LocalFrame, now_ns: u64) {
        let (frame, subpage) = (self.frame(local), self.held[local.index()].subpage);
        self.shared.pin(frame);
        self.writing += 1;
        self.submit(Op::Write, subpage, frame, Purpose::WriteInPlace, now_ns);
    }

    pub(crate) fn written_in_place(&mut self, frame: FrameIndex, result: Result<(), FlashError>) {
        self.writing -= 1;
        if self.shared.has_planted(Planted::InPlaceIsClean) {
            self.shared.frames.marks(frame).dirty.store(CLEAN, Ordering::Relaxed);
        }
        self.shared.unpin(frame);
        if let Err(error) = result {
            self.counts.write_errors += 1;
            self.first_write_failure = self.first_write_failure.or(Some(error));
        }
    }

    /// A flush has ended; only the latest one counts.
    pub(crate) fn flushed(&mut self, number: u32, result: Result<(), FlashError>) {
        if number == self.flush_number {
            self.flush_result = Some(result);
        }
    }
}
