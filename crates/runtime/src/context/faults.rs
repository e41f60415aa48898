//! Faults of memory that a job touches by plain accesses: the fiber waits for the page as for a
//! subpage that it missed, and the worker runs others.

use std::ptr::NonNull;
use std::sync::Arc;

use fulgurite_sys::faults::{FaultOutcome, Fiber, SwitchOnFault, Waiter, in_scope};

use super::Context;
use crate::state::WaitsFor;
use crate::thread::AbortOnPanic;

impl SwitchOnFault for Context {
    #[inline]
    unsafe fn switch_on_fault<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let fiber = FaultingFiber(NonNull::from(self));
        // SAFETY: the fiber of this context runs. The rest is the caller's word.
        unsafe { in_scope(&fiber, call) }
    }
}

/// The context of the fiber that runs, which is borrowed for a scope: nothing else has it.
struct FaultingFiber(NonNull<Context>);

impl FaultingFiber {
    fn context(&self) -> &Context {
        // SAFETY: it is borrowed for as long as this lives, and nothing changes it meanwhile.
        unsafe { self.0.as_ref() }
    }
}

impl Fiber for FaultingFiber {
    fn has_room_at(&self, address: usize) -> bool {
        let context = self.context();
        (context.stack_reserve..context.stack_end).contains(&address)
    }

    fn handle(&self, handler: &mut dyn FnMut()) {
        // SAFETY: as in `with_fibers`. What is called does not suspend the fiber.
        unsafe {
            self.context().suspender.as_ref().on_parent_stack(move || {
                let whole = AbortOnPanic;
                handler();
                std::mem::forget(whole);
            });
        }
    }

    fn begin(&self) -> Arc<dyn Waiter> {
        let context = self.context();
        // SAFETY: as in `with_fibers`, on whose stack this is called. The reference ends with the
        // block.
        let ticket = unsafe {
            let fibers = &mut *context.fibers.as_ptr();
            fibers.will_wait(context.state.index, WaitsFor::Flash, context.shared.clock.now_ns())
        };
        context.state.faulted.begin(ticket);
        context.state.faulted.clone()
    }

    fn wait(&self) -> FaultOutcome {
        let context = self.context();
        context.suspend();
        context.state.faulted.outcome()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use fulgurite_flash::MemoryFlash;
    use fulgurite_sys::faults::{Fault, HandlerStack, Signal, begin_switch, handle_by, may_switch};

    use super::*;
    use crate::Runtime;

    const PAGE: usize = 4096;
    const PAGES: usize = 8;
    /// Pages of a file that gets longer at each fault: beyond its end an access is a `SIGBUS`.
    struct Mapping {
        file: i32,
        base: usize,
    }
    static MAPPING: OnceLock<Mapping> = OnceLock::new();

    fn map(pages: usize) -> Mapping {
        // SAFETY: a fresh file without a name, and a fresh mapping of it.
        let (file, base) = unsafe {
            let file = libc::memfd_create(c"faults".as_ptr(), libc::MFD_CLOEXEC);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            (file, libc::mmap(std::ptr::null_mut(), pages * PAGE, protection, libc::MAP_SHARED, file, 0))
        };
        assert!(file >= 0 && base != libc::MAP_FAILED);
        Mapping { file, base: base.addr() }
    }
    static SWITCHED: AtomicU32 = AtomicU32::new(0);
    static WAITED: AtomicU32 = AtomicU32::new(0);

    fn handle_fault(fault: &Fault) -> FaultOutcome {
        let Some(mapping) = MAPPING.get() else { return FaultOutcome::NotMine };
        let page = fault.address.wrapping_sub(mapping.base) / PAGE;
        if page >= PAGES {
            return FaultOutcome::NotMine;
        }
        let waiter = may_switch().then(begin_switch);
        // SAFETY: it is the descriptor of the test.
        assert_eq!(unsafe { libc::ftruncate(mapping.file, ((page + 1) * PAGE) as i64) }, 0);
        let Some(waiter) = waiter else {
            WAITED.fetch_add(1, Ordering::Relaxed);
            return FaultOutcome::Again;
        };
        SWITCHED.fetch_add(1, Ordering::Relaxed);
        // It may end before the fiber waits.
        waiter.end(FaultOutcome::Again);
        FaultOutcome::Waits
    }

    /// Touches a page for the first time, and tells how many faults have switched, and have not.
    fn touch(page: usize) -> (u32, u32) {
        let at = MAPPING.get().unwrap().base + page * PAGE;
        // SAFETY: the page is mapped, and the fault handler makes the file as long.
        unsafe { (at as *mut u8).write_volatile(1) };
        (SWITCHED.load(Ordering::Relaxed), WAITED.load(Ordering::Relaxed))
    }

    #[test]
    fn a_fault_of_the_runtimes_own_code_or_without_room_waits() {
        let flash = Arc::new(MemoryFlash::new(4096).unwrap());
        let runtime = Runtime::builder(flash).dram(24 << 20).stack(128 << 10).build().unwrap();
        MAPPING.get_or_init(|| map(PAGES));
        handle_by(Signal::Bus, handle_fault, HandlerStack::Own).unwrap();
        let job = |context: &mut Context| {
            assert_eq!(touch(0), (0, 1), "no scope is open");
            let pointer = std::ptr::from_mut(context);
            let fiber = FaultingFiber(NonNull::from(context));
            // SAFETY: the calls hold nothing, and use the context one after the other.
            unsafe {
                assert_eq!(in_scope(&fiber, || touch(1)), (1, 1));
                let reserve = std::mem::replace(&mut (*pointer).stack_reserve, (*pointer).stack_end);
                assert_eq!(in_scope(&fiber, || touch(2)), (1, 2), "there is no room on its stack");
                (*pointer).stack_reserve = reserve;
                assert_eq!(in_scope(&fiber, || in_scope(&fiber, || touch(3))), (2, 2), "scopes nest");
                assert_eq!(in_scope(&fiber, || (in_scope(&fiber, || ()), touch(4)).1), (3, 2));
                // Under AddressSanitizer the runtime's own code runs on the fiber's stack.
                if !cfg!(sanitized) {
                    let own_code = || (*pointer).with_fibers(|_| touch(5));
                    assert_eq!(in_scope(&fiber, own_code), (3, 3), "on the worker's stack");
                }
            }
            let waited = if cfg!(sanitized) { 3 } else { 4 };
            assert_eq!(touch(6), (3, waited));
            Ok(())
        };
        runtime.run(job).unwrap();
    }
}
