//! Faults that switch: while the page of one is read, its thread runs other fibers.
//!
//! ```text
//!   fiber: scope { access } --signal--> handler, on the fiber's stack
//!                                         | fault handlers, on the worker's stack, begin a wait
//!                                         | wait: the worker runs others <- the waiter is notified
//!                                         v
//!                                       back to the access
//! ```
//!
//! The kernel has saved all registers on the fiber's stack, and restores them when the handler
//! returns, however late that is. To the kernel a handler is a function as any other, but for the
//! signals that it blocks. While others run, these are blocked that the access had blocked.
//!
//! Nothing tells from outside whether a switch is safe: the interrupted code may hold a lock, or
//! have borrowed what belongs to its thread. So a fault switches in a scope only
//! ([`SwitchOnFault`]), and there only if
//! * its handler runs on the fiber's own stack. The worker's own code has another one, as have
//!   handlers with an alternate stack;
//! * that stack has room for a wait;
//! * the thread does not panic. That is the thread's state, and not the fiber's.
//!
//! Other faults wait with their thread. The layer that has fibers implements [`Fiber`], and the one
//! that handles faults calls [`may_switch`] and [`begin_switch`].

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use super::{FaultOutcome, set_mask};
use crate::{arch, workers};

/// What a job holds of its runtime, by which its faults switch.
pub trait SwitchOnFault {
    /// Calls `call`. An access in it that finds its page missing lets other jobs of this worker run
    /// while the page is read, where faults are `SIGBUS` (in-line mode with userfaultfd). The job
    /// goes on behind the access, on the same thread. A job that is cancelled meanwhile goes on as
    /// well.
    ///
    /// Functions that copy by themselves, and so are safe, are in the crate of the allocators.
    ///
    /// # Safety
    /// An access in `call` to memory whose faults are handled here may run any other job of this
    /// worker in the middle of its instruction. So at each such access, `call` and what it calls
    /// * holds no lock that another job, or the C library, may want on this thread;
    /// * has nothing borrowed or half changed that belongs to this thread (`thread_local!`, and
    ///   what foreign code keeps so);
    /// * is not in a function of a runtime, nor in a handler of a signal.
    ///
    /// A handler of any other signal may interrupt `call`, and the scope is open in it. Where it
    /// runs on the job's stack, it must not touch memory whose faults are handled here. One that
    /// does needs an alternate stack (`SA_ONSTACK`): faults on that one do not switch.
    ///
    /// Rust's borrow rules do not see these: code that is sound without switches relies on them.
    unsafe fn switch_on_fault<R>(&mut self, call: impl FnOnce() -> R) -> R;
}

/// A fiber in a scope, as a fault of its thread finds it.
pub trait Fiber {
    /// Whether an address is on the fiber's own stack, with room below it for a wait.
    fn has_room_at(&self, address: usize) -> bool;
    /// Calls `handler` on the stack of the fiber's worker, which has room for it.
    fn handle(&self, handler: &mut dyn FnMut());
    /// The fiber begins to wait. What is returned is to be notified of the end, once. Called while
    /// [`Fiber::handle`] is.
    fn begin(&self) -> Arc<dyn Waiter>;
    /// Runs others until the waiter is notified, and returns the outcome with which it was.
    fn wait(&self) -> FaultOutcome;
}

/// What is notified that a fault has ended.
pub trait Waiter: Send + Sync {
    /// It has ended: [`FaultOutcome::Again`] or [`FaultOutcome::Failed`]. Any thread calls, with
    /// locks of its own: this neither allocates nor waits.
    fn end(&self, outcome: FaultOutcome);
}

type Pointer = NonNull<dyn Fiber>;

thread_local! {
    /// The fiber whose scope is open. None while one of its faults is handled.
    static SCOPE: Cell<Option<Pointer>> = const { Cell::new(None) };
    /// The fiber whose fault is being handled, and may switch.
    static HANDLED: Cell<Option<Pointer>> = const { Cell::new(None) };
}

/// Opens what it holds when it is dropped.
struct Outer(Option<Pointer>);

impl Drop for Outer {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        SCOPE.set(self.0);
    }
}

/// Calls `call` in a scope of the fiber that runs on this thread.
///
/// # Safety
/// As [`SwitchOnFault::switch_on_fault`].
pub unsafe fn in_scope<R>(fiber: &dyn Fiber, call: impl FnOnce() -> R) -> R {
    // SAFETY: only the lifetime changes. The pointer is used until the scope ends, by this thread.
    let fiber = unsafe { std::mem::transmute::<NonNull<dyn Fiber + '_>, Pointer>(NonNull::from(fiber)) };
    let _outer = Outer(SCOPE.replace(Some(fiber)));
    // No access of the call is moved out of it.
    compiler_fence(Ordering::SeqCst);
    call()
}

/// Whether the fault that this thread handles may switch: then [`begin_switch`] is called in place
/// of a wait.
#[must_use]
pub fn may_switch() -> bool {
    workers::is_here() && HANDLED.get().is_some()
}

/// The fiber of the fault that is being handled begins to wait. What is returned is to be notified
/// of the end, and the fault handler returns [`FaultOutcome::Waits`].
///
/// # Panics
/// When the fault may not switch ([`may_switch`]).
#[must_use]
pub fn begin_switch() -> Arc<dyn Waiter> {
    let fiber = HANDLED.take().expect("the fault may switch");
    // SAFETY: its scope lasts until the fault has ended, on this thread.
    unsafe { fiber.as_ref() }.begin()
}

/// No scope is open while a signal is handled.
pub(super) struct Closed(Option<Pointer>);

/// Closes the scope of this thread.
pub(super) fn close() -> Closed {
    // A thread that is no worker does not have its cells made here, for which the C library may
    // allocate. Nor has one that could not be marked: its faults wait with it.
    Closed(if workers::is_here() { SCOPE.take() } else { None })
}

impl Drop for Closed {
    fn drop(&mut self) {
        if self.0.is_some() {
            SCOPE.set(self.0);
        }
    }
}

impl Closed {
    /// Handles a fault, whose access had these signals blocked, and waits for its end.
    pub(super) fn handle_fault(&self, mut handler: impl FnMut() -> FaultOutcome, blocked: u64) -> FaultOutcome {
        // SAFETY: the scope lasts until the access has ended, and this is its thread.
        let fiber = self.0.map(|fiber| unsafe { &*fiber.as_ptr() });
        let Some(fiber) =
            fiber.filter(|fiber| fiber.has_room_at(arch::stack_pointer_here()) && !std::thread::panicking())
        else {
            return handler();
        };
        HANDLED.set(self.0);
        let mut outcome = FaultOutcome::NotMine;
        fiber.handle(&mut || outcome = handler());
        let has_begun = HANDLED.take().is_none();
        assert_eq!(has_begun, outcome == FaultOutcome::Waits, "a handler that begins a switch says so");
        if outcome == FaultOutcome::Waits {
            let all = set_mask(blocked);
            outcome = fiber.wait();
            set_mask(all);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::ptr::null_mut;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use super::*;
    use crate::faults::tests::is_alone;
    use crate::faults::{Fault, HandlerStack, Signal, bit, handle_by};

    const PAGE: usize = 4096;
    /// A mapping of a file that has no bytes yet: its pages are missing, by `SIGBUS`.
    static BASE: AtomicUsize = AtomicUsize::new(0);
    static FILE: AtomicUsize = AtomicUsize::new(0);

    fn grow() {
        // SAFETY: it is the descriptor of the test.
        assert_eq!(unsafe { libc::ftruncate(FILE.load(Ordering::Relaxed) as i32, PAGE as i64) }, 0);
    }
    fn handle_fault(fault: &Fault) -> FaultOutcome {
        if fault.address.wrapping_sub(BASE.load(Ordering::Relaxed)) >= PAGE {
            return FaultOutcome::NotMine;
        }
        if !may_switch() {
            grow();
            return FaultOutcome::Again;
        }
        assert_eq!(set_mask(u64::MAX) | bit(libc::SIGKILL) | bit(libc::SIGSTOP), u64::MAX);
        let waiter = begin_switch();
        assert!(!may_switch(), "once");
        waiter.end(FaultOutcome::Again);
        FaultOutcome::Waits
    }

    #[derive(Default)]
    struct Ends(Mutex<Vec<FaultOutcome>>);
    impl Waiter for Ends {
        fn end(&self, outcome: FaultOutcome) {
            self.0.lock().unwrap().push(outcome);
        }
    }
    /// A fiber that runs nothing else.
    struct Alone {
        reported: Arc<Ends>,
        has_room: AtomicBool,
    }
    impl Fiber for Alone {
        fn has_room_at(&self, _: usize) -> bool {
            self.has_room.load(Ordering::Relaxed)
        }
        fn handle(&self, handler: &mut dyn FnMut()) {
            handler();
        }
        fn begin(&self) -> Arc<dyn Waiter> {
            self.reported.clone()
        }
        fn wait(&self) -> FaultOutcome {
            assert!(SCOPE.get().is_none() && !may_switch(), "others run");
            assert_eq!(set_mask(bit(libc::SIGUSR2)), bit(libc::SIGUSR1), "as the access had them");
            grow();
            self.reported.0.lock().unwrap().pop().expect("it has ended before")
        }
    }

    const NAME: &str = "faults::switch::tests::an_access_goes_on_behind_its_switch";

    #[test]
    fn an_access_goes_on_behind_its_switch() {
        if !is_alone(NAME) {
            return;
        }
        let _mark = workers::mark();
        let file = tempfile_of_no_bytes();
        FILE.store(file.as_raw_fd() as usize, Ordering::Relaxed);
        // SAFETY: a fresh mapping.
        let base = unsafe {
            libc::mmap(null_mut(), PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        BASE.store(base.addr(), Ordering::Relaxed);
        handle_by(Signal::Bus, handle_fault, HandlerStack::Own).unwrap();
        let before = set_mask(bit(libc::SIGUSR1));
        let touch = || {
            file.set_len(0).unwrap();
            // SAFETY: the page is the test's.
            unsafe { base.cast::<u8>().write_volatile(7) };
        };
        let fiber = Alone { reported: Arc::default(), has_room: AtomicBool::new(true) };
        // SAFETY: the calls hold nothing.
        unsafe {
            in_scope(&fiber, touch);
            assert!(SCOPE.get().is_none());
            in_scope(&fiber, || {
                touch();
                assert!(SCOPE.get().is_some(), "it is open again");
                touch();
                fiber.has_room.store(false, Ordering::Relaxed);
                touch();
            });
        }
        touch();
        assert_eq!(set_mask(before), bit(libc::SIGUSR1), "as the access had them");
        assert!(fiber.reported.0.lock().unwrap().is_empty());
    }

    fn tempfile_of_no_bytes() -> std::fs::File {
        rustix::fs::memfd_create(c"switch", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into()
    }
}
