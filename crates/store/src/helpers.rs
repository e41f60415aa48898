//! Help for a pool from outside: a thread that syncs for writers without a place, and queues whose
//! threads sleep while there is work.
//!
//! Writers wait only while a thread syncs for them ([`Helpers::syncs`]), and for a bounded time,
//! because a sync may find no place either. Each given place restarts the time, and while a state
//! is being made durable, which makes room, it stands still. When only the program syncs, no writer
//! waits. `changes` decides whether something may be changed at all.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Thread;
use std::time::Duration;

use fulgurite_sys::{Clock, Notifier};

/// How long writers wait for a sync while no place is given.
const PATIENCE: Duration = Duration::from_secs(2);

/// Decides how long writers wait for another thread's sync, and keeps the threads to wake. See the
/// top of the file.
#[derive(Debug, Default)]
pub struct Helpers {
    /// A thread syncs for writers.
    syncs: AtomicBool,
    /// Subpages for which room is left, because a sync may have to write them.
    room: AtomicU64,
    at_it: AtomicU32,
    /// A state is being made durable.
    names: AtomicBool,
    /// Since when there were no places, in nanoseconds of the clock. None while there are, or no
    /// writer waits.
    short: Mutex<Option<u64>>,
    /// Unparked when a writer begins to wait.
    woken: Mutex<Option<Thread>>,
    clock: Clock,
    /// The sleepers of the queues over the pool.
    sleepers: Mutex<Vec<Weak<Notifier>>>,
    /// There is work that its beginner does not do.
    left: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Helpers {
    /// Helpers of which none runs yet. Patience is measured by this clock.
    pub fn new(clock: Clock) -> Helpers {
        Helpers { clock, ..Helpers::default() }
    }
    /// What patience is measured by.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
    /// From now on a thread syncs when writers find no place, or none does any more.
    pub fn set_syncs(&self, room: Option<u64>) {
        self.leave(room.unwrap_or(0));
        self.syncs.store(room.is_some(), Ordering::Release);
        *lock(&self.short) = None;
    }
    /// Unparks this thread when a writer begins to wait for a sync. None: no thread.
    pub fn set_woken(&self, thread: Option<Thread>) {
        *lock(&self.woken) = thread;
    }
    /// Unparks that thread.
    pub fn wake(&self) {
        lock(&self.woken).iter().for_each(Thread::unpark);
    }
    /// From now on writers leave room for a sync of `subpages` subpages; 0: for none.
    fn leave(&self, subpages: u64) {
        self.room.store(subpages, Ordering::Relaxed);
    }
    /// A sync begins, or has ended.
    pub fn set_at_it(&self, at_it: bool) {
        if at_it {
            self.at_it.fetch_add(1, Ordering::AcqRel);
        } else {
            self.at_it.fetch_sub(1, Ordering::AcqRel);
            if self.names.swap(false, Ordering::AcqRel) {
                let mut short = lock(&self.short);
                *short = short.map(|_| self.clock.now_ns());
            }
        }
    }
    /// All of a sync is written, and its state is being made durable. Until it has ended, writers
    /// wait for it as long as it takes.
    pub fn names_state(&self) {
        self.names.store(self.at_it.load(Ordering::Acquire) > 0, Ordering::Release);
    }
    /// What writers must leave for the next sync, if one is to come.
    pub fn to_be_left(&self) -> Option<u64> {
        let room = self.room.load(Ordering::Relaxed);
        (room > 0 && self.at_it.load(Ordering::Acquire) == 0).then_some(room)
    }
    /// There were no places, and a sync would bring some. Returns whether to wait for it.
    #[must_use]
    pub fn waits_for_sync(&self) -> bool {
        if !self.syncs.load(Ordering::Acquire) {
            return false;
        }
        let since = *lock(&self.short).get_or_insert_with(|| {
            self.wake();
            self.clock.now_ns()
        });
        self.lasts(since)
    }
    /// Notes that writers were given places.
    pub fn note_places(&self) {
        if self.syncs.load(Ordering::Relaxed) {
            *lock(&self.short) = None;
        }
    }
    /// Whether writers wait for a sync.
    pub fn is_short(&self) -> bool {
        lock(&self.short).is_some_and(|since| self.lasts(since))
    }
    /// Whether patience that began then is not at its end.
    fn lasts(&self, since_ns: u64) -> bool {
        self.names.load(Ordering::Acquire) || self.clock.since(since_ns) < PATIENCE
    }

    /// A queue over the pool is opened, and a sleeper in it is woken by that.
    pub fn add_sleeper(&self, wake: &Arc<Notifier>) {
        let mut sleepers = lock(&self.sleepers);
        sleepers.retain(|sleeper| sleeper.strong_count() > 0);
        sleepers.push(Arc::downgrade(wake));
    }
    /// The beginner of some work does not end it: one sleeper continues it.
    pub fn leave_work(&self) {
        self.left.store(true, Ordering::Release);
        if let Some(wake) = lock(&self.sleepers).iter().find_map(Weak::upgrade) {
            wake.notify();
        }
    }
    /// Notes that nothing is left to do.
    pub fn mark_done(&self) {
        if self.left.load(Ordering::Relaxed) {
            self.left.store(false, Ordering::Release);
        }
    }
    /// Whether something is left to do.
    pub fn has_work(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_wait_while_somebody_syncs_for_them_and_nothing_is_given() {
        let (clock, time) = Clock::simulated();
        let helpers = Helpers::new(clock);
        assert!(!helpers.waits_for_sync() && !helpers.is_short());
        helpers.set_syncs(Some(100));
        assert!(!helpers.is_short() && helpers.waits_for_sync() && helpers.is_short());
        helpers.note_places();
        assert!(!helpers.is_short());
        // It ends when it should, to the nanosecond, and each place that is given begins it again.
        let nanosecond = Duration::from_nanos(1);
        assert!(helpers.waits_for_sync());
        time.advance(PATIENCE - nanosecond);
        assert!(helpers.is_short() && helpers.waits_for_sync());
        time.advance(nanosecond);
        assert!(!helpers.is_short() && !helpers.waits_for_sync());
        helpers.note_places();
        assert!(helpers.waits_for_sync() && helpers.is_short());
        helpers.set_syncs(None);
        assert!(!helpers.is_short() && !helpers.waits_for_sync());
        // Writers do not wait for a sync that no thread makes.
        let long_ago = Some(time.now_ns() - PATIENCE.as_nanos() as u64);
        *lock(&helpers.short) = long_ago;
        helpers.note_places();
        assert_eq!(*lock(&helpers.short), long_ago);
    }
    #[test]
    fn patience_stands_still_while_a_state_is_made_durable() {
        let (clock, time) = Clock::simulated();
        let helpers = Helpers::new(clock);
        helpers.set_syncs(Some(100));
        helpers.set_at_it(true);
        assert!(helpers.waits_for_sync());
        // On a slow disk, that takes time, and is no shortage.
        helpers.names_state();
        time.advance(2 * PATIENCE);
        assert!(helpers.waits_for_sync() && helpers.is_short());
        helpers.set_at_it(false);
        time.advance(PATIENCE / 2);
        assert!(helpers.waits_for_sync());
        time.advance(PATIENCE);
        assert!(!helpers.waits_for_sync());
    }
    #[test]
    fn the_first_writer_that_waits_wakes_the_thread_that_syncs() {
        let helpers = Helpers::default();
        helpers.set_woken(Some(std::thread::current()));
        // Writers do not wait where no thread syncs, and a place ends the wait.
        assert!(!helpers.waits_for_sync());
        helpers.set_syncs(Some(100));
        for _ in 0..2 {
            assert!(helpers.waits_for_sync() && helpers.waits_for_sync());
            // Returns at once: it was unparked.
            std::thread::park();
            helpers.note_places();
        }
    }
    #[test]
    fn room_is_left_for_a_sync_unless_one_is_under_way() {
        let helpers = Helpers::default();
        assert_eq!(helpers.to_be_left(), None);
        helpers.set_syncs(Some(100));
        assert_eq!(helpers.to_be_left(), Some(100));
        helpers.set_at_it(true);
        helpers.set_at_it(true);
        helpers.set_at_it(false);
        assert_eq!(helpers.to_be_left(), None);
        helpers.set_at_it(false);
        assert_eq!(helpers.to_be_left(), Some(100));
        helpers.set_syncs(Some(0));
        assert_eq!(helpers.to_be_left(), None);
    }
    #[test]
    fn one_that_sleeps_is_woken_for_what_is_left() {
        let helpers = Helpers::default();
        assert!(!helpers.has_work());
        let (gone, there) = (Arc::new(Notifier::new().unwrap()), Arc::new(Notifier::new().unwrap()));
        helpers.add_sleeper(&gone);
        drop(gone);
        helpers.add_sleeper(&there);
        assert_eq!(lock(&helpers.sleepers).len(), 1);
        helpers.leave_work();
        assert!(helpers.has_work());
        helpers.mark_done();
        assert!(!helpers.has_work());
        // Without anybody it is left all the same.
        drop(there);
        helpers.leave_work();
        assert!(helpers.has_work());
    }
}
