//! Blobs under numbers: values of any length under keys of 64 bits, in no order.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use fulgurite::{Blobs, Fulgurite, HashMap, latches::VersionLatch};

use crate::argument::{self, User};
use crate::blob_calls::{self, Call, Held, LATCHES};
use crate::context::{fulgurite_context, run};
use crate::failure::{Failure, guard};
use crate::open::{Open, note_worker};
use crate::pool::fulgurite_pool;
use crate::status::fulgurite_status::{self, *};

/// Values of 0 bytes to 1 GiB under numbers of 64 bits. Any thread and any job may use it. It is
/// faster than fulgurite_blobs, and has no order.
pub struct fulgurite_u64_blobs {
    pool: Arc<Open>,
    map: Held<Blobs<u64>>,
}

/// Shows a key and the length of its value. It runs on a worker, on a stack of its fiber, and must
/// not use the context of the call.
pub type fulgurite_u64_visitor = Option<unsafe extern "C" fn(user: *mut c_void, key: u64, length: usize)>;

fn open(memory: &Fulgurite, name: Option<&str>, capacity: u64, bytes: u64) -> Result<Held<Blobs<u64>>, Failure> {
    let Some(name) = name else {
        let buckets = Blobs::<u64>::bytes_needed(capacity);
        // First, so that a refusal names what the capacity asks for.
        let region = memory.region(buckets)?;
        let heap = memory.heap(bytes.saturating_add((buckets / 2).max(1 << 20)))?;
        return Ok(Held::Unnamed(memory.run(move |m| Blobs::<u64>::create(m, region, heap, capacity, LATCHES))?));
    };
    Ok(Held::Named(memory.named(name).blobs::<u64>(capacity, bytes)?))
}

/// Opens the blobs of this name, or makes them where the name is new, for about `capacity` keys and
/// `bytes` of values. Both count only when they are made. In memory that keeps nothing, `name` is
/// NULL.
///
/// Fails with FULGURITE_WRONG_TYPE when the name leads to something else, with FULGURITE_NO_SPACE,
/// FULGURITE_NO_POOL and FULGURITE_IN_A_JOB. Then `*blobs` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_u64_blobs_open(
    pool: *mut fulgurite_pool,
    name: *const c_char,
    capacity: u64,
    bytes: u64,
    blobs: *mut *mut fulgurite_u64_blobs,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe {
        let open = |memory: &Fulgurite, name: Option<&str>| open(memory, name, capacity, bytes);
        blob_calls::open(pool, name, blobs, open, |pool, map| fulgurite_u64_blobs { pool, map })
    })
}

/// The call with these arguments.
///
/// # Safety
/// The contract of the module `lib`, until the call has returned.
unsafe fn call<'c>(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_u64_blobs,
    key: u64,
) -> Result<Call<'c, HashMap<u64, u64, VersionLatch>, u64>, Failure> {
    // SAFETY: the caller's contract.
    unsafe {
        let blobs: &'static fulgurite_u64_blobs = argument::handle(blobs, "blobs")?;
        let context = argument::handle_or_null(context, "context")?;
        Ok(Call { context, pool: &blobs.pool, map: &blobs.map, key })
    }
}

/// Frees a handle. The blobs stay in their pool. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_u64_blobs_free(blobs: *mut fulgurite_u64_blobs) {
    // SAFETY: the contract of the module `lib`. There is nothing to return an error by.
    let _ = guard(|| unsafe { argument::free(blobs, "blobs") });
}

/// Copies the value of a key into a buffer, and stores the value's length in `*length`. The bytes
/// are of one state of the value.
///
/// Fails with FULGURITE_NOT_FOUND, and with FULGURITE_BUFFER_TOO_SMALL when the value is longer
/// than `capacity`: `*length` is stored, and the buffer has its beginning. `capacity` may be 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_u64_blobs_get(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_u64_blobs,
    key: u64,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { call(context, blobs, key)?.get(buffer, capacity, length) })
}

/// Stores the length of the value of a key in `*length`.
///
/// Fails with FULGURITE_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_u64_blobs_length(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_u64_blobs,
    key: u64,
    length: *mut usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { call(context, blobs, key)?.length(length) })
}

/// Copies the bytes of a value from `offset` on, as much as there is and `capacity` allows, and
/// stores in `*copied` how many bytes that are: 0 from the end of the value on.
///
/// Fails with FULGURITE_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_u64_blobs_read_at(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_u64_blobs,
    key: u64,
    offset: usize,
    buffer: *mut c_void,
    capacity: usize,
    copied: *mut usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { call(context, blobs, key)?.read_at(offset, buffer, capacity, copied) })
}

/// Sets the value of a key, of 0 bytes to 1 GiB, whether or not it has one.
///
/// Fails with FULGURITE_NO_SPACE and FULGURITE_TOO_LONG. The old value is still there then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_u64_blobs_put(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_u64_blobs,
    key: u64,
    value: *const c_void,
    value_length: usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { call(context, blobs, key)?.put(value, value_length) })
}

/// Removes a key and its value.
///
/// Fails with FULGURITE_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_u64_blobs_remove(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_u64_blobs,
    key: u64,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { call(context, blobs, key)?.remove() })
}

/// Appends to the value of a key, which counts as empty when there is none, and stores its new
/// length, unless `length` is NULL. Mostly only the appended bytes are written.
///
/// Fails as fulgurite_u64_blobs_put().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_u64_blobs_append(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_u64_blobs,
    key: u64,
    bytes: *const c_void,
    bytes_length: usize,
    length: *mut usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { call(context, blobs, key)?.append(bytes, bytes_length, length) })
}

/// Changes bytes of a value in place, from `offset` on.
///
/// Fails with FULGURITE_NOT_FOUND when they are not inside a value of the key, and as
/// fulgurite_u64_blobs_put(). Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_u64_blobs_write_at(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_u64_blobs,
    key: u64,
    offset: usize,
    bytes: *const c_void,
    bytes_length: usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { call(context, blobs, key)?.write_at(offset, bytes, bytes_length) })
}

/// Sets the value of a key if it is the expected one now. NULL expects that there is none.
///
/// Fails with FULGURITE_DIFFERENT, and as fulgurite_u64_blobs_put(). Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_u64_blobs_compare_and_put(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_u64_blobs,
    key: u64,
    expected: *const c_void,
    expected_length: usize,
    value: *const c_void,
    value_length: usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe { call(context, blobs, key)?.compare_and_put((expected, expected_length), (value, value_length)) })
}

/// Shows every key and the length of its value, in no order. Keys may come and go meanwhile.
///
/// Fails as fulgurite_u64_blobs_get(), except for missing keys. What was shown before was right.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_u64_blobs_keys(
    context: *mut fulgurite_context,
    blobs: *mut fulgurite_u64_blobs,
    visit: fulgurite_u64_visitor,
    user: *mut c_void,
) -> fulgurite_status {
    guard(|| {
        let visit = visit.ok_or_else(|| Failure::new(FULGURITE_INVALID_ARGUMENT, "visit is NULL"))?;
        // SAFETY: the contract of the module `lib`.
        let Call { context, pool, map, .. } = unsafe { call(context, blobs, 0) }?;
        let user = User(user);
        run(context, pool, move |m| {
            note_worker();
            // SAFETY: the program's own function, which takes these.
            map.for_each_key(m, |key, length| unsafe { visit(user.pointer(), *key, length) })
        })
    })
}
