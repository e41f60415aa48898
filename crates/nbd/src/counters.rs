//! What a server has done, over all clients.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counted as it happens.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) clients: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) broken: AtomicU64,
    pub(crate) stalled: AtomicU64,
}

/// What a server has done since it was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct NbdCounters {
    /// Clients that have connected and were let in.
    pub clients: u64,
    /// Clients turned away: too many, or another user's.
    pub refused: u64,
    /// Commands that came.
    pub commands: u64,
    /// Bytes that reads have returned.
    pub read_bytes: u64,
    /// Bytes that writes and zeroes have changed.
    pub written_bytes: u64,
    /// Requests that the flash has failed.
    pub errors: u64,
    /// Connections ended because the client broke the protocol.
    pub broken: u64,
    /// Connections ended because the client fell silent in the middle.
    pub stalled: u64,
}

impl Counters {
    pub(crate) fn now(&self) -> NbdCounters {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        NbdCounters {
            clients: get(&self.clients),
            refused: get(&self.refused),
            commands: get(&self.commands),
            read_bytes: get(&self.read_bytes),
            written_bytes: get(&self.written_bytes),
            errors: get(&self.errors),
            broken: get(&self.broken),
            stalled: get(&self.stalled),
        }
    }
}
