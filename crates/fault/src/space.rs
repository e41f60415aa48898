//! Addresses of a region: which are given to the program. The lowest place that is large enough is
//! given first, so that what is mapped stays together.

use std::collections::BTreeMap;

/// Free places, in pages, by their first page. No two touch.
#[derive(Debug)]
pub struct Space {
    free: BTreeMap<usize, usize>,
    pages: usize,
    taken: usize,
}

impl Space {
    /// So many pages, all free.
    pub fn new(pages: usize) -> Space {
        Space { free: (pages > 0).then_some((0, pages)).into_iter().collect(), pages, taken: 0 }
    }

    /// Pages that are taken.
    #[cfg(test)]
    fn taken(&self) -> usize {
        self.taken
    }

    /// Takes `pages` anywhere.
    pub fn take(&mut self, pages: usize) -> Option<usize> {
        let (&start, _) = self.free.iter().find(|(_, length)| **length >= pages.max(1))?;
        self.take_at(start, pages).then_some(start)
    }

    /// Takes these pages, if all of them are free.
    pub fn take_at(&mut self, start: usize, pages: usize) -> bool {
        let Some((&first, &length)) = self.free.range(..=start).next_back() else { return false };
        let (end, free_end) = (start.saturating_add(pages), first + length);
        if pages == 0 || end > free_end {
            return false;
        }
        self.free.remove(&first);
        if first < start {
            self.free.insert(first, start - first);
        }
        if end < free_end {
            self.free.insert(end, free_end - end);
        }
        self.taken += pages;
        true
    }

    /// Gives back what is taken of these pages. They may be partly free, as in `munmap`.
    pub fn give_back(&mut self, start: usize, pages: usize) {
        let end = start.saturating_add(pages).min(self.pages);
        if start >= end {
            return;
        }
        let (mut from, mut to, mut was_free) = (start, end, 0);
        // Joined with all that it touches or holds.
        while let Some((&first, &length)) = self.free.range(..=to).next_back() {
            if first + length < from {
                break;
            }
            was_free += (first + length).min(end).saturating_sub(first.max(start));
            self.free.remove(&first);
            from = from.min(first);
            to = to.max(first + length);
        }
        self.free.insert(from, to - from);
        self.taken -= end - start - was_free;
    }

    /// Whether all of these pages are taken.
    pub fn is_taken(&self, start: usize, pages: usize) -> bool {
        let end = start.saturating_add(pages);
        end <= self.pages && self.free.range(..end).next_back().is_none_or(|(first, length)| first + length <= start)
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_testkit::Random;

    use super::*;

    #[test]
    fn places_come_and_go() {
        let mut space = Space::new(10);
        assert_eq!((space.take(4), space.take(4), space.take(4)), (Some(0), Some(4), None));
        space.give_back(1, 2);
        assert_eq!((space.take(2), space.take(2)), (Some(1), Some(8)));
        assert!(!space.take_at(3, 1) && space.is_taken(0, 10) && space.taken() == 10);
        space.give_back(0, 10);
        assert!(!space.is_taken(0, 1) && space.take_at(3, 7) && space.is_taken(3, 7) && !space.is_taken(2, 2));
        assert_eq!(Space::new(0).take(1), None);
    }

    #[test]
    fn as_a_list_of_bits_says() {
        const PAGES: usize = 64;
        let mut random = Random::seeded("space", 3);
        for _ in 0..200 {
            let (mut space, mut model) = (Space::new(PAGES), [false; PAGES]);
            for _ in 0..100 {
                let (start, pages) = (random.below(PAGES as u64) as usize, 1 + random.below(20) as usize);
                let end = (start + pages).min(PAGES);
                match random.below(3) {
                    0 => match space.take(pages) {
                        Some(at) => {
                            let before = (0..at).all(|s| model[s..(s + pages).min(PAGES)].contains(&true));
                            assert!(before && !model[at..at + pages].contains(&true));
                            model[at..at + pages].fill(true);
                        }
                        None => assert!(model.windows(pages).all(|places| places.contains(&true))),
                    },
                    1 => {
                        let free = start + pages <= PAGES && !model[start..end].contains(&true);
                        assert_eq!(space.take_at(start, pages), free);
                        if free {
                            model[start..end].fill(true);
                        }
                    }
                    _ => {
                        space.give_back(start, pages);
                        model[start..end].fill(false);
                    }
                }
                assert_eq!(space.taken(), model.iter().filter(|taken| **taken).count());
                let all = start + pages <= PAGES && model[start..end].iter().all(|taken| *taken);
                assert_eq!(space.is_taken(start, pages), all);
            }
        }
    }
}
