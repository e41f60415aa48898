//! All tests of this crate but those under loom, as one program: linked once, and each test runs in
//! a process of its own.

mod model_simulation;
mod simulation;
