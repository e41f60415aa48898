//! The programs of SSDAlloc's evaluation. Each is written once for any allocator, and once more
//! with its data in blobs ([`rewritten`]).
//!
//! A program keeps its data where its allocator says, and reaches it by references of Rust. Lines
//! that name an allocator end in `// allocator`: they are what would be changed of a program that
//! used `malloc`.

pub mod array;
pub mod b_plus_tree;
pub mod hash_cache;
pub mod packet_cache;
mod rewritten;
pub mod slab_cache;

use anyhow::{Context, Result};

use super::memory::{Counted, Memory, MemoryPlan};
use super::program::{Drive, Plain, Program};
use crate::values::{AllocConfig, AllocProgram};

struct Allocated {
    plain: Box<dyn Plain>,
    memory: Memory,
}

impl Program for Allocated {
    fn keys(&self) -> u64 {
        self.plain.keys()
    }
    fn client(&self, drive: Drive<'_>) -> Result<()> {
        drive(&mut |request| self.plain.execute(request))
    }
    fn check(&self) -> Result<u64> {
        self.plain.check()
    }
    fn counted(&self) -> Option<Counted> {
        self.memory.counted()
    }
    fn describe(&self) -> String {
        self.memory.describe()
    }
}

/// Opens a program with `bytes` bytes of data.
///
/// # Errors
/// When the memory cannot be had.
pub fn open(program: AllocProgram, plan: &MemoryPlan, bytes: u64) -> Result<Box<dyn Program>> {
    let opened = match plan.config {
        AllocConfig::Blobs => rewritten::open(program, plan, bytes),
        _ => allocated(program, plan, bytes),
    };
    opened.with_context(|| format!("{program} could not be opened"))
}

fn allocated(program: AllocProgram, plan: &MemoryPlan, bytes: u64) -> Result<Box<dyn Program>> {
    let memory = Memory::start(plan, dram(program, bytes))?;
    let plain = match program {
        AllocProgram::Array => array::open(memory, bytes),
        AllocProgram::SlabCache => slab_cache::open(bytes),
        AllocProgram::BPlusTree => b_plus_tree::open(bytes),
        AllocProgram::PacketCache => packet_cache::open(bytes),
        AllocProgram::HashCache => hash_cache::open(memory, bytes),
    }?;
    Ok(Box::new(Allocated { plain, memory }))
}

/// The most objects that a program with `bytes` bytes of data has at a time.
pub fn objects_max(program: AllocProgram, bytes: u64) -> u64 {
    let count = match program {
        AllocProgram::Array | AllocProgram::HashCache => bytes / 128,
        AllocProgram::SlabCache => slab_cache::items(bytes),
        AllocProgram::BPlusTree => b_plus_tree::nodes(bytes),
        AllocProgram::PacketCache => bytes / packet_cache::PACKET_BYTES as u64,
    };
    // Each size, and each part of an array, begins a chunk of numbers.
    count + count / 16 + 65_536
}

/// DRAM that a program with `bytes` bytes of data needs in addition to its objects.
pub fn dram(program: AllocProgram, bytes: u64) -> u64 {
    match program {
        AllocProgram::SlabCache => slab_cache::dram(bytes),
        AllocProgram::PacketCache => packet_cache::dram(bytes),
        _ => 0,
    }
}

/// The number of a program's lines that are not comments, and how many of these a configuration
/// changes. Rewritten, these are all lines of the new program, which shares the others with the old
/// one.
pub fn lines(program: AllocProgram, config: AllocConfig) -> (usize, usize) {
    let (source, rewritten) = match program {
        AllocProgram::Array => (include_str!("array.rs"), include_str!("rewritten/array.rs")),
        AllocProgram::SlabCache => (include_str!("slab_cache.rs"), include_str!("rewritten/slab_cache.rs")),
        AllocProgram::BPlusTree => (include_str!("b_plus_tree.rs"), include_str!("rewritten/b_plus_tree.rs")),
        AllocProgram::PacketCache => (include_str!("packet_cache.rs"), include_str!("rewritten/packet_cache.rs")),
        AllocProgram::HashCache => (include_str!("hash_cache.rs"), include_str!("rewritten/hash_cache.rs")),
    };
    let code = |text: &'static str| {
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).collect::<Vec<_>>()
    };
    let all = code(source);
    let changed = match config {
        AllocConfig::Blobs => code(rewritten).len(),
        _ => all.iter().filter(|line| line.ends_with("// allocator")).count(),
    };
    (all.len(), changed)
}
