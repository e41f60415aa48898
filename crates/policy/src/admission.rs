//! Whether to take one more job, judged by how long the oldest queued one has waited.
//!
//! After CoDel (Nichols and Jacobson, ACM Queue 2012): a queue that is long for a moment is a burst
//! and does no harm. One that has not been short for a whole interval is a standing queue, and only
//! turning work away shortens it. CoDel slows its senders by dropping now and then. Requests of an
//! open loop do not slow down, so here every new job is turned away until the oldest wait is back
//! under the target. An overload that returns within an interval of the last refusal is met at
//! once. Under steady overload by a factor f, waits stay within about f times the target.
//!
//! Not here: the queue, and which of the waiting jobs runs next.

use thiserror::Error;

/// When to turn jobs away.
///
/// ```
/// use fulgurite_policy::AdmissionPolicy;
///
/// // A job that would wait longer than 5 ms comes too late, unless a burst ends within 100 ms.
/// let policy = AdmissionPolicy::QueueDelay { target_ns: 5_000_000, interval_ns: 100_000_000 };
/// assert_ne!(policy, AdmissionPolicy::default());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AdmissionPolicy {
    /// Never.
    #[default]
    Unlimited,
    /// When the oldest queued job has waited longer than the target for a whole interval.
    QueueDelay {
        /// Longest wait that is fine as a standing state, in nanoseconds.
        target_ns: u64,
        /// How long a longer wait may last before jobs are turned away, in nanoseconds: a burst
        /// that is to be absorbed.
        interval_ns: u64,
    },
}

/// The job was turned away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
#[error("overloaded: the oldest queued job has waited {wait_ns} ns; retry later, or on another instance")]
pub struct Overloaded {
    /// How long the oldest queued job has waited, in nanoseconds.
    pub wait_ns: u64,
}

/// Decides about each new job. See the module.
pub struct Admission {
    policy: AdmissionPolicy,
    /// Since when the oldest wait has been above the target.
    above_since_ns: Option<u64>,
    /// When a job was last turned away.
    refused_ns: Option<u64>,
}

impl Admission {
    /// Nothing refused yet.
    pub fn new(policy: AdmissionPolicy) -> Self {
        Admission { policy, above_since_ns: None, refused_ns: None }
    }

    /// A job is here at `now_ns`. The oldest one in the queue has waited `oldest_wait_ns` (0 when
    /// the queue is empty).
    ///
    /// # Errors
    /// [`Overloaded`]: do not queue it.
    #[inline]
    pub fn admit(&mut self, now_ns: u64, oldest_wait_ns: u64) -> Result<(), Overloaded> {
        let AdmissionPolicy::QueueDelay { target_ns, interval_ns } = self.policy else { return Ok(()) };
        if oldest_wait_ns <= target_ns {
            self.above_since_ns = None;
            return Ok(());
        }
        let since = *self.above_since_ns.get_or_insert(now_ns);
        let standing = now_ns.saturating_sub(since) >= interval_ns;
        let again = self.refused_ns.is_some_and(|refused| now_ns.saturating_sub(refused) < interval_ns);
        if standing || again {
            self.refused_ns = Some(now_ns);
            return Err(Overloaded { wait_ns: oldest_wait_ns });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn unlimited_takes_all() {
        let mut admission = Admission::new(AdmissionPolicy::default());
        assert_eq!(admission.admit(0, u64::MAX), Ok(()));
    }

    #[test]
    fn a_burst_passes_and_a_standing_queue_does_not() {
        let mut admission = Admission::new(AdmissionPolicy::QueueDelay { target_ns: 10, interval_ns: 100 });
        assert_eq!(admission.admit(0, 50), Ok(()));
        assert_eq!(admission.admit(99, 50), Ok(()));
        assert_eq!(admission.admit(100, 50), Err(Overloaded { wait_ns: 50 }));
        assert_eq!(admission.admit(110, 10), Ok(()), "back at the target");
        assert_eq!(admission.admit(120, 11), Err(Overloaded { wait_ns: 11 }), "the overload is back at once");
        assert_eq!(admission.admit(130, 0), Ok(()));
        assert_eq!(admission.admit(300, 50), Ok(()), "a new burst");
    }

    /// Jobs of 10 ns each, arriving every `gap_ns`: the longest wait of an admitted job, and how
    /// many were turned away.
    fn serve(policy: AdmissionPolicy, gap_ns: u64) -> (u64, usize) {
        let (mut admission, mut queue, mut free_ns, mut longest, mut refused) =
            (Admission::new(policy), VecDeque::<u64>::new(), 0, 0, 0);
        for now in (0..100_000).step_by(gap_ns as usize) {
            while let Some(&arrived) = queue.front() {
                let start = arrived.max(free_ns);
                if start > now {
                    break;
                }
                queue.pop_front();
                free_ns = start + 10;
                if now > 10_000 {
                    longest = longest.max(start - arrived);
                }
            }
            match admission.admit(now, queue.front().map_or(0, |arrived| now - arrived)) {
                Ok(()) => queue.push_back(now),
                Err(_) => refused += 1,
            }
        }
        (longest, refused)
    }

    #[test]
    fn overload_is_held_near_the_target_and_light_load_is_left_alone() {
        let policy = AdmissionPolicy::QueueDelay { target_ns: 200, interval_ns: 1_000 };
        assert_eq!(serve(policy, 12).1, 0);
        let (longest, refused) = serve(policy, 5);
        assert!(longest <= 3 * 200, "{longest}");
        let share = refused as f64 / 20_000.0;
        assert!((0.4..0.55).contains(&share), "half must go: {share}");
        assert!(serve(AdmissionPolicy::Unlimited, 5).0 > 10_000);
    }
}
