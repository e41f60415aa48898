//! All tests of this crate, as one program.

mod conform_page_buffer;
