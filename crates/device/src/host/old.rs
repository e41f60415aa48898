//! An old state of a device's store as a medium, next to the live one. A read reads the sector at a
//! token ([`Opcode::ReadAt`]), and a write is refused.
//!
//! A queue pair of its own holds the token ([`Opcode::Hold`]) and is closed with the program. After
//! a death of the device the token is held anew as soon as a queue attaches again. Where the store
//! has let go of it by then, reads end with [`FlashError::NoToken`].
//!
//! [`Opcode::Hold`]: crate::Opcode::Hold

use std::sync::Arc;

use fulgurite_flash::{
    Backing, DEPTH_MAX, DeviceCounters, Flash, FlashError, OpenError, OpenedQueue, QueueUser, ReadOnly, Traits,
    check_range,
};
use fulgurite_format::{SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::{Arena, Notifier};

use super::held::Held;
use super::pair::Opening;
use super::queue::DeviceQueue;

/// See the top of the file.
pub struct OldState {
    opening: Opening,
    held: Arc<Held>,
}

impl std::fmt::Debug for OldState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OldState").field("token", &self.held.token()).finish_non_exhaustive()
    }
}

impl OldState {
    /// The state of a token that is held.
    pub(super) fn over(opening: Opening, held: Arc<Held>) -> OldState {
        OldState { opening: Opening { at: Some(held.clone()), ..opening }, held }
    }
    /// The token.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.held.token()
    }
}

impl Flash for OldState {
    fn subpages(&self) -> u32 {
        self.opening.link.sectors()
    }
    fn describe(&self) -> String {
        format!("token {} of the store of {}", self.held.token(), self.opening.link.describe())
    }
    fn traits(&self) -> Traits {
        let config = &self.opening.config;
        Traits { patience: config.timeout.unwrap_or_default().max(config.reattach), ..Traits::PLAIN }
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        (frames as usize).min(DEPTH_MAX) * SUBPAGE_BYTES
    }
    fn open_queue_for(&self, _: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        if depth == 0 || depth > DEPTH_MAX {
            return Err(OpenError::Depth { depth });
        }
        Ok(Box::new(DeviceQueue::open(self.opening.clone(), frames, depth, wake)?))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages())
    }
    fn backing(&self) -> Option<&dyn Backing> {
        Some(&ReadOnly)
    }
    fn counters(&self) -> DeviceCounters {
        self.opening.link.counters()
    }
}
