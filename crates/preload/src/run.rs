//! The life of a run in its process: started by the constructor, ended by the destructor.

use std::io::Write;
use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use fulgurite_fault::{ENVIRONMENT, Error, PageBuffer, RunSettings, Told};

use crate::{allocator, descriptors, forks, small};

/// What a run has.
pub struct Run {
    pub buffer: PageBuffer,
    /// The smallest mapping that goes to flash.
    pub threshold: usize,
    /// Large blocks of `malloc` go to flash: the program has no other allocator.
    pub has_malloc: bool,
    /// Small blocks of `malloc` go to flash as well.
    pub has_small: bool,
    /// Tell figures as JSON.
    json: bool,
    /// This is the process that was started, not a child of it.
    is_first: bool,
    /// The standard error output that the program was started with: it may close its own.
    pub told: Arc<Told>,
}

/// Where the run is, which is never dropped.
static RUN: AtomicPtr<Run> = AtomicPtr::new(null_mut());
/// This process is a child of the run's, and has none.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// The run of this process.
#[inline]
pub fn run() -> Option<&'static Run> {
    run_of_any().filter(|_| !IS_CHILD.load(Ordering::Relaxed))
}

/// The run of this process or of its parent.
#[inline]
pub fn run_of_any() -> Option<&'static Run> {
    // SAFETY: a run is set once it is whole, and then lives as long as the process.
    unsafe { RUN.load(Ordering::Acquire).as_ref() }
}

/// This process is a child, without a run of its own yet, if it will have one.
pub fn is_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Sets the run of this process.
fn set(run: Run) {
    RUN.store(Box::into_raw(Box::new(run)), Ordering::Release);
    IS_CHILD.store(false, Ordering::Relaxed);
}

/// Goes on in a child, which has been given a buffer or not.
pub fn go_on(before: &'static Run, buffer: Result<PageBuffer, Error>) {
    match buffer {
        Ok(buffer) => set(Run { buffer, is_first: false, told: before.told.clone(), ..*before }),
        Err(error) => before.told.tell(&format!("process {}: {error}", std::process::id())),
    }
}

impl Run {
    /// Tells that a fork fails, once.
    pub fn cannot_fork(&self) {
        static TOLD: AtomicBool = AtomicBool::new(false);
        if !TOLD.swap(true, Ordering::Relaxed) {
            self.told.tell(
                "a child could change all that is mapped, and the flash has no room for that: fork fails with ENOMEM; \
                 choose more (--flash-size)",
            );
        }
    }
    /// Tells that flash is full, once.
    pub fn is_full(&self) {
        static TOLD: AtomicBool = AtomicBool::new(false);
        if !TOLD.swap(true, Ordering::Relaxed) {
            self.told
                .tell("the flash has no room for another mapping, which fails with ENOMEM; choose more (--flash-size)");
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
        if let Some(run) = run().filter(|run| run.is_first) {
            run.told.tell_figures(&run.buffer.summary(), run.json, "");
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
    forks::register();
    let (buffer, told) = descriptors::with_high_numbers(|| {
        let output = std::io::stderr().as_fd().try_clone_to_owned().ok();
        let told = Arc::new(Told::to(output.map(Into::into)));
        let started = settings.open(told.clone()).and_then(|settings| PageBuffer::start(&settings));
        started.map(|buffer| (buffer, told))
    })?;
    allocator::look();
    let has_malloc = !allocator::is_replaced();
    let has_small = has_malloc && settings.small;
    if has_small {
        small::look_for_callers();
    }
    let threshold = settings.threshold_bytes.max(1) as usize;
    let run = Run { buffer, threshold, has_malloc, has_small, json: settings.json, is_first: true, told };
    if settings.explains {
        run.told.tell(run.buffer.describe());
        run.told.tell(match has_malloc {
            true if has_small => "blocks of malloc and large mappings go to flash",
            true => "large blocks of malloc and large mappings go to flash",
            false => "the program has an allocator of its own, whose large mappings go to flash",
        });
    }
    set(run);
    Ok(())
}
