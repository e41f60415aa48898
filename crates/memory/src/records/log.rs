//! The log of a map: where records are appended, and what is noted of each.
//!
//! ```text
//! segment: | page | page | page | ..            free            .. | entries 255.. | entries 0.. |
//!            records, from the front                                  what they mean, from the end
//! ```
//!
//! A segment takes records from its front and entries from its end, and is full where they meet.
//! Entries are in DRAM while a segment is filled. A sync writes those that it has by then, so that
//! a named state has the entries of all of its records.
//!
//! Invariants:
//! * Records are appended under the turn of their tail, which may be held across accesses. The lock
//!   around the state is not.
//! * A page has records of one hash at most for each tag. Of copies, and of what may yet be given
//!   up, it has one record at most for each tag.
//! * What fails before a record was noted has changed nothing that counts.

use std::sync::Arc;

use fulgurite_format::{Address, SUBPAGE_BYTES};
use fulgurite_records::{KeyHash, Location, LogPage, Span};
use fulgurite_runtime::AccessError;
use parking_lot::{Mutex, MutexGuard};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::entry::{Entry, Stored};
use super::page::{HEAD, PageHead, ROOM, pages_of};
use super::segments::{Kind, Segment, Segments, address_of, make_list, page_of};
use crate::{ByKind, Heap, Latch, Memory, VersionLatch};

/// Pages of a segment by default: a mebibyte.
pub const SEGMENT_PAGES: u32 = 256;
/// Pages that are read ahead, where the memory does that.
pub const AHEAD: u64 = 32;
/// Segments from which on one is kept in reserve.
const MANY: usize = 4;
/// The fewest.
pub const SEGMENT_PAGES_MIN: u32 = 4;
/// The longest record in a log whose segments have as many pages, in bytes: half of a segment.
pub fn record_bytes_max(segment_pages: u32) -> usize {
    segment_pages as usize / 2 * ROOM
}
/// Pages that are made ready to be overwritten at a time.
const READY: u32 = 32;

const MAGIC: u64 = u64::from_le_bytes(*b"flgentr1");
/// Entries of a page.
const ENTRIES: usize = (SUBPAGE_BYTES - size_of::<EntriesHead>()) / size_of::<Stored>();

/// The head of a page of entries.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct EntriesHead {
    magic: u64,
    segment: u64,
    count: u32,
    zero: u32,
}

/// Which tail is appended to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// What programs put.
    Main,
    /// What a transaction may yet give up: in no page with another record of its tag.
    Unsure,
    /// What reclaim copies.
    Copies,
}

impl Which {
    fn kind(self) -> Kind {
        if self == Which::Copies { Kind::Copies } else { Kind::Main }
    }
}

/// The segment that is being filled.
#[derive(Debug)]
struct Tail {
    /// Pages of a segment.
    pages: u32,
    first: u32,
    number: u64,
    /// The page that takes the next record, and where in it.
    page: u32,
    at: usize,
    /// Where the first record of that page begins.
    page_first: usize,
    /// The hashes of the records that begin in it.
    hashes: Vec<KeyHash>,
    entries: Vec<Stored>,
    /// Entries that are on their pages.
    saved: usize,
    /// Pages below this one are ready to be overwritten.
    ready: u32,
}

impl Tail {
    fn new(pages: u32, first: u32, number: u64) -> Tail {
        let (hashes, entries) = (Vec::new(), Vec::new());
        Tail { pages, first, number, page: 0, at: HEAD, page_first: HEAD, hashes, entries, saved: 0, ready: 0 }
    }
    /// Pages that are left to records when it has one entry more.
    fn pages_max(&self) -> u32 {
        self.pages.saturating_sub((self.entries.len() + 1).div_ceil(ENTRIES) as u32)
    }
    /// Whether a record may begin in the page that is being filled.
    fn takes(&self, which: Which, hash: KeyHash, bytes: usize) -> bool {
        let others = |other: &KeyHash| other.tag() == hash.tag() && (which != Which::Main || *other != hash);
        self.at + bytes <= SUBPAGE_BYTES && self.page < self.pages_max() && !self.hashes.iter().any(others)
    }
    /// The page and the byte where a record of this length is to begin. None where it is full.
    fn place(&self, which: Which, hash: KeyHash, bytes: usize) -> Option<(u32, usize)> {
        if bytes <= ROOM && self.takes(which, hash, bytes) {
            return Some((self.page, self.at));
        }
        let page = if self.at == HEAD { self.page } else { self.page + 1 };
        (page + pages_of(bytes) as u32 <= self.pages_max()).then_some((page, HEAD))
    }
}

#[derive(Debug)]
struct State {
    segments: Segments,
    main: Option<Tail>,
    copies: Option<Tail>,
    /// An empty segment for copies, where the log has many: by its first page. It makes room for
    /// reclaim where there is no other.
    reserve: Option<u32>,
    /// Entries for which the segment that is being filled has no room. The next one begins with
    /// them.
    waiting: Vec<Stored>,
    /// Bytes of records and entries since the map was opened.
    appended: u64,
}

impl State {
    fn has_room_for_entry(&self) -> bool {
        self.waiting.is_empty() && self.main.as_ref().is_some_and(|tail| tail.page < tail.pages_max())
    }
    fn tail(&mut self, which: Which) -> &mut Option<Tail> {
        if which == Which::Copies { &mut self.copies } else { &mut self.main }
    }
}

/// See the head of this file.
#[derive(Debug)]
pub struct Log {
    pub heap: Arc<Heap>,
    pages: u32,
    /// The order of what is put, and of all entries.
    turn: VersionLatch,
    /// The order of copies.
    copies_turn: VersionLatch,
    /// The order of changes of the list of segments.
    list_turn: VersionLatch,
    state: Mutex<State>,
}

impl Log {
    pub fn new(heap: Arc<Heap>, pages: u32, segments: Segments) -> Log {
        Log {
            heap,
            pages,
            turn: VersionLatch::default(),
            copies_turn: VersionLatch::default(),
            list_turn: VersionLatch::default(),
            state: Mutex::new(State {
                segments,
                main: None,
                copies: None,
                reserve: None,
                waiting: Vec::new(),
                appended: 0,
            }),
        }
    }
    fn segment_bytes(&self) -> usize {
        self.pages as usize * SUBPAGE_BYTES
    }
    /// Pages of a segment.
    pub fn pages(&self) -> u32 {
        self.pages
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
    /// What the segments are, while nothing is accessed.
    pub fn segments<R>(&self, see: impl FnOnce(&mut Segments) -> R) -> R {
        see(&mut self.state().segments)
    }
    /// Bytes that were appended since the map was opened.
    pub fn appended(&self) -> u64 {
        self.state().appended
    }
    /// The position of the next entry: its segment's number, and its place there.
    pub fn position(&self) -> (u64, u32) {
        let state = self.state();
        match &state.main {
            Some(tail) if state.waiting.is_empty() => (tail.number, tail.entries.len() as u32),
            _ => (state.segments.next_number(), state.waiting.len() as u32),
        }
    }
    /// After a roll back: the segments are these, and what was appended since is gone.
    pub fn become_other(&self, segments: Segments) {
        let mut state = self.state();
        (state.segments, state.main, state.copies, state.reserve) = (segments, None, None, None);
        state.waiting.clear();
        self.turn.disturb(false);
        self.copies_turn.disturb(false);
        self.list_turn.disturb(false);
    }

    /// Appends a record, and then what `entry` makes of its location, unless that is none. The
    /// caller is in a write section.
    pub fn append<M: Memory>(
        &self,
        memory: &mut M,
        (which, hash): (Which, KeyHash),
        record: &[u8],
        entry: impl FnOnce(Location) -> Option<Entry>,
    ) -> Result<Location, AccessError> {
        let _turn = if which == Which::Copies { &self.copies_turn } else { &self.turn }.lock(memory)?;
        let (first, number, page, at) = loop {
            let placed = {
                let mut state = self.state();
                state.tail(which).as_ref().and_then(|tail| {
                    tail.place(which, hash, record.len()).map(|(page, at)| (tail.first, tail.number, page, at))
                })
            };
            match placed {
                Some(placed) => break placed,
                None => self.begin_segment(memory, which)?,
            }
        };
        let span = if record.len() <= ROOM { 1 } else { pages_of(record.len()) };
        self.make_ready(memory, which, first, page + span as u32)?;
        let front = address_of(LogPage::new(first).expect("a segment begins there"));
        let page_at = |page: u32| front.add(u64::from(page) * SUBPAGE_BYTES as u64);
        let mut state;
        if record.len() <= ROOM {
            let end = at + record.len();
            let page_first = if at == HEAD { HEAD } else { self.page_first(which) };
            let head = PageHead { segment: number, first: page_first as u16, used: end as u16, zero: 0 };
            let view = memory.view_mut(page_at(page), SUBPAGE_BYTES)?;
            view.copy_from(at, record);
            view.copy_from(0, head.as_bytes());
            state = self.state();
            let tail = state.tail(which).as_mut().expect("only the turn's holder ends it");
            if tail.page != page || at == HEAD {
                tail.hashes.clear();
            }
            (tail.page, tail.at, tail.page_first) = (page, end, page_first);
            tail.hashes.push(hash);
        } else {
            let mut rest = record;
            let mut last = (page, HEAD);
            for n in 0..span as u32 {
                let (part, behind) = rest.split_at(rest.len().min(ROOM));
                rest = behind;
                let end = HEAD + part.len();
                let begins = match n {
                    0 => HEAD,
                    _ if rest.is_empty() => end,
                    _ => SUBPAGE_BYTES,
                };
                let head = PageHead { segment: number, first: begins as u16, used: end as u16, zero: 0 };
                let view = memory.view_mut(page_at(page + n), SUBPAGE_BYTES)?;
                view.copy_from(HEAD, part);
                view.copy_from(0, head.as_bytes());
                last = (page + n, end);
            }
            state = self.state();
            let tail = state.tail(which).as_mut().expect("only the turn's holder ends it");
            (tail.page, tail.at, tail.page_first) = (last.0, last.1, last.1);
            tail.hashes.clear();
        }
        state.appended += record.len() as u64;
        let page = LogPage::new(first + page).expect("it is behind the first");
        let location = Location { page, span: Span::of(span) };
        if let Some(entry) = entry(location) {
            self.note_in(&mut state, &entry);
        }
        Ok(location)
    }
    fn page_first(&self, which: Which) -> usize {
        self.state().tail(which).as_ref().expect("only the turn's holder ends it").page_first
    }
    /// Has the pages up to `end` of a tail ready to be overwritten, and some behind them.
    fn make_ready<M: Memory>(&self, memory: &mut M, which: Which, first: u32, end: u32) -> Result<(), AccessError> {
        let (from, to) = {
            let mut state = self.state();
            let tail = state.tail(which).as_mut().expect("only the turn's holder ends it");
            if end <= tail.ready {
                return Ok(());
            }
            let to = end.next_multiple_of(READY).min(tail.pages_max().max(end));
            (std::mem::replace(&mut tail.ready, to), to)
        };
        let at = address_of(LogPage::new(first + from).expect("it is behind the first"));
        memory.will_overwrite_all(at, to - from);
        Ok(())
    }

    /// Notes what has happened without a record. The caller is in a write section.
    pub fn note<M: Memory>(&self, memory: &mut M, entry: &Entry) -> Result<(), AccessError> {
        let _turn = self.turn.lock(memory)?;
        while !self.state().has_room_for_entry() {
            self.begin_segment(memory, Which::Main)?;
        }
        self.note_now(entry);
        Ok(())
    }
    /// As [`Log::note`], without an access. Where there is no room, the entry waits in DRAM until
    /// the next segment is begun.
    pub fn note_now(&self, entry: &Entry) {
        self.note_in(&mut self.state(), entry);
    }
    fn note_in(&self, state: &mut State, entry: &Entry) {
        let has_room = state.has_room_for_entry();
        match &mut state.main {
            Some(tail) if has_room => tail.entries.push(entry.stored()),
            _ => state.waiting.push(entry.stored()),
        }
        state.appended += size_of::<Stored>() as u64;
        if let Some(from) = entry.from {
            state.segments.count_live(from, -1);
        }
        if let Some(to) = entry.to {
            let first = state.segments.first_of(to.page);
            state.segments.count_record(first);
        }
    }

    // ---- segments ----

    /// Ends the segment of a tail, if there is one, and begins another. The caller has the turn.
    #[cold]
    fn begin_segment<M: Memory>(&self, memory: &mut M, which: Which) -> Result<(), AccessError> {
        self.end_segment(memory, which)?;
        let _list = self.list_turn.lock(memory)?;
        let (reserve, has_many) = {
            let state = self.state();
            (state.reserve, state.segments.len() >= MANY)
        };
        let first = match reserve {
            Some(first) if which == Which::Copies => first,
            None if which != Which::Copies && has_many => {
                let first = self.make_segment(memory, Which::Copies)?;
                self.state().reserve = Some(first);
                self.make_segment(memory, which)?
            }
            _ => self.make_segment(memory, which)?,
        };
        let mut state = self.state();
        let number = state.segments.at(first).expect("it was made").number;
        let mut tail = Tail::new(self.pages, first, number);
        if which == Which::Copies {
            state.reserve = state.reserve.filter(|reserve| *reserve != first);
        } else {
            tail.entries = std::mem::take(&mut state.waiting);
        }
        *state.tail(which) = Some(tail);
        Ok(())
    }
    /// Makes an empty segment. Returns its first page.
    fn make_segment<M: Memory>(&self, memory: &mut M, which: Which) -> Result<u32, AccessError> {
        let address = self.heap.allocate(memory, self.segment_bytes())?;
        let made = self.enter_segment(memory, which, address);
        if made.is_err() {
            // What cannot be given back is lost, as after any failed free.
            let _ = self.heap.free(memory, address, self.segment_bytes());
        }
        made
    }
    /// Enters an empty segment into the list. Returns its first page.
    fn enter_segment<M: Memory>(&self, memory: &mut M, which: Which, address: Address) -> Result<u32, AccessError> {
        let Some(first) = page_of(address).filter(|first| first.number().checked_add(self.pages).is_some()) else {
            return Err(AccessError::OutOfRange { at: address });
        };
        let taken = self.state().segments.take_slot();
        let slot = match taken {
            Some(slot) => slot,
            None => {
                let last = self.state().segments.last_list();
                let list = make_list(memory, &self.heap, last)?;
                let mut state = self.state();
                state.segments.add_list(list);
                state.segments.take_slot().expect("a new list has free slots")
            }
        };
        let (segment, at) = {
            let mut state = self.state();
            let number = state.segments.take_number();
            (Segment::new(address, number, which.kind(), slot), state.segments.slot_at(slot))
        };
        if let Err(error) = memory.write_bytes(at, &segment.stored()) {
            self.state().segments.give_slot_back(slot);
            return Err(error);
        }
        self.state().segments.insert(segment);
        Ok(first.number())
    }
    /// Ends the segment of a tail: its entries and its slot are written. The caller has the turn.
    fn end_segment<M: Memory>(&self, memory: &mut M, which: Which) -> Result<(), AccessError> {
        self.save_entries(memory, which)?;
        let ended = {
            let mut state = self.state();
            let Some(tail) = state.tail(which) else { return Ok(()) };
            let (first, pages) = (tail.first, tail.page + 1);
            let segment = state.segments.at(first).expect("a tail is of a segment");
            segment.pages = pages;
            let segment = *segment;
            (segment, state.segments.slot_at(segment.slot()), first)
        };
        let (segment, at, first) = ended;
        memory.write_bytes(at, &segment.stored())?;
        let mut state = self.state();
        state.segments.at(first).expect("a tail is of a segment").busy = false;
        *state.tail(which) = None;
        Ok(())
    }

    /// Writes the entries that are only in DRAM. Nothing is appended meanwhile.
    pub fn save<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        while !self.state().waiting.is_empty() {
            let _turn = self.turn.lock(memory)?;
            self.begin_segment(memory, Which::Main)?;
        }
        self.save_entries(memory, Which::Main)
    }
    fn save_entries<M: Memory>(&self, memory: &mut M, which: Which) -> Result<(), AccessError> {
        let (first, number, saved, entries) = {
            let mut state = self.state();
            let Some(tail) = state.tail(which).as_ref().filter(|tail| tail.saved < tail.entries.len()) else {
                return Ok(());
            };
            // From the first entry of the page on.
            let from = tail.saved / ENTRIES * ENTRIES;
            (tail.first, tail.number, from, tail.entries[from..].to_vec())
        };
        for (n, entries) in (saved / ENTRIES..).zip(entries.chunks(ENTRIES)) {
            let head = EntriesHead { magic: MAGIC, segment: number, count: entries.len() as u32, zero: 0 };
            let page = LogPage::new(first + self.pages - 1 - n as u32).expect("it is behind the first");
            let at = address_of(page);
            memory.will_overwrite(at);
            let view = memory.view_mut(at, SUBPAGE_BYTES)?;
            view.copy_from(0, head.as_bytes());
            view.copy_from(size_of::<EntriesHead>(), entries.as_bytes());
        }
        let mut state = self.state();
        if let Some(tail) = state.tail(which) {
            tail.saved = saved + entries.len();
        }
        Ok(())
    }
    /// The entries of a segment, as they are stored.
    pub fn entries_of<M: Memory>(&self, memory: &mut M, segment: &Segment) -> Result<Vec<Entry>, AccessError> {
        let mut all = Vec::new();
        let mut bytes = [0; SUBPAGE_BYTES];
        // Of one that was not full, it is not known how many pages have entries.
        let least = if segment.pages == 0 { self.pages } else { segment.pages };
        for n in (0..u64::from(self.pages)).rev() {
            let at = segment.address.add(n * SUBPAGE_BYTES as u64);
            if (u64::from(self.pages) - 1 - n).is_multiple_of(AHEAD / 2) {
                let ahead = (n.saturating_sub(AHEAD)..n).rev().take_while(|page| *page >= u64::from(least));
                ahead.for_each(|page| memory.prefetch(segment.address.add(page * SUBPAGE_BYTES as u64)));
            }
            memory.read_around(at, &mut bytes)?;
            let (head, entries) = EntriesHead::read_from_prefix(&bytes).expect("a page has a head");
            if head.magic != MAGIC || head.segment != segment.number || head.count as usize > ENTRIES {
                break;
            }
            let entries = entries.chunks_exact(size_of::<Stored>()).take(head.count as usize);
            for entry in entries.map(|bytes| Stored::read_from_bytes(bytes).expect("it is as long as an entry")) {
                let damaged = AccessError::Corrupt { what: "entry of a log", at, expected: 1, got: 0 };
                all.push(entry.entry().ok_or(damaged)?);
            }
            if (head.count as usize) < ENTRIES {
                break;
            }
        }
        Ok(all)
    }

    /// Nothing in a segment is needed any more: it is free. The caller is in a write section.
    pub fn free_segment<M: Memory>(&self, memory: &mut M, first: u32) -> Result<(), AccessError> {
        let _list = self.list_turn.lock(memory)?;
        let (segment, at) = {
            let mut state = self.state();
            let Some(segment) = state.segments.at(first).map(|segment| *segment) else { return Ok(()) };
            (segment, state.segments.slot_at(segment.slot()))
        };
        memory.write_bytes(at, &[0; super::segments::SLOT_BYTES])?;
        let keeps = {
            let mut state = self.state();
            state.segments.remove(first);
            state.reserve.is_none() && state.segments.len() >= MANY
        };
        if keeps && let Ok(first) = self.enter_segment(memory, Which::Copies, segment.address) {
            self.state().reserve = Some(first);
            return Ok(());
        }
        self.heap.free(memory, segment.address, self.segment_bytes())
    }
}
