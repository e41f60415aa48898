//! The store under a memory: in this process, or in the device that the memory uses.
//!
//! A pool of this process is asked directly. Over a device, the firmware's store is asked by
//! commands.

use std::ops::Range;
use std::sync::Arc;
use std::thread::Thread;

use fulgurite_backing::Kept;
use fulgurite_device::DeviceFlash;
use fulgurite_flash::{Backing, Flash, FlashError, VersionError, Versions};
use fulgurite_format::{PAGE_BYTES, SUBPAGE_BYTES};
use fulgurite_memory::Region;
use fulgurite_store::{Permissions, Pool, PoolError, WriteError};

/// The kernel's word for what may not be done.
const EACCES: i32 = 13;

/// The pages of a region of whole pages.
pub(crate) fn pages_of(region: Region) -> Range<u32> {
    let first = region.base.linear() / PAGE_BYTES as u64;
    let end = first + region.bytes / PAGE_BYTES as u64;
    u32::try_from(first).unwrap_or(u32::MAX)..u32::try_from(end).unwrap_or(u32::MAX)
}

/// See the top of the file.
#[derive(Clone)]
pub(crate) enum Store {
    Here(Arc<Pool>),
    There(Arc<DeviceFlash>),
}

impl From<Kept> for Store {
    fn from(kept: Kept) -> Store {
        match kept {
            Kept::Here(pool) => Store::Here(pool),
            Kept::There(device) => Store::There(device),
        }
    }
}

/// Pages were not deleted, or not all of them.
pub(crate) struct NotDeleted {
    pub error: PoolError,
    /// Some of them are gone.
    pub some: bool,
}

/// Whether there would be room after a sync.
pub(crate) fn is_for_room(error: &PoolError) -> bool {
    match error {
        PoolError::Write(error) => matches!(error, WriteError::NoSpace { .. } | WriteError::Table(_)),
        PoolError::Flash(error) => *error == FlashError::NoSpace,
        _ => false,
    }
}

/// How many of these pages there are.
fn pages_there(pool: &Pool, ranges: &[Range<u32>]) -> usize {
    let end = pool.geometry().pages();
    let there = |range: &Range<u32>| {
        pool.permissions_of(range.start.min(end)..range.end.min(end)).into_iter().flatten().count()
    };
    ranges.iter().map(there).sum()
}

/// The permissions of a device's pages that are about to change, given back unless they have
/// changed.
#[must_use]
pub(crate) struct Narrowed<'s>(Option<(&'s DeviceFlash, Before)>);

/// Pages, and what could be done with them.
type Before = Vec<(Range<u32>, Permissions)>;

impl Narrowed<'_> {
    /// The permissions have changed.
    pub fn changed(mut self) {
        self.0 = None;
    }
}

impl Drop for Narrowed<'_> {
    fn drop(&mut self) {
        if let Some((device, before)) = self.0.take() {
            device.widen(before);
        }
    }
}

/// In the words of a pool.
pub(crate) fn of_device(error: VersionError) -> PoolError {
    match error {
        VersionError::NoToken { token, kept } => PoolError::NoToken { token, kept },
        VersionError::InUse { token, read } => PoolError::TokenInUse { token, read },
        VersionError::Pinned { token, pinned } => PoolError::TokenPinned { token, pinned },
        VersionError::Flash(error) => PoolError::Flash(error),
        _ => PoolError::Flash(FlashError::Closed),
    }
}

impl Store {
    /// Pages of 64 KiB.
    pub fn pages(&self) -> u32 {
        match self {
            Store::Here(pool) => pool.geometry().pages(),
            Store::There(device) => device.pages(),
        }
    }
    /// A state is about to be named: sets the time, for tokens that are kept by age. A device has
    /// its own clock.
    pub fn tick(&self) {
        if let Store::Here(pool) = self {
            pool.tick();
        }
    }
    /// The tokens that are kept, ascending.
    pub fn tokens(&self) -> Result<Vec<u64>, PoolError> {
        match self {
            Store::Here(pool) => Ok(Versions::tokens(&**pool)),
            Store::There(device) => device.kept_tokens().map_err(of_device),
        }
    }
    pub fn pin(&self, token: u64, pinned: bool) -> Result<(), PoolError> {
        match self {
            Store::Here(pool) => pool.pin(token, pinned),
            Store::There(device) => device.pin_token(token, pinned).map_err(of_device),
        }
    }
    /// The state of a token, to be read while this one goes on. The token stays for as long as the
    /// returned view lives.
    pub fn view(&self, token: u64) -> Result<Arc<dyn Flash>, PoolError> {
        match self {
            Store::Here(pool) => Ok(Arc::new(pool.view(token)?.into_flash())),
            Store::There(device) => Ok(Arc::new(device.open_token(token).map_err(of_device)?)),
        }
    }
    pub fn delete_pages(&self, pages: Range<u32>) -> Result<(), PoolError> {
        match self {
            Store::Here(pool) => pool.delete_pages(pages),
            Store::There(device) => device.delete_pages(pages.clone()).map_err(|error| match error {
                // Which of them, it does not say.
                VersionError::Flash(FlashError::Io(EACCES)) => PoolError::NotPermitted { page: pages.start },
                error => of_device(error),
            }),
        }
    }
    /// Deletes the pages of all these ranges, or of none: a pool checks all of them first. A device
    /// is asked for one range after the other.
    pub fn delete_all(&self, ranges: &[Range<u32>]) -> Result<(), NotDeleted> {
        match self {
            Store::Here(pool) => {
                let before = pages_there(pool, ranges);
                pool.delete_all(ranges).map_err(|error| NotDeleted { error, some: pages_there(pool, ranges) < before })
            }
            Store::There(_) => ranges.iter().enumerate().try_for_each(|(i, pages)| {
                self.delete_pages(pages.clone()).map_err(|error| NotDeleted { error, some: i > 0 })
            }),
        }
    }
    /// Deletes what was written to unallocated pages, which has made pages of them. A device does
    /// so only where they are to be allocated (`allocates`), but is notified in any case. Copies
    /// could not replace that before the next sync if it died.
    pub fn clear_pages(&self, pages: Range<u32>, allocates: bool) -> Result<(), PoolError> {
        let Store::Here(pool) = self else { return if allocates { self.delete_pages(pages) } else { Ok(()) } };
        // Those that are not there are left alone, and no room is asked for them.
        let is_there = |page: &u32| pool.permissions(*page).is_some();
        let mut from = pages.start;
        while let Some(first) = (from..pages.end).find(is_there) {
            let end = (first..pages.end).find(|page| !is_there(page)).unwrap_or(pages.end);
            pool.delete_pages(first..end)?;
            from = end;
        }
        Ok(())
    }
    /// Permissions are about to change. A device refuses late writes. So until
    /// [`Store::set_permissions`], or until this is dropped, nothing may be done that will be
    /// forbidden, and earlier writes go back first.
    pub fn narrow(&self, pages: Range<u32>, permissions: Permissions) -> Narrowed<'_> {
        Narrowed(match self {
            Store::Here(_) => None,
            Store::There(device) => Some((device, device.narrow(pages, permissions))),
        })
    }
    pub fn set_permissions(&self, pages: Range<u32>, permissions: Permissions) -> Result<(), PoolError> {
        match self {
            Store::Here(pool) => pool.set_permissions(pages, permissions),
            Store::There(device) => device.set_permissions(pages, permissions).map_err(of_device),
        }
    }
    /// What may be done with a page; none when it is not allocated.
    pub fn permissions(&self, page: u32) -> Result<Option<Permissions>, PoolError> {
        match self {
            Store::Here(pool) => Ok(pool.permissions(page)),
            Store::There(device) => device.permissions(page).map_err(of_device),
        }
    }
    /// Temporary pages of earlier processes that are gone, and that were not yet reported.
    pub fn take_dropped_temporary(&self) -> Result<Vec<u32>, FlashError> {
        match self {
            Store::Here(pool) => Ok(pool.take_dropped_temporary()),
            Store::There(device) => device.take_dropped_temporary().map_err(|error| match error {
                VersionError::Flash(error) => error,
                _ => FlashError::Closed,
            }),
        }
    }

    /// Bytes written since the last state was named.
    pub fn unnamed_bytes(&self) -> u64 {
        let subpages = match self {
            Store::Here(pool) => pool.uncommitted(),
            Store::There(device) => device.unnamed(),
        };
        subpages.saturating_mul(SUBPAGE_BYTES as u64)
    }
    /// The uncopied bytes after which a thread that syncs by itself should sync. A device that dies
    /// would take them with it.
    pub fn unnamed_bytes_max(&self) -> u64 {
        match self {
            Store::Here(_) => u64::MAX,
            Store::There(device) => (device.copies_max() / 2).saturating_mul(SUBPAGE_BYTES as u64),
        }
    }
    /// Whether a sync would bring space.
    pub fn wants_sync(&self) -> bool {
        match self {
            Store::Here(pool) => pool.wants_sync(),
            Store::There(device) => device.wants_sync(),
        }
    }
    /// From now on a thread syncs when asked, with at most this number of subpages a sync. None: no
    /// longer.
    pub fn set_syncs_for_writers(&self, subpages: Option<u64>) {
        match self {
            Store::Here(pool) => pool.set_syncs_for_writers(subpages),
            Store::There(device) => device.set_syncs_for_writers(subpages.is_some()),
        }
    }
    /// Writers that begin to wait for a sync unpark this thread. Returns whether they do, because
    /// writers to a device's store cannot.
    pub fn set_woken_by_writers(&self, thread: Option<Thread>) -> bool {
        match self {
            Store::Here(pool) => {
                pool.set_woken_by_writers(thread);
                true
            }
            Store::There(_) => false,
        }
    }
    /// Leaves room for a sync of `frames` changed frames. Returns whether the store wants their
    /// number.
    pub fn leave_for_sync(&self, frames: u64) -> bool {
        match self {
            Store::Here(pool) => {
                pool.leave_for_sync(frames);
                true
            }
            Store::There(device) => device.leave_for_sync(frames),
        }
    }
    /// The last sync begins.
    pub fn last_sync_begins(&self) {
        match self {
            Store::Here(pool) => pool.sync_begins(),
            Store::There(device) => device.versions().into_iter().for_each(Versions::sync_begins),
        }
    }
    /// Whether a failed sync may succeed on retry: the device died, and may have returned with
    /// unnamed writes replayed.
    pub fn may_sync_again(&self, error: &fulgurite_runtime::SyncError) -> bool {
        let died = fulgurite_runtime::SyncError::from(FlashError::Closed);
        matches!(self, Store::There(_)) && *error == died
    }
}
