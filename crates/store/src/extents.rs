//! Extents: which are free, which are being written, by whom, and which is reclaimed next.
//!
//! Data that is overwritten about as often belongs in the same extent: that one then empties by itself. So there is an open extent
//! for each degree of heat, for what programs write and what reclaim copies alike.
//!
//! Invariants: an extent that has lost its last live flash page is used again only after a commit has made durable whatever took
//! the last one away; what is in flight to an extent, its summary included, or is being copied from
//! it, keeps it from being used again. (A copy whose source was given away, and then to the same
//! subpage, would be taken for what lies there now.)

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
    /// Nothing in it is live any more, but a crash could still bring back a state in which something is, until the journal is
    /// durable up to and including this page of it.
    Emptied {
        /// The page of the journal.
        until: u64,
    },
    /// Journal or checkpoint.
    Metadata,
    /// Too many of its flash pages failed: nothing is written to it any more.
    Retired,
}

/// Who writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writer {
    /// Programs.
    Program,
    /// Reclaim: what it copies has outlived an extent.
    Reclaim,
}

/// Extents that are written at the same time.
const STREAMS: usize = Heat::DEGREES;
/// In a pool of fewer extents there are two, one for each writer: open extents are space that nobody else has.
const FEW_EXTENTS: u32 = 128;

/// Whether a pool has so few extents that each writer has one and no more open.
pub fn has_few(geometry: Geometry) -> bool {
    geometry.extents < FEW_EXTENTS
}
/// Extents that are open at the same time, at the most, those of objects not among them.
pub fn open_at_most(geometry: Geometry) -> u32 {
    if has_few(geometry) { 2 } else { STREAMS as u32 }
}

/// In a batch of fewer subpages than this, programs' writes go to two streams and not to all: what goes to one lies side by side, and a
/// disk writes eight subpages at about the price of one. Five streams cut 16 subpages of mixed heat into runs of 3.4, two into runs
/// of 7.9, for 1.3 to 3.5% more that is written in all; one stream would write 10 to 13% more (`examples/runs.rs`).
const SMALL_BATCH: usize = 8 * STREAMS;

/// The degree of heat by which a subpage is placed, of its own and how many are placed together.
pub fn degree_of_batch(degree: usize, batch: usize) -> usize {
    match degree {
        _ if batch >= SMALL_BATCH => degree,
        0..=2 => 1,
        _ => 3,
    }
}

/// Extents that are filled for each that is emptied only because it was filled seldom: 3% more writes at the most.
const LEVEL_EVERY: u64 = 32;

/// How the next extent to reclaim is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Victims {
    /// The one with parts of the longest chains, as NVMM proposes for its pages ("Page Table Organization for NAND Main Memory"): counted
    /// is how often each page was written since reclaim moved part of it, and of an extent the sum of that over what is dead in it.
    LongestChains,
    /// The one with the fewest live flash pages.
    Greedy,
    /// The most benefit for its cost: (dead / live) x age. (The log-structured file system of Rosenblum and Ousterhout, 1992, counts
    /// the reading of the whole segment as well; here only what is live is read and written.)
    #[default]
    CostBenefit,
}

/// What an extent holds, to those who choose one.
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
    /// The extent.
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
    /// For extents that reclaim could not empty, because something in them cannot be read or cannot be packed any closer: what was live
    /// then. 0 for others.
    stuck: Vec<u32>,
    /// Taken since somebody asked.
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
    /// After recovery: what holds live data is closed, the metadata's extents are given, the rest is free.
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
    /// Extents that hold data or may. Asked whenever room is looked at, so it is counted as they change.
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
    /// DRAM in all.
    pub fn bytes(&self) -> usize {
        self.uses.len() * (size_of::<Use>() + 16) + STREAMS * self.geometry.extent_pages as usize * size_of::<Owner>()
    }

    /// An extent for journal or checkpoint: one without bad flash pages, as these streams leave none out.
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
    /// A flash page was found to be bad: if its extent has too many by now and is free, it is so no more.
    pub fn note_bad(&mut self, place: u32, wear: &Wear) {
        let extent = self.geometry.extent_of(place);
        if self.use_of(extent) == Use::Free && wear.is_retired(extent) {
            self.set_use(extent, Use::Retired);
            self.free.retain(|e| *e != extent);
        }
    }
    /// An extent for data. Those with bad flash pages come first: journal and checkpoint cannot use them. Else, what is seldom
    /// overwritten goes where was written most, and what often is where was written least.
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
    /// An extent for objects, where more than `reserve` are free. Whoever takes it fills it, and closes it.
    pub fn take_for_objects(&mut self, reserve: u32, wear: &Wear, cold: bool) -> Option<u32> {
        (self.free() > reserve).then(|| self.take_for_data(wear, cold))
    }
    /// An extent of objects is full, by so many flash pages, and nothing is in flight to it.
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
    /// The extent to be emptied so that it is written again, if one is due: the full one that was filled least often, when the
    /// most filled is ahead of it by more than `spread`. One for each [`LEVEL_EVERY`] extents that are filled, so that it costs little.
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
    /// Extents from `limit` on are not used again; those before it are used in order. What is open behind it is closed.
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
    /// An extent of some to be reclaimed: the one with the fewest live flash pages, if that is at most so many and it was not given up
    /// before; where no bound is named, whatever it is. `live` says how many flash pages of an extent are live, and what is compared with
    /// what it was then.
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
    /// Flash pages that programs may be given before only those are left that reclaim needs. Both write to the same open extents, so
    /// what is left in these counts: programs that filled what reclaim had opened would leave it nowhere to copy to, for ever.
    pub fn room_for_programs(&self, reserve: u32) -> usize {
        if self.geometry.extents < FEW_EXTENTS {
            // Reclaim has an extent of its own.
            return usize::MAX;
        }
        let pages = self.geometry.data_pages() as usize;
        let open: usize = self.open.iter().flatten().map(|open| pages - open.next as usize).sum();
        (self.free() as usize * pages + open).saturating_sub(reserve as usize * pages)
    }
    /// A flash page for data of a degree of heat. It is in flight from now on. None where that would take another extent and no more
    /// than `reserve` are free.
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
                    // Better among data of another degree than not at all. A small pool's reclaim keeps its own.
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

    /// An extent has no live data any more; `until` is the page of the journal that must be durable before it is used again.
    pub fn note_empty(&mut self, extent: u32, until: u64) {
        if matches!(self.use_of(extent), Use::Closed | Use::Reclaimed) {
            self.set_use(extent, Use::Emptied { until });
            self.emptied += 1;
        }
    }
    /// The journal is durable up to but not including this page: what waited for that is free. Returns how many extents.
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

    /// Copies from this extent are under way, or from none. What became free but for that is so when they have ended.
    pub fn set_copied_from(&mut self, extent: Option<u32>, wear: &Wear) {
        if std::mem::replace(&mut self.copied_from, extent) != extent && self.emptied > 0 {
            self.durable(self.durable_end, wear);
        }
    }

    /// The next extent to reclaim; none when to empty any of the closed ones gains too little: what is gained are flash pages that can be
    /// written, and bad ones cannot. (Counted in, they would let reclaim move what is live from one such extent to the next for ever.)
    /// Where there is room, one that is to be used no more comes first, however full it is.
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
                // In 1/1024, so that integers do: 65,536 flash pages at the most.
                (u64::from(gained * 1024 / (live + 1)).saturating_mul(age), 0)
            }
        };
        let judged = (FIRST_EXTENT..self.geometry.extents).filter_map(|e| {
            let content = if self.use_of(e) == Use::Closed { content(e) } else { return None };
            let condemned = condemned(e);
            // Of what is live, some may lie in flash pages that have failed since.
            let gained = wear.usable(e).saturating_sub(content.live);
            let worth = gained >= self.geometry.worth() || condemned;
            (worth && !self.is_stuck(e, content.compared)).then(|| ((condemned, benefit(e, gained, content)), e))
        });
        // Of equals the last.
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
    /// The same, where so many live flash pages stay for now: it is not tried again before that changes.
    pub fn give_up_for_now(&mut self, extent: u32, live: u32) {
        self.give_up(extent);
        self.stuck[extent as usize] = live;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One stream for each writer; extents 3 to 15, of seven flash pages for data each.
    const FEW: Geometry = Geometry { extent_pages: 8, extents: 16, subpages: 64, objects: false };
    /// One stream for each degree of heat; extents 3 to 127.
    const MANY: Geometry = Geometry { extents: FEW_EXTENTS, ..FEW };

    fn owner(subpage: u32) -> Owner {
        Owner { subpage, checksum: subpage + 1 }
    }
    fn free_ones(extents: &Extents) -> Vec<u32> {
        (0..extents.uses.len() as u32).filter(|e| extents.use_of(*e) == Use::Free).collect()
    }
    /// Fills the open extent of a writer, or one that is opened for that, and ends its writes. Returns which it was.
    fn fill(extents: &mut Extents, writer: Writer, degree: usize, wear: &Wear) -> u32 {
        loop {
            let place = extents.give(writer, degree, 0, wear).unwrap();
            extents.settled(place, Some(owner(place)));
            if let Some(filled) = extents.take_filled() {
                assert_eq!(filled.extent, extents.geometry.extent_of(place));
                return filled.extent;
            }
        }
    }
    /// What is counted as uses change is what there is.
    fn check_counts(extents: &Extents) {
        let of = |which: fn(&Use) -> bool| extents.uses.iter().filter(|u| which(u)).count() as u32;
        assert_eq!(extents.metadata(), of(|u| *u == Use::Metadata));
        assert_eq!(extents.for_data(), of(|u| !matches!(u, Use::Fixed | Use::Metadata | Use::Retired)));
    }
    /// As many flash pages live in each as this says, and the same compared.
    fn live_of(all: &[(u32, u32)]) -> impl Fn(u32) -> (u32, u32) {
        move |extent| all.iter().find(|(e, _)| *e == extent).map_or((0, 0), |(_, live)| (*live, *live))
    }
    /// The same, of pages with one version each.
    fn content_of(all: &[(u32, u32)]) -> impl Fn(u32) -> Content {
        let live = live_of(all);
        move |extent| Content { live: live(extent).0, compared: live(extent).1, chains: 0 }
    }
    /// An extent with so many flash pages that failed, the last ones of its data.
    fn with_bad(wear: &mut Wear, extent: u32, count: u32) {
        (0..count).for_each(|i| _ = wear.insert(extent * 8 + 6 - i));
    }
    fn with_fills(fills: &[(u32, u32)]) -> Wear {
        let mut wear = Wear::new(FEW);
        fills.iter().for_each(|(extent, fills)| wear.set_fills(*extent, &[*fills]));
        wear
    }

    #[test]
    fn what_is_live_or_broken_is_not_free_after_recovery() {
        let new = Extents::new(FEW);
        assert_eq!((new.free(), new.for_data(), new.metadata(), new.emptied(), new.limit()), (13, 13, 0, 0, 16));
        assert_eq!((new.use_of(2), new.use_of(3)), (Use::Fixed, Use::Free));
        let mut wear = Wear::new(FEW);
        [4, 6, 7].into_iter().for_each(|extent| with_bad(&mut wear, extent, 2));
        with_bad(&mut wear, 8, 1);
        let live = |extent| u32::from(extent == 5 || extent == 6 || extent == 4);
        let extents = Extents::recovered(FEW, &[4, 9], &wear, live);
        let uses = (4..=9).map(|e| extents.use_of(e)).collect::<Vec<_>>();
        assert_eq!(uses, [Use::Metadata, Use::Closed, Use::Closed, Use::Retired, Use::Free, Use::Metadata]);
        check_counts(&extents);
        assert_eq!((extents.free(), extents.for_data(), extents.metadata()), (8, 10, 2));
        assert_eq!(free_ones(&extents), [3, 8, 10, 11, 12, 13, 14, 15]);
    }
    #[test]
    fn metadata_takes_no_extent_with_bad_pages_and_those_that_are_too_bad_are_not_used_again() {
        let (mut extents, mut wear) = (Extents::new(FEW), Wear::new(FEW));
        with_bad(&mut wear, 3, 1);
        assert_eq!((extents.take_for_metadata(&wear), extents.take_for_metadata(&wear)), (Some(4), Some(5)));
        assert_eq!((extents.metadata(), extents.free(), extents.use_of(4)), (2, 11, Use::Metadata));
        assert_eq!((extents.take_taken(), extents.take_taken(), extents.take_taken()), (Some(5), Some(4), None));
        extents.free_metadata(4, &wear);
        with_bad(&mut wear, 5, 2);
        extents.free_metadata(5, &wear);
        assert_eq!((extents.use_of(4), extents.use_of(5), extents.free()), (Use::Free, Use::Retired, 12));
        check_counts(&extents);
        // One that is free and becomes too bad is so no more; one that is merely bad stays, and so does one that is in use.
        extents.note_bad(3 * 8, &wear);
        assert_eq!(extents.use_of(3), Use::Free);
        with_bad(&mut wear, 3, 2);
        extents.note_bad(3 * 8, &wear);
        assert_eq!((extents.use_of(3), extents.free()), (Use::Retired, 11));
        let open = extents.give(Writer::Program, 0, 0, &wear).unwrap() / 8;
        with_bad(&mut wear, open, 2);
        extents.note_bad(open * 8, &wear);
        assert_eq!((extents.use_of(open), extents.for_data()), (Use::Open, 11));
        // All that are left have bad pages.
        (3..16).for_each(|extent| with_bad(&mut wear, extent, 1));
        assert_eq!(extents.take_for_metadata(&wear), None);
    }
    #[test]
    fn what_is_hot_goes_where_was_written_least_and_bad_extents_come_first() {
        let mut wear = with_fills(&[(3, 5), (4, 2), (5, 9), (6, 1), (7, 8)]);
        (8..16).for_each(|extent| wear.set_fills(extent, &[4]));
        let mut extents = Extents::new(FEW);
        assert_eq!((extents.take_for_data(&wear, true), extents.take_for_data(&wear, true)), (5, 7));
        assert_eq!((extents.take_for_data(&wear, false), extents.take_for_data(&wear, false)), (6, 4));
        with_bad(&mut wear, 12, 1);
        assert_eq!((extents.take_for_data(&wear, true), extents.take_taken()), (12, Some(12)));
        assert_eq!(
            (extents.take_for_objects(8, &wear, true), extents.take_for_objects(7, &wear, true)),
            (None, Some(3))
        );
        // In a small pool reclaim's data is cold; in a large one what has the lowest degree.
        let cold = with_fills(&[(9, 1)]);
        let mut extents = Extents::new(FEW);
        let first = |extents: &mut Extents, writer, degree, wear: &Wear| extents.give(writer, degree, 0, wear).unwrap();
        assert_eq!(first(&mut extents, Writer::Program, 0, &cold), 3 * 8);
        assert_eq!(first(&mut extents, Writer::Reclaim, 4, &cold), 9 * 8);
        let mut wear = Wear::new(MANY);
        wear.set_fills(9, &[1]);
        let mut extents = Extents::new(MANY);
        assert_eq!(first(&mut extents, Writer::Reclaim, 1, &wear), 3 * 8);
        assert_eq!(first(&mut extents, Writer::Program, 0, &wear), 9 * 8);
    }
    #[test]
    fn streams_lie_side_by_side_and_leave_out_bad_pages() {
        assert!(has_few(FEW) && !has_few(MANY));
        assert_eq!((open_at_most(FEW), open_at_most(MANY)), (2, 5));
        let (mut extents, mut wear) = (Extents::new(FEW), Wear::new(FEW));
        with_bad(&mut wear, 3, 1);
        let mut give = |writer, degree, reserve| extents.give(writer, degree, reserve, &wear);
        let places: Vec<u32> = (0..6).map(|degree| give(Writer::Program, degree % 5, 12).unwrap()).collect();
        assert_eq!(places, [24, 25, 26, 27, 28, 29]);
        // Each writer has its own, and leaves the reserve alone.
        assert_eq!((give(Writer::Reclaim, 0, 12), give(Writer::Reclaim, 0, 11)), (None, Some(32)));
        // The last flash page of the first extent is bad: that one is full.
        assert_eq!((give(Writer::Program, 0, 11), give(Writer::Program, 0, 10)), (None, Some(40)));
        // Full, and written when the last of its writes has ended: whose they are, and who failed.
        extents.settled(25, None);
        [29, 24, 27, 26].into_iter().for_each(|place| extents.settled(place, Some(owner(place))));
        assert_eq!((extents.take_filled(), extents.use_of(3)), (None, Use::Open));
        extents.settled(28, Some(owner(28)));
        let owners = [owner(24), Owner::NONE, owner(26), owner(27), owner(28), owner(29), Owner::NONE].to_vec();
        assert_eq!((extents.take_filled(), extents.use_of(3)), (Some(Filled { extent: 3, owners }), Use::Closed));
        assert_eq!((extents.take_filled(), extents.room_for_programs(100)), (None, usize::MAX));
    }
    #[test]
    fn in_a_large_pool_each_degree_has_an_extent_and_takes_anothers_where_there_is_no_more() {
        let (mut extents, wear) = (Extents::new(MANY), Wear::new(MANY));
        let mut give = |writer, degree, reserve| extents.give(writer, degree, reserve, &wear);
        assert_eq!(give(Writer::Program, 2, 125), None);
        // Both writers share them.
        assert_eq!((give(Writer::Program, 2, 0), give(Writer::Reclaim, 2, 0)), (Some(24), Some(25)));
        assert_eq!((give(Writer::Program, 4, 0), give(Writer::Program, 0, 0)), (Some(32), Some(40)));
        assert_eq!((give(Writer::Program, 1, 122), give(Writer::Program, 4, 122)), (Some(41), Some(33)));
        // 5, 5 and 5 pages of three open extents, and those of free ones beyond the reserve.
        assert_eq!((extents.room_for_programs(122), extents.room_for_programs(120)), (15, 29));
        assert_eq!((extents.room_for_programs(123), extents.room_for_programs(125)), (8, 0));
        for (batch, degrees) in [(39, [1, 1, 1, 3, 3]), (40, [0, 1, 2, 3, 4])] {
            assert_eq!([0, 1, 2, 3, 4].map(|degree| degree_of_batch(degree, batch)), degrees);
        }
    }
    /// All that is left of an extent that was opened is bad: the next one is taken.
    #[test]
    fn an_extent_of_nothing_but_bad_pages_is_passed_over() {
        let (mut extents, mut wear) = (Extents::new(FEW), Wear::new(FEW));
        with_bad(&mut wear, 3, 7);
        assert_eq!(extents.give(Writer::Program, 0, 0, &wear), Some(32));
        assert_eq!((extents.use_of(3), extents.take_filled().map(|f| f.extent)), (Use::Closed, Some(3)));
    }
    #[test]
    fn what_was_emptied_is_free_when_the_journal_is_durable_and_nothing_is_copied_from_it() {
        let (mut extents, wear) = (Extents::new(FEW), Wear::new(FEW));
        for extent in [3, 4, 5] {
            assert_eq!(fill(&mut extents, Writer::Program, 0, &wear), extent);
            extents.note_empty(extent, u64::from(extent) * 10);
        }
        // What is free or open has nothing that it could lose.
        extents.note_empty(9, 0);
        assert_eq!((extents.emptied(), extents.free(), extents.use_of(9)), (3, 10, Use::Free));
        assert_eq!(extents.durable(30, &wear), 0);
        assert_eq!((extents.durable(31, &wear), extents.use_of(3), extents.emptied()), (1, Use::Free, 2));
        extents.set_copied_from(Some(4), &wear);
        assert_eq!((extents.durable(41, &wear), extents.use_of(4)), (0, Use::Emptied { until: 40 }));
        // It stays so until copies from it have ended, whatever else becomes durable; a page named again is no news.
        extents.set_copied_from(Some(4), &wear);
        assert_eq!(extents.durable(51, &wear), 1);
        assert_eq!((extents.emptied(), extents.free()), (1, 12));
        extents.set_copied_from(None, &wear);
        assert_eq!((extents.emptied(), extents.free(), extents.use_of(4)), (0, 13, Use::Free));
        // The end that was durable is not forgotten by an older one.
        let extent = fill(&mut extents, Writer::Program, 0, &wear);
        extents.set_copied_from(Some(extent), &wear);
        extents.note_empty(extent, 45);
        assert_eq!(extents.durable(44, &wear), 0);
        extents.set_copied_from(None, &wear);
        assert_eq!(extents.free(), 13);
    }
    #[test]
    fn what_was_emptied_is_free_when_all_of_its_summary_has_ended() {
        let (mut extents, wear) = (Extents::new(FEW), Wear::new(FEW));
        for extent in [3, 4] {
            assert_eq!(fill(&mut extents, Writer::Program, 0, &wear), extent);
            extents.begin_summary(extent);
            extents.begin_summary(extent);
            extents.note_empty(extent, u64::from(extent) * 10);
        }
        // Until the journal is durable it is that which they wait for.
        assert_eq!((extents.emptied(), extents.held(), extents.free()), (2, 0, 11));
        assert_eq!(extents.durable(31, &wear), 0);
        assert_eq!((extents.emptied(), extents.held(), extents.use_of(3)), (1, 1, Use::Emptied { until: 30 }));
        extents.end_summary(3, &wear);
        assert_eq!((extents.held(), extents.free()), (1, 11));
        extents.end_summary(3, &wear);
        assert_eq!((extents.emptied(), extents.held(), extents.free(), extents.use_of(3)), (1, 0, 12, Use::Free));
        // One whose summary has ended before waits only for the journal.
        extents.end_summary(4, &wear);
        extents.end_summary(4, &wear);
        assert_eq!((extents.emptied(), extents.free()), (1, 12));
        assert_eq!((extents.durable(41, &wear), extents.emptied(), extents.free()), (1, 0, 13));
    }
    #[test]
    fn the_next_to_be_reclaimed_gains_most_for_its_age() {
        let (mut extents, wear) = (Extents::new(FEW), Wear::new(FEW));
        let filled: Vec<u32> = (0..4).map(|_| fill(&mut extents, Writer::Program, 0, &wear)).collect();
        assert_eq!(filled, [3, 4, 5, 6]);
        let victim = |extents: &mut Extents, policy, live: &[(u32, u32)]| {
            let victim = extents.victim(policy, false, &wear, content_of(live));
            victim.inspect(|e| {
                assert_eq!(extents.use_of(*e), Use::Reclaimed);
                extents.uses[*e as usize] = Use::Closed;
            })
        };
        let (greedy, benefit) = (Victims::Greedy, Victims::CostBenefit);
        // Full ones gain nothing; of equals the last is taken by the greedy, the oldest by the other.
        assert_eq!(victim(&mut extents, greedy, &[(3, 7), (4, 7), (5, 7), (6, 7)]), None);
        assert_eq!(victim(&mut extents, greedy, &[(3, 7), (4, 6), (5, 7), (6, 7)]), Some(4));
        assert_eq!(victim(&mut extents, greedy, &[(3, 3), (4, 3), (5, 3), (6, 4)]), Some(5));
        assert_eq!(victim(&mut extents, benefit, &[(3, 3), (4, 3), (5, 3), (6, 4)]), Some(3));
        // Ages 22, 15, 8 and 1: (7 - live) / (live + 1) x age.
        assert_eq!(victim(&mut extents, benefit, &[(3, 5), (4, 4), (5, 7), (6, 7)]), Some(4));
        assert_eq!(victim(&mut extents, benefit, &[(3, 5), (4, 5), (5, 3), (6, 7)]), Some(5));
        assert_eq!(victim(&mut extents, benefit, &[(3, 5), (4, 5), (5, 4), (6, 1)]), Some(3));
        // One that was given up is the youngest, and not tried again while as much of it is live.
        let live = [(3, 5), (4, 5), (5, 6), (6, 6)];
        assert_eq!(extents.victim(benefit, false, &wear, content_of(&live)), Some(3));
        extents.give_up(3);
        assert_eq!((extents.use_of(3), victim(&mut extents, benefit, &live)), (Use::Closed, Some(4)));
        assert_eq!(extents.victim(greedy, false, &wear, content_of(&[(3, 1), (4, 5), (5, 5), (6, 5)])), Some(3));
        extents.give_up_for_now(3, 1);
        assert_eq!(victim(&mut extents, greedy, &[(3, 1), (4, 5), (5, 6), (6, 6)]), Some(4));
        assert_eq!(extents.victim_among(3..7, Some(6), live_of(&[(3, 1), (4, 5), (5, 6), (6, 6)])), Some(4));
        extents.give_up(4);
        assert_eq!(victim(&mut extents, greedy, &[(3, 2), (4, 5), (5, 6), (6, 6)]), Some(3));
        // What is not being reclaimed cannot be given up.
        extents.give_up(9);
        assert_eq!(extents.use_of(9), Use::Free);
        // When it is free again that is forgotten.
        extents.note_empty(3, 0);
        extents.durable(1, &wear);
        assert_eq!(extents.stuck[3], 0);
    }
    #[test]
    fn one_that_is_to_be_used_no_more_comes_first_where_there_is_room() {
        let (mut extents, mut wear) = (Extents::new(FEW), Wear::new(FEW));
        (0..2).for_each(|_| _ = fill(&mut extents, Writer::Program, 0, &wear));
        let live = [(3, 7), (4, 1)];
        with_bad(&mut wear, 3, 2);
        let mut victim = |room| {
            let victim = extents.victim(Victims::Greedy, room, &wear, content_of(&live))?;
            extents.give_up(victim);
            Some(victim)
        };
        assert_eq!((victim(false), victim(true)), (Some(4), Some(3)));
        // Full and sound: neither.
        assert_eq!(extents.victim(Victims::Greedy, true, &Wear::new(FEW), content_of(&[(3, 7), (4, 7)])), None);
    }
    #[test]
    fn of_some_the_one_with_the_fewest_live_pages_is_chosen() {
        let (mut extents, wear) = (Extents::new(FEW), Wear::new(FEW));
        (0..4).for_each(|_| _ = fill(&mut extents, Writer::Program, 0, &wear));
        let live = [(3, 5), (4, 2), (5, 3), (6, 1)];
        assert_eq!(extents.victim_among(3..6, Some(1), live_of(&live)), None);
        assert_eq!((extents.victim_among(3..6, Some(2), live_of(&live)), extents.use_of(4)), (Some(4), Use::Reclaimed));
        assert_eq!(extents.victim_among(3..6, None, live_of(&live)), Some(5));
        assert_eq!(extents.victim_among(7..16, None, live_of(&live)), None);
        // One that has nothing live is never stuck.
        extents.give_up_for_now(5, 0);
        assert_eq!(extents.victim_among(5..6, Some(7), live_of(&[])), Some(5));
        extents.give_up_for_now(5, 3);
        assert_eq!(extents.victim_among(5..6, Some(7), live_of(&live)), None);
        assert_eq!(extents.victim_among(5..6, None, live_of(&live)), Some(5));
    }
    #[test]
    fn wear_is_levelled_now_and_then_and_only_where_it_is_uneven() {
        let mut wear = with_fills(&[(3, 9), (4, 4), (5, 6), (6, 14)]);
        let mut extents = Extents::new(FEW);
        (3..=5).for_each(|extent| extents.uses[extent as usize] = Use::Closed);
        // As much as 32 extents hold has to be written before, and again each time.
        extents.given = 32 * 7 - 1;
        assert_eq!(extents.due_for_levelling(1, &wear), None);
        extents.given += 1;
        assert_eq!(extents.due_for_levelling(10, &wear), None);
        assert_eq!(extents.due_for_levelling(9, &wear), None);
        extents.given += 32 * 7;
        assert_eq!(extents.due_for_levelling(9, &wear), Some(4));
        assert_eq!((extents.use_of(4), extents.due_for_levelling(1, &wear)), (Use::Reclaimed, None));
        extents.given += 32 * 7;
        assert_eq!(extents.due_for_levelling(8, &wear), None);
        wear.set_fills(6, &[15]);
        extents.given += 32 * 7;
        extents.set_limit(5);
        assert_eq!(extents.due_for_levelling(5, &wear), Some(3));
    }
    #[test]
    fn nothing_behind_the_limit_is_used_again() {
        let (mut extents, wear) = (Extents::new(FEW), Wear::new(FEW));
        let (first, second) = (fill(&mut extents, Writer::Program, 0, &wear), 4);
        assert_eq!(extents.give(Writer::Program, 0, 0, &wear), Some(second * 8));
        assert_eq!(extents.give(Writer::Reclaim, 0, 0, &wear), Some(5 * 8));
        // What is open behind it is closed, when its writes have ended.
        extents.set_limit(5);
        assert_eq!((extents.limit(), extents.free(), extents.take_filled()), (5, 0, None));
        extents.settled(5 * 8, Some(owner(7)));
        assert_eq!(extents.take_filled().map(|filled| (filled.extent, filled.owners[0])), Some((5, owner(7))));
        assert_eq!(extents.give(Writer::Program, 0, 0, &wear), Some(second * 8 + 1));
        [first, 5].into_iter().for_each(|extent| extents.note_empty(extent, 0));
        assert_eq!((extents.durable(1, &wear), extents.free()), (1, 1));
        extents.set_limit(16);
        assert_eq!((extents.free(), extents.give(Writer::Reclaim, 0, 0, &wear)), (12, Some(first * 8)));
    }
    #[test]
    fn an_extent_of_objects_is_as_old_as_what_fills_it() {
        let (mut extents, wear) = (Extents::new(FEW), Wear::new(FEW));
        let objects = extents.take_for_objects(12, &wear, false).unwrap();
        let other = fill(&mut extents, Writer::Program, 0, &wear);
        extents.close_objects(objects, 3);
        assert_eq!(
            (extents.use_of(objects), extents.given, extents.filled_at[objects as usize]),
            (Use::Closed, 10, 10)
        );
        let live = [(objects, 3), (other, 3)];
        assert_eq!(extents.victim(Victims::CostBenefit, false, &wear, content_of(&live)), Some(other));
    }
    #[test]
    fn bad_flash_pages_are_no_gain() {
        let geometry = Geometry::new(8 * 40, 8, None).expect("enough for a pool");
        let full = geometry.data_pages();
        for policy in [Victims::Greedy, Victims::CostBenefit] {
            let live = |e: u32| if e == 5 { full - 1 } else { full };
            let extents = |wear: &Wear| {
                let mut extents = Extents::recovered(geometry, &[], wear, live);
                extents.victim(policy, false, wear, |e| Content { live: live(e), compared: live(e), chains: 0 })
            };
            let mut wear = Wear::new(geometry);
            assert_eq!(extents(&wear), Some(5), "one is dead");
            // All that can be written is live: to empty it would cost as much as it gives, for ever.
            wear.insert(geometry.first_of(5) + 2);
            assert_eq!(extents(&wear), None, "none is dead, and one is bad");
            // One more than can be written is live, as it was read before its flash page failed.
            wear.insert(geometry.first_of(5) + 3);
            assert_eq!(extents(&wear), None);
        }
    }
}
