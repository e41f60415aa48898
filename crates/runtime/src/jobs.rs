//! Where jobs and services wait that have not begun.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crossbeam_queue::SegQueue;
use crossbeam_utils::CachePadded;

use crate::job::{ErasedJob, JobError, refuse};
use crate::mailbox::Message;
use crate::queue::JobQueue;
use crate::service::ServiceFactory;
use crate::shared::Shared;

/// What the workers of a runtime may begin.
pub(crate) struct Jobs {
    shared: Arc<Shared>,
    /// Jobs that any worker may run.
    pub injector: JobQueue,
    /// One per worker: jobs that it must run.
    pub routed: Box<[CachePadded<JobQueue>]>,
    /// One per worker: jobs of the runtime itself, for the fiber that is kept for these.
    own: Box<[SegQueue<Box<dyn ErasedJob>>]>,
    /// One per worker: services of requests that are generated inside it.
    services: Box<[SegQueue<ServiceFactory>]>,
}

impl Jobs {
    pub(crate) fn new(shared: Arc<Shared>) -> Jobs {
        let (workers, admission) = (shared.mailboxes.len(), shared.config.admission);
        Jobs {
            shared,
            injector: JobQueue::new(admission),
            routed: (0..workers).map(|_| CachePadded::new(JobQueue::new(admission))).collect(),
            own: (0..workers).map(|_| SegQueue::new()).collect(),
            services: (0..workers).map(|_| SegQueue::new()).collect(),
        }
    }
    /// Hands a job that any worker may run to one that sleeps, if one does.
    pub(crate) fn inject(&self, job: Box<dyn ErasedJob>) {
        self.injector.push(job);
        self.call_one();
    }
    /// Wakes one sleeping worker that would take the job at the head of the common queue, if there
    /// is one.
    pub(crate) fn call_one(&self) {
        // Against `Mailbox::doze`: either we see that it sleeps, or it sees the job.
        fence(Ordering::SeqCst);
        if let Some(pins) = self.injector.head_pins() {
            let _ = self.shared.mailboxes.iter().any(|mailbox| mailbox.call(pins));
        }
    }
    /// A job of the runtime itself.
    pub(crate) fn for_itself(&self, worker: usize, job: Box<dyn ErasedJob>) {
        self.own[worker].push(job);
        self.shared.mailboxes[worker].send(Message::Work);
    }
    pub(crate) fn serve(&self, worker: usize, service: ServiceFactory) {
        self.services[worker].push(service);
        self.shared.mailboxes[worker].send(Message::Work);
    }
    /// The next job of the runtime itself.
    pub(crate) fn next_own(&self, worker: u32) -> Option<Box<dyn ErasedJob>> {
        self.own[worker as usize].pop()
    }
    pub(crate) fn next_service(&self, worker: u32) -> Option<ServiceFactory> {
        self.services[worker as usize].pop()
    }
    /// Fails all jobs that have not begun.
    pub(crate) fn fail_queued(&self) {
        self.injector.fail_all();
        self.routed.iter().for_each(|queue| queue.fail_all());
        for job in self.own.iter().flat_map(|own| std::iter::from_fn(|| own.pop())) {
            refuse(job, |name| JobError::ShutDown { name });
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.fail_queued();
    }
}
