//! The examples in a program's help, checked over its commands: unit tests of programs share it.

use clap::{Command, Error};

/// The text below the options of each command.
fn all_after_help(command: &Command, all: &mut Vec<(String, String)>) {
    let shown = command.get_after_help().map_or_else(String::new, ToString::to_string);
    all.push((command.get_name().to_owned(), shown));
    command.get_subcommands().for_each(|inner| all_after_help(inner, all));
}

/// Checks that each text fits a terminal of 80 columns and that `parse` takes each example. Returns
/// how many examples there are.
pub fn check<T>(command: &Command, parse: impl Fn(Vec<String>) -> Result<T, Error>) -> usize {
    let mut all = Vec::new();
    all_after_help(command, &mut all);
    let program = command.get_name();
    let mut parsed = 0;
    for (name, text) in &all {
        for line in text.lines() {
            let columns = line.chars().count();
            assert!(columns <= 78, "{name}: {columns} columns wrap in the middle of a command: {line}");
            assert!(!line.ends_with(' '), "{name}: a space after the end: {line}");
        }
        let joined = text.replace(" \\\n    ", " ");
        for line in joined.lines().skip_while(|line| *line != "Examples:").skip(1) {
            let Some(line) = line.strip_prefix("  ") else { continue };
            let command = line.strip_prefix("sudo ").unwrap_or(line);
            // A name with two spaces behind it is in a table of names, which is no example.
            if command.strip_prefix(program).is_none_or(|rest| !rest.starts_with(' ') || rest.starts_with("  ")) {
                continue;
            }
            let words = command.split(['#', '>']).next().unwrap_or_default().split_whitespace();
            if let Err(e) = parse(words.map(str::to_owned).collect()) {
                panic!("{name}: an example that is refused: {line}: {e}");
            }
            parsed += 1;
        }
    }
    parsed
}
