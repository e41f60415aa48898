//! The segments of a log: which there are, on flash and in DRAM, and how much of each is needed.
//!
//! ```text
//! root -> | next, magic | slot | slot | ..  |  ->  | next, magic | slot | ..  |  -> none
//! slot:   address 8, number 8, pages 4, records 3 bytes and kind 1
//! ```
//!
//! Numbers ascend and are never used twice. A slot is written when its segment is begun, when it is
//! full, and when it is free.

use std::collections::BTreeMap;

use fulgurite_format::{Address, SUBPAGE_BYTES};
use fulgurite_records::LogPage;
use fulgurite_runtime::AccessError;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{Heap, Memory, Ptr};

const MAGIC: u64 = u64::from_le_bytes(*b"flgsegm1");
/// Slots of a page of the list.
const SLOTS: usize = (SUBPAGE_BYTES - size_of::<ListHead>()) / size_of::<Slot>();
pub const SLOT_BYTES: usize = size_of::<Slot>();
/// Records that a slot can count.
const RECORDS_MAX: u32 = (1 << 24) - 1;

/// What is in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// What was put, and the entries of the log.
    Main,
    /// What reclaim has copied.
    Copies,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct ListHead {
    next: Address,
    magic: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Slot {
    address: Address,
    number: u64,
    pages: u32,
    records_and_kind: u32,
}

/// A segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub address: Address,
    pub number: u64,
    pub kind: Kind,
    /// Pages with records; unknown while it is filled.
    pub pages: u32,
    /// Records that were written to it, and how many of them are needed.
    pub records: u32,
    pub live: u32,
    /// It is being written, or reclaimed.
    pub busy: bool,
    slot: usize,
}

/// All segments of a log. See the head of this file.
#[derive(Debug, Default)]
pub struct Segments {
    /// By their first page.
    all: BTreeMap<u32, Segment>,
    lists: Vec<Address>,
    free: Vec<usize>,
    slots: usize,
    next_number: u64,
    /// Records in all segments, and how many of them are needed.
    records: u64,
    live: u64,
}

/// The number of a subpage in the log.
pub fn page_of(at: Address) -> Option<LogPage> {
    u32::try_from(at.linear() / SUBPAGE_BYTES as u64).ok().and_then(LogPage::new)
}
/// Where a page of the log is.
pub fn address_of(page: LogPage) -> Address {
    Address::from_linear(u64::from(page.number()) * SUBPAGE_BYTES as u64)
}

/// Makes an empty list behind `last`, if that is one. Returns its address.
pub fn make_list<M: Memory>(memory: &mut M, heap: &Heap, last: Option<Address>) -> Result<Address, AccessError> {
    let list = heap.allocate(memory, SUBPAGE_BYTES)?;
    let mut bytes = vec![0; SUBPAGE_BYTES];
    bytes[..size_of::<ListHead>()].copy_from_slice(ListHead { next: Address::NULL, magic: MAGIC }.as_bytes());
    memory.write_bytes(list, &bytes)?;
    if let Some(last) = last {
        memory.store(Ptr::new(last), list)?;
    }
    Ok(list)
}

impl Segments {
    /// None, with an empty list there.
    pub fn new(list: Address) -> Segments {
        let mut segments = Segments { next_number: 1, ..Segments::default() };
        segments.add_list(list);
        segments
    }
    /// The list goes on there.
    pub fn add_list(&mut self, list: Address) {
        self.lists.push(list);
        self.free.extend((self.slots..self.slots + SLOTS).rev());
        self.slots += SLOTS;
    }
    /// Where the list ends.
    pub fn last_list(&self) -> Option<Address> {
        self.lists.last().copied()
    }
    /// Reads the list that begins there.
    pub fn open<M: Memory>(memory: &mut M, first: Address) -> Result<Segments, AccessError> {
        let mut segments = Segments { next_number: 1, ..Segments::default() };
        let mut list = first;
        while !list.is_null() {
            let mut bytes = vec![0; SUBPAGE_BYTES];
            memory.read_bytes(list, &mut bytes)?;
            let (head, slots) = ListHead::read_from_prefix(&bytes).expect("a list has a head");
            if head.magic != MAGIC || segments.lists.contains(&list) {
                let what = "list of a log's segments";
                return Err(AccessError::Corrupt { what, at: list, expected: MAGIC, got: head.magic });
            }
            for (n, slot) in slots.chunks_exact(size_of::<Slot>()).take(SLOTS).enumerate() {
                let slot_number = segments.slots + n;
                let slot = Slot::read_from_bytes(slot).expect("it is as long as a slot");
                let Some(page) = page_of(slot.address).filter(|_| slot.number != 0) else {
                    segments.free.push(slot_number);
                    continue;
                };
                let kind = if slot.records_and_kind >> 24 == 0 { Kind::Main } else { Kind::Copies };
                let segment = Segment {
                    address: slot.address,
                    number: slot.number,
                    kind,
                    pages: slot.pages,
                    records: slot.records_and_kind & RECORDS_MAX,
                    live: 0,
                    busy: false,
                    slot: slot_number,
                };
                segments.next_number = segments.next_number.max(slot.number + 1);
                segments.all.insert(page.number(), segment);
            }
            segments.slots += SLOTS;
            segments.lists.push(list);
            list = head.next;
        }
        segments.free.reverse();
        Ok(segments)
    }

    /// The number that the next segment gets.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }
    pub fn all(&self) -> impl Iterator<Item = (u32, &Segment)> {
        self.all.iter().map(|(page, segment)| (*page, segment))
    }
    pub fn len(&self) -> usize {
        self.all.len()
    }
    /// The segment that begins at this page.
    pub fn at(&mut self, page: u32) -> Option<&mut Segment> {
        self.all.get_mut(&page)
    }
    /// Adds to the needed records of the segment that has a page.
    pub fn count_live(&mut self, page: LogPage, by: i32) {
        if let Some((_, segment)) = self.all.range_mut(..=page.number()).next_back() {
            segment.live = segment.live.saturating_add_signed(by);
            self.live = self.live.saturating_add_signed(by.into());
        }
    }
    /// Whether there are more segments than `spare`, and less than `needed` of a hundred records in
    /// those that are full are needed.
    pub fn has_too_many(&self, spare: usize, needed: u64) -> bool {
        self.all.len() > spare && self.live * 100 < self.records * needed
    }
    /// After the needed records were counted: none is being filled. A segment that was, when the
    /// program ended, is never filled up, so what it has no records for counts as dead.
    pub fn settle(&mut self) {
        let (full, unknown): (Vec<&mut Segment>, Vec<_>) = self.all.values_mut().partition(|s| s.pages > 0);
        self.records = full.iter().map(|segment| u64::from(segment.records)).sum();
        let as_full = self.records.div_ceil(full.len().max(1) as u64) as u32;
        for segment in unknown {
            (segment.records, segment.busy) = (as_full.max(segment.live + 1), false);
            self.records += u64::from(segment.records);
        }
    }
    /// The segment to reclaim. One of the log's order must be older than `covered`.
    pub fn take_victim(&mut self, covered: u64) -> Option<(u32, Segment)> {
        let next = self.next_number;
        let may = |segment: &&mut Segment| {
            !segment.busy
                && (segment.kind == Kind::Copies || segment.number < covered)
                && segment.live < segment.records
        };
        let benefit = |segment: &Segment| {
            let (live, records) = (f64::from(segment.live), f64::from(segment.records));
            (records - live) / (live + 1.0) * (next - segment.number) as f64
        };
        let victims = self.all.iter_mut().filter(|(_, segment)| may(segment));
        let (first, victim) = victims.max_by(|a, b| benefit(a.1).total_cmp(&benefit(b.1)))?;
        victim.busy = true;
        Some((*first, *victim))
    }
    /// It was not emptied.
    pub fn give_victim_back(&mut self, first: u32) {
        if let Some(segment) = self.all.get_mut(&first) {
            segment.busy = false;
        }
    }
    /// The first page of the segment that has a page.
    pub fn first_of(&self, page: LogPage) -> u32 {
        self.all.range(..=page.number()).next_back().map_or(0, |(first, _)| *first)
    }
    /// A record was written to the segment that begins at this page, and is needed.
    pub fn count_record(&mut self, first: u32) {
        if let Some(segment) = self.all.get_mut(&first) {
            (segment.records, segment.live) = (segment.records + 1, segment.live + 1);
            (self.records, self.live) = (self.records + 1, self.live + 1);
        }
    }

    /// A slot for a new segment, if one is free.
    pub fn take_slot(&mut self) -> Option<usize> {
        self.free.pop()
    }
    pub fn give_slot_back(&mut self, slot: usize) {
        self.free.push(slot);
    }
    pub fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }
    /// Where a slot is on flash.
    pub fn slot_at(&self, slot: usize) -> Address {
        let within = size_of::<ListHead>() + slot % SLOTS * size_of::<Slot>();
        self.lists[slot / SLOTS].add(within as u64)
    }
    pub fn insert(&mut self, segment: Segment) {
        let page = page_of(segment.address).expect("a segment is inside the addresses of the log");
        self.all.insert(page.number(), segment);
    }
    pub fn remove(&mut self, first: u32) -> Option<Segment> {
        let segment = self.all.remove(&first)?;
        self.live -= u64::from(segment.live);
        self.records -= u64::from(segment.records);
        self.free.push(segment.slot);
        Some(segment)
    }
}

impl Segment {
    pub fn new(address: Address, number: u64, kind: Kind, slot: usize) -> Segment {
        Segment { address, number, kind, pages: 0, records: 0, live: 0, busy: true, slot }
    }
    pub fn slot(&self) -> usize {
        self.slot
    }
    /// What its slot says.
    pub fn stored(&self) -> [u8; SLOT_BYTES] {
        let records_and_kind = self.records.min(RECORDS_MAX) | (self.kind as u32) << 24;
        let slot = Slot { address: self.address, number: self.number, pages: self.pages, records_and_kind };
        *slot.as_bytes().first_chunk().expect("a slot has as many bytes")
    }
}
