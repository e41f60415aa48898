//! TEMPORARY stand-in: consistent states without a gate. One job at a time is all it is right for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fulgurite_flash::FlashError;

use crate::{AccessError, Context, Runtime};

/// State in DRAM that belongs to the data.
pub trait Durable: Send + Sync {
    /// Writes it to flash memory.
    ///
    /// # Errors
    /// What the memory says.
    fn save(&self, context: &mut Context) -> Result<(), AccessError>;
    /// Reads it from flash memory again.
    ///
    /// # Errors
    /// What the memory says.
    fn reload(&self, context: &mut Context) -> Result<(), AccessError>;
}

/// A consistent state that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Synced {
    /// Its name.
    pub token: u64,
}

/// Why a state could not be named or made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// An access of a part that is saved or reloaded.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The medium.
    #[error(transparent)]
    Flash(#[from] FlashError),
}

/// Nothing is cut while this lives.
#[must_use = "the section ends when this is dropped"]
#[derive(Debug)]
pub struct WriteSection(());

impl Context {
    /// Begins a section of writes that belong together.
    ///
    /// # Errors
    /// When the job must end.
    #[inline(always)]
    pub fn write_section(&mut self) -> Result<WriteSection, AccessError> {
        Ok(WriteSection(()))
    }
}

impl Runtime {
    fn parts(&self) -> Vec<Arc<dyn Durable>> {
        self.shared.kept.lock().clone()
    }
    /// Names a consistent state.
    ///
    /// # Errors
    /// [`SyncError`].
    pub fn sync(&self) -> Result<Synced, SyncError> {
        let parts = self.parts();
        self.run(move |m| parts.iter().try_for_each(|p| p.save(m)))?;
        self.write_back()?;
        Ok(Synced { token: self.shared.flash.newest_token() })
    }
    /// Makes the state again that of a token.
    ///
    /// # Errors
    /// [`SyncError`].
    pub fn roll_back(&self, token: u64) -> Result<(), SyncError> {
        for frame in 0..self.shared.layout.frames_per_worker_max * self.workers() as u32 {
            self.shared.frames.marks(frame).dirty.store(1, Ordering::Relaxed);
        }
        self.write_back()?;
        self.shared.flash.roll_back_to(token)?;
        let parts = self.parts();
        Ok(self.run(move |m| parts.iter().try_for_each(|p| p.reload(m)))?)
    }
    /// Keeps state in DRAM with the data.
    pub fn keep(&self, part: Arc<dyn Durable>) {
        self.shared.kept.lock().push(part);
    }
}
