//! The checks, paper by paper.
//!
//! A check reads values of its paper's calibration, computes or simulates, and says what it found
//! next to what the paper states. Only these files hold results of the papers: the simulator has
//! none.

pub mod astriflash;
pub mod disagreements;
pub mod dram_interface;
pub mod nvmm;
pub mod ssdalloc;

use crate::check::Check;

/// All of them, in the order of the table.
pub fn all() -> impl Iterator<Item = &'static Check> {
    astriflash::CHECKS.iter().chain(&ssdalloc::CHECKS).chain(&dram_interface::CHECKS).chain(&nvmm::CHECKS)
}
