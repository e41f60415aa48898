//! What is stored in flash is plain data: no references, no boxes.
use fulgurite_memory::{Memory, Ptr};
use fulgurite_runtime::Context;

fn job(context: &mut Context, at: Ptr<Box<u64>>) {
    context.store(at, Box::new(7)).unwrap();
}

fn main() {}
