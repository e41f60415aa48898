//! What is compared, behind one trait. Each store is set up as its documentation recommends for
//! data larger than memory, and says with what.

mod boxes;
mod fjall;
mod foyer;
mod fulgurite;
mod lmdb;
mod redb;

use std::ops::Range;
use std::path::Path;
use std::thread;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::drive::{Plan, Taken, drive};

/// A store, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    Fulgurite,
    /// Fulgurite over a pool that packs no objects: values are in frames of 4 KiB.
    #[value(skip)]
    FulguritePages,
    Redb,
    Fjall,
    /// By heed.
    Lmdb,
    Foyer,
    /// A hash map of the standard library, whose values are boxes.
    #[value(skip)]
    Boxes,
}

/// DRAM of Fulgurite.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Dram {
    /// The budget.
    pub total: u64,
    /// Of that, what caches objects.
    pub objects: u64,
}

impl Name {
    /// Whether it is one of Fulgurite's.
    pub fn ours(self) -> bool {
        matches!(self, Name::Fulgurite | Name::FulguritePages)
    }
    /// Whether it keeps every key, and what a sync has named. A cache does neither.
    pub fn keeps(self) -> bool {
        self != Name::Foyer
    }
    /// Whether it moves an amount in one transaction.
    pub fn has_transactions(self) -> bool {
        self != Name::Foyer
    }
    /// Whether it has a cache of its own, whose size is set.
    pub fn has_cache(self) -> bool {
        matches!(self, Name::Redb | Name::Fjall | Name::Foyer)
    }
    /// What it cannot do, in words.
    pub fn lacks(self) -> Option<&'static str> {
        match self {
            Name::Foyer => Some("is a cache: it may drop any key, and has no sync and no transactions"),
            Name::Lmdb => Some("may lose its file to a power failure between two syncs (MDB_NOSYNC)"),
            _ => None,
        }
    }
    /// What it is called in tables.
    pub fn label(self) -> &'static str {
        match self {
            Name::Fulgurite => "fulgurite",
            Name::FulguritePages => "fulgurite, 4 KiB",
            Name::Redb => "redb",
            Name::Fjall => "fjall",
            Name::Lmdb => "LMDB (heed)",
            Name::Foyer => "foyer, a cache",
            Name::Boxes => "std HashMap of boxes",
        }
    }
}

/// What a store is made for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spec {
    pub name: Name,
    /// An empty directory for its files.
    pub directory: std::path::PathBuf,
    pub keys: u64,
    pub value_bytes: usize,
    /// What its cgroup allows: the process, its caches and the page cache of its files.
    pub memory_bytes: u64,
    /// For Fulgurite; none: what the comparison with others sets.
    pub dram: Option<Dram>,
    pub workers: usize,
    /// Whether it holds accounts instead of values.
    pub bank: bool,
    /// How often the cache of its own was halved, because the kernel ended its process.
    pub halved: u32,
}

impl Spec {
    /// Keys and values.
    pub fn data_bytes(&self) -> u64 {
        self.keys * (self.value_bytes as u64 + 8)
    }
    /// Bytes for a cache of a store's own: a part of what its process and its clients leave of the
    /// limit. A store whose process the kernel ended gets half of that, and half again.
    pub fn cache_bytes(&self, process_bytes: u64, part: u64) -> u64 {
        ((self.memory_bytes.saturating_sub(process_bytes) / part) >> self.halved).max(1 << 20)
    }
}

/// One client's end.
pub trait Client {
    /// Shows the value of a key. False without the key.
    fn get(&mut self, key: u64, look: &mut dyn FnMut(&[u8])) -> Result<bool>;
    fn put(&mut self, key: u64, value: &[u8]) -> Result<()>;
    /// Moves an amount from one account to another, in one transaction.
    fn transfer(&mut self, from: u64, to: u64, amount: u64) -> Result<()>;
}

/// What checks a key and its value.
pub type Look<'l> = &'l (dyn Fn(u64, Option<&[u8]>) + Sync);

/// Clients that check all keys: enough to keep a disk busy.
const READERS: u64 = 32;

/// Keys in `count` parts of about one length, or fewer.
pub fn parts(keys: Range<u64>, count: u64) -> impl Iterator<Item = Range<u64>> {
    let step = (keys.end - keys.start).div_ceil(count).max(1);
    keys.clone().step_by(step as usize).map(move |from| from..(from + step).min(keys.end))
}

/// A store that is open.
pub trait Store: Send + Sync {
    /// Version and settings, for the report.
    fn settings(&self) -> String;
    /// Puts `keys` with what `value` makes of each, in their order, the way its documentation
    /// recommends for loading.
    fn load(&self, keys: Range<u64>, value: &(dyn Fn(u64, &mut Vec<u8>) + Sync)) -> Result<()>;
    /// A client for one thread.
    fn client(&self) -> Box<dyn Client + '_>;
    /// What was written until now survives a crash.
    fn sync(&self) -> Result<()>;
    /// Waits until its own threads have nothing left to do.
    fn settle(&self) -> Result<()>;
    /// Reads of flash until now, where it tells.
    fn flash_reads(&self) -> Option<u64> {
        None
    }
    /// Brings all keys into memory, as far as they fit.
    fn warm(&self, _keys: u64) -> Result<()> {
        Ok(())
    }
    /// Has several clients show the values of all keys; none where one is missing.
    fn each(&self, keys: Range<u64>, look: Look) -> Result<()> {
        thread::scope(|scope| {
            let show = |part: Range<u64>| {
                let mut client = self.client();
                for key in part {
                    if !client.get(key, &mut |bytes| look(key, Some(bytes)))? {
                        look(key, None);
                    }
                }
                Ok(())
            };
            let readers: Vec<_> = parts(keys, READERS).map(|part| scope.spawn(move || show(part))).collect();
            let ended = readers.into_iter().map(|reader| reader.join().map_err(|_| anyhow!("a reader panicked"))?);
            ended.collect()
        })
    }
    /// Has the plan's clients execute it: OS threads, each with a client.
    fn run(&self, plan: &Plan) -> Result<Vec<Taken>> {
        thread::scope(|scope| {
            let start = |number| scope.spawn(move || drive(&mut *self.client(), plan, number));
            let clients: Vec<_> = (0..plan.clients).map(start).collect();
            clients.into_iter().map(|client| client.join().map_err(|_| anyhow!("a client panicked"))?).collect()
        })
    }
}

/// Makes a store.
pub fn open(spec: &Spec) -> Result<Box<dyn Store>> {
    Ok(match spec.name {
        Name::Fulgurite | Name::FulguritePages => Box::new(fulgurite::Fulgurite::open(spec)?),
        Name::Redb => Box::new(redb::Redb::open(spec)?),
        Name::Fjall => Box::new(fjall::Fjall::open(spec)?),
        Name::Lmdb => Box::new(lmdb::Lmdb::open(spec)?),
        Name::Foyer => Box::new(foyer::Foyer::open(spec)?),
        Name::Boxes => Box::new(boxes::Boxes::default()),
    })
}

/// An account: its balance, and as much as makes 48 bytes of it.
pub const ACCOUNT_BYTES: usize = 48;
/// What an account has at first.
pub const FIRST_BALANCE: u64 = 1_000_000;

/// The balance of an account.
pub fn balance(account: &[u8]) -> Result<u64> {
    let bytes = account.first_chunk::<8>().ok_or_else(|| anyhow!("an account of {} bytes", account.len()))?;
    Ok(u64::from_le_bytes(*bytes))
}
/// An account with this balance.
pub fn account(balance: u64) -> [u8; ACCOUNT_BYTES] {
    let mut account = [0; ACCOUNT_BYTES];
    account[..8].copy_from_slice(&balance.to_le_bytes());
    account
}

/// Bytes that the files below a directory take on the disk.
pub fn bytes_on_disk(directory: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += if metadata.is_dir() { bytes_on_disk(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_keys_once() {
        for (keys, count) in [(0..1, 4), (3..13, 4), (0..4, 4), (0..1000, 32), (5..5, 3)] {
            let all: Vec<Range<u64>> = parts(keys.clone(), count).collect();
            assert!(all.len() as u64 <= count, "{all:?}");
            assert!(all.into_iter().flatten().eq(keys));
        }
    }
    #[test]
    fn a_cache_leaves_room_for_its_process() {
        let spec = |memory_bytes, halved| Spec {
            name: Name::Redb,
            directory: Default::default(),
            keys: 1,
            value_bytes: 1,
            memory_bytes,
            dram: None,
            workers: 1,
            bank: false,
            halved,
        };
        let bytes = |mib: u64, halved| spec(mib << 20, halved).cache_bytes(24 << 20, 2) >> 20;
        assert_eq!([bytes(320, 0), bytes(320, 1), bytes(320, 2), bytes(96, 0)], [148, 74, 37, 36]);
        assert_eq!(bytes(10, 0), 1, "a store has some cache in any case");
    }
}
