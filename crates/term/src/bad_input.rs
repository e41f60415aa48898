//! Bad input: it ends the program with exit code 2 before anything is created.

use std::io::ErrorKind;

use anyhow::Error;
use fulgurite_device::SocketError;
use fulgurite_flash::OpenError;

use crate::interrupt::Interrupted;

/// One sentence that says what is wrong and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(pub String);

/// What is wrong with the socket of an option. Nobody or something else at its path is bad input.
pub fn socket_error(option: &str, error: SocketError) -> Error {
    let nobody = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
    match error {
        SocketError::Socket { ref source, .. } if nobody.contains(&source.kind()) => {
            BadInput(format!("{option}: {error}")).into()
        }
        // As a server's: somebody was faster than the check.
        SocketError::InUse { .. } | SocketError::NotASocket { .. } => BadInput(format!("{option}: {error}")).into(),
        error => error.into(),
    }
}

/// What cannot be opened, as a bad input where it is one.
pub fn open_error(error: OpenError) -> Error {
    match error {
        OpenError::Stopped { .. } => Interrupted.into(),
        OpenError::Memory(_) | OpenError::System { .. } => error.into(),
        error => BadInput(error.to_string()).into(),
    }
}

/// The error of what is opened by [`fulgurite_backing::Base`].
pub fn base_error(error: fulgurite_backing::Error) -> Error {
    match error {
        fulgurite_backing::Error::Open(error) => open_error(error),
        error => error.into(),
    }
}

/// Tells an error from the outside to its cause, each sentence once.
pub fn message_of(error: &anyhow::Error) -> String {
    let mut reported = String::new();
    for text in error.chain().map(ToString::to_string).filter(|text| !text.is_empty()) {
        if reported.is_empty() {
            reported = text;
        } else if !reported.contains(&text) {
            reported.push_str(": ");
            reported.push_str(&text);
        }
    }
    reported
}

/// Results whose errors are bad input.
pub trait OrBadInput<T, E> {
    /// Makes an error bad input, in these words.
    ///
    /// # Errors
    /// [`BadInput`].
    fn or_bad_input(self, words: impl FnOnce(E) -> String) -> anyhow::Result<T>;
}

impl<T, E> OrBadInput<T, E> for Result<T, E> {
    fn or_bad_input(self, words: impl FnOnce(E) -> String) -> anyhow::Result<T> {
        self.map_err(|error| BadInput(words(error)).into())
    }
}

/// Fails with [`BadInput`].
#[macro_export]
macro_rules! bad_input {
    ($($message:tt)*) => { return Err($crate::bad_input::BadInput(format!($($message)*)).into()) };
}
pub use bad_input;

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot hear from the device: {source}")]
    struct Deaf {
        source: std::io::Error,
    }

    #[test]
    fn each_cause_is_named_once() {
        let source = std::io::Error::other("nobody there");
        let error = Err::<(), _>(Deaf { source }).context("tatp could not be opened").unwrap_err();
        assert_eq!(message_of(&error), "tatp could not be opened: cannot hear from the device: nobody there");
        assert_eq!(message_of(&anyhow::anyhow!("one")), "one");
    }
}
