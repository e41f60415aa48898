//! The heap: objects of any size in flash memory, for nodes of containers and for programs.
//!
//! ```text
//! region: | header, 2 subpages | slab | slab | large object | slab | ... | never used yet |
//! slab:   up to one page, whole subpages, cut into objects of one class; none straddles a subpage
//! free object that heads a batch: | next batch | free object | free object | ... | 0 |
//! ```
//!
//! Classes: multiples of 8 up to 128 bytes, then eight to an octave up to 512 bytes (at most 12.5%
//! lost). Then come divisors of a subpage by 7, 6, .. 1, and whole subpages, eight classes to an
//! octave. Of each class, the [`CACHED_OBJECTS`] freed last are in DRAM. The rest wait in flash as
//! a list of batches in the free objects' own memory. The object freed last heads a batch, because
//! its subpage is the likeliest to be at hand.
//!
//! Invariants (`check` verifies them):
//! * Per class, objects cut = in use + cached + listed; no object is free twice.
//! * All state is in DRAM, and the header on flash is its last `save`. Between a change and the
//!   next `save` the header says `clean = 0`, and its mark is at or above everything handed out.
//!
//! Decisions are taken under short mutexes that are never held across an access. A latch for each
//! class orders its accesses (batches, slabs). An access that fails changes nothing.
//!
//! A class that is out of space divides the smallest larger object that is free. Pages that are
//! wholly free again become such objects when somebody looks for them (`empty`). Only `check` finds
//! a double free.

mod empty;
mod parts;
mod saved;
mod size_class;
mod state;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use fulgurite_format::{Address, PAGE_BYTES, SUBPAGE_BYTES};
use fulgurite_runtime::AccessError;

use parts::Parts;
pub(crate) use parts::{Grounds, RECORD_AT, RECORD_BYTES, clear_ranges, ranges_of};
use size_class::{CLASSES, SUBPAGE_CLASS, class_bytes, class_of};
use state::Class;

use crate::MemoryId;
use crate::layout::Scatter;
use crate::{Allocator, ByKind, Latch, Layout, Memory, Ptr, Region, Reservation, VersionLatch};

/// Free objects of one class in DRAM (8 bytes each). Beyond that, the oldest go to a list in flash.
pub const CACHED_OBJECTS: usize = 256;

const SUBPAGE: u64 = SUBPAGE_BYTES as u64;
/// Bytes that the header takes at the front of the region.
const HEADER_BYTES: u64 = 2 * SUBPAGE;
/// How far the mark on flash precedes what is handed out, so that it is written once in several
/// slabs.
const MARK_AHEAD: u64 = 16 * PAGE_BYTES as u64;

/// How long an allocation that finds nothing waits for pages that are lent.
const LENT_PAUSE: Duration = Duration::from_micros(100);

/// Space that no class has yet. Numbers are bytes from the start of the region.
#[derive(Debug)]
struct Supply {
    next: u64,
    /// What the header on flash says.
    mark: u64,
    unaccounted: u64,
    /// Next to pages that are lent, what is left of larger objects that reach into them.
    rests: Vec<Region>,
}

/// An allocator over a [`Region`] of flash memory, for any number of workers.
#[derive(Debug)]
pub struct Heap {
    /// The memory that holds it.
    memory: MemoryId,
    parts: Parts,
    /// Where it gets more when it is full.
    grounds: OnceLock<Grounds>,
    classes: Box<[Class]>,
    supply: Mutex<Supply>,
    supply_turn: VersionLatch,
    /// What the header on flash says.
    clean: AtomicBool,
    /// The header wrongly says that nothing has changed since it was saved: it could not be
    /// written.
    missed: AtomicBool,
    /// A roll back took the heap away.
    gone: AtomicBool,
    /// Bytes of free objects when it was last looked for empty pages, or fewer.
    looked_at: AtomicU64,
    /// The turn of whatever walks all lists. Taken before the turns of classes.
    walk_turn: VersionLatch,
    /// Empty pages are with a caller.
    lent: AtomicBool,
    /// The page at which the next search for empty ones starts.
    look_from: AtomicU64,
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under these mutexes panics half way; a poisoned one still holds whole values.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Allocator for Heap {
    fn room_of(bytes: usize) -> usize {
        Heap::room(bytes)
    }
    fn take<M: Memory>(&self, memory: &mut M, bytes: usize) -> Result<Address, AccessError> {
        self.allocate(memory, bytes)
    }
    fn give_back<M: Memory>(&self, memory: &mut M, at: Address, bytes: usize) -> Result<(), AccessError> {
        self.free(memory, at, bytes)
    }
}

impl Heap {
    /// Bytes at the front of a region that the heap keeps for itself.
    pub const HEADER_BYTES: u64 = HEADER_BYTES;

    fn over(memory: MemoryId, region: Region, mark: u64, unaccounted: u64, clean: bool) -> Heap {
        Heap {
            memory,
            parts: Parts::new(region, Vec::new()),
            grounds: OnceLock::new(),
            classes: (0..CLASSES).map(|_| Class::default()).collect(),
            supply: Mutex::new(Supply { next: mark, mark, unaccounted, rests: Vec::new() }),
            supply_turn: VersionLatch::default(),
            clean: AtomicBool::new(clean),
            missed: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            looked_at: AtomicU64::new(0),
            walk_turn: VersionLatch::default(),
            lent: AtomicBool::new(false),
            look_from: AtomicU64::new(0),
        }
    }

    /// Makes an empty heap in `region`, whatever was there before.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`] when the region is smaller than three subpages, and the memory's
    /// errors.
    pub fn create<M: Memory>(memory: &mut M, region: Region) -> Result<Heap, AccessError> {
        if region.bytes < HEADER_BYTES + SUBPAGE {
            return Err(AccessError::NoSpace { requested: HEADER_BYTES + SUBPAGE, free: region.bytes });
        }
        let heap = Heap::over(memory.id(), region, HEADER_BYTES, 0, false);
        heap.save(memory)?;
        Ok(heap)
    }

    /// Whether its container was removed, or a roll back took it away.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The memory that holds it.
    pub(crate) fn memory(&self) -> MemoryId {
        self.memory
    }
    /// The region that it was made in.
    pub fn region(&self) -> Region {
        self.parts.first()
    }
    /// Bytes of addresses that it manages now.
    pub fn bytes(&self) -> u64 {
        self.parts.bytes()
    }
    /// Whether `len` bytes at `at` are its own.
    #[inline]
    pub fn contains(&self, at: Address, len: u64) -> bool {
        self.parts.contains(at, len)
    }
    /// The offset of an address among its own.
    #[inline]
    pub(crate) fn offset(&self, at: Address) -> u64 {
        self.parts.offset(at)
    }
    /// The address of an offset, with `len` bytes behind it that are its own.
    #[inline]
    pub(crate) fn at(&self, offset: u64, len: u64) -> Option<Address> {
        self.parts.at(offset).filter(|(_, left)| *left >= len).map(|(at, _)| at)
    }
    /// From now on it gets more addresses when it is full.
    pub(crate) fn grow_on(&self, grounds: Grounds) {
        let _ = self.grounds.set(grounds);
    }
    /// Whether it gets more addresses when it is full.
    pub(crate) fn grows(&self) -> bool {
        self.grounds.get().is_some()
    }

    /// `bytes` of flash memory, aligned to 8, with earlier contents. Up to a subpage it is inside
    /// one. Larger ones are contiguous subpages.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`]; what the memory says. Nothing is handed out then.
    pub fn allocate<M: Memory>(&self, memory: &mut M, bytes: usize) -> Result<Address, AccessError> {
        self.memory.check(memory.id())?;
        if let Some(allocated) = memory.allocate_tracked(self, bytes) {
            return allocated;
        }
        let _section = memory.write_section()?;
        let Some(class) = class_of(bytes) else {
            return Err(AccessError::NoSpace { requested: bytes as u64, free: self.free_bytes() });
        };
        if self.clean.load(Ordering::Acquire) {
            self.note_change(memory)?;
        }
        let size = class_bytes(class);
        loop {
            {
                let mut state = hold(&self.classes[class].state);
                if let Some(at) = state.cached.pop_back() {
                    return Ok(at);
                }
                // What waits in flash goes first, so that the heap grows only when it must.
                if state.head.is_null()
                    && let Some(at) = state.cut(size)
                {
                    return Ok(at);
                }
            }
            self.refill(memory, class, bytes)?;
        }
    }

    /// Bytes that an object of `bytes` has room for. It is freed by any number up to that which is
    /// of the same class.
    pub(crate) fn room(bytes: usize) -> usize {
        class_of(bytes).map_or(bytes, |class| class_bytes(class) as usize)
    }

    /// Takes `bytes` at `at` back, which `allocate` handed out for as many bytes.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when no such object was ever handed out. A failed access is no
    /// error: the object stays in DRAM, and a later call retries.
    pub fn free<M: Memory>(&self, memory: &mut M, at: Address, bytes: usize) -> Result<(), AccessError> {
        self.memory.check(memory.id())?;
        if memory.free_tracked(self, at, bytes) {
            return Ok(());
        }
        let _section = memory.write_section()?;
        let class = class_of(bytes).filter(|&class| self.is_object(class, at));
        let Some(class) = class else {
            return Err(AccessError::Corrupt { what: "freed object", at, expected: bytes as u64, got: at.bits() });
        };
        if self.clean.load(Ordering::Acquire) {
            // Where this fails, the saved state only misses a free object, and `allocate` retries
            // before it matters.
            if self.note_change(memory).is_err() {
                self.missed.store(true, Ordering::Relaxed);
            }
        }
        let full = {
            let mut state = hold(&self.classes[class].state);
            if state.in_use() == 0 {
                self.adopt(class, at)?;
                state.cut += 1;
            }
            state.cached.push_back(at);
            state.cached.len() > CACHED_OBJECTS
        };
        if full {
            // The caller's object is free already, whether or not this works.
            let _ = self.spill(memory, class, CACHED_OBJECTS);
        }
        Ok(())
    }

    /// As [`Heap::free`], of what `allocate` has just handed out and nobody could write. What was
    /// never written goes back to its slab: a list of free objects would be written there, which
    /// takes the room in a full pool that the caller was refused.
    ///
    /// # Errors
    /// As [`Heap::free`].
    pub(crate) fn free_unwritten<M: Memory>(
        &self,
        memory: &mut M,
        at: Address,
        bytes: usize,
    ) -> Result<(), AccessError> {
        let class = class_of(bytes).filter(|&class| class <= SUBPAGE_CLASS && !M::TRACKED);
        match class {
            Some(class) if hold(&self.classes[class].state).undo_cut(at, class_bytes(class)) => Ok(()),
            _ => self.free(memory, at, bytes),
        }
    }

    /// Accounts for an object that was handed out before a crash.
    #[cold]
    fn adopt(&self, class: usize, at: Address) -> Result<(), AccessError> {
        let mut supply = hold(&self.supply);
        match supply.unaccounted.checked_sub(class_bytes(class)) {
            Some(rest) => supply.unaccounted = rest,
            None => return Err(AccessError::Corrupt { what: "object freed twice", at, expected: 1, got: 0 }),
        }
        Ok(())
    }

    /// Tells the header on flash that it is out of date.
    #[cold]
    fn note_change<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        if self.gone.load(Ordering::Acquire) {
            return Err(AccessError::Poisoned);
        }
        let _turn = self.supply_turn.lock(memory)?;
        let mark = hold(&self.supply).mark;
        memory.store(Ptr::new(self.region().base), self.header(0, mark, 0))?;
        self.clean.store(false, Ordering::Release);
        Ok(())
    }

    /// Whether there can be an object of the class at `at`.
    fn is_object(&self, class: usize, at: Address) -> bool {
        let size = class_bytes(class);
        let offset = at.subpage_offset() as u64;
        let placed =
            if size >= SUBPAGE { offset == 0 } else { offset.is_multiple_of(size) && offset + size <= SUBPAGE };
        placed && self.contains(at, size) && self.offset(at) >= HEADER_BYTES
    }

    /// Words of a free object that can hold a batch: the next batch, then addresses.
    fn batch_words(class: usize) -> usize {
        (class_bytes(class).min(SUBPAGE) / 8) as usize
    }

    /// Moves the oldest cached objects into a batch in flash, if there are more than `keep`.
    fn spill<M: Memory>(&self, memory: &mut M, class: usize, keep: usize) -> Result<(), AccessError> {
        let slot = &self.classes[class];
        let _turn = slot.turn.lock(memory)?;
        let words = Self::batch_words(class);
        let mut batch = [0u64; SUBPAGE_BYTES / 8];
        let (holder, count) = {
            let mut state = hold(&slot.state);
            if state.cached.len() <= keep {
                return Ok(());
            }
            let Some(holder) = state.cached.pop_back() else { return Ok(()) };
            batch[0] = state.head.bits();
            let count = (words - 1).min(state.cached.len());
            for word in &mut batch[1..=count] {
                *word = state.cached.pop_front().map_or(0, Address::bits);
            }
            state.moving += count as u64 + 1;
            (holder, count)
        };
        let written = match memory.view_mut(holder, words * 8) {
            Ok(view) => {
                for (i, &word) in batch[..words].iter().enumerate() {
                    view.store(i * 8, word);
                }
                Ok(())
            }
            Err(error) => Err(error),
        };
        let mut state = hold(&slot.state);
        state.moving -= count as u64 + 1;
        match written {
            Ok(()) => {
                state.head = holder;
                state.listed += count as u64 + 1;
            }
            Err(_) => {
                for &word in batch[1..=count].iter().rev() {
                    state.cached.push_front(Address::from_bits(word));
                }
                state.cached.push_back(holder);
            }
        }
        written
    }

    /// Reads the batch at `holder`: the next one, and the addresses in it.
    fn read_batch<M: Memory>(
        &self,
        memory: &mut M,
        class: usize,
        holder: Address,
        mut each: impl FnMut(Address),
    ) -> Result<Address, AccessError> {
        let corrupt = |got: Address| AccessError::Corrupt {
            what: "heap free list",
            at: holder,
            expected: class_bytes(class),
            got: got.bits(),
        };
        let words = Self::batch_words(class);
        if !self.is_object(class, holder) {
            return Err(corrupt(holder));
        }
        let view = memory.view(holder, words * 8)?;
        let next = Address::from_bits(view.load(0));
        if !next.is_null() && !self.is_object(class, next) {
            return Err(corrupt(next));
        }
        for i in 1..words {
            let at = Address::from_bits(view.load(i * 8));
            if at.is_null() {
                break;
            }
            if !self.is_object(class, at) {
                return Err(corrupt(at));
            }
            each(at);
        }
        Ok(next)
    }

    /// Brings free objects of the class within reach of `allocate`, from its list or as a new slab.
    #[cold]
    fn refill<M: Memory>(&self, memory: &mut M, class: usize, bytes: usize) -> Result<(), AccessError> {
        let slot = &self.classes[class];
        let _turn = slot.turn.lock(memory)?;
        if self.take_batch(memory, class)? {
            return Ok(());
        }
        let size = class_bytes(class);
        let is_large = class > SUBPAGE_CLASS;
        let supplied = |memory: &mut M, grows: bool| match is_large {
            true => self.supply(memory, size, grows),
            false => self.supply_slab(memory, grows),
        };
        let larger = if is_large { class + 1 } else { SUBPAGE_CLASS.max(class + 1) };
        let slab = loop {
            if let Some(slab) = supplied(memory, false)? {
                break Some(slab);
            }
            let lent = self.lent.load(Ordering::Acquire);
            // What others have freed is used before more addresses.
            if let Some((at, len)) = self.recycle(memory, larger)? {
                let page = PAGE_BYTES as u64;
                let used = match is_large {
                    true => size,
                    false if len > page => page - at.linear() % page,
                    false => len,
                };
                self.divide(at.add(used), len - used);
                break Some((at, used));
            }
            if !lent {
                break supplied(memory, true)?;
            }
            // What is lent comes back soon.
            memory.pause(LENT_PAUSE)?;
            if self.take_batch(memory, class)? {
                return Ok(());
            }
        };
        let Some((at, len)) = slab else {
            return Err(AccessError::NoSpace { requested: bytes as u64, free: self.free_bytes() });
        };
        let mut state = hold(&slot.state);
        (state.next, state.end) = (at, at.add(len));
        Ok(())
    }

    /// Brings a batch from the class's list within reach of `allocate`. False when there is nothing
    /// there either way. The caller holds the class's turn.
    fn take_batch<M: Memory>(&self, memory: &mut M, class: usize) -> Result<bool, AccessError> {
        let slot = &self.classes[class];
        let head = {
            let state = hold(&slot.state);
            if !state.cached.is_empty() || (state.head.is_null() && state.next != state.end) {
                return Ok(true);
            }
            state.head
        };
        if head.is_null() {
            return Ok(false);
        }
        let mut found = Vec::new();
        let next = self.read_batch(memory, class, head, |at| found.push(at))?;
        let mut state = hold(&slot.state);
        let count = found.len() as u64 + 1;
        if state.listed < count || next.is_null() != (state.listed == count) {
            let expected = state.listed;
            return Err(AccessError::Corrupt { what: "heap free list", at: head, expected, got: count });
        }
        state.head = next;
        state.listed -= count;
        state.cached.extend(found);
        state.cached.push_back(head);
        Ok(true)
    }

    /// Subpages for a slab: to the end of the page, or fewer in a small region, so that every class
    /// gets some.
    fn supply_slab<M: Memory>(&self, memory: &mut M, grows: bool) -> Result<Option<(Address, u64)>, AccessError> {
        let (next, share) = {
            let supply = hold(&self.supply);
            (supply.next, (self.bytes() - supply.next) / SUBPAGE / 64)
        };
        let page = PAGE_BYTES as u64;
        // Another range begins at a page.
        let to_page_end = self.parts.at(next).map_or(page, |(at, left)| left.min(page - at.bits() % page));
        self.supply(memory, (share * SUBPAGE).clamp(SUBPAGE, to_page_end), grows)
    }

    /// `len` bytes, whole subpages, that no class has yet. With `grows`, of another range where the
    /// heap's are used up.
    fn supply<M: Memory>(&self, memory: &mut M, len: u64, grows: bool) -> Result<Option<(Address, u64)>, AccessError> {
        loop {
            let (next, mark, left) = {
                let mut supply = hold(&self.supply);
                let (at, left) = self.parts.at(supply.next).unwrap_or((Address::NULL, 0));
                if len <= left && supply.next + len <= supply.mark {
                    supply.next += len;
                    return Ok(Some((at, len)));
                }
                (supply.next, supply.mark, left)
            };
            let _turn = self.supply_turn.lock(memory)?;
            {
                let supply = hold(&self.supply);
                if (supply.next, supply.mark) != (next, mark) {
                    continue;
                }
            }
            if len > left {
                // The rest of a range is free memory for smaller objects.
                if next + left == self.bytes() && !(grows && self.grow(memory, len)?) {
                    return Ok(None);
                }
                self.leave(memory, next, left)?;
                continue;
            }
            self.raise_mark(memory, next + len)?;
        }
    }

    /// Takes another range. Returns whether there was one. The caller has the supply's turn.
    #[cold]
    fn grow<M: Memory>(&self, memory: &mut M, len: u64) -> Result<bool, AccessError> {
        match self.grounds.get() {
            Some(grounds) => self.parts.grow(memory, grounds, len),
            None => Ok(false),
        }
    }
    /// Raises the mark on flash ahead of what is about to be handed out. The caller has the
    /// supply's turn.
    fn raise_mark<M: Memory>(&self, memory: &mut M, end: u64) -> Result<(), AccessError> {
        let ahead = (end + MARK_AHEAD).min(self.bytes());
        memory.store(Ptr::new(self.region().base), self.header(0, ahead, 0))?;
        hold(&self.supply).mark = ahead;
        Ok(())
    }
    /// Gives what is left at the end of a range to the classes, as free objects as large as fit.
    /// The caller has the supply's turn.
    #[cold]
    fn leave<M: Memory>(&self, memory: &mut M, next: u64, left: u64) -> Result<(), AccessError> {
        let Some((at, _)) = self.parts.at(next) else { return Ok(()) };
        if next + left > hold(&self.supply).mark {
            self.raise_mark(memory, next + left)?;
        }
        {
            let mut supply = hold(&self.supply);
            // What is below the mark may be taken without the turn.
            if supply.next != next {
                return Ok(());
            }
            supply.next = next + left;
        }
        self.divide(at, left);
        Ok(())
    }
    /// Makes free objects, as large as fit, of whole subpages that nobody has. They may be of
    /// ranges that are adjacent, and no object is of two.
    fn divide(&self, mut at: Address, mut bytes: u64) {
        while bytes >= SUBPAGE {
            let left = self.parts.at(self.parts.offset(at)).map_or(bytes, |(_, left)| left.min(bytes));
            let class = (SUBPAGE_CLASS..CLASSES).rev().find(|class| class_bytes(*class) <= left);
            let class = class.unwrap_or(SUBPAGE_CLASS);
            let mut state = hold(&self.classes[class].state);
            state.cut += 1;
            state.cached.push_back(at);
            (at, bytes) = (at.add(class_bytes(class)), bytes - class_bytes(class));
        }
    }

    /// A free object of these classes, for another one.
    fn recycle<M: Memory>(&self, memory: &mut M, first: usize) -> Result<Option<(Address, u64)>, AccessError> {
        for class in first..CLASSES {
            let slot = &self.classes[class];
            loop {
                {
                    let mut state = hold(&slot.state);
                    if let Some(at) = state.cached.pop_back() {
                        state.cut -= 1;
                        return Ok(Some((at, class_bytes(class))));
                    }
                    if state.listed == 0 {
                        break;
                    }
                }
                let _turn = slot.turn.lock(memory)?;
                // Others may have taken the listed objects meanwhile. The next class may still have
                // some.
                self.take_batch(memory, class)?;
            }
        }
        Ok(None)
    }

    /// Takes `count` objects of `bytes` each (at most a subpage), side by side, for building a
    /// structure at once.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`]; what the memory says.
    pub fn reserve<M: Memory>(
        &self,
        memory: &mut M,
        bytes: usize,
        count: u64,
        layout: Layout,
    ) -> Result<Reservation, AccessError> {
        self.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        let class = class_of(bytes).filter(|&class| class <= SUBPAGE_CLASS);
        let Some(class) = class else {
            return Err(AccessError::Straddles { at: self.region().base, len: bytes });
        };
        if self.clean.load(Ordering::Acquire) {
            self.note_change(memory)?;
        }
        let size = class_bytes(class);
        let per_subpage = SUBPAGE / size;
        let len = count.div_ceil(per_subpage).saturating_mul(SUBPAGE);
        let Some((base, _)) = self.supply(memory, len, true)? else {
            return Err(AccessError::NoSpace { requested: len, free: self.free_bytes() });
        };
        let scatter = match layout {
            Layout::Clustered => None,
            Layout::Scattered { seed } => Some(Scatter::new(count, seed)),
        };
        let reservation = Reservation::new(base, size, count, bytes, scatter);
        let mut state = hold(&self.classes[class].state);
        state.cut += len / SUBPAGE * per_subpage;
        // Newest at the back: hand out ascending addresses.
        for slot in (count..len / SUBPAGE * per_subpage).rev() {
            state.cached.push_back(reservation.slot(slot));
        }
        Ok(reservation)
    }

    /// Gives a reservation back, when what it was for has failed.
    ///
    /// # Errors
    /// As [`Heap::free`].
    pub fn release<M: Memory>(&self, memory: &mut M, reservation: &Reservation) -> Result<(), AccessError> {
        (0..reservation.count).try_for_each(|slot| self.free(memory, reservation.slot(slot), reservation.bytes))
    }

    /// Bytes handed out, as rounded up to their classes.
    pub fn used_bytes(&self) -> u64 {
        let known: u64 = (0..CLASSES).map(|class| hold(&self.classes[class].state).in_use() * class_bytes(class)).sum();
        known + hold(&self.supply).unaccounted
    }

    /// Bytes not handed out: free objects, uncut slabs, unused space, and the unusable tails of
    /// subpages.
    pub fn free_bytes(&self) -> u64 {
        (self.bytes() - HEADER_BYTES).saturating_sub(self.used_bytes())
    }

    /// DRAM that it uses.
    pub fn dram_bytes(&self) -> usize {
        let cached: usize = self.classes.iter().map(|class| hold(&class.state).cached.capacity() * 8).sum();
        size_of::<Heap>() + size_of_val(&*self.classes) + cached
    }

    /// Walks all free objects and checks the invariants. Nobody may allocate or free meanwhile. A
    /// search for empty pages waits.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] with what was found; what the memory says.
    pub fn check<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        self.memory.check(memory.id())?;
        let _walk = self.walk_turn.lock(memory)?;
        let handed_out = hold(&self.supply).next;
        let mut free = Vec::new();
        for class in 0..CLASSES {
            let (head, listed, cached, cut) = {
                let state = hold(&self.classes[class].state);
                (state.head, state.listed, state.cached.clone(), state.cut)
            };
            let mut all: Vec<Address> = cached.into();
            let cached_count = all.len() as u64;
            let mut batch = head;
            while !batch.is_null() {
                if all.len() as u64 - cached_count >= listed {
                    return Err(self.wrong("heap free list", batch, listed, listed + 1));
                }
                all.push(batch);
                batch = self.read_batch(memory, class, batch, |at| all.push(at))?;
            }
            if all.len() as u64 - cached_count != listed || all.len() as u64 > cut {
                return Err(self.wrong("heap free count", head, listed, all.len() as u64 - cached_count));
            }
            for at in all {
                let inside = self.is_object(class, at) && self.offset(at) < handed_out;
                if !inside {
                    return Err(self.wrong("free object", at, class_bytes(class), at.bits()));
                }
                free.push((at, class_bytes(class)));
            }
        }
        free.sort_unstable();
        for pair in free.windows(2) {
            let end = pair[0].0.add(pair[0].1);
            if end > pair[1].0 {
                return Err(self.wrong("object that is free twice", pair[1].0, end.bits(), pair[1].0.bits()));
            }
        }
        let used = self.used_bytes();
        if used > handed_out - HEADER_BYTES {
            return Err(self.wrong("heap use", self.region().base, handed_out, used));
        }
        Ok(())
    }

    fn wrong(&self, what: &'static str, at: Address, expected: u64, got: u64) -> AccessError {
        AccessError::Corrupt { what, at, expected, got }
    }
}
