//! A word that threads sleep on until another thread sets it. A signal handler may use it: it
//! allocates nothing and has no lock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::{NanosleepRelativeResult, futex};

/// See the module.
#[derive(Debug, Default)]
pub struct Gate(AtomicU32);

impl Gate {
    /// A gate whose word is 0.
    #[must_use]
    pub const fn new() -> Gate {
        Gate(AtomicU32::new(0))
    }
    /// Its word.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
    /// Sets the word, and wakes all that sleep.
    pub fn set(&self, word: u32) {
        self.0.store(word, Ordering::Release);
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, i32::MAX as u32);
    }
    /// Sets the word without waking anything.
    #[inline]
    pub fn set_quietly(&self, word: u32) {
        self.0.store(word, Ordering::Release);
    }
    /// Sleeps while the word is `word`, and returns the new one.
    pub fn wait_while(&self, word: u32) -> u32 {
        loop {
            let now = self.get();
            if now != word {
                return now;
            }
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, word, None);
        }
    }
}

/// Sleeps a while, also in a signal handler. A thread that is cancelled does not end here.
pub fn nap(time: Duration) {
    let mut left = rustix::thread::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    while let NanosleepRelativeResult::Interrupted(rest) = rustix::thread::nanosleep(&left) {
        left = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_hears_of_the_new_word() {
        let gate = Gate::new();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| gate.wait_while(0));
            std::thread::sleep(Duration::from_millis(5));
            gate.set(7);
            assert_eq!(sleeper.join().unwrap(), 7);
        });
        gate.set_quietly(0);
        assert_eq!((gate.get(), gate.wait_while(1)), (0, 0));
        nap(Duration::from_micros(1));
    }
}
