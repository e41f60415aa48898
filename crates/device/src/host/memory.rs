//! Memory operations from the host: pages, and states that have names. The store is the device's.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulgurite_flash::{Flash, FlashError, OpenError, Shortage, VersionError, Versions};
use fulgurite_store::{Permissions, SUBPAGES_PER_PAGE};

use super::pair::Opening;
use super::shared::Covers;
use super::transfer::Commands;
use crate::entry::{Opcode, SECTOR_BYTES, Status};
use crate::firmware::memory::{argument_of, permissions_of_page};
use crate::standing::Standing;

/// Sectors of data buffer for what is not data: 4096 tokens fit.
const BUFFER: u32 = 8;
/// The most states that may be named and not waited for: the older ones then count as unnamed until
/// one of these is durable.
const NAMED_MAX: usize = 64;
/// The most states named on a returned device to reach a number that its predecessor never used.
const RENAMED_MAX: u32 = 1 << 16;
/// A roll back is requested at most this many times, where one device after the other dies of it.
const ROLL_BACKS_MAX: u32 = 4;
/// An answer that no device gives that keeps to the protocol.
const EPROTO: i32 = 71;

impl Commands {
    fn of_pages(&mut self, opcode: Opcode, pages: Range<u32>, argument: u64) -> Result<(), FlashError> {
        let count = pages.end.checked_sub(pages.start).and_then(|count| count.checked_mul(SUBPAGES_PER_PAGE));
        let count = count.ok_or(FlashError::OutOfRange)?;
        let sector = u64::from(pages.start) * u64::from(SUBPAGES_PER_PAGE);
        self.manage(opcode, sector, count, argument).map(|_| ())
    }
    /// One command that has no data, to its end.
    fn manage(&mut self, opcode: Opcode, sector: u64, count: u32, argument: u64) -> Result<u64, FlashError> {
        if matches!(opcode, Opcode::Delete | Opcode::Trim) {
            self.will_change(|kept| (sector..sector + u64::from(count)).contains(&kept.into()));
        }
        let ended = self.run_without_buffer(opcode, sector, count, argument)?;
        ended.status.to_result()?;
        self.record_change()?;
        Ok(ended.result)
    }
    /// Allocates pages of 64 KiB.
    ///
    /// # Errors
    /// `EEXIST` when one of them is; what the device says.
    pub fn allocate(&mut self, pages: Range<u32>, permissions: Permissions) -> Result<(), FlashError> {
        self.of_pages(Opcode::Allocate, pages, argument_of(permissions))
    }
    /// Changes what may be done with pages; those that are not allocated are.
    ///
    /// # Errors
    /// What the device says.
    pub fn set_permissions(&mut self, pages: Range<u32>, permissions: Permissions) -> Result<(), FlashError> {
        self.of_pages(Opcode::SetPermissions, pages, argument_of(permissions))
    }
    /// Deletes pages.
    ///
    /// # Errors
    /// `EACCES` when one of them may not be written, and none is deleted; what the device says.
    pub fn delete(&mut self, pages: Range<u32>) -> Result<(), FlashError> {
        self.of_pages(Opcode::Delete, pages, 0)
    }
    /// Deletes the pages that are wholly inside these sectors.
    ///
    /// # Errors
    /// What the device says.
    pub fn trim(&mut self, sector: u32, count: u32) -> Result<(), FlashError> {
        self.manage(Opcode::Trim, sector.into(), count, 0).map(|_| ())
    }
    /// Reads a sector as it was at a token.
    ///
    /// # Errors
    /// When there is no such token; what the device says.
    pub fn read_at(&mut self, token: u64, sector: u32, into: &mut [u8; SECTOR_BYTES]) -> Result<(), VersionError> {
        let ended = self.run(Opcode::ReadAt, sector.into(), 1, token, into)?;
        self.version_result(ended.status, ended.result, token).map(|_| ())
    }
    /// Keeps a token whatever the policy says, or no more.
    ///
    /// # Errors
    /// When there is no such token; what the device says.
    pub fn pin(&mut self, token: u64, pinned: bool) -> Result<(), VersionError> {
        self.version(if pinned { Opcode::Pin } else { Opcode::Unpin }, token).map(|_| ())
    }
    /// Names the state of all that was written, and waits until the token is durable.
    ///
    /// # Errors
    /// What the device says.
    pub fn sync(&mut self) -> Result<u64, VersionError> {
        let covers = self.begins_flush();
        let result = self.version(Opcode::Sync, 0);
        self.ended_flush(covers, result.is_ok());
        result
    }
    /// The tokens that are kept, ascending: the newest 512 for each sector of data buffer.
    ///
    /// # Errors
    /// What the device says.
    pub fn tokens(&mut self) -> Result<Vec<u64>, FlashError> {
        self.words(Opcode::Tokens)
    }
    /// The tokens among them that a program wants kept.
    ///
    /// # Errors
    /// What the device says.
    pub fn pinned(&mut self) -> Result<Vec<u64>, FlashError> {
        self.words(Opcode::Pinned)
    }
    /// How the store stands.
    ///
    /// # Errors
    /// What the device says; an answer that cannot be one is [`FlashError::Corrupt`].
    pub fn standing(&mut self) -> Result<Standing, FlashError> {
        let mut bytes = [0; SECTOR_BYTES];
        self.run(Opcode::Standing, 0, 1, 0, &mut bytes)?.status.to_result()?;
        Standing::of(&bytes).ok_or(FlashError::Corrupt)
    }
    /// The permissions of the pages from this one on, of as many as the data buffer has room for.
    /// None where one is not allocated.
    ///
    /// # Errors
    /// What the device says.
    pub fn permissions_from(&mut self, page: u32) -> Result<Vec<Option<Permissions>>, FlashError> {
        let (bytes, count) = self.answer(Opcode::Pages, u64::from(page) * u64::from(SUBPAGES_PER_PAGE), BUFFER)?;
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(bytes.len());
        Ok(bytes[..count].iter().map(|&byte| permissions_of_page(byte)).collect())
    }
    /// What may be done with a page; none where it is not allocated.
    ///
    /// # Errors
    /// What the device says.
    pub fn permissions(&mut self, page: u32) -> Result<Option<Permissions>, FlashError> {
        let (bytes, count) = self.answer(Opcode::Pages, u64::from(page) * u64::from(SUBPAGES_PER_PAGE), 1)?;
        Ok(bytes.first().filter(|_| count > 0).and_then(|&byte| permissions_of_page(byte)))
    }
    /// Some of the temporary pages of ended programs that were deleted and not yet reported.
    pub(super) fn take_dropped(&mut self) -> Result<Vec<u32>, FlashError> {
        Ok(self.words(Opcode::Dropped)?.into_iter().filter_map(|page| u32::try_from(page).ok()).collect())
    }
    /// An answer that fills the largest free block of the data buffer, at most `most` sectors.
    fn answer(&mut self, opcode: Opcode, sector: u64, most: u32) -> Result<(Vec<u8>, u64), FlashError> {
        let sectors = most.min(self.largest_free()).min(self.command_sectors()).max(1);
        let mut bytes = vec![0; sectors as usize * SECTOR_BYTES];
        let ended = self.run(opcode, sector, sectors, 0, &mut bytes)?;
        ended.status.to_result().map(|()| (bytes, ended.result))
    }
    fn words(&mut self, opcode: Opcode) -> Result<Vec<u64>, FlashError> {
        let (bytes, count) = self.answer(opcode, 0, BUFFER)?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let words = bytes.chunks_exact(8).take(count);
        Ok(words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect())
    }
    pub(super) fn version(&mut self, opcode: Opcode, token: u64) -> Result<u64, VersionError> {
        let ended = self.run_without_buffer(opcode, 0, 0, token)?;
        self.version_result(ended.status, ended.result, token)
    }
    fn version_result(&mut self, status: Status, result: u64, token: u64) -> Result<u64, VersionError> {
        match status {
            Status::NO_TOKEN => Err(VersionError::no_token(token, &self.tokens()?)),
            Status::TOKEN_IN_USE => Err(VersionError::InUse { token, read: result }),
            Status::TOKEN_PINNED => Err(VersionError::Pinned { token, pinned: result }),
            status => Ok(status.to_result().map(|()| result)?),
        }
    }
}

/// The states of a device that have names, for a runtime over it.
///
/// A device that died may give the number of a state that it did not keep to another one. So a
/// state is waited for only on the device that named it, and its successor names new numbers only.
pub(super) struct Remote {
    opening: Opening,
    here: Option<Arc<dyn Flash>>,
    open: Mutex<Open>,
}

#[derive(Default)]
pub(super) struct Open {
    /// Opened when it is first used, and anew after it has failed.
    commands: Option<Commands>,
    /// The device that named the newest state, 0: none has.
    instance: u64,
    /// That state.
    newest: u64,
    /// The newest state that a device named which has died since.
    of_the_dead: u64,
    /// The newest state that was seen to be durable; older ones are then.
    durable: u64,
    /// States that were named and not waited for, and what had been written by then.
    named: VecDeque<(u64, Covers)>,
}

impl Remote {
    pub(super) fn new(opening: Opening) -> Remote {
        Remote { opening, here: None, open: Mutex::default() }
    }
    /// The store is in this process, and keeps account of what differs from it itself.
    pub(super) fn attach_here(&mut self, store: Arc<dyn Flash>) {
        self.here = Some(store);
    }
    fn versions_here(&self) -> Option<&dyn Versions> {
        self.here.as_ref()?.versions()
    }
    pub(super) fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The queue pair for memory operations, which is opened if it is not, and stays open.
    pub(super) fn commands<'o>(&self, open: &'o mut Open) -> Result<&'o mut Commands, OpenError> {
        match &mut open.commands {
            Some(opened) => Ok(opened),
            none => {
                let opened = Commands::open(&self.opening, 2, BUFFER)?;
                let instance = opened.instance();
                if open.instance != instance {
                    (open.instance, open.of_the_dead) = (instance, open.newest);
                }
                Ok(none.insert(opened))
            }
        }
    }
    /// Something that is done once, or not at all.
    fn once<T>(
        &self,
        open: &mut Open,
        work: impl FnOnce(&mut Commands) -> Result<T, VersionError>,
    ) -> Result<T, VersionError> {
        let gone = |_| if self.opening.shared.has_lost() { FlashError::Poisoned } else { FlashError::Closed };
        let result = work(self.commands(open).map_err(gone)?);
        if matches!(result, Err(VersionError::Flash(FlashError::Closed | FlashError::TimedOut))) {
            open.commands = None;
        }
        result
    }
    /// An idempotent step: once more on the device that has returned, where the one asked has died.
    pub(super) fn again<T>(
        &self,
        open: &mut Open,
        mut work: impl FnMut(&mut Commands) -> Result<T, VersionError>,
    ) -> Result<T, VersionError> {
        let was_open = open.commands.is_some();
        match self.once(open, &mut work) {
            Err(VersionError::Flash(FlashError::Closed)) if was_open => self.once(open, work),
            result => result,
        }
    }
    /// Asks the device what may be done with all pages, and keeps that.
    pub(super) fn survey(&self, open: &mut Open) -> Result<(), VersionError> {
        let pages = self.opening.link.sectors() / SUBPAGES_PER_PAGE;
        let found = self.again(open, |commands| {
            let (mut found, mut page) = (Vec::new(), 0);
            while page < pages {
                let some = commands.permissions_from(page)?;
                if some.is_empty() {
                    // It has fewer than it said.
                    return Err(FlashError::Corrupt.into());
                }
                let restricted = |may: &Option<Permissions>| may.filter(|may| *may != Permissions::DEFAULT);
                found.extend((page..).zip(&some).filter_map(|(page, may)| Some((page..page + 1, restricted(may)?))));
                page = page.saturating_add(some.len() as u32);
            }
            Ok(found)
        })?;
        self.opening.shared.restrictions.replace(found);
        Ok(())
    }
    /// Goes back to a token, on the next device where one has died meanwhile. It is unknown whether
    /// the dead one had gone back. So unnamed writes are replayed, as after any death, and the next
    /// try takes them back.
    fn goes_back(&self, open: &mut Open, token: u64) -> Result<(), VersionError> {
        for tries in 1.. {
            // One that does not return is waited for once.
            self.once(open, |_| Ok(()))?;
            let result = self.once(open, |commands| {
                commands.version(Opcode::RollBack, token)?;
                // Others may have met the next device by now, and written there what was taken back
                // on this one.
                if self.opening.shared.record_roll_back(commands.instance(), token) {
                    Ok(())
                } else {
                    Err(FlashError::Closed.into())
                }
            });
            match result {
                Err(VersionError::Flash(FlashError::Closed)) if tries < ROLL_BACKS_MAX => {}
                // One that has died may not have refused it.
                Err(error) if error.is_refusal() && tries > 1 => return Err(FlashError::Closed.into()),
                result => return result,
            }
        }
        unreachable!("the last try returns")
    }
    fn wait_for(&self, open: &mut Open, token: u64) -> Result<(), VersionError> {
        // First it is known which device this is.
        self.once(open, |_| Ok(()))?;
        if token <= open.of_the_dead {
            return Err(FlashError::Closed.into());
        }
        self.once(open, |commands| commands.version(Opcode::Sync, token).map(|_| ()))?;
        open.durable = token;
        self.opening.shared.record_durable(token);
        Ok(())
    }
    /// As [`Commands::trim`].
    pub(super) fn trim(&self, first: u32, count: u32) -> Result<(), FlashError> {
        let mut open = self.lock();
        let trimmed = self.again(&mut open, |commands| Ok(commands.trim(first, count)?));
        if !self.opening.link.is_alone() {
            // No other program can have the device alone while it is open, and a sharer trims
            // rarely.
            open.commands = None;
        }
        trimmed.map_err(|error| match error {
            VersionError::Flash(error) => error,
            _ => FlashError::Closed,
        })
    }
}

impl Versions for Remote {
    fn name_state(&self) -> Result<u64, VersionError> {
        let mut open = self.lock();
        // What has completed by now is in the state, whichever device names it.
        let covers = self.opening.shared.begins_flush(None);
        let (mut last, mut renamed) = (0, 0);
        loop {
            let unnamed = self.opening.shared.unnamed.load(Ordering::Relaxed);
            let before = self.opening.shared.names();
            let named = self.again(&mut open, |commands| {
                self.opening.shared.begins_to_name(commands.instance());
                commands.version(Opcode::Name, 0)
            });
            let token = named.inspect_err(|error| {
                if !matches!(error, VersionError::Flash(FlashError::Closed | FlashError::TimedOut)) {
                    self.opening.shared.record_named(before);
                    self.opening.shared.room.record_named(0);
                }
                self.opening.shared.ended_flush(covers, false);
            })?;
            self.opening.shared.room.record_named(token);
            if token == 0 {
                // What a store says that keeps nothing: nobody will wait for it.
                self.opening.shared.record_named(before);
                self.opening.shared.ended_flush(covers, false);
                return Ok(0);
            }
            self.opening.shared.record_named(token);
            self.opening.shared.unnamed.fetch_sub(unnamed, Ordering::Relaxed);
            // There are no more such numbers than states named since the last one that was kept.
            if token > open.of_the_dead {
                open.newest = open.newest.max(token);
                open.named.push_back((token, covers));
                if open.named.len() > NAMED_MAX {
                    open.named.pop_front().inspect(|(_, covers)| self.opening.shared.ended_flush(*covers, false));
                }
                return Ok(token);
            }
            // One whose numbers do not grow never comes there.
            renamed += 1;
            if token <= last || renamed > RENAMED_MAX {
                self.opening.shared.ended_flush(covers, false);
                return Err(FlashError::Io(EPROTO).into());
            }
            last = token;
        }
    }
    fn wait_durable(&self, token: u64) -> Result<(), VersionError> {
        if token == 0 {
            // What a store that keeps nothing says; to the device it would mean a new one.
            return Ok(());
        }
        let mut open = self.lock();
        let waited = if token <= open.durable { Ok(()) } else { self.wait_for(&mut open, token) };
        if waited.is_ok() {
            self.opening.shared.room.record_durable(token);
        }
        // What an older state covers, a newer one does.
        open.named.retain(|&(named, covers)| {
            if named <= token {
                self.opening.shared.ended_flush(covers, waited.is_ok());
            }
            named > token
        });
        waited
    }
    fn can_roll_back(&self, token: u64) -> Result<(), VersionError> {
        self.again(&mut self.lock(), |commands| commands.version(Opcode::MayRollBack, token).map(|_| ()))
    }
    fn roll_back(&self, token: u64) -> Result<(), VersionError> {
        let mut open = self.lock();
        let before = (open.durable, self.opening.shared.goes_back(token));
        open.durable = open.durable.min(token);
        if let Err(error) = self.goes_back(&mut open, token) {
            if error.is_refusal() {
                // What was durable still is.
                open.durable = before.0;
                self.opening.shared.record_durable(before.1);
            }
            return Err(error);
        }
        self.opening.shared.room.record_roll_back();
        // The state is durable, and nothing was in flight: a death loses only what was taken back.
        let covers = self.opening.shared.begins_flush(None);
        open.named
            .drain(..)
            .map(|(_, covers)| covers)
            .chain([covers])
            .for_each(|c| self.opening.shared.ended_flush(c, true));
        self.opening.shared.unnamed.store(0, Ordering::Relaxed);
        // Permissions have gone back as well.
        if self.opening.link.names_states() { self.survey(&mut open) } else { Ok(()) }
    }
    fn tokens(&self) -> Vec<u64> {
        self.again(&mut self.lock(), |commands| Ok(commands.tokens()?)).unwrap_or_default()
    }
    fn uncommitted(&self) -> Option<u64> {
        let unnamed = self.opening.shared.unnamed.load(Ordering::Relaxed);
        self.opening.link.names_states().then(|| unnamed.saturating_add(self.opening.shared.room.claimed()))
    }
    fn shortage(&self) -> Option<Shortage> {
        self.versions_here()?.shortage()
    }
    fn sync_begins(&self) {
        self.versions_here().map_or_else(|| self.opening.shared.room.sync_begins(), Versions::sync_begins);
    }
    fn sync_ended(&self, made: bool) {
        self.versions_here()
            .map_or_else(|| self.opening.shared.room.sync_ended(made), |versions| versions.sync_ended(made));
    }
    fn counting_begins(&self) {
        self.versions_here().map_or_else(|| self.opening.shared.room.counting_begins(), Versions::counting_begins);
    }
    fn counted(&self, frames: u64) {
        self.versions_here()
            .map_or_else(|| self.opening.shared.room.counted(frames), |versions| versions.counted(frames));
    }
}
