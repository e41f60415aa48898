//! Messages of the program and a process under measurement: JSON lines, each answered.

use std::path::PathBuf;

use fulgurite_term::media::nand::NandSpec;
use serde::{Deserialize, Serialize};

use crate::values::Config;
use fulgurite_term::media::NandCounts;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Take hold of the data and open the workload in it. First of all, once.
    Open(Box<Spec>),
    /// Open the workload again, with keys drawn with this Zipf exponent.
    Zipf(f64),
    Run(Batch),
    /// Walk the data, check every invariant.
    Check,
    /// How many requests a second the device itself completes. Leaves the data as it is.
    Device {
        read_share: f64,
        depth: usize,
        ms: u64,
    },
    /// A span of nanoseconds measured: how long `iterations` of added work take. For calibration.
    TimeWork {
        iterations: u64,
    },
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spec {
    pub config: Config,
    pub workload: String,
    pub data_bytes: u64,
    /// Bytes of its region, which starts at address 0.
    pub region_bytes: u64,
    pub zipf: f64,
    pub seed: u64,
    /// Directory of text that it was built from.
    pub input: Option<PathBuf>,
    /// Of blobs: bytes of a value, where all have as many.
    pub value_bytes: Option<u32>,
    /// Requests that only read, of 100, where another share than the workload's was asked for.
    pub gets: Option<u32>,
    pub data: DataSource,
    /// For a pool there: what it is filled with.
    pub pool: Option<PoolSpec>,
    pub cores: Vec<usize>,
    pub device_core: Option<usize>,
    /// Threads that execute requests, on the workers' cores (plain memory).
    pub threads: usize,
    /// How the guarded path is set up.
    pub guarded: Guarded,
}

/// A pool that is made for a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PoolSpec {
    pub image: PathBuf,
    pub flash_pages: u32,
    pub create: bool,
    pub unchecked: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Guarded {
    /// The runtime's DRAM: the budget, less what the workload itself uses.
    pub dram_bytes: u64,
    pub fibers: usize,
}

/// Where a configuration's data comes from and is stored.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DataSource {
    /// Anonymous memory, filled from the image.
    Anonymous {
        image: PathBuf,
        /// In huge pages or base pages.
        huge: bool,
    },
    Mapped {
        file: PathBuf,
    },
    /// An emulated device over this memory, written from the image.
    Emulated {
        storage: PathBuf,
        read_ns: u64,
        write_ns: u64,
        planes: usize,
    },
    /// Plain memory as flash: completes at once.
    Memory {
        storage: PathBuf,
    },
    /// A device of Fulgurite's over this memory, filled by the process itself.
    Nand(NandSpec),
    /// A device in another process, filled from the image.
    Device {
        socket: PathBuf,
        frames: bool,
        /// The part of it that is this process's: its first subpage, and how many. None: all of it.
        part: Option<(u32, u32)>,
        image: PathBuf,
    },
    /// A file or block device as flash, written from the image.
    File {
        path: PathBuf,
    },
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Batch {
    pub seed: u64,
    pub first: u64,
    pub count: u64,
    /// Transactions of the workload that make up a request, one after the other.
    pub transactions: u64,
    /// Iterations of added work in each transaction.
    pub work_iterations: u64,
    pub load: Load,
}

impl Batch {
    /// The numbers of the transactions of the request `offset` after the first.
    pub fn transactions_of(&self, offset: u64) -> std::ops::Range<u64> {
        let first = (self.first + offset) * self.transactions;
        first..first + self.transactions
    }
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Load {
    /// The next when there is somebody to take it.
    Closed,
    /// By themselves, independently of each other (Poisson); latency counts from then.
    Poisson {
        /// Mean rate, over all workers.
        per_second: f64,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Opened {
    pub flash: String,
    pub workload_bytes: u64,
    pub frames: u64,
    pub warnings: Vec<String>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// From the first request's start to the last one's end.
    pub elapsed_ns: u64,
    pub requests: u64,
    /// A hash of the executed requests, and of the answers that do not depend on their order.
    pub request_hash: u64,
    /// From arrival to end, in nanoseconds: values and how often they were seen.
    pub latency: Vec<(u64, u64)>,
    pub service: Vec<(u64, u64)>,
    /// CPU time of the process, all threads and their kernel side.
    pub cpu_ns: u64,
    /// Of that, the emulated device's thread.
    pub device_cpu_ns: u64,
    /// CPU time of the kernel's own threads meanwhile. None where unknown.
    pub kernel_threads_ns: Option<u64>,
    /// Misses (plain memory: major faults).
    pub misses: u64,
    pub accesses: u64,
    pub device_reads: u64,
    pub device_writes: u64,
    /// Requests that wrote them, where the device counts these.
    pub device_write_requests: u64,
    pub device_read_requests: u64,
    /// Completions of an emulated device that were more than 5 µs late.
    pub device_late: u64,
    /// Mean lateness of its completions.
    pub device_lateness_ns: u64,
    /// The longest lateness of a completion of the device since it was opened.
    pub device_lateness_ns_max: u64,
    /// The longest time that a measured thread was runnable without its core. None: unknown.
    pub taken_ns: Option<u64>,
    /// How long the hypervisor gave the run's cores to other guests, in steps of 10 ms.
    pub stolen_ns: u64,
    /// What the NAND of a device did.
    pub nand: Option<NandCounts>,
    /// Time in which the guarded path's workers had nothing to run, all together.
    pub wait_ns: u64,
}

impl Outcome {
    /// CPU time of the process and of the kernel's threads.
    pub fn all_cpu_ns(&self) -> u64 {
        self.cpu_ns + self.kernel_threads_ns.unwrap_or(0)
    }
    /// Requests that wrote to the device: as many as subpages where nobody counts requests.
    pub fn write_requests(&self) -> u64 {
        if self.device_write_requests > 0 { self.device_write_requests } else { self.device_writes }
    }
    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.requests as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
    pub fn read_requests(&self) -> u64 {
        if self.device_read_requests > 0 { self.device_read_requests } else { self.device_reads }
    }
}
/// Several batches together.
pub struct Batches<'o>(pub Vec<&'o Outcome>);

impl Batches<'_> {
    pub fn sum(&self, of: impl Fn(&Outcome) -> u64) -> f64 {
        self.0.iter().map(|outcome| of(outcome)).sum::<u64>() as f64
    }
    /// A sum of times for each request, in µs.
    pub fn us_per_request(&self, of: impl Fn(&Outcome) -> u64) -> f64 {
        self.sum(of) / 1000.0 / self.sum(|o| o.requests).max(1.0)
    }
    /// CPU time of the kernel's own threads for each request, where it could be seen.
    pub fn kernel_us_per_request(&self) -> Option<f64> {
        let seen = self.0.iter().any(|o| o.kernel_threads_ns.is_some());
        seen.then(|| self.us_per_request(|o| o.kernel_threads_ns.unwrap_or(0)))
    }
}
