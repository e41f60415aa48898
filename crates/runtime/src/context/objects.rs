//! Objects of a job: contents of a subpage that are cached by themselves (see `crate::objects`).

use std::time::Duration;

use fulgurite_cache::Writer;
use fulgurite_flash::{Backing, Flash, FlashError, Objects as Packs};
use fulgurite_format::{Address, SUBPAGE_BYTES, SUBPAGE_SHIFT};
use fulgurite_objects::{OBJECT_BYTES_MAX, Pressure};

use super::{BASE_SUBPAGE, Context};
use crate::error::AccessError;
use crate::mailbox::Wake;
use crate::objects::{Found, Put};

/// How long a change waits between two checks whether a batch has been written.
pub(super) const LOOK_AGAIN: Duration = Duration::from_micros(50);

impl Context {
    /// Whether this memory caches objects, so that subpages may be used as such.
    #[inline]
    pub fn has_objects(&self) -> bool {
        self.shared.objects.is_some()
    }

    fn object_number(&self, at: Address) -> Result<u32, AccessError> {
        let subpage = (at.bits() >> SUBPAGE_SHIFT).wrapping_sub(BASE_SUBPAGE);
        if subpage >= self.shared_subpages || at.subpage_offset() != 0 || self.shared.objects.is_none() {
            return Err(AccessError::OutOfRange { at });
        }
        Ok(subpage as u32)
    }

    /// What `read` makes of the first `len` bytes of the object at `at`, which is that long. They
    /// are of one state. An object that is cached costs neither a switch nor a request.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when it has another length. [`AccessError`]: no object can be
    /// there, the medium failed, the job must end.
    #[inline]
    pub fn read_object<R>(
        &mut self,
        at: Address,
        len: usize,
        mut read: impl FnMut(&[u8]) -> R,
    ) -> Result<R, AccessError> {
        let number = self.object_number(at)?;
        loop {
            let objects = self.shared.objects.as_ref().expect("asked above");
            let ticket = match objects.get(number, len, &mut read) {
                Found::Here(result) => return Ok(result),
                Found::OtherLength(got) => return Err(other_length(at, len, got)),
                Found::Miss(ticket) => ticket,
                Found::Joined(arrivals) => {
                    self.park_at_arrivals(number, arrivals)?;
                    continue;
                }
            };
            let fetched = self.fetch(at, number, len);
            let objects = self.shared.objects.as_ref().expect("asked above");
            let entered = objects.end_read(number, ticket, fetched.as_deref().ok());
            Context::unpark_all(objects.arrivals(number));
            let bytes = fetched?;
            if entered {
                return Ok(read(&bytes));
            }
            // It was changed meanwhile.
        }
    }

    /// Waits until a read of another fiber has ended. Where it failed, this one reads itself.
    #[cold]
    fn park_at_arrivals(&mut self, number: u32, seen: u64) -> Result<(), AccessError> {
        let shared = self.shared.clone();
        self.park(shared.objects.as_ref().expect("asked above").arrivals(number), seen)
    }

    /// The first bytes of an object from flash.
    #[cold]
    fn fetch(&mut self, at: Address, number: u32, len: usize) -> Result<Vec<u8>, AccessError> {
        self.verdict()?;
        self.enough_stack()?;
        if self.cache.backing().is_some_and(|backing| !backing.may(number, false)) {
            return Err(AccessError::NotPermitted { at, write: false });
        }
        let index = self.state.index;
        loop {
            if self.shared.poisoned.get().is_some() {
                return Err(AccessError::MemoryPoisoned);
            }
            self.with_fibers(|fibers| fibers.begin_fetch(number, index));
            self.suspend();
            match self.state.wake.get() {
                Wake::Retry => self.verdict()?,
                Wake::Fetched(frame) => {
                    let mut bytes = vec![0; len.min(SUBPAGE_BYTES)];
                    self.cache.frames.arena().read(frame.index() << SUBPAGE_SHIFT, &mut bytes);
                    self.with_fibers(|fibers| fibers.end_fetch(frame));
                    self.verdict()?;
                    return Ok(bytes);
                }
                Wake::Pinned => unreachable!("this fiber waits for no subpage"),
                Wake::Failed(source) => return Err(AccessError::of_flash(at, source, &*self.shared.flash)),
                Wake::OutOfFrames => return Err(AccessError::OutOfFrames),
                Wake::ShutDown => return Err(AccessError::ShuttingDown),
            }
        }
    }

    /// Changes the object at `at`, all at once. The caller is in a write section, and no other
    /// fiber changes this object.
    ///
    /// # Errors
    /// [`AccessError::TooLong`] beyond 4096 bytes. Otherwise as [`Context::access_mut`]; nothing
    /// has changed then.
    pub fn write_object(&mut self, at: Address, bytes: &[u8]) -> Result<(), AccessError> {
        let number = self.object_number(at)?;
        if bytes.len() > OBJECT_BYTES_MAX {
            let (bytes, most) = (bytes.len() as u64, OBJECT_BYTES_MAX as u64);
            return Err(AccessError::TooLong { what: "object", bytes, most });
        }
        self.verdict()?;
        let shared = self.shared.clone();
        let backing = self.cache.backing();
        if backing.is_some_and(|backing| !backing.may(number, true)) {
            return Err(AccessError::NotPermitted { at, write: true });
        }
        let objects = shared.objects.as_ref().expect("asked above");
        let pool: &dyn Packs = shared.flash.backing().and_then(|b| b.objects()).expect("it had objects at the start");
        let of_flash = |source| AccessError::of_flash(at, source, &*shared.flash);
        let mut has_claimed = false;
        loop {
            if shared.poisoned.get().is_some() {
                return Err(AccessError::MemoryPoisoned);
            }
            let claim = || {
                if !has_claimed {
                    self.claim(number)?;
                    has_claimed = true;
                }
                Ok(())
            };
            match objects.put(number, bytes, claim) {
                Put::Done(Pressure::None) => return Ok(()),
                Put::Done(_) => {
                    // An error of the batch is for those that wait for it.
                    let _ = objects.write_shard_of(number, pool);
                    return Ok(());
                }
                Put::Refused(FlashError::NoSpace)
                    if self.writer() == Writer::MayWait && backing_waits(&*shared.flash) =>
                {
                    self.sleep(LOOK_AGAIN)?;
                }
                Put::Refused(source) => return Err(of_flash(source)),
                Put::Wait => {
                    objects.write_shard_of(number, pool).map_err(of_flash)?;
                    self.sleep(LOOK_AGAIN)?;
                }
            }
        }
    }

    /// Waits while more objects, not counting the one at `at`, are to be written first than
    /// [`Context::write_object`] accepts without a wait.
    ///
    /// # Errors
    /// As [`Context::write_object`].
    pub fn wait_for_object_room(&mut self, at: Address) -> Result<(), AccessError> {
        let number = self.object_number(at)?;
        let shared = self.shared.clone();
        let objects = shared.objects.as_ref().expect("asked above");
        while objects.has_to_wait(number) {
            if let Some(pool) = shared.flash.backing().and_then(|backing| backing.objects()) {
                let written = objects.write_shard_of(number, pool);
                written.map_err(|source| AccessError::of_flash(at, source, &*shared.flash))?;
            }
            self.sleep(LOOK_AGAIN)?;
        }
        Ok(())
    }

    /// A place in the pool for one object that differs from it.
    fn claim(&self, number: u32) -> Result<(), FlashError> {
        match self.shared.flash.backing() {
            Some(backing) if backing.asks() => backing.begin_change(number, self.is_own_job()),
            _ => Ok(()),
        }
    }

    /// Frees the object at `at`, to which nothing leads any more.
    pub fn free_object(&mut self, at: Address) {
        let (Ok(number), Some(objects)) = (self.object_number(at), &self.shared.objects) else { return };
        if objects.free(number, || self.claim(number)) != Pressure::None
            && let Some(pool) = self.shared.flash.backing().and_then(|backing| backing.objects())
        {
            // An error of the batch is for those that wait for it.
            let _ = objects.write_shard_of(number, pool);
        }
    }
}

/// Whether a change that was refused for want of room should wait for a sync.
#[cold]
fn backing_waits(flash: &dyn Flash) -> bool {
    flash.backing().is_some_and(Backing::waits_for_room)
}

#[cold]
fn other_length(at: Address, len: usize, got: usize) -> AccessError {
    AccessError::Corrupt { what: "length of an object", at, expected: len as u64, got: got as u64 }
}
