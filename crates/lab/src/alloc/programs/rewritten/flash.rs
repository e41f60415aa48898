//! Blobs under numbers, in a pool, and programs over them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fulgurite::{Blobs, Context, Fulgurite, JobOptions, KeyHash as _, Medium, Rooted};
use fulgurite_format::format_bytes;

use crate::alloc::memory::{MemoryPlan, UNCOUNTED_BYTES};
use crate::alloc::program::Request;
use crate::kernel::resident_bytes;

/// DRAM that an object of a pool takes, in DRAM or not.
const OBJECT_BYTES: u64 = 16;
/// Stacks of fibers: a build without optimisation takes more than the 32 KiB of a runtime.
const STACK_BYTES: usize = 128 << 10;
/// DRAM from which on a pool packs objects. With a cache and tables of its own it needs 25 MiB.
const PACKING_BYTES: u64 = 64 << 20;

/// Parts of an index that are walked one after the other. Each is far smaller than the DRAM.
const INDEX_PARTS: u64 = 64;

/// The part of an index of `keys` keys that holds a key. A map names its buckets by the bits of the
/// hash above the seven low ones, as many as it has come to need.
fn part_of_index(key: u64, keys: u64) -> u64 {
    let bits = keys.max(INDEX_PARTS).ilog2();
    (key.key_hash() >> 7 & ((1 << bits) - 1)) >> (bits - INDEX_PARTS.ilog2())
}

/// All keys, one part of the index after the other. Each key in its own turn would read a subpage
/// of the index, and write it while the index is filled.
pub fn all_keys(keys: u64) -> impl Iterator<Item = u64> {
    (0..INDEX_PARTS).flat_map(move |part| (0..keys).filter(move |key| part_of_index(*key, keys) == part))
}

/// Blobs under numbers, in a pool in a file.
pub struct Flash {
    // Before the memory, which ends with a sync.
    pub blobs: Arc<Rooted<Blobs<u64>>>,
    pub memory: Fulgurite,
    pub described: String,
}

/// A program over them.
pub trait Rewritten: Send + Sync {
    /// As [`crate::alloc::program::Program::keys`].
    fn keys(&self) -> u64;
    /// As [`crate::alloc::program::Plain::execute`].
    ///
    /// # Errors
    /// As that.
    fn execute(&self, flash: &Flash, m: &mut Context, request: Request) -> Result<()>;
    /// As [`crate::alloc::program::Program::check`].
    ///
    /// # Errors
    /// As that.
    fn check(&self, flash: &Flash, m: &mut Context) -> Result<u64>;
}

impl Flash {
    /// Makes a pool for `keys` values of `value_bytes` bytes each. Its DRAM is what the process
    /// does not use, less `program_bytes` for the program itself. It packs objects where there is
    /// DRAM for that, and their tables take an eighth of it at most.
    pub fn make(plan: &MemoryPlan, keys: u64, value_bytes: usize, program_bytes: u64) -> Result<Flash> {
        let own = resident_bytes()? + UNCOUNTED_BYTES + program_bytes;
        let dram = plan.limit_bytes.checked_sub(own).context("the process alone fills its DRAM")?;
        let medium = Medium::new_pool(&plan.file, plan.file_bytes);
        let packs = dram >= PACKING_BYTES && keys * OBJECT_BYTES * 8 <= dram;
        let medium = if packs { medium.objects(keys + keys / 8) } else { medium };
        let fibers = plan.threads + 2;
        let memory = Fulgurite::builder(medium)
            .dram(dram)
            // Another one would take as much DRAM again for itself.
            .workers(1)
            // Clients are jobs that run as long as a round.
            .with(move |runtime| runtime.run_limit(Duration::from_secs(600)).stack(STACK_BYTES).fibers(fibers))
            .start()?;
        let blobs = memory.named("data").blobs(keys + keys / 8, keys * (value_bytes as u64 + 8))?;
        let described = format!(
            "blobs {} in a pool, {} of DRAM, one worker",
            if packs { "as objects" } else { "in pages" },
            format_bytes(dram)
        );
        Ok(Flash { blobs, memory, described })
    }

    /// Puts all values, each made by its key.
    pub fn fill(&self, keys: u64, make: impl Fn(u64, &mut Vec<u8>) + Send) -> Result<()> {
        self.job(move |m| {
            let mut value = Vec::new();
            for key in all_keys(keys) {
                value.clear();
                make(key, &mut value);
                self.blobs.put(m, &key, &value)?;
            }
            Ok(())
        })
    }

    pub fn job<T: Send>(&self, code: impl FnOnce(&mut Context) -> Result<T> + Send) -> Result<T> {
        self.memory.run_with(&JobOptions::new().name("client").pins(8), |m| Ok(code(m)))?
    }

    /// Copies a value out, which is there.
    pub fn get(&self, m: &mut Context, key: u64, into: &mut Vec<u8>) -> Result<()> {
        ensure!(self.blobs.get(m, &key, into)?, "{key} was put and is not there");
        Ok(())
    }
    /// Changes a value, which is there.
    pub fn update<T>(&self, m: &mut Context, key: u64, change: impl FnOnce(&mut [u8]) -> Result<T>) -> Result<T> {
        let changed = self.blobs.update(m, &key, |value| change(value))?;
        changed.with_context(|| format!("{key} was put and is not there"))?
    }
}
