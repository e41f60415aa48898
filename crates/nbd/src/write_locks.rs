//! Which subpages are being written, by all clients of a server: at most one write is under way on
//! each.
//!
//! Media order nothing, and a client may write less than a subpage: then the subpage is read,
//! changed and written back, which must not undo what another write, of this client or of another,
//! put next to it meanwhile. A command that finds a subpage taken leaves its notifier and continues
//! with other work. It is woken when the subpage is free. Invariant: a subpage is in the table from
//! [`WriteLocks::take`] that returned true until [`WriteLocks::free`]. No command takes a second
//! place before it has freed the first or that one's write is handed over, so there is no circular
//! wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulgurite_sys::Notifier;

/// Parts of the table, so that clients seldom meet at a lock.
const PARTS: usize = 16;

/// The subpages of one part that are being written, and the waiters for each.
type Part = HashMap<u32, Vec<Arc<Notifier>>>;

/// The table.
#[derive(Debug, Default)]
pub(crate) struct WriteLocks {
    parts: [Mutex<Part>; PARTS],
}

impl WriteLocks {
    fn part(&self, subpage: u32) -> MutexGuard<'_, Part> {
        self.parts[subpage as usize % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Takes a subpage. If another write has it, returns false and will notify.
    pub(crate) fn take(&self, subpage: u32, wake: &Arc<Notifier>) -> bool {
        let mut part = self.part(subpage);
        if let Some(waiters) = part.get_mut(&subpage) {
            if !waiters.iter().any(|w| Arc::ptr_eq(w, wake)) {
                waiters.push(wake.clone());
            }
            return false;
        }
        part.insert(subpage, Vec::new());
        true
    }
    /// Gives a subpage back and wakes its waiters.
    pub(crate) fn free(&self, subpage: u32) {
        let waiters = self.part(subpage).remove(&subpage);
        for waiter in waiters.into_iter().flatten() {
            waiter.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_who_waits_is_woken_once() {
        let locks = WriteLocks::default();
        let [a, b] = [0; 2].map(|_| Arc::new(Notifier::new().unwrap()));
        assert!(locks.take(5, &a) && locks.take(5 + PARTS as u32, &a));
        assert!(!locks.take(5, &b) && !locks.take(5, &b));
        assert!(!b.take());
        locks.free(5);
        assert!(b.take() && !b.take() && !a.take());
        assert!(locks.take(5, &b));
    }
}
