//! Requests that the kernel ends later: of its AIO (`libaio`) and of io_uring (`liburing`).
//!
//! In in-line mode nobody knows when a request has ended. A page could leave before, and what a
//! device wrote to it would be lost. So nothing sets such requests up there: it fails with
//! `ENOSYS`, as on a kernel that has none.

use std::ffi::c_int;

use crate::allocator::Next;
use crate::calls::in_line;

/// Whether requests are refused, which is told. This library's own rings are set up before there is
/// a run in its process.
pub fn are_refused() -> bool {
    in_line().inspect(|run| run.no_requests()).is_some()
}

/// Defines functions of libraries that may be missing. They return an error as a negative number.
macro_rules! refused {
    ($($name:ident, $symbol:literal, ($($argument:ident),*);)*) => {$(
        /// # Safety
        /// As the library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: usize),*) -> c_int {
            static NEXT: Next = Next::new($symbol);
            let Some(next) = NEXT.find().filter(|_| !are_refused()) else { return -libc::ENOSYS };
            // SAFETY: the library's function of this name has so many arguments, each a register.
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
