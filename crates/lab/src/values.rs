//! The names that options of the laboratory take, and how each is read from text.

use std::path::PathBuf;

pub use fulgurite_harness::values::*;
use fulgurite_term::media::{NandChoice, nand_choice as nand};
use fulgurite_term::named;

/// Another NAND to measure: which, and of how many planes, where that is said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnotherNand {
    /// Which.
    pub nand: NandChoice,
    /// Planes; none: as many as the first one.
    pub planes: Option<u32>,
}

/// Reads [`AnotherNand`]: `nand:PROFILE`, and `/PLANES` behind a profile that is built in.
pub fn another_nand(text: &str) -> Result<AnotherNand, String> {
    let Some(profile) = text.strip_prefix("nand:") else {
        return Err("only NAND can be measured in addition; write nand:PROFILE or nand:PROFILE/PLANES".to_owned());
    };
    if let Some((name, planes)) = profile.rsplit_once('/')
        && fulgurite_nand::Profile::built_in_names().any(|known| known == name)
    {
        let planes = planes.parse().ok().filter(|planes| (1..=65_536).contains(planes));
        let planes = planes.ok_or("planes are a number from 1 to 65536; write for example nand:mlc/64")?;
        return Ok(AnotherNand { nand: nand(name)?, planes: Some(planes) });
    }
    Ok(AnotherNand { nand: nand(profile)?, planes: None })
}

/// Reads a load in percent, up to 200.
pub fn load(text: &str) -> Result<f64, String> {
    match without_sign(text).parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 200.0 => Ok(percent),
        Ok(_) => Err("a load must be above 0% and at most 200% of dram-only's highest".to_owned()),
        Err(_) => Err("not a number; write for example 30,60,90".to_owned()),
    }
}

named! {
    /// Where the data of a program of `alloc` is.
    AllocConfig, "configuration", alloc_config {
        /// SSDAlloc's object-per-page: the thread that faults fills the page in.
        ObjectPerPage = "object-per-page",
        /// SSDAlloc's object-per-page, but threads of the allocator fill the page in.
        ObjectPerPageCompatible = "object-per-page-compatible",
        /// SSDAlloc's memory-page: a thread of the allocator fills the page in.
        MemoryPage = "memory-page",
        /// SSDAlloc's memory-page, but the thread that faults fills the page in.
        MemoryPageInLine = "memory-page-in-line",
        /// Anonymous memory that the kernel swaps.
        OsSwap = "os-swap",
        /// A mapped file.
        Mmap = "mmap",
        /// Blobs, for which the program was rewritten.
        Blobs = "blobs",
    }
}

impl AllocConfig {
    /// The memory-page allocator that others are compared with: in the same mode.
    pub const fn memory_page(self) -> AllocConfig {
        match self {
            AllocConfig::ObjectPerPage | AllocConfig::MemoryPageInLine => AllocConfig::MemoryPageInLine,
            _ => AllocConfig::MemoryPage,
        }
    }
    /// Whether the kernel decides what is in DRAM.
    pub const fn is_paged_by_kernel(self) -> bool {
        matches!(self, AllocConfig::OsSwap | AllocConfig::Mmap)
    }
}

named! {
    /// A program of SSDAlloc's evaluation.
    AllocProgram, "program", alloc_program {
        /// An array of records of 128 bytes.
        Array = "array",
        /// Values under keys, as in memcached.
        SlabCache = "slab-cache",
        /// An index.
        BPlusTree = "b-plus-tree",
        /// Packets by their content.
        PacketCache = "packet-cache",
        /// The index of an HTTP cache.
        HashCache = "hash-cache",
    }
}

named! {
    /// Which extent a store reclaims next.
    VictimChoice, "choice of victims", victims {
        /// The one with parts of the longest chains, as NVMM proposes.
        LongestChains = "longest-chains",
        /// The one with the least live data.
        Greedy = "greedy",
        /// Old ones may have more.
        CostBenefit = "cost-benefit",
    }
}

impl VictimChoice {
    /// The store's name for it.
    pub const fn policy(self) -> fulgurite_store::Victims {
        match self {
            VictimChoice::LongestChains => fulgurite_store::Victims::LongestChains,
            VictimChoice::Greedy => fulgurite_store::Victims::Greedy,
            VictimChoice::CostBenefit => fulgurite_store::Victims::CostBenefit,
        }
    }
}

named! {
    /// What gives an unmodified program its memory.
    Under, "configuration", under {
        /// Enough DRAM.
        Dram = "dram",
        /// The kernel's swap.
        Swap = "swap",
        /// `fulgurite run`, whose handler thread resolves faults.
        Compatible = "compatible",
        /// `fulgurite run`, whose threads resolve their own faults.
        InLine = "in-line",
    }
}

impl Under {
    /// Whether it is one of the modes of `fulgurite run`.
    pub const fn ours(self) -> bool {
        matches!(self, Under::Compatible | Under::InLine)
    }
}

named! {
    /// What `run` measures.
    Part, "part", part {
        /// Words of pages at random.
        Touches = "touches",
        /// Debian's redis-server.
        Redis = "redis",
        /// Debian's memcached.
        Memcached = "memcached",
        /// The background save of redis.
        Save = "save",
    }
}

named! {
    /// What `micro` measures.
    Measure, "measure", measure {
        /// A switch between fibers.
        Switch = "switch",
        /// Loads of resident data.
        Hit = "hit",
        /// Misses, and what they are made of.
        Miss = "miss",
        /// Page faults of unmodified programs, without I/O.
        Fault = "fault",
    }
}

/// Bytes of a value; none: of many lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueBytes(pub Option<u32>);

/// Reads [`ValueBytes`].
pub fn value_bytes(text: &str) -> Result<ValueBytes, String> {
    match (text, text.parse()) {
        ("mixed", _) => Ok(ValueBytes(None)),
        (_, Ok(bytes @ 24..=1_048_576)) => Ok(ValueBytes(Some(bytes))),
        _ => Err("write a number of bytes from 24 to 1048576, or mixed".to_owned()),
    }
}

/// A workload that exists, or all of the seven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkloadName {
    /// AstriFlash's seven.
    All,
    /// This one.
    One(&'static str),
}

fn known_workloads(extra: &'static [&'static str]) -> impl Iterator<Item = &'static str> + Clone {
    extra.iter().copied().chain(fulgurite_workloads::names().iter().copied())
}

fn workload_among(text: &str, extra: &'static [&'static str]) -> Result<WorkloadName, String> {
    let known = || known_workloads(extra);
    match known().find(|name| *name == text) {
        Some("all") => Ok(WorkloadName::All),
        Some(name) => Ok(WorkloadName::One(name)),
        None => Err(unknown("workload", text, known())),
    }
}

/// Reads a workload or `all`.
pub fn workload(text: &str) -> Result<WorkloadName, String> {
    workload_among(text, &["all"])
}
/// [`workload`] for the command line.
pub const fn workload_parser() -> Names<WorkloadName> {
    Names::new(workload, || known_workloads(&["all"]).collect())
}

/// Reads one workload.
pub fn one_workload(text: &str) -> Result<WorkloadName, String> {
    workload_among(text, &[])
}
/// [`one_workload`] for the command line.
pub const fn one_workload_parser() -> Names<WorkloadName> {
    Names::new(one_workload, || known_workloads(&[]).collect())
}

/// The workloads that a list names, each once, in the list's order.
pub fn workloads(list: &[WorkloadName]) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for item in list {
        let these: &[&'static str] = match item {
            WorkloadName::All => &fulgurite_workloads::THE_SEVEN,
            WorkloadName::One(name) => std::slice::from_ref(name),
        };
        for name in these {
            if !names.contains(name) && fulgurite_workloads::names().contains(name) {
                names.push(name);
            }
        }
    }
    names
}

/// Where traces are. Only a directory that was asked for must exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheTraces {
    /// The directory.
    pub directory: PathBuf,
}

/// Reads [`CacheTraces`].
pub fn traces(text: &str) -> Result<CacheTraces, String> {
    if text.is_empty() { Err("an empty name".to_owned()) } else { Ok(CacheTraces { directory: text.into() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_may_have_their_sign() {
        assert_eq!(load("30%"), Ok(30.0));
        assert!(load("30%%").is_err());
    }
    #[test]
    fn slips_are_understood() {
        assert!(config("fulgurit").unwrap_err().contains("\"fulgurite\""));
        assert!(flash("emulate").unwrap_err().contains("\"emulated\""));
        assert_eq!(flash("./emulate"), Ok(FlashChoice::File("./emulate".into())));
        assert!(workload("aray-swap").unwrap_err().contains("\"array-swap\""));
        // What is like nothing gets no suggestion.
        for far in [config("").unwrap_err(), one_workload("all").unwrap_err()] {
            assert!(!far.contains("did you mean") && far.contains("All of them"), "{far}");
        }
    }
    #[test]
    fn lists_name_each_workload_once() {
        let list = [WorkloadName::One("array-swap"), WorkloadName::All, WorkloadName::One("array-swap")];
        assert_eq!(workloads(&list)[0], "array-swap");
        assert_eq!(workloads(&list).iter().filter(|n| **n == "array-swap").count(), 1);
    }
    #[test]
    fn every_name_reads_back() {
        assert!(Config::ALL.iter().all(|c| config(c.name()) == Ok(*c)));
    }
    #[test]
    fn configurations_of_one_chart_differ() {
        use std::collections::HashSet;

        use fulgurite_term::report::charts::colour;

        let shades: HashSet<_> = Config::ALL.iter().map(|config| colour(config.name(), 0)).collect();
        assert_eq!(shades.len(), Config::ALL.len());
        let shades: HashSet<_> = AllocConfig::ALL.iter().map(|config| colour(config.name(), 0)).collect();
        assert_eq!(shades.len(), AllocConfig::ALL.len());
    }
}
