//! All tests of this crate, as one program.

mod figures;
mod tree;

mod conform_circles;
mod conform_figures;
mod conform_layers;
mod conform_prose;
mod conform_soak;
mod conform_tidy;
