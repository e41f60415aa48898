//! LMDB by heed: a copy-on-write B+-tree in a memory map. The page cache is its only cache.
#![expect(unsafe_code, reason = "heed's way to open an environment")]

use std::ops::Range;

use anyhow::{Context as _, Result};
use heed::byteorder::BigEndian;
use heed::types::{Bytes, U64};
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, PutFlags};

use super::{Client, Spec, Store, account, balance};

type Values = Database<'static, U64<BigEndian>, Bytes>;
/// Puts of a transaction of the load.
const LOAD: u64 = 20_000;

pub struct Lmdb {
    env: Env,
    values: Values,
}

impl Lmdb {
    pub fn open(spec: &Spec) -> Result<Lmdb> {
        let directory = spec.directory.join("lmdb");
        std::fs::create_dir(&directory)?;
        let mut options = EnvOpenOptions::new();
        // As large as it may ever get (LMDB's documentation of the map size). The file is sparse.
        let map = (spec.data_bytes() * 4 + (1 << 30)).next_multiple_of(1 << 20);
        options.map_size(usize::try_from(map)?).max_readers(512);
        // SAFETY: the file is in a new directory of this process, and only LMDB changes it.
        // Without NO_SYNC each commit would wait for the disk. A process that is killed loses
        // nothing by it.
        let env = unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::NO_READ_AHEAD).open(&directory)? };
        let made = env.create_databases_and_commit(env.write_txn()?, |opener, write| {
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(
                opener.create_database::<U64<BigEndian>, Bytes>(write, None)?,
            ))
        })?;
        let values = made.commit().context("the database was not made")?;
        Ok(Lmdb { env, values })
    }
}

impl Store for Lmdb {
    fn settings(&self) -> String {
        "LMDB by heed 0.23: MDB_NOSYNC and mdb_env_sync a second, MDB_NORDAHEAD, as data exceeds memory".to_owned()
    }
    fn load(&self, keys: Range<u64>, value: &(dyn Fn(u64, &mut Vec<u8>) + Sync)) -> Result<()> {
        let mut bytes = Vec::new();
        let (mut next, end) = (keys.start, keys.end);
        while next < end {
            let last = (next + LOAD).min(end);
            let mut write = self.env.write_txn()?;
            for key in next..last {
                value(key, &mut bytes);
                // Keys come in their order, which LMDB takes at a higher speed (MDB_APPEND).
                self.values.put_with_flags(&mut write, PutFlags::APPEND, &key, &bytes)?;
            }
            write.commit()?;
            next = last;
        }
        Ok(())
    }
    fn client(&self) -> Box<dyn Client + '_> {
        Box::new(self)
    }
    fn sync(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }
    fn settle(&self) -> Result<()> {
        Ok(())
    }
}

impl Client for &Lmdb {
    fn get(&mut self, key: u64, look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let read = self.env.read_txn()?;
        let found = self.values.get(&read, &key)?;
        if let Some(value) = found {
            look(value);
        }
        Ok(found.is_some())
    }
    fn put(&mut self, key: u64, value: &[u8]) -> Result<()> {
        let mut write = self.env.write_txn()?;
        self.values.put(&mut write, &key, value)?;
        Ok(write.commit()?)
    }
    fn transfer(&mut self, from: u64, to: u64, amount: u64) -> Result<()> {
        let mut write = self.env.write_txn()?;
        let has = |write: &heed::RwTxn, key| balance(self.values.get(write, &key)?.context("an account")?);
        let (less, more) = (has(&write, from)?.wrapping_sub(amount), has(&write, to)?.wrapping_add(amount));
        self.values.put(&mut write, &from, &account(less))?;
        self.values.put(&mut write, &to, &account(more))?;
        Ok(write.commit()?)
    }
}
