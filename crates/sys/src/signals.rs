//! Signals of a thread, and threads that take none.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use crate::{planted, threads};

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
/// process. It is marked ([`threads::mark`]): the process need not live on for it.
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
    threads::mark();
    body();
    std::process::abort()
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
