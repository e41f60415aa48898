//! The error that means: you asked for something that cannot be. It ends the program with exit code 2 before anything
//! was created.

/// One sentence that says what is wrong and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(pub String);

/// Fails with [`BadInput`].
macro_rules! bad_input {
    ($($message:tt)*) => { return Err($crate::bad_input::BadInput(format!($($message)*)).into()) };
}
pub(crate) use bad_input;
