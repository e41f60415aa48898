//! The worker's side of an emulated device: a batch, two rings, and the tags in between.
//!
//! Budget: submit, flush and poll together decide what a miss costs. So a flush without news loads
//! one line that stays in the cache, and one transfer brings up to eight completions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use fulgurite_sys::{Arena, Notifier};

use super::Shared;
use super::device::Port;
use crate::ring::{Consumer, Producer, ring};
use crate::slots::Slots;
use crate::{Completion, FlashError, Op, Queue, QueueFull, Request, Switches, frame_count};

/// What a queue and the device share in addition to the rings.
#[derive(Debug)]
pub(super) struct Link {
    /// The worker sleeps, or is about to and will poll the completion ring once more.
    pub(super) waiting: CachePadded<AtomicBool>,
    /// The queue is gone; nothing of it is in flight.
    pub(super) closed: AtomicBool,
    /// The device is to say the checksum of what it moves.
    pub(super) checksums: AtomicBool,
    pub(super) wake: Arc<Notifier>,
    pub(super) frames: Arc<Arena>,
}

/// On lines of its own, because the memory next to it may be the device's.
#[repr(align(128))]
pub(super) struct EmulatedQueue {
    shared: Arc<Shared>,
    link: Arc<Link>,
    requests: Producer<2>,
    completions: Consumer<1>,
    slots: Slots,
    /// Submitted, not handed over: entries as they go into the ring.
    batch: Vec<[u64; 2]>,
    /// Refused here, to be reported by the next poll.
    refused: Vec<Completion>,
    frame_count: u32,
    rings_bytes: usize,
    polls: u32,
}

/// At one in how many polls the queue asks whether the device has ended.
const LOOK_AT_END: u32 = 128;

/// A request in a word: operation (2 bits), frame (30), subpage (32).
#[inline]
fn pack(request: &Request) -> u64 {
    let op = match request.op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Flush => 2u64,
    };
    op << 62 | (u64::from(request.frame.0) & 0x3FFF_FFFF) << 32 | u64::from(request.subpage.0)
}

/// The inverse of [`pack`]: operation, frame, subpage.
#[inline]
pub(super) fn unpack(word: u64) -> (Op, u32, u32) {
    let op = match word >> 62 {
        0 => Op::Read,
        1 => Op::Write,
        _ => Op::Flush,
    };
    (op, (word >> 32) as u32 & 0x3FFF_FFFF, word as u32)
}

/// The bits of a slot in a completion's word. The checksum follows them; the ring has the top bit.
const SLOT_BITS: u32 = 16;
const _: () = assert!(crate::DEPTH_MAX <= 1 << SLOT_BITS, "a slot fits");

/// The device's word for the end of a request that went well.
#[inline]
pub(super) fn pack_completion(slot: u32, checksum: u32) -> u64 {
    debug_assert!(slot < 1 << SLOT_BITS);
    u64::from(checksum) << SLOT_BITS | u64::from(slot)
}

/// The slot of such a word.
#[inline]
fn slot_of(word: u64) -> u32 {
    word as u32 & ((1 << SLOT_BITS) - 1)
}

/// The end that such a word tells.
#[inline]
fn completed(tag: u64, word: u64) -> Completion {
    Completion { tag, result: Ok(()), checksum: (word >> SLOT_BITS) as u32 }
}

impl EmulatedQueue {
    pub(super) fn new(shared: Arc<Shared>, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> (Self, Port) {
        // A few entries more keep the two sides of a tiny queue off each other's lines.
        let (requests, device_requests) = ring(depth.max(8));
        let (device_completions, completions) = ring(depth.max(16));
        let rings_bytes = requests.bytes() + device_completions.bytes();
        let frame_count = frame_count(&frames);
        let waiting = CachePadded::new(AtomicBool::new(false));
        let link =
            Arc::new(Link { waiting, closed: AtomicBool::new(false), checksums: AtomicBool::new(false), wake, frames });
        let port = Port::new(link.clone(), device_requests, device_completions);
        let (batch, refused) = (Vec::with_capacity(depth), Vec::new());
        let slots = Slots::new(depth);
        let queue = EmulatedQueue {
            shared,
            link,
            requests,
            completions,
            slots,
            batch,
            refused,
            frame_count,
            rings_bytes,
            polls: 0,
        };
        (queue, port)
    }
    /// After the device has ended: what it completed was polled, the rest will never be.
    #[cold]
    fn poll_closed(&mut self, completions: &mut Vec<Completion>) {
        while let Some([word]) = self.completions.pop() {
            completions.push(completed(self.slots.release(slot_of(word)), word));
        }
        self.batch.clear();
        for slot in self.slots.taken() {
            completions.push(Completion {
                tag: self.slots.release(slot),
                result: Err(FlashError::Closed),
                checksum: 0,
            });
        }
    }
    fn ready(&self) -> bool {
        self.completions.ready() || !self.refused.is_empty() || (self.shared.stopped() && self.in_flight() > 0)
    }
}

impl Queue for EmulatedQueue {
    #[inline]
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        if self.in_flight() >= self.slots.depth() {
            return Err(QueueFull);
        }
        let inside = request.subpage.0 < self.shared.cells.subpages && request.frame.0 < self.frame_count;
        if !inside && request.op != Op::Flush {
            self.refused.push(Completion { tag: request.tag, result: Err(FlashError::OutOfRange), checksum: 0 });
            return Ok(());
        }
        let slot = self.slots.take(request.tag).ok_or(QueueFull)?;
        self.batch.push([pack(&request), u64::from(slot)]);
        Ok(())
    }
    #[inline]
    fn flush(&mut self) -> Result<(), FlashError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        // Whether the device has ended is learned by polling.
        for &entry in &self.batch {
            self.requests.push(entry);
        }
        self.batch.clear();
        self.shared.ring_doorbell();
        Ok(())
    }
    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        // Most polls find nothing. That the device has ended may be learned a little later.
        self.polls = self.polls.wrapping_add(1);
        if !self.completions.ready() && self.refused.is_empty() && !self.polls.is_multiple_of(LOOK_AT_END) {
            return 0;
        }
        let before = completions.len();
        while let Some([word]) = self.completions.pop() {
            completions.push(completed(self.slots.release(slot_of(word)), word));
        }
        if !self.refused.is_empty() {
            completions.append(&mut self.refused);
        }
        if completions.len() == before && self.slots.in_use() > 0 && self.shared.stopped() {
            self.poll_closed(completions);
        }
        completions.len() - before
    }
    #[inline]
    fn will_poll(&self) {
        self.completions.fetch();
    }
    fn switch(&mut self, to: Switches) -> Switches {
        // Seen by the device with the next request: the ring orders it.
        self.link.checksums.store(to.checksums, Ordering::Relaxed);
        Switches { checksums: to.checksums, ..Switches::default() }
    }
    fn use_frames(&mut self, _: std::ops::Range<u32>) {}
    fn wait(&mut self, timeout: Option<Duration>) {
        let _ = self.flush();
        if self.ready() {
            return;
        }
        self.link.waiting.store(true, Ordering::Relaxed);
        // Pairs with the device's fence between posting and looking at `waiting`: one of the two
        // sees the other.
        fence(Ordering::SeqCst);
        if !self.ready() {
            self.link.wake.wait(timeout);
        }
        self.link.waiting.store(false, Ordering::Relaxed);
    }
    fn in_flight(&self) -> usize {
        self.slots.in_use() + self.refused.len()
    }
    fn depth(&self) -> usize {
        self.slots.depth()
    }
    fn bytes(&self) -> usize {
        self.rings_bytes + self.slots.bytes() + self.batch.capacity() * 16 + self.refused.capacity() * 16
    }
}

impl Drop for EmulatedQueue {
    fn drop(&mut self) {
        for [_, slot] in std::mem::take(&mut self.batch) {
            self.slots.release(slot as u32);
        }
        self.refused.clear();
        let mut lost = Vec::new();
        while self.slots.in_use() > 0 {
            if self.poll(&mut lost) == 0 {
                self.wait(Some(Duration::from_millis(100)));
            }
            lost.clear();
        }
        self.link.closed.store(true, Ordering::SeqCst);
        self.shared.state.changed.store(true, Ordering::SeqCst);
        self.shared.ring_doorbell();
    }
}
