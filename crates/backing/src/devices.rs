//! Devices before a medium: of this process, and of another one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_device::{DeviceConfig, DeviceFlash, FirmwareConfig, HostConfig, SocketLink};
use fulgurite_flash::{Flash, Layered, OpenError};
use fulgurite_store::Pool;

use crate::Error;

/// How long a device of another process may be away, or leave a request without an answer, before
/// requests fail.
const DEVICE_AWAY: Duration = Duration::from_secs(30);

/// The part of the DRAM budget that may hold copies of what was written to a device's store and is
/// not part of a token yet.
const COPIES_SHARE: u64 = 4;

/// The driver of a device of another process.
fn host_of_another() -> HostConfig {
    HostConfig::of_another_process(DEVICE_AWAY)
}

/// Opens a device of another process that other programs use at the same time.
///
/// # Errors
/// [`Error::Device`].
pub fn open_shared(socket: &Path, share_frames: bool) -> Result<Arc<DeviceFlash>, Error> {
    let link = SocketLink::connect(socket, share_frames)?;
    Ok(Arc::new(DeviceFlash::over(Arc::new(link), host_of_another())))
}

/// Opens a device of another process for this program alone.
///
/// # Errors
/// [`Error::Device`].
pub fn alone(socket: &Path, share_frames: bool) -> Result<Arc<DeviceFlash>, Error> {
    let link = SocketLink::connect(socket, share_frames)?.alone();
    Ok(Arc::new(DeviceFlash::over(Arc::new(link), host_of_another())))
}

/// Opens the store of a device of another process, whose states this program alone names. A budget
/// of `dram_bytes` pays for the copies of what no token names yet.
///
/// # Errors
/// [`Error::Device`]; [`Error::Open`] when the session cannot begin.
pub fn names_states(socket: &Path, share_frames: bool, dram_bytes: u64) -> Result<Arc<DeviceFlash>, Error> {
    let link = SocketLink::connect(socket, share_frames)?.names_states()?;
    let copies = usize::try_from(dram_bytes / COPIES_SHARE).unwrap_or(usize::MAX);
    let host = host_of_another();
    let host = HostConfig { unflushed_bytes: host.unflushed_bytes.min(copies), ..host };
    let flash = Arc::new(DeviceFlash::over(Arc::new(link), host));
    // Before there are any queues, and for as long as this lives.
    flash.begin()?;
    Ok(flash)
}

/// A device of this process, on a core if one is named.
fn device_here(core: Option<usize>) -> DeviceConfig {
    // The one host there is asks before each access.
    let firmware = FirmwareConfig { heeds_permissions: false, flushes_itself: false, ..FirmwareConfig::default() };
    DeviceConfig { core, firmware, ..DeviceConfig::default() }
}

/// Puts a device of this process before a medium as it is.
///
/// # Errors
/// As [`DeviceFlash::start`].
pub fn flat_on_device(flash: Arc<dyn Flash>, core: Option<usize>) -> Result<Arc<DeviceFlash>, OpenError> {
    Ok(Arc::new(DeviceFlash::start(flash, device_here(core), HostConfig::default())?))
}

/// Puts a pool's store into the firmware of such a device.
///
/// # Errors
/// As [`DeviceFlash::start_store`].
pub fn on_device(store: Layered<Pool>, core: Option<usize>) -> Result<Arc<DeviceFlash>, OpenError> {
    Ok(Arc::new(DeviceFlash::start_store(store, device_here(core), HostConfig::default())?))
}
