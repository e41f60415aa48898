//! Executed workloads on cores: the accesses of a request, as loads and stores.
//!
//! A request runs when a thread takes it, and the thread repeats its accesses. An access is a load
//! of each cache block that it covers. The first one depends on the last access, as an address that
//! was read there. Where the access writes, its blocks are stored to as well. Between two accesses
//! a thread computes.

use std::cell::RefCell;
use std::rc::Rc;

use super::work::{BLOCK, Space, Step};
use crate::executed::{Executed, ExecutedError, Touch};
use crate::random::Random;

/// A workload that all threads of a run take requests from.
#[derive(Debug)]
pub struct Shared {
    workload: Executed,
    touches: Vec<Touch>,
    failed: Option<ExecutedError>,
}

impl Shared {
    pub fn new(workload: Executed) -> Shared {
        Shared { workload, touches: Vec::new(), failed: None }
    }
    /// Why a request failed, if one did. Its thread has ended its job.
    pub fn failed(&mut self) -> Option<ExecutedError> {
        self.failed.take()
    }
    /// Runs a request without time. Returns the pages that it touches, in their order.
    pub fn pages(&mut self) -> Result<impl Iterator<Item = u64> + '_, ExecutedError> {
        self.workload.request(&mut self.touches)?;
        Ok(self.touches.iter().map(|touch| u64::from(touch.subpage())))
    }
}

/// One thread's requests.
#[derive(Debug)]
pub struct Replay {
    shared: Rc<RefCell<Shared>>,
    instructions: u32,
    space: Space,
    thread: u64,
    /// Blocks of the thread's own between two accesses.
    own: u32,
    random: Random,
    /// Steps of the request under way, the last one first.
    steps: Vec<Step>,
}

impl Replay {
    pub fn new(
        shared: Rc<RefCell<Shared>>,
        (instructions, own): (u32, u32),
        space: Space,
        thread: u64,
        seed: u64,
    ) -> Replay {
        let random = Random::new(seed ^ thread.wrapping_mul(0xd605_1a5f_f91c_a5a3), 7);
        Replay { shared, instructions, space, thread, own, random, steps: Vec::new() }
    }
    /// The next step.
    pub fn next(&mut self) -> Step {
        if let Some(step) = self.steps.pop() {
            return step;
        }
        let shared = self.shared.clone();
        let Shared { workload, touches, failed } = &mut *shared.borrow_mut();
        if let Err(error) = workload.request(touches) {
            failed.get_or_insert(error);
            return Step::End;
        }
        for touch in touches.iter() {
            let first = touch.at / BLOCK;
            let last = (touch.at + u64::from(touch.bytes).max(1) - 1) / BLOCK;
            let mean = self.instructions;
            if !touch.pinned {
                // About the mean, so that threads do not march in step.
                let count = mean / 2 + self.random.below(u64::from(mean) + 1) as u32;
                self.steps.push(Step::Compute(count));
                for block in 0..self.own {
                    let address = self.space.own(self.thread, u64::from(block));
                    self.steps.push(Step::Load { address, depends: false });
                }
            }
            for block in first..=last {
                let address = block * BLOCK;
                self.steps.push(Step::Load { address, depends: block == first && !touch.pinned });
                if touch.writes {
                    self.steps.push(Step::Store { address });
                }
            }
        }
        self.steps.push(Step::End);
        self.steps.reverse();
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_repeated_in_their_order() {
        // Elements of one block, rows of one, and nodes of a page.
        ["array-swap", "tatp", "silo"].into_iter().for_each(repeats);
    }
    fn repeats(name: &str) {
        let workload = || Executed::build(name, 8 << 20, 0.9, 1).unwrap();
        let mut touches = Vec::new();
        workload().request(&mut touches).unwrap();
        let blocks = |touch: &Touch| {
            let last = touch.at + u64::from(touch.bytes).max(1) - 1;
            (touch.at / BLOCK..=last / BLOCK).map(|block| block * BLOCK)
        };
        let shared = Rc::new(RefCell::new(Shared::new(workload())));
        let mut replay = Replay::new(shared.clone(), (100, 2), Space { pages: 2048 }, 0, 1);
        let (mut loads, mut stores, mut own) = (Vec::new(), Vec::new(), 0);
        loop {
            match replay.next() {
                Step::End => break,
                Step::Compute(count) => assert!((50..=150).contains(&count)),
                Step::Load { address, .. } if address >= 8 << 20 => own += 1,
                Step::Load { address, .. } => loads.push(address),
                Step::Store { address } => stores.push(address),
            }
        }
        assert!(loads.iter().copied().eq(touches.iter().flat_map(blocks)), "{name}: {loads:?} {touches:?}");
        let written = touches.iter().filter(|touch| touch.writes).flat_map(blocks);
        assert!(stores.iter().copied().eq(written), "{name}: {stores:?} {touches:?}");
        assert!(!stores.is_empty(), "{name}");
        assert_eq!(own, 2 * touches.iter().filter(|touch| !touch.pinned).count());
        assert!(shared.borrow_mut().failed().is_none());
    }
}
