//! Room for a sync of a program whose memory is in a device's store.
//!
//! Where only the program names states, its changes in DRAM must find places at the next name. This
//! host knows those, and the device says its room in a register of each region. [`Changes`]
//! decides, as for a pool of this process, without waiting for the device.
//!
//! A write counts as placed when its completion was taken. The device has said the smaller room
//! before, in the region of that completion, so the least of all open regions counts. A write under
//! way counts twice: a claim may be refused a moment early, never late.
//!
//! **A device that dies** leaves its last word in the regions, until another one has been met with
//! all copies on it. What was named and not made durable is not named there: until a name is
//! durable, no more room is believed than before it.
//!
//! Not here: the replay of copies ([`super::shared`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fulgurite_flash::FlashError;
use fulgurite_store::{Changes, Helpers, SUBPAGES_PER_PAGE};
use fulgurite_sys::Clock;

use super::shared::Shared;

/// See the top of the file.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Somebody says what differs in DRAM.
    watched: AtomicBool,
    changes: Changes,
    /// What names states when others find no room.
    helpers: Helpers,
    naming: Mutex<Naming>,
}

/// Also the lock that orders what the device says against what is placed.
#[derive(Debug, Default)]
struct Naming {
    /// A state is being named, or is not durable yet: the room before, less the places given since;
    /// and the device.
    before: Option<u64>,
    instance: u64,
    /// The newest one that was named, and the newest of them that is durable.
    named: u64,
    durable: u64,
}

impl Naming {
    /// What the other device had named and is not durable never will be.
    fn begin_instance(&mut self, instance: u64) {
        *self = Naming { before: None, instance, named: self.named, durable: self.named };
    }
}

/// Room that a memory operation may take, until this is dropped.
#[must_use]
pub(super) struct Reserved<'s> {
    shared: &'s Shared,
    taken: u64,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.taken > 0 {
            self.shared.took(self.taken);
        }
    }
}

impl Room {
    pub(super) fn new(clock: &Clock) -> Room {
        Room { helpers: Helpers::new(clock.clone()), ..Room::default() }
    }
    fn naming(&self) -> MutexGuard<'_, Naming> {
        self.naming.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }
    /// As [`fulgurite_flash::Flash::asks`].
    #[inline]
    pub(super) fn asks(&self) -> bool {
        self.changes.asks()
    }
    /// Subpages that differ in DRAM and have no place yet, as far as somebody asks for them.
    pub(super) fn claimed(&self) -> u64 {
        self.changes.claimed()
    }
    /// Somebody names a state when there is no room, or nobody does any more.
    pub(super) fn set_names_for_writers(&self, does: bool) {
        self.helpers.set_syncs(does.then_some(0));
    }
    /// A refused change waits, as a sync will follow.
    pub(super) fn waits(&self) -> bool {
        self.helpers.waits_for_sync()
    }
    pub(super) fn sync_begins(&self) {
        self.changes.sync_begins();
    }
    pub(super) fn sync_ended(&self, made: bool) {
        self.changes.sync_ended(made);
    }
    pub(super) fn counting_begins(&self) {
        self.changes.counting_begins();
    }
    pub(super) fn counted(&self, frames: u64) {
        self.changes.counted(frames);
    }
    /// Notes that a state was named, or none after all (0).
    pub(super) fn record_named(&self, token: u64) {
        let mut naming = self.naming();
        naming.named = naming.named.max(token);
        if token == 0 && naming.named == naming.durable {
            naming.before = None;
        }
    }
    /// Notes that a named state is durable.
    pub(super) fn record_durable(&self, token: u64) {
        let mut naming = self.naming();
        naming.durable = naming.durable.max(token);
        if token >= naming.named {
            naming.before = None;
            self.changes.named();
        }
    }
    /// Notes a roll back, after which nothing differs from the state.
    pub(super) fn record_roll_back(&self) {
        let mut naming = self.naming();
        *naming = Naming { instance: naming.instance, ..Naming::default() };
        self.changes.forgotten();
    }
}

impl Shared {
    /// What room there certainly is.
    fn room_now(&self, naming: &Naming) -> u64 {
        self.room_said().min(naming.before.unwrap_or(u64::MAX))
    }
    /// At most `frames` frames may differ; 0: no user of the cache says which do.
    pub(super) fn leave_for_sync(&self, frames: u64) {
        let naming = self.room.naming();
        self.room.changes.watch(frames, self.room_now(&naming));
        self.room.watched.store(frames > 0, Ordering::Release);
    }
    /// As [`fulgurite_flash::Flash::begin_change`].
    pub(super) fn begin_change(&self, for_sync: bool) -> Result<(), FlashError> {
        let Room { changes, helpers, .. } = &self.room;
        if !changes.asks() {
            return Ok(());
        }
        if self.is_lost() {
            return Err(FlashError::Poisoned);
        }
        if for_sync {
            changes.claim_for_sync();
            return Ok(());
        }
        if changes.take(false) {
            return Ok(());
        }
        let naming = self.room.naming();
        if !changes.claim(self.room_now(&naming), 0) {
            return Err(FlashError::NoSpace);
        }
        helpers.note_places();
        Ok(())
    }
    /// `count` writes have completed, each of a sector that differed.
    #[inline]
    pub(super) fn placed(&self, count: u64) {
        if count == 0 || !self.room.is_watched() {
            return;
        }
        let mut naming = self.room.naming();
        if let Some(before) = &mut naming.before {
            *before = before.saturating_sub(count);
        }
        if self.room.changes.placed(count) {
            self.room.changes.note_room(self.room_now(&naming));
        }
    }
    /// A memory operation on `pages` pages begins, each of which may make all that a page holds
    /// old.
    pub(super) fn reserve(&self, pages: u32) -> Result<Reserved<'_>, FlashError> {
        if !self.room.is_watched() {
            return Ok(Reserved { shared: self, taken: 0 });
        }
        // A page more, for the operation's own notes.
        let taken = (u64::from(pages) + 1) * u64::from(SUBPAGES_PER_PAGE);
        let naming = self.room.naming();
        if !self.room.changes.reserve(self.room_now(&naming), taken) {
            return Err(FlashError::NoSpace);
        }
        Ok(Reserved { shared: self, taken })
    }
    /// It has ended, and the device has said what that has left.
    fn took(&self, taken: u64) {
        let mut naming = self.room.naming();
        if let Some(before) = &mut naming.before {
            *before = before.saturating_sub(taken);
        }
        self.room.changes.release(taken);
        if self.room.changes.took(taken) {
            self.room.changes.note_room(self.room_now(&naming));
        }
    }
    /// Whether a sync would make room for a waiter, or less than a fifth of the last room is left.
    pub(super) fn wants_sync(&self) -> bool {
        let Room { changes, helpers, .. } = &self.room;
        if helpers.is_short() {
            return true;
        }
        let naming = self.room.naming();
        changes.asks() && changes.left(self.room_now(&naming)) < self.unnamed.load(Ordering::Relaxed) / 4
    }
    /// A state is about to be named, by a device that has been met.
    pub(super) fn begins_to_name(&self, instance: u64) {
        let mut naming = self.room.naming();
        if naming.instance != instance {
            naming.begin_instance(instance);
        }
        naming.before = Some(self.room_now(&naming));
    }
    /// Another device has been met, with all copies on it.
    pub(super) fn meet_instance(&self, instance: u64) {
        let mut naming = self.room.naming();
        // It may be asked for a name already.
        if naming.instance != instance {
            naming.begin_instance(instance);
        }
        if self.room.changes.took(u64::MAX) {
            self.room.changes.note_room(self.room_now(&naming));
        }
    }
}
