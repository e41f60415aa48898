//! TPC-C: a wholesaler's orders. The new-order transaction alone, which is what AstriFlash (section
//! V-A) measures, and all five in the standard's shares.
//!
//! Not an audited TPC-C: no terminals and no think time, deliveries are not queued, requests choose
//! their warehouse. The transactions, the rows and the consistency conditions are the ones in the
//! standard's specification 5.11.
//!
//! ```text
//! request   what a terminal types, a function of (seed, number)
//! schema    rows, and where they are
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
pub(crate) mod schema;

use fulgurite_memory::{AccessError, Latch, Memory, Region};
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub use request::{Delivery, Line, MixRequest, NewOrder, OrderStatus, Payment, StockLevel, Who};

use crate::{Params, Random, Site, Workload, WorkloadError, header};
use database::Database;
use request::Skew;
use schema::{BYTES_MIN, Shape, Tables};

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Root {
    shape: Shape,
    seed: u64,
}

/// TPC-C: new orders alone, or with MIX all five transactions.
#[derive(Debug)]
pub struct Orders<L, const MIX: bool> {
    database: Database<L>,
    skew: Skew,
    seed: u64,
}

/// TPC-C's new-order transaction. One of a hundred is rolled back.
pub type Tpcc<L> = Orders<L, false>;

/// TPC-C's five transactions: 45% new orders, 43% payments, 4% each of order-status, delivery and
/// stock-level.
pub type TpccMix<L> = Orders<L, true>;

impl<L: Latch, const MIX: bool> Workload for Orders<L, MIX> {
    const NAME: &'static str = if MIX { "tpcc-mix" } else { "tpcc" };
    const PINS: u32 = {
        assert!(delivery::PINS >= new_order::PINS && delivery::PINS >= payment::PINS);
        if MIX { delivery::PINS } else { new_order::PINS }
    };
    type Request = MixRequest;

    fn build<M: Memory>(memory: &mut M, mut site: Site<'_>) -> Result<(), WorkloadError> {
        let (at, mut data) = site.split(Self::NAME, BYTES_MIN)?;
        let Some(shape) = Shape::fitting(data.bytes, Tables::bytes) else {
            let what = "not even two small warehouses fit; give it at least 1 MiB".to_owned();
            return Err(WorkloadError::Unusable { workload: Self::NAME, what });
        };
        populate::populate(memory, &Tables::take(shape, &mut data), &mut site)?;
        let seed = site.params.seed;
        site.finish(memory, Self::NAME, at, Root { shape, seed })
    }
    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        let root: Root = header::read(memory, Self::NAME, region)?;
        let mut data = header::data(region);
        if Tables::bytes(&root.shape) > data.bytes {
            let what = "its tables do not fit in this region; open all of the region it was built in".to_owned();
            return Err(WorkloadError::Unusable { workload: Self::NAME, what });
        }
        Ok(Orders {
            database: Database::new(Tables::take(root.shape, &mut data)),
            skew: Skew::new(Self::NAME, root.shape, params.zipf)?,
            seed: root.seed,
        })
    }
    #[inline]
    fn request(&self, seed: u64, number: u64) -> MixRequest {
        let random = &mut Random::new(seed, number);
        if MIX { self.skew.mix(random, number) } else { MixRequest::NewOrder(self.skew.new_order(random, number)) }
    }
    #[inline]
    fn execute<M: Memory>(&self, memory: &mut M, request: &MixRequest) -> Result<u64, AccessError> {
        match request {
            MixRequest::NewOrder(request) => self.database.new_order(memory, request),
            MixRequest::Payment(request) => self.database.payment(memory, request),
            MixRequest::OrderStatus(request) => self.database.order_status(memory, request),
            MixRequest::Delivery(request) => self.database.delivery(memory, request),
            MixRequest::StockLevel(request) => self.database.stock_level(memory, request),
        }
    }
    /// What an order costs: prices, discounts and taxes never change.
    #[inline]
    fn answer_is_fixed(&self, _: &MixRequest) -> bool {
        !MIX
    }
    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        check::check(Self::NAME, self.seed, &self.database, memory)
    }
    fn dram_bytes(&self) -> u64 {
        self.database.latch_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::schema::{CustomerHead, DISTRICTS, StockCounts, last_name};
    use super::*;
    use crate::rows::Rows;
    use fulgurite_memory::{Address, NoLatch, Plain, PlainMemory, Ptr};
    use fulgurite_sys::Backed;

    /// What the requests say, by the simplest means.
    #[derive(Default)]
    struct Model {
        /// Quantity, orders and remote orders of each row of stock.
        stock: BTreeMap<(u16, u32), (u32, u32, u32)>,
        orders: BTreeMap<u64, u32>,
        paid: BTreeMap<u64, (u32, u64)>,
    }

    impl Model {
        fn new_order(&mut self, order: &NewOrder) {
            let lines = &order.lines[..usize::from(order.line_count)];
            if lines.iter().any(|line| line.item == request::NO_ITEM) {
                return;
            }
            let district = u64::from(order.warehouse) * DISTRICTS + u64::from(order.district);
            *self.orders.entry(district).or_default() += 1;
            for line in lines {
                let row = self.stock.entry((line.supply, line.item)).or_default();
                row.0 += u32::from(line.quantity);
                row.1 += 1;
                row.2 += u32::from(line.supply != order.warehouse);
            }
        }
    }

    #[test]
    fn rows_are_what_the_requests_say() {
        let seed = 41;
        println!("seed {seed}");
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let region = Region::new(Address::from_linear(0), 3 << 20);
        let params = Params { bytes: 3 << 20, zipf: 0.0, seed, ..Params::default() };
        TpccMix::<NoLatch>::build(&mut memory, Site::new(region, &params, &mut |_| ())).unwrap();
        let workload = TpccMix::<NoLatch>::open(&mut memory, region, &params).unwrap();
        let (tables, shape) = (workload.database.tables, *workload.database.shape());
        let first: Vec<StockCounts> =
            (0..tables.stock.len()).map(|i| memory.load(tables.stock.at(i).cast()).unwrap()).collect();
        let heads = |memory: &mut PlainMemory| -> Vec<CustomerHead> {
            (0..tables.customers.len()).map(|i| memory.load(tables.customers.at(i).cast()).unwrap()).collect()
        };
        let customers = heads(&mut memory);

        let (mut model, mut delivered) = (Model::default(), 0);
        for number in 0..3000 {
            let request = workload.request(seed, number);
            let result = workload.execute(&mut memory, &request).unwrap();
            match request {
                MixRequest::NewOrder(order) => model.new_order(&order),
                MixRequest::Payment(payment) => {
                    let home = u64::from(payment.customer_warehouse) * DISTRICTS + u64::from(payment.customer_district);
                    let all = home * shape.customers..(home + 1) * shape.customers;
                    let payer = match payment.who {
                        Who::Number(number) => all.start + u64::from(number),
                        Who::Name(name) => {
                            let name = last_name(u64::from(name));
                            let mut same: Vec<u64> = all.filter(|&c| customers[c as usize].last == name).collect();
                            same.sort_by_key(|&c| customers[c as usize].first);
                            same[same.len().div_ceil(2) - 1]
                        }
                    };
                    let paid = model.paid.entry(payer).or_default();
                    paid.0 += 1;
                    paid.1 += u64::from(payment.amount_cents);
                }
                MixRequest::Delivery(_) => delivered += result,
                MixRequest::OrderStatus(_) | MixRequest::StockLevel(_) => (),
            }
        }

        for (i, first) in first.iter().enumerate() {
            let (warehouse, item) = (i as u64 / shape.items, i as u64 % shape.items);
            let now: StockCounts = memory.load(tables.stock.at(i as u64).cast()).unwrap();
            let (sold, orders, remote) = model.stock.remove(&(warehouse as u16, item as u32)).unwrap_or_default();
            assert_eq!((now.ytd, now.order_count, now.remote_count), (sold, orders, remote), "stock row {i}");
            assert!(check::consistent(&now, first));
        }
        let mut queue = 0;
        for district in 0..shape.districts() {
            let row = memory.load(tables.district(district)).unwrap();
            let orders = model.orders.get(&district).copied().unwrap_or_default();
            assert_eq!(row.next_order, shape.ring() as u32 + 1 + orders, "district {district}");
            queue += u64::from(row.first_undelivered) - shape.delivered() - 1 - u64::from(row.retired_undelivered);
        }
        assert_eq!(queue, delivered, "what left the queues was delivered or retired");
        for (i, (now, first)) in heads(&mut memory).iter().zip(&customers).enumerate() {
            let (count, sum) = model.paid.get(&(i as u64)).copied().unwrap_or_default();
            let now = (now.payment_count - first.payment_count, now.ytd_payment_cents - first.ytd_payment_cents);
            assert_eq!(now, (count, sum), "customer {i}");
        }
        workload.check(&mut memory).unwrap();
    }

    #[test]
    fn each_condition_sees_what_breaks_it() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let region = Region::new(Address::from_linear(0), 3 << 20);
        let params = Params { bytes: 3 << 20, zipf: 0.0, seed: 42, ..Params::default() };
        TpccMix::<NoLatch>::build(&mut memory, Site::new(region, &params, &mut |_| ())).unwrap();
        let workload = TpccMix::<NoLatch>::open(&mut memory, region, &params).unwrap();
        for number in 0..500 {
            workload.execute(&mut memory, &workload.request(1, number)).unwrap();
        }
        workload.check(&mut memory).unwrap();
        let tables = workload.database.tables;
        let row = memory.load(tables.district(0)).unwrap();
        // The oldest that is kept was delivered long ago.
        let oldest = tables.order(0, row.next_order - tables.shape.ring() as u32);

        broken(&mut memory, &workload, "(condition 1)", tables.warehouses.at(0), |row| row.ytd_cents += 1);
        broken(&mut memory, &workload, "(condition 2)", oldest, |order| order.head.number += 1);
        broken(&mut memory, &workload, "(condition 3)", tables.district(0), |row| {
            row.first_undelivered = row.next_order + 1
        });
        broken(&mut memory, &workload, "(conditions 3, 5)", oldest, |order| order.head.carrier = 0);
        broken(&mut memory, &workload, "(condition 6)", oldest, |order| order.head.line_count += 1);
        broken(&mut memory, &workload, "(condition 7)", oldest, |order| order.lines[0].delivery_date = 0);
        broken(&mut memory, &workload, "(condition 9)", tables.district(0), |row| row.ytd_cents += 1);
        broken(&mut memory, &workload, "(conditions 10, 12)", tables.customers.at(0), |row| {
            row.head.balance_cents += 1
        });
    }

    /// Changes a row, which the check must find by this condition, and changes it back.
    fn broken<T: Plain>(
        memory: &mut PlainMemory,
        workload: &TpccMix<NoLatch>,
        condition: &str,
        at: Ptr<T>,
        change: impl FnOnce(&mut T),
    ) {
        let whole = memory.load(at).unwrap();
        let mut row = whole;
        change(&mut row);
        memory.store(at, row).unwrap();
        match workload.check(memory) {
            Err(WorkloadError::Inconsistent { what, .. }) => assert!(what.contains(condition), "{condition}: {what}"),
            other => panic!("{condition}: {other:?}"),
        }
        memory.store(at, whole).unwrap();
        workload.check(memory).unwrap();
    }
}
