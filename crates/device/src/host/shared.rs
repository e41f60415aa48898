//! What all queues of one host share: what a death of the device would undo, and how it is made
//! good.
//!
//! A completed write that no flush covers is at risk. With a copy ([`Kept`]), the first queue that
//! meets the device again writes it once more, before any queue sends anything else. Without one,
//! its loss is reported as `Poisoned` rather than older data served.
//!
//! Invariants: nothing is sent to a returned device before all copies are on it. No copy is added
//! while they are on their way. A write that completed on another device than the current one is
//! not acknowledged, but sent once more.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use fulgurite_flash::FlashError;
use fulgurite_sys::Clock;

use super::kept::Kept;
use super::link::{HostConfig, Link, Linked};
use super::restrict::Restrictions;
use super::room::Room;
use super::seen::Seen;
use crate::device::Life;
use crate::entry::SECTOR_BYTES;
use crate::hosts::HostIdentity;
use crate::planted::PlantedReplay;
use crate::region::{Features, Region};

/// What a flush covers that was submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Covers {
    /// Writes without a copy.
    unkept: bool,
    /// Copies below this mark.
    mark: u64,
}

/// What came of meeting a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Met {
    /// All that was acknowledged is there.
    Whole,
    /// Something is gone.
    Lost,
    /// It died again, or took too long: try once more.
    Again,
}

/// What all queues know of the device, and the copies.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The device that all copies are on; 0: none yet.
    pub instance: u64,
    /// Copies are on their way to another one: none is added meanwhile.
    replaying: bool,
    /// Times that this came to nothing.
    in_vain: u64,
    pub kept: Kept,
    /// Those that were opened on that device, and not closed before it died.
    regions: Vec<Arc<Region>>,
    /// Copies below this mark were there while no region was open, so others may have written. 0:
    /// none.
    unwatched: u64,
    /// Of a program that names the states: the newest durable one that it saw, and the newest that
    /// it named. A device that returns with another one has served others.
    durable: u64,
    named: u64,
    /// Of such a program: the newest token when it began, or an older one that it has gone back to.
    began: u64,
}

impl Known {
    /// From now on all copies are on this device.
    fn set_instance(&mut self, instance: u64) {
        if self.instance != instance {
            self.regions.clear();
        }
        self.instance = instance;
    }
    /// Notes an open region of that device.
    fn add_region(&mut self, region: &Arc<Region>) {
        if !self.regions.iter().any(|open| Arc::ptr_eq(open, region)) {
            self.regions.push(region.clone());
        }
    }
    fn is_current(&self, instance: u64) -> bool {
        self.instance == instance && !self.replaying
    }
}

/// A number that no other host has, of this program or another.
#[derive(Debug)]
struct HostId(u64);

impl Default for HostId {
    fn default() -> Self {
        HostId(RandomState::new().build_hasher().finish() | 1)
    }
}

/// What all queues of one host share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    id: HostId,
    /// Writes without a copy have completed since the last flush was submitted.
    unflushed: AtomicBool,
    /// Flushes in flight that are to make such writes durable.
    covering: AtomicU32,
    /// Anything was written at all without a copy.
    written: AtomicBool,
    known: Mutex<Known>,
    /// No copies are on their way any more.
    replayed_all: Condvar,
    /// Some of what was acknowledged is gone, or may go at any time.
    lost: AtomicBool,
    /// Sectors written since the last state was named, by a program that names the states.
    pub(super) unnamed: AtomicU64,
    /// The permissions of pages, in the session of a program that names states.
    pub(super) restrictions: Restrictions,
    /// What room there is for what such a program changes, in the same.
    pub(super) room: Room,
    pub(crate) seen: Seen,
}

/// Whether copies are kept of writes to this device.
pub(super) fn keeps(link: &dyn Link, config: &HostConfig, features: Features) -> bool {
    let of_no_use = features.has(Features::KEEPS_WRITES) || features.has(Features::FORGETS);
    config.unflushed_bytes >= SECTOR_BYTES && !of_no_use && link.may_forget()
}

impl Shared {
    pub(crate) fn new(clock: &Clock) -> Shared {
        Shared { room: Room::new(clock), ..Shared::default() }
    }
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Names this host to a device, and says whether it is to write once more what was
    /// acknowledged.
    pub(super) fn identity(&self, restores: bool) -> HostIdentity {
        HostIdentity { host: self.id.0, restores, since: self.known().began, ..HostIdentity::default() }
    }
    /// A queue pair is about to be closed while its device is there.
    pub(super) fn leaves(&self, region: &Arc<Region>) {
        let mut known = self.known();
        let before = known.regions.len();
        known.regions.retain(|open| !Arc::ptr_eq(open, region));
        if known.regions.is_empty() && before > 0 && known.kept.len() > 0 {
            known.unwatched = known.kept.mark();
        }
    }
    /// A queue is opened over `frames` frames: that number of copies is enough.
    pub(super) fn keeps_for(&self, config: &HostConfig, frames: usize) {
        self.known().kept.raise_limit((config.unflushed_bytes / SECTOR_BYTES).min(frames));
    }
    /// Notes that a write without a copy has completed and that no flush covers it. Returns false
    /// when its device has died by now: another queue may have met the next one, and found nothing
    /// at risk.
    ///
    /// Either this sees that the life has ended, or its observer sees what this noted: both sides
    /// store and then load, sequentially consistent.
    #[inline]
    pub(super) fn record_write(&self, life: &Life) -> bool {
        if !self.written.load(Ordering::Relaxed) {
            self.written.store(true, Ordering::SeqCst);
        }
        if !self.unflushed.load(Ordering::Relaxed) {
            self.unflushed.store(true, Ordering::SeqCst);
        }
        !life.has_ended()
    }
    /// Promises a place for the copy of a write that is about to be sent.
    pub(super) fn promise(&self) -> bool {
        self.known().kept.promise()
    }
    /// Takes a promise back: the write has failed, or was never sent.
    pub(super) fn give_back(&self) {
        self.known().kept.give_back();
    }
    /// Keeps a completed write, by its promise. Returns false when another device has been met
    /// since: then the write must be sent once more.
    #[inline]
    pub(super) fn keep(&self, instance: u64, sector: u32, copy: impl FnOnce(&mut [u8])) -> bool {
        let mut known = self.known();
        let current = known.is_current(instance);
        if current {
            known.kept.keep(sector, copy);
        }
        current
    }
    /// As for one sector, for several sectors at once, without a promise. None when there is no
    /// room.
    pub(super) fn keep_all(
        &self,
        instance: u64,
        sector: u32,
        count: u32,
        mut copy: impl FnMut(u32, &mut [u8]),
    ) -> Option<bool> {
        let mut known = self.known();
        if known.kept.room() < count as usize {
            return None;
        }
        let current = known.is_current(instance);
        for i in (0..count).filter(|_| current) {
            assert!(known.kept.promise(), "there is room for all");
            known.kept.keep(sector + i, |bytes| copy(i, bytes));
        }
        Some(current)
    }
    /// Sectors of which copies may be kept, now and at all.
    pub(super) fn room(&self) -> (usize, usize) {
        let known = self.known();
        (known.kept.room(), known.kept.limit())
    }
    /// What all queues know, when no copies are on their way.
    fn known_at_rest(&self) -> MutexGuard<'_, Known> {
        let waiting = self.replayed_all.wait_while(self.known(), |known| known.replaying);
        waiting.unwrap_or_else(PoisonError::into_inner)
    }
    /// Sectors are about to change by other means than a write: their copies must not be replayed.
    /// Waits while they are on their way to the next device, as the change may not happen.
    pub(super) fn forget(&self, life: &Life, gone: impl Fn(u32) -> bool) {
        if self.known_at_rest().kept.forget(gone) {
            self.record_write(life);
        }
    }
    /// A flush is submitted; `again`: one that was before, to a device that has died.
    pub(super) fn begins_flush(&self, again: Option<Covers>) -> Covers {
        // In this order, so that what is at risk is always seen in one of the two.
        let mark = self.known().kept.mark();
        if again.is_some_and(|covers| covers.unkept) {
            return Covers { unkept: true, mark };
        }
        self.covering.fetch_add(1, Ordering::SeqCst);
        let unkept = self.unflushed.swap(false, Ordering::SeqCst);
        if !unkept {
            self.covering.fetch_sub(1, Ordering::SeqCst);
        }
        Covers { unkept, mark }
    }
    /// Such a flush has ended, or never will.
    pub(super) fn ended_flush(&self, covers: Covers, well: bool) {
        if covers.unkept {
            if !well {
                self.unflushed.store(true, Ordering::SeqCst);
            }
            self.covering.fetch_sub(1, Ordering::SeqCst);
        }
        if well {
            let mut known = self.known();
            known.kept.flushed(covers.mark);
            if covers.mark >= known.unwatched {
                known.unwatched = 0;
            }
        }
    }
    /// A queue pair of a device was opened, and nothing was sent there yet. On a new device,
    /// unflushed acknowledged writes are replayed until `stop` is set. Others that meet it wait for
    /// that and share a failure: in turns they would wait for as long again.
    pub(super) fn meets(
        self: &Arc<Self>,
        link: &Arc<dyn Link>,
        config: &HostConfig,
        linked: &Linked,
        stop: &AtomicBool,
    ) -> Met {
        let capability = linked.region.capability();
        let (instance, features) = (capability.instance, capability.features);
        let in_vain = self.known().in_vain;
        let mut known = self.known_at_rest();
        // One that has died since may be older than the one that others have met.
        if known.in_vain != in_vain || linked.life.has_ended() {
            return Met::Again;
        }
        let before = known.instance;
        if before != 0 && before != instance {
            // Twice: a flush that begins raises `covering` before it clears `unflushed`, a failed
            // one the other way round.
            let unflushed = || self.unflushed.load(Ordering::SeqCst);
            let at_risk = unflushed() || self.covering.load(Ordering::SeqCst) > 0 || unflushed();
            // What others have written there since is newer. Where no queue pair was open at its
            // death, nothing is known.
            let unknown = known.regions.is_empty() || known.unwatched > 0;
            let by_others = unknown || known.regions.iter().any(|region| region.has_others());
            let overtaken = by_others && known.kept.len() > 0 || link.is_alone() && linked.region.had_predecessors();
            let foreign = link.names_states() && !(known.durable..=known.named).contains(&linked.newest_token);
            // Or it was taken back as what a program leaves that has gone.
            let has_lost_pages = link.names_states() && self.restrictions.has_temporary() && !linked.has_temporary;
            let overtaken = overtaken || foreign || has_lost_pages;
            let empty = features.has(Features::FORGETS) && self.written.load(Ordering::SeqCst);
            if empty || overtaken || at_risk && !features.has(Features::KEEPS_WRITES) {
                self.loses();
            }
            let planted = matches!(config.planted, Some(PlantedReplay::Nothing | PlantedReplay::After));
            if !self.is_lost() && known.kept.len() > 0 && !planted {
                known.replaying = true;
                drop(known);
                if !self.replay_alone(link, config, (instance, &linked.region), stop) {
                    return Met::Again;
                }
                known = self.known();
                if known.instance != instance {
                    return Met::Again;
                }
            }
        }
        if before == 0 {
            (known.durable, known.named) = (linked.newest_token, linked.newest_token);
            known.began = linked.newest_token;
        }
        known.set_instance(instance);
        known.add_region(&linked.region);
        drop(known);
        if before != 0 && before != instance {
            self.meet_instance(instance);
        }
        self.met()
    }
    /// The least room that any open region says, if the device says any. A dead device's last word
    /// holds until another one is met.
    pub(super) fn room_said(&self) -> u64 {
        let known = self.known();
        let none_is_open = if known.regions.is_empty() { 0 } else { u64::MAX };
        known.regions.iter().filter_map(|region| region.room()).min().unwrap_or(none_is_open)
    }
    /// A state is about to be named. Should the device die before its answer, any newer one may be
    /// this one. Returns the newest until now.
    pub(super) fn names(&self) -> u64 {
        std::mem::replace(&mut self.known().named, u64::MAX)
    }
    /// Notes the newest name, which is an older one where naming failed.
    pub(super) fn record_named(&self, token: u64) {
        self.known().named = token;
    }
    /// Notes that a named state is durable.
    pub(super) fn record_durable(&self, token: u64) {
        let mut known = self.known();
        known.durable = known.durable.max(token);
    }
    /// The state is about to return to the state of a token. If the device dies now, the next one
    /// may have either. Returns what was durable before.
    pub(super) fn goes_back(&self, token: u64) -> u64 {
        let mut known = self.known();
        let below = known.durable.min(token);
        std::mem::replace(&mut known.durable, below)
    }
    /// It has gone back on this device: earlier writes must not be replayed. Returns false when
    /// another device has been met since, where that was done already.
    pub(super) fn record_roll_back(&self, instance: u64, token: u64) -> bool {
        let mut known = self.known_at_rest();
        let current = known.is_current(instance);
        if current {
            known.kept.forget(|_| true);
            (known.durable, known.named) = (token, token);
            known.began = known.began.min(token);
        }
        current
    }
    /// Whether something of what was acknowledged is gone.
    pub(super) fn has_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
    fn met(&self) -> Met {
        if self.is_lost() { Met::Lost } else { Met::Whole }
    }
    /// What is stored on the device may change without its host from now on.
    #[cold]
    pub(super) fn loses(&self) {
        self.lost.store(true, Ordering::Release);
    }
    /// Whether some of what was acknowledged is gone, or may go.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
    /// Does the work of [`Shared::replay`], for the caller that has said that copies are on their
    /// way. Afterwards they are not on their way, also after a panic. Returns whether all that can
    /// be on this device is there now.
    fn replay_alone(
        self: &Arc<Self>,
        link: &Arc<dyn Link>,
        config: &HostConfig,
        (instance, region): (u64, &Arc<Region>),
        stop: &AtomicBool,
    ) -> bool {
        struct OnTheirWay<'s> {
            shared: &'s Shared,
            arrived: Option<(u64, &'s Arc<Region>)>,
        }
        impl Drop for OnTheirWay<'_> {
            fn drop(&mut self) {
                let mut known = self.shared.known();
                known.replaying = false;
                match self.arrived {
                    // At once with its region, which says what room there is.
                    Some((instance, region)) => {
                        known.set_instance(instance);
                        known.add_region(region);
                    }
                    None => known.in_vain += 1,
                }
                self.shared.replayed_all.notify_all();
            }
        }
        let mut copies = OnTheirWay { shared: self, arrived: None };
        match self.replay(link, config, instance, stop) {
            Ok(()) => {}
            Err(FlashError::Closed | FlashError::TimedOut) => return false,
            // The device does not take what it took before.
            Err(_) => self.loses(),
        }
        copies.arrived = Some((instance, region));
        true
    }
}
