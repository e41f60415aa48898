//! Settings of an object allocator, and how they divide its DRAM.

use std::time::Duration;

use fulgurite_backing::Medium;
use fulgurite_format::SUBPAGE_BYTES;

use super::buffer;
use super::log::{EXTENT_PAGES, EXTENTS_MIN, Log};
use super::numbers::{self, CHUNK};
use super::places;
use super::queue::BlockingQueue;
use crate::StartError;

/// Which thread fills a missing page in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Threads of the allocator. System calls may be given objects, which they wait for.
    #[default]
    Compatible,
    /// The thread that touches it, in a handler of `SIGBUS`: a fault costs a fifth. But a system
    /// call that is given an object without a page fails with `EFAULT`, a handler of a signal must
    /// touch no object, and threads must not block `SIGBUS`.
    InLine,
}

/// A write past the end of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overrun {
    /// Where the object begins.
    pub object: usize,
    /// Bytes that it has.
    pub size: usize,
    /// The first byte behind its end that was written to, counted from its begin.
    pub at: usize,
}

impl std::fmt::Display for Overrun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Overrun { object, size, at } = self;
        write!(f, "the object of {size} bytes at {object:#x} was written to behind its end, at byte {at}")
    }
}

/// What an object allocator is started with.
#[derive(Clone, Debug)]
pub struct ObjectSettings {
    /// The flash. Its contents are overwritten, unless it is a pool of this process: one that is
    /// empty, or has permanent objects already
    /// ([`set_permanent`](super::ObjectAllocator::set_permanent)).
    pub medium: Medium,
    /// Bytes of DRAM for all that the allocator keeps: page buffer, object cache, tables. Memory
    /// that the program has elsewhere is not counted.
    pub dram_bytes: u64,
    /// The most objects that there may be at a time. Each has a page of addresses. In addition to
    /// its contents it takes at most 3 bytes of DRAM, and 23 over a pool.
    pub objects_max: u32,
    /// Bytes of DRAM for the page buffer, page tables included. Without, an eighth of `dram_bytes`
    /// or 128 MiB, whichever is less.
    pub page_buffer_bytes: Option<u64>,
    /// Over a pool: a state is named without being asked for where changes since the last one have
    /// no more room ([`sync`](super::ObjectAllocator::sync)). It has each object as it last left
    /// DRAM. One that got the number of a freed object may have its bytes there. Such a state takes
    /// the place of the last one that was asked for, as a pool keeps one token. Without, accesses
    /// that need room get `SIGBUS` then, and a sync may find none: the state of the last one stays.
    pub syncs_itself: bool,
    /// How many of the newest states a pool keeps: 1 or more, and 1 without. A flat medium keeps
    /// none, and refuses it. Those that were named without being asked for count.
    pub keep_tokens: Option<usize>,
    /// How old the states of a pool may become, but for the newest. A flat medium refuses it.
    pub keep_age: Option<Duration>,
    /// Which thread fills a missing page in.
    pub mode: Mode,
    /// Looks for writes past the end of an object, whenever its page leaves the page buffer, and
    /// calls this function. It must touch no object. Without, nothing is looked for.
    pub on_overrun: Option<fn(Overrun)>,
}

impl ObjectSettings {
    /// For `objects_max` objects over a medium, with `dram_bytes` bytes of DRAM.
    #[must_use]
    pub fn new(medium: Medium, dram_bytes: u64, objects_max: u32) -> ObjectSettings {
        ObjectSettings {
            medium,
            dram_bytes,
            objects_max,
            page_buffer_bytes: None,
            syncs_itself: true,
            keep_tokens: None,
            keep_age: None,
            mode: Mode::default(),
            on_overrun: None,
        }
    }
    /// Chunks of numbers.
    pub(super) fn chunks(&self) -> u32 {
        self.objects_max.div_ceil(CHUNK)
    }
}

/// A page of the buffer: its frame, and the kernel's tables of pages that it may have alone.
const BYTES_PER_PAGE: u64 =
    (1 + buffer::TABLES_PER_SLOT as u64) * SUBPAGE_BYTES as u64 + buffer::BYTES_PER_SLOT as u64 + 16;
/// A chunk has 4 MiB of addresses. Of each GiB the kernel keeps a page, a table of its tables.
const DIRECTORY_BYTES_PER_CHUNK: usize = SUBPAGE_BYTES * CHUNK as usize * SUBPAGE_BYTES / (1 << 30);
const PAGES_MIN: u64 = 64;
const PAGE_BUFFER_MAX: u64 = 128 << 20;
/// The page buffer gets one part in this number of the DRAM, unless its size was set.
const SHARE: u64 = 4;

/// Queues for faults.
pub const QUEUES: usize = 16;
/// Frames of the log's thread: an extent that is cleaned, and as much that is written.
pub const LOG_FRAMES: usize = EXTENT_PAGES as usize;
/// In addition to frames: what packing and a batch take.
const LOG_BYTES: u64 = 3 * (LOG_FRAMES * SUBPAGE_BYTES) as u64;

/// How the DRAM is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub chunks: u32,
    pub extents: u32,
    pub pages: u32,
    pub shards: usize,
    pub shard_bytes: usize,
}

/// Extents of a log over `flash_pages` flash pages.
///
/// # Errors
/// [`StartError::SmallFlash`].
pub fn extents(flash_pages: u32) -> Result<u32, StartError> {
    let extents = flash_pages.min(places::PAGES_MAX) / EXTENT_PAGES;
    if extents < EXTENTS_MIN {
        let least = u64::from(EXTENTS_MIN * EXTENT_PAGES) * SUBPAGE_BYTES as u64;
        return Err(StartError::SmallFlash { least });
    }
    Ok(extents)
}

impl Layout {
    /// With the number of chunks, of extents of a log and of queues, and with the DRAM that the
    /// medium and its store take.
    pub fn new(
        settings: &ObjectSettings,
        (chunks, extents): (u32, u32),
        queues: &[BlockingQueue],
        medium: u64,
    ) -> Result<Layout, StartError> {
        if settings.objects_max == 0 {
            return Err(StartError::NoObjects);
        }
        let queues: usize = queues.iter().map(BlockingQueue::bytes).sum();
        let per_chunk = numbers::BYTES_PER_CHUNK + places::CHUNK_BYTES + DIRECTORY_BYTES_PER_CHUNK + 24;
        let tables =
            u64::from(chunks) * per_chunk as u64 + Log::bytes(extents) as u64 + queues as u64 + medium + LOG_BYTES;
        let asked = settings.page_buffer_bytes.unwrap_or((settings.dram_bytes / SHARE).min(PAGE_BUFFER_MAX));
        let pages = (asked / BYTES_PER_PAGE).max(PAGES_MIN).min(u64::from(settings.objects_max).max(PAGES_MIN));
        let taken = tables + pages * BYTES_PER_PAGE;
        let left = settings.dram_bytes.saturating_sub(taken);
        let cache_min = fulgurite_objects::CACHE_BYTES_MIN as u64;
        if left < cache_min {
            return Err(StartError::TooSmall { dram: settings.dram_bytes, tables, least: taken + cache_min });
        }
        // Few enough that each has a few megabytes.
        let most = fulgurite_objects::CACHE_BYTES_MAX as u64;
        let shards = (left / (4 << 20)).clamp(1, 16).max(left.div_ceil(most));
        Ok(Layout {
            chunks,
            extents,
            pages: pages as u32,
            shards: shards as usize,
            shard_bytes: (left / shards) as usize,
        })
    }
}
