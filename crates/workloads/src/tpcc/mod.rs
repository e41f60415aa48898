//! TPC-C: a wholesaler's orders. The new-order transaction alone, which is what AstriFlash (section V-A) measures, and all
//! five in the standard's shares.
//!
//! Not an audited TPC-C: no terminals and no think time, deliveries are not queued, requests choose their warehouse. The
//! transactions, the rows and the consistency conditions are those of the standard's specification 5.11.
//!
//! ```text
//! request   what a terminal types, a function of (seed, number)
//! schema    rows, and where they lie (rows: dense tables)
//! populate  the initial rows
//! database  latches, and the one way all transactions go about them
//! new_order, payment, delivery, queries
//! check     consistency conditions, order-free invariant
//! ```

pub(crate) mod check;
mod database;
mod delivery;
pub(crate) mod new_order;
mod payment;
pub(crate) mod populate;
mod queries;
pub(crate) mod request;
pub(crate) mod rows;
pub(crate) mod schema;

use fulgurite_memory::{AccessError, Latch, Memory, Region};
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub use request::{Delivery, Line, MixRequest, NewOrder, OrderStatus, Payment, StockLevel, Who};

use crate::{Params, Random, Workload, WorkloadError, header};
use database::Database;
use request::Skew;
use schema::{BYTES_MIN, Shape, Tables};

/// What the header keeps.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Root {
    shape: Shape,
    seed: u64,
}

/// What both workloads are.
#[derive(Debug)]
struct Open<L> {
    database: Database<L>,
    skew: Skew,
    seed: u64,
}

impl<L: Latch> Open<L> {
    fn build<M: Memory>(
        name: &'static str,
        memory: &mut M,
        region: Region,
        params: &Params,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), WorkloadError> {
        let (at, data) = header::split(name, region, params.bytes, BYTES_MIN)?;
        let shape = Shape::fitting(data.bytes, Tables::bytes).ok_or_else(|| too_small(name))?;
        populate::populate(memory, &Tables::new(shape, data), params.seed, progress)?;
        header::write(memory, name, at, Root { shape, seed: params.seed })
    }

    fn open<M: Memory>(
        name: &'static str,
        memory: &mut M,
        region: Region,
        params: &Params,
    ) -> Result<Self, WorkloadError> {
        let root: Root = header::read(memory, name, region)?;
        let data = header::data(region);
        if Tables::bytes(&root.shape) > data.bytes {
            let what = "its tables do not fit in this region; open all of the region it was built in".to_owned();
            return Err(WorkloadError::Unusable { workload: name, what });
        }
        Ok(Open {
            database: Database::new(Tables::new(root.shape, data)),
            skew: Skew::new(name, root.shape, params.zipf)?,
            seed: root.seed,
        })
    }
}

fn too_small(workload: &'static str) -> WorkloadError {
    let what = "not even two small warehouses fit; give it at least 1 MiB".to_owned();
    WorkloadError::Unusable { workload, what }
}

/// TPC-C's new-order transaction; one of a hundred is rolled back.
#[derive(Debug)]
pub struct Tpcc<L>(Open<L>);

impl<L: Latch> Workload for Tpcc<L> {
    const NAME: &'static str = "tpcc";
    const PINS: u32 = new_order::PINS;
    type Request = NewOrder;

    fn build<M: Memory>(
        memory: &mut M,
        region: Region,
        params: &Params,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), WorkloadError> {
        Open::<L>::build(Self::NAME, memory, region, params, progress)
    }
    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        Ok(Tpcc(Open::open(Self::NAME, memory, region, params)?))
    }
    #[inline]
    fn request(&self, seed: u64, number: u64) -> NewOrder {
        self.0.skew.new_order(&mut Random::new(seed, number), number)
    }
    #[inline]
    fn execute<M: Memory>(&self, memory: &mut M, request: &NewOrder) -> Result<u64, AccessError> {
        self.0.database.new_order(memory, request)
    }
    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        check::check(Self::NAME, self.0.seed, &self.0.database, memory)
    }
    fn dram_bytes(&self) -> u64 {
        self.0.database.latch_bytes()
    }
}

/// TPC-C's five transactions: 45% new orders, 43% payments, 4% each of order-status, delivery and stock-level.
#[derive(Debug)]
pub struct TpccMix<L>(Open<L>);

impl<L: Latch> Workload for TpccMix<L> {
    const NAME: &'static str = "tpcc-mix";
    const PINS: u32 = {
        assert!(delivery::PINS >= new_order::PINS && delivery::PINS >= payment::PINS);
        delivery::PINS
    };
    type Request = MixRequest;

    fn build<M: Memory>(
        memory: &mut M,
        region: Region,
        params: &Params,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), WorkloadError> {
        Open::<L>::build(Self::NAME, memory, region, params, progress)
    }
    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        Ok(TpccMix(Open::open(Self::NAME, memory, region, params)?))
    }
    #[inline]
    fn request(&self, seed: u64, number: u64) -> MixRequest {
        self.0.skew.mix(&mut Random::new(seed, number), number)
    }
    #[inline]
    fn execute<M: Memory>(&self, memory: &mut M, request: &MixRequest) -> Result<u64, AccessError> {
        let database = &self.0.database;
        match request {
            MixRequest::NewOrder(request) => database.new_order(memory, request),
            MixRequest::Payment(request) => database.payment(memory, request),
            MixRequest::OrderStatus(request) => database.order_status(memory, request),
            MixRequest::Delivery(request) => database.delivery(memory, request),
            MixRequest::StockLevel(request) => database.stock_level(memory, request),
        }
    }
    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        check::check(Self::NAME, self.0.seed, &self.0.database, memory)
    }
    fn dram_bytes(&self) -> u64 {
        self.0.database.latch_bytes()
    }
}
