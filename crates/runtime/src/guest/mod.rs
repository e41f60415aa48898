//! A guest: a thread that is no worker, and runs the code of containers on its own stack.
//!
//! ```text
//!  thread --access--> residency word --resident--> frame, named in the thread's slot
//!     |                    |
//!     |                    +--absent--> a worker: miss table, frame, request --> flash
//!     +<-- woken by that worker <-- completion ------------------------------------+
//! ```
//!
//! A hit never leaves the thread. A miss blocks this thread only: the worker that owns the frames
//! reads for it, as for a fiber of another worker. `seats` has what syncs and evictors ask of
//! threads.
//!
//! What a guest has not, because these belong to jobs: owned regions, priorities, deadlines.

mod cached;
mod pins;
pub(crate) mod readers;
pub(crate) mod seats;

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use fulgurite_cache::{State, Unsealed, Writer, residency};
use fulgurite_format::{Address, FrameIndex, SUBPAGE_SHIFT};

use crate::error::AccessError;
use crate::mailbox::{Message, Wake};
use crate::parking;
use crate::runtime::Runtime;
use crate::shared::Shared;
use crate::thread::{Standing, standing};
use seats::{DEPTH, SEATS_MAX, Seat, Seats};

pub use pins::GuestPin;

/// How long a write waits between two checks of a sealed frame.
const SEALED_WAIT: Duration = Duration::from_micros(20);
/// How long a change waits between two checks for room.
const LOOK_AGAIN: Duration = Duration::from_micros(50);
/// Pins that a thread may hold at a time.
const PINS: u32 = 32;

const BASE_SUBPAGE: u64 = Address::from_linear(0).bits() >> SUBPAGE_SHIFT;

/// The memory of a thread that is no worker. See [`Runtime::run_here`].
pub struct Guest<'r> {
    shared: &'r Arc<Shared>,
    seat: &'r Seat,
    slot: &'r AtomicU32,
    not_send: PhantomData<*mut ()>,
}

impl std::fmt::Debug for Guest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest").field("seat", &self.seat.number).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Runs `code` on the calling thread, which is no worker's. A hit costs no switch of threads,
    /// and a miss blocks this thread only. An operation in the body of a transaction may do this
    /// once more; deeper it is refused.
    ///
    /// # Errors
    /// What `code` returned. [`AccessError::OnWorker`] inside a job. [`AccessError::Nested`] inside
    /// the closure of another operation. [`AccessError::TooManyThreads`]. [`AccessError::Forked`].
    pub fn run_here<T, E: From<AccessError>>(&self, code: impl FnOnce(&mut Guest<'_>) -> Result<T, E>) -> Result<T, E> {
        let shared = &self.shared;
        match standing() {
            Standing::Free => {}
            Standing::Worker => return Err(AccessError::OnWorker.into()),
            Standing::Holding => return Err(AccessError::Nested.into()),
        }
        if !shared.process.is_current() {
            return Err(AccessError::Forked.into());
        }
        let taken = Taken::of(shared)?;
        let depth = taken.depth.get();
        if depth == DEPTH {
            return Err(AccessError::Nested.into());
        }
        let inside = Inside::enter(shared, &taken, depth);
        let mut guest = Guest { shared, seat: &taken.seat, slot: taken.seat.slot(depth), not_send: PhantomData };
        let result = code(&mut guest);
        drop(inside);
        result
    }
}

/// A thread's seat in one runtime, and how many operations of the thread are under way there.
struct Taken {
    runtime: u32,
    seats: Weak<Shared>,
    seat: Arc<CachePadded<Seat>>,
    depth: Cell<usize>,
}

thread_local! {
    /// The seats of this thread.
    static SEATS: RefCell<Vec<std::rc::Rc<Taken>>> = const { RefCell::new(Vec::new()) };
}

impl Taken {
    /// The calling thread's seat. While the thread ends, after its other seats were given back, it
    /// is a seat for one operation.
    fn of(shared: &Arc<Shared>) -> Result<std::rc::Rc<Taken>, AccessError> {
        let known = SEATS.try_with(|seats| {
            let seats = seats.borrow();
            seats.iter().find(|taken| taken.runtime == shared.id).cloned()
        });
        if let Ok(Some(taken)) = known {
            return Ok(taken);
        }
        Taken::take(shared)
    }
    #[cold]
    fn take(shared: &Arc<Shared>) -> Result<std::rc::Rc<Taken>, AccessError> {
        if !fulgurite_sys::barrier::register() {
            return Err(AccessError::NoBarrier);
        }
        let prepare = |count: usize| {
            for answer in shared.ask(|reply| Message::Seats { count, reply }) {
                answer.recv().expect("workers outlive their runtime");
            }
        };
        let seat = shared.seats.take(prepare).ok_or(AccessError::TooManyThreads { most: SEATS_MAX as u32 })?;
        let seats = Arc::downgrade(shared);
        let taken = std::rc::Rc::new(Taken { runtime: shared.id, seats, seat, depth: Cell::new(0) });
        let _ = SEATS.try_with(|seats| {
            let mut seats = seats.borrow_mut();
            // Seats of runtimes that are gone.
            seats.retain(|taken| taken.seats.strong_count() > 0);
            seats.push(taken.clone());
        });
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // A child after `fork` has the seat of its parent's thread.
        if let Some(shared) = self.seats.upgrade().filter(|shared| shared.process.is_current()) {
            shared.seats.give_back(self.seat.number);
        }
    }
}

/// While it lives, the thread runs an operation.
struct Inside<'r> {
    shared: &'r Shared,
    taken: &'r Taken,
    depth: usize,
}

impl<'r> Inside<'r> {
    #[inline]
    fn enter(shared: &'r Shared, taken: &'r Taken, depth: usize) -> Inside<'r> {
        taken.depth.set(depth + 1);
        if depth == 0 {
            shared.seats.enter(&taken.seat);
        }
        Inside { shared, taken, depth }
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.taken.depth.set(self.depth);
        self.taken.seat.slot(self.depth).store(residency::NOTHING, Ordering::Release);
        if self.depth == 0 {
            self.shared.seats.leave(&self.taken.seat);
        }
    }
}

impl<'r> Guest<'r> {
    fn seats(&self) -> &'r Seats {
        &self.shared.seats
    }
    /// Another handle of the same operation, for as long as this one is borrowed.
    #[doc(hidden)]
    #[inline]
    pub fn again(&mut self) -> Guest<'_> {
        Guest { shared: self.shared, seat: self.seat, slot: self.slot, not_send: PhantomData }
    }
    /// The number of its runtime.
    #[doc(hidden)]
    #[inline]
    pub fn runtime_id(&self) -> u32 {
        self.shared.id
    }
    #[doc(hidden)]
    #[inline]
    pub fn roll_back_count(&self) -> &AtomicU64 {
        &self.shared.roll_backs
    }

    /// Where the byte at `at` is in DRAM, until the next access of this guest.
    ///
    /// # Errors
    /// As [`Context::access`](crate::Context::access).
    #[inline]
    pub fn access(&mut self, at: Address) -> Result<NonNull<u8>, AccessError> {
        let (frame, _) = self.bring_in(at)?;
        Ok(self.address(frame, at))
    }
    /// As [`Guest::access`], for bytes that are going to be written.
    ///
    /// # Errors
    /// As [`Context::access_mut`](crate::Context::access_mut).
    #[inline]
    pub fn access_mut(&mut self, at: Address) -> Result<NonNull<u8>, AccessError> {
        loop {
            let (frame, subpage) = self.bring_in(at)?;
            if self.shared.cache.frames.marks(frame).mark_dirty() {
                return Ok(self.address(frame, at));
            }
            self.ask_to_write(at, frame, subpage)?;
        }
    }
    /// Has a frame, which the slot protects, made writable, or waits for a moment.
    #[cold]
    fn ask_to_write(&mut self, at: Address, frame: FrameIndex, subpage: u32) -> Result<(), AccessError> {
        match self.shared.cache.ask_to_write(subpage, frame, self.writer()) {
            Unsealed::Yes => Ok(()),
            Unsealed::Later => self.sleep(SEALED_WAIT),
            Unsealed::Never => Err(AccessError::NotPermitted { at, write: true }),
            Unsealed::Refused(source) => Err(AccessError::of_flash(at, source, &*self.shared.flash)),
        }
    }

    #[inline]
    fn address(&self, frame: FrameIndex, at: Address) -> NonNull<u8> {
        // SAFETY: a residency word holds the index of an existing frame.
        let first = unsafe { self.shared.cache.frames.address(frame) };
        // SAFETY: the offset is inside the frame.
        unsafe { first.add(at.subpage_offset()) }
    }

    /// The frame of a subpage, named in the slot.
    #[inline]
    fn bring_in(&mut self, at: Address) -> Result<(FrameIndex, u32), AccessError> {
        if self.seats().is_halted() {
            self.seats().stand_still(self.seat);
        }
        let subpage = (at.bits() >> SUBPAGE_SHIFT).wrapping_sub(BASE_SUBPAGE);
        if subpage >= self.shared.layout.shared_subpages.into() {
            return Err(AccessError::OutOfRange { at });
        }
        let subpage = subpage as u32;
        if let Some(frame) = self.find(subpage) {
            return Ok((frame, subpage));
        }
        Ok((self.miss(at, subpage)?, subpage))
    }
    #[inline]
    fn find(&self, subpage: u32) -> Option<FrameIndex> {
        let cache = &self.shared.cache;
        if cache.table.is_absent(subpage) {
            return None;
        }
        let frame = residency::frame_of(residency::hit(cache.table.word(subpage), self.slot)?);
        cache.frames.marks(frame).note_use();
        Some(frame)
    }

    #[cold]
    #[inline(never)]
    fn miss(&mut self, at: Address, subpage: u32) -> Result<FrameIndex, AccessError> {
        self.verdict()?;
        if self.shared.cache.backing().is_some_and(|backing| !backing.may(subpage, false)) {
            return Err(AccessError::NotPermitted { at, write: false });
        }
        loop {
            if let Some(frame) = self.find(subpage) {
                self.seat.forget_turn();
                return Ok(frame);
            }
            if self.shared.poisoned.get().is_some() {
                return Err(AccessError::MemoryPoisoned);
            }
            let wanted = at.subpage_offset() as u32;
            match self.ask_worker(subpage, |seat, ticket, turn| Message::Miss { seat, ticket, turn, subpage, wanted }) {
                Wake::Retry => {}
                Wake::Pinned => {
                    let cache = &self.shared.cache;
                    let resident = residency::hit(cache.table.word(subpage), self.slot);
                    let frame = residency::frame_of(resident.expect("a frame that is pinned for a waiter is resident"));
                    // The slot protects it from here on. Not marked as used: coming in is not
                    // coming back.
                    cache.unpin(frame);
                    return Ok(frame);
                }
                Wake::Fetched(_) => unreachable!("this thread did not fetch"),
                Wake::Failed(source) => return Err(AccessError::of_flash(at, source, &*self.shared.flash)),
                Wake::OutOfFrames => return Err(AccessError::OutOfFrames),
                Wake::ShutDown => return Err(AccessError::ShuttingDown),
            }
        }
    }

    /// Sends a message to the worker that serves a subpage for threads, and waits for the answer.
    fn ask_worker(&mut self, subpage: u32, message: impl FnOnce(u32, u32, bool) -> Message) -> Wake {
        self.slot.store(residency::NOTHING, Ordering::Release);
        let (ticket, turn) = self.seat.begin_wait();
        let worker = subpage as usize % self.shared.mailboxes.len();
        self.shared.mailboxes[worker].send(message(self.seat.number, ticket, turn));
        let seat = self.seat;
        self.standing(|| seat.wait());
        seat.take_wake()
    }

    /// Waits in `wait`, standing still.
    fn standing<R>(&mut self, wait: impl FnOnce() -> R) -> R {
        self.seats().leave(self.seat);
        let result = wait();
        self.seats().enter(self.seat);
        result
    }

    /// As [`Context::will_overwrite`](crate::Context::will_overwrite), of this number of subpages.
    /// It waits for a worker, so that what is written next cannot be overwritten by that.
    pub fn will_overwrite(&mut self, at: Address, count: u32) {
        let first = (at.bits() >> SUBPAGE_SHIFT).wrapping_sub(BASE_SUBPAGE);
        let end = u64::from(self.shared.layout.shared_subpages).min(first.saturating_add(count.into()));
        let may = |subpage: u32| self.shared.cache.backing().is_none_or(|backing| backing.may(subpage, true));
        let is_away = |subpage: u32| {
            let word = self.shared.cache.table.word(subpage).load(Ordering::Relaxed);
            matches!(residency::decode(word), State::Fresh | State::Absent)
        };
        let has_any = (first as u32..end as u32).any(is_away);
        if has_any && self.shared.poisoned.get().is_none() && (first as u32..end as u32).all(may) {
            let subpages = first as u32..end as u32;
            self.ask_worker(first as u32, |seat, ticket, _| Message::Blank { seat, ticket, subpages });
        }
    }

    // ---- waiting ----

    /// Refuses a child after `fork`.
    pub(crate) fn verdict(&self) -> Result<(), AccessError> {
        if self.shared.process.is_current() { Ok(()) } else { Err(AccessError::Forked) }
    }
    /// Waits for `time`.
    ///
    /// # Errors
    /// [`AccessError::Forked`].
    pub fn sleep(&mut self, time: Duration) -> Result<(), AccessError> {
        self.verdict()?;
        let clock = self.shared.clock.clone();
        self.standing(|| clock.sleep(time));
        Ok(())
    }
    /// Lets others run.
    ///
    /// # Errors
    /// [`AccessError::Forked`].
    pub fn yield_now(&mut self) -> Result<(), AccessError> {
        self.verdict()?;
        self.standing(std::thread::yield_now);
        Ok(())
    }
    /// As [`Context::park`](crate::Context::park).
    ///
    /// # Errors
    /// [`AccessError::Forked`].
    pub fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.verdict()?;
        self.standing(|| parking::park(word, expected));
        Ok(())
    }

    /// What a change of this thread is to a sync.
    fn writer(&self) -> Writer {
        if self.seat.in_section() && self.seats().is_closed() { Writer::HoldsUpSync } else { Writer::MayWait }
    }
    /// As [`Context::write_section`](crate::Context::write_section).
    ///
    /// # Errors
    /// [`AccessError::Forked`].
    pub fn write_section(&mut self) -> Result<GuestSection<'r>, AccessError> {
        if !self.seat.in_section() {
            let waits = |backing: &dyn fulgurite_flash::Backing| backing.is_low() && backing.waits_for_room();
            while self.shared.cache.backing().is_some_and(waits) {
                self.sleep(LOOK_AGAIN)?;
            }
        }
        self.seats().enter_section(self.seat);
        Ok(GuestSection { shared: self.shared, seat: self.seat, not_send: PhantomData })
    }
}

/// Keeps a write section of a thread open until it is dropped.
#[must_use = "the section ends when this is dropped"]
pub struct GuestSection<'r> {
    shared: &'r Shared,
    seat: &'r Seat,
    not_send: PhantomData<*mut ()>,
}

impl std::fmt::Debug for GuestSection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GuestSection")
    }
}

impl Drop for GuestSection<'_> {
    #[inline]
    fn drop(&mut self) {
        self.shared.seats.leave_section(self.seat);
    }
}
