//! Requests that the kernel ends later: of its AIO (`libaio`) and of io_uring (`liburing`).
//!
//! In in-line mode nobody knows when a request has ended. A page could leave before, and what a
//! device wrote to it would be lost. So nothing sets such requests up there: it fails with
//! `ENOSYS`, as on a kernel that has none.

use std::ffi::{CStr, CString, c_int, c_void};

use crate::allocator::Next;
use crate::calls::in_line;

/// Whether requests are refused, which is reported. This library's own rings are set up before
/// there is a run in its process.
pub fn are_refused() -> bool {
    in_line().inspect(|run| run.no_requests()).is_some()
}

/// A function of a library that is loaded for another one only (`RTLD_LOCAL`), other than `own`.
fn of_any_library(name: &CStr, own: usize) -> Option<usize> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, names: *mut c_void) -> c_int {
        // SAFETY: the C library gives the name of a library, and below is the list.
        let (name, names) = unsafe { (CStr::from_ptr((*info).dlpi_name), &mut *names.cast::<Vec<CString>>()) };
        names.push(name.to_owned());
        0
    }
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: the function takes the list.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut names).cast()) };
    names.iter().filter(|library| !library.is_empty()).find_map(|library| {
        // SAFETY: the names end in zero. Nothing is loaded, and the program keeps what is.
        unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() {
                return None;
            }
            let found = libc::dlsym(handle, name.as_ptr()) as usize;
            libc::dlclose(handle);
            Some(found).filter(|found| *found != 0 && *found != own)
        }
    })
}

/// Defines functions of libraries that may be missing. They return an error as a negative number.
macro_rules! refused {
    ($($name:ident, $symbol:literal, ($($argument:ident),*);)*) => {$(
        /// # Safety
        /// As the library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: usize),*) -> c_int {
            static NEXT: Next = Next::new($symbol);
            if are_refused() {
                return -libc::ENOSYS;
            }
            let of_any = || of_any_library($symbol, $name as *const () as usize);
            let Some(next) = NEXT.find().or_else(of_any) else { return -libc::ENOSYS };
            // SAFETY: the library's function of this name has this number of arguments, each a
            // register.
            let next: unsafe extern "C" fn($(refused!(@usize $argument)),*) -> c_int = unsafe { std::mem::transmute(next) };
            // SAFETY: the caller's contract.
            unsafe { next($($argument),*) }
        }
    )*};
    (@usize $argument:ident) => { usize };
}

refused! {
    io_setup, c"io_setup", (count, context);
    io_queue_init, c"io_queue_init", (count, context);
    io_uring_setup, c"io_uring_setup", (count, params);
    io_uring_queue_init, c"io_uring_queue_init", (count, ring, flags);
    io_uring_queue_init_params, c"io_uring_queue_init_params", (count, ring, params);
    io_uring_queue_init_mem, c"io_uring_queue_init_mem", (count, ring, params, memory, bytes);
}
