//! The index of an HTTP cache, after HashCache: a table of bins. A bin has the locations of a few
//! objects, with their recency, in adjacent memory.

use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use fulgurite_workloads::mix;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::alloc::memory::{Memory, Records};
use crate::alloc::program::{Plain, Request};
use crate::alloc::walk::walk;

/// Entries of a bin: HashCache-SetMem's sets have 8.
const ENTRIES: usize = 8;
/// Objects that belong into a bin: some of them have left.
const OBJECTS: u64 = 10;
/// Parts of the table, with a lock each, where each has `BINS` bins.
const LOCKS: usize = 256;
const BINS: usize = 4096;

/// Where an object is stored on disk, found by its hash.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Entry {
    hash: u64,
    location: u64,
}

/// A bin: the entry that was used last comes first.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Bin([Entry; ENTRIES]);

struct Index {
    parts: Vec<Mutex<Records<Bin>>>, // allocator
    /// All of them.
    bins: u64,
}

pub fn open(memory: Memory, bytes: u64) -> Result<Box<dyn Plain>> {
    let all = bins(bytes);
    let locks = LOCKS.min(all as usize / BINS).max(1);
    let part = |part: usize| -> Result<_> {
        let make = |bin: usize| Bin::new((bin * locks + part) as u64, all);
        let records = memory.records((all as usize - part).div_ceil(locks), make)?; // allocator
        Ok(Mutex::new(records))
    };
    let parts = (0..locks).map(part).collect::<Result<Vec<_>>>()?;
    Ok(Box::new(Index { parts, bins: all }))
}

/// Bins that take `bytes` bytes together.
pub fn bins(bytes: u64) -> u64 {
    bytes / size_of::<Bin>() as u64
}
/// Objects that `bins` bins hold.
pub fn keys(bins: u64) -> u64 {
    bins * OBJECTS
}
/// The bin of an object. Whatever number a key has, it always shares a bin with the same keys.
pub fn bin_of(key: u64, bins: u64) -> u64 {
    key % bins
}

impl Entry {
    /// What is known of an object.
    fn of(key: u64) -> Entry {
        Entry { hash: mix(key), location: mix(mix(key) ^ 1) }
    }
}

impl Bin {
    /// A bin with the first of its objects.
    pub fn new(bin: u64, bins: u64) -> Bin {
        Bin(std::array::from_fn(|at| Entry::of(bin + at as u64 * bins)))
    }
    /// The object becomes the one that was used last. The one that was not used for longest leaves.
    pub fn insert(&mut self, key: u64) {
        let (Bin(entries), new) = (self, Entry::of(key));
        let at = entries.iter().position(|entry| entry.hash == new.hash).unwrap_or(ENTRIES - 1);
        entries[..=at].rotate_right(1);
        entries[0] = new;
    }
    /// Looks for an object, which may have left.
    pub fn lookup(&self, key: u64) -> Result<()> {
        let wanted = Entry::of(key);
        let found = self.0.iter().find(|entry| entry.hash == wanted.hash);
        ensure!(found.is_none_or(|found| found.location == wanted.location), "object {key} is elsewhere");
        Ok(())
    }
    /// How many different objects it has.
    pub fn count(&self) -> Result<u64> {
        for (at, entry) in self.0.iter().enumerate() {
            ensure!(entry.location == mix(entry.hash ^ 1), "an object of a bin is elsewhere");
            ensure!(self.0[..at].iter().all(|other| other.hash != entry.hash), "an object is in a bin twice");
        }
        Ok(ENTRIES as u64)
    }
}

impl Index {
    fn with<R>(&self, key: u64, act: impl FnOnce(&mut Bin) -> R) -> Result<R> {
        let (bin, parts) = (bin_of(key, self.bins) as usize, self.parts.len());
        let mut part = self.parts[bin % parts].lock().ok().context("another thread failed")?;
        Ok(act(&mut part[bin / parts]))
    }
}

impl Plain for Index {
    fn keys(&self) -> u64 {
        keys(self.bins)
    }
    fn execute(&self, Request { key, writes, .. }: Request) -> Result<()> {
        if writes {
            return self.with(key, |bin| bin.insert(key));
        }
        self.with(key, |bin| bin.lookup(key))?
    }
    fn check(&self) -> Result<u64> {
        let counts = walk(self.parts.len(), |parts| {
            let mut count = 0;
            for part in &self.parts[parts] {
                let part = part.lock().ok().context("another thread failed")?;
                for bin in 0..part.len() {
                    count += part[bin].count()?;
                }
            }
            Ok(count)
        })?;
        // Which there are depends on their order.
        Ok(mix(counts.into_iter().sum()))
    }
}
