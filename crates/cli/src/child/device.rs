//! What the device itself allows: random reads and writes in a workload's mix, as deep as its fibers, with nothing above.
//!
//! It overwrites what it writes to: only for a configuration that has been checked and is about to end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use fulgurite_flash::{Flash, Op, Request};
use fulgurite_format::{FrameIndex, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Clock, Notifier};
use fulgurite_workloads::Random;

/// Requests a second over `time`, `depth` of them in flight, `read_share` of them reads.
pub fn per_second(flash: &dyn Flash, read_share: f64, depth: usize, time: Duration) -> Result<f64> {
    let frames = Arc::new(Arena::anonymous(depth * 4096, Backed::HugePages)?);
    frames.zero(0, frames.len());
    let mut queue = flash.open_queue(frames, depth, Arc::new(Notifier::new()?))?;
    let mut random = Random::new(11, 0);
    let mut request = |slot: u64| Request {
        tag: slot,
        op: if random.unit() < read_share { Op::Read } else { Op::Write },
        subpage: SubpageIndex(random.below(flash.subpages().into()) as u32),
        frame: FrameIndex(slot as u32),
    };
    let clock = Clock::get();
    let start = clock.now_ns();
    let end = start + time.as_nanos() as u64;
    let (mut done, mut completions) = (0u64, Vec::with_capacity(depth));
    for slot in 0..depth as u64 {
        queue.submit(request(slot))?;
    }
    while clock.now_ns() < end {
        queue.flush()?;
        if queue.poll(&mut completions) == 0 {
            queue.wait(Some(Duration::from_millis(100)));
        }
        for completion in completions.drain(..) {
            completion.result?;
            done += 1;
            queue.submit(request(completion.tag))?;
        }
    }
    let elapsed_s = (clock.now_ns() - start) as f64 / 1e9;
    if done == 0 {
        bail!("the device completed nothing in {time:?}");
    }
    Ok(done as f64 / elapsed_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_flash::MemoryFlash;

    #[test]
    fn a_device_is_kept_busy() {
        let flash = MemoryFlash::new(64).unwrap();
        let before = flash.counters();
        assert!(per_second(&flash, 0.5, 8, Duration::from_millis(5)).unwrap() > 0.0);
        let after = flash.counters();
        assert!(after.reads > before.reads && after.writes > before.writes);
    }
}
