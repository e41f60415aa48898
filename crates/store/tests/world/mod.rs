//! A pool over flash that forgets: what was not flushed may be there, or not, or in part, when it
//! is opened again. With it, a model that knows what must be there.

#![allow(dead_code, reason = "each test uses a part")]

pub mod attacks;
pub mod crafted;
pub mod images;
pub mod objects;
pub use fulgurite_testkit as trials;
pub use fulgurite_testkit::Random;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use fulgurite_flash::FlashError;
use fulgurite_format::{Header, Kind, PageBuffer, PoolId, SUBPAGE_BYTES, Status, crc32c, zero_page};
use fulgurite_store::{
    Durability, Find, Geometry, Io, IoId, Outcome, ReadPages, RecoverError, Store, StoreConfig, WriteError, recover,
};

pub const POOL: PoolId = PoolId(*b"a pool for tests");

/// What a flash page holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    Metadata(Rc<PageBuffer>),
    /// A program's data, by its number: its bytes are made of that.
    Data(u64),
    /// Part of one, part of another: neither.
    Torn,
}

/// The bytes of a program's data.
pub fn bytes_of(number: u64) -> PageBuffer {
    let mut page = zero_page();
    for (i, chunk) in page.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(i as u64).to_le_bytes());
    }
    page
}
/// The checksum of a program's data.
pub fn checksum_of(number: u64) -> u32 {
    thread_local! {
        static KNOWN: RefCell<HashMap<u64, u32>> = RefCell::default();
    }
    // Each of many images asks for the same numbers.
    KNOWN.with_borrow_mut(|known| *known.entry(number).or_insert_with(|| crc32c(&bytes_of(number)[..])))
}

/// Flash with a volatile cache.
#[derive(Clone, Debug, Default)]
pub struct ForgetfulFlash {
    durable: HashMap<u32, Content>,
    /// Written since the last flush, in order.
    cached: Vec<(u32, Content)>,
    pub pages: u32,
    /// Planted: flushes do nothing.
    pub lies: bool,
    /// Places that cannot be read.
    pub unreadable: Vec<u32>,
    /// Nothing can be read, for this reason.
    pub reads_fail: Option<FlashError>,
    /// Places that cannot be written.
    pub worn: BTreeSet<u32>,
    /// What has happened, to be examined later.
    pub log: Option<Vec<images::Event>>,
}

impl ForgetfulFlash {
    pub fn write(&mut self, place: u32, content: Content) {
        assert!(place < self.pages, "a write behind the end of the flash: {place}");
        if let Some(log) = &mut self.log {
            log.push(images::Event::Write(place, content.clone()));
        }
        self.cached.push((place, content));
    }
    pub fn content(&self, place: u32) -> Option<&Content> {
        self.cached.iter().rev().find(|(p, _)| *p == place).map(|(_, c)| c).or_else(|| self.durable.get(&place))
    }
    pub fn flush(&mut self) {
        if let Some(log) = &mut self.log {
            log.push(images::Event::Flush);
        }
        if !self.lies {
            self.durable.extend(self.cached.drain(..));
        }
    }
    /// The power fails: of what was not flushed, a random part is there, some of it torn.
    pub fn crash(&mut self, random: &mut Random) {
        let all = random.below(8);
        for (place, content) in std::mem::take(&mut self.cached) {
            let fate = if all == 0 {
                0
            } else if all == 1 {
                1
            } else {
                random.below(4)
            };
            match fate {
                0 => {}
                3 if random.one_in(2) => {
                    let torn = match (content, self.durable.get(&place)) {
                        (Content::Metadata(new), old) => {
                            // A multiple of 512 bytes of the new, the rest as before.
                            let mut page = match old {
                                Some(Content::Metadata(old)) => PageBuffer::clone(old),
                                _ => zero_page(),
                            };
                            let cut = 512 * (1 + random.below(7) as usize);
                            if random.one_in(2) {
                                page[..cut].copy_from_slice(&new[..cut]);
                            } else {
                                page[cut..].copy_from_slice(&new[cut..]);
                            }
                            Content::Metadata(Rc::new(page))
                        }
                        (Content::Data(_) | Content::Torn, _) => Content::Torn,
                    };
                    self.durable.insert(place, torn);
                }
                _ => {
                    self.durable.insert(place, content);
                }
            }
        }
    }
    /// The power fails: of each page on its way all has arrived, nothing, or some of its sectors of
    /// 512 bytes.
    pub fn crash_in_sectors(&mut self, random: &mut Random) {
        for (place, content) in std::mem::take(&mut self.cached) {
            match (random.below(4), content) {
                (0, _) => {}
                (1, content) => {
                    self.durable.insert(place, content);
                }
                (_, Content::Metadata(new)) => {
                    let mut page = match self.durable.get(&place) {
                        Some(Content::Metadata(old)) => PageBuffer::clone(old),
                        _ => zero_page(),
                    };
                    for (old, new) in page.chunks_exact_mut(512).zip(new.chunks_exact(512)) {
                        if random.one_in(2) {
                            old.copy_from_slice(new);
                        }
                    }
                    self.durable.insert(place, Content::Metadata(Rc::new(page)));
                }
                (_, Content::Data(_) | Content::Torn) => {
                    self.durable.insert(place, Content::Torn);
                }
            }
        }
    }
    /// The newest page of metadata on its way arrives in part: its first half. All else that is on
    /// its way does not arrive.
    pub fn tear_newest_metadata(&mut self) -> Option<u32> {
        let (place, content) = self.cached.iter().rev().find(|(_, c)| matches!(c, Content::Metadata(_)))?.clone();
        let Content::Metadata(new) = content else { return None };
        let mut page = zero_page();
        page[..2048].copy_from_slice(&new[..2048]);
        page[4000] ^= 1;
        self.cached.clear();
        self.durable.insert(place, Content::Metadata(Rc::new(page)));
        Some(place)
    }
    pub fn flip(&mut self, place: u32, bit: usize) -> bool {
        match self.durable.get_mut(&place) {
            Some(Content::Metadata(page)) => Rc::make_mut(page)[bit / 8] ^= 1 << (bit % 8),
            Some(data) => *data = Content::Torn,
            None => return false,
        }
        true
    }
    pub fn places(&self) -> Vec<u32> {
        let mut places: Vec<u32> = self.durable.keys().copied().collect();
        places.sort_unstable();
        places
    }
}

impl ReadPages for ForgetfulFlash {
    fn read(&mut self, place: u32, _: u32) -> Result<PageBuffer, FlashError> {
        if let Some(error) = self.reads_fail {
            return Err(error);
        }
        if self.unreadable.contains(&place) {
            return Err(FlashError::Io(5));
        }
        Ok(match self.content(place) {
            Some(Content::Metadata(page)) => PageBuffer::clone(page),
            Some(Content::Data(number)) => bytes_of(*number),
            Some(Content::Torn) | None => zero_page(),
        })
    }
    fn flash_pages(&self) -> u32 {
        self.pages
    }
}

/// Content of all subpages that were written, by number.
pub type Contents = BTreeMap<u32, u64>;

/// A pool, its flash, and what must be in it.
#[derive(Debug)]
pub struct World {
    pub store: Store,
    pub flash: ForgetfulFlash,
    pub random: Random,
    pub config: StoreConfig,
    /// Content now.
    pub now: Contents,
    /// Content of each token that was made, by token.
    pub tokens: BTreeMap<u64, Contents>,
    /// Requests that were taken and have not ended.
    pending: Vec<(IoId, Io)>,
    next_number: u64,
    pub full: u64,
    /// Writes that were refused for another reason than space.
    pub refused: u64,
    /// The request of the store, counted from 0, that fails.
    pub fails: Option<Failing>,
    /// What failed.
    pub failed: Vec<Failed>,
    /// Where writes failed.
    pub failed_at: Vec<u32>,
    pub requests: u64,
    /// How many of these were flushes.
    pub flushes: u64,
    /// A clock of this world's own, a millisecond for each request that is executed.
    now_ms: u64,
    /// Requests that are late, and when they end.
    late: Vec<(u64, IoId, Io)>,
    /// Batches of objects that are under way.
    outstanding: Vec<objects::Outstanding>,
}

/// Which request fails, and how.
#[derive(Clone, Copy, Debug)]
pub struct Failing {
    pub from: u64,
    pub until: u64,
    pub trouble: Trouble,
    pub only_flushes: bool,
}
/// What happens to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// It fails with this error.
    Fails(FlashError),
    /// It ends this much later than it would, by the world's clock: others overtake it until
    /// nothing is left that could.
    Late { ms: u64 },
}
/// What failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    Flush,
    Read,
    Copy,
    Write(Option<Kind>),
}

/// A tiny pool: extents of 8 flash pages.
pub fn tiny(subpages: u32) -> Geometry {
    let pages = (1..).map(|n| n * 8).find(|pages| Geometry::new(*pages, 8, Some(subpages)).is_ok());
    Geometry::new(pages.unwrap(), 8, Some(subpages)).unwrap()
}

pub fn quick_checkpoints() -> StoreConfig {
    let mut config = StoreConfig::default();
    config.checkpoint_after = 6;
    config.commit_after = 4;
    config
}

impl World {
    pub fn new(geometry: Geometry, config: StoreConfig, seed: u64) -> World {
        let mut flash = ForgetfulFlash { pages: geometry.flash_pages(), ..ForgetfulFlash::default() };
        for (place, page) in Store::format(geometry, POOL, 0) {
            flash.write(place, Content::Metadata(Rc::new(page)));
            flash.flush();
        }
        World::on(flash, config, seed)
    }
    /// A pool that was just made.
    pub fn on(mut flash: ForgetfulFlash, config: StoreConfig, seed: u64) -> World {
        let (store, _) = recover(&mut flash, config).unwrap();
        World {
            store,
            flash,
            random: Random(seed),
            config,
            now: Contents::new(),
            tokens: BTreeMap::from([(0, Contents::new())]),
            pending: Vec::new(),
            next_number: 1,
            full: 0,
            refused: 0,
            fails: None,
            failed: Vec::new(),
            failed_at: Vec::new(),
            requests: 0,
            flushes: 0,
            now_ms: 0,
            late: Vec::new(),
            outstanding: Vec::new(),
        }
    }
    /// Subpages written so far.
    pub fn written(&self) -> u64 {
        self.next_number - 1
    }
    /// Writes `count` different random subpages, in one batch; what finds no room in spite of all
    /// turns is not written.
    pub fn write(&mut self, count: u32) {
        let subpages = self.store.geometry().subpages;
        let mut batch: Vec<u32> = (0..count).map(|_| self.random.below(subpages)).collect();
        batch.sort_unstable();
        batch.dedup();
        self.write_these(&batch);
    }
    pub fn write_these(&mut self, batch: &[u32]) {
        let mut waiting = batch.to_vec();
        let mut turns = 0;
        while !waiting.is_empty() {
            let rest = &waiting[..];
            let mut places = Vec::new();
            match self.store.place(rest, &mut places) {
                Err(WriteError::NoSpace { .. }) => {
                    self.full += 1;
                    return;
                }
                Err(_) => {
                    self.refused += 1;
                    return;
                }
                Ok(()) => {}
            }
            let mut writes = Vec::new();
            let mut again = Vec::new();
            for (subpage, place) in rest.iter().zip(&places) {
                assert!(!self.store.state().wear().contains(*place), "a bad flash page is given out: {place}");
                if self.flash.worn.contains(place) {
                    assert!(self.store.not_written(*place, FlashError::Io(5)), "it is worth another place");
                    again.push(*subpage);
                    continue;
                }
                let number = self.next_number;
                self.next_number += 1;
                self.flash.write(*place, Content::Data(number));
                writes.push((*subpage, *place, checksum_of(number)));
            }
            again.extend(&rest[places.len()..]);
            let numbers = self.next_number - writes.len() as u64..;
            let written: Vec<(u32, u32, u64)> = writes.iter().zip(numbers).map(|(w, n)| (w.0, w.1, n)).collect();
            let ok = self.store.written(&mut writes).is_ok();
            self.refused += u64::from(!ok);
            for (subpage, place, number) in written {
                // What was refused in part is there or not, as the map says.
                if ok || self.store.map().get(subpage).is_some_and(|l| l.place == place) {
                    self.now.insert(subpage, number);
                }
            }
            if !ok {
                return;
            }
            waiting = again;
            if places.is_empty() {
                self.turn();
                turns += 1;
                assert!(turns < 100_000, "writers wait for ever: {:?}", self.store.info());
            }
        }
    }
    /// Executes one request of the store, any of those under way.
    pub fn turn(&mut self) -> bool {
        while self.pending.len() < 8 {
            let Some(io) = self.store.next_io() else { break };
            self.pending.push(io);
        }
        self.now_ms += 1;
        if self.pending.is_empty()
            && let Some(due) = self.late.iter().map(|(due, ..)| *due).min()
        {
            // Nothing happens until then.
            self.now_ms = self.now_ms.max(due);
        }
        let now = self.now_ms;
        let ended: Vec<_> = self.late.extract_if(.., |(due, ..)| *due <= now).collect();
        let any_ended = !ended.is_empty();
        for (_, id, io) in ended {
            let outcome = self.execute(io);
            self.end(id, outcome);
        }
        if self.pending.is_empty() {
            return any_ended;
        }
        let at = self.random.below(self.pending.len() as u32) as usize;
        let (id, io) = self.pending.swap_remove(at);
        let outcome = match self.failure(&io) {
            Some(Trouble::Late { ms }) => {
                self.late.push((now + ms, id, io));
                return true;
            }
            Some(Trouble::Fails(error)) => {
                // It may have been done all the same, or in part.
                match (self.random.below(4), io) {
                    (_, Io::Flush) => {}
                    (0 | 1, io) => {
                        self.execute(io);
                    }
                    (2, Io::Write { place, page }) => {
                        let mut torn = zero_page();
                        torn[..2048].copy_from_slice(&page[..2048]);
                        torn[4095] ^= 1;
                        self.flash.write(place, Content::Metadata(Rc::new(torn)));
                    }
                    _ => {}
                }
                Outcome::Failed(error)
            }
            None => self.execute(io),
        };
        self.end(id, outcome);
        true
    }
    fn end(&mut self, id: IoId, outcome: Outcome) {
        self.store.done(id, outcome);
        self.note_objects();
        self.note_acknowledged();
    }
    fn failure(&mut self, io: &Io) -> Option<Trouble> {
        let failing = self.fails?;
        self.flushes += u64::from(*io == Io::Flush);
        if failing.only_flushes && *io != Io::Flush {
            return None;
        }
        let request = self.requests;
        self.requests += 1;
        if !(failing.from..failing.until).contains(&request) {
            return None;
        }
        if let Io::Write { place, .. } = io {
            self.failed_at.push(*place);
        }
        self.failed.push(match io {
            Io::Flush => Failed::Flush,
            Io::Read { .. } => Failed::Read,
            Io::Copy { .. } => Failed::Copy,
            Io::Write { page, .. } => Failed::Write(Header::open(page).ok().map(|(h, ..)| h.kind)),
        });
        Some(failing.trouble)
    }
    fn note_acknowledged(&mut self) {
        let token = self.store.durable_token();
        if let Some(log) = &mut self.flash.log {
            log.push(images::Event::Acknowledged(token));
        }
    }
    fn execute(&mut self, io: Io) -> Outcome {
        match io {
            Io::Write { place, .. } if self.flash.worn.contains(&place) => Outcome::Failed(FlashError::Io(5)),
            Io::Write { place, page } => {
                self.flash.write(place, Content::Metadata(Rc::new(page)));
                Outcome::Done
            }
            Io::Read { place } => match self.flash.read(place, 0) {
                Ok(page) => Outcome::Read(page),
                Err(e) => Outcome::Failed(e),
            },
            Io::Copy { from, .. } if self.flash.unreadable.contains(&from) => Outcome::Failed(FlashError::Io(5)),
            Io::Copy { to, .. } if self.flash.worn.contains(&to) => Outcome::NotWritten(FlashError::Io(5)),
            Io::Copy { from, to } => {
                let content = self.flash.content(from).cloned().unwrap_or(Content::Torn);
                let checksum = if let Content::Data(number) = content { checksum_of(number) } else { 0 };
                self.flash.write(to, content);
                Outcome::Copied(checksum)
            }
            Io::Flush => {
                self.flash.flush();
                Outcome::Done
            }
        }
    }
    /// Until nothing is under way.
    pub fn settle(&mut self) {
        let mut turns = 0;
        while self.turn() || !self.store.is_quiet() {
            turns += 1;
            assert!(turns < 1_000_000, "it never comes to rest: {:?}", self.store.info());
        }
    }
    /// Names the state; it holds once the store says so.
    pub fn sync(&mut self) -> u64 {
        self.try_sync().unwrap()
    }
    pub fn try_sync(&mut self) -> Result<u64, WriteError> {
        self.note_objects();
        let token = self.store.sync()?;
        self.tokens.insert(token, self.now.clone());
        if let Some(log) = &mut self.flash.log {
            log.push(images::Event::Token(token, Rc::new(self.now.clone())));
        }
        Ok(token)
    }
    /// A page is deleted.
    pub fn delete(&mut self, page: u32) {
        while !self.store.hold_leaves(&[page]).unwrap() {
            self.turn();
        }
        if self.store.set_status(page, Status::DELETED).is_ok() {
            let n = fulgurite_store::SUBPAGES_PER_PAGE;
            self.now.retain(|subpage, _| subpage / n != page);
        } else {
            self.refused += 1;
        }
    }
    pub fn roll_back(&mut self, token: u64) {
        assert!(self.store.roll_back(token).unwrap());
        self.now = self.tokens[&token].clone();
        self.note_acknowledged();
        // Until it is durable, a crash may bring back what was before it.
        if self.random.one_in(2) {
            self.settle();
            if self.store.poisoned().is_some() {
                return;
            }
            self.tokens.retain(|t, _| *t <= token);
            if let Some(log) = &mut self.flash.log {
                log.push(images::Event::OnlyUpTo(token));
            }
        }
    }
    /// Checks everything.
    pub fn check(&self) {
        let wrong = self.store.state().audit();
        assert!(wrong.is_empty(), "{wrong:#?}");
        let map = self.store.map();
        for subpage in 0..self.store.geometry().subpages {
            let expected = self.now.get(&subpage);
            let found = match map.find(subpage) {
                Find::At(located) => Some(located),
                Find::Nowhere => None,
                Find::Out => {
                    self.check_out(subpage, expected.copied());
                    continue;
                }
            };
            assert_eq!(found.is_some(), expected.is_some(), "subpage {subpage}");
            if let (Some(found), Some(number)) = (found, expected) {
                if objects::is_object(*number) {
                    let page = |place| self.flash.content(place).cloned();
                    assert_eq!(objects::compare(&self.store, page, found, *number), Ok(true), "subpage {subpage}");
                    continue;
                }
                assert_eq!(
                    self.flash.content(found.place),
                    Some(&Content::Data(*number)),
                    "subpage {subpage}: {found:?}"
                );
                assert_eq!(found.checksum, checksum_of(*number), "subpage {subpage}");
            }
        }
    }
    /// Checks what is on flash alone: that it is what the model has.
    fn check_out(&self, subpage: u32, expected: Option<u64>) {
        let state = self.store.state();
        let piece = state.piece_of(subpage / 16).expect("what is out is in a piece");
        let Some(Content::Metadata(page)) = self.flash.content(piece.place) else { panic!("{piece:?} is not there") };
        let leaves = piece.open(POOL, page).expect("it is what was written");
        let (_, leaf) = leaves.iter().find(|(of, _)| *of == subpage / 16).expect("it has the page");
        let found = leaf.iter().find(|(s, ..)| *s == subpage % 16);
        assert_eq!(found.is_some(), expected.is_some(), "subpage {subpage}");
        if let (Some((_, at, checksum)), Some(number)) = (found, expected) {
            let bytes = objects::object_bytes(number);
            assert_eq!(usize::from(at.length), bytes.len(), "subpage {subpage}");
            assert!(bytes.is_empty() || *checksum == crc32c(&bytes), "subpage {subpage}");
            let content = self.flash.content(at.flash_page);
            let is_it = matches!(content, Some(Content::Metadata(page)) if page[at.range()] == bytes[..]);
            assert!(bytes.is_empty() || is_it, "subpage {subpage}");
        }
    }
    /// The power fails, and the pool is opened again. Returns the token that it came back to.
    pub fn crash(&mut self) -> Result<u64, RecoverError> {
        let acknowledged = self.store.durable_token();
        self.flash.crash(&mut self.random);
        self.pending.clear();
        self.late.clear();
        self.outstanding.clear();
        let (store, report) = recover(&mut self.flash, self.config)?;
        self.store = store;
        if self.config.durability == Durability::Sync {
            assert!(report.token >= acknowledged, "token {acknowledged} was promised, {} came back", report.token);
        }
        let Some(contents) = self.tokens.get(&report.token) else { panic!("token {} was never made", report.token) };
        self.now = contents.clone();
        self.tokens.retain(|t, _| *t <= report.token);
        Ok(report.token)
    }
}

const _: () = assert!(SUBPAGE_BYTES == 4096);
