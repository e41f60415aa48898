//! What the tests of this crate share: memories whose accesses fail on demand, or that are written
//! in sections only, and random numbers from a printed seed.

use std::cell::Cell;
use std::collections::HashMap as Model;
use std::fmt::Debug;
use std::hash::Hash;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fulgurite_memory::{
    AccessError, Address, HashMap, KeyHash, Latch, Memory, Pinned, Plain, PlainMemory, RawMemory, VersionLatch, View,
    ViewMut,
};
use fulgurite_sys::Backed;
pub use fulgurite_testkit::Random;

#[derive(Default, Debug)]
struct PinCount {
    now: AtomicU64,
    most: AtomicU64,
}

/// A pin that is counted as long as it lives.
#[derive(Debug)]
pub struct CountedPin {
    inner: <PlainMemory as RawMemory>::Pin,
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

impl RawMemory for FaultyMemory {
    type Pin = CountedPin;
    type Section = ();
    type Inner = Self;
    fn identity(&self) -> fulgurite_memory::Identity<'_> {
        self.inner.identity()
    }
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
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.inner.park(word, expected)
    }
    fn write_section(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        self.access()?;
        self.inner.yield_now()
    }
}

/// Plain memory that counts the sections that are open, and is not written while there is none.
#[derive(Clone)]
pub struct Strict {
    inner: PlainMemory,
    open: Rc<Cell<u32>>,
    /// Outermost sections begun.
    pub begun: u64,
}

impl Strict {
    /// New plain memory.
    pub fn new() -> Strict {
        Strict { inner: plain(), open: Rc::default(), begun: 0 }
    }
    /// Sections that are open.
    pub fn open(&self) -> u32 {
        self.open.get()
    }
}

/// Is open until it is dropped.
pub struct Section(Rc<Cell<u32>>);
impl Drop for Section {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A pin through which nothing is written outside of a section.
pub struct StrictPin {
    inner: <PlainMemory as RawMemory>::Pin,
    open: Rc<Cell<u32>>,
}

fn assert_open(open: &Cell<u32>, at: Address) {
    assert!(open.get() > 0, "{at} is written outside of a section");
}

impl Pinned for StrictPin {
    fn address(&self) -> Address {
        self.inner.address()
    }
    fn view(&self, offset: usize, len: usize) -> View<'_> {
        self.inner.view(offset, len)
    }
    fn view_mut(&self, offset: usize, len: usize) -> ViewMut<'_> {
        assert_open(&self.open, self.inner.address().add(offset as u64));
        self.inner.view_mut(offset, len)
    }
}

impl RawMemory for Strict {
    type Pin = StrictPin;
    type Section = Section;
    type Inner = Self;
    fn identity(&self) -> fulgurite_memory::Identity<'_> {
        self.inner.identity()
    }
    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        self.inner.view(at, len)
    }
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        // A word is written in one piece.
        if len > 8 {
            assert_open(&self.open, at);
        }
        self.inner.view_mut(at, len)
    }
    fn pin(&mut self, at: Address) -> Result<StrictPin, AccessError> {
        Ok(StrictPin { inner: self.inner.pin(at)?, open: self.open.clone() })
    }
    fn park(&mut self, _: &AtomicU64, _: u64) -> Result<(), AccessError> {
        unreachable!("one thread waits for nobody")
    }
    fn write_section(&mut self) -> Result<Section, AccessError> {
        self.begun += u64::from(self.open.get() == 0);
        self.open.set(self.open.get() + 1);
        Ok(Section(self.open.clone()))
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
}

/// New plain memory.
pub fn plain() -> PlainMemory {
    PlainMemory::new(Backed::BasePages).expect("16 TiB of address space")
}

/// The errors that an access may meet at any time; the last is one that a reader might blame on a
/// stale pointer.
pub fn errors() -> [AccessError; 3] {
    [AccessError::Cancelled, AccessError::DeadlineExceeded, AccessError::OutOfRange { at: Address::NULL }]
}

/// All entries of a map that is whole, each seen once.
pub fn entries<K, V, L, M>(memory: &mut M, map: &HashMap<K, V, L>) -> Model<K, V>
where
    K: KeyHash + Eq + Hash + Debug,
    V: Plain,
    L: Latch,
    M: Memory,
{
    let count = map.check(memory).unwrap();
    let mut all = Model::new();
    map.for_each(memory, |&key, &value| assert!(all.insert(key, value).is_none(), "{key:?} twice")).unwrap();
    assert_eq!(count, all.len() as u64);
    all
}
/// A map is whole, and has what the model has.
pub fn same<K, V, L, M>(memory: &mut M, map: &HashMap<K, V, L>, model: &Model<K, V>)
where
    K: KeyHash + Eq + Hash + Debug,
    V: Plain + PartialEq + Debug,
    L: Latch,
    M: Memory,
{
    assert_eq!(&entries(memory, map), model);
}

/// A map that is changed while accesses fail.
pub type Wide = HashMap<u64, [u64; 3], VersionLatch>;

/// Inserts or removes a key. An access may fail, as the memory was set to, and then nothing has
/// changed. Returns whether one did.
pub fn change_or_fail(
    memory: &mut FaultyMemory,
    map: &Wide,
    model: &mut Model<u64, [u64; 3]>,
    (key, value): (u64, [u64; 3]),
    removes: bool,
) -> bool {
    let result = if removes { map.remove(memory, &key) } else { map.insert(memory, &key, value) };
    memory.heal();
    let Ok(old) = result else { return true };
    assert_eq!(old, if removes { model.remove(&key) } else { model.insert(key, value) });
    false
}

/// Plain memory that lets somebody else run at one of its accesses, as a miss does: deterministic
/// interleaving.
pub struct SwitchingMemory<'a> {
    inner: PlainMemory,
    countdown: u64,
    other: Option<&'a mut dyn FnMut(&mut NeverParks)>,
}

impl<'a> SwitchingMemory<'a> {
    /// Lets `count` accesses pass and runs `other` inside the next one. Whether it ran is for
    /// `other` to note.
    pub fn new(inner: PlainMemory, count: u64, other: &'a mut dyn FnMut(&mut NeverParks)) -> Self {
        SwitchingMemory { inner, countdown: count, other: Some(other) }
    }
    fn access(&mut self) {
        if self.countdown > 0 {
            self.countdown -= 1;
        } else if let Some(other) = self.other.take() {
            other(&mut NeverParks(self.inner.clone()));
        }
    }
}

/// Plain memory whose `park` fails with [`AccessError::Cancelled`]: what it would wait for is below
/// it on the stack.
pub struct NeverParks(PlainMemory);

macro_rules! memory_over_plain {
    ($memory:ty, $self:ident, $inner:expr, $before:expr, $park:expr) => {
        impl RawMemory for $memory {
            type Pin = <PlainMemory as RawMemory>::Pin;
            type Section = ();
            type Inner = Self;
            fn identity(&$self) -> fulgurite_memory::Identity<'_> {
                $inner.identity()
            }
            fn view(&mut $self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
                $before;
                $inner.view(at, len)
            }
            fn view_mut(&mut $self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
                $before;
                $inner.view_mut(at, len)
            }
            fn pin(&mut $self, at: Address) -> Result<Self::Pin, AccessError> {
                $before;
                $inner.pin(at)
            }
            fn park(&mut $self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
                if word.load(Relaxed) == expected { $park } else { Ok(()) }
            }
            fn write_section(&mut $self) -> Result<(), AccessError> {
                Ok(())
            }
            fn yield_now(&mut $self) -> Result<(), AccessError> {
                Ok(())
            }
        }
    };
}
impl NeverParks {
    fn access(&mut self) {}
}
memory_over_plain!(NeverParks, self, self.0, self.access(), Err(AccessError::Cancelled));
memory_over_plain!(SwitchingMemory<'_>, self, self.inner, self.access(), panic!("nobody else holds a latch for long"));

#[allow(clippy::too_many_arguments, reason = "a test's closures")]
/// Runs operation after operation, each with another one inside one of its first `accesses`, and
/// checks that results and contents are what one order or the other gives. `run` returns `None`
/// when the operation could not be done at that moment.
pub fn interleave<O: Copy + std::fmt::Debug, S: Clone + PartialEq + std::fmt::Debug, R: PartialEq + std::fmt::Debug>(
    rounds: u64,
    accesses: u64,
    memory: &PlainMemory,
    mut random: Random,
    mut state: S,
    choose: impl Fn(&mut Random) -> O,
    apply: impl Fn(&mut S, O) -> R,
    outer: impl Fn(&mut SwitchingMemory<'_>, O) -> Result<R, AccessError>,
    inner: impl Fn(&mut NeverParks, O) -> Result<R, AccessError>,
    contents: impl Fn(&mut PlainMemory) -> S,
) {
    let (mut ran, mut first, mut second) = (0, 0, 0);
    for round in 0..rounds {
        let (a, b, count) = (choose(&mut random), choose(&mut random), random.below(accesses));
        let mut b_result = None;
        let mut other = |memory: &mut NeverParks| match inner(memory, b) {
            Ok(result) => b_result = Some(result),
            Err(AccessError::Cancelled) => {}
            Err(error) => panic!("round {round}: {b:?} inside {a:?}: {error}"),
        };
        let a_result = outer(&mut SwitchingMemory::new(memory.clone(), count, &mut other), a)
            .unwrap_or_else(|error| panic!("round {round}: {a:?} around {b:?}: {error}"));
        let now = contents(&mut memory.clone());
        let Some(b_result) = b_result else {
            assert_eq!(a_result, apply(&mut state, a), "round {round}: {a:?} alone");
            assert_eq!(now, state, "round {round}: {a:?} alone");
            continue;
        };
        ran += 1;
        let (mut a_first, mut b_first) = (state.clone(), state);
        let results = (apply(&mut a_first, a), apply(&mut a_first, b));
        let b_then = apply(&mut b_first, b);
        let reversed = (apply(&mut b_first, a), b_then);
        let got = (a_result, b_result);
        if got == results && now == a_first {
            first += 1;
        } else {
            assert_eq!(
                (&got, &now),
                (&reversed, &b_first),
                "round {round}: {a:?} with {b:?} inside, at access {count}"
            );
            second += 1;
        }
        state = now;
    }
    println!("{ran} of {rounds} interleaved: {first} as if first, {second} as if second");
    assert!(ran > rounds / 4 && second > 0, "{ran} {first} {second}");
}
