//! Attaching again, by a thread of its own: connecting, waiting and replaying take time, and the
//! caller that polls a queue has others to serve.
//!
//! The thread hands back a queue pair on which nothing was sent yet, or an error. It ends by
//! itself, as all its waits have time-outs.
//!
//! Invariant: after an attempt was given up, nothing is written to the device, whose newer data
//! could come from another host. Giving up before the answer takes effect at once. Later, it waits
//! for what is under way.
//!
//! Not here: when to try, and when to give up ([`super::queue`]).

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use fulgurite_flash::OpenError;
use fulgurite_sys::{Arena, Notifier};

use super::pair::{Opening, Pair};
use super::shared::Met;

/// A queue pair, and what was found on the device.
pub(super) type Attached = Result<(Pair, Met), OpenError>;

/// The device was asked, and has not answered.
const ASKED: u8 = 0;
/// It has answered; copies may be on their way to it.
const ANSWERED: u8 = 1;
/// Nobody wants to know any more.
const GIVEN_UP: u8 = 2;

#[derive(Default)]
struct State {
    /// [`ASKED`], and then one of the others, for good.
    stage: AtomicU8,
    /// No further copy is to be written.
    stop: AtomicBool,
    ended: AtomicBool,
    result: Mutex<Option<Attached>>,
    /// The result is there.
    there: Condvar,
}

/// A try to attach again. Dropped, it writes nothing more.
pub(super) struct Attempt(Arc<State>);

/// Ends the attempt, also when its thread panics, so that nobody waits for it for ever.
struct Ends {
    state: Arc<State>,
    wake: Arc<Notifier>,
    attached: Option<Attached>,
}

impl Drop for Ends {
    fn drop(&mut self) {
        let attached = self.attached.take().unwrap_or_else(|| {
            let source = std::io::Error::other("the thread that was to do so did not come to its end");
            Err(OpenError::System { what: "attach to the device", source })
        });
        self.state.end(attached);
        self.wake.notify();
    }
}

impl Attempt {
    /// Begins one. `wake` is notified when it has ended.
    pub(super) fn begin(opening: Opening, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> Attempt {
        let state = Arc::new(State::default());
        let mut ends = Ends { state: state.clone(), wake: wake.clone(), attached: None };
        let spawned = std::thread::Builder::new().name("fulgurite-attach".into()).spawn(move || {
            let state = ends.state.clone();
            let attached = opening.link(&frames, depth, &wake).map(|pair| {
                let met = if state.enter(ANSWERED) {
                    let met = opening.shared.meets(&opening.link, &opening.config, &pair.linked, &state.stop);
                    if met == Met::Whole {
                        // Where that fails, later reads say why.
                        let _ = opening.at.as_ref().map(|held| held.renew());
                    }
                    met
                } else {
                    Met::Again
                };
                (pair, met)
            });
            ends.attached.replace(attached);
        });
        if let Err(source) = spawned {
            state.end(Err(OpenError::System { what: "start a thread that attaches to the device", source }));
        }
        Attempt(state)
    }
    /// Gives it up, unless the device has answered. Returns whether it has not.
    pub(super) fn give_up(&self) -> bool {
        self.0.enter(GIVEN_UP)
    }
    /// What came of it, once, when it has ended. Never waits.
    pub(super) fn take(&self) -> Option<Attached> {
        if !self.0.ended.load(Ordering::Acquire) {
            return None;
        }
        self.0.result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.give_up() {
            return;
        }
        self.0.stop.store(true, Ordering::Release);
        let result = self.0.result.lock().unwrap_or_else(PoisonError::into_inner);
        let going_on = |_: &mut Option<Attached>| !self.0.ended.load(Ordering::Acquire);
        drop(self.0.there.wait_while(result, going_on).unwrap_or_else(PoisonError::into_inner));
    }
}

impl State {
    /// Enters a stage from the first one, once. Returns whether it is in that one now.
    fn enter(&self, stage: u8) -> bool {
        match self.stage.compare_exchange(ASKED, stage, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(found) => found == stage,
        }
    }
    fn end(&self, attached: Attached) {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        *result = Some(attached);
        self.ended.store(true, Ordering::Release);
        self.there.notify_all();
    }
}
