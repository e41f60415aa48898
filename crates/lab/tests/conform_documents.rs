//! Goal: every command that docs/simulator.md shows runs, and prints what is shown. Method: its
//! blocks, as [`crate::blocks`] runs them, over a trace and a measured machine of this tree. What
//! measures for minutes is not run, and its options must exist.

use crate::blocks::{root, run_all, wrong_names};

#[test]
fn commands_of_the_simulator_run() {
    let files = [
        ("systems", "systems"),
        ("crates/sim/tests/traces/msr.csv", "disk.csv"),
        ("docs/results/predictions-emulated.toml", "machine.toml"),
    ];
    let document = root().join("docs/simulator.md");
    let (failed, count) = run_all(&document, &files);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(count >= 5, "only {count} blocks of commands were found");
    let wrong = wrong_names(&document);
    assert!(wrong.is_empty(), "what does not exist:\n{}", wrong.join("\n"));
}
