//! A test that starts its own program once more, to be stopped, killed or kept from its rights.

use std::process::Command;

/// Arguments for this program: one test of the module that `module_path!()` names.
pub fn arguments(module: &str, test: &str) -> [String; 5] {
    let within = module.split_once("::").map_or(String::new(), |(_, within)| format!("{within}::"));
    [
        format!("{within}{test}"),
        "--exact".into(),
        "--include-ignored".into(),
        "--nocapture".into(),
        "--test-threads=1".into(),
    ]
}

/// This program once more, to run one test of the module that `module_path!()` names.
pub fn again(module: &str, test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a process knows its program"));
    command.args(arguments(module, test));
    command
}

#[test]
fn a_test_is_named_from_its_program_on() {
    assert_eq!(arguments("all::crash_kill", "writer")[0], "crash_kill::writer");
    assert_eq!(arguments("all", "writer")[0], "writer");
}
