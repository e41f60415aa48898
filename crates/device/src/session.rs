//! A session in which one program names the states of a store.
//!
//! What survives of a store is its last named state. While everybody may write and flush, each flush names one, and what it holds of others
//! is half of something. A program that keeps its memory here names its states itself, whole ones; so nobody else may name one beside them,
//! and what it has not named when it goes is taken back. A device that dies does that by itself as it recovers.
//!
//! ```text
//!   none ──first queue pair──> what others have acknowledged is named ──> open ──last queue pair gone──> back to the newest token ──> none
//! ```
//!
//! Invariants: while one is open nothing is named but by its program's commands; another host is let in only when what was not named is gone,
//! and finds another instance then, so that a program whose session was ended behind its back knows that its writes have gone, as
//! from a device that has died.
//!
//! Not here: who is let in beside whom ([`crate::hosts`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fulgurite_store::{Pool, PoolError};

/// The session of a device's store, if there is one.
#[derive(Debug)]
pub(crate) struct Session {
    pool: Arc<Pool>,
    /// Names this opening of the medium, and how often something was taken back since.
    instance: Arc<AtomicU64>,
    /// Whether the firmware flushes by itself while no session is open.
    flushes_itself: bool,
    open: AtomicBool,
}

impl Session {
    pub fn new(pool: Arc<Pool>, instance: Arc<AtomicU64>, flushes_itself: bool) -> Session {
        Session { pool, instance, flushes_itself, open: AtomicBool::new(false) }
    }
    /// The store.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
    /// Whether nobody but one program may name states.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }
    /// The newest state that has a name; 0: none has.
    pub fn newest(&self) -> u64 {
        self.pool.tokens().newest().unwrap_or(0)
    }
    /// Begins one. What others have written (`touched`: they may have) is named first, so that what they were told stays; so is an empty store.
    pub fn begin(&self, touched: bool) -> Result<(), PoolError> {
        self.open.store(true, Ordering::SeqCst);
        // Only the program knows when its state is worth a name: who finds no space is told at once.
        self.pool.set_syncs_for_writers(None);
        if !touched && self.newest() != 0 {
            return Ok(());
        }
        tick(&self.pool);
        let named = self.pool.sync().map(drop);
        if named.is_err() {
            self.close();
        }
        named
    }
    /// Ends it: the state is that of the newest token, and durable. Where that fails it stays open: nobody is to find what was not named.
    pub fn end(&self) -> Result<(), PoolError> {
        self.pool.roll_back(self.newest())?;
        // Any other number: its lowest bits are those of an address or of time.
        self.instance.fetch_add(1 << 48 | 1, Ordering::SeqCst);
        self.close();
        Ok(())
    }
    fn close(&self) {
        self.leave_to_firmware();
        self.open.store(false, Ordering::SeqCst);
    }
    /// Where the firmware flushes by itself, writers wait for that. Nothing that is to be written is held in DRAM, so that a sync needs no
    /// room for data.
    fn leave_to_firmware(&self) {
        if self.flushes_itself {
            self.pool.set_syncs_for_writers(Some(0));
        }
    }
    /// A firmware starts, perhaps in the middle of a session.
    pub fn firmware_starts(&self) {
        if !self.is_open() {
            self.leave_to_firmware();
        }
    }
}

/// Says to a store what time it is, before something gets a name.
pub(crate) fn tick(pool: &Pool) {
    pool.tick(fulgurite_sys::clock::wall_ms());
}

#[cfg(all(test, not(loom)))]
mod tests {
    use fulgurite_flash::{Flash, MemoryFlash};
    use fulgurite_format::PoolId;
    use fulgurite_store::{Geometry, StoreConfig};

    use super::*;

    impl Session {
        pub(crate) fn over_memory() -> Session {
            let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(1024).unwrap());
            Pool::format(&medium, Geometry::new(1024, 32, None).unwrap(), PoolId([5; 16]), 0).unwrap();
            let pool = Arc::new(Pool::open(medium, StoreConfig::default()).unwrap().0);
            Session::new(pool, Arc::new(AtomicU64::new(7)), true)
        }
    }

    #[test]
    fn what_others_have_written_is_named_and_what_was_not_named_is_taken_back() {
        let session = Session::over_memory();
        let (pool, instance) = (session.pool.clone(), session.instance.clone());
        let allocated = |page| pool.permissions(page).is_some();
        let allocate = |page| pool.set_permissions(page..page + 1, fulgurite_store::Permissions::DEFAULT).unwrap();
        allocate(1);
        // An empty store gets a name, too; one with a name that nobody has touched keeps it.
        session.begin(false).unwrap();
        let first = session.newest();
        assert!(first != 0 && session.is_open());
        allocate(2);
        session.end().unwrap();
        assert!(!session.is_open() && allocated(1) && !allocated(2));
        assert!(session.newest() == first && instance.load(Ordering::SeqCst) != 7);
        session.begin(false).unwrap();
        assert_eq!(session.newest(), first);
        session.end().unwrap();
        // Others have allocated a page, and were told so.
        allocate(3);
        session.begin(true).unwrap();
        assert!(session.newest() > first);
        session.end().unwrap();
        assert!(allocated(3));
    }
}
