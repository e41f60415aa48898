//! Stack overflow: a SIGSEGV in the guard of the running fiber ends that fiber, and no other.
//! Inside the C library, or while the fiber panics, it ends the process: locks that no code can
//! open would stop it sooner or later.
//!
//! All that the signal handler may do is in [`on_fault`]: it reads thread-local cells that this
//! thread wrote, checks whether the address is in the running fiber's guard, and redirects the
//! interrupted registers to code that returns from the fiber. It neither allocates, locks nor
//! formats. Faults that are not caused by a fiber's stack are passed to the fault handlers of
//! memory ([`faults`]), and then to the handler that was there before (Rust's own, a debugger's,
//! the program's).

use std::cell::Cell;
use std::ops::Range;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use corosensei::trap::CoroutineTrapHandler;
use fulgurite_sys::faults::{self, Signal};

use crate::arch;

/// What the handler must know of a fiber.
pub(crate) struct Trap {
    /// Redirects the fiber's registers.
    pub(crate) handler: CoroutineTrapHandler<()>,
    /// The addresses below its stack.
    pub(crate) guard: Range<usize>,
}

thread_local! {
    static RUNNING: Cell<*const Trap> = const { Cell::new(std::ptr::null()) };
    static OVERFLOWED: Cell<bool> = const { Cell::new(false) };
}

/// Notes which fiber is about to run. Returns the one that ran before (a fiber may resume another).
/// The caller keeps the trap where it is until `leave`.
#[inline]
pub(crate) fn enter(trap: &Trap) -> *const Trap {
    RUNNING.replace(trap)
}

/// Notes that it came back. Returns whether it overflowed.
#[inline]
pub(crate) fn leave(previous: *const Trap) -> bool {
    RUNNING.set(previous);
    OVERFLOWED.get() && OVERFLOWED.replace(false)
}

/// Has all faults of the process come here first, once. Threads need an alternate signal stack,
/// which Rust gives to every thread that it starts and to the main thread.
///
/// # Panics
/// When the kernel takes no action for `SIGSEGV`.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        find_c_library();
        // SAFETY: a thread goes on where its fiber was resumed. Little stack is needed for that.
        let asked = unsafe { faults::ask_first(Signal::Segmentation, on_fault) };
        asked.expect("the kernel takes an action for SIGSEGV");
    });
}

fn on_fault(address: usize, context: &mut libc::ucontext_t) -> bool {
    // `try_with`: a thread that is being torn down has no cells left, and no fiber either.
    // SAFETY: between `enter` and `leave` the pointer is null or points to a trap that is kept
    // where it is.
    let running = RUNNING.try_with(Cell::get).ok().and_then(|trap| unsafe { trap.as_ref() });
    if let Some(running) = running
        && running.guard.contains(&address)
        && running.handler.stack_ptr_in_bounds(arch::stack_pointer(context))
    {
        if std::thread::panicking() || in_c_library(arch::instruction_pointer(context)) {
            // Half a panic cannot be left, and the C library may hold its allocator's lock.
            give_up();
        }
        OVERFLOWED.set(true);
        // SAFETY: the fault struck in this fiber: its stack pointer is in bounds. The fiber never
        // goes on, which makes it a thread that is stopped for good: what its frames held is
        // neither dropped nor, as long as the caller keeps the stack, changed.
        let registers = unsafe { running.handler.setup_trap_handler(|| ()) };
        arch::redirect(context, registers);
        return true;
    }
    false
}

/// Where the C library's code is. Empty while unknown, or when it is part of the program itself.
static C_LIBRARY: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

fn in_c_library(instruction: usize) -> bool {
    (C_LIBRARY[0].load(Ordering::Relaxed)..C_LIBRARY[1].load(Ordering::Relaxed)).contains(&instruction)
}

/// Ends the process with a word. To be called by a signal handler.
fn give_up() -> ! {
    const WORDS: &[u8] =
        b"fulgurite: a job overflowed its stack inside the C library, or while it panicked: the process \
        cannot go on; give jobs larger stacks\n";
    // SAFETY: both calls are async-signal-safe. The buffer is constant.
    unsafe {
        libc::write(2, WORDS.as_ptr().cast(), WORDS.len());
        libc::abort()
    }
}

/// Finds the C library among the objects of the process.
fn find_c_library() {
    extern "C" fn visit(info: *mut libc::dl_phdr_info, _: libc::size_t, _: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the loader passes a valid description, whose headers are as many as it says.
        let (base, headers) = unsafe {
            let info = &*info;
            (info.dlpi_addr as usize, std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()))
        };
        let code = headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0);
        let ranges = code.map(|h| base + h.p_vaddr as usize..base + h.p_vaddr as usize + h.p_memsz as usize);
        let (malloc, ours) = (libc::malloc as *const () as usize, install as *const () as usize);
        for range in ranges {
            if range.contains(&malloc) && !range.contains(&ours) {
                C_LIBRARY[0].store(range.start, Ordering::Relaxed);
                C_LIBRARY[1].store(range.end, Ordering::Relaxed);
                return 1;
            }
        }
        0
    }
    // SAFETY: the function has the signature that is called, and needs no data.
    unsafe { libc::dl_iterate_phdr(Some(visit), std::ptr::null_mut()) };
}
