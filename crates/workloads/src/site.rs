//! Where and from what a workload is built.

use fulgurite_memory::{Address, Memory, Plain, Region, SUBPAGE_BYTES};

use crate::{Params, WorkloadError, header};

/// Rows between two calls of `progress`.
const PROGRESS_EVERY: u64 = 1 << 16;

/// What a workload is built in and from, and what is notified of its progress.
pub struct Site<'s> {
    /// Where its data is written.
    pub region: Region,
    /// From what.
    pub params: &'s Params,
    progress: &'s mut dyn FnMut(f64),
    /// What is being built of all: where it begins and where it ends, 0 to 1.
    part: (f64, f64),
}

impl<'s> Site<'s> {
    /// `progress` is called now and then with the share done, 0 to 1.
    pub fn new(region: Region, params: &'s Params, progress: &'s mut dyn FnMut(f64)) -> Site<'s> {
        Site { region, params, progress, part: (0.0, 1.0) }
    }

    /// Cuts the region into header and data. Data is at most what is asked for and at most what the
    /// region has left.
    ///
    /// # Errors
    /// [`WorkloadError::Unusable`] when that is less than `least`.
    pub(crate) fn split(&self, workload: &'static str, least: u64) -> Result<(Address, Region), WorkloadError> {
        let subpage = SUBPAGE_BYTES as u64;
        let bytes = self.params.bytes.min(self.region.bytes);
        let data = bytes.saturating_sub(subpage) / subpage * subpage;
        if data < least {
            let least = fulgurite_format::format_bytes(least + subpage);
            let got = fulgurite_format::format_bytes(bytes);
            return Err(WorkloadError::Unusable {
                workload,
                what: format!("{got} of data; it needs at least {least}"),
            });
        }
        let (header, rest) = self.region.split(subpage);
        Ok((header.base, Region::new(rest.base, data)))
    }

    /// What is built next is the part from one share of all to another.
    pub(crate) fn part(&mut self, from: f64, to: f64) {
        self.part = (from, to);
    }
    /// This share of the part is done.
    pub(crate) fn advance(&mut self, share: f64) {
        let (from, to) = self.part;
        (self.progress)(from + (to - from) * share);
    }
    /// Row `index` of the `count` of the part is next.
    pub(crate) fn tick(&mut self, index: u64, count: u64) {
        if index.is_multiple_of(PROGRESS_EVERY) {
            self.advance(index as f64 / count as f64);
        }
    }
    /// Writes the header: the build is complete.
    pub(crate) fn finish<M: Memory, T: Plain>(
        self,
        memory: &mut M,
        workload: &'static str,
        at: Address,
        words: T,
    ) -> Result<(), WorkloadError> {
        (self.progress)(1.0);
        header::write(memory, workload, at, words)
    }
}

impl std::fmt::Debug for Site<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site").field("region", &self.region).field("params", self.params).finish_non_exhaustive()
    }
}
