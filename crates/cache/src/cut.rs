//! The state of a cut, shared by all caches of a memory: its phase, how many writes its token still
//! needs, and the first of them that failed. Both the phase and the count are in one word, so a
//! write that ends and a driver that gives up agree on which of them comes last.
//!
//! ```text
//!              begin           hold_back                end
//!       Idle ---------> Begun -----------> Writing -----------------> Finishing
//!        ^ ^                                  | abandon               ^   |
//!        | |                                  v       the last write  |   | over
//!        | |                              Abandoned ------------------+   |
//!        | |  the last write                  | over                      |
//!        | +------------------ Leftover <-----+                           |
//!        +----------------------------------------------------------------+
//! ```
//!
//! Invariants, asserted at each transition:
//! * Writes are counted while the phase is [`Phase::Writing`], and a cut ends when none is left.
//! * [`Phase::Abandoned`] and [`Phase::Leftover`] have writes left; [`Phase::Idle`],
//!   [`Phase::Begun`] and [`Phase::Finishing`] have none.
//!
//! `seal` seals and writes frames for the cut. The driver closes the gate, halts the workers and
//! names the token.

use fulgurite_flash::FlashError;

use crate::primitive::{AtomicU64, Mutex, Ordering};

/// How far a sync and its cut are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// No sync is under way, and no write of an earlier one.
    Idle,
    /// The gate is closed, and the workers are about to halt.
    Begun,
    /// Sealed frames are being written. What is written since the halt must stay in DRAM until the
    /// token is named.
    Writing,
    /// The token is named, or there will be none. The sync makes it durable, after which the medium
    /// may have room.
    Finishing,
    /// The sync gave up waiting for the writes that are left. What was held back stays in DRAM
    /// until they have ended.
    Abandoned,
    /// As `Abandoned`, after the sync has returned its error, so no room is to be expected of it.
    Leftover,
}

const PHASES: [Phase; 6] =
    [Phase::Idle, Phase::Begun, Phase::Writing, Phase::Finishing, Phase::Abandoned, Phase::Leftover];
/// The low bits of the word are the phase, the others count writes.
const PHASE_BITS: u32 = 3;

/// What the word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    phase: Phase,
    /// Writes that the token needs and that have not ended.
    left: u64,
}

impl State {
    fn of(word: u64) -> State {
        State { phase: PHASES[(word & ((1 << PHASE_BITS) - 1)) as usize], left: word >> PHASE_BITS }
    }
    fn word(self) -> u64 {
        self.left << PHASE_BITS | self.phase as u64
    }
    fn in_phase(self, phase: Phase) -> State {
        State { phase, ..self }
    }
}

/// What all caches know of the cut.
#[derive(Debug, Default)]
pub struct Cut {
    word: AtomicU64,
    failure: Mutex<Option<FlashError>>,
}

impl Cut {
    /// How far the cut is.
    #[inline]
    pub fn phase(&self) -> Phase {
        self.state().phase
    }
    /// Whether what is written now must stay in DRAM.
    #[inline]
    pub fn holds_back(&self) -> bool {
        matches!(self.phase(), Phase::Writing | Phase::Abandoned | Phase::Leftover)
    }
    /// Whether a sync is being written, after which there may be room.
    pub fn makes_room(&self) -> bool {
        matches!(self.phase(), Phase::Writing | Phase::Finishing | Phase::Abandoned)
    }
    /// Writes that have not ended.
    pub fn left(&self) -> u64 {
        self.state().left
    }
    /// The first write that failed, if one did.
    pub fn failure(&self) -> Option<FlashError> {
        *self.failure.lock()
    }

    /// The driver of a sync has closed the gate and will halt the workers.
    ///
    /// # Panics
    /// While another cut is under way, or writes of one are left.
    pub fn begin(&self) {
        *self.failure.lock() = None;
        self.change("begin", |state| match state.phase {
            Phase::Idle => Some(state.in_phase(Phase::Begun)),
            _ => None,
        });
    }
    /// What is written from now on is not part of the token. Each worker calls this, while all of
    /// them are halted.
    ///
    /// # Panics
    /// When no cut has begun.
    pub fn hold_back(&self) {
        self.change("hold back", |state| match state.phase {
            Phase::Begun | Phase::Writing => Some(state.in_phase(Phase::Writing)),
            _ => None,
        });
    }
    /// The token needs more writes.
    pub fn add(&self, writes: u64) {
        self.change("add writes", |state| match state.phase {
            Phase::Writing => Some(State { left: state.left + writes, ..state }),
            _ => None,
        });
    }
    /// A write from before the cut, or because of it, has ended. Returns whether it was the last.
    pub fn one_ended(&self, result: Result<(), FlashError>) -> bool {
        if let Err(error) = result {
            self.failed(error);
        }
        let state = self.change("end a write", |state| {
            let left = state.left.checked_sub(1)?;
            Some(match state.phase {
                Phase::Abandoned if left == 0 => State { phase: Phase::Finishing, left },
                Phase::Leftover if left == 0 => State { phase: Phase::Idle, left },
                phase => State { phase, left },
            })
        });
        state.left == 0
    }
    /// A write that the token needs went wrong, whatever becomes of it: there is no token.
    pub(crate) fn failed(&self, error: FlashError) {
        self.failure.lock().get_or_insert(error);
    }
    /// The token is named, or there will be none.
    ///
    /// # Panics
    /// While writes are left, and when no frames were sealed.
    pub fn end(&self) {
        self.change("end", |state| match state {
            State { phase: Phase::Writing, left: 0 } => Some(state.in_phase(Phase::Finishing)),
            _ => None,
        });
    }
    /// The sync waits no longer for the writes that are left, of its own cut or of an earlier one.
    /// They may end at the same moment.
    ///
    /// # Panics
    /// When nothing was being written.
    pub fn abandon(&self) {
        self.change("abandon", |state| match state.phase {
            Phase::Writing if state.left == 0 => Some(state.in_phase(Phase::Finishing)),
            Phase::Writing => Some(state.in_phase(Phase::Abandoned)),
            Phase::Leftover | Phase::Idle => Some(state),
            _ => None,
        });
    }
    /// The sync is over, whatever became of it. It may have failed before its cut began. Only a
    /// panic of the driver ends it in the midst of writing.
    pub fn over(&self) {
        self.change("finish a sync", |state| {
            Some(state.in_phase(if state.left > 0 { Phase::Leftover } else { Phase::Idle }))
        });
    }

    fn state(&self) -> State {
        State::of(self.word.load(Ordering::Acquire))
    }
    /// Goes to the state that `next` finds for the present one, and returns it.
    #[track_caller]
    fn change(&self, what: &str, next: impl Fn(State) -> Option<State>) -> State {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let state = State::of(word);
            let Some(next) = next(state) else { panic!("a cut cannot {what} in {state:?}") };
            match self.word.compare_exchange_weak(word, next.word(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return next,
                Err(seen) => word = seen,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cut in each state that it can be in.
    fn states() -> impl Iterator<Item = State> {
        let settled = [Phase::Idle, Phase::Begun, Phase::Finishing].map(|phase| State { phase, left: 0 });
        let open =
            [Phase::Abandoned, Phase::Leftover].into_iter().flat_map(|phase| [1, 2].map(|left| State { phase, left }));
        settled.into_iter().chain([0, 1, 2].map(|left| State { phase: Phase::Writing, left })).chain(open)
    }

    /// Goal: no transition leaves the diagram. Method: every verb in every state, compared with the
    /// states that the diagram gives it; all others have to be refused.
    #[test]
    fn transitions_that_are_not_in_the_diagram_are_refused() {
        use Phase::{Abandoned, Begun, Finishing, Idle, Leftover, Writing};
        type Verb = (&'static str, fn(&Cut), fn(Phase, u64) -> Option<(Phase, u64)>);
        let verbs: [Verb; 7] = [
            ("begin", Cut::begin, |phase, _| (phase == Idle).then_some((Begun, 0))),
            ("hold_back", Cut::hold_back, |phase, left| matches!(phase, Begun | Writing).then_some((Writing, left))),
            ("add", |cut| cut.add(2), |phase, left| (phase == Writing).then_some((Writing, left + 2))),
            (
                "one_ended",
                |cut| _ = cut.one_ended(Ok(())),
                |phase, left| match (phase, left) {
                    (_, 0) => None,
                    (Abandoned, 1) => Some((Finishing, 0)),
                    (Leftover, 1) => Some((Idle, 0)),
                    _ => Some((phase, left - 1)),
                },
            ),
            ("end", Cut::end, |phase, left| (phase == Writing && left == 0).then_some((Finishing, 0))),
            ("abandon", Cut::abandon, |phase, left| match (phase, left) {
                (Writing, 0) => Some((Finishing, 0)),
                (Writing, _) => Some((Abandoned, left)),
                (Leftover | Idle, _) => Some((phase, left)),
                _ => None,
            }),
            ("over", Cut::over, |_, left| Some((if left > 0 { Leftover } else { Idle }, left))),
        ];
        for (name, verb, expected) in verbs {
            for state in states() {
                let cut = Cut { word: AtomicU64::new(state.word()), ..Cut::default() };
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| verb(&cut))).is_ok();
                let expected = expected(state.phase, state.left);
                assert_eq!(done, expected.is_some(), "{name} in {state:?}");
                let (phase, left) = expected.unwrap_or((state.phase, state.left));
                assert_eq!(cut.state(), State { phase, left }, "{name} in {state:?}");
                let (holds_back, makes_room) = match phase {
                    Idle | Begun => (false, false),
                    Writing | Abandoned => (true, true),
                    Finishing => (false, true),
                    Leftover => (true, false),
                };
                assert_eq!((cut.holds_back(), cut.makes_room()), (holds_back, makes_room), "{phase:?}");
            }
        }
    }

    #[test]
    fn the_first_failure_is_kept_until_the_next_cut_begins() {
        let cut = Cut::default();
        cut.begin();
        cut.hold_back();
        cut.add(2);
        assert!(!cut.one_ended(Err(FlashError::TimedOut)));
        assert!(cut.one_ended(Err(FlashError::NoSpace)));
        assert_eq!(cut.failure(), Some(FlashError::TimedOut));
        cut.end();
        cut.over();
        cut.begin();
        assert_eq!(cut.failure(), None);
    }
}
