//! A queue of frames in a ring: the second oldest entry follows the oldest, in eight bytes each.
//!
//! What is removed from the middle leaves a hole, which is skipped when its turn comes. When a ring
//! is full of entries and holes, it is compacted. That takes time in proportion to its size, and
//! happens once in as many removals as there is room for.
//!
//! Invariants: `live` entries and `used - live` holes are in the `used` slots from `first` on.
//! Nothing else is.

/// A frame, what it holds, and a count of two bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(u64);

const FRAME_BITS: u32 = 30;
const FRAME_MASK: u64 = (1 << FRAME_BITS) - 1;
const COUNT_MASK: u64 = 3 << FRAME_BITS;

impl Entry {
    /// No frame has this number ([`Fifo::new`]).
    const HOLE: Entry = Entry(FRAME_MASK);

    #[inline(always)]
    pub(crate) fn new(frame: u32, subpage: u32) -> Entry {
        Entry(u64::from(subpage) << 32 | u64::from(frame))
    }
    #[inline(always)]
    pub(crate) fn frame(self) -> u32 {
        (self.0 & FRAME_MASK) as u32
    }
    #[inline(always)]
    pub(crate) fn subpage(self) -> u32 {
        (self.0 >> 32) as u32
    }
    #[inline(always)]
    pub(crate) fn count(self) -> u8 {
        ((self.0 & COUNT_MASK) >> FRAME_BITS) as u8
    }
    #[inline(always)]
    pub(crate) fn with_count(self, count: u8) -> Entry {
        Entry(self.0 & !COUNT_MASK | u64::from(count) << FRAME_BITS & COUNT_MASK)
    }
    #[inline(always)]
    fn is_hole(self) -> bool {
        self.0 & FRAME_MASK == FRAME_MASK
    }
}

/// A queue of as many entries as there are frames. See the module.
pub(crate) struct Fifo {
    ring: Box<[Entry]>,
    /// The oldest slot in use.
    first: u32,
    used: u32,
    live: u32,
}

impl Fifo {
    /// # Panics
    /// With 2^30 - 1 frames or more.
    pub(crate) fn new(capacity: usize) -> Fifo {
        assert!((capacity as u64) < FRAME_MASK, "fewer than 2^30 - 1 frames");
        Fifo { ring: vec![Entry::HOLE; capacity].into_boxed_slice(), first: 0, used: 0, live: 0 }
    }

    /// Entries.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.live as usize
    }

    /// Entries and holes.
    #[inline(always)]
    pub(crate) fn slots(&self) -> u32 {
        self.used
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.ring)
    }

    /// The slot that is `age` slots younger than the oldest.
    #[inline(always)]
    pub(crate) fn slot(&self, age: u32) -> u32 {
        let (slot, size) = (self.first + age, self.ring.len() as u32);
        if slot < size { slot } else { slot - size }
    }

    /// How many slots are older than this one, holes included.
    #[inline(always)]
    pub(crate) fn age(&self, slot: u32) -> u32 {
        if slot >= self.first { slot - self.first } else { slot + self.ring.len() as u32 - self.first }
    }

    /// Whether the slot is one of those in use, holes included.
    pub(crate) fn holds(&self, slot: u32) -> bool {
        (slot as usize) < self.ring.len() && self.age(slot) < self.used
    }

    /// What is in the slot of this age. `None` is a hole.
    #[inline(always)]
    pub(crate) fn nth(&self, age: u32) -> Option<Entry> {
        Some(self.ring[self.slot(age) as usize]).filter(|entry| !entry.is_hole())
    }

    /// Closes the holes if no slot is left. Tells where each entry is then. Whether it did.
    #[inline]
    pub(crate) fn make_room(&mut self, moved: impl FnMut(Entry, u32)) -> bool {
        let full = self.used as usize == self.ring.len();
        if full {
            self.close_up(moved);
        }
        full
    }

    #[cold]
    fn close_up(&mut self, mut moved: impl FnMut(Entry, u32)) {
        let mut age = 0;
        for old in 0..self.used {
            if let Some(entry) = self.nth(old) {
                let slot = self.slot(age);
                self.ring[slot as usize] = entry;
                moved(entry, slot);
                age += 1;
            }
        }
        self.used = age;
    }

    /// Adds the youngest. Returns its slot.
    ///
    /// # Panics
    /// When all slots are in use: [`Fifo::make_room`] comes first.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) -> u32 {
        assert!((self.used as usize) < self.ring.len(), "more entries than frames");
        let slot = self.slot(self.used);
        self.ring[slot as usize] = entry;
        self.used += 1;
        self.live += 1;
        slot
    }

    /// Takes the oldest slot. `None` if it is a hole or there is none.
    #[inline]
    pub(crate) fn pop_slot(&mut self) -> Option<Entry> {
        if self.used == 0 {
            return None;
        }
        let entry = self.nth(0);
        self.first = self.slot(1);
        self.used -= 1;
        self.live -= u32::from(entry.is_some());
        entry
    }

    /// Takes the oldest entry.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        while self.used > 0 {
            let entry = self.pop_slot();
            if entry.is_some() {
                return entry;
            }
        }
        None
    }

    #[inline]
    pub(crate) fn change(&mut self, slot: u32, change: impl FnOnce(Entry) -> Entry) {
        let entry = &mut self.ring[slot as usize];
        *entry = change(*entry);
    }

    /// Makes a hole.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        debug_assert!(!self.ring[slot as usize].is_hole(), "slot {slot} holds nothing");
        self.ring[slot as usize] = Entry::HOLE;
        self.live -= 1;
    }

    /// Asserts the invariants and returns slots and entries, oldest first.
    pub(crate) fn check(&self) -> Vec<(u32, Entry)> {
        assert!(self.used as usize <= self.ring.len(), "slots in use");
        let entries: Vec<_> =
            (0..self.used).filter_map(|age| self.nth(age).map(|entry| (self.slot(age), entry))).collect();
        assert_eq!(entries.len(), self.len(), "entries counted");
        entries
    }
}
