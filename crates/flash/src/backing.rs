//! What a cache asks of a pool or a served device, beside reading and writing.
//!
//! A flat medium has none of this ([`Flash::backing`] is `None`): everything is permitted, and
//! there is always room.

use crate::{Flash, FlashError, Versions};

/// Permissions, room for changes, and states with names.
pub trait Backing: Send + Sync {
    /// Whether a subpage may be read, or written. Asked at each miss; so it should be a load or
    /// two.
    fn may(&self, subpage: u32, write: bool) -> bool;
    /// Whether a change in DRAM of a subpage that was as the medium has it must be announced
    /// ([`Backing::begin_change`]): the medium has hardly more room than what may have been changed
    /// already. Asked at each miss; so it should be a load or two.
    fn asks(&self) -> bool;
    /// Claims room for such a change. `for_sync`: a sync that has begun makes it.
    ///
    /// # Errors
    /// [`FlashError::NoSpace`] when there is none; the subpage must not be changed then.
    fn begin_change(&self, for_sync: bool) -> Result<(), FlashError>;
    /// After a refusal for want of room: whether to wait, because a sync is on its way that makes
    /// some.
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

/// That of a state that may be read, and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct ReadOnly;

/// The kernel's word for what may only be read.
const EROFS: i32 = 30;

impl ReadOnly {
    /// What a write ends with.
    pub const ERROR: FlashError = FlashError::Io(EROFS);
}

impl Backing for ReadOnly {
    fn may(&self, _: u32, write: bool) -> bool {
        !write
    }
    fn asks(&self) -> bool {
        false
    }
    fn begin_change(&self, _: bool) -> Result<(), FlashError> {
        Err(ReadOnly::ERROR)
    }
    fn waits_for_room(&self) -> bool {
        false
    }
    fn versions(&self) -> Option<&dyn Versions> {
        None
    }
}
