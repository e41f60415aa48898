//! fjall: a log-structured merge-tree, with a block cache in front of the page cache.

use std::ops::Range;
use std::time::Duration;

use ::fjall::{KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode};
use anyhow::{Context as _, Result};
use fulgurite_format::format_bytes;

use super::{Client, Spec, Store, account, balance};

pub struct Fjall {
    database: OptimisticTxDatabase,
    values: OptimisticTxKeyspace,
    cache_bytes: u64,
    memtable_bytes: u64,
}

impl Fjall {
    pub fn open(spec: &Spec) -> Result<Fjall> {
        // A fifth to a quarter of the memory (fjall's README, "Memory usage").
        let cache_bytes = spec.cache_bytes(0, 4);
        // 8 to 64 MiB, by the memory there is (`CreateOptions::max_memtable_size`).
        let memtable_bytes = (spec.memory_bytes / 16).clamp(8 << 20, 64 << 20);
        let database =
            OptimisticTxDatabase::builder(spec.directory.join("values.fjall")).cache_size(cache_bytes).open()?;
        // All gets find their key (`CreateOptions::expect_point_read_hits`).
        let options =
            || KeyspaceCreateOptions::default().expect_point_read_hits(true).max_memtable_size(memtable_bytes);
        let values = database.keyspace("values", options)?;
        Ok(Fjall { database, values, cache_bytes, memtable_bytes })
    }
}

impl Store for Fjall {
    fn settings(&self) -> String {
        let (cache, memtable) = (format_bytes(self.cache_bytes), format_bytes(self.memtable_bytes));
        format!(
            "fjall 3.1: block cache {cache}, memtable {memtable}, LZ4, expect_point_read_hits; persist(SyncAll) a second"
        )
    }
    fn load(&self, keys: Range<u64>, value: &(dyn Fn(u64, &mut Vec<u8>) + Sync)) -> Result<()> {
        let mut bytes = Vec::new();
        for key in keys {
            value(key, &mut bytes);
            self.values.inner().insert(key.to_be_bytes(), bytes.as_slice())?;
        }
        Ok(())
    }
    fn client(&self) -> Box<dyn Client + '_> {
        Box::new(self)
    }
    fn sync(&self) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
    fn settle(&self) -> Result<()> {
        let database = self.database.inner();
        // Twice in a row, as a flush begins compactions.
        let mut idle = 0;
        while idle < 3 {
            let busy = database.outstanding_flushes() > 0 || database.active_compactions() > 0;
            idle = if busy { 0 } else { idle + 1 };
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Client for &Fjall {
    fn get(&mut self, key: u64, look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.values.get(key.to_be_bytes())?;
        if let Some(value) = &found {
            look(value);
        }
        Ok(found.is_some())
    }
    fn put(&mut self, key: u64, value: &[u8]) -> Result<()> {
        // No transaction is needed for a single one.
        Ok(self.values.inner().insert(key.to_be_bytes(), value)?)
    }
    fn transfer(&mut self, from: u64, to: u64, amount: u64) -> Result<()> {
        loop {
            let mut write = self.database.write_tx()?;
            let has = |write: &::fjall::OptimisticWriteTx, key: u64| -> Result<u64> {
                use ::fjall::Readable as _;
                balance(&write.get(&self.values, key.to_be_bytes())?.context("an account")?)
            };
            let (less, more) = (has(&write, from)?.wrapping_sub(amount), has(&write, to)?.wrapping_add(amount));
            write.insert(&self.values, from.to_be_bytes(), account(less).as_slice());
            write.insert(&self.values, to.to_be_bytes(), account(more).as_slice());
            if write.commit()?.is_ok() {
                return Ok(());
            }
        }
    }
}
