//! A pin belongs to its fiber.
use fulgurite_memory::Address;
use fulgurite_runtime::Context;

fn job(context: &mut Context, a: Address) {
    let pin = context.pin(a).unwrap();
    std::thread::spawn(move || drop(pin));
}

fn main() {}
