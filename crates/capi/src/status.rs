//! Statuses: what each function returns, and a sentence for each.

use std::ffi::{CStr, c_char, c_int};

/// What a function returns: 0 when it did what it says, else why it did not.
///
/// fulgurite_last_message() says more: what failed, where, and what to do.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum fulgurite_status {
    /// Done.
    FULGURITE_OK = 0,
    /// There is no such key, name or token.
    FULGURITE_NOT_FOUND = 1,
    /// The value was not the expected one, and was not changed.
    FULGURITE_DIFFERENT = 2,
    /// The buffer is too small. The needed size was stored.
    FULGURITE_BUFFER_TOO_SMALL = 3,
    /// An argument is NULL, misaligned, not UTF-8, or of another pool or thread.
    FULGURITE_INVALID_ARGUMENT = 4,
    /// A place is outside of what it must be inside of.
    FULGURITE_OUT_OF_RANGE = 5,
    /// A key or value is longer than any can be.
    FULGURITE_TOO_LONG = 6,
    /// The pool, the container or the history of unsynced changes is full.
    FULGURITE_NO_SPACE = 7,
    /// The DRAM budget does not suffice, or the kernel gives no memory.
    FULGURITE_NO_MEMORY = 8,
    /// The medium failed. The data behind other addresses is unaffected.
    FULGURITE_IO = 9,
    /// What was read is not what was written.
    FULGURITE_CORRUPT = 10,
    /// The container or the memory cannot be used any more: open it again.
    FULGURITE_POISONED = 11,
    /// The pool was closed.
    FULGURITE_CLOSED = 12,
    /// It is in use: by pins, an open write section, a reader, or a call under way.
    FULGURITE_BUSY = 13,
    /// The name leads to something of another type.
    FULGURITE_WRONG_TYPE = 14,
    /// The medium keeps nothing, so it has no names and no tokens.
    FULGURITE_NO_POOL = 15,
    /// The medium cannot be opened or created.
    FULGURITE_CANNOT_OPEN = 16,
    /// An option cannot be read, is out of range, or has no effect on this medium.
    FULGURITE_BAD_OPTION = 17,
    /// The page may not be read or written.
    FULGURITE_NOT_PERMITTED = 18,
    /// The job was cancelled.
    FULGURITE_CANCELLED = 19,
    /// The deadline of the job has passed.
    FULGURITE_DEADLINE_EXCEEDED = 20,
    /// There is more work than can be done in time. Retry later.
    FULGURITE_OVERLOADED = 21,
    /// The job has used up its stack.
    FULGURITE_STACK_OVERFLOW = 22,
    /// The call would wait for the worker that it runs on: pass the job's context, or call it from
    /// another thread.
    FULGURITE_IN_A_JOB = 23,
    /// A defect of this library or of a callback. What was changed may be half changed.
    FULGURITE_PANICKED = 24,
    /// Anything else.
    FULGURITE_FAILED = 25,
    /// This process is a child, by fork(), of the one that opened the memory.
    FULGURITE_FORKED = 26,
}

use fulgurite_status::*;

const ALL: [(fulgurite_status, &CStr); 27] = [
    (FULGURITE_OK, c"done"),
    (FULGURITE_NOT_FOUND, c"there is no such key, name or token"),
    (FULGURITE_DIFFERENT, c"the value was not the expected one"),
    (FULGURITE_BUFFER_TOO_SMALL, c"the buffer is too small"),
    (FULGURITE_INVALID_ARGUMENT, c"an argument is NULL, misaligned, not UTF-8, or of another pool or thread"),
    (FULGURITE_OUT_OF_RANGE, c"a place is out of range"),
    (FULGURITE_TOO_LONG, c"a key or value is too long"),
    (FULGURITE_NO_SPACE, c"no space is left"),
    (FULGURITE_NO_MEMORY, c"the DRAM budget does not suffice, or the kernel gives no memory"),
    (FULGURITE_IO, c"the medium failed"),
    (FULGURITE_CORRUPT, c"what was read is not what was written"),
    (FULGURITE_POISONED, c"the container or the memory cannot be used any more"),
    (FULGURITE_CLOSED, c"the pool was closed"),
    (FULGURITE_BUSY, c"it is in use"),
    (FULGURITE_WRONG_TYPE, c"the name leads to something of another type"),
    (FULGURITE_NO_POOL, c"the medium keeps nothing"),
    (FULGURITE_CANNOT_OPEN, c"the medium cannot be opened or created"),
    (FULGURITE_BAD_OPTION, c"an option cannot be read, is out of range, or has no effect"),
    (FULGURITE_NOT_PERMITTED, c"the page may not be read or written"),
    (FULGURITE_CANCELLED, c"the job was cancelled"),
    (FULGURITE_DEADLINE_EXCEEDED, c"the deadline of the job has passed"),
    (FULGURITE_OVERLOADED, c"there is more work than can be done in time"),
    (FULGURITE_STACK_OVERFLOW, c"the job has used up its stack"),
    (FULGURITE_IN_A_JOB, c"a job cannot make a call that waits without its context"),
    (FULGURITE_PANICKED, c"a defect: a part of this library, or a callback, has panicked"),
    (FULGURITE_FAILED, c"it failed"),
    (FULGURITE_FORKED, c"this process is a child, by fork, of the one that opened the memory"),
];

/// Returns a sentence for a status, which lasts as long as the program. A number that is no status
/// has a sentence, too.
#[unsafe(no_mangle)]
pub extern "C" fn fulgurite_strerror(status: c_int) -> *const c_char {
    let found = ALL.iter().find(|(known, _)| *known as c_int == status);
    found.map_or(c"this number is no status of this library", |(_, text)| text).as_ptr()
}
