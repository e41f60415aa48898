//! The media that options name: NAND and its geometry, what a served device is made of, what its
//! files hold. Everything is judged before anything is created.

mod contents;
pub mod device;
pub mod file_identity;
pub mod nand;
mod nand_choice;
mod nand_counts;
pub mod wear;

use std::ops::ControlFlow;

use anyhow::Result;
use fulgurite_backing::{Base, OpenBase};

use crate::bad_input::base_error;
use crate::interrupt::Interrupt;
use crate::progress;

pub use contents::{OF_A_BENCHMARK, of_a_benchmark};
pub use nand_choice::{NandChoice, nand as nand_choice, nand_profile};
pub use nand_counts::{NandCounts, NandShape};

/// Opens what the data is on. A new file is written in full, until an interruption.
///
/// # Errors
/// The medium's, and [`crate::interrupt::Interrupted`].
pub fn open_base(base: &Base, interrupt: &Interrupt) -> Result<OpenBase> {
    let mut bar = None;
    let laid = base.open_with_progress(&mut |path, done, all| {
        let bar = bar.get_or_insert_with(|| progress::share(&format!("writing {}", path.display())));
        progress::set_share(bar, done as f64 / all as f64);
        if interrupt.asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    laid.map_err(base_error)
}
