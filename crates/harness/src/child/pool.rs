//! A pool made for a run: formatted, filled with the data, read back in the end.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use fulgurite_flash::{Flash, Layered, Mover};
use fulgurite_format::{PoolId, SUBPAGE_BYTES};
use fulgurite_store::{Durability, Geometry, Pool, StoreConfig, random_id};
use fulgurite_sys::Arena;
use fulgurite_term::media::OF_A_BENCHMARK;

use super::handle::open_shared;
use super::protocol::PoolSpec;

/// Flash pages in an extent, where the medium has no say in it: 2 MiB.
pub const EXTENT_PAGES: u32 = 512;

/// Flash pages of a pool that is 80% full with `bytes` bytes of data.
pub fn flash_pages(bytes: u64) -> u32 {
    let pages = (bytes / SUBPAGE_BYTES as u64) * 5 / 4;
    // Small pools need a few extents more for themselves.
    u32::try_from(pages + 32 * u64::from(EXTENT_PAGES)).unwrap_or(u32::MAX)
}

/// Makes a pool of a medium, and writes the data to it.
pub fn filled(medium: &Arc<dyn Flash>, spec: &PoolSpec, bytes: u64, extent_pages: u32) -> Result<Layered<Pool>> {
    let flash = made(medium, (spec.flash_pages, bytes), spec.unchecked, extent_pages)?;
    fill(&flash, &spec.image, u32::try_from(bytes / SUBPAGE_BYTES as u64)?)?;
    Ok(flash)
}

/// Makes a pool on a medium, with a number of flash pages and for a number of bytes of data. Like
/// the flat media that it is compared with, it is a cache: it keeps nothing old.
pub fn made(
    medium: &Arc<dyn Flash>,
    (flash_pages, bytes): (u32, u64),
    unchecked: bool,
    extent_pages: u32,
) -> Result<Layered<Pool>> {
    let subpages = u32::try_from(bytes / SUBPAGE_BYTES as u64).context("more data than a pool can hold")?;
    let geometry = Geometry::new(medium.subpages().min(flash_pages), extent_pages, Some(subpages))?;
    Pool::format(medium, geometry, benchmark_id()?, 0)?;
    let mut config = StoreConfig::default();
    config.durability = Durability::Cache;
    config.unchecked = unchecked;
    Ok(Pool::open(medium.clone(), config)?.0.into_flash())
}

/// Writes the first `subpages` subpages of an image to a flash.
pub fn fill(flash: &dyn Flash, image: &Path, subpages: u32) -> Result<()> {
    let image = Arena::shared(open_shared(image)?)?;
    let mut rest = 0..subpages;
    Mover::new(flash)?.write(|page| {
        let next = rest.next();
        if let Some(subpage) = next {
            image.read(subpage as usize * SUBPAGE_BYTES, page);
        }
        Ok(next)
    })
}

/// Reads the first `bytes` of a flash into an arena.
pub fn read_whole(flash: &dyn Flash, bytes: usize, into: &Arena) -> Result<()> {
    Mover::new(flash)?.read(0..(bytes / SUBPAGE_BYTES) as u32, |(subpage, read)| {
        into.write(subpage as usize * SUBPAGE_BYTES, read?);
        Ok(())
    })
}

/// Names a benchmark's pool, anew each time: a pool adopts journals and data of its name, also an
/// earlier run's on the same medium.
pub fn benchmark_id() -> Result<PoolId> {
    let mut id = random_id()?;
    id.0[..OF_A_BENCHMARK.len()].copy_from_slice(&OF_A_BENCHMARK);
    Ok(id)
}
