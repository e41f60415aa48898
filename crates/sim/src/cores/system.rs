//! What a system of cores is, and how it is read.

use std::ops::Range;
use std::sync::Arc;

use fulgurite_format::format_bytes;
use fulgurite_nand::Profile;
use fulgurite_policy::SchedulingPolicy;

use super::recording::{INSTRUCTIONS, OWN, Origin, Recording};
use super::traced::Traced;
use super::work::{BLOCK, PAGE, Shape, Workload};
use crate::energy::DramEnergy;
use crate::memory::{CacheShape, DramTiming};
use crate::planted::Planted;
use crate::system::{Document, SystemError};
use crate::time::Time;
use crate::trace::Trace;

/// The most bytes of all L1s, and of all tiles of the LLC. A block's tag and time take 16 bytes.
const CACHE_MAX: u64 = 1 << 32;

fn link(document: &Document) -> Result<u64, SystemError> {
    let bytes = document.bytes("mesh.link")?;
    if bytes <= 1 << 12 { Ok(bytes) } else { Err(document.refuse("mesh.link", "4K is the most; 0B is no limit")) }
}

/// What happens at a page that is not in DRAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paging {
    /// All pages are in DRAM, which has no tags.
    DramOnly,
    /// The handler switches threads.
    Switch {
        /// What it takes.
        cost: Time,
        /// Which thread is next.
        policy: SchedulingPolicy,
        /// Threads that may wait at once.
        threads: u32,
    },
    /// The operating system reads the page and switches. DRAM has no tags.
    System {
        /// The fault, with its way through the storage stack.
        fault: Time,
        /// The context switch.
        cost: Time,
        /// Threads that may wait at once.
        threads: u32,
    },
    /// The core waits. DRAM has no tags.
    Wait,
}

/// The front that needs no workload.
const TRACED: &str = "traced";
const MODELLED: &str = "modelled";
const RECORDED: &str = "recorded";

/// Where the work of threads comes from.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Front {
    /// Streams of addresses without data.
    #[default]
    Modelled,
    /// Crate `workloads`, over data as large as the system says.
    Executed {
        /// Instructions between two accesses.
        instructions: u32,
        /// Blocks of the thread's own between them.
        own: u32,
    },
    /// The jobs of another run.
    Recorded(Arc<Recording>),
    /// The accesses of a trace.
    Traced(Arc<Traced>),
}

impl Front {
    /// Reads it for a system, with the recording or the trace that this is given. A recording of an
    /// executed workload has the keys of that, too.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(
        document: &Document,
        system: &CoresSystem,
        recording: Option<&Arc<Recording>>,
        trace: Option<&Trace>,
    ) -> Result<Front, SystemError> {
        let executed = || {
            let count = |key, of: &Range<u32>| document.count(key, u64::from(of.start), u64::from(of.end) - 1);
            let instructions = count("workload.instructions", &INSTRUCTIONS)? as u32;
            Ok::<_, SystemError>((instructions, count("workload.own", &OWN)? as u32))
        };
        let key = "workload.front";
        let fronts = [(MODELLED, 0), ("executed", 1), (RECORDED, 2), (TRACED, 3)];
        match (document.word(key, &fronts)?, recording, trace) {
            (2, None, _) => Err(document.refuse(key, "give the recording with --trace")),
            (3, _, None) => Err(document.refuse(key, "give the trace's file with --trace")),
            (3, _, Some(trace)) => {
                let core = (system.parts.cycle, system.parts.per_cycle);
                Ok(Front::Traced(Arc::new(Traced::read(document, trace, system.pages, core)?)))
            }
            (2, Some(recording), _) => {
                if let Some((instructions, own)) = recording.origin().executed {
                    let here = executed()?;
                    for (key, here, there) in
                        [("workload.instructions", here.0, instructions), ("workload.own", here.1, own)]
                    {
                        if here != there {
                            return Err(document.refuse(key, format!("the recording has {there}")));
                        }
                    }
                }
                Ok(Front::Recorded(recording.clone()))
            }
            (_, Some(_), _) => Err(document.refuse(key, "write \"recorded\" to replay the recording that is given")),
            (_, _, Some(_)) => Err(document.refuse(key, "write \"traced\" to run the trace that is given")),
            (0, None, None) => Ok(Front::Modelled),
            (_, None, None) => executed().map(|(instructions, own)| Front::Executed { instructions, own }),
        }
    }
}

/// What an operation of a workload is like, of all for which the system says it. So `workload.name`
/// can be another one's.
fn shape(document: &Document, workload: Workload, front: &str) -> Result<Option<Shape>, SystemError> {
    let mut own = None;
    for of in Workload::ALL {
        let shape = Shape::read(document, of)?;
        if of == workload {
            own = shape;
        }
    }
    if own.is_none() && front == MODELLED {
        // An error of the key that is missing.
        document.number(&format!("workload.shapes.{}.operations", workload.name()), 1.0, 1.0)?;
    }
    Ok(own)
}

/// A core and the caches on the chip.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CoreParts {
    /// A cycle.
    pub cycle: Time,
    /// Instructions that retire in a cycle as long as no load is late.
    pub per_cycle: f64,
    /// Instructions behind the oldest load that is late.
    pub reorder_buffer: u64,
    /// Stores that have retired and not ended.
    pub store_buffer: usize,
    /// Cycles until the first instruction after a flush retires.
    pub front_end: u64,
    /// Loads that may have missed the L1 at once.
    pub mshrs: usize,
    /// Entries and ways of both TLBs.
    pub tlb: [(u64, u64); 2],
    /// Cycles of the second TLB.
    pub tlb_cycles: u64,
    /// Bytes, ways and cycles of the L1.
    pub l1: (u64, u64, u64),
    /// Bytes of each tile, ways and cycles of the LLC.
    pub llc: (u64, u64, u64),
    /// Cycles of a look-up in the directory of a tile.
    pub directory: u64,
    /// Cycles of a hop on the mesh.
    pub hop: u64,
    /// Tiles in a row of the mesh.
    pub row: u32,
    /// Bytes that a link carries in a cycle. 0: any number, in no time.
    pub link: u64,
}

/// Cores over DRAM over flash.
#[derive(Clone, Debug)]
pub struct CoresSystem {
    /// How many.
    pub cores: u32,
    /// Of each.
    pub parts: CoreParts,
    /// Memory controllers.
    pub controllers: u32,
    /// Each one's cache.
    pub cache: CacheShape,
    /// The flash. Where all pages are in DRAM, there may be none.
    pub flash: Option<Profile>,
    /// The share of it that is used.
    pub filled: f64,
    /// What DRAM takes.
    pub energy: DramEnergy,
    /// Pages of data: a power of two.
    pub pages: u64,
    /// Page tables are in flash, and DRAM caches them like data (AstriFlash-noDP).
    pub cached_tables: bool,
    /// What the threads do. A trace does not read it.
    pub workload: Workload,
    /// What an operation of it is like. None: it is not modelled.
    pub shape: Option<Shape>,
    /// Zipf's exponent of the records. A trace does not read it.
    pub exponent: f64,
    /// At a page that is not in DRAM.
    pub paging: Paging,
    /// Jobs that run first.
    pub warm_up: u64,
    /// Jobs that are measured.
    pub jobs: u64,
    /// A bug, for the tests of the suite.
    pub planted: Planted,
}

impl CoresSystem {
    /// Reads a system.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(document: &Document) -> Result<CoresSystem, SystemError> {
        let cycle = Time((1e12 / document.frequency("core.clock")? + 0.5) as u64);
        let cycles = |key: &str| document.count(key, 0, 1 << 20);
        let time = |key: &str| Ok::<Time, SystemError>(cycle * cycles(key)?);
        let entries = |key: &str| document.count(key, 1, 1 << 20);
        let cores = document.count("system.cores", 1, 1024)? as u32;
        let cached = |name: &str| -> Result<(u64, u64, u64), SystemError> {
            let (size, ways) = (document.bytes(&format!("{name}.size"))?, entries(&format!("{name}.ways"))?);
            if size < BLOCK * ways || size > CACHE_MAX / u64::from(cores) {
                let told = "a block of 64 B in each way is needed, and 4G on all cores is the most";
                return Err(document.refuse(&format!("{name}.size"), told));
            }
            Ok((size, ways, cycles(&format!("{name}.latency"))?))
        };
        let parts = CoreParts {
            cycle,
            per_cycle: document.number("core.per_cycle", 0.01, 64.0)?,
            reorder_buffer: entries("core.reorder_buffer")?,
            store_buffer: entries("core.store_buffer")? as usize,
            front_end: cycles("core.front_end")?,
            mshrs: entries("core.mshrs")? as usize,
            tlb: [
                (entries("tlb.first")?, document.count("tlb.first", 1, 1 << 20)?),
                (entries("tlb.second")?, document.count("tlb.ways", 1, 1 << 10)?),
            ],
            tlb_cycles: cycles("tlb.latency")?,
            l1: cached("l1")?,
            llc: cached("llc")?,
            directory: cycles("directory.lookup")?,
            hop: cycles("mesh.hop")?,
            row: document.count("mesh.row", 1, 1024)? as u32,
            link: link(document)?,
        };
        let timing = DramTiming {
            command: time("dram.command")?,
            open: time("dram.open")?,
            close: time("dram.close")?,
            column: time("dram.column")?,
            refresh_every: document.time("dram.refresh_every")?,
            refresh: document.command_time("dram.refresh")?,
        };
        if timing.refresh >= timing.refresh_every && timing.refresh_every > Time::ZERO {
            return Err(document.refuse("dram.refresh", "it must be shorter than dram.refresh_every"));
        }
        let paging =
            match document.word("system.paging", &[("dram-only", 0), ("switch", 1), ("system", 2), ("wait", 3)])? {
                0 => Paging::DramOnly,
                1 => Paging::Switch {
                    cost: document.time("threads.switch")?,
                    policy: document
                        .word("threads.policy", &SchedulingPolicy::ALL.map(|policy| (policy.name(), policy)))?,
                    threads: document.count("threads.count", 1, 4096)? as u32,
                },
                2 => Paging::System {
                    fault: document.time("threads.fault")?,
                    cost: document.time("threads.switch")?,
                    threads: document.count("threads.count", 1, 4096)? as u32,
                },
                _ => Paging::Wait,
            };
        // Tags and the miss status row are AstriFlash's.
        let switches = matches!(paging, Paging::Switch { .. });
        let cache = CacheShape {
            sets: document.count("cache.sets", 1, 1 << 24)? as u32,
            ways: document.count("cache.ways", 1, 64)? as u32,
            page_bytes: PAGE,
            status_entries: if switches { document.count("cache.status_entries", 8, 1 << 20)? as u32 } else { 8 },
            banks: document.count("dram.banks", 1, 1 << 12)? as u32,
            timing,
            backside_command: if switches { time("cache.backside_command")? } else { Time::ZERO },
            queue: if switches { document.count("cache.queue", 1, 1 << 20)? as u32 } else { 1 },
            evict_pages: if switches { document.count("cache.evict_pages", 1, 1 << 20)? as u32 } else { 1 },
        };
        let pages = document.bytes("workload.data")? / PAGE;
        if !pages.is_power_of_two() || !(1 << 10..=1 << 28).contains(&pages) {
            return Err(document.refuse("workload.data", "a power of two from 4M to 1T is needed"));
        }
        let (flash, filled) = match paging {
            Paging::DramOnly => (None, 0.0),
            _ => {
                let (flash, filled) = document.filled_nand()?;
                if u64::from(flash.geometry.page_bytes()) != PAGE {
                    return Err(document.impossible("nand.geometry.page", "pages of NAND must be of 4K here"));
                }
                (Some(flash), filled)
            }
        };
        // The keys of a workload are none of a system that runs a trace.
        let front = document.text("workload.front")?;
        let (workload, exponent) = if front == TRACED {
            (Workload::ArraySwap, 1.0)
        } else {
            let names = Workload::ALL.map(|workload| (workload.name(), workload));
            (document.word("workload.name", &names)?, document.number("workload.exponent", 0.1, 4.0)?)
        };
        let shape = if matches!(front, MODELLED | RECORDED) { shape(document, workload, front)? } else { None };
        Ok(CoresSystem {
            cores,
            parts,
            controllers: document.count("cache.controllers", 1, 64)? as u32,
            cache,
            flash,
            filled,
            energy: DramEnergy::read(document)?,
            pages,
            cached_tables: document.word("dram.tables", &[("flat", false), ("cached", true)])?,
            workload,
            shape,
            exponent,
            paging,
            warm_up: document.count("run.warm_up", 1, 1 << 40)?,
            jobs: document.count("run.jobs", 1, 1 << 40)?,
            planted: Planted::None,
        })
    }
    /// Why a recording cannot be replayed here: the key, and what it would have to be. None: it
    /// can.
    fn misfit(&self, recording: &Recording) -> Option<(&'static str, String)> {
        let Origin { workload, exponent, pages, executed, frames, .. } = *recording.origin();
        if executed.is_none() && self.shape.is_none() {
            return Some(("workload.front", format!("workload.shapes of {} are needed", workload.name())));
        }
        if workload != self.workload {
            return Some(("workload.name", format!("the recording is of {}", workload.name())));
        }
        if pages != self.pages {
            return Some(("workload.data", format!("the recording is of {}", format_bytes(pages * PAGE))));
        }
        if exponent != self.exponent {
            return Some(("workload.exponent", format!("the recording has {exponent}")));
        }
        let (jobs, begin) = (recording.jobs(), self.jobs_begun());
        if jobs < begin {
            let told = format!(
                "the recording ends before the run: it has {jobs} jobs, and up to {begin} begin here, on {} threads",
                u64::from(self.cores) * u64::from(self.threads())
            );
            return Some(("run.jobs", told));
        }
        let here = self.frames();
        if executed.is_some() && self.paging != Paging::DramOnly && frames < here {
            let told = format!("the recording warms up {frames} pages of DRAM, and there are {here}");
            return Some(("cache.sets", told));
        }
        None
    }
    /// Why what a front is given cannot be run here: the key, and what it would have to be. None:
    /// it can, or the front is given nothing.
    pub fn refuses(&self, front: &Front) -> Option<(&'static str, String)> {
        match front {
            Front::Recorded(recording) => self.misfit(recording),
            Front::Traced(traced) => {
                let threads = u64::from(self.cores) * u64::from(self.threads());
                traced.misfit(self.pages, self.jobs_begun(), threads)
            }
            Front::Modelled if self.shape.is_none() => Some(("workload.shapes", self.workload.name().to_owned())),
            Front::Modelled | Front::Executed { .. } => None,
        }
    }
    /// The most jobs that begin in a run.
    pub(super) fn jobs_begun(&self) -> u64 {
        self.warm_up + self.jobs + u64::from(self.cores) * u64::from(self.threads())
    }
    /// Bytes of DRAM: of the caches, or of all data.
    pub(super) fn dram_bytes(&self) -> u64 {
        let pages = if self.paging == Paging::DramOnly { self.pages } else { self.frames() };
        pages * PAGE
    }
    /// Pages of DRAM.
    pub(super) fn frames(&self) -> u64 {
        u64::from(self.cache.sets) * u64::from(self.cache.ways) * u64::from(self.controllers)
    }
    pub(super) fn threads(&self) -> u32 {
        match self.paging {
            // One more runs.
            Paging::Switch { threads, .. } | Paging::System { threads, .. } => threads + 1,
            Paging::DramOnly | Paging::Wait => 1,
        }
    }
    pub(super) fn switch_cost(&self) -> Time {
        match self.paging {
            Paging::Switch { cost, .. } | Paging::System { cost, .. } => cost,
            Paging::DramOnly | Paging::Wait => Time::ZERO,
        }
    }
}
