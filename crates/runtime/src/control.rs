//! What is known of a job in addition to its code: its priority, its deadline, whether it was
//! cancelled.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::AccessError;

/// How urgent a job is among those that wait to be started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum Priority {
    /// After all others.
    Low,
    /// The default.
    #[default]
    Normal,
    /// Before all others.
    High,
}

/// What a running job and its handle share.
#[derive(Debug)]
pub(crate) struct Control {
    pub name: &'static str,
    pub cancelled: AtomicBool,
    /// In nanoseconds of the clock; `u64::MAX` for none.
    pub deadline_ns: u64,
    pub submitted_ns: u64,
    pub priority: Priority,
    pub pins: u32,
}

impl Control {
    /// Why the job must not go on, if it must not.
    #[inline]
    pub(crate) fn verdict(&self, now_ns: impl FnOnce() -> u64) -> Result<(), AccessError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(AccessError::Cancelled);
        }
        if self.deadline_ns != u64::MAX && now_ns() > self.deadline_ns {
            return Err(AccessError::DeadlineExceeded);
        }
        Ok(())
    }
}
