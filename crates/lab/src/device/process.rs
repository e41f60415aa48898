//! The device in a process of its own, compared with the one in this process: the same firmware and
//! memory, on the same core, attached to over its socket.
//!
//! It serves two devices, one with nothing behind its firmware. Invariants: it ends with the
//! program. The program removes the directory of its sockets.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use fulgurite_backing::Base;
use fulgurite_device::{
    Device, DeviceConfig, DeviceFlash, FirmwareConfig, HostConfig, SECTOR_BYTES, Server, ServerConfig, SocketLink,
};

use super::args::DeviceProcessArgs;
use super::movers::{Elsewhere, SPIN};
use crate::medium::touched_memory;
use fulgurite_harness::own_process;

/// What it says when it serves.
const READY: &str = "ready\n";

/// Runs it: the other process.
pub fn run(args: &DeviceProcessArgs) -> Result<()> {
    // Nothing of the program survives it, whichever way it ends.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let sectors = u32::try_from(args.size / SECTOR_BYTES as u64).context("more than a device can have")?;
    let serve = |bypass: bool, name: &str| -> Result<(Server, Arc<Device>)> {
        let memory = if bypass { Base::memory(sectors).open()?.flash } else { touched_memory(sectors)? };
        let firmware = FirmwareConfig { bypass, moves_by_cpu: true, ..FirmwareConfig::default() };
        let config = DeviceConfig { core: args.core, spin: SPIN, firmware, ..DeviceConfig::default() };
        let device = Arc::new(Device::start(memory, config)?);
        Ok((Server::start(device.clone(), &args.directory.join(name), ServerConfig::default())?, device))
    };
    let served = [serve(true, BYPASSED)?, serve(false, MEMORY)?];
    let mut output = std::io::stdout();
    output.write_all(READY.as_bytes())?;
    output.flush()?;
    // Until the program has gone, or has had enough.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(served);
    Ok(())
}

const BYPASSED: &str = "bypassed.sock";
const MEMORY: &str = "memory.sock";

/// The other process, seen from this one. Dropped, it is ended.
pub struct DeviceProcess {
    child: Child,
    _input: ChildStdin,
    directory: PathBuf,
}

impl DeviceProcess {
    /// Starts it, with devices of `bytes` bytes each, their firmware on a core.
    ///
    /// # Errors
    /// When it does not start, or does not say that it serves.
    pub fn start(directory: &Path, bytes: u64, core: Option<usize>) -> Result<DeviceProcess> {
        let size = format!("--size={bytes}");
        let core = core.map(|core| format!("--core={core}"));
        let mut arguments: Vec<&OsStr> = vec!["__device".as_ref(), size.as_ref()];
        arguments.extend(["--directory".as_ref(), directory.as_os_str()]);
        arguments.extend(core.as_deref().map(OsStr::new));
        let started = own_process::start(&arguments);
        let (child, input, told) = started.context("the device's process could not be started")?;
        let process = DeviceProcess { child, _input: input, directory: directory.to_owned() };
        let mut line = String::new();
        BufReader::new(told).read_line(&mut line)?;
        ensure!(line == READY, "the device's process ended by itself");
        Ok(process)
    }
    /// Attaches to one of its devices. `shares_frames`: nothing is copied where that can be.
    pub fn attach(&self, bypassed: bool, shares_frames: bool) -> Result<(Arc<DeviceFlash>, Elsewhere)> {
        let path = self.directory.join(if bypassed { BYPASSED } else { MEMORY });
        let link = Arc::new(SocketLink::connect(&path, shares_frames)?);
        Ok((Arc::new(DeviceFlash::over(link.clone(), HostConfig::default())), Elsewhere::new(link)))
    }
}

impl Drop for DeviceProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
