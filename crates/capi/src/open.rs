//! An open memory, as all handles of it share it until it is closed.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use fulgurite::{AccessError, Fulgurite};
use fulgurite_sys::Process;

use crate::failure::Failure;
use crate::status::fulgurite_status::{FULGURITE_CLOSED, FULGURITE_IN_A_JOB};
use crate::watched_root::WatchedRoot;

thread_local! {
    /// Whether a callback has run on this thread. Such a thread is a worker for good.
    static WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Notes that this thread runs a worker. Called before each callback.
pub(crate) fn note_worker() {
    WORKER.set(true);
}

/// Refuses what would make a worker wait for itself.
pub(crate) fn refuse_on_worker() -> Result<(), Failure> {
    if WORKER.get() {
        let message = "a job cannot make this call, as its worker would wait for itself; pass the job's context where \
                       the function takes one, or call it from another thread";
        return Err(Failure::new(FULGURITE_IN_A_JOB, message));
    }
    Ok(())
}

/// See the module.
pub(crate) struct Open {
    /// None once it is closed.
    memory: RwLock<Option<Fulgurite>>,
    /// Has the workers. A child after `fork` has none, and locks that nobody lets go.
    process: Process,
    /// A pool, which has names and tokens.
    pub keeps: bool,
    /// What a roll back or a removal may take away.
    watched_roots: Mutex<Vec<Weak<WatchedRoot>>>,
}

impl Open {
    pub fn new(memory: Fulgurite, keeps: bool) -> Open {
        Open { memory: RwLock::new(Some(memory)), process: Process::current(), keeps, watched_roots: Mutex::default() }
    }

    /// Refuses a child after `fork`.
    pub fn check_process(&self) -> Result<(), Failure> {
        if self.process.is_current() { Ok(()) } else { Err(AccessError::Forked.into()) }
    }

    /// Calls with the memory, which stays open meanwhile. Not for jobs.
    pub fn with<T>(&self, call: impl FnOnce(&Fulgurite) -> Result<T, Failure>) -> Result<T, Failure> {
        refuse_on_worker()?;
        self.check_process()?;
        // A call that panicked has left the memory itself as it was.
        let memory = self.memory.read().unwrap_or_else(PoisonError::into_inner);
        call(memory.as_ref().ok_or_else(closed)?)
    }

    /// Takes the memory away, when no call uses it any more.
    pub fn close(&self) -> Option<Fulgurite> {
        self.memory.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps a place, to notify it of roll backs and removals.
    pub fn watch(&self, watched_root: WatchedRoot) -> Arc<WatchedRoot> {
        let watched_root = Arc::new(watched_root);
        let mut watched_roots = self.watched_roots.lock().unwrap_or_else(PoisonError::into_inner);
        watched_roots.retain(|watched_root| watched_root.strong_count() > 0);
        watched_roots.push(Arc::downgrade(&watched_root));
        watched_root
    }

    /// The places that handles lead to.
    pub fn watched_roots(&self) -> Vec<Arc<WatchedRoot>> {
        let watched_roots = self.watched_roots.lock().unwrap_or_else(PoisonError::into_inner);
        watched_roots.iter().filter_map(Weak::upgrade).collect()
    }
}

fn closed() -> Failure {
    Failure::new(FULGURITE_CLOSED, "the pool of this handle was closed; open it again, and what is in it by its name")
}
