//! Processes that use a pool one after the other, and what is deleted when one of them ends.
//!
//! A process usually opens its own pool, and closes it at its end. A device's store stays open
//! while programs come and go, and may be reopened while one lives. So the device says when one
//! begins and has ended.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::{Pool, PoolError};

impl Pool {
    /// Temporary pages of earlier processes that opening or a roll back deleted since the last
    /// call, ascending.
    pub fn take_dropped_temporary(&self) -> Vec<u32> {
        self.take_some_dropped_temporary(usize::MAX)
    }
    /// Takes at most `most` of them.
    pub fn take_some_dropped_temporary(&self, most: usize) -> Vec<u32> {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        let count = dropped.len().min(most);
        dropped.drain(..count).collect()
    }
    /// Whether opening has left temporary pages alone ([`crate::StoreConfig::temporary_stays`]).
    pub fn temporary_stays(&self) -> bool {
        self.temporary_stays
    }
    /// Another process uses the pool from now on: tokens up to this one are of ended processes.
    pub fn process_begins(&self, after: u64) {
        self.opened_at.store(after.saturating_add(1), Ordering::Release);
    }
    /// The process of the state's temporary pages has ended. They are deleted, as part of the state
    /// and of the next token. Temporary pages of earlier processes that were not yet taken stay
    /// listed.
    pub fn drop_temporary(&self) -> Result<(), PoolError> {
        let survey = self.lock_for_changes()?.store.drop_temporary()?;
        self.add_dropped(survey.temporary);
        Ok(())
    }
    /// Returns to the newest token, because the process has ended: its unnamed changes and
    /// temporary pages are gone. Waits until the former is durable.
    ///
    /// # Errors
    /// As [`Pool::roll_back`].
    pub fn process_ends(&self, newest: u64) -> Result<(), PoolError> {
        let unreported = self.take_dropped_temporary();
        self.opened_at.store(u64::MAX, Ordering::Release);
        let rolled_back = self.roll_back(newest);
        self.add_dropped(unreported);
        rolled_back
    }
    fn add_dropped(&self, pages: Vec<u32>) {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped.extend(pages);
        dropped.sort_unstable();
        dropped.dedup();
    }
}
