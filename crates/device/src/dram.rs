//! The DRAM of a device, no part of its hosts' budgets: of its medium, of queue pairs, and the
//! bound.
//!
//! The medium's part is known from the start: a store's tables when all is written and scattered,
//! and the most for older states ([`fulgurite_store::StoreConfig::history_bytes`]). Queue pairs
//! come and go with their shared memory and the firmware's tables. One that does not fit is
//! refused.
//!
//! Invariant: the medium's part and all queue pairs together are within the bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fulgurite_format::format_bytes;

/// How much a device has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceDram {
    /// In use, in bytes.
    pub taken: u64,
    /// In use, or promised: what it may come to with the queue pairs that there are.
    pub set_aside: u64,
    /// What it may never pass; none: no bound.
    pub bound: Option<u64>,
}

/// There is none left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NoDram {
    /// For one more queue pair.
    #[error(
        "it takes {} of the device's DRAM, of whose {} are {} set aside; end another program on the device, or serve it with more (`device \
         serve --dram`)",
        format_bytes(*needed),
        format_bytes(*bound),
        format_bytes(*set_aside)
    )]
    Pair { needed: u64, bound: u64, set_aside: u64 },
    /// For the medium.
    #[error(
        "its medium sets aside {}, and it may have {}; serve it with more (`device serve --dram`)",
        format_bytes(*needed),
        format_bytes(*bound)
    )]
    Medium { needed: u64, bound: u64 },
}

/// What queue pairs share.
#[derive(Debug)]
pub(crate) struct Budget {
    bound: usize,
    pairs: AtomicUsize,
}

/// A queue pair's part. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// `usize::MAX` for no bound.
    pub fn new(bound: usize) -> Arc<Budget> {
        Arc::new(Budget { bound, pairs: AtomicUsize::new(0) })
    }
    /// Of all queue pairs.
    pub fn pairs(&self) -> usize {
        self.pairs.load(Ordering::Relaxed)
    }
    /// None: there is none.
    pub fn bound(&self) -> Option<u64> {
        (self.bound != usize::MAX).then_some(self.bound as u64)
    }
    /// Whether the medium's `medium` bytes fit.
    pub fn holds(&self, medium: usize) -> Result<(), NoDram> {
        let refused = NoDram::Medium { needed: medium as u64, bound: self.bound as u64 };
        if medium <= self.bound { Ok(()) } else { Err(refused) }
    }
    /// Takes `bytes` in addition to what the medium has set aside. The medium is asked only where
    /// there is a bound.
    pub fn take(self: &Arc<Self>, bytes: usize, medium: impl FnOnce() -> usize) -> Result<Share, NoDram> {
        let medium = if self.bound == usize::MAX { 0 } else { medium() };
        let fits = |pairs: usize| {
            let all = pairs.saturating_add(bytes);
            (self.bound == usize::MAX || all.saturating_add(medium) <= self.bound).then_some(all)
        };
        match self.pairs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(Share { budget: self.clone(), bytes }),
            Err(pairs) => Err(NoDram::Pair {
                needed: bytes as u64,
                bound: self.bound as u64,
                set_aside: pairs.saturating_add(medium) as u64,
            }),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.pairs.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_what_is_dropped_gives_its_part_back() {
        let budget = Budget::new(100);
        let first = budget.take(30, || 40).unwrap();
        assert_eq!(budget.take(31, || 40).unwrap_err(), NoDram::Pair { needed: 31, bound: 100, set_aside: 70 });
        let second = budget.take(30, || 40).unwrap();
        assert_eq!((budget.pairs(), budget.bound()), (60, Some(100)));
        drop((first, second));
        assert_eq!(budget.pairs(), 0);
        assert_eq!((budget.holds(100), budget.holds(101).is_err()), (Ok(()), true));
        // Nothing wraps.
        assert!(budget.take(usize::MAX, || usize::MAX).is_err());
        let free = Budget::new(usize::MAX);
        assert_eq!((free.bound(), free.take(usize::MAX, || 5).unwrap().bytes), (None, usize::MAX));
    }
}
