//! redb: a copy-on-write B+-tree in one file, with a cache of its own in front of the page cache.
//!
//! Each put is a transaction, as it has to be seen by the next read. Commits without durability in
//! between, and one with it each second, as `Durability::None` documents.

use std::ops::Range;

use ::redb::{Builder, Database, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use anyhow::{Context as _, Result};

use super::{Client, Spec, Store, account, balance};

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("values");
/// What its process takes in addition to the cache.
const PROCESS_BYTES: u64 = 24 << 20;
/// Puts of a transaction of the load.
const LOAD: u64 = 20_000;

pub struct Redb {
    database: Database,
    cache_bytes: usize,
}

impl Redb {
    pub fn open(spec: &Spec) -> Result<Redb> {
        // A third for its own cache: with 32 clients, the process takes about twice as much. What
        // it reads and writes goes through the page cache as well.
        let cache_bytes = usize::try_from(spec.cache_bytes(PROCESS_BYTES, 3))?;
        let database = Builder::new().set_cache_size(cache_bytes).create(spec.directory.join("values.redb"))?;
        let write = database.begin_write()?;
        write.open_table(TABLE)?;
        write.commit()?;
        Ok(Redb { database, cache_bytes })
    }
    fn write(
        &self,
        durability: Durability,
        change: impl FnOnce(&mut ::redb::Table<u64, &[u8]>) -> Result<()>,
    ) -> Result<()> {
        let mut write = self.database.begin_write()?;
        write.set_durability(durability)?;
        change(&mut write.open_table(TABLE)?)?;
        Ok(write.commit()?)
    }
}

impl Store for Redb {
    fn settings(&self) -> String {
        let cache = fulgurite_format::format_bytes(self.cache_bytes as u64);
        format!("redb 4.6: cache {cache}; Durability::None, and an Immediate commit a second")
    }
    fn load(&self, keys: Range<u64>, value: &(dyn Fn(u64, &mut Vec<u8>) + Sync)) -> Result<()> {
        let mut bytes = Vec::new();
        let (mut next, end) = (keys.start, keys.end);
        while next < end {
            let last = (next + LOAD).min(end);
            self.write(Durability::None, |table| {
                for key in next..last {
                    value(key, &mut bytes);
                    table.insert(key, bytes.as_slice())?;
                }
                Ok(())
            })?;
            next = last;
        }
        Ok(())
    }
    fn client(&self) -> Box<dyn Client + '_> {
        Box::new(self)
    }
    fn sync(&self) -> Result<()> {
        self.write(Durability::Immediate, |_| Ok(()))
    }
    fn settle(&self) -> Result<()> {
        Ok(())
    }
}

impl Client for &Redb {
    fn get(&mut self, key: u64, look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        let found = table.get(key)?;
        if let Some(value) = &found {
            look(value.value());
        }
        Ok(found.is_some())
    }
    fn put(&mut self, key: u64, value: &[u8]) -> Result<()> {
        self.write(Durability::None, |table| Ok(table.insert(key, value).map(drop)?))
    }
    fn transfer(&mut self, from: u64, to: u64, amount: u64) -> Result<()> {
        self.write(Durability::None, |table| {
            let has = |table: &::redb::Table<u64, &[u8]>, key| balance(table.get(key)?.context("an account")?.value());
            let (less, more) = (has(table, from)?.wrapping_sub(amount), has(table, to)?.wrapping_add(amount));
            table.insert(from, account(less).as_slice())?;
            table.insert(to, account(more).as_slice())?;
            Ok(())
        })
    }
}
