//! Objects of a job: contents of a subpage that are cached by themselves (see `crate::objects`).

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fulgurite_cache::Writer;
use fulgurite_format::{Address, SUBPAGE_BYTES, SUBPAGE_SHIFT};

use super::Context;
use crate::error::AccessError;
use crate::mailbox::Wake;
use crate::object_user::ObjectUser;
use crate::records::Records;
use crate::shared::Shared;

impl Context {
    /// Whether this memory caches objects, so that subpages may be used as such.
    #[inline]
    pub fn has_objects(&self) -> bool {
        self.shared.objects.is_some()
    }

    /// Copies a subpage out. One that is on flash only is read past the frames, and takes the place
    /// of no other there.
    ///
    /// # Errors
    /// As [`Context::access`].
    pub fn read_around(&mut self, at: Address, into: &mut [u8; SUBPAGE_BYTES]) -> Result<(), AccessError> {
        self.read_past_frames(at, into)
    }
    /// The records of maps in DRAM, if there is any for them.
    pub fn records(&self) -> Option<&Arc<Records>> {
        self.shared.records.as_ref()
    }

    /// What `read` makes of the first `len` bytes of the object at `at`, which is that long. They
    /// are of one state. An object that is cached costs neither a switch nor a request.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when it has another length. [`AccessError`]: no object can be
    /// there, the medium failed, the job must end.
    #[inline]
    pub fn read_object<R>(&mut self, at: Address, len: usize, read: impl FnMut(&[u8]) -> R) -> Result<R, AccessError> {
        self.read(at, len, read)
    }

    /// Changes the object at `at`, all at once. The caller is in a write section, and no other
    /// fiber changes this object.
    ///
    /// # Errors
    /// [`AccessError::TooLong`] beyond 4096 bytes. Otherwise as [`Context::access_mut`]; nothing
    /// has changed then.
    pub fn write_object(&mut self, at: Address, bytes: &[u8]) -> Result<(), AccessError> {
        self.write(at, bytes)
    }

    /// Waits while more objects, not counting the one at `at`, are to be written first than
    /// [`Context::write_object`] accepts without a wait.
    ///
    /// # Errors
    /// As [`Context::write_object`].
    pub fn wait_for_object_room(&mut self, at: Address) -> Result<(), AccessError> {
        self.wait_for_room_of(at)
    }

    /// Frees the object at `at`, to which nothing leads any more.
    pub fn free_object(&mut self, at: Address) {
        self.free(at);
    }
}

impl ObjectUser for Context {
    #[inline(always)]
    fn runtime(&self) -> &Arc<Shared> {
        &self.shared
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
    fn wait_at(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.park(word, expected)
    }
    fn pause(&mut self, time: Duration) -> Result<(), AccessError> {
        self.sleep(time)
    }
    fn writer(&self) -> Writer {
        Context::writer(self)
    }
    fn is_own_job(&self) -> bool {
        Context::is_own_job(self)
    }
}
