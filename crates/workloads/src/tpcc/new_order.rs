//! The new-order transaction (clause 2.4): reads warehouse, customer, items. Takes the district's
//! next number. Takes from stock. Writes the order and its lines.

use std::mem::offset_of;

use fulgurite_memory::{AccessError, Latch, Memory, Pinned, Ptr};
use zerocopy::IntoBytes;

use super::database::{Database, lock_all};
use super::populate::is_original;
use super::request::{NO_ITEM, NewOrder};
use super::schema::{
    CustomerHead, DISTRICTS, District, Item, LINES_MAX, Order, OrderHead, OrderLine, Stock, StockCounts, Warehouse,
};
use crate::rows::{Rows, load, pin, store};

/// Most pins at once: district, latest order, order, and a row of stock for each line.
pub(crate) const PINS: u32 = 3 + LINES_MAX as u32;

/// What an order that was rolled back returns.
pub(crate) const ROLLED_BACK: u64 = u64::MAX;

pub(crate) const NO_LINE: OrderLine =
    OrderLine { delivery_date: 0, item: 0, supply_warehouse: 0, quantity: 0, amount_cents: 0, district_info: [0; 24] };

/// What an item costs, and whether its data says "ORIGINAL". Neither ever changes.
#[inline]
pub(crate) fn read_item<M: Memory>(memory: &mut M, item: Ptr<Item>) -> Result<(u32, bool), AccessError> {
    let view = memory.view(item.address(), size_of::<Item>())?;
    let data: [u64; 7] = view.load(offset_of!(Item, data));
    Ok((view.load(offset_of!(Item, price_cents)), is_original(&data)))
}

/// Stock after an order of `quantity` (clause 2.4.2.2).
#[inline]
pub(crate) fn take(counts: StockCounts, quantity: u32, remote: bool) -> StockCounts {
    StockCounts {
        quantity: if counts.quantity >= quantity + 10 {
            counts.quantity - quantity
        } else {
            counts.quantity + 91 - quantity
        },
        ytd: counts.ytd.wrapping_add(quantity),
        order_count: counts.order_count.wrapping_add(1),
        remote_count: counts.remote_count.wrapping_add(u32::from(remote)),
    }
}

/// What the customer pays (clause 2.4.2.2), in cents. Taxes and discount are in hundredths of a
/// percent.
#[inline]
pub(crate) fn total_cents(sum: u64, discount: u32, warehouse_tax: u32, district_tax: u32) -> u64 {
    sum * u64::from(10_000u32.saturating_sub(discount)) * u64::from(10_000 + warehouse_tax + district_tax) / 100_000_000
}

impl<L: Latch> Database<L> {
    pub fn new_order<M: Memory>(&self, memory: &mut M, order: &NewOrder) -> Result<u64, AccessError> {
        let tables = &self.tables;
        let district = u64::from(order.warehouse) * DISTRICTS + u64::from(order.district);
        let buyer = district * tables.shape.customers + u64::from(order.customer);

        // What never changes, without a latch.
        let warehouse = tables.warehouses.at(u64::from(order.warehouse));
        let warehouse_tax: u32 = memory.load(warehouse.field(offset_of!(Warehouse, tax)))?;
        let customer: CustomerHead = memory.load(tables.customers.at(buyer).cast())?;

        // The lines, and pins on what they take from.
        let count = usize::from(order.line_count);
        let mut written = Order {
            head: OrderHead {
                number: 0,
                customer: order.customer,
                entry_date: order.date,
                carrier: 0,
                line_count: count as u32,
                all_local: 1,
                unused: 0,
            },
            lines: [NO_LINE; LINES_MAX],
        };
        let mut stock_pins = [const { None::<M::Pin> }; LINES_MAX];
        let mut stock_latches = [0; LINES_MAX];
        let (mut sum, mut generic) = (0, 0);
        for (i, line) in order.lines[..count].iter().enumerate() {
            if line.item == NO_ITEM {
                return Ok(ROLLED_BACK);
            }
            let (price, original) = read_item(memory, tables.items.at(u64::from(line.item)))?;
            let stock = self.stock_of(line.supply, line.item);
            let pinned = pin(memory, stock)?;
            let row = pinned.view(stock.address().subpage_offset(), size_of::<Stock>());
            let info: [u64; 3] = row.load(offset_of!(Stock, districts) + 24 * usize::from(order.district));
            generic += u64::from(!(original && is_original(&row.load(offset_of!(Stock, data)))));
            let line_into = &mut written.lines[i];
            line_into.item = line.item + 1;
            line_into.supply_warehouse = u32::from(line.supply);
            line_into.quantity = u32::from(line.quantity);
            line_into.amount_cents = price * u32::from(line.quantity);
            line_into.district_info.copy_from_slice(info.as_bytes());
            written.head.all_local &= u32::from(line.supply == order.warehouse);
            sum += u64::from(line_into.amount_cents);
            stock_pins[i] = Some(pinned);
            stock_latches[i] = self.stock.index(u64::from(line.supply) << 32 | u64::from(line.item));
        }
        let (latest, row) = (tables.latest.at(buyer), tables.district(district));
        let (latest_pin, row_pin) = (pin(memory, latest)?, pin(memory, row)?);
        let district_tax: u32 = load(&row_pin, row.field(offset_of!(District, tax)));

        loop {
            // The slot of the next order is known for certain only under the latch.
            let next = row.field::<u32>(offset_of!(District, next_order));
            let guess = tables.order(district, load(&row_pin, next));
            let order_pin = pin(memory, guess)?;
            let _section = memory.write_section()?;
            let _district = self.districts.get(district as usize).lock(memory)?;
            let number: u32 = load(&row_pin, next);
            let place = tables.order(district, number);
            if place.address().subpage() != guess.address().subpage() {
                continue;
            }
            let _stock = lock_all::<L, M, LINES_MAX>(&self.stock, memory, &mut stock_latches[..count])?;

            // Nothing below can fail.
            for (line, pinned) in order.lines[..count].iter().zip(stock_pins.iter().flatten()) {
                let counts = self.stock_of(line.supply, line.item).cast::<StockCounts>();
                let taken = take(load(pinned, counts), u32::from(line.quantity), line.supply != order.warehouse);
                store(pinned, counts, taken);
            }
            self.retire(&row_pin, district, number);
            written.head.number = number;
            store(&order_pin, place, written);
            store(&latest_pin, latest, number);
            store(&row_pin, next, number.wrapping_add(1));
            return Ok(total_cents(sum, customer.discount, warehouse_tax, district_tax) + generic);
        }
    }

    /// Takes the order whose place order `number` gets off NEW-ORDER, if it is still there.
    fn retire<P: Pinned>(&self, row_pin: &P, district: u64, number: u32) {
        let row = self.tables.district(district);
        let first = row.field::<u32>(offset_of!(District, first_undelivered));
        let oldest = load(row_pin, first);
        if u64::from(number.wrapping_sub(oldest)) >= self.shape().ring() {
            store(row_pin, first, oldest.wrapping_add(1));
            let retired = row.field::<u32>(offset_of!(District, retired_undelivered));
            store(row_pin, retired, load::<_, u32>(row_pin, retired).wrapping_add(1));
        }
    }

    #[inline(always)]
    fn stock_of(&self, warehouse: u16, item: u32) -> Ptr<Stock> {
        self.tables.stock.at(u64::from(warehouse) * self.shape().items + u64::from(item))
    }
}
