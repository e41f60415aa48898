//! What a cache asks of a pool or a served device, in addition to reading and writing.
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
    /// Claims room for such a change of this subpage. `for_sync`: a sync that has begun makes it.
    ///
    /// # Errors
    /// [`FlashError::NoSpace`] when there is none; the subpage must not be changed then.
    fn begin_change(&self, subpage: u32, for_sync: bool) -> Result<(), FlashError>;
    /// After a refusal for want of room: whether to wait, because a sync is on its way that makes
    /// some.
    fn waits_for_room(&self) -> bool;
    /// Whether hardly any room is left to be claimed: what has begun may take that. What has not
    /// waits, if [`Backing::waits_for_room`]. It should be a load.
    fn is_low(&self) -> bool {
        false
    }
    /// States with names, if it keeps any.
    fn versions(&self) -> Option<&dyn Versions>;
    /// Objects, where it packs them.
    fn objects(&self) -> Option<&dyn Objects>;
}

/// Contents of subpages that are written packed, several to a flash page. A queue reads one as its
/// subpage, with zeros behind it.
pub trait Objects: Send + Sync {
    /// Begins to write objects: for each a subpage and its first bytes, up to 4096. No bytes free
    /// the object. Returns how many of the first were taken, and the number of their batch.
    /// Batches count in the order in which they begin.
    ///
    /// # Errors
    /// When there is no such subpage, no space and none to come, or the medium takes no changes.
    /// None was taken then.
    fn begin_write(&self, objects: &[(u32, &[u8])]) -> Result<(usize, u64), FlashError>;
    /// Whether a batch is written, so that reads find its objects, and the next named state has
    /// them. None while it is under way. Drives it, and never blocks for long. An answer forgets
    /// the batch.
    fn written(&self, batch: u64) -> Option<Result<(), FlashError>>;
}

impl dyn Flash + '_ {
    /// States with names, if the medium keeps any.
    #[must_use]
    pub fn versions(&self) -> Option<&dyn Versions> {
        self.backing()?.versions()
    }
}

/// The backing of a state that may be read, and nothing else.
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
    fn begin_change(&self, _: u32, _: bool) -> Result<(), FlashError> {
        Err(ReadOnly::ERROR)
    }
    fn waits_for_room(&self) -> bool {
        false
    }
    fn versions(&self) -> Option<&dyn Versions> {
        None
    }
    fn objects(&self) -> Option<&dyn Objects> {
        None
    }
}
