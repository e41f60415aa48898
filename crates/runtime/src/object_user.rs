//! Objects of a job or a thread: contents of a subpage that are cached by themselves (see
//! `crate::objects`).

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fulgurite_cache::{State, Writer, residency};
use fulgurite_flash::{Backing, Flash, FlashError, Objects as Packs};
use fulgurite_format::{Address, SUBPAGE_BYTES, SUBPAGE_SHIFT};
use fulgurite_objects::{OBJECT_BYTES_MAX, Pressure};

use crate::error::AccessError;
use crate::objects::{Found, Put};
use crate::parking;
use crate::shared::Shared;

/// How long a change waits between two checks whether a batch has been written.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_micros(50);

const BASE_SUBPAGE: u64 = Address::from_linear(0).bits() >> SUBPAGE_SHIFT;

/// What reads and changes objects: a job on its fiber, or a thread.
pub(crate) trait ObjectUser {
    fn runtime(&self) -> &Arc<Shared>;
    /// Whether it must end.
    fn check(&self) -> Result<(), AccessError>;
    /// An access: where a subpage is in DRAM until the next one.
    fn bring(&mut self, at: Address) -> Result<NonNull<u8>, AccessError>;
    /// The first bytes of an object from flash.
    fn fetch(&mut self, at: Address, number: u32, len: usize) -> Result<Vec<u8>, AccessError>;
    fn wait_at(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError>;
    fn pause(&mut self, time: Duration) -> Result<(), AccessError>;
    /// What a change is to a sync.
    fn writer(&self) -> Writer;
    /// Whether it is a job of the runtime itself.
    fn is_own_job(&self) -> bool;

    fn object_number(&self, at: Address) -> Result<u32, AccessError> {
        let subpage = (at.bits() >> SUBPAGE_SHIFT).wrapping_sub(BASE_SUBPAGE);
        let shared = self.runtime();
        let has_objects = shared.objects.is_some();
        if subpage >= shared.layout.shared_subpages.into() || at.subpage_offset() != 0 || !has_objects {
            return Err(AccessError::OutOfRange { at });
        }
        Ok(subpage as u32)
    }

    /// See [`Context::read_around`](crate::Context::read_around).
    fn read_past_frames(&mut self, at: Address, into: &mut [u8; SUBPAGE_BYTES]) -> Result<(), AccessError> {
        let subpage = (at.bits() >> SUBPAGE_SHIFT).wrapping_sub(BASE_SUBPAGE);
        let shared = self.runtime();
        if subpage >= shared.layout.shared_subpages.into() || at.subpage_offset() != 0 {
            return Err(AccessError::OutOfRange { at });
        }
        let word = shared.cache.table.word(subpage as u32).load(Ordering::Acquire);
        if residency::decode(word) == State::Absent {
            let bytes = self.fetch(at, subpage as u32, SUBPAGE_BYTES)?;
            into.copy_from_slice(&bytes);
            return Ok(());
        }
        let byte = self.bring(at)?;
        // SAFETY: a subpage of this memory begins there until the next access, and others reach it
        // as atomics only, as this does.
        unsafe { read_words(byte, into) };
        Ok(())
    }

    /// See [`Context::read_object`](crate::Context::read_object).
    #[inline]
    fn read<R>(&mut self, at: Address, len: usize, mut read: impl FnMut(&[u8]) -> R) -> Result<R, AccessError> {
        let number = self.object_number(at)?;
        loop {
            let objects = self.runtime().objects.as_ref().expect("asked above");
            let ticket = match objects.get(number, len, &mut read) {
                Found::Here(result) => return Ok(result),
                Found::OtherLength(got) => return Err(other_length(at, len, got)),
                Found::Miss(ticket) => ticket,
                Found::Joined(arrivals) => {
                    self.wait_for_arrival(number, arrivals)?;
                    continue;
                }
            };
            let fetched = self.fetch(at, number, len);
            let objects = self.runtime().objects.as_ref().expect("asked above");
            let entered = objects.end_read(number, ticket, fetched.as_deref().ok());
            parking::unpark_all(objects.arrivals(number));
            let bytes = fetched?;
            if entered {
                return Ok(read(&bytes));
            }
            // It was changed meanwhile.
        }
    }

    /// Waits until a read of another user has ended. Where it failed, this one reads itself.
    #[cold]
    fn wait_for_arrival(&mut self, number: u32, seen: u64) -> Result<(), AccessError> {
        let shared = self.runtime().clone();
        self.wait_at(shared.objects.as_ref().expect("asked above").arrivals(number), seen)
    }

    /// See [`Context::write_object`](crate::Context::write_object).
    fn write(&mut self, at: Address, bytes: &[u8]) -> Result<(), AccessError> {
        let number = self.object_number(at)?;
        if bytes.len() > OBJECT_BYTES_MAX {
            let (bytes, most) = (bytes.len() as u64, OBJECT_BYTES_MAX as u64);
            return Err(AccessError::TooLong { what: "object", bytes, most });
        }
        self.check()?;
        let shared = self.runtime().clone();
        if shared.cache.backing().is_some_and(|backing| !backing.may(number, true)) {
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
                    self.pause(LOOK_AGAIN)?;
                }
                Put::Refused(source) => return Err(of_flash(source)),
                Put::Wait => {
                    objects.write_shard_of(number, pool).map_err(of_flash)?;
                    self.pause(LOOK_AGAIN)?;
                }
            }
        }
    }

    /// See [`Context::wait_for_object_room`](crate::Context::wait_for_object_room).
    fn wait_for_room_of(&mut self, at: Address) -> Result<(), AccessError> {
        let number = self.object_number(at)?;
        let shared = self.runtime().clone();
        let objects = shared.objects.as_ref().expect("asked above");
        while objects.has_to_wait(number) {
            if let Some(pool) = shared.flash.backing().and_then(|backing| backing.objects()) {
                let written = objects.write_shard_of(number, pool);
                written.map_err(|source| AccessError::of_flash(at, source, &*shared.flash))?;
            }
            self.pause(LOOK_AGAIN)?;
        }
        Ok(())
    }

    /// A place in the pool for one object that differs from it.
    fn claim(&self, number: u32) -> Result<(), FlashError> {
        match self.runtime().flash.backing() {
            Some(backing) if backing.asks() => backing.begin_change(number, self.is_own_job()),
            _ => Ok(()),
        }
    }

    /// See [`Context::free_object`](crate::Context::free_object).
    fn free(&mut self, at: Address) {
        let shared = self.runtime();
        let (Ok(number), Some(objects)) = (self.object_number(at), &shared.objects) else { return };
        if objects.free(number, || self.claim(number)) != Pressure::None
            && let Some(pool) = shared.flash.backing().and_then(|backing| backing.objects())
        {
            // An error of the batch is for those that wait for it.
            let _ = objects.write_shard_of(number, pool);
        }
    }
}

/// Copies a subpage that others may write.
///
/// # Safety
/// A subpage must begin at `from`, aligned to eight bytes, and be reached as atomics only.
unsafe fn read_words(from: NonNull<u8>, into: &mut [u8; SUBPAGE_BYTES]) {
    let words = from.cast::<AtomicU64>();
    for (i, word) in into.as_chunks_mut().0.iter_mut().enumerate() {
        // SAFETY: inside the subpage (the caller's contract).
        *word = unsafe { words.add(i).as_ref() }.load(Ordering::Relaxed).to_ne_bytes();
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
