//! The cache of values: a blob for each, which begins with the number of its last set.

use anyhow::{Context as _, Result, ensure};
use fulgurite::Context;

use super::flash::{Flash, Rewritten, all_keys};
use crate::alloc::memory::MemoryPlan;
use crate::alloc::program::Request;
use crate::alloc::programs::slab_cache::{SIZES, class, fill, is_filled, items, sum_of};

struct Cache {
    keys: u64,
}

pub fn open(plan: &MemoryPlan, bytes: u64) -> Result<(Flash, Box<dyn Rewritten>)> {
    let keys = items(bytes);
    let flash = Flash::make(plan, keys, (bytes / keys) as usize, 0)?;
    flash.fill(keys, |key, value| value.extend_from_slice(&item(key, 0)))?;
    Ok((flash, Box::new(Cache { keys })))
}

fn item(key: u64, number: u64) -> Vec<u8> {
    let mut value = vec![0; 8 + SIZES[class(key)]];
    value[..8].copy_from_slice(&number.to_ne_bytes());
    fill(key, number, &mut value[8..]);
    value
}

impl Cache {
    fn lookup(flash: &Flash, m: &mut Context, key: u64, value: &mut Vec<u8>) -> Result<u64> {
        flash.get(m, key, value)?;
        let (number, value) = value.split_first_chunk().context("a value is cut short")?;
        ensure!(is_filled(key, u64::from_ne_bytes(*number), value), "the value of {key} is not what was set");
        Ok(sum_of(key, value))
    }
}

impl Rewritten for Cache {
    fn keys(&self) -> u64 {
        self.keys
    }
    fn execute(&self, flash: &Flash, m: &mut Context, Request { key, writes, number }: Request) -> Result<()> {
        if writes {
            flash.blobs.put(m, &key, &item(key, number))?;
            return Ok(());
        }
        Cache::lookup(flash, m, key, &mut Vec::new()).map(drop)
    }
    fn check(&self, flash: &Flash, m: &mut Context) -> Result<u64> {
        let (mut sum, mut value) = (0u64, Vec::new());
        for key in all_keys(self.keys) {
            sum = sum.wrapping_add(Cache::lookup(flash, m, key, &mut value)?);
        }
        Ok(sum)
    }
}
