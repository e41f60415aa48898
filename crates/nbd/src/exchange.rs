//! What the two threads of a client share: the commands that one has read and the other has not
//! begun, and the free frames.
//!
//! The reader takes frames and a place among the commands under way before it reads a payload. The
//! engine gives both back when it has replied. So a client that sends without end waits, and what
//! it can make the server hold is decided when it connects.
//! Invariants: a frame is free, or belongs to one command. `under_way` counts the commands from
//! [`Exchange::reserve`] to [`Exchange::release`].

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use fulgurite_sys::Notifier;

use crate::wire::Errno;

/// What a command asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    WriteZeroes,
    Trim,
    Flush,
    /// Not to be done: the reader has found it wrong. `read` tells the form of the reply.
    Refuse {
        error: Errno,
        read: bool,
    },
}

/// A command that the reader has checked: its range is inside the export and not empty.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) kind: Kind,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    /// Durable before the reply.
    pub(crate) fua: bool,
    /// Frames for its payload, one for each subpage that it touches. Then one for each subpage that
    /// it changes in part.
    pub(crate) frames: Vec<u32>,
}

/// The shared part.
#[derive(Debug)]
pub(crate) struct Exchange {
    state: Mutex<State>,
    /// Frames or places were given back, or the engine has ended.
    given_back: Condvar,
    wake: Arc<Notifier>,
    commands_max: usize,
}

#[derive(Debug)]
struct State {
    inbox: VecDeque<Command>,
    free: Vec<u32>,
    under_way: usize,
    /// The engine sleeps, or is about to: it must be notified.
    asleep: bool,
    /// No more commands come.
    reader_ended: bool,
    /// No more commands are taken.
    engine_ended: bool,
}

impl Exchange {
    /// With `frames` free frames, and at most `commands_max` commands under way.
    pub(crate) fn new(frames: std::ops::Range<u32>, commands_max: usize, wake: Arc<Notifier>) -> Exchange {
        let state = State {
            inbox: VecDeque::with_capacity(commands_max),
            free: frames.rev().collect(),
            under_way: 0,
            asleep: false,
            reader_ended: false,
            engine_ended: false,
        };
        Exchange { state: Mutex::new(state), given_back: Condvar::new(), wake, commands_max }
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Waits for a place and `count` frames. `None` when the engine has ended.
    pub(crate) fn reserve(&self, count: usize) -> Option<Vec<u32>> {
        let mut state = self.state();
        while !state.engine_ended && (state.under_way >= self.commands_max || state.free.len() < count) {
            state = self.given_back.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.engine_ended {
            return None;
        }
        state.under_way += 1;
        let at = state.free.len() - count;
        Some(state.free.split_off(at))
    }
    /// Hands a command, for which was reserved, to the engine.
    pub(crate) fn push(&self, command: Command) {
        let mut state = self.state();
        state.inbox.push_back(command);
        self.rouse(state);
    }
    /// Says that the reader has ended.
    pub(crate) fn end_reader(&self) {
        let mut state = self.state();
        state.reader_ended = true;
        self.rouse(state);
    }
    fn rouse(&self, mut state: MutexGuard<'_, State>) {
        let asleep = std::mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.wake.notify();
        }
    }
    /// Moves the commands that are there to `into`. Returns whether more may come.
    pub(crate) fn receive(&self, into: &mut VecDeque<Command>) -> bool {
        let mut state = self.state();
        into.append(&mut state.inbox);
        state.asleep = false;
        !state.reader_ended
    }
    /// Whether the engine may sleep: if so, it is notified when something comes.
    pub(crate) fn may_sleep(&self, more_may_come: bool) -> bool {
        let mut state = self.state();
        state.asleep = state.inbox.is_empty() && state.reader_ended != more_may_come;
        state.asleep
    }
    /// Gives back what a command had.
    pub(crate) fn release(&self, frames: &mut Vec<u32>) {
        let mut state = self.state();
        state.free.append(frames);
        state.under_way -= 1;
        drop(state);
        self.given_back.notify_one();
    }
    /// Says that the engine has ended.
    pub(crate) fn end_engine(&self) {
        self.state().engine_ended = true;
        self.given_back.notify_all();
    }
}
