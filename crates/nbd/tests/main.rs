//! All tests of this crate but those under loom, as one program: linked once, and each test runs in
//! a process of its own.

mod common;

mod conform_protocol;
mod conform_real_clients;
mod fault_hostile;
mod model_clients;
