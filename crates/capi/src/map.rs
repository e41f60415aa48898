//! Maps: keys and values as records, with the index in DRAM. A call runs on the thread that makes
//! it, so it takes no context.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use fulgurite::runtime::Guest;
use fulgurite::{AccessError, Rooted, containers::TypedRecords};

use crate::argument::{self, give};
use crate::failure::{Failure, guard};
use crate::open::Open;
use crate::pool::fulgurite_pool;
use crate::status::fulgurite_status::{self, *};

type Records = TypedRecords<[u8], [u8]>;

/// Values of 0 bytes to half a mebibyte under byte strings of 0 bytes to 64 KiB, in no order. Any
/// thread may use it, without a context: a value that is cached costs no switch of threads, and one
/// that is not is read while this thread waits. Jobs cannot use it yet.
pub struct fulgurite_map {
    pool: Arc<Open>,
    records: Arc<Rooted<Records>>,
}

impl fulgurite_map {
    fn call<T>(&self, call: impl FnOnce(&Records, &mut Guest<'_>) -> Result<T, AccessError>) -> Result<T, Failure> {
        self.pool.with(|memory| Ok(memory.run_here(|m| call(&self.records, m))?))
    }
}

fn no_key() -> Failure {
    Failure::new(FULGURITE_NOT_FOUND, "there is no such key")
}

/// Opens the map of this name, or makes it where the name is new. The pool needs DRAM for records
/// (fulgurite_options_record_cache()).
///
/// Fails with FULGURITE_BAD_OPTION without that, with FULGURITE_WRONG_TYPE when the name leads to
/// something else, with FULGURITE_NO_SPACE, FULGURITE_NO_POOL and FULGURITE_IN_A_JOB. Then `*map`
/// is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_map_open(
    pool: *mut fulgurite_pool,
    name: *const c_char,
    map: *mut *mut fulgurite_map,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe {
        let map = argument::out(map, "map")?;
        map.write(std::ptr::null_mut());
        let pool = &argument::handle(pool, "pool")?.0;
        let name = argument::text(name, "name")?;
        let records = pool.with(|memory| Ok(memory.named(name).records()?))?;
        map.write(give(fulgurite_map { pool: pool.clone(), records }));
        Ok(())
    })
}

/// Frees a handle. The map stays in its pool. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_map_free(map: *mut fulgurite_map) {
    // SAFETY: the contract of the module `lib`. There is nothing to return an error by.
    let _ = guard(|| unsafe { argument::free(map, "map") });
}

/// Copies the value of a key into a buffer, and stores the value's length in `*length`.
///
/// Fails with FULGURITE_NOT_FOUND, and with FULGURITE_BUFFER_TOO_SMALL when the value is longer
/// than `capacity`: `*length` is stored, and the buffer has its beginning. `capacity` may be 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_map_get(
    map: *mut fulgurite_map,
    key: *const c_void,
    key_length: usize,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe {
        let map = argument::handle(map, "map")?;
        let key = argument::bytes(key, key_length, "key")?;
        let (into, length) = (argument::buffer(buffer, capacity, "buffer")?, argument::out(length, "length")?);
        let copy = |value: &[u8]| {
            let len = value.len().min(into.len());
            into[..len].copy_from_slice(&value[..len]);
            value.len()
        };
        let found = map.call(|records, m| records.get_with(m, key, copy))?.ok_or_else(no_key)?;
        length.write(found);
        if found > capacity {
            let message = format!("the value has {found} bytes, and the buffer {capacity}; pass a larger one");
            return Err(Failure::new(FULGURITE_BUFFER_TOO_SMALL, message));
        }
        Ok(())
    })
}

/// Sets the value of a key, whether or not it has one.
///
/// Fails with FULGURITE_NO_SPACE, with FULGURITE_TOO_LONG, and with FULGURITE_NO_MEMORY when the
/// keys of all maps have taken four fifths of the DRAM for records. The old value is still there
/// then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_map_put(
    map: *mut fulgurite_map,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe {
        let map = argument::handle(map, "map")?;
        let key = argument::bytes(key, key_length, "key")?;
        let value = argument::bytes(value, value_length, "value")?;
        map.call(|records, m| records.put(m, key, value)).map(drop)
    })
}

/// Removes a key and its value.
///
/// Fails with FULGURITE_NOT_FOUND, and with FULGURITE_NO_SPACE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_map_remove(
    map: *mut fulgurite_map,
    key: *const c_void,
    key_length: usize,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    guard(|| unsafe {
        let map = argument::handle(map, "map")?;
        let key = argument::bytes(key, key_length, "key")?;
        if map.call(|records, m| records.remove(m, key))? { Ok(()) } else { Err(no_key()) }
    })
}
