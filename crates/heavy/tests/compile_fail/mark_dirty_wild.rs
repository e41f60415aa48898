//! Which byte is dirty is for the access to say.
use std::ptr::NonNull;

use fulgurite_runtime::Context;

fn job(context: &mut Context) {
    context.mark_dirty(NonNull::dangling());
}

fn main() {}
