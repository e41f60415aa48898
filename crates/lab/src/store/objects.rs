//! Objects packed several to a flash page, compared with a flash page for each: the flash writes
//! for each changed byte, and the DRAM for each live byte.
//!
//! As in [`super::overwrites`] nothing is timed: the store decides, and its requests are answered
//! at once. Both pools have the same flash, and are equally full.

use anyhow::{Result, ensure};
use fulgurite_format::{PAYLOAD_BYTES, SUBPAGE_BYTES, crc32c};
use fulgurite_store::{Geometry, StoreConfig};
use fulgurite_workloads::Random;
use serde::Serialize;

use super::counted::{Counted, in_batches};
use super::medium;
use crate::args::StoreArgs;
use fulgurite_term::interrupt::{Interrupt, until_interrupted};
use fulgurite_term::progress;
use fulgurite_term::report::table::Columns;

/// Bytes of an object: one of a cache of small items, and one that is a quarter of a flash page.
const SIZES: [usize; 2] = [128, 1024];
const EXTENT_PAGES: u32 = 64;
/// Live data as a share of what is not reserve.
const FULL: f64 = 0.8;
/// Objects that are written at a time.
const BATCH: usize = 128;
/// How often the data is overwritten; counted is the second half.
const OVERWRITES: u64 = 4;

/// Objects of one size, written in one mode.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    object_bytes: usize,
    packed: bool,
    full_percent: f64,
    pool_bytes: u64,
    objects: u32,
    live_bytes: u64,
    /// Bytes that reached the flash for each byte that changed: data, then metadata, then both.
    data_per_byte: f64,
    metadata_per_byte: f64,
    bytes_per_byte: f64,
    /// DRAM of the store as a share of the live bytes.
    dram_share: f64,
}

/// A pool for objects of a size, and how many of them make it full enough.
fn pool(flash_pages: u32, bytes: usize, packed: bool) -> Result<(Geometry, u32)> {
    if !packed {
        let geometry = Geometry::new(flash_pages, EXTENT_PAGES, None)?;
        return Ok((geometry, medium::subpages_at(geometry, FULL * 100.0)));
    }
    let geometry = Geometry::with_objects(flash_pages, EXTENT_PAGES, 16)?;
    let mut count = 16;
    for _ in 0..32 {
        // Two checkpoints, and a journal twice as long as one, which follow the number of objects.
        let checkpoint = f64::from(count) * 13.5 / PAYLOAD_BYTES as f64 / f64::from(EXTENT_PAGES) + 1.0;
        let reserved = f64::from(geometry.fixed_extents() + geometry.reserved_extents()) + 4.0 * checkpoint;
        let extents = (f64::from(geometry.extents) - reserved).max(1.0);
        let in_a_page = (SUBPAGE_BYTES / bytes) as f64;
        count = (extents * f64::from(geometry.data_pages()) * FULL * in_a_page) as u32;
    }
    Ok((Geometry::with_objects(flash_pages, EXTENT_PAGES, count)?, count))
}

/// What an object holds when it was written this number of times.
fn content(object: u32, times: u64, into: &mut [u8]) {
    let seed = (u64::from(object) << 32 | times).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    into.chunks_exact_mut(8).zip(seed..).for_each(|(bytes, number)| bytes.copy_from_slice(&number.to_le_bytes()));
}

struct Writer {
    counted: Counted,
    bytes: usize,
    packed: bool,
    times: Vec<u64>,
}

impl Writer {
    fn write(&mut self, batch: &[u32]) -> Result<()> {
        let mut buffer = vec![0; batch.len() * self.bytes];
        for (object, into) in batch.iter().zip(buffer.chunks_exact_mut(self.bytes)) {
            self.times[*object as usize] += 1;
            content(*object, self.times[*object as usize], into);
        }
        let objects: Vec<(u32, &[u8])> = batch.iter().copied().zip(buffer.chunks_exact(self.bytes)).collect();
        let (mut rest, counted) = (&objects[..], &mut self.counted);
        if !self.packed {
            counted.place(batch)?;
            return counted.wrote(batch.len());
        }
        while !rest.is_empty() {
            let batch = counted.store.write_objects(rest)?;
            counted.serve()?;
            if batch.taken > 0 {
                let ended = counted.store.take_batch(batch.number);
                ensure!(ended == Some(Ok(())), "a batch that was answered has not ended well: {ended:?}");
            }
            rest = &rest[batch.taken..];
        }
        counted.wrote(batch.len())
    }
    /// Whether every object is there as it was written last.
    fn check(&self) -> Result<()> {
        let Counted { store, flash, .. } = &self.counted;
        let wrong = store.state().audit();
        ensure!(wrong.is_empty(), "the store's tables disagree: {}", wrong.join("; "));
        let mut expected = vec![0; self.bytes];
        for (object, times) in self.times.iter().enumerate().filter(|_| self.packed) {
            content(object as u32, *times, &mut expected);
            let located = store.map().get(object as u32);
            let found = located.and_then(|located| {
                let at = store.state().objects().get(located.place)?;
                let page = flash.pages.get(&at.flash_page)?;
                Some(page[at.range()] == expected[..] && crc32c(&expected) == located.checksum)
            });
            ensure!(found == Some(true), "object {object} is not what was written");
        }
        Ok(())
    }
}

fn row(flash_pages: u32, bytes: usize, packed: bool, args: &StoreArgs, interrupt: &Interrupt) -> Result<Row> {
    let (geometry, count) = pool(flash_pages, bytes, packed)?;
    let counted = Counted::new(geometry, StoreConfig::default(), count)?;
    let mut writer = Writer { counted, bytes, packed, times: vec![0; count as usize] };
    let write = |writer: &mut Writer, batch: &[u32]| {
        writer.write(batch)?;
        interrupt.check()
    };
    in_batches(0..count, BATCH, |batch| write(&mut writer, batch))?;
    let mut random = Random::new(args.output.seed, 0);
    let mut next = || random.below(u64::from(count)) as u32;
    let half = OVERWRITES * u64::from(count) / 2;
    in_batches((0..half).map(|_| next()), BATCH, |batch| write(&mut writer, batch))?;
    let before = writer.counted.store.counters();
    in_batches((0..half).map(|_| next()), BATCH, |batch| write(&mut writer, batch))?;
    writer.check()?;
    let after = writer.counted.store.counters();
    let (data, changed) = if packed {
        let pages = |c: fulgurite_store::StoreCounters| c.object_pages + c.object_pages_copied;
        (pages(after) - pages(before), after.object_bytes - before.object_bytes)
    } else {
        let written = after.written - before.written;
        (written + after.copied - before.copied, written * bytes as u64)
    };
    let per_byte = |pages: u64| pages as f64 * SUBPAGE_BYTES as f64 / changed as f64;
    let live_bytes = u64::from(count) * bytes as u64;
    let metadata = after.metadata - before.metadata;
    Ok(Row {
        object_bytes: bytes,
        packed,
        full_percent: FULL * 100.0,
        pool_bytes: u64::from(geometry.flash_pages()) * SUBPAGE_BYTES as u64,
        objects: count,
        live_bytes,
        data_per_byte: per_byte(data),
        metadata_per_byte: per_byte(metadata),
        bytes_per_byte: per_byte(data + metadata),
        dram_share: writer.counted.store.info().dram_bytes as f64 / live_bytes as f64,
    })
}

fn flash_pages(quick: bool) -> u32 {
    if quick { 32 << 8 } else { 64 << 8 }
}
/// Memory that it takes: one pool, all of whose flash pages may have been written, and its tables.
pub fn memory_bytes(quick: bool) -> u64 {
    u64::from(flash_pages(quick)) * SUBPAGE_BYTES as u64 * 5 / 4
}

/// All rows, and whether an interruption ended that early.
pub fn rows(args: &StoreArgs, interrupt: &Interrupt) -> Result<(Vec<Row>, bool)> {
    let flash_pages = flash_pages(args.output.quick);
    let bar = progress::steps("objects", 2 * SIZES.len() as u64);
    let cases = SIZES.into_iter().flat_map(|bytes| [(bytes, true), (bytes, false)]);
    let rows = until_interrupted(cases, |(bytes, packed)| {
        let row = row(flash_pages, bytes, packed, args, interrupt);
        bar.inc(1);
        row
    });
    bar.finish_and_clear();
    rows
}

pub fn lines(rows: &[Row]) -> String {
    let table = Columns::of(rows)
        .left("objects", |row| format!("{} of {} B", row.objects, row.object_bytes))
        .left("written", |row| if row.packed { "packed" } else { "a subpage each" })
        .right("full", |row| format!("{}%", row.full_percent))
        .right("live", |row| fulgurite_format::format_bytes(row.live_bytes))
        .right("data", |row| format!("{:.2} B", row.data_per_byte))
        .right("metadata", |row| format!("{:.2} B", row.metadata_per_byte))
        .right("in all", |row| format!("{:.2} B", row.bytes_per_byte))
        .right("DRAM", |row| format!("{:.1}%", row.dram_share * 100.0))
        .table();
    format!("bytes to flash for each byte that changed; DRAM for each live byte\n{table}")
}
