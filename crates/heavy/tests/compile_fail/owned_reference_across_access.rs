//! A reference into an owned region dies at the next access, of whatever kind.
use fulgurite_memory::{Memory, OwnedRegion, Ptr};
use fulgurite_runtime::Context;

fn job(context: &mut Context, region: &OwnedRegion, p: Ptr<u64>, q: Ptr<u64>) -> u64 {
    let value = region.get_mut(context, p).unwrap();
    *value += context.load(q).unwrap();
    *value
}

fn main() {}
