//! How many subpages may differ in DRAM from the pool, while it has hardly more room than a sync
//! needs.
//!
//! The next sync must find places for all changes in DRAM, or none could be made again. Until then,
//! a changed frame needs a place before any job, also a reader, gets it. So a change of a subpage
//! that matched the pool claims a place, and fails when none is left. A claim ends when the subpage
//! is written.
//!
//! Nothing claims while there is room for all frames and a quarter more ([`Changes::asks`], one
//! load). When claiming begins, all frames count as claimed. A named sync's writes are counted
//! apart.
//!
//! The room comes from outside: from a pool of this process, or from a device for its host. The
//! caller has a lock that orders it with [`Changes::placed`], because the room that was read before
//! a place was given would be too large afterwards.
//!
//! Counts drift: a claimed subpage was changed already, or is deleted, or a pinned frame changes
//! again after its write. So the owner of the frames counts those that differ at the end of each
//! sync ([`Changes::counted`]). Claims made meanwhile are added.
//!
//! In a pool of objects, only its space bounds what can be live. There, a change that adds data
//! leaves some room to those that replace or remove some ([`Changes::claim`]). A removal writes a
//! few subpages, whose older contents stay until the next sync. So without that room, a pool that
//! is full could not be emptied.
//!
//! Invariant while claiming: claims are at most the store's room, except a sync's own changes,
//! which always pass and have room kept. Nothing here depends on time, and it takes no lock but its
//! own. The store's lock is held when room is asked for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most claims handed over at once, so that few changes wait for the store.
const BATCH: u64 = 64;
/// Places for a sync's own changes, saved before it cuts: at least this number, and twice what the
/// last sync took.
const KEPT_FOR_SYNC: u64 = 128;
/// When no more than this number is left to be claimed, it is for work that has begun.
const LOW: u64 = 1024;
/// This number of requests is refused before the store's room is read again. Reading it takes the
/// store's lock, and waiting writers ask again and again.
const REFUSALS: u32 = 64;

/// Decides which subpages may change in DRAM while a store has hardly more room than the next sync
/// needs. See the top of the file.
#[derive(Debug, Default)]
pub struct Changes {
    asks: AtomicBool,
    /// Little is left to be claimed.
    low: AtomicBool,
    /// Claims that were handed over and not taken, of which `to_grow` may be taken to add data.
    credit: AtomicU64,
    to_grow: AtomicU64,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    /// Frames that may differ; 0: no claims are made.
    frames: u64,
    /// Subpages that differ, or may: in DRAM, with no place yet.
    claimed: u64,
    /// As `claimed`, for the cut that is being written.
    in_cut: u64,
    /// The part of the room that only a sync may claim.
    kept: u64,
    /// The part of the room that something else which is under way may claim.
    reserved: u64,
    /// What the last sync has claimed, or the one that goes on.
    saved: u64,
    /// Claims since frames began to be counted, while they are.
    since: Option<u64>,
    /// How many requests were refused since a place was last claimed: to change, and to add data.
    refusals: [u32; 2],
    /// Syncs that have begun and not ended.
    syncs: u32,
    /// Places that may be given before the store's room is read again.
    read_after: u64,
}

impl Ledger {
    fn add(&mut self, claims: u64) {
        self.claimed += claims;
        if let Some(since) = &mut self.since {
            *since += claims;
        }
    }
    /// The part of the room that no new claim may take.
    fn spoken_for(&self) -> u64 {
        (self.claimed + self.in_cut + self.kept).saturating_add(self.reserved)
    }
    /// Keeps room for what a sync changes itself: twice what one has changed so far, or more. In a
    /// pool that has hardly any room after a sync, a quarter of that room.
    fn keep_for_sync(&mut self, room: u64) {
        self.kept = self.kept.max(KEPT_FOR_SYNC.max(2 * self.saved).min(room / 4));
    }
    /// A ledger with this number of frames, of which none differs, while syncs and reservations
    /// continue.
    fn anew(&self, frames: u64) -> Ledger {
        Ledger { frames, syncs: self.syncs, since: self.since, reserved: self.reserved, ..Ledger::default() }
    }
    /// With this room or more, no change has to ask.
    fn enough(&self) -> u64 {
        self.frames.saturating_add(self.frames / 4).saturating_add(2 * KEPT_FOR_SYNC)
    }
}

impl Changes {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// From now on `frames` frames may differ, none of which does yet; 0: claims are off.
    pub fn watch(&self, frames: u64, room: u64) {
        let mut ledger = self.ledger();
        *ledger = ledger.anew(frames);
        self.take_back();
        let asks = frames > 0 && room < ledger.enough();
        ledger.read_after = room.saturating_sub(ledger.enough());
        self.asks.store(asks, Ordering::Release);
    }
    /// Whether little is left to be claimed before the next sync: what goes on may take that, and
    /// nothing new should begin.
    #[inline]
    pub fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }
    /// Whether a change must claim a place first.
    #[inline]
    pub fn asks(&self) -> bool {
        self.asks.load(Ordering::Acquire)
    }
    /// Takes a claim, if one is at hand. `grows`: to add data.
    #[must_use]
    pub fn take(&self, grows: bool) -> bool {
        let take_of = |credit: &AtomicU64| {
            credit.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |credit| credit.checked_sub(1)).is_ok()
        };
        !grows && take_of(&self.credit) || take_of(&self.to_grow)
    }
    /// Claims that were handed over and not taken, which nobody can take any more.
    fn take_back(&self) -> u64 {
        self.credit.swap(0, Ordering::AcqRel) + self.to_grow.swap(0, Ordering::AcqRel)
    }
    fn untaken(&self) -> u64 {
        self.credit.load(Ordering::Relaxed) + self.to_grow.load(Ordering::Relaxed)
    }
    /// None was left, and the store has this much room, of which `left` is for others. Returns
    /// whether the subpage may be changed.
    #[must_use]
    pub fn claim(&self, room: u64, left: u64) -> bool {
        let mut ledger = self.ledger();
        // An eighth more than where it begins. Each switch visits all frames, so it should not
        // alternate.
        if ledger.frames == 0 || room >= ledger.enough() + ledger.enough() / 8 && ledger.syncs == 0 {
            ledger.read_after = room.saturating_sub(ledger.enough());
            self.take_back();
            self.low.store(false, Ordering::Relaxed);
            self.asks.store(false, Ordering::Release);
            return true;
        }
        ledger.keep_for_sync(room);
        let free = room.saturating_sub(ledger.spoken_for());
        self.low.store(free <= (room / 4).min(LOW), Ordering::Relaxed);
        // What was handed over to change what is there is a part of what is left for that.
        let free = free.min((free + self.credit.load(Ordering::Relaxed)).saturating_sub(left));
        if free == 0 {
            ledger.refusals[usize::from(left > 0)] = 1;
            return false;
        }
        let batch = (free / 4).clamp(1, BATCH);
        ledger.add(batch);
        let credit = if left > 0 { &self.to_grow } else { &self.credit };
        credit.fetch_add(batch - 1, Ordering::AcqRel);
        true
    }
    /// A sync saves something: it must be made, whatever was counted.
    pub fn claim_for_sync(&self) {
        let mut ledger = self.ledger();
        ledger.saved += 1;
        ledger.add(1);
    }
    /// Whether such a request was just refused, so that this one is, too. Counts it.
    pub fn repeat_refusal(&self, grows: bool) -> bool {
        let mut ledger = self.ledger();
        let refusals = &mut ledger.refusals[usize::from(grows)];
        if *refusals > 0 {
            *refusals = (*refusals + 1) % REFUSALS;
        }
        *refusals > 0
    }
    /// Subpages that differ and have no place yet, as far as changes ask for places.
    pub fn claimed(&self) -> u64 {
        let ledger = self.ledger();
        (ledger.claimed + ledger.in_cut).saturating_sub(self.untaken())
    }
    /// The part of the store's room that is not claimed.
    pub fn left(&self, room: u64) -> u64 {
        room.saturating_sub(self.ledger().spoken_for()).saturating_add(self.untaken())
    }
    /// Whether what differs has its room if `taken` of it is used for something else.
    #[must_use]
    pub fn leaves(&self, room: u64, taken: u64) -> bool {
        self.ledger().spoken_for().saturating_add(taken) <= room
    }
    /// Whether this room is enough for what differs, or may, and for a sync's own changes.
    #[must_use]
    pub fn has_room_for_sync(&self, room: u64) -> bool {
        let ledger = self.ledger();
        let differ = if self.asks() { ledger.claimed + ledger.in_cut } else { ledger.frames };
        let kept = ledger.kept.max(KEPT_FOR_SYNC.max(2 * ledger.saved));
        ledger.frames == 0 || differ.saturating_add(kept).saturating_add(ledger.reserved) <= room
    }
    /// From now on changes ask, and all frames may differ.
    fn begin_to_ask(&self, ledger: &mut Ledger) {
        (ledger.claimed, ledger.in_cut) = (ledger.frames, 0);
        self.take_back();
        self.asks.store(true, Ordering::Release);
    }
    /// As [`Changes::leaves`] while changes do not ask: all frames may differ. Without room for
    /// them, changes ask from now on, and the next sync counts those that differ.
    #[must_use]
    pub fn leaves_for_all(&self, room: u64, taken: u64) -> bool {
        let mut ledger = self.ledger();
        let wanted = ledger.frames.saturating_add(ledger.reserved).saturating_add(taken);
        if ledger.frames == 0 || wanted <= room {
            return true;
        }
        if !self.asks() {
            self.begin_to_ask(&mut ledger);
        }
        false
    }
    /// As [`Changes::leaves`], for something that takes a while: if there is room, it is reserved
    /// until [`Changes::release`].
    #[must_use]
    pub fn reserve(&self, room: u64, taken: u64) -> bool {
        let mut ledger = self.ledger();
        let leaves = !self.asks() || ledger.spoken_for().saturating_add(taken) <= room;
        if leaves {
            ledger.reserved = ledger.reserved.saturating_add(taken);
        }
        leaves
    }
    /// As [`Changes::reserve`], for changes by jobs of the owner's own, which no claim refuses.
    /// Keeps room for the next sync first, as the first claim after a sync does.
    #[must_use]
    pub fn reserve_changes(&self, room: u64, count: u64) -> bool {
        self.ledger().keep_for_sync(room);
        self.reserve(room, count)
    }
    /// It has ended, and what it took is not room any more.
    pub fn release(&self, taken: u64) {
        let mut ledger = self.ledger();
        ledger.reserved = ledger.reserved.saturating_sub(taken);
    }
    /// At most `room` was taken for something else. Returns whether to read the store's room.
    #[must_use]
    pub fn took(&self, room: u64) -> bool {
        let mut ledger = self.ledger();
        // It may have made some, too.
        ledger.refusals = [0; 2];
        ledger.read_after = ledger.read_after.saturating_sub(room);
        ledger.frames > 0 && !self.asks() && ledger.read_after == 0
    }
    /// `count` subpages were given places. Returns whether to read the store's room
    /// ([`Changes::note_room`]).
    #[must_use]
    pub fn placed(&self, count: u64) -> bool {
        let mut ledger = self.ledger();
        if ledger.frames == 0 {
            return false;
        }
        if self.asks() {
            let of_cut = count.min(ledger.in_cut);
            ledger.in_cut -= of_cut;
            ledger.claimed = ledger.claimed.saturating_sub(count - of_cut);
            return false;
        }
        ledger.read_after = ledger.read_after.saturating_sub(count);
        ledger.read_after == 0
    }
    /// A place that was given turned out to be none: what was to be there has none yet.
    pub fn displaced(&self) {
        let mut ledger = self.ledger();
        if ledger.frames > 0 && self.asks() {
            ledger.claimed += 1;
        }
    }
    /// The store has this much room: from now on changes ask, or it is read again later.
    pub fn note_room(&self, room: u64) {
        let mut ledger = self.ledger();
        if room < ledger.enough() {
            self.begin_to_ask(&mut ledger);
        } else {
            // At least an eighth, so that it is read seldom.
            ledger.read_after = (room - ledger.enough()).max(ledger.frames / 32);
        }
    }
    /// A sync begins: what differs now it writes.
    pub fn sync_begins(&self) {
        let mut ledger = self.ledger();
        ledger.syncs += 1;
        ledger.in_cut += std::mem::take(&mut ledger.claimed);
        // Claims that were not taken belong to no change.
        let unused = self.take_back();
        ledger.in_cut = ledger.in_cut.saturating_sub(unused);
        ledger.saved = 0;
    }
    /// What it wrote has a name, and all of it its place.
    pub fn named(&self) {
        let mut ledger = self.ledger();
        (ledger.in_cut, ledger.refusals) = (0, [0; 2]);
    }
    /// The owner of the frames begins to count those that differ.
    pub fn counting_begins(&self) {
        let mut ledger = self.ledger();
        let unused = self.take_back();
        ledger.claimed = ledger.claimed.saturating_sub(unused);
        ledger.since = Some(0);
    }
    /// `frames` of them differ. More may have changed since counting began.
    pub fn counted(&self, frames: u64) {
        let mut ledger = self.ledger();
        let since = ledger.since.take().unwrap_or(0);
        // Not before: what is claimed while frames are counted counts twice.
        self.low.store(false, Ordering::Relaxed);
        if self.asks() {
            (ledger.claimed, ledger.in_cut, ledger.refusals) = (frames + since, 0, [0; 2]);
        }
    }
    /// It has ended, and made a token or not.
    pub fn sync_ended(&self, made: bool) {
        let mut ledger = self.ledger();
        ledger.syncs = ledger.syncs.saturating_sub(1);
        let left = std::mem::take(&mut ledger.in_cut);
        if !made {
            ledger.claimed += left;
        }
        (ledger.read_after, ledger.refusals) = (0, [0; 2]);
        if made {
            ledger.kept = 0;
        }
    }
    /// Nothing differs any more.
    pub fn forgotten(&self) {
        let mut ledger = self.ledger();
        *ledger = ledger.anew(ledger.frames);
        self.take_back();
        self.low.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims until one is refused, at most `most` times.
    fn claims(changes: &Changes, room: u64, most: u64) -> u64 {
        (0..most).take_while(|_| changes.take(false) || changes.claim(room, 0)).count() as u64
    }

    #[test]
    fn with_much_room_nobody_asks_and_with_little_each_claims_a_place() {
        let changes = Changes::default();
        changes.watch(1000, 10_000);
        assert!(!changes.asks());
        changes.watch(1000, 700);
        assert!(changes.asks());
        assert_eq!(claims(&changes, 700, 2000), 700 - KEPT_FOR_SYNC);
        // What has its place needs none; the room is smaller by as much.
        assert!(!changes.placed(300));
        assert_eq!(claims(&changes, 400, 2000), 0);
        // What the sync itself changes may be claimed.
        changes.claim_for_sync();
        changes.sync_begins();
        assert_eq!(claims(&changes, 400, 2000), 0);
        assert!(!changes.placed(273));
        changes.sync_ended(true);
        assert_eq!(claims(&changes, 700, 2000), 700 - KEPT_FOR_SYNC);
    }
    #[test]
    fn what_adds_data_leaves_room_to_what_changes_it() {
        let changes = Changes::default();
        let adds =
            |room, left| (0..2000).take_while(|_| changes.take(true) || changes.claim(room, left)).count() as u64;
        changes.watch(1000, 700);
        assert_eq!(adds(700, 100), 700 - KEPT_FOR_SYNC - 100);
        // The refusal of one is none of the other.
        assert!(changes.repeat_refusal(true) && !changes.repeat_refusal(false));
        assert_eq!(claims(&changes, 700, 2000), 100);
        // Claims that were handed over for changes are a part of what is left for them.
        changes.watch(1000, 700);
        assert_eq!(claims(&changes, 700, 1), 1);
        assert_eq!(adds(700, 100), 700 - KEPT_FOR_SYNC - 100 - 1);
        assert_eq!(claims(&changes, 700, 2000), 100);
    }
    #[test]
    fn that_little_is_left_is_reported_before_it_ends() {
        let changes = Changes::default();
        changes.watch(1000, 700);
        let claimed =
            (0..700).take_while(|_| !changes.is_low() && (changes.take(false) || changes.claim(700, 0))).count();
        assert!(changes.is_low() && (300..570).contains(&claimed), "{claimed}");
        changes.named();
        changes.counting_begins();
        assert!(changes.is_low());
        changes.counted(0);
        // Also where there is none at all.
        assert!(!changes.is_low() && !changes.claim(0, 0) && changes.is_low());
    }
    #[test]
    fn room_that_runs_out_is_seen_in_time_and_all_frames_count_as_claimed_then() {
        let changes = Changes::default();
        let (mut room, frames) = (4000, 1000);
        changes.watch(frames, room);
        while !changes.asks() {
            room -= 10;
            if changes.placed(10) {
                changes.note_room(room);
            }
        }
        assert!(room >= frames + KEPT_FOR_SYNC, "{room}");
        let before = claims(&changes, room, 2000);
        assert!(before <= room - frames - KEPT_FOR_SYNC, "{before} of {room}");
        // After the sync there is much room again, and no change has to ask.
        changes.sync_begins();
        changes.sync_ended(true);
        assert!(changes.claim(4000, 0));
        assert!(!changes.asks());
    }
    /// Forgetting DRAM in the middle of a sync does not forget that sync: while it lasts, every
    /// change asks.
    #[test]
    fn a_sync_that_goes_on_is_not_forgotten() {
        let changes = Changes::default();
        changes.watch(1000, 700);
        changes.sync_begins();
        changes.forgotten();
        assert!(changes.claim(100_000, 0) && changes.asks());
        changes.sync_ended(true);
        assert!(changes.claim(100_000, 0) && !changes.asks());
    }
    #[test]
    fn what_begins_in_a_sync_is_set_right_at_its_end() {
        let changes = Changes::default();
        changes.watch(1000, 1600);
        assert!(!changes.asks());
        changes.sync_begins();
        // Its first writes take what room there was too much.
        assert!(changes.placed(100));
        changes.note_room(1500);
        assert!(changes.asks());
        assert!(!changes.placed(800));
        changes.named();
        assert_eq!(claims(&changes, 700, 2000), 700 - KEPT_FOR_SYNC - 200, "800 of 1,000 have their places");
        changes.counting_begins();
        assert!(!changes.claim(700, 0) && changes.repeat_refusal(false));
        // Only some of those that asked have changed anything; one more asks meanwhile.
        changes.claim_for_sync();
        changes.counted(50);
        changes.sync_ended(true);
        assert!(!changes.repeat_refusal(false));
        assert_eq!(claims(&changes, 700, 2000), 700 - KEPT_FOR_SYNC - 51);
    }
    #[test]
    fn who_was_refused_is_refused_for_some_time_and_what_failed_has_no_place() {
        let changes = Changes::default();
        changes.watch(1000, 300);
        assert_eq!(claims(&changes, 300, 2000), 300 - 75);
        assert!((2..REFUSALS).all(|_| changes.repeat_refusal(false)) && !changes.repeat_refusal(false));
        assert!(!changes.placed(100));
        assert!(!changes.leaves(200, 1) && changes.leaves(200, 0));
        // A quarter of the room was kept; some of the writes fail.
        assert_eq!(claims(&changes, 300, 2000), 100);
        assert!(!changes.placed(100));
        (0..40).for_each(|_| changes.displaced());
        assert_eq!(claims(&changes, 300, 2000), 60);
        // A sync's own are granted in any case, and more is kept for the next.
        changes.sync_begins();
        (0..100).for_each(|_| changes.claim_for_sync());
        changes.sync_ended(true);
        assert_eq!(claims(&changes, 1000, 2000), 1000 - 200 - 100);
    }
    fn watched(frames: u64, room: u64) -> Changes {
        let changes = Changes::default();
        changes.watch(frames, room);
        changes
    }
    #[test]
    fn room_is_read_again_when_what_is_beyond_enough_may_be_used() {
        // Enough are all frames, a quarter more, and twice 128.
        assert_eq!([1505, 1506].map(|room| watched(1000, room).asks()), [true, false]);
        assert!(!watched(0, 0).asks());
        for gives in [Changes::placed, Changes::took] {
            let changes = watched(1000, 2000);
            assert_eq!([493, 1].map(|count| gives(&changes, count)), [false, true]);
            // Not sooner than when a 32nd of the frames was given.
            changes.note_room(1506);
            assert_eq!([30, 1].map(|count| gives(&changes, count)), [false, true]);
            changes.note_room(1606);
            assert_eq!([99, 1].map(|count| gives(&changes, count)), [false, true]);
            assert!(!changes.asks());
            changes.note_room(1505);
            assert!(changes.asks() && !gives(&changes, 2000));
            assert!(!gives(&watched(0, 0), 10), "nobody cares");
        }
        // Asking ends with an eighth more than enough.
        let changes = watched(1000, 700);
        changes.sync_begins();
        changes.sync_ended(true);
        assert!(changes.claim(1693, 0) && changes.asks());
        assert!(changes.claim(1694, 0) && !changes.asks());
    }
    #[test]
    fn what_is_taken_for_something_else_ends_refusals() {
        let changes = watched(1000, 4);
        // One at a time where there are few, and a quarter is kept.
        assert_eq!((claims(&changes, 4, 10), changes.take(false)), (3, false));
        assert!(changes.repeat_refusal(false));
        assert!(!changes.took(0) && !changes.repeat_refusal(false));
    }
    #[test]
    fn claims_are_counted_until_they_have_their_place() {
        let changes = watched(1000, 500);
        // 125 are kept, and of 375 no more than 64 are handed over at once.
        assert!(changes.claim(500, 0));
        assert_eq!(changes.claimed(), 1);
        assert_eq!(((0..200).take_while(|_| changes.take(false)).count(), changes.claimed()), (63, 64));
        assert!(changes.claim(500, 0));
        assert_eq!(changes.claimed(), 65);
        // What was handed over needs its room, taken or not.
        assert!(changes.leaves(500, 500 - 128 - 125) && !changes.leaves(500, 500 - 128 - 124));
        changes.sync_begins();
        // Claims that were not taken belong to no change.
        assert!(changes.claimed() == 65 && !changes.take(false));
        assert!(changes.leaves(500, 500 - 65 - 125) && !changes.leaves(500, 500 - 65 - 124));
        assert!(!changes.placed(5));
        changes.displaced();
        assert_eq!(changes.claimed(), 61);
        assert!(!changes.placed(61));
        assert_eq!(changes.claimed(), 0);
        changes.displaced();
        changes.sync_ended(false);
        changes.claim_for_sync();
        assert_eq!(changes.claimed(), 2);
        // While frames are counted, what is claimed is added; what was handed over before is not.
        assert!(changes.claim(500, 0));
        changes.counting_begins();
        assert!(!changes.take(false) && changes.claimed() == 3);
        changes.claim_for_sync();
        changes.counted(10);
        assert_eq!(changes.claimed(), 11);
        changes.forgotten();
        assert_eq!(changes.claimed(), 0);
        // Where changes do not ask, what failed is no matter.
        let changes = watched(1000, 2000);
        changes.displaced();
        assert_eq!(changes.claimed(), 0);
    }
    #[test]
    fn while_nobody_asks_all_frames_keep_their_room() {
        let changes = watched(1000, 2000);
        assert!(changes.leaves_for_all(1016, 16) && !changes.asks());
        assert!(changes.has_room_for_sync(1128) && !changes.has_room_for_sync(1127));
        assert!(!changes.leaves_for_all(1015, 16) && changes.asks());
        assert_eq!(changes.claimed(), 1000);
        changes.sync_begins();
        changes.counting_begins();
        changes.counted(7);
        changes.sync_ended(true);
        assert!(changes.leaves(23, 16) && !changes.leaves(22, 16));
        assert!(changes.has_room_for_sync(135) && !changes.has_room_for_sync(134));
        assert!(watched(0, 0).leaves_for_all(0, 1) && watched(0, 0).has_room_for_sync(0));
    }
    #[test]
    fn what_is_reserved_nobody_else_gets() {
        let changes = Changes::default();
        changes.watch(1000, 10_000);
        assert!(changes.reserve(0, u64::MAX), "nobody asks");
        changes.release(u64::MAX);
        changes.watch(1000, 400);
        assert!(!changes.reserve(400, 401) && changes.reserve(400, 100));
        // Not even after all was forgotten, as it goes on.
        changes.forgotten();
        assert_eq!(claims(&changes, 400, 2000), 400 - 100 - 400 / 4);
        assert!(!changes.reserve(400, 1));
        changes.release(100);
        assert!(changes.reserve(400, 100) && !changes.claim(400, 0));
        changes.release(100);
        assert_eq!(claims(&changes, 400, 2000), 100);
    }
    /// Changes that are reserved between a sync and the first claim leave room for the next sync.
    #[test]
    fn reserved_changes_leave_room_for_a_sync() {
        let changes = Changes::default();
        changes.watch(1000, 400);
        for _ in 0..2 {
            assert!(!changes.reserve_changes(400, 301) && changes.reserve_changes(400, 300));
            (0..300).for_each(|_| changes.claim_for_sync());
            changes.release(300);
            // Neither deletions nor claims have it.
            assert!(!changes.leaves(400, 1) && !changes.claim(400, 0));
            (0..100).for_each(|_| changes.claim_for_sync());
            changes.sync_begins();
            assert!(!changes.placed(400));
            changes.named();
            changes.sync_ended(true);
        }
    }
    #[test]
    fn a_sync_that_fails_leaves_its_claims_and_what_is_forgotten_has_none() {
        let changes = Changes::default();
        changes.watch(1000, 500);
        assert_eq!(claims(&changes, 500, 2000), 500 - 500 / 4);
        changes.sync_begins();
        changes.sync_ended(false);
        assert_eq!(claims(&changes, 500, 2000), 0);
        changes.forgotten();
        assert_eq!(claims(&changes, 500, 2000), 500 - 500 / 4);
        changes.watch(0, 0);
        assert!(!changes.asks() && !changes.placed(10));
    }
}
