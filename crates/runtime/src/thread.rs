//! What a thread is to the runtime: one that runs a worker, or another.

use fulgurite_sys::workers;

thread_local! {
    /// Whether this thread runs a worker.
    static CURRENT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether this thread runs a worker: what waits for jobs cannot be called here.
pub fn on_worker() -> bool {
    CURRENT.get()
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
        CURRENT.set(true);
        WorkerThread { _mark: workers::mark() }
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        CURRENT.set(false);
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
