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

use crate::check::Check;
use crate::paper::Paper;

/// The checks.
pub static CHECKS: [Check; 16] = [
    Paper::Nvmm.check("D1", "the virtual address", false, layout::addresses),
    Paper::Nvmm.check("D2", "the page table's entry", false, layout::entries),
    Paper::Nvmm.check("D3", "the page table's update and its versions", false, table::run),
    Paper::Nvmm.check("D4", "bit vectors of valid segments", false, layout::vectors),
    Paper::Nvmm.check("D5", "latencies of memory technologies", false, layout::technologies),
    Paper::Nvmm.check("D6", "performance beside DRAM and SSD systems", true, sensitivity::systems),
    Paper::Nvmm.check("D7", "power of 8 GB and 1 TB", false, energy::run),
    Paper::Nvmm.check("D8", "latency: random updates (GUPS, draft)", true, memory::gups),
    Paper::Nvmm.check("D9", "latency: a mapped file (MMAP, draft)", true, memory::mmap),
    Paper::Nvmm.check("D10", "latency: ten workloads by technology", true, sensitivity::technologies),
    Paper::Nvmm.check("D11", "the prefetching window (draft)", false, memory::window),
    Paper::Nvmm.check("D12", "the share of random accesses (draft)", true, memory::shares),
    Paper::Nvmm.check("D13", "software overhead of an SSD access (draft)", false, overhead::run),
    Paper::Nvmm.check("D14", "file-system workloads (draft)", true, files::run),
    Paper::Nvmm.check("D15", "lifetime", true, wear::run),
    Paper::Nvmm.check("D16", "prices, registers, commands and queues of the flash", false, layout::prices),
];
