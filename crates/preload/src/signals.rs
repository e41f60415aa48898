//! Signals of a program whose faults are signals: those that resolve faults are never blocked, keep
//! their handler, and have a stack of their own in each thread.
//!
//! The program's own actions for them are kept (`fulgurite_sys::faults`) and come after ours.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fulgurite_fault::{Fault, FaultOutcome, Signal};
use fulgurite_sys::faults::{self, HandlerStack, SignalStack};
use libc::{sigaction as Action, sigset_t, stack_t, timespec};

use crate::allocator::next;
use crate::early;
use crate::errno::fail;
use crate::run::run_of_any;

/// Bytes of a thread's stack for signals: the registers that the kernel saves (11 KiB with AMX),
/// what resolves a fault, and a handler of the program.
const STACK: usize = 64 << 10;

/// Resolves faults of memory of flash from now on.
pub fn begin(signal: Signal) -> std::io::Result<()> {
    faults::handle_by(signal, handle_fault, HandlerStack::Alternate)?;
    equip();
    Ok(())
}

fn handle_fault(fault: &Fault) -> FaultOutcome {
    // The page buffer recognizes a child that has no run yet.
    run_of_any().map_or(FaultOutcome::NotMine, |run| run.buffer.handle_fault(fault))
}

// ---- stacks ----

/// Stacks of threads that have ended.
static STACKS: Mutex<Vec<SignalStack>> = Mutex::new(Vec::new());

/// The stacks of threads that have ended, locked.
pub type Stacks = MutexGuard<'static, Vec<SignalStack>>;

pub fn stacks() -> Stacks {
    STACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key whose destructor takes a thread's stack back, plus one.
static KEY: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The stack that the program has set, which it gets when it asks for it.
    static SET: Cell<Option<stack_t>> = const { Cell::new(None) };
}

/// Gives this thread a stack for signals, where faults are signals.
pub fn equip() {
    if faults::handled() == 0 {
        return;
    }
    let key = match KEY.load(Ordering::Acquire) {
        0 => {
            let mut key = 0;
            // SAFETY: the destructor is a function of a library that is never unloaded.
            if unsafe { libc::pthread_key_create(&raw mut key, Some(give_back)) } != 0 {
                return;
            }
            // Made by the constructor, before there is a second thread.
            KEY.store(key + 1, Ordering::Release);
            key
        }
        key => key - 1,
    };
    let used = stacks().pop();
    let Some(stack) = used.or_else(|| SignalStack::new(STACK).ok()) else { return };
    if stack.use_here().is_ok() {
        // SAFETY: the key was made above, and its destructor takes the box.
        unsafe { libc::pthread_setspecific(key, Box::into_raw(Box::new(stack)).cast()) };
    }
}

/// A thread ends.
unsafe extern "C" fn give_back(stack: *mut c_void) {
    SignalStack::leave();
    // SAFETY: it was a box in `equip`.
    let stack = unsafe { Box::from_raw(stack.cast::<SignalStack>()) };
    stacks().push(*stack);
}

next!(next_create, c"pthread_create", (thread: *mut libc::pthread_t, attributes: *const libc::pthread_attr_t, body: Body, argument: *mut c_void) -> c_int);

type Body = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Attributes as these, with a stack of the C library's own, where the stack would be in memory of
/// flash. The kernel writes to the top of the stack at any time, and when the thread has ended.
///
/// # Safety
/// They are null, or were made.
unsafe fn in_dram(attributes: *const libc::pthread_attr_t) -> Option<libc::pthread_attr_t> {
    let (mut start, mut len, mut guard, mut state) = (null_mut(), 0, 0, 0);
    // SAFETY: the caller's contract. The calls write what they are given places for.
    unsafe {
        let is_set =
            !attributes.is_null() && libc::pthread_attr_getstack(attributes, &raw mut start, &raw mut len) == 0;
        run_of_any().filter(|run| is_set && run.buffer.part_of(start as usize, len).is_some())?;
        libc::pthread_attr_getguardsize(attributes, &raw mut guard);
        pthread_attr_getdetachstate(attributes, &raw mut state);
        let mut own: libc::pthread_attr_t = zeroed();
        libc::pthread_attr_init(&raw mut own);
        libc::pthread_attr_setstacksize(&raw mut own, len);
        libc::pthread_attr_setguardsize(&raw mut own, guard);
        libc::pthread_attr_setdetachstate(&raw mut own, state);
        Some(own)
    }
}

unsafe extern "C" {
    fn pthread_attr_getdetachstate(attributes: *const libc::pthread_attr_t, state: *mut c_int) -> c_int;
}

struct ThreadStart {
    body: Body,
    argument: *mut c_void,
}

/// A thread of the program begins. Its cancellation unwinds through here.
unsafe extern "C-unwind" fn begin_thread(start: *mut c_void) -> *mut c_void {
    // SAFETY: it was a box in `pthread_create`.
    let ThreadStart { body, argument } = *unsafe { Box::from_raw(start.cast::<ThreadStart>()) };
    equip();
    // SAFETY: what the program asked for.
    unsafe { body(argument) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    body: Body,
    argument: *mut c_void,
) -> c_int {
    // Threads of this library touch no memory of flash. In a child they begin after the fork, and
    // its next fork may have the stacks locked already, and wait for them.
    if early::is_on() {
        // SAFETY: the caller's contract.
        return unsafe { next_create(thread, attributes, body, argument) };
    }
    // SAFETY: the caller's contract.
    let mut own = unsafe { in_dram(attributes) };
    let attributes = own.as_ref().map_or(attributes, std::ptr::from_ref);
    // SAFETY: the caller's contract.
    let result = unsafe { create(thread, attributes, body, argument) };
    if let Some(own) = &mut own {
        // SAFETY: they were made by `in_dram`.
        unsafe { libc::pthread_attr_destroy(own) };
    }
    result
}

/// Makes a thread, with a stack for signals where faults are signals.
///
/// # Safety
/// As `pthread_create`.
unsafe fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    body: Body,
    argument: *mut c_void,
) -> c_int {
    if faults::handled() == 0 {
        // SAFETY: the caller's contract.
        return unsafe { next_create(thread, attributes, body, argument) };
    }
    // The C library blocks all signals while it reads these, so they have to be resident then.
    let mut copied = 0;
    let start = Box::into_raw(Box::new(ThreadStart { body, argument }));
    // SAFETY: the caller's contract. The new thread takes the box.
    let result = unsafe { next_create(&raw mut copied, attributes, begin_thread, start.cast()) };
    if result == 0 {
        // SAFETY: the caller gives a place for it.
        unsafe { thread.write(copied) };
    } else {
        // SAFETY: no thread has it.
        drop(unsafe { Box::from_raw(start) });
    }
    result
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const stack_t, old: *mut stack_t) -> c_int {
    if faults::handled() == 0 {
        // SAFETY: the caller's contract.
        return unsafe { libc::syscall(libc::SYS_sigaltstack, new, old) as c_int };
    }
    // Ours stays: the program's may be in memory of flash, or too small.
    let nothing = stack_t { ss_sp: null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    // SAFETY: the caller gives null or such a structure.
    unsafe {
        let wanted = new.as_ref().copied();
        if let Some(old) = old.as_mut() {
            *old = SET.get().unwrap_or(nothing);
        }
        if let Some(wanted) = wanted {
            let is_off = wanted.ss_flags & libc::SS_DISABLE != 0;
            if !is_off && wanted.ss_size < libc::MINSIGSTKSZ {
                return fail(libc::ENOMEM);
            }
            if !is_off && wanted.ss_size > STACK {
                // At least as large as the program wants, and for good.
                if SignalStack::new(wanted.ss_size + STACK).is_ok_and(|stack| stack.use_here().is_err()) {
                    return fail(libc::EPERM);
                }
            }
            SET.set((!is_off).then_some(wanted));
        }
    }
    0
}

// ---- actions ----

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(number: c_int, new: *const Action, old: *mut Action) -> c_int {
    let handled = faults::handled();
    if handled == 0 {
        // SAFETY: the caller's contract.
        return unsafe { next_sigaction(number, new, old) };
    }
    // Copies, because neither the kernel nor what blocks signals may read memory of flash.
    // SAFETY: the caller gives null or such a structure.
    let new = unsafe { new.as_ref() }.map(|new| Action { sa_mask: without(&new.sa_mask, handled), ..*new });
    // SAFETY: the caller's contract.
    let before = match unsafe { faults::exchange_action(number, new.as_ref()) } {
        Some(before) => before,
        None => {
            // SAFETY: all zeros is the default action.
            let mut before = unsafe { zeroed() };
            let new = new.as_ref().map_or(null(), std::ptr::from_ref);
            // SAFETY: the caller's contract.
            if unsafe { next_sigaction(number, new, &raw mut before) } != 0 {
                return -1;
            }
            before
        }
    };
    // SAFETY: as above.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = before;
    }
    0
}

next!(next_sigaction, c"sigaction", (number: c_int, new: *const Action, old: *mut Action) -> c_int);

/// A set without some signals.
fn without(set: &sigset_t, signals: u64) -> sigset_t {
    let mut set = *set;
    // SAFETY: a set is at least as long as a word, which has all signals.
    unsafe { *(&raw mut set).cast::<u64>() &= !signals };
    set
}

unsafe fn set_handler(number: c_int, handler: libc::sighandler_t, flags: c_int) -> libc::sighandler_t {
    // SAFETY: all zeros is the default action, and the caller's contract.
    unsafe {
        let (mut new, mut old): (Action, Action) = (zeroed(), zeroed());
        (new.sa_sigaction, new.sa_flags) = (handler, flags);
        if sigaction(number, &raw const new, &raw mut old) == 0 { old.sa_sigaction } else { libc::SIG_ERR }
    }
}

/// Defines functions of the C library that set a handler with these flags.
macro_rules! setters {
    ($flags:expr, $($name:ident)*) => {$(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(number: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
            // SAFETY: the caller's contract.
            unsafe { set_handler(number, handler, $flags) }
        }
    )*};
}

setters!(libc::SA_RESTART, signal bsd_signal ssignal);
setters!(libc::SA_RESETHAND | libc::SA_NODEFER, sysv_signal __sysv_signal);

// ---- masks ----

/// Sets this thread's mask as the kernel does, but for signals that resolve faults.
unsafe fn set_mask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> Result<(), c_int> {
    // SAFETY: the caller gives null or a set.
    let new = unsafe { new.as_ref() }.map(|new| match how {
        libc::SIG_UNBLOCK => *new,
        _ => without(new, faults::handled()),
    });
    let new = new.as_ref().map_or(null(), std::ptr::from_ref);
    let mut before = 0u64;
    let words = (&raw mut before, size_of::<u64>());
    // SAFETY: the sets are at least as long as the word that the kernel reads and writes.
    if unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, new, words.0, words.1) } != 0 {
        // SAFETY: the location is this thread's own.
        return Err(unsafe { *libc::__errno_location() });
    }
    if !old.is_null() {
        // SAFETY: the caller gives a place for a set, whose first word has all signals.
        unsafe {
            libc::sigemptyset(old);
            *old.cast::<u64>() = before;
        }
    }
    Ok(())
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { set_mask(how, new, old) }.map_or_else(fail, |()| 0)
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: the location is this thread's own, and the caller's contract.
    unsafe {
        let errno = *libc::__errno_location();
        let result = set_mask(how, new, old).err().unwrap_or(0);
        *libc::__errno_location() = errno;
        result
    }
}

/// A mask as it may be set while a thread waits: handlers run with it.
unsafe fn mask(set: *const sigset_t) -> Option<sigset_t> {
    // SAFETY: the caller gives null or a set.
    unsafe { set.as_ref() }.map(|set| without(set, faults::handled()))
}

fn pointer(set: &Option<sigset_t>) -> *const sigset_t {
    set.as_ref().map_or(null(), std::ptr::from_ref)
}

next!(next_sigsuspend, c"sigsuspend", (set: *const sigset_t) -> c_int);
next!(next_ppoll, c"ppoll", (list: *mut libc::pollfd, count: libc::nfds_t, time: *const timespec, set: *const sigset_t) -> c_int);
next!(next_pselect, c"pselect", (count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set, time: *const timespec, set: *const sigset_t) -> c_int);
next!(next_epoll_pwait2, c"epoll_pwait2", (fd: c_int, events: *mut libc::epoll_event, count: c_int, time: *const timespec, set: *const sigset_t) -> c_int);
next!(next_epoll_pwait, c"epoll_pwait", (fd: c_int, events: *mut libc::epoll_event, count: c_int, time: c_int, set: *const sigset_t) -> c_int);

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigsuspend(set: *const sigset_t) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { next_sigsuspend(pointer(&mask(set))) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    list: *mut libc::pollfd,
    count: libc::nfds_t,
    time: *const timespec,
    set: *const sigset_t,
) -> c_int {
    let spans = [(list as usize, count as usize * size_of::<libc::pollfd>()), (time as usize, size_of::<timespec>())];
    // SAFETY: the caller's contract.
    crate::calls::with(&spans, || unsafe { next_ppoll(list, count, time, pointer(&mask(set))) })
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    time: *const timespec,
    set: *const sigset_t,
) -> c_int {
    let sets = [read, write, except].map(|set| (set as usize, size_of::<libc::fd_set>()));
    let spans = [sets[0], sets[1], sets[2], (time as usize, size_of::<timespec>())];
    // SAFETY: the caller's contract.
    crate::calls::with(&spans, || unsafe { next_pselect(count, read, write, except, time, pointer(&mask(set))) })
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    fd: c_int,
    events: *mut libc::epoll_event,
    count: c_int,
    time: c_int,
    set: *const sigset_t,
) -> c_int {
    let spans = [(events as usize, count.max(0) as usize * size_of::<libc::epoll_event>())];
    // SAFETY: the caller's contract.
    crate::calls::with(&spans, || unsafe { next_epoll_pwait(fd, events, count, time, pointer(&mask(set))) })
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    fd: c_int,
    events: *mut libc::epoll_event,
    count: c_int,
    time: *const timespec,
    set: *const sigset_t,
) -> c_int {
    let events_bytes = count.max(0) as usize * size_of::<libc::epoll_event>();
    let spans = [(events as usize, events_bytes), (time as usize, size_of::<timespec>())];
    // SAFETY: the caller's contract.
    crate::calls::with(&spans, || unsafe { next_epoll_pwait2(fd, events, count, time, pointer(&mask(set))) })
}
