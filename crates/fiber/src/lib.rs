//! Fibers: user-level threads with pooled, guarded stacks, on `corosensei`'s switch.
//!
//! Holds stacks ([`StackPool`]), the fiber that runs on one ([`Fiber`]), and what happens when a
//! fiber overflows its stack. Invariants:
//! * A fiber is resumed only by the OS thread that made it (it is not `Send`): thread-local storage
//!   makes anything else undefined.
//! * Below every stack is a guard that no fiber can write to. Running into it ends that fiber with
//!   [`Resumed::Overflowed`] and touches no other fiber's memory.
//! * A panic stays inside its fiber: the body that the caller gives catches it.
//!
//! It decides nothing: which fiber runs next is `policy`'s affair.

mod arch;
mod overflow;
mod stack;

use std::marker::PhantomData;

use corosensei::{Coroutine, CoroutineResult, Yielder};

pub use overflow::install as install_overflow_handler;
pub use stack::{PooledStack, StackPool, StackPoolError};

/// Why a fiber returned to its resumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resumed {
    /// It suspended itself and can be resumed.
    Suspended,
    /// Its body returned.
    Finished,
    /// It ran out of stack and will never continue, so nothing on its stack was dropped. Others may
    /// still refer to what is there: a caller without further knowledge must leak the fiber
    /// ([`std::mem::forget`]), which keeps its stack.
    Overflowed,
}

/// A user-level thread. Dropping a suspended fiber unwinds its stack.
pub struct Fiber {
    coroutine: Coroutine<(), (), (), PooledStack>,
    trap: overflow::Trap,
    not_send: PhantomData<*mut ()>,
}

/// How the body of a fiber gives the core back.
#[repr(transparent)]
pub struct Suspender(Yielder<(), ()>);

impl Suspender {
    /// Switches back to the resumer of this fiber. Returns when it is resumed again.
    #[inline(always)]
    pub fn suspend(&self) {
        self.0.suspend(());
    }

    /// Runs `call` on the stack of this fiber's resumer, below the part in use there: it needs no
    /// room on this one, and that stack is warm. A panic of `call` goes on in the fiber.
    ///
    /// # Safety
    /// `call` does not suspend this fiber.
    #[inline(always)]
    pub unsafe fn on_parent_stack<R>(&self, call: impl FnOnce() -> R) -> R {
        /// The closure stays on its thread. Its only reason not to be `Send` may be what it
        /// captures.
        struct SameThread<F>(F);
        // SAFETY: the parent's stack belongs to the same thread. That the suspender is not used
        // there is the caller's word.
        unsafe impl<F> Send for SameThread<F> {}
        // AddressSanitizer takes the parent's stack for larger than it is, and clears its notes of
        // terabytes.
        if cfg!(sanitized) {
            return call();
        }
        let call = SameThread(call);
        self.0.on_parent_stack(move || {
            // All of it is captured, not its field alone.
            let whole = call;
            (whole.0)()
        })
    }
}

impl Fiber {
    /// A fiber that will run `body` on `stack` when first resumed.
    ///
    /// Call [`install_overflow_handler`] once on the process first, or an overflow ends the
    /// process.
    pub fn new(stack: PooledStack, body: impl FnOnce(&Suspender) + 'static) -> Fiber {
        let guard = stack.guard();
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            // SAFETY: `Suspender` is a transparent wrapper of `Yielder`.
            body(unsafe { &*std::ptr::from_ref(yielder).cast::<Suspender>() });
        });
        let trap = overflow::Trap { handler: coroutine.trap_handler(), guard };
        Fiber { coroutine, trap, not_send: PhantomData }
    }

    /// Runs the fiber until it suspends itself, finishes or overflows its stack.
    ///
    /// # Panics
    /// When it has finished already, and with the panic of its body, if that let one out.
    #[inline]
    pub fn resume(&mut self) -> Resumed {
        let previous = overflow::enter(&self.trap);
        let result = self.coroutine.resume(());
        let overflowed = overflow::leave(previous);
        match result {
            CoroutineResult::Yield(()) => Resumed::Suspended,
            CoroutineResult::Return(()) if overflowed => Resumed::Overflowed,
            CoroutineResult::Return(()) => Resumed::Finished,
        }
    }

    /// Whether the body has returned, or the fiber overflowed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.coroutine.done()
    }

    /// Gives the stack of a finished fiber back, for another one.
    ///
    /// # Panics
    /// When it has not finished.
    #[must_use]
    pub fn into_stack(self) -> PooledStack {
        self.coroutine.into_stack()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn fibers_take_turns() {
        let pool = StackPool::new(2, 16 * 1024).unwrap();
        let log = Rc::new(Cell::new(0u64));
        let mut fibers: Vec<_> = (1..=2)
            .map(|id| {
                let log = log.clone();
                Fiber::new(pool.take().unwrap(), move |s| {
                    for _ in 0..3 {
                        log.set(log.get() * 10 + id);
                        s.suspend();
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            assert!(fibers.iter_mut().all(|f| f.resume() == Resumed::Suspended));
        }
        assert_eq!(log.get(), 121_212);
        assert!(fibers.iter_mut().all(|f| f.resume() == Resumed::Finished && f.is_done()));
        assert!(pool.take().is_none(), "both stacks are still in use");
        fibers.pop();
        assert!(pool.take().is_some());
    }

    #[test]
    fn a_dropped_fiber_unwinds() {
        struct SetOnDrop(Rc<Cell<bool>>);
        impl Drop for SetOnDrop {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let pool = StackPool::new(1, 16 * 1024).unwrap();
        let dropped = Rc::new(Cell::new(false));
        let tell = SetOnDrop(dropped.clone());
        let mut fiber = Fiber::new(pool.take().unwrap(), move |s| {
            let _tell = tell;
            s.suspend();
        });
        fiber.resume();
        assert!(!dropped.get());
        drop(fiber);
        assert!(dropped.get());
    }

    #[test]
    fn a_panic_can_be_caught_inside() {
        let pool = StackPool::new(1, 32 * 1024).unwrap();
        let caught = Rc::new(Cell::new(false));
        let told = caught.clone();
        let mut fiber = Fiber::new(pool.take().unwrap(), move |s| {
            told.set(std::panic::catch_unwind(|| std::panic::panic_any(7)).is_err());
            s.suspend();
        });
        assert_eq!(fiber.resume(), Resumed::Suspended);
        assert!(caught.get());
    }
}
