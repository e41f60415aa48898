//! What a thread is to the runtime: one that runs a worker, or another.

use std::cell::Cell;
use std::marker::PhantomData;

use fulgurite_sys::workers;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    Free,
    /// It runs a worker.
    Worker,
    /// It holds a lock that others wait for: see [`Holding`].
    Holding,
}

thread_local! {
    static CURRENT: Cell<Standing> = const { Cell::new(Standing::Free) };
}

/// What this thread is now.
#[inline]
pub(crate) fn standing() -> Standing {
    CURRENT.get()
}

/// Whether this thread runs a worker, or holds a lock that others wait for: what waits for jobs
/// cannot be called here.
pub fn on_worker() -> bool {
    CURRENT.get() != Standing::Free
}

/// While it lives, this thread shows data under a lock to code of the program, which can begin no
/// operation meanwhile: it might need that lock.
#[doc(hidden)]
#[derive(Debug)]
pub struct Holding {
    was: Standing,
    not_send: PhantomData<*mut ()>,
}

impl Holding {
    /// From now on.
    #[inline]
    pub fn begin() -> Holding {
        let was = CURRENT.get();
        if was == Standing::Free {
            CURRENT.set(Standing::Holding);
        }
        Holding { was, not_send: PhantomData }
    }
}

impl Drop for Holding {
    #[inline]
    fn drop(&mut self) {
        CURRENT.set(self.was);
    }
}

/// Refuses what would make a worker wait for itself.
///
/// # Panics
/// On a thread that runs a worker.
pub(crate) fn assert_foreign(what: &str) {
    assert!(!on_worker(), "a job must not {what}: its worker would wait for itself; do it from another thread");
}

/// While it lives, this thread runs a worker. A panic leaves a half change that others wait for, so
/// nothing can continue.
pub(crate) struct WorkerThread {
    _mark: workers::Mark,
}

impl WorkerThread {
    pub(crate) fn new() -> WorkerThread {
        CURRENT.set(Standing::Worker);
        WorkerThread { _mark: workers::mark() }
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        CURRENT.set(Standing::Free);
        if std::thread::panicking() {
            give_up();
        }
    }
}

/// Ends the process when the worker's own code panics on a fiber. A job's panic would be caught,
/// but the worker is in the middle of a change.
pub(crate) struct AbortOnPanic;
impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        give_up();
    }
}

/// Ends the process: a worker has panicked.
fn give_up() -> ! {
    eprintln!("fulgurite: a worker failed in the middle of a change and cannot continue (see the message above)");
    std::process::abort()
}
