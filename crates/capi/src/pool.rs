//! Pools: open and close, sync and roll back, tokens, and the names of what is in them.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use crate::argument::{self, give};
use crate::failure::{Failure, guard};
use crate::open::Open;
use crate::options::fulgurite_options;
use crate::region;
use crate::status::fulgurite_status::{self, *};
use crate::watched_root::WatchedRoot;

/// An open memory in flash: a pool, which outlives the program, or flat memory, which does not. Any
/// thread may use it.
pub struct fulgurite_pool(pub(crate) Arc<Open>);

/// Shows a name of a pool: a string each for the name and the type of what it leads to, and how
/// many bytes that takes. The strings last as long as the call. It runs on the caller's thread.
pub type fulgurite_name_visitor =
    Option<unsafe extern "C" fn(user: *mut c_void, name: *const c_char, type_name: *const c_char, bytes: u64)>;

/// Opens a memory, and starts its workers. The options are not changed, and may be used again.
///
/// Fails with FULGURITE_BAD_OPTION, before anything is touched, with FULGURITE_CANNOT_OPEN, and
/// with FULGURITE_NO_MEMORY. Then `*pool` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_open(
    options: *const fulgurite_options,
    pool: *mut *mut fulgurite_pool,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (options, pool) = unsafe { (argument::handle(options, "options"), argument::out(pool, "pool")) };
        let pool = pool?;
        pool.write(std::ptr::null_mut());
        let (builder, keeps) = options?.builder()?;
        crate::open::refuse_on_worker()?;
        let open = Open::new(builder.start()?, keeps);
        pool.write(give(fulgurite_pool(Arc::new(open))));
        Ok(())
    })
}

/// Closes a memory and frees its handle. A pool is synced before. Calls of other threads end first,
/// as do jobs that have started. What those write after this call began is lost, so wait for them
/// before. Other handles of the memory say FULGURITE_CLOSED from then on, and are still to be
/// freed. NULL is none.
///
/// A child after fork() has no workers: there, this and every other function that takes a handle
/// of the memory fails with FULGURITE_FORKED, and the parent goes on.
///
/// When the sync fails, with the errors of fulgurite_sync(), the pool stays open: make room and
/// close it again, or call fulgurite_abandon().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_close(pool: *mut fulgurite_pool) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { close(pool, true) })
}

/// Closes a memory and frees its handle, whether or not it can be synced. NULL is none.
///
/// Fails with FULGURITE_IN_A_JOB and FULGURITE_FORKED only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_abandon(pool: *mut fulgurite_pool) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { close(pool, false) })
}

/// # Safety
/// As of [`argument::take`].
unsafe fn close(pool: *mut fulgurite_pool, must_sync: bool) -> Result<(), Failure> {
    crate::open::refuse_on_worker()?;
    // SAFETY: the caller's contract.
    let Some(handle) = unsafe { argument::handle_or_null(pool, "pool") }? else { return Ok(()) };
    handle.0.check_process()?;
    if must_sync && handle.0.keeps {
        handle.0.with(|memory| match memory.sync() {
            Ok(_) | Err(fulgurite::Error::OnlyCache) => Ok(()),
            Err(error) => Err(error.into()),
        })?;
    }
    // SAFETY: the caller's contract; the reference from before is not used any more.
    let handle = unsafe { argument::take(pool, "pool") }?;
    drop(handle.0.close());
    Ok(())
}

/// Runs a call with a pool's memory, from a thread that is no worker.
///
/// # Safety
/// As of [`argument::handle`].
unsafe fn with<T>(
    pool: *const fulgurite_pool,
    call: impl FnOnce(&fulgurite::Fulgurite, &Open) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // SAFETY: the caller's contract.
    let pool = unsafe { argument::handle(pool, "pool") }?;
    pool.0.with(|memory| call(memory, &pool.0))
}

/// Makes the state of everything durable, and stores its token, unless `token` is NULL. The state
/// is one between write sections. It waits for those that are open, and not for jobs.
///
/// Fails with FULGURITE_NO_POOL, with FULGURITE_BAD_OPTION for a pool that is only a cache, with
/// FULGURITE_NO_SPACE and FULGURITE_BUSY, after which it may be tried again, with FULGURITE_IO and
/// FULGURITE_POISONED, after which the pool takes no more changes, and with FULGURITE_IN_A_JOB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_sync(pool: *mut fulgurite_pool, token: *mut u64) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (token, named) =
            unsafe { (argument::out_or_null(token, "token")?, with(pool, |memory, _| Ok(memory.sync()?))?) };
        if let Some(token) = token {
            token.write(named);
        }
        Ok(())
    })
}

/// Makes the state of a token again, in DRAM and in the pool. Newer tokens are gone. Handles of
/// what that state does not have say FULGURITE_POISONED from then on.
///
/// Fails with FULGURITE_NOT_FOUND when there is no such token, and with FULGURITE_BUSY when a newer
/// one is pinned or being read, or when jobs hold pins: nothing has changed then. After
/// FULGURITE_POISONED the pool is to be closed and opened again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_roll_back(pool: *mut fulgurite_pool, token: u64) -> fulgurite_status {
    let call = |memory: &fulgurite::Fulgurite, open: &Open| {
        memory.roll_back(token)?;
        let roots = memory.roots()?;
        for watched_root in open.watched_roots() {
            if !matches!(watched_root.is_there(memory, &roots), Ok(true)) {
                watched_root.abandon();
            }
        }
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { with(pool, call) })
}

/// Stores up to `capacity` of the tokens that are kept, oldest first, and in `*count` how many
/// there are. `tokens` may be NULL when `capacity` is 0.
///
/// Fails with FULGURITE_BUFFER_TOO_SMALL when there are more: the oldest were stored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_tokens(
    pool: *mut fulgurite_pool,
    tokens: *mut u64,
    capacity: usize,
    count: *mut usize,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let count = unsafe { argument::out(count, "count") }?;
        if capacity > 0 {
            // SAFETY: as above. Only the pointer itself is checked here.
            unsafe { argument::out(tokens, "tokens") }?;
        }
        // SAFETY: the contract of the module `lib`.
        let kept = unsafe { with(pool, |memory, _| Ok(memory.tokens()?)) }?;
        count.write(kept.len());
        for (i, token) in kept.iter().take(capacity).enumerate() {
            // SAFETY: there is room for `capacity` tokens (the contract of the module `lib`).
            unsafe { tokens.add(i).write(*token) };
        }
        if kept.len() > capacity {
            let message = format!("{} tokens are kept, and there is room for {capacity}", kept.len());
            return Err(Failure::new(FULGURITE_BUFFER_TOO_SMALL, message));
        }
        Ok(())
    })
}

/// Keeps a token whatever comes, or no longer.
///
/// Fails with FULGURITE_NOT_FOUND when there is no such token, and with FULGURITE_IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_pin_token(pool: *mut fulgurite_pool, token: u64, pinned: bool) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { with(pool, |memory, _| Ok(memory.pin_token(token, pinned)?)) })
}

/// Shows each name of a pool to `visit`, in no order. The visitor may call every function.
///
/// Fails with FULGURITE_NO_POOL, FULGURITE_CORRUPT and FULGURITE_IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_names(
    pool: *mut fulgurite_pool,
    visit: fulgurite_name_visitor,
    user: *mut c_void,
) -> fulgurite_status {
    guard(|| {
        let visit = visit.ok_or_else(|| Failure::new(FULGURITE_INVALID_ARGUMENT, "visit is NULL"))?;
        // SAFETY: the contract of the module `lib`.
        let roots = unsafe { with(pool, |memory, _| Ok(memory.roots()?)) }?;
        for root in roots {
            let (name, type_name) = (CString::new(root.name), CString::new(root.type_name));
            // A name with a 0 inside cannot be shown. C cannot have made it.
            let (Ok(name), Ok(type_name)) = (name, type_name) else { continue };
            // SAFETY: the program's own function, which takes these.
            unsafe { visit(user, name.as_ptr(), type_name.as_ptr(), root.bytes) };
        }
        Ok(())
    })
}

/// Removes what has a name, and frees its space. Its handles say FULGURITE_POISONED from then on.
///
/// Fails with FULGURITE_NOT_FOUND, with FULGURITE_NO_SPACE when there is no room for the change
/// before the next sync, and with FULGURITE_BUSY when jobs have some of it pinned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_remove(pool: *mut fulgurite_pool, name: *const c_char) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let name = unsafe { argument::text(name, "name") }?;
        let call = |memory: &fulgurite::Fulgurite, open: &Open| {
            let extent = region::extent_of(memory, name)?;
            open.watched_roots()
                .iter()
                .filter(|watched_root| watched_root.name() == name)
                .for_each(|watched_root: &Arc<WatchedRoot>| watched_root.abandon());
            memory.named(name).remove()?;
            extent.map_or(Ok(()), |extent| region::delete(memory, extent))
        };
        // SAFETY: the contract of the module `lib`.
        unsafe { with(pool, call) }
    })
}

/// Changes the DRAM budget of an open memory, in bytes. It may become smaller, and as large again
/// as it was when the memory was opened.
///
/// Fails with FULGURITE_BAD_OPTION when it is too small or too large.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_set_dram_bytes(pool: *mut fulgurite_pool, bytes: u64) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { with(pool, |memory, _| Ok(memory.set_dram(bytes)?)) })
}
