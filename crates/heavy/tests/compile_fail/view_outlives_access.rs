//! A view does not outlive the next access, which may give its frame away.
use fulgurite_memory::{Address, RawMemory};
use fulgurite_runtime::Context;

fn job(context: &mut Context, a: Address, b: Address) -> u64 {
    let view = context.view(a, 8).unwrap();
    context.view(b, 8).unwrap();
    view.load::<u64>(0)
}

fn main() {}
