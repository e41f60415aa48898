//! What the device itself allows: random reads and writes in a workload's mix, as deep as its fibers, with nothing above.
//!
//! A write takes a subpage back to where it was read from, so the data stays as it is. That holds only while nobody else
//! writes to the flash: the caller sees to it that the runtime has nothing in flight and begins nothing, and all that was submitted
//! here has completed before it returns.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use fulgurite_flash::{Flash, Op, Request};
use fulgurite_format::{FrameIndex, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Clock, Notifier};
use fulgurite_workloads::Random;

/// How long to wait for the last completions.
const PATIENCE: Duration = Duration::from_secs(10);

/// Requests a second over `time`, `depth` of them in flight, `read_share` of them reads; at least half, as each write needs
/// something that was read.
pub fn per_second(flash: &dyn Flash, read_share: f64, depth: usize, time: Duration) -> Result<f64> {
    // Base pages: it runs in the cgroup under measurement, whose peak should not show more of it than it needs.
    let frames = Arc::new(Arena::anonymous(depth * 4096, Backed::BasePages)?);
    frames.zero(0, frames.len());
    let mut queue = flash.open_queue(frames, depth, Arc::new(Notifier::new()?))?;
    let mut random = Random::new(11, 0);
    // Reads come in any order, a write after a read only: for a share w of writes among all, w / (1 - w) of the reads have one.
    let writes_per_read = ((1.0 - read_share) / read_share).min(1.0);
    // What each slot's frame holds, where that was not written back yet.
    let mut held: Vec<Option<SubpageIndex>> = vec![None; depth];
    let mut request = |slot: usize| {
        let back = held[slot].take().filter(|_| random.unit() < writes_per_read);
        let (op, subpage) = match back {
            Some(subpage) => (Op::Write, subpage),
            None => {
                let subpage = SubpageIndex(random.below(flash.subpages().into()) as u32);
                held[slot] = Some(subpage);
                (Op::Read, subpage)
            }
        };
        Request { tag: slot as u64, op, subpage, frame: FrameIndex(slot as u32) }
    };
    let clock = Clock::get();
    let start = clock.now_ns();
    let end = start + time.as_nanos() as u64;
    let (mut done, mut completions) = (0u64, Vec::with_capacity(depth));
    for slot in 0..depth {
        queue.submit(request(slot))?;
    }
    let mut failed = None;
    while clock.now_ns() < end && failed.is_none() {
        queue.flush()?;
        if queue.poll(&mut completions) == 0 {
            queue.wait(Some(Duration::from_millis(100)));
        }
        for completion in completions.drain(..) {
            if let Err(error) = completion.result {
                // What was not read is not there to be written.
                failed = Some(error);
                continue;
            }
            done += 1;
            if failed.is_none() {
                queue.submit(request(completion.tag as usize))?;
            }
        }
    }
    let elapsed_s = (clock.now_ns() - start) as f64 / 1e9;
    // A write that lands later would take back what the runtime has written meanwhile.
    let last = clock.now_ns() + PATIENCE.as_nanos() as u64;
    queue.flush()?;
    while queue.in_flight() > 0 {
        if queue.poll(&mut completions) == 0 {
            queue.wait(Some(Duration::from_millis(100)));
        }
        if clock.now_ns() > last {
            bail!("{} requests to the device did not complete in {PATIENCE:?}", queue.in_flight());
        }
    }
    if let Some(error) = failed.or_else(|| completions.drain(..).find_map(|c| c.result.err())) {
        return Err(error.into());
    }
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
