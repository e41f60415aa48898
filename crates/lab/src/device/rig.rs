//! What is measured on: devices and a file, made once and used by turns.
//!
//! Invariant: what uses something is dropped before it. The threads of what is not being measured
//! sleep.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use fulgurite_backing::Base;
use fulgurite_device::{DeviceConfig, DeviceFlash, FirmwareConfig, HostConfig, SECTOR_BYTES};
use fulgurite_flash::{FileConfig, Flash, NandFlash};
use fulgurite_format::format_bytes;
use fulgurite_store::StoreConfig;

use super::args::Figure;
use super::cells::{Cell, How};
use super::driver::{Driver, Memory};
use super::movers::{ChunkMover, Queued, Ran, SETTLE, SPIN, Waits};
use super::process::DeviceProcess;
use crate::medium::touched_memory;
use fulgurite_flash::Mover;
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::media::NandCounts;
use fulgurite_term::media::device::Plan;
use fulgurite_term::progress;

/// A worker's time between two misses in AstriFlash (II), in which it polls no queue.
const COMPUTING: Waits = Waits::Computing(10_000);

/// All movers, ready. What comes first is dropped first.
pub struct Rig {
    /// By what is moved, and whether through its queue into frames. Else the paper's driver moves
    /// it, or the only mover that there is.
    movers: HashMap<(How, bool), Box<dyn ChunkMover>>,
    nand: Option<(Arc<NandFlash>, Arc<DeviceFlash>)>,
    _process: DeviceProcess,
    _files: tempfile::TempDir,
    about: Vec<String>,
}

impl Rig {
    /// Makes it all, each device of `bytes` bytes.
    pub fn start(
        bytes: u64,
        nand: Option<&Plan>,
        directory: &Path,
        device_core: Option<usize>,
        interrupt: &Interrupt,
    ) -> Result<Rig> {
        let sectors = (bytes / SECTOR_BYTES as u64) as u32;
        let files = tempfile::Builder::new().prefix("fulgurite-device-").tempdir_in(directory)?;
        let process = DeviceProcess::start(files.path(), bytes, device_core)?;
        let preparing = progress::waiting("a file of the same size");
        let file = Base::File(FileConfig::create(files.path().join("file"), bytes)).open()?.flash;
        preparing.finish_and_clear();
        let device = |flash: Arc<dyn Flash>, bypass: bool| -> Result<Arc<DeviceFlash>> {
            let firmware = FirmwareConfig { bypass, ..FirmwareConfig::default() };
            let config = DeviceConfig { core: device_core, spin: SPIN, firmware, ..DeviceConfig::default() };
            Ok(Arc::new(DeviceFlash::start(flash, config, HostConfig::default())?))
        };
        let nothing = device(Base::memory(sectors).open()?.flash, true)?;
        let over_memory = device(touched_memory(sectors)?, false)?;
        let running = over_memory.device().context("a device of this process")?.clone();
        let copying = Arc::new(DeviceFlash::on(running, HostConfig { copies: true, ..HostConfig::default() }));
        // The path of the file is left out of the description, because the file is removed after
        // the run.
        let description = file.describe();
        let how = description.rsplit(", ").next().unwrap_or_default();
        let mut about = vec![
            format!("device: {}", over_memory.describe()),
            "process: the same in a process of its own, attached to over its socket".to_owned(),
            format!("file: {} of its own, {how}", format_bytes(bytes)),
        ];
        // What is read is copied there, whatever the medium.
        let into = Memory::default();
        let nand = nand.map(|plan| Rig::over_nand(plan, sectors, device_core, interrupt)).transpose()?;
        let mut movers = HashMap::new();
        let mut add = |how, queued, mover: Box<dyn ChunkMover>| movers.insert((how, queued), mover);
        if let Some((nand, device)) = &nand {
            about.insert(2, format!("nand: the device over the store over {}", nand.describe()));
            for how in [How::Nand, How::NandDma] {
                add(how, false, Box::new(Driver::of_store(device.clone(), into.clone())));
            }
        }
        for (how, device) in [(How::Bypassed, &nothing), (How::BypassedNear, &nothing), (How::Device, &over_memory)] {
            add(how, false, Box::new(Driver::new(device.clone(), into.clone())));
            add(how, true, Box::new(Queued::new(device.clone(), Waits::Polling)));
        }
        add(How::DeviceComputing, true, Box::new(Queued::new(over_memory, COMPUTING)));
        add(How::DeviceCopies, true, Box::new(Queued::new(copying, Waits::Polling)));
        for (how, bypassed) in [(How::ProcessBypassed, true), (How::Process, false)] {
            let (flash, its) = process.attach(bypassed, false)?;
            add(how, false, Box::new(Driver::of_process(flash, its, into.clone())));
            let (flash, its) = process.attach(bypassed, true)?;
            add(how, true, Box::new(Queued::of_process(flash, its)));
        }
        let (flash, its) = process.attach(false, false)?;
        add(How::ProcessCopies, true, Box::new(Queued::of_process(flash, its)));
        let polling = (How::File, Waits::Polling);
        for (how, waits) in [polling, (How::FileAsleep, Waits::Asleep), (How::FileComputing, COMPUTING)] {
            add(how, false, Box::new(Queued::new(file.clone(), waits)));
        }
        Ok(Rig { movers, nand, _process: process, _files: files, about })
    }
    /// The device over NAND, written once: unwritten sectors are not read from NAND.
    fn over_nand(
        plan: &Plan,
        sectors: u32,
        core: Option<usize>,
        interrupt: &Interrupt,
    ) -> Result<(Arc<NandFlash>, Arc<DeviceFlash>)> {
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
        Ok((nand, flash))
    }
    pub fn about(&self) -> &[String] {
        &self.about
    }
    /// What NAND has done, and how late its completions were in the mean, in microseconds.
    pub fn nand_did(&self) -> Option<(NandCounts, f64)> {
        let (nand, device) = self.nand.as_ref()?;
        let (did, late) = (NandCounts::of(&nand.report()), device.counters());
        let ended = (late.reads + late.writes).max(1);
        Some((did, late.lateness_ns_total as f64 / ended as f64 / 1e3))
    }
    /// Measures one thing, once.
    pub fn run(&mut self, cell: &Cell) -> Result<Ran> {
        std::thread::sleep(SETTLE);
        let queued = cell.figure == Figure::Depth && self.movers.contains_key(&(cell.how, true));
        let mover = self.movers.get_mut(&(cell.how, queued)).context("it was not made")?;
        mover.run(&cell.work).with_context(|| format!("{} failed at {:?}", cell.how.name(), cell.work))
    }
}
