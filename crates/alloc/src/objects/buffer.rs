//! The page buffer of objects: which have a page, and which gives it up next. Decisions only.
//!
//! ```text
//!          begin            here               leave (the oldest)        gone
//!   free --------> coming --------> here ----------------------> going --------> free
//!            ^                        ^-------------------------- stay
//!            +-- fails: free
//! ```
//!
//! First in, first out: what is used soon again comes back from the object cache.
//!
//! Pages of a block share a table of pages of the kernel, which is DRAM as well. The kernel takes
//! the table out of use with the last page, and frees it only later. So a page whose block has no
//! table waits where there would be too many tables, of both kinds.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

/// What is known of an object's page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It is being filled.
    Coming,
    /// The program has it.
    Here,
    /// It is being taken away.
    Going,
}

/// Pages that share a table of pages of the kernel.
pub const BLOCK: u32 = 512;

/// See the module.
#[derive(Debug)]
pub struct Buffer {
    /// The slot of each object that has one.
    slots: HashMap<u32, u32, FixedState>,
    states: Box<[(State, u32)]>,
    free: Vec<u32>,
    /// Slots whose page is here, oldest first. Some are of objects that left otherwise.
    order: VecDeque<(u32, u32)>,
    /// Objects of each block that have a slot.
    blocks: HashMap<u32, u32, FixedState>,
    /// Tables that are out of use and not known to be free.
    leaving: usize,
}

/// The most tables of pages for each slot: one that is in use, and the ones that are not free yet.
/// A slot can get this number in the 10 to 40 ms until the kernel frees them. With a lower limit,
/// faults would have to wait.
pub const TABLES_PER_SLOT: usize = 6;

/// DRAM of a slot here: its state and place in the order, and half-empty maps.
pub const BYTES_PER_SLOT: usize = 8 + 4 + 2 * 8 + 4 * 9;

impl Buffer {
    /// A buffer of `slots` slots, all free.
    pub fn new(slots: u32) -> Buffer {
        let map = || HashMap::with_capacity_and_hasher(slots as usize, FixedState::default());
        Buffer {
            slots: map(),
            states: vec![(State::Going, 0); slots as usize].into(),
            free: (0..slots).rev().collect(),
            order: VecDeque::with_capacity(2 * slots as usize),
            blocks: map(),
            leaving: 0,
        }
    }
    /// Whether there is room for the table of an object's page.
    pub fn has_table(&self, number: u32) -> bool {
        let tables = self.blocks.len() + self.leaving;
        tables < TABLES_PER_SLOT * self.states.len() || self.blocks.contains_key(&(number / BLOCK))
    }
    /// Tables that are out of use and not known to be free.
    pub fn leaving(&self) -> usize {
        self.leaving
    }
    /// Of these tables, `tables` are free now.
    pub fn freed(&mut self, tables: usize) {
        self.leaving -= tables;
    }
    /// What an object's page is doing.
    pub fn state(&self, number: u32) -> Option<State> {
        Some(self.states[*self.slots.get(&number)? as usize].0)
    }
    /// Objects that have a slot.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.slots.len()
    }
    /// The objects that have a slot, in any order.
    pub fn numbers(&self) -> Vec<u32> {
        self.slots.keys().copied().collect()
    }
    /// A free slot for an object that has none, and room for its table.
    pub fn begin(&mut self, number: u32) -> Option<u32> {
        assert!(self.has_table(number), "there is room for its table");
        let slot = self.free.pop()?;
        let before = self.slots.insert(number, slot);
        assert!(before.is_none(), "an object has one slot");
        self.states[slot as usize] = (State::Coming, number);
        *self.blocks.entry(number / BLOCK).or_default() += 1;
        Some(slot)
    }
    /// The page of a slot that was coming, or going, is the program's.
    pub fn here(&mut self, slot: u32) {
        let number = self.states[slot as usize].1;
        self.states[slot as usize].0 = State::Here;
        if self.order.len() == self.order.capacity() {
            let states = &self.states;
            self.order.retain(|(slot, number)| states[*slot as usize] == (State::Here, *number));
        }
        self.order.push_back((slot, number));
    }
    /// The oldest page begins to leave: its slot and object.
    pub fn leave(&mut self) -> Option<(u32, u32)> {
        while let Some((slot, number)) = self.order.pop_front() {
            if self.states[slot as usize] == (State::Here, number) {
                self.states[slot as usize].0 = State::Going;
                return Some((slot, number));
            }
        }
        None
    }
    /// The page of an object that is here begins to leave.
    pub fn leave_now(&mut self, number: u32) -> u32 {
        let slot = self.slots[&number];
        assert_eq!(self.states[slot as usize].0, State::Here);
        self.states[slot as usize].0 = State::Going;
        slot
    }
    /// The page of a slot has left, or did not come. Returns the block that has no pages any more,
    /// and whose table leaves.
    pub fn gone(&mut self, slot: u32) -> Option<u32> {
        let number = self.states[slot as usize].1;
        self.states[slot as usize].0 = State::Going;
        self.slots.remove(&number);
        self.free.push(slot);
        let block = number / BLOCK;
        let count = self.blocks.get_mut(&block).expect("it has this page");
        *count -= 1;
        if *count == 0 {
            self.blocks.remove(&block);
            self.leaving += 1;
            return Some(block);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_testkit::Random;

    use super::*;

    #[test]
    fn pages_come_and_go_in_order() {
        let mut random = Random::seeded("buffer", 1);
        let (mut buffer, mut here) = (Buffer::new(20), VecDeque::new());
        let (mut emptied, mut waited) = (0, 0);
        for _ in 0..20_000 {
            let number = random.below(3000u32);
            if buffer.state(number).is_some() {
                if random.below(2) == 0 {
                    let slot = buffer.leave_now(number);
                    here.retain(|other| *other != number);
                    buffer.gone(slot);
                }
                continue;
            }
            let slot = loop {
                if !buffer.has_table(number) {
                    assert!(buffer.leaving() > 0, "a table comes free");
                    buffer.freed(1 + random.below(buffer.leaving().min(8)));
                    waited += 1;
                    continue;
                }
                if let Some(slot) = buffer.begin(number) {
                    break slot;
                }
                let (slot, oldest) = buffer.leave().expect("some page is here");
                assert_eq!(here.pop_front(), Some(oldest));
                assert_eq!(buffer.state(oldest), Some(State::Going));
                if random.below(10) == 0 {
                    buffer.here(slot);
                    here.push_back(oldest);
                } else {
                    let block = buffer.gone(slot);
                    assert_eq!(block.is_some(), here.iter().all(|other| other / BLOCK != oldest / BLOCK));
                    emptied += u32::from(block.is_some());
                    assert_eq!(buffer.state(oldest), None);
                }
            };
            assert_eq!(buffer.state(number), Some(State::Coming));
            if random.below(10) == 0 {
                buffer.gone(slot);
            } else {
                buffer.here(slot);
                here.push_back(number);
            }
            assert_eq!(buffer.len(), here.len());
            assert!(buffer.blocks.len() + buffer.leaving() <= 20 * TABLES_PER_SLOT);
        }
        assert!(emptied > 100 && waited > 10, "{emptied}, {waited}");
    }
}
