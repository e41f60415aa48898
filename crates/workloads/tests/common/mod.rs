//! What the tests of this crate share: a memory that lets others run and fails, copies of built
//! data, and a watch over hangs.

use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::time::Duration;

use fulgurite_memory::{
    AccessError, Address, Memory, PlainMemory, PlainPin, RawMemory, Region, SUBPAGE_BYTES, View, ViewMut,
};
use fulgurite_sys::Backed;
use fulgurite_workloads::Random;

/// The error of an access that [`Unsteady`] lets fail.
pub const FAILED: AccessError = AccessError::Cancelled;

/// Plain memory that yields to other threads at random accesses, and fails others: at random, or
/// when a fuse has burnt down.
pub struct Unsteady {
    inner: PlainMemory,
    random: Random,
    /// Of 10,000 accesses.
    yields: u64,
    /// Of 10,000 accesses.
    fails: u64,
    /// Accesses until one fails. 0 for none.
    fuse: u64,
    /// Accesses that have failed.
    pub failed: u64,
}

impl Unsteady {
    /// Over the same bytes as `inner`. Of 10,000 accesses, about `yields` yield and `fails` fail.
    pub fn over(inner: &PlainMemory, random: Random, yields: u64, fails: u64) -> Self {
        Unsteady { inner: inner.clone(), random, yields, fails, fuse: 0, failed: 0 }
    }
    /// Lights a fuse for half of the attempts. It gets longer with each attempt, so that even a
    /// request with thousands of accesses succeeds after a while, and has failed at about every
    /// part of them before.
    pub fn light(&mut self, attempt: u32) {
        self.fuse = if self.random.percent(50) { 1 + self.random.below(8 << attempt.min(40)) } else { 0 };
    }
    fn disturb(&mut self) -> Result<(), AccessError> {
        let draw = self.random.below(10_000);
        let burnt_down = self.fuse == 1;
        self.fuse = self.fuse.saturating_sub(1);
        if burnt_down || draw < self.fails {
            self.failed += 1;
            return Err(FAILED);
        }
        if draw < self.fails + self.yields {
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl RawMemory for Unsteady {
    type Pin = PlainPin;
    type Section = ();
    type Inner = Self;
    fn identity(&self) -> fulgurite_memory::Identity<'_> {
        self.inner.identity()
    }
    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        self.disturb()?;
        self.inner.view(at, len)
    }
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        self.disturb()?;
        self.inner.view_mut(at, len)
    }
    fn pin(&mut self, at: Address) -> Result<PlainPin, AccessError> {
        self.disturb()?;
        self.inner.pin(at)
    }
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.disturb()?;
        self.inner.park(word, expected)
    }
    fn write_section(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        self.disturb()?;
        self.inner.yield_now()
    }
}

/// New plain memory.
pub fn plain() -> PlainMemory {
    PlainMemory::new(Backed::BasePages).expect("address space for a test")
}

/// Plain memory of its own with the bytes of `region`.
pub fn copy(from: &PlainMemory, region: Region) -> PlainMemory {
    let (mut from, mut to) = (from.clone(), plain());
    let mut subpage = [0; SUBPAGE_BYTES];
    for offset in (0..region.bytes).step_by(SUBPAGE_BYTES) {
        from.read_bytes(region.base.add(offset), &mut subpage).unwrap();
        to.write_bytes(region.base.add(offset), &subpage).unwrap();
    }
    to
}

/// Runs `test` and ends the process when it takes longer than `seconds`: a hang is a failure, not a
/// wait.
pub fn within<T: Send + 'static>(seconds: u64, what: String, test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(what.clone())
        .spawn(move || {
            let result = test();
            let _ = done.send(());
            result
        })
        .unwrap();
    if is_done.recv_timeout(Duration::from_secs(seconds)) == Err(mpsc::RecvTimeoutError::Timeout) {
        eprintln!("{what}: hangs for more than {seconds} s");
        std::process::abort();
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Whether a workload changes nothing.
pub fn only_reads(name: &str, mix: Mix) -> bool {
    ["search", "mmap-bench"].contains(&name) || mix.1 == Some(100)
}

/// Bytes of a value, and how many of 100 requests are gets.
pub type Mix = (Option<u32>, Option<u32>);

/// What workloads have unless they are asked for another one.
pub const OWN_MIX: Mix = (Some(900), None);

/// Declares a test with `conform` for each workload in each further mix.
macro_rules! mixes {
    ($test:path) => {
        $test! {
            blobs_gets "blobs", (Some(900), Some(100));
            blobs_half "blobs", (Some(900), Some(50));
            blobs_128 "blobs", (Some(128), None);
            blobs_128_gets "blobs", (Some(128), Some(100));
            blobs_128_half "blobs", (Some(128), Some(50));
            blobs_large "blobs", (None, None);
            blobs_large_gets "blobs", (None, Some(100));
            blobs_large_half "blobs", (None, Some(50));
            gups_read "gups", (Some(900), Some(100));
            gups_half "gups", (Some(900), Some(50));
        }
    };
}
pub(crate) use mixes;
