//! What is measured on: devices, a file, an NBD server, made once and used by turns.
//!
//! Invariant: what uses something is dropped before it. The threads of what is not being measured
//! sleep.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use fulgurite_device::{DeviceConfig, DeviceFlash, FirmwareConfig, HostConfig, SECTOR_BYTES};
use fulgurite_flash::{FileConfig, FileFlash, Flash, MemoryFlash, NandFlash};
use fulgurite_format::format_bytes;
use fulgurite_nbd::{NbdAddress, NbdConfig, NbdServer};
use fulgurite_store::StoreConfig;

use super::args::Figure;
use super::cells::{Cell, How};
use super::driver::{Driver, Memory};
use super::medium::Plan;
use super::nbd_client;
use super::process::Beside;
use super::ways::{OverNbd, Queued, Ran, SETTLE, SPIN, Waits, Way};
use crate::child::nand_counts::NandCounts;
use crate::interrupt::Interrupt;
use crate::progress;
use fulgurite_flash::Mover;

/// A worker's time between two misses in AstriFlash (II): so long it looks at no queue.
const COMPUTING: Waits = Waits::Computing(10_000);

/// All ways, ready. What comes first is dropped first.
pub struct Rig {
    bypassed: Driver,
    bypassed_queue: Queued,
    device: Driver,
    device_queue: Queued,
    computing_queue: Queued,
    copies_queue: Queued,
    process_bypassed: Driver,
    process_bypassed_queue: Queued,
    process: Driver,
    process_queue: Queued,
    process_copies_queue: Queued,
    nand: Option<(Driver, Arc<NandFlash>, Arc<DeviceFlash>)>,
    file: Queued,
    file_asleep: Queued,
    file_computing: Queued,
    nbd: OverNbd,
    _server: NbdServer,
    _beside: Beside,
    _files: tempfile::TempDir,
    about: Vec<String>,
}

impl Rig {
    /// Makes it all, each device of so many bytes.
    pub fn start(
        bytes: u64,
        nand: Option<&Plan>,
        directory: &Path,
        device_core: Option<usize>,
        interrupt: &Interrupt,
    ) -> Result<Rig> {
        let sectors = (bytes / SECTOR_BYTES as u64) as u32;
        let files = tempfile::Builder::new().prefix("fulgurite-device-").tempdir_in(directory)?;
        let beside = Beside::start(files.path(), bytes, device_core)?;
        let preparing = progress::waiting("a file of the same size");
        let file: Arc<dyn Flash> = Arc::new(FileFlash::open(&FileConfig::create(files.path().join("file"), bytes))?);
        preparing.finish_and_clear();
        let memory = || -> Result<Arc<dyn Flash>> {
            let memory = MemoryFlash::new(sectors)?;
            // All of it is there before it is timed.
            memory.storage().zero(0, memory.storage().len());
            Ok(Arc::new(memory))
        };
        let device = |flash: Arc<dyn Flash>, bypass: bool| -> Result<Arc<DeviceFlash>> {
            let firmware = FirmwareConfig { bypass, ..FirmwareConfig::default() };
            let config = DeviceConfig { core: device_core, spin: SPIN, firmware, ..DeviceConfig::default() };
            Ok(Arc::new(DeviceFlash::start(flash, config, HostConfig::default())?))
        };
        let nothing = device(Arc::new(MemoryFlash::new(sectors)?), true)?;
        let over_memory = device(memory()?, false)?;
        let running = over_memory.device().context("a device of this process")?.clone();
        let copying = Arc::new(DeviceFlash::on(running, HostConfig { copies: true, ..HostConfig::default() }));
        // Where it lies is nobody's concern: it goes with the run.
        let description = file.describe();
        let how = description.rsplit(", ").next().unwrap_or_default();
        let mut about = vec![
            format!("device: {}", over_memory.describe()),
            "process: the same in a process of its own, attached to over its socket".to_owned(),
            format!("file: {} of its own, {how}", format_bytes(bytes)),
        ];
        // What is read goes there, whatever the way.
        let into = Memory::default();
        let nand = nand.map(|plan| Rig::over_nand(plan, sectors, device_core, interrupt, into.clone())).transpose()?;
        if let Some((_, nand, _)) = &nand {
            about.insert(2, format!("nand: the device over the store over {}", nand.describe()));
        }
        let (process_bypassed, its) = beside.attach(true, false)?;
        let process_bypassed = Driver::of_process(process_bypassed, its, into.clone());
        let (process, its) = beside.attach(false, false)?;
        let process = Driver::of_process(process, its, into.clone());
        let process_queue = |bypassed, shares_frames| -> Result<Queued> {
            let (flash, its) = beside.attach(bypassed, shares_frames)?;
            Ok(Queued::of_process(flash, its))
        };
        let socket = files.path().join("nbd");
        let mut config = NbdConfig::new(NbdAddress::Unix(socket.clone()));
        config.depth = 256;
        let server = NbdServer::start(memory()?, config)?;
        Ok(Rig {
            bypassed: Driver::new(nothing.clone(), into.clone()),
            bypassed_queue: Queued::new(nothing, Waits::Polling),
            device: Driver::new(over_memory.clone(), into),
            device_queue: Queued::new(over_memory.clone(), Waits::Polling),
            computing_queue: Queued::new(over_memory, COMPUTING),
            copies_queue: Queued::new(copying, Waits::Polling),
            process_bypassed,
            process_bypassed_queue: process_queue(true, true)?,
            process,
            process_queue: process_queue(false, true)?,
            process_copies_queue: process_queue(false, false)?,
            nand,
            file: Queued::new(file.clone(), Waits::Polling),
            file_asleep: Queued::new(file.clone(), Waits::Asleep),
            file_computing: Queued::new(file, COMPUTING),
            nbd: OverNbd::new(nbd_client::Client::connect(&socket)?),
            _server: server,
            _beside: beside,
            _files: files,
            about,
        })
    }
    /// The device over NAND, written once: unwritten sectors are not read from NAND.
    fn over_nand(
        plan: &Plan,
        sectors: u32,
        core: Option<usize>,
        interrupt: &Interrupt,
        into: Memory,
    ) -> Result<(Driver, Arc<NandFlash>, Arc<DeviceFlash>)> {
        let medium = plan.open(StoreConfig::default(), interrupt)?;
        let nand = medium.nand().context("a device over NAND")?;
        let device = medium.start(DeviceConfig { core, spin: SPIN, ..DeviceConfig::default() })?;
        let filling = progress::waiting("writing the device over NAND");
        let mut rest = 0..sectors;
        Mover::new(&**device.flash())?.write(|page| {
            interrupt.check()?;
            page.fill(1);
            anyhow::Ok(rest.next())
        })?;
        filling.finish_and_clear();
        let flash = Arc::new(DeviceFlash::on(device, HostConfig::default()));
        flash.commands(1, 1)?.flush().context("the device over NAND cannot be flushed")?;
        Ok((Driver::of_store(flash.clone(), into), nand, flash))
    }
    pub fn about(&self) -> &[String] {
        &self.about
    }
    /// What NAND has done, and how late its completions were in the mean, in microseconds.
    pub fn nand_did(&self) -> Option<(NandCounts, f64)> {
        let (_, nand, device) = self.nand.as_ref()?;
        let (did, late) = (NandCounts::of(&nand.report()), device.counters());
        let ended = (late.reads + late.writes).max(1);
        Some((did, late.lateness_ns_total as f64 / ended as f64 / 1e3))
    }
    /// Measures one thing, once.
    pub fn run(&mut self, cell: &Cell) -> Result<Ran> {
        std::thread::sleep(SETTLE);
        // One 4 KiB chunk after the other, into frames; else by the paper's driver.
        let queued = cell.figure == Figure::Depth;
        let nand = self.nand.as_mut().map(|(driver, ..)| driver);
        let way: &mut dyn Way = match (cell.how, queued) {
            (How::Bypassed | How::BypassedNear | How::Copy | How::CopyNear, false) => &mut self.bypassed,
            (How::Bypassed | How::BypassedNear | How::Copy | How::CopyNear, true) => &mut self.bypassed_queue,
            (How::Device, false) => &mut self.device,
            (How::Device, true) => &mut self.device_queue,
            (How::DeviceComputing, _) => &mut self.computing_queue,
            (How::DeviceCopies, _) => &mut self.copies_queue,
            (How::ProcessBypassed, false) => &mut self.process_bypassed,
            (How::ProcessBypassed, true) => &mut self.process_bypassed_queue,
            (How::Process, false) => &mut self.process,
            (How::Process, true) => &mut self.process_queue,
            (How::ProcessCopies, _) => &mut self.process_copies_queue,
            (How::Nand | How::NandDma, _) => nand.context("there is no device over NAND")?,
            (How::File, _) => &mut self.file,
            (How::FileAsleep, _) => &mut self.file_asleep,
            (How::FileComputing, _) => &mut self.file_computing,
            (How::Nbd, _) => &mut self.nbd,
        };
        way.run(&cell.work).with_context(|| format!("{} failed at {:?}", cell.how.name(), cell.work))
    }
}
