//! What was acknowledged and not flushed, written once more to a device that has returned.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fulgurite_flash::{FlashError, OpenError};

use super::link::{HostConfig, Link};
use super::pair::Opening;
use super::shared::Shared;
use super::transfer::Commands;
use crate::entry::Opcode;
use crate::planted::PlantedReplay;

/// Commands in flight while copies are written once more.
const REPLAY_DEPTH: usize = 16;
/// The least time for that, whatever the host's patience is.
const REPLAY_MIN: Duration = Duration::from_secs(1);

impl Shared {
    /// Writes all copies to a device, by a queue pair of its own. Fails with `Closed` when that is
    /// to stop, with `TimedOut` when it takes longer than the host's patience.
    pub(super) fn replay(
        self: &Arc<Self>,
        link: &Arc<dyn Link>,
        config: &HostConfig,
        instance: u64,
        stop: &AtomicBool,
    ) -> Result<(), FlashError> {
        let patience = config.reattach.max(REPLAY_MIN);
        let end_ns = config.clock.after(patience);
        let timeout = Some(config.timeout.map_or(patience, |timeout| timeout.max(REPLAY_MIN)));
        let config = HostConfig { timeout, ..config.clone() };
        let opening = Opening { link: link.clone(), shared: self.clone(), config, at: None };
        let opened = Commands::for_replay(&opening, REPLAY_DEPTH);
        let mut commands = opened.map_err(|error| match error {
            // Others were there first, and what they have written is newer.
            OpenError::System { source, .. } if source.kind() == ErrorKind::ResourceBusy => FlashError::Poisoned,
            _ => FlashError::Closed,
        })?;
        if commands.instance() != instance {
            // It has died again.
            return Err(FlashError::Closed);
        }
        let (mut from, mut under_way) = (0, 0);
        loop {
            // A few at a time: a flush that lets go of copies does not wait for the device.
            let some = self.known().kept.some_from(from, REPLAY_DEPTH);
            let Some((last, ..)) = some.last() else { break };
            from = last + 1;
            if stop.load(Ordering::Acquire) {
                return Err(FlashError::Closed);
            }
            if commands.clock().now_ns() > end_ns {
                return Err(FlashError::TimedOut);
            }
            for (_, sector, bytes) in &some {
                while commands.begin(Opcode::Write, (*sector).into(), 1, Some(&bytes[..])).is_none() {
                    commands.end_any()?;
                    under_way -= 1;
                }
                under_way += 1;
            }
            self.seen.restored.add(some.len() as u64);
        }
        for _ in 0..under_way {
            commands.end_any()?;
        }
        Ok(())
    }
    /// For tests of the tests: copies are written after what was in flight.
    pub(super) fn replay_late(self: &Arc<Self>, link: &Arc<dyn Link>, config: &HostConfig) {
        if config.planted == Some(PlantedReplay::After) {
            config.clock.sleep(Duration::from_millis(5));
            let instance = self.known().instance;
            let _ = self.replay(link, config, instance, &AtomicBool::new(false));
        }
    }
}
