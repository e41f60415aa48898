//! What a thread does next: the one trait behind which all sources of work stand.

use crate::time::Time;

/// One step of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It computes for so long.
    Compute(Time),
    /// It touches a page that is in flash. Only the queue front ends say so themselves: elsewhere a
    /// cache decides.
    Miss,
    /// Its job is done. The next step is the first of another one.
    End,
}

/// A source of work, asked thread by thread.
pub trait FrontEnd {
    /// The next step of a thread.
    fn next(&mut self, thread: u32) -> Step;
}
