//! The cache itself: what is looked up, changed, evicted and written.

use std::collections::VecDeque;
use std::ops::Range;

use fulgurite_sys::Mapping;

use crate::batch::Batch;
use crate::index::{Index, spread};
use crate::planted::Planted;
use crate::ring::{DIRTY, Header, LIVE, Ring, UNIT, WRITING, size};
use crate::{CACHE_BYTES_MAX, CACHE_BYTES_MIN, OBJECT_BYTES_MAX};

/// Bytes of the buffer for each slot of the index. An object of 128 bytes takes 136, so the index
/// is 71% full of them. With objects of less than 76 bytes on average it is full before the buffer.
const BYTES_PER_SLOT: usize = 96;
/// Bytes of the buffer for each number that is remembered after its object left: as many as objects
/// of 248 bytes.
const BYTES_PER_GHOST: usize = 256;
/// The share of the buffer that is the small ring (S3-FIFO, SOSP '23, section 4.1).
const SMALL_SHARE: usize = 10;
/// Uses that take an object from the small ring to the main one (the same).
const USES_TO_STAY: u64 = 2;
/// How much of the old buffer is copied before its memory goes back.
const PART: usize = 64 << 10;

/// There is no room that anything else can be evicted from: write dirty objects first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Names a read of flash that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the read has to end"]
pub struct Ticket(u32);

/// How much of the cache waits to be written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pressure {
    /// Little.
    None,
    /// So much that a batch should be written.
    Write,
    /// So much that nothing should be changed before one has been.
    Wait,
}

/// What it has counted.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Objects that were looked up and found.
    pub hits: u64,
    /// Objects that were looked up and not found.
    pub misses: u64,
    /// Of these, objects that left a short time ago. A larger cache would have had them.
    pub returned: u64,
    /// Objects that left.
    pub evicted: u64,
    /// Objects that were handed over to be written.
    pub written: u64,
    /// Bytes of these.
    pub written_bytes: u64,
}

/// Objects in DRAM. See the crate.
pub struct Cache {
    buffer: Mapping<u8>,
    small: Ring,
    main: Ring,
    index: Index,
    ghost: Mapping<u32>,
    /// Numbers that became dirty, oldest first; some are not any more.
    dirty: VecDeque<u32>,
    /// Objects that cannot be evicted, and the bytes of their entries.
    stay: usize,
    stay_bytes: usize,
    reading: Vec<(u32, u32)>,
    next_ticket: u32,
    /// An entry on its way from one end of the ring to the other.
    moving: Vec<u8>,
    counts: Counts,
    planted: Option<Planted>,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (objects, stay) = (self.index.len(), self.stay);
        f.debug_struct("Cache").field("objects", &objects).field("stay", &stay).finish_non_exhaustive()
    }
}

/// How the bytes of a cache are divided.
struct Shape {
    buffer: usize,
    slots: usize,
    ghosts: usize,
}

impl Shape {
    fn of(bytes: usize) -> Shape {
        assert!((CACHE_BYTES_MIN..=CACHE_BYTES_MAX).contains(&bytes), "a cache of {bytes} bytes");
        // Index and queue have 6 bytes a slot, the ghost 4 a number. A moving entry comes on top of
        // them.
        let extra = 2 * OBJECT_BYTES_MAX;
        let share = BYTES_PER_SLOT * BYTES_PER_GHOST;
        let buffer = (bytes - extra) * share / (share + 6 * BYTES_PER_GHOST + 4 * BYTES_PER_SLOT) / UNIT * UNIT;
        Shape { buffer, slots: buffer / BYTES_PER_SLOT, ghosts: buffer / BYTES_PER_GHOST }
    }
    fn small(&self) -> Ring {
        Ring::new(0, self.buffer / SMALL_SHARE / UNIT * UNIT)
    }
    fn main(&self) -> Ring {
        let small = self.small().bytes();
        Ring::new(small, self.buffer - small)
    }
}

/// What becomes of the oldest entry of a ring.
enum Eviction {
    Gone,
    Stays(Header),
}

impl Cache {
    /// An empty cache that takes at most `bytes` bytes of DRAM.
    ///
    /// # Panics
    /// When these are outside of [`CACHE_BYTES_MIN`] to [`CACHE_BYTES_MAX`].
    pub fn new(bytes: usize) -> Cache {
        let shape = Shape::of(bytes);
        Cache {
            buffer: Mapping::zeroed(shape.buffer),
            small: shape.small(),
            main: shape.main(),
            index: Index::new(shape.slots),
            ghost: Mapping::zeroed(shape.ghosts),
            dirty: VecDeque::with_capacity(shape.slots / 2),
            stay: 0,
            stay_bytes: 0,
            reading: Vec::new(),
            next_ticket: 0,
            moving: Vec::with_capacity(size(OBJECT_BYTES_MAX)),
            counts: Counts::default(),
            planted: None,
        }
    }
    /// A bug on purpose.
    #[doc(hidden)]
    pub fn plant(&mut self, bug: Option<Planted>) {
        self.planted = bug;
    }
    /// Takes `bytes` bytes of DRAM from now on, and keeps what fits. While this runs, it takes the
    /// larger of both sizes, and [`Cache::resize_bytes`] in addition.
    ///
    /// No more objects may wait to be written than before, however large it becomes.
    ///
    /// # Errors
    /// [`Full`], and nothing has changed: more waits to be written than a cache of that size lets
    /// wait.
    ///
    /// # Panics
    /// As [`Cache::new`].
    pub fn resize(&mut self, bytes: usize) -> Result<(), Full> {
        let shape = Shape::of(bytes);
        let unwritten_max = self.unwritten_max().min(shape.slots / 2);
        if self.stay > unwritten_max || self.stay_bytes > shape.buffer / 2 {
            return Err(Full);
        }
        self.dirty.shrink_to(unwritten_max);
        let (objects, counts) = (self.index.len(), self.counts);
        // The new tables have no memory yet, and the old index is needed no more.
        self.index = Index::new(shape.slots);
        let mut buffer = std::mem::replace(&mut self.buffer, Mapping::zeroed(shape.buffer));
        let ghost = std::mem::replace(&mut self.ghost, Mapping::zeroed(shape.ghosts));
        let small = std::mem::replace(&mut self.small, shape.small());
        let main = std::mem::replace(&mut self.main, shape.main());
        (self.stay, self.stay_bytes) = (0, 0);
        // Oldest first, so that the order stays. What has to leave for others is what would have
        // left next.
        self.take_over(&mut buffer, main, true);
        self.take_over(&mut buffer, small, false);
        for &number in ghost.iter().filter(|&&number| number != 0) {
            let at = self.ghost_of(number.wrapping_sub(1));
            self.ghost[at] = number;
        }
        let evicted = (objects - self.index.len()) as u64;
        self.counts = Counts { evicted: counts.evicted + evicted, ..counts };
        Ok(())
    }
    /// What [`Cache::resize`] takes in addition to the larger of both sizes: a part that is there
    /// twice, and the smaller one's ghost.
    pub fn resize_bytes(bytes: usize) -> usize {
        2 * PART + bytes / BYTES_PER_GHOST * size_of::<u32>()
    }
    /// Takes over the entries of a ring of the old buffer, and gives their memory back meanwhile.
    fn take_over(&mut self, old: &mut Mapping<u8>, mut ring: Ring, is_main: bool) {
        let mut done = ring.oldest().unwrap_or(0);
        while let Some(at) = ring.oldest() {
            if at < done {
                // It goes on at the start of the ring.
                old.discard(done..ring.end());
                done = at;
            } else if at - done >= PART {
                old.discard(done..at);
                done = at;
            }
            let header = Header::read(old, at);
            ring.pop(header.size());
            if header.has(LIVE) {
                match self.place_again(header, is_main) {
                    Ok(to) => {
                        self.buffer[to..to + header.size()].copy_from_slice(&old[at..at + header.size()]);
                        self.change(to, Header::new(header.number(), header.length(), LIVE), header);
                        self.index.insert(header.number(), to);
                    }
                    // At most half of the index and of the buffer stays, so the rest can leave.
                    Err(Full) => assert!(!header.stays(), "what stays does not fit into what is empty by half"),
                }
            }
        }
    }
    /// A place for an entry of the old buffer, and a slot of the index.
    fn place_again(&mut self, header: Header, is_main: bool) -> Result<usize, Full> {
        while self.index.is_full() {
            // All that can leave may be in a small ring that is not due yet.
            self.evict_any().or_else(|Full| self.evict_small())?;
        }
        if is_main { self.place_in_main(header.size()) } else { self.place_in_small(header.size()) }
    }
    /// About how many bytes of entries it remembers that have left.
    pub fn remembered_bytes(&self) -> usize {
        let used = self.small.used() + self.main.used();
        self.ghost.len() * used.checked_div(self.index.len()).unwrap_or(0)
    }
    /// DRAM that it takes.
    pub fn bytes(&self) -> usize {
        let tables = self.index.slots() + self.ghost.len() + self.dirty.capacity();
        self.buffer.len() + tables * size_of::<u32>() + self.moving.capacity()
    }
    /// Objects that are in it, freed ones included that flash does not know of.
    pub fn len(&self) -> usize {
        self.index.len()
    }
    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.index.len() == 0
    }
    /// What it has counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }
    /// Objects that flash does not have yet.
    pub fn unwritten(&self) -> usize {
        self.stay
    }
    /// The most of them, at any size.
    pub fn unwritten_max(&self) -> usize {
        self.dirty.capacity()
    }
    /// Whether an object was changed since it was last begun to be written.
    pub fn is_dirty(&self, number: u32) -> bool {
        self.index.find(&self.buffer, number).is_some_and(|(.., header)| header.has(DIRTY))
    }
    /// Bytes of objects that flash does not have yet, and of what is noted of them.
    pub fn unwritten_bytes(&self) -> usize {
        self.stay_bytes
    }
    /// How much of it waits to be written: three eighths are worth a batch, and half is too much.
    /// Of objects, an eighth less, so that the queue has room for those that are let through.
    pub fn pressure(&self) -> Pressure {
        let (bytes, objects) = (self.buffer.len(), self.index.slots().min(2 * self.dirty.capacity()));
        if self.stay_bytes > bytes / 2 || self.stay > objects * 3 / 8 {
            Pressure::Wait
        } else if self.stay_bytes > bytes * 3 / 8 || self.stay > objects / 4 {
            Pressure::Write
        } else {
            Pressure::None
        }
    }

    /// Shows the bytes of an object, if it is here. A freed one has none.
    #[inline]
    pub fn get<R>(&mut self, number: u32, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let Some((_, at, header)) = self.index.find(&self.buffer, number) else {
            self.counts.misses += 1;
            return None;
        };
        self.counts.hits += 1;
        if header.uses() < 3 {
            header.used(header.uses() + 1).write(&mut self.buffer, at);
        }
        Some(read(&self.buffer[at + UNIT..at + UNIT + header.length()]))
    }

    /// Drops an object that flash has. False when it has not, and the object stays.
    pub fn drop_clean(&mut self, number: u32) -> bool {
        let Some((slot, at, header)) = self.index.find(&self.buffer, number) else { return true };
        if !header.stays() {
            self.remove(slot, at);
        }
        !header.stays()
    }

    /// Whether a read of an object is under way, and the object was not changed since it began.
    /// Another one would find the same.
    pub fn is_being_read(&self, number: u32) -> bool {
        self.reading.iter().any(|read| read.0 == number)
    }
    /// An object that is not here is going to be read from flash.
    pub fn begin_read(&mut self, number: u32) -> Ticket {
        self.next_ticket = self.next_ticket.wrapping_add(1);
        self.reading.push((number, self.next_ticket));
        Ticket(self.next_ticket)
    }
    /// It was read, or could not be. Returns whether what was read is still what flash has.
    pub fn end_read(&mut self, number: u32, ticket: Ticket, bytes: Option<&[u8]>) -> bool {
        let Some(at) = self.reading.iter().position(|read| *read == (number, ticket.0)) else { return false };
        self.reading.swap_remove(at);
        if let Some(bytes) = bytes
            && self.index.find(&self.buffer, number).is_none()
        {
            let at = self.ghost_of(number);
            self.counts.returned += u64::from(self.ghost[at] == number.wrapping_add(1));
            // A cache in which everything waits to be written goes without it.
            let _ = self.insert(number, bytes, LIVE);
        }
        true
    }

    /// Changes an object, or frees it where it has no bytes. The change is still to be written to
    /// flash.
    ///
    /// # Errors
    /// [`Full`], and nothing has changed. This takes more objects that wait to be written than
    /// [`Pressure::Wait`] lets through.
    ///
    /// # Panics
    /// When there are more than [`OBJECT_BYTES_MAX`] bytes.
    pub fn put(&mut self, number: u32, bytes: &[u8]) -> Result<(), Full> {
        assert!(bytes.len() <= OBJECT_BYTES_MAX, "an object of {} bytes", bytes.len());
        // The queue has no more than this, so that it never grows.
        if self.stay >= self.dirty.capacity()
            && !self.index.find(&self.buffer, number).is_some_and(|(.., header)| header.stays())
        {
            return Err(Full);
        }
        if let Some((_, at, header)) = self.index.find(&self.buffer, number)
            && header.size() == size(bytes.len())
        {
            let flags = LIVE | DIRTY | if header.has(WRITING) { WRITING } else { 0 };
            let now = Header::new(number, bytes.len(), flags).used(header.uses() + 1);
            self.change(at, header, now);
            self.buffer[at + UNIT..at + UNIT + bytes.len()].copy_from_slice(bytes);
            self.queue(number, header);
        } else {
            self.insert(number, bytes, LIVE | DIRTY)?;
        }
        if self.planted != Some(Planted::OldReadEnters) {
            self.reading.retain(|read| read.0 != number);
        }
        Ok(())
    }

    /// Copies the objects that have been dirty for longest: at most `objects` of them, of about
    /// `bytes` bytes in all. They count as being written until [`Cache::end_write`].
    pub fn begin_write(&mut self, objects: usize, bytes: usize, batch: &mut Batch) {
        let mut left = self.dirty.len();
        while left > 0 && batch.len() < objects && batch.bytes() < bytes {
            left -= 1;
            let Some(number) = self.dirty.pop_front() else { break };
            let Some((_, at, header)) = self.index.find(&self.buffer, number) else { continue };
            if !header.has(DIRTY) {
                continue;
            }
            if header.has(WRITING) {
                // The batch with its older content comes first.
                self.dirty.push_back(number);
                continue;
            }
            self.change(at, header, header.without(DIRTY).with(WRITING));
            batch.push(number, &self.buffer[at + UNIT..at + UNIT + header.length()]);
            self.counts.written += 1;
            self.counts.written_bytes += header.length() as u64;
        }
    }
    /// Objects of a batch were written, or were not and are dirty as before.
    pub fn end_write(&mut self, numbers: &[u32], written: bool) {
        for &number in numbers.iter().rev() {
            let Some((slot, at, header)) = self.index.find(&self.buffer, number) else { continue };
            if !header.has(WRITING) {
                continue;
            }
            if written || header.has(DIRTY) {
                let forgets = written && self.planted == Some(Planted::ChangedIsWritten);
                let now = header.without(if forgets { WRITING | DIRTY } else { WRITING });
                self.change(at, header, now);
                if now.length() == 0 && !now.has(DIRTY) {
                    // Flash knows that it was freed.
                    self.remove(slot, at);
                }
            } else if self.planted == Some(Planted::FailedIsWritten) {
                self.change(at, header, header.without(WRITING));
            } else {
                self.change(at, header, header.without(WRITING).with(DIRTY));
                self.dirty.push_front(number);
            }
        }
    }

    /// Forgets everything, also what flash does not have: a roll back has undone it.
    pub fn forget(&mut self) {
        (self.small, self.main) = (Ring::new(0, self.small.bytes()), Ring::new(self.small.bytes(), self.main.bytes()));
        self.index.clear();
        self.dirty.clear();
        self.reading.clear();
        (self.stay, self.stay_bytes) = (0, 0);
    }
    /// Forgets all objects of a range of numbers.
    pub fn forget_range(&mut self, numbers: &Range<u32>) {
        for ring in [self.small, self.main] {
            let found: Vec<u32> = ring
                .entries(&self.buffer)
                .filter(|(_, header)| header.has(LIVE) && numbers.contains(&header.number()))
                .map(|(_, header)| header.number())
                .collect();
            for number in found {
                let (slot, at, _) = self.index.find(&self.buffer, number).expect("what lives is in the index");
                self.remove(slot, at);
            }
        }
        self.dirty.retain(|number| !numbers.contains(number));
        self.reading.retain(|read| !numbers.contains(&read.0));
    }

    /// Changes the flags of an entry.
    fn change(&mut self, at: usize, from: Header, to: Header) {
        match (from.stays(), to.stays()) {
            (false, true) => (self.stay, self.stay_bytes) = (self.stay + 1, self.stay_bytes + to.size()),
            (true, false) => (self.stay, self.stay_bytes) = (self.stay - 1, self.stay_bytes - from.size()),
            _ => {}
        }
        to.write(&mut self.buffer, at);
    }
    /// A number became dirty, whose entry said this before.
    fn queue(&mut self, number: u32, before: Header) {
        if !before.has(DIRTY) {
            self.dirty.push_back(number);
        }
    }
    /// Takes an object out of the index. Its entry is dead until the ring comes by.
    fn remove(&mut self, slot: usize, at: usize) {
        let header = Header::read(&self.buffer, at);
        self.index.remove(&self.buffer, slot);
        self.change(at, header, header.without(LIVE | DIRTY | WRITING));
    }

    /// A new entry for a number that is not here, or is with another size.
    fn insert(&mut self, number: u32, bytes: &[u8], flags: u64) -> Result<(), Full> {
        while self.index.is_full() {
            self.evict_any()?;
        }
        let again = self.forget_ghost(number) || self.index.find(&self.buffer, number).is_some();
        let at = if again { self.place_in_main(size(bytes.len()))? } else { self.place_in_small(size(bytes.len()))? };
        // Only now, because making room may have moved the old entry.
        let old = self.index.find(&self.buffer, number);
        let (before, uses) = old.map_or((Header::new(number, 0, 0), 0), |(_, _, old)| (old, old.uses() + 1));
        let flags = if before.has(WRITING) { flags | WRITING } else { flags };
        let header = Header::new(number, bytes.len(), flags).used(uses);
        self.buffer[at + UNIT..at + UNIT + bytes.len()].copy_from_slice(bytes);
        match old {
            Some((slot, old_at, old)) => {
                self.change(old_at, old, old.without(LIVE | DIRTY | WRITING));
                self.index.moved(slot, number, at);
                self.change(at, Header::new(number, bytes.len(), LIVE), header);
            }
            None => {
                self.change(at, Header::new(number, bytes.len(), LIVE), header);
                self.index.insert(number, at);
            }
        }
        if header.has(DIRTY) {
            self.queue(number, before);
        }
        Ok(())
    }
    fn place_in_small(&mut self, size: usize) -> Result<usize, Full> {
        loop {
            if let Some(at) = self.small.push(&mut self.buffer, size) {
                return Ok(at);
            }
            self.evict_small()?;
        }
    }
    fn place_in_main(&mut self, size: usize) -> Result<usize, Full> {
        // Each round takes a use from every entry, so that in the fourth round one is evicted or
        // all stay.
        let mut rounds = 5 * self.main.bytes();
        loop {
            if let Some(at) = self.main.push(&mut self.buffer, size) {
                return Ok(at);
            }
            rounds = rounds.checked_sub(self.evict_main()?).ok_or(Full)?;
        }
    }
    /// Makes the index shorter.
    fn evict_any(&mut self) -> Result<(), Full> {
        let before = self.index.len();
        let mut rounds = 5 * self.main.bytes();
        while self.index.len() == before {
            if self.small.used() > self.main.used() / SMALL_SHARE {
                self.evict_small()?;
            } else {
                rounds = rounds.checked_sub(self.evict_main()?).ok_or(Full)?;
            }
        }
        Ok(())
    }
    /// Takes the oldest entry out of the small ring.
    fn evict_small(&mut self) -> Result<(), Full> {
        let at = self.small.oldest().ok_or(Full)?;
        let header = Header::read(&self.buffer, at);
        // While the main ring is not full, nothing has to leave.
        let room = self.main.used() + header.size() + size(OBJECT_BYTES_MAX) <= self.main.bytes();
        if let Eviction::Stays(header) = self.decide_eviction(at, header, if room { 0 } else { USES_TO_STAY }) {
            let size = header.size();
            let to = self.place_in_main(size)?;
            self.buffer.copy_within(at..at + size, to);
            // Its uses count anew.
            header.used(0).write(&mut self.buffer, to);
            let (slot, ..) = self.index.find(&self.buffer, header.number()).expect("what lives is in the index");
            self.index.moved(slot, header.number(), to);
        }
        self.small.pop(header.size());
        Ok(())
    }
    /// Takes the oldest entry of the main ring out, or to its other end. Returns its bytes.
    fn evict_main(&mut self) -> Result<usize, Full> {
        let at = self.main.oldest().ok_or(Full)?;
        let header = Header::read(&self.buffer, at);
        let size = header.size();
        let eviction = self.decide_eviction(at, header, 1);
        if let Eviction::Stays(header) = eviction {
            // Before its old header is overwritten.
            let (slot, ..) = self.index.find(&self.buffer, header.number()).expect("what lives is in the index");
            let mut moving = std::mem::take(&mut self.moving);
            moving.clear();
            moving.extend_from_slice(&self.buffer[at..at + size]);
            self.main.pop(size);
            let to = self.main.push(&mut self.buffer, size).expect("it has just left as much room");
            self.buffer[to..to + size].copy_from_slice(&moving);
            self.moving = moving;
            header.used(header.uses().saturating_sub(1)).write(&mut self.buffer, to);
            self.index.moved(slot, header.number(), to);
        } else {
            self.main.pop(size);
        }
        Ok(size)
    }
    /// Whether the oldest entry of a ring stays, as it must, or was used so often.
    fn decide_eviction(&mut self, at: usize, header: Header, uses: u64) -> Eviction {
        if !header.has(LIVE) {
            return Eviction::Gone;
        }
        let stays = if self.planted == Some(Planted::WritingLeaves) { header.has(DIRTY) } else { header.stays() };
        if stays || header.uses() >= uses {
            return Eviction::Stays(header);
        }
        let (slot, found, _) = self.index.find(&self.buffer, header.number()).expect("what lives is in the index");
        debug_assert_eq!(found, at);
        self.remove(slot, at);
        let ghost = self.ghost_of(header.number());
        self.ghost[ghost] = header.number().wrapping_add(1);
        self.counts.evicted += 1;
        Eviction::Gone
    }
    fn ghost_of(&self, number: u32) -> usize {
        (((spread(number) >> 32) * self.ghost.len() as u64) >> 32) as usize
    }
    /// Whether a number left a short time ago, which is forgotten by that.
    fn forget_ghost(&mut self, number: u32) -> bool {
        let at = self.ghost_of(number);
        let found = self.ghost[at] == number.wrapping_add(1) && self.ghost[at] != 0;
        if found {
            self.ghost[at] = 0;
        }
        found
    }

    /// Checks everything: index, counts and queue agree with the contents of the rings.
    ///
    /// # Errors
    /// A sentence about the first thing that does not.
    pub fn check(&self) -> Result<(), String> {
        let (mut live, mut stay, mut stay_bytes) = (0, 0, 0);
        for (name, ring) in [("small", self.small), ("main", self.main)] {
            let mut used = 0;
            for (at, header) in ring.entries(&self.buffer) {
                used += header.size();
                if !header.has(LIVE) {
                    if header.stays() {
                        return Err(format!("a dead entry of {} waits to be written", header.number()));
                    }
                    continue;
                }
                let number = header.number();
                match self.index.find(&self.buffer, number) {
                    Some((_, found, _)) if found == at => {}
                    found => return Err(format!("{number} is at {at}, and the index has {found:?}")),
                }
                live += 1;
                if header.stays() {
                    (stay, stay_bytes) = (stay + 1, stay_bytes + header.size());
                }
                if header.has(DIRTY) && !self.dirty.contains(&number) {
                    return Err(format!("{number} is dirty and not in the queue"));
                }
            }
            if used != ring.used() {
                return Err(format!("the {name} ring has {used} bytes, and counts {}", ring.used()));
            }
        }
        let counted = (self.index.len(), self.stay, self.stay_bytes);
        if (live, stay, stay_bytes) != counted {
            return Err(format!(
                "live, unwritten and its bytes: {:?} found, {counted:?} counted",
                (live, stay, stay_bytes)
            ));
        }
        Ok(())
    }
}
