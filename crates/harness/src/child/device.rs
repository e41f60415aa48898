//! What the device itself allows: random requests in a workload's mix, at its depth, with nothing
//! above.
//!
//! A write takes a subpage back to where it was read, so the data stays. That needs a runtime that
//! has nothing in flight and begins nothing meanwhile.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fulgurite_flash::{Asks, Completion, Flash, FlashError, Op, Request, keep_busy};
use fulgurite_format::{FrameIndex, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Clock, Notifier};
use fulgurite_workloads::Random;

/// Requests a second over `time`, at this depth, `read_share` of them reads. At least half are
/// reads, as each write needs one.
pub fn per_second(flash: &dyn Flash, read_share: f64, depth: usize, time: Duration) -> Result<f64> {
    // Base pages: the peak of the cgroup under measurement should show no more than this needs.
    let frames = Arc::new(Arena::anonymous(depth * 4096, Backed::BasePages)?);
    frames.zero(0, frames.len());
    let mut queue = flash.open_queue(frames, depth, Arc::new(Notifier::new()?))?;
    let start = Clock::get().now_ns();
    let mut asks = Mix {
        random: Random::new(11, 0),
        subpages: flash.subpages(),
        writes_per_read: ((1.0 - read_share) / read_share).min(1.0),
        held: vec![None; depth],
        now: start,
        end: start + time.as_nanos() as u64,
        done: 0,
        last: start,
    };
    // All have ended when this returns: a later write would undo the runtime's.
    keep_busy(&mut *queue, depth, 1, &mut asks).context("the device")?;
    ensure!(asks.done > 0, "the device completed nothing in {time:?}");
    Ok(asks.done as f64 * 1e9 / (asks.last - start) as f64)
}

/// Reads at random, and writes of what was read.
struct Mix {
    random: Random,
    subpages: u32,
    /// Writes follow reads: for a share w of writes, w / (1 - w) of the reads have one.
    writes_per_read: f64,
    /// What each slot's frame holds, where that was not written back yet.
    held: Vec<Option<SubpageIndex>>,
    now: u64,
    end: u64,
    /// What completed within the time, and when completions were last polled.
    done: u64,
    last: u64,
}

impl Asks for Mix {
    type Error = FlashError;

    fn about_to_poll(&mut self) {
        self.now = Clock::get().now_ns();
    }
    fn next(&mut self, slot: u32) -> Result<Option<Request>, FlashError> {
        if self.now >= self.end {
            return Ok(None);
        }
        let held = &mut self.held[slot as usize];
        let (op, subpage) = match held.take().filter(|_| self.random.unit() < self.writes_per_read) {
            Some(subpage) => (Op::Write, subpage),
            None => (Op::Read, *held.insert(SubpageIndex(self.random.below(self.subpages.into()) as u32))),
        };
        Ok(Some(Request { tag: slot.into(), op, subpage, frame: FrameIndex(slot) }))
    }
    fn ended(&mut self, completion: Completion) -> Result<(), FlashError> {
        completion.result?;
        if self.now < self.end {
            (self.done, self.last) = (self.done + 1, self.now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_flash::MemoryFlash;

    #[test]
    fn a_device_is_kept_busy_and_its_data_stays() {
        let flash = MemoryFlash::new(64).unwrap();
        let data: Vec<u8> = (0..64 * 4096u32).map(|i| (i / 4096 + i % 251) as u8).collect();
        flash.storage().write(0, &data);
        for share in [1.0, 0.7, 0.5, 0.0] {
            let before = flash.counters();
            assert!(per_second(&flash, share, 8, Duration::from_millis(5)).unwrap() > 0.0);
            let after = flash.counters();
            let (reads, writes) = (after.reads - before.reads, after.writes - before.writes);
            let got = reads as f64 / (reads + writes) as f64;
            assert!((got - share.max(0.5)).abs() < 0.05, "{share}: {reads} reads, {writes} writes");
        }
        let mut now = vec![0; data.len()];
        flash.storage().read(0, &mut now);
        assert!(now == data, "the data changed");
    }
}
