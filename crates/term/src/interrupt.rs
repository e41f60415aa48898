//! Ctrl-C: a flag that loops check. The first stops cleanly and keeps results. The third ends the
//! program at once, and the helper still cleans up.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::stderr::log;

/// How often the flag is checked while something else runs.
const CHECK: Duration = Duration::from_millis(50);

/// The run was interrupted.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Whether somebody wants the run to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    asked: Arc<AtomicU32>,
}

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on. Once per process.
    ///
    /// # Errors
    /// When the handler cannot be set.
    pub fn catch() -> Result<Interrupt> {
        Interrupt::catch_and(|| log("fulgurite: stopping; again twice to stop at once"))
    }
    /// As [`Interrupt::catch`], without a message: a screen ends.
    ///
    /// # Errors
    /// When the handler cannot be set.
    pub fn catch_quietly() -> Result<Interrupt> {
        Interrupt::catch_and(|| {})
    }
    fn catch_and(notify: impl Fn() + Send + 'static) -> Result<Interrupt> {
        let interrupt = Interrupt::default();
        let asked = interrupt.asked.clone();
        ctrlc::set_handler(move || match asked.fetch_add(1, Ordering::Relaxed) {
            0 => notify(),
            1 => {}
            _ => std::process::exit(130),
        })
        .context("Ctrl-C cannot be caught")?;
        Ok(interrupt)
    }
    /// Runs code that cannot check the flag on a thread of its own. An interruption leaves that
    /// thread behind, to end with the program.
    ///
    /// # Errors
    /// [`Interrupted`], or that there is no thread.
    pub fn unless_asked<T: Send + 'static>(&self, code: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let (sender, reported) = mpsc::channel();
        // As much stack as the main thread has.
        let builder = thread::Builder::new().stack_size(8 << 20);
        let running = builder.spawn(move || sender.send(code())).context("a thread cannot be started")?;
        loop {
            self.check()?;
            match reported.recv_timeout(CHECK) {
                Ok(result) => return Ok(result),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => match running.join() {
                    Err(panic) => std::panic::resume_unwind(panic),
                    Ok(_) => bail!("a thread ended without a result"),
                },
            }
        }
    }
    /// Whether it was asked for.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > 0
    }
    /// Fails with [`Interrupted`] when it was asked for.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn check(&self) -> Result<()> {
        if self.asked() { Err(Interrupted.into()) } else { Ok(()) }
    }
}

/// Makes one result after the other, and says whether an interruption ended that early.
///
/// # Errors
/// The first error that is no interruption.
pub fn until_interrupted<I, T>(
    items: impl IntoIterator<Item = I>,
    mut make: impl FnMut(I) -> Result<T>,
) -> Result<(Vec<T>, bool)> {
    let mut made = Vec::new();
    for item in items {
        match make(item) {
            Ok(one) => made.push(one),
            Err(e) if e.is::<Interrupted>() => return Ok((made, true)),
            Err(e) => return Err(e),
        }
    }
    Ok((made, false))
}

/// Whether an interruption ended a run.
///
/// # Errors
/// An error that is no interruption.
pub fn ended_early(result: Result<()>) -> Result<bool> {
    match result {
        Err(e) if e.is::<Interrupted>() => Ok(true),
        result => result.map(|()| false),
    }
}

/// Hands a failure to `failed`, so that the run goes on without a value.
///
/// # Errors
/// [`Interrupted`], which ends the run.
pub fn go_on<T>(result: Result<T>, failed: impl FnOnce(anyhow::Error)) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.is::<Interrupted>() => Err(e),
        Err(e) => {
            failed(e);
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_does_not_check_is_left_behind() {
        let interrupt = Interrupt::default();
        assert_eq!(interrupt.unless_asked(|| 7).unwrap(), 7);
        let asked = interrupt.asked.clone();
        let result = interrupt.unless_asked(move || {
            asked.store(1, Ordering::Relaxed);
            thread::sleep(Duration::from_secs(3600));
        });
        assert!(result.unwrap_err().is::<Interrupted>());
    }
}
