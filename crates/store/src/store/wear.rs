//! Wear: how often each extent was filled is recorded when it is taken, and again behind each
//! checkpoint.

use fulgurite_format::{Checksums, Record, SUBPAGES_MAX};

use super::{Store, WriteError};

impl Store {
    /// Counts the extents that were taken.
    pub(super) fn note_fills(&mut self) -> Result<(), WriteError> {
        while let Some(extent) = self.extents.take_taken() {
            self.state.extent_begun(extent);
            let mut fills = Checksums::EMPTY;
            fills.push(self.state.wear().fills(extent).saturating_add(1));
            self.record_small(Record::Wear { extent, fills })?;
        }
        Ok(())
    }
    /// A record that changes neither table nor tokens. The journal page that it opens may take
    /// another extent.
    fn record_small(&mut self, record: Record) -> Result<(), WriteError> {
        let mut bytes = Vec::with_capacity(Record::BYTES_MAX);
        record.encode(&mut bytes);
        self.record_bytes(&record, &bytes)
    }
    /// Records all counts again, because what is about no page is not in a checkpoint, but at the
    /// beginning of the journal behind it. In a shrinking pool only the counts of the remaining
    /// extents, because it is read with its new size.
    pub(super) fn record_wear(&mut self) -> Result<(), WriteError> {
        // A pool that becomes smaller has none behind its new end.
        let all = self.state.wear().all_fills()[..self.extents.limit() as usize].to_vec();
        for (at, group) in all.chunks(SUBPAGES_MAX).enumerate() {
            if group.iter().any(|n| *n > 0) {
                let mut fills = Checksums::EMPTY;
                group.iter().for_each(|n| fills.push(*n));
                let extent = (at * SUBPAGES_MAX) as u32;
                // What was taken since the copy was made is counted behind it.
                self.record_small(Record::Wear { extent, fills })?;
            }
        }
        Ok(())
    }
}
