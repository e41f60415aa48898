//! States of a medium that have names. Such a medium can keep the current state and go back to it.

use crate::FlashError;

/// Why a state cannot be named or returned to.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VersionError {
    /// There is no such token.
    #[error("there is no token {token}; kept are {}", list(.kept))]
    NoToken {
        /// The token that was named.
        token: u64,
        /// Those that there are, ascending.
        kept: Vec<u64>,
    },
    /// Somebody reads a newer one.
    #[error("token {read} is being read, and a roll back to token {token} would drop it; close its reader first")]
    InUse {
        /// The token to go back to.
        token: u64,
        /// The one that is read.
        read: u64,
    },
    /// Somebody wants a newer one kept.
    #[error("token {pinned} is pinned, and a roll back to token {token} would drop it; unpin it first")]
    Pinned {
        /// The token to go back to.
        token: u64,
        /// The oldest pinned one behind it.
        pinned: u64,
    },
    /// The medium failed, or has no space.
    #[error(transparent)]
    Flash(#[from] FlashError),
}

impl VersionError {
    /// There is no such token, but those that are kept.
    #[must_use]
    pub fn no_token(token: u64, kept: &[u64]) -> VersionError {
        VersionError::NoToken { token, kept: kept.to_vec() }
    }
    /// Whether the medium has refused, and changed nothing.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, VersionError::NoToken { .. } | VersionError::InUse { .. } | VersionError::Pinned { .. })
    }
}

fn list(tokens: &[u64]) -> String {
    let names: Vec<String> = tokens.iter().map(u64::to_string).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// What a medium has run out of when it takes no more changes before a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Shortage {
    /// Places for data: current contents have nearly all of them.
    Space,
    /// Places for data: what was overwritten since the last sync has most of the others.
    Unsynced,
    /// Places for data: what only older tokens see has most of the others.
    Tokens,
    /// DRAM for what tokens remember, with a bound in bytes.
    History {
        /// The bound.
        bytes: u64,
    },
    /// DRAM for where objects are stored that have changed since the last sync, with a bound in
    /// bytes.
    Leaves {
        /// The bound.
        bytes: u64,
    },
}

/// Names, keeps and returns to states of a medium.
pub trait Versions: Send + Sync {
    /// Names the state of all writes whose completions were polled. Does not wait for the medium:
    /// the token holds once [`Versions::wait_durable`] has returned for it.
    ///
    /// # Errors
    /// When that cannot be recorded.
    fn name_state(&self) -> Result<u64, VersionError>;
    /// Waits until a token would survive a crash.
    ///
    /// # Errors
    /// When the medium failed.
    fn wait_durable(&self, token: u64) -> Result<(), VersionError>;
    /// Whether [`Versions::roll_back`] would be refused now.
    ///
    /// # Errors
    /// When there is no such token, a newer one is pinned or read, or the medium takes no more
    /// changes.
    fn can_roll_back(&self, token: u64) -> Result<(), VersionError>;
    /// Goes back to the state of a token, and waits until that is durable. Newer tokens are gone.
    /// Nothing may be in flight, and frames hold the state before: they must be forgotten before
    /// the next access.
    ///
    /// # Errors
    /// A refusal ([`VersionError::is_refusal`]), with nothing changed. When the medium failed, and
    /// its state may be either.
    fn roll_back(&self, token: u64) -> Result<(), VersionError>;
    /// The tokens that are kept, ascending.
    fn tokens(&self) -> Vec<u64>;
    /// Subpages that were changed since the newest token, as far as the medium knows: what only a
    /// sync makes room for. None when it does not say.
    fn uncommitted(&self) -> Option<u64> {
        None
    }
    /// What there is least of, of all that only a sync makes room for. None when it does not say.
    fn shortage(&self) -> Option<Shortage> {
        None
    }
    /// A sync begins: what differs in DRAM will be written, and named. Each that begins ends, one
    /// at a time.
    fn sync_begins(&self) {}
    /// It has ended, and made a token or not.
    fn sync_ended(&self, _made: bool) {}
    /// The owner of the frames counts those that differ from the medium, as it asks before changes
    /// ([`Backing::asks`]).
    ///
    /// [`Backing::asks`]: crate::Backing::asks
    fn counting_begins(&self) {}
    /// A number of frames were found to differ, or may come to differ without a further question.
    fn counted(&self, _frames: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_token_names_those_that_there_are() {
        let error = VersionError::NoToken { token: 3, kept: vec![1, 2] };
        assert_eq!(error.to_string(), "there is no token 3; kept are 1, 2");
        assert!(VersionError::NoToken { token: 3, kept: vec![] }.to_string().ends_with("kept are none"));
    }
}
