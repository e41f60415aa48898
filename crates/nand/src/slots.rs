//! A pool of slots by number, and first-come lists of numbers through links that are stored next to
//! the slots: nothing is allocated after it was made.

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// Slots that are taken and given back.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<T>,
    free: Vec<u32>,
}

impl<T: Copy + Default> Slots<T> {
    pub fn new(count: usize) -> Slots<T> {
        Slots { slots: vec![T::default(); count], free: (0..count as u32).rev().collect() }
    }
    pub fn take(&mut self, value: T) -> Option<u32> {
        let slot = self.free.pop()?;
        self.slots[slot as usize] = value;
        Some(slot)
    }
    pub fn give_back(&mut self, slot: u32) {
        debug_assert!(self.free.len() < self.slots.len(), "a slot is given back once");
        self.free.push(slot);
    }
    pub fn room(&self) -> usize {
        self.free.len()
    }
    pub fn taken(&self) -> usize {
        self.slots.len() - self.free.len()
    }
    /// All, also those that are not taken, which hold what they held last.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut()
    }
}
impl<T> std::ops::Index<u32> for Slots<T> {
    type Output = T;
    fn index(&self, slot: u32) -> &T {
        &self.slots[slot as usize]
    }
}
impl<T> std::ops::IndexMut<u32> for Slots<T> {
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.slots[slot as usize]
    }
}

/// Links of lists: a number is in one list at most.
#[derive(Debug)]
pub(crate) struct Links(Vec<u32>);

impl Links {
    pub fn new(count: usize) -> Links {
        Links(vec![NONE; count])
    }
}

/// A first-come list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub const EMPTY: List = List { head: NONE, tail: NONE };

    pub fn head(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }
    pub fn is_empty(&self) -> bool {
        self.head == NONE
    }
    pub fn push(&mut self, links: &mut Links, number: u32) {
        links.0[number as usize] = NONE;
        if self.head == NONE {
            self.head = number;
        } else {
            links.0[self.tail as usize] = number;
        }
        self.tail = number;
    }
    pub fn pop(&mut self, links: &Links) -> Option<u32> {
        let head = self.head()?;
        self.head = links.0[head as usize];
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_their_order_and_slots_come_back() {
        let mut slots: Slots<u32> = Slots::new(3);
        let taken: Vec<u32> = (0..3).map(|n| slots.take(n).unwrap()).collect();
        assert_eq!((slots.take(9), slots.room(), slots.taken()), (None, 0, 3));
        let (mut links, mut list) = (Links::new(3), List::EMPTY);
        taken.iter().for_each(|slot| list.push(&mut links, *slot));
        assert_eq!(slots[list.pop(&links).unwrap()], 0);
        list.push(&mut links, taken[0]);
        let rest: Vec<u32> = std::iter::from_fn(|| list.pop(&links)).map(|slot| slots[slot]).collect();
        assert_eq!(rest, [1, 2, 0]);
        assert!(list.is_empty());
        slots.give_back(taken[1]);
        assert_eq!(slots.take(7), Some(taken[1]));
    }
}
