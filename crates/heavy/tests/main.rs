//! All tests of this crate, as one program.

mod compile_fail;
mod conform_made_header;
