//! A connection to a device, and what a host wants of it: a queue pair, which it keeps open for as
//! long as it needs it.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{DeviceCounters, OpenError};
use fulgurite_sys::{Arena, Clock, Notifier};

use crate::device::Life;
use crate::firmware::Wake;
use crate::hosts::HostIdentity;
use crate::planted::PlantedReplay;
use crate::region::{Features, Region};

/// How often opening a queue asks whether a device that is away has returned.
const AWAY_LOOK: Duration = Duration::from_millis(2);

/// How the driver behaves.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Copies through the data buffer also where frames could be shared: as the paper's driver
    /// must.
    pub copies: bool,
    /// How long a request may take before it ends with [`fulgurite_flash::FlashError::TimedOut`];
    /// only where data are copied, for else the device may yet touch the frame. None waits for
    /// ever. A write that has timed out may yet be done: until the device has answered it, its
    /// sector holds the one or the other, and further writes of it wait in the same queue, but in
    /// no other one. Memory operations take as long as the device's heartbeat grows; they time out
    /// when it has stood still for so long. After one that changes data, which it could yet do at
    /// any time, all further requests of this host end with
    /// [`fulgurite_flash::FlashError::Poisoned`].
    pub timeout: Option<Duration>,
    /// How long to try to attach again to a device that has died, before requests end with
    /// [`fulgurite_flash::FlashError::Closed`]. Opening a queue waits as long for a device that is
    /// away.
    pub reattach: Duration,
    /// Bytes of copies that are kept of writes which have completed and which no flush covers, so
    /// that they can be written once more to a device that dies and returns. 0 keeps none, and such
    /// a death is reported as [`fulgurite_flash::FlashError::Poisoned`]. Where this many bytes are
    /// kept, the driver flushes by itself before it sends further writes. Where only its program
    /// names states ([`crate::SocketLink::names_states`]), it has no copies of further writes
    /// instead. The copies never take more than the frames of the queues, except in that case. They
    /// take at least as much as the writes in flight do, because otherwise some of these would have
    /// no copy. Copies are kept only of a device of another process that says neither that writes
    /// survive it nor that nothing does. They cost a copy of 4 KiB for each write, also where
    /// frames are the data buffer.
    ///
    /// 8 MiB: 2048 writes between two flushes of the driver's own, which is a percent of their time
    /// over NAND (a flush ends with the last program, 0.2 to 1 ms, and 2048 programs on 256 planes
    /// take some ms).
    pub unflushed_bytes: usize,
    /// Data travel with their checksums, where they are copied, by queues on the live state. The
    /// device compares a write's checksums with the data buffer: a damaged write ends with
    /// [`fulgurite_flash::FlashError::Corrupt`], and nothing is written. The host compares a read's
    /// checksums with its frame: a damaged read is repeated once, and then ends with the same
    /// error. This costs 0.2 µs for each request, on both sides.
    pub checks_data: bool,
    /// What all these times are measured by.
    pub clock: Clock,
    /// For tests of the tests.
    #[doc(hidden)]
    pub planted: Option<PlantedReplay>,
}

impl Default for HostConfig {
    fn default() -> Self {
        HostConfig {
            copies: false,
            timeout: None,
            reattach: Duration::ZERO,
            unflushed_bytes: 8 << 20,
            checks_data: false,
            clock: Clock::get(),
            planted: None,
        }
    }
}

impl HostConfig {
    /// For a device of another process, which may be stopped, may die and return, and whose memory
    /// is not this program's alone: requests, and attaching again, are given up after `patience`;
    /// data go with their checksums.
    #[must_use]
    pub fn of_another_process(patience: Duration) -> HostConfig {
        HostConfig { timeout: Some(patience), reattach: patience, checks_data: true, ..HostConfig::default() }
    }
}

/// What a queue wants of a device.
#[derive(Debug)]
pub struct Want<'w> {
    /// Commands in flight.
    pub depth: usize,
    /// Sectors of data buffer, where data are copied.
    pub buffer_sectors: u32,
    /// Frames that may be the data buffer; none where the host wants to copy.
    pub frames: Option<&'w Arc<Arena>>,
    /// What the device notifies when the host sleeps.
    pub wake: &'w Arc<Notifier>,
    /// The host that wants it. The link knows the program's number.
    pub identity: HostIdentity,
}

/// A queue pair that was opened.
pub struct Linked {
    /// Its region.
    pub region: Arc<Region>,
    /// Which of the region's pairs.
    pub pair: u32,
    /// What wakes the device.
    pub doorbell: Arc<dyn Wake>,
    /// Whether the device is still there.
    pub life: Arc<Life>,
    /// The frames are the data buffer.
    pub shares_frames: bool,
    /// The newest state there that has a name, in a session of the program that names them; else 0.
    pub newest_token: u64,
    /// In such a session: the temporary pages of the program, if it has been there before and made
    /// some, are still there.
    pub has_temporary: bool,
    /// DRAM that the device's side of it takes in this process.
    pub device_bytes: usize,
    /// Closes it.
    pub hold: Box<dyn Hold>,
}

impl std::fmt::Debug for Linked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Linked").field("region", &self.region).field("pair", &self.pair).finish_non_exhaustive()
    }
}

/// Keeps a queue pair open. Dropping it closes the pair.
pub trait Hold: Send {
    /// Closes it: nothing more is taken from it.
    fn close(&mut self);
    /// After that: whether the device touches none of the frames any more.
    fn has_let_go(&self) -> bool;
    /// Checks whether the device is still there, where no notification says so; the [`Life`] knows
    /// the answer then.
    fn check(&self) {}
    /// Sleeps until the device has notified this host, `wake` was notified, or the time is over.
    fn sleep(&self, wake: &Notifier, timeout: Duration) {
        wake.wait(Some(timeout));
    }
}

/// A connection to a device.
pub trait Link: Send + Sync {
    /// Opens a queue pair.
    ///
    /// # Errors
    /// When the device has no room, or is not there: an [`OpenError::System`] of the kind
    /// [`ErrorKind::NotConnected`]. Of the kind [`ErrorKind::ResourceBusy`] when it is to restore
    /// something and other hosts have been there since the device started.
    fn open(&self, want: &Want<'_>) -> Result<Linked, OpenError>;
    /// One line about the device.
    fn describe(&self) -> String;
    /// Capacity, in sectors of 4 KiB.
    fn sectors(&self) -> u32;
    /// What it can do.
    fn features(&self) -> Features;
    /// What the device has done, as far as that can be known.
    fn counters(&self) -> DeviceCounters;
    /// Whether it runs on another core than its hosts, so that a host may spin for what it expects.
    fn has_own_core(&self) -> bool {
        true
    }
    /// Whether frames that are sealed memory are handed to it, and nothing is copied.
    fn takes_frames(&self) -> bool {
        false
    }
    /// Whether it may come back without what it had acknowledged: a process of its own may. One in
    /// this process ends with it.
    fn may_forget(&self) -> bool {
        true
    }
    /// Whether no other program is let in next to this one.
    fn is_alone(&self) -> bool {
        false
    }
    /// Whether this program names the states of the device's store, and nobody else does: its
    /// driver never flushes by itself.
    fn names_states(&self) -> bool {
        false
    }
    /// DRAM of the device in this process.
    fn dram_bytes(&self) -> usize {
        0
    }
}

/// Opens something of a device; while that is away, again and again for as long as a host waits for
/// one that has died.
pub(super) fn patiently<T>(
    config: &HostConfig,
    mut open: impl FnMut() -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let end_ns = config.clock.after(config.reattach);
    loop {
        match open() {
            Err(OpenError::System { source, .. })
                if source.kind() == ErrorKind::NotConnected && config.clock.now_ns() < end_ns =>
            {
                config.clock.sleep(AWAY_LOOK);
            }
            opened => return opened,
        }
    }
}

/// A device that was there, and died before it could be used.
pub(super) fn died_again() -> OpenError {
    let source = io::Error::new(
        ErrorKind::NotConnected,
        "it died again before all was written that it had lost; try once more, or wait longer for it",
    );
    OpenError::System { what: "attach to the device", source }
}
