//! The life of a run: started by the constructor, ended by the destructor.

use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;

use fulgurite_fault::{ENVIRONMENT, Error, Notices, PageBuffer, RunSettings};
use fulgurite_sys::DirectFile;

use crate::run::{Run, run, set};
use crate::{allocator, descriptors, forks, last_thread, objects, sandbox, signals, small};

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
        if let Some(run) = run().filter(|run| run.is_first && !sandbox::is_silent()) {
            run.report_figures();
        }
    }
    destructor
};

fn start(text: &str) -> Result<(), Box<dyn std::error::Error>> {
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
    crate::MEMORY.reserve();
    // The environment stays: a script may yet become the program that is meant (`exec`).
    forks::register();
    small::find_callers();
    let (buffer, objects, notices) = descriptors::with_high_numbers(|| -> Result<_, Box<dyn std::error::Error>> {
        let output = std::io::stderr().as_fd().try_clone_to_owned().ok();
        let notices = Arc::new(Notices::to(output.map(Into::into)));
        let mut opened = settings.open(notices.clone())?;
        let least = settings.objects_least as usize;
        let objects = (least > 0).then(|| objects::begin(&mut opened, least)).transpose()?;
        let buffer = PageBuffer::start(&opened)?;
        last_thread::watch(&buffer)?;
        Ok((buffer, objects, notices))
    })?;
    let (largest, limit) = (descriptors::largest_file(), DirectFile::limit_bytes());
    if let Some(limit) = limit.filter(|limit| *limit < largest) {
        return Err(Error::FileLimit { largest, limit }.into());
    }
    allocator::look_up();
    let has_malloc = !allocator::is_replaced();
    let has_small = has_malloc && settings.small && small::begin(&buffer);
    let threshold = settings.threshold_bytes.max(1) as usize;
    let run = Run { buffer, threshold, has_malloc, has_small, json: settings.json, is_first: true, notices };
    if settings.explains {
        run.notices.report(run.buffer.describe());
        run.notices.report(match has_malloc {
            true if has_small => "blocks of malloc and large mappings go to flash",
            true => "large blocks of malloc and large mappings go to flash",
            false => "the program has an allocator of its own, whose large mappings go to flash",
        });
        if let Some(described) = objects {
            run.notices.report(&described);
        }
    }
    if rustix::process::getrlimit(rustix::process::Resource::Core).current != Some(0) {
        run.notices.report(
            "core files are enabled (ulimit -c), and will have no memory of flash, where a debugger shows zeros; attach it \
             to the running program instead",
        );
    }
    let signal = run.buffer.is_in_line().then(|| run.buffer.signal());
    set(run);
    if let Some(signal) = signal {
        signals::begin(signal).map_err(Error::Signals)?;
    }
    Ok(())
}
