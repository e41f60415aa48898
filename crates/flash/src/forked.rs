//! A medium that a process shares with its children after `fork`: each finds the contents of the
//! moment, and changes its own only.
//!
//! ```text
//!  process 0:  subpage --map--> slot -+      a word of owners for each slot, in shared memory:
//!  process 1:  subpage --map--> slot -+--->  bit i is set while process i names the slot
//! ```
//!
//! A map is memory of its process, which `fork` copies with all other memory. What is shared is one
//! bit for each slot and process. A process writes to a slot that only it names, and else takes a
//! free one. So a fork copies no data, and a child that ends leaves bits to be cleared.
//!
//! Processes are distinguished by their seats. A live process has locked the byte of its seat,
//! which the kernel unlocks when it ends or becomes another program. Any of the others clears up
//! then.
//!
//! Invariants: a slot that no process names is free. Subpages that processes have mapped are never
//! more than there are slots ([`ForkedFlash::map`]), so that a write always finds a free one.
//!
//! Subpages that were never written have no slot. A read of one is refused.
//!
//! In addition to its slot, a map has the checksum of each subpage. What is read from a slot is
//! compared with it, and read once more before a difference is an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use std::time::Duration;

use fulgurite_format::{SUBPAGE_BYTES, SubpageIndex, crc32c};
use fulgurite_sys::{Arena, Backed, Notifier};

use crate::slots::Slots;
use crate::{
    Backing, Completion, DeviceCounters, Flash, FlashError, Op, OpenError, OpenedQueue, Queue, QueueFull, QueueUser,
    Request, Switches, Traits, check_range,
};

/// Processes that may share a medium at one time.
pub const SEATS: u32 = 16;
/// Where the owners of slots begin in the shared memory. The seats are before.
const OWNERS_AT: usize = 4096;
/// Owners in a word: 16 bits each.
const PER_WORD: usize = 4;
/// The lowest bit of each.
const LOWEST: u64 = 0x0001_0001_0001_0001;

/// Words of a seat.
const STATE: usize = 0;
const DRAM: usize = 1;
const MAPPED: usize = 2;
const PARENT: usize = 3;
const SEAT_WORDS: usize = 4;

/// States of a seat. Any other is the time at which it was made for a child that has not begun.
const FREE: u64 = 0;
const LIVE: u64 = 1;
const CLEARING: u64 = 2;
/// After how long a child that has not begun never will.
const BEGIN_NS: u64 = 10_000_000_000;

/// See the module.
pub struct ForkedFlash {
    inner: Arc<dyn Flash>,
    shared: Arena,
    /// The slot of each subpage, counted from 1, and 0 for none. In the upper half: the checksum.
    map: Arena,
    seat: AtomicU32,
    /// The state of the seat that was made last.
    made: AtomicU64,
    /// Where the search for a free slot goes on.
    next: AtomicU32,
}

impl std::fmt::Debug for ForkedFlash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.inner.describe())
    }
}

/// DRAM for each subpage.
const BYTES_PER_SUBPAGE: usize = 2 + size_of::<u64>();

impl ForkedFlash {
    /// Over a medium, whose contents are lost. This process has the first seat, and `dram_bytes`
    /// bytes of DRAM for its caches, of which children will get a part.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub fn new(inner: Arc<dyn Flash>, dram_bytes: u64) -> Result<ForkedFlash, OpenError> {
        let slots = inner.subpages() as usize;
        let flash = ForkedFlash {
            shared: Arena::sealed_memfd("fulgurite slots", OWNERS_AT + slots.div_ceil(PER_WORD) * 8)?,
            map: Arena::anonymous(slots * size_of::<u64>(), Backed::BasePages)?,
            inner,
            seat: AtomicU32::new(0),
            made: AtomicU64::new(FREE),
            next: AtomicU32::new(0),
        };
        flash.seat_word(0, DRAM).store(dram_bytes, Ordering::Relaxed);
        flash.sit(0)?;
        Ok(flash)
    }

    // ---- seats ----

    fn seat_word(&self, seat: u32, word: usize) -> &AtomicU64 {
        assert!(seat < SEATS);
        &self.shared.words((seat as usize * SEAT_WORDS + word) * 8, 1)[0]
    }
    /// The seat of this process.
    pub fn seat(&self) -> u32 {
        self.seat.load(Ordering::Relaxed)
    }
    /// DRAM that this process may use now.
    pub fn dram_bytes(&self) -> u64 {
        self.seat_word(self.seat(), DRAM).load(Ordering::Relaxed)
    }

    /// Makes a seat for a child, with half of this process' DRAM. None where all are taken, or
    /// where there are not as many free slots as this process has mapped.
    pub fn make_seat(&self, now_ns: u64) -> Option<u32> {
        self.clear_up(now_ns);
        let (own, since) = (self.seat(), now_ns.max(CLEARING + 1));
        let is_made = |&seat: &u32| {
            self.seat_word(seat, STATE).compare_exchange(FREE, since, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let seat = (0..SEATS).find(is_made)?;
        self.made.store(since, Ordering::Relaxed);
        let half = self.dram_bytes() / 2;
        self.seat_word(own, DRAM).fetch_sub(half, Ordering::Relaxed);
        self.seat_word(seat, DRAM).store(half, Ordering::Relaxed);
        self.seat_word(seat, PARENT).store(own.into(), Ordering::Relaxed);
        self.seat_word(seat, MAPPED).store(self.seat_word(own, MAPPED).load(Ordering::Relaxed), Ordering::Relaxed);
        if self.mapped() > u64::from(self.inner.subpages()) {
            self.give_up(seat);
            return None;
        }
        Some(seat)
    }

    /// Whether [`ForkedFlash::make_seat`] would find enough free slots now.
    pub fn could_share(&self) -> bool {
        let mine = self.seat_word(self.seat(), MAPPED).load(Ordering::Relaxed);
        self.mapped() + mine <= u64::from(self.inner.subpages())
    }

    /// Gives the child of a seat all that this process has. No request may be in flight, and none
    /// may be made before the fork. The child's time to begin counts from here.
    pub fn share(&self, seat: u32, now_ns: u64) {
        let (own, made, since) = (self.seat(), self.made.load(Ordering::Relaxed), now_ns.max(CLEARING + 1));
        if self.seat_word(seat, STATE).compare_exchange(made, since, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.made.store(since, Ordering::Relaxed);
        }
        for word in self.owner_words() {
            let mine = word.load(Ordering::Relaxed) >> own & LOWEST;
            if mine != 0 {
                word.fetch_or(mine << seat, Ordering::Relaxed);
            }
        }
    }

    /// Takes a seat that was made for this process.
    ///
    /// # Errors
    /// The kernel's; `ETIMEDOUT` where this process came too late.
    pub fn sit(&self, seat: u32) -> Result<(), OpenError> {
        let failed = |source| OpenError::System { what: "join the processes that share flash", source };
        self.shared.lock_byte(seat.into()).map_err(failed)?;
        let made = self.made.load(Ordering::Relaxed);
        let state = self.seat_word(seat, STATE);
        if state.compare_exchange(made, LIVE, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(failed(std::io::ErrorKind::TimedOut.into()));
        }
        self.seat.store(seat, Ordering::Relaxed);
        Ok(())
    }

    /// Gives up a seat that was made for a child that there will not be.
    pub fn give_up(&self, seat: u32) {
        self.clear(seat);
    }

    /// Clears up after processes that have ended. Returns whether there were any.
    pub fn clear_up(&self, now_ns: u64) -> bool {
        let mut any = false;
        for seat in (0..SEATS).filter(|seat| *seat != self.seat()) {
            let word = self.seat_word(seat, STATE);
            let state = word.load(Ordering::Acquire);
            let has_ended = match state {
                FREE | CLEARING => false,
                // Tests have several in one process, which does not see its own locks.
                LIVE => !cfg!(test) && !self.shared.is_byte_locked(seat.into()),
                since => now_ns.saturating_sub(since) > BEGIN_NS,
            };
            if has_ended && word.compare_exchange(state, CLEARING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.clear(seat);
                any = true;
            }
        }
        any
    }

    fn clear(&self, seat: u32) {
        for word in self.owner_words() {
            if word.load(Ordering::Relaxed) >> seat & LOWEST != 0 {
                word.fetch_and(!(LOWEST << seat), Ordering::Relaxed);
            }
        }
        self.seat_word(seat, MAPPED).store(0, Ordering::Relaxed);
        // Its DRAM goes back to where it came from, or to this process.
        let dram = self.seat_word(seat, DRAM).swap(0, Ordering::Relaxed);
        let parent = self.seat_word(seat, PARENT).load(Ordering::Relaxed) as u32 % SEATS;
        let is_there = parent != seat && self.seat_word(parent, STATE).load(Ordering::Relaxed) == LIVE;
        let heir = if is_there { parent } else { self.seat() };
        self.seat_word(heir, DRAM).fetch_add(dram, Ordering::Relaxed);
        self.seat_word(seat, STATE).store(FREE, Ordering::Release);
    }

    fn mapped(&self) -> u64 {
        (0..SEATS).map(|seat| self.seat_word(seat, MAPPED).load(Ordering::Relaxed)).sum()
    }
    /// Counts subpages that this process may write to from now on. False, and without effect, where
    /// all processes together would have more than there are slots.
    #[must_use]
    pub fn map(&self, subpages: u64) -> bool {
        let mine = self.seat_word(self.seat(), MAPPED);
        mine.fetch_add(subpages, Ordering::Relaxed);
        let fits = self.mapped() <= u64::from(self.inner.subpages());
        if !fits {
            mine.fetch_sub(subpages, Ordering::Relaxed);
        }
        fits
    }
    /// Counts subpages no more, which were trimmed.
    pub fn unmap(&self, subpages: u64) {
        self.seat_word(self.seat(), MAPPED).fetch_sub(subpages, Ordering::Relaxed);
    }

    // ---- slots ----

    fn owner_words(&self) -> &[AtomicU64] {
        self.shared.words(OWNERS_AT, (self.inner.subpages() as usize).div_ceil(PER_WORD))
    }
    /// The word of a slot's owners, and their place in it.
    fn owners(&self, slot: u32) -> (&AtomicU64, u32) {
        let slot = slot as usize;
        (&self.shared.words(OWNERS_AT + slot / PER_WORD * 8, 1)[0], (slot % PER_WORD * 16) as u32)
    }
    fn entry(&self, subpage: u32) -> &AtomicU64 {
        &self.map.words(subpage as usize * size_of::<u64>(), 1)[0]
    }
    // One thread changes the map at a time: the queue's thread, or the thread that trims.
    fn set_entry(&self, subpage: u32, slot: Option<u32>, checksum: u32) {
        let word = slot.map_or(0, |slot| u64::from(slot) + 1) | u64::from(checksum) << 32;
        self.entry(subpage).store(word, Ordering::Relaxed);
    }
    /// The slot of a subpage.
    fn slot_of(&self, subpage: u32) -> Option<u32> {
        let word = self.entry(subpage).load(Ordering::Relaxed);
        (word & 0xffff_ffff).checked_sub(1).map(|slot| slot as u32)
    }
    fn set_slot(&self, subpage: u32, slot: Option<u32>) {
        self.set_entry(subpage, slot, 0);
    }
    /// CRC32C of what was written last to a subpage.
    fn checksum_of(&self, subpage: u32) -> u32 {
        (self.entry(subpage).load(Ordering::Relaxed) >> 32) as u32
    }
    fn set_checksum(&self, subpage: u32, checksum: u32) {
        self.set_entry(subpage, self.slot_of(subpage), checksum);
    }
    fn leave(&self, slot: u32) {
        let (word, shift) = self.owners(slot);
        word.fetch_and(!(1 << self.seat() << shift), Ordering::Relaxed);
    }
    /// Takes a slot if it is free.
    fn take(&self, slot: u32) -> bool {
        let ((word, shift), bit) = (self.owners(slot), 1u64 << self.seat());
        let mut now = word.load(Ordering::Relaxed);
        while now >> shift & 0xffff == 0 {
            match word.compare_exchange_weak(now, now | bit << shift, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(changed) => now = changed,
            }
        }
        false
    }

    /// The slot to which a subpage is to be written.
    fn place(&self, subpage: u32) -> Option<u32> {
        let old = self.slot_of(subpage);
        if let Some(slot) = old {
            let (word, shift) = self.owners(slot);
            if word.load(Ordering::Relaxed) >> shift & 0xffff == 1 << self.seat() {
                return Some(slot);
            }
        }
        let (count, from) = (self.inner.subpages(), self.next.load(Ordering::Relaxed));
        // Its own place first, so that neighbours stay neighbours.
        let slot = std::iter::once(subpage).chain(from..count).chain(0..from).find(|slot| self.take(*slot))?;
        if slot != subpage {
            self.next.store((slot + 1) % count, Ordering::Relaxed);
        }
        self.set_slot(subpage, Some(slot));
        if let Some(old) = old {
            self.leave(old);
        }
        Some(slot)
    }
}

impl Flash for Arc<ForkedFlash> {
    fn subpages(&self) -> u32 {
        self.inner.subpages()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn traits(&self) -> Traits {
        let traits = self.inner.traits();
        let dram_bytes = traits.dram_bytes + self.inner.subpages() as usize * BYTES_PER_SUBPAGE;
        Traits { trims: true, dram_bytes, ..traits }
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        self.inner.staging_bytes(frames)
    }
    fn open_queue_for(&self, user: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        let mut inner = self.inner.open_queue_for(user, frames.clone(), depth, wake)?;
        let asked = Switches { checksums: true, ..Switches::default() };
        Ok(Box::new(ForkedQueue {
            are_made: inner.switch(asked).checksums,
            inner,
            flash: self.clone(),
            frames,
            slots: Slots::new(depth),
            moves: vec![Move { op: Op::Flush, subpage: 0, frame: 0, is_again: false }; depth].into(),
            arrived: Vec::with_capacity(depth),
        }))
    }
    /// The subpages have no slots any more. The trim is not passed on to the medium within, because
    /// another process may have taken a slot again.
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.inner.subpages())?;
        for subpage in first.0..first.0 + count {
            let Some(slot) = self.slot_of(subpage) else { continue };
            self.set_slot(subpage, None);
            self.leave(slot);
        }
        Ok(())
    }
    fn backing(&self) -> Option<&dyn Backing> {
        None
    }
    fn counters(&self) -> DeviceCounters {
        self.inner.counters()
    }
}

/// A request in flight.
#[derive(Clone, Copy)]
struct Move {
    op: Op,
    subpage: u32,
    frame: u32,
    /// It was read before, with a wrong checksum.
    is_again: bool,
}

/// A queue that finds subpages in their slots, and checks what it reads.
struct ForkedQueue {
    inner: Box<dyn Queue>,
    flash: Arc<ForkedFlash>,
    frames: Arc<Arena>,
    /// The caller's tags; the medium within sees slots of this queue.
    slots: Slots,
    moves: Box<[Move]>,
    /// The medium within makes the checksums of what it moves.
    are_made: bool,
    arrived: Vec<Completion>,
}

/// Memory that a page is copied to for its checksum, on the stack.
#[repr(align(64))]
struct Copied([u8; SUBPAGE_BYTES]);

impl ForkedQueue {
    fn pass_on(&mut self, slot: u32, place: Option<u32>) {
        let Move { op, frame, .. } = self.moves[slot as usize];
        // No medium has the last one.
        let subpage = SubpageIndex(place.unwrap_or(u32::MAX));
        let request = Request { tag: slot.into(), op, subpage, frame: fulgurite_format::FrameIndex(frame) };
        self.inner.submit(request).expect("the queue within is as deep and has no more in flight");
    }
    fn checksum(&self, slot: u32, made: u32) -> u32 {
        if self.are_made {
            return made;
        }
        let mut copied = Copied([0; SUBPAGE_BYTES]);
        self.frames.read(self.moves[slot as usize].frame as usize * SUBPAGE_BYTES, &mut copied.0);
        crc32c(&copied.0)
    }
    /// What became of a request; none where it is read once more.
    fn judge(&mut self, slot: u32, ended: Completion) -> Option<Result<(), FlashError>> {
        let Move { op, subpage, is_again, .. } = self.moves[slot as usize];
        if ended.result.is_err() || op == Op::Flush {
            return Some(ended.result);
        }
        // The frame is its request's until the completion is returned.
        let checksum = self.checksum(slot, ended.checksum);
        match op {
            Op::Write => self.flash.set_checksum(subpage, checksum),
            _ if checksum == self.flash.checksum_of(subpage) => {}
            _ if is_again => return Some(Err(FlashError::Corrupt)),
            _ => {
                self.moves[slot as usize].is_again = true;
                self.pass_on(slot, self.flash.slot_of(subpage));
                return None;
            }
        }
        Some(Ok(()))
    }
}

impl Queue for ForkedQueue {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        let slot = self.slots.take(request.tag).ok_or(QueueFull)?;
        let subpage = request.subpage.0;
        self.moves[slot as usize] = Move { op: request.op, subpage, frame: request.frame.0, is_again: false };
        let place = match request.op {
            Op::Flush => Some(subpage),
            _ if subpage >= self.flash.inner.subpages() => None,
            Op::Write => self.flash.place(subpage),
            Op::Read => self.flash.slot_of(subpage),
        };
        self.pass_on(slot, place);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        self.inner.flush()
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        if self.inner.poll(&mut self.arrived) == 0 {
            return 0;
        }
        let (before, mut again) = (completions.len(), false);
        let mut arrived = std::mem::take(&mut self.arrived);
        for ended in arrived.drain(..) {
            let slot = ended.tag as u32;
            match self.judge(slot, ended) {
                Some(result) => {
                    completions.push(Completion { tag: self.slots.release(slot), result, checksum: 0 });
                }
                None => again = true,
            }
        }
        self.arrived = arrived;
        if again {
            // Nothing else hands it over.
            let _ = self.inner.flush();
        }
        completions.len() - before
    }
    fn will_poll(&self) {
        self.inner.will_poll();
    }
    fn switch(&mut self, to: Switches) -> Switches {
        let inner = self.inner.switch(Switches { checksums: true, ..to });
        self.are_made = inner.checksums;
        Switches { checksums: false, ..inner }
    }
    fn use_frames(&mut self, frames: std::ops::Range<u32>) {
        self.inner.use_frames(frames);
    }
    fn wait(&mut self, timeout: Option<Duration>) {
        self.inner.wait(timeout);
    }
    fn in_flight(&self) -> usize {
        self.slots.in_use()
    }
    fn depth(&self) -> usize {
        self.slots.depth()
    }
    fn bytes(&self) -> usize {
        self.inner.bytes() + self.slots.bytes() + self.moves.len() * (size_of::<Move>() + size_of::<Completion>())
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_format::{FrameIndex, SUBPAGE_BYTES};

    use super::*;
    use crate::{MemoryFlash, Request};

    const SLOTS: u32 = 64;

    /// A process as the test has it: `fork` copies what is not shared.
    struct Process {
        flash: Arc<ForkedFlash>,
        model: Vec<Option<u8>>,
    }

    impl Process {
        fn first() -> Process {
            let flash = ForkedFlash::new(Arc::new(MemoryFlash::new(SLOTS).unwrap()), 1024).unwrap();
            Process { flash: Arc::new(flash), model: vec![None; SLOTS as usize] }
        }
        fn fork(&self, now_ns: u64) -> Option<Process> {
            let seat = self.flash.make_seat(now_ns)?;
            self.flash.share(seat, now_ns);
            let of = &self.flash;
            let map = Arena::anonymous(of.map.len(), Backed::BasePages).unwrap();
            Arena::copy(&of.map, 0, &map, 0, map.len());
            let file = std::fs::File::from(of.shared.file().unwrap().try_clone_to_owned().unwrap());
            let flash = ForkedFlash {
                inner: of.inner.clone(),
                shared: Arena::shared_sealed(file).unwrap(),
                map,
                seat: AtomicU32::new(0),
                made: AtomicU64::new(of.made.load(Ordering::Relaxed)),
                next: AtomicU32::new(of.next.load(Ordering::Relaxed)),
            };
            flash.sit(seat).unwrap();
            Some(Process { flash: Arc::new(flash), model: self.model.clone() })
        }
        fn run(&self, op: Op, subpage: u32, byte: u8) -> Result<u8, FlashError> {
            let frames = Arc::new(Arena::anonymous(SUBPAGE_BYTES, Backed::BasePages).unwrap());
            frames.write(0, &[byte; SUBPAGE_BYTES]);
            let mut queue = self.flash.open_queue(frames.clone(), 1, Arc::new(Notifier::new().unwrap())).unwrap();
            queue.submit(Request { tag: 1, op, subpage: SubpageIndex(subpage), frame: FrameIndex(0) }).unwrap();
            queue.flush().unwrap();
            let mut ended = Vec::new();
            while queue.poll(&mut ended) == 0 {}
            let mut got = [0];
            frames.read(SUBPAGE_BYTES - 1, &mut got);
            ended[0].result.map(|()| got[0])
        }
        fn write(&mut self, subpage: u32, byte: u8) {
            if self.model[subpage as usize].is_none() {
                assert!(self.flash.map(1));
            }
            self.run(Op::Write, subpage, byte).unwrap();
            self.model[subpage as usize] = Some(byte);
        }
        fn trim(&mut self, subpage: u32) {
            self.flash.trim(SubpageIndex(subpage), 1).unwrap();
            if self.model[subpage as usize].take().is_some() {
                self.flash.unmap(1);
            }
        }
        fn check(&self) {
            for (subpage, byte) in self.model.iter().enumerate() {
                let expected = byte.ok_or(FlashError::OutOfRange);
                assert_eq!(self.run(Op::Read, subpage as u32, 0), expected, "{subpage} of {}", self.flash.seat());
            }
        }
    }

    #[test]
    fn each_process_finds_what_was_there_at_the_fork_and_what_it_wrote() {
        let mut random = fulgurite_testkit::Random::seeded("forked", 5);
        let mut processes = vec![Process::first()];
        let mut refused = 0;
        for step in 0..4000u64 {
            let one = random.below(processes.len() as u64) as usize;
            let subpage = random.below(u64::from(SLOTS) / 4) as u32;
            match random.below(40) {
                0 => match processes[one].fork(step) {
                    Some(child) => processes.push(child),
                    None => {
                        assert!(processes.len() > 3 || !processes[one].flash.could_share());
                        refused += 1;
                    }
                },
                1 if processes.len() > 1 => {
                    // A process does not see its own locks, so its end is reported here.
                    let gone = processes.swap_remove(one);
                    processes[0].flash.give_up(gone.flash.seat());
                }
                2..8 => processes[one].trim(subpage),
                _ => {
                    let flash = &processes[one].flash;
                    if processes[one].model[subpage as usize].is_some() || flash.mapped() < u64::from(SLOTS) {
                        processes[one].write(subpage, step as u8);
                    }
                }
            }
            if step % 50 == 0 {
                processes.iter().for_each(Process::check);
            }
        }
        assert!(refused > 3, "{refused}");
        // What is left belongs to the last one, and is enough for all of the medium.
        let mut last = processes.swap_remove(0);
        for gone in processes {
            last.flash.give_up(gone.flash.seat());
        }
        assert_eq!(last.flash.dram_bytes(), 1024);
        for subpage in 0..SLOTS {
            last.write(subpage, !(subpage as u8));
        }
        last.check();
        assert!(!last.flash.map(1) && last.flash.make_seat(0).is_none());
    }

    #[test]
    fn a_child_that_comes_too_late_has_no_seat() {
        let first = Process::first();
        let seat = first.flash.make_seat(5).unwrap();
        assert!(!first.flash.clear_up(BEGIN_NS));
        assert!(first.flash.clear_up(BEGIN_NS + 6));
        assert!(first.flash.sit(seat).is_err() && first.flash.seat() == 0);
        assert_eq!(first.flash.dram_bytes(), 1024);
    }

    #[test]
    fn what_changed_on_flash_is_an_error_and_not_a_wrong_byte() {
        let memory = Arc::new(MemoryFlash::new(SLOTS).unwrap());
        let flash = Arc::new(ForkedFlash::new(memory.clone(), 1024).unwrap());
        let mut process = Process { flash, model: vec![None; SLOTS as usize] };
        (0..SLOTS).for_each(|subpage| process.write(subpage, subpage as u8));
        process.check();
        // Past it: to the slot of another subpage, as a misplaced write would.
        let other = Process { flash: Arc::new(ForkedFlash::new(memory, 1024).unwrap()), ..Process::first() };
        other.run(Op::Write, 5, 9).unwrap();
        assert_eq!(process.run(Op::Read, 5, 0), Err(FlashError::Corrupt));
        process.trim(5);
        process.write(5, 7);
        process.check();
    }
}
