//! Fault handlers on the stack that a signal interrupted, while its handler runs on the alternate
//! one. That one may be small: Rust gives its threads 8 KiB.

use std::ffi::c_void;
use std::ptr::null;

use crate::arch;

/// Bytes that a fault handler has on the interrupted stack, or it runs on the alternate one.
const ROOM: usize = 16 << 10;
const PAGE: usize = 4096;

/// Calls `handler` on the stack that a signal interrupted. False, and it is not called, where that
/// is the stack of the caller, an alternate one, or one without room.
///
/// # Safety
/// The context is the one of the signal that is being handled, with all signals blocked.
pub(super) unsafe fn call(context: *const libc::ucontext_t, mut handler: &mut dyn FnMut()) -> bool {
    extern "C" fn call(handler: *mut c_void) {
        // SAFETY: it is the pointer that is passed below, and nothing else uses it meanwhile.
        unsafe { (*handler.cast::<&mut dyn FnMut()>())() }
    }
    // SAFETY: the caller's contract.
    let (alternate, interrupted) = unsafe { ((*context).uc_stack, arch::stack_pointer(context)) };
    let (start, here) = (alternate.ss_sp.addr(), arch::stack_pointer_here());
    let is_there = |at: usize| alternate.ss_flags & libc::SS_DISABLE == 0 && at.wrapping_sub(start) < alternate.ss_size;
    let top = interrupted.saturating_sub(arch::RED_ZONE) & !15;
    if !is_there(here) || is_there(interrupted) || !has_room(top) {
        return false;
    }
    // SAFETY: nothing is in use below the red zone of the interrupted code, which does not continue
    // meanwhile. All of the room was just seen to be writable. The function has the type that its
    // argument wants.
    unsafe { arch::call_on(top, call, (&raw mut handler).cast()) };
    true
}

/// Whether a fault handler has room below an address. What is stored there is overwritten in part.
fn has_room(top: usize) -> bool {
    // A guard is no shorter than a page, so none is stepped over.
    (0..=ROOM).step_by(PAGE).all(|depth| is_writable(top.saturating_sub(depth + size_of::<u64>())))
}
/// Whether the kernel can write a word to an address, and writes one.
fn is_writable(address: usize) -> bool {
    // SAFETY: the call changes no mask without a new one. It writes the mask to the address, or
    // fails. Nothing is in use there, because it is below the red zone of a stack.
    let result = unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, null::<u64>(), address as *mut u64, size_of::<u64>())
    };
    result == 0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

    use super::*;
    use crate::Region;
    use crate::faults::tests::is_alone;
    use crate::faults::{Fault, FaultOutcome, HandlerStack, Signal, SignalStack, ask_first, handle_by};
    use crate::userfault::Access;

    static BASE: AtomicUsize = AtomicUsize::new(0);
    static FIRST: AtomicU32 = AtomicU32::new(0);
    static HANDLED_AT: AtomicUsize = AtomicUsize::new(0);

    fn allow(address: usize) {
        // SAFETY: the page is the test's.
        let done =
            unsafe { libc::mprotect((address & !(PAGE - 1)) as *mut c_void, PAGE, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(done, 0);
    }
    /// Knows the first page.
    fn first(address: usize, _: &mut libc::ucontext_t) -> bool {
        let is_its = address.wrapping_sub(BASE.load(Ordering::Relaxed)) < PAGE;
        if is_its {
            allow(address);
            FIRST.fetch_add(1, Ordering::Relaxed);
        }
        is_its
    }
    fn handle_fault(fault: &Fault) -> FaultOutcome {
        if fault.address.wrapping_sub(BASE.load(Ordering::Relaxed)) >= 4 * PAGE {
            return FaultOutcome::NotMine;
        }
        // It needs some of its room.
        std::hint::black_box([1u8; ROOM / 2]);
        HANDLED_AT.store(arch::stack_pointer_here(), Ordering::Relaxed);
        allow(fault.address);
        FaultOutcome::Again
    }
    extern "C" fn touch(address: *mut c_void) {
        // SAFETY: the page is the test's.
        unsafe { address.cast::<u8>().write_volatile(1) };
    }

    const NAME: &str = "faults::own_stack::tests::a_fault_handler_has_the_interrupted_stack_where_that_has_room";

    #[test]
    fn a_fault_handler_has_the_interrupted_stack_where_that_has_room() {
        if !is_alone(NAME) {
            return;
        }
        let region = Region::reserve(4 * PAGE).unwrap();
        region.allow(0, 4 * PAGE, Access::None).unwrap();
        BASE.store(region.base(), Ordering::Relaxed);
        handle_by(Signal::Segmentation, handle_fault, HandlerStack::Own).unwrap();
        // SAFETY: it changes no registers.
        unsafe { ask_first(Signal::Segmentation, first) }.unwrap();
        let page = |page: usize| (region.base() + page * PAGE) as *mut c_void;
        let alternate = SignalStack::new(64 << 10).unwrap().use_while().unwrap();
        touch(page(0));
        assert_eq!((FIRST.load(Ordering::Relaxed), HANDLED_AT.load(Ordering::Relaxed)), (1, 0));

        touch(page(1));
        let here = arch::stack_pointer_here();
        assert!(HANDLED_AT.load(Ordering::Relaxed).abs_diff(here) < 4 * ROOM, "it is on the stack of the test");
        for (number, bytes, is_on_it) in [(2, 2 * ROOM, true), (3, ROOM / 2, false)] {
            let other = SignalStack::new(bytes).unwrap();
            // SAFETY: nothing else is on that stack, and the page is the test's.
            unsafe { arch::call_on(other.base + other.len(), touch, page(number)) };
            let handled_at = HANDLED_AT.load(Ordering::Relaxed);
            assert_eq!((other.base..other.base + bytes).contains(&handled_at), is_on_it);
            assert_eq!((alternate.stack.base..alternate.stack.base + (64 << 10)).contains(&handled_at), !is_on_it);
        }
        assert_eq!(FIRST.load(Ordering::Relaxed), 1);
        drop(alternate);
        let mut now = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
        // SAFETY: the call writes the structure that it is given.
        assert_eq!(unsafe { libc::sigaltstack(null(), &raw mut now) }, 0);
        assert_ne!(now.ss_size, 64 << 10, "it has the one that it had before");
    }
}
