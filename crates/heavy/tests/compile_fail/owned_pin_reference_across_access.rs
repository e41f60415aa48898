//! A pin keeps the frame, but another fiber may change it at the next access: no reference stays.
use fulgurite_memory::{Memory, OwnedPin, Ptr};
use fulgurite_runtime::Context;

fn job(context: &mut Context, pin: &mut OwnedPin<u64>, q: Ptr<u64>) -> u64 {
    let value = pin.get_mut(context);
    *value += context.load(q).unwrap();
    *value
}

fn main() {}
