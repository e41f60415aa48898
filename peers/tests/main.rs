//! The tests of the comparison, as one program.

mod conform_peers;
