//! Workloads: the benchmarks of the papers, generic over the memory behind them.
//!
//! Each workload is data laid out in a [`Region`], built once on plain memory, and requests against
//! it that are a function of (seed, number) alone. So every configuration executes the same
//! requests on the same bytes, in whatever order its fibers or threads take them, and
//! [`Workload::check`] must give the same order-free invariant for all of them.
//!
//! It starts no thread, measures no time and knows no device: that is the task of the components
//! that drive it.
#![forbid(unsafe_code)]

mod array_swap;
mod blobs;
mod hash_table;
mod hashed;
mod header;
mod keys;
mod masstree;
mod nvmm;
mod rbt;
mod registry;
mod rows;
mod search;
pub mod silo;
mod site;
mod tatp;
mod tpcc;
pub mod value;

pub use array_swap::{ArraySwap, SwapRequest};
pub use blobs::{BlobValues, ValueRequest};
pub use hash_table::{HashTable, KeyRequest};
pub use keys::{Random, ZipfKeys, mix};
pub use masstree::{MasstreeStore, StringRequest};
pub use nvmm::{Gups, MmapBench, UpdateWord};
pub use rbt::{Rbt, RbtRequest, RedBlackTree};
pub use registry::{THE_SEVEN, UNIFORM, UnknownWorkload, Visitor, dispatch, gets, names};
pub use search::{
    ANSWER_WORDS, Corpus, CorpusError, CorpusFile, ENOUGH_TEXT_BYTES, FILE_BYTES_MAX, Hit, IndexSummary,
    NUMBER_BYTES_MAX, Query, Search, Skipped, WORD_BYTES_MAX, Word, for_each_word,
};
pub use silo::SiloYcsb;
pub use site::Site;
pub use tatp::{Tatp, UpdateRequest};
pub use tpcc::{Delivery, Line, MixRequest, NewOrder, OrderStatus, Payment, StockLevel, Tpcc, TpccMix, Who};

use fulgurite_memory::{AccessError, Memory, Region};

/// What a workload is built from. All configurations that are compared get the same parameters.
#[derive(Clone, Debug)]
pub struct Params {
    /// How many bytes of data to build, about. Never more than the region.
    pub bytes: u64,
    /// Exponent of the Zipf distribution of keys. 0 is uniform.
    pub zipf: f64,
    /// Seed of the data and, with the request's number, of each request.
    pub seed: u64,
    /// Directory whose text is indexed (the search workload).
    pub input: Option<std::path::PathBuf>,
    /// Bytes of a value of the workload of blobs. None: 1 KiB to 1 MiB, each doubling half as
    /// often, so that each length has the same share of the bytes.
    pub value_bytes: Option<u32>,
    /// Requests that only read, of 100, of the workloads that can be asked for a share
    /// ([`Workload::GETS`]). None: that.
    pub gets: Option<u32>,
}

impl Params {
    /// The share of a workload's requests that only read, of 100.
    pub(crate) fn gets<W: Workload>(&self) -> u64 {
        let own = const { W::GETS.expect("a workload with a share of its own") };
        u64::from(self.gets.unwrap_or(own))
    }
}

impl Default for Params {
    fn default() -> Params {
        Params { bytes: 0, zipf: 0.0, seed: 0, input: None, value_bytes: Some(900), gets: None }
    }
}

/// Why a workload could not be built, opened or found consistent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// An access failed.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// An invariant does not hold.
    #[error("{workload} is inconsistent: {what}")]
    Inconsistent {
        /// Which workload.
        workload: &'static str,
        /// What was found.
        what: String,
    },
    /// The parameters make no sense for this workload.
    #[error("{workload}: {what}")]
    Unusable {
        /// Which workload.
        workload: &'static str,
        /// What to change.
        what: String,
    },
}

/// A benchmark. Implementations are generic over the latch, so `Self` already knows how its callers
/// wait.
pub trait Workload: Send + Sync + Sized + 'static {
    /// Its name on the command line.
    const NAME: &'static str;
    /// How many subpages one request may need to change at once (pins that its jobs declare).
    const PINS: u32;
    /// Requests that only read, of 100, where [`Params::gets`](field@Params::gets) can ask for
    /// another share.
    const GETS: Option<u32> = None;
    /// One request, plain enough to be kept on a fiber's stack.
    type Request: Copy + Send + std::fmt::Debug;

    /// Lays the data out in the site's region and fills it. Everything that [`Workload::open`]
    /// needs is in the region afterwards.
    ///
    /// # Errors
    /// When the parameters make no sense, or an access fails.
    fn build<M: Memory>(memory: &mut M, site: Site<'_>) -> Result<(), WorkloadError>;

    /// Opens what `build` left, in any memory that has the same bytes. Makes the latches and other
    /// state that lives in DRAM.
    ///
    /// # Errors
    /// When the region does not hold this workload, or an access fails.
    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError>;

    /// The request with this number, of the stream with this seed. A pure function: no state
    /// advances.
    fn request(&self, seed: u64, number: u64) -> Self::Request;

    /// Executes one request and returns a small number that depends on what it found (never
    /// optimised away). On an error, the request has changed nothing.
    ///
    /// # Errors
    /// Whatever the memory says.
    fn execute<M: Memory>(&self, memory: &mut M, request: &Self::Request) -> Result<u64, AccessError>;

    /// Whether what [`Workload::execute`] returns for this request is the same whenever it comes
    /// among the others: what it finds is changed by none of them. Then a wrong answer of any
    /// configuration is detected.
    #[inline]
    fn answer_is_fixed(&self, _request: &Self::Request) -> bool {
        false
    }

    /// Walks the data, checks every invariant, and returns a number that depends only on the set of
    /// requests executed, not on their order. The data must not change meanwhile.
    ///
    /// # Errors
    /// [`WorkloadError::Inconsistent`] with what was found.
    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError>;

    /// Writes down what only DRAM knows, such as free space, before the data is opened again.
    ///
    /// # Errors
    /// An access failed.
    fn save<M: Memory>(&self, _memory: &mut M) -> Result<(), WorkloadError> {
        Ok(())
    }

    /// DRAM that the workload itself uses (latches and the like), counted against the budget.
    fn dram_bytes(&self) -> u64 {
        0
    }
}
