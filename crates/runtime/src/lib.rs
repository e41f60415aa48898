//! The runtime (under construction).
mod error;
pub use error::AccessError;
