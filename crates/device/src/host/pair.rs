//! The host's side of a queue pair, and what a queue opens one with.

use std::sync::Arc;

use fulgurite_flash::OpenError;
use fulgurite_sys::{Arena, Notifier};

use super::held::Held;
use super::link::{HostConfig, Link, Linked, Want};
use super::shared::Shared;
use crate::bell::Bell;
use crate::entry::{COMPLETION_WORDS, SUBMISSION_WORDS};
use crate::region::Features;
use crate::ring::{Consumer, Producer};

/// Completions in a row that are not believed, until the queue pair is abandoned: an accident does
/// not produce this many.
pub(super) const LIES_MAX: u32 = 64;
/// The least time for a device to let go of a queue pair that broke the protocol, before its
/// requests fail.
pub(super) const LET_GO_NS: u64 = 10_000_000_000;
/// What a queue is opened with.
#[derive(Clone)]
pub(super) struct Opening {
    pub(super) link: Arc<dyn Link>,
    pub(super) shared: Arc<Shared>,
    pub(super) config: HostConfig,
    /// The state that is read, if it is not the live one; nothing is written then.
    pub(super) at: Option<Arc<Held>>,
}

/// The host's side of a queue pair.
pub(super) struct Pair {
    pub(super) linked: Linked,
    pub(super) submissions: Producer<SUBMISSION_WORDS>,
    pub(super) completions: Consumer<COMPLETION_WORDS>,
    pub(super) doorbell: Bell,
    pub(super) bell: Bell,
    /// The first sector of the data buffer in the region; none where frames are shared.
    pub(super) buffer: Option<u32>,
    pub(super) keeps_writes: bool,
    closed: bool,
    shared: Arc<Shared>,
}

impl Pair {
    pub(super) fn of(linked: Linked, shared: Arc<Shared>) -> Pair {
        let (submissions, completions) = linked.region.host_ends(linked.pair);
        Pair {
            submissions,
            completions,
            doorbell: linked.region.doorbell(),
            bell: linked.region.host_bell(linked.pair),
            buffer: (!linked.shares_frames).then(|| linked.region.buffer_first(linked.pair)),
            keeps_writes: linked.region.capability().features.has(Features::KEEPS_WRITES),
            closed: false,
            linked,
            shared,
        }
    }
    /// Takes nothing more from it. Others may come once the device has heard of it, so it is said
    /// before.
    pub(super) fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        // What one that died has said stays: it is asked for when the next one is met.
        self.linked.hold.check();
        if !self.linked.life.has_ended() {
            self.shared.leaves(&self.linked.region);
        }
        self.linked.hold.close();
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.close();
    }
}

impl Opening {
    pub(super) fn link(&self, frames: &Arc<Arena>, depth: usize, wake: &Arc<Notifier>) -> Result<Pair, OpenError> {
        let frames = (!self.config.copies).then_some(frames);
        let want = Want { depth, buffer_sectors: depth as u32, frames, wake, identity: self.shared.identity(false) };
        let linked = self.link.open(&want)?;
        let capability = linked.region.capability();
        let refused = |what: &'static str| OpenError::System {
            what: "attach to the device",
            source: std::io::Error::other(what),
        };
        if (capability.depth as usize) < depth {
            return Err(refused("its queues are not as deep as was asked for"));
        }
        if !linked.shares_frames && (capability.buffer_sectors as usize) < depth {
            return Err(refused("its data buffer is smaller than was asked for"));
        }
        if capability.sectors != self.link.sectors() {
            return Err(refused("it has another size than before"));
        }
        Ok(Pair::of(linked, self.shared.clone()))
    }
}
