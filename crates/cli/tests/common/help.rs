//! What the tests of `fulgurite` and `fulgurite-lab` share: help, and messages without a reader.

use std::process::Command;

use crate::refused::run;

/// Each command's help has examples of that command. Checks that there are `commands` of them, with
/// the program itself, and that completions and manual pages are made.
pub fn check_examples(program: &str, commands: usize) {
    let directory = tempfile::tempdir().unwrap();
    let mut seen = 0;
    let mut groups = vec![Vec::new()];
    while let Some(group) = groups.pop() {
        let words: Vec<&str> = group.iter().map(String::as_str).chain(["--help"]).collect();
        let output = run(directory.path(), &words);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        let examples = text.split_once("Examples:").unwrap_or_else(|| panic!("{words:?} has no examples: {text}")).1;
        let example = [program].into_iter().chain(words[..words.len() - 1].iter().copied()).collect::<Vec<_>>();
        assert!(examples.contains(&example.join(" ")), "{words:?} has examples of something else: {examples}");
        seen += 1;
        // The names of commands stand in a list of their own.
        let listed = text.split_once("\nCommands:\n").map_or("", |(_, after)| after.split("\n\n").next().unwrap_or(""));
        for name in listed.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' ')) {
            let name = name.split_whitespace().next().unwrap_or_default().to_owned();
            groups.push(group.iter().cloned().chain([name]).collect::<Vec<String>>());
        }
    }
    assert_eq!(seen, commands);
    let output = run(directory.path(), &["completions", "bash"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains(program));
    assert!(run(directory.path(), &["man", "."]).status.success());
    assert!(directory.path().join(format!("{program}.1")).exists());
}

/// As with `2>&1 | head`: a reader that has gone is no panic, and the exit code is the same.
pub fn ends_without_a_reader(cases: &[(&[&str], i32)]) {
    for (words, code) in cases {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(crate::PROGRAM);
        command.args(*words).current_dir(directory.path()).stdout(writer.try_clone().unwrap()).stderr(writer);
        assert_eq!(command.status().unwrap().code(), Some(*code), "{words:?}");
    }
}
