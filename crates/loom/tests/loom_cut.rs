//! Goal: the phases of a cut and its count of writes agree, whichever comes first: workers that
//! seal and end writes, or the driver that waits, gives up and ends the sync. A token is named only
//! after all writes have ended and with their failures seen. Nothing written since the halt may
//! leave DRAM before that. Method: loom runs all interleavings (up to a bound of preemptions) of
//! the very functions that run in production. Two workers seal frames and end the first writes.
//! Then the others end while the driver checks whether all have ended, and gives the cut up where
//! they have not. Then the same with planted faults, which must be found, or the model proves
//! nothing.

// Not loom's: a worker that never ran outlives a model that failed.
use std::sync::Arc;

use fulgurite_flash::FlashError;
use fulgurite_loom::cut::{Cut, Phase};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// Which part of the protocol is left out.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Planted {
    Nothing,
    /// The driver names its token whether or not writes are left.
    NamedEarly,
    /// A write that was under way at the cut is not counted.
    NotCounted,
    /// A worker holds back what is written until the sync is over, and not until the last write.
    LetGo,
}

#[derive(Default)]
struct World {
    cut: Cut,
    /// Writes of the cut that the medium has ended.
    ended: AtomicU64,
}

impl World {
    /// A worker at the halt, with a sealed frame, and a write under way that ends at once.
    fn seal(&self, planted: Planted) {
        self.cut.hold_back();
        self.cut.add(if planted == Planted::NotCounted { 1 } else { 2 });
        self.end_write(Ok(()), planted);
    }

    fn end_write(&self, result: Result<(), FlashError>, planted: Planted) {
        let held = if planted == Planted::LetGo { self.cut.makes_room() } else { self.cut.holds_back() };
        assert!(held, "a write of the cut is left, and nothing is held back");
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.cut.one_ended(result);
    }

    /// The driver of the sync, whose patience ends now.
    fn finish(&self, planted: Planted) {
        if self.cut.left() > 0 && planted != Planted::NamedEarly {
            self.cut.abandon();
        } else {
            assert_eq!(self.ended.load(Ordering::Relaxed), 4, "a token is named without its writes");
            assert!(self.cut.failure().is_some(), "a token is named in spite of a failure");
            self.cut.end();
        }
        self.cut.over();
    }
}

fn model(planted: Planted) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let world = Arc::new(World::default());
        world.cut.begin();
        let other = world.clone();
        let sealing = thread::spawn(move || other.seal(planted));
        world.seal(planted);
        sealing.join().unwrap();
        assert_eq!((world.cut.phase(), world.cut.left()), (Phase::Writing, 2));
        let other = world.clone();
        let ending = thread::spawn(move || {
            [Ok(()), Err(FlashError::TimedOut)].into_iter().for_each(|result| other.end_write(result, planted));
        });
        world.finish(planted);
        ending.join().unwrap();
        assert_eq!((world.cut.phase(), world.cut.left()), (Phase::Idle, 0), "the cut ends with its last write");
        // The next one begins.
        world.cut.begin();
    });
}

#[test]
fn phases_and_counts_of_a_cut_agree() {
    model(Planted::Nothing);
}

#[test]
fn planted_faults_are_found() {
    for planted in [Planted::NamedEarly, Planted::NotCounted, Planted::LetGo] {
        let found = std::panic::catch_unwind(|| model(planted)).is_err();
        assert!(found, "planted fault {planted:?} is not found");
    }
}
