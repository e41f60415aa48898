//! The standard's consistency conditions (clause 3.3.2), as far as what is retained allows, and the
//! order-free invariant.
//!
//! | condition | here |
//! |---|---|
//! | 1 | a warehouse's year-to-date sum is its districts' |
//! | 2, 3, 5 | the orders kept are the last ones, and those without a carrier the newest of them |
//! | 4, 6 | each order's number of lines is the number of lines there are, and so is a district's |
//! | 7 | lines have a delivery date exactly when their order has a carrier |
//! | 8, 9 | a district's year-to-date sum is its history's, kept and retired |
//! | 10, 12 | balances and payments of a district's customers are what was delivered to them |
//!
//! Condition 4 follows from 6, and 8 from 1 and 9. The standard checks conditions 10 and 12 for
//! each customer, and 11 for each district's orders, new orders and deliveries. What would show
//! whether these hold is retired with the oldest orders, so 11 is not checked and the others are
//! checked by district.
//!
//! And beyond the standard: a stock row is what it was at first, less what was sold (its quantity
//! stays in 10..=100, so it is known modulo 91). A line costs what its item costs. Each customer's
//! latest order is theirs.
//!
//! The invariant hashes what a set of requests determines whatever their order: stock, what
//! customers have paid, what districts and warehouses have taken, how many orders there were. Not
//! the receiver of each number, nor what was delivered when.

use fulgurite_memory::{Latch, Memory};
use zerocopy::IntoBytes;

use super::database::Database;
use super::populate::{self, FIRST_DATE};
use super::schema::{
    Customer, CustomerHead, DISTRICTS, District, LINES_MAX, LINES_MIN, Order, Stock, StockCounts, Warehouse,
};
use crate::rows::Rows;
use crate::{WorkloadError, mix};

/// Mixes a row's place with its values.
fn hash(table: u64, row: u64, values: [u64; 3]) -> u64 {
    values.iter().fold(mix(table << 56 | row), |sum, &value| mix(sum ^ value))
}

struct Checker<'d, L, M> {
    name: &'static str,
    seed: u64,
    database: &'d Database<L>,
    memory: &'d mut M,
    prices: Vec<u32>,
    sum: u64,
}

/// Checks everything. Returns the invariant.
pub(crate) fn check<L: Latch, M: Memory>(
    name: &'static str,
    seed: u64,
    database: &Database<L>,
    memory: &mut M,
) -> Result<u64, WorkloadError> {
    let mut checker = Checker { name, seed, database, memory, prices: Vec::new(), sum: 0 };
    checker.items()?;
    for warehouse in 0..database.shape().warehouses {
        checker.warehouse(warehouse)?;
    }
    checker.stock()?;
    Ok(checker.sum)
}

impl<L: Latch, M: Memory> Checker<'_, L, M> {
    fn expect(&self, holds: bool, what: impl FnOnce() -> String) -> Result<(), WorkloadError> {
        if holds { Ok(()) } else { Err(WorkloadError::Inconsistent { workload: self.name, what: what() }) }
    }
    fn note(&mut self, table: u64, row: u64, values: [u64; 3]) {
        self.sum = self.sum.wrapping_add(hash(table, row, values));
    }

    fn items(&mut self) -> Result<(), WorkloadError> {
        for index in 0..self.database.shape().items {
            let (got, built) =
                (self.memory.load(self.database.tables.items.at(index))?, populate::item(self.seed, index));
            let same = got.price_cents == built.price_cents && got.data == built.data && got.name == built.name;
            self.expect(same, || format!("item {index} has changed"))?;
            self.prices.push(got.price_cents);
        }
        Ok(())
    }

    fn warehouse(&mut self, index: u64) -> Result<(), WorkloadError> {
        let warehouse: Warehouse = self.memory.load(self.database.tables.warehouses.at(index))?;
        let mut sum = 0u64;
        for district in index * DISTRICTS..(index + 1) * DISTRICTS {
            sum = sum.wrapping_add(self.district(district)?);
        }
        self.expect(warehouse.ytd_cents == sum, || {
            format!("warehouse {index} has taken {} this year, its districts {sum} (condition 1)", warehouse.ytd_cents)
        })?;
        self.note(1, index, [warehouse.ytd_cents, 0, 0]);
        Ok(())
    }

    fn district(&mut self, district: u64) -> Result<u64, WorkloadError> {
        let row: District = self.memory.load(self.database.tables.district(district))?;
        self.orders(district, &row)?;
        self.history(district, &row)?;
        self.customers(district, &row)?;
        self.note(2, district, [u64::from(row.next_order), row.ytd_cents, row.history_count]);
        Ok(row.ytd_cents)
    }

    fn orders(&mut self, district: u64, row: &District) -> Result<(), WorkloadError> {
        let tables = &self.database.tables;
        let ring = tables.shape.ring() as u32;
        let oldest = row.next_order.wrapping_sub(ring);
        let queue = oldest..=row.next_order;
        self.expect(row.next_order > ring && queue.contains(&row.first_undelivered), || {
            let (first, next) = (row.first_undelivered, row.next_order);
            format!("district {district} has undelivered orders from {first} and the next is {next} (condition 3)")
        })?;
        let mut latest = vec![0; tables.shape.customers as usize];
        for number in oldest..row.next_order {
            let order: Order = self.memory.load(tables.order(district, number))?;
            let (head, lines) = (&order.head, order.lines.iter().take_while(|line| line.item != 0).count());
            let undelivered = number >= row.first_undelivered;
            self.expect(head.number == number && u64::from(head.customer) < tables.shape.customers, || {
                format!("district {district} has order {} where {number} should be (condition 2)", head.number)
            })?;
            self.expect((head.carrier == 0) == undelivered, || {
                format!("order {number} of district {district} has carrier {} (conditions 3, 5)", head.carrier)
            })?;
            let allowed = LINES_MIN as usize..=LINES_MAX;
            let none_after = order.lines[lines..].iter().all(|line| line.item == 0);
            self.expect(head.line_count as usize == lines && allowed.contains(&lines) && none_after, || {
                format!(
                    "order {number} of district {district} has {lines} lines, not {} (condition 6)",
                    head.line_count
                )
            })?;
            for line in &order.lines[..lines] {
                let dated = (line.delivery_date == 0) == undelivered;
                let price = self.prices.get(line.item as usize - 1);
                let amount = price.map(|price| price.wrapping_mul(line.quantity));
                // Of the first orders, amounts are random and sources given (clause 4.3.3.1).
                let right = head.entry_date == FIRST_DATE || amount == Some(line.amount_cents);
                self.expect(dated && right && u64::from(line.supply_warehouse) < tables.shape.warehouses, || {
                    format!("order {number} of district {district} has the line {line:?} (condition 7)")
                })?;
            }
            latest[head.customer as usize] = number;
        }
        for (customer, &number) in latest.iter().enumerate() {
            let index = district * tables.shape.customers + customer as u64;
            let got = self.memory.load(tables.latest.at(index))?;
            // A customer without kept orders has a latest order that is older.
            let right = if number != 0 { got == number } else { got < oldest };
            self.expect(right, || format!("customer {index} has the latest order {number}, but {got} is noted"))?;
        }
        Ok(())
    }

    fn history(&mut self, district: u64, row: &District) -> Result<(), WorkloadError> {
        let ring = self.database.shape().ring();
        let mut sum = row.history_retired_cents;
        for count in row.history_count.saturating_sub(ring)..row.history_count {
            let history = self.memory.load(self.database.tables.history(district, count))?;
            sum = sum.wrapping_add(u64::from(history.amount_cents));
        }
        self.expect(sum == row.ytd_cents, || {
            format!("district {district} has taken {} this year, its history says {sum} (condition 9)", row.ytd_cents)
        })
    }

    fn customers(&mut self, district: u64, row: &District) -> Result<(), WorkloadError> {
        let customers = self.database.shape().customers;
        let mut sum = 0i64;
        for index in district * customers..(district + 1) * customers {
            let got = self.memory.load(self.database.tables.customers.at(index))?;
            let head = &got.head;
            sum = sum.wrapping_add(head.balance_cents).wrapping_add(head.ytd_payment_cents as i64);
            let built = populate::customer(self.seed, self.database.shape(), index);
            self.expect(unchanged(&got, &built), || format!("customer {index} has changed where nothing does"))?;
            self.note(3, index, [head.ytd_payment_cents, u64::from(head.payment_count), 0]);
        }
        self.expect(sum == row.delivered_cents as i64, || {
            let delivered = row.delivered_cents;
            format!("customers of district {district} owe for {sum}, {delivered} were delivered (conditions 10, 12)")
        })
    }

    fn stock(&mut self) -> Result<(), WorkloadError> {
        for index in 0..self.database.tables.stock.len() {
            let row: Stock = self.memory.load(self.database.tables.stock.at(index))?;
            let built = populate::stock(self.seed, index);
            self.expect(row.districts == built.districts && row.data == built.data, || {
                format!("stock row {index} has changed where nothing does")
            })?;
            self.expect(consistent(&row.counts, &built.counts), || {
                format!("stock row {index} has {:?}, and began with {:?}", row.counts, built.counts)
            })?;
            let counts = row.counts;
            let pair = u64::from(counts.order_count) << 32 | u64::from(counts.remote_count);
            self.note(4, index, [u64::from(counts.quantity), u64::from(counts.ytd), pair]);
        }
        Ok(())
    }
}

/// Whether what no transaction changes is the same: all but balance, sums and counts, and, of those
/// with bad credit, the data.
fn unchanged(now: &Customer, first: &Customer) -> bool {
    let head = CustomerHead {
        balance_cents: first.head.balance_cents,
        ytd_payment_cents: first.head.ytd_payment_cents,
        payment_count: first.head.payment_count,
        delivery_count: first.head.delivery_count,
        ..now.head
    };
    let data = if first.head.credit == *b"BC" { first.data } else { now.data };
    Customer { head, data, ..*now }.as_bytes() == first.as_bytes()
}

/// Whether stock began like `first` and sold what it says.
pub(crate) fn consistent(now: &StockCounts, first: &StockCounts) -> bool {
    let sold = |counts: &StockCounts| (u64::from(counts.quantity) + u64::from(counts.ytd)) % 91;
    (10..=100).contains(&now.quantity)
        && sold(now) == sold(first)
        && now.remote_count <= now.order_count
        && (now.order_count..=now.order_count.saturating_mul(10)).contains(&now.ytd)
}
