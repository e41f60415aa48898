//! Roots: a number of 64 bits under a name, such as the address of what a program begins with.

use std::ffi::c_char;
use std::sync::Arc;

use fulgurite::{Memory, views::Ptr};

use crate::argument::{self, give};
use crate::context::{fulgurite_context, run};
use crate::failure::{Failure, guard};
use crate::open::Open;
use crate::pool::fulgurite_pool;
use crate::status::fulgurite_status::{self, *};
use crate::watched_root::{WatchedRoot, entry};

/// A number of 64 bits in a pool. It is read and written in one piece, by any thread and any job.
pub struct fulgurite_root {
    pool: Arc<Open>,
    at: Ptr<u64>,
    watched_root: Arc<WatchedRoot>,
}

/// Opens the root of this name, or makes one that holds `first` where the name is new.
///
/// Fails with FULGURITE_WRONG_TYPE when the name leads to something else, with FULGURITE_NO_SPACE,
/// FULGURITE_NO_POOL and FULGURITE_IN_A_JOB. Then `*root` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_root_open(
    pool: *mut fulgurite_pool,
    name: *const c_char,
    first: u64,
    root: *mut *mut fulgurite_root,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        unsafe {
            let root = argument::out(root, "root")?;
            root.write(std::ptr::null_mut());
            let pool = &argument::handle(pool, "pool")?.0;
            let name = argument::text(name, "name")?;
            let made = pool.with(|memory| {
                let at = memory.named(name).value(first)?;
                let lost = || Failure::new(FULGURITE_NOT_FOUND, "the root was removed while it was opened");
                let entry = entry(memory, name)?.ok_or_else(lost)?;
                Ok(fulgurite_root { pool: pool.clone(), at, watched_root: pool.watch(WatchedRoot::new(entry, None)) })
            })?;
            root.write(give(made));
        }
        Ok(())
    })
}

/// Frees a handle. The root stays in its pool. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_root_free(root: *mut fulgurite_root) {
    // SAFETY: the contract of the module `lib`. There is nothing to return an error by.
    let _ = guard(|| unsafe { argument::free(root, "root") });
}

/// Stores the number of a root in `*value`.
///
/// Fails with FULGURITE_POISONED when it was rolled back or removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_root_load(
    context: *mut fulgurite_context,
    root: *mut fulgurite_root,
    value: *mut u64,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (context, root, value) = unsafe {
            let context = argument::handle_or_null(context, "context")?;
            (context, argument::handle(root, "root")?, argument::out(value, "value")?)
        };
        root.watched_root.check()?;
        let at = root.at;
        value.write(run(context, &root.pool, move |m| m.load(at))?);
        Ok(())
    })
}

/// Changes the number of a root.
///
/// Fails as fulgurite_root_load(), and with FULGURITE_NO_SPACE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_root_store(
    context: *mut fulgurite_context,
    root: *mut fulgurite_root,
    value: u64,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (context, root) =
            unsafe { (argument::handle_or_null(context, "context")?, argument::handle(root, "root")?) };
        root.watched_root.check()?;
        let at = root.at;
        run(context, &root.pool, move |m| m.store(at, value))
    })
}
