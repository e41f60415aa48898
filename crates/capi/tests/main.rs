//! The tests of this crate, in one program: each file is linked once.

mod calls;
mod conform_calls;
mod conform_examples;
mod conform_header;
mod conform_maps;
mod regression_forks;
mod regression_messages;
mod regression_surroundings;
