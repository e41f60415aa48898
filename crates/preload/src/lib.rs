//! The library that `fulgurite run` loads into a program (`LD_PRELOAD`): the program's large
//! anonymous mappings get memory of a page buffer.
//!
//! `own_memory` is where this library itself allocates. `start` starts the page buffer, which `run`
//! holds, and logs the summary. `last_thread` ends a process that only this library keeps alive.
//! `functions`, `allocator` and `descriptors` are the C library's functions that it stands in for,
//! with `small` for small blocks and `objects` for those by the object. `forks` is what happens
//! around a `fork`, with `early` for a moment of it. Where faults are signals, `signals` keeps the
//! program from taking them. What is passed to the kernel is made resident by `calls`, with
//! `buffers`, `programs` and `checked`. `sandbox` judges the filters of system calls that the
//! program sets, and `limits` the limits that it sets. `raw` is `syscall`, and
//! `requests` what ends later.
//!
//! Invariants:
//! * Without settings of `fulgurite run` for this very process or its parent, each function is the
//!   system call of its name. So it is in programs that are started by the program, and before this
//!   library's constructor has run.
//! * A panic ends the process. It never unwinds into the program.
//! * `errno` changes only where a function fails.

mod allocator;
mod buffers;
mod calls;
mod checked;
mod descriptors;
mod early;
mod errno;
mod forks;
mod functions;
mod last_thread;
mod limits;
mod objects;
mod own_memory;
mod programs;
mod raw;
mod requests;
mod run;
mod sandbox;
mod signals;
mod small;
mod start;

use own_memory::OwnMemory;

#[global_allocator]
static MEMORY: OwnMemory = OwnMemory::new();
