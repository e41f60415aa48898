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
pub(crate) struct Here {
    _mark: workers::Mark,
}

impl Here {
    pub(crate) fn new() -> Here {
        CURRENT.set(true);
        Here { _mark: workers::mark() }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        CURRENT.set(false);
        if std::thread::panicking() {
            give_up();
        }
    }
}

/// Ends the process when the worker's own code panics on a fiber. A job's panic would be caught,
/// but the worker is in the middle of a change.
pub(crate) struct Whole;
impl Drop for Whole {
    fn drop(&mut self) {
        give_up();
    }
}

/// Ends the process: a worker has panicked.
fn give_up() -> ! {
    eprintln!("fulgurite: a worker failed in the middle of a change and cannot continue (see the message above)");
    std::process::abort()
}
