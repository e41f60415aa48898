//! For tests only: the rules of this tree, checked over its text. It uses no other crate of the
//! tree, so `cargo test -p fulgurite-house` takes seconds.
//!
//! Holds nothing itself; the rules are in `tests`: layers and circles of crates, sizes and heads of
//! files, prose, and the figures that documents show.
#![forbid(unsafe_code)]
