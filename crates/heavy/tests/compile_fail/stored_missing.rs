//! A record without the derive: the compiler says which to add.

use fulgurite_memory::Stored;

#[derive(Clone, Copy)]
struct Order {
    _number: u64,
}

fn named<V: Stored>(_: V) {}

fn main() {
    named(Order { _number: 1 });
}
