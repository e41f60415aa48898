//! A storage device on the DRAM interface: the nine steps of its protocol as timed stages.
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
//! processors do that beside the engine.
//!
//! The device has one processor, which the firmware runs on. With `cached_writes` a write ends once
//! the firmware has fetched it, and its place in the buffer is free when the NAND has the data.
//!
//! With `bypass` the device answers at once, as the paper's firmware does to measure the protocol.

mod run;

pub use run::{InterfaceReport, InterfaceSystem};
