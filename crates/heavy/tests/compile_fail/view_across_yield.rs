//! A view does not survive a yield.
use fulgurite_memory::{Address, RawMemory};
use fulgurite_runtime::Context;

fn job(context: &mut Context, a: Address) -> u64 {
    let view = context.view(a, 8).unwrap();
    context.yield_now().unwrap();
    view.load::<u64>(0)
}

fn main() {}
