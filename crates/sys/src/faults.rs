//! Accesses that the kernel ends with a signal, and the fault handlers that come before the
//! program's own handler. They are asked in turn: each knows memory of its own.
//!
//! ```text
//!   access --> SIGSEGV, SIGBUS --> hook: goes on elsewhere -> there
//!                                   |
//!                                 handler: try again --------> back to the access
//!                                         cannot be had ----> SIGBUS (BUS_MCEERR_AR)
//!                                         not mine ---------> the next handler, and at last the
//!                                                             program's action
//! ```
//!
//! A fault handler runs on the thread that accessed, with all signals blocked. So it must neither
//! allocate from the program nor wait for a lock that the interrupted code may hold. On a fiber
//! whose faults switch it need not wait for the page (`switch`).
//!
//! The program's own actions for these signals are kept here ([`exchange_action`]) and called with
//! the mask that they ask for. The kernel is asked directly: a library that stands in for the C
//! library's `sigaction` may call this.

mod own_stack;
mod switch;

use std::cell::UnsafeCell;
use std::io;
use std::marker::PhantomData;
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{c_int, c_void};

use crate::arch::{self, system_call};

pub use switch::{Fiber, SwitchOnFault, Waiter, begin_switch, in_scope, may_switch};

/// An access that the kernel could not do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Its address.
    pub address: usize,
    /// It was to change memory.
    pub is_write: bool,
    /// There is no page; else what may be done there does not allow it.
    pub is_missing: bool,
}

/// What is to become of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultOutcome {
    /// It is tried again.
    Again,
    /// Its contents cannot be had: `SIGBUS` with `BUS_MCEERR_AR`, as for memory that broke.
    Failed,
    /// Its fiber waits, and is notified of the end ([`begin_switch`]).
    Waits,
    /// It is the program's own.
    NotMine,
}

/// The signal of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// `SIGSEGV`.
    Segmentation,
    /// `SIGBUS`.
    Bus,
}

impl Signal {
    /// Its number.
    #[must_use]
    pub fn number(self) -> c_int {
        match self {
            Signal::Segmentation => libc::SIGSEGV,
            Signal::Bus => libc::SIGBUS,
        }
    }
}

/// Decides what becomes of accesses.
pub type FaultHandler = fn(&Fault) -> FaultOutcome;

/// What is asked before all fault handlers: given the address of an access and the registers, it
/// may have the thread go on elsewhere. True then.
pub type Hook = fn(usize, &mut libc::ucontext_t) -> bool;

/// The stack that the fault handlers of a signal run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandlerStack {
    /// The thread's own, unless another fault handler of the signal wants the alternate one. Where
    /// a hook ([`ask_first`]) is set as well, it may also be the alternate one, if the thread's own
    /// has little room. Then faults do not switch.
    Own,
    /// The thread's alternate one, where it has one: the access may be to the thread's own. It must
    /// be large enough for each fault handler ([`SignalStack`]).
    Alternate,
}

/// Most fault handlers of a signal.
pub const HANDLERS_MAX: usize = 8;

/// The fault handlers of a signal, and the program's action for it.
struct Slot {
    number: c_int,
    /// Functions, the first of them first; 0 for none.
    handlers: [AtomicUsize; HANDLERS_MAX],
    /// A function, or 0.
    hook: AtomicUsize,
    wants_alternate: AtomicBool,
    is_handled: AtomicBool,
    is_locked: AtomicBool,
    action: UnsafeCell<Option<libc::sigaction>>,
}

// SAFETY: the action is reached by the thread that holds the lock only.
unsafe impl Sync for Slot {}

impl Slot {
    const fn new(number: c_int) -> Slot {
        Slot {
            number,
            handlers: [const { AtomicUsize::new(0) }; HANDLERS_MAX],
            hook: AtomicUsize::new(0),
            wants_alternate: AtomicBool::new(false),
            is_handled: AtomicBool::new(false),
            is_locked: AtomicBool::new(false),
            action: UnsafeCell::new(None),
        }
    }
    /// Adds a fault handler, once. False when there are too many.
    fn add(&self, handler: FaultHandler) -> bool {
        let added = handler as usize;
        self.handlers.iter().any(|place| {
            let found = place.compare_exchange(0, added, Ordering::AcqRel, Ordering::Acquire);
            found.map_or_else(|found| found == added, |_| true)
        })
    }
    /// Calls the hook. Returns whether it has the thread go on elsewhere.
    fn call_hook(&self, address: usize, context: &mut libc::ucontext_t) -> bool {
        let hook = self.hook.load(Ordering::Acquire);
        // SAFETY: it was stored from a function of this type.
        hook != 0 && unsafe { std::mem::transmute::<usize, Hook>(hook) }(address, context)
    }
    /// What the fault handlers say of an access, on the stack that they want.
    ///
    /// # Safety
    /// The context is the one of the signal that is being handled, with all signals blocked.
    unsafe fn handle_on_stack(&self, fault: &Fault, context: *const libc::ucontext_t) -> FaultOutcome {
        let mut outcome = None;
        if self.hook.load(Ordering::Relaxed) != 0 && !self.wants_alternate.load(Ordering::Acquire) {
            // SAFETY: the caller's contract.
            unsafe { own_stack::call(context, &mut || outcome = Some(self.handle_fault(fault))) };
        }
        outcome.unwrap_or_else(|| self.handle_fault(fault))
    }
    /// What the fault handlers say of an access.
    fn handle_fault(&self, fault: &Fault) -> FaultOutcome {
        for handler in &self.handlers {
            let handler = handler.load(Ordering::Acquire);
            if handler == 0 {
                break;
            }
            // SAFETY: it was stored from a function of this type.
            let handler = unsafe { std::mem::transmute::<usize, FaultHandler>(handler) };
            match handler(fault) {
                FaultOutcome::NotMine => {}
                outcome => return outcome,
            }
        }
        FaultOutcome::NotMine
    }
    /// Calls `f` with the action. All signals are blocked, or a handler could wait for itself.
    fn with<T>(&self, f: impl FnOnce(&mut Option<libc::sigaction>) -> T) -> T {
        let before = set_mask(u64::MAX);
        self.lock();
        // SAFETY: this thread holds the lock until after the last use.
        let result = f(unsafe { &mut *self.action.get() });
        self.unlock();
        set_mask(before);
        result
    }
    fn lock(&self) {
        while self.is_locked.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
    fn unlock(&self) {
        self.is_locked.store(false, Ordering::Release);
    }
}

static SLOTS: [Slot; 2] = [Slot::new(libc::SIGSEGV), Slot::new(libc::SIGBUS)];

fn slot_of(number: c_int) -> Option<&'static Slot> {
    SLOTS.iter().find(|slot| slot.number == number)
}

/// Takes the locks of the program's actions before a `fork`, so that the child does not find them
/// held by a thread that it does not have. The caller lets no signal handler run until it has
/// called [`unlock_actions`], in both processes.
pub fn lock_actions() {
    SLOTS.iter().for_each(Slot::lock);
}

/// Gives back what [`lock_actions`] took.
pub fn unlock_actions() {
    SLOTS.iter().for_each(Slot::unlock);
}

/// Whether a signal is handled here.
#[must_use]
pub fn is_handled(number: c_int) -> bool {
    slot_of(number).is_some_and(|slot| slot.is_handled.load(Ordering::Acquire))
}

/// The signals that are handled here, as bits of a mask: they must never be blocked.
#[must_use]
pub fn handled() -> u64 {
    SLOTS.iter().filter(|slot| slot.is_handled.load(Ordering::Acquire)).fold(0, |mask, slot| mask | bit(slot.number))
}

const fn bit(number: c_int) -> u64 {
    1 << (number - 1)
}

/// What the kernel takes as an action.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

fn kernel_action(number: c_int, new: Option<&KernelAction>) -> io::Result<KernelAction> {
    let mut old = KernelAction::default();
    let new = new.map_or(null(), std::ptr::from_ref);
    // SAFETY: the call reads and writes the structures that it is given. The callers' handlers are
    // functions that live as long as the process.
    let result = unsafe { libc::syscall(libc::SYS_rt_sigaction, number, new, &raw mut old, size_of::<u64>()) };
    if result == 0 { Ok(old) } else { Err(io::Error::last_os_error()) }
}

/// Sets which signals this thread blocks, and returns which it did.
fn set_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: the call reads and writes the words that it is given.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, &raw mut old, size_of::<u64>())
    };
    old
}

/// The first word of a set of signals, which has all that there are.
fn word_of(set: &libc::sigset_t) -> u64 {
    // SAFETY: a set is at least as long as a word, and any bits are a number.
    unsafe { std::ptr::from_ref(set).cast::<u64>().read() }
}

/// Lets a fault handler decide on accesses that end with this signal, from now on, behind those
/// that were there before. A fault handler that is there already is not asked twice.
///
/// # Errors
/// The kernel's. `EBUSY` when there are [`HANDLERS_MAX`] already.
pub fn handle_by(signal: Signal, handler: FaultHandler, stack: HandlerStack) -> io::Result<()> {
    let slot = slot_of(signal.number()).expect("a signal of an access");
    if !slot.add(handler) {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    if stack == HandlerStack::Alternate {
        slot.wants_alternate.store(true, Ordering::Release);
    }
    handle(slot)
}

/// Asks a hook before all fault handlers of accesses that end with this signal, from now on. The
/// handler runs on the thread's alternate stack, where it has one. There is one hook of a signal,
/// and another takes its place.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// Where the hook has a thread go on elsewhere, it may. The hook is called by a handler of a
/// signal, on an alternate stack that may be small.
pub unsafe fn ask_first(signal: Signal, hook: Hook) -> io::Result<()> {
    let slot = slot_of(signal.number()).expect("a signal of an access");
    slot.hook.store(hook as usize, Ordering::Release);
    handle(slot)
}

/// Handles a signal here, as its hook and its fault handlers want.
fn handle(slot: &Slot) -> io::Result<()> {
    let number = slot.number;
    slot.with(|action| {
        let is_on_stack = slot.wants_alternate.load(Ordering::Acquire) || slot.hook.load(Ordering::Acquire) != 0;
        let on_stack = if is_on_stack { libc::SA_ONSTACK } else { 0 };
        let flags = (libc::SA_SIGINFO | on_stack) as u64 | arch::SA_RESTORER;
        let restorer = arch::signal_return as *const () as usize;
        let handler = on_signal as *const () as usize;
        let old = kernel_action(number, Some(&KernelAction { handler, flags, restorer, mask: u64::MAX }))?;
        if old.handler == handler {
            return io::Result::Ok(());
        }
        // SAFETY: all zeros is the default action.
        let mut kept: libc::sigaction = unsafe { zeroed() };
        (kept.sa_sigaction, kept.sa_flags) = (old.handler, (old.flags & !arch::SA_RESTORER) as c_int);
        // SAFETY: a set is at least as long as a word.
        unsafe { (&raw mut kept.sa_mask).cast::<u64>().write(old.mask) };
        *action = Some(kept);
        Ok(())
    })?;
    slot.is_handled.store(true, Ordering::Release);
    Ok(())
}

/// Exchanges the program's action for a signal that is handled here ([`is_handled`]). Without a new
/// one, only tells it.
///
/// # Safety
/// A handler of the new action must be a function of the type that its flags say.
#[must_use]
pub unsafe fn exchange_action(number: c_int, new: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    let slot = slot_of(number).filter(|slot| slot.is_handled.load(Ordering::Acquire))?;
    slot.with(|action| if let Some(new) = new { action.replace(*new) } else { *action })
}

unsafe extern "C" fn on_signal(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the location is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes both to a handler.
    let (code, address, is_write) =
        unsafe { ((*info).si_code, (*info).si_addr() as usize, arch::was_write(context.cast())) };
    let is_missing = match (number, code) {
        (libc::SIGSEGV, SEGV_MAPERR) | (libc::SIGBUS, BUS_ADRERR) => Some(true),
        (libc::SIGSEGV, SEGV_ACCERR) => Some(false),
        _ => None,
    };
    if is_missing.is_some()
        // SAFETY: the kernel passes it, and nothing else has it.
        && slot_of(number).is_some_and(|slot| slot.call_hook(address, unsafe { &mut *context.cast() }))
    {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        return;
    }
    let closed = switch::close();
    let outcome = match (is_missing, slot_of(number)) {
        (Some(is_missing), Some(slot)) => {
            let fault = Fault { address, is_write, is_missing };
            // SAFETY: the context is this signal's, whose action blocks all.
            closed.handle_fault(|| unsafe { slot.handle_on_stack(&fault, context.cast()) }, unsafe {
                mask_before(context)
            })
        }
        _ => FaultOutcome::NotMine,
    };
    match outcome {
        FaultOutcome::Again => {}
        FaultOutcome::Waits => unreachable!("a fault that waits ends before"),
        // SAFETY: the context is this signal's.
        FaultOutcome::Failed => unsafe { fail(address, context.cast()) },
        // SAFETY: all is this signal's.
        FaultOutcome::NotMine => unsafe { pass_on(number, info, context) },
    }
    drop(closed);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// The signals that the interrupted code had blocked.
///
/// # Safety
/// The context is the one of a signal that is being handled.
unsafe fn mask_before(context: *const c_void) -> u64 {
    // SAFETY: the caller's contract. A set is at least as long as a word.
    unsafe { (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<u64>().read() }
}

const SEGV_MAPERR: c_int = 1;
const SEGV_ACCERR: c_int = 2;
const BUS_ADRERR: c_int = 2;
const BUS_MCEERR_AR: c_int = 4;

/// Sends this thread a `SIGBUS` that arrives before the access is tried again.
///
/// # Safety
/// The context is the one of the signal that is being handled.
unsafe fn fail(address: usize, context: *mut libc::ucontext_t) {
    // As the kernel does where it must: a signal that is blocked or ignored ends the process.
    // SAFETY: the mask is that to which the kernel returns.
    let mask = unsafe { &mut *(&raw mut (*context).uc_sigmask).cast::<u64>() };
    let is_ignored = kernel_action(libc::SIGBUS, None).is_ok_and(|action| action.handler == libc::SIG_IGN);
    if *mask & bit(libc::SIGBUS) != 0 || is_ignored {
        let _ = kernel_action(libc::SIGBUS, Some(&KernelAction::default()));
        *mask &= !bit(libc::SIGBUS);
    }
    // SAFETY: all zeros is a value of this structure, which is as long as the kernel's. The address
    // of an access stands behind three numbers and a gap.
    unsafe {
        let mut info: libc::siginfo_t = zeroed();
        (info.si_signo, info.si_code) = (libc::SIGBUS, BUS_MCEERR_AR);
        (&raw mut info).cast::<usize>().add(2).write(address);
        let (pid, thread) = (libc::syscall(libc::SYS_getpid), libc::syscall(libc::SYS_gettid));
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, thread, libc::SIGBUS, &raw const info);
    }
}

/// Does what the program has set for a signal.
///
/// # Safety
/// The arguments are those that the kernel passed to the handler.
unsafe fn pass_on(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let slot = slot_of(number).expect("a signal that is handled here");
    // SAFETY: all zeros is the default action.
    let default: libc::sigaction = unsafe { zeroed() };
    let action = slot.with(|action| {
        let now = action.unwrap_or(default);
        if now.sa_flags & libc::SA_RESETHAND != 0 {
            *action = Some(default);
        }
        now
    });
    // SAFETY: the caller's contract.
    let was_sent = unsafe { (*info).si_code } <= 0;
    match action.sa_sigaction {
        libc::SIG_IGN if was_sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // The access fails once more, and the kernel ends the process. What another process
            // sent is sent again.
            let _ = kernel_action(number, Some(&KernelAction::default()));
            if was_sent {
                // SAFETY: the calls have numbers as arguments.
                unsafe {
                    let (pid, thread) = (libc::syscall(libc::SYS_getpid), libc::syscall(libc::SYS_gettid));
                    libc::syscall(libc::SYS_tgkill, pid, thread, number);
                }
            }
        }
        handler => {
            // SAFETY: the caller's contract.
            let before = unsafe { mask_before(context) };
            let own = if action.sa_flags & libc::SA_NODEFER == 0 { bit(number) } else { 0 };
            // A handler may touch memory of flash, too.
            set_mask((before | word_of(&action.sa_mask) | own) & !handled());
            // SAFETY: the program gave a handler of the type that its flags say. Its return comes
            // back here, and the kernel then restores the mask.
            unsafe {
                if action.sa_flags & libc::SA_SIGINFO != 0 {
                    type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
                    std::mem::transmute::<usize, Handler>(handler)(number, info, context);
                } else {
                    std::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(handler)(number);
                }
            }
        }
    }
}

/// An alternate stack, on which handlers of signals run.
#[derive(Debug)]
pub struct SignalStack {
    base: usize,
    len: usize,
}

impl SignalStack {
    /// Maps a stack of `len` bytes, with a guard below it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(len: usize) -> io::Result<SignalStack> {
        let len = len.next_multiple_of(GUARD);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping at an address of the kernel's choice. The kernel is called
        // directly, because a library that stands in for `mmap` and `syscall` may call this.
        let start = unsafe {
            let flags = flags | libc::MAP_NORESERVE | libc::MAP_STACK;
            let arguments = [0, len + GUARD, protection as usize, flags as usize, usize::MAX, 0];
            system_call(libc::SYS_mmap as usize, arguments)
        };
        if let error @ -4095..=-1 = start {
            return Err(io::Error::from_raw_os_error(-error as i32));
        }
        // SAFETY: the first pages of what was just mapped.
        unsafe { system_call(libc::SYS_mprotect as usize, [start as usize, GUARD, libc::PROT_NONE as usize, 0, 0, 0]) };
        Ok(SignalStack { base: start as usize + GUARD, len })
    }

    /// Bytes in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes it this thread's alternate stack, for good: it is never unmapped.
    ///
    /// # Errors
    /// The kernel's: this thread runs on an alternate stack now.
    pub fn use_here(&self) -> io::Result<()> {
        let stack = libc::stack_t { ss_sp: self.base as *mut c_void, ss_flags: 0, ss_size: self.len };
        set_stack(&stack)
    }

    /// Makes it this thread's alternate stack, until what is returned is dropped.
    ///
    /// # Errors
    /// The kernel's: this thread runs on an alternate stack now.
    pub fn use_while(self) -> io::Result<UsedStack> {
        let mut before = libc::stack_t { ss_sp: null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: the call writes the structure that it is given.
        unsafe { libc::syscall(libc::SYS_sigaltstack, null::<libc::stack_t>(), &raw mut before) };
        self.use_here()?;
        Ok(UsedStack { stack: self, before, thread: PhantomData })
    }

    /// Takes the alternate stack away from this thread.
    pub fn leave() {
        let _ = set_stack(&libc::stack_t { ss_sp: null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 });
    }
}

/// An alternate stack of a thread, which has the one before again when this is dropped. It stays on
/// its thread.
#[derive(Debug)]
pub struct UsedStack {
    stack: SignalStack,
    before: libc::stack_t,
    thread: PhantomData<*const ()>,
}

impl Drop for UsedStack {
    fn drop(&mut self) {
        // Where the thread runs on it, it stays.
        if set_stack(&self.before).is_ok() {
            // SAFETY: the mapping is this stack's, with the guard below it, and no longer used.
            unsafe {
                let arguments = [self.stack.base - GUARD, self.stack.len + GUARD, 0, 0, 0, 0];
                system_call(libc::SYS_munmap as usize, arguments)
            };
        }
    }
}

const GUARD: usize = 4096;

fn set_stack(stack: &libc::stack_t) -> io::Result<()> {
    // SAFETY: the call reads the structure that it is given. The memory is a mapping that stays.
    let result =
        unsafe { libc::syscall(libc::SYS_sigaltstack, std::ptr::from_ref(stack), null_mut::<libc::stack_t>()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::Region;
    use crate::userfault::Access;

    /// Whether this process is this test's alone. Where it is not, one that is has run the test:
    /// other tests of this process handle its signals, too.
    pub(crate) fn is_alone(name: &str) -> bool {
        const ALONE: &str = "FULGURITE_TEST_ALONE";
        if std::env::var_os(ALONE).is_some() {
            return true;
        }
        let program = std::env::current_exe().unwrap();
        let alone = std::process::Command::new(program).args([name, "--exact"]).env(ALONE, "1").output().unwrap();
        // None was run where the name is another one.
        let has_run = String::from_utf8_lossy(&alone.stdout).contains("1 passed");
        assert!(alone.status.success() && has_run, "{alone:?}");
        false
    }

    static BASE: AtomicUsize = AtomicUsize::new(0);
    static HANDLED: AtomicU32 = AtomicU32::new(0);
    static PASSED: AtomicU32 = AtomicU32::new(0);
    static ON_STACK: AtomicUsize = AtomicUsize::new(0);

    fn handle_fault(fault: &Fault) -> FaultOutcome {
        let base = BASE.load(Ordering::Relaxed);
        match fault.address.wrapping_sub(base) / 4096 {
            0 => {
                assert!(!fault.is_missing && fault.is_write);
                HANDLED.fetch_add(1, Ordering::Relaxed);
                // SAFETY: the page is the test's.
                unsafe { libc::mprotect(base as *mut c_void, 4096, libc::PROT_READ | libc::PROT_WRITE) };
                FaultOutcome::Again
            }
            1 => FaultOutcome::Failed,
            _ => FaultOutcome::NotMine,
        }
    }
    /// Knows the last page.
    fn second(fault: &Fault) -> FaultOutcome {
        let base = BASE.load(Ordering::Relaxed);
        // The first one was asked before.
        if fault.address.wrapping_sub(base) / 4096 != 3 {
            return FaultOutcome::NotMine;
        }
        ON_STACK.store(arch::stack_pointer_here(), Ordering::Relaxed);
        // SAFETY: the page is the test's.
        unsafe { libc::mprotect((base + 3 * 4096) as *mut c_void, 4096, libc::PROT_READ | libc::PROT_WRITE) };
        FaultOutcome::Again
    }
    fn none<const NUMBER: u32>(_: &Fault) -> FaultOutcome {
        std::hint::black_box(NUMBER);
        FaultOutcome::NotMine
    }
    unsafe extern "C" fn own(number: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
        // SAFETY: the kernel passes it.
        let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
        PASSED.fetch_add(1, Ordering::Relaxed);
        let page = (address - BASE.load(Ordering::Relaxed)) & !4095;
        assert!(number == libc::SIGSEGV && page == 8192 || code == BUS_MCEERR_AR && page == 4096);
        let start = BASE.load(Ordering::Relaxed) + page;
        // SAFETY: the page is the test's.
        unsafe { libc::mprotect(start as *mut c_void, 4096, libc::PROT_READ | libc::PROT_WRITE) };
    }

    #[test]
    fn a_fault_handler_comes_before_the_programs_own() {
        let region = Region::reserve(4 * 4096).unwrap();
        region.allow(0, 4 * 4096, Access::None).unwrap();
        BASE.store(region.base(), Ordering::Relaxed);
        handle_by(Signal::Segmentation, handle_fault, HandlerStack::Own).unwrap();
        handle_by(Signal::Segmentation, second, HandlerStack::Alternate).unwrap();
        // It is asked once.
        handle_by(Signal::Segmentation, handle_fault, HandlerStack::Own).unwrap();
        assert!(is_handled(libc::SIGSEGV) && !is_handled(libc::SIGBUS) && !is_handled(libc::SIGUSR1));
        assert_eq!(handled(), bit(libc::SIGSEGV));
        // SAFETY: all zeros is a value of this structure, and the handler has the type of its
        // flags.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            (action.sa_sigaction, action.sa_flags) = (own as *const () as usize, libc::SA_SIGINFO);
            let _ = exchange_action(libc::SIGSEGV, Some(&action));
            let now = exchange_action(libc::SIGSEGV, None).unwrap();
            assert_eq!(now.sa_sigaction, own as *const () as usize);
            assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, null_mut()), 0);
        }
        let stack = SignalStack::new(64 << 10).unwrap();
        stack.use_here().unwrap();
        for page in 0..4 {
            // SAFETY: the page is the region's. The fault handler or the program's handler allows
            // it.
            unsafe { ((region.base() + page * 4096) as *mut u8).write_volatile(1) };
        }
        let used = ON_STACK.load(Ordering::Relaxed);
        assert!((stack.base..stack.base + stack.len()).contains(&used), "one handler wants the alternate stack");
        // There is an end to them.
        for handler in [none::<0>, none::<1>, none::<2>, none::<3>, none::<4>, none::<5>] {
            handle_by(Signal::Segmentation, handler, HandlerStack::Own).unwrap();
        }
        let refused = handle_by(Signal::Segmentation, none::<6>, HandlerStack::Own);
        assert_eq!(refused.map_err(|error| error.raw_os_error()), Err(Some(libc::EBUSY)));
        SignalStack::leave();
        assert_eq!((HANDLED.load(Ordering::Relaxed), PASSED.load(Ordering::Relaxed)), (1, 2));
        assert_eq!(set_mask(0) & bit(libc::SIGSEGV), 0);
    }
}
