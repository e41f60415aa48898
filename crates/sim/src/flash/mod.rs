//! Flash behind a link: `nand` as it is, driven by the event kernel.
//!
//! ```text
//!            link down                      NAND                         link up
//!  arrives --[ command, data written ]--> map --> queue --> bus, array --[ data read ]--> ends
//! ```
//!
//! A request of several NAND pages ends with its last one. Each direction of the link serves one
//! request at a time, in the order in which they come. Reclaim runs when a write needs it, and
//! later requests of its plane wait behind it.
//!
//! NAND counts nanoseconds. A request that reaches it within one is submitted at its end.

pub mod map;
pub(crate) mod requests;
mod run;

pub use map::{Map, Reclaimed};
pub use requests::{Arrivals, Pattern, Requests};
pub(crate) use run::check_trace;
pub use run::{FlashReport, FlashSystem};
