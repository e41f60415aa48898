//! The backends that use an SSD as memory, on each SSD, by `sim::paging`.
//!
//! | backend | DRAM holds | a changed entry that is evicted |
//! |---|---|---|
//! | objects | objects | an object, to a log |
//! | pages | pages | a page, to a log |
//! | logged swap | pages | a page, to a log, and misses are the operating system's faults |
//! | swap | pages | a page, in place |
//!
//! An SSD is what its data sheet says. More threads run than it has channels, so that it decides.

use fulgurite_policy::ReplacementPolicy;
use fulgurite_sim::Time;
use fulgurite_sim::paging::{
    Backend, DeviceKind, PagingSystem, Program, RatedShape, RuntimeCosts, Slots, SystemCosts, Unit,
};

use crate::check::{CheckError, Inputs};
use crate::models::Planted;
use crate::models::paging::{Outcome, PLAIN, base, run};
use crate::models::written::written_for_each_byte;
use crate::units::Dimension;

/// Objects of the programs: their data is scaled, and DRAM with it.
const OBJECTS: u64 = 1 << 18;
/// Accesses that fill DRAM and age the log, and accesses of a run that is reported.
const UNTIMED: u64 = 500_000;
const ACCESSES: u64 = 100_000;
/// The least of both: the log has begun to be cleaned.
const UNTIMED_LEAST: u64 = 250_000;
const ACCESSES_LEAST: u64 = 10_000;
/// Pages of a segment of the log: cleaned at once.
const SEGMENT: u32 = 64;
/// The fullest log that is of use.
const FULLEST: f64 = 0.95;
/// Linux's SWAP_CLUSTER_MAX. It costs nothing of its own: `swap.fault` is a whole fault.
const RECLAIMED_AT_ONCE: u32 = 32;

/// What came of a program over one backend.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Accesses a second.
    pub rate: f64,
    /// Misses for each access.
    pub misses: f64,
    /// Bytes that the SSD was asked to write, for each access.
    pub written: f64,
    /// The share of the SSD's raw random reads that a program gets: one for each miss.
    pub of_raw: f64,
}

/// A program, and what the backends have in common.
pub struct Backends<'i> {
    inputs: &'i Inputs<'i>,
    program: Program,
    dram: u64,
    page: u64,
}

/// The SSDs of the calibration whose data sheets say what is needed.
pub fn ssds(inputs: &Inputs<'_>) -> Result<Vec<RatedShape>, CheckError> {
    let count = inputs.text("ssd.names")?.split(", ").count();
    let reads = inputs.numbers("ssd.reads", Dimension::Frequency)?;
    let writes = inputs.numbers("ssd.writes", Dimension::Frequency)?;
    let logs = inputs.numbers("ssd.sequential_writes", Dimension::Rate)?;
    let streams = inputs.numbers("ssd.sequential_reads", Dimension::Rate)?;
    let (read, write) =
        (inputs.numbers("ssd.read_latency", Dimension::Time)?, inputs.numbers("ssd.write_latency", Dimension::Time)?);
    let channels = inputs.numbers("ssd.channels", Dimension::Count)?;
    let told = [&reads, &writes, &logs, &streams, &read, &write, &channels];
    if told.iter().any(|numbers| numbers.len() != count) {
        return Err(CheckError::no_answer("each SSD needs its reads and writes, random and sequential"));
    }
    let of = |at: usize| RatedShape {
        read: Time(read[at] as u64),
        write: Time(write[at] as u64),
        planes: (channels[at] + 0.5) as u32,
        reads_per_s: reads[at],
        writes_per_s: writes[at],
        read_rate: streams[at],
        write_rate: logs[at],
    };
    Ok((0..count).map(of).collect())
}

/// Bytes that the store writes for each byte of an object, packed with others.
pub fn packed(inputs: &Inputs<'_>) -> Result<f64, CheckError> {
    let packs = inputs.planted != Some(Planted::Unpacked);
    let object = inputs.bytes("object.size")? as usize;
    written_for_each_byte(object, packs, inputs.share("log.full")?).map_err(CheckError::NoAnswer)
}

impl<'i> Backends<'i> {
    /// Of a program: DRAM as a share of the data, the share of accesses that write, and Zipf's
    /// exponent.
    pub fn of(inputs: &'i Inputs<'i>, in_dram: f64, writes: f64, skew: f64) -> Result<Backends<'i>, CheckError> {
        // Whole pages of whole objects.
        let power =
            |name: &str| -> Result<u64, CheckError> { Ok((inputs.bytes(name)? as u64).max(8).next_power_of_two()) };
        let (page, object) = (power("page.size")?, power("object.size")?);
        let data = OBJECTS * object;
        let program = Program {
            threads: inputs.count("programs.threads")? as u32,
            data,
            object,
            skew,
            writes,
            untimed: inputs.volume(UNTIMED).max(UNTIMED_LEAST),
            count: inputs.volume(ACCESSES).max(ACCESSES_LEAST),
            ..PLAIN
        };
        Ok(Backends { inputs, program, dram: (data as f64 * in_dram) as u64 / page * page, page })
    }
    fn run(&self, ssd: &RatedShape, backend: Backend, replacement: ReplacementPolicy) -> Result<Found, CheckError> {
        let system = PagingSystem {
            cores: self.inputs.count("programs.cores")? as u32,
            dram: self.dram,
            page: self.page,
            replacement,
            device: Some(DeviceKind::Rated(*ssd)),
            ..base(self.program, backend)
        };
        let Outcome { rate, miss_ratio, written, .. } = run(&system, self.inputs.seed)?;
        let of_raw = rate * miss_ratio / ssd.reads_per_s;
        Ok(Found { rate, misses: miss_ratio, written, of_raw })
    }
    /// A log of whole pages or of objects. `signal`: until the miss is known.
    fn logged(&self, unit: Unit, signal: Time) -> Result<RuntimeCosts, CheckError> {
        let [_, table, materialize, dematerialize, _] = self.inputs.exactly("overhead.parts", Dimension::Time)?;
        Ok(RuntimeCosts {
            unit,
            signal,
            table: Time(table as u64),
            materialize: Time(materialize as u64),
            dematerialize: Time(dematerialize as u64),
            switch: self.inputs.time("runtime.switch")?,
            full: self.inputs.share("log.full")?.min(FULLEST),
            segment: SEGMENT,
        })
    }
    fn signal(&self) -> Result<Time, CheckError> {
        let [miss, .., signal] = self.inputs.exactly::<5>("overhead.parts", Dimension::Time)?;
        Ok(Time((miss + signal) as u64))
    }
    /// A page for each object, over a cache of objects and a log of them. Without packing, each
    /// object takes a page of the log.
    pub fn objects(&self, ssd: &RatedShape) -> Result<Found, CheckError> {
        if self.inputs.planted == Some(Planted::Unpacked) {
            return self.pages(ssd);
        }
        let pages = (self.dram / self.page) as f64;
        let buffer = (pages * self.inputs.share("runtime.buffer")?).max(8.0) as u32;
        let costs = self.logged(Unit::Object { buffer }, self.signal()?)?;
        self.run(ssd, Backend::Runtime(costs), ReplacementPolicy::S3Fifo)
    }
    /// Pages, over a log of pages.
    pub fn pages(&self, ssd: &RatedShape) -> Result<Found, CheckError> {
        let costs = self.logged(Unit::Page, self.signal()?)?;
        self.run(ssd, Backend::Runtime(costs), ReplacementPolicy::S3Fifo)
    }
    /// A pager of the operating system that writes to a log.
    pub fn logged_swap(&self, ssd: &RatedShape) -> Result<Found, CheckError> {
        let fault = self.inputs.time("swap.fault")?;
        let costs = RuntimeCosts {
            table: Time::ZERO,
            materialize: Time::ZERO,
            dematerialize: Time::ZERO,
            switch: Time::ZERO,
            ..self.logged(Unit::Page, fault)?
        };
        self.run(ssd, Backend::Runtime(costs), ReplacementPolicy::Clock)
    }
    /// Swap, in place, by a pager that was made for disks: it also reads the neighbours of the page
    /// that is missed, which are of no use to random accesses.
    pub fn swap(&self, ssd: &RatedShape) -> Result<Found, CheckError> {
        self.swap_of(ssd, self.inputs.count("swap.around")? as u32)
    }
    /// Swap, if it read the page that is missed alone.
    pub fn swap_of_one(&self, ssd: &RatedShape) -> Result<Found, CheckError> {
        self.swap_of(ssd, 1)
    }
    fn swap_of(&self, ssd: &RatedShape, cluster: u32) -> Result<Found, CheckError> {
        let costs = SystemCosts {
            fault: self.inputs.time("swap.fault")?,
            cluster,
            slots: Slots::Swap,
            batch: RECLAIMED_AT_ONCE,
            ..SystemCosts::default()
        };
        self.run(ssd, Backend::System(costs), ReplacementPolicy::Clock)
    }
}
