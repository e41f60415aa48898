//! What holds a program's data: the allocators, behind one type each for arrays and for objects.

use std::ops::{Index, IndexMut};
use std::path::{Path, PathBuf};

use allocator_api2::vec::Vec as AnyVec;
use anyhow::{Context, Result, ensure};
use fulgurite_alloc::{Allocator, Mode, ObjectAllocator, ObjectSettings, ObjectValues};
use fulgurite_backing::Medium;
use serde::{Deserialize, Serialize};
use zerocopy::FromZeros;

use crate::kernel::{Heap, Mapped, resident_bytes};
use crate::values::AllocConfig;

pub use crate::kernel::Slab;

/// What one configuration has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryPlan {
    pub config: AllocConfig,
    /// DRAM of the process, as its cgroup limits it.
    pub limit_bytes: u64,
    /// The most objects that the program has at a time.
    pub objects_max: u32,
    /// Clients of the program.
    pub threads: usize,
    /// A file that does not exist yet. The parent removes it.
    pub file: PathBuf,
    pub file_bytes: u64,
}

/// What has been counted since the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    /// Accesses that found no page.
    pub faults: u64,
    /// Of these, those that read flash.
    pub reads: u64,
    pub bytes_written: u64,
}

/// What a process has in addition to what its allocator counts: kernel memory of rings and page
/// tables.
pub const UNCOUNTED_BYTES: u64 = 6 << 20;

/// The allocator of a process under measurement.
#[derive(Clone, Copy)]
pub struct Memory(Heap);

impl Memory {
    /// Starts the allocator of a configuration, once in a process. It may use all of the DRAM that
    /// the process does not use yet, but for what its program is going to take.
    pub fn start(plan: &MemoryPlan, program_bytes: u64) -> Result<Memory> {
        let MemoryPlan { config, limit_bytes, objects_max, ref file, file_bytes, .. } = *plan;
        let medium = || Medium::new_file(file, file_bytes);
        let objects = |mode| -> Result<Heap> {
            let own = resident_bytes()?;
            let dram = limit_bytes
                .checked_sub(own + program_bytes + UNCOUNTED_BYTES)
                .context("the process alone fills its DRAM")?;
            let settings = ObjectSettings { mode, ..ObjectSettings::new(medium(), dram, objects_max) };
            Ok(Heap::Objects(ObjectAllocator::start(&settings)?))
        };
        let pages = |mode| -> Result<Heap> {
            Ok(Heap::Pages(Allocator::start_in(mode, medium(), limit_bytes - UNCOUNTED_BYTES)?))
        };
        let heap = match config {
            AllocConfig::ObjectPerPage => objects(Mode::InLine)?,
            AllocConfig::ObjectPerPageCompatible => objects(Mode::Compatible)?,
            AllocConfig::MemoryPage => pages(Mode::Compatible)?,
            AllocConfig::MemoryPageInLine => pages(Mode::InLine)?,
            AllocConfig::OsSwap => Heap::Mapped(Mapped::anonymous(file_bytes)?),
            AllocConfig::Mmap => Heap::Mapped(Mapped::file(&new_file(file, file_bytes)?, file_bytes)?),
            AllocConfig::Blobs => anyhow::bail!("blobs are no allocator"),
        };
        ensure!(Slab::begin(heap), "an allocator was started before");
        Ok(Memory(heap))
    }

    /// An array of `count` records, each made by its index.
    pub fn records<T: FromZeros>(&self, count: usize, mut make: impl FnMut(usize) -> T) -> Result<Records<T>> {
        if let Heap::Objects(objects) = self.0 {
            let mut values = objects.values(u32::try_from(count)?).context("the memory is full")?;
            (0..count).for_each(|index| values[index] = make(index));
            return Ok(Records::Objects(values));
        }
        let mut vector = AnyVec::new_in(Slab);
        vector.try_reserve_exact(count).ok().context("the memory is full")?;
        vector.extend((0..count).map(make));
        Ok(Records::Vector(vector))
    }

    /// What the allocator has counted. Nothing for the kernel's, which counts by process.
    pub fn counted(&self) -> Option<Counted> {
        match self.0 {
            Heap::Objects(objects) => {
                let summary = objects.summary();
                let (faults, reads, bytes_written) = (summary.faults, summary.reads, summary.bytes_written);
                Some(Counted { faults, reads, bytes_written })
            }
            Heap::Pages(pages) => {
                let summary = pages.summary();
                let bytes_written = summary.evicted_dirty * 4096;
                Some(Counted { faults: summary.faults, reads: summary.reads, bytes_written })
            }
            Heap::Mapped(_) => None,
        }
    }
    /// How it works, in a line.
    pub fn describe(&self) -> String {
        match self.0 {
            Heap::Objects(objects) => objects.describe().to_owned(),
            Heap::Pages(pages) => pages.describe().to_owned(),
            Heap::Mapped(_) => "pages of the kernel".to_owned(),
        }
    }
}

fn new_file(path: &Path, bytes: u64) -> Result<std::fs::File> {
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(path)?;
    file.set_len(bytes)?;
    Ok(file)
}

/// An array of records, in whichever memory.
pub enum Records<T> {
    Objects(ObjectValues<T>),
    Vector(AnyVec<T, Slab>),
}

impl<T> Records<T> {
    pub fn len(&self) -> usize {
        match self {
            Records::Objects(values) => values.len(),
            Records::Vector(vector) => vector.len(),
        }
    }
}

impl<T> Index<usize> for Records<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: usize) -> &T {
        match self {
            Records::Objects(values) => &values[index],
            Records::Vector(vector) => &vector[index],
        }
    }
}

impl<T> IndexMut<usize> for Records<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        match self {
            Records::Objects(values) => &mut values[index],
            Records::Vector(vector) => &mut vector[index],
        }
    }
}
