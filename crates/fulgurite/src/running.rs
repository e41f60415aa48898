//! A job as a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use fulgurite_memory::AccessError;
use fulgurite_runtime::{JobError, JobHandle, SubmitError};

use crate::Error;

/// What a job came to that was waited for.
pub(crate) fn ended<T, E: From<Error>>(job: Result<Result<Result<T, E>, JobError>, SubmitError>) -> Result<T, E> {
    match job.map_err(Error::Submit)? {
        Ok(ended) => ended,
        Err(JobError::Cancelled { .. }) => Err(Error::Access(AccessError::Cancelled).into()),
        Err(JobError::DeadlineExceeded { .. }) => Err(Error::Access(AccessError::DeadlineExceeded).into()),
        Err(JobError::ShutDown { .. }) => Err(Error::Access(AccessError::ShuttingDown).into()),
        Err(error) => Err(Error::Job(error).into()),
    }
}

/// A job under way: a future of its result ([`crate::Fulgurite::run_async`]). Dropped, it cancels
/// the job, which then ends at its next miss or wait.
///
/// ```
/// use fulgurite::runtime::Running;
/// use fulgurite::{Context, Error, Fulgurite, Medium};
///
/// /// Waits for both at once.
/// async fn both(a: Running<u64>, b: Running<u64>) -> Result<u64, Error> {
///     Ok(a.await? + b.await?)
/// }
///
/// # fn main() -> Result<(), Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let sum = both(memory.run_async(|_| Ok(3)), memory.run_async(|_| Ok(4)));
/// // Any executor will do: here, a job's.
/// assert_eq!(memory.run(|m: &mut Context| m.await_future(sum))??, 7);
/// # Ok(())
/// # }
/// ```
///
/// Its error is [`Error::Submit`] when the job was not accepted, [`Error::Job`] when it panicked or
/// did not begin, and [`Error::Access`] with what its code returned.
#[must_use = "a future that is dropped cancels its job"]
pub struct Running<T: Send> {
    job: Option<Result<JobHandle<Result<T, AccessError>>, SubmitError>>,
}

impl<T: Send> Running<T> {
    pub(crate) fn of(job: Result<JobHandle<Result<T, AccessError>>, SubmitError>) -> Self {
        Running { job: Some(job) }
    }
}

impl<T: Send> std::fmt::Debug for Running<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("ended", &self.job.is_none()).finish()
    }
}

impl<T: Send> Future for Running<T> {
    type Output = Result<T, Error>;
    /// # Panics
    /// After it has ended.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let ended = match self.job.as_mut().expect("a future is not polled after its end") {
            Err(error) => Err(Error::Submit(*error)),
            Ok(job) => match Pin::new(job).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(result)) => result.map_err(Error::Access),
                Poll::Ready(Err(error)) => Err(Error::Job(error)),
            },
        };
        self.job = None;
        Poll::Ready(ended)
    }
}

impl<T: Send> Drop for Running<T> {
    fn drop(&mut self) {
        if let Some(Ok(job)) = &self.job {
            job.cancel();
        }
    }
}
