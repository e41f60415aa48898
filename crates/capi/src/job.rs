//! Jobs: callbacks of the program that run on fibers, where a miss lets other jobs run.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use fulgurite::{JobHandle, JobOptions};

use crate::argument::{self, OfProcess, User, give};
use crate::context::fulgurite_context;
use crate::failure::{Failure, guard};
use crate::open::{note_worker, refuse_on_worker};
use crate::pool::fulgurite_pool;
use crate::status::fulgurite_status::{self, *};

/// The code of a job. It runs on a worker, on the stack of a fiber (fulgurite_options_fibers()),
/// and passes the context on to what it calls. It must not keep the context, wait for anything by
/// itself, leave by longjmp() or an exception, nor fork.
pub type fulgurite_callback = Option<unsafe extern "C" fn(context: *mut fulgurite_context, user: *mut c_void) -> c_int>;

/// A job that was submitted. Wait for it with fulgurite_job_wait(), or let it go with
/// fulgurite_job_free().
pub struct fulgurite_job(OfProcess<JobHandle<c_int>>);

/// # Safety
/// The contract of the module `lib`.
unsafe fn submit(
    pool: *mut fulgurite_pool,
    callback: fulgurite_callback,
    user: *mut c_void,
    deadline_milliseconds: u64,
) -> Result<fulgurite_job, Failure> {
    let callback = callback.ok_or_else(|| Failure::new(FULGURITE_INVALID_ARGUMENT, "callback is NULL"))?;
    // SAFETY: the caller's contract.
    let pool = &unsafe { argument::handle(pool, "pool") }?.0;
    let mut options = JobOptions::new().name("a job of C");
    if deadline_milliseconds > 0 {
        options = options.deadline(Duration::from_millis(deadline_milliseconds));
    }
    let (user, its) = (User(user), pool.clone());
    let job = pool.with(|memory| {
        Ok(memory.submit_with(&options, move |m| {
            note_worker();
            let context = fulgurite_context::new(m, its);
            // SAFETY: the program's own function. The context outlives the call, and nothing here
            // uses what it has borrowed meanwhile.
            unsafe { callback((&raw const context).cast_mut(), user.pointer()) }
        })?)
    })?;
    Ok(fulgurite_job(OfProcess::new(job)))
}

/// Submits a job. `user` is passed on to the callback. After `deadline_milliseconds`, unless that
/// is 0, its calls fail with FULGURITE_DEADLINE_EXCEEDED.
///
/// Fails with FULGURITE_OVERLOADED and FULGURITE_IN_A_JOB. Then `*job` is NULL, and nothing runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_submit(
    pool: *mut fulgurite_pool,
    callback: fulgurite_callback,
    user: *mut c_void,
    deadline_milliseconds: u64,
    job: *mut *mut fulgurite_job,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        unsafe {
            let job = argument::out(job, "job")?;
            job.write(std::ptr::null_mut());
            job.write(give(submit(pool, callback, user, deadline_milliseconds)?));
        }
        Ok(())
    })
}

/// Submits a job, waits for it, and stores what its callback returned, unless `result` is NULL.
///
/// Fails as fulgurite_submit() and fulgurite_job_wait().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_run(
    pool: *mut fulgurite_pool,
    callback: fulgurite_callback,
    user: *mut c_void,
    result: *mut c_int,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (result, job) = unsafe { (argument::out_or_null(result, "result")?, submit(pool, callback, user, 0)?) };
        let returned = job.0.into_value().wait()?;
        if let Some(result) = result {
            result.write(returned);
        }
        Ok(())
    })
}

/// Waits for a job, frees its handle, and stores what its callback returned, unless `result` is
/// NULL. From any thread that is no worker.
///
/// Fails with FULGURITE_STACK_OVERFLOW when the job used up its stack, and with
/// FULGURITE_CANCELLED, FULGURITE_DEADLINE_EXCEEDED or FULGURITE_CLOSED when it never began. The
/// handle stays only after FULGURITE_INVALID_ARGUMENT and FULGURITE_IN_A_JOB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_job_wait(job: *mut fulgurite_job, result: *mut c_int) -> fulgurite_status {
    guard(|| {
        refuse_on_worker()?;
        // SAFETY: the contract of the module `lib`.
        let (result, job) = unsafe { (argument::out_or_null(result, "result")?, argument::take(job, "job")?) };
        let returned = job.0.into_value().wait()?;
        if let Some(result) = result {
            result.write(returned);
        }
        Ok(())
    })
}

/// Makes the calls of a job fail with FULGURITE_CANCELLED, from its next miss or wait on. A job
/// that has not begun never does. The handle stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_job_cancel(job: *mut fulgurite_job) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        unsafe { argument::handle(job, "job") }?.0.get()?.cancel();
        Ok(())
    })
}

/// Stores whether a job has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_job_has_ended(job: *const fulgurite_job, ended: *mut bool) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (job, ended) = unsafe { (argument::handle(job, "job")?.0.get()?, argument::out(ended, "ended")?) };
        ended.write(job.is_finished());
        Ok(())
    })
}

/// Frees the handle of a job, which goes on. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_job_free(job: *mut fulgurite_job) {
    // SAFETY: the contract of the module `lib`. There is nothing to return an error by.
    let _ = guard(|| unsafe { argument::free(job, "job") });
}
