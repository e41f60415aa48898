//! Goal: no frame is given to another subpage while it may still be in use: hit and pin against
//! unlink, evict, write back and read by another worker, in every order that the memory model
//! allows. Method: loom runs all interleavings of the production functions that change words, slots
//! and marks, the evictor's checks of them included. What a user does with a pin is modelled after
//! `context.rs`. Two workers and two subpages share one frame, whose tenant is noted in a cell of
//! its own. A user of a subpage must find it there while its slot or pin says so. Then the model
//! runs with a planted fault, which must be found, or the model proves nothing.
use fulgurite_format::FrameIndex;
use fulgurite_loom::marks::{CLEAN, DIRTY, Marks, has_changes};
use fulgurite_loom::residency::{self, NOTHING, State};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

const FRAME: FrameIndex = FrameIndex(7);
const EVICTOR: u32 = 0;

/// Which part of the protocol is left out.
#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    NoSecondLook,
    NoSlots,
    NoBarrier,
    PinsBeforeSlots,
}

struct World {
    words: [AtomicU32; 2],
    slot: AtomicU32,
    marks: Marks,
    /// What the frame holds: the number of a subpage, and whether it was written to.
    tenant: AtomicU32,
    /// What flash holds of subpage 0.
    flash: AtomicU32,
}

impl World {
    fn new() -> World {
        let resident = residency::encode(State::Resident(FRAME));
        let absent = residency::encode(State::Absent);
        World {
            words: [AtomicU32::new(resident), AtomicU32::new(absent)],
            slot: AtomicU32::new(NOTHING),
            marks: Marks::default(),
            tenant: AtomicU32::new(100),
            flash: AtomicU32::new(100),
        }
    }

    fn hit(&self, planted: Planted) -> bool {
        if planted != Planted::NoSecondLook {
            return residency::hit(&self.words[0], &self.slot).is_some();
        }
        let seen = self.words[0].load(Ordering::Acquire);
        if (seen as i32) < 0 {
            self.slot.store(seen, Ordering::Release);
            fence(Ordering::SeqCst);
            return true;
        }
        false
    }

    /// Another worker's access to subpage 0: reads it, or writes 101 over its 100, perhaps through
    /// a pin.
    fn user(&self, write: bool, pin: bool, planted: Planted) -> bool {
        if !self.hit(planted) {
            return false;
        }
        if pin {
            self.marks.pins.fetch_add(1, Ordering::AcqRel);
            // The next access of this fiber: its slot says something else.
            self.slot.store(NOTHING, Ordering::Release);
        }
        if write {
            self.marks.dirty.store(DIRTY, Ordering::Relaxed);
            assert_eq!(self.tenant.swap(101, Ordering::Relaxed), 100, "a writer's frame was given away");
        } else {
            assert_eq!(self.tenant.load(Ordering::Relaxed), 100, "a reader's frame was given away");
        }
        if pin {
            self.marks.pins.fetch_sub(1, Ordering::Release);
        } else {
            self.slot.store(NOTHING, Ordering::Release);
        }
        true
    }

    /// The frame's worker: evicts subpage 0, and reads subpage 1 into its frame. Returns whether it
    /// could.
    fn evictor(&self, planted: Planted) -> bool {
        let [old, new] = &self.words;
        assert_eq!(residency::unlink(old, FRAME, EVICTOR), Some(true));
        if planted != Planted::NoBarrier {
            fence(Ordering::SeqCst);
        }
        let slot = || residency::protects(self.slot.load(Ordering::Acquire), FRAME) && planted != Planted::NoSlots;
        let (in_use, mark) = if planted == Planted::PinsBeforeSlots {
            let pinned = self.marks.pins.load(Ordering::Acquire) > 0;
            (pinned || slot(), self.marks.dirty.load(Ordering::Relaxed))
        } else {
            self.marks.check(slot)
        };
        if in_use {
            residency::finish(old, EVICTOR, State::Resident(FRAME));
            return false;
        }
        if has_changes(mark) {
            self.marks.dirty.store(CLEAN, Ordering::Relaxed);
            self.flash.store(self.tenant.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        residency::finish(old, EVICTOR, State::Absent);
        assert_eq!(residency::begin(new, EVICTOR), Ok(State::Absent));
        self.tenant.store(200, Ordering::Relaxed);
        residency::finish(new, EVICTOR, State::Resident(FRAME));
        true
    }
}

fn model(write: bool, pin: bool, planted: Planted) {
    loom::model(move || {
        let world = Arc::new(World::new());
        let its = world.clone();
        let user = thread::spawn(move || its.user(write, pin, planted));
        let evicted = world.evictor(planted);
        let used = user.join().unwrap();
        if write && used && evicted {
            assert_eq!(world.flash.load(Ordering::Relaxed), 101, "what was written is lost");
        }
        // Both may fail: the user's slot kept the evictor off, and its second check found the
        // subpage unlinked. It asks again.
    });
}

#[test]
fn a_frame_in_use_is_not_given_away() {
    for (write, pin) in [(false, false), (true, false), (false, true), (true, true)] {
        model(write, pin, Planted::Nothing);
    }
}

#[test]
fn planted_faults_are_found() {
    for planted in [Planted::NoSecondLook, Planted::NoSlots, Planted::NoBarrier, Planted::PinsBeforeSlots] {
        let found = [(false, false), (true, false), (true, true)]
            .into_iter()
            .any(|(write, pin)| std::panic::catch_unwind(|| model(write, pin, planted)).is_err());
        assert!(found, "planted fault {} is not found", planted as u8);
    }
}

#[test]
fn a_miss_has_one_owner() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(residency::encode(State::Absent)));
        let threads: Vec<_> = (1..=2)
            .map(|worker| {
                let word = word.clone();
                thread::spawn(move || match residency::begin(&word, worker) {
                    Ok(State::Absent) => {
                        residency::finish(&word, worker, State::Prefetched(FrameIndex(worker)));
                        true
                    }
                    Err(State::Busy(other) | State::Prefetched(FrameIndex(other))) => {
                        assert_ne!(other, worker);
                        // Only one of the two makes it resident, whichever touches it.
                        false
                    }
                    other => panic!("{other:?}"),
                })
            })
            .collect();
        let owners = threads.into_iter().map(|t| t.join().unwrap()).filter(|&o| o).count();
        assert_eq!(owners, 1);
    });
}

#[test]
fn a_first_touch_and_an_eviction_do_not_both_win() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(residency::encode(State::Prefetched(FRAME))));
        let its = word.clone();
        let toucher = thread::spawn(move || residency::first_touch(&its, FRAME));
        let unlinked = residency::unlink(&word, FRAME, EVICTOR);
        let touched = toucher.join().unwrap();
        match unlinked {
            None => assert!(touched, "it was not there for no reason"),
            Some(was_touched) => {
                assert_eq!(was_touched, touched);
                residency::finish(&word, EVICTOR, State::Absent);
            }
        }
    });
}
