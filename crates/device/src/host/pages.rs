//! What a program does with the pages and tokens of a device's store, beside what a runtime does ([`fulgurite_flash::Versions`]).

use std::ops::Range;
use std::sync::atomic::Ordering;

use fulgurite_flash::{FlashError, OpenError, VersionError};
use fulgurite_store::{Permissions, SUBPAGES_PER_PAGE};

use super::DeviceFlash;
use super::memory::Remote;
use super::transfer::Commands;

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
    /// Opens the queue pair for memory operations, which stays open from now on: with it the session of a program begins that names the
    /// states ([`crate::SocketLink::names_states`]).
    ///
    /// # Errors
    /// When the device opens none; it says why.
    pub fn begin(&self) -> Result<(), OpenError> {
        let refused = |error: FlashError| OpenError::System {
            what: "use the store of the device",
            source: std::io::Error::other(error),
        };
        let store = self.store().map_err(refused)?;
        store.commands(&mut store.lock()).map(drop)
    }
    /// Pages of 64 KiB.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.link.sectors() / SUBPAGES_PER_PAGE
    }
    /// The tokens that are kept, ascending.
    ///
    /// # Errors
    /// What the device says.
    pub fn kept_tokens(&self) -> Result<Vec<u64>, VersionError> {
        self.on_store(|commands| Ok(commands.tokens()?))
    }
    /// Keeps a token whatever the policy says, or no more.
    ///
    /// # Errors
    /// When there is no such token; what the device says.
    pub fn pin_token(&self, token: u64, pinned: bool) -> Result<(), VersionError> {
        self.on_store(|commands| commands.pin(token, pinned))
    }
    /// Deletes pages. As long as they are not durable, a death of the device is told by [`FlashError::Poisoned`].
    ///
    /// # Errors
    /// `EACCES` when one of them may not be written, and none is deleted; what the device says.
    pub fn delete_pages(&self, pages: Range<u32>) -> Result<(), VersionError> {
        self.on_store(|commands| Ok(commands.delete(pages.clone())?))
    }
    /// Changes what may be done with pages; those that are not allocated are. As with [`DeviceFlash::delete_pages`] until it is durable.
    ///
    /// # Errors
    /// What the device says.
    pub fn set_permissions(&self, pages: Range<u32>, permissions: Permissions) -> Result<(), VersionError> {
        self.on_store(|commands| Ok(commands.set_permissions(pages.clone(), permissions)?))
    }
    /// Sectors written since the last state was named, in the session of a program that names them.
    #[must_use]
    pub fn unnamed(&self) -> u64 {
        self.shared.unnamed.load(Ordering::Relaxed)
    }
    /// Sectors of which copies may be kept until they are named: what is written beyond that between two states makes a death of the device
    /// one that is told. Known when queues are open.
    #[must_use]
    pub fn copies_max(&self) -> u64 {
        self.shared.room().1 as u64
    }
}
