//! What a cache asks of a pool or a served device, beside reading and writing.
//!
//! A flat medium has none of this ([`Flash::backing`] is `None`): everything is permitted, and there is always room.

use crate::{Flash, FlashError, Versions};

/// Permissions, room for changes, and states with names.
pub trait Backing: Send + Sync {
    /// Whether a subpage may be read, or written. Asked at each miss; so it should be a load or two.
    fn may(&self, subpage: u32, write: bool) -> bool;
    /// Whether a change in DRAM of a subpage that was as the medium has it must be announced ([`Backing::begin_change`]): the
    /// medium has hardly more room than what may have been changed already. Asked at each miss; so it should be a load or two.
    fn asks(&self) -> bool;
    /// Claims room for such a change. `for_sync`: a sync that has begun makes it.
    ///
    /// # Errors
    /// [`FlashError::NoSpace`] when there is none; the subpage must not be changed then.
    fn begin_change(&self, for_sync: bool) -> Result<(), FlashError>;
    /// After a refusal for want of room: whether to wait, because a sync is on its way that makes some.
    fn waits_for_room(&self) -> bool;
    /// States with names, if it keeps any.
    fn versions(&self) -> Option<&dyn Versions>;
}

impl dyn Flash + '_ {
    /// States with names, if the medium keeps any.
    #[must_use]
    pub fn versions(&self) -> Option<&dyn Versions> {
        self.backing()?.versions()
    }
}

#[doc(hidden)]
#[allow(missing_docs, clippy::must_use_candidate, clippy::missing_errors_doc, reason = "until the runtime asks anew")]
impl dyn Flash + '_ {
    pub fn restricts(&self) -> bool {
        self.backing().is_some()
    }
    pub fn may(&self, subpage: u32, write: bool) -> bool {
        self.backing().is_none_or(|backing| backing.may(subpage, write))
    }
    pub fn asks(&self) -> bool {
        self.backing().is_some_and(Backing::asks)
    }
    pub fn begin_change(&self, for_sync: bool) -> Result<(), FlashError> {
        self.backing().map_or(Ok(()), |backing| backing.begin_change(for_sync))
    }
    pub fn waits_for_room(&self) -> bool {
        self.backing().is_some_and(Backing::waits_for_room)
    }
    pub fn dram_bytes(&self) -> usize {
        self.traits().dram_bytes
    }
    pub fn wants_shared_frames(&self) -> bool {
        self.traits().shares_frames
    }
    pub fn patience(&self) -> std::time::Duration {
        self.traits().patience
    }
    pub fn holds_writes(&self) -> usize {
        self.traits().holds_writes
    }
}

#[doc(hidden)]
#[allow(missing_docs, reason = "until the runtime asks anew")]
impl dyn crate::Queue + '_ {
    pub fn hold_writes(&mut self, may: bool) {
        self.switch(crate::Switches { hold_writes: may, ..crate::Switches::default() });
    }
}
