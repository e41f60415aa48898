//! Extents: which are free, which are being written, by whom, and which is reclaimed next.
//!
//! Data that is overwritten about as often belongs in the same extent: that one then empties by itself. So there is an open extent
//! for each degree of heat, for what programs write and what reclaim copies alike.
//!
//! Invariants: an extent that has lost its last live flash page is used again only after a commit has made durable whatever took
//! the last one away; what is in flight to an extent keeps it from being used again.

use std::collections::VecDeque;

use fulgurite_format::Owner;
use fulgurite_policy::Heat;

use crate::geometry::{FIRST_EXTENT, Geometry};

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

/// How the next extent to reclaim is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Victims {
    /// The one with the fewest live flash pages.
    Greedy,
    /// The most benefit for its cost: (dead / live) x age. (The log-structured file system of Rosenblum and Ousterhout, 1992, counts
    /// the reading of the whole segment as well; here only what is live is read and written.)
    #[default]
    CostBenefit,
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
    /// When an extent was filled, in flash pages given out.
    filled_at: Vec<u64>,
    given: u64,
    free: VecDeque<u32>,
    open: [Option<OpenExtent>; STREAMS],
    /// Full, with writes in flight.
    settling: Vec<OpenExtent>,
    /// Full and settled.
    summaries: VecDeque<Filled>,
    emptied: u32,
}

impl Extents {
    /// All free, but for the fixed ones.
    pub fn new(geometry: Geometry) -> Extents {
        let mut uses = vec![Use::Free; geometry.extents as usize];
        uses[..FIRST_EXTENT as usize].fill(Use::Fixed);
        Extents {
            geometry,
            filled_at: vec![0; uses.len()],
            uses,
            given: 0,
            free: (FIRST_EXTENT..geometry.extents).collect(),
            open: [const { None }; STREAMS],
            settling: Vec::new(),
            summaries: VecDeque::new(),
            emptied: 0,
        }
    }
    /// After recovery: what holds live data is closed, the metadata's extents are given, the rest is free.
    pub fn recovered(geometry: Geometry, metadata: &[u32], live: impl Fn(u32) -> u32) -> Extents {
        let mut extents = Extents::new(geometry);
        for extent in metadata {
            extents.uses[*extent as usize] = Use::Metadata;
        }
        for extent in FIRST_EXTENT..geometry.extents {
            let state = &mut extents.uses[extent as usize];
            if *state == Use::Free && live(extent) > 0 {
                *state = Use::Closed;
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
    /// Extents that a commit would free.
    pub fn emptied(&self) -> u32 {
        self.emptied
    }
    /// DRAM in all.
    pub fn bytes(&self) -> usize {
        self.uses.len() * (size_of::<Use>() + 12) + STREAMS * self.geometry.extent_pages as usize * size_of::<Owner>()
    }

    /// An extent for journal or checkpoint.
    pub fn take_for_metadata(&mut self) -> Option<u32> {
        let extent = self.free.pop_front()?;
        self.uses[extent as usize] = Use::Metadata;
        Some(extent)
    }
    /// Gives back an extent of metadata that no state which could be recovered uses.
    pub fn free_metadata(&mut self, extent: u32) {
        debug_assert_eq!(self.use_of(extent), Use::Metadata);
        self.uses[extent as usize] = Use::Free;
        self.free.push_back(extent);
    }

    fn stream_of(&self, writer: Writer, degree: usize) -> usize {
        if self.geometry.extents < FEW_EXTENTS { writer as usize } else { degree }
    }
    /// Whether a program's write would take of what reclaim has opened for its copies: where fewer extents are free than the
    /// reserve, the room in open ones stands for those. Without it a reclaim may find no room, and never give any.
    fn encroaches(&self, reserve: u32) -> bool {
        let missing = reserve.saturating_sub(self.free());
        // A small pool's reclaim keeps its own.
        if missing == 0 || self.geometry.extents < FEW_EXTENTS {
            return false;
        }
        let pages = self.geometry.data_pages();
        let room: u32 = self.open.iter().flatten().map(|open| pages - open.next).sum();
        room <= missing * pages
    }
    /// A flash page for data of a degree of heat. It is in flight from now on. None where that would take another extent and no more
    /// than `reserve` are free.
    pub fn give(&mut self, writer: Writer, degree: usize, reserve: u32) -> Option<u32> {
        if writer == Writer::Program && self.encroaches(reserve) {
            return None;
        }
        let mut stream = self.stream_of(writer, degree);
        if self.open[stream].is_none() {
            if self.free() > reserve {
                let extent = self.free.pop_front().expect("more than the reserve");
                self.uses[extent as usize] = Use::Open;
                let owners = vec![Owner::NONE; self.geometry.data_pages() as usize];
                self.open[stream] = Some(OpenExtent { extent, next: 0, pending: 0, owners });
            } else {
                // Better among data of another degree than not at all. A small pool's reclaim keeps its own.
                let others = if self.geometry.extents < FEW_EXTENTS { stream..stream + 1 } else { 0..STREAMS };
                stream = others.into_iter().find(|other| self.open[*other].is_some())?;
            }
        }
        self.given += 1;
        let open = self.open[stream].as_mut().expect("it has room");
        let place = self.geometry.first_of(open.extent) + open.next;
        open.next += 1;
        open.pending += 1;
        if open.next == self.geometry.data_pages() {
            self.settling.extend(self.open[stream].take());
        }
        Some(place)
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
            self.uses[extent as usize] = Use::Closed;
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
        let state = &mut self.uses[extent as usize];
        if matches!(*state, Use::Closed | Use::Reclaimed) {
            *state = Use::Emptied { until };
            self.emptied += 1;
        }
    }
    /// The journal is durable up to but not including this page: what waited for that is free. Returns how many extents.
    pub fn durable(&mut self, end: u64) -> u32 {
        let before = self.free();
        for (extent, state) in self.uses.iter_mut().enumerate() {
            if matches!(*state, Use::Emptied { until } if until < end) {
                *state = Use::Free;
                self.free.push_back(extent as u32);
                self.emptied -= 1;
            }
        }
        self.free() - before
    }

    /// The next extent to reclaim; none when all closed ones are full of live data.
    pub fn victim(&mut self, policy: Victims, live: impl Fn(u32) -> u32) -> Option<u32> {
        let pages = self.geometry.data_pages();
        let benefit = |extent: &u32| {
            let live = live(*extent);
            match policy {
                Victims::Greedy => u64::from(pages - live),
                Victims::CostBenefit => {
                    let age = self.given - self.filled_at[*extent as usize] + 1;
                    // In 1/1024, so that integers do.
                    (u64::from(pages - live) * 1024 / u64::from(live + 1)).saturating_mul(age)
                }
            }
        };
        let closed = (FIRST_EXTENT..self.geometry.extents)
            .filter(|e| self.use_of(*e) == Use::Closed && live(*e) < pages)
            .max_by_key(benefit)?;
        self.uses[closed as usize] = Use::Reclaimed;
        Some(closed)
    }
    /// Gives an extent up that was being reclaimed: something in it cannot be copied.
    pub fn give_up(&mut self, extent: u32) {
        if self.use_of(extent) == Use::Reclaimed {
            self.uses[extent as usize] = Use::Closed;
            // It becomes the youngest, so that others come first.
            self.filled_at[extent as usize] = self.given;
        }
    }
}
