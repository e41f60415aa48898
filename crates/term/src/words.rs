//! The words of the command line before they are parsed, and those in which they are refused.
//!
//! A negative value belongs to the option before it.
//! The parser takes `-5` in `--data -5` for an option. Joined to `--data=-5`, it is judged as a
//! value. No option begins with a digit, so `--data --dram 1G` still lacks a value.

use std::ffi::OsString;
use std::io::IsTerminal as _;

use clap::Command;

use crate::stderr::log;

/// The words, with each negative value joined to the option before it that wants one.
pub fn joined(words: impl Iterator<Item = OsString>, command: &Command) -> Vec<OsString> {
    let mut command = command;
    let mut joined: Vec<OsString> = Vec::new();
    let (mut wants, mut ended) = (false, false);
    for word in words {
        let text = word.to_str().unwrap_or_default();
        if wants
            && below_zero(text)
            && let Some(option) = joined.last_mut()
        {
            option.push("=");
            option.push(&word);
            wants = false;
            continue;
        }
        if !wants && let Some(inner) = command.find_subcommand(text) {
            command = inner;
        }
        ended |= text == "--";
        wants = !ended && text.strip_prefix("--").is_some_and(|name| wants_value(command, name));
        joined.push(word);
    }
    joined
}

/// A minus sign and the beginning of a number.
fn below_zero(text: &str) -> bool {
    text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

/// Whether the command has an option of this name that cannot do without a value.
fn wants_value(command: &Command, name: &str) -> bool {
    let named = |arg: &&clap::Arg| {
        arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
    };
    command
        .get_arguments()
        .find(named)
        .is_some_and(|arg| arg.get_action().takes_values() && arg.get_num_args().is_none_or(|n| n.min_values() > 0))
}

/// What the standard library says of a number that it cannot read, and what one can do about it.
const NUMBERS: [(&str, &str); 4] = [
    ("invalid digit found in string", "write a whole number, 0 or more"),
    ("cannot parse integer from empty string", "write a whole number, 0 or more"),
    ("number too large to fit in target type", "the number is too large"),
    ("invalid float literal", "write a number, for example 0.99"),
];

/// A refusal of the parser, in words that say what to do.
fn in_words(reported: String) -> String {
    NUMBERS.iter().fold(reported, |reported, (theirs, ours)| reported.replace(theirs, ours))
}

/// Tells why the words were refused, or the help that they ask for, and ends the program.
pub fn refuse(error: &clap::Error) -> ! {
    let reported = error.render();
    if error.use_stderr() && in_words(reported.to_string()) != reported.to_string() {
        let terminal = std::io::stderr().is_terminal();
        log(in_words(if terminal { reported.ansi().to_string() } else { reported.to_string() }).trim_end());
        std::process::exit(error.exit_code());
    }
    error.exit()
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    /// Joins the words of a line of a command with an option that wants a value, and one that does
    /// not need any.
    fn join(line: &str) -> String {
        let live = Command::new("live")
            .arg(Arg::new("data").long("data").alias("bytes"))
            .arg(Arg::new("json").long("json").num_args(0..=1))
            .arg(Arg::new("quick").long("quick").num_args(0));
        let command = Command::new("lab").subcommand(live).subcommand(Command::new("rollback").arg(Arg::new("token")));
        let words = joined(line.split(' ').map(OsString::from), &command);
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn values_below_zero_belong_to_the_option_before_them() {
        assert_eq!(join("lab live --data -5 --quick"), "lab live --data=-5 --quick");
        assert_eq!(join("lab live --data -3% --json"), "lab live --data=-3% --json");
        assert_eq!(join("lab live --bytes -.5"), "lab live --bytes=-.5");
    }
    #[test]
    fn all_else_stays_as_it_is() {
        for line in [
            "lab live --data --quick 1G",
            "lab live --data -x",
            "lab live --data - --quick",
            "lab live --quick -5",
            "lab live --json -5",
            "lab live --data=1G -5",
            "lab live -- --data -5",
            "lab live --rounds -5",
            "lab rollback -5",
        ] {
            assert_eq!(join(line), line);
        }
    }
}
