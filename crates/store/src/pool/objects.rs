//! Objects of a pool: written in batches, read one at a time.
//!
//! A batch is packed, several objects to a flash page, and one flash read returns each. A caller
//! with a queue asks where an object is stored ([`Pool::locate_object`]) and reads that flash page
//! itself. A runtime that reads the subpage through its queue gets the object with zeros behind it.
//! This file also reads and writes for callers without a queue, and waits.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fulgurite_flash::{FlashAddress, FlashError, Layer, Location, Objects, Part};
use fulgurite_format::{ObjectLocation, PageBuffer, SUBPAGE_BYTES, crc32c, zero_page};

use super::room::Locked;
use super::{Pool, PoolError, SUBPAGES_PER_PAGE};
use crate::driver::Driver;
use crate::map::{Find, Located};
use crate::recover::ReadPages;
use crate::store::WriteError;

/// Where the content of a subpage is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its flash page and bytes there: all, for a whole subpage. [`ObjectLocation::FREED`]:
    /// nowhere.
    pub at: ObjectLocation,
    /// CRC32C of these bytes.
    pub checksum: u32,
    /// The word of the map.
    located: Located,
}

impl Object {
    /// Its bytes in the flash page that was read.
    ///
    /// # Errors
    /// [`FlashError::Corrupt`] when they are not what was written, or the object has moved by now:
    /// locate it again.
    pub fn bytes<'p>(&self, page: &'p [u8; SUBPAGE_BYTES]) -> Result<&'p [u8], FlashError> {
        let bytes = &page[self.at.range()];
        if crc32c(bytes) == self.checksum { Ok(bytes) } else { Err(FlashError::Corrupt) }
    }
}

impl Pool {
    /// The place of a subpage now, for a layer; none when it reads as zeros. Takes no lock.
    #[inline]
    pub(super) fn place_now(&self, subpage: u32) -> Location {
        loop {
            let located = match self.map.find(subpage) {
                Find::At(located) => located,
                Find::Nowhere => return Location::Unmapped,
                Find::Out => match self.behind(subpage) {
                    Some(flash_page) => return Location::Indirect(flash_page),
                    None => continue,
                },
            };
            self.used.note(subpage / SUBPAGES_PER_PAGE);
            if let Some(place) = self.place_of(located) {
                return Location::At(place);
            }
            // A freed object has no bytes, and checksum 0. Any other was overwritten since the map
            // was read, or its slot left DRAM: the map changes before a slot is released.
            if located.checksum == 0 && self.map.get(subpage) == Some(located) {
                return Location::Unmapped;
            }
        }
    }
    /// The flash page to read when DRAM does not say where a subpage is stored.
    #[cold]
    fn behind(&self, subpage: u32) -> Option<u32> {
        self.lock_to_read().store.is_behind(subpage / SUBPAGES_PER_PAGE)
    }
    /// As [`Layer::learn`].
    pub(crate) fn learn(&self, subpage: u32, flash_page: u32, content: &[u8; SUBPAGE_BYTES]) -> Result<(), FlashError> {
        let mut inner = self.lock();
        inner.is_whole()?;
        let mut page = zero_page();
        page.copy_from_slice(content);
        inner.store.learn(subpage / SUBPAGES_PER_PAGE, flash_page, &page)
    }
    /// The locked store, in DRAM of which it is known where the objects of a page are stored.
    pub(super) fn lock_with_leaf(&self, page: u32) -> Result<Locked<'_>, PoolError> {
        let mut failed = false;
        loop {
            let inner = self.lock_to_read();
            let Some(flash_page) = inner.store.is_behind(page) else { return Ok(inner) };
            drop(inner);
            let read = self
                .read_page(flash_page)
                .and_then(|content| Ok(self.learn(page * SUBPAGES_PER_PAGE, flash_page, &content)?));
            match read {
                Err(error) if std::mem::replace(&mut failed, true) => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
    }
    /// The locked store with the leaves of several pages, to be changed; they stay until
    /// [`Store::set_statuses`].
    pub(super) fn lock_with_leaves(&self, pages: &[u32]) -> Result<Locked<'_>, PoolError> {
        loop {
            let mut inner = self.lock_for_changes()?;
            if let Err(error) = inner.failed() {
                inner.store.let_go_of_leaves();
                return Err(error.into());
            }
            if inner.store.hold_leaves(pages)? {
                return Ok(inner);
            }
            inner.turn(&self.starved);
            if inner.driver.in_flight() > 0 {
                inner.driver.wait(Duration::from_micros(50));
            }
            drop(inner);
            if self.waiting.load(Ordering::Relaxed) > 0 {
                std::thread::yield_now();
            }
        }
    }
    /// The place that a word of the map leads to. None when its object was freed, or its slot
    /// released.
    #[inline]
    pub(super) fn place_of(&self, Located { place, checksum }: Located) -> Option<FlashAddress> {
        if !self.slots.has(place) {
            return Some(FlashAddress::whole(place, checksum));
        }
        let at = self.slots.get(place)?;
        let part = Part { offset: at.offset, length: at.length };
        (at.length > 0).then_some(FlashAddress { flash_page: at.flash_page, checksum, part: Some(part) })
    }
    /// Where the content of a subpage is stored, without a lock. None when it was never written.
    /// Ask again after reading: if the answer has not changed, the place was not reused.
    ///
    /// # Errors
    /// When that is on flash alone, and cannot be read. Then a flash page is read, with a lock.
    pub fn locate_object(&self, subpage: u32) -> Result<Option<Object>, PoolError> {
        loop {
            match self.map.find(subpage) {
                Find::At(located) => {
                    self.used.note(subpage / SUBPAGES_PER_PAGE);
                    return Ok(Some(self.object_of(located)));
                }
                Find::Nowhere => return Ok(None),
                Find::Out => drop(self.lock_with_leaf(subpage / SUBPAGES_PER_PAGE)?),
            }
        }
    }
    fn object_of(&self, located: Located) -> Object {
        let whole = ObjectLocation { flash_page: located.place, offset: 0, length: SUBPAGE_BYTES as u16 };
        Object { at: self.slots.get(located.place).unwrap_or(whole), checksum: located.checksum, located }
    }
    /// Reads the content of a subpage: the bytes of an object, or all of a subpage. Returns its
    /// length, or 0 when it was never written or was freed.
    ///
    /// # Errors
    /// [`FlashError::Corrupt`] when something else is stored there. When the flash fails, there is
    /// no such subpage, or `into` is too short ([`FlashError::OutOfRange`]).
    pub fn read_object(&self, subpage: u32, into: &mut [u8]) -> Result<usize, PoolError> {
        if subpage >= self.opened_as.subpages {
            return Err(FlashError::OutOfRange.into());
        }
        self.read_located(into, || self.locate_object(subpage))
    }
    /// Reads an object in the state of a token that is kept.
    ///
    /// # Errors
    /// As [`Pool::read_object`]; when there is no such token.
    pub fn read_object_at(&self, subpage: u32, token: u64, into: &mut [u8]) -> Result<usize, PoolError> {
        if subpage >= self.opened_as.subpages {
            return Err(FlashError::OutOfRange.into());
        }
        if !self.tokens().contains(token) {
            return Err(self.no_token(token));
        }
        self.read_located(into, || {
            let inner = self.lock_with_leaf(subpage / SUBPAGES_PER_PAGE)?;
            Ok(inner.store.state().located_at(subpage, token).map(|located| self.object_of(located)))
        })
    }
    fn read_located(
        &self,
        into: &mut [u8],
        locate: impl Fn() -> Result<Option<Object>, PoolError>,
    ) -> Result<usize, PoolError> {
        let mut failed = false;
        loop {
            let Some(object) = locate()? else { return Ok(0) };
            if object.at == ObjectLocation::FREED {
                if locate()? == Some(object) {
                    return Ok(0);
                }
                continue;
            }
            let length = usize::from(object.at.length);
            let Some(into) = into.get_mut(..length) else { return Err(FlashError::OutOfRange.into()) };
            let read = self.read_page(object.at.flash_page);
            // What says so may have left DRAM and come back, under another word.
            if locate()?.is_none_or(|now| (now.at, now.checksum) != (object.at, object.checksum)) {
                // It moved, or was overwritten, while it was read.
                continue;
            }
            let page = read.inspect_err(|error| {
                if let PoolError::Flash(error) = error {
                    self.unreadable(object.at.flash_page, *error);
                }
            })?;
            match object.bytes(&page) {
                Ok(bytes) => {
                    into.copy_from_slice(bytes);
                    return Ok(length);
                }
                Err(error) if failed => {
                    self.unreadable(object.at.flash_page, error);
                    return Err(error.into());
                }
                // Once more: the path to the flash may have failed, and not the flash.
                Err(_) => failed = true,
            }
        }
    }
    fn read_page(&self, place: u32) -> Result<PageBuffer, PoolError> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if reader.is_none() {
            *reader = Some(Driver::new(&*self.medium, 1)?);
        }
        let reader = reader.as_mut().expect("made above");
        Ok(reader.read(place, 0)?)
    }

    /// Writes objects: for each a subpage and its first bytes, up to 4096, with zeros behind them.
    /// No bytes free the object. They are packed. On return programs read them, and the next sync
    /// makes them durable. Of two objects of one subpage the later one counts. Concurrent writes to
    /// one subpage leave either.
    ///
    /// # Errors
    /// When the pool has no objects, there is no such subpage, there is no space, or the flash
    /// fails. Some may have been written then.
    pub fn write_objects(&self, objects: &[(u32, &[u8])]) -> Result<(), PoolError> {
        let (mut rest, mut batches) = (objects, Vec::new());
        let mut result = Ok(());
        loop {
            let mut inner = self.lock_for_changes()?;
            inner.failed()?;
            if !rest.is_empty() && result.is_ok() {
                match inner.store.write_objects(rest) {
                    Ok(batch) => {
                        rest = &rest[batch.taken..];
                        batches.extend((batch.taken > 0).then_some(batch.number));
                    }
                    Err(error) => result = Err(error),
                }
            }
            inner.turn(&self.starved);
            batches.retain(|number| match inner.store.take_batch(*number) {
                Some(ended) => {
                    result = result.and(ended);
                    false
                }
                None => true,
            });
            if batches.is_empty() && (rest.is_empty() || result.is_err()) {
                return Ok(result?);
            }
            if inner.driver.in_flight() > 0 {
                inner.driver.wait(Duration::from_micros(50));
            }
            drop(inner);
            if self.waiting.load(Ordering::Relaxed) > 0 {
                std::thread::yield_now();
            }
        }
    }
    /// Gives up the objects of a subpage in an unreadable flash page. Returns whether there was
    /// one.
    pub(super) fn mark_objects_lost(&self, subpage: u32, place: u32) -> Result<bool, PoolError> {
        let mut live = Vec::new();
        if !self.opened_as.objects || subpage >= self.opened_as.subpages {
            return Ok(false);
        }
        self.live_pages(subpage / SUBPAGES_PER_PAGE, &mut live)?;
        let page = self.read_page(place);
        let mut lost = false;
        for l in live.iter().filter(|l| l.subpage == subpage && l.place == place) {
            let Some(at) = l.object else { continue };
            if page.as_ref().is_ok_and(|page| crc32c(l.of(&page[..])) == l.checksum) {
                continue;
            }
            let mut inner = self.lock_with_leaves(&[subpage / SUBPAGES_PER_PAGE])?;
            inner.store.let_go_of_leaves();
            let slot = inner.store.state().slot_at(subpage, place, at.offset);
            if let Some((slot, _)) = slot {
                lost |= inner.store.mark_object_lost(subpage, slot)?;
            }
        }
        Ok(lost)
    }
}

impl Objects for Pool {
    fn begin_write(&self, objects: &[(u32, &[u8])]) -> Result<(usize, u64), FlashError> {
        let mut inner = self.lock();
        inner.failed()?;
        // As where whole subpages get their places: room is left for the sync.
        let must_wait = self.helpers.to_be_left().is_some_and(|left| inner.store.check_for_shortage(left));
        if must_wait && self.helpers.waits_for_sync() {
            inner.turn(&self.starved);
            return Ok((0, 0));
        }
        let batch = match inner.store.write_objects(objects) {
            Ok(batch) => batch,
            // A sync is on its way that makes room.
            Err(WriteError::NoSpace { .. } | WriteError::Table(_))
                if inner.store.uncommitted() > 0 && self.helpers.waits_for_sync() =>
            {
                return Ok((0, 0));
            }
            Err(error) => return Err(error.into()),
        };
        self.ask_to_grow(&inner);
        inner.turn(&self.starved);
        if batch.taken > 0 {
            self.helpers.note_places();
            self.helpers.leave_work();
            // Packed as they are, each hides an older content that has to be remembered.
            if self.changes.placed(batch.taken as u64) {
                self.changes.note_room(inner.store.room_for_changes());
            }
        }
        Ok((batch.taken, batch.number))
    }
    fn written(&self, batch: u64) -> Option<Result<(), FlashError>> {
        // The lock's holder drives it.
        let mut inner = self.try_lock()?;
        inner.stirred = true;
        inner.turn(&self.starved);
        let ended = inner.store.take_batch(batch);
        if ended.is_none()
            && let Err(error) = inner.failed()
        {
            return Some(Err(error));
        }
        ended.map(|result| result.map_err(FlashError::from))
    }
}
