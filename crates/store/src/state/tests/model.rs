//! Goal: whatever is written, deleted, moved, named, dropped and rolled back, programs see their
//! writes, and each kept token its state. Live is exactly what these can ask for, also through a
//! checkpoint. Method: random records, applied to the state and to a model that copies everything
//! at each token, compared after each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use fulgurite_format::{ObjectLocation, ObjectMoved, ObjectWritten, ObjectsMoved, ObjectsWritten};

use super::*;

use fulgurite_testkit as trials;
use trials::{Random, each_seed};

/// Extents below hold whole subpages, the others objects.
const FIRST_OF_OBJECTS: u32 = 28;

/// Where a content is stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum At {
    Page(u32),
    Object { flash_page: u32, offset: u16, length: u16 },
}
impl At {
    fn of(place: ObjectLocation) -> At {
        let ObjectLocation { flash_page, offset, length } = place;
        At::Object { flash_page, offset, length }
    }
    fn extent(self) -> Option<u32> {
        match self {
            At::Page(place) => Some(G.extent_of(place)),
            At::Object { length: 0, .. } => None,
            At::Object { flash_page, .. } => Some(G.extent_of(flash_page)),
        }
    }
}

/// What programs or a token see: contents by subpage, each by its number, and what pages there are.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct View {
    contents: BTreeMap<u32, u32>,
    status: BTreeMap<u32, Status>,
}

struct Model {
    state: State,
    random: Random,
    now: View,
    tokens: BTreeMap<u64, View>,
    /// Where each content is stored that any token or program sees.
    at: BTreeMap<u32, At>,
    next: u32,
}

impl Model {
    fn new(geometry: Geometry, seed: u64) -> Model {
        let mut state = State::new(geometry, u32::MAX);
        if seed.is_multiple_of(3) {
            state.count_chains();
        }
        let (now, tokens, at) = (View::default(), BTreeMap::new(), BTreeMap::new());
        Model { state, random: Random(seed), now, tokens, at, next: 1 }
    }
    fn below(&mut self, n: u32) -> u32 {
        self.random.below(n)
    }
    fn has_objects(&self) -> bool {
        self.state.geometry().objects
    }
    /// The extents of whole subpages.
    fn of_subpages(&self) -> Range<u32> {
        3..if self.has_objects() { FIRST_OF_OBJECTS } else { G.extents }
    }
    /// The contents that programs or a token see.
    fn needed(&self) -> BTreeSet<u32> {
        self.tokens.values().chain([&self.now]).flat_map(|view| view.contents.values().copied()).collect()
    }
    fn live(&self) -> BTreeMap<u32, u32> {
        let mut live = BTreeMap::new();
        self.at.values().filter_map(|at| at.extent()).for_each(|extent| *live.entry(extent).or_default() += 1);
        live
    }
    /// Flash pages that hold nothing, ascending.
    fn free(&self, extents: Range<u32>) -> Vec<u32> {
        let page = |at: &At| match *at {
            At::Page(place) => place,
            At::Object { flash_page, .. } => flash_page,
        };
        let taken: BTreeSet<u32> = self.at.values().map(page).collect();
        (extents.start * 8..extents.end * 8).filter(|place| place % 8 < 7 && !taken.contains(place)).collect()
    }
    /// Applies a record that was made, and checks what extents have lost by it.
    fn apply(&mut self, record: &Record) {
        let before = self.live();
        self.state.apply(record, &Unseen).unwrap();
        let needed = self.needed();
        self.at.retain(|content, _| needed.contains(content));
        let after = self.live();
        let emptied: BTreeSet<u32> = before.into_keys().filter(|extent| !after.contains_key(extent)).collect();
        assert_eq!(self.state.take_emptied().into_iter().collect::<BTreeSet<u32>>(), emptied, "{record:?}");
    }

    /// Some subpages of a page, side by side, at their distance or scattered.
    fn write(&mut self) {
        // In a pool that also has objects, there are fewer flash pages for whole subpages.
        let page = self.below(if self.has_objects() { G.pages() / 2 } else { G.pages() });
        let which = match self.below(3) {
            0 => 1 << self.below(N),
            1 => self.below(1 << N).max(1),
            _ => (1 << N) - 1,
        };
        let subpages: Vec<u32> = bits(which).collect();
        let free = self.free(self.of_subpages());
        let mut places: Vec<u32> = match self.below(3) {
            0 => {
                let at = self.below((free.len() - subpages.len()) as u32) as usize;
                free[at..][..subpages.len()].to_vec()
            }
            1 => {
                let start = free[self.below(free.len() as u32 - 16) as usize];
                subpages.iter().map(|subpage| start + subpage).filter(|place| free.contains(place)).collect()
            }
            _ => Vec::new(),
        };
        if places.len() < subpages.len() {
            let mut all = free;
            places = subpages.iter().map(|_| all.swap_remove(self.random.below(all.len() as u64) as usize)).collect();
        }
        let held: Vec<Held> = subpages.iter().zip(&places).map(|(s, p)| Held { subpage: *s, place: *p }).collect();
        let status = self.now.status.get(&page).copied();
        let status = status.unwrap_or(Status::ALLOCATED.with(Status::READ).with(Status::PERMANENT));
        let mut entries = Vec::new();
        entries_of(&held, self.state.next_token() as u32, status, &mut entries);
        for entry in entries {
            let mut checksums = Checksums::EMPTY;
            for h in super::held(entry) {
                checksums.push(self.next);
                self.now.contents.insert(page * N + h.subpage, self.next);
                self.at.insert(self.next, At::Page(h.place));
                self.next += 1;
            }
            self.now.status.insert(page, status);
            let (start, valid, status) = (entry.start(), entry.valid(), entry.status());
            self.apply(&Record::Write { page, start, valid, status, checksums });
        }
    }
    /// A flash page of objects, some of which may be freed.
    fn write_objects(&mut self) {
        let Some(flash_page) = self.free(FIRST_OF_OBJECTS..G.extents).first().copied() else { return };
        let free = self.random.one_in(5);
        // The pages have one status.
        let status = Status::ALLOCATED.with(Status::WRITE);
        let mut record = ObjectsWritten::new(if free { 0 } else { flash_page }, status);
        let mut subpages: BTreeSet<u32> = BTreeSet::new();
        (0..1 + self.below(6)).for_each(|_| _ = subpages.insert(self.below(G.subpages)));
        let mut offset = 0;
        for subpage in subpages {
            let page = subpage / N;
            if self.now.status.get(&page).is_some_and(|there| *there != status) {
                continue;
            }
            let length = if free { 0 } else { 1 + self.below(600) as u16 };
            let checksum = if free { 0 } else { self.next };
            let object = ObjectWritten { subpage, length, offset: if free { 0 } else { offset }, checksum };
            record.push(object);
            self.now.contents.insert(subpage, self.next);
            self.now.status.insert(page, status);
            self.at.insert(self.next, At::of(record.location(&object)));
            self.next += 1;
            offset += length.next_multiple_of(16);
        }
        if !record.as_slice().is_empty() {
            assert!(self.state.may_write(&record), "{record:?}");
            self.apply(&Record::Objects(record));
        }
    }
    /// Any content that is seen moves elsewhere, in flash or in its flash page.
    fn move_one(&mut self) {
        if self.at.is_empty() {
            return;
        }
        let nth = self.random.below(self.at.len() as u64) as usize;
        let (content, at) = self.at.iter().nth(nth).map(|(content, at)| (*content, *at)).unwrap();
        let views = self.tokens.values().chain([&self.now]);
        let subpage = views.flat_map(|v| &v.contents).find(|(_, c)| **c == content).map(|(subpage, _)| *subpage);
        let subpage = subpage.unwrap();
        match at {
            At::Page(from) => {
                let free = self.free(self.of_subpages());
                let to = free[self.below(free.len() as u32) as usize];
                let (page, subpages) = (subpage / N, 1 << (subpage % N));
                let record = Record::Move { page, subpages, from: FlashPage(from.into()), to: FlashPage(to.into()) };
                self.moved(content, At::Page(to), &record);
            }
            At::Object { length: 0, .. } => {}
            At::Object { flash_page: from, offset: from_offset, length } => {
                let Some(to) = self.free(FIRST_OF_OBJECTS..G.extents).last().copied() else { return };
                let offset = 16 * self.below(1 + (4096 - u32::from(length)) / 16) as u16;
                let mut record = ObjectsMoved::new(to);
                record.push(ObjectMoved { subpage, from, from_offset, offset });
                assert!(self.state.may_move(&record), "{record:?}");
                let to = At::Object { flash_page: to, offset, length };
                self.moved(content, to, &Record::MoveObjects(record));
            }
        }
    }
    fn moved(&mut self, content: u32, to: At, record: &Record) {
        let before = self.live();
        self.state.apply(record, &Unseen).unwrap();
        self.at.insert(content, to);
        let after = self.live();
        let emptied: BTreeSet<u32> = before.into_keys().filter(|extent| !after.contains_key(extent)).collect();
        assert_eq!(self.state.take_emptied().into_iter().collect::<BTreeSet<u32>>(), emptied, "{record:?}");
    }
    fn set_status(&mut self) {
        let page = self.below(G.pages());
        let status = match self.below(3) {
            0 => Status::ALLOCATED.with(Status::WRITE),
            1 => Status::ALLOCATED.with(Status::READ).with(Status::WRITE).with(Status::PERMANENT),
            _ => Status::DELETED,
        };
        if status == Status::DELETED {
            self.now.contents.retain(|subpage, _| subpage / N != page);
            self.now.status.remove(&page);
        } else {
            self.now.status.insert(page, status);
        }
        self.apply(&Record::Status { page, status });
    }
    fn sync(&mut self) {
        let token = self.state.next_token();
        if self.random.one_in(4) {
            self.restamp(token);
        }
        self.tokens.insert(token, self.now.clone());
        self.apply(&Record::Token { token });
        assert_eq!((self.state.next_token(), self.state.tokens().newest()), (token + 1, Some(token)));
        while self.tokens.len() > 4 {
            self.drop_one();
        }
    }
    fn drop_one(&mut self) {
        if self.tokens.is_empty() {
            return;
        }
        let nth = self.random.below(self.tokens.len() as u64) as usize;
        let token = *self.tokens.keys().nth(nth).unwrap();
        self.tokens.remove(&token);
        self.apply(&Record::Drop { token });
    }
    fn roll_back(&mut self) {
        if self.tokens.is_empty() {
            return;
        }
        let nth = self.random.below(self.tokens.len() as u64) as usize;
        let to = *self.tokens.keys().nth(nth).unwrap();
        self.tokens.retain(|token, _| *token <= to);
        self.now = self.tokens[&to].clone();
        self.apply(&Record::RollBack { token: to });
    }
    /// Versions that are older get the time of a token that sees them, and nothing else changes.
    fn restamp(&mut self, token: u64) {
        self.apply(&Record::Restamp { token });
        for version in (0..G.pages()).flat_map(|page| self.state.versions_of(page)) {
            let named = self.tokens.contains_key(&version.time);
            assert!(named || version.time >= token || version.time == self.state.next_token(), "{token}: {version:?}");
        }
    }
    /// All of it is written to a checkpoint, and read from there.
    fn through_a_checkpoint(&mut self) {
        let mut loaded = State::new(self.state.geometry(), u32::MAX);
        loaded.set_tokens(self.state.next_token(), self.state.tokens().clone());
        for page in 0..G.pages() {
            loaded.load(page, &self.state.history_of(page)).unwrap();
        }
        if self.random.one_in(2) {
            loaded.count_chains();
        }
        self.state = loaded;
    }

    fn check_location(&self, subpage: u32, found: Option<Located>, content: Option<&u32>, what: &str) {
        let Some(content) = content else {
            return assert_eq!(found, None, "{what}: subpage {subpage} was never written");
        };
        let found = found.unwrap_or_else(|| panic!("{what}: subpage {subpage} is not there"));
        let at = self.state.objects().get(found.place).map_or(At::Page(found.place), At::of);
        let checksum = if at == At::of(ObjectLocation::FREED) { 0 } else { *content };
        assert_eq!((at, found.checksum), (self.at[content], checksum), "{what}: subpage {subpage}");
    }
    fn check_page(&self, page: u32) {
        let status = self.state.status(page);
        let there = status.has(Status::ALLOCATED) && !status.has(Status::DELETED);
        assert_eq!(there.then_some(status), self.now.status.get(&page).copied(), "page {page}");
        let views = self.tokens.values().chain([&self.now]);
        let used = views.clone().any(|view| view.status.contains_key(&page));
        assert_eq!(self.state.is_used(page), used, "page {page}");
        // A version for each state that can be asked for, and one that deletes what is below it.
        let versions = self.state.versions_of(page).len();
        assert!(versions <= 2 * (self.tokens.len() + 1), "page {page}: {versions} versions");
        for subpage in page * N..(page + 1) * N {
            let content = self.now.contents.get(&subpage);
            assert_eq!(self.state.is_written(subpage), content.is_some(), "subpage {subpage}");
            self.check_location(subpage, self.state.map().get(subpage), content, "now");
            for (token, view) in &self.tokens {
                let found = self.state.located_at(subpage, *token);
                self.check_location(subpage, found, view.contents.get(&subpage), &format!("token {token}"));
            }
        }
    }
    fn check(&self) {
        (0..G.pages()).for_each(|page| self.check_page(page));
        assert_eq!(self.state.audit(), Vec::<String>::new());
        let visible = self.now.contents.len();
        assert_eq!(self.state.old_count(), self.at.len() - visible, "checksums of what only tokens see");
        let (mut live, mut objects) = (vec![0; G.extents as usize], vec![crate::objects::Needed::default(); 40]);
        for at in self.at.values() {
            match *at {
                At::Page(place) => live[G.extent_of(place) as usize] += 1,
                At::Object { flash_page, offset, length } => {
                    objects[G.extent_of(flash_page) as usize].add(ObjectLocation { flash_page, offset, length });
                }
            }
        }
        for extent in 0..G.extents {
            let (live, needed) = (live[extent as usize], objects[extent as usize]);
            assert_eq!(self.state.objects().needed(extent), needed, "extent {extent}");
            let weighed = live + needed.weight.div_ceil(crate::objects::PAGE_WEIGHT);
            assert_eq!(self.state.weighed(extent), weighed, "extent {extent}");
            assert_eq!(self.state.live(extent), weighed.min(7), "extent {extent}");
            let least = live + needed.units.div_ceil(crate::objects::UNITS_PER_PAGE);
            assert_eq!(self.state.live_at_least(extent), least, "extent {extent}");
        }
        assert_eq!(self.state.live_subpages(), u64::from(live.iter().sum::<u32>()));
        let all = self.at.values().filter(|at| matches!(at, At::Object { .. })).count();
        assert_eq!(self.state.objects().count() as usize, all);
        // Just what is needed is live.
        let views = self.tokens.values().chain([&self.now]);
        let needed: BTreeSet<(u32, At)> =
            views.flat_map(|v| &v.contents).map(|(subpage, content)| (*subpage, self.at[content])).collect();
        for place in (24..320).step_by(3) {
            for subpage in [place % G.subpages, (place * 7) % G.subpages] {
                let live = self.state.is_live(subpage / N, Held { subpage: subpage % N, place });
                assert_eq!(live, needed.contains(&(subpage, At::Page(place))), "subpage {subpage} at {place}");
            }
        }
        for (subpage, at) in needed {
            match at {
                At::Page(place) => assert!(self.state.is_live(subpage / N, Held { subpage: subpage % N, place })),
                At::Object { length: 0, .. } => {}
                At::Object { flash_page, offset, length } => {
                    let (slot, at) = self.state.slot_at(subpage, flash_page, offset).expect("it is needed");
                    assert_eq!((at.length, self.state.objects().get(slot)), (length, Some(at)));
                }
            }
        }
    }
}

fn run(geometry: Geometry, seed: u64) {
    let mut model = Model::new(geometry, seed);
    for step in 0..150 {
        match model.below(20) {
            0..6 => model.write(),
            6..9 if geometry.objects => model.write_objects(),
            6..9 => model.write(),
            9..12 => model.move_one(),
            12..14 => model.set_status(),
            14..17 => model.sync(),
            17 => model.drop_one(),
            18 => model.roll_back(),
            _ => model.through_a_checkpoint(),
        }
        // Objects and tokens may come to need all that there is.
        while model.free(model.of_subpages()).len() < 60 && !model.tokens.is_empty() {
            model.drop_one();
        }
        let page = model.below(G.pages());
        model.check_page(page);
        if step % 8 == 7 {
            model.check();
        }
    }
    model.check();
}

#[test]
fn model_what_is_seen_and_what_is_live() {
    each_seed(0, 40, |seed| run(G, seed));
}
#[test]
fn model_what_is_seen_and_what_is_live_with_objects() {
    each_seed(0, 40, |seed| run(OBJECTS, seed));
}
