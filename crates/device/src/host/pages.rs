//! What a program does with pages and tokens of a device's store, beyond
//! [`fulgurite_flash::Versions`].

use std::ops::Range;
use std::sync::atomic::Ordering;

use fulgurite_flash::{FlashError, OpenError, VersionError};
use fulgurite_store::{Permissions, SUBPAGES_PER_PAGE};

use super::DeviceFlash;
use super::memory::Remote;
use super::room::Reserved;
use super::transfer::Commands;
use crate::region::Features;

/// The kernel's word for what a medium cannot do.
const EOPNOTSUPP: i32 = 95;

impl DeviceFlash {
    fn store(&self) -> Result<&Remote, FlashError> {
        self.remote.as_ref().ok_or(FlashError::Io(EOPNOTSUPP))
    }
    fn on_store<T>(&self, work: impl FnMut(&mut Commands) -> Result<T, VersionError>) -> Result<T, VersionError> {
        let store = self.store()?;
        store.again(&mut store.lock(), work)
    }
    /// Keeps the room that a change of these pages may take, for as long as it is under way.
    fn reserve(&self, pages: &Range<u32>) -> Result<Reserved<'_>, FlashError> {
        self.opening.shared.reserve(pages.end.saturating_sub(pages.start))
    }
    /// Opens the queue pair for memory operations for good. It begins the session of a program that
    /// names the states ([`crate::SocketLink::names_states`]).
    ///
    /// # Errors
    /// When the device opens none; it says why.
    pub fn begin(&self) -> Result<(), OpenError> {
        let refused = |error: FlashError| OpenError::System {
            what: "use the store of the device",
            source: std::io::Error::other(error),
        };
        let store = self.store().map_err(refused)?;
        let mut open = store.lock();
        store.commands(&mut open)?;
        if !self.opening.link.names_states() {
            return Ok(());
        }
        store.survey(&mut open).map_err(|error| OpenError::System {
            what: "ask the device what may be done with its pages",
            source: std::io::Error::other(error),
        })
    }
    /// Pages of 64 KiB.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.opening.link.sectors() / SUBPAGES_PER_PAGE
    }
    /// The tokens that are kept, ascending.
    ///
    /// # Errors
    /// What the device says.
    pub fn kept_tokens(&self) -> Result<Vec<u64>, VersionError> {
        self.on_store(|commands| Ok(commands.tokens()?))
    }
    /// The tokens among them that a program wants kept.
    ///
    /// # Errors
    /// What the device says.
    pub fn pinned_tokens(&self) -> Result<Vec<u64>, VersionError> {
        self.on_store(|commands| Ok(commands.pinned()?))
    }
    /// Keeps a token whatever the policy says, or no more.
    ///
    /// # Errors
    /// When there is no such token; what the device says.
    pub fn pin_token(&self, token: u64, pinned: bool) -> Result<(), VersionError> {
        self.on_store(|commands| commands.pin(token, pinned))
    }
    /// Deletes pages. Until that is durable, a death of the device ends in
    /// [`FlashError::Poisoned`].
    ///
    /// # Errors
    /// `EACCES` when one of them may not be written, and none is deleted; [`FlashError::NoSpace`]
    /// where their room is needed by a sync ([`DeviceFlash::leave_for_sync`]); what the device
    /// says.
    pub fn delete_pages(&self, pages: Range<u32>) -> Result<(), VersionError> {
        let _reserved = self.reserve(&pages)?;
        self.on_store(|commands| Ok(commands.delete(pages.clone())?))?;
        self.opening.shared.restrictions.set(pages, Permissions::DEFAULT);
        Ok(())
    }
    /// Changes the permissions of pages, and allocates them. As [`DeviceFlash::delete_pages`] until
    /// it is durable.
    ///
    /// Temporary ones go when the session of this program ends; a death of the device alone leaves
    /// them.
    ///
    /// # Errors
    /// As [`DeviceFlash::delete_pages`], but for `EACCES`.
    pub fn set_permissions(&self, pages: Range<u32>, permissions: Permissions) -> Result<(), VersionError> {
        let _reserved = self.reserve(&pages)?;
        self.on_store(|commands| Ok(commands.set_permissions(pages.clone(), permissions)?))?;
        self.opening.shared.restrictions.set(pages, permissions);
        Ok(())
    }
    /// From now on this host asks for nothing that this forbids of these pages, unknown to the
    /// device. Earlier writes to them are to be written back next. Returns the permissions until
    /// now, for [`DeviceFlash::widen`].
    #[must_use]
    pub fn narrow(&self, pages: Range<u32>, permissions: Permissions) -> Vec<(Range<u32>, Permissions)> {
        self.opening.shared.restrictions.narrow(pages, permissions)
    }
    /// Takes [`DeviceFlash::narrow`] back.
    pub fn widen(&self, to: Vec<(Range<u32>, Permissions)>) {
        to.into_iter().for_each(|(pages, permissions)| self.opening.shared.restrictions.set(pages, permissions));
    }
    /// What may be done with a page; none when it is not allocated.
    ///
    /// # Errors
    /// What the device says.
    pub fn permissions(&self, page: u32) -> Result<Option<Permissions>, VersionError> {
        self.on_store(|commands| Ok(commands.permissions(page)?))
    }
    /// Deleted temporary pages of ended programs that were not reported yet, ascending.
    ///
    /// # Errors
    /// What the device says.
    pub fn take_dropped_temporary(&self) -> Result<Vec<u32>, VersionError> {
        let mut all = Vec::new();
        loop {
            let some = self.on_store(|commands| Ok(commands.take_dropped()?))?;
            if some.is_empty() {
                break;
            }
            all.extend(some);
            if all.len() > self.pages() as usize {
                // It has no more of them.
                return Err(FlashError::Corrupt.into());
            }
        }
        all.retain(|&page| page < self.pages());
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }
    /// Sectors written since the last state was named, in the session of a program that names them.
    #[must_use]
    pub fn unnamed(&self) -> u64 {
        self.opening.shared.unnamed.load(Ordering::Relaxed)
    }
    /// As [`fulgurite_store::Pool::leave_for_sync`], in the session of a program that names the
    /// states, once queues are open. Returns whether the device says what room it has
    /// ([`crate::Features::ROOM`]).
    pub fn leave_for_sync(&self, frames: u64) -> bool {
        let says = self.opening.link.names_states() && self.opening.link.features().has(Features::ROOM);
        if says {
            self.opening.shared.leave_for_sync(frames);
        }
        says
    }
    /// Says whether a sync will follow [`DeviceFlash::wants_sync`]. If so, a change without room
    /// waits for it, up to two seconds in which no change gets any.
    pub fn set_syncs_for_writers(&self, does: bool) {
        self.opening.shared.room.set_names_for_writers(does);
    }
    /// Whether somebody waits for the room that a sync would make, or would soon.
    #[must_use]
    pub fn wants_sync(&self) -> bool {
        self.opening.shared.wants_sync()
    }
    /// Sectors of which copies may be kept until they are named. Beyond that between two states, a
    /// death of the device is reported. Known when queues are open.
    #[must_use]
    pub fn copies_max(&self) -> u64 {
        self.opening.shared.room().1 as u64
    }
}
