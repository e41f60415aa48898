//! A map of arrays that are larger than a subpage: found by `cargo check`, not only by a build.
use fulgurite_memory::{HashMap, KeyHash, Stored, VersionLatch};

fn named<K: Stored + Eq + KeyHash, V: Stored>() -> Option<HashMap<K, V, VersionLatch>> {
    None
}

fn main() {
    named::<u64, [u8; 4096]>();
    named::<u64, [u8; 5000]>();
}
