//! From a workload's name to its type, for the workloads that a program is built with.

use anyhow::{Context as _, Result};
use fulgurite_memory::{FiberLatch, Latch, NoLatch, VersionLatch};
use fulgurite_workloads::{UnknownWorkload, Visitor, WorkloadError};

use crate::child::protocol::Spec;
use crate::child::{Open, Runner};
use crate::image::{Build, OwnBytes};

/// What a workload made of it, if there is one of that name.
type Known<T> = Result<Result<T, WorkloadError>, UnknownWorkload>;

/// Workloads by name.
pub trait Catalog {
    /// Calls `visitor` with the workload of this name, over latches of type `L`.
    ///
    /// # Errors
    /// When there is none.
    fn dispatch<L: Latch, V: Visitor>(name: &str, visitor: V) -> Result<V::Output, UnknownWorkload>;
}

/// What can be done with the workloads of a [`Catalog`], which is a type.
#[derive(Clone, Copy, Debug)]
pub struct Workloads {
    build: fn(&str, Build) -> Known<()>,
    own_bytes: fn(&str, usize, OwnBytes) -> Known<u64>,
    open: fn(Spec) -> Result<Box<dyn Runner>>,
}

impl Workloads {
    /// The workloads of a catalog.
    pub const fn of<C: Catalog>() -> Workloads {
        Workloads { build: C::dispatch::<NoLatch, Build>, own_bytes: own_bytes::<C>, open: open::<C> }
    }
    pub(crate) fn build(self, name: &str, build: Build) -> Known<()> {
        (self.build)(name, build)
    }
    pub(crate) fn own_bytes(self, name: &str, workers: usize, own: OwnBytes) -> Known<u64> {
        (self.own_bytes)(name, workers, own)
    }
    pub(crate) fn open(self, spec: Spec) -> Result<Box<dyn Runner>> {
        (self.open)(spec)
    }
}

/// With the latches that the guarded path has.
fn own_bytes<C: Catalog>(name: &str, workers: usize, own: OwnBytes) -> Known<u64> {
    match workers {
        1 => C::dispatch::<FiberLatch, _>(name, own),
        _ => C::dispatch::<VersionLatch, _>(name, own),
    }
}

/// Opens a configuration, with the latch that its callers need.
fn open<C: Catalog>(spec: Spec) -> Result<Box<dyn Runner>> {
    let name = spec.workload.clone();
    // One thread needs no latch, one worker's fibers take turns, and threads do not.
    let opened = match (spec.config.guarded(), spec.threads) {
        (false, 1) => C::dispatch::<NoLatch, _>(&name, Open(spec))?,
        (true, _) if spec.cores.len() == 1 => C::dispatch::<FiberLatch, _>(&name, Open(spec))?,
        _ => C::dispatch::<VersionLatch, _>(&name, Open(spec))?,
    };
    opened.with_context(|| format!("{name} could not be opened"))
}
