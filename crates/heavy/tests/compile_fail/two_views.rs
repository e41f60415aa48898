//! Two views at once are two frames that one slot cannot protect.
use fulgurite_memory::{Address, RawMemory};
use fulgurite_runtime::Context;

fn job(context: &mut Context, a: Address, b: Address) -> u64 {
    let (first, second) = (context.view(a, 8).unwrap(), context.view(b, 8).unwrap());
    first.load::<u64>(0) + second.load::<u64>(0)
}

fn main() {}
