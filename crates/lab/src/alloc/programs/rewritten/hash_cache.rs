//! The index of an HTTP cache: a blob for each bin.

use anyhow::{Context as _, Result};
use fulgurite::Context;
use fulgurite_workloads::mix;
use zerocopy::{FromBytes, IntoBytes};

use super::flash::{Flash, Rewritten, all_keys};
use crate::alloc::memory::MemoryPlan;
use crate::alloc::program::Request;
use crate::alloc::programs::hash_cache::{Bin, bin_of, bins, keys};

struct Index {
    bins: u64,
}

pub fn open(plan: &MemoryPlan, bytes: u64) -> Result<(Flash, Box<dyn Rewritten>)> {
    let bins = bins(bytes);
    let flash = Flash::make(plan, bins, size_of::<Bin>(), 0)?;
    flash.fill(bins, |bin, value| value.extend_from_slice(Bin::new(bin, bins).as_bytes()))?;
    Ok((flash, Box::new(Index { bins })))
}

fn read(value: &[u8]) -> Result<Bin> {
    Bin::read_from_bytes(value).ok().context("a bin is cut short")
}

impl Rewritten for Index {
    fn keys(&self) -> u64 {
        keys(self.bins)
    }
    fn execute(&self, flash: &Flash, m: &mut Context, Request { key, writes, .. }: Request) -> Result<()> {
        let at = bin_of(key, self.bins);
        if writes {
            return flash.update(m, at, |value| {
                let mut bin = read(value)?;
                bin.insert(key);
                value.copy_from_slice(bin.as_bytes());
                Ok(())
            });
        }
        let mut value = Vec::new();
        flash.get(m, at, &mut value)?;
        read(&value)?.lookup(key)
    }
    fn check(&self, flash: &Flash, m: &mut Context) -> Result<u64> {
        let (mut count, mut value) = (0, Vec::new());
        for bin in all_keys(self.bins) {
            flash.get(m, bin, &mut value)?;
            count += read(&value)?.count()?;
        }
        Ok(mix(count))
    }
}
