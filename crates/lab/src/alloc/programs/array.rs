//! An array of records of 128 bytes: SSDAlloc's microbenchmark.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use fulgurite_workloads::mix;
use zerocopy::FromZeros;

use crate::alloc::memory::{Memory, Records};
use crate::alloc::program::{Plain, Request};
use crate::alloc::walk::walk;

pub(super) const WORDS: usize = 16;

/// A record: its key, then words that are made of the last write. Threads change it word by word.
#[derive(FromZeros)]
#[repr(C)]
struct Record([AtomicU64; WORDS]);

struct Array {
    records: Records<Record>, // allocator
}

/// A record that was written once.
pub(super) fn record(key: u64) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[0] = key + 1;
    words[1] = mix(key) | 1;
    words
}
/// Which word a write changes, and what it becomes: never 0.
pub(super) fn change(key: u64, number: u64) -> (usize, u64) {
    (1 + number as usize % (WORDS - 1), mix(key ^ number) | 1)
}
/// What is checked of a record: its key, and which words were ever written. Of two writes of a
/// word, either may be the last.
pub(super) fn sum_of(key: u64, words: [u64; WORDS]) -> Result<u64> {
    ensure!(words[0] == key + 1, "record {key} says that it is {}", words[0]);
    let written = words[1..].iter().filter(|word| **word != 0).count() as u64;
    Ok(mix(key ^ written << 32))
}

pub fn open(memory: Memory, bytes: u64) -> Result<Box<dyn Plain>> {
    let count = usize::try_from(bytes)? / size_of::<Record>();
    let make = |key: usize| Record(record(key as u64).map(AtomicU64::new));
    let records = memory.records(count, make)?; // allocator
    Ok(Box::new(Array { records }))
}

impl Plain for Array {
    fn keys(&self) -> u64 {
        self.records.len() as u64
    }
    fn execute(&self, Request { key, writes, number }: Request) -> Result<()> {
        let Record(words) = &self.records[key as usize];
        if writes {
            let (at, word) = change(key, number);
            words[at].store(word, Ordering::Relaxed);
            return Ok(());
        }
        std::hint::black_box(sum_of(key, words.each_ref().map(|word| word.load(Ordering::Relaxed)))?);
        Ok(())
    }
    fn check(&self) -> Result<u64> {
        let sums = walk(self.records.len(), |keys| {
            let mut sum = 0u64;
            for key in keys {
                let Record(words) = &self.records[key];
                let words = words.each_ref().map(|word| word.load(Ordering::Relaxed));
                sum = sum.wrapping_add(sum_of(key as u64, words)?);
            }
            Ok(sum)
        })?;
        Ok(sums.into_iter().fold(0, u64::wrapping_add))
    }
}
