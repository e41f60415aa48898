//! The delivery transaction (clause 2.7): the oldest undelivered order of each district of a
//! warehouse gets a carrier, its lines a date, and its customer the amount. All ten in one piece,
//! so that an error leaves none delivered.

use std::mem::offset_of;

use fulgurite_memory::{AccessError, Latch, Memory, Ptr};

use super::database::{Database, lock_all};
use super::request::Delivery;
use super::schema::{Customer, CustomerHead, DISTRICTS, District, LINES_MAX, Order, OrderHead, OrderLine};
use crate::rows::{Rows, add, load, pin, store};

/// Most pins at once: the districts' subpage, and for each district an order and a customer.
pub(crate) const PINS: u32 = 1 + 2 * DISTRICTS as u32;

const TEN: usize = DISTRICTS as usize;

/// What is to be delivered in one district.
#[derive(Clone, Copy)]
struct Due {
    row: Ptr<District>,
    number: u32,
    order: Ptr<Order>,
    customer: Ptr<Customer>,
    customer_index: u64,
}

impl<L: Latch> Database<L> {
    pub fn delivery<M: Memory>(&self, memory: &mut M, delivery: &Delivery) -> Result<u64, AccessError> {
        let tables = &self.tables;
        let first_district = u64::from(delivery.warehouse) * DISTRICTS;
        let rows_pin = pin(memory, tables.districts.at(u64::from(delivery.warehouse)))?;
        let first_at = |row: Ptr<District>| row.field::<u32>(offset_of!(District, first_undelivered));
        let next_at = |row: Ptr<District>| row.field::<u32>(offset_of!(District, next_order));
        loop {
            // Find and pin, without a latch.
            let mut due = [const { None::<(Due, M::Pin, M::Pin)> }; TEN];
            let mut latches = [usize::MAX; TEN];
            let mut stale = false;
            for (district, due) in (first_district..).zip(&mut due) {
                let row = tables.district(district);
                let (number, end) = (load(&rows_pin, first_at(row)), load(&rows_pin, next_at(row)));
                if number == end {
                    continue;
                }
                let order = tables.order(district, number);
                let order_pin = pin(memory, order)?;
                let head: OrderHead = load(&order_pin, order.cast());
                if head.number != number || u64::from(head.customer) >= tables.shape.customers {
                    stale = true;
                    break;
                }
                let customer_index = district * tables.shape.customers + u64::from(head.customer);
                let customer = tables.customers.at(customer_index);
                let customer_pin = pin(memory, customer)?;
                *due = Some((Due { row, number, order, customer, customer_index }, order_pin, customer_pin));
            }
            if stale {
                // Delivered and replaced under our eyes, or damaged: then that will not change.
                self.confirm(memory, first_district)?;
                continue;
            }
            let mut districts: [usize; TEN] = std::array::from_fn(|i| first_district as usize + i);
            let _section = memory.write_section()?;
            let _districts = lock_all::<L, M, TEN>(&self.districts, memory, &mut districts)?;
            let same = (first_district..).zip(&due).all(|(district, due)| {
                let row = tables.district(district);
                let now: u32 = load(&rows_pin, first_at(row));
                match due {
                    Some((due, ..)) => now == due.number,
                    None => now == load::<_, u32>(&rows_pin, next_at(row)),
                }
            });
            if !same {
                continue;
            }
            let mut customer_count = 0;
            for (due, ..) in due.iter().flatten() {
                latches[customer_count] = self.customers.index(due.customer_index);
                customer_count += 1;
            }
            let _customers = lock_all::<L, M, TEN>(&self.customers, memory, &mut latches[..customer_count])?;

            // Nothing below can fail.
            let mut delivered = 0;
            for (due, order_pin, customer_pin) in due.iter().flatten() {
                let mut head: OrderHead = load(order_pin, due.order.cast());
                head.carrier = u32::from(delivery.carrier);
                store(order_pin, due.order.cast(), head);
                let lines = due.order.field::<OrderLine>(offset_of!(Order, lines));
                let mut amount = 0;
                for i in 0..u64::from(head.line_count).min(LINES_MAX as u64) {
                    let line = lines.offset(i);
                    amount += u64::from(load::<_, u32>(order_pin, line.field(offset_of!(OrderLine, amount_cents))));
                    store(order_pin, line.field(offset_of!(OrderLine, delivery_date)), delivery.date);
                }
                let mut customer: CustomerHead = load(customer_pin, due.customer.cast());
                customer.balance_cents = customer.balance_cents.wrapping_add(amount as i64);
                customer.delivery_count = customer.delivery_count.wrapping_add(1);
                store(customer_pin, due.customer.cast(), customer);
                add(&rows_pin, due.row.field(offset_of!(District, delivered_cents)), amount);
                store(&rows_pin, first_at(due.row), due.number.wrapping_add(1));
                delivered += 1;
            }
            return Ok(delivered);
        }
    }

    /// Whether the oldest undelivered order of each district is where it belongs, for certain.
    #[cold]
    fn confirm<M: Memory>(&self, memory: &mut M, first_district: u64) -> Result<(), AccessError> {
        for district in first_district..first_district + DISTRICTS {
            let _held = self.districts.get(district as usize).lock(memory)?;
            let row: District = memory.load(self.tables.district(district))?;
            if row.first_undelivered == row.next_order {
                continue;
            }
            let place = self.tables.order(district, row.first_undelivered);
            let head: OrderHead = memory.load(place.cast())?;
            if head.number != row.first_undelivered || u64::from(head.customer) >= self.shape().customers {
                return Err(AccessError::Corrupt {
                    what: "order",
                    at: place.address(),
                    expected: u64::from(row.first_undelivered),
                    got: u64::from(head.number),
                });
            }
        }
        Ok(())
    }
}
