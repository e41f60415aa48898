//! Owned memory is reached as references: the frame of an owned subpage gives no view in addition
//! to them.
use fulgurite_memory::{Address, Pinned};
use fulgurite_runtime::Context;

fn job(context: &mut Context, a: Address) -> u64 {
    let frame = context.pin_owned(a).unwrap();
    Pinned::view(&frame, 0, 8).load::<u64>(0)
}

fn main() {}
