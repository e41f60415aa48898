//! A replacement policy of your own, compared with the built-in ones: first in, first out.
//!
//! `cargo run --release -p fulgurite-sim --example own_policy`
use core::ops::ControlFlow;
use std::collections::VecDeque;

use fulgurite_format::{LocalFrame, SubpageIndex};
use fulgurite_policy::{ColdCursor, FrameView, Replacement, ReplacementPolicy};
use fulgurite_sim::RunError;
use fulgurite_sim::system::Document;
use fulgurite_sim::workers::{WorkersReport, WorkersSystem};

/// Frames in the order in which they were filled, and how many there may be.
pub struct Fifo(VecDeque<LocalFrame>, usize);

impl Fifo {
    /// None is filled, and there are `frames`.
    pub fn new(frames: usize) -> Fifo {
        Fifo(VecDeque::new(), frames)
    }
}

impl Replacement for Fifo {
    fn inserted(&mut self, frame: LocalFrame, _: SubpageIndex) {
        self.0.push_back(frame);
    }
    fn touched(&mut self, _: LocalFrame) {}
    fn victim<V: FrameView>(&mut self, view: &mut V) -> Option<LocalFrame> {
        let at = (0..self.0.len()).find(|at| view.evictable(self.0[*at]))?;
        self.0.remove(at)
    }
    fn reinstated(&mut self, frame: LocalFrame, subpage: SubpageIndex) {
        self.inserted(frame, subpage);
    }
    fn removed(&mut self, frame: LocalFrame) {
        self.0.retain(|other| *other != frame);
    }
    fn coldest(&self, _: ColdCursor, most: usize, f: &mut dyn FnMut(LocalFrame) -> ControlFlow<()>) -> ColdCursor {
        let _ = self.0.iter().take(most).try_for_each(|frame| f(*frame));
        ColdCursor::START
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn capacity(&self) -> usize {
        self.1
    }
    fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<LocalFrame>()
    }
    fn check(&self) {
        assert!(self.len() <= self.capacity());
    }
}

/// Misses for each request of a system with each policy, the own one last.
pub fn compare(system: &WorkersSystem) -> Result<Vec<(&'static str, f64)>, RunError> {
    let misses = |report: &WorkersReport| report.misses_per_request;
    let mut all = Vec::new();
    for replacement in ReplacementPolicy::ALL {
        all.push((replacement.name(), misses(&WorkersSystem { replacement, ..system.clone() }.run(1)?)));
    }
    all.push(("own", misses(&system.run_with(1, Fifo::new)?)));
    Ok(all)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../systems/workers.toml");
    let system = WorkersSystem::read(&Document::read(file, &std::fs::read_to_string(file)?, &[])?)?;
    for (name, misses) in compare(&system)? {
        println!("{name}: {misses:.4} misses/request");
    }
    Ok(())
}
