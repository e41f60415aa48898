//! A storage device on the DRAM interface: the nine steps of its protocol as timed stages.
//!
//! ```text
//!  read:   place in the buffer -> submit (CPU) -> NAND -> complete, invalidate (CPU)
//!            -> DMA -> invalidate (CPU)
//!  write:  place in the buffer -> invalidate (CPU) -> DMA -> invalidate, submit (CPU)
//!            -> NAND -> complete (CPU)
//! ```
//!
//! Threads ask for one request each and wait for it. The driver splits a request into commands of
//! at most `split` and at most the whole buffer. A command needs one contiguous place in the
//! buffer, which `device::Buddy` gives as it does in the product. Commands that find no place wait
//! in their order. The DMA engine takes one transfer at a time, with a set-up that nothing else
//! overlaps. Caches are invalidated before and after it, half of the whole each time, and the
//! processors do that beside the engine.
//!
//! With `bypass` the device answers at once, as the paper's firmware does to measure the protocol.

mod run;

pub use run::{InterfaceReport, InterfaceSystem};
