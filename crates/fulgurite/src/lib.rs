//! Flash that passes for DRAM: a program sees a large byte-addressable memory in flash, a small DRAM cache sits in front of
//! it, and a miss costs a switch to another user-level thread, not a stall.
//!
//! ```
//! use fulgurite::{Fulgurite, Medium};
//!
//! # fn main() -> Result<(), fulgurite::Error> {
//! let memory = Fulgurite::builder(Medium::Memory { bytes: 64 << 20 }).dram("8M")?.start()?;
//! let users = memory.hash_map::<u64, [u8; 56]>(100_000)?;
//! let (map, value) = (users.clone(), [7; 56]);
//! memory.run(move |m| map.insert(m, &42, value))?;
//! assert_eq!(memory.run(move |m| users.get(m, &42))?, Some([7; 56]));
//! # Ok(())
//! # }
//! ```
//!
//! What may lie in such a memory is [`Plain`]: any bit pattern is a value, there is no padding and no pointer into the process.
//! Numbers and arrays of them are; types of your own become so by the derives of [`zerocopy`], which is re-exported, so that
//! its version fits. The attribute tells them where it is found:
//!
//! ```
//! use fulgurite::zerocopy::{FromBytes, Immutable, IntoBytes};
//! use fulgurite::{Fulgurite, KeyHash, Medium};
//!
//! #[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
//! #[zerocopy(crate = "fulgurite::zerocopy")]
//! #[repr(C)]
//! struct Place {
//!     row: u32,
//!     column: u32,
//! }
//! impl KeyHash for Place {}
//!
//! #[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable)]
//! #[zerocopy(crate = "fulgurite::zerocopy")]
//! #[repr(C)]
//! struct Weather {
//!     degrees: f32,
//!     wind: [f32; 2],
//! }
//!
//! # fn main() -> Result<(), fulgurite::Error> {
//! let memory = Fulgurite::builder(Medium::Memory { bytes: 64 << 20 }).dram("8M")?.start()?;
//! let grid = memory.hash_map::<Place, Weather>(10_000)?;
//! let (at, weather) = (Place { row: 3, column: 7 }, Weather { degrees: 21.5, wind: [1.0, -2.0] });
//! let map = grid.clone();
//! memory.run(move |m| map.insert(m, &at, weather))?;
//! assert_eq!(memory.run(move |m| grid.get(m, &at))?, Some(weather));
//! # Ok(())
//! # }
//! ```
//!
//! [`Fulgurite`] is the convenient front; everything that it is made of is re-exported, for those who want to choose the
//! medium, the policies, or the latch themselves. Layers below: `fulgurite-memory` (containers, pointers),
//! `fulgurite-runtime` (workers, misses), `fulgurite-flash` (media), `fulgurite-policy` (decisions).
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use fulgurite_flash::{EmulatedConfig, EmulatedFlash, FileConfig, FileFlash, Flash, MemoryFlash, VersionError};
pub use fulgurite_format::{Address, Plain, SUBPAGE_BYTES};
pub use fulgurite_memory::{
    AccessError, Array, BPlusTree, BPlusTreeRoot, BPlusTreeShape, Exclusive, FiberLatch, HashMap, HashMapRoot, Heap,
    KeyHash, Latch, LatchTable, Layout, Masstree, MasstreeRoot, MasstreeShape, Memory, NoLatch, OwnedPin, OwnedRegion,
    Pinned, PlainMemory, PlainPin, Ptr, RedBlackTree, RedBlackTreeRoot, Region, Reservation, VersionLatch, View,
    ViewMut, WriteSet, hash_bytes,
};
pub use fulgurite_policy::{AdmissionPolicy, PrefetchPolicy, ReplacementPolicy, SchedulingPolicy};
pub use fulgurite_runtime::{
    BuildError, Builder as RuntimeBuilder, Context, Durable, JobError, JobHandle, JobOptions, Next, Priority, Runtime,
    ServeError, Service, Statistics, SubmitError, SyncError, Synced, WriteSection,
};
pub use zerocopy;

/// Anything that can go wrong while a memory is set up or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A size that cannot be read.
    #[error(transparent)]
    Unit(#[from] fulgurite_format::ParseUnitError),
    /// The medium cannot be opened.
    #[error(transparent)]
    Open(#[from] fulgurite_flash::OpenError),
    /// The runtime cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// An access failed.
    #[error(transparent)]
    Access(#[from] AccessError),
}

/// Where the data lies.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Medium {
    /// A file that is created for this, of so many bytes, written once in full.
    NewFile {
        /// Where.
        path: PathBuf,
        /// How large; a multiple of 64 KiB.
        bytes: u64,
    },
    /// A file or block device whose contents are overwritten (this version keeps no directory of what lies in it).
    File {
        /// Which.
        path: PathBuf,
    },
    /// A device played by a thread on another core, with the latencies of flash.
    Emulated {
        /// How large.
        bytes: u64,
    },
    /// Plain memory, for tests.
    Memory {
        /// How large.
        bytes: u64,
    },
}

impl Medium {
    fn open(&self) -> Result<Arc<dyn Flash>, Error> {
        let subpages = |bytes: u64| u32::try_from(bytes / SUBPAGE_BYTES as u64).unwrap_or(u32::MAX);
        Ok(match self {
            Medium::NewFile { path, bytes } => Arc::new(FileFlash::open(&FileConfig::create(path, *bytes))?),
            Medium::File { path } => Arc::new(FileFlash::open(&FileConfig::existing(path))?),
            Medium::Emulated { bytes } => Arc::new(EmulatedFlash::new(EmulatedConfig::new(subpages(*bytes)))?),
            Medium::Memory { bytes } => Arc::new(MemoryFlash::new(subpages(*bytes))?),
        })
    }
}

/// Sets a [`Fulgurite`] up.
#[must_use = "call `start`"]
pub struct Builder {
    medium: Medium,
    dram_bytes: u64,
    adjust: Vec<Adjust>,
}

type Adjust = Box<dyn FnOnce(RuntimeBuilder) -> RuntimeBuilder>;

impl Builder {
    /// The DRAM budget as people write it: `"512M"`, `"2G"`. A hard cap on everything, metadata included.
    ///
    /// # Errors
    /// When it is no size.
    pub fn dram(mut self, size: &str) -> Result<Self, Error> {
        self.dram_bytes = fulgurite_format::parse_bytes(size)?;
        Ok(self)
    }
    /// How many OS threads run jobs.
    pub fn workers(self, count: usize) -> Self {
        self.with(move |runtime| runtime.workers(count))
    }
    /// Anything else that the runtime lets one choose.
    pub fn with(mut self, adjust: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder + 'static) -> Self {
        self.adjust.push(Box::new(adjust));
        self
    }
    /// Opens the medium and starts the workers.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::Build`].
    pub fn start(self) -> Result<Fulgurite, Error> {
        let flash = self.medium.open()?;
        // A file's requests cost a system call a batch, and its completions are worth sleeping for.
        let is_file = matches!(self.medium, Medium::NewFile { .. } | Medium::File { .. });
        let mut builder = Runtime::builder(flash).dram(self.dram_bytes);
        if is_file {
            builder = builder.submit_batch(4).spin(Duration::from_micros(20));
        }
        let runtime = self.adjust.into_iter().fold(builder, |builder, adjust| adjust(builder)).build()?;
        Ok(Fulgurite { runtime })
    }
}

/// A memory in flash, and the workers that run jobs on it.
///
/// This version does not keep what is in it: the medium is laid out anew at each start.
pub struct Fulgurite {
    runtime: Runtime,
}

impl Fulgurite {
    /// A memory on `medium`, with 64 MiB of DRAM and one worker unless said otherwise.
    pub fn builder(medium: Medium) -> Builder {
        Builder { medium, dram_bytes: 64 << 20, adjust: Vec::new() }
    }

    /// Runs `code` on a worker and waits for it. From any thread that is not a worker.
    ///
    /// # Errors
    /// What `code` returned.
    pub fn run<T: Send + 'static>(
        &self,
        code: impl FnOnce(&mut Context) -> Result<T, AccessError> + Send + 'static,
    ) -> Result<T, AccessError> {
        self.runtime.run(code)
    }

    /// Starts `code` on a worker; the handle can be waited for, awaited or used to cancel it.
    ///
    /// # Errors
    /// When the runtime is overloaded or shutting down.
    pub fn submit<T: Send + 'static>(
        &self,
        code: impl FnOnce(&mut Context) -> T + Send + 'static,
    ) -> Result<JobHandle<T>, SubmitError> {
        self.runtime.submit(code)
    }

    /// A region of `bytes`, shared by all workers.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`].
    pub fn region(&self, bytes: u64) -> Result<Region, AccessError> {
        let bytes = bytes.next_multiple_of(SUBPAGE_BYTES as u64);
        Ok(Region::new(self.runtime.reserve_shared(bytes)?, bytes))
    }

    /// A heap of `bytes`, for small objects and for the nodes of containers.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`], or what the medium says.
    pub fn heap(&self, bytes: u64) -> Result<Arc<Heap>, AccessError> {
        let region = self.region(bytes)?;
        self.run(move |m| Heap::create(m, region).map(Arc::new))
    }

    /// An empty hash map for about `capacity` entries, in a region and a heap of its own.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`], or what the medium says.
    pub fn hash_map<K, V>(&self, capacity: u64) -> Result<Arc<HashMap<K, V, VersionLatch>>, AccessError>
    where
        K: Plain + Eq + KeyHash + Send + Sync,
        V: Plain + Send + Sync,
    {
        let bytes = HashMap::<K, V, VersionLatch>::bytes_needed(capacity);
        let heap = self.heap((bytes / 2).max(1 << 20))?;
        let region = self.region(bytes)?;
        self.run(move |m| HashMap::create(m, region, heap, capacity, 1 << 12).map(Arc::new))
    }

    /// Changes the DRAM budget while running.
    ///
    /// # Errors
    /// [`BuildError`] when it is too small, or above what the runtime was built for (`dram_max`).
    pub fn set_dram(&self, bytes: u64) -> Result<(), BuildError> {
        self.runtime.set_dram(bytes)
    }

    /// What has been counted; as Prometheus text by [`Statistics::prometheus`].
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.runtime.statistics()
    }

    /// The runtime underneath.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}
