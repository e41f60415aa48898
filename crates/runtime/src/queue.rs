//! Queues of jobs not yet started: one for any worker, and one of each worker's own.
//!
//! Most urgent first, then oldest first. Each priority has its own admission, because a job waits
//! only for those at least as urgent.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use fulgurite_policy::{Admission, AdmissionPolicy, Overloaded};
use parking_lot::Mutex;

use crate::control::Priority;
use crate::job::{ErasedJob, JobError, refuse};

const LANES: usize = 3;
const _: () = assert!(Priority::High as usize == LANES - 1, "a lane for each priority, in order");

/// A queue of jobs. See the module.
pub(crate) struct JobQueue {
    lanes: Mutex<[VecDeque<Box<dyn ErasedJob>>; LANES]>,
    count: AtomicUsize,
    /// What the job at the head declares.
    head_pins: AtomicU32,
    /// When the oldest job of each lane was submitted; `u64::MAX` where there is none.
    oldest_ns: [AtomicU64; LANES],
    admission: Mutex<[Admission; LANES]>,
}

/// What is known of the job at the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub priority: Priority,
    pub submitted_ns: u64,
    pub pins: u32,
}

impl Head {
    pub(crate) fn goes_before(self, other: Head) -> bool {
        let key = |head: Head| (std::cmp::Reverse(head.priority), head.submitted_ns);
        key(self) <= key(other)
    }
}

impl JobQueue {
    pub(crate) fn new(admission: AdmissionPolicy) -> JobQueue {
        JobQueue {
            lanes: Mutex::default(),
            count: AtomicUsize::new(0),
            head_pins: AtomicU32::new(0),
            oldest_ns: [const { AtomicU64::new(u64::MAX) }; LANES],
            admission: Mutex::new(std::array::from_fn(|_| Admission::new(admission))),
        }
    }

    /// Whether to take one more job of this priority.
    pub(crate) fn admit(&self, priority: Priority, now_ns: u64) -> Result<(), Overloaded> {
        let wait_ns = self.wait_ns(priority, now_ns);
        self.admission.lock()[priority as usize].admit(now_ns, wait_ns)
    }

    /// How long the oldest job has waited that is as urgent as this or more, in nanoseconds.
    fn wait_ns(&self, priority: Priority, now_ns: u64) -> u64 {
        let lanes = self.oldest_ns[priority as usize..].iter();
        now_ns.saturating_sub(lanes.map(|oldest| oldest.load(Ordering::Relaxed)).min().unwrap_or(u64::MAX))
    }

    pub(crate) fn push(&self, job: Box<dyn ErasedJob>) {
        let mut lanes = self.lanes.lock();
        lanes[job.control().priority as usize].push_back(job);
        self.changed(&lanes);
    }

    /// Publishes what the heads are, with the lanes locked.
    fn changed(&self, lanes: &[VecDeque<Box<dyn ErasedJob>>; LANES]) {
        let mut count = 0;
        for (lane, oldest) in lanes.iter().zip(&self.oldest_ns) {
            let head = lane.front().map(|job| job.control());
            oldest.store(head.map_or(u64::MAX, |control| control.submitted_ns), Ordering::Relaxed);
            if let Some(control) = head {
                self.head_pins.store(control.pins, Ordering::Relaxed);
            }
            count += lane.len();
        }
        self.count.store(count, Ordering::Release);
    }

    /// One load, for every scheduling point.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The pins that the job at the head declares, if there is one.
    #[inline(always)]
    pub(crate) fn head_pins(&self) -> Option<u32> {
        if self.is_empty() { None } else { Some(self.head_pins.load(Ordering::Relaxed)) }
    }

    /// The job at the head.
    pub(crate) fn head(&self) -> Option<Head> {
        if self.is_empty() {
            return None;
        }
        let lanes = self.lanes.lock();
        let control = lanes.iter().rev().find_map(VecDeque::front)?.control();
        Some(Head { priority: control.priority, submitted_ns: control.submitted_ns, pins: control.pins })
    }

    /// Takes the job at the head, if its pins fit.
    #[inline]
    pub(crate) fn pop(&self, fits: impl Fn(u32) -> bool) -> Option<Box<dyn ErasedJob>> {
        if self.is_empty() { None } else { self.pop_head(fits) }
    }

    fn pop_head(&self, fits: impl Fn(u32) -> bool) -> Option<Box<dyn ErasedJob>> {
        let mut lanes = self.lanes.lock();
        let lane = lanes.iter_mut().rev().find(|lane| !lane.is_empty())?;
        if !fits(lane.front()?.control().pins) {
            return None;
        }
        let job = lane.pop_front();
        self.changed(&lanes);
        job
    }

    pub(crate) fn fail_all(&self) {
        // Not under the lock: dropping a job runs code of its owner.
        let queued = {
            let mut lanes = self.lanes.lock();
            let queued = std::mem::take(&mut *lanes);
            self.changed(&lanes);
            queued
        };
        for job in queued.into_iter().flatten() {
            refuse(job, |name| JobError::ShutDown { name });
        }
    }
}
