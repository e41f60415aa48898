//! All models, as one program.

mod loom_cut;
mod loom_map;
mod loom_marks;
mod loom_protocol;
mod loom_residency;
mod loom_ring;
