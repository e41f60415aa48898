//! The workloads of the laboratory: all there are.

use fulgurite_harness::{Catalog, Workloads};
use fulgurite_memory::Latch;
use fulgurite_workloads::{UnknownWorkload, Visitor};

/// All workloads.
pub const WORKLOADS: Workloads = Workloads::of::<All>();

struct All;

impl Catalog for All {
    fn dispatch<L: Latch, V: Visitor>(name: &str, visitor: V) -> Result<V::Output, UnknownWorkload> {
        fulgurite_workloads::dispatch::<L, V>(name, visitor)
    }
}
