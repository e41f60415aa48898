//! Objects of a thread: contents of a subpage that are cached by themselves (see `crate::objects`).

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fulgurite_cache::Writer;
use fulgurite_format::{Address, SUBPAGE_BYTES, SUBPAGE_SHIFT};

use super::Guest;
use crate::error::AccessError;
use crate::mailbox::{Message, Wake};
use crate::object_user::ObjectUser;
use crate::records::Records;
use crate::shared::Shared;

impl Guest<'_> {
    /// As [`Context::has_objects`](crate::Context::has_objects).
    #[inline]
    pub fn has_objects(&self) -> bool {
        self.shared.objects.is_some()
    }
    /// As [`Context::read_around`](crate::Context::read_around).
    ///
    /// # Errors
    /// As there.
    pub fn read_around(&mut self, at: Address, into: &mut [u8; SUBPAGE_BYTES]) -> Result<(), AccessError> {
        self.read_past_frames(at, into)
    }
    /// As [`Context::records`](crate::Context::records).
    pub fn records(&self) -> Option<&Arc<Records>> {
        self.shared.records.as_ref()
    }
    /// As [`Context::read_object`](crate::Context::read_object).
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn read_object<R>(&mut self, at: Address, len: usize, read: impl FnMut(&[u8]) -> R) -> Result<R, AccessError> {
        self.read(at, len, read)
    }
    /// As [`Context::write_object`](crate::Context::write_object).
    ///
    /// # Errors
    /// As there.
    pub fn write_object(&mut self, at: Address, bytes: &[u8]) -> Result<(), AccessError> {
        self.write(at, bytes)
    }
    /// As [`Context::wait_for_object_room`](crate::Context::wait_for_object_room).
    ///
    /// # Errors
    /// As there.
    pub fn wait_for_object_room(&mut self, at: Address) -> Result<(), AccessError> {
        self.wait_for_room_of(at)
    }
    /// As [`Context::free_object`](crate::Context::free_object).
    pub fn free_object(&mut self, at: Address) {
        self.free(at);
    }
}

impl ObjectUser for Guest<'_> {
    #[inline(always)]
    fn runtime(&self) -> &Arc<Shared> {
        self.shared
    }
    fn check(&self) -> Result<(), AccessError> {
        self.verdict()
    }
    fn bring(&mut self, at: Address) -> Result<NonNull<u8>, AccessError> {
        self.access(at)
    }
    #[cold]
    fn fetch(&mut self, at: Address, number: u32, len: usize) -> Result<Vec<u8>, AccessError> {
        self.verdict()?;
        if self.shared.cache.backing().is_some_and(|backing| !backing.may(number, false)) {
            return Err(AccessError::NotPermitted { at, write: false });
        }
        loop {
            if self.shared.poisoned.get().is_some() {
                return Err(AccessError::MemoryPoisoned);
            }
            let shared = self.shared;
            let mut bytes = vec![0; len.min(SUBPAGE_BYTES)];
            if let Some(read) = self.standing(|| shared.readers.read(&*shared.flash, number, &mut bytes)) {
                return match read {
                    Ok(()) => Ok(bytes),
                    Err(source) => Err(AccessError::of_flash(at, source, &*shared.flash)),
                };
            }
            match self.ask_worker(number, |seat, ticket, turn| Message::Fetch { seat, ticket, turn, subpage: number }) {
                Wake::Retry => {}
                Wake::Fetched(frame) => {
                    self.shared.cache.frames.arena().read(frame.index() << SUBPAGE_SHIFT, &mut bytes);
                    let worker = number as usize % self.shared.mailboxes.len();
                    self.shared.mailboxes[worker].send(Message::EndFetch(frame));
                    return Ok(bytes);
                }
                Wake::Pinned => unreachable!("this thread waits for no subpage"),
                Wake::Failed(source) => return Err(AccessError::of_flash(at, source, &*self.shared.flash)),
                Wake::OutOfFrames => return Err(AccessError::OutOfFrames),
                Wake::ShutDown => return Err(AccessError::ShuttingDown),
            }
        }
    }
    fn wait_at(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.park(word, expected)
    }
    fn pause(&mut self, time: Duration) -> Result<(), AccessError> {
        self.sleep(time)
    }
    fn writer(&self) -> Writer {
        Guest::writer(self)
    }
    fn is_own_job(&self) -> bool {
        false
    }
}
