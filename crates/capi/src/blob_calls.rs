//! The calls of blobs, for either kind of key.

use std::borrow::Borrow;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::Arc;

use fulgurite::{
    Rooted,
    containers::{BlobIndex, BlobMap, Container},
};

use crate::context::{fulgurite_context, run};
use crate::failure::Failure;
use crate::open::Open;
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

impl<I, K> Call<'_, I, K>
where
    I: BlobIndex + Sync + 'static,
    BlobMap<I>: Sync,
    K: Borrow<I::Key> + Send + 'static,
{
    /// Copies a value, whose length is told also when it does not fit.
    pub fn get(self, into: &'static mut [u8], len: &mut MaybeUninit<usize>) -> Result<(), Failure> {
        let (Call { context, pool, map, key }, capacity) = (self, into.len());
        let found = run(context, pool, move |m| map.copy_to(m, key.borrow(), into))?.ok_or_else(no_key)?;
        len.write(found);
        if found > capacity {
            let message = format!("the value has {found} bytes, and the buffer {capacity}; pass a larger one");
            return Err(Failure::new(FULGURITE_BUFFER_TOO_SMALL, message));
        }
        Ok(())
    }

    pub fn len(self, len: &mut MaybeUninit<usize>) -> Result<(), Failure> {
        let Call { context, pool, map, key } = self;
        len.write(run(context, pool, move |m| map.value_len(m, key.borrow()))?.ok_or_else(no_key)?);
        Ok(())
    }

    pub fn read_at(
        self,
        offset: usize,
        into: &'static mut [u8],
        copied: &mut MaybeUninit<usize>,
    ) -> Result<(), Failure> {
        let Call { context, pool, map, key } = self;
        let read = run(context, pool, move |m| map.read_at(m, key.borrow(), offset, into))?;
        copied.write(read.ok_or_else(no_key)?);
        Ok(())
    }

    pub fn put(self, value: &'static [u8]) -> Result<(), Failure> {
        let Call { context, pool, map, key } = self;
        run(context, pool, move |m| map.put(m, key.borrow(), value))?;
        Ok(())
    }

    pub fn remove(self) -> Result<(), Failure> {
        let Call { context, pool, map, key } = self;
        if run(context, pool, move |m| map.remove(m, key.borrow()))? { Ok(()) } else { Err(no_key()) }
    }

    pub fn append(self, bytes: &'static [u8], len: Option<&mut MaybeUninit<usize>>) -> Result<(), Failure> {
        let Call { context, pool, map, key } = self;
        let whole = run(context, pool, move |m| map.append(m, key.borrow(), bytes))?;
        if let Some(len) = len {
            len.write(whole);
        }
        Ok(())
    }

    pub fn write_at(self, offset: usize, bytes: &'static [u8]) -> Result<(), Failure> {
        let Call { context, pool, map, key } = self;
        if run(context, pool, move |m| map.write_at(m, key.borrow(), offset, bytes))? {
            return Ok(());
        }
        let message = "there is no such key, or its value ends before the bytes to write";
        Err(Failure::new(FULGURITE_NOT_FOUND, message))
    }

    pub fn compare_and_put(self, expected: Option<&'static [u8]>, value: &'static [u8]) -> Result<(), Failure> {
        let Call { context, pool, map, key } = self;
        if run(context, pool, move |m| map.compare_and_put(m, key.borrow(), expected, value))? {
            return Ok(());
        }
        Err(Failure::new(FULGURITE_DIFFERENT, "the value is not the expected one; read it, and decide again"))
    }
}
