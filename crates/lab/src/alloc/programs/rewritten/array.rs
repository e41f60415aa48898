//! The array: a blob for each record.

use anyhow::{Context as _, Result};
use fulgurite::Context;
use zerocopy::{FromBytes, IntoBytes};

use super::flash::{Flash, Rewritten, all_keys};
use crate::alloc::memory::MemoryPlan;
use crate::alloc::program::Request;
use crate::alloc::programs::array::{WORDS, change, record, sum_of};

const RECORD_BYTES: usize = WORDS * 8;

struct Array {
    count: u64,
}

pub fn open(plan: &MemoryPlan, bytes: u64) -> Result<(Flash, Box<dyn Rewritten>)> {
    let count = bytes / RECORD_BYTES as u64;
    let flash = Flash::make(plan, count, RECORD_BYTES, 0)?;
    flash.fill(count, |key, value| value.extend_from_slice(record(key).as_bytes()))?;
    Ok((flash, Box::new(Array { count })))
}

impl Array {
    fn lookup(flash: &Flash, m: &mut Context, key: u64, value: &mut Vec<u8>) -> Result<u64> {
        flash.get(m, key, value)?;
        let words = <[u64; WORDS]>::read_from_bytes(value).ok().context("a record is cut short")?;
        sum_of(key, words)
    }
}

impl Rewritten for Array {
    fn keys(&self) -> u64 {
        self.count
    }
    fn execute(&self, flash: &Flash, m: &mut Context, Request { key, writes, number }: Request) -> Result<()> {
        if writes {
            let (at, word) = change(key, number);
            return flash.update(m, key, |value| {
                value[at * 8..][..8].copy_from_slice(&word.to_ne_bytes());
                Ok(())
            });
        }
        Array::lookup(flash, m, key, &mut Vec::new()).map(drop)
    }
    fn check(&self, flash: &Flash, m: &mut Context) -> Result<u64> {
        let (mut sum, mut value) = (0u64, Vec::new());
        for key in all_keys(self.count) {
            sum = sum.wrapping_add(Array::lookup(flash, m, key, &mut value)?);
        }
        Ok(sum)
    }
}
