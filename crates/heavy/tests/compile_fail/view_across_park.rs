//! A view does not survive waiting for a latch.
use fulgurite_memory::{Address, Latch, RawMemory, VersionLatch};
use fulgurite_runtime::Context;

fn job(context: &mut Context, latch: &VersionLatch, a: Address) -> u64 {
    let view = context.view_mut(a, 8).unwrap();
    let _held = latch.lock(context).unwrap();
    view.load::<u64>(0)
}

fn main() {}
