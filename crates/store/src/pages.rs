//! Memory operations on whole pages, as NVMM names them: allocate, delete, set permissions.
//!
//! A page's status is part of its versions, so it rolls back with the data. A write to an
//! unallocated page creates it, readable, writable and permanent. A temporary page is deleted when
//! its process ends, however it ends: opening deletes the temporary pages of the last state, and so
//! does a roll back to a state of an earlier process.
//!
//! This file states what is allowed, and accesses ask ([`Pool::may`]). The runtime drops the frames
//! of deleted or restricted pages.

use std::ops::Range;
use std::sync::atomic::Ordering;

use fulgurite_format::Status;

use crate::geometry::SUBPAGES_PER_PAGE;
use crate::pool::{Pool, PoolError};
use crate::state::State;
use crate::store::{Store, WriteError};

/// What may be done with a page, and how long it stays.
///
/// ```
/// use fulgurite_store::Permissions;
///
/// let constant = Permissions { write: false, ..Permissions::DEFAULT };
/// assert!(constant.read && constant.permanent);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Permissions {
    /// It may be read.
    pub read: bool,
    /// It may be written, and deleted.
    pub write: bool,
    /// It stays when the process that made it ends.
    pub permanent: bool,
}

impl Permissions {
    /// What a page has that was created by writing to it.
    pub const DEFAULT: Permissions = Permissions { read: true, write: true, permanent: true };

    fn status(self) -> Status {
        let bit = |set, status| if set { status } else { Status::default() };
        Status::ALLOCATED
            .with(bit(self.read, Status::READ))
            .with(bit(self.write, Status::WRITE))
            .with(bit(self.permanent, Status::PERMANENT))
    }
    /// The permissions of a page; none when it is not allocated.
    pub(crate) fn of(status: Status) -> Option<Permissions> {
        (status.has(Status::ALLOCATED) && !status.has(Status::DELETED)).then(|| Permissions {
            read: status.has(Status::READ),
            write: status.has(Status::WRITE),
            permanent: status.has(Status::PERMANENT),
        })
    }
}

/// What there is to know of the pages of a state at once.
#[derive(Default, Debug)]
pub(crate) struct Survey {
    /// Some page may not be read, or not be written.
    pub restricted: bool,
    /// Temporary pages, ascending.
    pub temporary: Vec<u32>,
}

impl Survey {
    pub fn of(state: &State) -> Survey {
        let mut survey = Survey::default();
        for page in 0..state.geometry().pages() {
            if let Some(permissions) = Permissions::of(state.status(page)) {
                survey.restricted |= !(permissions.read && permissions.write);
                if !permissions.permanent {
                    survey.temporary.push(page);
                }
            }
        }
        survey
    }
}

impl Store {
    /// What there is at opening. Temporary pages are deleted, unless they stay
    /// ([`crate::StoreConfig::temporary_stays`]).
    pub(crate) fn survey_at_opening(&mut self, temporary_stays: bool) -> Result<Survey, WriteError> {
        if temporary_stays {
            return Ok(Survey { temporary: Vec::new(), ..Survey::of(self.state()) });
        }
        self.drop_temporary()
    }
    /// Deletes the temporary pages of the state, whose process has ended. Returns what there was.
    pub(crate) fn drop_temporary(&mut self) -> Result<Survey, WriteError> {
        let survey = Survey::of(self.state());
        for &page in &survey.temporary {
            self.set_status(page, Status::DELETED)?;
        }
        Ok(survey)
    }
}

impl Pool {
    pub(crate) fn check_pages(&self, pages: &Range<u32>) -> Result<(), PoolError> {
        let there = self.geometry().pages();
        if pages.start < pages.end && pages.end <= there {
            return Ok(());
        }
        Err(PoolError::NoSuchPages { first: pages.start, end: pages.end, pages: there })
    }

    /// Allocates pages, or changes what may be done with those that are. What they hold stays.
    ///
    /// # Errors
    /// When there are no such pages. [`crate::WriteError::NoSpace`] where that could take a sync's
    /// room, or where the page table or the bound for DRAM is full: none is changed then. When the
    /// pool takes no more changes.
    pub fn set_permissions(&self, pages: Range<u32>, permissions: Permissions) -> Result<(), PoolError> {
        self.check_pages(&pages)?;
        self.set_statuses(&pages.collect::<Vec<u32>>(), permissions.status())
    }

    /// Deletes pages: they read as zeros, and their data is dead as soon as no token sees it.
    ///
    /// # Errors
    /// [`PoolError::NotPermitted`] when one is read-only. When there are no such pages.
    /// [`crate::WriteError::NoSpace`] where their contents, which the last token needs, could take
    /// a sync's room, or where the page table or the bound for DRAM is full: none is deleted then.
    /// When the pool takes no more changes. Where leaves may be on flash alone, and one of many
    /// cannot be read, some may be deleted.
    pub fn delete_pages(&self, pages: Range<u32>) -> Result<(), PoolError> {
        self.delete_all(&[pages])
    }

    /// Deletes the pages of several ranges. If one page of any is refused, none of any is deleted.
    ///
    /// # Errors
    /// As [`Pool::delete_pages`].
    pub fn delete_all(&self, ranges: &[Range<u32>]) -> Result<(), PoolError> {
        ranges.iter().try_for_each(|pages| self.check_pages(pages))?;
        let mut there: Vec<u32> = Vec::new();
        for page in ranges.iter().cloned().flatten() {
            match self.permissions(page) {
                Some(permissions) if !permissions.write => return Err(PoolError::NotPermitted { page }),
                Some(_) => there.push(page),
                None => {}
            }
        }
        there.sort_unstable();
        there.dedup();
        if there.is_empty() {
            return Ok(());
        }
        self.set_statuses(&there, Status::DELETED)
    }

    /// What may be done with a page; none when it is not allocated.
    pub fn permissions(&self, page: u32) -> Option<Permissions> {
        Permissions::of(self.status(page))
    }

    /// What may be done with several pages.
    ///
    /// # Panics
    /// When there are no such pages.
    pub fn permissions_of(&self, pages: Range<u32>) -> Vec<Option<Permissions>> {
        self.on_state(|state| pages.map(|page| Permissions::of(state.status(page))).collect())
    }

    /// Whether a subpage may be read, or written. One load, unless some page of the pool is
    /// restricted.
    #[inline]
    pub fn may(&self, subpage: u32, write: bool) -> bool {
        !self.restricted.load(Ordering::Acquire) || self.may_by_status(subpage, write)
    }
    #[cold]
    fn may_by_status(&self, subpage: u32, write: bool) -> bool {
        let permissions = self.permissions(subpage / SUBPAGES_PER_PAGE);
        permissions.is_none_or(|permissions| if write { permissions.write } else { permissions.read })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_comes_back_from_its_status() {
        for bits in 0..8 {
            let permissions = Permissions { read: bits & 1 != 0, write: bits & 2 != 0, permanent: bits & 4 != 0 };
            assert_eq!(Permissions::of(permissions.status()), Some(permissions));
        }
        assert_eq!(Permissions::of(Status::default()), None);
        assert_eq!(Permissions::of(Permissions::DEFAULT.status().with(Status::DELETED)), None);
    }
}
