//! Goal: what is written to a frame while its worker writes it ahead of eviction is not lost: a
//! frame that is marked clean holds what flash holds, in every order that the memory model allows.
//! Method: loom runs all interleavings (up to a bound of preemptions) of the very functions that
//! run in production. One worker writes a dirty frame to flash without copying it and then evicts
//! it; a fiber of another one writes to it twice, through accesses or through a pin. Then the model
//! runs without the second check of the mark, which must be found, or the model proves nothing.
use fulgurite_format::FrameIndex;
use fulgurite_loom::marks::{CLEAN, DIRTY, Marks, has_changes};
use fulgurite_loom::residency::{self, NOTHING, State};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

const FRAME: FrameIndex = FrameIndex(7);
const OWNER: u32 = 0;

/// Which part of the protocol is left out.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Planted {
    Nothing,
    NoSecondLook,
    NoBarrier,
    NoSlots,
}

struct World {
    word: AtomicU32,
    slot: AtomicU32,
    marks: Marks,
    /// What the frame holds.
    frame: AtomicU32,
    /// What flash holds.
    flash: AtomicU32,
}

impl World {
    fn new(dirty: bool) -> World {
        let world = World {
            word: AtomicU32::new(residency::encode(State::Resident(FRAME))),
            slot: AtomicU32::new(NOTHING),
            marks: Marks::default(),
            frame: AtomicU32::new(if dirty { 100 } else { 99 }),
            flash: AtomicU32::new(99),
        };
        world.marks.dirty.store(if dirty { DIRTY } else { CLEAN }, Ordering::Relaxed);
        world
    }

    /// A fiber of another worker writes to the frame twice, if it may.
    fn writer(&self) {
        for value in [101, 102] {
            if residency::hit(&self.word, &self.slot).is_some() && self.marks.mark_dirty() {
                self.frame.store(value, Ordering::Relaxed);
            }
            self.slot.store(NOTHING, Ordering::Release);
        }
    }

    /// Writes to the frame through a pin.
    fn pin_holder(&self) {
        if residency::hit(&self.word, &self.slot).is_none() || self.marks.dirty.load(Ordering::Acquire) > DIRTY {
            self.slot.store(NOTHING, Ordering::Release);
            return;
        }
        self.marks.change_pins(1, false);
        self.slot.store(NOTHING, Ordering::Release);
        for value in [101, 102] {
            assert!(self.marks.mark_dirty_pinned());
            self.frame.store(value, Ordering::Relaxed);
        }
        self.marks.change_pins(u16::MAX, false);
    }

    fn named_by_a_slot(&self, planted: Planted) -> bool {
        planted != Planted::NoSlots && residency::protects(self.slot.load(Ordering::Acquire), FRAME)
    }

    /// The frame's worker writes it to flash without copying it. Returns whether it did.
    fn write_ahead(&self, planted: Planted) -> bool {
        if self.marks.pins.load(Ordering::Relaxed) > 0 || !self.marks.begin_write() {
            return false;
        }
        if planted != Planted::NoBarrier {
            fence(Ordering::SeqCst);
        }
        let named = || self.named_by_a_slot(planted);
        let used = match self.marks.second_check(named) {
            Some(used) => used,
            None if planted == Planted::NoSecondLook => self.marks.in_use(named),
            None => return false,
        };
        if used {
            self.marks.dirty.store(DIRTY, Ordering::Release);
            return false;
        }
        self.marks.pins.fetch_add(1, Ordering::AcqRel);
        // The medium reads the frame, at any moment until it says that it has.
        self.flash.store(self.frame.load(Ordering::Relaxed), Ordering::Relaxed);
        self.marks.pins.fetch_sub(1, Ordering::Release);
        self.marks.dirty.store(CLEAN, Ordering::Release);
        true
    }

    /// The frame's worker evicts it.
    fn evict(&self) {
        assert_eq!(residency::unlink(&self.word, FRAME, OWNER), Some(true));
        fence(Ordering::SeqCst);
        let (in_use, mark) = self.marks.check(|| self.named_by_a_slot(Planted::Nothing));
        if in_use {
            residency::finish(&self.word, OWNER, State::Resident(FRAME));
            return;
        }
        if !has_changes(mark) {
            self.assert_nothing_is_lost();
        }
        residency::finish(&self.word, OWNER, State::Absent);
    }

    fn assert_nothing_is_lost(&self) {
        let (frame, flash) = (self.frame.load(Ordering::Relaxed), self.flash.load(Ordering::Relaxed));
        assert_eq!(frame, flash, "a frame that is said to be clean holds what flash does not");
    }
}

/// How the other worker writes, and whether the frame is evicted in the end. A frame that is clean
/// at first becomes dirty by its own worker, perhaps between the other one's two steps.
#[derive(Clone, Copy, Debug)]
struct Case {
    dirty: bool,
    pin: bool,
    evict: bool,
}

const CASES: [Case; 5] = [
    Case { dirty: true, pin: false, evict: false },
    Case { dirty: true, pin: true, evict: false },
    Case { dirty: true, pin: false, evict: true },
    Case { dirty: false, pin: false, evict: false },
    Case { dirty: false, pin: true, evict: false },
];

fn model(case: Case, planted: Planted) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let world = Arc::new(World::new(case.dirty));
        let its = world.clone();
        let writer = thread::spawn(move || if case.pin { its.pin_holder() } else { its.writer() });
        if !case.dirty && world.marks.mark_dirty() {
            world.frame.fetch_max(100, Ordering::Relaxed);
        }
        if world.write_ahead(planted) && case.evict {
            world.evict();
        }
        writer.join().unwrap();
        if world.marks.dirty.load(Ordering::Relaxed) == CLEAN {
            world.assert_nothing_is_lost();
        }
    });
}

#[test]
fn what_is_written_during_a_write_ahead_is_not_lost() {
    for case in CASES {
        model(case, Planted::Nothing);
    }
}

#[test]
fn planted_faults_are_found() {
    for planted in [Planted::NoSecondLook, Planted::NoBarrier, Planted::NoSlots] {
        let found = CASES.into_iter().any(|case| std::panic::catch_unwind(|| model(case, planted)).is_err());
        assert!(found, "planted fault {planted:?} is not found");
    }
}
