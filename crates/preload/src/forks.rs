//! What happens around a `fork`. The locks of this library are taken before, so that none is held
//! for good in the child, by a thread that the child does not have. The page buffer stops, and goes
//! on in both processes.
//!
//! This library's handlers are registered before any other. So the C library calls them last before
//! a fork and first after it, and the handlers of others may use memory of flash. In between, the C
//! library itself reads its open files (`FILE`) in the child, which allocators may have put into
//! memory of flash. They are made resident before.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite_fault::Forking;
use fulgurite_sys::{faults, threads};

use crate::allocator::{self, Blocks, next};
use crate::errno::fail;
use crate::run::{self, Run, run};
use crate::{descriptors, early, last_thread, objects, signals, small};

/// The run that forks, if the child will have a part of it.
type Parting = Option<(&'static Run, Forking)>;

/// Locks of this library that the thread that forks has taken.
struct Locks {
    _stacks: signals::Stacks,
    _blocks: Blocks,
    _small: small::Locked,
}

/// What the thread that forks holds.
struct Held(UnsafeCell<Option<(Locks, Parting)>>, UnsafeCell<u64>);

// SAFETY: it is reached by a thread between its `prepare` and its `in_parent` or `in_child` only,
// with the lock of the blocks held.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None), UnsafeCell::new(0));

type Handler = Option<extern "C" fn()>;

next!(next_register, c"__register_atfork", (before: Handler, parent: Handler, child: Handler, dso: *mut c_void) -> c_int);
next!(next_fork, c"fork", () -> libc::pid_t);
next!(lock_files, c"_IO_list_lock", () -> ());
next!(unlock_files, c"_IO_list_unlock", () -> ());
next!(first_file, c"_IO_iter_begin", () -> *mut c_void);
next!(next_file, c"_IO_iter_next", (file: *mut c_void) -> *mut c_void);

/// Bytes of a `FILE` and its lock (glibc's `struct locked_FILE` without its wide part).
const FILE_BYTES: usize = 0xe0 + 16;
/// Tries to fork with all files resident.
const TRIES: usize = 20;

/// Registers the handlers, once.
pub fn register() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        // SAFETY: the handlers are functions of a library that is never unloaded.
        unsafe { next_register(Some(before), Some(in_parent), Some(in_child), null_mut()) };
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __register_atfork(
    before: Handler,
    parent: Handler,
    child: Handler,
    dso: *mut c_void,
) -> c_int {
    register();
    // SAFETY: the caller's contract.
    unsafe { next_register(before, parent, child, dso) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> libc::pid_t {
    if let Some(run) = run().filter(|run| !run.buffer.can_fork()) {
        run.cannot_fork();
        return fail(libc::ENOMEM);
    }
    if let Some(run) = run().filter(|_| objects::any()) {
        run.no_child_of_objects();
        return fail(libc::ENOMEM);
    }
    // SAFETY: the caller's contract.
    unsafe { next_fork() }
}

/// Calls `f` with each page of an open file. The caller has locked the C library's list of them.
fn each_page_of_files(mut f: impl FnMut(usize)) {
    // SAFETY: the list is locked, so that its members are there.
    unsafe {
        let mut file = first_file();
        while !file.is_null() {
            let start = file as usize;
            f(start);
            f(start + FILE_BYTES);
            file = next_file(file);
        }
    }
}

fn prepare() -> Parting {
    let run = run()?;
    let here = 0u8;
    // A stack in memory of flash: this thread's own faults would have to be handled.
    if run.buffer.contains(&raw const here as usize) {
        return None;
    }
    for _ in 0..TRIES {
        let mut pages = [0usize; 256];
        let mut count = 0;
        each_page_of_files(|address| {
            // SAFETY: the file is there, and so is its memory.
            unsafe { (address as *const u8).read_volatile() };
            if run.buffer.contains(address) && count < pages.len() {
                pages[count] = address;
                count += 1;
            }
        });
        let mut forking = run.buffer.prepare_fork();
        if pages[..count].iter().all(|address| run.buffer.ensure_there(&mut forking, *address)) {
            return Some((run, forking));
        }
        run.buffer.in_parent(forking);
    }
    None
}

/// Sets which signals this thread blocks, but for those that resolve faults.
pub fn set_signals(word: u64) -> u64 {
    // SAFETY: all zeros is a set, and its first word has all signals.
    unsafe {
        let (mut new, mut old): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        (&raw mut new).cast::<u64>().write(word);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const new, &raw mut old);
        (&raw const old).cast::<u64>().read()
    }
}

extern "C" fn before() {
    // A handler of the program would wait for its pages, and this thread has the page buffer.
    // SAFETY: one thread forks at a time, as the C library has a lock for these handlers.
    unsafe { *HELD.1.get() = set_signals(u64::MAX) };
    if run().is_some() {
        // First: its holder may wait for a page, and may free a block. The C library locks the list
        // once more, when no page would come any more. In the child it makes a new lock of it.
        // SAFETY: the list is unlocked in `in_parent`.
        unsafe { lock_files() };
    }
    // While pages still come: a handler of the program may interrupt the holder of one of these.
    let locks = Locks { _stacks: signals::stacks(), _blocks: allocator::blocks(), _small: small::lock() };
    let forking = prepare();
    // SAFETY: see `Held`.
    unsafe { *HELD.0.get() = Some((locks, forking)) };
    // Its holders block all signals.
    faults::lock_actions();
    // The last one: the others may allocate.
    crate::MEMORY.lock();
}

/// Gives the locks of this library back, and returns the fork.
fn release() -> Parting {
    crate::MEMORY.unlock();
    faults::unlock_actions();
    // SAFETY: see `Held`.
    unsafe { (*HELD.0.get()).take() }.and_then(|(_, forking)| forking)
}

extern "C" fn in_parent() {
    if let Some((run, forking)) = release() {
        run.buffer.in_parent(forking);
    }
    if run().is_some() {
        // SAFETY: the list was locked in `before`.
        unsafe { unlock_files() };
    }
    // SAFETY: as in `before`.
    set_signals(unsafe { *HELD.1.get() });
}

extern "C" fn in_child() {
    run::mark_child();
    threads::forget_marks();
    objects::mark_child();
    allocator::forget_look_ups();
    if let Some((run, forking)) = release() {
        // The program's allocator may still hold its own locks.
        early::with(|| {
            let buffer = descriptors::with_high_numbers(|| {
                let buffer = run.buffer.in_child(forking)?;
                last_thread::watch(&buffer)?;
                Ok(buffer)
            });
            run::go_on(run, buffer);
        });
    }
    // SAFETY: as in `before`.
    set_signals(unsafe { *HELD.1.get() });
}
