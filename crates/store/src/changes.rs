//! How many subpages may differ in DRAM from what a pool holds, while it has hardly more room than a sync needs.
//!
//! Where only the program syncs, what it has changed in DRAM must find places at the next sync, or no sync could ever be made again; and
//! until then whoever wants a frame in which something was changed must find a place for that, a reader as well. So whoever changes a
//! subpage in DRAM that was as in the pool claims a place, and is told when there are no more to be had: nobody else is. A claim ends when
//! the subpage is written, and has its place then.
//!
//! Nobody claims anything while there is room for all frames and a quarter more ([`Changes::asks`] says which it is, at the cost of a
//! load). When that begins, all frames count as claimed. What a sync is to write is counted apart: when it has ended, it is forgotten,
//! and with it what was counted too much. Claims are counted too low by what pinned frames change after they were written.
//!
//! Invariant while somebody asks: claims are no more than the store has room for, those aside. Decides nothing by time and takes no
//! lock but its own; who asks for room holds the store's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Claims are handed over in batches of so many at the most, so that few of those who change something wait for the store.
const BATCH: u64 = 64;
/// Places that a sync's own changes may claim, and nobody else, at the most: what it saves before it cuts.
const KEPT_FOR_SYNC: u64 = 128;

/// See the top of the file.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    asks: AtomicBool,
    /// Claims that were handed over and not taken.
    credit: AtomicU64,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    /// Frames that may differ; 0: nobody asks for any.
    frames: u64,
    /// Subpages that differ, or may: in DRAM, with no place yet.
    claimed: u64,
    /// The same of the cut that is being written.
    in_cut: u64,
    /// Of the room, what only a sync may claim.
    kept: u64,
    /// Syncs that have begun and not ended.
    syncs: u32,
    /// Places that may be given before the store's room is looked at again.
    look_after: u64,
}

impl Ledger {
    fn begin_to_ask(&mut self) {
        self.claimed = self.frames;
        self.in_cut = if self.syncs > 0 { self.frames } else { 0 };
    }
    /// Where there is so much room, nobody has to ask.
    fn enough(&self) -> u64 {
        self.frames.saturating_add(self.frames / 4).saturating_add(2 * KEPT_FOR_SYNC)
    }
}

impl Changes {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// From now on so many frames may differ, none of which does yet; 0: nobody cares.
    pub fn watch(&self, frames: u64, room: u64) {
        let mut ledger = self.ledger();
        *ledger = Ledger { frames, syncs: ledger.syncs, ..Ledger::default() };
        self.credit.store(0, Ordering::Relaxed);
        let asks = frames > 0 && room < ledger.enough();
        ledger.look_after = room.saturating_sub(ledger.enough());
        self.asks.store(asks, Ordering::Release);
    }
    /// Whether whoever changes a subpage must claim a place before.
    pub fn asks(&self) -> bool {
        self.asks.load(Ordering::Acquire)
    }
    /// Takes a claim, if one is at hand.
    pub fn take(&self) -> bool {
        let taken = self.credit.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |credit| credit.checked_sub(1));
        taken.is_ok()
    }
    /// There was none, and the store has this much room. Returns whether the subpage may be changed.
    pub fn claim(&self, room: u64, for_sync: bool) -> bool {
        let mut ledger = self.ledger();
        // By half more than where it begins: who would ask and not ask by turns looks at all frames each time.
        if ledger.frames == 0 || room >= ledger.enough() + ledger.enough() / 2 && ledger.syncs == 0 {
            ledger.look_after = room.saturating_sub(ledger.enough());
            self.credit.store(0, Ordering::Relaxed);
            self.asks.store(false, Ordering::Release);
            return true;
        }
        // Of a pool that has hardly any room after a sync, a quarter of that.
        ledger.kept = ledger.kept.max(KEPT_FOR_SYNC.min(room / 4));
        let kept = if for_sync { 0 } else { ledger.kept };
        let free = room.saturating_sub(ledger.claimed + ledger.in_cut + kept);
        if free == 0 {
            return false;
        }
        let batch = if for_sync { 1 } else { (free / 4).clamp(1, BATCH) };
        ledger.claimed += batch;
        self.credit.fetch_add(batch - 1, Ordering::AcqRel);
        true
    }
    /// So many subpages were given places. Returns whether to look at the store's room ([`Changes::look`]).
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
        ledger.look_after = ledger.look_after.saturating_sub(count);
        ledger.look_after == 0
    }
    /// The store has this much room: from now on somebody asks, or it is looked at again later.
    pub fn look(&self, room: u64) {
        let mut ledger = self.ledger();
        if room < ledger.enough() {
            ledger.begin_to_ask();
            self.asks.store(true, Ordering::Release);
        } else {
            // An eighth at the least, as a look goes over all extents.
            ledger.look_after = (room - ledger.enough()).max(ledger.frames / 32);
        }
    }
    /// A sync begins: what differs now it writes.
    pub fn sync_begins(&self) {
        let mut ledger = self.ledger();
        ledger.syncs += 1;
        ledger.in_cut += std::mem::take(&mut ledger.claimed);
        // What nobody has taken was claimed for nobody.
        let unused = self.credit.swap(0, Ordering::AcqRel);
        ledger.in_cut = ledger.in_cut.saturating_sub(unused);
    }
    /// It has ended, and made a token or not.
    pub fn sync_ended(&self, made: bool) {
        let mut ledger = self.ledger();
        ledger.syncs = ledger.syncs.saturating_sub(1);
        let left = std::mem::take(&mut ledger.in_cut);
        if !made {
            ledger.claimed += left;
        }
        (ledger.kept, ledger.look_after) = (0, 0);
    }
    /// Nothing differs any more.
    pub fn forgotten(&self) {
        let mut ledger = self.ledger();
        *ledger = Ledger { frames: ledger.frames, syncs: ledger.syncs, ..Ledger::default() };
        self.credit.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims until it is told; so many at the most.
    fn claims(changes: &Changes, room: u64, most: u64) -> u64 {
        (0..most).take_while(|_| changes.take() || changes.claim(room, false)).count() as u64
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
        assert!(changes.claim(400, true));
        changes.sync_begins();
        assert_eq!(claims(&changes, 400, 2000), 0);
        assert!(!changes.placed(273));
        changes.sync_ended(true);
        assert_eq!(claims(&changes, 700, 2000), 700 - KEPT_FOR_SYNC);
    }
    #[test]
    fn room_that_runs_out_is_seen_in_time_and_all_frames_count_as_claimed_then() {
        let changes = Changes::default();
        let (mut room, frames) = (4000, 1000);
        changes.watch(frames, room);
        while !changes.asks() {
            room -= 10;
            if changes.placed(10) {
                changes.look(room);
            }
        }
        assert!(room >= frames + KEPT_FOR_SYNC, "{room}");
        let before = claims(&changes, room, 2000);
        assert!(before <= room - frames - KEPT_FOR_SYNC, "{before} of {room}");
        // After the sync there is much again, and who asks is told that he need not.
        changes.sync_begins();
        changes.sync_ended(true);
        assert!(changes.claim(4000, false));
        assert!(!changes.asks());
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
