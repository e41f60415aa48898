//! What nobody uses of a pool, as a flat medium: temporary pages that no token ever names.
//!
//! Nothing of it survives. Whatever is written there is behind the pool's last token, so that the
//! next opening drops it, however this process ends. What other programs keep in the pool stays as
//! it was.

use std::path::Path;
use std::sync::Arc;

use fulgurite_flash::{Flash, PagesOfFlash};
use fulgurite_format::{SUBPAGE_BYTES, subpages_per_page};
use fulgurite_store::{Pool, StoreConfig};

use crate::Error;
use crate::files::Files;
use crate::open::{Kept, Opened};

/// Tables of the store for each page: an entry, and a place and a checksum of each subpage
/// (docs/architecture.md, "The tables' DRAM").
const DRAM_OF_PAGE: usize = 160;

/// Opens a pool, and takes at most so many bytes of what is unused. There may be less, or none:
/// the medium says how many subpages it has.
///
/// # Errors
/// [`Error::Open`] when the pool is in use, or there is no such file. [`Error::Pool`] when it is no
/// pool. [`Error::Members`] when a part of it is missing.
pub fn unused_of_pool(path: &Path, bytes: u64) -> Result<Opened, Error> {
    let files = Files::of_pool(path)?;
    // Nothing is synced, so there is no history that would have to be bounded.
    let opened = Pool::open(files.flash(), StoreConfig::default());
    let (pool, _) = opened.map_err(|source| Error::Pool { path: path.into(), source })?;
    let info = pool.info();
    let in_page = u64::from(subpages_per_page(SUBPAGE_BYTES));
    let most = (bytes / SUBPAGE_BYTES as u64).min(info.room) / in_page;
    let are_used = pool.permissions_of(0..pool.geometry().pages());
    let unused = (0u32..).zip(are_used).filter(|(_, permissions)| permissions.is_none());
    let pages: Vec<u32> = unused.map(|(page, _)| page).take(usize::try_from(most).unwrap_or(usize::MAX)).collect();
    let dram_bytes = info.dram_bytes + pages.len() * DRAM_OF_PAGE;
    let store = pool.into_flash();
    let pool = store.layer().clone();
    let kept = Some(Kept::Here(pool.clone()));
    // A page that cannot be discarded is overwritten later, or dropped at the next opening.
    let discard = Box::new(move |pages| drop(pool.delete_pages(pages)));
    let unused = PagesOfFlash::new(Arc::new(store), pages, dram_bytes, discard);
    let flash: Arc<dyn Flash> = Arc::new(unused);
    Ok(Opened { flash, kept, files: Some(Arc::new(files)), grows_to: 0 })
}
