//! NVMM (D).
//!
//! Numbers from the older draft in the text say so: D8, D9, D11, D12, D13 and D14.

mod device;
mod energy;
mod files;
mod layout;
pub mod memory;
mod overhead;
mod sensitivity;
mod table;
pub(crate) mod wear;

use crate::check::{Check, Found, Inputs};
use crate::paper::Paper;

const fn check(id: &'static str, about: &'static str, simulated: bool, run: fn(&Inputs<'_>) -> Found) -> Check {
    Check { id, about, paper: Paper::Nvmm, simulated, run }
}

/// The checks.
pub static CHECKS: [Check; 16] = [
    check("D1", "the virtual address", false, layout::addresses),
    check("D2", "the page table's entry", false, layout::entries),
    check("D3", "the page table's update and its versions", false, table::run),
    check("D4", "bit vectors of valid segments", false, layout::vectors),
    check("D5", "latencies of memory technologies", false, layout::technologies),
    check("D6", "performance beside DRAM and SSD systems", true, sensitivity::systems),
    check("D7", "power of 8 GB and 1 TB", false, energy::run),
    check("D8", "latency: random updates (GUPS, draft)", true, memory::gups),
    check("D9", "latency: a mapped file (MMAP, draft)", true, memory::mmap),
    check("D10", "latency: ten workloads by technology", true, sensitivity::technologies),
    check("D11", "the prefetching window (draft)", false, memory::window),
    check("D12", "the share of random accesses (draft)", true, memory::shares),
    check("D13", "software overhead of an SSD access (draft)", false, overhead::run),
    check("D14", "file-system workloads (draft)", true, files::run),
    check("D15", "lifetime", true, wear::run),
    check("D16", "prices, registers, commands and queues of the flash", false, layout::prices),
];
