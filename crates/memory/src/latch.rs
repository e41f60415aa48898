//! Latches: the right to change a data structure now. They are in DRAM, next to the structure,
//! never in the pool.
//!
//! ```text
//!  63                                   3    2        1        0
//! +--------------------------------------+--------+---------+--------+
//! | version: grows with each unlock      | poison | waiters | locked |
//! +--------------------------------------+--------+---------+--------+
//! ```
//!
//! Readers take nothing: they note the version, read, and ask whether it is still the same
//! (optimistic lock coupling). Writers lock. A waiter parks through its [`Memory`]: a fiber
//! switches, an OS thread sleeps. So one latch serves both, and [`NoLatch`] a single thread. A
//! latch whose holder panicked is poisoned, because its data may be half changed.
//!
//! The latch of one worker's fibers says in the top bits of its word whose it is:
//!
//! ```text
//!  63            44 43                  3    2        1        0
//! +----------------+---------------------+--------+---------+--------+
//! | thread, from 1 | version, wraps      | poison | waiters | locked |
//! +----------------+---------------------+--------+---------+--------+
//! ```

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use fulgurite_runtime::{AccessError, parking};

use crate::{ByKind, Memory};

/// A latch that containers are generic over.
pub trait Latch: Default + Send + Sync + 'static {
    /// Waits until nobody holds the latch, and returns its version.
    ///
    /// # Errors
    /// [`AccessError::Poisoned`], or what ended the wait.
    fn read_begin<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError>;
    /// Whether the latch was free ever since `read_begin` returned `version`, so that the reads saw
    /// one state.
    fn read_validate(&self, version: u64) -> bool;
    /// Waits until nobody holds the latch, and holds it until the guard is dropped.
    ///
    /// # Errors
    /// [`AccessError::Poisoned`], or what ended the wait.
    fn lock<M: Memory>(&self, memory: &mut M) -> Result<Exclusive<'_, Self, M>, AccessError>;
    /// Holds the latch if nobody has held it since `version`; never waits.
    fn upgrade<M: Memory>(&self, memory: &mut M, version: u64) -> Option<Exclusive<'_, Self, M>>;
    /// Lets go. For [`Exclusive`] only. Returns the word that waiters are parked on, if there are
    /// any.
    #[doc(hidden)]
    fn release(&self, poison: bool) -> Option<&AtomicU64>;
    /// What it protects has become something else while it was free, and readers find out. It is
    /// whole, so a panic of a holder is forgotten. With `gone`, taking the latch returns
    /// [`AccessError::Poisoned`]. [`NoLatch`] cannot tell.
    fn disturb(&self, gone: bool);
}

/// Holds a latch; lets go when dropped, on the thread that took it. Dropped by a panic, it poisons.
#[must_use = "the latch is let go as soon as this is dropped"]
#[derive(Debug)]
pub struct Exclusive<'l, L: Latch, M: Memory> {
    latch: &'l L,
    memory: PhantomData<fn(M)>,
    not_send: PhantomData<*mut ()>,
}

impl<'l, L: Latch, M: Memory> Exclusive<'l, L, M> {
    #[inline(always)]
    fn of(latch: &'l L) -> Self {
        Exclusive { latch, memory: PhantomData, not_send: PhantomData }
    }
}

impl<L: Latch, M: Memory> Drop for Exclusive<'_, L, M> {
    #[inline]
    fn drop(&mut self) {
        // A transaction has only noted it.
        if M::TRACKED {
            return;
        }
        if let Some(word) = self.latch.release(std::thread::panicking()) {
            wake_all(word);
        }
    }
}

/// Wakes the fibers and the threads that wait for the latch with this word.
pub(crate) fn wake_all(word: &AtomicU64) {
    parking::unpark_all(word);
}

/// Runs code of a caller while `held` is. A panic in it has changed nothing that the latch
/// protects, so it goes on without poisoning the latch.
pub(crate) fn harmless<H, R>(held: H, code: impl FnOnce() -> R) -> (R, H) {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(result) => (result, held),
        Err(panic) => {
            drop(held);
            resume_unwind(panic)
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
        Ok(Exclusive::of(self))
    }
    #[inline(always)]
    fn upgrade<M: Memory>(&self, _: &mut M, _: u64) -> Option<Exclusive<'_, Self, M>> {
        Some(Exclusive::of(self))
    }
    #[inline(always)]
    fn release(&self, _: bool) -> Option<&AtomicU64> {
        None
    }
    fn disturb(&self, _: bool) {}
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

/// Waits until the latch with this word is not locked; returns the word then.
#[cold]
fn wait<M: Memory>(word: &AtomicU64, memory: &mut M) -> Result<u64, AccessError> {
    loop {
        let now = word.load(Ordering::Acquire);
        if now & POISON != 0 {
            return Err(AccessError::Poisoned);
        }
        if now & LOCKED == 0 {
            return Ok(now);
        }
        let waiting = now | WAITERS;
        if now == waiting || word.compare_exchange(now, waiting, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            memory.park(word, waiting)?;
        }
    }
}

/// Whether the [`VersionLatch`] with this word is free and has this version.
#[inline]
pub(crate) fn is_at(word: &AtomicU64, version: u64) -> bool {
    word.load(Ordering::Relaxed) & !WAITERS == version
}
/// Takes the [`VersionLatch`] with this word if it is free and has this version. Never waits.
#[inline]
pub(crate) fn try_lock(latch: &AtomicU64, version: u64) -> bool {
    let word = latch.load(Ordering::Relaxed);
    let free = word & !WAITERS == version;
    if free && latch.compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        // Validating readers must not see stores under the latch before the lock itself.
        fence(Ordering::Release);
        return true;
    }
    false
}
/// Lets go of the [`VersionLatch`] with this word. What it protects has changed, or is as it was.
/// Returns whether there are waiters.
pub(crate) fn let_go(word: &AtomicU64, changed: bool) -> bool {
    let was = if changed {
        let next = |word| Some((word & !(LOCKED | WAITERS)) + VERSION);
        word.fetch_update(Ordering::Release, Ordering::Relaxed, next).unwrap_or_else(|word| word)
    } else {
        word.fetch_and(!(LOCKED | WAITERS), Ordering::Release)
    };
    was & WAITERS != 0
}

impl Latch for VersionLatch {
    #[inline]
    fn read_begin<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
        let mut word = self.word.load(Ordering::Acquire);
        if word & (LOCKED | POISON) != 0 {
            word = wait(&self.word, memory)?;
        }
        memory.note_read(&self.word, word & !WAITERS);
        Ok(word & !WAITERS)
    }
    #[inline]
    fn read_validate(&self, version: u64) -> bool {
        // The reads in between must not move below this load.
        fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) & !WAITERS == version
    }
    #[inline]
    fn lock<M: Memory>(&self, memory: &mut M) -> Result<Exclusive<'_, Self, M>, AccessError> {
        if M::TRACKED {
            let version = self.read_begin(memory)?;
            memory.note_lock(&self.word, version);
            return Ok(Exclusive::of(self));
        }
        loop {
            let mut word = self.word.load(Ordering::Relaxed);
            if word & (LOCKED | POISON) != 0 {
                word = wait(&self.word, memory)?;
            }
            if self.word.compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                // Validating readers must not see stores under the latch before the lock itself.
                fence(Ordering::Release);
                return Ok(Exclusive::of(self));
            }
        }
    }
    #[inline]
    fn upgrade<M: Memory>(&self, memory: &mut M, version: u64) -> Option<Exclusive<'_, Self, M>> {
        if M::TRACKED {
            if !self.read_validate(version) {
                return None;
            }
            memory.note_lock(&self.word, version);
        } else if !try_lock(&self.word, version) {
            return None;
        }
        Some(Exclusive::of(self))
    }
    #[inline]
    fn release(&self, poison: bool) -> Option<&AtomicU64> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            debug_assert!(word & LOCKED != 0, "a latch is let go that nobody holds");
            let next = ((word & !(LOCKED | WAITERS)) + VERSION) | if poison { POISON } else { 0 };
            match self.word.compare_exchange_weak(word, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return (word & WAITERS != 0).then_some(&self.word),
                Err(now) => word = now,
            }
        }
    }
    fn disturb(&self, gone: bool) {
        let poison = if gone { POISON } else { 0 };
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| Some(((word + VERSION) & !POISON) | poison));
    }
}

/// A latch with a version, for the fibers of one worker: the protocol of [`VersionLatch`] without
/// locked instructions.
///
/// Fibers of one worker take turns only where they wait, so a load and a store are one step to
/// them. The latch belongs to the first thread that uses it, for good.
///
/// # Panics
/// When another thread uses it.
#[derive(Default, Debug)]
pub struct FiberLatch {
    word: AtomicU64,
}
const _: () = assert!(size_of::<FiberLatch>() == 8 && size_of::<VersionLatch>() == 8);

/// Where the thread's number begins in a [`FiberLatch`]'s word: some million threads, and versions
/// that repeat after 2^41 unlocks, which no reader outlasts.
const THREAD_SHIFT: u32 = 44;
const THREAD: u64 = !0 << THREAD_SHIFT;

/// The calling thread's number, unique in this process, in its place in the word.
#[inline(always)]
fn this_thread() -> u64 {
    thread_local!(static MINE: Cell<u64> = const { Cell::new(0) });
    #[cold]
    fn number() -> u64 {
        static THREADS: AtomicU64 = AtomicU64::new(1);
        let number = THREADS.fetch_add(1, Ordering::Relaxed);
        assert!(
            number <= THREAD >> THREAD_SHIFT,
            "more threads have used latches for fibers than can be distinguished; use VersionLatch"
        );
        MINE.set(number << THREAD_SHIFT);
        number << THREAD_SHIFT
    }
    match MINE.get() {
        0 => number(),
        mine => mine,
    }
}

impl FiberLatch {
    /// The word; the latch is this thread's.
    #[inline(always)]
    fn load(&self) -> u64 {
        let (word, here) = (self.word.load(Ordering::Relaxed), this_thread());
        if word & THREAD == here { word } else { self.claim(here) }
    }
    /// Takes possession of a latch that nobody has used.
    #[cold]
    fn claim(&self, here: u64) -> u64 {
        let claimed = self.word.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed);
        assert!(claimed.is_ok(), "a latch for the fibers of one worker is used by two threads; use VersionLatch");
        here
    }
    #[inline(always)]
    fn take<M: Memory>(&self, word: u64) -> Exclusive<'_, Self, M> {
        self.word.store(word | LOCKED, Ordering::Relaxed);
        Exclusive::of(self)
    }
}

impl Latch for FiberLatch {
    #[inline]
    fn read_begin<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
        let word = self.load();
        if word & (LOCKED | POISON) == 0 { Ok(word & !WAITERS) } else { Ok(wait(&self.word, memory)? & !WAITERS) }
    }
    #[inline]
    fn read_validate(&self, version: u64) -> bool {
        self.word.load(Ordering::Relaxed) & !WAITERS == version
    }
    #[inline]
    fn lock<M: Memory>(&self, memory: &mut M) -> Result<Exclusive<'_, Self, M>, AccessError> {
        let mut word = self.load();
        if word & (LOCKED | POISON) != 0 {
            word = wait(&self.word, memory)?;
        }
        Ok(self.take(word))
    }
    #[inline]
    fn upgrade<M: Memory>(&self, _: &mut M, version: u64) -> Option<Exclusive<'_, Self, M>> {
        let word = self.load();
        (word & !WAITERS == version).then(|| self.take(word))
    }
    #[inline]
    fn release(&self, poison: bool) -> Option<&AtomicU64> {
        // On the thread that took it: a guard is not `Send`.
        let word = self.word.load(Ordering::Relaxed);
        debug_assert!(word & LOCKED != 0 && word & THREAD == this_thread(), "a latch is let go that nobody holds");
        let version = (word & !(LOCKED | WAITERS)).wrapping_add(VERSION) & !THREAD;
        self.word.store((word & THREAD) | version | if poison { POISON } else { 0 }, Ordering::Relaxed);
        (word & WAITERS != 0).then_some(&self.word)
    }
    /// Also on another thread than the latch's. While it is free and cannot be taken, its owner
    /// only reads the word.
    fn disturb(&self, gone: bool) {
        if gone && self.word.load(Ordering::Relaxed) == 0 {
            // Nobody's yet: becomes this thread's, whose users get the error.
            self.claim(this_thread());
        }
        let poison = if gone { POISON } else { 0 };
        let _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
            let version = word.wrapping_add(VERSION) & !THREAD & !POISON;
            (word & THREAD != 0).then_some((word & THREAD) | version | poison)
        });
    }
}

/// A fixed number of latches, shared by hash. Two keys may share one, so several are taken in the
/// order of [`LatchTable::index`], each once.
#[derive(Debug)]
pub struct LatchTable<L> {
    latches: Box<[L]>,
}

impl<L: Latch> LatchTable<L> {
    /// `count` latches, rounded up to a power of two; eight bytes each, but for [`NoLatch`].
    ///
    /// # Panics
    /// When `count` is zero.
    pub fn new(count: usize) -> Self {
        assert!(count > 0, "a latch table needs a latch");
        LatchTable { latches: (0..count.next_power_of_two()).map(|_| L::default()).collect() }
    }
    /// Which latch stands for `key`.
    #[inline(always)]
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
    pub fn get(&self, index: usize) -> &L {
        &self.latches[index]
    }
    /// The latch that stands for `key`.
    #[inline(always)]
    pub fn of(&self, key: u64) -> &L {
        &self.latches[self.index(key)]
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.latches.len()
    }
    /// Whether there are none (never).
    pub fn is_empty(&self) -> bool {
        self.latches.is_empty()
    }
    /// As [`Latch::disturb`], each of them.
    pub fn disturb(&self, gone: bool) {
        self.latches.iter().for_each(|latch| latch.disturb(gone));
    }
    /// DRAM that they use.
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
        // What it protects is taken from an older state, and whole again.
        latch.disturb(false);
        drop(latch.lock(&mut memory).unwrap());
    }
    #[test]
    fn upgrade_needs_the_same_version() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let latch = VersionLatch::default();
        let version = latch.read_begin(&mut memory).unwrap();
        drop(latch.upgrade(&mut memory, version).unwrap());
        assert!(latch.upgrade(&mut memory, version).is_none());
    }
    #[test]
    fn a_fiber_latch_has_the_same_protocol_on_one_thread() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let latch = FiberLatch::default();
        let version = latch.read_begin(&mut memory).unwrap();
        drop(latch.lock(&mut memory).unwrap());
        assert!(!latch.read_validate(version) && latch.upgrade(&mut memory, version).is_none());
        let version = latch.read_begin(&mut memory).unwrap();
        drop(latch.upgrade(&mut memory, version).unwrap());
        let (mut other, latch) = (memory.clone(), &latch);
        let elsewhere = std::thread::scope(|s| s.spawn(move || latch.lock(&mut other).map(drop)).join());
        assert!(elsewhere.is_err(), "a second thread is refused");
        let mut other = memory.clone();
        let elsewhere = std::thread::scope(|s| s.spawn(move || latch.read_begin(&mut other)).join());
        assert!(elsewhere.is_err(), "also when it only reads");
    }
    #[test]
    fn of_threads_that_use_a_fiber_latch_first_one_gets_it() {
        let memory = PlainMemory::new(Backed::BasePages).unwrap();
        for round in 0..100 {
            let (latch, start) = (FiberLatch::default(), std::sync::Barrier::new(3));
            let used = std::thread::scope(|scope| {
                let threads = [0, 1, 2].map(|i| {
                    let (mut memory, latch, start) = (memory.clone(), &latch, &start);
                    scope.spawn(move || {
                        start.wait();
                        if i == 0 { latch.read_begin(&mut memory).map(drop) } else { latch.lock(&mut memory).map(drop) }
                    })
                });
                threads.map(|t| t.join().is_ok())
            });
            assert_eq!(used.iter().filter(|&&used| used).count(), 1, "round {round}: {used:?}");
        }
    }
    #[test]
    fn a_fiber_latchs_version_wraps_inside_its_bits() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let latch = FiberLatch::default();
        drop(latch.lock(&mut memory).unwrap());
        let thread = latch.word.load(Ordering::Relaxed) & THREAD;
        latch.word.store(thread | !THREAD & !(VERSION - 1), Ordering::Relaxed);
        drop(latch.lock(&mut memory).unwrap());
        assert_eq!(latch.word.load(Ordering::Relaxed), thread);
        drop(latch.lock(&mut memory).unwrap());
    }
    #[test]
    fn who_reads_while_it_is_disturbed_finds_out() {
        fn check<L: Latch>(memory: &mut PlainMemory) {
            let latch = L::default();
            latch.disturb(false);
            let version = latch.read_begin(memory).unwrap();
            latch.disturb(false);
            assert!(!latch.read_validate(version) && latch.upgrade(memory, version).is_none());
            drop(latch.lock(memory).unwrap());
            for unused in [false, true] {
                let latch = if unused { &L::default() } else { &latch };
                latch.disturb(true);
                assert_eq!(latch.lock(memory).err(), Some(AccessError::Poisoned));
                assert_eq!(latch.read_begin(memory), Err(AccessError::Poisoned));
            }
        }
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        check::<VersionLatch>(&mut memory);
        check::<FiberLatch>(&mut memory);
    }
    #[test]
    fn the_table_spreads() {
        let table = LatchTable::<NoLatch>::new(1000);
        assert_eq!(table.len(), 1024);
        let used: std::collections::HashSet<_> = (0..10_000u64).map(|k| table.index(k * 64)).collect();
        assert!(used.len() > 1000, "{}", used.len());
    }
}
