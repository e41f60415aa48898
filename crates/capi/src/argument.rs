//! Arguments: pointers from C, checked before they become references.
//!
//! The lifetime of what is returned is the caller's to choose. A job that runs while its caller
//! waits takes `'static`, and is through with it when the wait ends.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use fulgurite::AccessError;
use fulgurite_sys::Process;

use crate::failure::Failure;
use crate::status::fulgurite_status::{FULGURITE_INVALID_ARGUMENT, FULGURITE_NO_POOL, FULGURITE_OUT_OF_RANGE};

fn invalid(message: String) -> Failure {
    Failure::new(FULGURITE_INVALID_ARGUMENT, message)
}

fn check<T>(pointer: *const T, what: &str) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(invalid(format!("{what} is NULL; pass what the function is to use")));
    }
    if !pointer.is_aligned() {
        return Err(invalid(format!("{what} is not aligned to {} bytes; align it", align_of::<T>())));
    }
    Ok(())
}

fn check_bytes(pointer: *const c_void, len: usize, what: &str) -> Result<(), Failure> {
    if len > isize::MAX as usize {
        let message = format!("{what} of {len} bytes is larger than any memory; check how its size was computed");
        return Err(Failure::new(FULGURITE_OUT_OF_RANGE, message));
    }
    if pointer.is_null() && len > 0 {
        return Err(invalid(format!("{what} is NULL, and should have {len} bytes")));
    }
    Ok(())
}

/// What a handle leads to.
///
/// # Safety
/// NULL, or valid for reads during `'a`.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    check(pointer, what)?;
    // SAFETY: neither null nor misaligned, and else the caller's contract.
    Ok(unsafe { &*pointer })
}

/// What a handle leads to, or none of NULL.
///
/// # Safety
/// As [`handle`].
pub(crate) unsafe fn handle_or_null<'a, T>(pointer: *const T, what: &str) -> Result<Option<&'a T>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    unsafe { handle(pointer, what) }.map(Some)
}

/// What a handle leads to, for changes.
///
/// # Safety
/// NULL, or valid during `'a` and not used by others meanwhile.
pub(crate) unsafe fn handle_mut<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    check(pointer, what)?;
    // SAFETY: neither null nor misaligned, and else the caller's contract.
    Ok(unsafe { &mut *pointer })
}

/// Takes a handle back that [`give`] has handed out.
///
/// # Safety
/// NULL, or from [`give`], and not used any more.
pub(crate) unsafe fn take<T>(pointer: *mut T, what: &str) -> Result<Box<T>, Failure> {
    check(pointer, what)?;
    // SAFETY: `give` made it of a box, which the caller gives up.
    Ok(unsafe { Box::from_raw(pointer) })
}

/// Frees a handle. NULL is none.
///
/// # Safety
/// As [`take`].
pub(crate) unsafe fn free<T>(pointer: *mut T, what: &str) -> Result<(), Failure> {
    if !pointer.is_null() {
        // SAFETY: the caller's contract.
        drop(unsafe { take(pointer, what) }?);
    }
    Ok(())
}

/// What a handle leads to in the process that made it. A child after `fork` has a copy, without the
/// threads that serve it, and with locks that nobody lets go.
pub(crate) struct OfProcess<T> {
    value: T,
    process: Process,
}

impl<T> OfProcess<T> {
    pub fn new(value: T) -> OfProcess<T> {
        OfProcess { value, process: Process::current() }
    }

    /// The value, or FULGURITE_FORKED in a child.
    pub fn get(&self) -> Result<&T, Failure> {
        if self.process.is_current() { Ok(&self.value) } else { Err(AccessError::Forked.into()) }
    }

    /// The value, in a child as well.
    pub fn into_value(self) -> T {
        self.value
    }
}

/// A handle for C.
pub(crate) fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Text.
///
/// # Safety
/// NULL, or a string that ends in 0 and does not change during `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller's contract.
    let bytes = unsafe { string(pointer, what) }?;
    std::str::from_utf8(bytes).map_err(|error| invalid(format!("{what} is not UTF-8: {error}")))
}

/// The name of what is opened: text in a pool, and NULL in memory that keeps nothing.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn name<'a>(pointer: *const c_char, keeps: bool) -> Result<Option<&'a str>, Failure> {
    match (pointer.is_null(), keeps) {
        (true, false) => Ok(None),
        (false, false) => {
            let message = "this memory keeps nothing, so nothing in it has a name; pass NULL, or open a pool";
            Err(Failure::new(FULGURITE_NO_POOL, message))
        }
        // SAFETY: the caller's contract.
        (_, true) => Ok(Some(unsafe { text(pointer, "name") }?)),
    }
}

/// The bytes of a string, without the 0 at its end.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn string<'a>(pointer: *const c_char, what: &str) -> Result<&'a [u8], Failure> {
    check(pointer, what)?;
    // SAFETY: not null, and else the caller's contract.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// Bytes to be read. NULL is none.
///
/// # Safety
/// NULL, or `len` bytes that do not change during `'a`.
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, len: usize, what: &str) -> Result<&'a [u8], Failure> {
    check_bytes(pointer, len, what)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: neither null nor too long, and else the caller's contract.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), len) })
}

/// Bytes to be filled. NULL is none.
///
/// # Safety
/// NULL, or `len` bytes that nothing else uses during `'a`.
pub(crate) unsafe fn buffer<'a>(pointer: *mut c_void, len: usize, what: &str) -> Result<&'a mut [u8], Failure> {
    check_bytes(pointer, len, what)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: neither null nor too long, and else the caller's contract. Any byte is a `u8`.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), len) })
}

/// Where a result is stored.
///
/// # Safety
/// NULL, or room for a `T` that nothing else uses during `'a`.
pub(crate) unsafe fn out<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut MaybeUninit<T>, Failure> {
    check(pointer, what)?;
    // SAFETY: neither null nor misaligned, and else the caller's contract.
    Ok(unsafe { &mut *pointer.cast() })
}

/// Where a result is stored, if it is wanted.
///
/// # Safety
/// As [`out`].
pub(crate) unsafe fn out_or_null<'a, T>(
    pointer: *mut T,
    what: &str,
) -> Result<Option<&'a mut MaybeUninit<T>>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    unsafe { out(pointer, what) }.map(Some)
}

/// Copies a structure of numbers to where the program has room for `size` bytes of it: the members
/// that it knows.
///
/// # Safety
/// `into` is NULL, or room for `size` bytes. A `T` has no padding.
pub(crate) unsafe fn copy_out<T: Copy>(from: &T, into: *mut T, size: usize, what: &str) -> Result<(), Failure> {
    check(into, what)?;
    // SAFETY: the caller's contract.
    let into = unsafe { buffer(into.cast(), size, what) }?;
    // SAFETY: a `T` has these bytes and no padding (the caller's contract), and lives on.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(from).cast::<u8>(), size_of::<T>()) };
    let len = size.min(bytes.len());
    into[..len].copy_from_slice(&bytes[..len]);
    into[len..].fill(0);
    Ok(())
}

/// A pointer of the program's own, which its callback gets back, on whatever thread.
#[derive(Clone, Copy)]
pub(crate) struct User(pub *mut c_void);

// SAFETY: it is never followed here. The header documents on which threads the callbacks run.
unsafe impl Send for User {}

impl User {
    /// The pointer. (A method takes all of it into a closure, which is `Send` then.)
    pub fn pointer(self) -> *mut c_void {
        self.0
    }
}
