//! What the program's threads ask of the handler thread, and how they wait for it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fulgurite_sys::userfault::Access;
use fulgurite_sys::{Gate, Notifier, signals};

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// The subpages read as zero afterwards.
    Drop(Range<u32>),
    /// The program may do this with the subpages afterwards.
    Protect(Range<u32>, Access),
}

/// Locks what holds whole values at any time.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An answer, and its waiter. It has no lock: a handler of the program that interrupts the waiter
/// may fault, and the handler thread that answers would wait for the lock.
#[derive(Debug, Default)]
pub struct Reply(Gate);

/// Words of an answer. Errors follow.
const NONE: u32 = 0;
const DONE: u32 = 1;

impl Reply {
    /// Gives it. An error is a number of the system.
    pub fn give(&self, result: Result<(), i32>) {
        self.0.set(result.map_or_else(|error| DONE + 1 + error.unsigned_abs(), |()| DONE));
    }
    fn wait(&self) -> Result<(), i32> {
        match self.0.wait_while(NONE) {
            DONE => Ok(()),
            error => Err((error - DONE - 1) as i32),
        }
    }
}

/// Commands on their way.
#[derive(Debug)]
pub struct Commands {
    queue: Mutex<VecDeque<(Command, Arc<Reply>)>>,
    notifier: Arc<Notifier>,
}

impl Commands {
    pub fn new(notifier: Arc<Notifier>) -> Commands {
        Commands { queue: Mutex::new(VecDeque::new()), notifier }
    }
    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// A number of the system.
    pub fn ask(&self, command: Command) -> Result<(), i32> {
        let reply = Arc::new(Reply::default());
        // A handler of the program that interrupts this may fault, and the handler thread takes
        // this lock.
        signals::with_all_blocked(|| lock(&self.queue).push_back((command, reply.clone())));
        self.notifier.notify();
        reply.wait()
    }
    /// Sleeps until something is notified, or so long.
    pub fn sleep(&self, time: Duration) {
        self.notifier.wait(Some(time));
    }
    /// Ends the handler thread's sleep.
    pub fn wake(&self) {
        self.notifier.notify();
    }
    /// Takes what was notified.
    pub fn awake(&self) {
        self.notifier.take();
    }
    /// The next one.
    pub fn next(&self) -> Option<(Command, Arc<Reply>)> {
        lock(&self.queue).pop_front()
    }
}
