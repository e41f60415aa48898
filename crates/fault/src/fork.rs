//! A page buffer at a `fork`. The child's begins with all that the parent's holds, and changes what
//! is its own.
//!
//! ```text
//!   parent                                           child
//!   prepare: handler thread stops; nothing is under
//!     way; frames fit into half of the DRAM; slots
//!     of flash are shared with the child's seat
//!   ------------------------------ fork ------------------------------
//!   in_parent: handler thread goes on                in_child: sits down; userfaultfd, queue and
//!                                                      handler thread of its own
//! ```
//!
//! Pages in DRAM are the kernel's: both have them until one writes to them. This holds for the
//! cache, its tables and the map of slots as well, because they are ordinary memory. So the child
//! continues from the exact state of the parent's cache. On flash, [`ForkedFlash`] keeps contents
//! apart.
//!
//! DRAM is divided before: each process alone, with every page copied, is within its part. A child
//! that ends, or becomes another program, gives its part back.
//!
//! From `prepare` on, the thread that forks must not touch the region, until `in_parent` or
//! `in_child`: nobody would handle its faults.

use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLockWriteGuard};

use fulgurite_cache::marks::DIRTY;
use fulgurite_flash::Flash;
use fulgurite_format::SUBPAGE_SHIFT;

use crate::budget::Budget;
use crate::command::{Commands, lock};
use crate::error::{Error, cannot};
use crate::page_buffer::{Lent, PageBuffer, notifier, open_queues};
use crate::pager::{Pager, Parts};
use crate::space::Space;
use crate::statistics::Statistics;

/// How long a fork waits for what is under way.
const PATIENCE_NS: u64 = 10_000_000_000;

/// A fork that is under way. See the module.
pub struct Forking {
    /// Where the child will sit; none where it gets no memory of flash.
    seat: Option<u32>,
    pager: MutexGuard<'static, Option<Box<Pager>>>,
    space: MutexGuard<'static, Space>,
    _changes: RwLockWriteGuard<'static, ()>,
}

impl PageBuffer {
    /// Whether a child could have all that this process has mapped.
    #[must_use]
    pub fn can_fork(&self) -> bool {
        self.flash.could_share()
    }

    /// Before a fork.
    pub fn prepare_fork(&'static self) -> Forking {
        // While the handler thread still does what is asked.
        let changes = self.changes.write().unwrap_or_else(PoisonError::into_inner);
        self.entry.forks.store(true, Ordering::Release);
        self.commands.wake();
        let mut pager = lock(&self.entry.pager);
        let seat = loop {
            match pager.as_ref().and_then(|pager| pager.ready) {
                Some(seat) => break seat,
                None => pager = self.entry.turns.wait(pager).unwrap_or_else(PoisonError::into_inner),
            }
        };
        let space = lock(&self.space);
        lock(&self.lent).clear();
        self.inherit(&pager, seat.is_some());
        Forking { seat, pager, space, _changes: changes }
    }

    /// Whether an address of the region can be used without a fault, before the fork and in the
    /// child. Without memory for the child, nothing has to be there.
    #[must_use]
    pub fn ensure_there(&self, forking: &mut Forking, address: usize) -> bool {
        let Some(offset) = self.region.offset_of(address) else { return true };
        let Some(pager) = forking.pager.as_mut().filter(|_| forking.seat.is_some()) else { return true };
        let subpage = (offset >> SUBPAGE_SHIFT) as u32;
        if !self.backend.is_hidden() {
            return pager.let_write(subpage);
        }
        let frame = pager.frame_of(subpage);
        lock(&self.lent).extend(frame.map(|frame| Lent { subpage, frame, is_used: false }));
        frame.is_some()
    }

    fn inherit(&self, pager: &Option<Box<Pager>>, inherited: bool) {
        if !self.backend.is_hidden() {
            self.region.inherit(inherited);
        }
        if let Some(pager) = pager {
            pager.cache.shared().frames.arena().inherit(inherited);
        }
    }

    /// In the parent, also when there is no child.
    pub fn in_parent(&self, forking: Forking) {
        let Forking { mut pager, space, _changes, .. } = forking;
        drop(space);
        self.inherit(&pager, false);
        if let Some(pager) = pager.as_mut() {
            (pager.winds_down, pager.ready) = (false, None);
        }
        self.entry.forks.store(false, Ordering::Release);
        self.entry.turns.notify_all();
    }

    /// In the child, before anything touches the region.
    ///
    /// # Errors
    /// [`Error`]. The region cannot be accessed then.
    pub fn in_child(&self, forking: Forking) -> Result<PageBuffer, Error> {
        let Forking { seat, mut pager, mut space, _changes } = forking;
        // Its queue is the parent's. Dropped here, it would end the parent's requests.
        let pager = ManuallyDrop::new(pager.take().expect("only a child takes it away"));
        let space = std::mem::replace(&mut *space, Space::new(0));
        let begun = self.begin_in_child(seat, pager, space);
        if begun.is_err() {
            // What is missing would read as zeros. Where it was not inherited, there is nothing.
            let _ = self.region.allow(0, self.region.len(), crate::Access::None);
        }
        begun
    }

    fn begin_in_child(
        &self,
        seat: Option<u32>,
        pager: ManuallyDrop<Box<Pager>>,
        space: Space,
    ) -> Result<PageBuffer, Error> {
        let seat = seat.ok_or(Error::NotForked)?;
        self.flash.sit(seat)?;
        let arena = pager.cache.shared().frames.arena().clone();
        // What was changed before is to be kept.
        for Lent { subpage, frame, .. } in lock(&self.lent).drain(..).filter(|lent| lent.is_used) {
            let copied =
                self.region.copy_back((subpage as usize) << SUBPAGE_SHIFT, &arena, frame.index() << SUBPAGE_SHIFT);
            copied.map_err(cannot("copy a page back"))?;
            pager.cache.shared().frames.marks(frame).dirty.store(DIRTY, Ordering::Relaxed);
        }
        let pages = self.region.len() >> SUBPAGE_SHIFT;
        let backend =
            Arc::new(self.backend.again(&self.region, &space.taken_of(0, pages), &space.limited_of(0, pages))?);
        backend.take_back_to(&arena)?;
        self.inherit(&None, false);
        let notifier = notifier(&backend)?;
        let flash: Arc<dyn Flash> = Arc::new(self.flash.clone());
        let (queue, own) = open_queues(&flash, &backend, arena, notifier.clone())?;
        let parts = Parts {
            flash: self.flash.clone(),
            backend,
            space: Arc::new(Mutex::new(space)),
            region: self.region.clone(),
            commands: Arc::new(Commands::new(notifier.clone())),
            statistics: Arc::new(Statistics::new(self.flash.dram_bytes())),
            budget: Budget::new(self.flash.dram_bytes()).map_err(cannot("measure this process"))?,
            notices: self.notices.clone(),
            figures: pager.parts.figures.again(),
            own,
        };
        let pager = ManuallyDrop::into_inner(pager).renew(parts, queue);
        let buffer = PageBuffer::around(pager, notifier, self.described.clone())?;
        buffer.entry.start()?;
        Ok(buffer)
    }
}

impl Pager {
    /// Ends what is under way, and shrinks to half of the DRAM. Then it is ready for a fork.
    pub fn wind_down(&mut self) {
        self.winds_down = true;
        self.ready = Some(self.seat_for_child());
    }

    fn seat_for_child(&mut self) -> Option<u32> {
        let begun = self.clock.now_ns();
        let seat = self.parts.flash.make_seat(begun)?;
        self.check_budget_soon();
        // At least one round, because it checks the budget.
        self.turn();
        while !self.is_quiet() {
            if self.clock.now_ns() - begun > PATIENCE_NS {
                self.parts.flash.give_up(seat);
                return None;
            }
            if !self.turn() {
                self.sleep();
            }
        }
        if self.cache.is_shrinking() {
            // Pages that are pinned stay, and nothing says how long.
            self.cache.discard_beyond();
        }
        if self.parts.backend.is_hidden() {
            // The child has what is in the frames, and maps memory of its own over the region.
            let (shared, mapped) = (self.cache.shared().clone(), self.cache.users().all_mapped());
            if !self.cache.users().take_back_all(&shared.frames, mapped.into_iter()) {
                self.parts.flash.give_up(seat);
                return None;
            }
        }
        self.parts.flash.share(seat, self.clock.now_ns());
        Some(seat)
    }
}
