//! Attaching again, by a thread of its own: to connect, to wait for an answer and to write once more what the device had lost takes as long
//! as it takes, and whoever polls a queue has others to serve.
//!
//! The thread is handed all that it needs and hands back a queue pair on which nothing was sent yet, or why there is none; it ends by
//! itself, as all that it waits for has a time-out, also when nobody asks for its result any more: then it closes the pair again. Not
//! here: when to try, and when to give up ([`super::queue`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fulgurite_flash::OpenError;
use fulgurite_sys::{Arena, Notifier};

use super::queue::{Opening, Pair};
use super::shared::Met;

/// A queue pair, and what was found on the device.
pub(super) type Attached = Result<(Pair, Met), OpenError>;

#[derive(Default)]
struct State {
    /// The device has answered; copies may be on their way to it.
    answered: AtomicBool,
    ended: AtomicBool,
    result: Mutex<Option<Attached>>,
}

/// A try to attach again.
pub(super) struct Attempt(Arc<State>);

impl Attempt {
    /// Begins one. `wake` is notified when it has ended.
    pub(super) fn begin(opening: Opening, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> Attempt {
        let state = Arc::new(State::default());
        let (its, woken) = (state.clone(), wake.clone());
        let spawned = std::thread::Builder::new().name("fulgurite-attach".into()).spawn(move || {
            let attached = opening.link(&frames, depth, &wake).map(|pair| {
                its.answered.store(true, Ordering::Release);
                let met = opening.shared.meets(&opening.link, &opening.config, &pair.linked);
                (pair, met)
            });
            its.end(attached);
            woken.notify();
        });
        if let Err(source) = spawned {
            state.end(Err(OpenError::System { what: "start a thread that attaches to the device", source }));
        }
        Attempt(state)
    }
    /// Whether the device has answered.
    pub(super) fn has_answered(&self) -> bool {
        self.0.answered.load(Ordering::Acquire)
    }
    /// What came of it, once, when it has ended. Never waits.
    pub(super) fn take(&self) -> Option<Attached> {
        if !self.0.ended.load(Ordering::Acquire) {
            return None;
        }
        self.0.result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl State {
    fn end(&self, attached: Attached) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(attached);
        self.ended.store(true, Ordering::Release);
    }
}
