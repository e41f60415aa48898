//! The values of a map that are being read: by readers in parts, and in views.
//!
//! A reader is notified when its value is freed. A view keeps its value: what nothing leads to any
//! more waits here until the last view of it has ended, and is freed then.
//!
//! Invariants:
//! * A value waits only while a view of it is registered.
//! * A reading is registered before the version of its key is validated. Writers check here after
//!   they have changed that version, or while they hold its latch.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulgurite_format::Address;

use super::values::Span;

/// Readers of different values mostly meet different locks.
const SHARDS: usize = 16;

/// A value that is being read.
#[derive(Debug)]
pub(super) struct Reading {
    at: Address,
    /// The value stays until this ends.
    keeps: bool,
    gone: AtomicBool,
}

impl Reading {
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }
}

/// A value that nothing leads to, and that is viewed.
#[derive(Debug)]
pub(super) struct Waiting {
    pub span: Span,
    /// The note that names it, if one does.
    pub place: Option<usize>,
    /// Roll backs before. After another one its space may be another's.
    pub roll_backs: u64,
}

#[derive(Debug, Default)]
struct List {
    readings: Vec<Arc<Reading>>,
    waiting: Vec<Waiting>,
}

impl List {
    fn keeps(&self, at: Address) -> bool {
        self.readings.iter().any(|reading| reading.keeps && reading.at == at)
    }
}

#[derive(Debug, Default)]
struct Shard {
    /// Readings in the list, so that writers mostly need no lock.
    count: AtomicUsize,
    list: Mutex<List>,
}

/// All readings of a map.
#[derive(Debug)]
pub(super) struct Readers {
    /// Apart, so that a map that is moved takes little of a fiber's stack.
    shards: Box<[Shard]>,
}

impl Default for Readers {
    fn default() -> Readers {
        Readers { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

pub(super) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is inside is whole whenever somebody dies.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Readers {
    fn shard(&self, at: Address) -> &Shard {
        // Values are at multiples of 8, long ones at subpages.
        let spread = (at.bits() >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60;
        &self.shards[spread as usize % SHARDS]
    }

    /// The value at `at` is read from now on. With `keeps`, it stays where it is and as it is.
    pub fn begin(&self, at: Address, keeps: bool) -> Arc<Reading> {
        let reading = Arc::new(Reading { at, keeps, gone: AtomicBool::new(false) });
        let shard = self.shard(at);
        let mut list = hold(&shard.list);
        list.readings.push(reading.clone());
        shard.count.fetch_add(1, Ordering::SeqCst);
        drop(list);
        // Either a writer finds it, or it finds that its key's version has passed.
        fence(Ordering::SeqCst);
        reading
    }

    /// It is read no more. Returns what the caller has to free.
    pub fn end(&self, reading: &Arc<Reading>) -> Vec<Waiting> {
        let shard = self.shard(reading.at);
        let mut list = hold(&shard.list);
        if let Some(at) = list.readings.iter().position(|other| Arc::ptr_eq(other, reading)) {
            list.readings.swap_remove(at);
            shard.count.fetch_sub(1, Ordering::SeqCst);
        }
        if list.waiting.is_empty() || list.keeps(reading.at) {
            return Vec::new();
        }
        list.waiting.extract_if(.., |waiting| waiting.span.at == reading.at).collect()
    }

    /// A value that was reached is going to be freed, or changed in its place: notifies its
    /// readers. Returns whether it must stay, because it is viewed. The key's word is another
    /// already, or its swing latch is held.
    pub fn notify(&self, at: Address) -> bool {
        fence(Ordering::SeqCst);
        let shard = self.shard(at);
        if shard.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let list = hold(&shard.list);
        for reading in list.readings.iter().filter(|reading| reading.at == at && !reading.keeps) {
            reading.gone.store(true, Ordering::SeqCst);
        }
        let keeps = list.keeps(at);
        drop(list);
        // A reader that sees bytes that are written from now on sees that its value has gone, too.
        fence(Ordering::Release);
        keeps
    }

    /// A value waits for its views. Gives it back if there are none any more.
    pub fn wait(&self, waiting: Waiting) -> Result<(), Waiting> {
        let mut list = hold(&self.shard(waiting.span.at).list);
        if !list.keeps(waiting.span.at) {
            return Err(waiting);
        }
        list.waiting.push(waiting);
        Ok(())
    }

    /// After a roll back: all values have gone, and those that wait are free or not in its state.
    pub fn disturb(&self) {
        for shard in &self.shards {
            let mut list = hold(&shard.list);
            list.readings.iter().for_each(|reading| reading.gone.store(true, Ordering::SeqCst));
            list.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_waits_for_the_last_of_its_views() {
        let readers = Readers::default();
        let (at, other) = (Address::from_linear(1 << 16), Address::from_linear(1 << 17));
        let value = || Waiting { span: Span { at, len: 9000, object: false }, place: None, roll_backs: 0 };
        let reader = readers.begin(at, false);
        assert!(!readers.notify(other) && !reader.is_gone());
        assert!(!readers.notify(at) && reader.is_gone(), "a reader keeps nothing");
        assert!(readers.wait(value()).is_err());
        let views = [readers.begin(at, true), readers.begin(at, true)];
        assert!(readers.notify(at) && !views[0].is_gone());
        readers.wait(value()).unwrap();
        assert!(readers.end(&reader).is_empty());
        assert!(readers.end(&views[1]).is_empty());
        assert_eq!(readers.end(&views[0]).len(), 1);
        assert!(!readers.notify(at) && readers.wait(value()).is_err());
        let view = readers.begin(at, true);
        readers.wait(value()).unwrap();
        readers.disturb();
        assert!(view.is_gone() && readers.end(&view).is_empty());
    }
}
