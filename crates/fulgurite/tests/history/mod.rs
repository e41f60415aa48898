//! Histories of operations that jobs on several workers do at once, and what decides whether a
//! memory can have had them.
//!
//! `record` has stamps and values, `job` what jobs do, `run` the memory under them and what happens
//! to it meanwhile, `check` the answer, `brute` another way to it, `sample` histories to ask both
//! about. `serial` decides about transactions.

pub mod brute;
pub mod check;
pub mod job;
pub mod record;
pub mod run;
pub mod sample;
pub mod serial;
