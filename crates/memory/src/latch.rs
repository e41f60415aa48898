//! Latches: who may change a data structure now. They live in DRAM, beside the structure, never in the pool.
//!
//! ```text
//!  63                                   3    2        1        0
//! +--------------------------------------+--------+---------+--------+
//! | version: grows with each unlock      | poison | waiters | locked |
//! +--------------------------------------+--------+---------+--------+
//! ```
//!
//! Readers take nothing: they note the version, read, and ask whether it is still the same (optimistic lock coupling).
//! Writers lock. Who has to wait parks through the [`Memory`] that runs it: a fiber switches, an OS thread sleeps; so one
//! latch serves both, and [`NoLatch`] serves the single thread that needs none. A latch whose holder died (panicked)
//! is poisoned: what it protects may be half changed, and everybody is told so.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use fulgurite_runtime::AccessError;

use crate::Memory;

/// A latch that containers are generic over.
pub trait Latch: Default + Send + Sync + 'static {
    /// Waits until nobody holds the latch, and returns its version.
    ///
    /// # Errors
    /// [`AccessError::Poisoned`], or what ended the wait.
    fn read_begin<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError>;
    /// Whether nobody has held the latch since `read_begin` returned `version`: what was read in between is one state.
    fn read_validate(&self, version: u64) -> bool;
    /// Waits until nobody holds the latch, and holds it until the guard is dropped.
    ///
    /// # Errors
    /// [`AccessError::Poisoned`], or what ended the wait.
    fn lock<M: Memory>(&self, memory: &mut M) -> Result<Exclusive<'_, Self, M>, AccessError>;
    /// Holds the latch if nobody has held it since `version`; never waits.
    fn upgrade<M: Memory>(&self, version: u64) -> Option<Exclusive<'_, Self, M>>;
    /// Lets go. For [`Exclusive`] only. Returns whether somebody waits.
    #[doc(hidden)]
    fn release(&self, poison: bool) -> bool;
    /// What those who wait are parked under.
    #[doc(hidden)]
    fn key(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
}

/// Holds a latch; lets go when dropped. Dropped by a panic, it poisons.
#[must_use = "the latch is let go as soon as this is dropped"]
#[derive(Debug)]
pub struct Exclusive<'l, L: Latch, M: Memory> {
    latch: &'l L,
    memory: PhantomData<fn(M)>,
}

impl<L: Latch, M: Memory> Drop for Exclusive<'_, L, M> {
    #[inline]
    fn drop(&mut self) {
        if self.latch.release(std::thread::panicking()) {
            M::unpark_all(self.latch.key());
        }
    }
}

/// No latch: for structures that one thread has to itself.
#[derive(Default, Debug)]
pub struct NoLatch;

impl Latch for NoLatch {
    #[inline(always)]
    fn read_begin<M: Memory>(&self, _: &mut M) -> Result<u64, AccessError> {
        Ok(0)
    }
    #[inline(always)]
    fn read_validate(&self, _: u64) -> bool {
        true
    }
    #[inline(always)]
    fn lock<M: Memory>(&self, _: &mut M) -> Result<Exclusive<'_, Self, M>, AccessError> {
        Ok(Exclusive { latch: self, memory: PhantomData })
    }
    #[inline(always)]
    fn upgrade<M: Memory>(&self, _: u64) -> Option<Exclusive<'_, Self, M>> {
        Some(Exclusive { latch: self, memory: PhantomData })
    }
    #[inline(always)]
    fn release(&self, _: bool) -> bool {
        false
    }
}

/// A latch with a version, for fibers and OS threads.
#[derive(Default, Debug)]
pub struct VersionLatch {
    word: AtomicU64,
}

const LOCKED: u64 = 1;
const WAITERS: u64 = 2;
const POISON: u64 = 4;
const VERSION: u64 = 8;

impl VersionLatch {
    /// Waits until the latch is not locked; returns the word then.
    #[cold]
    fn wait<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & POISON != 0 {
                return Err(AccessError::Poisoned);
            }
            if word & LOCKED == 0 {
                return Ok(word);
            }
            let waiting = word | WAITERS;
            if word == waiting
                || self.word.compare_exchange(word, waiting, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                memory.park(self.key(), &|| self.word.load(Ordering::Relaxed) == waiting)?;
            }
        }
    }
}

impl Latch for VersionLatch {
    #[inline]
    fn read_begin<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
        let word = self.word.load(Ordering::Acquire);
        if word & (LOCKED | POISON) == 0 { Ok(word & !WAITERS) } else { Ok(self.wait(memory)? & !WAITERS) }
    }
    #[inline]
    fn read_validate(&self, version: u64) -> bool {
        // The reads in between must not move below this load.
        fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) & !WAITERS == version
    }
    #[inline]
    fn lock<M: Memory>(&self, memory: &mut M) -> Result<Exclusive<'_, Self, M>, AccessError> {
        loop {
            let mut word = self.word.load(Ordering::Relaxed);
            if word & (LOCKED | POISON) != 0 {
                word = self.wait(memory)?;
            }
            if self.word.compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                // Stores under the latch must not be seen before the lock itself by those who validate.
                fence(Ordering::Release);
                return Ok(Exclusive { latch: self, memory: PhantomData });
            }
        }
    }
    #[inline]
    fn upgrade<M: Memory>(&self, version: u64) -> Option<Exclusive<'_, Self, M>> {
        let word = self.word.load(Ordering::Relaxed);
        if word & !WAITERS != version {
            return None;
        }
        self.word.compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed).ok()?;
        fence(Ordering::Release);
        Some(Exclusive { latch: self, memory: PhantomData })
    }
    #[inline]
    fn release(&self, poison: bool) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            debug_assert!(word & LOCKED != 0, "a latch is let go that nobody holds");
            let next = ((word & !(LOCKED | WAITERS)) + VERSION) | if poison { POISON } else { 0 };
            match self.word.compare_exchange_weak(word, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return word & WAITERS != 0,
                Err(now) => word = now,
            }
        }
    }
}

/// A latch with a version, for the fibers of one worker: the protocol of [`VersionLatch`] without locked instructions.
///
/// Fibers of one worker take turns only where they wait, so that a load and a store are one step to them.
#[derive(Default, Debug)]
pub struct FiberLatch {
    latch: VersionLatch,
    /// The thread that has used it first, by the address of something that is its own; 0 for none yet.
    thread: AtomicU64,
}

impl FiberLatch {
    /// Asserts that one thread uses the latch.
    #[inline]
    fn check_thread(&self) {
        thread_local!(static HERE: u8 = const { 0 });
        let here = HERE.with(|here| std::ptr::from_ref(here) as u64);
        let known = self.thread.load(Ordering::Relaxed);
        if known != here {
            assert_eq!(known, 0, "a latch for the fibers of one worker is used by two threads; use VersionLatch");
            self.thread.store(here, Ordering::Relaxed);
        }
    }
    fn take(&self, word: u64) -> u64 {
        self.latch.word.store(word | LOCKED, Ordering::Relaxed);
        word
    }
}

impl Latch for FiberLatch {
    #[inline]
    fn read_begin<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
        self.latch.read_begin(memory)
    }
    #[inline]
    fn read_validate(&self, version: u64) -> bool {
        self.latch.word.load(Ordering::Relaxed) & !WAITERS == version
    }
    #[inline]
    fn lock<M: Memory>(&self, memory: &mut M) -> Result<Exclusive<'_, Self, M>, AccessError> {
        self.check_thread();
        let mut word = self.latch.word.load(Ordering::Relaxed);
        if word & (LOCKED | POISON) != 0 {
            word = self.latch.wait(memory)?;
        }
        self.take(word);
        Ok(Exclusive { latch: self, memory: PhantomData })
    }
    #[inline]
    fn upgrade<M: Memory>(&self, version: u64) -> Option<Exclusive<'_, Self, M>> {
        self.check_thread();
        let word = self.latch.word.load(Ordering::Relaxed);
        if word & !WAITERS != version {
            return None;
        }
        self.take(word);
        Some(Exclusive { latch: self, memory: PhantomData })
    }
    #[inline]
    fn release(&self, poison: bool) -> bool {
        let word = self.latch.word.load(Ordering::Relaxed);
        debug_assert!(word & LOCKED != 0, "a latch is let go that nobody holds");
        let next = ((word & !(LOCKED | WAITERS)) + VERSION) | if poison { POISON } else { 0 };
        self.latch.word.store(next, Ordering::Relaxed);
        word & WAITERS != 0
    }
    fn key(&self) -> usize {
        self.latch.key()
    }
}

/// A fixed number of latches, shared by hash: two keys may have the same one, so whoever needs several takes them in the
/// order of [`LatchTable::index`] and each once.
#[derive(Debug)]
pub struct LatchTable<L> {
    latches: Box<[L]>,
}

impl<L: Latch> LatchTable<L> {
    /// `count` latches, rounded up to a power of two. Eight bytes each.
    ///
    /// # Panics
    /// When `count` is zero.
    #[must_use]
    pub fn new(count: usize) -> Self {
        assert!(count > 0, "a latch table needs a latch");
        LatchTable { latches: (0..count.next_power_of_two()).map(|_| L::default()).collect() }
    }
    /// Which latch stands for `key`.
    #[inline(always)]
    #[must_use]
    pub fn index(&self, key: u64) -> usize {
        // Fibonacci hashing: the high bits of the product depend on every bit of the key.
        let spread = (u128::from(key.wrapping_mul(0x9E37_79B9_7F4A_7C15)) * self.latches.len() as u128) >> 64;
        spread as usize
    }
    /// The latch with this index.
    ///
    /// # Panics
    /// When there is none.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, index: usize) -> &L {
        &self.latches[index]
    }
    /// The latch that stands for `key`.
    #[inline(always)]
    #[must_use]
    pub fn of(&self, key: u64) -> &L {
        &self.latches[self.index(key)]
    }
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.latches.len()
    }
    /// Whether there are none (never).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.latches.is_empty()
    }
    /// DRAM that they use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.latches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, PlainMemory, Ptr};
    use fulgurite_sys::Backed;
    use std::sync::Arc;

    #[test]
    fn threads_take_turns_and_readers_see_whole_states() {
        let memory = PlainMemory::new(Backed::BasePages).unwrap();
        let latch = Arc::new(VersionLatch::default());
        let (a, b) = (Ptr::<u64>::new(Address::from_linear(0)), Ptr::<u64>::new(Address::from_linear(8192)));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (mut memory, latch) = (memory.clone(), latch.clone());
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let guard = latch.lock(&mut memory).unwrap();
                        let v = memory.load(a).unwrap();
                        memory.store(a, v + 1).unwrap();
                        memory.store(b, v + 1).unwrap();
                        drop(guard);
                        loop {
                            let version = latch.read_begin(&mut memory).unwrap();
                            let (x, y) = (memory.load(a).unwrap(), memory.load(b).unwrap());
                            if latch.read_validate(version) {
                                assert_eq!(x, y);
                                break;
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(memory.clone().load(a), Ok(6000));
    }
    #[test]
    fn a_dead_holder_poisons() {
        let memory = PlainMemory::new(Backed::BasePages).unwrap();
        let latch = VersionLatch::default();
        let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = latch.lock(&mut memory.clone()).unwrap();
            panic!("the holder dies");
        }));
        assert!(died.is_err());
        let mut memory = memory.clone();
        assert_eq!(latch.lock(&mut memory).err(), Some(AccessError::Poisoned));
        assert_eq!(latch.read_begin(&mut memory), Err(AccessError::Poisoned));
    }
    #[test]
    fn upgrade_needs_the_same_version() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let latch = VersionLatch::default();
        let version = latch.read_begin(&mut memory).unwrap();
        drop(latch.upgrade::<PlainMemory>(version).unwrap());
        assert!(latch.upgrade::<PlainMemory>(version).is_none());
    }
    #[test]
    fn a_fiber_latch_has_the_same_protocol_on_one_thread() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let latch = FiberLatch::default();
        let version = latch.read_begin(&mut memory).unwrap();
        drop(latch.lock(&mut memory).unwrap());
        assert!(!latch.read_validate(version) && latch.upgrade::<PlainMemory>(version).is_none());
        let version = latch.read_begin(&mut memory).unwrap();
        drop(latch.upgrade::<PlainMemory>(version).unwrap());
        let (mut other, latch) = (memory.clone(), &latch);
        let elsewhere = std::thread::scope(|s| s.spawn(move || latch.lock(&mut other).map(drop)).join());
        assert!(elsewhere.is_err(), "a second thread is refused");
    }
    #[test]
    fn the_table_spreads() {
        let table = LatchTable::<NoLatch>::new(1000);
        assert_eq!(table.len(), 1024);
        let used: std::collections::HashSet<_> = (0..10_000u64).map(|k| table.index(k * 64)).collect();
        assert!(used.len() > 1000, "{}", used.len());
    }
}
