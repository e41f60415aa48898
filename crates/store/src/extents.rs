//! Extents: which are free, which are being written and by what, and which is reclaimed next.
//!
//! Data that is overwritten about as often belongs in one extent, which then empties by itself. So
//! each degree of heat has an open extent, for programs' writes and reclaim's copies alike.
//!
//! Invariants: an extent that lost its last live flash page is used again only after a commit has
//! made that durable. Anything in flight to it, its summary included, or copied from it, prevents
//! its reuse. (Otherwise a copy whose source was given to the same subpage again would pass for the
//! new content.)

use std::collections::VecDeque;

use fulgurite_format::Owner;
use fulgurite_policy::Heat;

use crate::geometry::{FIRST_EXTENT, Geometry};
use crate::wear::Wear;

/// What an extent is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Superblock or anchors.
    Fixed,
    /// Nothing: it may be written from its first flash page on.
    Free,
    /// Data is being written to it.
    Open,
    /// It is full of data, of which some may be dead.
    Closed,
    /// Its live data is being copied away.
    Reclaimed,
    /// Nothing in it is live, but a crash could bring back a state in which something is, until the
    /// journal is durable up to and including this page.
    Emptied {
        /// The page of the journal.
        until: u64,
    },
    /// Journal or checkpoint.
    Metadata,
    /// Too many of its flash pages failed: nothing is written to it any more.
    Retired,
}

/// The writer of an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writer {
    Program,
    /// Reclaim: what it copies has outlived an extent.
    Reclaim,
}

/// Extents that are written at the same time.
const STREAMS: usize = Heat::DEGREES;
/// A pool of fewer extents has two, one for each writer, because open extents are space that others
/// lack.
const FEW_EXTENTS: u32 = 128;

/// Whether a pool has so few extents that each writer has one and no more open.
pub fn has_few(geometry: Geometry) -> bool {
    geometry.extents < FEW_EXTENTS
}
/// The most extents that are open at the same time, not counting extents of objects.
pub fn open_at_most(geometry: Geometry) -> u32 {
    if has_few(geometry) { 2 } else { STREAMS as u32 }
}

/// Batches of fewer subpages go to two streams and not to all. Neighbours go to one stream, and a
/// disk writes eight subpages at about the price of one. Five streams cut 16 subpages of mixed heat
/// into runs of 3.4, two into runs of 7.9, for 1.3 to 3.5% more writes in all. One stream would
/// write 10 to 13% more (`examples/runs.rs`).
const SMALL_BATCH: usize = 8 * STREAMS;

/// The degree of heat by which a subpage is placed, of its own and how many are placed together.
pub fn degree_of_batch(degree: usize, batch: usize) -> usize {
    match degree {
        _ if batch >= SMALL_BATCH => degree,
        0..=2 => 1,
        _ => 3,
    }
}

/// Extents filled for each one that is emptied only for wear: 3% more writes at most.
const LEVEL_EVERY: u64 = 32;

/// How the next extent to reclaim is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Victims {
    /// The one with parts of the longest chains, as NVMM proposes ("Page Table Organization for
    /// NAND Main Memory"). A page counts its writes since reclaim moved part of it, and an extent
    /// sums that over its dead flash pages.
    LongestChains,
    /// The one with the fewest live flash pages.
    Greedy,
    /// The most benefit for its cost: (dead / live) x age. (The log-structured file system of
    /// Rosenblum and Ousterhout, 1992, counts the reading of the whole segment as well. Here only
    /// live data is read and written.)
    #[default]
    CostBenefit,
}

/// What an extent holds, for victim selection.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    /// Live flash pages.
    pub live: u32,
    /// What is compared with what it was when the extent was given up last.
    pub compared: u32,
    /// How long the chains are that it has parts of, where that is counted.
    pub chains: u64,
}

/// An extent that is being written.
#[derive(Debug)]
struct OpenExtent {
    extent: u32,
    /// Flash pages given out.
    next: u32,
    /// Writes in flight.
    pending: u32,
    /// Owners of all flash pages given out and written.
    owners: Vec<Owner>,
}

/// An extent that is full: its summary is to be written.
#[derive(Debug, PartialEq, Eq)]
pub struct Filled {
    pub extent: u32,
    /// Owners of its flash pages.
    pub owners: Vec<Owner>,
}

/// All extents of a pool.
#[derive(Debug)]
pub struct Extents {
    geometry: Geometry,
    uses: Vec<Use>,
    /// How many of them hold data or may, and how many are of journal and checkpoints.
    for_data: u32,
    metadata: u32,
    /// When an extent was filled, in flash pages given out.
    filled_at: Vec<u64>,
    given: u64,
    free: VecDeque<u32>,
    /// Extents from here on are not used again.
    limit: u32,
    open: [Option<OpenExtent>; STREAMS],
    /// Full, with writes in flight.
    settling: Vec<OpenExtent>,
    /// Full and settled.
    summaries: VecDeque<Filled>,
    emptied: u32,
    /// For extents that reclaim could not empty, unreadable or not packed any closer: what was live
    /// then. 0 for others.
    stuck: Vec<u32>,
    /// Extents that were taken since the last question.
    taken: Vec<u32>,
    /// `given` when levelling began last.
    levelled_at: u64,
    /// Copies from it are under way.
    copied_from: Option<u32>,
    /// Extents to which pages of a summary are in flight, each with how many.
    summarised: Vec<(u32, u32)>,
    /// The journal is durable up to but not including this page.
    durable_end: u64,
}

impl Extents {
    /// All free, but for the fixed ones.
    pub fn new(geometry: Geometry) -> Extents {
        let mut uses = vec![Use::Free; geometry.extents as usize];
        uses[..FIRST_EXTENT as usize].fill(Use::Fixed);
        Extents {
            geometry,
            filled_at: vec![0; uses.len()],
            stuck: vec![0; uses.len()],
            taken: Vec::new(),
            levelled_at: 0,
            copied_from: None,
            summarised: Vec::new(),
            durable_end: 0,
            for_data: geometry.extents - FIRST_EXTENT,
            metadata: 0,
            uses,
            given: 0,
            free: (FIRST_EXTENT..geometry.extents).collect(),
            limit: geometry.extents,
            open: [const { None }; STREAMS],
            settling: Vec::new(),
            summaries: VecDeque::new(),
            emptied: 0,
        }
    }
    /// After recovery: extents with live data are closed, the metadata's are given, the rest is
    /// free.
    pub fn recovered(geometry: Geometry, metadata: &[u32], wear: &Wear, live: impl Fn(u32) -> u32) -> Extents {
        let mut extents = Extents::new(geometry);
        for extent in metadata {
            extents.set_use(*extent, Use::Metadata);
        }
        for extent in FIRST_EXTENT..geometry.extents {
            let free = extents.use_of(extent) == Use::Free;
            if free && live(extent) > 0 {
                extents.set_use(extent, Use::Closed);
            } else if free && wear.is_retired(extent) {
                extents.set_use(extent, Use::Retired);
            }
        }
        extents.free.retain(|e| extents.uses[*e as usize] == Use::Free);
        extents
    }

    /// There are `extents` extents from now on, and the new ones are free.
    pub fn grow(&mut self, extents: u32) {
        let was = std::mem::replace(&mut self.geometry.extents, extents);
        self.uses.resize(extents as usize, Use::Free);
        self.filled_at.resize(extents as usize, 0);
        self.stuck.resize(extents as usize, 0);
        self.for_data += extents - was;
        self.free.extend(was..extents);
        self.limit = extents;
    }
    /// What an extent is used for.
    pub fn use_of(&self, extent: u32) -> Use {
        self.uses[extent as usize]
    }
    /// Free extents.
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }
    fn set_use(&mut self, extent: u32, to: Use) {
        let was = std::mem::replace(&mut self.uses[extent as usize], to);
        let is_for_data = |of: Use| u32::from(!matches!(of, Use::Fixed | Use::Metadata | Use::Retired));
        let is_metadata = |of: Use| u32::from(of == Use::Metadata);
        self.for_data = self.for_data + is_for_data(to) - is_for_data(was);
        self.metadata = self.metadata + is_metadata(to) - is_metadata(was);
    }
    /// Extents that may hold data. Counted as they change, because each reading of the room asks.
    pub fn for_data(&self) -> u32 {
        self.for_data
    }
    /// Extents of journal and checkpoints.
    pub fn metadata(&self) -> u32 {
        self.metadata
    }
    /// Extents that a commit would free.
    pub fn emptied(&self) -> u32 {
        self.emptied - self.held()
    }
    /// Extents that the end of a summary's write would free.
    pub fn held(&self) -> u32 {
        let durable = |until: u64| until < self.durable_end;
        let held = |extent: u32| matches!(self.use_of(extent), Use::Emptied { until } if durable(until));
        self.summarised.iter().filter(|(extent, _)| held(*extent)).count() as u32
    }
    /// DRAM in all, of a pool of this geometry.
    pub fn bytes(geometry: Geometry) -> usize {
        let open = STREAMS * geometry.extent_pages as usize * size_of::<Owner>();
        geometry.extents as usize * (size_of::<Use>() + 16) + open
    }

    /// An extent for journal or checkpoint: one without bad flash pages, which these streams cannot
    /// skip.
    pub fn take_for_metadata(&mut self, wear: &Wear) -> Option<u32> {
        let at = self.free.iter().position(|e| wear.in_extent(*e) == 0)?;
        let extent = self.free.remove(at)?;
        self.set_use(extent, Use::Metadata);
        self.taken.push(extent);
        Some(extent)
    }
    /// Gives back an extent of metadata that no state which could be recovered uses.
    pub fn free_metadata(&mut self, extent: u32, wear: &Wear) {
        debug_assert_eq!(self.use_of(extent), Use::Metadata);
        self.make_free(extent, wear);
    }
    fn make_free(&mut self, extent: u32, wear: &Wear) {
        self.stuck[extent as usize] = 0;
        if wear.is_retired(extent) {
            self.set_use(extent, Use::Retired);
        } else {
            self.set_use(extent, Use::Free);
            self.release(extent);
        }
    }
    /// A bad flash page was found: a free extent with too many is no longer free.
    pub fn note_bad(&mut self, place: u32, wear: &Wear) {
        let extent = self.geometry.extent_of(place);
        if self.use_of(extent) == Use::Free && wear.is_retired(extent) {
            self.set_use(extent, Use::Retired);
            self.free.retain(|e| *e != extent);
        }
    }
    /// An extent for data. Those with bad flash pages come first, as journal and checkpoint cannot
    /// use them. Otherwise, cold data goes to the most written, and hot data to the least written.
    fn take_for_data(&mut self, wear: &Wear, cold: bool) -> u32 {
        let failing = || self.free.iter().position(|e| wear.in_extent(*e) > 0);
        let failing = if wear.places().is_empty() { None } else { failing() };
        let at = failing.unwrap_or_else(|| {
            let by_fills = |at: &usize| (wear.fills(self.free[*at]), *at);
            let (least, most) = (0..self.free.len()).fold((0, 0), |(least, most), at| {
                let fewer = by_fills(&at).0 < by_fills(&least).0;
                let more = by_fills(&at).0 > by_fills(&most).0;
                (if fewer { at } else { least }, if more { at } else { most })
            });
            if cold { most } else { least }
        });
        let extent = self.free.remove(at).expect("more than the reserve are free");
        self.set_use(extent, Use::Open);
        self.taken.push(extent);
        extent
    }
    /// An extent for objects, where more than `reserve` are free. The caller fills and closes it.
    pub fn take_for_objects(&mut self, reserve: u32, wear: &Wear, cold: bool) -> Option<u32> {
        (self.free() > reserve).then(|| self.take_for_data(wear, cold))
    }
    /// An extent of objects is full, with `filled` flash pages, and nothing is in flight to it.
    pub fn close_objects(&mut self, extent: u32, filled: u32) {
        debug_assert_eq!(self.use_of(extent), Use::Open);
        self.given += u64::from(filled);
        self.set_use(extent, Use::Closed);
        self.filled_at[extent as usize] = self.given;
    }
    /// Extents that were taken to be filled since this was called last.
    pub fn take_taken(&mut self) -> Option<u32> {
        self.taken.pop()
    }
    /// The extent to empty for wear, if one is due: the least filled full one, when the most filled
    /// is ahead of it by more than `spread`. One for each [`LEVEL_EVERY`] filled extents, so that
    /// it costs little.
    pub fn due_for_levelling(&mut self, spread: u32, wear: &Wear) -> Option<u32> {
        if self.given - self.levelled_at < LEVEL_EVERY * u64::from(self.geometry.data_pages()) {
            return None;
        }
        self.levelled_at = self.given;
        let closed = (FIRST_EXTENT..self.limit).filter(|e| self.use_of(*e) == Use::Closed);
        let least = closed.min_by_key(|e| wear.fills(*e))?;
        let ahead = wear.summary().max.saturating_sub(wear.fills(least));
        if ahead <= spread {
            return None;
        }
        self.set_use(least, Use::Reclaimed);
        Some(least)
    }

    fn release(&mut self, extent: u32) {
        if extent < self.limit {
            self.free.push_back(extent);
        }
    }
    /// Extents from `limit` on are not used again, and those before it in order. An open one behind
    /// it is closed.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
        self.free = (FIRST_EXTENT..limit).filter(|extent| self.use_of(*extent) == Use::Free).collect();
        for open in &mut self.open {
            if open.as_ref().is_some_and(|open| open.extent >= limit) {
                self.settling.extend(open.take());
            }
        }
        self.settle();
    }
    /// From which extent on none is used again.
    pub fn limit(&self) -> u32 {
        self.limit
    }
    /// The best of some extents to reclaim: the one with the fewest live flash pages, if at most
    /// `most` and not given up before. Without a bound, whatever it is. `live` counts an extent's
    /// live flash pages, now and as compared later.
    pub fn victim_among(
        &mut self,
        range: std::ops::Range<u32>,
        most: Option<u32>,
        live: impl Fn(u32) -> (u32, u32),
    ) -> Option<u32> {
        let closed = range.filter(|e| self.use_of(*e) == Use::Closed).filter(|e| {
            let (live, compared) = live(*e);
            most.is_none_or(|most| live <= most && !self.is_stuck(*e, compared))
        });
        let fewest = closed.min_by_key(|e| live(*e).0)?;
        self.set_use(fewest, Use::Reclaimed);
        Some(fewest)
    }
    fn is_stuck(&self, extent: u32, compared: u32) -> bool {
        compared > 0 && self.stuck[extent as usize] == compared
    }

    fn stream_of(&self, writer: Writer, degree: usize) -> usize {
        if self.geometry.extents < FEW_EXTENTS { writer as usize } else { degree }
    }
    /// Flash pages for programs before only reclaim's are left. Both write to the same open
    /// extents, whose rest counts: programs could otherwise leave reclaim nowhere to copy to,
    /// forever.
    pub fn room_for_programs(&self, reserve: u32) -> usize {
        if self.geometry.extents < FEW_EXTENTS {
            // Reclaim has an extent of its own.
            return usize::MAX;
        }
        let pages = self.geometry.data_pages() as usize;
        let open: usize = self.open.iter().flatten().map(|open| pages - open.next as usize).sum();
        (self.free() as usize * pages + open).saturating_sub(reserve as usize * pages)
    }
    /// A flash page for data of a degree of heat, in flight from now on. None if that takes another
    /// extent and no more than `reserve` are free.
    pub fn give(&mut self, writer: Writer, degree: usize, reserve: u32, wear: &Wear) -> Option<u32> {
        loop {
            let mut stream = self.stream_of(writer, degree);
            if self.open[stream].is_none() {
                if self.free() > reserve {
                    let few = self.geometry.extents < FEW_EXTENTS;
                    let cold = if few { writer == Writer::Reclaim } else { degree == 0 };
                    let extent = self.take_for_data(wear, cold);
                    let owners = vec![Owner::NONE; self.geometry.data_pages() as usize];
                    self.open[stream] = Some(OpenExtent { extent, next: 0, pending: 0, owners });
                } else {
                    // Among data of another degree, rather than not at all. A small pool's reclaim
                    // keeps its own.
                    let others = if self.geometry.extents < FEW_EXTENTS { stream..stream + 1 } else { 0..STREAMS };
                    stream = others.into_iter().find(|other| self.open[*other].is_some())?;
                }
            }
            let end = self.geometry.data_pages();
            let open = self.open[stream].as_mut().expect("opened above");
            let first = self.geometry.first_of(open.extent);
            while open.next < end && wear.contains(first + open.next) {
                open.next += 1;
            }
            let given = (open.next < end).then(|| {
                self.given += 1;
                open.pending += 1;
                open.next += 1;
                first + open.next - 1
            });
            if open.next == end {
                self.settling.extend(self.open[stream].take());
            }
            if given.is_some() {
                return given;
            }
            // Nothing but bad flash pages was left of it.
            self.settle();
        }
    }
    /// A write to a flash page has ended; with whose it is, or none when it failed.
    pub fn settled(&mut self, place: u32, owner: Option<Owner>) {
        let extent = self.geometry.extent_of(place);
        let open = self.open.iter_mut().flatten().chain(&mut self.settling).find(|o| o.extent == extent);
        let open = open.expect("it was given out");
        open.pending -= 1;
        if let Some(owner) = owner {
            open.owners[(place - self.geometry.first_of(extent)) as usize] = owner;
        }
        if open.pending == 0 {
            self.settle();
        }
    }
    fn settle(&mut self) {
        let mut i = 0;
        while i < self.settling.len() {
            if self.settling[i].pending > 0 {
                i += 1;
                continue;
            }
            let OpenExtent { extent, owners, .. } = self.settling.swap_remove(i);
            self.set_use(extent, Use::Closed);
            self.filled_at[extent as usize] = self.given;
            self.summaries.push_back(Filled { extent, owners });
        }
    }
    /// An extent whose summary is to be written.
    pub fn take_filled(&mut self) -> Option<Filled> {
        self.summaries.pop_front()
    }

    /// An extent has no live data any more. `until` is the page of the journal that must be durable
    /// before its reuse.
    pub fn note_empty(&mut self, extent: u32, until: u64) {
        if matches!(self.use_of(extent), Use::Closed | Use::Reclaimed) {
            self.set_use(extent, Use::Emptied { until });
            self.emptied += 1;
        }
    }
    /// The journal is durable up to but not including this page: extents that waited for that are
    /// free. Returns their number.
    pub fn durable(&mut self, end: u64, wear: &Wear) -> u32 {
        let before = self.free();
        self.durable_end = self.durable_end.max(end);
        for extent in 0..self.geometry.extents {
            let is_empty = matches!(self.use_of(extent), Use::Emptied { until } if until < end);
            if is_empty && self.copied_from != Some(extent) && !self.is_summarised(extent) {
                self.make_free(extent, wear);
                self.emptied -= 1;
            }
        }
        self.free() - before
    }

    /// A page of an extent's summary is in flight. The extent is not used again before that has
    /// ended: a late write would destroy what was written there since.
    pub fn begin_summary(&mut self, extent: u32) {
        match self.summarised.iter_mut().find(|(e, _)| *e == extent) {
            Some((_, pages)) => *pages += 1,
            None => self.summarised.push((extent, 1)),
        }
    }
    /// One has ended, written or not. What became free but for that is so with the last one.
    pub fn end_summary(&mut self, extent: u32, wear: &Wear) {
        let at = self.summarised.iter().position(|(e, _)| *e == extent).expect("it was begun");
        self.summarised[at].1 -= 1;
        if self.summarised[at].1 == 0 {
            self.summarised.swap_remove(at);
            if matches!(self.use_of(extent), Use::Emptied { .. }) {
                self.durable(self.durable_end, wear);
            }
        }
    }
    fn is_summarised(&self, extent: u32) -> bool {
        self.summarised.iter().any(|(e, _)| *e == extent)
    }

    /// Copies from this extent are under way, or none. Extents that became free but for that are so
    /// when they have ended.
    pub fn set_copied_from(&mut self, extent: Option<u32>, wear: &Wear) {
        if std::mem::replace(&mut self.copied_from, extent) != extent && self.emptied > 0 {
            self.durable(self.durable_end, wear);
        }
    }

    /// The next extent to reclaim, or none when emptying any closed one gains too little. The gain
    /// is in writable flash pages, without bad ones. (Otherwise reclaim could move live data from
    /// one such extent to the next forever.) An extent out of use comes first if there is room,
    /// however full.
    pub fn victim(
        &mut self,
        policy: Victims,
        room: bool,
        wear: &Wear,
        content: impl Fn(u32) -> Content,
    ) -> Option<u32> {
        let room = room && !wear.places().is_empty();
        let condemned = |extent: u32| room && wear.is_retired(extent);
        let benefit = |extent: u32, gained: u32, Content { live, chains, .. }: Content| match policy {
            // Where nothing is known of chains yet, as many as are gained.
            Victims::LongestChains => (chains, u64::from(gained)),
            Victims::Greedy => (u64::from(gained), 0),
            Victims::CostBenefit => {
                let age = self.given - self.filled_at[extent as usize] + 1;
                // In 1/1024, so that integers do: at most 65,536 flash pages.
                (u64::from(gained * 1024 / (live + 1)).saturating_mul(age), 0)
            }
        };
        let judged = (FIRST_EXTENT..self.geometry.extents).filter_map(|e| {
            let content = if self.use_of(e) == Use::Closed { content(e) } else { return None };
            let condemned = condemned(e);
            // Some of what is live may be in flash pages that have failed since.
            let gained = wear.usable(e).saturating_sub(content.live);
            let worth = gained >= self.geometry.worth() || condemned;
            (worth && !self.is_stuck(e, content.compared)).then(|| ((condemned, benefit(e, gained, content)), e))
        });
        // Among equals, the last one.
        let (_, closed) = judged.max_by_key(|(judged, _)| *judged)?;
        self.set_use(closed, Use::Reclaimed);
        Some(closed)
    }
    /// Gives an extent up that was being reclaimed: something in it cannot be copied.
    pub fn give_up(&mut self, extent: u32) {
        if self.use_of(extent) == Use::Reclaimed {
            self.set_use(extent, Use::Closed);
            // It becomes the youngest, so that others come first.
            self.filled_at[extent as usize] = self.given;
        }
    }
    /// Reclaim gives up the extent while `live` live flash pages are left: it is not tried again
    /// before that changes.
    pub fn give_up_for_now(&mut self, extent: u32, live: u32) {
        self.give_up(extent);
        self.stuck[extent as usize] = live;
    }
}

#[cfg(test)]
mod tests;
