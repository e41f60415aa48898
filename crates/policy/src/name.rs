//! The error for an unknown policy name. Every policy enum here parses from its command-line name.

use thiserror::Error;

/// The text is not the name of a policy.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
#[error("unknown {what} \"{got}\": use one of {expected}")]
pub struct UnknownName {
    /// Which choice was to be made, for example "replacement policy".
    pub what: &'static str,
    /// The text that was given.
    pub got: String,
    /// The names there are, separated by commas.
    pub expected: &'static str,
}
