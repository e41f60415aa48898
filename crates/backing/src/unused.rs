//! The unused part of a pool, as a flat medium: extents that hold nothing.
//!
//! The store is asked once which they are, and then closed. Its file stays locked. Opening a pool
//! reads only extents that are in use, so that nothing of what is written here survives, however
//! this process ends. What other programs keep in the pool stays as it was.
//!
//! No table of the store is kept. So processes may share the medium
//! ([`fulgurite_flash::ForkedFlash`]). But it has no checksums, and no wear leveling.

use std::path::Path;
use std::sync::Arc;

use fulgurite_flash::{ExtentsOfFlash, Flash};
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_store::{Pool, StoreConfig};

use crate::Error;
use crate::files::Files;
use crate::open::Opened;

/// Opens a pool, and takes at most `most` bytes of its unused space. If that is scattered over
/// extents in use, their live data is moved together first, as far as is needed. There may be less,
/// or none: the medium says how many subpages it has. Nothing is moved if it could not make `least`
/// bytes available.
///
/// # Errors
/// [`Error::Open`] when the pool is in use, or there is no such file. [`Error::Pool`] when it is no
/// pool, or live data cannot be moved. [`Error::Members`] when a part of it is missing.
pub fn unused_of_pool(path: &Path, most: u64, least: u64) -> Result<Opened, Error> {
    let flash = Files::of_pool(path)?.flash();
    let error = |source| Error::Pool { path: path.into(), source };
    let mut config = StoreConfig::default();
    // No token is let go.
    config.keep_tokens = usize::MAX;
    let (pool, _) = Pool::open(flash.clone(), config).map_err(error)?;
    let length = pool.geometry().extent_pages;
    // No pool has more.
    let most = u32::try_from(most / SUBPAGE_BYTES as u64).unwrap_or(u32::MAX);
    let wanted = most.div_ceil(length) as usize;
    let mut extents = pool.unused_extents();
    // Each extent at most once: one that cannot be emptied would come again.
    let mut tries = pool.uses().data.len();
    let ever = ((extents.len() + tries) as u64 * u64::from(length)).saturating_sub(pool.info().live);
    if ever * (SUBPAGE_BYTES as u64) < least {
        tries = 0;
    }
    while extents.len() < wanted && tries > 0 && pool.reclaim_one().map_err(error)? {
        extents = pool.unused_extents();
        tries -= 1;
    }
    extents.truncate(wanted);
    let unused: Arc<dyn Flash> = Arc::new(ExtentsOfFlash::new(flash, length, extents, most));
    Ok(Opened::flat(unused))
}
