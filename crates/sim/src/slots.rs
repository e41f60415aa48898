//! What is under way, by numbers that are used again.

use std::ops::{Index, IndexMut};

/// Each in a slot, whose number is its own until it ends.
pub(crate) struct Slots<T> {
    all: Vec<T>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    /// None.
    pub fn new() -> Slots<T> {
        Slots { all: Vec::new(), free: Vec::new() }
    }
    /// Adds one. Returns its number.
    pub fn add(&mut self, one: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.all[number as usize] = one;
                number
            }
            None => {
                self.all.push(one);
                self.all.len() as u32 - 1
            }
        }
    }
    /// Nothing asks for it any more.
    pub fn ends(&mut self, number: u32) {
        self.free.push(number);
    }
    /// All that have been added and have not ended. Takes time in proportion to the slots.
    pub fn under_way(&self) -> impl Iterator<Item = &T> {
        let mut is_free = vec![false; self.all.len()];
        self.free.iter().for_each(|number| is_free[*number as usize] = true);
        self.all.iter().zip(is_free).filter(|(_, free)| !free).map(|(one, _)| one)
    }
}

impl<T> Index<u32> for Slots<T> {
    type Output = T;
    fn index(&self, number: u32) -> &T {
        &self.all[number as usize]
    }
}

impl<T> IndexMut<u32> for Slots<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.all[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_and_what_has_ended_is_not_under_way() {
        let mut slots = Slots::new();
        let numbers = ["a", "b", "c"].map(|name| slots.add(name));
        assert_eq!(numbers, [0, 1, 2]);
        slots.ends(1);
        assert_eq!(slots.under_way().copied().collect::<String>(), "ac");
        assert_eq!(slots.add("d"), 1);
        slots[0] = "e";
        assert_eq!(slots.under_way().copied().collect::<String>(), "edc");
    }
}
