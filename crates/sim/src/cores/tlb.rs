//! The two TLBs of a core.
//!
//! A translation is in both from the end of its walk on. An access to the same page that begins
//! before that waits for it, whether it depends on the walk's access or not.

use super::sram::Sram;
use super::system::CoreParts;
use crate::planted::Planted;
use crate::time::Time;

/// What the TLBs say of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Translation {
    /// The page is translated then.
    At(Time),
    /// A walk begins then.
    Walk(Time),
}

/// Each translation with the end of its walk.
#[derive(Debug)]
pub struct Tlb {
    levels: [Sram<Time>; 2],
    /// What the second one takes.
    second: Time,
    planted: Planted,
}

impl Tlb {
    /// Empty ones.
    pub fn new(parts: &CoreParts, planted: Planted) -> Tlb {
        let levels = parts.tlb.map(|(entries, ways)| Sram::new(entries, ways));
        Tlb { levels, second: parts.cycle * parts.tlb_cycles, planted }
    }
    /// An access to a page begins at `at`.
    pub fn look_up(&mut self, page: u64, at: Time) -> Translation {
        let [first, second] = &mut self.levels;
        if let Some(ready) = first.find(page) {
            return Translation::At(at.max(*ready));
        }
        let at = at + self.second;
        match second.find(page) {
            Some(ready) => {
                let at = at.max(*ready);
                first.put(page, at);
                Translation::At(at)
            }
            None => Translation::Walk(at),
        }
    }
    /// A walk for a page ends at `at`.
    pub fn walked(&mut self, page: u64, at: Time) {
        let at = if self.planted == Planted::EarlyTranslation { Time::ZERO } else { at };
        for level in &mut self.levels {
            // Another thread's walk may have been faster.
            if level.find(page).is_none() {
                level.put(page, at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two entries, and four in sets of two. The second takes 4 ns.
    fn tlb(planted: Planted) -> Tlb {
        Tlb { levels: [Sram::new(2, 2), Sram::new(4, 2)], second: Time::ns(4), planted }
    }
    fn waits_for_a_walk_under_way(planted: Planted) -> bool {
        let mut tlb = tlb(planted);
        assert_eq!(tlb.look_up(7, Time::ns(10)), Translation::Walk(Time::ns(14)));
        tlb.walked(7, Time::ns(90));
        let early = tlb.look_up(7, Time::ns(20));
        assert_eq!(tlb.look_up(7, Time::ns(100)), Translation::At(Time::ns(100)));
        early == Translation::At(Time::ns(90))
    }

    #[test]
    fn an_access_waits_for_a_walk_under_way() {
        assert!(waits_for_a_walk_under_way(Planted::None));
        assert!(!waits_for_a_walk_under_way(Planted::EarlyTranslation), "EarlyTranslation was not found");
    }
    #[test]
    fn the_second_one_has_what_the_first_has_dropped() {
        let mut tlb = tlb(Planted::None);
        for (page, ends) in [(0, 50), (1, 60), (3, 70)] {
            tlb.walked(page, Time::ns(ends));
        }
        assert_eq!(tlb.look_up(0, Time::ns(20)), Translation::At(Time::ns(50)), "from the second, and late");
        assert_eq!(tlb.look_up(0, Time::ns(30)), Translation::At(Time::ns(50)), "from the first, and late");
        assert_eq!(tlb.look_up(1, Time::ns(80)), Translation::At(Time::ns(84)));
        assert_eq!(tlb.look_up(5, Time::ns(80)), Translation::Walk(Time::ns(84)));
    }
    #[test]
    fn the_first_walk_of_two_counts() {
        let mut tlb = tlb(Planted::None);
        tlb.walked(2, Time::ns(30));
        tlb.walked(2, Time::ns(80));
        assert_eq!(tlb.look_up(2, Time::ns(40)), Translation::At(Time::ns(40)));
    }
}
