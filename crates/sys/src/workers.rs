//! Threads that run the jobs of a runtime. One that waits by itself holds up all jobs of its
//! worker, so what it waits for is counted apart.
//!
//! The marks can be asked from a handler of a signal: they take no lock, no memory, and nothing of
//! the thread's own. A child after `fork` has its parent's marks, whose threads it does not have.

use std::marker::PhantomData;

use crate::threads::{ThreadSet, thread};

pub use crate::threads::MARKS;

static WORKERS: ThreadSet = ThreadSet::new();

/// While it lives, its thread runs a worker. It stays on this thread.
#[derive(Debug)]
pub struct Mark {
    place: Option<usize>,
    thread: PhantomData<*const ()>,
}

/// Marks the calling thread.
#[must_use]
pub fn mark() -> Mark {
    Mark { place: WORKERS.add(thread()), thread: PhantomData }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            WORKERS.remove(place);
        }
    }
}

/// Whether a thread is marked, by the kernel's number.
#[must_use]
pub fn is_marked(thread: u32) -> bool {
    WORKERS.has(thread)
}

/// Whether any thread was ever marked. It is one load.
#[must_use]
pub fn are_any() -> bool {
    WORKERS.was_used()
}

/// Whether the calling thread is marked. Without any mark since the start of the process, it is one
/// load.
#[must_use]
pub fn is_here() -> bool {
    are_any() && is_marked(thread())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_marked_until_its_worker_ends() {
        assert!(!is_here() && !is_marked(0));
        let marked = std::thread::spawn(|| {
            let mark = mark();
            assert!(is_here());
            let second = std::thread::spawn(|| (thread(), is_here())).join().unwrap();
            assert!(!second.1 && !is_marked(second.0), "each is marked by itself");
            drop(mark);
            assert!(!is_here());
            // There is an end to them, and places are used again.
            let marks: Vec<Mark> = (0..MARKS + 1).map(|_| super::mark()).collect();
            assert!(is_here() && marks[MARKS].place.is_none());
            drop(marks);
            (thread(), is_here())
        });
        let (number, is_marked_now) = marked.join().unwrap();
        assert!(!is_marked_now && !is_marked(number) && !is_here());
    }
}
