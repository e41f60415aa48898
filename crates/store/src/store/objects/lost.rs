//! An unreadable object is given up: it is moved to where something else is stored, under its old
//! checksum.

use fulgurite_format::{crc32c, zero_page};

use super::super::repair::LOST_MAGIC;
use super::super::{N, Store, WriteError};
use super::reclaim::{Found, MovePage};
use super::streams::Stream;
use crate::extents::Writer;
use crate::state::Held;

impl Store {
    /// Gives up the object of a slot. Returns whether it was needed. Durable when the store is
    /// quiet after a commit.
    ///
    /// # Errors
    /// When there is no space; when the pool is poisoned.
    pub(crate) fn mark_object_lost(&mut self, subpage: u32, slot: u32) -> Result<bool, WriteError> {
        self.check()?;
        let slots = self.state.slots_of(subpage);
        let Some((_, at)) = slots.into_iter().find(|(found, at)| *found == slot && at.length > 0) else {
            return Ok(false);
        };
        let expected = self.state.checksum(subpage / N, Held { subpage: subpage % N, place: slot });
        let mut page = zero_page();
        let bytes = &mut page[..usize::from(at.length)];
        let mut marker = [0; 12];
        marker[..8].copy_from_slice(&LOST_MAGIC);
        marker[8..].copy_from_slice(&subpage.to_le_bytes());
        let marked = bytes.len().min(marker.len());
        bytes[..marked].copy_from_slice(&marker[..marked]);
        let last = bytes.len() - 1;
        while Some(crc32c(bytes)) == expected {
            bytes[last] = bytes[last].wrapping_add(1);
        }
        let objects = vec![(Found { subpage, slot, at, checksum: expected.unwrap_or(0) }, 0)];
        self.log().ready.push_back(MovePage { stream: Stream::cold(Writer::Reclaim), page, objects });
        self.write_moved();
        if self.log().reclaim.is_none() && self.log().ready.pop_back().is_some() {
            return Err(WriteError::NoSpace { uncommitted: self.uncommitted });
        }
        self.commit_wanted = true;
        Ok(true)
    }
}
