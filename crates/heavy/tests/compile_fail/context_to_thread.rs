//! A context belongs to its fiber, and fibers to their thread.
use fulgurite_memory::{Address, RawMemory};
use fulgurite_runtime::Context;

fn job(context: &mut Context, a: Address) {
    std::thread::scope(|scope| {
        scope.spawn(move || context.view(a, 8).unwrap().load::<u64>(0));
    });
}

fn main() {}
