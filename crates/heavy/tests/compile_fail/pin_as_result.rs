//! A pin does not leave its job as a result, which goes to another thread.
use fulgurite_memory::Address;
use fulgurite_runtime::Runtime;

fn leak(runtime: &Runtime, a: Address) {
    let _ = runtime.submit(move |context| context.pin(a).unwrap());
}

fn main() {}
