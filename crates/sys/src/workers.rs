//! Threads that run the jobs of a runtime. One that waits by itself holds up all jobs of its
//! worker, so what it waits for is counted apart.
//!
//! The marks can be asked from a handler of a signal: they take no lock, no memory, and nothing of
//! the thread's own. A child after `fork` has its parent's marks, whose threads it does not have.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Threads that can be marked at a time. Further ones count as others.
pub const MARKS: usize = 256;

/// Their numbers, and 0 where there is none.
static THREADS: [AtomicU32; MARKS] = [const { AtomicU32::new(0) }; MARKS];
/// No mark was ever at this place, or behind it.
static END: AtomicUsize = AtomicUsize::new(0);

/// While it lives, its thread runs a worker. It stays on this thread.
#[derive(Debug)]
pub struct Mark {
    place: Option<usize>,
    thread: PhantomData<*const ()>,
}

/// Marks the calling thread.
#[must_use]
pub fn mark() -> Mark {
    let here = thread();
    let take = |mark: &AtomicU32| mark.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    let place = THREADS.iter().position(take);
    if let Some(place) = place {
        END.fetch_max(place + 1, Ordering::Relaxed);
    }
    Mark { place, thread: PhantomData }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            THREADS[place].store(0, Ordering::Relaxed);
        }
    }
}

/// Whether a thread is marked, by the kernel's number.
#[must_use]
pub fn is_marked(thread: u32) -> bool {
    let marks = &THREADS[..END.load(Ordering::Relaxed)];
    thread != 0 && marks.iter().any(|mark| mark.load(Ordering::Relaxed) == thread)
}

/// Whether any thread was ever marked. It is one load.
#[must_use]
pub fn are_any() -> bool {
    END.load(Ordering::Relaxed) > 0
}

/// Whether the calling thread is marked. Without any mark since the start of the process, it is one
/// load.
#[must_use]
pub fn is_here() -> bool {
    are_any() && is_marked(thread())
}

/// The kernel's number of the calling thread.
pub(crate) fn thread() -> u32 {
    // SAFETY: it has no arguments, and always succeeds.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
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
