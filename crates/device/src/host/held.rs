//! A token of a device's store that is held: by a queue pair of its own, with which the device lets
//! go of it.

use std::sync::{Mutex, PoisonError};

use fulgurite_flash::{FlashError, VersionError};

use super::pair::Opening;
use super::transfer::Commands;
use crate::entry::Opcode;

/// A token that is held.
pub(super) struct Held {
    token: u64,
    opening: Opening,
    /// The queue pair that holds it.
    commands: Mutex<Option<Commands>>,
}

impl Held {
    /// Holds a token of the device.
    pub(super) fn of(token: u64, opening: Opening) -> Result<Held, VersionError> {
        let held = Held { token, opening, commands: Mutex::default() };
        held.renew()?;
        Ok(held)
    }
    /// The token.
    pub(super) fn token(&self) -> u64 {
        self.token
    }
    /// Holds it on the device that is there now.
    pub(super) fn renew(&self) -> Result<(), VersionError> {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        if commands.as_ref().is_some_and(Commands::is_there) {
            return Ok(());
        }
        *commands = None;
        let opened = Commands::open(&self.opening, 1, 1);
        let lost = |_| if self.opening.shared.has_lost() { FlashError::Poisoned } else { FlashError::Closed };
        let mut opened = opened.map_err(lost)?;
        opened.version(Opcode::Hold, self.token)?;
        *commands = Some(opened);
        Ok(())
    }
}

impl Drop for Held {
    /// Returns when the device has let go of the token, so that the next sync or roll back of this
    /// program finds it free.
    fn drop(&mut self) {
        if let Some(commands) = self.commands.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            commands.close_and_wait();
        }
    }
}
