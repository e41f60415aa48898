//! What such a system is, and how it is read.

use fulgurite_nand::Profile;
use fulgurite_policy::{PrefetchPolicy, ReplacementPolicy};

use super::device::RatedShape;
use super::energy::Energy;
use super::log::Log;
use crate::flash::Map;
use crate::planted::Planted;
use crate::system::{Document, SystemError};
use crate::time::Time;

/// Bytes of address space that are on one controller: NVMM's page.
pub const HOME_BYTES: u64 = 64 << 10;
/// NVMM's controllers that are not local: 20 bits of an address, all zeros and all ones excluded.
const CONTROLLERS_MAX: u64 = (1 << 20) - 2;
/// Bytes of a cache line: the least that an access moves.
pub const LINE: u64 = 64;

/// What threads do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Program {
    /// How many there are.
    pub threads: u32,
    /// Bytes of data.
    pub data: u64,
    /// Bytes of an object: what an access is for.
    pub object: u64,
    /// Objects that a thread takes in a row, from a multiple of them on: a file from its start. 1:
    /// each by itself.
    pub run: u64,
    /// The share of rows that are anywhere. The others are the thread's next one.
    pub random: f64,
    /// Zipf's exponent of those. 0: each object is as likely as another.
    pub skew: f64,
    /// The share of accesses that write.
    pub writes: f64,
    /// The share of accesses behind which the thread writes the page through the operating system,
    /// and waits until it is on the device. Memory that is not volatile has nothing to wait for.
    pub synced: f64,
    /// Computing before an access.
    pub work: Time,
    /// Accesses that fill DRAM first, without time.
    pub untimed: u64,
    /// Accesses that are not measured.
    pub warm_up: u64,
    /// Accesses that are.
    pub count: u64,
}

/// Where the operating system puts pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Slots {
    /// Where they are in the file, whose neighbours are neighbours in memory too.
    #[default]
    File,
    /// Swap: in the order in which they left, so that a fault's neighbours left together.
    Swap,
}

/// CPU times of a fault's parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SystemCosts {
    /// The trap, the walk, and finding what is mapped.
    pub fault: Time,
    /// What one fault does after another: under the lock of the map.
    pub locked: Time,
    /// File system, block layer and driver, for a request.
    pub submit: Time,
    /// Interrupt and completion, on the core that goes on with the thread.
    pub complete: Time,
    /// A context switch.
    pub switch: Time,
    /// Pages of an aligned group that a fault reads.
    pub cluster: u32,
    /// Where pages are.
    pub slots: Slots,
    /// Frames that are reclaimed at once when none is free, by the core that faults.
    pub batch: u32,
    /// Scanning and unmapping a page.
    pub reclaim: Time,
    /// Handing a page that was written to over to its device.
    pub swap_out: Time,
    /// Telling one other core to forget translations, and its answer. Once for each batch.
    pub shootdown: Time,
    /// What the other core loses by that.
    pub interrupted: Time,
}

/// What SSDAlloc's runtime keeps in DRAM, and reads at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Memory-page: whole pages.
    Page,
    /// Object-per-page: objects, some of which are in the page buffer.
    Object {
        /// Pages of the buffer. Each holds one object for the program to touch.
        buffer: u32,
    },
}

/// CPU times of SSDAlloc's runtime (its table "runtime overhead"), and its log.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RuntimeCosts {
    /// The unit.
    pub unit: Unit,
    /// The signal of an access to what is not mapped.
    pub signal: Time,
    /// Looking it up in the object table.
    pub table: Time,
    /// Mapping it.
    pub materialize: Time,
    /// Taking a mapping away.
    pub dematerialize: Time,
    /// Switching to another thread while the device reads, and back.
    pub switch: Time,
    /// The share of the log's segments that living data fill.
    pub full: f64,
    /// Pages of a segment.
    pub segment: u32,
}

/// How an access finds its data.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Backend {
    /// All of memory is of one kind.
    Flat {
        /// Time of a read.
        read: Time,
        /// Time of a write.
        write: Time,
    },
    /// NVMM's controllers.
    Controller {
        /// Looking a page up.
        lookup: Time,
        /// What is read ahead.
        prefetch: PrefetchPolicy,
    },
    /// The operating system.
    System(SystemCosts),
    /// SSDAlloc.
    Runtime(RuntimeCosts),
}

/// What is behind the DRAM.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum DeviceKind {
    /// NAND, and the share of it that is used.
    Nand(Profile, f64),
    /// A drive.
    Rated(RatedShape),
}

/// A program over a memory system.
#[derive(Clone, Debug)]
pub struct PagingSystem {
    /// What threads do.
    pub program: Program,
    /// Cores.
    pub cores: u32,
    /// Bytes of DRAM, of all controllers. With [`Backend::Flat`]: of all memory.
    pub dram: u64,
    /// Bytes of a page: 4, 8 or 16 KiB.
    pub page: u64,
    /// Time of an access to DRAM.
    pub access: Time,
    /// Which page is evicted.
    pub replacement: ReplacementPolicy,
    /// Memory controllers, each with its DRAM and device.
    pub controllers: u32,
    /// Pages of the evict buffer of each.
    pub buffer: u32,
    /// How an access finds its data.
    pub backend: Backend,
    /// None with [`Backend::Flat`].
    pub device: Option<DeviceKind>,
    /// What parts take.
    pub energy: Energy,
    /// Keeps what is needed to split percentiles.
    pub explain: bool,
    /// A bug, for the suite's tests.
    pub planted: Planted,
}

/// Frames that each thread must be able to have, in addition to what is read with a miss.
const FRAMES_OF_A_THREAD: u64 = 4;

impl PagingSystem {
    /// Reads a system.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(document: &Document) -> Result<PagingSystem, SystemError> {
        let count = |key: &str, high| document.count(key, 1, high);
        let kind = document.word("memory.kind", &[("flat", 0), ("controller", 1), ("system", 2), ("runtime", 3)])?;
        let program = read_program(document)?;
        let backend = match kind {
            0 => Backend::Flat { read: document.time("memory.read")?, write: document.time("memory.write")? },
            1 => Backend::Controller {
                lookup: document.time("controller.lookup")?,
                prefetch: document.prefetch("controller.prefetch")?,
            },
            2 => Backend::System(read_system(document)?),
            _ => Backend::Runtime(read_runtime(document)?),
        };
        let mut system = PagingSystem {
            program,
            cores: count("system.cores", 1 << 12)? as u32,
            dram: program.data,
            page: HOME_BYTES,
            access: Time::ZERO,
            replacement: ReplacementPolicy::default(),
            controllers: 1,
            buffer: 0,
            backend,
            device: None,
            energy: Energy::read(document, kind != 0, kind != 0 && document.text("device.kind")? == "drive")?,
            explain: false,
            planted: Planted::None,
        };
        if let Backend::Flat { .. } | Backend::Controller { .. } = backend
            && program.threads > system.cores
        {
            let told = format!("a core waits with its thread here: at most {}", system.cores);
            return Err(document.refuse("program.threads", told));
        }
        if let Backend::Flat { .. } = backend {
            return Ok(system);
        }
        system.dram = document.bytes("memory.dram")?;
        system.page = match document.bytes("memory.page")? {
            page @ (4096 | 8192 | 16_384) => page,
            _ => return Err(document.refuse("memory.page", "write \"4K\", \"8K\" or \"16K\"")),
        };
        if !system.page.is_multiple_of(program.object) {
            return Err(document.refuse("program.object", "a page must be whole objects"));
        }
        system.access = document.time("memory.access")?;
        system.replacement =
            document.word("memory.replacement", &ReplacementPolicy::ALL.map(|policy| (policy.name(), policy)))?;
        system.buffer = count("memory.buffer", 1 << 20)? as u32;
        if let Backend::Controller { .. } = backend {
            system.controllers = count("controller.count", CONTROLLERS_MAX)? as u32;
        }
        system.device = Some(system.read_device(document)?);
        system.check(document)?;
        Ok(system)
    }
    fn read_device(&self, document: &Document) -> Result<DeviceKind, SystemError> {
        if document.word("device.kind", &[("nand", false), ("drive", true)])? {
            let rate = |key: &str| document.number(key, 0.1, 1e9);
            return Ok(DeviceKind::Rated(RatedShape {
                read: document.time("device.read")?,
                write: document.time("device.write")?,
                planes: document.count("device.planes", 1, 1 << 20)? as u32,
                reads_per_s: rate("device.reads")?,
                writes_per_s: rate("device.writes")?,
                read_rate: document.rate("device.read_rate")?,
                write_rate: document.rate("device.write_rate")?,
            }));
        }
        let (nand, filled) = document.filled_nand()?;
        let of_nand = u64::from(nand.geometry.page_bytes());
        if !self.page.is_multiple_of(of_nand) {
            return Err(
                document.impossible("memory.page", format!("a page must be whole pages of NAND, of {of_nand} B"))
            );
        }
        let pages = Map::new(nand.geometry, filled).map_or(0, |map| map.pages());
        let needed = self.pages_needed() * (self.page / of_nand);
        if needed > pages {
            let told = format!(
                "the flash of a controller holds {} B in {:.1}% of it, and {} B are needed",
                pages * of_nand,
                filled * 100.0,
                needed * of_nand
            );
            return Err(document.refuse("program.data", told));
        }
        Ok(DeviceKind::Nand(nand, filled))
    }
    fn check(&self, document: &Document) -> Result<(), SystemError> {
        let with_a_miss = match self.backend {
            Backend::System(costs) => u64::from(costs.cluster) + u64::from(costs.batch),
            Backend::Controller { .. } => 17,
            Backend::Runtime(_) | Backend::Flat { .. } => 1,
        };
        let least = u64::from(self.program.threads) * (FRAMES_OF_A_THREAD + with_a_miss) + 1;
        let frames = self.frames();
        if frames < least {
            let told =
                format!("{least} frames are needed for this number of threads, of each controller; it has {frames}");
            return Err(document.refuse("memory.dram", told));
        }
        if self.units() >= 1 << 31 || frames >= 1 << 30 {
            return Err(document.refuse("program.data", "at most 2^31 pages or objects"));
        }
        Ok(())
    }

    /// Bytes of what is cached and read at once.
    pub fn unit(&self) -> u64 {
        match self.backend {
            Backend::Runtime(RuntimeCosts { unit: Unit::Object { .. }, .. }) => self.program.object,
            _ => self.page,
        }
    }
    /// Frames of each controller.
    pub(super) fn frames(&self) -> u64 {
        let kept = match self.backend {
            Backend::Runtime(RuntimeCosts { unit: Unit::Object { buffer }, .. }) => u64::from(buffer) * self.page,
            _ => 0,
        };
        self.dram.saturating_sub(kept) / u64::from(self.controllers) / self.unit()
    }
    /// Units of each controller.
    pub(super) fn units(&self) -> u64 {
        let homes = self.program.data.div_ceil(HOME_BYTES).div_ceil(u64::from(self.controllers));
        homes * (HOME_BYTES / self.unit())
    }
    /// Pages of each device.
    fn pages_needed(&self) -> u64 {
        match self.backend {
            Backend::Runtime(costs) => self.new_log(costs).pages(),
            Backend::System(costs) if costs.slots == Slots::Swap => swap_slots(self.units()),
            _ => self.units(),
        }
    }
    /// Pages of the evict buffer of each controller.
    pub(super) fn buffer(&self) -> u32 {
        if self.planted == Planted::EndlessBuffer { u32::MAX } else { self.buffer }
    }
    /// A look-up in SSDAlloc's object table.
    pub(super) fn table(&self, costs: RuntimeCosts) -> Time {
        if self.planted == Planted::FreeTable { Time::ZERO } else { costs.table }
    }
    pub(super) fn new_log(&self, costs: RuntimeCosts) -> Log {
        Log::new(self.units() as u32, (self.page / self.unit()) as u32, costs.segment, costs.full)
    }
}

/// Slots of swap for `pages` pages: an eighth more, as a page keeps its slot until it is written
/// again.
pub(super) fn swap_slots(pages: u64) -> u64 {
    pages + pages / 8 + 64
}

fn read_program(document: &Document) -> Result<Program, SystemError> {
    let (data, object) = (document.bytes("program.data")?, document.bytes("program.object")?);
    if !(1 << 20..=1 << 44).contains(&data) || !data.is_multiple_of(HOME_BYTES) {
        return Err(document.refuse("program.data", "1M to 16T are needed, in whole 64K"));
    }
    if !object.is_power_of_two() || !(8..=HOME_BYTES).contains(&object) {
        return Err(document.refuse("program.object", "a power of two from 8B to 64K is needed"));
    }
    Ok(Program {
        threads: document.count("program.threads", 1, 1 << 16)? as u32,
        data,
        object,
        run: document.count("program.run", 1, data / object)?,
        random: document.share("program.random")?,
        skew: document.number("program.skew", 0.0, 4.0)?,
        writes: document.share("program.writes")?,
        synced: document.share("program.synced")?,
        work: document.time("program.work")?,
        untimed: document.count("program.untimed", 0, 1 << 40)?,
        warm_up: document.count("program.warm_up", 0, 1 << 40)?,
        count: document.count("program.count", 1, 1 << 40)?,
    })
}

fn read_system(document: &Document) -> Result<SystemCosts, SystemError> {
    let time = |key: &str| document.time(key);
    let cluster = document.count("os.cluster", 1, 512)? as u32;
    if !cluster.is_power_of_two() {
        return Err(document.refuse("os.cluster", "a power of two is needed"));
    }
    Ok(SystemCosts {
        fault: time("os.fault")?,
        locked: time("os.locked")?,
        submit: time("os.submit")?,
        complete: time("os.complete")?,
        switch: time("os.switch")?,
        cluster,
        slots: document.word("os.slots", &[("file", Slots::File), ("swap", Slots::Swap)])?,
        batch: document.count("os.batch", 1, 512)? as u32,
        reclaim: time("os.reclaim")?,
        swap_out: time("os.swap_out")?,
        shootdown: time("os.shootdown")?,
        interrupted: time("os.interrupted")?,
    })
}

fn read_runtime(document: &Document) -> Result<RuntimeCosts, SystemError> {
    let time = |key: &str| document.time(key);
    let unit = match document.word("runtime.unit", &[("page", false), ("object", true)])? {
        false => Unit::Page,
        true => Unit::Object { buffer: document.count("runtime.buffer", 8, 1 << 24)? as u32 },
    };
    let full = document.share("runtime.full")?;
    if !(0.01..=0.95).contains(&full) {
        return Err(document.refuse("runtime.full", "write \"1%\" to \"95%\": cleaning needs some room"));
    }
    Ok(RuntimeCosts {
        unit,
        signal: time("runtime.signal")?,
        table: time("runtime.table")?,
        materialize: time("runtime.materialize")?,
        dematerialize: time("runtime.dematerialize")?,
        switch: time("runtime.switch")?,
        full,
        segment: document.count("runtime.segment", 1, 1 << 16)? as u32,
    })
}
