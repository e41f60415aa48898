//! All tests of this crate but those under loom, as one program: linked once, and each test runs in
//! a process of its own.

mod conform_faults;
mod conform_idle;
mod conform_prometheus;
mod conform_reports;
mod conform_statistics;
