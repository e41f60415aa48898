//! Heaps: objects of any size in a pool, at addresses that a later run finds unchanged.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use fulgurite::{Address, Heap, Memory};

use crate::argument::{self, give};
use crate::context::{fulgurite_context, run};
use crate::failure::{Failure, guard};
use crate::open::Open;
use crate::pool::fulgurite_pool;
use crate::status::fulgurite_status::{self, *};
use crate::watched_root::{WatchedRoot, entry};

/// An allocator in flash memory. An address is a number of 64 bits that may be stored anywhere,
/// also in the pool. 0 is none. Any thread and any job may use a heap. It does not order those that
/// read and write one object.
pub struct fulgurite_heap {
    pool: Arc<Open>,
    heap: Arc<Heap>,
    /// Of a pool: where its root is.
    watched_root: Option<Arc<WatchedRoot>>,
}

/// Opens the heap of this name, or makes one of `bytes` where the name is new. In memory that keeps
/// nothing, `name` is NULL.
///
/// Fails with FULGURITE_WRONG_TYPE when the name leads to something else, with FULGURITE_NO_SPACE,
/// FULGURITE_NO_POOL and FULGURITE_IN_A_JOB. Then `*heap` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_heap_open(
    pool: *mut fulgurite_pool,
    name: *const c_char,
    bytes: u64,
    heap: *mut *mut fulgurite_heap,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        unsafe {
            let heap = argument::out(heap, "heap")?;
            heap.write(std::ptr::null_mut());
            let pool = &argument::handle(pool, "pool")?.0;
            let name = argument::name(name, pool.keeps)?;
            let made = pool.with(|memory| {
                let Some(name) = name else {
                    return Ok(fulgurite_heap { pool: pool.clone(), heap: memory.heap(bytes)?, watched_root: None });
                };
                let heap = memory.named(name).heap(bytes)?;
                let lost = || Failure::new(FULGURITE_NOT_FOUND, "the heap was removed while it was opened");
                let entry = entry(memory, name)?.ok_or_else(lost)?;
                Ok(fulgurite_heap {
                    pool: pool.clone(),
                    heap,
                    watched_root: Some(pool.watch(WatchedRoot::new(entry, None))),
                })
            })?;
            heap.write(give(made));
        }
        Ok(())
    })
}

/// Frees a handle. The heap stays in its pool. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_heap_free(heap: *mut fulgurite_heap) {
    // SAFETY: the contract of the module `lib`. There is nothing to return an error by.
    let _ = guard(|| unsafe { argument::free(heap, "heap") });
}

impl fulgurite_heap {
    fn check(&self) -> Result<(), Failure> {
        Ok(self.watched_root.as_ref().map_or(Ok(()), |watched_root| watched_root.check())?)
    }

    /// The address of `len` bytes, when the heap has them.
    fn inside(&self, address: u64, len: usize) -> Result<Address, Failure> {
        self.check()?;
        let (at, region) = (Address::from_bits(address), self.heap.region());
        let is_header = address.wrapping_sub(region.base.bits()) < Heap::HEADER_BYTES;
        if !is_header && self.heap.contains(at, len as u64) {
            return Ok(at);
        }
        let message = format!("{len} bytes at {at} are outside of the heap; check the address and its heap");
        Err(Failure::new(FULGURITE_OUT_OF_RANGE, message))
    }
}

/// Allocates `bytes`, aligned to 8 bytes, and stores their address. They have earlier contents.
///
/// Fails with FULGURITE_NO_SPACE, and with FULGURITE_POISONED when the heap was rolled back or
/// removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_heap_allocate(
    context: *mut fulgurite_context,
    heap: *mut fulgurite_heap,
    bytes: usize,
    address: *mut u64,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (context, heap, address) = unsafe {
            let context = argument::handle_or_null(context, "context")?;
            (context, argument::handle(heap, "heap")?, argument::out(address, "address")?)
        };
        heap.check()?;
        let its = heap.heap.clone();
        address.write(run(context, &heap.pool, move |m| its.allocate(m, bytes))?.bits());
        Ok(())
    })
}

/// Takes back what fulgurite_heap_allocate() gave for as many bytes.
///
/// Fails with FULGURITE_CORRUPT when no such object was given, where that can be detected. An
/// object that is freed twice is found later, if at all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_heap_release(
    context: *mut fulgurite_context,
    heap: *mut fulgurite_heap,
    address: u64,
    bytes: usize,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (context, heap) =
            unsafe { (argument::handle_or_null(context, "context")?, argument::handle(heap, "heap")?) };
        let (at, its) = (heap.inside(address, bytes)?, heap.heap.clone());
        run(context, &heap.pool, move |m| its.free(m, at, bytes))
    })
}

/// Copies `length` bytes at an address of the heap into a buffer.
///
/// Fails with FULGURITE_OUT_OF_RANGE when they are not all in this heap, and with
/// FULGURITE_POISONED when it was rolled back or removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_heap_read(
    context: *mut fulgurite_context,
    heap: *mut fulgurite_heap,
    address: u64,
    buffer: *mut c_void,
    length: usize,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (context, heap, buffer): (_, &fulgurite_heap, &'static mut [u8]) = unsafe {
            let context = argument::handle_or_null(context, "context")?;
            (context, argument::handle(heap, "heap")?, argument::buffer(buffer, length, "buffer")?)
        };
        let at = heap.inside(address, length)?;
        run(context, &heap.pool, move |m| m.read_bytes(at, buffer))
    })
}

/// Copies `length` bytes of a buffer to an address of the heap.
///
/// Fails as fulgurite_heap_read(), and with FULGURITE_NO_SPACE. After the latter some of the bytes
/// may have been written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_heap_write(
    context: *mut fulgurite_context,
    heap: *mut fulgurite_heap,
    address: u64,
    bytes: *const c_void,
    length: usize,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (context, heap, bytes): (_, &fulgurite_heap, &'static [u8]) = unsafe {
            let context = argument::handle_or_null(context, "context")?;
            (context, argument::handle(heap, "heap")?, argument::bytes(bytes, length, "bytes")?)
        };
        let at = heap.inside(address, length)?;
        run(context, &heap.pool, move |m| m.write_bytes(at, bytes))
    })
}
