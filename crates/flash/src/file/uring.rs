//! One worker's queue on a file, through io_uring.
//!
//! Submissions go straight into the kernel's ring and are handed over in batches; completions are looked for in shared
//! memory. Short transfers and put-off requests are tried again here, so that the caller sees only ends.

use std::sync::Arc;
use std::time::Duration;

use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::uring::{RingFull, Uring};
use fulgurite_sys::{Arena, Notifier};

use super::{Medium, Tries, judge};
use crate::slots::Slots;
use crate::{Completion, FlashError, Op, Queue, QueueFull, Request, frame_count};

const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const EBUSY: i32 = 16;

pub(super) struct UringQueue {
    medium: Arc<Medium>,
    ring: Uring,
    wake: Arc<Notifier>,
    slots: Slots,
    /// By slot: what is under way.
    under_way: Box<[UnderWay]>,
    /// Results of one poll, as the ring gave them.
    ended: Vec<(u32, i32)>,
    /// To be tried again, when the ring had no room for them.
    again: Vec<u32>,
    /// Refused here, to be reported by the next poll.
    refused: Vec<Completion>,
    /// The ring takes nothing more.
    failed: Option<FlashError>,
    frame_count: u32,
}

#[derive(Clone, Copy)]
struct UnderWay {
    op: Op,
    subpage: SubpageIndex,
    frame: FrameIndex,
    tries: Tries,
}

impl UringQueue {
    pub(super) fn new(medium: Arc<Medium>, ring: Uring, frames: &Arena, depth: usize, wake: Arc<Notifier>) -> Self {
        let idle = UnderWay { op: Op::Read, subpage: SubpageIndex(0), frame: FrameIndex(0), tries: Tries::default() };
        UringQueue {
            medium,
            ring,
            wake,
            slots: Slots::new(depth),
            under_way: vec![idle; depth].into(),
            ended: Vec::with_capacity(depth),
            again: Vec::new(),
            refused: Vec::new(),
            failed: None,
            frame_count: frame_count(frames),
        }
    }

    fn push(&mut self, slot: u32) -> Result<(), RingFull> {
        let UnderWay { op, subpage, frame, .. } = self.under_way[slot as usize];
        let (place, offset) = (subpage.linear(), frame.index() * SUBPAGE_BYTES);
        match op {
            Op::Read => self.ring.push_read(place, offset, SUBPAGE_BYTES as u32, slot.into()),
            Op::Write => self.ring.push_write(place, offset, SUBPAGE_BYTES as u32, slot.into()),
            Op::Flush => self.ring.push_sync(slot.into()),
        }
    }

    /// Ends everything after the ring has failed. The kernel may still use the frames of what it took: the ring waits for
    /// that when it is dropped.
    #[cold]
    fn fail_all(&mut self, error: FlashError, completions: &mut Vec<Completion>) {
        for slot in self.slots.taken() {
            self.medium.account(self.under_way[slot as usize].op, Err(error));
            completions.push(Completion { tag: self.slots.release(slot), result: Err(error) });
        }
        self.again.clear();
    }

    /// What an error of the ring itself means: put off, or the end.
    fn ring_error(&mut self, error: &std::io::Error) -> Result<(), FlashError> {
        match error.raw_os_error() {
            Some(EINTR | EAGAIN | EBUSY) => Ok(()), // The ring keeps the batch; the next flush hands it over.
            errno => {
                let error = FlashError::Io(errno.unwrap_or(5));
                self.failed = Some(error);
                Err(error)
            }
        }
    }
}

impl Queue for UringQueue {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        if self.in_flight() >= self.slots.depth() {
            return Err(QueueFull);
        }
        let refusal = self.failed.or_else(|| self.medium.refusal(&request, self.frame_count));
        if let Some(error) = refusal {
            self.medium.account(request.op, Err(error));
            self.refused.push(Completion { tag: request.tag, result: Err(error) });
            return Ok(());
        }
        let slot = self.slots.take(request.tag).ok_or(QueueFull)?;
        let Request { op, subpage, frame, .. } = request;
        self.under_way[slot as usize] = UnderWay { op, subpage, frame, tries: Tries::default() };
        if self.push(slot).is_err() {
            self.slots.release(slot);
            return Err(QueueFull);
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        match self.ring.submit() {
            Ok(()) => Ok(()),
            Err(error) => self.ring_error(&error),
        }
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        if let Some(error) = self.failed {
            self.fail_all(error, completions);
        } else {
            let ended = &mut self.ended;
            self.ring.reap(|slot, result| ended.push((slot as u32, result)));
            let mut again = std::mem::take(&mut self.again);
            for (slot, result) in self.ended.drain(..) {
                let request = &mut self.under_way[slot as usize];
                match judge(request.op, result, &mut request.tries) {
                    Some(result) => {
                        self.medium.account(request.op, result);
                        completions.push(Completion { tag: self.slots.release(slot), result });
                    }
                    None => again.push(slot),
                }
            }
            if !again.is_empty() {
                again.retain(|&slot| self.push(slot).is_err());
                self.again = again;
                let _ = self.flush();
            }
        }
        completions.append(&mut self.refused);
        completions.len() - before
    }
    fn use_frames(&mut self, frames: std::ops::Range<u32>) {
        let end = frames.end.min(self.frame_count) as usize;
        self.ring.register((frames.start as usize).min(end) * SUBPAGE_BYTES..end * SUBPAGE_BYTES);
    }
    fn wait(&mut self, timeout: Option<Duration>) {
        if !self.refused.is_empty() || (self.failed.is_some() && self.in_flight() > 0) {
            return;
        }
        if self.failed.is_some() {
            self.wake.wait(timeout);
        } else if let Err(error) = self.ring.wait(timeout) {
            let _ = self.ring_error(&error);
        }
    }
    fn in_flight(&self) -> usize {
        self.slots.in_use() + self.refused.len()
    }
    fn depth(&self) -> usize {
        self.slots.depth()
    }
    fn bytes(&self) -> usize {
        self.ring.bytes()
            + self.slots.bytes()
            + self.under_way.len() * size_of::<UnderWay>()
            + self.ended.capacity() * 8
            + self.again.capacity() * 4
            + self.refused.capacity() * size_of::<Completion>()
    }
}
