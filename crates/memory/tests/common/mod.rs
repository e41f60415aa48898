//! What the tests of this crate share: a memory whose accesses fail on demand, and random numbers from a printed seed.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fulgurite_memory::{AccessError, Address, Memory, Pinned, PlainMemory, View, ViewMut};
use fulgurite_sys::Backed;

#[derive(Default, Debug)]
struct PinCount {
    now: AtomicU64,
    most: AtomicU64,
}

/// A pin that is counted as long as it lives.
#[derive(Debug)]
pub struct CountedPin {
    inner: <PlainMemory as Memory>::Pin,
    pins: Arc<PinCount>,
}
impl Drop for CountedPin {
    fn drop(&mut self) {
        self.pins.now.fetch_sub(1, Relaxed);
    }
}
impl Pinned for CountedPin {
    fn address(&self) -> Address {
        self.inner.address()
    }
    fn view(&self, offset: usize, len: usize) -> View<'_> {
        self.inner.view(offset, len)
    }
    fn view_mut(&self, offset: usize, len: usize) -> ViewMut<'_> {
        self.inner.view_mut(offset, len)
    }
}

/// Plain memory whose n-th access from now fails, once.
#[derive(Clone, Debug)]
pub struct FaultyMemory {
    inner: PlainMemory,
    /// Accesses left before the one that fails; `None`: none fails.
    countdown: Option<u64>,
    error: AccessError,
    /// Accesses made so far.
    pub accesses: u64,
    pins: Arc<PinCount>,
}

impl FaultyMemory {
    /// Over new plain memory; nothing fails yet.
    pub fn new() -> Self {
        Self::over(plain())
    }
    /// Over this plain memory; nothing fails yet.
    pub fn over(inner: PlainMemory) -> Self {
        FaultyMemory { inner, countdown: None, error: AccessError::Cancelled, accesses: 0, pins: Arc::default() }
    }
    /// Lets `count` accesses pass and the next one fail with `error`.
    pub fn fail_after(&mut self, count: u64, error: AccessError) {
        self.countdown = Some(count);
        self.error = error;
    }
    /// No access fails any more. Returns whether the one that was to fail never came.
    pub fn heal(&mut self) -> bool {
        self.countdown.take().is_some()
    }
    /// The most pins held at once since this was asked last.
    pub fn take_most_pins(&self) -> u64 {
        self.pins.most.swap(self.pins.now.load(Relaxed), Relaxed)
    }
    fn access(&mut self) -> Result<(), AccessError> {
        self.accesses += 1;
        match &mut self.countdown {
            Some(0) => {
                self.countdown = None;
                Err(self.error)
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Memory for FaultyMemory {
    type Pin = CountedPin;
    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        self.access()?;
        self.inner.view(at, len)
    }
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        self.access()?;
        self.inner.view_mut(at, len)
    }
    fn pin(&mut self, at: Address) -> Result<Self::Pin, AccessError> {
        self.access()?;
        let inner = self.inner.pin(at)?;
        let now = self.pins.now.fetch_add(1, Relaxed) + 1;
        self.pins.most.fetch_max(now, Relaxed);
        Ok(CountedPin { inner, pins: self.pins.clone() })
    }
    fn prefetch(&mut self, at: Address) {
        self.inner.prefetch(at);
    }
    fn park(&mut self, key: usize, still: &dyn Fn() -> bool) -> Result<(), AccessError> {
        self.inner.park(key, still)
    }
    fn unpark_all(key: usize) {
        PlainMemory::unpark_all(key);
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        self.access()?;
        self.inner.yield_now()
    }
}

/// New plain memory.
pub fn plain() -> PlainMemory {
    PlainMemory::new(Backed::BasePages).expect("16 TiB of address space")
}

/// The errors that an access may meet at any time.
pub fn errors() -> [AccessError; 3] {
    [AccessError::Cancelled, AccessError::DeadlineExceeded, AccessError::ShuttingDown]
}

/// Random numbers (splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From `FULGURITE_SEED` where it is set, else from `default`; prints the seed.
    pub fn seeded(what: &str, default: u64) -> Self {
        let seed = std::env::var("FULGURITE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(default);
        println!("{what}: FULGURITE_SEED={seed}");
        Random(seed)
    }
    /// A stream of its own, for thread or round `number`.
    pub fn split(&self, number: u64) -> Self {
        let mut other = Random(self.0 ^ number.wrapping_mul(0xD134_2543_DE82_EF95));
        other.next();
        other
    }
    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}
