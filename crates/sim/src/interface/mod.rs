//! A storage device behind one of two interfaces: the steps of its protocol as timed stages.
//!
//! On the DRAM interface ([`Transport::Dram`]):
//!
//! ```text
//!  read:   place in the buffer -> submit 2 (CPU) -> fetch 3 (firmware) -> NAND 4
//!            -> answer 5, 6 (firmware) -> complete 7, 8, invalidate (CPU) -> DMA 9
//!            -> invalidate (CPU)
//!  write:  place in the buffer -> invalidate (CPU) -> DMA 1 -> invalidate, submit 2 (CPU)
//!            -> fetch 3 (firmware) -> NAND 4 -> answer 5, 6 (firmware) -> complete 7, 8 (CPU)
//! ```
//!
//! Threads ask for one request each and wait for it. The driver splits a request into commands of
//! at most `split` and at most the whole buffer. A command needs one contiguous place in the
//! buffer, which `device::Buddy` gives as it does in the product. Commands that find no place wait
//! in their order. The DMA engine takes one transfer at a time, with a set-up that nothing else
//! overlaps. Caches are invalidated before and after it, half of the whole each time, and the
//! processors do that in parallel with the engine.
//!
//! Over UFS ([`Transport::Ufs`], JEDEC JESD220 and JESD223):
//!
//! ```text
//!  read:   slot -> doorbell 1 (CPU) -> host controller -> command UPIU 2 (link)
//!            -> fetch (firmware) -> room in the buffer -> NAND 5
//!            -> data UPIUs 4 (link, while other pages are read) -> answer (firmware)
//!            -> response UPIU 6 (link) -> host controller -> completion 7 (CPU)
//!  write:  .. -> fetch (firmware) -> room in the buffer -> ready to transfer 3, data 4 (link)
//!            -> NAND 5 (a page begins once all of it is there) -> answer (firmware) -> ..
//! ```
//!
//! The link has two directions, and each sends one UPIU at a time, in frames. The host controller
//! moves data to and from DRAM as it comes, so that it crosses the DRAM bus once. The buffer is the
//! device's own, and has no places: a page's bytes are free again when they have left it. Pages of
//! a read are sent in the order in which the NAND has them (`bOutOfOrderDataEn`).
//!
//! The device has one processor, which the firmware runs on. With `cached_writes` a write ends once
//! the device has its data, and its place in the buffer is free when the NAND has the data.
//!
//! With `bypass` the device answers at once, as the paper's firmware does to measure the protocol.

mod media;
mod requests;
mod run;
mod system;
mod tally;
mod ufs;

pub use system::{Dma, InterfaceReport, InterfaceSystem, Transport, Ufs};

use crate::report::RunError;

impl InterfaceSystem {
    /// Runs it. `seed` is of the addresses of random requests.
    ///
    /// # Errors
    /// When the statistics contradict each other, or nothing was measured.
    pub fn run(&self, seed: u64) -> Result<InterfaceReport, RunError> {
        match self.transport {
            Transport::Dram(dma) => run::run(self, dma, seed),
            Transport::Ufs(link) => ufs::run(self, link, seed),
        }
    }
}
