//! What a thread of the queue core does next: the trait of its sources of jobs.
//!
//! Other models have their own sources, which are closed: threads of cores by `cores::Front`,
//! requests by `flash::Requests`.

use crate::time::Time;

/// One step of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It computes for this time.
    Compute(Time),
    /// It touches a page that is in flash. In other models a cache decides that.
    Miss,
    /// Its job is done. The next step is the first of another one.
    End,
}

/// A source of work, asked thread by thread.
pub trait FrontEnd {
    /// The next step of a thread.
    fn next(&mut self, thread: u32) -> Step;
}
