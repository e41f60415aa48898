//! What a driver counts, over all its queues.

fulgurite_sys::counters! {
    /// What a driver has seen of its device.
    pub HostCounters, pub(crate) Seen {
        /// Requests that ended because their time was over.
        timed_out,
        /// Completion entries that broke the protocol, and were not believed.
        broken,
        /// Times that a queue pair was opened anew.
        relinked,
        /// Commands that were sent once more.
        replayed,
        /// Completed writes that were written once more to a device that had died and returned.
        restored,
        /// Flushes of the driver's own, because as much as may be was not flushed.
        own_flushes,
        /// Queue pairs that were opened and whose device has the frames: nothing is copied there.
        with_frames,
    }
}
