//! The host driver: a device as a [`Flash`].
//!
//! One queue pair per queue, that is, per worker: no lock on the way (the paper's driver locks its one pair finely). Where device and host
//! share the frames, a command's buffer index is the frame and nothing is copied; else steps 1 and 9 copy through the data buffer.
//!
//! What happens when the device dies: requests in flight stay so while the driver attaches again, for as long as
//! [`HostConfig::reattach`] says, and are sent once more to the device that has returned. Reads, writes and flushes may be repeated. What
//! was written, had completed and was not flushed is another matter: if the device keeps no writes across its death
//! ([`Features::KEEPS_WRITES`]) it is gone there. The driver has copies of it ([`HostConfig::unflushed_bytes`]) and writes it once more
//! before anything else. Where there are none, to go on would serve older data than were acknowledged. Then, and only then, every
//! request ends with [`FlashError::Poisoned`](fulgurite_flash::FlashError::Poisoned) until the flash is opened anew.

mod attach;
mod buddy;
mod chunks;
mod kept;
mod memory;
mod old;
mod pages;
mod queue;
mod restrict;
mod room;
mod shared;
mod transfer;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fulgurite_flash::{
    Backing, DEPTH_MAX, DeviceCounters, Flash, FlashError, Layered, OpenError, Queue, QueueUser, Traits, Versions,
    check_range,
};
use fulgurite_format::{SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::{Permissions, Pool};
use fulgurite_sys::{Arena, Clock, Notifier};

use crate::device::{Attachment, Device, DeviceConfig, Life};
use crate::firmware::Wake;
use crate::hosts::{Place, Refusal, Who};
use crate::planted::PlantedReplay;
use crate::region::{Capability, Features, Region};
use shared::Shared;

pub use buddy::Buddy;
pub use old::OldState;
pub use transfer::{Commands, Done};

/// How often it is asked whether a device that is away has returned, by who opens a queue.
const AWAY_LOOK: Duration = Duration::from_millis(2);

/// How the driver behaves.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Copies through the data buffer also where frames could be shared: as the paper's driver must.
    pub copies: bool,
    /// How long a request may take before it ends with [`fulgurite_flash::FlashError::TimedOut`]; only where data are copied, for else
    /// the device may yet touch the frame. None waits for ever. A write that has timed out may yet be done: until the device has answered it,
    /// its sector holds the one or the other, and further writes of it wait in the same queue, but in no other one. Memory operations take as
    /// long as the device's heartbeat grows; they time out when it has stood still for so long. After one that changes data, which it could
    /// yet do at any time, all further requests of this host end with [`fulgurite_flash::FlashError::Poisoned`].
    pub timeout: Option<Duration>,
    /// How long to try to attach again to a device that has died, before requests end with [`fulgurite_flash::FlashError::Closed`]; and how
    /// long who opens a queue waits for a device that is away.
    pub reattach: Duration,
    /// Bytes of copies that are kept of writes which have completed and that no flush covers, so that they can be written once more to a
    /// device that dies and returns; 0 keeps none, and such a death is told by [`fulgurite_flash::FlashError::Poisoned`]. Where as much is
    /// kept, the driver flushes by itself before it sends further writes; or has no copies of them, where only its program names states
    /// ([`crate::SocketLink::names_states`]). Never more than the frames of the queues, but in that case, and at least
    /// as much as their writes in flight take, or some have no copy. Copies are kept only of a device of another process that says neither
    /// that writes survive it nor that nothing does. They cost a copy of 4 KiB for each write, also where frames are the data buffer.
    ///
    /// 8 MiB: 2048 writes between two flushes of the driver's own, which is a percent of their time over NAND (a flush ends with the
    /// last program, 0.2 to 1 ms, and 2048 programs on 256 planes take some ms).
    pub unflushed_bytes: usize,
    /// Data travel with their checksums. What is written goes with its own in the entry, which the device compares with what lies in the data
    /// buffer as it takes the entry: a write that was damaged there ends with [`FlashError::Corrupt`], and nothing is written. What is read is
    /// compared, once it is in its frame, with what the device says of what it put into the buffer: a read that was damaged on its way is done
    /// once more, and then ends with [`FlashError::Corrupt`]. Only where data are copied, and by queues, not by [`Commands`] nor of states of
    /// old. 0.2 µs for each request, on both sides.
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
    /// For a device of another process, which may be stopped, may die and return, and whose memory is not this program's alone: requests, and
    /// attaching again, are given up after `patience`; data go with their checksums.
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
    /// Who wants it. The program's number is the way's to know.
    pub who: Who,
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
    /// In such a session: the temporary pages of the program, if it has been there before and made some, are still there.
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
    /// Asks whether the device is still there, where that is not told by itself; the [`Life`] knows then.
    fn check(&self) {}
    /// Sleeps until the device has notified this host, `wake` was notified, or the time is over.
    fn sleep(&self, wake: &Notifier, timeout: Duration) {
        wake.wait(Some(timeout));
    }
}

/// A queue pair of a device in this process.
struct Here {
    attachment: Attachment,
    clock: Clock,
    /// Until the device has let go of the pair.
    _place: Place,
}

impl Hold for Here {
    fn close(&mut self) {
        self.attachment.close();
    }
    fn has_let_go(&self) -> bool {
        self.attachment.has_let_go()
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.attachment.close();
        // Until then something of it may be written, and whoever comes next must find that.
        while !self.attachment.has_let_go() {
            self.clock.sleep(Duration::from_micros(50));
        }
    }
}

/// A way to a device.
pub trait Link: Send + Sync {
    /// Opens a queue pair.
    ///
    /// # Errors
    /// When the device is not there, which is an [`OpenError::System`] of the kind [`ErrorKind::NotConnected`], or has no room; of the kind
    /// [`ErrorKind::ResourceBusy`] when it is to restore something and other hosts have been there since the device started.
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
    /// Whether it may come back without what it had acknowledged: a process of its own may. One in this process ends with it.
    fn may_forget(&self) -> bool {
        true
    }
    /// Whether no other program is let in beside this one.
    fn is_alone(&self) -> bool {
        false
    }
    /// Whether this program names the states of the device's store, and nobody else does: its driver never flushes by itself.
    fn names_states(&self) -> bool {
        false
    }
    /// DRAM of the device in this process.
    fn dram_bytes(&self) -> usize {
        0
    }
}

impl Link for Device {
    fn open(&self, want: &Want<'_>) -> Result<Linked, OpenError> {
        let frames = want.frames.cloned();
        let buffer = if frames.is_some() { 0 } else { want.buffer_sectors };
        // Nobody boots from a device of its own process.
        let capability = Capability { boot_sectors: 0, ..self.backend().capability(1, want.depth, buffer) };
        let place = self.admit(want.who, usize::MAX).map_err(|refusal| {
            let kind = match refusal {
                Refusal::Restoring | Refusal::TakingBack => ErrorKind::NotConnected,
                Refusal::Shared => ErrorKind::ResourceBusy,
                _ => ErrorKind::Other,
            };
            OpenError::System { what: "attach to the device", source: io::Error::new(kind, refusal) }
        })?;
        let refused = |error| OpenError::System { what: "make a region", source: io::Error::other(error) };
        let region = Arc::new(Region::create(capability, false).map_err(refused)?);
        place.is_in(&region);
        let shares_frames = frames.is_some();
        let attachment = self.attach(&region, 0, frames, want.wake.clone())?;
        let (doorbell, life): (Arc<dyn Wake>, _) = (attachment.doorbell().clone(), attachment.life().clone());
        let device_bytes = attachment.bytes();
        let hold = Box::new(Here { attachment, clock: self.clock().clone(), _place: place });
        Ok(Linked {
            region,
            pair: 0,
            doorbell,
            life,
            shares_frames,
            newest_token: 0,
            has_temporary: false,
            device_bytes,
            hold,
        })
    }
    fn has_own_core(&self) -> bool {
        Device::has_own_core(self)
    }
    fn may_forget(&self) -> bool {
        false
    }
    fn describe(&self) -> String {
        self.flash().describe()
    }
    fn sectors(&self) -> u32 {
        self.flash().subpages()
    }
    fn features(&self) -> Features {
        self.backend().features()
    }
    fn counters(&self) -> DeviceCounters {
        let mut counters = self.flash().counters();
        counters.device_cpu_ns += u64::try_from(self.cpu().as_nanos()).unwrap_or(u64::MAX);
        counters
    }
    fn dram_bytes(&self) -> usize {
        self.flash().traits().dram_bytes
    }
}

/// Opens something of a device; while that is away, again and again for as long as a host waits for one that has died.
fn patiently<T>(config: &HostConfig, mut open: impl FnMut() -> Result<T, OpenError>) -> Result<T, OpenError> {
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
fn died_again() -> OpenError {
    let source = io::Error::new(
        ErrorKind::NotConnected,
        "it died again before all was written that it had lost; try once more, or wait longer for it",
    );
    OpenError::System { what: "attach to the device", source }
}

/// What a driver has seen of its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct HostCounters {
    /// Requests that ended because their time was over.
    pub timed_out: u64,
    /// Completion entries that broke the protocol, and were not believed.
    pub broken: u64,
    /// Times that a queue pair was opened anew.
    pub relinked: u64,
    /// Commands that were sent once more.
    pub replayed: u64,
    /// Writes that had completed, and were written once more to a device that had died and returned.
    pub restored: u64,
    /// Flushes of the driver's own, because as much as may be was not flushed.
    pub own_flushes: u64,
    /// Queue pairs that were opened and whose device has the frames: nothing is copied there.
    pub with_frames: u64,
}

/// A device, as a medium.
pub struct DeviceFlash {
    link: Arc<dyn Link>,
    config: HostConfig,
    shared: Arc<Shared>,
    /// In this process, if it is.
    device: Option<Arc<Device>>,
    /// Its named states, if it keeps any.
    remote: Option<memory::Remote>,
}

impl std::fmt::Debug for DeviceFlash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceFlash")
            .field("link", &self.link.describe())
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl DeviceFlash {
    /// Starts a device in this process, over a medium.
    ///
    /// # Errors
    /// As [`Device::start`].
    pub fn start(flash: Arc<dyn Flash>, device: DeviceConfig, host: HostConfig) -> Result<DeviceFlash, OpenError> {
        Ok(DeviceFlash::on(Arc::new(Device::start(flash, device)?), host))
    }
    /// Starts a device in this process whose firmware runs a store: it pays for places, checksums and reclaim, and the host for none of it.
    ///
    /// # Errors
    /// As [`Device::start_store`].
    pub fn start_store(store: Layered<Pool>, device: DeviceConfig, host: HostConfig) -> Result<DeviceFlash, OpenError> {
        Ok(DeviceFlash::on(Arc::new(Device::start_store(store, device)?), host))
    }
    /// Over a device in this process.
    #[must_use]
    pub fn on(device: Arc<Device>, host: HostConfig) -> DeviceFlash {
        let mut flash = DeviceFlash::over(device.clone(), host);
        if let Some(remote) = &mut flash.remote {
            remote.is_here(device.flash().clone());
        }
        DeviceFlash { device: Some(device), ..flash }
    }
    /// Over a way to a device.
    #[must_use]
    pub fn over(link: Arc<dyn Link>, config: HostConfig) -> DeviceFlash {
        let shared = Arc::new(Shared::new(&config.clock));
        let versions = link.features().has(Features::TOKENS);
        let remote = versions.then(|| memory::Remote::new(link.clone(), shared.clone(), config.clone()));
        DeviceFlash { link, config, shared, device: None, remote }
    }
    /// The device, where it is in this process.
    #[must_use]
    pub fn device(&self) -> Option<&Arc<Device>> {
        self.device.as_ref()
    }
    /// What a device in this process lies on: it can be asked without a command. That of another one is asked when a request comes.
    fn here(&self) -> Option<&Arc<dyn Flash>> {
        self.device.as_ref().map(|device| device.flash())
    }
    fn trims(&self) -> bool {
        self.remote.is_some() && self.link.features().has(Features::PAGES)
    }
    /// Opens a queue pair for commands of several sectors, with a data buffer of its own.
    ///
    /// # Errors
    /// When the device opens none.
    pub fn commands(&self, depth: usize, buffer_sectors: u32) -> Result<Commands, OpenError> {
        if depth == 0 || depth > DEPTH_MAX {
            return Err(OpenError::Depth { depth });
        }
        let commands =
            Commands::open(self.link.clone(), self.shared.clone(), self.config.clone(), depth, buffer_sectors)?;
        if commands.keeps() {
            self.shared.keeps_for(&self.config, usize::MAX);
        }
        Ok(commands)
    }
    /// What the driver has seen.
    #[must_use]
    pub fn host_counters(&self) -> HostCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HostCounters {
            timed_out: get(&self.shared.timed_out),
            broken: get(&self.shared.broken),
            relinked: get(&self.shared.relinked),
            replayed: get(&self.shared.replayed),
            restored: get(&self.shared.restored),
            own_flushes: get(&self.shared.own_flushes),
            with_frames: get(&self.shared.with_frames),
        }
    }
}

/// That of the store in this process; else what the device has said, and its store by commands.
impl Backing for DeviceFlash {
    fn may(&self, subpage: u32, write: bool) -> bool {
        match self.here() {
            Some(flash) => flash.backing().is_none_or(|backing| backing.may(subpage, write)),
            None => self.shared.restrictions.may(subpage, write),
        }
    }
    fn asks(&self) -> bool {
        match self.here() {
            Some(flash) => flash.backing().is_some_and(Backing::asks),
            None => self.shared.room.asks(),
        }
    }
    fn begin_change(&self, for_sync: bool) -> Result<(), FlashError> {
        match self.here() {
            Some(flash) => flash.backing().map_or(Ok(()), |backing| backing.begin_change(for_sync)),
            None => self.shared.begin_change(for_sync),
        }
    }
    fn waits_for_room(&self) -> bool {
        match self.here() {
            Some(flash) => flash.backing().is_some_and(Backing::waits_for_room),
            None => self.shared.room.waits(),
        }
    }
    fn versions(&self) -> Option<&dyn Versions> {
        self.remote.as_ref().map(|remote| remote as &dyn Versions)
    }
}

impl Flash for DeviceFlash {
    fn subpages(&self) -> u32 {
        self.link.sectors()
    }
    fn describe(&self) -> String {
        let way = if self.device.is_some() { "device in this process" } else { "device" };
        let frames = if self.host_counters().with_frames > 0 { ", which has the frames" } else { "" };
        format!("{way}, {}{frames}", self.link.describe())
    }
    fn traits(&self) -> Traits {
        Traits {
            dram_bytes: self.link.dram_bytes(),
            shares_frames: !self.config.copies && self.link.takes_frames(),
            // Whichever ends a request: a device that is there and says nothing, or one that has died.
            patience: self.config.timeout.unwrap_or_default().max(self.config.reattach),
            trims: self.trims(),
            ..Traits::PLAIN
        }
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        // At the most one sector of data buffer for each command in flight, and no more commands than frames.
        let buffer = if self.config.copies { (frames as usize).min(DEPTH_MAX) * SUBPAGE_BYTES } else { 0 };
        let kept = if shared::keeps(&*self.link, &self.config, self.link.features()) {
            let frames = if self.link.names_states() { usize::MAX } else { frames as usize * SUBPAGE_BYTES };
            self.config.unflushed_bytes.min(frames)
        } else {
            0
        };
        buffer + kept
    }
    fn open_queue_for(
        &self,
        _: QueueUser,
        frames: Arc<Arena>,
        depth: usize,
        wake: Arc<Notifier>,
    ) -> Result<Box<dyn Queue>, OpenError> {
        if depth == 0 || depth > DEPTH_MAX {
            return Err(OpenError::Depth { depth });
        }
        let (link, shared, config) = (self.link.clone(), self.shared.clone(), self.config.clone());
        let opening = queue::Opening { link, shared, config, at: None };
        Ok(Box::new(queue::DeviceQueue::open(opening, frames, depth, wake)?))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages())?;
        match self.remote.as_ref().filter(|_| self.trims()) {
            Some(remote) => {
                remote.trim(first.0, count)?;
                let page = fulgurite_store::SUBPAGES_PER_PAGE;
                let pages = first.0.div_ceil(page)..first.0.saturating_add(count) / page;
                self.shared.restrictions.set(pages, Permissions::DEFAULT);
                Ok(())
            }
            None => Ok(()),
        }
    }
    fn backing(&self) -> Option<&dyn Backing> {
        let here = self.here().is_some_and(|flash| flash.backing().is_some());
        (here || self.remote.is_some() || self.link.names_states()).then_some(self as &dyn Backing)
    }
    fn counters(&self) -> DeviceCounters {
        self.link.counters()
    }
}
