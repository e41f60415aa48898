//! Unreadable data is given up: its flash page is released, and reads keep failing.
//!
//! A marker page is written in its place, under the checksum of the lost content. It does not
//! match, so readers get an error and never zeros or older data. The extent of the unreadable page
//! can then be emptied.

use fulgurite_format::{FlashPage, Owner, PageBuffer, Record, crc32c, zero_page};

use super::{Io, N, Outcome, Purpose, Store, WriteError};
use crate::extents::Writer;
use crate::geometry::METADATA_RESERVE;
use crate::state::Held;

/// With this begins a page that stands for what was lost.
pub const LOST_MAGIC: [u8; 8] = *b"FULGLOST";

/// The page that stands for a subpage whose content had this checksum.
fn lost_page(subpage: u32, checksum: u32) -> PageBuffer {
    let mut page = zero_page();
    page[..8].copy_from_slice(&LOST_MAGIC);
    page[8..12].copy_from_slice(&subpage.to_le_bytes());
    while crc32c(&page[..]) == checksum {
        page[12] += 1;
    }
    page
}

impl Store {
    /// Gives up a flash page of a subpage. Returns whether it was needed. Durable when the store is
    /// quiet after a commit.
    ///
    /// # Errors
    /// When there is no space; when the pool is poisoned.
    pub fn mark_lost(&mut self, subpage: u32, from: u32) -> Result<bool, WriteError> {
        self.check()?;
        let (page, held) = (subpage / N, Held { subpage: subpage % N, place: from });
        let Some(checksum) = self.state.checksum(page, held).filter(|_| self.state.is_live(page, held)) else {
            return Ok(false);
        };
        let reserve = METADATA_RESERVE + self.checkpoint_extents();
        let Some(to) = self.extents.give(Writer::Reclaim, self.heat.degree(subpage), reserve, self.state.wear()) else {
            return Err(WriteError::NoSpace { uncommitted: self.uncommitted });
        };
        self.send(Purpose::Lost { subpage, from, to }, Io::Write { place: to, page: lost_page(subpage, checksum) });
        Ok(true)
    }
    pub(super) fn marked_lost(&mut self, subpage: u32, from: u32, to: u32, outcome: &Outcome) {
        let (page, held) = (subpage / N, Held { subpage: subpage % N, place: from });
        let checksum = self.state.checksum(page, held).filter(|_| self.state.is_live(page, held));
        let Some(checksum) = checksum.filter(|_| *outcome == Outcome::Done) else {
            self.extents.settled(to, None);
            self.note_filled();
            return;
        };
        self.extents.settled(to, Some(Owner { subpage, checksum }));
        let (from, to) = (FlashPage(from.into()), FlashPage(to.into()));
        self.record_move(Record::Move { page, subpages: 1 << held.subpage, from, to });
        self.commit_wanted = true;
        self.note_filled();
    }
}
