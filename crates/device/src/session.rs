//! A session in which one program names the states of a store.
//!
//! What survives of a store is its last named state. With several writers each flush names a state,
//! which contains half of what some other writer is doing. A program that keeps its memory here
//! names whole states, so no other host may name one at the same time, and what the program has not
//! named when it leaves is rolled back. A device that dies does that as it recovers.
//!
//! ```text
//!   none ──first queue pair──> names what others have acknowledged ──> open
//!   open ──last queue pair gone──> back to the newest token ──> none
//! ```
//!
//! Invariants: while one is open only its program's commands name anything. Another host is let in
//! only when what was not named is gone. It finds another instance then, so that a program whose
//! session was ended behind its back knows that its writes have gone.
//!
//! Not here: which hosts are let in at the same time ([`crate::hosts`]).

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
    /// Temporary pages of a program that was there before this start may be in the state.
    has_strange_temporary: AtomicBool,
    /// The temporary pages of the program whose session is open are there, if it made any.
    has_temporary: AtomicBool,
    /// A memory operation has panicked.
    spoilt: AtomicBool,
}

impl Session {
    pub fn new(pool: Arc<Pool>, instance: Arc<AtomicU64>, flushes_itself: bool) -> Session {
        let has_strange_temporary = AtomicBool::new(pool.temporary_stays());
        let (open, has_temporary, spoilt) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        Session { pool, instance, flushes_itself, open, has_strange_temporary, has_temporary, spoilt }
    }
    /// A memory operation has panicked: the state of the store is unknown, and it must not be
    /// written.
    pub fn mark_spoilt(&self) {
        self.spoilt.store(true, Ordering::SeqCst);
    }
    /// Whether one has.
    pub fn is_spoilt(&self) -> bool {
        self.spoilt.load(Ordering::SeqCst)
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
    /// Begins one. Acknowledged writes of others (`touched`: there may be some) are named first,
    /// and so is an empty store. `since`: of a program that returns, the newest token when it
    /// began, else 0.
    pub fn begin(&self, touched: bool, since: u64) -> Result<(), PoolError> {
        self.open.store(true, Ordering::SeqCst);
        // Only the program knows when its state is worth a name: a write without space fails at
        // once.
        self.pool.set_syncs_for_writers(None);
        let begun = self.begin_with(touched, since);
        if begun.is_err() {
            self.close();
        }
        begun
    }
    fn begin_with(&self, touched: bool, since: u64) -> Result<(), PoolError> {
        // What it named since it began has its temporary pages. What it has not named it replays,
        // or reports as lost.
        let named_some = since != 0 && self.newest() > since;
        let are_there = !named_some || self.has_strange_temporary.load(Ordering::SeqCst);
        self.has_temporary.store(are_there, Ordering::SeqCst);
        if touched && !named_some {
            // The programs that may have made some are gone.
            self.has_strange_temporary.store(true, Ordering::SeqCst);
        }
        if named_some {
            self.has_strange_temporary.store(false, Ordering::SeqCst);
        } else {
            self.drop_strange_temporary()?;
        }
        if since != 0 {
            // It was notified of these before.
            self.pool.take_dropped_temporary();
        }
        if touched || self.newest() == 0 {
            self.pool.tick();
            self.pool.sync()?;
        }
        self.pool.process_begins(if since == 0 { self.newest() } else { since });
        Ok(())
    }
    /// Deletes temporary pages of a program from before this start of the device that does not
    /// return.
    pub fn drop_strange_temporary(&self) -> Result<(), PoolError> {
        if self.has_strange_temporary.load(Ordering::SeqCst) {
            self.pool.drop_temporary()?;
            self.has_strange_temporary.store(false, Ordering::SeqCst);
        }
        Ok(())
    }
    /// Whether the temporary pages of the program whose session is open are there.
    pub fn has_temporary(&self) -> bool {
        self.has_temporary.load(Ordering::SeqCst)
    }
    /// Ends the session: the store returns to the state of the newest token, without temporary
    /// pages. Where that fails the session stays open, so that no other host finds what was not
    /// named.
    pub fn end(&self) -> Result<(), PoolError> {
        let newest = self.newest();
        self.pool.process_ends(newest)?;
        self.pool.process_begins(newest);
        // Any other number will do: the lowest bits of this one come from an address or from the
        // time.
        self.instance.fetch_add(1 << 48 | 1, Ordering::SeqCst);
        self.close();
        Ok(())
    }
    fn close(&self) {
        self.leave_to_firmware();
        self.open.store(false, Ordering::SeqCst);
    }
    /// Where the firmware flushes by itself, writers wait for that. No dirty data are held in DRAM,
    /// so a sync needs no room for them.
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

#[cfg(test)]
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
        session.begin(false, 0).unwrap();
        let first = session.newest();
        assert!(first != 0 && session.is_open());
        allocate(2);
        session.end().unwrap();
        assert!(!session.is_open() && allocated(1) && !allocated(2));
        assert!(session.newest() == first && instance.load(Ordering::SeqCst) != 7);
        session.begin(false, 0).unwrap();
        assert_eq!(session.newest(), first);
        session.end().unwrap();
        // Others have allocated a page, and were notified of it.
        allocate(3);
        session.begin(true, 0).unwrap();
        assert!(session.newest() > first);
        session.end().unwrap();
        assert!(allocated(3));
    }
}
