//! The life of a run in its process: started by the constructor, ended by the destructor.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::allocator;
use fulgurite_fault::{ENVIRONMENT, Error, PageBuffer, RunSettings};

/// What a run has.
pub struct Run {
    pub buffer: PageBuffer,
    /// The smallest mapping that goes to flash.
    pub threshold: usize,
    /// Large blocks of `malloc` go to flash: the program has no other allocator.
    pub has_malloc: bool,
    /// The standard error output that the program was started with: it may close its own.
    output: Option<OwnedFd>,
}

static RUN: OnceLock<Run> = OnceLock::new();
/// This process is a child of the run's, and has none.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// The run of this process.
#[inline]
pub fn run() -> Option<&'static Run> {
    RUN.get().filter(|_| !IS_CHILD.load(Ordering::Relaxed))
}

/// The run of this process or of its parent.
#[inline]
pub fn run_of_any() -> Option<&'static Run> {
    RUN.get()
}

impl Run {
    fn tell(&self, text: &str) {
        if let Some(output) = &self.output {
            let mut line = format!("fulgurite run: {text}\n").into_bytes();
            while !line.is_empty() {
                match rustix::io::write(output, &line) {
                    Ok(written) => drop(line.drain(..written)),
                    Err(_) => return,
                }
            }
        }
    }
    /// Tells that flash is full, once.
    pub fn is_full(&self) {
        static TOLD: AtomicBool = AtomicBool::new(false);
        if !TOLD.swap(true, Ordering::Relaxed) {
            self.tell("the flash has no room for another mapping, which fails with ENOMEM; choose more (--flash-size)");
        }
    }
}

/// Called by the dynamic linker before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn constructor() {
        let Ok(text) = std::env::var(ENVIRONMENT) else { return };
        if let Err(error) = start(&text) {
            let _ = writeln!(std::io::stderr(), "fulgurite run: {error}");
            // SAFETY: ends the process, without what the program has registered for its end.
            unsafe { libc::_exit(1) };
        }
    }
    constructor
};

/// Called by the dynamic linker after `main`, and by `exit`.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = {
    extern "C" fn destructor() {
        if let Some(run) = run() {
            run.tell(&run.buffer.statistics().summary().to_string());
        }
    }
    destructor
};

fn start(text: &str) -> Result<(), Error> {
    let settings = RunSettings::from_text(text)?;
    if settings.pid != std::process::id() {
        // SAFETY: constructors run on one thread, before `main`.
        unsafe {
            std::env::remove_var(ENVIRONMENT);
            match settings.preload_before.as_str() {
                "" => std::env::remove_var("LD_PRELOAD"),
                before => std::env::set_var("LD_PRELOAD", before),
            }
        }
        return Ok(());
    }
    // The environment stays: a script may yet become the program that is meant (`exec`).
    let buffer = PageBuffer::start(&settings.open()?)?;
    let output = rustix::io::fcntl_dupfd_cloexec(std::io::stderr().as_fd(), 100).ok();
    allocator::look();
    let has_malloc = !allocator::is_replaced();
    let run = Run { buffer, threshold: settings.threshold_bytes.max(1) as usize, has_malloc, output };
    if settings.explains {
        run.tell(run.buffer.describe());
        run.tell(match has_malloc {
            true => "large blocks of malloc and large mappings go to flash",
            false => "the program has an allocator of its own, whose large mappings go to flash",
        });
    }
    extern "C" fn in_child() {
        IS_CHILD.store(true, Ordering::Relaxed);
    }
    // SAFETY: the handler stores to an atomic, which is allowed in a child of a program with
    // threads.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    let _ = RUN.set(run);
    Ok(())
}
