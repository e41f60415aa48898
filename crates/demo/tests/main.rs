//! All tests of this crate, as one program: linked once, with a process for each test.

#[path = "../../lab/tests/common/mod.rs"]
mod common;
#[path = "../../lab/tests/common/interrupted.rs"]
mod interrupted;
#[path = "../../lab/tests/common/quick.rs"]
mod quick;
#[path = "../../cli/tests/common/refused.rs"]
mod refused;
#[allow(dead_code, reason = "tests of the command use all of it")]
#[path = "../../cli/tests/common/served.rs"]
mod served;

mod conform_bad_input;
mod conform_search;
mod conform_survive;
mod fault_interrupt;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fulgurite-demo");

/// `fulgurite`, next to it: what serves a device or makes a pool for a test.
fn fulgurite() -> std::path::PathBuf {
    let program = std::path::Path::new(PROGRAM).with_file_name("fulgurite");
    assert!(program.is_file(), "{} is not there; cargo build -p fulgurite-cli", program.display());
    program
}
