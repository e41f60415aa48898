//! What a server has done, over all clients.

fulgurite_sys::counters! {
    /// What a server has done since it was started.
    pub NbdCounters, pub(crate) Counters {
        /// Clients that have connected and were let in.
        clients,
        /// Clients turned away: too many, or another user's.
        refused,
        /// Commands that came.
        commands,
        /// Bytes that reads have returned.
        read_bytes,
        /// Bytes that writes and zeroes have changed.
        written_bytes,
        /// Requests that the flash has failed.
        errors,
        /// Connections ended because the client broke the protocol.
        broken,
        /// Connections ended because the client fell silent in the middle.
        stalled,
    }
}
