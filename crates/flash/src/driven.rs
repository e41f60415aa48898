//! A medium without data, for simulators: its driver takes the requests that were handed over, and
//! says when each has ended. No frame is touched.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite_format::SubpageIndex;
use fulgurite_sys::{Arena, Notifier};

use crate::{
    Backing, Completion, DeviceCounters, Flash, FlashError, Op, OpenedQueue, Queue, QueueFull, QueueUser, Request,
    Switches, Traits, check_depth, check_range, lock,
};

/// A medium that is driven. Its queues share the tags of their requests, so one is open at a time.
///
/// Invariant: a request is with the queue (submitted), with the driver (handed over), or ended.
#[derive(Debug)]
pub struct DrivenFlash {
    subpages: u32,
    between: Arc<Mutex<Between>>,
}

/// What goes from the queue to the driver, and back.
#[derive(Debug, Default)]
struct Between {
    handed_over: Vec<Request>,
    ended: Vec<Completion>,
    counters: DeviceCounters,
}

impl DrivenFlash {
    /// A medium of `subpages` subpages.
    #[must_use]
    pub fn new(subpages: u32) -> DrivenFlash {
        DrivenFlash { subpages, between: Arc::default() }
    }
    /// Appends the requests that were handed over since the last call, in their order.
    pub fn take_requests(&self, into: &mut Vec<Request>) {
        into.append(&mut lock(&self.between).handed_over);
    }
    /// Ends a request that was taken. The queue's next poll has it.
    pub fn end(&self, request: &Request, result: Result<(), FlashError>) {
        let mut between = lock(&self.between);
        between.counters.ended(request.op, result);
        between.ended.push(Completion { tag: request.tag, result, checksum: 0 });
    }
}

impl Flash for DrivenFlash {
    fn subpages(&self) -> u32 {
        self.subpages
    }
    fn describe(&self) -> String {
        format!("driven, {}", fulgurite_format::format_bytes(u64::from(self.subpages) << 12))
    }
    fn traits(&self) -> Traits {
        Traits::PLAIN
    }
    fn staging_bytes(&self, _: u32) -> usize {
        0
    }
    fn open_queue_for(&self, _: QueueUser, _: Arc<Arena>, depth: usize, _: Arc<Notifier>) -> OpenedQueue {
        check_depth(depth)?;
        let (subpages, between, batch) = (self.subpages, self.between.clone(), Vec::with_capacity(depth));
        Ok(Box::new(DrivenQueue { subpages, between, depth, in_flight: 0, batch }))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages)
    }
    fn backing(&self) -> Option<&dyn Backing> {
        None
    }
    fn counters(&self) -> DeviceCounters {
        lock(&self.between).counters
    }
}

struct DrivenQueue {
    subpages: u32,
    between: Arc<Mutex<Between>>,
    depth: usize,
    in_flight: usize,
    batch: Vec<Request>,
}

impl Queue for DrivenQueue {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        if self.in_flight == self.depth {
            return Err(QueueFull);
        }
        self.in_flight += 1;
        self.batch.push(request);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        let mut between = lock(&self.between);
        for request in self.batch.drain(..) {
            if request.op == Op::Flush || request.subpage.0 < self.subpages {
                between.handed_over.push(request);
            } else {
                let result = Err(FlashError::OutOfRange);
                between.ended.push(Completion { tag: request.tag, result, checksum: 0 });
            }
        }
        Ok(())
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let ended = &mut lock(&self.between).ended;
        let count = ended.len();
        completions.append(ended);
        self.in_flight -= count;
        count
    }
    fn will_poll(&self) {}
    fn switch(&mut self, _: Switches) -> Switches {
        Switches::default()
    }
    fn use_frames(&mut self, _: std::ops::Range<u32>) {}
    /// Does not sleep: nothing ends before its driver says so, which may be the caller.
    fn wait(&mut self, _: Option<Duration>) {
        let _ = self.flush();
    }
    fn in_flight(&self) -> usize {
        self.in_flight
    }
    fn depth(&self) -> usize {
        self.depth
    }
    fn bytes(&self) -> usize {
        self.batch.capacity() * size_of::<Request>()
    }
}

impl Drop for DrivenQueue {
    fn drop(&mut self) {
        let mut between = lock(&self.between);
        between.handed_over.clear();
        between.ended.clear();
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_format::FrameIndex;
    use fulgurite_sys::Backed;

    use super::*;

    #[test]
    fn requests_end_when_the_driver_says_so() {
        let flash = DrivenFlash::new(8);
        let frames = Arc::new(Arena::anonymous(4 << 12, Backed::BasePages).unwrap());
        let mut queue = flash.open_queue(frames, 3, Arc::new(Notifier::new().unwrap())).unwrap();
        let request =
            |tag, op, subpage| Request { tag, op, subpage: SubpageIndex(subpage), frame: FrameIndex(tag as u32) };
        let all = [request(0, Op::Read, 7), request(1, Op::Write, 8), request(2, Op::Write, 3)];
        for each in all {
            queue.submit(each).unwrap();
        }
        assert!(queue.submit(all[0]).is_err(), "the queue is as deep as it was asked to be");
        let (mut taken, mut ended) = (Vec::new(), Vec::new());
        flash.take_requests(&mut taken);
        assert_eq!((taken.len(), queue.poll(&mut ended)), (0, 0), "nothing was handed over");
        queue.flush().unwrap();
        flash.take_requests(&mut taken);
        assert_eq!(taken, [all[0], all[2]]);
        assert_eq!(queue.poll(&mut ended), 1);
        assert_eq!((ended[0].tag, ended[0].result), (1, Err(FlashError::OutOfRange)), "there is no such subpage");
        flash.end(&taken[1], Ok(()));
        assert_eq!((queue.poll(&mut ended), queue.in_flight()), (1, 1));
        flash.end(&taken[0], Ok(()));
        assert_eq!((queue.poll(&mut ended), queue.in_flight()), (1, 0));
        assert_eq!(ended[1..].iter().map(|completion| completion.tag).collect::<Vec<_>>(), [2, 0]);
        let DeviceCounters { reads, writes, errors, .. } = flash.counters();
        assert_eq!((reads, writes, errors), (1, 1, 0));
    }
}
