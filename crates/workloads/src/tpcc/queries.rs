//! The two transactions that only read: order-status (clause 2.6) and stock-level (clause 2.8).

use std::mem::offset_of;

use fulgurite_memory::{AccessError, Latch, Memory, optimistic};

use super::database::Database;
use super::request::{OrderStatus, StockLevel};
use super::schema::{CustomerHead, DISTRICTS, District, LINES_MAX, Order, OrderHead, OrderLine, Stock, StockCounts};
use crate::rows::Rows;

/// Orders that stock-level reads (clause 2.8.2.2).
const RECENT: usize = 20;

impl<L: Latch> Database<L> {
    /// A customer's balance and latest order, as of one moment.
    pub fn order_status<M: Memory>(&self, memory: &mut M, query: &OrderStatus) -> Result<u64, AccessError> {
        let tables = &self.tables;
        let district = u64::from(query.warehouse) * DISTRICTS + u64::from(query.district);
        let index = district * tables.shape.customers + self.find(memory, district, query.who)?;
        let (customer, latest) = (tables.customers.checked(index)?, tables.latest.checked(index)?);
        let customer_latch = self.customers.of(index);
        // A delivery changes both: the customer's window is inside the district's.
        optimistic::read(self.districts.get(district as usize), memory, |memory, _| {
            optimistic::read(customer_latch, memory, |memory, _| {
                let head: CustomerHead = memory.load(customer.cast())?;
                let number = memory.load(latest)?;
                let order = memory.view(tables.order(district, number).address(), size_of::<Order>())?;
                let order_head: OrderHead = order.load(0);
                let mut found = (head.balance_cents as u64).wrapping_add(u64::from(order_head.carrier));
                // An order that is no longer kept has given its place to another.
                if number != 0 && order_head.number == number {
                    for i in 0..(order_head.line_count as usize).min(LINES_MAX) {
                        let line: OrderLine = order.load(offset_of!(Order, lines) + i * size_of::<OrderLine>());
                        found = found.wrapping_add(u64::from(line.amount_cents)).wrapping_add(line.delivery_date);
                    }
                }
                Ok(found)
            })
        })
    }

    /// How many of the items that a district sold lately are nearly sold out. The orders are as of
    /// one moment. Stock is read as committed, which is the isolation that the standard asks for
    /// (clause 2.8.2.3).
    pub fn stock_level<M: Memory>(&self, memory: &mut M, query: &StockLevel) -> Result<u64, AccessError> {
        let tables = &self.tables;
        let district = u64::from(query.warehouse) * DISTRICTS + u64::from(query.district);
        let row = tables.district(district);
        let mut items = [0u32; RECENT * LINES_MAX];
        let count = optimistic::read(self.districts.get(district as usize), memory, |memory, _| {
            let next: u32 = memory.load(row.field(offset_of!(District, next_order)))?;
            let mut count = 0;
            for number in next.saturating_sub(RECENT as u32).max(1)..next {
                let order = memory.view(tables.order(district, number).address(), size_of::<Order>())?;
                let head: OrderHead = order.load(0);
                for i in 0..(head.line_count as usize).min(LINES_MAX) {
                    let line = offset_of!(Order, lines) + i * size_of::<OrderLine>();
                    items[count] = order.load(line + offset_of!(OrderLine, item));
                    count += 1;
                }
            }
            Ok(count)
        })?;
        let items = &mut items[..count];
        items.sort_unstable();
        let (mut low, mut last) = (0, 0);
        for &item in items.iter() {
            if item != last {
                last = item;
                let place = u64::from(query.warehouse) * tables.shape.items + u64::from(item) - 1;
                let stock = tables.stock.checked(place)?.cast::<Stock>();
                let quantity: u32 = memory.load(stock.field(offset_of!(StockCounts, quantity)))?;
                low += u64::from(quantity < u32::from(query.threshold));
            }
        }
        Ok(low)
    }
}
