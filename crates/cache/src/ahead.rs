//! Writing ahead of eviction: changed frames that will be evicted next are written in idle time.

use std::ops::ControlFlow;

use fulgurite_flash::Op;
use fulgurite_format::{FrameIndex, LocalFrame};
use fulgurite_policy::{ColdCursor, Replacement};

use crate::cache::Cache;
use crate::marks::{DIRTY, USED};
use crate::primitive::Ordering;
use crate::request::Purpose;
use crate::users::Users;

/// Frames that are written ahead of eviction at a time.
const AHEAD: usize = 16;
/// One frame in this many is cold. A frame that is written more often than it is evicted is written
/// in vain.
const COLD_SHARE: usize = 4;

/// Steps of one search for such frames, a few microseconds at most.
const AHEAD_CHECKS: usize = 128;
/// The pause after a round over all cold frames found nothing. A round over 16 GiB takes 3 ms.
const AHEAD_REST_NS: u64 = 50_000_000;

/// What a look for frames to write ahead came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ahead {
    /// There may be more to do, once mail and arrivals have been handled.
    Again,
    /// Not before this time, in nanoseconds of the clock.
    After(u64),
    /// There is nothing to do before something has run.
    Nothing,
}

/// Where the round over the cold frames stands that looks for what to write ahead.
pub(crate) struct AheadRound {
    at: ColdCursor,
    /// Frames that it has checked.
    checked: usize,
    found: bool,
    /// Turns of all workers when it began.
    begun_at: u64,
    /// Turns of all workers when the last round ended that found nothing. While nothing has run
    /// since, nothing was written.
    quiet_at: Option<u64>,
    rest_until_ns: u64,
}

impl AheadRound {
    pub(crate) const NEW: AheadRound =
        AheadRound { at: ColdCursor::START, checked: 0, found: false, begun_at: 0, quiet_at: None, rest_until_ns: 0 };
}

impl<U: Users, R: Replacement> Cache<U, R> {
    /// Writes back changed frames that will be evicted next, while worker and medium are idle.
    /// Evictions then find them clean, and a sync has less to write. A call checks a few frames, so
    /// that mail and arrivals do not wait. `turns` changes whenever code ran that may have written,
    /// on any worker.
    pub fn write_ahead(&mut self, turns: u64, now_ns: u64) -> Ahead {
        if self.shared.cut.holds_back() || !self.has_room_to_write() || now_ns < self.retry_ns {
            return Ahead::Nothing;
        }
        if self.ahead.quiet_at == Some(turns) {
            return Ahead::Nothing;
        }
        if now_ns < self.ahead.rest_until_ns {
            return Ahead::After(self.ahead.rest_until_ns);
        }
        let (first, shared) = (self.first_frame, self.shared.clone());
        let (mut chosen, mut count) = ([LocalFrame(0); AHEAD], 0);
        let mut looks = 0;
        let mut look = |local: LocalFrame| {
            looks += 1;
            let marks = shared.frames.marks(FrameIndex(first.0 + local.0));
            let idle = marks.dirty.load(Ordering::Relaxed) == DIRTY
                && marks.pins.load(Ordering::Relaxed) == 0
                && marks.referenced.load(Ordering::Relaxed) & USED == 0;
            if idle && self.held[local.index()].linked && marks.begin_write() {
                chosen[count] = local;
                count += 1;
            }
            if count < AHEAD { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let round = &mut self.ahead;
        if round.at == ColdCursor::START {
            (round.begun_at, round.checked, round.found) = (turns, 0, false);
        }
        round.at = self.replacement.coldest(round.at, AHEAD_CHECKS, &mut look);
        round.checked += looks;
        self.counts.looks_ahead += looks as u64;
        if round.checked >= self.frame_limit as usize / COLD_SHARE {
            round.at = ColdCursor::START;
        }
        let begun = count > 0 && self.write_chosen(&chosen[..count], now_ns);
        let round = &mut self.ahead;
        round.found |= begun;
        // A frame in use counts as nothing: its user will have run by the time it lets go.
        if round.at == ColdCursor::START && !round.found {
            round.quiet_at = Some(round.begun_at);
            round.rest_until_ns = now_ns + AHEAD_REST_NS;
        }
        Ahead::Again
    }

    /// Writes these frames, which are marked as being written, except those in use. Returns whether
    /// any was begun.
    fn write_chosen(&mut self, chosen: &[LocalFrame], now_ns: u64) -> bool {
        let (first, shared) = (self.first_frame, self.shared.clone());
        let mut begun = false;
        // A worker may have read the mark just before: then it still holds the frame.
        let frames = chosen.iter().map(|local| FrameIndex(first.0 + local.0));
        self.counts.barriers += u64::from(self.users.take_away(&shared.frames, frames));
        for &local in chosen {
            let frame = self.frame(local);
            let marks = shared.frames.marks(frame);
            // Undone: the frame is as dirty as before, and writes to it do not wait for this one.
            let Some(used) = marks.second_check(|| self.users.holds(frame)) else { continue };
            if used || !self.has_room_to_write() {
                marks.dirty.store(DIRTY, Ordering::Release);
                continue;
            }
            shared.pin(frame);
            self.writing += 1;
            self.counts.written_ahead += 1;
            self.submit(Op::Write, self.held[local.index()].subpage, frame, Purpose::Ahead, now_ns);
            begun = true;
        }
        begun
    }
}
