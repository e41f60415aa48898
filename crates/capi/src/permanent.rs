//! Permanent objects: arrays and pools of objects under names, and their states.

use std::ffi::{c_char, c_void};
use std::ptr::{NonNull, null_mut};

use fulgurite_alloc::{NameError, ObjectPool, SyncError};

use crate::allocator::{block, no_room, of_free};
use crate::argument::{self, OfProcess, give};
use crate::failure::{Failure, guard, of_flash};
use crate::objects::fulgurite_objects;
use crate::status::fulgurite_status::{self, *};

/// A pool of objects under a name, which outlive the program.
pub struct fulgurite_object_pool(OfProcess<ObjectPool>);

fn of_name(error: NameError) -> Failure {
    let message = error.to_string();
    let status = match error {
        NameError::NotKept => FULGURITE_NO_POOL,
        NameError::Unknown { .. } => FULGURITE_NOT_FOUND,
        NameError::Exists { .. } | NameError::Differs { .. } => FULGURITE_WRONG_TYPE,
        NameError::Full { .. } | NameError::NoRoom { .. } => FULGURITE_NO_SPACE,
        NameError::Pool(error) => return Failure::from(fulgurite::Error::from(error)),
        _ => FULGURITE_INVALID_ARGUMENT,
    };
    Failure::new(status, message)
}

fn some(object: *mut c_void, what: &str) -> Result<NonNull<u8>, Failure> {
    let none = || Failure::new(FULGURITE_INVALID_ARGUMENT, format!("the {what} is NULL; pass one in use"));
    NonNull::new(object.cast()).ok_or_else(none)
}

/// Makes an array permanent, under a name of 1 to 200 bytes: it is in the states that
/// fulgurite_objects_sync() makes durable from now on. `array` is its first object.
///
/// Fails with FULGURITE_NO_POOL when the objects' medium keeps nothing, with FULGURITE_WRONG_TYPE
/// when something has the name, and with FULGURITE_NO_SPACE when there are 1,024 names or no room
/// to note it. Fails with FULGURITE_INVALID_ARGUMENT for other names, for an array that has a name,
/// and for what is no array in use. Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_object_array_set_permanent(
    objects: *mut fulgurite_objects,
    array: *mut c_void,
    name: *const c_char,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (objects, name) =
            unsafe { (argument::handle(objects, "objects")?.0.get()?, argument::text(name, "name")?) };
        objects.set_permanent(some(array, "array")?, name).map_err(of_name)
    })
}

/// Makes the array or pool of a name temporary, and frees the name. The objects stay until they are
/// freed or the program ends. States from now on do not have them.
///
/// Fails with FULGURITE_NOT_FOUND and FULGURITE_NO_POOL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_objects_set_temporary(
    objects: *mut fulgurite_objects,
    name: *const c_char,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (objects, name) =
            unsafe { (argument::handle(objects, "objects")?.0.get()?, argument::text(name, "name")?) };
        objects.set_temporary(name).map_err(of_name)
    })
}

/// Finds the permanent array of a name, of `count` objects of `bytes` each, and stores where its
/// first object is. In another run of the program it is elsewhere. Objects of it that were freed
/// one by one are holes: an access gets SIGBUS.
///
/// Fails with FULGURITE_NOT_FOUND, with FULGURITE_WRONG_TYPE when the name leads to anything else,
/// as the message says, and with FULGURITE_NO_POOL. Then `*array` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_object_array_named(
    objects: *mut fulgurite_objects,
    name: *const c_char,
    count: u32,
    bytes: usize,
    array: *mut *mut c_void,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let array = unsafe { argument::out(array, "array")? };
        array.write(null_mut());
        // SAFETY: as above.
        let (objects, name) =
            unsafe { (argument::handle(objects, "objects")?.0.get()?, argument::text(name, "name")?) };
        let found = objects.array_named(name, count, bytes).map_err(of_name)?;
        array.write(found.first().as_ptr().cast());
        Ok(())
    })
}

/// Opens the permanent pool of a name, of objects of `bytes` each, which is made where nothing has
/// the name. fulgurite_object_free() frees its objects.
///
/// Fails with FULGURITE_WRONG_TYPE when the name leads to anything else, with FULGURITE_NO_POOL
/// when the objects' medium keeps nothing, FULGURITE_NO_SPACE when there are 1,024 names, and with
/// FULGURITE_INVALID_ARGUMENT for other names and sizes. Then `*pool` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_object_pool_named(
    objects: *mut fulgurite_objects,
    name: *const c_char,
    bytes: usize,
    pool: *mut *mut fulgurite_object_pool,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let pool = unsafe { argument::out(pool, "pool")? };
        pool.write(null_mut());
        // SAFETY: as above.
        let (objects, name) =
            unsafe { (argument::handle(objects, "objects")?.0.get()?, argument::text(name, "name")?) };
        let named = objects.pool_named(name, bytes).map_err(of_name)?;
        pool.write(give(fulgurite_object_pool(OfProcess::new(named))));
        Ok(())
    })
}

/// Frees the handle of a pool. Its objects stay. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_object_pool_free(pool: *mut fulgurite_object_pool) {
    // SAFETY: the contract of the module `lib`. A misaligned handle is left alone.
    let _ = guard(|| unsafe { argument::free(pool, "pool") });
}

/// Allocates an object of a pool, which reads as zeros and begins a page.
///
/// Returns NULL when the pool's medium has no room or there are as many objects as there may be,
/// with a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_object_pool_alloc(pool: *mut fulgurite_object_pool) -> *mut c_void {
    block(|| {
        // SAFETY: the contract of the module `lib`.
        let pool = unsafe { argument::handle(pool, "pool") }?.0.get()?;
        pool.allocate().ok_or_else(|| no_room(pool.object_bytes()))
    })
}

/// Sets the root of a pool: an object of it by which a later run finds the others, or NULL. It is
/// so in the states that fulgurite_objects_sync() makes durable from now on. Before an object that
/// is the root is freed, another one is to be set.
///
/// Fails with FULGURITE_INVALID_ARGUMENT when it is no object in use of the pool, or when the pool
/// was made temporary.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_object_pool_set_root(
    pool: *mut fulgurite_object_pool,
    root: *mut c_void,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let pool = unsafe { argument::handle(pool, "pool") }?.0.get()?;
        pool.set_root(NonNull::new(root.cast())).map_err(of_name)
    })
}

/// Returns the root of a pool, or NULL when none was set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_object_pool_root(pool: *mut fulgurite_object_pool) -> *mut c_void {
    block(|| {
        // SAFETY: the contract of the module `lib`.
        let pool = unsafe { argument::handle(pool, "pool") }?.0.get()?;
        let none = || Failure::new(FULGURITE_NOT_FOUND, "the pool of objects has no root; set one");
        pool.root().ok_or_else(none)
    })
}

/// Stores a number for an object in use that is the same in every run, and never 0xFFFFFFFF.
/// Objects refer to each other by it, because their addresses differ from run to run. When the
/// object is freed, its number is handed out again.
///
/// Fails with FULGURITE_INVALID_ARGUMENT when no object in use begins there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_object_reference(
    objects: *mut fulgurite_objects,
    object: *const c_void,
    reference: *mut u32,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (objects, reference) =
            unsafe { (argument::handle(objects, "objects")?.0.get()?, argument::out(reference, "reference")?) };
        reference.write(objects.reference(some(object.cast_mut(), "object")?).map_err(of_free)?);
        Ok(())
    })
}

/// Returns the object of a number from fulgurite_object_reference(), or NULL with a message when no
/// object in use has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_object_at(objects: *mut fulgurite_objects, reference: u32) -> *mut c_void {
    block(|| {
        // SAFETY: the contract of the module `lib`.
        let objects = unsafe { argument::handle(objects, "objects") }?.0.get()?;
        let none = || Failure::new(FULGURITE_NOT_FOUND, format!("no object in use has the number {reference}"));
        objects.object_of(reference).ok_or_else(none)
    })
}

/// Makes the state of all permanent objects durable, and stores its token, unless `token` is NULL.
/// Each object is as it was at one moment of the call: threads that change several which belong
/// together are to pause meanwhile. The next run finds this state, whatever ends this one.
///
/// Where changes since the last state have no more room, the library makes one durable by itself,
/// of objects as they last left DRAM. It takes the place of the last state that this call made.
/// FULGURITE_OBJECTS_SYNC_ONLY_WHEN_TOLD forbids that.
///
/// Fails with FULGURITE_NO_POOL when the objects' medium keeps nothing, FULGURITE_NO_SPACE, and
/// with FULGURITE_IO and FULGURITE_POISONED. The last state stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_objects_sync(objects: *mut fulgurite_objects, token: *mut u64) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (objects, token) =
            unsafe { (argument::handle(objects, "objects")?.0.get()?, argument::out_or_null(token, "token")?) };
        let named = objects.sync().map_err(|error| match error {
            SyncError::NotKept => Failure::new(FULGURITE_NO_POOL, error.to_string()),
            SyncError::Objects(flash) => Failure::new(of_flash(&flash), error.to_string()),
            SyncError::Pool(error) => Failure::from(fulgurite::Error::from(error)),
            other => Failure::new(FULGURITE_FAILED, other.to_string()),
        })?;
        if let Some(token) = token {
            token.write(named);
        }
        Ok(())
    })
}
