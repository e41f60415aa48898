//! The end of a process whose last own thread ends: `main` may end by `pthread_exit` and leave the
//! rest to its threads.
//!
//! The C library and the kernel both count threads of this library, so neither ends the process.
//! The page buffer notices (`PageBuffer::watch_for_the_end`), and what they would do is done here:
//!
//! | the first thread ended by | the process ends by |
//! |---|---|
//! | the C library | `exit(0)` on a new thread, as on the last one of the program |
//! | the system call `exit` | `_exit` with its code |
//! | a signal that ends one thread (`seccomp`) | this signal |

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fulgurite_fault::{Error, PageBuffer};

use crate::errno::kernel;
use crate::{early, forks, signals};

/// The key whose destructor notices that the C library ends the first thread, plus one.
static KEY: AtomicU32 = AtomicU32::new(0);
/// It does so, in this process.
static IS_BY_LIBRARY: AtomicBool = AtomicBool::new(false);

/// Watches for the end of the program. Called by the first thread of a process.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn watch(buffer: &PageBuffer) -> Result<(), Error> {
    IS_BY_LIBRARY.store(false, Ordering::Relaxed);
    let mut key = 0;
    match KEY.load(Ordering::Relaxed) {
        // SAFETY: the destructor is a function of a library that is never unloaded.
        0 if unsafe { libc::pthread_key_create(&raw mut key, Some(ends)) } == 0 => {
            KEY.store(key + 1, Ordering::Relaxed);
        }
        made => key = made.wrapping_sub(1),
    }
    // SAFETY: the value is no address of anything. A key that could not be made is refused.
    unsafe { libc::pthread_setspecific(key, std::ptr::dangling::<c_void>()) };
    buffer.watch_for_the_end(end)
}

/// The thread ends by the C library: its functions for that call destructors.
unsafe extern "C" fn ends(_: *mut c_void) {
    // SAFETY: it has no arguments.
    let thread = unsafe { kernel(libc::SYS_gettid, [0; 6]) };
    if thread == std::process::id().into() {
        IS_BY_LIBRARY.store(true, Ordering::Relaxed);
    }
}

/// Called by the handler thread when only threads of this library are left.
fn end(word: i32) {
    let (signal, code) = (word & 0x7f, word >> 8 & 0xff);
    if word == 0 && IS_BY_LIBRARY.load(Ordering::Relaxed) {
        let mut thread = 0;
        let mut begun = false;
        // Blocks for it cannot come from the program's allocator, which may need a page.
        early::with(|| {
            // SAFETY: `last` is a function of the type that is wanted, and no attributes are given.
            begun = unsafe { signals::pthread_create(&raw mut thread, null(), last, null_mut()) } == 0;
        });
        if begun {
            return;
        }
    } else if signal != 0 {
        forks::set_signals(0);
        let default = [0u64; 4];
        // SAFETY: the action is the default one. What is sent ends the process.
        unsafe {
            kernel(libc::SYS_rt_sigaction, [signal as usize, default.as_ptr() as usize, 0, 8, 0, 0]);
            kernel(libc::SYS_kill, [std::process::id() as usize, signal as usize, 0, 0, 0, 0]);
        }
    }
    // SAFETY: ends the process.
    unsafe { libc::_exit(if signal == 0 { code } else { 128 + signal }) }
}

/// The thread that ends the process.
unsafe extern "C-unwind" fn last(_: *mut c_void) -> *mut c_void {
    signals::equip();
    forks::set_signals(0);
    // SAFETY: no other thread of the program is left that could call it as well.
    unsafe { libc::exit(0) }
}
