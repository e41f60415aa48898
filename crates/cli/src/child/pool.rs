//! A pool made for a run: formatted, filled with the data, read back in the end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use fulgurite_flash::{Flash, Op, Queue, Request};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::{Durability, Geometry, Pool, StoreConfig};
use fulgurite_sys::{Arena, Backed, Notifier};

use super::handle::open_shared;
use super::protocol::PoolSpec;

/// Flash pages in an extent: 2 MiB.
pub const EXTENT_PAGES: u32 = 512;
/// Requests in flight while data is moved in and out.
const DEPTH: usize = 128;

/// Makes a pool of a medium, and writes the data to it. As a cache, as the flat media beside it: nothing old is kept.
pub fn filled(medium: &Arc<dyn Flash>, spec: &PoolSpec, bytes: u64) -> Result<Arc<dyn Flash>> {
    let subpages = u32::try_from(bytes / SUBPAGE_BYTES as u64).context("more data than a pool can hold")?;
    let geometry = Geometry::new(medium.subpages().min(spec.flash_pages), EXTENT_PAGES, Some(subpages))?;
    Pool::format(medium, geometry, PoolId(*b"a pool for a run"), 0)?;
    let mut config = StoreConfig::default();
    config.durability = Durability::Cache;
    let flash = Pool::open(medium.clone(), config)?.0.into_flash();
    let image = Arena::shared(open_shared(&spec.image)?)?;
    moved(&flash, subpages, Op::Write, |frames, frame, subpage| {
        Arena::copy(&image, subpage as usize * SUBPAGE_BYTES, frames, frame * SUBPAGE_BYTES, SUBPAGE_BYTES);
    })?;
    Ok(Arc::new(flash))
}

/// Reads the first `bytes` of a flash into an arena.
pub fn read_whole(flash: &dyn Flash, bytes: usize, into: &Arena) -> Result<()> {
    moved(flash, (bytes / SUBPAGE_BYTES) as u32, Op::Read, |frames, frame, subpage| {
        Arena::copy(frames, frame * SUBPAGE_BYTES, into, subpage as usize * SUBPAGE_BYTES, SUBPAGE_BYTES);
    })
}

/// Reads or writes all subpages; `with` fills a frame before it is written, or takes it after it was read.
fn moved(flash: &dyn Flash, subpages: u32, op: Op, with: impl Fn(&Arena, usize, u32)) -> Result<()> {
    let frames = Arc::new(Arena::anonymous(DEPTH * SUBPAGE_BYTES, Backed::BasePages)?);
    let mut queue: Box<dyn Queue> = flash.open_queue(frames.clone(), DEPTH, Arc::new(Notifier::new()?))?;
    let (mut next, mut done) = (0, 0);
    let mut free: Vec<usize> = (0..DEPTH).collect();
    let mut completions = Vec::with_capacity(DEPTH);
    while done < subpages {
        while next < subpages
            && let Some(frame) = free.pop()
        {
            if op == Op::Write {
                with(&frames, frame, next);
            }
            let tag = (u64::from(next) << 32) | frame as u64;
            queue.submit(Request { tag, op, subpage: SubpageIndex(next), frame: FrameIndex(frame as u32) })?;
            next += 1;
        }
        queue.flush()?;
        if queue.poll(&mut completions) == 0 {
            queue.wait(Some(Duration::from_millis(10)));
        }
        for completion in completions.drain(..) {
            completion.result?;
            let (subpage, frame) = ((completion.tag >> 32) as u32, completion.tag as u32 as usize);
            if op == Op::Read {
                with(&frames, frame, subpage);
            }
            free.push(frame);
            done += 1;
        }
    }
    Ok(())
}
