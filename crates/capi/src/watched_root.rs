//! Named places whose handles have no latches of their own: regions, heaps and roots.
//!
//! A roll back to before such a place was made, or its removal, leaves its addresses to others. Its
//! handles learn so by a mark that each call checks.

use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite::zerocopy::{FromBytes, Immutable, IntoBytes};
use fulgurite::{AccessError, Address, Fulgurite, Memory, Stored, containers::RootEntry, views::Ptr};

use crate::failure::Failure;

/// Bytes of a region, as its root keeps them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "fulgurite::zerocopy")]
#[repr(C)]
pub(crate) struct Extent {
    pub base: Address,
    pub bytes: u64,
}

impl Stored for Extent {
    const TYPE: &'static str = "fulgurite.region/1";
}

/// See the module.
pub(crate) struct WatchedRoot {
    entry: RootEntry,
    /// Of a region: what the root must hold.
    extent: Option<Extent>,
    gone: AtomicBool,
}

impl WatchedRoot {
    pub fn new(entry: RootEntry, extent: Option<Extent>) -> WatchedRoot {
        WatchedRoot { entry, extent, gone: AtomicBool::new(false) }
    }
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// Fails once the place is not this one's any more.
    pub fn check(&self) -> Result<(), AccessError> {
        if self.gone.load(Ordering::Acquire) { Err(AccessError::Poisoned) } else { Ok(()) }
    }
    pub fn abandon(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Whether the state of the memory has it, as it was opened.
    pub fn is_there(&self, memory: &Fulgurite, roots: &[RootEntry]) -> Result<bool, Failure> {
        if !roots.contains(&self.entry) {
            return Ok(false);
        }
        let Some(extent) = self.extent else { return Ok(true) };
        let at = Ptr::<Extent>::new(self.entry.address);
        Ok(memory.run(move |m| m.load(at))? == extent)
    }
}

/// The root of this name.
pub(crate) fn entry(memory: &Fulgurite, name: &str) -> Result<Option<RootEntry>, Failure> {
    Ok(memory.roots()?.into_iter().find(|entry| entry.name == name))
}
