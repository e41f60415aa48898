//! The calls of blobs, for either kind of key.

use std::borrow::Borrow;
use std::ffi::{c_char, c_void};
use std::ops::Deref;
use std::sync::Arc;

use fulgurite::{
    Fulgurite, Rooted,
    containers::{BlobIndex, BlobMap, Container},
};

use crate::argument::{self, give};
use crate::context::{fulgurite_context, run};
use crate::failure::Failure;
use crate::open::Open;
use crate::pool::fulgurite_pool;
use crate::status::fulgurite_status::{FULGURITE_BUFFER_TOO_SMALL, FULGURITE_DIFFERENT, FULGURITE_NOT_FOUND};

/// A container of a pool, or of memory that keeps nothing.
pub(crate) enum Held<C: Container> {
    Named(Arc<Rooted<C>>),
    Unnamed(C),
}

impl<C: Container> Deref for Held<C> {
    type Target = C;
    fn deref(&self) -> &C {
        match self {
            Held::Named(rooted) => rooted,
            Held::Unnamed(container) => container,
        }
    }
}

/// Latches of blobs without a name: 8 bytes each, three times.
pub(crate) const LATCHES: usize = 1 << 12;

/// Hands out a handle of what `open` opens, by the memory and the name.
///
/// # Safety
/// The contract of the module `lib`.
pub(crate) unsafe fn open<C: Container, H>(
    pool: *mut fulgurite_pool,
    name: *const c_char,
    blobs: *mut *mut H,
    open: impl FnOnce(&Fulgurite, Option<&str>) -> Result<Held<C>, Failure>,
    handle: impl FnOnce(Arc<Open>, Held<C>) -> H,
) -> Result<(), Failure> {
    // SAFETY: the caller's contract.
    unsafe {
        let blobs = argument::out(blobs, "blobs")?;
        blobs.write(std::ptr::null_mut());
        let pool = &argument::handle(pool, "pool")?.0;
        let name = argument::name(name, pool.keeps)?;
        let map = pool.with(|memory| open(memory, name))?;
        blobs.write(give(handle(pool.clone(), map)));
    }
    Ok(())
}

fn no_key() -> Failure {
    Failure::new(FULGURITE_NOT_FOUND, "there is no such key")
}

/// One call: on whose fiber, of which memory, on what map and key. What it borrows outlives the
/// call, which ends when the job has.
pub(crate) struct Call<'c, I: BlobIndex + 'static, K> {
    pub context: Option<&'c fulgurite_context>,
    pub pool: &'c Arc<Open>,
    pub map: &'static BlobMap<I>,
    pub key: K,
}

/// The safety of each call is the contract of the module `lib`.
impl<I, K> Call<'_, I, K>
where
    I: BlobIndex + Sync + 'static,
    BlobMap<I>: Sync,
    K: Borrow<I::Key> + Send + 'static,
{
    /// Copies a value, whose length is stored also when it does not fit.
    pub unsafe fn get(self, buffer: *mut c_void, capacity: usize, length: *mut usize) -> Result<(), Failure> {
        // SAFETY: the caller's contract.
        let (into, length) =
            unsafe { (argument::buffer(buffer, capacity, "buffer")?, argument::out(length, "length")?) };
        let Call { context, pool, map, key } = self;
        let found = run(context, pool, move |m| map.copy_to(m, key.borrow(), into))?.ok_or_else(no_key)?;
        length.write(found);
        if found > capacity {
            let message = format!("the value has {found} bytes, and the buffer {capacity}; pass a larger one");
            return Err(Failure::new(FULGURITE_BUFFER_TOO_SMALL, message));
        }
        Ok(())
    }

    pub unsafe fn length(self, length: *mut usize) -> Result<(), Failure> {
        // SAFETY: the caller's contract.
        let length = unsafe { argument::out(length, "length") }?;
        let Call { context, pool, map, key } = self;
        length.write(run(context, pool, move |m| map.value_len(m, key.borrow()))?.ok_or_else(no_key)?);
        Ok(())
    }

    pub unsafe fn read_at(
        self,
        offset: usize,
        buffer: *mut c_void,
        capacity: usize,
        copied: *mut usize,
    ) -> Result<(), Failure> {
        // SAFETY: the caller's contract.
        let (into, copied) =
            unsafe { (argument::buffer(buffer, capacity, "buffer")?, argument::out(copied, "copied")?) };
        let Call { context, pool, map, key } = self;
        let read = run(context, pool, move |m| map.read_at(m, key.borrow(), offset, into))?;
        copied.write(read.ok_or_else(no_key)?);
        Ok(())
    }

    pub unsafe fn put(self, value: *const c_void, value_length: usize) -> Result<(), Failure> {
        // SAFETY: the caller's contract.
        let value = unsafe { argument::bytes(value, value_length, "value") }?;
        let Call { context, pool, map, key } = self;
        run(context, pool, move |m| map.put(m, key.borrow(), value)).map(drop)
    }

    pub fn remove(self) -> Result<(), Failure> {
        let Call { context, pool, map, key } = self;
        if run(context, pool, move |m| map.remove(m, key.borrow()))? { Ok(()) } else { Err(no_key()) }
    }

    pub unsafe fn append(self, bytes: *const c_void, bytes_length: usize, length: *mut usize) -> Result<(), Failure> {
        // SAFETY: the caller's contract.
        let (bytes, length) =
            unsafe { (argument::bytes(bytes, bytes_length, "bytes")?, argument::out_or_null(length, "length")?) };
        let Call { context, pool, map, key } = self;
        let whole = run(context, pool, move |m| map.append(m, key.borrow(), bytes))?;
        if let Some(length) = length {
            length.write(whole);
        }
        Ok(())
    }

    pub unsafe fn write_at(self, offset: usize, bytes: *const c_void, bytes_length: usize) -> Result<(), Failure> {
        // SAFETY: the caller's contract.
        let bytes = unsafe { argument::bytes(bytes, bytes_length, "bytes") }?;
        let Call { context, pool, map, key } = self;
        if run(context, pool, move |m| map.write_at(m, key.borrow(), offset, bytes))? {
            return Ok(());
        }
        let message = "there is no such key, or its value ends before the bytes to write";
        Err(Failure::new(FULGURITE_NOT_FOUND, message))
    }

    /// NULL expects that there is no value.
    pub unsafe fn compare_and_put(
        self,
        (expected, expected_length): (*const c_void, usize),
        (value, value_length): (*const c_void, usize),
    ) -> Result<(), Failure> {
        // SAFETY: the caller's contract.
        let (bytes, value) = unsafe {
            let bytes = argument::bytes(expected, expected_length, "expected")?;
            (bytes, argument::bytes(value, value_length, "value")?)
        };
        let (Call { context, pool, map, key }, expected) = (self, (!expected.is_null()).then_some(bytes));
        if run(context, pool, move |m| map.compare_and_put(m, key.borrow(), expected, value))? {
            return Ok(());
        }
        Err(Failure::new(FULGURITE_DIFFERENT, "the value is not the expected one; read it, and decide again"))
    }
}
