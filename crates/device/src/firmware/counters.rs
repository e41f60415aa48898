//! What a firmware has done. Written by the device's thread alone, read by anybody.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        struct Counts { $($name: AtomicU64,)* }

        /// What a firmware has done since it started.
        #[derive(Debug, Default)]
        pub struct FirmwareCounters(CachePadded<Counts>);

        impl FirmwareCounters {
            $($(#[$doc])* #[must_use] pub fn $name(&self) -> u64 { self.0.$name.load(Ordering::Relaxed) })*
        }

        /// What was done in one turn.
        #[derive(Default)]
        pub(crate) struct Turned { $(pub $name: u64,)* }

        impl FirmwareCounters {
            /// Adds what one turn did.
            pub(crate) fn add(&self, turned: &Turned) {
                $(if turned.$name > 0 {
                    self.0.$name.store(self.0.$name.load(Ordering::Relaxed) + turned.$name, Ordering::Relaxed);
                })*
            }
        }
    };
}

counters! {
    /// Commands taken.
    commands,
    /// Commands completed, well or not.
    completed,
    /// Those that ended with another status than success.
    failed,
    /// Sectors read.
    sectors_read,
    /// Sectors written.
    sectors_written,
    /// Flushes that ended well.
    flushes,
    /// Entries that broke the protocol: damaged, or with an id that cannot be.
    broken,
    /// Notifications sent to hosts that slept.
    interrupts,
}
