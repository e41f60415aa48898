//! What the commands share: the values of options ([`values`], [`args`]), checks before anything is
//! created ([`checks`]), errors and exit codes ([`bad_input`](mod@bad_input), [`stderr`]), and
//! tables, drawings and JSON ([`report`]). They also share Ctrl-C ([`interrupt`]), [`progress`],
//! completions and manual pages ([`pages`]), the media that options name ([`media`]), and what
//! killed programs leave behind ([`leftovers`]).
//!
//! It measures nothing, and knows no command.
#![forbid(unsafe_code)]
// They panic where standard error has no reader: `stderr::log` does not.
#![deny(clippy::print_stderr)]

pub mod args;
pub mod bad_input;
pub mod checks;
pub mod interrupt;
pub mod leftovers;
pub mod machine;
pub mod media;
pub mod pages;
pub mod progress;
pub mod report;
pub mod stderr;
pub mod values;
pub mod words;

use std::process::ExitCode;

use bad_input::BadInput;
use interrupt::Interrupted;
use stderr::log;

/// The exit code of a command, whose error is printed: 0 done, 1 something failed or the results
/// disagree, 2 bad input, 130 interrupted.
pub fn exit_code(program: &str, result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Interrupted>() => {
            log(format_args!("{program}: interrupted"));
            ExitCode::from(130)
        }
        Err(error) => {
            log(format_args!("{program}: {}", bad_input::message_of(&error)));
            ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
        }
    }
}
