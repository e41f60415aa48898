//! The context: what a job holds of the runtime, and the frontside.
//!
//! Every access, and everything else that may switch, takes the context by `&mut`, so that a reference that an access
//! returned is dead before the fiber can be switched out. The address that [`Context::access`] returns is raw; the safe
//! views of it are made one layer up, in `fulgurite-memory`, by the rules stated there.

use std::cell::Cell;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin as FuturePin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Poll, Wake as WakeTrait, Waker};
use std::time::Duration;

use fulgurite_fiber::Suspender;
use fulgurite_format::{Address, FrameIndex, SUBPAGE_BYTES, SUBPAGE_SHIFT};
use parking_lot::Mutex;

use crate::AccessError;
use crate::job::Control;
use crate::mailbox::Wake;
use crate::shared::{Shared, WorkerId};
use crate::worker::{Worker, wake};
use fulgurite_cache::Table;
use fulgurite_cache::marks::{DIRTY, Marks, PINS_MAX, READ_ONLY};
use fulgurite_cache::residency;
use fulgurite_cache::{NearView, Unsealed};

/// What a fiber waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitsFor {
    /// Its subpage.
    Flash,
    /// A frame, or room for a request.
    Frame,
    /// Another fiber or thread that holds a latch.
    Latch,
    /// A time or a future: nothing that the runtime can hasten.
    Outside,
}

/// What a fiber and its worker tell each other. Both are on one thread; cells are enough.
pub(crate) struct FiberState {
    pub index: u32,
    /// The worker that it belongs to.
    worker: u32,
    /// Kept by the fiber's pins, through this.
    cache: Arc<fulgurite_cache::Shared>,
    /// Kept by its write sections.
    shared: Arc<Shared>,
    /// The fiber waits for a wake-up.
    pub waiting: Cell<bool>,
    /// Counts its waits, from 1: a wake-up that names an earlier one comes too late.
    pub ticket: Cell<u32>,
    /// What it waits for.
    pub waits_for: Cell<WaitsFor>,
    /// It waited for a frame and was told of one: it goes before those that come now.
    pub frame_turn: Cell<bool>,
    /// The last wake-up.
    pub wake: Cell<Wake>,
    /// Which byte of its subpage the access that missed wants.
    pub wanted: Cell<u32>,
    /// About where its stack ended when it was last switched out. A hint to the caches, never followed.
    pub stack_top: Cell<*const u8>,
    /// When its request arrived: its age, to the scheduler.
    pub request_ns: Cell<u64>,
    /// When it missed, if it waits for a miss.
    pub missed_ns: Cell<u64>,
    /// Pins that the job may hold.
    pins_limit: Cell<u32>,
    /// Pins that an earlier job left, which somebody still holds.
    pins_left: Cell<u32>,
    /// How many there are of both.
    pins: Cell<u32>,
    /// Write sections that it is in, one inside the other.
    sections: Cell<u32>,
    control: std::cell::RefCell<Option<Arc<Control>>>,
    /// The job can be cancelled or has a deadline.
    bounded: Cell<bool>,
}

impl FiberState {
    pub(crate) fn new(index: u32, worker: u32, shared: Arc<Shared>) -> Self {
        FiberState {
            index,
            worker,
            cache: shared.cache.clone(),
            shared,
            waiting: Cell::new(false),
            ticket: Cell::new(0),
            waits_for: Cell::new(WaitsFor::Outside),
            frame_turn: Cell::new(false),
            wake: Cell::new(Wake::Retry),
            wanted: Cell::new(0),
            stack_top: Cell::new(std::ptr::null()),
            request_ns: Cell::new(0),
            missed_ns: Cell::new(0),
            pins_limit: Cell::new(0),
            pins_left: Cell::new(0),
            pins: Cell::new(0),
            sections: Cell::new(0),
            control: std::cell::RefCell::default(),
            bounded: Cell::new(false),
        }
    }
    pub(crate) fn begin(&self, control: Option<Arc<Control>>, pins: u32, request_ns: u64) {
        self.frame_turn.set(false);
        self.pins_limit.set(pins);
        self.pins_left.set(self.pins.get());
        self.request_ns.set(request_ns);
        if control.is_some() || self.bounded.get() {
            self.bounded.set(control.is_some());
            *self.control.borrow_mut() = control;
        }
    }
    pub(crate) fn end(&self) {
        if self.bounded.replace(false) {
            *self.control.borrow_mut() = None;
        }
    }
    /// The deadline of its job, if it has one.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let control = self.control.borrow();
        control.as_ref().map(|c| c.deadline_ns).filter(|&ns| self.bounded.get() && ns != u64::MAX)
    }
    /// Whether its job was cancelled.
    pub(crate) fn cancelled(&self) -> bool {
        let control = self.control.borrow();
        self.bounded.get() && control.as_ref().is_some_and(|c| c.cancelled.load(Ordering::Relaxed))
    }
    /// The fiber begins to wait. Returns the ticket of this wait.
    pub(crate) fn begin_wait(&self, waits_for: WaitsFor) -> u32 {
        let ticket = self.ticket.get().wrapping_add(1).max(1);
        self.ticket.set(ticket);
        self.waits_for.set(waits_for);
        self.waiting.set(true);
        ticket
    }
    /// Pins that its jobs hold, those of earlier ones included.
    pub(crate) fn pins_held(&self) -> u32 {
        self.pins.get()
    }
    /// Whether it is in a write section.
    pub(crate) fn in_section(&self) -> bool {
        self.sections.get() > 0
    }
    /// For the fiber that takes the place of one that died without unwinding: wake-ups of that one come too late for this.
    pub(crate) fn successor(&self) -> FiberState {
        let new = FiberState::new(self.index, self.worker, self.shared.clone());
        new.ticket.set(self.ticket.get());
        new
    }
}

/// A job's hold on the runtime. Not `Send`: it belongs to one fiber, and fibers never change threads.
pub struct Context {
    words: NonNull<AtomicU32>,
    absent: NonNull<AtomicU8>,
    /// Subpages that shared accesses may reach.
    shared_subpages: u64,
    frames: NonNull<u8>,
    marks: NonNull<Marks>,
    slot: NonNull<AtomicU32>,
    near: NearView,
    accesses: u64,
    worker: NonNull<Worker>,
    worker_id: WorkerId,
    suspender: NonNull<Suspender>,
    cache: Arc<fulgurite_cache::Shared>,
    shared: Arc<Shared>,
    state: Rc<FiberState>,
    /// Below this address of its stack, the fiber must not enter the worker.
    stack_reserve: usize,
    not_send: PhantomData<*mut ()>,
}

/// How long a write to a frame that is on its way to the medium waits before it looks again.
const SEALED_WAIT: Duration = Duration::from_micros(20);

/// What of a fiber's stack is kept for the way to the worker's stack, for parking and for the switch, which must not overflow.
const STACK_RESERVE: usize = match (cfg!(sanitized), cfg!(debug_assertions)) {
    // Then the worker's code runs on the fiber's stack.
    (true, _) => 8 << 10,
    (false, true) => 3 << 10,
    (false, false) => 2 << 10,
};

/// Ends the process when the worker's own code panics on a fiber: a job's panic would be caught, but the worker is in the
/// middle of something.
struct Whole;
impl Drop for Whole {
    fn drop(&mut self) {
        give_up();
    }
}

/// Ends the process: a worker has panicked.
pub(crate) fn give_up() -> ! {
    eprintln!("fulgurite: a worker failed in the middle of a change and cannot continue (see the message above)");
    std::process::abort()
}

/// What an address's high bits are when it is in the first controller, in units of subpages.
const BASE_SUBPAGE: u64 = Address::from_linear(0).bits() >> SUBPAGE_SHIFT;

impl Context {
    pub(crate) fn new(
        worker: *mut Worker,
        shared: &Arc<Shared>,
        state: Rc<FiberState>,
        suspender: &Suspender,
        stack_floor: usize,
    ) -> Context {
        // SAFETY: made on the worker's thread, by its loop; the id never changes.
        let id = unsafe { (*worker).id };
        Context {
            words: shared.cache.table.words(),
            absent: shared.cache.table.absent_bits(),
            shared_subpages: shared.layout.shared_subpages.into(),
            frames: shared.cache.frames.base(),
            marks: shared.cache.frames.marks_base(),
            slot: NonNull::from(shared.slots.of(id)),
            near: shared.cache.near.view(),
            accesses: 0,
            worker: NonNull::new(worker).expect("a worker is not at null"),
            worker_id: WorkerId::new(shared.id, id),
            suspender: NonNull::from(suspender),
            cache: shared.cache.clone(),
            shared: shared.clone(),
            state,
            stack_reserve: stack_floor + STACK_RESERVE,
            not_send: PhantomData,
        }
    }

    /// Calls the worker, on its own stack.
    #[inline(always)]
    fn with_worker<R>(&mut self, call: impl FnOnce(&mut Worker) -> R) -> R {
        let worker = self.worker;
        // SAFETY: the suspender lives on this fiber's stack for as long as its body runs, and the worker does not have it. The
        // fiber runs, so the worker's loop waits in `resume` and holds no reference (see `worker`); the one made here ends with
        // the call, which runs no code of a user.
        unsafe {
            self.suspender.as_ref().on_parent_stack(move || {
                let whole = Whole;
                let result = call(&mut *worker.as_ptr());
                std::mem::forget(whole);
                result
            })
        }
    }

    /// Whether there is room on this stack for what a miss or a wait needs of it.
    #[inline]
    fn enough_stack(&self) -> Result<(), AccessError> {
        let here = 0u8;
        if (&raw const here as usize) < self.stack_reserve {
            return Err(AccessError::StackExhausted { stack_bytes: self.shared.config.stack_bytes });
        }
        Ok(())
    }

    /// Where the byte at `at` of a shared region is in DRAM, until the next call that takes `&mut self`.
    ///
    /// The whole hit path is inlined: a bound, a look into the near table; failing that, a bit, a load, a compare, a store, a load,
    /// a compare; and a store that marks the frame as used.
    ///
    /// # Errors
    /// [`AccessError`]: out of range, the medium failed, the job must end.
    #[inline(always)]
    pub fn access(&mut self, at: Address) -> Result<NonNull<u8>, AccessError> {
        self.accesses += 1;
        let subpage = (at.bits() >> SUBPAGE_SHIFT).wrapping_sub(BASE_SUBPAGE);
        if subpage < self.shared_subpages {
            // SAFETY: the index is below the table's length.
            if let Some(frame) = unsafe { self.find(subpage as u32) } {
                return Ok(self.touch(frame, at));
            }
        }
        self.access_slow(at, subpage, self.shared_subpages)
    }

    /// As [`Context::access`], and marks the subpage dirty: the bytes may be written.
    ///
    /// # Errors
    /// As [`Context::access`].
    #[inline(always)]
    pub fn access_mut(&mut self, at: Address) -> Result<NonNull<u8>, AccessError> {
        let byte = self.access(at)?;
        // SAFETY: the access has just returned it.
        if unsafe { self.mark_dirty(byte) } { Ok(byte) } else { self.unsealed(at, Context::access) }
    }

    /// As [`Context::access`], for the part of the pool that workers own.
    ///
    /// # Errors
    /// As [`Context::access`]; shared addresses are out of range here.
    #[inline]
    pub fn access_owned(&mut self, at: Address) -> Result<NonNull<u8>, AccessError> {
        self.accesses += 1;
        let subpage = (at.bits() >> SUBPAGE_SHIFT).wrapping_sub(BASE_SUBPAGE);
        if subpage < self.shared_subpages || subpage >= u64::from(self.shared.layout.subpages) {
            return Err(AccessError::OutOfRange { at });
        }
        // SAFETY: as in `access`.
        if let Some(frame) = unsafe { self.find(subpage as u32) } {
            return Ok(self.touch(frame, at));
        }
        self.access_slow(at, subpage, u64::from(self.shared.layout.subpages))
    }

    /// As [`Context::access_owned`], and marks the subpage dirty: the bytes may be written.
    ///
    /// # Errors
    /// As [`Context::access_owned`].
    #[inline]
    pub fn access_owned_mut(&mut self, at: Address) -> Result<NonNull<u8>, AccessError> {
        let byte = self.access_owned(at)?;
        // SAFETY: the access has just returned it.
        if unsafe { self.mark_dirty(byte) } { Ok(byte) } else { self.unsealed(at, Context::access_owned) }
    }

    /// The frame of a subpage, if it is resident; it stays there until this fiber accesses another or switches.
    ///
    /// # Safety
    /// The subpage must be below the table's length.
    #[inline(always)]
    unsafe fn find(&self, subpage: u32) -> Option<FrameIndex> {
        // SAFETY: the caller's contract; the near table lives as long as `shared`, which we hold.
        unsafe {
            self.near.find(subpage.into()).or_else(|| {
                let frame = residency::frame_of(self.hit(subpage)?);
                self.near.note(subpage, frame);
                Some(frame)
            })
        }
    }

    /// The subpage's residency word, published, if it is resident.
    ///
    /// # Safety
    /// The subpage must be below the table's length.
    #[inline(always)]
    unsafe fn hit(&self, subpage: u32) -> Option<u32> {
        // SAFETY: bits and words are as many as subpages (the caller vouches for this one) and live as long as `shared`, which
        // we hold, and with it the slot.
        unsafe {
            if Table::says_absent(self.absent.add((subpage / 8) as usize).as_ref(), subpage) {
                return None;
            }
            residency::hit(self.words.add(subpage as usize).as_ref(), self.slot.as_ref())
        }
    }

    /// Marks the subpage of a byte dirty. False when it is sealed, and must not be written to yet.
    ///
    /// # Safety
    /// The last access of this context must have returned the byte.
    #[inline(always)]
    unsafe fn mark_dirty(&mut self, byte: NonNull<u8>) -> bool {
        let frame = self.frame_of(byte);
        // SAFETY: the byte lies in a frame (the caller's contract), and marks are as many as frames.
        unsafe { self.marks.add(frame.index()).as_ref() }.mark_dirty()
    }

    /// The frame that a byte lies in.
    #[inline(always)]
    fn frame_of(&self, byte: NonNull<u8>) -> FrameIndex {
        FrameIndex(((byte.as_ptr() as usize - self.frames.as_ptr() as usize) >> SUBPAGE_SHIFT) as u32)
    }

    /// Accesses a byte in a frame that was sealed, and makes it one that may be written to: when this returns it is marked dirty.
    #[cold]
    #[inline(never)]
    fn unsealed(
        &mut self,
        at: Address,
        access: impl Fn(&mut Context, Address) -> Result<NonNull<u8>, AccessError>,
    ) -> Result<NonNull<u8>, AccessError> {
        let for_sync = self.is_own_job();
        loop {
            self.enough_stack()?;
            let byte = access(self, at)?;
            let frame = self.frame_of(byte);
            let subpage = (at.bits() >> SUBPAGE_SHIFT).wrapping_sub(BASE_SUBPAGE) as u32;
            match self.with_worker(|worker| worker.cache.unseal(subpage, frame, for_sync, worker.shared.clock.now_ns()))
            {
                Unsealed::Yes => {
                    // SAFETY: the access has just returned it, and nothing has switched since.
                    if unsafe { self.mark_dirty(byte) } {
                        return Ok(byte);
                    }
                }
                Unsealed::Later => self.sleep(SEALED_WAIT)?,
                Unsealed::Never => return Err(AccessError::NotPermitted { at, write: true }),
                Unsealed::Refused(source) => return Err(AccessError::of_flash(at, source, &*self.shared.flash)),
            }
        }
    }

    #[inline(always)]
    fn touch(&mut self, frame: FrameIndex, at: Address) -> NonNull<u8> {
        // SAFETY: a residency word holds the index of an existing frame; marks and arena are that long.
        unsafe {
            self.marks.add(frame.index()).as_ref().referenced.store(1, Ordering::Relaxed);
            self.frames.add((frame.index() << SUBPAGE_SHIFT) + at.subpage_offset())
        }
    }

    #[cold]
    #[inline(never)]
    fn access_slow(&mut self, at: Address, subpage: u64, limit: u64) -> Result<NonNull<u8>, AccessError> {
        if subpage >= limit {
            return Err(AccessError::OutOfRange { at });
        }
        self.verdict()?;
        let subpage = subpage as u32;
        if self.cache.backing().is_some_and(|backing| !backing.may(subpage, false)) {
            return Err(AccessError::NotPermitted { at, write: false });
        }
        self.state.wanted.set(at.subpage_offset() as u32);
        loop {
            // SAFETY: below the limit, which is at most the table's length.
            if let Some(resident) = unsafe { self.hit(subpage) } {
                // Somebody else has brought it in: a turn that it was given is not kept for another miss.
                self.state.frame_turn.set(false);
                return Ok(self.touch(residency::frame_of(resident), at));
            }
            if self.shared.poisoned.get().is_some() {
                return Err(AccessError::MemoryPoisoned);
            }
            let index = self.state.index;
            if !self.with_worker(|worker| worker.begin_miss(subpage, index)) {
                continue;
            }
            self.suspend();
            match self.state.wake.get() {
                Wake::Retry => self.verdict()?,
                Wake::Pinned => {
                    // SAFETY: the slots live as long as `shared`.
                    let resident = residency::hit(self.cache.table.word(subpage), unsafe { self.slot.as_ref() });
                    let resident = resident.expect("a frame that is pinned for a waiter is resident");
                    let frame = residency::frame_of(resident);
                    // The slot protects it from here on.
                    self.cache.unpin(frame);
                    self.verdict()?;
                    // Not marked as referenced: coming in is not coming back.
                    // SAFETY: as in `touch`.
                    return Ok(unsafe { self.frames.add((frame.index() << SUBPAGE_SHIFT) + at.subpage_offset()) });
                }
                Wake::Failed(source) => return Err(AccessError::of_flash(at, source, &*self.shared.flash)),
                Wake::OutOfFrames => return Err(AccessError::OutOfFrames),
                Wake::ShutDown => return Err(AccessError::ShuttingDown),
            }
        }
    }

    /// Brings the subpage of `at` in and keeps it in its frame until the pin is dropped.
    ///
    /// # Errors
    /// As [`Context::access`], and [`AccessError::TooManyPins`] when the job holds as many as it declared.
    #[inline]
    pub fn pin(&mut self, at: Address) -> Result<PinnedFrame, AccessError> {
        let byte = self.access(at)?;
        self.pin_resident(at, byte, Context::access)
    }

    /// As [`Context::pin`], for the part of the pool that workers own. The frame shows no views of its bytes: whether a
    /// reference to them may be made is for whoever keeps account of the regions' owners.
    ///
    /// # Errors
    /// As [`Context::pin`].
    pub fn pin_owned(&mut self, at: Address) -> Result<OwnedFrame, AccessError> {
        let byte = self.access_owned(at)?;
        self.pin_resident(at, byte, Context::access_owned).map(OwnedFrame)
    }

    #[inline]
    fn pin_resident(
        &mut self,
        at: Address,
        byte: NonNull<u8>,
        access: impl Fn(&mut Context, Address) -> Result<NonNull<u8>, AccessError>,
    ) -> Result<PinnedFrame, AccessError> {
        let (pins, limit) = (self.state.pins.get(), self.state.pins_limit.get());
        if pins >= limit.saturating_add(self.state.pins_left.get()) {
            return Err(AccessError::TooManyPins { limit });
        }
        let mut frame = self.frame_of(byte);
        let mark = self.cache.frames.marks(frame).dirty.load(Ordering::Acquire);
        if mark > DIRTY && mark != READ_ONLY {
            // Whoever has the pin may write at any moment, and cannot wait then.
            frame = {
                let byte = self.unsealed(at, access)?;
                self.frame_of(byte)
            };
        }
        if self.cache.frames.pins(frame).load(Ordering::Relaxed) >= PINS_MAX {
            return Err(AccessError::PinnedTooOften { at, pins: PINS_MAX.into() });
        }
        // The slot protects the frame until the next access; an evictor reads the slots before the pins.
        self.cache.pin(frame);
        self.state.pins.set(pins + 1);
        Ok(PinnedFrame { state: self.state.clone(), frame, address: at.subpage().address() })
    }

    /// Begins a write section: what is written until the guard is dropped is wholly in a token, or not at all ([`Runtime::sync`]
    /// cuts between sections). Sections nest. Waits while a sync closes the gate, so begin it before anything that other
    /// sections may wait for, such as a latch.
    ///
    /// [`Runtime::sync`]: crate::Runtime::sync
    ///
    /// # Errors
    /// When the job was cancelled or its deadline has passed, or the runtime is dropped, while it waited.
    #[inline]
    pub fn write_section(&mut self) -> Result<WriteSection, AccessError> {
        if !self.state.in_section() {
            let gate = &self.shared.gates[self.state.worker as usize];
            if gate.closed.load(Ordering::Relaxed) {
                self.pass_gate()?;
            }
            self.shared.gates[self.state.worker as usize].enter();
        }
        self.state.sections.set(self.state.sections.get() + 1);
        Ok(WriteSection { state: self.state.clone() })
    }

    /// Whether this runs on the fiber that each worker keeps for the runtime's own jobs.
    fn is_own_job(&self) -> bool {
        self.state.index as usize == self.shared.config.fibers
    }

    /// Waits until the gate is open. The runtime's own jobs do not: they run because it is closed.
    #[cold]
    fn pass_gate(&mut self) -> Result<(), AccessError> {
        if self.is_own_job() {
            return Ok(());
        }
        let index = self.state.index;
        let begun = self.shared.clock.now_ns();
        while self.shared.gates[self.state.worker as usize].closed.load(Ordering::Relaxed) {
            self.verdict()?;
            self.with_worker(|worker| {
                let ticket = worker.will_wait(index, WaitsFor::Latch, begun);
                worker.until_deadline(index, ticket);
                worker.gate_waiters.push((index, ticket));
            });
            self.suspend();
            self.after_wait()?;
        }
        self.with_worker(|worker| {
            worker.statistics.counts.gate_waits += 1;
            worker.statistics.counts.gate_wait_ns += worker.shared.clock.now_ns() - begun;
        });
        Ok(())
    }

    /// Starts to bring the subpage of `at` in, if there is room. Never waits.
    pub fn prefetch(&mut self, at: Address) {
        let subpage = (at.bits() >> SUBPAGE_SHIFT).wrapping_sub(BASE_SUBPAGE);
        if subpage < u64::from(self.shared.layout.subpages) && self.enough_stack().is_ok() {
            self.with_worker(|worker| worker.cache.prefetch(subpage as u32, worker.shared.clock.now_ns()));
        }
    }

    /// Gives the core to whoever else can run.
    ///
    /// # Errors
    /// When the job was cancelled or its deadline has passed.
    pub fn yield_now(&mut self) -> Result<(), AccessError> {
        self.verdict()?;
        let index = self.state.index;
        self.with_worker(|worker| worker.will_yield(index));
        self.suspend();
        Ok(())
    }

    /// Waits for `time`, while others run.
    ///
    /// # Errors
    /// When the job was cancelled, its deadline has passed, or the runtime is dropped.
    pub fn sleep(&mut self, time: Duration) -> Result<(), AccessError> {
        self.verdict()?;
        let until = self.shared.clock.now_ns().saturating_add(crate::nanos(time));
        let index = self.state.index;
        self.with_worker(|worker| {
            if worker.stopping() {
                return Err(AccessError::ShuttingDown);
            }
            let ticket = worker.will_sleep(index, until);
            worker.until_deadline(index, ticket);
            Ok(())
        })?;
        self.suspend();
        self.after_wait()
    }

    /// Waits until [`Context::unpark_all`] is called for the same word. Returns at once when the word is not `expected`, which
    /// is looked at under the lock that `unpark_all` takes. May return early.
    ///
    /// # Errors
    /// When the job was cancelled or its deadline has passed, or when the runtime was dropped long ago and nobody has woken
    /// the fiber since.
    pub fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.verdict()?;
        let key = std::ptr::from_ref(word) as usize;
        let index = self.state.index;
        let ticket = {
            let mut parked = PARKED[shard(key)].lock();
            if word.load(std::sync::atomic::Ordering::Relaxed) != expected {
                return Ok(());
            }
            let now = self.shared.clock.now_ns();
            let (worker, ticket) = self.with_worker(|worker| {
                let ticket = worker.will_wait(index, WaitsFor::Latch, now);
                worker.until_deadline(index, ticket);
                (worker.id, ticket)
            });
            parked.push(Parked { key, shared: self.shared.clone(), worker, fiber: index, ticket });
            ticket
        };
        self.suspend();
        let ended = self.after_wait();
        if ended.is_err() {
            // Nobody has unparked it, perhaps.
            let mine = |p: &Parked| p.fiber == index && p.ticket == ticket && Arc::ptr_eq(&p.shared, &self.shared);
            let worker = self.worker() as u32;
            PARKED[shard(key)].lock().retain(|p| p.worker != worker || !mine(p));
        }
        ended
    }

    /// What a wait for something other than flash ends in.
    fn after_wait(&self) -> Result<(), AccessError> {
        if self.state.wake.get() == Wake::ShutDown { Err(AccessError::ShuttingDown) } else { self.verdict() }
    }

    /// Wakes all fibers that are parked on `word`, of any runtime, from any thread.
    pub fn unpark_all(word: &AtomicU64) {
        let key = std::ptr::from_ref(word) as usize;
        let mut woken = Vec::new();
        {
            let mut parked = PARKED[shard(key)].lock();
            let mut i = 0;
            while i < parked.len() {
                // Order is kept among those that stay and those that go: first come, first woken.
                if parked[i].key == key { woken.push(parked.remove(i)) } else { i += 1 }
            }
        }
        for Parked { shared, worker, fiber, ticket, .. } in woken {
            wake(&shared, worker, fiber, ticket);
        }
    }

    /// Runs a future to its end on this fiber; others run while it waits.
    ///
    /// # Errors
    /// When the job was cancelled, its deadline has passed, or the runtime was dropped while it waited.
    pub fn await_future<F: Future>(&mut self, future: F) -> Result<F::Output, AccessError> {
        let mut future = std::pin::pin!(future);
        let worker = self.worker() as u32;
        let alarm = Arc::new(Alarm {
            state: Mutex::new(AlarmState { woken: false, ticket: None }),
            shared: self.shared.clone(),
            worker,
            fiber: self.state.index,
        });
        let waker = Waker::from(alarm.clone());
        loop {
            let poll = FuturePin::as_mut(&mut future).poll(&mut std::task::Context::from_waker(&waker));
            if let Poll::Ready(output) = poll {
                return Ok(output);
            }
            {
                let mut state = alarm.state.lock();
                if std::mem::take(&mut state.woken) {
                    drop(state);
                    // A future that wakes itself yields by it: others get their turn.
                    self.yield_now()?;
                    continue;
                }
                // Under the lock: a wake-up finds the fiber waiting or sets the flag.
                let (index, now) = (self.state.index, self.shared.clock.now_ns());
                state.ticket = Some(self.with_worker(|worker| {
                    if worker.stopping() {
                        return Err(AccessError::ShuttingDown);
                    }
                    let ticket = worker.will_wait(index, WaitsFor::Outside, now);
                    worker.until_deadline(index, ticket);
                    Ok(ticket)
                })?);
            }
            self.suspend();
            *alarm.state.lock() = AlarmState { woken: false, ticket: None };
            self.after_wait()?;
        }
    }

    /// The worker that runs this job.
    #[must_use]
    pub fn worker(&self) -> usize {
        // SAFETY: as in `with_worker`.
        unsafe { self.worker.as_ref() }.id as usize
    }

    /// The worker that runs this job, told from those of other runtimes too.
    #[inline(always)]
    #[must_use]
    pub fn worker_id(&self) -> WorkerId {
        self.worker_id
    }

    /// States when the request that this job serves arrived, in nanoseconds of [`fulgurite_sys::Clock`]: its age among
    /// fibers that can run.
    pub fn set_arrival(&mut self, ns: u64) {
        self.state.request_ns.set(ns);
    }

    /// Why the job must not go on, if it must not.
    #[inline]
    fn verdict(&self) -> Result<(), AccessError> {
        // A fiber that unwinds must not switch: whether a thread panics is the thread's state, not the fiber's.
        if std::thread::panicking() {
            return Err(AccessError::Cancelled);
        }
        self.enough_stack()?;
        if !self.state.bounded.get() {
            return Ok(());
        }
        let control = self.state.control.borrow();
        control.as_ref().map_or(Ok(()), |c| c.verdict(|| self.shared.clock.now_ns()))
    }

    fn suspend(&mut self) {
        let here = 0u8;
        self.state.stack_top.set(&raw const here);
        // SAFETY: the suspender lives on this fiber's stack for as long as its body runs.
        unsafe { self.suspender.as_ref() }.suspend();
    }
    /// Publishes that no unpinned reference is alive on this worker.
    pub(crate) fn let_go(&mut self) {
        // SAFETY: the slots live as long as `shared`.
        unsafe { self.slot.as_ref() }.store(residency::NOTHING, Ordering::Release);
    }
    pub(crate) fn suspend_idle(&mut self) {
        self.suspend();
    }
    pub(crate) fn take_accesses(&mut self) -> u64 {
        std::mem::take(&mut self.accesses)
    }
}

/// Keeps a write section open until it is dropped. See [`Context::write_section`].
#[must_use = "the section ends when this is dropped"]
pub struct WriteSection {
    state: Rc<FiberState>,
}

impl std::fmt::Debug for WriteSection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteSection").field("open", &self.state.sections.get()).finish()
    }
}

impl Drop for WriteSection {
    #[inline]
    fn drop(&mut self) {
        let open = self.state.sections.get() - 1;
        self.state.sections.set(open);
        if open == 0 {
            self.state.shared.gates[self.state.worker as usize].leave();
        }
    }
}

/// A frame that stays where it is until this is dropped.
pub struct PinnedFrame {
    state: Rc<FiberState>,
    frame: FrameIndex,
    address: Address,
}

impl PinnedFrame {
    /// The subpage's address.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address
    }
    /// Its first byte in DRAM.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        // SAFETY: the frame was found in a residency word, or pinned by its number.
        unsafe { self.state.cache.frames.address(self.frame) }
    }
    /// Marks the subpage dirty: its bytes may be written until the pin is dropped.
    ///
    /// # Panics
    /// When its page may not be written.
    #[inline]
    pub fn mark_dirty(&self) {
        let dirty = &self.state.cache.frames.marks(self.frame).dirty;
        assert!(dirty.load(Ordering::Relaxed) != READ_ONLY, "the page of {} may not be written", self.address);
        dirty.store(DIRTY, Ordering::Relaxed);
    }
    /// Bytes in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        SUBPAGE_BYTES
    }
    /// Never.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }
}

impl std::fmt::Debug for PinnedFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedFrame({} in frame {})", self.address, self.frame.0)
    }
}

impl Drop for PinnedFrame {
    #[inline]
    fn drop(&mut self) {
        self.state.pins.set(self.state.pins.get() - 1);
        self.state.cache.unpin(self.frame);
    }
}

/// A frame with a subpage that a worker owns; it stays where it is until this is dropped. Only its address is shown, as a raw
/// pointer: shared memory is reached as atomics, owned memory as references, and the same bytes never in both ways.
#[derive(Debug)]
pub struct OwnedFrame(PinnedFrame);

impl OwnedFrame {
    /// Its first byte in DRAM.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.0.base()
    }
    /// Marks the subpage dirty: its bytes may be written until the pin is dropped.
    ///
    /// # Panics
    /// When its page may not be written.
    #[inline]
    pub fn mark_dirty(&self) {
        self.0.mark_dirty();
    }
}

/// A fiber that waits for a key.
struct Parked {
    key: usize,
    shared: Arc<Shared>,
    worker: u32,
    fiber: u32,
    ticket: u32,
}

/// Those who wait, by key. Few do at any time: a list each.
static PARKED: [Mutex<Vec<Parked>>; 64] = [const { Mutex::new(Vec::new()) }; 64];

fn shard(key: usize) -> usize {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (usize::BITS - 6)
}

/// Wakes the fiber that awaits a future.
struct Alarm {
    state: Mutex<AlarmState>,
    shared: Arc<Shared>,
    worker: u32,
    fiber: u32,
}

struct AlarmState {
    woken: bool,
    /// The wait that a wake-up ends. Wakers outlive futures and jobs: without it they would end some later wait.
    ticket: Option<u32>,
}

impl WakeTrait for Alarm {
    fn wake(self: Arc<Self>) {
        let ticket = {
            let mut state = self.state.lock();
            state.woken = true;
            state.ticket.take()
        };
        if let Some(ticket) = ticket {
            wake(&self.shared, self.worker, self.fiber, ticket);
        }
    }
}
