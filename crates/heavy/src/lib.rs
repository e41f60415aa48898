//! For tests only: those whose own dependencies take long to build. `make test-full` runs them.
//!
//! Holds nothing itself. Programs that must not compile are in `tests/compile_fail`.
#![forbid(unsafe_code)]
