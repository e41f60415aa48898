//! Signals of a thread, and threads that take none.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use crate::planted;

/// Restores a thread's signals.
struct Before(libc::sigset_t);

impl Drop for Before {
    fn drop(&mut self) {
        // SAFETY: the set is initialised. The call changes which signals this thread takes.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// Calls `f` with all signals blocked. Threads that it starts have them blocked for good.
pub fn with_all_blocked<T>(f: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: both calls initialise the sets that they are given, and cannot fail with these
    // arguments.
    let _before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        Before(before.assume_init())
    };
    f()
}

/// Calls `f`, which may write to a pipe that nobody reads: the signal of that is taken back.
pub fn without_pipe_signal<T>(f: impl FnOnce() -> T) -> T {
    with_all_blocked(|| {
        let mut pipe = MaybeUninit::uninit();
        let mut pending = MaybeUninit::uninit();
        // SAFETY: the calls initialise the sets that they are given.
        let (pipe, was_pending) = unsafe {
            libc::sigemptyset(pipe.as_mut_ptr());
            libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE);
            libc::sigpending(pending.as_mut_ptr());
            (pipe.assume_init(), libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1)
        };
        let result = f();
        if !was_pending {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the set is initialised. The call waits for nothing.
            unsafe { libc::sigtimedwait(&raw const pipe, ptr::null_mut(), &raw const now) };
        }
        result
    })
}

/// Starts a thread that takes no signals. It must not end: its end, or a panic in it, ends the
/// process.
///
/// It does without the standard library's threads. Those register destructors, for which the C
/// library calls the program's `malloc`.
///
/// # Errors
/// The kernel's.
pub fn start_for_good<F: FnOnce() + Send + 'static>(name: &'static CStr, body: F) -> io::Result<()> {
    planted::start_thread()?;
    let body = Box::into_raw(Box::new(body));
    let mut thread = MaybeUninit::uninit();
    // SAFETY: the thread takes the box that it is given, once.
    let result =
        with_all_blocked(|| unsafe { libc::pthread_create(thread.as_mut_ptr(), ptr::null(), begin::<F>, body.cast()) });
    if result != 0 {
        // SAFETY: no thread has it.
        drop(unsafe { Box::from_raw(body) });
        return Err(io::Error::from_raw_os_error(result));
    }
    // SAFETY: the thread was made above, nobody joins it, and it never ends.
    unsafe {
        let thread = thread.assume_init();
        libc::pthread_setname_np(thread, name.as_ptr());
        libc::pthread_detach(thread);
    }
    Ok(())
}

extern "C" fn begin<F: FnOnce()>(body: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: this thread is given a box of its own (see `start_for_good`).
    let body = unsafe { Box::from_raw(body.cast::<F>()) };
    body();
    std::process::abort()
}

/// Calls `handle` in each thread that gets a `SIGBUS` by an access, with the address and all
/// signals blocked. True: the access is tried again. False: what was set before gets the signal,
/// which by default ends the process. Only the first caller's function is set.
///
/// `handle` runs in the midst of whatever the thread did at the access. It must take no lock that a
/// thread may hold there, and must cause no such access itself.
///
/// # Errors
/// The kernel's. `EBUSY` when another function is set.
pub fn on_bus_error(handle: fn(usize) -> bool) -> io::Result<()> {
    match HANDLE.set(handle) {
        Ok(()) => {}
        Err(_) if HANDLE.get().is_some_and(|set| std::ptr::fn_addr_eq(*set, handle)) => return Ok(()),
        Err(_) => return Err(io::Error::from_raw_os_error(libc::EBUSY)),
    }
    // SAFETY: zeros are a valid action, whose mask is then filled. The handler has the signature
    // that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before);
        let _ = BEFORE.set(before);
        action.sa_sigaction = bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigfillset(&raw mut action.sa_mask);
        if libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

static HANDLE: OnceLock<fn(usize) -> bool> = OnceLock::new();
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

extern "C" fn bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a description of the signal. The location of errno is this thread's.
    let (address, errno) = unsafe { ((*info).si_addr() as usize, *libc::__errno_location()) };
    // A signal that was sent has no address.
    // SAFETY: as above.
    let is_access = unsafe { (*info).si_code } > 0;
    let handled = is_access && HANDLE.get().is_some_and(|handle| handle(address));
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    if handled {
        return;
    }
    let Some(before) = BEFORE.get() else { std::process::abort() };
    match before.sa_sigaction {
        libc::SIG_IGN if !is_access => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // The access is tried again and ends the process. A signal that was sent is sent again.
            // SAFETY: the default action is a valid one.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                if !is_access {
                    libc::raise(signal);
                }
            }
        }
        // SAFETY: the program set this function for this signal, with or without its description.
        other => unsafe {
            if before.sa_flags & libc::SA_SIGINFO != 0 {
                let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(other);
                call(signal, info, context);
            } else {
                let call: extern "C" fn(libc::c_int) = std::mem::transmute(other);
                call(signal);
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(signal: i32) -> bool {
        let mut now = MaybeUninit::uninit();
        // SAFETY: without a new set, the call only writes the old one.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), now.as_mut_ptr());
            libc::sigismember(now.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn a_thread_that_is_started_inside_takes_no_signals() {
        assert!(!is_blocked(libc::SIGUSR1));
        let inside = with_all_blocked(|| std::thread::spawn(|| is_blocked(libc::SIGUSR1)).join().unwrap());
        assert!(inside && !is_blocked(libc::SIGUSR1));
        let (said, hears) = std::sync::mpsc::channel();
        start_for_good(c"for good", move || {
            said.send(is_blocked(libc::SIGUSR1)).unwrap();
            loop {
                std::thread::park();
            }
        })
        .unwrap();
        assert!(hears.recv().unwrap());
    }
    #[test]
    fn a_pipe_without_a_reader_sends_no_signal() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        // The test program ignores the signal, which is then never pending.
        // SAFETY: the default action of a signal is a valid one.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        without_pipe_signal(|| assert_eq!(rustix::io::write(&writer, b"x"), Err(rustix::io::Errno::PIPE)));
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGPIPE, before) };
    }
}
