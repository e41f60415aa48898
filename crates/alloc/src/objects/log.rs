//! The log: pages that are filled in order, extent by extent, and which extent is cleaned next.
//! Decisions only.
//!
//! Invariants: a page is handed out once between two cleanings of its extent. An extent that has no
//! live object is free at once. Two free extents are kept for what cleaning moves.

/// Pages of an extent. Fewer are cleaned sooner, and more are written side by side.
pub const EXTENT_PAGES: u32 = 64;
/// Extents that only cleaning may take.
const KEPT: usize = 2;
/// Free extents below which there should be cleaning.
const LOW: usize = 4;
/// The fewest extents of a log.
pub const EXTENTS_MIN: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    /// It is being filled.
    Open,
    Full,
    /// Some of it cannot be read.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    state: State,
    /// Bytes of flash that its live objects take at worst.
    live: u32,
}

/// The purpose of pages that are handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Objects that programs changed.
    New,
    /// Objects that cleaning moves.
    Moved,
}

/// See the module.
#[derive(Debug)]
pub struct Log {
    extents: Vec<Extent>,
    free: Vec<u32>,
    /// The extent that is being filled, and its next page.
    open: Option<(u32, u32)>,
}

impl Log {
    /// A log of `extents` extents, all free.
    pub fn new(extents: u32) -> Log {
        let extent = Extent { state: State::Free, live: 0 };
        Log { extents: vec![extent; extents as usize], free: (0..extents).rev().collect(), open: None }
    }
    /// DRAM of a log of `extents` extents.
    pub fn bytes(extents: u32) -> usize {
        extents as usize * (size_of::<Extent>() + size_of::<u32>())
    }
    /// Bytes of flash that objects may take at worst ([`super::packed::weight`]): four fifths, so
    /// that what is cleaned is garbage by a fifth on average.
    pub fn room(extents: u32) -> u64 {
        let usable = u64::from(extents.saturating_sub(2 * LOW as u32)) * u64::from(EXTENT_PAGES) * 4096;
        usable / 5 * 4
    }

    /// Whether there should be cleaning.
    pub fn is_low(&self) -> bool {
        self.free.len() < LOW
    }
    /// Takes the next page. None when there is no room for this purpose.
    pub fn take(&mut self, purpose: Purpose) -> Option<u32> {
        if self.open.is_none_or(|(_, next)| next == EXTENT_PAGES) {
            if purpose == Purpose::New && self.free.len() <= KEPT {
                return None;
            }
            let next = self.free.pop()?;
            self.close();
            self.extents[next as usize] = Extent { state: State::Open, live: 0 };
            self.open = Some((next, 0));
        }
        let (extent, next) = self.open.as_mut()?;
        *next += 1;
        Some(*extent * EXTENT_PAGES + *next - 1)
    }
    fn close(&mut self) {
        if let Some((extent, _)) = self.open.take() {
            self.extents[extent as usize].state = State::Full;
            self.free_if_dead(extent);
        }
    }
    fn free_if_dead(&mut self, at: u32) {
        let extent = &mut self.extents[at as usize];
        if extent.state == State::Full && extent.live == 0 {
            extent.state = State::Free;
            self.free.push(at);
        }
    }
    /// An object of this weight is in a page now.
    pub fn mark_live(&mut self, page: u32, weight: u64) {
        self.extents[(page / EXTENT_PAGES) as usize].live += weight as u32;
    }
    /// It does not any more.
    pub fn mark_dead(&mut self, page: u32, weight: u64) {
        let at = page / EXTENT_PAGES;
        self.extents[at as usize].live -= weight as u32;
        self.free_if_dead(at);
    }
    /// The full extent with the least that lives, if cleaning it gains anything.
    pub fn victim(&self) -> Option<u32> {
        let full = self.extents.iter().enumerate().filter(|(_, extent)| extent.state == State::Full);
        let (at, extent) = full.min_by_key(|(_, extent)| extent.live)?;
        (extent.live < EXTENT_PAGES * 4096 / 64 * 63).then_some(at as u32)
    }
    /// Whether an extent is full, and something in it lives.
    pub fn is_full(&self, at: u32) -> bool {
        self.extents[at as usize].state == State::Full
    }
    /// Some of an extent cannot be read: it stays as it is.
    pub fn lose(&mut self, at: u32) {
        self.extents[at as usize].state = State::Lost;
    }
    /// Bytes of live objects at worst, over all.
    #[cfg(test)]
    pub fn live(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.live)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fulgurite_testkit::Random;

    use super::*;
    use crate::objects::packed;

    /// Objects of 128 bytes, 29 to a page, up to the room that the log promises.
    #[test]
    fn cleaning_always_finds_room_for_what_was_promised() {
        let mut random = Random::seeded("log", 2);
        const EXTENTS: u32 = 24;
        let (mut log, weight) = (Log::new(EXTENTS), packed::weight(128));
        let most = (Log::room(EXTENTS) / weight) as u32;
        let (mut places, mut pages) = (BTreeMap::<u32, u32>::new(), BTreeMap::<u32, Vec<u32>>::new());
        let mut written = 0;
        for _ in 0..4000 {
            while log.is_low() {
                let Some(victim) = log.victim() else { break };
                let mut moved = Vec::new();
                for page in victim * EXTENT_PAGES..(victim + 1) * EXTENT_PAGES {
                    moved.extend(pages.remove(&page).unwrap_or_default().into_iter().filter(|n| places[n] == page));
                }
                for objects in moved.chunks(29) {
                    let page = log.take(Purpose::Moved).expect("there is room for what is moved");
                    for number in objects {
                        log.mark_live(page, weight);
                        log.mark_dead(places.insert(*number, page).unwrap(), weight);
                    }
                    pages.insert(page, objects.to_vec());
                }
            }
            let objects: Vec<u32> = (0..29).map(|_| random.below(most)).collect();
            let page = log.take(Purpose::New).expect("cleaning made room");
            for number in &objects {
                if let Some(old) = places.insert(*number, page) {
                    log.mark_dead(old, weight);
                }
                log.mark_live(page, weight);
            }
            let old = pages.insert(page, objects);
            assert!(old.is_none_or(|objects| objects.iter().all(|n| places[n] != page)), "its objects had died");
            written += 1;
            assert_eq!(log.live(), places.len() as u64 * weight);
        }
        assert!(written == 4000 && places.len() as u32 > most / 10 * 9);
    }
}
