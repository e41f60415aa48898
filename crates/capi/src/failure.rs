//! Failures: a status with its message, made of every error below, and the message of the thread.

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use fulgurite::{
    AccessError, Error, JobError, SyncError, containers::RootError, media::VersionError, pool::PoolError,
    runtime::BuildError, runtime::SubmitError,
};
use fulgurite_flash::FlashError;

use crate::status::fulgurite_status::{self, *};

/// Why a call did not do what it says.
#[derive(Debug)]
pub(crate) struct Failure {
    pub status: fulgurite_status,
    pub message: Cow<'static, str>,
}

impl Failure {
    pub fn new(status: fulgurite_status, message: impl Into<Cow<'static, str>>) -> Failure {
        Failure { status, message: message.into() }
    }
}

thread_local! {
    /// A string of [`CString::into_raw`], or null. Without a destructor, so that calls in
    /// destructors of a thread's other data have a message, too.
    static LAST: Cell<*mut c_char> = const { Cell::new(null_mut()) };
    /// Frees that string when the thread ends. One of a later call is not freed.
    static FREES: Frees = const { Frees };
}

struct Frees;
impl Drop for Frees {
    fn drop(&mut self) {
        set_last(None);
    }
}

fn set_last(message: Option<CString>) {
    let old = LAST.replace(message.map_or(null_mut(), CString::into_raw));
    if !old.is_null() {
        // SAFETY: it is from `into_raw`, and nothing has it any more.
        drop(unsafe { CString::from_raw(old) });
    }
}

/// Returns what the last call of this thread that failed has to say: what failed, where, and what
/// to do. It is empty before the first. The text lasts until the next call of this thread that
/// fails. In a job, read it before the next call.
#[unsafe(no_mangle)]
pub extern "C" fn fulgurite_last_message() -> *const c_char {
    let last = LAST.get();
    if last.is_null() { c"".as_ptr() } else { last.cast_const() }
}

/// The end of every call: a panic becomes a failure, and a failure the thread's message.
pub(crate) fn guard(call: impl FnOnce() -> Result<(), Failure>) -> fulgurite_status {
    let done = catch_unwind(AssertUnwindSafe(call));
    let failure = match done {
        Ok(Ok(())) => return FULGURITE_OK,
        Ok(Err(failure)) => failure,
        Err(payload) => Failure::new(FULGURITE_PANICKED, words(&*payload)),
    };
    let bytes: Vec<u8> = failure.message.bytes().filter(|byte| *byte != 0).collect();
    let _ = FREES.try_with(|_| ());
    set_last(Some(CString::new(bytes).unwrap_or_default()));
    failure.status
}

fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a text".to_owned())
}

pub(crate) fn of_flash(error: &FlashError) -> fulgurite_status {
    match error {
        FlashError::NoSpace => FULGURITE_NO_SPACE,
        FlashError::Corrupt => FULGURITE_CORRUPT,
        FlashError::Poisoned => FULGURITE_POISONED,
        FlashError::NoToken => FULGURITE_NOT_FOUND,
        _ => FULGURITE_IO,
    }
}

fn of_version(error: &VersionError) -> fulgurite_status {
    match error {
        VersionError::NoToken { .. } => FULGURITE_NOT_FOUND,
        VersionError::InUse { .. } | VersionError::Pinned { .. } => FULGURITE_BUSY,
        VersionError::Flash(error) => of_flash(error),
        _ => FULGURITE_FAILED,
    }
}

fn of_access(error: &AccessError) -> fulgurite_status {
    match error {
        error if error.is_damage() => FULGURITE_CORRUPT,
        AccessError::Flash { source, .. } => of_flash(source),
        AccessError::OutOfRange { .. } | AccessError::Straddles { .. } => FULGURITE_OUT_OF_RANGE,
        AccessError::NotPermitted { .. } | AccessError::NotOwner { .. } => FULGURITE_NOT_PERMITTED,
        AccessError::OtherMemory => FULGURITE_INVALID_ARGUMENT,
        AccessError::Cancelled => FULGURITE_CANCELLED,
        AccessError::DeadlineExceeded => FULGURITE_DEADLINE_EXCEEDED,
        AccessError::TooManyPins { .. } | AccessError::PinnedTooOften { .. } => FULGURITE_BUSY,
        AccessError::Poisoned | AccessError::MemoryPoisoned => FULGURITE_POISONED,
        AccessError::NoSpace { .. } | AccessError::PoolFull { .. } => FULGURITE_NO_SPACE,
        AccessError::TooLong { .. } => FULGURITE_TOO_LONG,
        AccessError::OutOfFrames | AccessError::IndexFull { .. } => FULGURITE_NO_MEMORY,
        AccessError::NoRecords => FULGURITE_BAD_OPTION,
        AccessError::OnWorker => FULGURITE_IN_A_JOB,
        AccessError::Nested | AccessError::TooManyThreads { .. } => FULGURITE_BUSY,
        AccessError::NoBarrier => FULGURITE_NOT_PERMITTED,
        AccessError::StackExhausted { .. } => FULGURITE_STACK_OVERFLOW,
        AccessError::ShuttingDown => FULGURITE_CLOSED,
        AccessError::Forked => FULGURITE_FORKED,
        AccessError::Overloaded { .. } => FULGURITE_OVERLOADED,
        _ => FULGURITE_FAILED,
    }
}

fn of_submit(error: &SubmitError) -> fulgurite_status {
    match error {
        SubmitError::Overloaded { .. } => FULGURITE_OVERLOADED,
        SubmitError::ShuttingDown => FULGURITE_CLOSED,
        SubmitError::Forked => FULGURITE_FORKED,
        _ => FULGURITE_OUT_OF_RANGE,
    }
}

fn of_root(error: &RootError) -> fulgurite_status {
    match error {
        RootError::Access(error) => of_access(error),
        RootError::Unknown { .. } => FULGURITE_NOT_FOUND,
        RootError::Exists { .. } | RootError::WrongType { .. } | RootError::WrongLayout { .. } => FULGURITE_WRONG_TYPE,
        RootError::BadName { .. } | RootError::BadTypeName { .. } => FULGURITE_INVALID_ARGUMENT,
        RootError::Full { .. } | RootError::NoSpace { .. } => FULGURITE_NO_SPACE,
        RootError::NotHandedOut { .. } => FULGURITE_OUT_OF_RANGE,
        RootError::Damaged { .. } => FULGURITE_CORRUPT,
        RootError::TooSmall { .. } => FULGURITE_CANNOT_OPEN,
        _ => FULGURITE_FAILED,
    }
}

fn of_pool(error: &PoolError) -> fulgurite_status {
    match error {
        PoolError::NoToken { .. } => FULGURITE_NOT_FOUND,
        PoolError::TokenInUse { .. } | PoolError::TokenPinned { .. } => FULGURITE_BUSY,
        PoolError::NotPermitted { .. } | PoolError::ReadOnly => FULGURITE_NOT_PERMITTED,
        PoolError::NoSuchPages { .. } => FULGURITE_OUT_OF_RANGE,
        PoolError::Flash(error) => of_flash(error),
        PoolError::Write(error) => of_flash(&(*error).into()),
        _ => FULGURITE_FAILED,
    }
}

fn of_sync(error: &SyncError) -> fulgurite_status {
    match error {
        SyncError::NoVersions { .. } => FULGURITE_NO_POOL,
        SyncError::Forked => FULGURITE_FORKED,
        SyncError::Version(error) => of_version(error),
        SyncError::NoSpace { .. } => FULGURITE_NO_SPACE,
        SyncError::SectionOpen { .. } | SyncError::SectionOpenInThread { .. } | SyncError::Busy { .. } => {
            FULGURITE_BUSY
        }
        SyncError::Part { source, .. } => of_access(source),
        SyncError::PartDied { .. } | SyncError::Poisoned { .. } => FULGURITE_POISONED,
        _ => FULGURITE_FAILED,
    }
}

fn of_any(error: &Error) -> fulgurite_status {
    match error {
        Error::Unit(_) | Error::NotHonoured { .. } | Error::OnlyCache | Error::Geometry(_) => FULGURITE_BAD_OPTION,
        Error::Open(_) | Error::Device(_) | Error::OpenPool { .. } | Error::Members { .. } => FULGURITE_CANNOT_OPEN,
        Error::Build(BuildError::Forked) => FULGURITE_FORKED,
        Error::Build(BuildError::Memory(_) | BuildError::Stacks(_)) => FULGURITE_NO_MEMORY,
        Error::Build(BuildError::Flash(_) | BuildError::Start(_)) => FULGURITE_CANNOT_OPEN,
        Error::Build(_) => FULGURITE_BAD_OPTION,
        Error::Access(error) => of_access(error),
        Error::Submit(error) => of_submit(error),
        Error::Pool(error) => of_pool(error),
        Error::Random(_) | Error::Thread(_) => FULGURITE_FAILED,
        Error::Root(error) => of_root(error),
        Error::Sync(error) => of_sync(error),
        Error::NoPool { .. } => FULGURITE_NO_POOL,
        Error::NoController { .. } => FULGURITE_OUT_OF_RANGE,
        Error::OpenOtherwise { .. } => FULGURITE_WRONG_TYPE,
        _ => FULGURITE_FAILED,
    }
}

impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Failure {
        Failure::new(of_access(&error), error.to_string())
    }
}
impl From<SubmitError> for Failure {
    fn from(error: SubmitError) -> Failure {
        Failure::new(of_submit(&error), error.to_string())
    }
}
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(of_any(&error), error.to_string())
    }
}
impl From<JobError> for Failure {
    fn from(error: JobError) -> Failure {
        let status = match &error {
            JobError::StackOverflow { .. } => FULGURITE_STACK_OVERFLOW,
            JobError::Cancelled { .. } => FULGURITE_CANCELLED,
            JobError::DeadlineExceeded { .. } => FULGURITE_DEADLINE_EXCEEDED,
            JobError::ShutDown { .. } => FULGURITE_CLOSED,
            JobError::Forked => FULGURITE_FORKED,
            _ => FULGURITE_PANICKED,
        };
        Failure::new(status, error.to_string())
    }
}
