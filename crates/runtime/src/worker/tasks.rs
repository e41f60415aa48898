//! Tasks: which job or request a fiber begins next, and what happens when it ends.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite_policy::{Choice, Point};

use super::{CHECK_POINTS, Task, Worker};
use crate::job::{ErasedJob, JobError, drop_payload, panic_text, refuse};
use crate::service::Next;

/// How many jobs may go before a more urgent one whose pins do not fit.
const PASS_MAX: u32 = 16;

/// Where the next job comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NextJob {
    /// From this worker's own queue, or from the common one.
    routed: bool,
    /// A more urgent one does not fit.
    passes: bool,
}

impl Worker {
    /// Whether no job waits that this worker must run.
    #[inline]
    pub(super) fn none_routed(&self) -> bool {
        self.jobs.routed[self.id as usize].is_empty()
    }

    /// Whether a job may precede a more urgent one that does not fit. A few may, so that a wait for
    /// pins does not hold up all others, but not forever.
    pub(super) fn may_pass(&self) -> bool {
        self.passed < PASS_MAX
    }

    /// Which queue the next job comes from: the one with the more urgent or older head, or the
    /// other if only its head fits.
    #[inline]
    pub(super) fn next_job(&self) -> Option<NextJob> {
        if self.none_routed() {
            let fits = self.jobs.injector.head_pins().is_some_and(|pins| self.fits(pins));
            return fits.then_some(NextJob { routed: false, passes: false });
        }
        self.next_of_both()
    }

    fn next_of_both(&self) -> Option<NextJob> {
        let (own, common) = (self.jobs.routed[self.id as usize].head()?, self.jobs.injector.head());
        let own_first = common.is_none_or(|common| own.goes_before(common));
        let (first, second) = if own_first { (Some(own), common) } else { (common, Some(own)) };
        if first.is_some_and(|head| self.fits(head.pins)) {
            return Some(NextJob { routed: own_first, passes: false });
        }
        let second_fits = second.is_some_and(|head| self.fits(head.pins)) && self.may_pass();
        second_fits.then_some(NextJob { routed: !own_first, passes: true })
    }

    /// Whether a new job is there and may begin.
    pub(super) fn new_job_ready(&mut self) -> bool {
        self.service_ready = false;
        if self.idle.is_empty() && !self.at_rest {
            return false;
        }
        if !self.jobs.injector.is_empty() || !self.none_routed() {
            return self.next_job().is_some();
        }
        let Some((next, pins)) = self.ask_service() else { return false };
        match next {
            Next::Ready => {
                self.service_ready = self.fits(pins);
                self.service_ready
            }
            Next::At(ns) => {
                self.next_arrival_ns = ns;
                false
            }
            Next::Finished => false,
        }
    }

    /// What the service has to do next, and the pins of its requests. `None` without a service, or
    /// after it died with its panic.
    #[inline]
    pub(super) fn ask_service(&mut self) -> Option<(Next, u32)> {
        let serving = self.service.as_mut().filter(|s| s.died.is_none())?;
        self.asking = true;
        let next = catch_unwind(AssertUnwindSafe(|| serving.service.next()));
        self.asking = false;
        match next {
            Ok(next) => Some((next, serving.pins)),
            Err(panic) => {
                serving.died = Some(panic_text(panic));
                None
            }
        }
    }

    /// Whether a job's pins fit in addition to what was promised to others. One always fits.
    ///
    /// Each worker counts for itself, though its jobs may pin frames of others. That is enough,
    /// because its jobs are promised one pin less than it has frames. A job waits for a frame of
    /// its own worker only, and in vain only while all of these are pinned. Suppose all jobs of
    /// some workers waited for each other. Then their pins would hold all frames of these workers:
    /// as many pins as frames, but fewer were promised.
    pub(super) fn fits(&self, pins: u32) -> bool {
        pins <= self.pins_that_fit()
    }
    /// How many pins a job may have that begins now.
    pub(super) fn pins_that_fit(&self) -> u32 {
        match self.pins_promised {
            0 => u32::MAX - 1,
            promised => self.fibers.cache.frame_limit().saturating_sub(promised + 1),
        }
    }

    /// The next job for fiber `index`, begun.
    pub(super) fn take_task(&mut self, index: u32) -> Option<Task> {
        if index == self.own_fiber() {
            let job = self.own_jobs.pop_front()?;
            return self.begin_job(index, job);
        }
        let job = self.next_job().and_then(|NextJob { routed, passes }| {
            let queue = if routed { &self.jobs.routed[self.id as usize] } else { &self.jobs.injector };
            let job = queue.pop(|pins| self.fits(pins))?;
            self.passed = if passes { self.passed + 1 } else { 0 };
            Some(job)
        });
        if let Some(job) = job {
            if self.shared.mailboxes.len() > 1 {
                self.jobs.call_one();
            }
            return self.begin_job(index, job);
        }
        if !std::mem::take(&mut self.service_ready) {
            let (next, pins) = self.ask_service()?;
            if next != Next::Ready || !self.fits(pins) {
                return None;
            }
        }
        let serving = self.service.as_mut()?;
        let (name, pins) = (serving.name, serving.pins);
        serving.running += 1;
        let service = serving.service.clone();
        self.pins_promised += pins;
        self.fibers.statistics.counts.jobs_started += 1;
        self.shared.running[self.id as usize].begins(index, name);
        let slot = &mut self.slots[index as usize];
        slot.serving = true;
        slot.promised = pins;
        self.fibers.states[index as usize].begin(None, pins, 0);
        Some(Task::Service(service))
    }

    pub(super) fn begin_job(&mut self, index: u32, job: Box<dyn ErasedJob>) -> Option<Task> {
        let control = job.control().clone();
        let name = control.name;
        match control.verdict(|| self.shared.clock.now_ns()) {
            Ok(()) => {}
            Err(crate::error::AccessError::Cancelled) => {
                refuse(job, |name| JobError::Cancelled { name });
                return None;
            }
            Err(_) => {
                refuse(job, |name| JobError::DeadlineExceeded { name });
                return None;
            }
        }
        self.pins_promised += control.pins;
        self.fibers.statistics.counts.jobs_started += 1;
        self.shared.running[self.id as usize].begins(index, name);
        let slot = &mut self.slots[index as usize];
        slot.promised = control.pins;
        // An urgent job counts as older than all others (policy::Scheduler).
        let age = match control.priority {
            crate::control::Priority::High => control.submitted_ns >> 1,
            crate::control::Priority::Normal => control.submitted_ns,
            crate::control::Priority::Low => control.submitted_ns.saturating_add(1 << 62),
        };
        self.fibers.states[index as usize].begin(Some(control.clone()), control.pins, age);
        slot.finish = Some((job.finish(), control));
        Some(Task::Job(job))
    }

    pub(super) fn end_task(&mut self, index: u32, accesses: u64, died: Option<String>, overflowed: bool) {
        self.fibers.statistics.counts.accesses += accesses;
        self.fibers.statistics.counts.jobs_died += u64::from(died.is_some() || overflowed);
        let slot = &mut self.slots[index as usize];
        self.pins_promised -= std::mem::take(&mut slot.promised);
        if let Some((finish, control)) = slot.finish.take() {
            // Perhaps without a waiter: then the result is dropped here, and what its drop does is
            // its owner's.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(move || drop(finish))) {
                drop_payload(panic);
            }
            let ns = self.shared.clock.now_ns().saturating_sub(control.submitted_ns);
            self.fibers.statistics.job_ns.saturating_record(ns.max(1));
        }
        if std::mem::take(&mut slot.serving)
            && let Some(serving) = self.service.as_mut()
        {
            serving.running -= 1;
            if died.is_some() && serving.died.is_none() {
                serving.died = died;
            }
        }
        self.fibers.states[index as usize].end();
    }

    /// Whether the scheduling point between two tasks would do nothing.
    #[inline]
    pub(super) fn nothing_between(&mut self) -> bool {
        !self.shared.mailboxes[self.id as usize].has_mail()
            && !self.fibers.cache.wants_room()
            && !self.fibers.timer_is_due()
            && self.fibers.cache.unflushed() < self.shared.config.submit_batch
            && !self.cut_goes_on()
            // The rest of the scheduling point must not wait for ever either.
            && !(self.fibers.statistics.counts.jobs_started as u32).is_multiple_of(CHECK_POINTS)
    }

    /// A request of a service has ended: whether its fiber serves the next one at once. This is
    /// what [`Worker::task_done`] and [`Worker::take_task`] come to with no other fiber to run, in
    /// fewer steps. The pins were promised to the request before.
    pub(super) fn next_request(&mut self, index: u32, accesses: u64) -> bool {
        self.fibers.statistics.counts.accesses += accesses;
        self.fibers.publish_nothing();
        if self.fibers.cache.in_flight() > 0 {
            self.fibers.poll();
        }
        let alone = !self.fibers.scheduler.has_runnable()
            && self.fibers.scheduler.may_start()
            && self.none_routed()
            && self.jobs.injector.is_empty()
            && self.nothing_between();
        if !alone || !matches!(self.ask_service(), Some((Next::Ready, _))) {
            return false;
        }
        self.fibers.statistics.counts.jobs_started += 1;
        self.shared.running[self.id as usize].turn();
        self.fibers.states[index as usize].request_ns.set(0);
        true
    }

    /// Ends a fiber's task and decides whether it begins the next one itself, which spares two
    /// switches.
    pub(super) fn task_done(&mut self, index: u32, accesses: u64, died: Option<String>) -> bool {
        self.end_task(index, accesses, died, false);
        // The job's last reference is dead: its frames may be evicted or written back.
        self.fibers.publish_nothing();
        if self.fibers.cache.in_flight() > 0 {
            self.fibers.poll();
        }
        if index != self.own_fiber() && self.nothing_between() {
            self.at_rest = true;
            let choice = self.decide(Point::Finished);
            self.at_rest = false;
            if choice == Choice::StartNew {
                self.shared.running[self.id as usize].turn();
                return true;
            }
            // Anything else waits for the scheduling point, which may bring something to run.
            self.decided = Some(choice).filter(|c| matches!(c, Choice::Resume(_)));
        }
        self.rest(index);
        false
    }

    /// A fiber has nothing to do.
    pub(super) fn rest(&mut self, index: u32) {
        if index == self.own_fiber() {
            self.own_job_runs = false;
        } else {
            self.idle.push(index);
        }
    }
}
