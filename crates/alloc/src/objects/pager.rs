//! Materialises objects in pages, and dematerialises them.
//!
//! Any thread calls: threads of the allocator for faults that they read from the kernel, a thread
//! that touched an object in its handler of `SIGBUS`, and threads that free. Where such a handler's
//! fault may switch and has to read flash, a thread of the allocator resolves it in its place. So
//! what other threads wait for never depends on a fiber.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use fulgurite_fault::{Fingerprint, Fingerprints, WaitOf};
use fulgurite_flash::FlashError;
use fulgurite_format::{SUBPAGE_BYTES, SUBPAGE_SHIFT};
use fulgurite_objects::{Cache, Pressure};
use fulgurite_sys::faults::{Fault, FaultOutcome, Waiter, begin_switch, may_switch};
use fulgurite_sys::userfault::NotMoved;
use fulgurite_sys::{Arena, Clock, Region, Userfault, barrier, workers};

use super::buffer::{BLOCK, Buffer, State};
use super::kept::KeptPool;
use super::lock;
use super::numbers::{CHUNK, Numbers};
use super::packed;
use super::places::Places;
use super::queue::QueuePool;
use super::records;
use super::settings::{Mode, Overrun};
use super::statistics::{Statistics, count};
use super::writer::Wanted;

/// What the slack behind objects is filled with where overruns are looked for.
const FILL: u8 = 0xA5;
/// How long a page that the kernel holds is left alone.
const MOMENT: Duration = Duration::from_micros(50);
/// Bytes that share a table of pages of the kernel.
const BLOCK_BYTES: usize = BLOCK as usize * SUBPAGE_BYTES;

/// The objects of some chunks: their bytes, and their places in the log.
pub struct Shard {
    pub cache: Cache,
    pub places: Places,
    /// A batch of its objects is being written.
    pub is_writing: bool,
}

/// A shard, and what waits for room in it.
struct LockedShard {
    shard: Mutex<Shard>,
    room: Condvar,
}

/// All of them.
pub struct Shards {
    all: Box<[CachePadded<LockedShard>]>,
}

impl Shards {
    pub fn new(shards: Vec<Shard>) -> Shards {
        let place = |shard| CachePadded::new(LockedShard { shard: Mutex::new(shard), room: Condvar::new() });
        Shards { all: shards.into_iter().map(place).collect() }
    }
    pub fn len(&self) -> usize {
        self.all.len()
    }
    /// Which shard a chunk is in, and where.
    fn place(&self, chunk: u32) -> (usize, usize) {
        (chunk as usize % self.all.len(), chunk as usize / self.all.len())
    }
    pub fn at(&self, shard: usize) -> MutexGuard<'_, Shard> {
        lock(&self.all[shard].shard)
    }
    /// The shard of an object, its chunk there, and its index in that.
    pub fn of(&self, number: u32) -> (MutexGuard<'_, Shard>, usize, u32) {
        let (shard, chunk) = self.place(number / CHUNK);
        (self.at(shard), chunk, number % CHUNK)
    }
    /// Whether nothing is known of the objects of a chunk.
    pub fn is_clear(&self, chunk: u32) -> bool {
        let (shard, chunk) = self.place(chunk);
        let shard = self.at(shard);
        !shard.is_writing && shard.places.is_clear(chunk)
    }
    /// There is room in a shard again.
    pub fn notify(&self, shard: usize) {
        self.all[shard].room.notify_all();
    }
}

/// See the module.
pub struct Pager {
    pub mode: Mode,
    pub userfault: Userfault,
    pub region: Region,
    pub frames: std::sync::Arc<Arena>,
    pub fingerprints: Fingerprints,
    /// What the object of a slot held when it was materialised. It is changed by the thread that
    /// fills or removes the page.
    pub before: Box<[[AtomicU64; 2]]>,
    pub buffer: Mutex<Buffer>,
    /// A page has come or gone, or a table of pages is free.
    pub changed: Condvar,
    /// A table of pages is out of use.
    pub table_left: Condvar,
    pub numbers: Mutex<Numbers>,
    pub shards: Shards,
    pub queues: QueuePool,
    /// In place of a log.
    pub kept: Option<KeptPool>,
    pub wanted: Wanted,
    pub statistics: Statistics,
    pub on_overrun: Option<fn(Overrun)>,
    pub clock: Clock,
    /// The log could not be written when it was last tried.
    pub failed: AtomicBool,
    /// Why, for the last time.
    pub failure: Mutex<FlashError>,
    /// Objects whose accesses fail, because the kernel was asked to end them.
    pub poisoned: Mutex<BTreeSet<u32>>,
    /// Faults of fibers.
    pub switched: Switched,
}

/// Faults of fibers that threads of the allocator resolve: objects, and the waiters that are
/// notified at the end.
pub struct Switched {
    faults: Mutex<VecDeque<(u32, Arc<dyn Waiter>)>>,
    added: Condvar,
}

impl Switched {
    /// The most faults that it holds. For further ones their threads wait.
    const MOST: usize = 1024;

    pub fn new() -> Switched {
        Switched { faults: Mutex::new(VecDeque::with_capacity(Switched::MOST)), added: Condvar::new() }
    }
    /// Lets the fault that this thread handles switch, if there is room.
    fn add(&self, number: u32) -> bool {
        let mut faults = lock(&self.faults);
        let has_room = faults.len() < Switched::MOST;
        if has_room {
            faults.push_back((number, begin_switch()));
            self.added.notify_one();
        }
        has_room
    }
    fn next(&self) -> (u32, Arc<dyn Waiter>) {
        let mut faults = lock(&self.faults);
        loop {
            match faults.pop_front() {
                Some(fault) => return fault,
                None => faults = self.added.wait(faults).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// Why an access fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no object.
    NoObject,
    /// Its bytes cannot be had.
    Flash(FlashError),
}

impl Pager {
    pub fn address(&self, number: u32) -> usize {
        self.region.base() + ((number as usize) << SUBPAGE_SHIFT)
    }
    /// The number of the object at an address, if there may be one.
    pub fn number(&self, address: usize) -> Option<u32> {
        let offset = self.region.offset_of(address)?;
        Some((offset >> SUBPAGE_SHIFT) as u32)
    }
    fn size_of(&self, number: u32) -> Option<usize> {
        lock(&self.numbers).size_of(number)
    }

    /// Gives the program the page of an object, for which this waits. Returns at once if the
    /// program has it.
    pub fn resolve(&self, number: u32, of: WaitOf) -> Result<(), Refused> {
        let since = self.clock.now_ns();
        let size = self.size_of(number).ok_or(Refused::NoObject)?;
        let Some(slot) = self.slot_for(number)? else {
            // Another thread has brought it, and the kernel was asked before.
            self.userfault.wake(&self.region, (number as usize) << SUBPAGE_SHIFT);
            return Ok(());
        };
        count(&self.statistics.faults, 1);
        match of {
            WaitOf::Thread => {}
            WaitOf::Worker => count(&self.statistics.faults_of_workers, 1),
            WaitOf::Fiber => count(&self.statistics.faults_switched, 1),
        }
        let result = self.materialise(number, size, slot);
        let mut buffer = lock(&self.buffer);
        match result {
            Ok(()) => buffer.here(slot),
            Err(_) => self.gone(&mut buffer, slot),
        }
        drop(buffer);
        self.changed.notify_all();
        count(&self.statistics.waited_ns, self.clock.now_ns() - since);
        result.map_err(Refused::Flash)
    }

    /// Whether a fault of an object waits for flash, another thread, or the kernel. It may change
    /// at any time.
    fn reads(&self, number: u32) -> bool {
        let buffer = lock(&self.buffer);
        match buffer.state(number) {
            Some(State::Here) => return false,
            Some(State::Coming | State::Going) => return true,
            None if !buffer.has_table(number) => return true,
            None => {}
        }
        drop(buffer);
        let (mut shard, chunk, index) = self.shards.of(number);
        shard.places.get(chunk, index).is_some() && shard.cache.get(number, |_| ()).is_none()
    }

    /// A slot for an object that has none. None when it has its page.
    fn slot_for(&self, number: u32) -> Result<Option<u32>, Refused> {
        let mut buffer = lock(&self.buffer);
        loop {
            match buffer.state(number) {
                Some(State::Here) => return Ok(None),
                Some(State::Coming | State::Going) => {
                    buffer = self.changed.wait(buffer).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                None if !buffer.has_table(number) => {
                    buffer = self.changed.wait(buffer).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                None => {}
            }
            if let Some(slot) = buffer.begin(number) {
                return Ok(Some(slot));
            }
            let Some((slot, oldest)) = buffer.leave() else {
                // All of them come or go.
                buffer = self.changed.wait(buffer).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(buffer);
            let left = self.dematerialise(oldest, slot);
            buffer = lock(&self.buffer);
            self.left(&mut buffer, slot, left).map_err(Refused::Flash)?;
            if left == Ok(false) {
                drop(buffer);
                std::thread::sleep(MOMENT);
                buffer = lock(&self.buffer);
            }
        }
    }
    /// The page of a slot has left, or not.
    fn left(&self, buffer: &mut Buffer, slot: u32, left: Result<bool, FlashError>) -> Result<(), FlashError> {
        match left {
            Ok(true) => self.gone(buffer, slot),
            Ok(false) | Err(_) => buffer.here(slot),
        }
        self.changed.notify_all();
        left.map(|_| ())
    }

    /// A slot is free. The kernel's table of its block is freed with the last page, under the lock,
    /// so that no page comes meanwhile.
    fn gone(&self, buffer: &mut Buffer, slot: u32) {
        if let Some(block) = buffer.gone(slot) {
            let offset = block as usize * BLOCK_BYTES;
            let len = BLOCK_BYTES.min(self.region.len() - offset);
            // Linux 6.14 frees the tables of whole blocks. An older one, or an error, costs DRAM.
            let _ = self.region.unmap_pages(offset, len);
            if buffer.leaving() == 1 {
                self.table_left.notify_one();
            }
        }
    }

    // ---- in ----

    fn materialise(&self, number: u32, size: usize, slot: u32) -> Result<(), FlashError> {
        let frame = (slot as usize) << SUBPAGE_SHIFT;
        self.fill(number, size, frame)?;
        self.clear_slack(frame, size);
        self.remember(slot, self.fingerprint(frame, size));
        let to = (number as usize) << SUBPAGE_SHIFT;
        loop {
            match self.userfault.move_in(&self.frames, frame, &self.region, to) {
                Ok(()) => return Ok(()),
                // What the kernel put there is no page of the allocator: it is a mark of an access
                // that failed.
                Err(NotMoved::Exists | NotMoved::Access) => {
                    let _ = self.region.unmap_pages(to, SUBPAGE_BYTES);
                    std::thread::yield_now();
                }
                Err(_) => std::thread::sleep(MOMENT),
            }
        }
    }

    /// The bytes of an object, from wherever they are.
    fn fill(&self, number: u32, size: usize, frame: usize) -> Result<(), FlashError> {
        loop {
            let (mut shard, chunk, index) = self.shards.of(number);
            let put = |bytes: &[u8]| {
                // One that was freed has no bytes.
                self.frames.write(frame, bytes);
                self.frames.zero(frame + bytes.len(), size - bytes.len());
            };
            if shard.cache.get(number, put).is_some() {
                return Ok(());
            }
            let Some(page) = shard.places.get(chunk, index) else {
                drop(shard);
                count(&self.statistics.fresh, 1);
                self.frames.zero(frame, size);
                return Ok(());
            };
            let ticket = shard.cache.begin_read(number);
            drop(shard);
            count(&self.statistics.reads, 1);
            // A pool knows where its objects are.
            let at = self.kept.as_ref().map_or(page, |_| records::of_object(number));
            let read = self.queues.with(|queue| {
                queue.read(at)?;
                Ok(queue.page(0))
            });
            let bytes = match &read {
                Ok(page) if self.kept.is_some() => Some(&page[..size]),
                Ok(page) => packed::decode(page)
                    .and_then(|mut objects| objects.find(|(other, bytes)| *other == number && bytes.len() == size))
                    .map(|(_, bytes)| bytes),
                Err(_) => None,
            };
            let (mut shard, chunk, index) = self.shards.of(number);
            let is_valid = shard.cache.end_read(number, ticket, bytes);
            if let (Some(bytes), true) = (bytes, is_valid) {
                self.frames.write(frame, bytes);
                return Ok(());
            }
            // Cleaning has moved it, and the page has other objects now.
            if shard.places.get(chunk, index) == Some(page) && is_valid {
                drop(shard);
                count(&self.statistics.errors, 1);
                return Err(read.err().unwrap_or(FlashError::Corrupt));
            }
        }
    }

    fn fingerprint(&self, frame: usize, size: usize) -> Fingerprint {
        self.fingerprints.of_part(&self.frames, frame, size.div_ceil(8))
    }
    fn remember(&self, slot: u32, fingerprint: Fingerprint) {
        let [low, high] = &self.before[slot as usize];
        low.store(fingerprint as u64, Ordering::Relaxed);
        high.store((fingerprint >> 64) as u64, Ordering::Relaxed);
    }
    fn remembered(&self, slot: u32) -> Fingerprint {
        let [low, high] = &self.before[slot as usize];
        u128::from(high.load(Ordering::Relaxed)) << 64 | u128::from(low.load(Ordering::Relaxed))
    }
    /// What is behind an object: the filler where overruns are detected, else what this process had
    /// there.
    fn clear_slack(&self, frame: usize, size: usize) {
        if self.on_overrun.is_some() {
            self.frames.write(frame + size, &[FILL; SUBPAGE_BYTES][size..]);
        }
    }

    // ---- out ----

    /// Takes the page of an object away. False when the kernel or a device holds it.
    ///
    /// # Errors
    /// When it was changed and the log cannot be written: the page has stayed.
    fn dematerialise(&self, number: u32, slot: u32) -> Result<bool, FlashError> {
        let frame = (slot as usize) << SUBPAGE_SHIFT;
        let Some(size) = self.size_of(number) else {
            // It is being freed.
            return Ok(self.take_page(number, frame));
        };
        if self.failed.load(Ordering::Acquire) && self.is_crowded(number) {
            return Err(*lock(&self.failure));
        }
        if !self.take_page(number, frame) {
            return Ok(false);
        }
        self.check_slack(number, frame, size);
        if self.fingerprint(frame, size) == self.remembered(slot) {
            count(&self.statistics.left_clean, 1);
            return Ok(true);
        }
        let mut bytes = [0; packed::OBJECT_BYTES_MAX];
        self.frames.read(frame, &mut bytes[..size]);
        if let Err(error) = self.put(number, &bytes[..size]) {
            // The page comes back as it is, with the fingerprint of before.
            let to = (number as usize) << SUBPAGE_SHIFT;
            while self.userfault.move_in(&self.frames, frame, &self.region, to).is_err() {
                std::thread::sleep(MOMENT);
            }
            return Err(error);
        }
        count(&self.statistics.left_dirty, 1);
        Ok(true)
    }

    fn take_page(&self, number: u32, frame: usize) -> bool {
        let from = (number as usize) << SUBPAGE_SHIFT;
        loop {
            match self.userfault.move_out(&self.region, from, &self.frames, frame) {
                Ok(()) => return true,
                Err(NotMoved::Exists) => self.frames.discard(frame, SUBPAGE_BYTES),
                // The program gave it up past us: it reads as zero.
                Err(NotMoved::Missing) => {
                    self.frames.zero(frame, SUBPAGE_BYTES);
                    self.clear_slack(frame, 0);
                    return true;
                }
                Err(_) => return false,
            }
        }
    }

    fn check_slack(&self, number: u32, frame: usize, size: usize) {
        let Some(report) = self.on_overrun else { return };
        let mut page = [0; SUBPAGE_BYTES];
        self.frames.read(frame, &mut page);
        if let Some(at) = page[size..].iter().position(|byte| *byte != FILL) {
            count(&self.statistics.overruns, 1);
            report(Overrun { object: self.address(number), size, at: size + at });
        }
    }

    /// The log's thread has written what it could, or failed.
    pub fn fails(&self, error: Option<FlashError>) {
        if let Some(error) = error {
            *lock(&self.failure) = error;
        }
        self.failed.store(error.is_some(), Ordering::Release);
        if error.is_some() {
            // What waits for room is notified.
            (0..self.shards.len()).for_each(|shard| self.shards.notify(shard));
        }
    }

    fn is_crowded(&self, number: u32) -> bool {
        self.shards.of(number).0.cache.pressure() == Pressure::Wait
    }

    /// Changes an object in the cache, or frees it where it has no bytes. Waits for room.
    fn put(&self, number: u32, bytes: &[u8]) -> Result<(), FlashError> {
        let (at, _) = self.shards.place(number / CHUNK);
        let mut shard = self.shards.at(at);
        loop {
            if shard.cache.pressure() != Pressure::Wait && shard.cache.put(number, bytes).is_ok() {
                let pressure = shard.cache.pressure();
                drop(shard);
                if pressure != Pressure::None {
                    self.wanted.batches();
                }
                return Ok(());
            }
            if self.failed.load(Ordering::Acquire) {
                return Err(*lock(&self.failure));
            }
            self.wanted.batches();
            shard = self.shards.all[at].room.wait(shard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the pages of permanent objects away that are here, so that their bytes are where a
    /// state finds them.
    ///
    /// # Errors
    /// When the flash cannot be written.
    pub fn put_permanent(&self) -> Result<(), FlashError> {
        let all = lock(&self.buffer).numbers();
        for number in all {
            if !lock(&self.numbers).is_permanent(number) {
                continue;
            }
            let mut buffer = lock(&self.buffer);
            loop {
                match buffer.state(number) {
                    Some(State::Coming | State::Going) => {
                        buffer = self.changed.wait(buffer).unwrap_or_else(PoisonError::into_inner);
                    }
                    Some(State::Here) => {
                        let slot = buffer.leave_now(number);
                        drop(buffer);
                        let left = self.dematerialise(number, slot);
                        buffer = lock(&self.buffer);
                        self.left(&mut buffer, slot, left)?;
                        if left == Ok(false) {
                            drop(buffer);
                            std::thread::sleep(MOMENT);
                            buffer = lock(&self.buffer);
                        }
                    }
                    None => break,
                }
            }
        }
        Ok(())
    }

    // ---- freed ----

    /// Forgets the contents of an object that nothing uses any more.
    ///
    /// # Errors
    /// When the log cannot be written and there is no room to note it. Its content is then kept.
    pub fn forget(&self, number: u32) -> Result<(), FlashError> {
        let mut buffer = lock(&self.buffer);
        loop {
            match buffer.state(number) {
                Some(State::Coming | State::Going) => {
                    buffer = self.changed.wait(buffer).unwrap_or_else(PoisonError::into_inner);
                }
                Some(State::Here) => {
                    let slot = buffer.leave_now(number);
                    drop(buffer);
                    let frame = (slot as usize) << SUBPAGE_SHIFT;
                    while !self.take_page(number, frame) {
                        std::thread::sleep(MOMENT);
                    }
                    if let Some(size) = self.size_of(number) {
                        self.check_slack(number, frame, size);
                    }
                    buffer = lock(&self.buffer);
                    self.gone(&mut buffer, slot);
                    self.changed.notify_all();
                }
                None => break,
            }
        }
        drop(buffer);
        let (mut shard, chunk, index) = self.shards.of(number);
        let is_known = shard.places.get(chunk, index).is_some() || !shard.cache.drop_clean(number);
        drop(shard);
        if is_known { self.put(number, &[]) } else { Ok(()) }
    }
}

// ---- faults that the kernel sends as signals ----

/// Pagers in line.
static IN_LINE: [OnceLock<&'static Pager>; 16] = [const { OnceLock::new() }; 16];

/// Lets threads that touch objects of this pager resolve their faults. False when there are too
/// many.
pub fn register(pager: &'static Pager) -> bool {
    IN_LINE.iter().any(|place| place.set(pager).is_ok())
}

/// An access found no page.
pub fn handle_fault(fault: &Fault) -> FaultOutcome {
    let found = IN_LINE.iter().map_while(OnceLock::get).find_map(|pager| Some((pager, pager.number(fault.address)?)));
    let Some((pager, number)) = found else { return FaultOutcome::NotMine };
    if may_switch() && pager.reads(number) && pager.switched.add(number) {
        return FaultOutcome::Waits;
    }
    outcome_of(pager.resolve(number, if workers::is_here() { WaitOf::Worker } else { WaitOf::Thread }))
}

fn outcome_of(resolved: Result<(), Refused>) -> FaultOutcome {
    if resolved.is_ok() { FaultOutcome::Again } else { FaultOutcome::Failed }
}

/// The life of a thread that resolves faults of fibers.
pub fn serve(pager: &Pager) -> ! {
    loop {
        let (number, waiter) = pager.switched.next();
        waiter.end(outcome_of(pager.resolve(number, WaitOf::Fiber)));
    }
}

/// The loop of the thread that checks when tables of pages are free.
pub fn free_tables(pager: &Pager) -> ! {
    let mut buffer = lock(&pager.buffer);
    loop {
        let tables = buffer.leaving();
        if tables == 0 {
            buffer = pager.table_left.wait(buffer).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        drop(buffer);
        barrier::tables_are_freed();
        buffer = lock(&pager.buffer);
        buffer.freed(tables);
        pager.changed.notify_all();
    }
}

/// The life of a thread that resolves faults that it reads from the kernel.
pub fn handle(pager: &Pager, notifier: &fulgurite_sys::Notifier) -> ! {
    let mut faults = Vec::with_capacity(1);
    loop {
        faults.clear();
        if pager.userfault.read_some::<1>(&mut faults) == 0 {
            let _ = notifier.wait_with(std::os::fd::AsFd::as_fd(&pager.userfault), None);
            continue;
        }
        for fault in faults.drain(..) {
            let Some(number) = pager.number(fault.address) else { continue };
            let of = if workers::is_marked(fault.thread) { WaitOf::Worker } else { WaitOf::Thread };
            if pager.resolve(number, of).is_err() {
                // The access ends by a SIGBUS.
                let offset = (number as usize) << SUBPAGE_SHIFT;
                if pager.userfault.poison(&pager.region, offset).is_ok() {
                    lock(&pager.poisoned).insert(number);
                }
                pager.userfault.wake(&pager.region, offset);
            }
        }
    }
}
