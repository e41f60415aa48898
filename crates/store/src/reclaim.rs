//! The reclaim of one extent: the owners of its flash pages, by summary or page table, and which
//! are still to copy.

use std::collections::VecDeque;

use fulgurite_format::{Header, Kind, Owner, PageBuffer, PoolId};
use fulgurite_policy::Heat;
use fulgurite_sys::arch::prefetch;

use crate::geometry::{Geometry, SUBPAGES_PER_PAGE};
use crate::state::{Held, State, Version};

const N: u32 = SUBPAGES_PER_PAGE;
/// Flash pages that are copied at a time while there is room: the medium has programs' reads to do.
const DEPTH: usize = 16;
/// The number once half of reclaim's starting room is used. 16 are 100,000 a second on flash of 50
/// and 100 µs, and 60,000 writes a second to a pool that is 80% full need more.
const DEPTH_IN_NEED: usize = 48;
/// The number when programs wait for space, because leaving them room gains nothing then. A copy
/// over SLC NAND takes some 350 µs (25 to read, 200 to program, and the wait for planes), so 48 are
/// at most 140,000 a second.
const DEPTH_WHEN_SHORT: usize = 112;
/// Flash pages whose tables are prefetched: some 10 ns each, and 100 for what no cache has.
const AHEAD: usize = 10;
/// Copies of an extent that are retried elsewhere before it is given up for now: by then the device
/// fails, and not a flash page.
const REPEATED_MAX: u32 = 16;

/// How much space is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// It is reclaimed ahead of need.
    Ahead,
    /// Half of the room is gone with which reclaim begins.
    Soon,
    /// Programs wait for it, or will when their open extents are full.
    Now,
}

impl Need {
    /// Flash pages that are copied at a time.
    fn depth(self) -> usize {
        match self {
            Need::Ahead => DEPTH,
            Need::Soon => DEPTH_IN_NEED,
            Need::Now => DEPTH_WHEN_SHORT,
        }
    }
}

/// One extent on its way to be free.
#[derive(Debug)]
pub struct Reclaim {
    extent: u32,
    geometry: Geometry,
    /// Pages of the summary asked for and read.
    asked: u32,
    read: u32,
    walked: bool,
    /// (subpage, flash page) still to be checked.
    todo: VecDeque<(u32, u32)>,
    under_way: Vec<(u32, u32)>,
    /// Copies in flight.
    copying: usize,
    /// Copies that could not be written and were begun again.
    repeated: u32,
    /// Something in it cannot be read.
    pub unreadable: bool,
    /// The next copy has found no room.
    without_room: bool,
}

impl Reclaim {
    pub fn new(extent: u32, geometry: Geometry) -> Reclaim {
        Reclaim {
            extent,
            geometry,
            asked: 0,
            read: 0,
            walked: false,
            todo: VecDeque::new(),
            under_way: Vec::new(),
            copying: 0,
            repeated: 0,
            unreadable: false,
            without_room: false,
        }
    }
    pub fn extent(&self) -> u32 {
        self.extent
    }
    fn summary_pages(&self) -> u32 {
        self.geometry.extent_pages - self.geometry.data_pages()
    }
    /// The next page of the summary to read.
    pub fn next_read(&mut self) -> Option<u32> {
        if self.walked || self.asked == self.summary_pages() {
            return None;
        }
        self.asked += 1;
        Some(self.geometry.first_of(self.extent) + self.geometry.data_pages() + self.asked - 1)
    }
    /// A page of the summary was read.
    pub fn read(&mut self, page: &PageBuffer, pool: PoolId, state: &State) {
        self.read += 1;
        let opened = Header::open(page).ok().filter(|(h, ..)| {
            let first = self.geometry.first_of(self.extent) + self.geometry.data_pages();
            h.kind == Kind::Summary && h.pool == pool && u64::from(first) + h.sequence == u64::from(h.place)
        });
        let mut owners = Vec::new();
        match opened {
            Some((header, _, payload)) if Owner::decode_all(payload, &mut owners).is_ok() => {
                let first = self.geometry.first_of(self.extent) + header.sequence as u32 * Owner::PER_PAGE as u32;
                let known = owners.iter().zip(first..).filter(|(o, _)| o.subpage < self.geometry.subpages);
                self.todo.extend(known.map(|(owner, place)| (owner.subpage, place)));
            }
            _ => {
                self.walk(state);
            }
        }
    }
    /// An unwritten copy is retried at another place, unless that has failed too often.
    pub fn again(&mut self, subpage: u32, from: u32) {
        if self.repeated < REPEATED_MAX {
            self.repeated += 1;
            self.todo.push_front((subpage, from));
        }
    }
    /// A page of the summary cannot be read.
    pub fn unreadable(&mut self, state: &State) {
        self.walk(state);
    }
    /// Finds the owners in the page table. Returns false when that was done before.
    pub fn walk(&mut self, state: &State) -> bool {
        if std::mem::replace(&mut self.walked, true) {
            return false;
        }
        self.todo.clear();
        // What is out has no subpages.
        for page in (0..self.geometry.pages()).filter(|page| !state.is_out(*page)) {
            for h in state.versions_of(page).iter().flat_map(Version::held) {
                let subpage = page * N + h.subpage;
                if self.geometry.extent_of(h.place) == self.extent && !self.under_way.contains(&(subpage, h.place)) {
                    self.todo.push_back((subpage, h.place));
                }
            }
        }
        true
    }
    /// The next live subpage to copy, and its flash page. It stays the next until
    /// [`Reclaim::begun`].
    pub fn next_copy(&mut self, state: &State, heat: &Heat, need: Need) -> Option<(u32, u32)> {
        if self.copying >= need.depth() {
            return None;
        }
        while let Some((subpage, place)) = self.todo.front().copied() {
            if let Some((later, _)) = self.todo.get(AHEAD) {
                state.prefetch(*later);
                heat.counter_byte(*later).into_iter().for_each(|counter| prefetch(std::ptr::from_ref(counter)));
            }
            if state.is_live(subpage / N, Held { subpage: subpage % N, place }) {
                return Some((subpage, place));
            }
            self.todo.pop_front();
        }
        None
    }
    /// The copy of the next flash page has begun.
    pub fn begun(&mut self) {
        self.under_way.extend(self.todo.pop_front());
        self.copying += 1;
        self.without_room = false;
    }
    /// The next copy has found no room, and is tried again later.
    pub fn found_no_room(&mut self) {
        self.without_room = true;
    }
    /// Whether copies are under way.
    pub fn is_copying(&self) -> bool {
        self.copying > 0
    }
    /// Whether it goes on by itself: a request of its own ends, or there is room for the next.
    pub fn is_moving(&self) -> bool {
        !self.without_room || self.copying > 0
    }
    /// A copy has ended. Returns whose it was.
    pub fn copied(&mut self, from: u32) -> Option<u32> {
        let at = self.under_way.iter().position(|(_, place)| *place == from)?;
        self.copying -= 1;
        Some(self.under_way.swap_remove(at).0)
    }
    /// Whether all has been read and copied.
    pub fn is_over(&self) -> bool {
        let all_read = self.walked || (self.asked == self.summary_pages() && self.read == self.asked);
        all_read && self.todo.is_empty() && self.copying == 0
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_format::{Checksums, FlashPage, Record, Status, zero_page};

    use super::*;
    use crate::state::Unseen;
    use crate::store::summary_page;

    const G: Geometry = Geometry { extent_pages: 8, extents: 40, subpages: 64, objects: false };
    const POOL: PoolId = PoolId([7; 16]);

    /// A state in which these subpages are stored at these flash pages.
    fn state(places: &[(u32, u32)]) -> State {
        let mut state = State::new(G, u32::MAX);
        for (subpage, place) in places {
            let (page, subpage) = (subpage / N, subpage % N);
            let mut checksums = Checksums::EMPTY;
            checksums.push(1);
            let start = FlashPage(u64::from(place - subpage));
            let status = Status::ALLOCATED;
            state.apply(&Record::Write { page, start, valid: 1 << subpage, status, checksums }, &Unseen).unwrap();
        }
        state
    }
    fn owners(subpages: &[u32]) -> Vec<Owner> {
        subpages.iter().map(|subpage| Owner { subpage: *subpage, checksum: 1 }).collect()
    }
    /// All that is to be copied, each begun and ended.
    fn copied(reclaim: &mut Reclaim, state: &State) -> Vec<(u32, u32)> {
        let heat = Heat::new(G.subpages);
        let next = std::iter::from_fn(|| {
            let (subpage, place) = reclaim.next_copy(state, &heat, Need::Ahead)?;
            reclaim.begun();
            assert_eq!(reclaim.copied(place), Some(subpage));
            Some((subpage, place))
        });
        next.collect()
    }

    #[test]
    fn what_is_live_by_the_summary_is_copied() {
        let state = state(&[(0, 40), (17, 42), (3, 50), (20, 44)]);
        let mut reclaim = Reclaim::new(5, G);
        assert_eq!((reclaim.next_read(), reclaim.next_read(), reclaim.is_over()), (Some(47), None, false));
        // Subpage 3 has moved by now, 20 is at another place, and one is not in the pool.
        let page = summary_page(POOL, 47, 0, 1, &owners(&[0, 3, 17, Owner::NOBODY, 20, G.subpages, 20]));
        reclaim.read(&page, POOL, &state);
        assert!(!reclaim.is_over() && !reclaim.is_copying() && reclaim.is_moving());
        assert_eq!(copied(&mut reclaim, &state), [(0, 40), (17, 42), (20, 44)]);
        assert!(reclaim.is_over() && reclaim.extent() == 5);
        assert_eq!(reclaim.copied(40), None);
    }
    /// Each page of a summary is about the flash pages that its number says.
    #[test]
    fn a_summary_of_several_pages_is_believed_page_by_page() {
        let wide = Geometry { extent_pages: 1024, extents: 6, ..G };
        let mut state = State::new(wide, u32::MAX);
        let (first, summary) = (5 * 1024, 5 * 1024 + wide.data_pages());
        let places = [(1, first + 3), (17, first + 504), (20, first + 1010)];
        for (subpage, place) in places {
            let mut checksums = Checksums::EMPTY;
            checksums.push(1);
            let (page, start) = (subpage / N, FlashPage(u64::from(place - subpage % N)));
            let (valid, status) = (1 << (subpage % N), Status::ALLOCATED);
            state.apply(&Record::Write { page, start, valid, status, checksums }, &Unseen).unwrap();
        }
        let mut reclaim = Reclaim::new(5, wide);
        for index in 0..3 {
            assert_eq!(reclaim.next_read(), Some(summary + index));
            let mut names = vec![Owner::NONE; 504];
            for (subpage, place) in places.into_iter().filter(|(_, place)| (place - first) / 504 == index) {
                names[((place - first) % 504) as usize] = Owner { subpage, checksum: 1 };
            }
            reclaim.read(&summary_page(POOL, summary + index, index, 1, &names), POOL, &state);
            assert!(!reclaim.walked, "page {index} is one of it");
        }
        assert_eq!((reclaim.next_read(), copied(&mut reclaim, &state)), (None, places.to_vec()));
        assert!(reclaim.is_over());
    }
    #[test]
    fn what_is_no_summary_of_the_extent_is_not_believed() {
        let state = state(&[(0, 40), (17, 42), (3, 50)]);
        let right = summary_page(POOL, 47, 0, 1, &owners(&[0]));
        let other_kind = fulgurite_format::Header::new(Kind::Journal, POOL, 47);
        for (page, found) in [
            (right, vec![(0, 40)]),
            (zero_page(), vec![(0, 40), (17, 42)]),
            (summary_page(PoolId([8; 16]), 47, 0, 1, &owners(&[0])), vec![(0, 40), (17, 42)]),
            (summary_page(POOL, 46, 0, 1, &owners(&[0])), vec![(0, 40), (17, 42)]),
            (summary_page(POOL, 47, 1, 1, &owners(&[0])), vec![(0, 40), (17, 42)]),
            (other_kind.page(&[0; 8]).0, vec![(0, 40), (17, 42)]),
        ] {
            let mut reclaim = Reclaim::new(5, G);
            reclaim.next_read();
            reclaim.read(&page, POOL, &state);
            assert_eq!(copied(&mut reclaim, &state), found);
            assert!(reclaim.is_over());
        }
    }
    #[test]
    fn a_walk_leaves_out_what_is_under_way_and_reads_no_more() {
        let state = state(&[(0, 40), (17, 42), (3, 48)]);
        let heat = Heat::new(G.subpages);
        let mut reclaim = Reclaim::new(5, G);
        reclaim.todo.push_back((0, 40));
        assert_eq!(reclaim.next_copy(&state, &heat, Need::Now), Some((0, 40)));
        reclaim.begun();
        reclaim.unreadable(&state);
        assert_eq!((reclaim.next_read(), reclaim.walk(&state)), (None, false));
        assert_eq!(reclaim.next_copy(&state, &heat, Need::Now), Some((17, 42)));
        reclaim.begun();
        assert_eq!(reclaim.next_copy(&state, &heat, Need::Now), None);
        assert!(!reclaim.is_over() && reclaim.is_copying());
        reclaim.found_no_room();
        assert!(reclaim.is_moving());
        assert_eq!((reclaim.copied(42), reclaim.copied(40)), (Some(17), Some(0)));
        assert!(reclaim.is_over() && !reclaim.is_copying() && !reclaim.is_moving());
    }
    #[test]
    fn more_is_copied_at_a_time_the_more_it_is_needed() {
        let state = state(&[(0, 40)]);
        let heat = Heat::new(G.subpages);
        for (need, most) in [(Need::Ahead, 16), (Need::Soon, 48), (Need::Now, 112)] {
            let mut reclaim = Reclaim::new(5, G);
            reclaim.todo.extend([(0, 40); 200]);
            let begun = (0..200).take_while(|_| {
                let next = reclaim.next_copy(&state, &heat, need).is_some();
                if next {
                    reclaim.begun();
                }
                next
            });
            assert_eq!(begun.count(), most, "{need:?}");
        }
    }
    #[test]
    fn a_copy_that_cannot_be_written_is_tried_so_often() {
        let mut reclaim = Reclaim::new(5, G);
        (0..20).for_each(|_| reclaim.again(0, 40));
        assert_eq!(reclaim.todo.len(), 16);
        reclaim.found_no_room();
        assert!(!reclaim.is_moving());
        reclaim.begun();
        assert!(reclaim.is_moving() && !reclaim.without_room);
    }
}
