//! Ctrl-C: a flag that loops look at. The first stops cleanly (results so far are kept); the third ends the program at
//! once, and the helper still removes what it made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

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
        let interrupt = Interrupt::default();
        let asked = interrupt.asked.clone();
        ctrlc::set_handler(move || match asked.fetch_add(1, Ordering::Relaxed) {
            0 => eprintln!("fulgurite: stopping; again twice to stop at once"),
            1 => {}
            _ => std::process::exit(130),
        })
        .context("Ctrl-C cannot be caught")?;
        Ok(interrupt)
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
