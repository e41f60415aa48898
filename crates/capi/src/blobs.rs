//! Blobs: values of any length under byte strings, in the order of their keys. Whether a value is
//! read or changed, it is one state of it.

use std::ffi::{c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::sync::Arc;

use fulgurite::{Fulgurite, OrderedBlobs, containers::Masstree, latches::VersionLatch};

use crate::argument::{self, User};
use crate::blob_calls::{self, Call, Held, LATCHES};
use crate::context::{fulgurite_context, run};
use crate::failure::{Failure, guard};
use crate::open::{Open, note_worker};
use crate::pool::fulgurite_pool;
use crate::status::fulgurite_status::{self, *};

/// Values of 0 bytes to 1 GiB under byte strings of 0 bytes to 64 KiB. Any thread and any job may
/// use it.
pub struct fulgurite_blobs {
    pool: Arc<Open>,
    map: Held<OrderedBlobs>,
}

/// Shows a key and its value. Returns whether to go on: 0 ends the scan. It runs on a worker, on a
/// stack of its fiber, and must not use the context of the scan. The bytes last as long as the
/// call.
pub type fulgurite_blob_visitor = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        key: *const c_void,
        key_length: usize,
        value: *const c_void,
        value_length: usize,
    ) -> c_int,
>;

fn open(memory: &Fulgurite, name: Option<&str>, capacity: u64, bytes: u64) -> Result<Held<OrderedBlobs>, Failure> {
    let Some(name) = name else {
        let heap = memory.heap(bytes)?;
        return Ok(Held::Unnamed(memory.run(move |m| OrderedBlobs::create(m, heap, LATCHES))?));
    };
    Ok(Held::Named(memory.named(name).ordered_blobs(capacity, bytes)?))
}

/// Opens the blobs of this name, or makes them where the name is new, for `bytes` of keys and
/// values. In a pool that packs objects, `capacity` values of up to 4 KiB are objects. Both count
/// only when they are made. In memory that keeps nothing, `name` is NULL.
///
/// Fails with FULGURITE_WRONG_TYPE when the name leads to something else, with FULGURITE_NO_SPACE,
/// FULGURITE_NO_POOL and FULGURITE_IN_A_JOB. Then `*blobs` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_blobs_open(
    pool: *mut fulgurite_pool,
    name: *const c_char,
    capacity: u64,
    bytes: u64,
    blobs: *mut *mut fulgurite_blobs,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe {
        let open = |memory: &Fulgurite, name: Option<&str>| open(memory, name, capacity, bytes);
        blob_calls::open(pool, name, blobs, open, |pool, map| fulgurite_blobs { pool, map })
    })
}

/// The call with these arguments.
///
/// # Safety
/// The contract of the module `lib`, until the call has returned.
unsafe fn call<'c>(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_blobs,
    key: *const c_void,
    key_length: usize,
) -> Result<Call<'c, Masstree<VersionLatch>, &'static [u8]>, Failure> {
    // SAFETY: the caller's contract.
    unsafe {
        let blobs: &'static fulgurite_blobs = argument::handle(blobs, "blobs")?;
        let context = argument::handle_or_null(context, "context")?;
        let key = argument::bytes(key, key_length, "key")?;
        Ok(Call { context, pool: &blobs.pool, map: &blobs.map, key })
    }
}

/// Frees a handle. The blobs stay in their pool. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_blobs_free(blobs: *mut fulgurite_blobs) {
    // SAFETY: the contract of the module `lib`. There is nothing to return an error by.
    let _ = guard(|| unsafe { argument::free(blobs, "blobs") });
}

/// Copies the value of a key into a buffer, and stores the value's length in `*length`. The bytes
/// are of one state of the value.
///
/// Fails with FULGURITE_NOT_FOUND, and with FULGURITE_BUFFER_TOO_SMALL when the value is longer
/// than `capacity`: `*length` is stored, and the buffer has its beginning. `capacity` may be 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_blobs_get(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_blobs,
    key: *const c_void,
    key_length: usize,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { call(context, blobs, key, key_length)?.get(buffer, capacity, length) })
}

/// Stores the length of the value of a key in `*length`.
///
/// Fails with FULGURITE_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_blobs_length(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_blobs,
    key: *const c_void,
    key_length: usize,
    length: *mut usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { call(context, blobs, key, key_length)?.length(length) })
}

/// Copies the bytes of a value from `offset` on, as much as there is and `capacity` allows, and
/// stores in `*copied` how many bytes that are: 0 from the end of the value on.
///
/// Fails with FULGURITE_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_blobs_read_at(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_blobs,
    key: *const c_void,
    key_length: usize,
    offset: usize,
    buffer: *mut c_void,
    capacity: usize,
    copied: *mut usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { call(context, blobs, key, key_length)?.read_at(offset, buffer, capacity, copied) })
}

/// Sets the value of a key, of 0 bytes to 1 GiB, whether or not it has one.
///
/// Fails with FULGURITE_NO_SPACE and FULGURITE_TOO_LONG. The old value is still there then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_blobs_put(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_blobs,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { call(context, blobs, key, key_length)?.put(value, value_length) })
}

/// Removes a key and its value.
///
/// Fails with FULGURITE_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_blobs_remove(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_blobs,
    key: *const c_void,
    key_length: usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { call(context, blobs, key, key_length)?.remove() })
}

/// Appends to the value of a key, which counts as empty when there is none, and stores its new
/// length, unless `length` is NULL. Mostly only the appended bytes are written.
///
/// Fails as fulgurite_blobs_put().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_blobs_append(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_blobs,
    key: *const c_void,
    key_length: usize,
    bytes: *const c_void,
    bytes_length: usize,
    length: *mut usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { call(context, blobs, key, key_length)?.append(bytes, bytes_length, length) })
}

/// Changes bytes of a value in place, from `offset` on.
///
/// Fails with FULGURITE_NOT_FOUND when they are not inside a value of the key, and as
/// fulgurite_blobs_put(). Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_blobs_write_at(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_blobs,
    key: *const c_void,
    key_length: usize,
    offset: usize,
    bytes: *const c_void,
    bytes_length: usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { call(context, blobs, key, key_length)?.write_at(offset, bytes, bytes_length) })
}

/// Sets the value of a key if it is the expected one now. NULL expects that there is none.
///
/// Fails with FULGURITE_DIFFERENT, and as fulgurite_blobs_put(). Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_blobs_compare_and_put(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_blobs,
    key: *const c_void,
    key_length: usize,
    expected: *const c_void,
    expected_length: usize,
    value: *const c_void,
    value_length: usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe {
        call(context, blobs, key, key_length)?.compare_and_put((expected, expected_length), (value, value_length))
    })
}

/// Shows up to `limit` keys from `from` on and their values, ascending, until the visitor returns
/// 0, and stores how many it showed, unless `shown` is NULL. Each value is whole and was there when
/// it was read. Different ones may be of different times.
///
/// Fails as fulgurite_blobs_get(), except for missing keys. What was shown before was right.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_blobs_scan(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_blobs,
    from: *const c_void,
    from_length: usize,
    limit: usize,
    visit: fulgurite_blob_visitor,
    user: *mut c_void,
    shown: *mut usize,
) -> fulgurite_status {
    guard(|| {
        let visit = visit.ok_or_else(|| Failure::new(FULGURITE_INVALID_ARGUMENT, "visit is NULL"))?;
        // SAFETY: the contract of the module `lib`.
        let (call, shown) =
            unsafe { (call(context, blobs, from, from_length)?, argument::out_or_null(shown, "shown")?) };
        let Call { context, pool, map, key: from } = call;
        let user = User(user);
        let count = run(context, pool, move |m| {
            note_worker();
            map.scan(m, from, limit, |key, value| {
                let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
                // SAFETY: the program's own function, which takes these.
                match unsafe { visit(user.pointer(), key_at, key.len(), value_at, value.len()) } {
                    0 => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            })
        })?;
        if let Some(shown) = shown {
            shown.write(count);
        }
        Ok(())
    })
}
