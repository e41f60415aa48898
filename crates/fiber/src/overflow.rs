//! Stack overflow: a SIGSEGV in the guard of the running fiber ends that fiber, and no other.
//!
//! All that the signal handler may do is in [`on_fault`]: it reads thread-local cells that this thread wrote, asks whether
//! the address lies in the running fiber's guard, and redirects the interrupted registers to code that returns from the
//! fiber. It neither allocates, locks nor formats. Faults that are not ours go to the handler that was there before
//! (Rust's own, a debugger's, the program's).

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Once;

use corosensei::trap::CoroutineTrapHandler;

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

/// Notes which fiber is about to run; returns the one that ran before (a fiber may resume another). The caller keeps the
/// trap where it is until `leave`.
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

static mut PREVIOUS: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();

/// Installs the handler for the whole process, once. Threads need an alternate signal stack, which Rust gives to every
/// thread that it starts and to the main thread.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the structure is zeroed (valid for `sigaction`) and filled with a handler of the right signature;
        // PREVIOUS is written here only, once, before the handler can read it.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigemptyset(&raw mut action.sa_mask);
            // Read the old action before ours is in place: a fault in between finds a complete PREVIOUS.
            libc::sigaction(libc::SIGSEGV, std::ptr::null(), (&raw mut PREVIOUS).cast());
            libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
        }
    });
}

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid pointers to an SA_SIGINFO handler, and nobody else has the context.
    let (address, context) = unsafe { ((*info).si_addr() as usize, &mut *context.cast::<libc::ucontext_t>()) };
    // `try_with`: a thread that is being torn down has no cells left, and no fiber either.
    // SAFETY: between `enter` and `leave` the pointer is null or points to a trap that is kept where it is.
    let running = RUNNING.try_with(Cell::get).ok().and_then(|trap| unsafe { trap.as_ref() });
    if let Some(running) = running
        && running.guard.contains(&address)
        && running.handler.stack_ptr_in_bounds(arch::stack_pointer(context))
    {
        OVERFLOWED.set(true);
        // SAFETY: the fault struck in this fiber (its stack pointer is in bounds) at a stack probe, that is, between
        // statements; the fiber never returns to the frames that are discarded. What they held is leaked, not dropped:
        // the runtime fails the job, and poisons the latches that it held.
        let registers = unsafe { running.handler.setup_trap_handler(|| ()) };
        arch::redirect(context, registers);
        return;
    }
    chain(signal, info, std::ptr::from_mut(context).cast());
}

/// Passes a fault that is not ours on.
fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: PREVIOUS was filled before our handler was installed; a handler in it has the signature its flags say.
    unsafe {
        let previous = &*(&raw const PREVIOUS).cast::<libc::sigaction>();
        match previous.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                // The default action on return: the instruction faults again.
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const default, std::ptr::null_mut());
            }
            handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
