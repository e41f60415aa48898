//! A store whose flash answers at once and keeps only metadata: what it does is counted, not timed.

use std::collections::HashMap;

use anyhow::Result;
use fulgurite_flash::FlashError;
use fulgurite_format::{PageBuffer, PoolId, zero_page};
use fulgurite_store::{Geometry, Io, Outcome, ReadPages, Store, StoreConfig, recover};

/// A sync follows this amount of writes, in percent of the data.
const SYNC_EVERY: f64 = 0.5;

/// Flash of which only metadata is kept.
pub struct Metadata {
    pub pages: HashMap<u32, PageBuffer>,
    flash_pages: u32,
}

impl ReadPages for Metadata {
    fn read(&mut self, place: u32, _: u32) -> Result<PageBuffer, FlashError> {
        Ok(self.pages.get(&place).cloned().unwrap_or_else(zero_page))
    }
    fn flash_pages(&self) -> u32 {
        self.flash_pages
    }
}

pub struct Counted {
    pub store: Store,
    pub flash: Metadata,
    unsynced: u64,
    sync_every: u64,
}

impl Counted {
    /// A new store that is to hold this number of subpages or objects.
    pub fn new(geometry: Geometry, config: StoreConfig, count: u32) -> Result<Counted> {
        let mut flash = Metadata { pages: HashMap::new(), flash_pages: geometry.flash_pages() };
        flash.pages.extend(Store::format(geometry, PoolId(*b"a pool to count."), 0));
        let (store, _) = recover(&mut flash, config)?;
        Ok(Counted { store, flash, unsynced: 0, sync_every: sync_every(count) })
    }
    /// Answers all that the store asks for.
    pub fn serve(&mut self) -> Result<()> {
        while let Some((id, io)) = self.store.next_io() {
            let outcome = match io {
                Io::Write { place, page } => {
                    self.flash.pages.insert(place, page);
                    Outcome::Done
                }
                Io::Read { place } => Outcome::Read(self.flash.read(place, 0)?),
                Io::Copy { .. } => Outcome::Copied(0),
                Io::Flush => Outcome::Done,
            };
            self.store.done(id, outcome);
        }
        self.store.poisoned().map_or(Ok(()), |e| Err(e.into()))
    }
    /// Writes subpages, a flash page each.
    pub fn place(&mut self, mut subpages: &[u32]) -> Result<()> {
        let mut places = Vec::new();
        while !subpages.is_empty() {
            places.clear();
            self.store.place(subpages, &mut places)?;
            let mut written: Vec<_> = subpages.iter().zip(&places).map(|(s, place)| (*s, *place, 0)).collect();
            self.store.written(&mut written)?;
            self.serve()?;
            subpages = &subpages[places.len()..];
        }
        Ok(())
    }
    /// Notes that as many were written, and syncs when it is time.
    pub fn wrote(&mut self, count: usize) -> Result<()> {
        self.unsynced += count as u64;
        if self.unsynced >= self.sync_every {
            self.unsynced = 0;
            self.store.sync()?;
            self.serve()?;
        }
        Ok(())
    }
}

/// Writes after which a sync follows.
pub fn sync_every(count: u32) -> u64 {
    ((f64::from(count) * SYNC_EVERY / 100.0) as u64).max(1)
}

/// Calls `write` with batches of at most `len` of these, each in order and without repetitions.
pub fn in_batches(
    mut numbers: impl Iterator<Item = u32>,
    len: usize,
    mut write: impl FnMut(&[u32]) -> Result<()>,
) -> Result<()> {
    loop {
        let mut batch: Vec<u32> = numbers.by_ref().take(len).collect();
        if batch.is_empty() {
            return Ok(());
        }
        batch.sort_unstable();
        batch.dedup();
        write(&batch)?;
    }
}
