//! The context of a job: what its callback passes on, so that its calls run on its own fiber.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::ThreadId;

use fulgurite::{
    AccessError, Context,
    views::{RawMemory, WriteSection},
};
use fulgurite_alloc::reach;

use crate::argument;
use crate::failure::{Failure, guard};
use crate::open::Open;
use crate::status::fulgurite_status::{self, *};

/// What a job has of its worker. It is valid while the job's callback runs, in that callback only.
///
/// Functions that take one do their work on the job's fiber: a miss lets other jobs run. From a
/// thread that is no worker they take NULL, and then wait until a worker has done it.
pub struct fulgurite_context {
    inner: NonNull<Context>,
    pool: Arc<Open>,
    thread: ThreadId,
    /// A call is under way, and has the context.
    busy: Cell<bool>,
    sections: RefCell<Vec<WriteSection>>,
}

/// Ends a call on a context, also when it panics.
struct Call<'c>(&'c Cell<bool>);
impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl fulgurite_context {
    /// Of a job that runs now. It must not be used after the borrow.
    pub(crate) fn new(inner: &mut Context, pool: Arc<Open>) -> fulgurite_context {
        fulgurite_context {
            inner: NonNull::from(inner),
            pool,
            thread: std::thread::current().id(),
            busy: Cell::new(false),
            sections: RefCell::default(),
        }
    }

    fn call<T>(
        &self,
        code: impl FnOnce(&mut Context, &RefCell<Vec<WriteSection>>) -> Result<T, AccessError>,
    ) -> Result<T, Failure> {
        // First, because another thread may read nothing else of it.
        if std::thread::current().id() != self.thread {
            let message = "the context is of a job on another thread; pass NULL";
            return Err(Failure::new(FULGURITE_INVALID_ARGUMENT, message));
        }
        self.pool.check_process()?;
        if self.busy.replace(true) {
            let message = "a call with this context is under way; a visitor must not use the context of its scan";
            return Err(Failure::new(FULGURITE_BUSY, message));
        }
        let _call = Call(&self.busy);
        // SAFETY: the job's code has lent its context for as long as its callback runs, which it
        // does (the caller's contract) on this thread (checked). No other call uses it (checked).
        let inner = unsafe { &mut *self.inner.as_ptr() };
        Ok(code(inner, &self.sections)?)
    }

    fn call_on<T>(
        &self,
        pool: &Arc<Open>,
        code: impl FnOnce(&mut Context) -> Result<T, AccessError>,
    ) -> Result<T, Failure> {
        if !Arc::ptr_eq(&self.pool, pool) {
            let message = "the context is of a job of another pool; submit the job there";
            return Err(Failure::new(FULGURITE_INVALID_ARGUMENT, message));
        }
        self.call(|inner, _| code(inner))
    }
}

/// Runs code on the fiber of a job, or without one on a worker, and waits for it.
pub(crate) fn run<T: Send + 'static>(
    context: Option<&fulgurite_context>,
    pool: &Arc<Open>,
    code: impl FnOnce(&mut Context) -> Result<T, AccessError> + Send + 'static,
) -> Result<T, Failure> {
    match context {
        Some(context) => context.call_on(pool, code),
        None => pool.with(|memory| Ok(memory.run(code)?)),
    }
}

/// Lets other jobs of the worker run, if there are any.
///
/// Fails with FULGURITE_CANCELLED or FULGURITE_DEADLINE_EXCEEDED when the job should end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_yield(context: *mut fulgurite_context) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let context = unsafe { argument::handle(context, "context") }?;
        context.call(|inner, _| RawMemory::yield_now(inner))
    })
}

/// Copies bytes from or to objects or blocks of an allocator, or from one to the other. While an
/// object is read from flash, other jobs of the worker run, where objects are in line
/// (FULGURITE_OBJECTS_IN_LINE). A plain access waits with the worker. The ranges must not overlap,
/// and other jobs must not change them meanwhile.
///
/// Fails with FULGURITE_OUT_OF_RANGE for more bytes than any memory has. A context of NULL is
/// refused with FULGURITE_INVALID_ARGUMENT, also outside of jobs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_copy(
    context: *mut fulgurite_context,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (context, to, from) = unsafe {
            let context = argument::handle(context, "context")?;
            (context, argument::buffer(to, bytes, "to")?, argument::bytes(from, bytes, "from")?)
        };
        context.call(|inner, _| {
            reach::copy(inner, from, to);
            Ok(())
        })
    })
}

/// Opens a write section: a token has all that the job writes until the section ends, or none of
/// it. Sections nest. A sync waits for those that are open, so keep them short. A section that is
/// open at the end of the job ends there.
///
/// Fails with FULGURITE_CANCELLED or FULGURITE_DEADLINE_EXCEEDED when the job should end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_section_begin(context: *mut fulgurite_context) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let context = unsafe { argument::handle(context, "context") }?;
        context.call(|inner, sections| {
            let section = inner.write_section()?;
            sections.borrow_mut().push(section);
            Ok(())
        })
    })
}

/// Ends the write section that was opened last.
///
/// Fails with FULGURITE_INVALID_ARGUMENT when none is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_section_end(context: *mut fulgurite_context) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let context = unsafe { argument::handle(context, "context") }?;
        let ended = context.call(|_, sections| Ok(sections.borrow_mut().pop()))?;
        let message = "no write section of this job is open; begin one first";
        ended.map(drop).ok_or_else(|| Failure::new(FULGURITE_INVALID_ARGUMENT, message))
    })
}
