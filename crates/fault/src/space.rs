//! Addresses of a region: which are given to the program, and what it may do there. The lowest
//! place that is large enough is given first, so that what is mapped stays together.

use std::collections::BTreeMap;

use fulgurite_sys::userfault::Access;

/// Free places, in pages, by their first page. No two touch.
#[derive(Debug)]
pub struct Space {
    free: BTreeMap<usize, usize>,
    /// Taken places that are not for reading and writing: their pages, by their first page.
    limited: BTreeMap<usize, (usize, Access)>,
    pages: usize,
    taken: usize,
}

/// Pages that have one access in common.
pub type Run = (usize, usize, Access);

impl Space {
    /// `pages` pages, all free.
    pub fn new(pages: usize) -> Space {
        let free = (pages > 0).then_some((0, pages)).into_iter().collect();
        Space { free, limited: BTreeMap::new(), pages, taken: 0 }
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
        self.set_access(start, end - start, Access::ReadWrite);
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

    /// What is taken of these pages: places and lengths, in order.
    pub fn taken_of(&self, start: usize, pages: usize) -> Vec<(usize, usize)> {
        let end = start.saturating_add(pages).min(self.pages);
        let (mut at, mut taken) = (start, Vec::new());
        let before = self.free.range(..=start).next_back();
        for (&first, &length) in before.into_iter().chain(self.free.range(start + 1..end.max(start + 1))) {
            if first > at {
                taken.push((at, first - at));
            }
            at = at.max(first + length);
        }
        if at < end {
            taken.push((at, end - at));
        }
        taken
    }

    /// Sets what the program may do in these pages.
    pub fn set_access(&mut self, start: usize, pages: usize, access: Access) {
        let end = start + pages;
        let touched = |(&first, &(length, access)): (&usize, &(usize, Access))| (first, length, access);
        let before = self.limited.range(..start).next_back();
        let all: Vec<Run> = before.into_iter().chain(self.limited.range(start..end)).map(touched).collect();
        for (first, length, old) in all.into_iter().filter(|(first, length, _)| first + length > start) {
            self.limited.remove(&first);
            if first < start {
                self.limited.insert(first, (start - first, old));
            }
            if first + length > end {
                self.limited.insert(end, (first + length - end, old));
            }
        }
        if access != Access::ReadWrite && pages > 0 {
            self.limited.insert(start, (pages, access));
        }
    }

    /// What the program may do in these pages, where that is not to read and write.
    pub fn limited_of(&self, start: usize, pages: usize) -> Vec<Run> {
        let end = start + pages;
        let before = self.limited.range(..start).next_back();
        let cut = |(&first, &(length, access)): (&usize, &(usize, Access))| {
            let (from, to) = (first.max(start), (first + length).min(end));
            (from < to).then(|| (from, to - from, access))
        };
        before.into_iter().chain(self.limited.range(start..end)).filter_map(cut).collect()
    }

    /// What the program may do in a page; none where it is free.
    pub fn access_of(&self, page: usize) -> Option<Access> {
        if !self.is_taken(page, 1) {
            return None;
        }
        let limited = self.limited.range(..=page).next_back();
        let limit = limited.filter(|(first, (length, _))| page < **first + length).map(|(_, (_, access))| *access);
        Some(limit.unwrap_or(Access::ReadWrite))
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
            let mut access = [Access::ReadWrite; PAGES];
            for _ in 0..100 {
                let (start, pages) = (random.below(PAGES as u64) as usize, 1 + random.below(20) as usize);
                let end = (start + pages).min(PAGES);
                match random.below(4) {
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
                    2 => {
                        let now = [Access::None, Access::Read, Access::ReadWrite][random.below(3) as usize];
                        if model[start..end].iter().all(|taken| *taken) {
                            space.set_access(start, end - start, now);
                            access[start..end].fill(now);
                        }
                    }
                    _ => {
                        space.give_back(start, pages);
                        model[start..end].fill(false);
                        access[start..end].fill(Access::ReadWrite);
                    }
                }
                let (mut taken, mut limits) = ([false; PAGES], [Access::ReadWrite; PAGES]);
                for (first, length) in space.taken_of(start, pages) {
                    assert!(length > 0 && !taken[first..first + length].contains(&true));
                    taken[first..first + length].fill(true);
                }
                for (first, length, limit) in space.limited_of(start, pages) {
                    limits[first..first + length].fill(limit);
                }
                assert_eq!((&taken[start..end], &limits[start..end]), (&model[start..end], &access[start..end]));
                assert!(!taken[..start].contains(&true) && !taken[end..].contains(&true));
                let of_page = model[start].then_some(access[start]);
                assert_eq!(space.access_of(start), of_page);
                assert_eq!(space.taken(), model.iter().filter(|taken| **taken).count());
                let all = start + pages <= PAGES && model[start..end].iter().all(|taken| *taken);
                assert_eq!(space.is_taken(start, pages), all);
            }
        }
    }
}
