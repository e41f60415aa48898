//! The initial population by the standard's rules (clause 4.3.3.1), scaled to the shape.

use fulgurite_memory::{AccessError, Array, Memory, Plain};
use zerocopy::IntoBytes;

use super::new_order::NO_LINE;
use super::request::Skew;
use super::schema::{
    Customer, CustomerHead, DISTRICTS, District, History, Item, LINES_MAX, LINES_MIN, NameRange, Order, OrderHead,
    Shape, Stock, StockCounts, Tables, Warehouse, last_name,
};
use crate::rows::Rows;
use crate::{Random, Site, WorkloadError};

/// Cents that each customer has paid at first. The year-to-date sums follow from it (clause
/// 4.3.3.1: 30,000.00 a district).
pub(crate) const FIRST_PAYMENT_CENTS: u64 = 1_000;
/// What `data` of an item and of a stock row contain in one of ten (clause 4.3.3.1).
pub(crate) const ORIGINAL: &[u8; 8] = b"ORIGINAL";
/// The date of everything that is there at first.
pub(crate) const FIRST_DATE: u64 = 1;

/// Streams of random numbers: what is drawn for one table does not depend on the others.
#[derive(Clone, Copy)]
enum Stream {
    Item = 1,
    Warehouse,
    District,
    Customer,
    Stock,
    Orders,
    Names,
}

fn random(seed: u64, stream: Stream, number: u64) -> Random {
    Random::new(seed ^ (stream as u64) << 56, number)
}

/// Fills `len` bytes with letters and digits.
fn text(random: &mut Random, into: &mut [u8]) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789AZ";
    for chunk in into.chunks_mut(8) {
        let bits = random.next();
        for (i, byte) in chunk.iter_mut().enumerate() {
            *byte = LETTERS[(bits >> (i * 8)) as usize & 63];
        }
    }
}

/// Text of a random length. The rest is zero.
fn texts<const N: usize>(random: &mut Random, shortest: usize) -> [u8; N] {
    let mut bytes = [0; N];
    let len = random.between(shortest as u64, N as u64) as usize;
    text(random, &mut bytes[..len]);
    bytes
}

fn digits<const N: usize>(random: &mut Random) -> [u8; N] {
    std::array::from_fn(|_| b'0' + random.below(10) as u8)
}

/// Four random digits and 11111 (clause 4.3.2.7).
fn zip(random: &mut Random) -> [u8; 9] {
    let mut zip = *b"000011111";
    zip[..4].copy_from_slice(&digits::<4>(random));
    zip
}

/// 26 to 50 letters, with "ORIGINAL" in one of ten.
fn data(random: &mut Random) -> [u8; 50] {
    let len = random.between(26, 50) as usize;
    let mut bytes = [0; 50];
    text(random, &mut bytes[..len]);
    if random.percent(10) {
        let at = random.below(len as u64 - 7) as usize;
        bytes[at..at + 8].copy_from_slice(ORIGINAL);
    }
    bytes
}

pub(crate) fn item(seed: u64, index: u64) -> Item {
    let r = &mut random(seed, Stream::Item, index);
    Item {
        price_cents: r.between(100, 10_000) as u32,
        image: r.between(1, 10_000) as u32,
        name: texts(r, 14),
        data: data(r),
        unused: [0; 6],
    }
}

pub(crate) fn warehouse(seed: u64, shape: &Shape, index: u64) -> Warehouse {
    let r = &mut random(seed, Stream::Warehouse, index);
    Warehouse {
        ytd_cents: DISTRICTS * shape.customers * FIRST_PAYMENT_CENTS,
        tax: r.between(0, 2_000) as u32,
        name: texts(r, 6),
        street_1: texts(r, 10),
        street_2: texts(r, 10),
        city: texts(r, 10),
        state: texts(r, 2),
        zip: zip(r),
        unused: [0; 3],
    }
}

pub(crate) fn district(seed: u64, shape: &Shape, index: u64) -> District {
    let r = &mut random(seed, Stream::District, index);
    District {
        next_order: shape.ring() as u32 + 1,
        first_undelivered: shape.delivered() as u32 + 1,
        ytd_cents: shape.customers * FIRST_PAYMENT_CENTS,
        history_count: shape.customers,
        history_retired_cents: 0,
        delivered_cents: 0,
        retired_undelivered: 0,
        tax: r.between(0, 2_000) as u32,
        name: texts(r, 6),
        street_1: texts(r, 10),
        street_2: texts(r, 10),
        city: texts(r, 10),
        state: texts(r, 2),
        zip: zip(r),
        unused: [0; 7],
    }
}

/// The number of the last name of a customer: the first ones have one each, the others a random one
/// (clause 4.3.3.1).
fn name_number(seed: u64, shape: &Shape, customer: u64) -> u64 {
    let within = customer % shape.customers;
    if within < shape.names {
        within
    } else {
        Skew::name_at_build(&mut random(seed, Stream::Names, customer), shape.names)
    }
}

pub(crate) fn customer(seed: u64, shape: &Shape, index: u64) -> Customer {
    let r = &mut random(seed, Stream::Customer, index);
    let mut body = [0; 500];
    let len = r.between(300, 500) as usize;
    text(r, &mut body[..len]);
    let head = CustomerHead {
        balance_cents: -(FIRST_PAYMENT_CENTS as i64),
        ytd_payment_cents: FIRST_PAYMENT_CENTS,
        payment_count: 1,
        delivery_count: 0,
        discount: r.between(0, 5_000) as u32,
        credit_limit_cents: 5_000_000,
        since: FIRST_DATE,
        first: texts(r, 8),
        middle: *b"OE",
        last: last_name(name_number(seed, shape, index)),
        credit: if r.percent(10) { *b"BC" } else { *b"GC" },
        unused: [0; 4],
    };
    Customer {
        head,
        street_1: texts(r, 10),
        street_2: texts(r, 10),
        city: texts(r, 10),
        state: texts(r, 2),
        zip: zip(r),
        phone: digits(r),
        unused: [0],
        data: body,
        unused_2: [0; 4],
    }
}

pub(crate) fn stock(seed: u64, index: u64) -> Stock {
    let r = &mut random(seed, Stream::Stock, index);
    let mut districts = [[0; 24]; DISTRICTS as usize];
    districts.iter_mut().for_each(|info| text(r, info));
    Stock {
        counts: StockCounts { quantity: r.between(10, 100) as u32, ytd: 0, order_count: 0, remote_count: 0 },
        districts,
        data: data(r),
        unused: [0; 6],
    }
}

/// Order `number` (from 1) of a district, for this customer.
pub(crate) fn order(seed: u64, shape: &Shape, district: u64, number: u64, customer: u32) -> Order {
    let r = &mut random(seed, Stream::Orders, district * shape.ring() + number);
    let delivered = number <= shape.delivered();
    let line_count = r.between(LINES_MIN, LINES_MAX as u64) as u32;
    let mut lines = [NO_LINE; LINES_MAX];
    for line in &mut lines[..line_count as usize] {
        line.delivery_date = if delivered { FIRST_DATE } else { 0 };
        line.item = r.between(1, shape.items) as u32;
        line.supply_warehouse = (district / DISTRICTS) as u32;
        line.quantity = 5;
        line.amount_cents = if delivered { 0 } else { r.between(1, 999_999) as u32 };
        text(r, &mut line.district_info);
    }
    let carrier = if delivered { r.between(1, 10) as u32 } else { 0 };
    let head = OrderHead {
        number: number as u32,
        customer,
        entry_date: FIRST_DATE,
        carrier,
        line_count,
        all_local: 1,
        unused: 0,
    };
    Order { head, lines }
}

/// A permutation of a district's customers: the maker of each of the first orders (clause 4.3.3.1).
pub(crate) fn order_customers(seed: u64, shape: &Shape, district: u64) -> Vec<u32> {
    let r = &mut random(seed, Stream::Orders, !district);
    let mut customers: Vec<u32> = (0..shape.customers as u32).collect();
    for i in (1..customers.len()).rev() {
        customers.swap(i, r.below(i as u64 + 1) as usize);
    }
    customers
}

/// Writes one table after the other.
struct Filler<'f, 's, M> {
    memory: &'f mut M,
    site: &'f mut Site<'s>,
    /// Bytes that are written, of all.
    done: u64,
    total: u64,
}

impl<M: Memory> Filler<'_, '_, M> {
    fn fill<T: Plain>(&mut self, rows: &Array<T>, mut row: impl FnMut(u64) -> T) -> Result<(), AccessError> {
        let (region, count) = (rows.root().region, rows.len());
        let share = |done: u64| done as f64 / self.total as f64;
        self.site.part(share(self.done), share(self.done + region.bytes));
        self.done += region.bytes;
        let write = |index| {
            self.site.tick(index, count);
            row(index)
        };
        Array::create(self.memory, region, count, write).map(drop)
    }
}

pub(crate) fn populate<M: Memory>(memory: &mut M, tables: &Tables, site: &mut Site<'_>) -> Result<(), WorkloadError> {
    let (shape, seed, customers) = (&tables.shape, site.params.seed, tables.shape.customers);
    let mut write = Filler { memory, site, done: 0, total: Tables::bytes(shape) };
    write.fill(&tables.items, |i| item(seed, i))?;
    write.fill(&tables.warehouses, |i| warehouse(seed, shape, i))?;
    write.fill(&tables.districts, |i| std::array::from_fn(|d| district(seed, shape, i * DISTRICTS + d as u64)))?;
    write.fill(&tables.customers, |i| customer(seed, shape, i))?;
    write.fill(&tables.stock, |i| stock(seed, i))?;
    let mut buyers = Vec::new();
    write.fill(&tables.orders, |i| {
        let (district, number) = (i / shape.ring(), i % shape.ring() + 1);
        if number == 1 {
            buyers = order_customers(seed, shape, district);
        }
        order(seed, shape, district, number, buyers[number as usize - 1])
    })?;
    let mut latest = Vec::new();
    write.fill(&tables.latest, |i| {
        let (district, customer) = (i / customers, i % customers);
        if customer == 0 {
            latest = vec![0; customers as usize];
            for (order, buyer) in order_customers(seed, shape, district).into_iter().enumerate() {
                latest[buyer as usize] = order as u32 + 1;
            }
        }
        latest[customer as usize]
    })?;
    write.fill(&tables.history, |i| {
        let (district, customer) = (i / customers, i % customers);
        History {
            date: FIRST_DATE,
            customer: customer as u32,
            customer_warehouse: (district / DISTRICTS) as u32,
            customer_district: (district % DISTRICTS) as u32,
            amount_cents: FIRST_PAYMENT_CENTS as u32,
            data: [b'h'; 24],
        }
    })?;
    index_names(memory, tables, seed)
}

/// Sorts the customers of each district by last name, then first name.
fn index_names<M: Memory>(memory: &mut M, tables: &Tables, seed: u64) -> Result<(), WorkloadError> {
    let shape = &tables.shape;
    for district in 0..shape.districts() {
        let first = district * shape.customers;
        let mut order: Vec<(u64, [u8; 16], u32)> = (0..shape.customers)
            .map(|c| {
                let head: CustomerHead = memory.load(tables.customers.at(first + c).cast())?;
                Ok((name_number(seed, shape, first + c), head.first, c as u32))
            })
            .collect::<Result<_, WorkloadError>>()?;
        order.sort_unstable();
        let mut at = 0;
        for name in 0..shape.names {
            let start = at;
            while order.get(at).is_some_and(|(n, ..)| *n == name) {
                at += 1;
            }
            let range = NameRange { start: start as u32, count: (at - start) as u32 };
            memory.store(tables.names.at(district * shape.names + name), range)?;
        }
        for (i, (.., customer)) in order.into_iter().enumerate() {
            memory.store(tables.sorted.at(first + i as u64), customer)?;
        }
    }
    Ok(())
}

/// Whether the data of an item or a stock row says "ORIGINAL" (clause 2.4.2.2). The words are the
/// 50 bytes and 6 unused ones.
#[inline]
pub(crate) fn is_original(data: &[u64; 7]) -> bool {
    let (bytes, original) = (data.as_bytes(), u64::from_ne_bytes(*ORIGINAL));
    // No short cut: all places are compared at once.
    bytes.windows(8).fold(false, |found, window| {
        let window: [u8; 8] = window.try_into().expect("eight bytes");
        found | (u64::from_ne_bytes(window) == original)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(data: &[u8; 50]) -> [u64; 7] {
        let mut bytes = [0; 56];
        bytes[..50].copy_from_slice(data);
        zerocopy::transmute!(bytes)
    }

    #[test]
    fn a_tenth_is_original() {
        let found = (0..10_000).filter(|&i| is_original(&words(&item(3, i).data))).count();
        assert!((850..1150).contains(&found), "{found}");
        let mut data = [b'x'; 50];
        assert!(!is_original(&words(&data)));
        data[42..].copy_from_slice(ORIGINAL);
        assert!(is_original(&words(&data)));
    }
    #[test]
    fn every_customer_orders_once() {
        let shape = Shape { warehouses: 2, items: 100, customers: 50, names: 50 };
        let mut buyers = order_customers(1, &shape, 3);
        assert_ne!(buyers, order_customers(1, &shape, 4));
        buyers.sort_unstable();
        assert_eq!(buyers, (0..50).collect::<Vec<_>>());
    }
}
