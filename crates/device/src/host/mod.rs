//! The host driver: a device as a [`Flash`].
//!
//! Each queue, that is each worker, has its queue pair: no lock on the way. Where device and host
//! share the frames, a command's buffer index is the frame. Else steps 1 and 9 copy through the
//! data buffer.
//!
//! When the device dies, requests in flight stay so while the driver attaches again, as long as
//! [`HostConfig::reattach`] says. Then they are sent once more. A device without
//! [`Features::KEEPS_WRITES`] has lost completed writes that were not flushed. The driver replays
//! them from copies ([`HostConfig::unflushed_bytes`]) before anything else. Without copies it would
//! serve older data than it acknowledged: then every request ends with
//! [`FlashError::Poisoned`](fulgurite_flash::FlashError::Poisoned) until the flash is opened anew.

mod attach;
mod buddy;
mod chunks;
mod held;
mod kept;
mod link;
mod local;
mod memory;
mod old;
mod pages;
mod pair;
mod queue;
mod replay;
mod restrict;
mod room;
mod seen;
mod shared;
mod transfer;

use std::sync::Arc;

use fulgurite_flash::{
    Backing, DEPTH_MAX, DeviceCounters, Flash, FlashError, Layered, Objects, OpenError, OpenedQueue, QueueUser, Traits,
    VersionError, Versions, check_range,
};
use fulgurite_format::{SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::{Permissions, Pool};
use fulgurite_sys::{Arena, Notifier};

use crate::device::{Device, DeviceConfig};
use crate::region::Features;
use held::Held;
use pair::Opening;
use shared::Shared;

pub use buddy::Buddy;
pub use link::{Hold, HostConfig, Link, Linked, Want};
pub use old::OldState;
pub use seen::HostCounters;
pub use transfer::{Commands, Done};

/// A device, as a medium.
pub struct DeviceFlash {
    opening: Opening,
    /// In this process, if it is.
    device: Option<Arc<Device>>,
    /// Its named states, if it keeps any.
    remote: Option<memory::Remote>,
}

impl std::fmt::Debug for DeviceFlash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceFlash")
            .field("link", &self.opening.link.describe())
            .field("config", &self.opening.config)
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
    /// Starts a device in this process whose firmware runs a store, with its reclaim and checksums.
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
            remote.attach_here(device.flash().clone());
        }
        DeviceFlash { device: Some(device), ..flash }
    }
    /// Over a connection to a device.
    #[must_use]
    pub fn over(link: Arc<dyn Link>, config: HostConfig) -> DeviceFlash {
        let shared = Arc::new(Shared::new(&config.clock));
        let versions = link.features().has(Features::TOKENS);
        let opening = Opening { link, shared, config, at: None };
        let remote = versions.then(|| memory::Remote::new(opening.clone()));
        DeviceFlash { opening, device: None, remote }
    }
    /// The device, where it is in this process.
    #[must_use]
    pub fn device(&self) -> Option<&Arc<Device>> {
        self.device.as_ref()
    }
    /// The medium of a device in this process, which can be asked without a command.
    fn here(&self) -> Option<&Arc<dyn Flash>> {
        self.device.as_ref().map(|device| device.flash())
    }
    fn trims(&self) -> bool {
        self.remote.is_some() && self.opening.link.features().has(Features::PAGES)
    }
    /// Opens a queue pair for commands of several sectors, with a data buffer of its own.
    ///
    /// # Errors
    /// When the device opens none.
    pub fn commands(&self, depth: usize, buffer_sectors: u32) -> Result<Commands, OpenError> {
        if depth == 0 || depth > DEPTH_MAX {
            return Err(OpenError::Depth { depth });
        }
        let commands = Commands::open(&self.opening, depth, buffer_sectors)?;
        if commands.keeps() {
            self.opening.shared.keeps_for(&self.opening.config, usize::MAX);
        }
        Ok(commands)
    }
    /// The state of a token of the device's store, which can be read while the live state changes.
    ///
    /// # Errors
    /// When there is no such token; what the device says.
    pub fn open_token(&self, token: u64) -> Result<OldState, VersionError> {
        // Its frames are its own, and few.
        let config = HostConfig { copies: true, ..self.opening.config.clone() };
        let opening = Opening { config, ..self.opening.clone() };
        let held = Arc::new(Held::of(token, opening.clone())?);
        Ok(OldState::over(opening, held))
    }
    /// What the driver has seen.
    #[must_use]
    pub fn host_counters(&self) -> HostCounters {
        self.opening.shared.seen.read()
    }
}

/// The backing of the store in this process. Without one, what the device has said, and its store
/// by commands.
impl Backing for DeviceFlash {
    fn may(&self, subpage: u32, write: bool) -> bool {
        match self.here() {
            Some(flash) => flash.backing().is_none_or(|backing| backing.may(subpage, write)),
            None => self.opening.shared.restrictions.may(subpage, write),
        }
    }
    fn asks(&self) -> bool {
        match self.here() {
            Some(flash) => flash.backing().is_some_and(Backing::asks),
            None => self.opening.shared.room.asks(),
        }
    }
    fn begin_change(&self, subpage: u32, for_sync: bool) -> Result<(), FlashError> {
        match self.here() {
            Some(flash) => flash.backing().map_or(Ok(()), |backing| backing.begin_change(subpage, for_sync)),
            None => self.opening.shared.begin_change(for_sync),
        }
    }
    fn waits_for_room(&self) -> bool {
        match self.here() {
            Some(flash) => flash.backing().is_some_and(Backing::waits_for_room),
            None => self.opening.shared.room.waits(),
        }
    }
    fn versions(&self) -> Option<&dyn Versions> {
        self.remote.as_ref().map(|remote| remote as &dyn Versions)
    }
    /// The protocol has no batches of objects.
    fn objects(&self) -> Option<&dyn Objects> {
        None
    }
}

impl Flash for DeviceFlash {
    fn subpages(&self) -> u32 {
        self.opening.link.sectors()
    }
    fn describe(&self) -> String {
        let way = if self.device.is_some() { "device in this process" } else { "device" };
        let frames = if self.host_counters().with_frames > 0 { ", which has the frames" } else { "" };
        format!("{way}, {}{frames}", self.opening.link.describe())
    }
    fn traits(&self) -> Traits {
        Traits {
            dram_bytes: self.opening.link.dram_bytes(),
            shares_frames: !self.opening.config.copies && self.opening.link.takes_frames(),
            // The later of two ends of a request: a silent device's, or a dead one's.
            patience: self.opening.config.timeout.unwrap_or_default().max(self.opening.config.reattach),
            trims: self.trims(),
            ..Traits::PLAIN
        }
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        // One sector of data buffer for each command in flight, and no more commands than frames.
        let buffer = if self.opening.config.copies { (frames as usize).min(DEPTH_MAX) * SUBPAGE_BYTES } else { 0 };
        let kept = if shared::keeps(&*self.opening.link, &self.opening.config, self.opening.link.features()) {
            let frames = if self.opening.link.names_states() { usize::MAX } else { frames as usize * SUBPAGE_BYTES };
            self.opening.config.unflushed_bytes.min(frames)
        } else {
            0
        };
        buffer + kept
    }
    fn open_queue_for(&self, _: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        if depth == 0 || depth > DEPTH_MAX {
            return Err(OpenError::Depth { depth });
        }
        Ok(Box::new(queue::DeviceQueue::open(self.opening.clone(), frames, depth, wake)?))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages())?;
        match self.remote.as_ref().filter(|_| self.trims()) {
            Some(remote) => {
                remote.trim(first.0, count)?;
                let page = fulgurite_store::SUBPAGES_PER_PAGE;
                let pages = first.0.div_ceil(page)..first.0.saturating_add(count) / page;
                self.opening.shared.restrictions.set(pages, Permissions::DEFAULT);
                Ok(())
            }
            None => Ok(()),
        }
    }
    fn backing(&self) -> Option<&dyn Backing> {
        let here = self.here().is_some_and(|flash| flash.backing().is_some());
        (here || self.remote.is_some() || self.opening.link.names_states()).then_some(self as &dyn Backing)
    }
    fn counters(&self) -> DeviceCounters {
        self.opening.link.counters()
    }
}
