//! What a device on either interface is, how it is read, and what comes of a run.

use fulgurite_nand::Profile;
use serde::Serialize;

use crate::planted::Planted;
use crate::report::{Counted, percent, times};
use crate::stages::Split;
use crate::statistics::{Distribution, Law};
use crate::system::{Document, SystemError};
use crate::time::Time;

/// What the buffer is given out in.
pub const SECTOR: u64 = 512;

/// A device with its host.
#[derive(Clone, Debug)]
pub struct InterfaceSystem {
    /// Threads that each ask for one request at a time.
    pub threads: u32,
    /// Bytes of a request.
    pub request: u64,
    /// Whether they write.
    pub writes: bool,
    /// Requests that run first.
    pub warm_up: u64,
    /// Requests that are measured.
    pub count: u64,
    /// Bytes of the data buffer.
    pub buffer: u64,
    /// The most bytes of a command.
    pub split: u64,
    /// Processors of the host.
    pub processors: u32,
    /// Of each command, its submission and its completion together, on a processor of the host.
    pub protocol: Time,
    /// Of each command, on the device's one processor, which fetches the command and answers it.
    pub firmware: Time,
    /// Each command is somewhere, and not after the last one.
    pub random: bool,
    /// A write ends once its data is in the buffer. The place is given back when the NAND has it.
    pub cached_writes: bool,
    /// The device answers without NAND.
    pub bypass: bool,
    /// How commands and data reach it.
    pub transport: Transport,
    /// Its NAND.
    pub nand: Profile,
    /// The share of the NAND's pages that can be written.
    pub filled: f64,
    /// Keeps each command's stages, so that percentiles can be split.
    pub explain: bool,
    /// A bug, for the tests of the suite.
    pub planted: Planted,
}

/// How commands and data reach a device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Transport {
    /// Through its buffer on the DRAM interface.
    Dram(Dma),
    /// Over a link of UFS.
    Ufs(Ufs),
}

/// The host's DMA engine, which moves data between the device's buffer and its own DRAM.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dma {
    /// Its set-up of each transfer.
    pub setup: Time,
    /// Bytes a second.
    pub rate: f64,
    /// Bytes a second that the caches are invalidated at, before and after together.
    pub invalidate_rate: f64,
}

impl Dma {
    /// The engine's time of a transfer.
    pub(super) fn transfers(&self, bytes: u64, planted: Planted) -> Time {
        let setup = if planted == Planted::FreeSetup { Time::ZERO } else { self.setup };
        setup + span(bytes, self.rate)
    }
    /// A processor's time to invalidate before a transfer, or after it.
    pub(super) fn invalidates(&self, bytes: u64, planted: Planted) -> Time {
        if planted == Planted::FreeInvalidation { Time::ZERO } else { span(bytes, self.invalidate_rate * 2.0) }
    }
}

/// The host controller of UFS, and its link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ufs {
    /// Slots of the transfer request list: commands that are between doorbell and completion.
    pub slots: u32,
    /// The controller's time for a command. Half of it is before the command is sent.
    pub controller: Time,
    /// Bytes a second in each direction, of all lanes and without the line's code.
    pub rate: f64,
    /// Payload of a frame of the link.
    pub frame: u64,
    /// What a frame adds to it.
    pub frame_overhead: u64,
    /// Bytes of a UPIU, to which data is added.
    pub upiu: u64,
    /// The most data of a UPIU.
    pub data: u64,
    /// Data of writes that the device has asked for and not received, in UPIUs.
    pub transfers: u32,
}

impl Ufs {
    /// The link's time of a UPIU with `data` bytes of data.
    pub fn sends(&self, data: u64) -> Time {
        span(self.on_link(data), self.rate)
    }
    /// The bytes of such a UPIU and of its frames.
    fn on_link(&self, data: u64) -> u64 {
        let bytes = self.upiu + data;
        bytes + bytes.div_ceil(self.frame) * self.frame_overhead
    }
}

fn span(bytes: u64, rate: f64) -> Time {
    Time((bytes as f64 * 1e12 / rate + 0.5) as u64)
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct InterfaceReport {
    /// Bytes of requests that ended, a second of simulated time.
    pub bytes_per_s: f64,
    /// From a request to its end.
    pub requests: Distribution,
    /// Little's law over the requests.
    pub law: Law,
    /// What the time of commands is spent on.
    pub stages: Option<Split>,
    /// Share of the time in which the DMA engine was busy. None without one.
    pub dma_busy: Option<f64>,
    /// Share in which the link was busy, in the direction of the data. None without one.
    pub link_busy: Option<f64>,
    /// Share in which the processors were busy.
    pub processors_busy: f64,
    /// Bytes that crossed the DRAM bus for each byte asked for.
    pub bus_crossings: f64,
    /// The steps of the run's first command by their numbers in the protocol, and when each began.
    pub first_steps: Vec<(u8, f64)>,
    /// When the NAND was first asked for something, in nanoseconds. None where it never was.
    pub nand_began_ns: Option<f64>,
    /// Joules that the NAND has taken.
    pub energy_j: f64,
    /// Its mean power in watts: the energy over the time.
    pub power_w: f64,
    /// Simulated seconds of the measurement.
    pub simulated_s: f64,
    /// Commands and events of the whole run.
    pub counted: Counted,
    /// What a reader has to know.
    pub warnings: Vec<String>,
}

impl InterfaceReport {
    /// What a reader is shown.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![("MB/s", format!("{:.1}", self.bytes_per_s / 1e6))];
        times(&mut rows, ["requests", "mean us", "p50 us", "p99 us", "p99.99 us"], &self.requests);
        rows.extend(self.dma_busy.map(|share| ("DMA busy", percent(share))));
        rows.extend(self.link_busy.map(|share| ("link busy", percent(share))));
        rows.push(("processors busy", percent(self.processors_busy)));
        rows.push(("DRAM bus crossings", format!("{:.2}", self.bus_crossings)));
        rows.push(("NAND W", format!("{:.3}", self.power_w)));
        rows
    }
}

impl InterfaceSystem {
    /// Reads a system.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(document: &Document) -> Result<InterfaceSystem, SystemError> {
        let (nand, filled) = document.filled_nand()?;
        let transport = match document.word("device.interface", &[("dram", true), ("ufs", false)])? {
            true => Transport::Dram(Dma {
                setup: document.time("dma.setup")?,
                rate: document.rate("dma.rate")?,
                invalidate_rate: document.rate("host.invalidate")?,
            }),
            false => Transport::Ufs(Ufs::read(document)?),
        };
        let system = InterfaceSystem {
            threads: document.count("requests.threads", 1, 1024)? as u32,
            request: document.bytes("requests.size")?,
            writes: document.flag("requests.writes")?,
            warm_up: document.count("requests.warm_up", 0, 1 << 32)?,
            count: document.count("requests.count", 1, 1 << 32)?,
            buffer: document.bytes("device.buffer")?,
            split: document.bytes("driver.split")?,
            processors: document.count("host.processors", 1, 1024)? as u32,
            protocol: document.time("driver.protocol")?,
            firmware: document.time("device.firmware")?,
            random: document.word("requests.pattern", &[("sequential", false), ("random", true)])?,
            cached_writes: document.flag("device.cached_writes")?,
            bypass: document.flag("device.bypass")?,
            transport,
            nand,
            filled,
            explain: false,
            planted: Planted::None,
        };
        for (key, bytes) in
            [("requests.size", system.request), ("device.buffer", system.buffer), ("driver.split", system.split)]
        {
            if bytes == 0 || !bytes.is_multiple_of(SECTOR) || bytes > 1 << 30 {
                return Err(document.refuse(key, "sectors of 512 B are needed, at least one and at most 1G"));
            }
        }
        Ok(system)
    }
    pub(super) fn buffer_bytes(&self) -> u64 {
        if self.planted == Planted::EndlessBuffer { 1 << 26 } else { self.buffer }
    }
    pub(super) fn buffer_sectors(&self) -> u32 {
        (self.buffer_bytes() / SECTOR) as u32
    }
    /// The most bytes of a command.
    pub(super) fn command_bytes(&self) -> u64 {
        self.split.min(self.buffer_bytes())
    }
    /// A transfer alone with all that it needs: the engine and invalidation, or the link.
    pub fn moves(&self, bytes: u64) -> Time {
        match self.transport {
            Transport::Dram(dma) => dma.transfers(bytes, self.planted) + dma.invalidates(bytes, self.planted) * 2,
            Transport::Ufs(ufs) => {
                let rest = bytes % ufs.data;
                ufs.sends(ufs.data) * (bytes / ufs.data) + if rest > 0 { ufs.sends(rest) } else { Time::ZERO }
            }
        }
    }
}

impl Ufs {
    fn read(document: &Document) -> Result<Ufs, SystemError> {
        let lanes = document.count("link.lanes", 1, 16)? as f64;
        let (lane, code) = (document.frequency("link.lane")?, document.share("link.code")?);
        if code == 0.0 {
            return Err(document.refuse("link.code", "some of the bits are data"));
        }
        let bytes = |key: &str, least: u64, told: &str| {
            let bytes = document.bytes(key)?;
            if (least..=1 << 20).contains(&bytes) { Ok(bytes) } else { Err(document.refuse(key, told)) }
        };
        let ufs = Ufs {
            slots: document.count("controller.slots", 1, 1 << 16)? as u32,
            controller: document.time("controller.command")?,
            rate: lanes * lane * code / 8.0,
            frame: bytes("link.frame", 1, "1B to 1M are needed")?,
            frame_overhead: bytes("link.frame_overhead", 0, "at most 1M is needed")?,
            upiu: bytes("link.upiu", 1, "1B to 1M are needed")?,
            data: bytes("link.data", SECTOR, "512B to 1M are needed")?,
            transfers: document.count("device.transfers", 1, 255)? as u32,
        };
        // So that the times of requests of 1G are far within the clock's 213 days.
        let too_long = |bytes: u64| bytes as f64 / ufs.rate > 1.0;
        if too_long(ufs.upiu + ufs.data) {
            return Err(document.refuse("link.lane", "a UPIU with the most data takes more than a second"));
        }
        if too_long(ufs.on_link(ufs.data)) {
            let told = "with it, a UPIU with the most data takes more than a second";
            return Err(document.refuse("link.frame_overhead", told));
        }
        Ok(ufs)
    }
}
