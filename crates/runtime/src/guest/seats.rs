//! Seats: what workers and syncs know of the threads that run operations themselves.
//!
//! A thread takes a seat at its first operation and keeps it. While it is *inside*, it may hold
//! references to frames. It *stands still* where it waits, and between two accesses when that is
//! asked of it. The asker sets a flag, makes every processor execute a barrier and then reads the
//! seats. A thread stores its own word first and then loads the flag. So one of them sees the
//! other, and an operation costs plain stores and loads.
//!
//! Invariants:
//! * Between [`Seats::halt`] and the end of what it returns, no thread is inside.
//! * Between [`Seats::close_gate`] and [`Seats::open_gate`], no write section begins.
//! * A frame that a thread may reference without a pin is named in a slot of its seat.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use fulgurite_cache::residency;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::mailbox::Wake;

/// Threads that may have a seat at one time.
pub(crate) const SEATS_MAX: usize = 4096;
/// Operations of one thread, one inside the other: a transaction, and one in its body.
pub(crate) const DEPTH: usize = 2;
/// How often waits for threads end to check. They are also notified.
const CHECK: Duration = Duration::from_millis(1);

/// Threads stand still.
const HALTED: u32 = 1;
/// No write section begins.
const CLOSED: u32 = 2;

/// The cheap side of the barrier: the compiler keeps a store before the loads that follow.
#[inline(always)]
fn light_barrier() {
    compiler_fence(Ordering::SeqCst);
}

/// How the last wait of a thread ended.
#[derive(Default)]
struct Wait {
    /// Counts waits: an end that names an earlier one comes too late.
    ticket: u32,
    wake: Option<Wake>,
    /// It was notified of a frame, and comes before those that come now.
    turn: bool,
}

/// One thread's seat.
pub(crate) struct Seat {
    pub number: u32,
    slots: [AtomicU32; DEPTH],
    inside: AtomicBool,
    /// Write sections that are open. Only the thread changes it.
    sections: AtomicU32,
    /// Pins that the thread holds. Only the thread changes it.
    pins: AtomicU32,
    wait: Mutex<Wait>,
    ended: Condvar,
}

impl Seat {
    fn new(number: u32) -> Seat {
        Seat {
            number,
            slots: [const { AtomicU32::new(residency::NOTHING) }; DEPTH],
            inside: AtomicBool::new(false),
            sections: AtomicU32::new(0),
            pins: AtomicU32::new(0),
            wait: Mutex::default(),
            ended: Condvar::new(),
        }
    }
    /// What names the frame that the operation at this depth may reference.
    #[inline(always)]
    pub fn slot(&self, depth: usize) -> &AtomicU32 {
        &self.slots[depth]
    }
    pub fn pins(&self) -> u32 {
        self.pins.load(Ordering::Relaxed)
    }
    /// Adds to the pins of the thread, wrapping.
    pub fn change_pins(&self, by: u32) {
        self.pins.store(self.pins().wrapping_add(by), Ordering::Relaxed);
    }
    pub fn in_section(&self) -> bool {
        self.sections.load(Ordering::Relaxed) > 0
    }

    // ---- waits for a worker ----

    /// A wait begins. Returns its ticket, and whether the thread was notified of a frame before.
    pub fn begin_wait(&self) -> (u32, bool) {
        let mut wait = self.wait.lock();
        wait.ticket = wait.ticket.wrapping_add(1);
        wait.wake = None;
        (wait.ticket, std::mem::take(&mut wait.turn))
    }
    /// Ends the wait with this ticket. False when it has ended already.
    pub fn end_wait(&self, ticket: u32, wake: Wake, turn: bool) -> bool {
        let mut wait = self.wait.lock();
        if wait.ticket != ticket || wait.wake.is_some() {
            return false;
        }
        (wait.wake, wait.turn) = (Some(wake), turn);
        self.ended.notify_one();
        true
    }
    /// Waits for the end of the wait that the thread began. It stands still.
    pub fn wait(&self) {
        let mut wait = self.wait.lock();
        while wait.wake.is_none() {
            self.ended.wait(&mut wait);
        }
    }
    /// How the wait ended. The thread is inside, so that no halt changes that any more.
    pub fn take_wake(&self) -> Wake {
        self.wait.lock().wake.take().expect("the wait has ended")
    }
    /// An unused turn is not kept for another miss.
    pub fn forget_turn(&self) {
        self.wait.lock().turn = false;
    }
}

/// All seats of a runtime.
pub(crate) struct Seats {
    /// Those that were ever taken, by number.
    list: RwLock<Vec<Arc<CachePadded<Seat>>>>,
    /// Seats whose threads have ended.
    free: Mutex<Vec<u32>>,
    /// Seats that the workers are ready for.
    ready: Mutex<usize>,
    /// [`HALTED`] and [`CLOSED`].
    asked: CachePadded<AtomicU32>,
    any: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Seats {
    pub fn new() -> Seats {
        Seats {
            list: RwLock::default(),
            free: Mutex::default(),
            ready: Mutex::new(0),
            asked: CachePadded::default(),
            any: AtomicBool::new(false),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    // ---- taking a seat ----

    /// A seat for a thread. `prepare` makes the workers ready for as many seats as it is given.
    /// None when all are taken.
    pub fn take(&self, prepare: impl FnOnce(usize)) -> Option<Arc<CachePadded<Seat>>> {
        if let Some(number) = self.free.lock().pop() {
            return Some(self.list.read()[number as usize].clone());
        }
        let mut ready = self.ready.lock();
        let number = self.list.read().len();
        if number == SEATS_MAX {
            return None;
        }
        if number == *ready {
            *ready = (4 * number).clamp(16, SEATS_MAX);
            self.any.store(true, Ordering::SeqCst);
            prepare(*ready);
        }
        let seat = Arc::new(CachePadded::new(Seat::new(number as u32)));
        self.list.write().push(seat.clone());
        Some(seat)
    }
    /// The thread of this seat has ended.
    pub fn give_back(&self, number: u32) {
        self.free.lock().push(number);
    }
    /// Whether any was ever taken.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }
    /// Does something with the seat of this number.
    pub fn with<R>(&self, number: u32, call: impl FnOnce(&Seat) -> R) -> R {
        call(&self.list.read()[number as usize])
    }
    /// Adds the words that name frames which threads may reference. After the barrier.
    pub fn named(&self, into: &mut Vec<u32>) {
        let list = self.list.read();
        let words = list.iter().flat_map(|seat| &seat.slots).map(|slot| slot.load(Ordering::Acquire));
        into.extend(words.filter(|&word| word != residency::NOTHING));
    }
    /// Pins of all threads.
    pub fn pins(&self) -> u64 {
        self.list.read().iter().map(|seat| u64::from(seat.pins())).sum()
    }

    // ---- what a thread does ----

    /// The thread is inside from now on. It waits while threads stand still.
    #[inline]
    pub fn enter(&self, seat: &Seat) {
        seat.inside.store(true, Ordering::Relaxed);
        light_barrier();
        if self.asked.load(Ordering::Acquire) & HALTED != 0 {
            self.stand_still(seat);
        }
    }
    /// The thread is inside no more: it holds no reference without a pin.
    #[inline]
    pub fn leave(&self, seat: &Seat) {
        // Release: what it did with frames is seen by every reader of this.
        seat.inside.store(false, Ordering::Release);
        light_barrier();
        if self.asked.load(Ordering::Relaxed) != 0 {
            self.notify();
        }
    }
    /// Whether threads are to stand still: asked at each access.
    #[inline(always)]
    pub fn is_halted(&self) -> bool {
        self.asked.load(Ordering::Relaxed) & HALTED != 0
    }
    /// Whether the gate is closed.
    #[inline(always)]
    pub fn is_closed(&self) -> bool {
        self.asked.load(Ordering::Relaxed) & CLOSED != 0
    }
    /// The thread, which is inside, stands still until it may go on.
    #[cold]
    pub fn stand_still(&self, seat: &Seat) {
        self.stand_while(seat, HALTED);
    }
    /// The thread, which is inside, stands still until the gate is open.
    #[cold]
    fn wait_at_gate(&self, seat: &Seat) {
        self.stand_while(seat, HALTED | CLOSED);
    }
    fn stand_while(&self, seat: &Seat, asked: u32) {
        loop {
            self.leave(seat);
            let mut held = self.lock.lock();
            while self.asked.load(Ordering::Relaxed) & asked != 0 {
                self.changed.wait(&mut held);
            }
            drop(held);
            seat.inside.store(true, Ordering::Relaxed);
            light_barrier();
            if self.asked.load(Ordering::Acquire) & asked == 0 {
                return;
            }
        }
    }
    /// The thread begins a write section. It waits at the gate, unless it is in one already.
    #[inline]
    pub fn enter_section(&self, seat: &Seat) {
        let open = seat.sections.load(Ordering::Relaxed);
        loop {
            seat.sections.store(open + 1, Ordering::Relaxed);
            light_barrier();
            if open > 0 || self.asked.load(Ordering::Acquire) & CLOSED == 0 {
                return;
            }
            seat.sections.store(0, Ordering::Release);
            self.wait_at_gate(seat);
        }
    }
    /// The thread's last write section ends.
    #[inline]
    pub fn leave_section(&self, seat: &Seat) {
        let open = seat.sections.load(Ordering::Relaxed) - 1;
        seat.sections.store(open, Ordering::Release);
        light_barrier();
        if open == 0 && self.asked.load(Ordering::Relaxed) & CLOSED != 0 {
            self.notify();
        }
    }
    fn notify(&self) {
        let _held = self.lock.lock();
        self.changed.notify_all();
    }

    // ---- what is asked of threads ----

    fn ask(&self, flag: u32) {
        self.asked.fetch_or(flag, Ordering::SeqCst);
        if self.any() {
            fulgurite_sys::barrier::expedited();
        }
    }
    fn allow(&self, flag: u32) {
        self.asked.fetch_and(!flag, Ordering::SeqCst);
        self.notify();
    }
    /// Waits until all seats are so, or until `gives_up`. Returns the first that is not.
    fn wait_for(&self, is_so: impl Fn(&Seat) -> bool, mut gives_up: impl FnMut() -> bool) -> Option<u32> {
        let mut held = self.lock.lock();
        loop {
            let other = self.list.read().iter().find(|seat| !is_so(seat)).map(|seat| seat.number);
            if other.is_none() || gives_up() {
                return other;
            }
            self.changed.wait_for(&mut held, CHECK);
        }
    }
    /// Waits until no thread is inside. None is until the guard is dropped.
    pub fn halt(&self) -> HaltedThreads<'_> {
        self.ask(HALTED);
        self.wait_for(|seat| !seat.inside.load(Ordering::Acquire), || false);
        HaltedThreads(self)
    }
    /// Lets no section begin.
    pub fn close_gate(&self) {
        self.ask(CLOSED);
    }
    /// Waits until no section is open. Returns a seat that has one when that takes too long.
    pub fn drain(&self, gives_up: impl FnMut() -> bool) -> Option<u32> {
        self.wait_for(|seat| seat.sections.load(Ordering::Acquire) == 0, gives_up)
    }
    /// Lets sections begin again.
    pub fn open_gate(&self) {
        self.allow(CLOSED);
    }
}

/// While this lives, no thread is inside.
pub(crate) struct HaltedThreads<'s>(&'s Seats);

impl HaltedThreads<'_> {
    /// All pins are forgotten: threads that were given a frame try again.
    pub fn forget(&self) {
        for seat in &*self.0.list.read() {
            let mut wait = seat.wait.lock();
            if wait.wake == Some(Wake::Pinned) {
                wait.wake = Some(Wake::Retry);
            }
        }
    }
}

impl Drop for HaltedThreads<'_> {
    fn drop(&mut self) {
        self.0.allow(HALTED);
    }
}
