//! Residency words: where each subpage is, in four bytes, and the only ways to change that with
//! several workers. (A lone worker does the same by plain stores: `table`.)
//!
//! ```text
//!  31        30          29     28..0 / 29..0
//! +---------+-----------+------+----------------+
//! |    1    |     0     |    frame (30 bits)    |  resident: the hit path tests the sign
//! |    0    |     1     |    frame (30 bits)    |  prefetched: resident, not touched yet
//! |    0    |     0     |  1   |   worker       |  busy: that worker reads it or writes it back
//! |    0    |     0     |  0   |   0            |  fresh: never had contents, reads as zero
//! |    0    |     0     |  0   |   1            |  absent: its contents are in flash
//! +---------+-----------+------+----------------+
//! ```
//! Zero is "fresh", so that a table of untouched memory costs nothing.
//!
//! Which component may change what:
//! * fresh, absent -> busy(w): any worker, by compare-and-swap. The winner w is the owner until it
//!   ends.
//! * resident, prefetched -> busy(w): the worker w that the frame belongs to, by compare-and-swap
//!   (unlinking).
//! * prefetched -> resident: any worker, by compare-and-swap (first touch);
//! * busy(w) -> anything: w alone.
//!
//! A hit publishes the word in its worker's slot, then loads the word again. An evictor unlinks,
//! makes every other worker execute a barrier, then reads the slots. Either it sees the slot, or
//! the hit sees the unlinked word and starts again. `loom_residency.rs` checks this on this
//! code.

use fulgurite_format::FrameIndex;

use crate::primitive::{AtomicU32, Ordering, light_barrier};

const RESIDENT: u32 = 1 << 31;
const PREFETCHED: u32 = 1 << 30;
const BUSY: u32 = 1 << 29;
const FRESH: u32 = 0;
const ABSENT: u32 = 1;

/// A slot that publishes no frame.
pub const NOTHING: u32 = 0;

/// What a residency word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// In this frame.
    Resident(FrameIndex),
    /// In this frame, and nobody has touched it there yet.
    Prefetched(FrameIndex),
    /// Being read or written back by this worker.
    Busy(u32),
    /// Never had contents.
    Fresh,
    /// In flash only.
    Absent,
}

/// Reads a word.
#[inline]
#[must_use]
pub fn decode(word: u32) -> State {
    match word {
        FRESH => State::Fresh,
        ABSENT => State::Absent,
        w if w & RESIDENT != 0 => State::Resident(FrameIndex(w & !RESIDENT)),
        w if w & PREFETCHED != 0 => State::Prefetched(FrameIndex(w & !PREFETCHED)),
        w => State::Busy(w & !BUSY),
    }
}

/// Writes a word.
#[inline]
#[must_use]
pub fn encode(state: State) -> u32 {
    match state {
        State::Resident(frame) => RESIDENT | frame.0,
        State::Prefetched(frame) => PREFETCHED | frame.0,
        State::Busy(worker) => BUSY | worker,
        State::Fresh => FRESH,
        State::Absent => ABSENT,
    }
}

/// The whole hit path: a load, a compare, a plain store, a load and a compare. Returns the word if
/// it is resident. The frame keeps its subpage until the slot changes.
#[inline(always)]
#[must_use]
pub fn hit(word: &AtomicU32, slot: &AtomicU32) -> Option<u32> {
    let seen = word.load(Ordering::Acquire);
    if (seen as i32) < 0 {
        // Release: stores through the last reference are seen before the slot that lets go of it.
        slot.store(seen, Ordering::Release);
        light_barrier();
        if word.load(Ordering::Acquire) == seen {
            return Some(seen);
        }
    }
    None
}

/// A hit where no other worker can unlink the subpage: a load and a compare.
#[inline(always)]
#[must_use]
pub fn hit_alone(word: &AtomicU32) -> Option<u32> {
    let seen = word.load(Ordering::Relaxed);
    ((seen as i32) < 0).then_some(seen)
}

/// The frame of a word that [`hit`] returned.
#[inline(always)]
#[must_use]
pub fn frame_of(resident: u32) -> FrameIndex {
    FrameIndex(resident & !RESIDENT)
}

/// Whether a slot's value protects `frame`.
#[inline]
#[must_use]
pub fn protects(slot: u32, frame: FrameIndex) -> bool {
    slot == RESIDENT | frame.0
}

/// Takes a fresh or absent subpage for `worker` to read. Returns what it was, or what it is now.
///
/// # Errors
/// The state that somebody else has changed it to.
#[inline]
pub fn begin(word: &AtomicU32, worker: u32) -> Result<State, State> {
    let seen = word.load(Ordering::Acquire);
    if seen != FRESH && seen != ABSENT {
        return Err(decode(seen));
    }
    match word.compare_exchange(seen, BUSY | worker, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(decode(seen)),
        Err(now) => Err(decode(now)),
    }
}

/// Ends `worker`'s hold on a busy subpage.
///
/// # Panics
/// When it did not hold it: the state of a page would be lost.
#[inline]
pub fn finish(word: &AtomicU32, worker: u32, state: State) {
    assert_eq!(word.load(Ordering::Relaxed), BUSY | worker, "a worker ends what it has not begun");
    word.store(encode(state), Ordering::Release);
}

/// Whether this word's subpage has been touched in `frame`. `None` if it is elsewhere.
#[inline]
#[must_use]
pub fn touched_in(word: u32, frame: FrameIndex) -> Option<bool> {
    match decode(word) {
        State::Resident(f) if f == frame => Some(true),
        State::Prefetched(f) if f == frame => Some(false),
        _ => None,
    }
}

/// Unlinks the subpage in `frame` of `worker` before eviction. Returns whether it was touched since
/// it came, or `None` if the frame no longer holds it.
#[inline]
pub fn unlink(word: &AtomicU32, frame: FrameIndex, worker: u32) -> Option<bool> {
    let seen = word.load(Ordering::Relaxed);
    let touched = touched_in(seen, frame)?;
    // A first touch may come in between (prefetched -> resident): then it is in use.
    word.compare_exchange(seen, BUSY | worker, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    Some(touched)
}

/// Turns a prefetched subpage into a resident one. Returns whether this call did it.
#[inline]
pub fn first_touch(word: &AtomicU32, frame: FrameIndex) -> bool {
    word.compare_exchange(PREFETCHED | frame.0, RESIDENT | frame.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_its_own_word() {
        let last = FrameIndex(FrameIndex::LIMIT - 1);
        let states = [
            State::Resident(FrameIndex(0)),
            State::Resident(last),
            State::Prefetched(FrameIndex(0)),
            State::Prefetched(last),
            State::Busy(0),
            State::Busy(4095),
            State::Fresh,
            State::Absent,
        ];
        for (i, a) in states.iter().enumerate() {
            assert_eq!(decode(encode(*a)), *a);
            assert!(states[..i].iter().all(|b| encode(*b) != encode(*a)));
        }
        assert_eq!(encode(State::Fresh), 0, "untouched memory is fresh");
        assert!(!protects(NOTHING, FrameIndex(0)));
    }
    #[test]
    fn a_life() {
        let (word, slot) = (AtomicU32::new(0), AtomicU32::new(NOTHING));
        assert_eq!(hit(&word, &slot), None);
        assert_eq!(begin(&word, 3), Ok(State::Fresh));
        assert_eq!(begin(&word, 4), Err(State::Busy(3)));
        finish(&word, 3, State::Prefetched(FrameIndex(7)));
        assert_eq!(hit(&word, &slot), None);
        assert!(first_touch(&word, FrameIndex(7)) && !first_touch(&word, FrameIndex(7)));
        assert_eq!(hit(&word, &slot).map(frame_of), Some(FrameIndex(7)));
        assert!(protects(slot.load(Ordering::Relaxed), FrameIndex(7)));
        assert_eq!(unlink(&word, FrameIndex(8), 3), None);
        assert_eq!(unlink(&word, FrameIndex(7), 3), Some(true));
        finish(&word, 3, State::Absent);
        assert_eq!(begin(&word, 4), Ok(State::Absent));
    }
    #[test]
    #[should_panic(expected = "has not begun")]
    fn only_the_owner_ends() {
        let word = AtomicU32::new(0);
        begin(&word, 3).unwrap();
        finish(&word, 4, State::Absent);
    }
}
