//! The context: what a job holds of the runtime, and the frontside.
//!
//! Every access, and all else that may switch, takes the context by `&mut`. So a reference from an
//! access is dead before the fiber is switched out. [`Context::access`] returns a raw address.
//! `fulgurite-memory` makes the safe views of it, by the rules stated there.

mod faults;
mod objects;
mod pins;
mod wait;

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use fulgurite_cache::marks::{HOME, Marks, USED};
use fulgurite_cache::{NearView, Table, Unsealed, residency};
use fulgurite_fiber::Suspender;
use fulgurite_format::{Address, FrameIndex, SUBPAGE_SHIFT};
use fulgurite_sys::arch;

use crate::error::AccessError;
use crate::fibers::Fibers;
use crate::mailbox::Wake;
use crate::shared::{Shared, WorkerId};
use crate::state::FiberState;
use crate::thread::AbortOnPanic;

pub use pins::{OwnedFrame, PinnedFrame};
pub use wait::WriteSection;

/// A job's hold on the runtime. Not `Send`: it belongs to one fiber, and fibers never change
/// threads.
pub struct Context {
    words: NonNull<AtomicU32>,
    absent: NonNull<AtomicU8>,
    /// Subpages that shared accesses may reach.
    shared_subpages: u64,
    /// The hits among them that have a home among the frames of a lone worker.
    homes: u64,
    /// No other worker can unlink a subpage.
    alone: bool,
    frames: NonNull<u8>,
    marks: NonNull<Marks>,
    slot: NonNull<AtomicU32>,
    near: NearView,
    accesses: u64,
    fibers: NonNull<Fibers>,
    worker_id: WorkerId,
    suspender: NonNull<Suspender>,
    cache: Arc<fulgurite_cache::Shared>,
    shared: Arc<Shared>,
    state: Rc<FiberState>,
    /// Below this address of its stack, the fiber must not enter the worker.
    stack_reserve: usize,
    /// Behind its stack.
    stack_end: usize,
    not_send: PhantomData<*mut ()>,
}

/// How long a write to a frame that is on its way to the medium waits before it tries again.
const SEALED_WAIT: Duration = Duration::from_micros(20);

/// Stack kept for the way to the worker's stack, for parking and for the switch, which must not
/// overflow.
const STACK_RESERVE: usize = match (cfg!(sanitized), cfg!(debug_assertions)) {
    // Then the worker's code runs on the fiber's stack.
    (true, _) => 8 << 10,
    (false, true) => 3 << 10,
    (false, false) => 2 << 10,
};

/// What an address's high bits are when it is in the first controller, in units of subpages.
const BASE_SUBPAGE: u64 = Address::from_linear(0).bits() >> SUBPAGE_SHIFT;

impl Context {
    pub(crate) fn new(
        fibers: *mut Fibers,
        shared: &Arc<Shared>,
        state: Rc<FiberState>,
        suspender: &Suspender,
        stack: Range<usize>,
    ) -> Context {
        // SAFETY: made on the worker's thread, by its loop; the id never changes.
        let id = unsafe { (*fibers).id };
        Context {
            words: shared.cache.table.words(),
            absent: shared.cache.table.absent_bits(),
            shared_subpages: shared.layout.shared_subpages.into(),
            homes: match shared.cache.alone() {
                true => shared.layout.shared_subpages.min(shared.cache.frames_max()).into(),
                false => 0,
            },
            alone: shared.cache.alone(),
            frames: shared.cache.frames.base(),
            marks: shared.cache.frames.marks_base(),
            slot: NonNull::from(shared.slots.of(id)),
            near: shared.cache.near.view(),
            accesses: 0,
            fibers: NonNull::new(fibers).expect("they are not at null"),
            worker_id: WorkerId::new(shared.id, id),
            suspender: NonNull::from(suspender),
            cache: shared.cache.clone(),
            shared: shared.clone(),
            state,
            stack_reserve: stack.start + STACK_RESERVE,
            stack_end: stack.end,
            not_send: PhantomData,
        }
    }

    /// How often the memory has been rolled back. Changes only where a job waits: in an access that
    /// misses, in a fault that switches, at the gate, when it gives way. What was read before it is
    /// of another state.
    #[inline]
    pub fn roll_backs(&self) -> u64 {
        self.roll_back_count().load(Ordering::Acquire)
    }
    /// Where they are counted.
    #[doc(hidden)]
    #[inline(always)]
    pub fn roll_back_count(&self) -> &AtomicU64 {
        &self.shared.roll_backs
    }

    /// Calls what the worker keeps of its fibers, on the worker's own stack.
    #[inline(always)]
    fn with_fibers<R>(&mut self, call: impl FnOnce(&mut Fibers) -> R) -> R {
        let fibers = self.fibers;
        // SAFETY: the suspender lives on this fiber's stack while its body runs, and the worker
        // does not have it. The fiber runs, so the worker's loop waits in `resume` without a
        // reference (see `worker`). The one made here ends with the call, which runs no user's
        // code.
        unsafe {
            self.suspender.as_ref().on_parent_stack(move || {
                let whole = AbortOnPanic;
                let result = call(&mut *fibers.as_ptr());
                std::mem::forget(whole);
                result
            })
        }
    }

    /// Whether there is room on this stack for what a miss or a wait needs of it.
    #[inline]
    fn enough_stack(&self) -> Result<(), AccessError> {
        if arch::stack_pointer_here() < self.stack_reserve {
            return Err(AccessError::StackExhausted { stack_bytes: self.shared.config.stack_bytes });
        }
        Ok(())
    }

    /// Where the byte at `at` of a shared region is in DRAM, until the next call that takes `&mut
    /// self`.
    ///
    /// The whole hit path is inlined. A lone worker checks the marks of the subpage's home first,
    /// then the near table. Failing that, a bit, a load and a compare decide, and among several
    /// workers a store, a load and a compare. Then a store marks the frame as used.
    ///
    /// # Errors
    /// [`AccessError`]: out of range, the medium failed, the job must end.
    #[inline(always)]
    pub fn access(&mut self, at: Address) -> Result<NonNull<u8>, AccessError> {
        self.accesses += 1;
        let subpage = (at.bits() >> SUBPAGE_SHIFT).wrapping_sub(BASE_SUBPAGE);
        if subpage < self.homes {
            // SAFETY: there are as many frames, with marks for each.
            unsafe {
                if self.marks.add(subpage as usize).as_ref().hit_at_home() {
                    return Ok(self.frames.add((subpage as usize) << SUBPAGE_SHIFT | at.subpage_offset()));
                }
            }
        }
        if subpage < self.shared_subpages {
            // SAFETY: the index is below the table's length.
            if let Some(frame) = unsafe { self.find(subpage as u32) } {
                return Ok(self.touch(frame, subpage as u32, at));
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
            return Ok(self.touch(frame, subpage as u32, at));
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

    /// The frame of a resident subpage, which stays until this fiber accesses another or switches.
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
        // SAFETY: bits and words are as many as subpages (the caller vouches for this one) and live
        // as long as `shared`, which we hold, and with it the slot.
        unsafe {
            if Table::says_absent(self.absent.add((subpage / 8) as usize).as_ref(), subpage) {
                return None;
            }
            let word = self.words.add(subpage as usize).as_ref();
            if self.alone { residency::hit_alone(word) } else { residency::hit(word, self.slot.as_ref()) }
        }
    }

    /// Marks the subpage of a byte dirty. False when it is sealed, and must not be written to yet.
    ///
    /// # Safety
    /// The last access of this context must have returned the byte.
    #[inline(always)]
    unsafe fn mark_dirty(&mut self, byte: NonNull<u8>) -> bool {
        let frame = self.frame_of(byte);
        // SAFETY: the byte is in a frame (the caller's contract), and marks are as many as frames.
        unsafe { self.marks.add(frame.index()).as_ref() }.mark_dirty()
    }

    /// The frame that a byte is in.
    #[inline(always)]
    fn frame_of(&self, byte: NonNull<u8>) -> FrameIndex {
        FrameIndex(((byte.as_ptr() as usize - self.frames.as_ptr() as usize) >> SUBPAGE_SHIFT) as u32)
    }

    /// Makes a sealed frame writable for an access, and marks it dirty.
    #[cold]
    #[inline(never)]
    fn unsealed(
        &mut self,
        at: Address,
        access: impl Fn(&mut Context, Address) -> Result<NonNull<u8>, AccessError>,
    ) -> Result<NonNull<u8>, AccessError> {
        loop {
            self.enough_stack()?;
            let byte = access(self, at)?;
            let frame = self.frame_of(byte);
            let subpage = (at.bits() >> SUBPAGE_SHIFT).wrapping_sub(BASE_SUBPAGE) as u32;
            let writer = self.writer();
            match self.with_fibers(|fibers| fibers.cache.unseal(subpage, frame, writer, fibers.shared.clock.now_ns())) {
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
    fn touch(&mut self, frame: FrameIndex, subpage: u32, at: Address) -> NonNull<u8> {
        let home = if self.alone && frame.0 == subpage { HOME } else { 0 };
        // SAFETY: a residency word holds the index of an existing frame, and marks and arena are
        // that long.
        unsafe {
            self.marks.add(frame.index()).as_ref().referenced.store(home | USED, Ordering::Relaxed);
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
                // Another fiber has brought it in: an unused turn is not kept for another miss.
                self.state.frame_turn.set(false);
                return Ok(self.touch(residency::frame_of(resident), subpage, at));
            }
            if self.shared.poisoned.get().is_some() {
                return Err(AccessError::MemoryPoisoned);
            }
            let index = self.state.index;
            if !self.with_fibers(|fibers| fibers.begin_miss(subpage, index)) {
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
                Wake::Fetched(_) => unreachable!("this fiber did not fetch"),
                Wake::Failed(source) => return Err(AccessError::of_flash(at, source, &*self.shared.flash)),
                Wake::OutOfFrames => return Err(AccessError::OutOfFrames),
                Wake::ShutDown => return Err(AccessError::ShuttingDown),
            }
        }
    }

    /// Whether this runs on the fiber that each worker keeps for the runtime's own jobs.
    fn is_own_job(&self) -> bool {
        self.state.index as usize == self.shared.config.fibers
    }

    /// Starts to bring the subpage of `at` in, if there is room. Never waits.
    pub fn prefetch(&mut self, at: Address) {
        let subpage = (at.bits() >> SUBPAGE_SHIFT).wrapping_sub(BASE_SUBPAGE);
        if subpage >= u64::from(self.shared.layout.subpages) {
            return;
        }
        // SAFETY: there is such a subpage, and the bits live as long as `shared`, which we hold.
        let byte = unsafe { self.absent.add((subpage / 8) as usize).as_ref() };
        // What is resident costs no change of stacks.
        if Table::says_absent(byte, subpage as u32) && self.enough_stack().is_ok() {
            self.with_fibers(|fibers| fibers.cache.prefetch(subpage as u32, fibers.shared.clock.now_ns()));
        }
    }

    /// Says that all of the subpage of `at` will be written next. If it is not in DRAM, it is not
    /// read for that, and the next access may find zeros. Never waits.
    pub fn will_overwrite(&mut self, at: Address) {
        let subpage = (at.bits() >> SUBPAGE_SHIFT).wrapping_sub(BASE_SUBPAGE);
        if subpage >= self.shared_subpages {
            return;
        }
        // SAFETY: there is such a subpage, and the bits live as long as `shared`, which we hold.
        let byte = unsafe { self.absent.add((subpage / 8) as usize).as_ref() };
        let absent = Table::says_absent(byte, subpage as u32);
        if !absent || self.shared.poisoned.get().is_some() || self.enough_stack().is_err() {
            return;
        }
        let subpage = subpage as u32;
        if self.cache.backing().is_none_or(|backing| backing.may(subpage, true)) {
            self.with_fibers(|fibers| {
                fibers.cache.begin_blank(subpage, fibers.shared.clock.now_ns());
                fibers.deliver();
            });
        }
    }

    /// The worker that runs this job.
    pub fn worker(&self) -> usize {
        // SAFETY: as in `with_fibers`.
        unsafe { self.fibers.as_ref() }.id as usize
    }

    /// The worker that runs this job, distinct from workers of other runtimes too.
    #[inline(always)]
    pub fn worker_id(&self) -> WorkerId {
        self.worker_id
    }

    /// Sets when this job's request arrived, in nanoseconds of [`fulgurite_sys::Clock`]: its age
    /// among runnable fibers.
    pub fn set_arrival(&mut self, ns: u64) {
        self.state.request_ns.set(ns);
    }

    /// Whether the job must end.
    ///
    /// # Errors
    /// When it was cancelled, its deadline has passed, or its stack is nearly used up.
    #[inline]
    pub fn verdict(&self) -> Result<(), AccessError> {
        // A fiber that unwinds must not switch, because whether a thread panics is the thread's
        // state, not the fiber's.
        if std::thread::panicking() {
            return Err(AccessError::Cancelled);
        }
        // A job that has forked goes on in the child, whose rings are its parent's.
        if !self.shared.process.is_current() {
            return Err(AccessError::Forked);
        }
        self.enough_stack()?;
        if !self.state.bounded.get() {
            return Ok(());
        }
        let control = self.state.control.borrow();
        control.as_ref().map_or(Ok(()), |c| c.verdict(|| self.shared.clock.now_ns()))
    }

    fn suspend(&self) {
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
