//! The programs, rewritten: their data are in blobs, which they copy out and in. What a program had
//! allocated has a key instead of an address. Its clients are jobs.

mod array;
mod b_plus_tree;
mod flash;
mod hash_cache;
mod packet_cache;
mod slab_cache;

use anyhow::Result;
use fulgurite_format::SUBPAGE_BYTES;

use crate::alloc::memory::{Counted, MemoryPlan};
use crate::alloc::program::{Drive, Program};
use crate::values::AllocProgram;
use flash::{Flash, Rewritten};
use fulgurite_harness::Usage;

/// Opens a program.
///
/// # Errors
/// When the pool or the memory cannot be had.
pub fn open(program: AllocProgram, plan: &MemoryPlan, bytes: u64) -> Result<Box<dyn Program>> {
    let (flash, program): (Flash, Box<dyn Rewritten>) = match program {
        AllocProgram::Array => array::open(plan, bytes)?,
        AllocProgram::SlabCache => slab_cache::open(plan, bytes)?,
        AllocProgram::BPlusTree => b_plus_tree::open(plan, bytes)?,
        AllocProgram::PacketCache => packet_cache::open(plan, bytes)?,
        AllocProgram::HashCache => hash_cache::open(plan, bytes)?,
    };
    Ok(Box::new(Running { program, flash }))
}

struct Running {
    program: Box<dyn Rewritten>,
    flash: Flash,
}

impl Program for Running {
    fn keys(&self) -> u64 {
        self.program.keys()
    }
    fn client(&self, drive: Drive<'_>) -> Result<()> {
        self.flash.job(|m| drive(&mut |request| self.program.execute(&self.flash, m, request)))
    }
    fn check(&self) -> Result<u64> {
        self.flash.job(|m| self.program.check(&self.flash, m))
    }
    fn counted(&self) -> Option<Counted> {
        let statistics = self.flash.memory.statistics();
        let counts = statistics.total().counts;
        Some(Counted {
            faults: counts.misses + counts.misses_joined + counts.fresh,
            reads: statistics.device.reads,
            bytes_written: Usage::now().blocks_written * SUBPAGE_BYTES as u64,
        })
    }
    fn describe(&self) -> String {
        self.flash.described.clone()
    }
}
