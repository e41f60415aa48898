//! What of objects is under way: batches, their flash pages, the extents that are being filled.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;
use fulgurite_format::{ObjectWritten, Owner, PageBuffer, SUBPAGE_BYTES, Status};

use super::super::WriteError;
use super::reclaim::{MovePage, ObjectReclaim, bytes_max};
use super::streams::{STREAMS, Stream};
use crate::geometry::Geometry;
use crate::objects::UNITS_PER_PAGE;

/// The most objects of a batch that are taken at once: some 30 flash pages of small ones.
pub const OBJECTS_AT_ONCE: usize = 1024;
/// Flash pages that may wait here or be under way before no more are taken.
pub(super) const WAITING_MAX: usize = 64;
/// Flash pages that are written at a time.
pub(super) const DEPTH: usize = 16;
/// Extents that are being filled or settled.
pub(super) const OPEN_MAX: usize = 2 * STREAMS;
/// Places at which a flash page is tried. As for subpages, if all of these fail it is the device.
pub(super) const PLACES_MAX: u32 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Waiting,
    Writing(u32),
    Written(u32),
    Failed(WriteError),
}

/// A flash page of a batch.
#[derive(Debug)]
pub(super) struct PackedPage {
    /// None where all objects of it are freed.
    pub(super) page: Option<PageBuffer>,
    pub(super) stream: Stream,
    pub(super) objects: Vec<ObjectWritten>,
    pub(super) stage: Stage,
    pub(super) failed: u32,
    pub(super) batch: u64,
}

/// A batch that is under way: flash pages to come, by how much its objects weigh more than what
/// they replace, and what failed first.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) pages: usize,
    pub(super) grows: u64,
    pub(super) result: Result<(), WriteError>,
}

/// An extent that is being filled with objects.
#[derive(Debug)]
pub(super) struct OpenExtent {
    pub(super) extent: u32,
    /// Flash pages given out.
    pub(super) next: u32,
    /// Writes in flight.
    pub(super) pending: u32,
    /// Objects of all flash pages given out.
    pub(super) promised: usize,
    pub(super) owners: Vec<Owner>,
}

/// Pages of a summary of `objects` objects: the last one has room, so that it says that it is the
/// last.
pub(super) fn summary_pages(objects: usize) -> u32 {
    (objects / Owner::PER_PAGE) as u32 + 1
}

/// All that a pool of objects needs in addition to what one without needs.
#[derive(Debug)]
pub struct ObjectLog {
    pub(super) geometry: Geometry,
    /// By stream.
    pub(super) open: [Option<OpenExtent>; STREAMS],
    /// Full, with writes in flight.
    pub(super) settling: Vec<OpenExtent>,
    pub(super) queue: VecDeque<PackedPage>,
    /// The number of the first in the queue.
    pub(super) first: u64,
    pub(super) batches: HashMap<u64, Batch, FixedState>,
    pub(super) next_batch: u64,
    /// By how much all batches under way weigh more than what they replace.
    pub(super) grows: u64,
    /// The reclaim of an extent, and flash pages of moved objects that wait for places or are being
    /// written.
    pub(super) reclaim: Option<ObjectReclaim>,
    pub(super) ready: VecDeque<MovePage>,
    pub(super) moving: Vec<(u32, MovePage)>,
    /// Flash pages that are written, and wait for leaves of their objects to be recorded.
    pub(super) landed: Vec<(u32, MovePage)>,
}

impl ObjectLog {
    /// None for a pool without objects.
    pub fn of(geometry: Geometry) -> Option<Box<ObjectLog>> {
        geometry.objects.then(|| {
            Box::new(ObjectLog {
                geometry,
                open: [const { None }; STREAMS],
                settling: Vec::new(),
                queue: VecDeque::new(),
                first: 0,
                batches: HashMap::default(),
                next_batch: 0,
                grows: 0,
                reclaim: None,
                ready: VecDeque::new(),
                moving: Vec::new(),
                landed: Vec::new(),
            })
        })
    }
    /// The pool has `extents` extents from now on.
    pub fn grow(&mut self, extents: u32) {
        self.geometry.extents = extents;
    }
    pub fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.reclaim.is_none() && self.ready.is_empty() && !self.is_moving()
    }
    /// Whether flash pages of moved objects are under way.
    pub fn is_moving(&self) -> bool {
        !self.moving.is_empty() || !self.landed.is_empty()
    }
    /// Whether the reclaim under way goes on by itself; none when there is none.
    pub fn reclaim_moves(&self) -> Option<bool> {
        self.reclaim.as_ref().map(|reclaim| reclaim.is_moving() || self.is_moving())
    }
    /// The extent whose objects are being copied, from when their new locations are known until
    /// they are stored there.
    pub fn copied_from(&self) -> Option<u32> {
        self.reclaim.as_ref().and_then(ObjectReclaim::copied_from)
    }
    /// DRAM of what waits and of the owners of open extents.
    pub fn bytes(&self) -> usize {
        let objects = |page: &PackedPage| page.objects.capacity() * size_of::<ObjectWritten>();
        let packed =
            self.queue.iter().map(|page| page.page.iter().len() * SUBPAGE_BYTES + objects(page)).sum::<usize>();
        let moved = self
            .ready
            .iter()
            .chain(self.moving.iter().chain(&self.landed).map(|(_, page)| page))
            .map(MovePage::bytes)
            .sum::<usize>();
        let open = self.open.iter().flatten().chain(&self.settling);
        let owners: usize = open.map(|open| open.owners.capacity() * size_of::<Owner>()).sum();
        let reclaim = self.reclaim.as_ref().map_or(0, ObjectReclaim::bytes);
        size_of::<ObjectLog>() + packed + moved + owners + reclaim
    }
    /// DRAM that it may come to: all waits that may, and extents are full of the smallest objects.
    pub fn bytes_max(&self) -> usize {
        // What is taken at once is not halved by packing, because all of it may be freed objects,
        // which have no flash page.
        let packed = (2 * WAITING_MAX + 2) * OBJECTS_AT_ONCE * size_of::<ObjectWritten>();
        // The owners of an extent, in addition to their summary.
        let units = UNITS_PER_PAGE as usize;
        let pages = self.geometry.extent_pages as usize * Owner::PER_PAGE / (Owner::PER_PAGE + units) + 1;
        // Memory that grows doubles.
        let open = OPEN_MAX * 2 * pages * units * size_of::<Owner>();
        let most = packed + open + bytes_max(pages * units, self.geometry.extent_pages as usize);
        // More extents are being settled for a moment where they are tiny.
        (size_of::<ObjectLog>() + most).max(self.bytes())
    }
    /// A write to a flash page has ended; with whose objects are there, or none when it failed.
    pub(super) fn settled(&mut self, place: u32, owners: impl Iterator<Item = u32>) {
        let extent = self.geometry.extent_of(place);
        let open = self.open.iter_mut().flatten().chain(&mut self.settling).find(|open| open.extent == extent);
        let open = open.expect("it was given out");
        open.pending -= 1;
        open.owners.extend(owners.map(|subpage| Owner { subpage, checksum: place }));
    }
}

/// Status of a page from when something of it is written on.
pub fn status_when_written(status: Status) -> Status {
    if status.has(Status::ALLOCATED) && !status.has(Status::DELETED) {
        return status;
    }
    // Writing a page that was not allocated creates it (NVMM, "write").
    Status::ALLOCATED.with(Status::READ).with(Status::WRITE).with(Status::PERMANENT)
}
